"""Law: no wait and no arrival can go missing unnoticed.

Each is deleted in turn. A mutant is caught by `verify`, or by execution (a deadlock, arrivals out
of phase, a wrong number) in some order, or it computes attention in all orders tried, and so the
deleted operation is redundant: another one orders the same things.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from simgpu.errors import VerifyError
from simgpu.problem import Attention
from simgpu.program.ops import Arrive, Repeat, Wait
from simgpu.program.program import CtaClass
from simgpu.program.record import record
from simgpu.read.numeric import run_numeric
from simgpu.read.reference import random_inputs, reference
from tests.laws.cases import SMALL, verify_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.program.ops import Step
    from simgpu.program.program import Recording, Role

PROBLEM = Attention(batch=1, heads_q=1, seq_q=32, seq_kv=90, head_dim=16, dtype="fp64", causal=True)
#: FA3 has 64 rows for each consumer: three whole tiles, which one persistent CTA takes, with full
#: blocks as well as masked ones. Without a mask all three lack the operation, else one of them.
TALL = replace(PROBLEM, seq_q=384, seq_kv=300, causal=False)
PROBLEMS = {name: TALL for name in SMALL if name.startswith("fa3")}
PROBLEMS["fa3"] = replace(PROBLEM, seq_q=384, seq_kv=486)
PROBLEMS["fa3_one_tile"] = replace(PROBLEM, seq_q=128, seq_kv=230)
PROBLEMS["fa3_three"] = replace(TALL, seq_q=576)
TRIES = [
    ("program", 0),
    *(("random", s) for s in range(3)),
    *(("adversarial", s) for s in range(16)),
]


@dataclass(frozen=True)
class Mutant:
    """A recording without one operation."""

    recording: Recording
    role: str
    op: Arrive | Wait

    @property
    def kind(self) -> str:
        """What was deleted: the role, wait or arrive, and the barrier."""
        return f"{self.role}: {type(self.op).__name__.lower()} {self.op.signal.barrier.name}"


def without(steps: tuple[Step, ...]) -> Iterator[tuple[Arrive | Wait, tuple[Step, ...]]]:
    """Yield each wait and arrival of a body, loops included, and the body without it."""
    for i, step in enumerate(steps):
        before, after = steps[:i], steps[i + 1 :]
        if isinstance(step, Repeat):
            for op, body in without(step.body):
                yield op, (*before, replace(step, body=body), *after)
        elif isinstance(step, Arrive | Wait):
            yield step, before + after


def mutants(recording: Recording) -> Iterator[Mutant]:
    """Yield a recording for each wait and arrival that can be deleted from it."""
    for n, launch in enumerate(recording.launches):
        for c, cta_class in enumerate(launch.classes):
            for r, role in enumerate(cta_class.program.roles):
                parts = role.parts
                for k, part in enumerate(parts):
                    for op, left in without(part):
                        early, between, late = put(parts, k, left)
                        body = (*early, *between, *late)
                        changed = replace(role, body=body, early=len(early), late=len(late))
                        yield Mutant(_with_role(recording, (n, c, r), changed), role.name, op)


def put(items: tuple[Any, ...], index: int, item: object) -> tuple[Any, ...]:
    """Return a tuple with one item replaced."""
    return (*items[:index], item, *items[index + 1 :])


def _with_role(recording: Recording, at: tuple[int, int, int], role: Role) -> Recording:
    n, c, r = at
    launch = recording.launches[n]
    cta_class = launch.classes[c]
    program = cta_class.program
    program = replace(program, roles=put(program.roles, r, role))
    classes = put(launch.classes, c, CtaClass(program, cta_class.points))
    return replace(recording, launches=put(recording.launches, n, replace(launch, classes=classes)))


def fate(mutant: Mutant) -> Literal["refused", "fails", "redundant"]:
    """Say how a mutant ends: refused by verify, failing in some order, or none of these."""
    try:
        verify_all(mutant.recording)
    except VerifyError:
        return "refused"
    inputs, expected = wanted(mutant.recording.problem)
    for order, seed in TRIES:
        try:
            out = run_numeric(mutant.recording, inputs, order=order, seed=seed)["O"]
        except VerifyError:
            return "fails"
        if not np.allclose(out, expected, rtol=0, atol=1e-12):
            return "fails"
    return "redundant"


@cache
def wanted(problem: Attention) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the inputs of a problem and attention's output."""
    inputs = random_inputs(problem, seed=1)
    return inputs, reference(problem, inputs)["O"]


@cache
def fates(name: str) -> dict[str, set[str]]:
    """Return how the mutants of a schedule end, by kind."""
    found = defaultdict(set)
    for mutant in mutants(record(SMALL[name], PROBLEMS.get(name, PROBLEM))):
        found[mutant.kind].add(fate(mutant))
    return dict(found)


