"""The numbers of a profile, section by section: each with its unit, its meaning and its bounds.

To add a number: one line here, one line in each YAML file.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """Frozen; takes no unknown key, no text for a number, no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def number(meaning: str, *, most: float, least: float | None = None, absent: bool = False) -> Any:
    """Declare one number: above 0 (or from ``least`` on), up to ``most``; ``absent``: may lack."""
    low = {"gt": 0} if least is None else {"ge": least}
    default: Any = None if absent else ...
    return Field(default, description=meaning, le=most, **low)


class Device(Strict):
    """The chip as a whole."""

    sm_count: int = number("streaming multiprocessors", most=1024)
    boost_mhz: float = number("highest SM clock", most=5000)
    sustained_mhz: float = number("SM clock that holds under attention", most=5000)
    warp_size: int = number("threads of a warp", most=64)


class OccupancyLimits(Strict):
    """What an SM can hold; ``occupancy.py`` turns it into CTAs an SM."""

    registers_per_sm: int = number("32-bit registers of an SM", most=2**20)
    registers_per_cta_max: int = number("registers one CTA may take", most=2**20)
    registers_per_thread_max: int = number("registers one thread may take", most=1024)
    register_unit_per_warp: int = number("registers are given to a warp in this unit", most=4096)
    sub_partitions: int = number("quarters of an SM, each with its registers", most=16)
    warps_per_sm: int = number("warps an SM can hold", most=256)
    ctas_per_sm: int = number("CTAs an SM can hold", most=256)
    threads_per_cta_max: int = number("threads one CTA may have", most=4096)
    l1_and_smem_bytes: int = number("L1 and shared memory together", most=2**21)
    smem_per_sm_bytes: int = number("shared memory at the full carve-out", most=2**21)
    smem_per_cta_max_bytes: int = number("shared memory one CTA may ask for", most=2**21)
    smem_reserved_per_cta_bytes: int = number("taken by the driver", most=65536, least=0)
    smem_unit_bytes: int = number("shared memory is given out in this unit", most=4096)
    smem_static_limit_bytes: int = number("more than this needs opt-in", most=2**21)
    smem_carveouts_kb: tuple[Annotated[int, Field(ge=0, le=2048)], ...] = Field(
        min_length=1, description="sizes the driver may give shared memory, in KiB"
    )
    smem_carveout_headroom_kb: int = number("most KiB given beyond need", most=2048, least=0)
    tmem_columns: int | None = number("32-bit columns of tensor memory", most=8192, absent=True)
    tmem_unit_columns: int | None = number(
        "least columns that a CTA takes; more come in powers of two", most=8192, absent=True
    )


class Rates(Strict):
    """What each unit of an SM serves in one clock."""

    tensor_flops_fp16: float = number("FLOP, fp16 in, fp32 out", most=2**20)
    tensor_flops_bf16: float = number("FLOP, bf16 in, fp32 out", most=2**20)
    tensor_flops_tf32: float | None = number("FLOP, tf32", most=2**20, absent=True)
    tensor_flops_fp64: float | None = number("FLOP, fp64", most=2**20, absent=True)
    tensor_flops_fp8: float | None = number("FLOP, fp8", most=2**20, absent=True)
    tensor_flops_fp4: float | None = number("FLOP, fp4", most=2**20, absent=True)
    mufu_instructions: float = number("warp instructions, MUFU (exp2, rcp)", most=64)
    fma_instructions: float = number("warp instructions, FMA pipe", most=64)
    alu_instructions: float = number("warp instructions, ALU pipe (max, select, logic)", most=64)
    issue_slots: float = number("warp instructions that can be issued", most=64)
    issue_idle_share: float = number("issue slots that one warp leaves empty", most=0.99, least=0)
    lsu_bytes: float = number("bytes of loads that the LSU takes in", most=4096)
    smem_bytes: float = number("bytes of shared memory", most=4096)
    tmem_read_bytes: float | None = number(
        "bytes of tensor memory that warps load", most=8192, absent=True
    )
    tmem_write_bytes: float | None = number(
        "bytes of tensor memory that warps store", most=8192, absent=True
    )
    l2_bytes: float = number("bytes from L2 into one SM", most=4096)


