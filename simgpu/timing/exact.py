"""Every CTA of a launch on every SM, in one simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import simpy

from simgpu.timing.book import JobBook
from simgpu.timing.sm import Sm, check_finished

if TYPE_CHECKING:
    from simgpu.cost.jobs import MissRates
    from simgpu.cost.work import Work
    from simgpu.hardware.machine import Machine
    from simgpu.program.program import CtaClass, Launch


class Device:
    """All SMs; CTAs go in launch order to the first SM with a free slot, breadth first."""

    def __init__(
        self,
        launch: Launch,
        dtype: str,
        machine: Machine,
        slots: int,
        misses: MissRates,
        hbm_used: float = 1.0,
    ) -> None:
        self.env = simpy.Environment()
        self._hbm_used = hbm_used
        self._machine, self._slots = machine, slots
        numbers = launch.class_numbers()
        axes = list(launch.grid.work_axes)
        self._queue = [
            (launch.classes[numbers[tuple((n, at[n]) for n in axes)]], at)
            for at in launch.grid.coordinates()
        ]
        self._queue.reverse()
        book = JobBook(machine, dtype, misses)
        busy = min(len(self._queue), machine.sms)
        capacity = machine.shared_by(busy, hbm_used)
        self.sms = [Sm(self.env, machine, book, capacity) for _ in range(busy)]
        self._resident = [0] * busy
        self.residence = 0.0
        self.end = 0.0

    def run(self) -> None:
        """Dispatch everything and run to the end; VerifyError if some CTA never finishes."""
        total = len(self._queue)
        for number in range(min(total, len(self.sms) * self._slots)):
            self._start(number % len(self.sms))
        self.env.run()
        check_finished(sum(self._resident) + len(self._queue))

    def _start(self, sm: int) -> None:
        cta_class, at = self._queue.pop()
        self._resident[sm] += 1
        started = self.env.now
        self.sms[sm].start(
            cta_class.program, self._work(cta_class, at), lambda: self._end(sm, started)
        )

    @staticmethod
    def _work(cta_class: CtaClass, at: dict[str, int]) -> dict[str, int]:
        return {name: at[name] for name in cta_class.env}

    def _end(self, sm: int, started: float) -> None:
        self.end = self.env.now
        self.residence += self.end - started
        self._resident[sm] -= 1
        if self._queue:
            self._start(sm)
        elif not self._resident[sm]:
            self._share()

    def _share(self) -> None:
        """An SM has run dry: the others share L2 and HBM."""
        busy = [i for i, resident in enumerate(self._resident) if resident]
        if busy:
            capacity = self._machine.shared_by(len(busy), self._hbm_used)
            for i in busy:
                self.sms[i].units.resize(capacity)

    @property
    def work(self) -> Work:
        """What all SMs served."""
        first, *rest = (sm.ledger.work for sm in self.sms)
        for other in rest:
            first = first.plus(other)
        return first


def simulate_exactly(
    launch: Launch,
    dtype: str,
    machine: Machine,
    slots: int,
    misses: MissRates,
    hbm_used: float = 1.0,
) -> tuple[float, float, dict[str, float]]:
    """Return the last CTA's end, CTA-cycles of residence, and role-cycles by reason."""
    device = Device(launch, dtype, machine, slots, misses, hbm_used)
    device.run()
    time: dict[str, float] = {}
    for sm in device.sms:
        for reason, cycles in sm.ledger.time.items():
            time[reason] = time.get(reason, 0.0) + cycles
    return device.end, device.residence, time
