"""Compiled loops, cycle by cycle: what a pass takes, alone and beside others."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.errors import UnsupportedError
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.timing.issue import pass_cycles
from simgpu.timing.issued import Issued

H200 = Machine.from_profile(load_profile("h200"))
BRANCH = H200.profile.issue.loop_cycles


def cycles(code, residents=1, warps=4, machine=H200):
    return pass_cycles((code,) * math.ceil(warps / 4), machine, residents)


def test_a_lone_warp_takes_its_stalls():
    code = [Issued("other", stall=4)] * 10
    assert cycles(code) == pytest.approx(9 * 4 + max(4, BRANCH))


def test_a_scoreboard_holds_who_needs_the_result():
    result = [Issued("shuffle", result=1), Issued("other", waits=0b10)]
    free = [Issued("shuffle", result=1), Issued("other", waits=0b100)]
    latency = H200.profile.issue.shuffle_latency_cycles
    assert cycles(result) - cycles(free) > 0.8 * latency


def test_exponentials_of_all_warps_share_one_pipe():
    code = [Issued("mufu")] * 100
    for residents in (2, 4):
        # 8 cycles each on a quarter of an SM
        assert cycles(code, residents) == pytest.approx(residents * 100 * 8, rel=0.05)


def test_products_take_their_columns_and_no_one_else_multiplies():
    product = Issued("mma_registers", n=128, last=True)
    code = [product, Issued("wait_mma")]
    alone, both = cycles(code), cycles(code, 2)
    # 64 cycles of the tensor core, then the latency
    latency = H200.profile.issue.mma_registers_latency_cycles
    assert alone == pytest.approx(64 + latency + BRANCH, abs=5)
    assert both >= 128
    independent = [product._replace(last=False)] * 4
    assert cycles(independent, 3) == pytest.approx(3 * 4 * 64, rel=0.1)


def test_narrow_products_from_shared_memory_wait_for_their_operands():
    wide, narrow = (
        cycles([Issued("mma", n=n)] * 8 + [Issued("mma", n=n, last=True), Issued("wait_mma")])
        for n in (64, 32)
    )
    # 64 rows and 32 columns of 32 bytes: 24 cycles in place of 16
    assert wide / narrow < 1.5


def test_a_barrier_waits_for_the_last_warpgroup():
    code = [Issued("other", stall=5)] * 20 + [Issued("barrier")]
    numbers = H200.profile.issue
    more = cycles(code, warps=8) - cycles(code, warps=4)
    assert more >= numbers.barrier_more_cycles - 1


def test_a_wait_for_copies_sees_their_latency_once_a_stage():
    copies = [Issued("copy")] * 4 + [Issued("commit")]
    numbers = H200.profile.issue
    one_ahead = cycles([Issued("wait_copies", n=0), *copies])
    four_ahead = cycles([Issued("wait_copies", n=3), *copies])
    assert one_ahead > numbers.copy_latency_cycles
    assert four_ahead < one_ahead / 3


PLAIN = st.tuples(st.sampled_from(["other", "alu", "mufu"]), st.integers(1, 8))
PRODUCTS = st.tuples(st.sampled_from(["mma", "mma_registers"]), st.sampled_from([32, 64, 128]))
CODES = st.lists(
    st.one_of(
        PLAIN.map(lambda x: Issued(*x)),
        PRODUCTS.map(lambda x: Issued(x[0], n=x[1], last=True)),
        st.integers(0, 2).map(lambda n: Issued("wait_mma", n=n)),
    ),
    min_size=1,
    max_size=20,
)


@given(CODES, st.integers(1, 4))
@settings(deadline=None, max_examples=25)
def test_no_pass_beats_its_units_and_the_same_code_takes_the_same_time(code, residents):
    code = code * 12  # so long that queues at the ends do not matter
    found = cycles(code, residents)
    assert found == cycles(code, residents)
    tensor = sum(x.n / 2 for x in code if x.kind.startswith("mma"))
    mufu = 8 * sum(x.kind == "mufu" for x in code)
    # passes overlap at the ends of what is followed
    assert found >= 0.8 * residents * max(len(code), tensor, mufu) - 10
    assert found >= sum(x.stall for x in code) - code[-1].stall


def test_ctas_that_are_held_together_share_less_well():
    code = [Issued("mufu", 2)] * 40 + [Issued("mma", n=128, last=True)] * 5 + [Issued("wait_mma")]
    free, half, held = (pass_cycles([code], H200, 2, held=share) for share in (0.0, 0.5, 1.0))
    assert free < held
    assert half == pytest.approx((free + held) / 2)
    assert pass_cycles([code], H200, 1, held=1.0) == pass_cycles([code], H200, 1)


def test_co_residents_never_help():
    code = [Issued("mufu", 2)] * 8 + [Issued("mma", n=64, last=True), Issued("wait_mma")]
    times = [cycles(code, residents) for residents in range(1, 5)]
    assert times == sorted(times)


def test_a_profile_without_numbers_is_refused():
    profile = load_profile("a100")
    with pytest.raises(UnsupportedError, match="no numbers for compiled loops"):
        pass_cycles([[Issued("other")]], Machine.from_profile(profile), 1)


TURN = [Issued("take_turn"), *[Issued("other", 10)] * 10, Issued("give_turn")]


@pytest.mark.parametrize("consumers", [2, 3])
def test_what_needs_the_turn_is_done_one_after_the_other(consumers):
    own = [Issued("other", 10)] * 2
    free = pass_cycles([[*TURN[1:-1], *own]] * consumers, H200, 1)
    turns = pass_cycles([[*TURN, *own]] * consumers, H200, 1)
    assert turns >= consumers * 100 > free


def test_a_turn_that_nobody_gives_is_an_error():
    with pytest.raises(UnsupportedError, match="never completes"):
        pass_cycles([TURN[:-1]] * 2, H200, 1)


def test_a_barrier_of_one_warpgroup_does_not_wait_for_the_other():
    long = [Issued("mbarrier"), *[Issued("other", 15)] * 40]
    short = [Issued("mbarrier"), Issued("barrier", n=1), *[Issued("other", 15)] * 10]
    alone = pass_cycles([short], H200, 1)
    assert pass_cycles([short, long], H200, 1) < (alone + pass_cycles([long], H200, 1)) * 0.55


def test_what_a_producer_loads_lands_among_operands():
    product = Issued("mma", n=64)  # its operands take all of shared memory's bandwidth
    loop = [Issued("mbarrier"), *[product] * 16, product._replace(last=True), Issued("wait_mma")]

    def landing(cycles):
        issue = H200.profile.issue.model_copy(update={"bulk_fill_cycles": cycles})
        return Machine.from_profile(H200.profile.model_copy(update={"issue": issue}))

    free, taken = (pass_cycles([loop], landing(cycles), 1) for cycles in (0.0, 16.0))
    copies = 17 * 64 * 32 / 2048
    assert taken - free == pytest.approx(copies * 16, rel=0.1)
