"""FlashAttention-3 forward in Gluon, for Hopper (Shah et al. 2024, arXiv 2407.08608, algorithm 2).

One program owns 128 query rows of one head: a TMA producer of one warp, and two consumer warpgroups
of 64 rows each, each with a register budget of its own.
"""

# Annotations stay objects here: Triton reads them.
from typing import Any, Literal

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from simgpu.errors import ProblemError, ScheduleError, UnsupportedError
from simgpu.kernels.common import blind, check_tiles, interpreted, shape_of
from simgpu.kernels.fa3_roles import consumer0, consumer1, producer

BLOCK_M = 128
ROWS = 64  # of a consumer
REGISTERS = {"consumer": 240, "producer": 24, "launch": 168}

# Not measured beside other tiles, but for 128 keys against 64 at head dim 128, on an H200.
DEFAULTS: dict[int, dict[str, int]] = {
    64: {"block_n": 128, "stages": 2},
    128: {"block_n": 128, "stages": 2},
    256: {"block_n": 64, "stages": 2},
}


@gluon.jit
def fa3_forward(
    q_desc, k_desc, v_desc, o_desc, LSE, scale, NQ, NK,
    G: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, RAGGED_Q: gl.constexpr,
    RAGGED_K: gl.constexpr, BLIND: gl.constexpr, PINGPONG: gl.constexpr, LONGEST: gl.constexpr,
    R_CONSUMER: gl.constexpr, R_PRODUCER: gl.constexpr,
):  # fmt: skip
    """128 query rows of one head. Grid (query tiles, batch × heads_q), x fastest."""
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    D: gl.constexpr = q_desc.block_type.shape[2]
    BN: gl.constexpr = k_desc.block_type.shape[1]
    i = gl.program_id(0)
    if LONGEST:
        i = gl.num_programs(0) - 1 - i
    bh = gl.program_id(1)
    row = i * (2 * ROWS)
    blocks = gl.cdiv(NK, BN)
    full = NK // BN
    if CAUSAL:
        seen = gl.minimum(row + 2 * ROWS + (NK - NQ), NK)
        blocks = gl.maximum(gl.cdiv(seen, BN), 1)  # rows that see nothing take a block all the same
        full = gl.minimum(full, gl.maximum(row + (NK - NQ) + 1, 0) // BN)
    masked = gl.maximum(blocks - full, 0)

    q_buf = gl.allocate_shared_memory(q_desc.dtype, [2, 1, ROWS, D], q_desc.layout)
    k_buf = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, BN, D], k_desc.layout)
    v_buf = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, BN, D], v_desc.layout)
    bar: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], bar)
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], bar)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    for j in gl.static_range(2):
        mbarrier.init(q_full.index(j), count=1)
        mbarrier.init(turn.index(j), count=1)
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
                o_desc, LSE, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full, v_empty, turn,
                bh, row, blocks, masked, NQ, NK, s2, CAUSAL, RAGGED_Q, RAGGED_K, BLIND, PINGPONG,
            )),
            (consumer1, (
                o_desc, LSE, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full, v_empty, turn,
                bh, row, blocks, masked, NQ, NK, s2, CAUSAL, RAGGED_Q, RAGGED_K, BLIND, PINGPONG,
            )),
            (producer, (
                q_desc, k_desc, v_desc, q_buf, k_buf, v_buf, q_full, k_full, k_empty, v_full,
                v_empty, bh, row, blocks, G,
            )),
        ],
        [4, 1],
        [R_CONSUMER, R_PRODUCER],
    )  # fmt: skip


def defaults(head_dim: int) -> dict[str, int]:
    """The tile for a head dim, that of the next larger one where it has none."""
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
    pingpong: bool = True,
    order: Literal["longest_first", "first_to_last"] = "longest_first",
) -> tuple[Any, ...]:
    """Write attention into ``out`` and its natural log-sum-exp into ``lse``; all contiguous.

    Shapes are those of `simgpu.kernels.fa2.forward`; fp16 and bf16, on Hopper alone. ``pingpong``
    makes the consumers take turns, ``order`` is that of causal query tiles. What is left out comes
    from `defaults`. Returns the compiled kernels that were launched. Raises `ProblemError`,
    `ScheduleError` and `UnsupportedError`. Source: arXiv 2407.08608, section 3.
    """
    shape = shape_of(q, k, v)
    best = defaults(shape.head_dim)
    bn, depth = block_n or best["block_n"], stages or best["stages"]
    check_tiles(block_n=bn)
    if block_m != BLOCK_M:
        raise ScheduleError(f"block_m={block_m}: this kernel has two consumers of 64 rows, so 128")
    if order not in ("longest_first", "first_to_last"):
        raise ScheduleError(f"order={order!r}: 'longest_first' or 'first_to_last'")
    if str(q.dtype) not in ("torch.float16", "torch.bfloat16"):
        raise ProblemError(f"dtype {q.dtype}: fa3 takes float16 and bfloat16")
    if interpreted() or triton.runtime.driver.active.get_current_target().arch != 90:
        raise UnsupportedError(
            "fa3 is written for Hopper: it needs a GPU of compute capability 9.0"
        )
    dtype = gl.float16 if str(q.dtype) == "torch.float16" else gl.bfloat16
    descriptors = []
    for x, rows in ((q, ROWS), (k, bn), (v, bn), (out, ROWS)):
        block = [1, rows, shape.padded]
        layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
        descriptors.append(TensorDescriptor.from_tensor(x.flatten(0, 1), block, layout))
    kernel = fa3_forward[(triton.cdiv(shape.seq_q, BLOCK_M), shape.batch * shape.heads_q)](
        *descriptors,
        lse,
        scale,
        shape.seq_q,
        shape.seq_kv,
        G=shape.group,
        STAGES=depth,
        CAUSAL=causal,
        RAGGED_Q=shape.seq_q % BLOCK_M != 0,
        RAGGED_K=shape.seq_kv % bn != 0,
        BLIND=blind(shape, causal),
        PINGPONG=pingpong,
        LONGEST=causal and order == "longest_first",
        R_CONSUMER=REGISTERS["consumer"],
        R_PRODUCER=REGISTERS["producer"],
        num_warps=4,
        maxnreg=REGISTERS["launch"],
    )
    return (kernel,)
