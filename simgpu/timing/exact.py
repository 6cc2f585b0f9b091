"""Every CTA of a launch on every SM, in one simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import simpy

from simgpu.program.worklist import WorkTile
from simgpu.timing.barrier import check_finished
from simgpu.timing.book import JobBook
from simgpu.timing.sm import Sm

if TYPE_CHECKING:
    from simgpu.cost.job import MissRates
    from simgpu.cost.work import Work
    from simgpu.hardware.machine import Machine
    from simgpu.program.program import Launch
    from simgpu.timing.watch import Watch


@dataclass(frozen=True, slots=True)
class Watched:
    """Who watches which SM; with ``waves`` only so many CTAs a slot are dispatched."""

    sm: int
    watch: Watch
    waves: int | None = None


class _Cta(NamedTuple):
    """A CTA to be started, and where it finds its tiles: the last one is the next."""

    tiles: list[WorkTile]

    def next(self) -> WorkTile | None:
        """Return the next tile; None when there is none left."""
        return self.tiles.pop() if self.tiles else None


class Device:
    """All SMs; CTAs go in launch order to the first SM with a free slot, breadth first.

    Persistent ones keep their slots, and take the next tile when the first of their roles has done
    its part of the last: one of their own, or one that all SMs share.
    ``watched`` is for one SM: of others that do the same in step only one is simulated, and none
    that cannot change what the SM does. With ``cut`` the grid was not dispatched to its end.
    """

    def __init__(
        self,
        launch: Launch,
        dtype: str,
        machine: Machine,
        slots: int,
        misses: MissRates,
        hbm_used: float = 1.0,
        watched: Watched | None = None,
    ) -> None:
        self.env = simpy.Environment()
        self._hbm_used = hbm_used
        self._machine, self._slots = machine, slots
        tiles, busy = launch.grid.tiles, min(launch.grid.tiles, machine.sms)
        if watched and watched.waves is not None:
            tiles = min(tiles, watched.waves * slots * busy)
        self.cut = tiles < launch.grid.tiles
        queue = _in_launch_order(launch, tiles)
        sms = {sm: 1 for sm in range(busy)}
        if watched and (len(launch.classes) == 1 or (self.cut and watched.waves == 1)):
            sms = _apart(watched.sm, tiles, busy)
            parts = [(queue[sm::busy], slots) for sm in sms]
            self._queues = [_ctas(launch, part, fit) for part, fit in parts]
        else:
            self._queues = [_ctas(launch, queue, slots * busy)] * busy
        self._alike = list(sms.values())
        self.book = JobBook(machine, dtype, misses)
        capacity = machine.shared_by(busy, hbm_used)
        watches = {watched.sm: watched.watch} if watched else {}
        self.sms = [Sm(self.env, machine, self.book, capacity, watches.get(sm)) for sm in sms]
        self._resident = [0] * len(sms)
        self.residence = 0.0
        self.end = 0.0

    def run(self) -> None:
        """Dispatch everything and run to the end; VerifyError if some CTA never finishes."""
        for _ in range(self._slots):
            for sm, queue in enumerate(self._queues):
                if queue:
                    self._start(sm)
        self.env.run()
        waiting = {id(queue): len(queue) for queue in self._queues}
        check_finished(sum(self._resident) + sum(waiting.values()))

    def _start(self, sm: int) -> None:
        cta = self._queues[sm].pop()
        first = cta.tiles.pop()
        self._resident[sm] += 1
        started = self.env.now
        self.sms[sm].start(first, lambda: self._end(sm, started), cta.next)

    def _end(self, sm: int, started: float) -> None:
        self.end = self.env.now
        self.residence += self.end - started
        self._resident[sm] -= 1
        if self._queues[sm]:
            self._start(sm)
        elif not self._resident[sm] and not self.cut:
            self._share()

    def _share(self) -> None:
        """An SM has run dry: the others share L2 and HBM."""
        busy = [i for i, resident in enumerate(self._resident) if resident]
        if busy:
            sharing = sum(self._alike[i] for i in busy)
            capacity = self._machine.shared_by(sharing, self._hbm_used)
            for i in busy:
                self.sms[i].units.resize(capacity)

    @property
    def work(self) -> Work:
        """What all SMs served."""
        first, *rest = (sm.ledger.work for sm in self.sms)
        for other in rest:
            first = first.plus(other)
        return first


def _in_launch_order(launch: Launch, tiles: int) -> list[WorkTile]:
    return [
        WorkTile(launch.classes[number].program, at)
        for number, at in islice(
            zip(launch.in_order(), launch.grid.coordinates(), strict=True), tiles
        )
    ]


def _ctas(launch: Launch, tiles: list[WorkTile], slots: int) -> list[_Cta]:
    """Return the CTAs that are launched where ``slots`` fit at once, the last one first."""
    number = min(len(tiles), slots) if launch.grid.persistent else len(tiles)
    if launch.grid.persistent == "dynamic":
        shared = tiles[::-1]
        return [_Cta(shared) for _ in range(number)]
    return [_Cta(tiles[i::number][::-1]) for i in reversed(range(number))]


def _apart(sm: int, tiles: int, busy: int) -> dict[int, int]:
    """Return the SMs to simulate, and for how many each stands, when all tiles are alike.

    All SMs run in step; the first of them get one tile more when they cannot share evenly.
    """
    more = tiles % busy
    sizes = {range(more): more, range(more, busy): busy - more}
    return {sm if sm in group else group[0]: size for group, size in sizes.items() if size}


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
