"""Law 3: no prediction is below any bound, fast or exact, whatever the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from simgpu.hardware.machine import HBM, Machine
from simgpu.hardware.sections import Costs
from simgpu.read.bound import bound
from simgpu.timing.simulate import simulate
from tests.laws.cases import schedules
from tests.laws.test_conserved import cases, each_launch

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Numbers that a law may change, and by how much.
CHANGED = (
    "device.sm_count",
    "rates.tensor_flops_fp16",
    "rates.tensor_flops_bf16",
    "rates.mufu_instructions",
    "rates.fma_instructions",
    "rates.alu_instructions",
    "rates.lsu_bytes",
    "rates.smem_bytes",
    "rates.l2_bytes",
    "memory.hbm_sustained_gb_per_s",
    "memory.l2_bandwidth_bytes_per_clock",
    "memory.l2_hit_latency_cycles",
    "memory.hbm_latency_cycles",
    "memory.l2_effective_bytes",
    *(f"costs.{name}" for name in Costs.model_fields if "cycles" in name),
)


@st.composite
def changes(draw: st.DrawFn) -> dict[str, float]:
    """Up to three numbers of a profile and by what to multiply each."""
    paths = draw(st.lists(st.sampled_from(CHANGED), max_size=3, unique=True))
    return {path: draw(st.sampled_from([0.2, 0.5, 2.0, 5.0])) for path in paths}


def changed(machine: Machine, factors: Mapping[str, float]) -> Machine:
    """The machine with some numbers of its profile multiplied."""
    values: dict[str, float] = {}
    for path, factor in factors.items():
        section, name = path.split(".")
        value = getattr(getattr(machine.profile, section), name)
        values[path] = max(1, int(value * factor)) if isinstance(value, int) else value * factor
    return Machine.from_profile(machine.profile.with_changes(values))


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("name", schedules)
@settings(max_examples=15)
@given(data=st.data())
def test_nothing_is_faster_than_a_bound(name, exact, data):
    case = data.draw(cases(name))
    machine = changed(case.machine, data.draw(changes()))
    for launch, problem, made in each_launch(case._replace(machine=machine)):
        bounds = bound(launch, problem.dtype, machine, made)
        moved = made.demand[HBM]
        time = simulate(
            launch, problem.dtype, machine, case.slots, made.misses, exact=exact, hbm_bytes=moved
        )
        note(f"{time.cycles} cycles, bounds {bounds}")
        for unit, cycles in bounds.items():
            assert time.cycles >= cycles * (1 - 1e-9), unit
