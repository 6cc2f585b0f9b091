"""FlashAttention-3 forward in Gluon, for Hopper (Shah et al. 2024, arXiv 2407.08608, algorithm 2).

A tile is 128 query rows of one head. A program is a TMA producer of one warp, and two consumer
warpgroups of 64 rows each, each with a register budget of its own; it has one tile or, persistent,
takes tile after tile.
"""

# Annotations stay objects here: Triton reads them.
from functools import cache
from typing import Any, Literal

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from simgpu.errors import ProblemError, ScheduleError, UnsupportedError
from simgpu.kernels.common import Shape, blind, check_tiles, interpreted, shape_of
from simgpu.kernels.fa3_roles import consumer0, consumer1, producer

BLOCK_M = 128
ROWS = 64  # of a consumer
SHARED_BYTES = 226 * 1024  # of an SM, less the barriers
# K and V of the heads whose tiles come together. Source: FA3's hopper/tile_scheduler.hpp.
SECTION_BYTES = 32 << 20
REGISTERS = {"consumer": 240, "producer": 24, "launch": 168}

# Measured on an H200: 128 keys against 64 at head dim 128, and taking turns at 64.
DEFAULTS: dict[int, dict[str, Any]] = {
    64: {"block_n": 128, "stages": 2, "pingpong": False},
    128: {"block_n": 128, "stages": 2, "pingpong": True},
    256: {"block_n": 64, "stages": 2, "pingpong": True},
}


@gluon.jit
def fa3_forward(
    q_desc, k_desc, v_desc, o_desc, LSE, COUNTER, scale, NQ, NK, HEADS, TOGETHER,
    G: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, RAGGED_Q: gl.constexpr,
    RAGGED_K: gl.constexpr, BLIND: gl.constexpr, PINGPONG: gl.constexpr, LONGEST: gl.constexpr,
    PERSISTENT: gl.constexpr, DYNAMIC: gl.constexpr, R_CONSUMER: gl.constexpr,
    R_PRODUCER: gl.constexpr,
):  # fmt: skip
    """Tiles of 128 query rows of one head. Grid (tiles), or (SMs)."""
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    D: gl.constexpr = q_desc.block_type.shape[2]
    BN: gl.constexpr = k_desc.block_type.shape[1]
    q_buf = gl.allocate_shared_memory(q_desc.dtype, [2, 1, ROWS, D], q_desc.layout)
    k_buf = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, BN, D], k_desc.layout)
    v_buf = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, BN, D], v_desc.layout)
    o_buf = q_buf
    if PERSISTENT:
        o_buf = gl.allocate_shared_memory(q_desc.dtype, [2, 1, ROWS, D], q_desc.layout)
    bar: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], bar)
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], bar)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    next_full = gl.allocate_shared_memory(gl.int64, [2, 1], bar)
    next_empty = gl.allocate_shared_memory(gl.int64, [2, 1], bar)
    next_buf = gl.allocate_shared_memory(gl.int32, [2, 1], bar)
    for j in gl.static_range(2):
        mbarrier.init(q_full.index(j), count=1)
        mbarrier.init(turn.index(j), count=1)
        mbarrier.init(next_full.index(j), count=1)
        mbarrier.init(next_empty.index(j), count=2)
    for j in gl.static_range(STAGES):
        mbarrier.init(k_full.index(j), count=1)
        mbarrier.init(v_full.index(j), count=1)
        mbarrier.init(k_empty.index(j), count=2)  # both consumers release a slot
        mbarrier.init(v_empty.index(j), count=2)
    mbarrier.arrive(turn.index(0), count=1)

    # Argument tuples stand in place: in a variable their constants would become tensors.
    s2 = scale * 1.4426950408889634
    gl.warp_specialize(
        [
            (consumer0, (
                o_desc, LSE, q_buf, k_buf, v_buf, o_buf, q_full, k_full, k_empty, v_full, v_empty,
                turn, next_buf, next_full, next_empty, NQ, NK, HEADS, TOGETHER, s2,
                CAUSAL, LONGEST, PERSISTENT, DYNAMIC, RAGGED_Q, RAGGED_K, BLIND, PINGPONG,
            )),
            (consumer1, (
                o_desc, LSE, q_buf, k_buf, v_buf, o_buf, q_full, k_full, k_empty, v_full, v_empty,
                turn, next_buf, next_full, next_empty, NQ, NK, HEADS, TOGETHER, s2,
                CAUSAL, LONGEST, PERSISTENT, DYNAMIC, RAGGED_Q, RAGGED_K, BLIND, PINGPONG,
            )),
            (producer, (
                q_desc, k_desc, v_desc, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full,
                v_empty, next_buf, next_full, next_empty, COUNTER, NQ, NK, HEADS, TOGETHER, G,
                CAUSAL, LONGEST, DYNAMIC,
            )),
        ],
        [4, 1],
        [R_CONSUMER, R_PRODUCER],
    )  # fmt: skip


