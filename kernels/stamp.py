"""A kernel that reads the clocks of every SM: the exact mean SM clock between two of its launches.

NVML's clock is a sample in steps of 15 MHz; the SM's own cycle counter over the GPU's nanosecond
timer has no such step.
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
    """Launch the stamp on the current stream; the (PROGRAMS, 3) result is for `mean_clock_mhz`."""
    out = torch.empty((PROGRAMS, 3), dtype=torch.int64, device=device)
    clock_stamp[(PROGRAMS,)](out, num_warps=1)
    return out


def mean_clock_mhz(before: torch.Tensor, after: torch.Tensor) -> float | None:
    """Mean SM clock in MHz between two stamps: the median over the SMs that appear in both."""
    first = {sm: (cycles, ns) for sm, cycles, ns in before.tolist()}
    clocks = [
        (cycles - first[sm][0]) * 1e3 / (ns - first[sm][1])
        for sm, cycles, ns in after.tolist()
        if sm in first and ns > first[sm][1]
    ]
    return sorted(clocks)[len(clocks) // 2] if clocks else None