# Why an operation may be missing:
# - sync: the warps of one role move in step here, so bar.sync orders nothing that program order
#   does not;
# - a role that fills a ring and empties it itself has released a slot before it acquires it;
# - nobody waits for the last releases, nor for the last turn, and consumer 0 begins untold;
# - consumer 1's first turn only decides who begins;
# - a turn is given after the giver has waited for K and V, so its taker need not wait again;
# - FA3's first blocks are recorded apart from the others, and what is first acquired is free;
# - without a producer consumer 0 has released by program order what it fills next, and consumer 1
#   has before it gave the turn in which consumer 0 fills;
# - with overlap a consumer releases K before the V of the block before, so the producer that has
#   acquired that V's slot may have K's as well;
# - of three causal tiles of one CTA the first finds Q and V's ring free, and after the last nobody
#   waits for releases; without a mask all three have one program, and one is always followed;
# - which tile comes next is no data here, and its two barriers order nothing that others do not;
# - in order, consumer 1's last turn comes after consumer 0's last product.
PRODUCED = {"producer: wait k.empty", "producer: wait v.empty"}
SYNC = {"consumer0: wait consumer0.sync", "consumer1: wait consumer1.sync"}
RELEASED = {"consumer0: arrive v.empty", "consumer1: arrive v.empty"}
TURNS = {"consumer0: wait turn0", "consumer1: wait k.full", "consumer1: wait v.full"}
FIRST_TURN = {"consumer1: wait turn1"}
LAST_TILE = {
    "consumer0: arrive k.empty",
    "consumer1: arrive k.empty",
    "consumer1: arrive turn0",
}
HANDOVER = {
    "producer: wait next.empty",
    "producer: wait o.stored",
    "producer: wait q.empty",
    *(f"consumer{i}: arrive {x}" for i in (0, 1) for x in ("next.empty", "o.stored", "q.empty")),
    *(f"consumer{i}: wait next.full" for i in (0, 1)),
}
REDUNDANT = {
    "fa1": {"all: wait all.sync", "all: wait q.empty"},
    "fa1_coalesced": {"all: wait all.sync"},
    "fa2": {
        "all: wait all.sync",
        "all: wait k.empty",
        "all: wait v.empty",
        "all: arrive k.empty",
        "all: arrive v.empty",
    },
    "fa2_cuda": {
        "all: wait all.sync",
        "all: wait k.empty",
        "all: wait v.empty",
        "all: arrive k.empty",
    },
    "fa2_qk_ahead": {
        "all: wait all.sync",
        "all: wait k.empty",
        "all: wait v.empty",
        "all: arrive k.empty",
        "all: arrive v.empty",
    },
    "fa2_one_stage": {"all: wait all.sync"},
    "fa3": {*PRODUCED, *SYNC, *RELEASED, *TURNS, *FIRST_TURN, *LAST_TILE, *HANDOVER},
    "fa3_one_tile": {*PRODUCED, *SYNC, *RELEASED, *TURNS, *FIRST_TURN},
    "fa3_own_o": {*PRODUCED, *SYNC, *TURNS},
    "fa3_scores_ahead": {*PRODUCED, *SYNC, *TURNS},
    "fa3_in_order": {
        "consumer1: arrive turn0",
        "consumer1: wait v.read",
        *PRODUCED,
        *SYNC,
        *TURNS,
    },
    "fa3_no_turns": {*PRODUCED, *SYNC},
    "fa3_no_producer": {"consumer0: wait k.empty", "consumer0: wait v.empty", *SYNC, *TURNS},
    "fa3_three": {
        "consumer2: wait k.full",
        "consumer2: wait v.full",
        "consumer2: wait consumer2.sync",
        *PRODUCED,
        *SYNC,
        *TURNS,
    },
    "standard": {
        "all: wait all.sync",
        "all: wait p.empty",
        "all: wait v.empty",
        "all: arrive p.empty",
        "all: arrive v.empty",
    },
}


@pytest.mark.parametrize("name", SMALL)
def test_only_known_operations_are_redundant(name):
    assert {kind for kind, ends in fates(name).items() if "redundant" in ends} == REDUNDANT[name]


@pytest.mark.parametrize("name", SMALL)
def test_a_missing_wait_for_a_full_slot_or_a_product_is_always_caught(name):
    ends = {
        kind: ends
        for kind, ends in fates(name).items()
        if kind.endswith((".full", ".mma", ".loads")) and kind not in REDUNDANT[name]
    }
    assert ends
    assert all("redundant" not in e for e in ends.values())


@pytest.mark.parametrize("name", SMALL)
def test_deletions_of_both_kinds_are_refused_before_anything_runs(name):
    refused = {kind.split()[1] for kind, ends in fates(name).items() if "refused" in ends}
    assert refused == {"wait", "arrive"}


def test_execution_catches_what_the_static_checks_let_pass():
    # A slot released under a product that still reads it: harmless while the next product is waited
    # for before the slot is filled again, but the release was early, and it shows as NaN.
    assert "fails" in fates("fa2")["all: wait all.mma"]
