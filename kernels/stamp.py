"""A kernel that reads the clocks of every SM: the mean SM clocks between two of its launches.

NVML reports a clock in steps of 15 MHz that under load is up to a tenth above what the SMs count;
the SMs' own cycle counters over the GPU's nanosecond timer agree with Nsight Compute's cycles.
"""

# Annotations stay objects here: Triton reads them.
import torch
import triton
import triton.language as tl

PROGRAMS = 1024


@triton.jit
def clock_stamp(OUT):
    """Write (SM, cycles, nanoseconds) of one program. Grid (PROGRAMS)."""
    sm = tl.inline_asm_elementwise(
        "mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
    cycles = tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    nanoseconds = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    at = OUT + tl.program_id(0) * 3
    tl.store(at, sm.to(tl.int64))
    tl.store(at + 1, cycles)
    tl.store(at + 2, nanoseconds)


def stamp(device: torch.device | str = "cuda") -> torch.Tensor:
    """Launch the stamp on the current stream; the (PROGRAMS, 3) result is for `mean_clocks_mhz`."""
    out = torch.empty((PROGRAMS, 3), dtype=torch.int64, device=device)
    clock_stamp[(PROGRAMS,)](out, num_warps=1)
    return out


def mean_clocks_mhz(before: torch.Tensor, after: torch.Tensor) -> list[float]:
    """Mean clock in MHz between two stamps of each SM that appears in both, in rising order.

    SMs that had nothing to run count less: the last is the clock of the busy ones.
    """
    first = {sm: (cycles, ns) for sm, cycles, ns in before.tolist()}
    return sorted(
        (cycles - first[sm][0]) * 1e3 / (ns - first[sm][1])
        for sm, cycles, ns in after.tolist()
        if sm in first and ns > first[sm][1]
    )
