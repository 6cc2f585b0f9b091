"""Why one run is slower than another, in words made from their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.cost.instructions import by_wgmma
from simgpu.cost.work import LANES
from simgpu.program.ops import Mma
from simgpu.program.program import operations
from simgpu.read.count import count
from simgpu.read.structure import structure
from simgpu.report.advice import Advice
from simgpu.report.remedies import compulsory_bytes
from simgpu.report.words import CAPABILITIES, STALLS, UNITS, amount, percent, sentence
from simgpu.result.run import BUSY, NEAR

if TYPE_CHECKING:
    from simgpu.report.comparison import Comparison, Entry
    from simgpu.result.run import Run

    Record = dict[str, Any]

#: Units whose bounds are demands alone, so that a time is demand over rate over use.
PLAIN = ("tensor", "mufu", "fma", "alu", "smem", "l2", "hbm")
#: A share of time this much greater than the other's is worth a sentence.
MORE = 0.05


def why(entry: Entry, among: Comparison) -> list[str]:
    """Return sentences: why an entry is slower than its rival, or what limits the fastest.

    The rival is the fastest on the same GPU; of a GPU's fastest it is the same schedule where that
    is fastest, or else the fastest of all.
    """
    ran = among.ran
    same = [e for e in ran if e.recording.name == entry.recording.name]
    if entry.run is None:
        return _refusal(entry, next(iter([*same, *ran]), None))
    here = next(e for e in ran if e.profile.name == entry.profile.name)
    rival = here if entry is not here else same[0] if same[0] is not entry else ran[0]
    if entry is rival:
        top = entry.run.to_dict()
        longest = max(top["launches"], key=lambda r: float(r["predicted"]["cycles"]))
        return ["The fastest here.", Advice(entry.run, top, longest).speed_of_light()]
    return [sentence(text) for text in _Pair(entry, rival).sentences()]


class _Pair:
    """A slower run and its rival."""

    def __init__(self, slow: Entry, fast: Entry) -> None:
        assert slow.run
        assert fast.run
        self._slow, self._fast = slow, fast
        self._a, self._b = slow.run.to_dict(), fast.run.to_dict()
        self._runs = slow.run, fast.run

    def sentences(self) -> list[str]:
        """Return what there is to say, most general first."""
        found = [self._ratio(), self._limit(), self._stall(), self._residents(), self._grid()]
        found += [self._bytes(), self._held()]
        return [text for text in found if text]

    def _ratio(self) -> str:
        """The time's ratio as a product: what is asked of a unit, and how busy it is kept."""
        a, b = self._runs
        busiest = self._b if self._same_gpu else self._a
        unit = max(PLAIN, key=lambda u: busiest["utilization"][u])
        text = f"it takes {a.time_us / b.time_us:.2f} × the time of {self._fast.label}"
        asked = f"{_full_rate(a, unit) / _full_rate(b, unit):.2f} ×"
        busy = f"busy {self._used('a', unit)} % of the time instead of {self._used('b', unit)} %"
        name, many = UNITS[unit], unit == "tensor"
        if self._same_gpu:
            it = "them" if many else "it"
            return f"{text}: it asks {asked} as much of {name}, and keeps {it} {busy}"
        need, they = ("need", "they are") if many else ("needs", "it is")
        return f"{text}: at full rate {name} of this GPU {need} {asked} as long, and {they} {busy}"

    def _limit(self) -> str:
        """What limits the slower run, where that is another unit than the fastest's."""
        bounds, cycles = self._a["bounds"]["cycles"], self._a["predicted"]["cycles"]
        greatest = max(bounds, key=lambda name: bounds[name])
        if bounds[greatest] >= NEAR * cycles or greatest == "critical_path":
            share = percent(bounds[greatest] / cycles)
            other = percent(self._b["bounds"]["cycles"][greatest] / self._b["predicted"]["cycles"])
            text = f"{UNITS[greatest]} alone would take {share} % of its time"
            return f"{text} ({self._fast.label}: {other} %)"
        unit = max(PLAIN, key=lambda u: self._a["utilization"][u])
        if self._a["utilization"][unit] < BUSY or not self._same_gpu:
            return ""
        asked = _full_rate(self._runs[0], unit) / _full_rate(self._runs[1], unit)
        text = f"what it uses most is {UNITS[unit]}: {self._used('a', unit)} % of the time"
        return f"{text}, {asked:.1f} × as much work for it as in {self._fast.label}"

    def _stall(self) -> str:
        """The wait that has grown most, and what in the schedule makes for it."""
        a, b = self._a["stalls"], self._b["stalls"]
        stall = max(a, key=lambda name: a[name] - b[name])
        if a[stall] - b[stall] < MORE:
            return ""
        text = f"its roles spend {percent(a[stall])} % of their time {_doing(stall)}"
        text += f" ({self._fast.label}: {percent(b[stall])} %)"
        cause = self._cause(stall)
        return f"{text}; {cause}" if cause else text

    def _cause(self, stall: str) -> str:
        if self._slow.recording.name == self._fast.recording.name:
            return ""
        if stall not in ("wait_mma", "wait_copy"):
            return ""
        ours, theirs = _shape(self._slow, self._runs[0]), _shape(self._fast, self._runs[1])
        return f"{ours}, whereas in {self._fast.label} {theirs}" if ours != theirs else ""

    def _residents(self) -> str:
        """Fewer CTAs of the same schedule on an SM."""
        ours, theirs = (r.longest.occupancy.ctas_per_sm for r in self._runs)
        if self._slow.recording.name != self._fast.recording.name or ours >= theirs:
            return ""
        return f"{ours} of its CTAs fit on an SM ({self._fast.label}: {theirs})"

    def _held(self) -> str:
        """Products that hold warps here and do not there."""
        if not _synchronous(self._slow) or _synchronous(self._fast):
            return ""
        why = "by mma.sync" if self._slow.profile.has("wgmma") else "without wgmma"
        return (
            f"{why} a product holds the warps that issue it, so that no softmax of theirs "
            "can run meanwhile"
        )

    def _grid(self) -> str:
        """A grid that leaves SMs or slots empty."""
        launch = self._runs[0].longest
        ctas, slots = launch.ctas, launch.occupancy.ctas_per_sm * self._slow.profile.device.sm_count
        return f"its {ctas:,} CTAs do not fill the GPU's {slots:,} slots" if ctas < slots else ""

    def _bytes(self) -> str:
        """HBM traffic beyond what is compulsory, and what warps hand each other."""
        least = compulsory_bytes(self._runs[0].problem)
        ours, theirs = (_hbm(r) / least for r in (self._a, self._b))
        parts = []
        if ours > 1.2 * theirs and ours > 1.5:
            moved = f"HBM moves {ours:.1f} × the bytes of Q, K, V and O"
            parts.append(f"{moved} ({self._fast.label}: {theirs:.1f} ×)")
        between = self._a["counts"]["smem_exchange_bytes"]
        if between > 2 * self._b["counts"]["smem_exchange_bytes"] and between > least:
            parts.append(f"{amount(between)} pass between warps through shared memory")
        return "; ".join(parts)

    @property
    def _same_gpu(self) -> bool:
        return self._slow.profile.name == self._fast.profile.name

    def _used(self, which: str, unit: str) -> str:
        return percent((self._a if which == "a" else self._b)["utilization"][unit])