def defaults(head_dim: int) -> dict[str, Any]:
    """The parameters for a head dim, those of the next larger one where it has none."""
    return DEFAULTS[next(d for d in sorted(DEFAULTS) if d >= head_dim)]


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    block_m: int = BLOCK_M,
    block_n: int | None = None,
    stages: int | None = None,
    pingpong: bool | None = None,
    order: Literal["longest_first", "first_to_last"] = "longest_first",
    persistent: bool | None = None,
) -> tuple[Any, ...]:
    """Write attention into ``out`` and its natural log-sum-exp into ``lse``; all contiguous.

    Shapes are those of `simgpu.kernels.fa2.forward`; fp16 and bf16, on Hopper alone. ``pingpong``
    makes the consumers take turns. ``order`` is that of causal query tiles: longest first in
    sections of heads. ``persistent`` launches one program an SM, which takes tile after tile:
    every SMs-th or, causal, the next one off a counter; it needs room for O beside Q, and is the
    default where there is. What is left out comes from `defaults`. Returns the compiled kernels
    that were launched. Raises `ProblemError`, `ScheduleError` and `UnsupportedError`. Source: arXiv
    2407.08608, section 3; the order of tiles: FA3's hopper/tile_scheduler.hpp.
    """
    shape = shape_of(q, k, v)
    best = defaults(shape.head_dim)
    bn, depth = block_n or best["block_n"], stages or best["stages"]
    check_tiles(block_n=bn)
    if block_m != BLOCK_M:
        raise ScheduleError(f"block_m={block_m}: this kernel has two consumers of 64 rows, so 128")
    if order not in ("longest_first", "first_to_last"):
        raise ScheduleError(f"order={order!r}: 'longest_first' or 'first_to_last'")
    room = 2 * shape.padded * (2 * BLOCK_M + 2 * depth * bn) <= SHARED_BYTES
    if persistent and not room:
        raise ScheduleError(
            f"persistent: block_n={bn} and stages={depth} leave no room for O beside Q in shared "
            f"memory at head dim {shape.head_dim}"
        )
    if str(q.dtype) not in ("torch.float16", "torch.bfloat16"):
        raise ProblemError(f"dtype {q.dtype}: fa3 takes float16 and bfloat16")
    driver = triton.runtime.driver
    if interpreted() or driver.active.get_current_target().arch != 90:
        raise UnsupportedError(
            "fa3 is written for Hopper: it needs a GPU of compute capability 9.0"
        )
    persistent = room if persistent is None else persistent
    heads = shape.batch * shape.heads_q
    tiles = triton.cdiv(shape.seq_q, BLOCK_M) * heads
    dynamic = persistent and causal
    programs = min(tiles, _sms(driver.active.get_current_device())) if persistent else tiles
    kernel = fa3_forward[(programs,)](
        *_descriptors(q, k, v, out, bn, shape.padded),
        lse,
        torch.zeros(1, dtype=torch.int32, device=q.device) if dynamic else lse,
        scale,
        shape.seq_q,
        shape.seq_kv,
        heads,
        _together(shape),
        G=shape.group,
        STAGES=depth,
        CAUSAL=causal,
        RAGGED_Q=shape.seq_q % BLOCK_M != 0,
        RAGGED_K=shape.seq_kv % bn != 0,
        BLIND=blind(shape, causal),
        PINGPONG=best["pingpong"] if pingpong is None else pingpong,
        LONGEST=causal and order == "longest_first",
        PERSISTENT=persistent,
        DYNAMIC=dynamic,
        R_CONSUMER=REGISTERS["consumer"],
        R_PRODUCER=REGISTERS["producer"],
        num_warps=4,
        maxnreg=REGISTERS["launch"],
    )
    return (kernel,)


def _descriptors(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, bn: int, cols: int
) -> list[Any]:
    dtype = gl.float16 if str(q.dtype) == "torch.float16" else gl.bfloat16
    found = []
    for x, rows in ((q, ROWS), (k, bn), (v, bn), (out, ROWS)):
        block = [1, rows, cols]
        layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
        found.append(TensorDescriptor.from_tensor(x.flatten(0, 1), block, layout))
    return found


def _together(shape: Shape) -> int:
    """Query heads in a section: a power of two of K/V heads that fit, one at least."""
    fit = max(1, SECTION_BYTES // (2 * 2 * shape.seq_kv * shape.head_dim))
    heads = shape.group * (1 << (fit.bit_length() - 1))
    return min(heads, shape.batch * shape.heads_q)


@cache
def _sms(device: int) -> int:
    # Asking takes the driver a millisecond: longer than many a launch.
    properties = triton.runtime.driver.active.utils.get_device_properties(device)
    return int(properties["multiprocessor_count"])
