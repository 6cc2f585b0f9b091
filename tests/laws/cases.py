"""Problems and schedules that hypothesis draws for the laws, and how a law runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from simgpu.algorithms.fa1 import FlashAttention1
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.fa3 import FlashAttention3
from simgpu.algorithms.standard import StandardAttention
from simgpu.problem import Attention
from simgpu.program.verify import verify
from simgpu.program.worklist import examples

if TYPE_CHECKING:
    from simgpu.program.program import Recording

ORDERS = ("program", "random", "adversarial")


@st.composite
def problems(
    draw: st.DrawFn, dtypes: tuple[str, ...] = ("fp64",), least_rows: int = 1
) -> Attention:
    """Small problems: ragged lengths, GQA and MQA, every mask."""
    heads_kv, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    mask = draw(st.sampled_from(["none", "causal", "window"]))
    return Attention(
        batch=draw(st.integers(1, 2)),
        heads_q=heads_kv * group,
        heads_kv=heads_kv,
        seq_q=draw(st.integers(least_rows, 150)),
        seq_kv=draw(st.integers(1, 150)),
        head_dim=draw(st.sampled_from([16, 24, 40, 64, 80, 96])),
        dtype=draw(st.sampled_from(dtypes)),
        causal=mask != "none",
        window=draw(st.integers(1, 150)) if mask == "window" else None,
    )


sides = st.sampled_from([16, 32, 48, 64])
stages = st.integers(1, 4)


@st.composite
def fa2(draw: st.DrawFn) -> FlashAttention2:
    """In the CUDA kernel's order there is one stage, in tcgen05's there are more."""
    order = draw(st.sampled_from(["triton", "cuda", "qk_ahead"]))
    many = st.integers(2, 4) if order == "qk_ahead" else stages
    return FlashAttention2(
        block_m=draw(sides),
        block_n=draw(sides),
        stages=1 if order == "cuda" else draw(many),
        warps=draw(st.sampled_from([1, 2, 4, 8])),
        loads=draw(st.sampled_from(["cp_async", "tma"])),
        order=order,
        instruction=draw(st.sampled_from([None, "mma.sync"])),
        fast_math=order == "qk_ahead" or draw(st.booleans()),
    )


standard = st.builds(
    StandardAttention,
    block_m=sides,
    block_n=sides,
    stages=stages,
    warps=st.sampled_from([1, 4]),
    scores=st.sampled_from(["problem", "accumulator"]),
    mask=st.sampled_from(["softmax", "scores", "pass"]),
    copies=st.booleans(),
)


@st.composite
def fa3(draw: st.DrawFn) -> FlashAttention3:
    """Without a producer it takes two stages, and no scores ahead."""
    specialized = draw(st.booleans())
    return FlashAttention3(
        block_m=draw(st.sampled_from([128, 192])),
        block_n=draw(sides),
        stages=draw(stages if specialized else st.integers(2, 4)),
        specialized=specialized,
        pingpong=draw(st.sampled_from([None, False, True])),
        pv_wait=draw(st.sampled_from(["after_maximum", "after_exponentials"])),
        rescale=draw(st.sampled_from([None, "before_pv", "after_pv"])),
        scores_ahead=specialized and draw(st.booleans()),
        overlap=draw(st.booleans()),
        p_in=draw(st.sampled_from(["registers", "smem"])),
        order=draw(st.sampled_from(["longest_first", "longest_first_by_head", "first_to_last"])),
        persistent=draw(st.booleans()),
        o_in=draw(st.sampled_from(["v", "own"])),
        padding=draw(st.sampled_from(["multiple_of_16", "power_of_two"])),
    )


@st.composite
def fa1(draw: st.DrawFn) -> FlashAttention1:
    """Split-k needs 16 keys a warp."""
    warps = draw(st.sampled_from([1, 2, 4]))
    split = draw(st.sampled_from(["split-k", "split-q"]))
    state = draw(st.sampled_from(["accumulator", "coalesced"]))
    keys = draw(st.sampled_from([1, 2])) * 16 * warps
    return FlashAttention1(
        block_m=draw(sides),
        block_n=keys if split == "split-k" else draw(sides),
        stages=draw(stages),
        warps=warps,
        warp_partition=split,
        initial=draw(st.sampled_from(["global", "registers"])),
        state=state,
        ahead=state == "coalesced" or draw(st.booleans()),
    )


schedules: dict[str, st.SearchStrategy[Any]] = {
    "fa1": fa1(),
    "fa2": fa2(),
    "fa3": fa3(),
    "standard": standard,
}

#: One of each, small enough to mutate and to print.
SMALL: dict[str, Any] = {
    "fa1": FlashAttention1(block_m=16, block_n=32, warps=2),
    "fa1_coalesced": FlashAttention1(
        block_m=16, block_n=32, warps=2, state="coalesced", ahead=True
    ),
    "fa2": FlashAttention2(block_m=32, block_n=16, warps=2),
    "fa2_cuda": FlashAttention2(block_m=32, block_n=16, warps=2, stages=1, order="cuda"),
    "fa2_qk_ahead": FlashAttention2(block_m=32, block_n=16, warps=2, order="qk_ahead"),
    "fa2_one_stage": FlashAttention2(block_m=32, block_n=16, warps=2, stages=1),
    "fa3": FlashAttention3(block_m=128, block_n=64),
    "fa3_own_o": FlashAttention3(block_m=128, block_n=64, o_in="own"),
    "fa3_scores_ahead": FlashAttention3(
        block_m=128, block_n=64, o_in="own", scores_ahead=True, rescale="before_pv"
    ),
    "fa3_one_tile": FlashAttention3(block_m=128, block_n=32, persistent=False),
    "fa3_in_order": FlashAttention3(block_m=128, block_n=64, overlap=False),
    "fa3_no_turns": FlashAttention3(block_m=128, block_n=64, pingpong=False),
    "fa3_no_producer": FlashAttention3(block_m=128, block_n=64, specialized=False),
    "fa3_three": FlashAttention3(block_m=192, block_n=96, p_in="smem"),
    "standard": StandardAttention(block_m=32, block_n=16, warps=2),
}


def verify_all(recording: Recording) -> None:
    """Verify one CTA of each class of each launch, or one that takes a tile of each."""
    for launch in recording.launches:
        for program, at in examples(launch):
            verify(program, dict(at))
