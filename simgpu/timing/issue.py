"""A compiled loop, cycle by cycle: how long a pass takes when warps share a scheduler.

One of an SM's schedulers is followed, since all four do the same: each has a warp of every
warpgroup. Warps issue in program order; the compiler's stall counts and scoreboards say how long a
warp must wait, and whoever is ready and has waited for its turn longest goes next. Products,
exponentials, copies and barriers take their time beside. (The stall counts and scoreboards are in
the binary; how schedulers use them: Huerta et al., 2025, arXiv 2503.20481.)
"""

from __future__ import annotations

import heapq
import math
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from simgpu.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.hardware.machine import Machine
    from simgpu.hardware.sections import Issue

#: What a scheduler tells apart: ``mma`` reads A from shared memory, ``mma_registers`` from
#: registers; ``wait_mma`` and ``wait_copies`` leave some groups pending.
Kind = Literal[
    "mma", "mma_registers", "wait_mma", "wait_copies", "commit", "barrier", "copy", "load",
    "shared", "shuffle", "mufu", "alu", "other",
]  # fmt: skip

SCOREBOARDS = 6
#: Passes followed, and how many of the first do not count.
PASSES, FIRST = 11, 5
#: Cycles between the starts of co-resident CTAs: the two ends of what clock stamps show
#: (validation/measured/h200_sxm/cta_phase.json); a pass is their mean.
GAPS = (20.0, 130.0)
_LANES_BYTES = 512  # of a copy of 16 bytes a lane
_MMA_DEPTH_BYTES = 32  # of one row or column of a product's operands


class Issued(NamedTuple):
    """One instruction as a scheduler sees it.

    ``stall`` cycles pass before the warp's next; ``waits`` is a mask of scoreboards that must be
    clear before it issues, ``result`` and ``reads`` those it sets until its result is there, or its
    operands are read (7: none). ``even`` and ``odd`` registers are read from each bank. ``n`` are a
    product's columns, the groups that a wait leaves pending, or a shared access's bytes a lane;
    ``last`` says that a product closes its group.
    """

    kind: Kind
    stall: int = 1
    waits: int = 0
    result: int = 7
    reads: int = 7
    even: int = 0
    odd: int = 0
    n: int = 0
    last: bool = False


def pass_cycles(
    code: Sequence[Issued], machine: Machine, residents: int, warps: int, late: float = 0.0
) -> float:
    """Return the cycles of one pass of a loop, with ``residents`` CTAs of ``warps`` warps on an SM.

    ``late`` is the share of loads that see HBM's latency. Raises UnsupportedError for a profile
    without an ``issue`` section, or a loop that never ends.
    """
    numbers = machine.profile.issue
    if numbers is None:
        raise UnsupportedError(f"{machine.profile.name} has no numbers for compiled loops")
    groups = math.ceil(warps / machine.profile.occupancy.sub_partitions)
    found = []
    for gap in GAPS if residents > 1 else GAPS[:1]:
        scheduler = _Scheduler(code, machine, numbers, late)
        for cta in range(residents):
            scheduler.admit(cta, groups, cta * gap)
        found.append(scheduler.run())
    return fmean(found)


class _Warp:
    """One warp: where it is, and what it waits for."""

    __slots__ = ("at", "copies", "cta", "fetched", "number", "products", "ready", "sets", "tops")

    def __init__(self, number: int, cta: int, start: float) -> None:
        self.number, self.cta, self.ready = number, cta, start
        self.at = 0
        self.sets = [0.0] * SCOREBOARDS  # when each scoreboard clears
        self.tops: list[float] = []  # when each pass began
        self.products: list[float] = []  # when each group of products is done
        self.copies: list[float] = []  # when each group of copies has landed
        self.fetched = 0.0  # when the copies of the group that is open will have landed