def _refusal(entry: Entry, rival: Entry | None) -> list[str]:
    """Why a GPU cannot run a schedule, what that would have been for, and what there is to gain."""
    said = [f"{entry.refused}."]
    lacking = [n for n in entry.recording.needs if n not in entry.profile.capabilities]
    said += [f"With {name} {CAPABILITIES[name]}." for name in lacking]
    if lacking and rival and rival.profile.name != entry.profile.name:
        here, there = (_softmax_share(e, entry) for e in (entry, rival))
        gain = "less" if here < there else "more"
        said.append(
            f"At full rates this run's exponentials take {percent(here)} % as long as its products "
            f"on this GPU, {percent(there)} % on {rival.profile.name}: there is {gain} for a "
            "schedule to gain that runs softmax under products."
        )
    return said


def _synchronous(entry: Entry) -> bool:
    """Return whether an entry's products hold the warps that issue them."""
    classes = (c for launch in entry.recording.launches for c in launch.classes)
    ops = (op for c in classes for role in c.program.roles for op in operations(role.body))
    return any(isinstance(op, Mma) and not by_wgmma(op, entry.profile) for op in ops)


def _softmax_share(where: Entry, what: Entry) -> float:
    """Return the time of all exponentials over that of all products, at a GPU's full rates."""
    work, rates = count(what.recording), where.profile.rates
    dtype = what.recording.problem.dtype
    flops: float = getattr(rates, f"tensor_flops_{dtype}")
    return (work.exps / (LANES * rates.mufu_instructions)) / (work.flops_tensor / flops)


def _shape(entry: Entry, run: Run) -> str:
    """Return how the longest launch's roles share the work."""
    number = run.launches.index(run.longest)
    found = structure(entry.recording.launches[number])
    if not found.computing:
        return "no role has products"
    loads = "a role of its own loads tiles, " if found.loading else ""
    if len(found.computing) == 1 and not found.covered:
        return f"{loads}one role issues a product, waits for it, and only then computes its softmax"
    roles = (
        f"{len(found.computing)} roles have products, so that one's softmax runs under another's"
    )
    if len(found.computing) == 1:
        roles = "one role has all products"
    own = f", and {percent(found.covered)} % of products are still running under their own role's"
    return f"{loads}{roles}{own if found.covered else ''}"


def _full_rate(run: Run, unit: str) -> float:
    """Return the microseconds that a unit needs for the whole run at its full rate."""
    return sum(launch.bounds[unit] for launch in run.launches) / run.clock_mhz


def _hbm(record: Record) -> float:
    return float(record["counts"]["hbm_read_bytes"] + record["counts"]["hbm_write_bytes"])


def _doing(stall: str) -> str:
    return "as slots without a CTA" if stall == "idle" else STALLS[stall]
