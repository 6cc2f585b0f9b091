"""The compiler's counts laid over a recorded kernel, so that each of its sections adds up to them.

The recorded schedule stays what it is: operations, order and barriers are those that were written.
What the compiler executes more or less than the analytic mix says goes onto tile functions of the
same section: the exponentials of a pass, the first function before the loops, the last one after.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from simgpu.compiled.known import known_mixes
from simgpu.compiled.mix import compiled_mixes, differences
from simgpu.cost.instructions import instructions
from simgpu.cost.registers import in_loop
from simgpu.errors import UnsupportedError
from simgpu.program.found import as_compiled
from simgpu.program.mix import Mix
from simgpu.program.ops import Apply, Repeat
from simgpu.program.program import Launch, Recording
from simgpu.read.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.compiled.mix import CompiledMix
    from simgpu.hardware.machine import Machine
    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Role, TileProgram

#: Pipes that the machine has a unit for; the others take issue slots alone.
UNIT_PIPES = ("mufu", "fma", "alu")


@dataclass(frozen=True, slots=True)
class CompiledRecording:
    """A recording with the compiler's instructions, and what the compiler made of each launch.

    ``known``: the kernels came compiled with the package.
    """

    recording: Recording
    mixes: tuple[CompiledMix, ...]
    differences: tuple[str, ...]
    known: bool = False

    @property
    def resources(self) -> tuple[dict[str, int], ...]:
        """What the compiler found of each launch, as ``simgpu.run`` takes it."""
        return tuple(
            {
                "registers": m.registers,
                "shared_bytes": m.shared_bytes,
                "spills": m.spills,
                "serial_products": m.serial_products,
            }
            for m in self.mixes
        )

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the mix comes from, and where the analytic one is more than 10 % off."""
        return {
            "mix_source": self.mixes[0].source,
            "mix_known": self.known,
            "mix_differences": list(self.differences),
        }


def compile_recording(recording: Recording, machine: Machine) -> CompiledRecording:
    """Compile the Triton kernels of a recorded schedule of ours, and lay their counts over it.

    Raises MissingExtraError without Triton, CompileError for what Triton cannot compile for this
    GPU, and UnsupportedError where there is no kernel, or none with one mix for all its warps.
    """
    for launch in recording.launches:
        _check(launch)
    args = (recording.name, recording.params, recording.problem, machine.profile)
    mixes = compiled_mixes(*args, line_info=False)  # as measured kernels and known ones are
    made = with_mixes(recording, mixes, machine)
    lines = []
    for launch, with_counts, mix in zip(
        recording.launches, made.recording.launches, mixes, strict=True
    ):
        plain = _as_found(launch, mix, machine)
        lines += differences(total_mix(plain, machine), total_mix(with_counts, machine))
    return replace(made, differences=tuple(lines))


def known_recording(recording: Recording, machine: Machine) -> CompiledRecording | None:
    """Return the same of kernels that came compiled with the package, or None for others."""
    mixes = known_mixes(recording.name, recording.params, recording.problem, machine.profile)
    if mixes is None:
        return None
    try:
        return replace(with_mixes(recording, mixes, machine), known=True)
    except UnsupportedError:  # rows that see no key have no pass
        return None


def with_mixes(
    recording: Recording, mixes: tuple[CompiledMix, ...], machine: Machine
) -> CompiledRecording:
    """Return the recording with the counts of one mix laid over each launch."""
    launches = tuple(
        with_compiled_mix(_as_found(launch, mix, machine), mix, machine)
        for launch, mix in zip(recording.launches, mixes, strict=True)
    )
    return CompiledRecording(replace(recording, launches=launches), mixes, ())


def _as_found(launch: Launch, mix: CompiledMix, machine: Machine) -> Launch:
    spills = in_loop(mix.spills, machine.profile)
    return as_compiled(launch, spills=spills, serial=mix.serial_products > 0)


def with_compiled_mix(launch: Launch, mix: CompiledMix, machine: Machine) -> Launch:
    """Return the launch with the instructions of ``mix`` in each of its programs.

    A pass with a mask gets those of a masked pass, any other those of a full one. What lies between
    the loops counts with what comes after them. Raises UnsupportedError for programs of several
    roles and for those without a loop of softmax passes.
    """
    _check(launch)
    programs: dict[int, TileProgram] = {}
    for program in (c.program for c in launch.classes):
        if id(program) not in programs:
            (role,) = program.roles
            body = _Role(role, machine).adjusted(mix)
            programs[id(program)] = replace(program, roles=(replace(role, body=body),))
    classes = (replace(c, program=programs[id(c.program)]) for c in launch.classes)
    return Launch(launch.name, launch.grid, tuple(classes), launch.eager)