class _Scheduler:
    """A quarter of an SM; units are known by when they are free again."""

    def __init__(
        self, code: Sequence[Issued], machine: Machine, numbers: Issue, late: float
    ) -> None:
        rates, memory = machine.profile.rates, machine.profile.memory
        parts = machine.profile.occupancy.sub_partitions
        self._code, self._numbers = code, numbers
        self._mufu_cycles = parts / rates.mufu_instructions
        self._alu_cycles = parts / rates.alu_instructions
        self._column_cycles = 2 * 64 * 16 / machine.tensor_flops("fp16")
        self._smem_bytes = rates.smem_bytes
        self._copy_cycles = parts * _LANES_BYTES / rates.lsu_bytes
        self._fetch_cycles = parts * _LANES_BYTES / numbers.l2_bytes
        self._late = late * (memory.hbm_latency_cycles - memory.l2_hit_latency_cycles)
        self._warps: list[_Warp] = []
        self._groups = 0
        self._mufu = self._alu = self._lsu = self._l2 = self._tensor = 0.0
        self._banks = [0.0, 0.0]
        self._smem = 0.0
        self._fills: list[float] = []  # when copies land in shared memory
        self._queued: list[float] = []  # when products that were issued begin
        self._waiting: dict[int, list[_Warp]] = {}
        self._owed = 0.0

    def admit(self, cta: int, groups: int, start: float) -> None:
        """Add a CTA with one warp of each of its ``groups`` warpgroups here."""
        self._groups = groups
        for _ in range(groups):
            self._warps.append(_Warp(len(self._warps), cta, start))

    def run(self) -> float:
        """Follow all warps through `PASSES` passes; return the mean cycles of the later ones."""
        now, turn = 0.0, 0
        active = list(self._warps)
        while active:
            blocked = {w.number for some in self._waiting.values() for w in some}
            ready = [(self._ready(w), w) for w in active if w.number not in blocked]
            if not ready:
                raise UnsupportedError("the compiled loop waits for a barrier that never completes")
            now = max(now, min(at for at, _ in ready))
            behind = [
                ((w.number - turn) % len(self._warps), w.number) for at, w in ready if at <= now
            ]
            warp = self._warps[min(behind)[1]]
            turn = warp.number + 1
            now += self._issue(warp, now)
            if len(warp.tops) > PASSES:
                active.remove(warp)
        return fmean((w.tops[PASSES] - w.tops[FIRST]) / (PASSES - FIRST) for w in self._warps)

    def _ready(self, warp: _Warp) -> float:
        """Return when a warp's next instruction may issue, as far as is known now."""
        x, numbers = self._code[warp.at], self._numbers
        at = max(warp.ready, max(self._banks) - numbers.register_window_cycles)
        if x.waits:
            at = max(at, *(s for i, s in enumerate(warp.sets) if x.waits >> i & 1))
        match x.kind:
            case "mufu":
                at = max(at, self._mufu - numbers.mufu_queue * self._mufu_cycles)
            case "alu":
                at = max(at, self._alu)
            case "mma" | "mma_registers":
                if len(self._queued) >= numbers.mma_queue:
                    at = max(at, self._queued[-numbers.mma_queue])
            case "copy" | "load" | "shared" | "shuffle":
                at = max(at, self._lsu - numbers.lsu_queue * self._copy_cycles)
            case "wait_mma":
                at = max(at, _landed(warp.products, x.n))
            case "wait_copies":
                at = max(at, _landed(warp.copies, x.n))
        return at

    def _issue(self, warp: _Warp, now: float) -> float:
        """Issue a warp's next instruction; return the cycles that the issue slot is taken."""
        x = self._code[warp.at]
        if warp.at == 0:
            warp.tops.append(now)
        warp.ready = now + x.stall
        self._read_registers(x, now)
        done = self._execute(x, warp, now)
        if done and x.result < SCOREBOARDS:
            warp.sets[x.result] = max(warp.sets[x.result], done)
        warp.at += 1
        if warp.at == len(self._code):
            warp.at = 0
            warp.ready = max(warp.ready, now + self._numbers.loop_cycles)
            del warp.products[:-SCOREBOARDS], warp.copies[:-SCOREBOARDS]
        if now < self._tensor and not x.kind.startswith("mma"):
            self._owed += self._numbers.mma_issue_cycles
        taken = 1.0 + math.floor(self._owed)
        self._owed -= math.floor(self._owed)
        return taken

    def _read_registers(self, x: Issued, now: float) -> None:
        """Take the read ports of the register banks, which accumulators use as well."""
        busy = self._numbers.mma_register_share if now < self._tensor else 0.0
        for bank, count in enumerate((x.even, x.odd)):
            if count:
                self._banks[bank] = max(self._banks[bank], now) + count / (1.0 - busy)

    def _execute(self, x: Issued, warp: _Warp, now: float) -> float:
        """Let the instruction's unit serve it; return when its result is there (0: no matter)."""
        numbers = self._numbers
        match x.kind:
            case "mufu":
                self._owed += numbers.mufu_issue_cycles
                self._mufu = max(self._mufu, now) + self._mufu_cycles
                return self._mufu - self._mufu_cycles + numbers.mufu_latency_cycles
            case "alu":
                self._alu = max(self._alu, now) + self._alu_cycles
            case "shuffle" | "shared":
                size = x.n if x.kind == "shared" else 4
                self._lsu = max(self._lsu, now) + self._copy_cycles * size / 16
                return self._lsu + numbers.shuffle_latency_cycles
            case "copy" | "load":
                return self._fetch(x, warp, now)
            case "commit":
                warp.copies.append(warp.fetched)
            case "mma" | "mma_registers":
                self._multiply(x, warp, now)
            case "barrier":
                self._meet(warp, now)
        return 0.0

    def _fetch(self, x: Issued, warp: _Warp, now: float) -> float:
        numbers = self._numbers
        # a plain load fills L1 and is read out of it: both pass its port
        self._lsu = max(self._lsu, now) + self._copy_cycles * (2 if x.kind == "load" else 1)
        self._l2 = max(self._l2, self._lsu) + self._fetch_cycles
        if x.reads < SCOREBOARDS:
            warp.sets[x.reads] = max(warp.sets[x.reads], self._lsu)
        if x.kind == "load":
            return self._l2 + numbers.load_latency_cycles + self._late
        landed = self._l2 + numbers.copy_latency_cycles + self._late
        heapq.heappush(self._fills, landed)
        warp.fetched = max(warp.fetched, landed)
        return 0.0

    def _multiply(self, x: Issued, warp: _Warp, now: float) -> None:
        numbers = self._numbers
        begin = max(self._tensor, now)
        self._tensor = max(begin + x.n * self._column_cycles, self._operands(x, begin))
        self._queued = [at for at in self._queued if at > now] + [begin]
        if x.last:
            from_shared = x.kind == "mma"
            latency = (
                numbers.mma_shared_latency_cycles
                if from_shared
                else numbers.mma_registers_latency_cycles
            )
            warp.products.append(self._tensor + latency)

    def _operands(self, x: Issued, begin: float) -> float:
        """Return when shared memory has delivered a product's operands, among copies that land."""
        fill = self._numbers.fill_cycles
        self._smem = self._land(max(self._smem, begin - self._numbers.operand_lead_cycles), begin)
        rows = 64 if x.kind == "mma" else 0
        done = self._smem + _MMA_DEPTH_BYTES * (x.n + rows) / self._smem_bytes
        while self._fills and self._fills[0] <= done:
            heapq.heappop(self._fills)
            done += fill
        self._smem = done
        return done

    def _land(self, free: float, now: float) -> float:
        """Return when shared memory is free of what has landed by ``now``."""
        while self._fills and self._fills[0] <= now:
            free = max(free, heapq.heappop(self._fills)) + self._numbers.fill_cycles
        return free

    def _meet(self, warp: _Warp, now: float) -> None:
        """Wait at the CTA's barrier until all its warpgroups are there."""
        waiting = self._waiting.setdefault(warp.cta, [])
        waiting.append(warp)
        if len(waiting) == self._groups:
            more = self._groups - 1
            cycles = self._numbers.barrier_cycles + more * self._numbers.barrier_more_cycles
            for w in waiting:
                w.ready = max(w.ready, now + cycles)
            waiting.clear()


def _landed(groups: list[float], pending: int) -> float:
    """Return when at most ``pending`` of the groups are still under way."""
    return groups[-pending - 1] if len(groups) > pending else 0.0