class Memory(Strict):
    """L2 and HBM. Latencies are totals, from the load's issue to its data."""

    hbm_capacity_gb: float = number("as sold, 10^9 bytes", most=1e5)
    hbm_peak_gb_per_s: float = number("bus width times data rate", most=1e6)
    hbm_sustained_gb_per_s: float = number("what a long read or copy reaches", most=1e6)
    l2_capacity_bytes: int = number("whole L2", most=2**33, least=0)
    l2_effective_bytes: int = number("set that all SMs read from L2", most=2**33, least=0)
    l2_partitions: int = number("parts that may each hold a copy", most=64)
    l2_bandwidth_bytes_per_clock: float = number("whole device", most=1e6)
    l2_write_sector_factor: float = number("sectors counted a sector written", most=8)
    l2_dirty_residue_bytes: int = number("written, in L2 at the end", most=2**33, least=0)
    l2_hit_latency_cycles: float = number("load that hits in L2", most=1e5)
    hbm_latency_cycles: float = number("load that misses in L2", most=1e5)
    smem_latency_cycles: float = number("load from shared memory", most=1e4)
    tmem_latency_cycles: float | None = number("load from tensor memory", most=1e4, absent=True)
    tma_latency_cycles: float | None = number("TMA, L2 hit", most=1e5, absent=True)
    in_step_waves: float | None = number(
        "waves of equal CTAs, half of which are in step", most=1e4, absent=True
    )
    in_step_unequal_waves: float | None = number(
        "waves of unequal CTAs, half of which are in step", most=1e4, absent=True
    )
    coalescer_group_sms: int | None = number("SMs behind one coalescer", most=1024, absent=True)
    coalescer_joins: int | None = number("requests it joins into one", most=1024, absent=True)
    coalescer_joined_share: float | None = number(
        "of the requests it could join, those that it does, in the median",
        most=1,
        least=0,
        absent=True,
    )
    coalescer_odds: float | None = number(
        "to be joined, in a first pass of a first CTA", most=1e3, least=0, absent=True
    )
    coalescer_turns_exponent: float | None = number(
        "odds fall so with the CTAs that an SM has", most=10, least=0, absent=True
    )
    coalescer_hidden_turns_exponent: float | None = number(
        "the same where loads are hidden", most=10, least=0, absent=True
    )
    coalescer_repeated_exponent: float | None = number(
        "and so much more for warps that repeat rows", most=10, least=0, absent=True
    )
    coalescer_passes_exponent: float | None = number(
        "odds fall so with passes of hidden loads", most=10, least=0, absent=True
    )
    coalescer_residents_exponent: float | None = number(
        "odds fall so with residents that hide loads", most=10, least=0, absent=True
    )
    coalescer_unequal_odds: float | None = number(
        "times the odds, for unequal CTAs", most=1, least=0, absent=True
    )
    coalescer_adrift_odds: float | None = number(
        "times the odds, for consumers without turns", most=1, least=0, absent=True
    )
    sector_bytes: int = number("unit of L2 and HBM traffic", most=1024)


class Costs(Strict):
    """Cycles that no unit explains: fixed costs and latencies of the phases of a loop pass."""

    launch_cycles: float = number("a kernel", most=1e7, least=0)
    eager_launch_us: float | None = number(
        "microseconds of the host for a kernel that PyTorch launches op by op",
        most=1e4,
        absent=True,
    )
    cta_start_cycles: float = number("a CTA", most=1e6, least=0)
    roles_start_cycles: float = number(
        "a CTA more, if its roles have registers of their own", most=1e6, least=0
    )
    row_max_cycles: float = number("row maximum: latencies that nothing hides", most=1e5, least=0)
    exp_cycles: float = number("exponentials and sums: the same", most=1e5, least=0)
    row_max_chain_cycles: float = number(
        "row maximum, per score of a row that a thread holds", most=1e3, least=0
    )
    barrier_cycles: float = number("a barrier that waits for nobody", most=1e4, least=0)
    fence_cycles: float = number("fence after plain stores", most=1e4, least=0)
    mma_sync_slots: float = number("issue slots of an m16n8k16 mma.sync", most=1e3, least=1)
    mma_sync_cycles: float = number("an m16n8k16 of a lone warp", most=1e4, least=0)
    mma_sync_latency_cycles: float = number("mma.sync to the use of its sum", most=1e4, least=0)
    mma_setup_cycles: float = number("what a warp does before it issues MMAs", most=1e4, least=0)
    mma_issue_cycles: float = number("issue of one 16-deep wgmma", most=1e4, least=0)
    mma_issue_slots: float = number("share of issue a busy tensor core takes", most=1, least=0)
    mma_latency_cycles: float = number("end of an MMA to its use", most=1e4, least=0)
    mma_serial_cycles: float = number(
        "wgmma that is waited for before the next, beyond its product", most=1e4, least=0
    )
    spills_outside_loop: int = number("spilled registers that no pass touches", most=255, least=0)
    registers_fixed: float = number("registers a thread, whatever its tiles", most=255, least=0)
    registers_per_word: float = number("registers a 32-bit word of its tiles", most=10, least=0)


