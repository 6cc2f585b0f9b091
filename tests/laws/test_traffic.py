"""Laws of traffic: what each algorithm moves between HBM, L2 and SMs, and how it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from simgpu.algorithms.fa1 import FlashAttention1
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.standard import StandardAttention
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.problem import Attention
from simgpu.program.record import record
from simgpu.read.count import count
from simgpu.read.traffic import traffic
from simgpu.timing.cache import L2, tensor_bytes

if TYPE_CHECKING:
    from simgpu.program.program import Schedule


class Moved(NamedTuple):
    """Bytes beyond L2."""

    read: float
    written: float

    @property
    def total(self) -> float:
        """Both ways."""
        return self.read + self.written


def machine(gpu: str = "a100", l2_bytes: int | None = None) -> Machine:
    profile = load_profile(gpu)
    if l2_bytes is not None:
        profile = profile.with_changes({"memory.l2_effective_bytes": l2_bytes})
    return Machine.from_profile(profile)


def hbm(schedule: Schedule, problem: Attention, on: Machine, slots: int = 1) -> Moved:
    """HBM bytes of all launches, L2 kept from one to the next."""
    l2 = L2(on.profile.memory.l2_effective_bytes)
    made = [
        traffic(launch, problem, on, slots, l2) for launch in record(schedule, problem).launches
    ]
    return Moved(sum(t.hbm_read_bytes for t in made), sum(t.hbm_write_bytes for t in made))


def attention(seqlen: int, heads: int = 8, head_dim: int = 64) -> Attention:
    return Attention(batch=1, heads_q=heads, seq_q=seqlen, head_dim=head_dim)


def asked(schedule: Schedule, problem: Attention) -> int:
    work = count(record(schedule, problem))
    return work.global_read_bytes + work.global_write_bytes


def tensors(problem: Attention, *names: str) -> int:
    return sum(tensor_bytes(getattr(problem, name), problem) for name in names)


def test_standard_attention_moves_the_square_of_the_length():
    moved = {n: hbm(StandardAttention(), attention(n), machine()).total for n in (2048, 4096, 8192)}
    # S and P are written and read once each: 4·N²·heads elements of two bytes, and O(N) besides.
    for n, total in moved.items():
        squares = 4 * n * n * 8 * 2
        assert squares <= total <= squares + 8 * tensors(attention(n), "q", "k", "v", "o", "lse")
    assert moved[8192] / moved[4096] == pytest.approx(4, rel=0.05)


def test_fa2_moves_the_length_itself_while_l2_holds_the_heads_in_flight():
    moved = {n: hbm(FlashAttention2(), attention(n), machine()).total for n in (2048, 4096, 8192)}
    for n, total in moved.items():
        assert total == pytest.approx(tensors(attention(n), "q", "k", "v", "o", "lse"))


IN_FLIGHT = attention(4096, heads=64)  # 32 query tiles a head


@pytest.mark.parametrize("slots", [1, 2])
def test_fa2_reads_k_and_v_once_while_those_in_flight_fit_in_l2(slots):
    heads = slots * machine().sms / 32
    in_flight = heads * tensors(IN_FLIGHT, "k", "v") / 64
    once = tensors(IN_FLIGHT, "q", "k", "v")
    # Q and O of the wave pass through L2 as well, and a head may begin in one wave and end in the
    # next: twice what is in flight, and the tiles of one wave, hold it all.
    wave = slots * machine().sms * 128 * 64 * 2
    enough = int(2 * in_flight + 4 * wave)
    assert hbm(FlashAttention2(), IN_FLIGHT, machine(l2_bytes=enough), slots).read == once
    less = [
        hbm(FlashAttention2(), IN_FLIGHT, machine(l2_bytes=int(f * in_flight)), slots).read
        for f in (0.5, 0.1, 0.0)
    ]
    assert once < less[0] <= less[1] < less[2]


def test_a_larger_l2_never_reads_more():
    reads = [
        hbm(FlashAttention2(), IN_FLIGHT, machine(l2_bytes=int(mb * 1e6))).read
        for mb in (0, 0.5, 1, 2, 4, 8, 16, 32)
    ]
    assert reads == sorted(reads, reverse=True)
    assert reads[-1] < reads[0] / 10


def test_without_l2_everything_asked_for_goes_to_hbm():
    problem = attention(2048)
    for schedule in (FlashAttention1(), FlashAttention2(), StandardAttention()):
        assert hbm(schedule, problem, machine(l2_bytes=0)).total == asked(schedule, problem)


def test_fa1_rewrites_o_for_every_block_of_keys():
    problem = attention(2048)
    written = count(record(FlashAttention1(block_n=128), problem)).global_write_bytes
    # Zeros first; then O in the accumulator's dtype, m and l for every block but the last, which
    # writes O and the log-sum-exp.
    rows, blocks = 8 * 2048, 2048 // 128
    state = rows * (64 * 4 + 4 + 4)
    assert written == blocks * state + tensors(problem, "o", "lse")
    fa2 = count(record(FlashAttention2(), problem)).global_write_bytes
    assert fa2 == tensors(problem, "o", "lse")


LENGTH, HEAD_DIM = 4096, 64
BLOCKS = (64, 128, 256, 512)


def on_chip(block_n: int) -> int:
    """Elements of the K and V blocks: the paper's M, but for a constant."""
    return 2 * block_n * HEAD_DIM


