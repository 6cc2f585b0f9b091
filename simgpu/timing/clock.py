"""The clock at which the board's power meets its limit, from what a kernel does in a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.errors import UnsupportedError

if TYPE_CHECKING:
    from simgpu.hardware.profile import Profile
    from simgpu.hardware.sections import Energy

#: Halvings of the interval in which the clock lies: far below a hertz.
HALVINGS = 50


@dataclass(frozen=True, slots=True)
class Activity:
    """What the whole GPU does over some cycles.

    Tensor FLOP, warp instructions, bytes from L2 to SMs and bytes of HBM are totals;
    ``working_sms`` is the share of the SMs that have tensor work.
    """

    cycles: float
    tensor_flops: float
    instructions: float
    l2_bytes: float
    hbm_bytes: float
    working_sms: float


def board_clock(profile: Profile, activity: Activity) -> float:
    """Return the SM clock in MHz that the board sustains under ``activity``.

    It is the highest that the SMs reach together (from ``boost_mhz`` with few of them at tensor
    work to ``loaded_mhz`` with all), or lower, where `board_watts` meets the board's limit. Raises
    UnsupportedError for a profile without a power limit or without energies.
    """
    energy, power = profile.energy, profile.power
    if energy is None or power is None:
        raise UnsupportedError(
            f"{profile.name} has no energy section, so no clock follows from its power: "
            "give a clock, or take its sustained one"
        )
    boost = profile.device.boost_mhz
    high = boost - (boost - energy.loaded_mhz) * activity.working_sms
    if board_watts(energy, activity, high) <= power.limit_watts:
        return high
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if board_watts(energy, activity, middle) > power.limit_watts:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def board_watts(energy: Energy, activity: Activity, clock_mhz: float) -> float:
    """Return what the board draws at a clock, in watts.

    That is what a working board draws anyway, HBM's bytes, and the work of the SMs and of L2, whose
    energy grows with the square of the voltage; voltage is taken as linear in the clock.
    """
    voltage = 1.0 + energy.voltage_slope * (clock_mhz / energy.reference_mhz - 1.0)
    core = (
        activity.tensor_flops * energy.tensor_pj_per_flop
        + activity.instructions * energy.instruction_pj
        + activity.l2_bytes * energy.l2_pj_per_byte
    )
    picojoules = core * voltage * voltage + activity.hbm_bytes * energy.hbm_pj_per_byte
    return energy.working_watts + picojoules / activity.cycles * clock_mhz * 1e-6