class Issue(Strict):
    """What a scheduler's warps feel in a compiled loop, cycle by cycle."""

    weight: float = number("of this time in a pass; the events have the rest", most=1, least=0)
    held_exposed_share: float = number(
        "of co-resident CTAs, those that keep their distance although they await loads",
        most=1,
        least=0,
    )
    loop_cycles: float = number("the branch back", most=1e3, least=0)
    mufu_latency_cycles: float = number("MUFU to the use of its result", most=1e3, least=0)
    mufu_queue: float = number("MUFU instructions that wait for their pipe", most=64, least=0)
    mufu_issue_cycles: float = number("issue slot that a MUFU takes beyond one", most=64, least=0)
    shuffle_latency_cycles: float = number("shuffle or shared access to its use", most=1e3, least=0)
    lsu_queue: float = number("copies of 16 bytes a lane that wait for the LSU", most=64, least=0)
    copy_latency_cycles: float = number("cp.async to its data, L2 hit", most=1e5, least=0)
    load_latency_cycles: float = number("global load to its data, L2 hit", most=1e5, least=0)
    l2_bytes: float = number("bytes a cycle from L2 while all SMs load", most=4096)
    barrier_cycles: float = number("barrier of one warpgroup", most=1e4, least=0)
    barrier_more_cycles: float = number("for each warpgroup more", most=1e4, least=0)
    fill_cycles: float = number(
        "of shared memory, for 16 bytes a lane in each scheduler's part", most=1e3, least=0
    )
    bulk_fill_cycles: float = number("the same of a bulk copy", most=1e3, least=0)
    operand_lead_cycles: float = number("a wgmma's operands come so early", most=1e3, least=0)
    mma_queue: int = number("wgmma of a scheduler that wait for the tensor core", most=1024)
    mma_shared_latency_cycles: float = number(
        "wgmma's end to its use, A in shared", most=1e4, least=0
    )
    mma_registers_latency_cycles: float = number("the same, A in registers", most=1e4, least=0)
    mma_issue_cycles: float = number(
        "an instruction takes more of the issue slot while a wgmma with A in registers runs",
        most=64,
        least=0,
    )
    mma_shared_issue_cycles: float = number("the same, A in shared memory", most=64, least=0)
    mma_register_share: float = number(
        "of the register banks' reads, those of a running wgmma with A in registers",
        most=0.99,
        least=0,
    )
    mma_shared_register_share: float = number("the same, A in shared memory", most=0.99, least=0)
    mbarrier_latency_cycles: float = number("mbarrier test to its use", most=1e4, least=0)
    register_window_cycles: float = number("reads that the banks may be behind", most=64, least=0)


class Power(Strict):
    """What the board draws."""

    idle_watts: float = number("board, no work", most=1e5)
    limit_watts: float = number("board power limit", most=1e5)


class Energy(Strict):
    """From which the clock follows that the board sustains: energies at one clock, on random data.

    The energies of instructions, FLOP and L2 bytes stand for all that goes with them.
    """

    loaded_mhz: float = number("highest SM clock with tensor work on all SMs", most=5000)
    reference_mhz: float = number("SM clock at which the energies hold", most=5000)
    voltage_slope: float = number("relative voltage a relative clock", most=2, least=0)
    working_watts: float = number("board with work, before what it does", most=1e5)
    tensor_pj_per_flop: float = number("picojoules a tensor FLOP", most=1e3, least=0)
    instruction_pj: float = number("picojoules a warp instruction", most=1e6, least=0)
    l2_pj_per_byte: float = number("picojoules a byte from L2 to an SM", most=1e4, least=0)
    hbm_pj_per_byte: float = number("picojoules a byte of HBM", most=1e4, least=0)


SECTIONS: dict[str, type[Strict]] = {
    "device": Device,
    "occupancy": OccupancyLimits,
    "rates": Rates,
    "memory": Memory,
    "costs": Costs,
    "issue": Issue,
    "power": Power,
    "energy": Energy,
}