@pytest.mark.parametrize("what", ["global", "hbm without L2"])
def test_fa1_needs_n_squared_d_squared_over_m(what):
    # FlashAttention-1, theorem 2: N²d²/M, against Nd + N² for standard attention.
    problem = attention(LENGTH, heads=1)
    moved = {
        block_n: asked(FlashAttention1(block_n=block_n), problem)
        if what == "global"
        else hbm(FlashAttention1(block_n=block_n), problem, machine(l2_bytes=0)).total
        for block_n in BLOCKS
    }
    constants = [
        (moved[n] - tensors(problem, "q", "k", "v", "o")) * on_chip(n) / (LENGTH * HEAD_DIM) ** 2
        for n in BLOCKS
    ]
    # Larger blocks move in proportion less: N²d²/M with one constant, within a tenth.
    assert max(constants) / min(constants) < 1.1
    longer = attention(2 * LENGTH, heads=1)
    growth = asked(FlashAttention1(), longer) / asked(FlashAttention1(), problem)
    assert growth == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("what", ["global", "hbm without L2"])
def test_standard_attention_needs_n_d_plus_n_squared_whatever_the_blocks(what):
    # Matrix products re-read their inputs by blocks, which the paper's order leaves out: what is
    # left when the tiles of Q, K and V are counted once is S and P, twice each.
    problem = attention(LENGTH, heads=1)

    def moved(block_n):
        schedule = StandardAttention(block_m=128, block_n=block_n)
        if what == "global":
            return asked(schedule, problem)
        return hbm(schedule, problem, machine(l2_bytes=0)).total

    squares = 4 * LENGTH**2 * 2
    for block_n in (64, 128):
        again = LENGTH // block_n + LENGTH // 128  # times that QKᵀ reads Q, and K
        reread = (again + LENGTH // 128) * LENGTH * HEAD_DIM * 2  # and PV reads V
        rest = tensors(problem, "o", "lse")
        assert moved(block_n) == squares + reread + rest


def test_the_order_of_fa1_stops_holding_where_l2_keeps_the_state():
    # On the real A100 the head's O, m, l and Q stay in L2 (21 MB): block size no longer matters,
    # and HBM sees about the inputs and outputs.
    problem = attention(LENGTH, heads=1)
    moved = [hbm(FlashAttention1(block_n=n), problem, machine()).total for n in BLOCKS]
    assert max(moved) / min(moved) < 1.05
    assert asked(FlashAttention1(block_n=64), problem) > 10 * moved[0]
    # With 108 heads in flight (30 MB of state each wave at this length) it holds again.
    many = attention(LENGTH, heads=108)
    few, large = (hbm(FlashAttention1(block_n=n), many, machine()).total for n in (64, 512))
    assert few > 4 * large
