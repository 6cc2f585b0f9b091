"""What one SM is seen to do, when somebody watches; nobody does in a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simgpu.program.listing import describe

if TYPE_CHECKING:
    from simgpu.cost.job import Job
    from simgpu.program.ops import Arrive, Op, Wait
    from simgpu.program.tile import Signal


class Span(NamedTuple):
    """Part of a role's life: work on an operation, or a stall with a reason. Cycles.

    ``op`` has numbers in place of loop variables; None is the CTA's start, or its turn.
    """

    cta: int
    role: str
    start: float
    end: float
    op: Op | None
    stall: str | None
    contended: float = 0.0  # of a span of work: cycles beyond its time alone

    @property
    def what(self) -> str:
        """The operation as a line of text."""
        if self.op is not None:
            return describe(self.op)
        return "start" if self.stall == "dispatch" else "turn"


class Flight(NamedTuple):
    """An operation behind its role's back: issued, then in service, then landing. Cycles.

    Before ``started`` it waits for its turn; from ``served`` to ``landed`` is latency. ``bytes``
    are those of global memory. Flights of one kind that overlap have lanes of their own.
    """

    number: int
    cta: int
    role: str
    op: Op
    issued: float
    started: float
    served: float
    landed: float
    bytes: int
    lane: int = 0


class Instant(NamedTuple):
    """An operation that takes no time: a role's own arrival, or its wait for its own group."""

    cta: int
    role: str
    time: float
    op: Arrive | Wait


class Flow(NamedTuple):
    """An arrival at ``signal`` that released a waiting role, at ``time`` (cycles).

    ``source`` is the role that arrived; ``flight`` the number of the flight that did for it.
    """

    cta: int
    time: float
    signal: Signal
    source: str
    flight: int | None
    role: str


class Stay(NamedTuple):
    """A CTA on the SM: its number there, where its first tile lies, its life in cycles, its slot.

    ``tiles`` is where each of its tiles lies: one, unless it is persistent.
    """

    cta: int
    at: dict[str, int]
    start: float
    end: float
    slot: int = 0
    tiles: tuple[dict[str, int], ...] = ()


class By(NamedTuple):
    """Who arrives, and at what: a role, or a flight of its."""

    role: str
    signal: Signal
    flight: int | None = None


class Watch:
    """What happened, in the order in which it ended; ``rates`` are the jobs' after each change."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.flights: list[Flight] = []
        self.instants: list[Instant] = []
        self.flows: list[Flow] = []
        self.stays: list[Stay] = []
        self.rates: list[tuple[float, tuple[tuple[Job, float], ...]]] = []
        self._issued = 0

    def issue(self) -> int:
        """Return the number of the next flight."""
        self._issued += 1
        return self._issued - 1
