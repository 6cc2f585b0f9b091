"""One SM: resident CTAs run their roles as processes and share the SM's units."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

import simpy

from simgpu.cost.work import Work
from simgpu.errors import VerifyError
from simgpu.program.listing import describe
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Repeat, Wait
from simgpu.tensor import Tile
from simgpu.timing.barrier import BarrierSlots
from simgpu.timing.share import FairShare

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from simgpu.cost.jobs import Job
    from simgpu.hardware.machine import Machine
    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Role, TileProgram
    from simgpu.program.tile import Signal
    from simgpu.timing.book import JobBook

    Process = Generator[simpy.Event, object, None]


class Span(NamedTuple):
    """Part of a role's life: work on an operation, or a stall with a reason. Cycles."""

    cta: int
    role: str
    start: float
    end: float
    what: str
    stall: str | None
    contended: float = 0.0  # of a span of work: cycles beyond its time alone


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


class Sm:
    """The shared units, and the CTAs that are resident.

    ``costs`` may be shared by SMs of one launch: it keeps the jobs of operations already seen.
    With ``limited`` False nothing waits for a unit.
    """

    def __init__(
        self,
        env: simpy.Environment,
        machine: Machine,
        costs: JobBook,
        capacity: Sequence[float] | None = None,
        spans: list[Span] | None = None,
        limited: bool = True,
    ) -> None:
        self.env, self._machine, self._costs = env, machine, costs
        self.units = FairShare(
            env,
            capacity or machine.capacity,
            idle=machine.profile.rates.issue_idle_share,
            limited=limited,
        )
        # the path between L2 and this SM serves loads in order
        self.path = simpy.Resource(env, capacity=1 if limited else 2**30)
        self.ledger = Ledger()
        self.spans = spans
        self.next_turn = 0.0  # when the next CTA may issue its first MMA
        self._numbers = 0

    def start(
        self,
        program: TileProgram,
        coordinates: dict[str, int],
        done: Callable[[], None],
    ) -> None:
        """Start a CTA; ``done`` is called when its last role ends."""
        _Cta(self, self._costs, program, coordinates, self._numbers, done).start()
        self._numbers += 1

    def start_cycles(self) -> float:
        """Cycles from a CTA's dispatch to its first instruction."""
        return self._machine.profile.costs.cta_start_cycles


