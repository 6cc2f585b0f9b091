"""A profile as the simulator uses it."""

from __future__ import annotations

import pytest

from simgpu.errors import UnsupportedError
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import HBM, L2, UNITS, Machine


@pytest.fixture(params=["a100", "h100", "h200", "b200"])
def machine(request):
    return Machine.from_profile(load_profile(request.param))


def test_the_clock_is_the_sustained_one_unless_given(machine):
    profile = machine.profile
    assert machine.clock_mhz == profile.device.sustained_mhz
    assert Machine.from_profile(profile, 1234).clock_mhz == 1234


def test_bytes_a_cycle_rise_as_the_clock_falls(machine):
    half = Machine.from_profile(machine.profile, machine.clock_mhz / 2)
    assert half.hbm_bytes_per_cycle == pytest.approx(2 * machine.hbm_bytes_per_cycle)
    others = [u for u in range(len(UNITS)) if u != HBM]
    assert [half.capacity[u] for u in others] == [machine.capacity[u] for u in others]
    seconds = 1 / (machine.clock_mhz * 1e6)
    per_second = machine.hbm_bytes_per_cycle / seconds
    assert per_second == pytest.approx(machine.profile.memory.hbm_sustained_gb_per_s * 1e9)


def test_all_sms_share_what_the_device_has(machine):
    assert machine.shared_by(machine.sms) == pytest.approx(machine.capacity)
    assert machine.capacity[HBM] * machine.sms == pytest.approx(machine.hbm_bytes_per_cycle)


def test_fewer_sms_get_more_up_to_what_one_can_take(machine):
    port = machine.profile.rates.l2_bytes
    for unit in (L2, HBM):
        got = [machine.shared_by(n)[unit] for n in (machine.sms, machine.sms // 2, 1)]
        assert got == sorted(got)
        assert got[-1] <= port
    assert machine.shared_by(1)[:L2] == machine.capacity[:L2]


def test_dtypes_without_a_tensor_rate_are_refused(machine):
    assert machine.tensor_flops("fp16") == machine.profile.rates.tensor_flops_fp16
    with pytest.raises(UnsupportedError, match="no tensor rate for fp32"):
        machine.tensor_flops("fp32")
