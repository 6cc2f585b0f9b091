"""One SM: resident CTAs run their roles as processes and share the SM's units."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import simpy

from simgpu.index import Index
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Repeat, Wait
from simgpu.program.tile import Buffer, View
from simgpu.program.worklist import shifted
from simgpu.tensor import Tile
from simgpu.timing.barrier import BarrierSlots, stall_reasons
from simgpu.timing.behind import Behind
from simgpu.timing.ledger import Ledger
from simgpu.timing.share import FairShare
from simgpu.timing.taken import TakenTiles, use_of
from simgpu.timing.watch import By, Flight, Flow, Instant, Span, Stay

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from simgpu.cost.job import Job
    from simgpu.cost.work import Work
    from simgpu.hardware.machine import Machine
    from simgpu.program.ops import Op, Step
    from simgpu.program.program import Role
    from simgpu.program.worklist import WorkTile
    from simgpu.timing.book import JobBook
    from simgpu.timing.taken import Following
    from simgpu.timing.watch import Watch

    Process = Generator[simpy.Event, object, None]


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
        watch: Watch | None = None,
        limited: bool = True,
    ) -> None:
        self.env, self._costs = env, costs
        idle = machine.profile.rates.issue_idle_share
        self.units = FairShare(env, capacity or machine.capacity, idle=idle, limited=limited)
        self.units.watch = watch
        self.limited = limited
        # the path between L2 and this SM serves loads in order
        self.path = simpy.Resource(env, capacity=1 if limited else 2**30)
        self.ledger = Ledger()
        self.watch = watch
        self.next_turn = 0.0  # when the next role may issue its first MMA
        self._numbers = 0

    def start(
        self, first: WorkTile, done: Callable[[], None], following: Following = lambda: None
    ) -> None:
        """Start a CTA on a tile; ``done`` is called when its last role ends.

        ``following`` gives a persistent CTA its next tile, when the first of its roles asks for it.
        """
        _Cta(self, self._costs, first, self._numbers, done, following).start()
        self._numbers += 1


class _Cta:
    """One resident CTA."""

    def __init__(
        self,
        sm: Sm,
        costs: JobBook,
        first: WorkTile,
        number: int,
        done: Callable[[], None],
        following: Following,
    ) -> None:
        self._sm, self._costs, self._number, self._done = sm, costs, number, done
        self._tiles = TakenTiles(first, following, costs)
        self._barriers = BarrierSlots(sm.env)
        self._left = len(first.program.roles)
        self._last_mma: dict[str, simpy.Event | None] = {}
        self._reasons = stall_reasons(first.program)
        self._took_turn: set[str] = set()
        self._born = sm.env.now

    def start(self) -> None:
        for number in range(self._left):
            self._sm.env.process(self._live(number))

    def _live(self, number: int) -> Process:
        env, role = self._sm.env, self._tiles.first.program.roles[number]
        born = env.now
        yield env.timeout(self._costs.start_cycles(self._tiles.first.program))
        self._span(role, born, None, "dispatch")
        late: Iterable[simpy.Event] = ()
        for (program, at), shift in self._tiles:
            role = program.roles[number]
            early, between, last = (self._steps(part, role, dict(at), shift) for part in role.parts)
            yield from early
            yield from late
            yield from between
            late = last
        yield from late
        self._left -= 1
        if not self._left:
            if self._sm.watch is not None:
                tiles = tuple(dict(tile.at) for tile, _ in self._tiles)
                stay = Stay(self._number, tiles[0], self._born, env.now, tiles=tiles)
                self._sm.watch.stays.append(stay)
            self._done()

    def _steps(
        self,
        steps: tuple[Step, ...],
        role: Role,
        variables: dict[str, int],
        shift: Mapping[str, int],
        stretch: float = 1.0,
    ) -> Process:
        for step in steps:
            if isinstance(step, Repeat):
                for i in range(step.trips):
                    variables[step.var] = i
                    by = stretch * step.stretch
                    yield from self._steps(step.body, role, variables, shift, by)
            else:
                yield from self._execute(step, role, variables, shift, stretch)

    def _execute(
        self,
        op: Op,
        role: Role,
        variables: dict[str, int],
        shift: Mapping[str, int],
        stretch: float,
    ) -> Process:
        known, asked = self._costs.look_up(op, role, variables, stretch)
        if self._sm.watch is not None:
            op = shifted(op.bind({n: Index(value) for n, value in variables.items()}), shift)
            variables, shift = {}, {}
        if isinstance(op, Mma) and self._sm.limited and role.name not in self._took_turn:
            yield from self._take_turn(role)
        match op:
            case Wait(signal, lag):
                yield from self._wait(op, role, use_of(signal, variables, shift), lag)
                yield from self._hold(known.held, op, role)
                if not known.held:
                    self._instant(op, role)
            case Arrive(signal):
                yield from self._hold(known.held, op, role)
                self._instant(op, role)
                use = use_of(signal, variables, shift)
                self._barriers.arrive(signal.barrier, use, By(role.name, op.signal))
            case Copy(signal=None, src=Tile(), dst=View(buffer=Buffer(space="regs"))):
                yield from self._load_and_wait(known.held, op, role)
            case Copy(signal=signal):
                use = use_of(signal, variables, shift) if signal else 0
                if known.behind is not None:
                    behind = self._behind(known.behind, op, role, use, asked)
                    loads = isinstance(op.src, Tile)
                    self._sm.env.process(self._load(behind) if loads else self._serve(behind))
                yield from self._hold(known.held, op, role)
                if known.behind is not None:
                    return
            case Mma(signal=signal):
                yield from self._hold(known.held, op, role)
                use = use_of(signal, variables, shift) if signal else 0
                if known.behind is not None:
                    behind = self._behind(known.behind, op, role, use, asked)
                    process = self._serve(behind, self._last_mma.get(role.name))
                    self._last_mma[role.name] = self._sm.env.process(process)
                    return
                if signal:
                    self._barriers.arrive(signal.barrier, use, By(role.name, signal))
            case Apply():
                if known.behind is not None:
                    self._sm.units.submit(known.behind)  # stores that nobody waits for
                yield from self._hold(known.held, op, role)
            case other:
                assert_never(other)
        self._sm.ledger.credit(asked)

    def _take_turn(self, role: Role) -> Process:
        """Let whoever came before finish its first QKᵀ and exponentials first.

        Roles that start in step are served in order on the tensor cores and the MUFU, and keep the
        distance that this gives them (measured: `validation/measured/h200_sxm/cta_phase.json`).
        """
        self._took_turn.add(role.name)
        env, sm = self._sm.env, self._sm
        begin = max(env.now, sm.next_turn)
        program, at = self._tiles.first
        sm.next_turn = begin + self._costs.turn_cycles(program, dict(at))
        if begin > env.now:
            since = env.now
            yield env.timeout(begin - env.now)
            self._span(role, since, None, "contended")

    def _wait(self, op: Wait, role: Role, use: int, lag: int) -> Process:
        event = self._barriers.wait(op.barrier, use, lag)
        if event is not None:
            since = self._sm.env.now
            by = yield event
            self._span(role, since, op, self._reasons[op.barrier.name])
            now = self._sm.env.now
            if self._sm.watch is not None and now > since:
                assert isinstance(by, By)
                flow = Flow(self._number, now, by.signal, by.role, by.flight, role.name)
                self._sm.watch.flows.append(flow)

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

    def _load_and_wait(self, held: tuple[Job, ...], op: Op, role: Role) -> Process:
        """Hold the role for a load to registers; the path from L2 to the SM serves in order."""
        env, units = self._sm.env, self._sm.units
        take, fetch = held
        yield from self._hold((take,), op, role)
        since = env.now
        with self._sm.path.request() as turn:
            yield turn
            yield units.submit(fetch)
        contended = max(0.0, env.now - since - units.alone(fetch))
        yield env.timeout(fetch.latency)
        self._span(role, since, op, None, contended)

    def _behind(self, job: Job, op: Copy | Mma, role: Role, use: int, asked: Work) -> Behind:
        watch = self._sm.watch
        number = watch.issue() if watch is not None else 0
        return Behind(job, op, role, use, asked, number, self._sm.env.now)

    def _load(self, behind: Behind) -> Process:
        """Load a tile behind the role's back; the path from L2 to the SM serves in order."""
        with self._sm.path.request() as turn:
            yield turn
            started = self._sm.env.now
            yield self._sm.units.submit(behind.job)
        yield from self._land(behind, started)

    def _serve(self, behind: Behind, before: simpy.Event | None = None) -> Process:
        """Serve a job behind the role's back, after the role's MMA ``before``."""
        if before is not None and not before.processed:
            yield before
        started = self._sm.env.now
        yield self._sm.units.submit(behind.job)
        yield from self._land(behind, started)

    def _land(self, behind: Behind, started: float) -> Process:
        job, op, role, use, asked, number, issued = behind
        served = self._sm.env.now
        if job.latency:
            yield self._sm.env.timeout(job.latency)
        self._sm.ledger.credit(asked)
        if self._sm.watch is not None:
            moved = asked.global_read_bytes + asked.global_write_bytes
            times = (issued, started, served, self._sm.env.now)
            flight = Flight(number, self._number, role.name, op, *times, moved)
            self._sm.watch.flights.append(flight)
        if op.signal:
            self._barriers.arrive(op.signal.barrier, use, By(role.name, op.signal, number))

    def _instant(self, op: Arrive | Wait, role: Role) -> None:
        if self._sm.watch is not None:
            instant = Instant(self._number, role.name, self._sm.env.now, op)
            self._sm.watch.instants.append(instant)

    def _span(
        self, role: Role, since: float, op: Op | None, stall: str | None, contended: float = 0.0
    ) -> None:
        now = self._sm.env.now
        if now <= since:
            return
        self._sm.ledger.spend(stall or "work", now - since - contended)
        if contended:
            self._sm.ledger.spend("contended", contended)
        if self._sm.watch is not None:
            span = Span(self._number, role.name, since, now, op, stall, contended)
            self._sm.watch.spans.append(span)
