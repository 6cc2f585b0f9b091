"""Law 4: spans tile the life of every role: work, or a stall with a named reason."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.program.worklist import WorkTile
from simgpu.result.run import STALLS
from simgpu.timing.book import JobBook
from simgpu.timing.sm import Sm
from simgpu.timing.watch import Watch
from tests.laws.cases import schedules
from tests.laws.test_conserved import Case, cases, each_launch

if TYPE_CHECKING:
    from simgpu.cost.job import MissRates
    from simgpu.program.program import Launch

ROUNDS = 2  # CTAs that follow one another in a slot


class Watched:
    """One SM that serves a launch's classes in turn, every slot taken again when it is free."""

    def __init__(self, case: Case, launch: Launch, misses: MissRates) -> None:
        self.env = simpy.Environment()
        self.watch = Watch()
        book = JobBook(case.machine, case.recording.problem.dtype, misses)
        self.sm = Sm(self.env, case.machine, book, watch=self.watch)
        self.lives: dict[int, tuple[float, float]] = {}
        self.roles: dict[int, set[str]] = {}
        self._launch, self._left = launch, case.slots * ROUNDS
        for _ in range(case.slots):
            self._start()
        self.env.run()

    def _start(self) -> None:
        number = len(self.roles)
        cta_class = self._launch.classes[number % len(self._launch.classes)]
        self._left -= 1
        self.roles[number] = {role.name for role in cta_class.program.roles}
        born = self.env.now

        def done() -> None:
            self.lives[number] = (born, self.env.now)
            if self._left:
                self._start()

        self.sm.start(WorkTile(cta_class.program, cta_class.env), done)


@pytest.mark.parametrize("name", schedules)
@settings(max_examples=20)
@given(data=st.data())
def test_spans_tile_the_life_of_every_role(name, data):
    case = data.draw(cases(name))
    for launch, _, made in each_launch(case):
        watched = Watched(case, launch, made.misses)
        assert len(watched.lives) == case.slots * ROUNDS
        rows = sorted(watched.watch.spans, key=lambda span: (span.cta, span.role))
        lives = {row: list(spans) for row, spans in groupby(rows, lambda s: (s.cta, s.role))}
        assert set(lives) == {(cta, role) for cta, roles in watched.roles.items() for role in roles}
        for (cta, _), spans in lives.items():
            assert spans[0].start == watched.lives[cta][0]
            assert all(a.end == b.start for a, b in pairwise(spans))
            assert all(a.start < a.end for a in spans)
        for cta, (_, end) in watched.lives.items():
            ends = [spans[-1].end for (number, _), spans in lives.items() if number == cta]
            assert max(ends) == end


@pytest.mark.parametrize("name", schedules)
@settings(max_examples=20)
@given(data=st.data())
def test_the_ledger_is_the_sum_of_the_spans(name, data):
    case = data.draw(cases(name))
    for launch, _, made in each_launch(case):
        watched = Watched(case, launch, made.misses)
        time = dict.fromkeys(("work", *STALLS), 0.0)
        for span in watched.watch.spans:
            assert 0.0 <= span.contended <= span.end - span.start
            assert span.stall is None or span.contended == 0.0
            time[span.stall or "work"] += span.end - span.start - span.contended
            time["contended"] += span.contended
        assert {k: t for k, t in time.items() if t} == pytest.approx(watched.sm.ledger.time)
