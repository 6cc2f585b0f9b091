"""The laws that every schedule obeys, tried on small problems: exact, verified, conserved, bounded.

``check`` is the library behind ``simgpu check``; it prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from simgpu.errors import ProblemError, ScheduleError, SimgpuError, UnsupportedError
from simgpu.problem import Attention
from simgpu.program.ops import Copy
from simgpu.program.program import operations
from simgpu.program.record import record
from simgpu.program.verify import check_fit, verify
from simgpu.program.worklist import examples
from simgpu.tensor import Tile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from simgpu.hardware.machine import Machine
    from simgpu.hardware.occupancy import Occupancy
    from simgpu.hardware.profile import Profile
    from simgpu.program.program import Launch, Recording, Schedule
    from simgpu.tensor import Tensor

Law = Literal["exact", "verified", "conserved", "bounded", "recorded"]
Status = Literal["pass", "FAIL", "refused"]

FP64_ERROR = 1e-13
LSE_ERROR = 1e-12
ROUNDINGS = 2.0  # times the error of standard attention with the same roundings
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one law found on one problem; ``detail`` says what and where."""

    law: Law
    problem: str
    status: Status
    detail: str


def _problem(**sizes: Any) -> Attention:
    return Attention(**{"batch": 1, "heads_q": 2, "head_dim": 64, **sizes})


#: Ragged lengths, grouped heads, every mask, rows without keys, both usual head dims.
PROBLEMS = (
    _problem(seq_q=256, seq_kv=256),
    _problem(seq_q=200, seq_kv=333),
    _problem(seq_q=300, causal=True, heads_q=4, heads_kv=2),
    _problem(seq_q=190, seq_kv=70, causal=True),
    _problem(seq_q=300, window=100, batch=2, heads_q=1),
    _problem(seq_q=150, seq_kv=260, head_dim=128, causal=True),
)


def describe(p: Attention) -> str:
    """Return a problem in a few words."""
    heads = f"{p.heads_q}" if p.heads_q == p.heads_kv else f"{p.heads_q}/{p.heads_kv}"
    window = f" {p.window}" if p.window else ""
    mask = "" if p.mask == "none" else f" {p.mask}{window}"
    return f"{p.batch}×{heads} {p.seq_q}×{p.seq_kv}×{p.head_dim}{mask}"


def check(
    schedule: Schedule, profile: Profile, problems: Sequence[Attention] = PROBLEMS
) -> Iterator[Verdict]:
    """Yield the verdict of each law on each problem.

    A problem that the schedule cannot be recorded for is ``refused``: fine for some, a failure
    when there is no other.
    """
    refused: list[Verdict] = []
    for p in problems:
        try:
            recording = record(schedule, p)
        except (ScheduleError, ProblemError) as error:
            refused.append(Verdict("recorded", describe(p), "refused", str(error)))
            yield refused[-1]
            continue
        yield verified(recording, profile)
        yield exact(schedule, p, "fp64")
        yield exact(schedule, p, "fp16")
        yield from timed(recording, profile)
    if len(refused) == len(problems):
        yield Verdict("recorded", "all", "FAIL", "the schedule can be recorded for no problem")


def verified(recording: Recording, profile: Profile) -> Verdict:
    """Check every program: no deadlock, no race, and it fits on the GPU."""
    name, programs = describe(recording.problem), 0
    for launch in recording.launches:
        for program, at in examples(launch):
            where = f"{launch.name} at {dict(at)}: " if at else f"{launch.name}: "
            try:
                verify(program, dict(at))
                check_fit(program, profile.occupancy.smem_per_cta_max_bytes)
                fit = _fit(launch, profile)
            except SimgpuError as error:
                return Verdict("verified", name, "FAIL", f"{where}{error}")
            if not fit.ctas_per_sm:
                text = f"{where}does not fit on {profile.name}: {fit.reason}"
                return Verdict("verified", name, "FAIL", text)
            programs += 1
    return Verdict("verified", name, "pass", f"{programs} programs, no deadlock, no race")


def exact(schedule: Schedule, problem: Attention, dtype: str, seed: int = 0) -> Verdict:
    """Compare NumPy execution in every kind of order with attention itself.

    In fp64 the relative error of each head is at most 1e-13; in other dtypes at most twice that of
    standard attention with the same roundings.
    """
    from simgpu.read.numeric import OrderName, run_numeric
    from simgpu.read.reference import random_inputs, reference, relative_error

    p = replace(problem, dtype=dtype)
    name = f"{describe(p)} {dtype}"
    recording, inputs = record(schedule, p), random_inputs(p, seed)
    true = reference(p, inputs)
    allowed = FP64_ERROR if dtype == "fp64" else _rounding_error(recording, inputs, true["O"])
    worst = 0.0
    for order in get_args(OrderName):
        try:
            out = run_numeric(recording, inputs, order=order, seed=seed)
        except SimgpuError as error:
            return Verdict("exact", name, "FAIL", f"{order} order: {error}")
        if "O" not in out:
            return Verdict("exact", name, "FAIL", "nothing writes O")
        error_now = relative_error(out["O"], true["O"])
        worst = max(worst, error_now)
        if not error_now <= allowed:
            where = _first_wrong(out["O"], true["O"], allowed)
            text = f"{order} order: error {error_now:.1e}, allowed {allowed:.1e}; {where}"
            return Verdict("exact", name, "FAIL", text)
        if dtype == "fp64" and "LSE" in out and (wrong := _lse_wrong(out["LSE"], true["LSE"])):
            return Verdict("exact", name, "FAIL", f"{order} order: {wrong}")
    return Verdict("exact", name, "pass", f"error {worst:.1e}, allowed {allowed:.1e}")


