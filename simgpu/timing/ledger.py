"""What an SM served, and how its roles spent their time."""

from __future__ import annotations

from simgpu.cost.work import Work


class Ledger:
    """What an SM served, and how its roles spent their time (role-cycles by reason)."""

    def __init__(self) -> None:
        self.time: dict[str, float] = {}
        self._served: dict[int, tuple[Work, int]] = {}

    def spend(self, reason: str, cycles: float) -> None:
        """Add role-cycles to a reason."""
        self.time[reason] = self.time.get(reason, 0.0) + cycles

    def credit(self, asked: Work) -> None:
        """Count an operation's whole demand, now that it is served."""
        known = self._served.get(id(asked))
        self._served[id(asked)] = (asked, known[1] + 1 if known else 1)

    @property
    def work(self) -> Work:
        """Everything served."""
        total = Work()
        for asked, times in self._served.values():
            total = total.plus(asked, times)
        return total