class _Cta:
    """One resident CTA."""

    def __init__(
        self,
        sm: Sm,
        costs: JobBook,
        program: TileProgram,
        coordinates: dict[str, int],
        number: int,
        done: Callable[[], None],
    ) -> None:
        self._sm, self._costs, self._program = sm, costs, program
        self._coordinates, self._number, self._done = coordinates, number, done
        self._barriers = BarrierSlots(sm.env)
        self._left = len(program.roles)
        self._last_mma: dict[str, simpy.Event | None] = {}
        self._reasons = stall_reasons(program)
        self._took_turn = False

    def start(self) -> None:
        for role in self._program.roles:
            self._sm.env.process(self._live(role))

    def _live(self, role: Role) -> Process:
        env = self._sm.env
        born = env.now
        yield env.timeout(self._sm.start_cycles())
        self._span(role, born, None, "dispatch")
        yield from self._steps(role.body, role, dict(self._coordinates))
        self._left -= 1
        if not self._left:
            self._done()

    def _steps(self, steps: tuple[Step, ...], role: Role, variables: dict[str, int]) -> Process:
        for step in steps:
            if isinstance(step, Repeat):
                for i in range(step.trips):
                    variables[step.var] = i
                    yield from self._steps(step.body, role, variables)
            else:
                yield from self._execute(step, role, variables)

    def _execute(self, op: Op, role: Role, variables: dict[str, int]) -> Process:
        known, asked = self._costs.look_up(op, role, variables)
        if not self._took_turn and isinstance(op, Mma):
            yield from self._take_turn(role)
        match op:
            case Wait(signal, lag):
                yield from self._wait(op, role, signal.use.at(variables), lag)
                yield from self._hold(known.held, op, role)
            case Arrive(signal):
                yield from self._hold(known.held, op, role)
                self._barriers.arrive(signal.barrier, signal.use.at(variables))
            case Copy(signal=signal):
                use = signal.use.at(variables) if signal else 0
                if known.behind is not None:
                    loads = isinstance(op.src, Tile)
                    serve = self._load if loads else self._serve
                    self._sm.env.process(serve(known.behind, signal, use, asked))
                yield from self._hold(known.held, op, role)
                if known.behind is not None:
                    return
            case Mma(signal=signal):
                yield from self._hold(known.held, op, role)
                use = signal.use.at(variables) if signal else 0
                if known.behind is not None:
                    before = self._last_mma.get(role.name)
                    process = self._serve(known.behind, signal, use, asked, before)
                    self._last_mma[role.name] = self._sm.env.process(process)
                    return
                if signal:
                    self._barriers.arrive(signal.barrier, use)
            case Apply():
                yield from self._hold(known.held, op, role)
            case other:
                assert_never(other)
        self._credit(asked)

    def _take_turn(self, role: Role) -> Process:
        """Let the CTA that came before finish its first QKᵀ and exponentials first.

        CTAs that start in step are served in order on the tensor cores and the MUFU, and keep the
        distance that this gives them (measured: `validation/measured/h200_sxm/cta_phase.json`).
        """
        self._took_turn = True
        env, sm = self._sm.env, self._sm
        begin = max(env.now, sm.next_turn)
        sm.next_turn = begin + self._costs.turn_cycles(self._program, self._coordinates)
        if begin > env.now:
            since = env.now
            yield env.timeout(begin - env.now)
            self._span(role, since, None, "contended")

    def _wait(self, op: Wait, role: Role, use: int, lag: int) -> Process:
        event = self._barriers.wait(op.barrier, use, lag)
        if event is not None:
            since = self._sm.env.now
            yield event
            self._span(role, since, op, self._reasons[op.barrier.name])

    def _hold(self, held: tuple[Job, ...], op: Op, role: Role) -> Process:
        env, units = self._sm.env, self._sm.units
        for job in held:
            since, contended = env.now, 0.0
            if job.busy:
                yield units.submit(job)
                contended = max(0.0, env.now - since - units.alone(job))
            if job.latency:
                yield env.timeout(job.latency)
            self._span(role, since, op, None, contended)

    def _load(self, job: Job, signal: Signal | None, use: int, asked: Work) -> Process:
        """Load a tile behind the role's back; the path from L2 to the SM serves in order."""
        with self._sm.path.request() as turn:
            yield turn
            yield self._sm.units.submit(job)
        yield from self._land(job, signal, use, asked)

    def _serve(
        self,
        job: Job,
        signal: Signal | None,
        use: int,
        asked: Work,
        before: simpy.Event | None = None,
    ) -> Process:
        """Serve a job behind the role's back, after the role's MMA ``before``."""
        if before is not None and not before.processed:
            yield before
        yield self._sm.units.submit(job)
        yield from self._land(job, signal, use, asked)

    def _land(self, job: Job, signal: Signal | None, use: int, asked: Work) -> Process:
        if job.latency:
            yield self._sm.env.timeout(job.latency)
        self._credit(asked)
        if signal:
            self._barriers.arrive(signal.barrier, use)

    def _credit(self, asked: Work) -> None:
        self._sm.ledger.credit(asked)

    def _span(
        self, role: Role, since: float, op: Op | None, stall: str | None, contended: float = 0.0
    ) -> None:
        now = self._sm.env.now
        if now <= since:
            return
        self._sm.ledger.spend(stall or "work", now - since - contended)
        if contended:
            self._sm.ledger.spend("contended", contended)
        if self._sm.spans is not None:
            what = describe(op) if op else "start"
            span = Span(self._number, role.name, since, now, what, stall, contended)
            self._sm.spans.append(span)


def stall_reasons(program: TileProgram) -> dict[str, str]:
    """Return what a wait on each barrier waits for: a copy, an MMA, or other warps."""
    reasons = {barrier.name: "wait_barrier" for barrier in program.barriers}

    def look(steps: tuple[Step, ...]) -> None:
        for step in steps:
            if isinstance(step, Repeat):
                look(step.body)
            elif isinstance(step, Copy | Mma) and step.signal:
                kind = "wait_copy" if isinstance(step, Copy) else "wait_mma"
                reasons[step.signal.barrier.name] = kind

    for role in program.roles:
        look(role.body)
    return reasons


def check_finished(waiting: int) -> None:
    """Raise VerifyError when simulated time ended with CTAs still waiting."""
    if waiting:
        raise VerifyError(
            f"{waiting} CTAs never finish: every role waits; run `simgpu check` on the schedule"
        )