def timed(recording: Recording, profile: Profile) -> Iterator[Verdict]:
    """Simulate every CTA: what was served is what was counted, and no bound is undercut."""
    from simgpu.hardware.machine import Machine

    name = describe(recording.problem)
    machine = Machine.from_profile(profile)
    conserved = bounded = ""
    tightest = 0.0
    try:
        machine.tensor_flops(recording.problem.dtype)
        for launch in recording.launches:
            wrong, shares = _time(launch, recording.problem, machine)
            conserved = conserved or wrong
            for bound, share in shares.items():
                tightest = max(tightest, share)
                if share > 1.0 + TOLERANCE and not bounded:
                    bounded = f"{launch.name}: bound {bound} is {share:.6f} × the cycles"
    except UnsupportedError as error:
        yield Verdict("bounded", name, "refused", str(error))
        return
    except SimgpuError as error:
        yield Verdict("bounded", name, "FAIL", f"cannot be simulated: {error}")
        return
    detail = conserved or "served what was counted"
    yield Verdict("conserved", name, "FAIL" if conserved else "pass", detail)
    detail = bounded or f"the greatest bound is {tightest:.0%} of the time"
    yield Verdict("bounded", name, "FAIL" if bounded else "pass", detail)


def _time(launch: Launch, problem: Attention, machine: Machine) -> tuple[str, dict[str, float]]:
    """Return what was not conserved, and each bound's share of the time, exact and fast."""
    from simgpu.read.bound import bound
    from simgpu.read.count import count_launch
    from simgpu.read.traffic import traffic
    from simgpu.timing.cache import L2
    from simgpu.timing.exact import Device
    from simgpu.timing.simulate import simulate

    slots = max(1, _fit(launch, machine.profile).ctas_per_sm)
    served = traffic(launch, problem, machine, slots, L2(machine.profile.memory.l2_effective_bytes))
    device = Device(launch, problem.dtype, machine, slots, served.misses)
    device.run()
    wrong = ""
    for field, got, counted in zip(
        served.work._fields, device.work, count_launch(launch), strict=True
    ):
        if got != counted:
            wrong = wrong or f"{launch.name}: {field} served {got}, counted {counted}"
    fast = simulate(launch, problem.dtype, machine, slots, served.misses, exact=False).cycles
    all_ctas = machine.profile.costs.launch_cycles + device.end
    bounds = bound(launch, problem.dtype, machine, served)
    return wrong, {name: least / min(fast, all_ctas) for name, least in bounds.items()}


def _fit(launch: Launch, profile: Profile) -> Occupancy:
    from simgpu.cost.registers import estimated_registers
    from simgpu.hardware.occupancy import occupancy
    from simgpu.read.bound import longest

    program = launch.classes[longest(launch)].program
    return occupancy(
        profile,
        registers_per_thread=estimated_registers(program, profile),
        shared_bytes=program.shared_bytes,
        warps=program.warps,
    )


def _rounding_error(
    recording: Recording, inputs: dict[str, NDArray[Any]], true: NDArray[Any]
) -> float:
    """Return the error allowed: of fused kernels, or of unfused ones if scores are stored."""
    from simgpu.read.reference import relative_error, standard_rounded

    p = recording.problem
    rounded = [standard_rounded(p, inputs)]
    stored = (p.seq_q, p.seq_kv)
    if any((t.rows, t.cols) == stored for t in _written(recording) if t.kind == "scratch"):
        rounded.append(standard_rounded(p, inputs, scores=p.dtype, divide_first=True))
    return ROUNDINGS * max(relative_error(x["O"], true) for x in rounded)


def _written(recording: Recording) -> Iterator[Tensor]:
    """Yield the tensors in global memory that a recording writes."""

    for launch in recording.launches:
        for cta_class in launch.classes:
            for role in cta_class.program.roles:
                for op in operations(role.body):
                    if isinstance(op, Copy) and isinstance(op.dst, Tile):
                        yield op.dst.tensor


def _first_wrong(out: NDArray[Any], true: NDArray[Any], allowed: float) -> str:
    """Say which row is the first to differ, and how."""
    import numpy as np

    values = out.astype(np.float64)
    scale = max(float(np.abs(true).max()), 1e-300)
    bad = ~(np.abs(values - true) <= 4 * allowed * scale)
    if not bad.any():
        bad = np.abs(values - true) == np.abs(values - true).max()
    batch, head, row, _ = (int(i) for i in np.argwhere(bad)[0])
    rows = int(bad[batch, head].any(axis=-1).sum())
    where = f"first at batch {batch}, head {head}, row {row} ({rows} rows of that head)"
    if np.isnan(values).any():
        return f"{where}: NaN, something was read before it was written or after its release"
    return where


def _lse_wrong(out: NDArray[Any], true: NDArray[Any]) -> str:
    import numpy as np

    if not np.array_equal(np.isneginf(out), np.isneginf(true)):
        return "LSE is not -inf exactly where a row sees no key"
    seen = np.isfinite(true)
    error = float(np.abs(out[seen] - true[seen]).max(initial=0.0))
    return "" if error <= LSE_ERROR else f"LSE is off by {error:.1e}, allowed {LSE_ERROR:.1e}"
