"""Law 2: what CTAs are served is what the program asks for, whoever adds it up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.cost.work import Work, work
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import UNITS, Machine
from simgpu.program.ops import Copy
from simgpu.program.program import walk
from simgpu.program.record import record
from simgpu.read.count import count_launch
from simgpu.read.traffic import traffic
from simgpu.tensor import Tile, dtype_bytes
from simgpu.timing.cache import L2
from simgpu.timing.exact import Device
from tests.laws.cases import problems, schedules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.problem import Attention
    from simgpu.program.ops import Op
    from simgpu.program.program import Launch, Recording, Role

GPUS = ("a100", "h100", "h200", "b200")


class Case(NamedTuple):
    """A recorded schedule, the GPU it runs on, and how many of its CTAs share an SM."""

    recording: Recording
    machine: Machine
    slots: int

    def __repr__(self) -> str:
        recording, profile = self.recording, self.machine.profile
        what = f"{recording.name} {recording.params} {recording.problem}"
        return f"{what} on {profile.name}, {self.slots} resident"


@st.composite
def cases(draw: st.DrawFn, name: str) -> Case:
    """Small problems on every data-centre GPU that has what the schedule needs."""
    schedule = draw(schedules[name])
    needs = {*schedule.needs, *(["tma"] if getattr(schedule, "loads", None) == "tma" else [])}
    gpu = draw(st.sampled_from([g for g in GPUS if load_profile(g).has(*needs)]))
    recording = record(schedule, draw(problems(("fp16", "bf16"))))
    machine = Machine.from_profile(load_profile(gpu))
    return Case(recording, machine, draw(st.integers(1, 4)))


def executions(launch: Launch) -> Iterator[tuple[Op, Role, dict[str, int], dict[str, int]]]:
    """The naive walk: every operation of every CTA, its variables and the CTA's coordinates."""
    for at in launch.grid.coordinates():
        cta_class = launch.classes[launch.class_of(at)]
        for role in cta_class.program.roles:
            variables = {n: at[n] for n in launch.grid.work_axes}
            for op in walk(role.body, variables):
                yield op, role, variables, at


def touched_bytes(launch: Launch, problem: Attention, write: bool) -> dict[str, int]:
    """The distinct bytes of each tensor that the launch reads or writes."""
    seen: dict[tuple[str, int, int], np.ndarray] = {}
    size: dict[str, int] = {}
    for op, _, variables, at in executions(launch):
        tile = (op.dst if write else op.src) if isinstance(op, Copy) else None
        if isinstance(tile, Tile):
            tensor, head = tile.tensor, at["head"]
            head = head // problem.group if tensor.heads == "kv" else head
            key = (tensor.name, head, at["batch"])
            mark = seen.setdefault(key, np.zeros((tensor.rows, tensor.cols), bool))
            (rows, cols), row, col = tile.valid(variables), tile.row, tile.col
            top, left = row.at(variables), col.at(variables)
            mark[top : top + rows, left : left + cols] = True
            size[tensor.name] = dtype_bytes(tensor.dtype)
    total = dict.fromkeys(size, 0)
    for (name, _, _), mark in seen.items():
        total[name] += int(mark.sum()) * size[name]
    return total


def each_launch(case: Case) -> Iterator[tuple[Launch, Attention, object]]:
    """Launches in order, with the traffic each makes of one cache."""
    problem = case.recording.problem
    l2 = L2(case.machine.profile.memory.l2_effective_bytes)
    for launch in case.recording.launches:
        yield launch, problem, traffic(launch, problem, case.machine, case.slots, l2)


@pytest.mark.parametrize("name", schedules)
@settings(max_examples=30)
@given(data=st.data())
def test_counting_is_the_sum_over_every_operation_of_every_cta(name, data):
    for launch in data.draw(cases(name)).recording.launches:
        total = Work()
        for op, role, variables, _ in executions(launch):
            total = total.plus(work(op, role, variables))
        assert count_launch(launch) == total


@pytest.mark.parametrize("name", schedules)
@settings(max_examples=15)
@given(data=st.data())
def test_ctas_are_served_what_they_ask_for(name, data):
    case = data.draw(cases(name))
    for launch, problem, made in each_launch(case):
        device = Device(launch, problem.dtype, case.machine, case.slots, made.misses)
        device.run()
        assert device.work == count_launch(launch)
        for unit, demand in zip(range(len(UNITS)), made.demand, strict=True):
            integral = math.fsum(sm.units.served[unit] for sm in device.sms)
            assert integral == pytest.approx(demand, rel=1e-9), UNITS[unit]


@pytest.mark.parametrize("name", schedules)
@settings(max_examples=20)
@given(data=st.data())
def test_beyond_l2_goes_at_most_what_is_asked_and_at_least_what_is_new(name, data):
    case = data.draw(cases(name))
    cold = True
    for launch, problem, made in each_launch(case):
        assert made.hbm_read_bytes <= made.work.global_read_bytes
        assert made.hbm_write_bytes <= made.work.global_write_bytes
        if cold:
            written = touched_bytes(launch, problem, write=True)
            fresh = touched_bytes(launch, problem, write=False)
            new = sum(size for tensor, size in fresh.items() if tensor not in written)
            assert made.hbm_read_bytes >= new * (1 - 1e-12)
            assert made.hbm_write_bytes >= sum(written.values()) * (1 - 1e-12)
        cold = False
