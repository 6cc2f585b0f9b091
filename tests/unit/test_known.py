"""Kernels that came compiled with the package: found, left alone, and their loops followed."""

import pytest

import simgpu
from simgpu.compiled.known import known_mixes, read_mix, write_mix
from simgpu.compiled.listing import Listing
from simgpu.compiled.loopcode import from_json, loop_code, to_json
from simgpu.compiled.passes import full_passes, stretched
from simgpu.cost.job import MissRates
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import Machine
from simgpu.program.record import record
from simgpu.schedules import make_schedule
from simgpu.timing.issued import Issued
from simgpu.timing.steady import SmTimes

PROBLEM = simgpu.Attention(batch=2, heads_q=8, seq_q=2048, head_dim=128)
TILE = {"block_m": 128, "block_n": 64, "warps": 8, "stages": 3}
H200 = load_profile("h200")


def test_a_known_kernel_has_the_compilers_numbers_and_its_loop():
    (mix,) = known_mixes("fa2", TILE, PROBLEM, H200)
    assert (mix.warps, mix.spills) == (8, 0)
    assert mix.source == "Triton 3.6.0, sm_90a"
    products = [x for x in mix.full_code if x.kind.startswith("mma")]
    # 64x64x16 eight deep for the scores, 64x128x16 four deep for the output
    assert [x.n for x in products] == [64] * 8 + [128] * 4
    assert sum(x.kind == "mufu" for x in mix.full_code) == 34  # 64·64 scores and 64 rows by 4·32


def test_it_survives_its_file():
    (mix,) = known_mixes("fa2", TILE, PROBLEM, H200)
    assert read_mix(write_mix(mix)) == mix
    assert from_json(to_json(mix.full_code)) == mix.full_code


@pytest.mark.parametrize(
    ("params", "gpu"),
    [
        ({**TILE, "block_n": 48}, "h200"),
        ({**TILE, "order": "cuda"}, "h200"),
        ({**TILE, "instruction": "mma.sync"}, "h200"),
        (TILE, "a100"),
        (TILE, "b200"),
    ],
)
def test_others_are_not_known(params, gpu):
    assert known_mixes("fa2", params, PROBLEM, load_profile(gpu)) is None


def test_auto_takes_what_is_known_and_says_so():
    auto = simgpu.run("fa2", PROBLEM, params=TILE)
    analytic = simgpu.run("fa2", PROBLEM, params=TILE, mix="analytic")
    assert (auto.mix, analytic.mix) == ("compiled", "analytic")
    assert not auto.longest.registers_estimated
    assert auto.provenance["mix_source"] == "Triton 3.6.0, sm_90a"
    assert auto.provenance["mix_known"]
    assert auto.provenance["mix_differences"] == []
    assert auto.cycles != analytic.cycles
    assert abs(auto.cycles / analytic.cycles - 1) < 0.15


def test_resources_of_another_kernel_leave_the_known_one_alone():
    spilled = {"registers": 255, "shared_bytes": 131072, "spills": 64}
    assert simgpu.run("fa2", PROBLEM, params=TILE, resources=spilled).mix == "analytic"
    moved = {"registers": 200, "shared_bytes": 131072, "spills": 0}
    assert simgpu.run("fa2", PROBLEM, params=TILE, resources=moved).mix == "compiled"


def test_a_stretched_loop_takes_so_much_longer_in_both_modes():
    few = simgpu.Attention(batch=1, heads_q=4, seq_q=1024, head_dim=128)
    fast, exact = (simgpu.run("fa2", few, params=TILE, exact=e).cycles for e in (False, True))
    assert fast == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("residents", [1, 2])
def test_a_stretch_lengthens_a_pass_by_just_so_much(residents):
    launch = record(make_schedule("fa2", TILE), PROBLEM).launches[0]
    machine = Machine.from_profile(H200)
    kind = full_passes(launch, 0)
    assert kind is not None
    plain = SmTimes(machine, "fp16", MissRates()).one_pass(launch, kind, residents)
    longer = stretched(launch, 1.25)
    times = SmTimes(machine, "fp16", MissRates())
    found = times.one_pass(longer, full_passes(longer, 0), residents)
    assert found == pytest.approx(1.25 * plain, rel=0.01)


LOOP = """\
0 4/0/7/7 0 FFMA R4, R2.reuse, R6, R8
10 1/2/7/7 0 FFMA R5, R2, R7, R9
20 1/0/1/7 0 MUFU.EX2 R10, R4
30 3/0/7/7 0 HGMMA.64x128x16.F32 R24, R120, gdesc[UR8].tnspB, R24
40 3/0/7/7 0 HGMMA.64x64x16.F32 R88, gdesc[UR40], R88, gsb0
50 2/0/7/7 0 WARPGROUP.DEPBAR.LE gsb0, 0x1
60 4/0/7/7 0 DEPBAR.LE SB0, 0x2
70 1/0/7/3 0 LDGSTS.E.BYPASS.128 [R141+0x400], desc[UR44][R98.64], !P0
80 1/0/7/7 0 @!PT LDS RZ, [RZ]
"""


def test_a_loop_is_read_as_a_scheduler_sees_it():
    code = loop_code(Listing.from_text(LOOP).instructions)
    assert code[0] == Issued("other", 4, even=3)
    # R2 is still there from the instruction before
    assert code[1] == Issued("other", 1, waits=2, odd=2)
    assert code[2] == Issued("mufu", 1, result=1, even=1)
    assert code[3] == Issued("mma_registers", 3, n=128)
    assert code[4] == Issued("mma", 3, n=64, last=True)
    assert code[5] == Issued("wait_mma", 2, n=1)
    assert code[6] == Issued("wait_copies", 4, n=2)
    assert code[7] == Issued("copy", 1, reads=3, even=1, odd=2)
    assert code[8] == Issued("other", 1)


def test_loops_that_load_by_tma_are_not_followed():
    assert (
        loop_code(Listing.from_text(LOOP + "90 1 0 UTMALDG.3D [UR8], [UR4]\n").instructions) == ()
    )