def _check(launch: Launch) -> None:
    roles = [role for c in launch.classes for role in c.program.roles]
    loops = any(_passes(role.body) for role in roles)
    ends = all(_applies(role.body[_end(role.body) :]) for role in roles)
    if len(roles) > len(launch.classes) or not loops or not ends:
        raise UnsupportedError(
            f"kernel {launch.name!r} has no compiled mix: it needs one role, whose loop over keys "
            "is a softmax pass"
        )


def total_mix(launch: Launch, machine: Machine) -> Mix:
    """Return the instructions of all CTAs of a launch."""

    def of(op: Op, role: Role, env: dict[str, int]) -> Mix:
        return instructions(op, role, machine)

    return tally(launch, Mix(), of)


class _Role:
    """The one role of a program, section by section."""

    def __init__(self, role: Role, machine: Machine) -> None:
        self._role, self._machine = role, machine

    def adjusted(self, mix: CompiledMix) -> tuple[Step, ...]:
        """Return the role's steps with the compiler's instructions."""
        body = self._role.body
        end = _end(body)
        first = min(_passes(body), default=end)
        start, rest = self._onto(body[:first], mix.prologue.to_mix(), _applies(body[:first]))
        middle, last = list(body[first:end]), mix.epilogue
        for i, step in enumerate(middle):
            if isinstance(step, Repeat) and _exps(step):
                masked = any(isinstance(x, Apply) and x.mask is not None for x in step.body)
                last = mix.epilogue + mix.between if masked else last
                wanted = (mix.masked if masked else mix.full).to_mix()
                inside, _ = self._onto(step.body, wanted, _exps(step))
                middle[i] = replace(step, body=inside)
            else:
                rest = rest.plus(self._analytic((step,)), -1)
        after = body[end:]
        tail, _ = self._onto(after, last.to_mix().plus(rest), _applies(after)[::-1])
        return (*start, *middle, *tail)

    def _analytic(self, steps: Sequence[Step]) -> Mix:
        total = Mix()
        for step in steps:
            if isinstance(step, Repeat):
                total = total.plus(self._analytic(step.body), step.trips)
            else:
                total = total.plus(instructions(step, self._role, self._machine))
        return total

    def _onto(
        self, steps: Sequence[Step], wanted: Mix, takers: Sequence[int]
    ) -> tuple[tuple[Step, ...], Mix]:
        """Return steps that add up to ``wanted``, and what is still to be taken off elsewhere.

        ``takers`` are positions of tile functions. The first one takes everything, except that none
        goes below zero on a unit's pipe or in all: then the next one helps.
        """
        out = list(steps)
        left = wanted.plus(self._analytic(steps), -1)
        for i in takers:
            op = out[i]
            assert isinstance(op, Apply)
            taken = _possible(left, instructions(op, self._role, self._machine))
            if any(taken):
                out[i] = replace(op, adjust=taken)
                left = left.plus(taken, -1)
        return tuple(out), left


def _possible(change: Mix, own: Mix) -> Mix:
    """Return as much of ``change`` as instructions of ``own`` mix can take."""
    units = {pipe: max(getattr(change, pipe), -getattr(own, pipe)) for pipe in UNIT_PIPES}
    taken = change._replace(**units)
    return taken._replace(other=taken.other + max(0.0, -own.total - taken.total))


def _passes(steps: Sequence[Step]) -> list[int]:
    return [i for i, step in enumerate(steps) if isinstance(step, Repeat) and _exps(step)]


def _end(steps: Sequence[Step]) -> int:
    """Return where the steps after the loops begin; rows that see no key have no loop."""
    return max(_passes(steps) or _applies(steps)[:1], default=-1) + 1


def _applies(steps: Sequence[Step]) -> list[int]:
    return [i for i, step in enumerate(steps) if isinstance(step, Apply)]


def _exps(loop: Repeat) -> list[int]:
    """Return where a softmax pass applies functions, its exponentials first; else nothing."""
    found = [(not x.fn.exps, i) for i, x in enumerate(loop.body) if isinstance(x, Apply)]
    return [i for _, i in sorted(found)] if not all(late for late, _ in found) else []
