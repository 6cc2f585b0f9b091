"""The barriers of FlashAttention-3 beside its rings: turns, and the way from tile to tile."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simgpu.program.builder import Cta
    from simgpu.program.role import RoleBuilder


class Turns:
    """Whose turn it is to issue products: a named barrier for each consumer; number 0 begins."""

    def __init__(self, cta: Cta, consumers: int) -> None:
        self._turns = [cta.barrier(f"turn{i}") for i in range(consumers)]

    def take(self, w: RoleBuilder, consumer: int) -> None:
        """Wait until the consumer before has given its turn away."""
        if self._turns:
            w.wait(self._turns[consumer], ahead=int(consumer == 0))

    def give(self, w: RoleBuilder, consumer: int) -> None:
        """Let the next consumer issue."""
        if self._turns:
            w.arrive(self._turns[(consumer + 1) % len(self._turns)])


class Handover:
    """How a persistent CTA goes from a tile to the next: who waits for whom, and who asks.

    A producer overwrites Q when all consumers have their last scores; without one (``produced``
    False) each consumer loads its own. V's ring, where O lies over it, is loaded when all have
    stored O. ``counter`` says that the next tile comes off a counter: who loads K and V asks, and
    tells the others.
    """

    def __init__(
        self, cta: Cta, consumers: int, *, produced: bool, o_over_v: bool, counter: bool
    ) -> None:
        self._q_empty = cta.mbarrier("q.empty", count=consumers) if produced else None
        self._values_read = self._o_stored = None
        if o_over_v:
            self._values_read = cta.barrier("v.read", count=consumers)
            self._o_stored = cta.mbarrier("o.stored", count=consumers)
        self._next_full = self._next_empty = None
        if counter:
            self._next_full = cta.mbarrier("next.full")
            self._next_empty = cta.mbarrier("next.empty", count=consumers - (not produced))

    def q_read(self, w: RoleBuilder) -> None:
        """A consumer has its last scores."""
        if self._q_empty:
            w.arrive(self._q_empty)

    def wait_for_q(self, w: RoleBuilder) -> None:
        """Wait, before Q is loaded, for the consumers of the tile before."""
        if self._q_empty:
            w.wait(self._q_empty, ahead=1)

    def wait_for_o(self, w: RoleBuilder) -> None:
        """Wait, before V is loaded, for what lies over it to have been stored."""
        if self._o_stored:
            w.wait(self._o_stored, ahead=1)

    def values_read(self, w: RoleBuilder) -> None:
        """Wait, before O is written over V, for all consumers' last products."""
        if self._values_read:
            w.arrive(self._values_read)
            w.wait(self._values_read)

    def o_stored(self, w: RoleBuilder) -> None:
        """A consumer's O has left shared memory."""
        if self._o_stored:
            w.arrive(self._o_stored)

    def ask(self, w: RoleBuilder) -> None:
        """Ask for the next tile, and put it where the others see it."""
        if self._next_full and self._next_empty:
            w.wait(self._next_empty, ahead=1)
            w.arrive(self._next_full)

    def learn(self, w: RoleBuilder) -> None:
        """Read which tile comes next."""
        if self._next_full and self._next_empty:
            w.wait(self._next_full)
            w.arrive(self._next_empty)
