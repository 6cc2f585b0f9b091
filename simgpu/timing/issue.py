"""A compiled loop, cycle by cycle: how long a pass takes when warps share a scheduler.

One of an SM's schedulers is followed, since all four do the same: each has a warp of every
warpgroup, which have one loop in common or, as consumers with roles, each its own. Warps issue in
program order; the compiler's stall counts and scoreboards say how long a warp must wait, and
whoever is ready and has waited for its turn longest goes next. Products, exponentials, copies and
barriers take their time beside. (The stall counts and scoreboards are in the binary; how schedulers
use them: Huerta et al., 2025, arXiv 2503.20481.)
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

from simgpu.errors import UnsupportedError
from simgpu.timing.issued import SCOREBOARDS, Issued
from simgpu.timing.tensorcore import DEPTH_BYTES, TensorCore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.hardware.machine import Machine
    from simgpu.hardware.sections import Issue

#: Passes followed, and how many of the first do not count.
PASSES, FIRST = 11, 5
#: Cycles between the starts of co-resident CTAs. Clock stamps show both kinds: those that keep a
#: distance of 20 to 300 cycles, and those that drift (validation/measured/h200_sxm/cta_phase.json).
APART = 130.0
#: The same of consumers with roles: the first scores of one stand before those of the next. Taken
#: among seven distances by the errors of 21 loops (docs/decisions/0007-compiled-loops.md).
CONSUMERS_APART = (300.0, 500.0)
_LANES_BYTES = 512  # of a copy of 16 bytes a lane


def pass_cycles(
    loops: Sequence[Sequence[Issued]],
    machine: Machine,
    residents: int,
    late: float = 0.0,
    held: float = 0.0,
) -> float:
    """Return the cycles of one pass of a loop, with ``residents`` CTAs on an SM.

    ``loops`` holds the code of each warpgroup of a CTA, ``late`` the share of loads that see HBM's
    latency, ``held`` that of CTAs which keep their distance; the others drift. Raises
    UnsupportedError for a profile without an ``issue`` section, or a loop that never ends.
    """
    numbers = machine.profile.issue
    if numbers is None:
        raise UnsupportedError(f"{machine.profile.name} has no numbers for compiled loops")
    roles = any(x.kind == "mbarrier" for x in loops[0])
    ways = [(1.0 - held, APART, False), (held, APART, True)]  # weight, cycles apart, held there
    if roles:
        ways = [(1.0 / len(CONSUMERS_APART), gap, False) for gap in CONSUMERS_APART]
    elif residents == 1:
        ways = [(1.0, APART, False)]
    found = 0.0
    for weight, apart, keeps in ways:
        if not weight:
            continue
        scheduler = _Scheduler(machine, numbers, late)
        scheduler.held_apart = apart if keeps else None
        scheduler.bulk = _bulk_copies(loops[0], machine) if roles else 0
        for cta in range(residents):
            for number, code in enumerate(loops):
                start = (cta + roles * number) * apart
                scheduler.admit(cta, number, len(loops), code, start)
        found += weight * scheduler.run()
    return found


class _Warp:
    """One warp: where it is, and what it waits for."""

    __slots__ = (
        "at", "code", "copies", "cta", "fetched", "group", "groups", "number", "products", "ready",
        "resume", "sets", "tops",
    )  # fmt: skip

    def __init__(
        self, number: int, cta: int, group: int, groups: int, code: Sequence[Issued], start: float
    ) -> None:
        self.number, self.cta, self.group, self.groups = number, cta, group, groups
        self.code, self.ready, self.resume = code, start, start
        self.at = 0
        self.sets = [0.0] * SCOREBOARDS  # when each scoreboard clears
        self.tops: list[float] = []  # when each pass began
        self.products: list[float] = []  # when each group of products is done
        self.copies: list[float] = []  # when each group of copies has landed
        self.fetched = 0.0  # when the copies of the group that is open will have landed


class _Scheduler:
    """A quarter of an SM; units are known by when they are free again."""

    def __init__(self, machine: Machine, numbers: Issue, late: float) -> None:
        rates, memory = machine.profile.rates, machine.profile.memory
        parts = machine.profile.occupancy.sub_partitions
        self._numbers = numbers
        self.bulk = 0  # copies of 2 KB that a producer makes land in each pass
        self.held_apart: float | None = None  # cycles between CTAs at the loop's top
        self._at_top: list[_Warp] = []
        self._mufu_cycles = parts / rates.mufu_instructions
        self._alu_cycles = parts / rates.alu_instructions
        self._copy_cycles = parts * _LANES_BYTES / rates.lsu_bytes
        self._fetch_cycles = parts * _LANES_BYTES / numbers.l2_bytes
        self._late = late * (memory.hbm_latency_cycles - memory.l2_hit_latency_cycles)
        self._tensor = TensorCore(machine, numbers)
        self._warps: list[_Warp] = []
        self._mufu = self._alu = self._lsu = self._l2 = 0.0
        self._banks = [0.0, 0.0]
        self._waiting: dict[int, list[_Warp]] = {}
        self._turns: dict[tuple[int, int], float] = {}  # of a CTA's warpgroup: since when
        self._owed = 0.0

    def admit(self, cta: int, group: int, groups: int, code: Sequence[Issued], at: float) -> None:
        """Add the warp that warpgroup ``group`` of a CTA has here; the first has the first turn."""
        self._warps.append(_Warp(len(self._warps), cta, group, groups, code, at))
        if group == 0:
            self._turns[cta, 0] = at

    def run(self) -> float:
        """Follow all warps through `PASSES` passes; return the mean cycles of the later ones."""
        now, turn = 0.0, 0
        while any(len(w.tops) <= PASSES for w in self._warps):
            ready = [(self._ready(w), w) for w in self._warps]
            now = max(now, min(at for at, _ in ready))
            if now == math.inf:
                raise UnsupportedError("the compiled loop waits for a barrier that never completes")
            behind = [
                ((w.number - turn) % len(self._warps), w.number) for at, w in ready if at <= now
            ]
            warp = self._warps[min(behind)[1]]
            turn = warp.number + 1
            now += self._issue(warp, now)
        return fmean((w.tops[PASSES] - w.tops[FIRST]) / (PASSES - FIRST) for w in self._warps)

    def _ready(self, warp: _Warp) -> float:
        """Return when a warp's next instruction may issue, as far as is known now."""
        x, numbers = warp.code[warp.at], self._numbers
        at = max(warp.ready, max(self._banks) - numbers.register_window_cycles)
        if x.waits:
            at = max(at, *(s for i, s in enumerate(warp.sets) if x.waits >> i & 1))
        match x.kind:
            case "mufu":
                at = max(at, self._mufu - numbers.mufu_queue * self._mufu_cycles)
            case "alu":
                at = max(at, self._alu)
            case "mma" | "mma_registers":
                at = max(at, self._tensor.room())
            case "copy" | "load" | "shared" | "shuffle":
                at = max(at, self._lsu - numbers.lsu_queue * self._copy_cycles)
            case "wait_mma":
                at = max(at, _landed(warp.products, x.n))
            case "wait_copies":
                at = max(at, _landed(warp.copies, x.n))
            case "take_turn":
                at = max(at, self._turns.get((warp.cta, warp.group), math.inf))
        return at

    def _issue(self, warp: _Warp, now: float) -> float:
        """Issue a warp's next instruction; return the cycles that the issue slot is taken."""
        x, numbers = warp.code[warp.at], self._numbers
        if warp.at == 0:
            warp.tops.append(now)
            if warp.group == 0:
                for number in range(self.bulk):
                    self._tensor.land(now + number * self._fetch_cycles, numbers.bulk_fill_cycles)
        warp.ready = now + x.stall
        in_registers = self._tensor.reads_registers(now)
        self._read_registers(x, in_registers, now)
        done = self._execute(x, warp, now)
        if done and x.result < SCOREBOARDS:
            warp.sets[x.result] = max(warp.sets[x.result], done)
        warp.at += 1
        if warp.at == len(warp.code):
            warp.at = 0
            warp.ready = max(warp.ready, now + numbers.loop_cycles)
            if self.held_apart is not None:
                self._hold(warp, self.held_apart)
            del warp.products[:-SCOREBOARDS], warp.copies[:-SCOREBOARDS]
        if in_registers is not None and not x.kind.startswith("mma"):
            self._owed += (
                numbers.mma_issue_cycles if in_registers else numbers.mma_shared_issue_cycles
            )
        taken = 1.0 + math.floor(self._owed)
        self._owed -= math.floor(self._owed)
        return taken

    def _hold(self, warp: _Warp, apart: float) -> None:
        """Keep a warp at the loop's top until all are there; CTAs leave ``apart`` cycles apart."""
        self._at_top.append(warp)
        if len(self._at_top) < len(self._warps):
            warp.resume, warp.ready = warp.ready, math.inf
            return
        warp.resume = warp.ready
        begin = max(w.resume for w in self._at_top)
        for w in self._at_top:
            w.ready = begin + w.cta * apart
        self._at_top.clear()

    def _read_registers(self, x: Issued, in_registers: bool | None, now: float) -> None:
        """Take the read ports of the register banks, which accumulators use as well."""
        numbers = self._numbers
        busy = 0.0
        if in_registers is not None:
            busy = numbers.mma_register_share if in_registers else numbers.mma_shared_register_share
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
            case "mbarrier":
                return now + numbers.mbarrier_latency_cycles
            case "copy" | "load":
                return self._fetch(x, warp, now)
            case "commit":
                warp.copies.append(warp.fetched)
            case "mma" | "mma_registers":
                self._multiply(x, warp, now)
            case "barrier":
                self._meet(x, warp, now)
            case "take_turn" | "give_turn":
                return self._pass_turn(x, warp, now)
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
        self._tensor.land(landed, numbers.fill_cycles)
        warp.fetched = max(warp.fetched, landed)
        return 0.0

    def _multiply(self, x: Issued, warp: _Warp, now: float) -> None:
        numbers, in_registers = self._numbers, x.kind == "mma_registers"
        done = self._tensor.multiply(x.n, in_registers=in_registers, now=now)
        if x.last:
            latency = (
                numbers.mma_registers_latency_cycles
                if in_registers
                else numbers.mma_shared_latency_cycles
            )
            warp.products.append(done + latency)

    def _meet(self, x: Issued, warp: _Warp, now: float) -> None:
        """Wait at a barrier until all its warpgroups are there; who waits is not ready."""
        numbers, most = self._numbers, x.n or warp.groups
        if most == 1:
            warp.ready = max(warp.ready, now + numbers.barrier_cycles)
            return
        waiting = self._waiting.setdefault(warp.cta, [])
        waiting.append(warp)
        warp.ready = math.inf
        if len(waiting) == most:
            cycles = numbers.barrier_cycles + (most - 1) * numbers.barrier_more_cycles
            for w in waiting:
                w.ready = now + max(float(x.stall), cycles)
            waiting.clear()

    def _pass_turn(self, x: Issued, warp: _Warp, now: float) -> float:
        """Take the turn that was given, or give it to the next warpgroup."""
        if x.kind == "take_turn":
            del self._turns[warp.cta, warp.group]
        else:
            self._turns[warp.cta, (warp.group + 1) % warp.groups] = now
        return now + self._numbers.mbarrier_latency_cycles


def _bulk_copies(code: Sequence[Issued], machine: Machine) -> int:
    """Return how many times 2 KB a producer loads for a pass: K and V, the products' B."""
    columns = sum(x.n for x in code if x.kind.startswith("mma"))
    parts = machine.profile.occupancy.sub_partitions
    return round(columns * DEPTH_BYTES / (parts * _LANES_BYTES))


def _landed(groups: list[float], pending: int) -> float:
    """Return when at most ``pending`` of the groups are still under way."""
    return groups[-pending - 1] if len(groups) > pending else 0.0
