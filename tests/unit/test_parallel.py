"""Predictions over processes are those of one."""

from __future__ import annotations

from simgpu.parallel import each
from simgpu.validation.compare import compare
from simgpu.validation.replay import committed


def test_items_stay_in_order_however_many_work():
    assert list(each(abs, range(-20, 0), None)) == list(each(abs, range(-20, 0), 1))
    assert list(each(abs, [-3], None)) == [3]


def test_two_processes_find_what_one_does():
    runs = [m for m in committed() if m.schedule == "fa2" and m.problem.seq_kv <= 1024][:3]
    told = []
    shared = compare(runs, workers=2, progress=told.append)
    assert [c.predicted for c in shared] == [c.predicted for c in compare(runs)]
    assert told == [1, 2, 3]
