"""A profile as the simulator uses it: capacities a cycle, at one clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.errors import UnsupportedError
from simgpu.units import gb_per_s_to_bytes_per_cycle

if TYPE_CHECKING:
    from simgpu.hardware.profile import Profile

#: The units that jobs share, in the order of every demand vector.
UNITS = ("tensor", "mufu", "fma", "alu", "issue", "lsu", "smem", "tmem", "l2", "hbm")
TENSOR, MUFU, FMA, ALU, ISSUE, LSU, SMEM, TMEM, L2, HBM = range(len(UNITS))

#: Units in reports; ``l1`` is the load unit's port.
REPORTED_UNITS = {("l1" if unit == "lsu" else unit): number for number, unit in enumerate(UNITS)}

Demand = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU at one clock. Cycles are SM cycles; bandwidths are bytes a cycle."""

    profile: Profile
    clock_mhz: float
    sms: int
    #: What one SM's units serve a cycle; l2 and hbm are an equal share of the device's.
    capacity: tuple[float, ...]
    hbm_bytes_per_cycle: float

    @classmethod
    def from_profile(cls, profile: Profile, clock_mhz: float | None = None) -> Machine:
        """Build the machine, at the profile's sustained clock unless one is given.

        Raises UnsupportedError for a clock that is not positive.
        """
        clock = profile.device.sustained_mhz if clock_mhz is None else clock_mhz
        if not clock > 0:
            raise UnsupportedError(f"clock_mhz is {clock:g}: it must be more than 0")
        rates, memory, sms = profile.rates, profile.memory, profile.device.sm_count
        hbm = gb_per_s_to_bytes_per_cycle(memory.hbm_sustained_gb_per_s, clock)
        l2 = min(rates.l2_bytes, _l2_bytes_served(profile) / sms)
        capacity = (
            1.0,  # tensor demand is in cycles, since rates differ by dtype
            rates.mufu_instructions,
            rates.fma_instructions,
            rates.alu_instructions,
            rates.issue_slots,
            rates.lsu_bytes,
            rates.smem_bytes,
            1.0,  # in cycles too: loads and stores differ
            l2,
            hbm / sms,
        )
        return cls(profile, clock, sms, capacity, hbm)

    def has_unit(self, unit: int) -> bool:
        """Say whether the GPU has a unit: all of them, but for tensor memory."""
        return unit != TMEM or self.profile.has("tensor_memory")

    def tensor_flops(self, dtype: str) -> float:
        """Return tensor-core FLOP a cycle and SM; UnsupportedError where there is no such rate."""
        name = {"fp32": "tf32"}.get(dtype, dtype)
        rate: float | None = getattr(self.profile.rates, f"tensor_flops_{name}", None)
        if rate is None or dtype == "fp32":
            raise UnsupportedError(
                f"{self.profile.name} has no tensor rate for {dtype}: `count` and NumPy execution "
                "work; to simulate choose fp16 or bf16"
            )
        return rate

    def shared_by(self, sms: int, hbm_used: float = 1.0) -> tuple[float, ...]:
        """Return one SM's capacities while only ``sms`` of the SMs have work.

        ``hbm_used`` is the share of the time in which HBM is busy: an SM shares it with those that
        use it at the same moment, not with all.
        """
        rates = self.profile.rates
        l2 = min(rates.l2_bytes, _l2_bytes_served(self.profile) / sms)
        hbm = min(self.hbm_bytes_per_cycle / (sms * hbm_used), rates.l2_bytes)
        return (*self.capacity[:L2], l2, hbm)


def coalesced_share(profile: Profile) -> float:
    """Return the share of read requests that pass the coalescer when neighbours run in step."""
    joins, joined = profile.memory.coalescer_joins, profile.memory.coalescer_joined_share
    if joins is None or joined is None:
        return 1.0
    return 1.0 - (1.0 - 1.0 / joins) * joined


def _l2_bytes_served(profile: Profile) -> float:
    """Return the bytes a cycle that L2 delivers to all SMs, those that one read gives to two."""
    return profile.memory.l2_bandwidth_bytes_per_clock / coalesced_share(profile)
