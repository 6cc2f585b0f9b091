"""Reading SASS: listings, loops, what is executed, pipes and products. Needs no Triton."""

from __future__ import annotations

import dataclasses

import pytest

from simgpu.compiled.flow import executed, hot_loops, mma_loops, nested
from simgpu.compiled.listing import Instruction, Listing
from simgpu.compiled.sass import PIPES, PipeCounts, count_pipes, pipe_of, read_stretch
from tests.compiled.loading import fixture_kernel

NVDISASM = """
	.section	.text.k,"ax",@progbits
.text.k:
	//## File "k.py", line 7
        /*0000*/                   S2R R0, SR_TID.X ;            /* 0x0000000000007919 */
                                                                 /* 0x000e2e0000002100 */
.L_x_1:
	//## File "library.py", line 90
        /*0010*/              @!P0 FFMA.FTZ R1, R2, R3, R4 ;     /* 0x0000000302017223 */
                                                                 /* 0x000fca0000010004 */
	//## File "k.py", line 8
        /*0020*/                   BRA.U UP0, `(.L_x_1)    ?trans5 ;   /* 0x0000000302017223 */
                                                                 /* 0x000fc80000010004 */
        /*0030*/                   EXIT &req={1} ?WAIT15_END_GROUP ;   /* 0x000000000000794d */
                                                                 /* 0x000fea0003800000 */
	.section	.text.helper,"ax",@progbits
        /*0000*/                   NOP ;                         /* 0x0000000000007918 */
"""


def code(*rows: str) -> Listing:
    """A listing of ``opcode [->address]`` rows, 16 bytes each."""
    return Listing.from_text("".join(f"{16 * i:x} 1 0 {row}\n" for i, row in enumerate(rows)))


def opcodes(listing, parts):
    return [x.opcode for p in parts for x in listing.instructions[p.first : p.last + 1] * p.times]


def test_nvdisasm_text_is_read_with_stalls_scoreboards_lines_predicates_and_targets():
    listing = Listing.from_nvdisasm(NVDISASM)
    assert listing.instructions == (
        Instruction(0x00, 7, 7, "", "S2R", "R0, SR_TID.X", result=0),
        Instruction(0x10, 5, 7, "@!P0", "FFMA.FTZ", "R1, R2, R3, R4"),
        Instruction(0x20, 4, 8, "", "BRA.U", "UP0", 0x10),
        Instruction(0x30, 5, 8, "", "EXIT", ""),
    )
    assert [x.conditional for x in listing.instructions] == [False, True, True, False]
    assert listing.jumps == {2: 1}


def test_the_text_form_reads_back_equal():
    listing = Listing.from_nvdisasm(NVDISASM)
    assert Listing.from_text("# a comment\n" + listing.to_text()) == listing


@pytest.mark.parametrize(
    ("opcode", "operands", "pipe"),
    [
        ("MUFU.EX2", "R1, R2", "xu"),
        ("IMAD.MOV.U32", "R1, RZ, RZ, R2", "fma"),
        ("VIADD", "R1, R2, 0x1", "fma"),
        ("FMNMX", "R1, R2, R3, !PT", "alu"),
        ("R2UR", "UR4, R2", "alu"),
        ("ELECT", "P0, URZ, PT", "alu"),
        ("VIADDMNMX", "R4, R5, 0x80, R6, PT", "alu"),
        ("VOTEU.ANY", "UP1, P0", "other"),
        ("S2R", "R0, SR_TID.X", "lsu"),
        ("S2R", "R0, SR_CTAID.X", "other"),
        ("LDGDEPBAR", "", "lsu"),
        ("FENCE.VIEW.ASYNC.S", "", "lsu"),
        ("SHFL.BFLY", "PT, R1, R2, 0x1, 0x1f", "lsu"),
        ("HGMMA.64x64x16.F32", "R24, gdesc[UR4], RZ, !UPT", "tensor"),
        ("HMMA.16816.F32", "R4, R8, R2, R4", "tensor"),
        ("UTCHMMA", "gdesc[UR6], gdesc[UR18], tmem[UR30]", "tensor"),
        ("UTMALDG.2D", "[UR8], [UR4]", "other"),
        ("UIADD3", "UR4, UR4, 0x1, URZ", "uniform"),
        ("BAR.SYNC.DEFER_BLOCKING", "0x0", "other"),
    ],
)
def test_pipes_as_nsight_compute_counts_them_on_hopper(opcode, operands, pipe):
    assert pipe_of(Instruction(0, 1, 0, "", opcode, operands)) == pipe


def test_counts_add_and_multiply():
    a, b = PipeCounts(xu=1, alu=2), PipeCounts(xu=3, other=1)
    assert a + b * 2 == PipeCounts(xu=7, alu=2, other=2)
    assert (a + b * 2).total == 11


def test_a_loop_is_executed_as_often_as_said_and_jumped_over_if_never():
    listing = code("MOV", "@!P0 BRA ->40", "HMMA", "@P1 BRA ->20", "FADD", "EXIT")
    loops = mma_loops(listing)
    assert [(x.first, x.last) for x in loops] == [(2, 3)]
    assert opcodes(listing, executed(listing, loops, [2])) == [
        *("MOV", "BRA"),
        *("HMMA", "BRA") * 2,
        *("FADD", "EXIT"),
    ]
    assert opcodes(listing, executed(listing, loops, [0])) == ["MOV", "BRA", "FADD", "EXIT"]


def test_the_way_round_a_loop_may_have_code_of_its_own():
    listing = code(
        "@P0 BRA ->30", "MOV", "BRA ->60", "FMUL", "HMMA", "@P1 BRA ->40", "FADD", "EXIT"
    )
    loops = mma_loops(listing)
    once = opcodes(listing, executed(listing, loops, [1]))
    assert once == ["BRA", "FMUL", "HMMA", "BRA", "FADD", "EXIT"]
    never = opcodes(listing, executed(listing, loops, [0]))
    assert never == ["BRA", "MOV", "BRA", "FADD", "EXIT"]


def test_spinning_on_a_barrier_is_no_loop():
    spin = ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "@!P0 BRA ->50", "BRA ->0")
    listing = code("SYNCS", "@!P0 BRA ->50", "HMMA", "@P1 BRA ->0", "EXIT", *spin)
    assert [(x.first, x.last) for x in hot_loops(listing)] == [(0, 3)]


def test_waiting_for_a_barrier_passes_over_no_loop():
    wait = ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "@!P0 BRA ->70", "BRA ->10")
    listing = code(
        "@!P0 BRA ->70", "MOV", "@!P1 BRA ->50", "HMMA", "@P1 BRA ->30", "FADD", "EXIT", *wait
    )
    loops = mma_loops(listing)
    never = opcodes(listing, executed(listing, loops, [0]))
    assert never == ["BRA", "MOV", "BRA", "FADD", "EXIT"]


def test_an_inner_loop_stands_for_the_outer_one():
    listing = code("MOV", "LDG", "HMMA", "@P0 BRA ->20", "STG", "@P1 BRA ->10", "EXIT")
    loops = mma_loops(listing)
    assert [(x.first, x.last) for x in loops] == [(2, 3)]
    assert nested(listing, loops)


def test_serialised_wgmma_and_spills_are_seen():
    stats = read_stretch(
        code(
            *("HGMMA.64x64x16.F32", "WARPGROUP.DEPBAR.LE") * 3, "LDL", "STL.64", "LDS"
        ).instructions
    )
    assert stats.serial_products == 3
    assert (stats.spill_loads, stats.spill_stores, stats.shared_loads) == (1, 1, 1)


@pytest.mark.parametrize(
    ("name", "loops", "warps"),
    [("sm90_two_loops", 2, 4), ("sm90_unrolled", 1, 4), ("sm80_one_loop", 1, 4)],
)
def test_a_pass_of_flash_attention_by_count(name, loops, warps):
    kernel = fixture_kernel(name)
    found = mma_loops(kernel.listing)
    assert len(found) == loops
    m, n, d = (kernel.constants[key] for key in ("BM", "BN", "D"))
    stats = read_stretch(kernel.listing.instructions[found[0].first : found[0].last + 1])
    scores, rows = m * n // (32 * warps), 2 * m // (16 * warps)
    assert stats.exps == stats.pipes.xu == scores + rows
    per = stats.products[0].per
    copies = warps // 4 if per == "warpgroup" else warps
    assert sum(x.flops for x in stats.products) * copies == 4 * m * n * d
    assert stats.async_copies == n * d // (128 * warps) or per == "warp"
    assert stats.spill_loads == stats.spill_stores == 0


def test_eight_warps_on_64_rows_do_half_as_much_again():
    kernel = fixture_kernel("sm90_split_d")
    (loop,) = mma_loops(kernel.listing)
    stats = read_stretch(kernel.listing.instructions[loop.first : loop.last + 1])
    flops = 2 * sum(x.flops for x in stats.products)
    assert flops == 6 * 64 * 32 * 64
    assert stats.exps == 64 * 32 // (32 * 4) + 2  # as with four warps


def test_roles_have_loops_of_their_own_and_tcgen05_shapes_are_found():
    kernel = fixture_kernel("sm100_roles")
    code = kernel.listing.instructions
    stats = [
        read_stretch(code[x.first : x.last + 1], code[: x.first]) for x in hot_loops(kernel.listing)
    ]
    products = [s for s in stats if s.products]
    assert len(stats) == 4
    assert len(products) == 1
    assert sum(x.flops for x in products[0].products) == 4 * 128 * 64 * 64
    assert {x.per for x in products[0].products} == {"cta"}
    assert max(s.exps for s in stats) == 128 * 64 // (32 * 4) + 1
    assert sum(s.tma for s in stats) == 2


def test_every_instruction_of_a_kernel_is_counted_once():
    kernel = fixture_kernel("sm90_two_loops")
    parts = executed(kernel.listing, mma_loops(kernel.listing), [1, 1])
    code = kernel.listing.instructions
    positions = [i for p in parts for i in range(p.first, p.last + 1)]
    assert len(positions) == len(set(positions))
    counted = sum((count_pipes(code[p.first : p.last + 1]) for p in parts), PipeCounts())
    assert counted.total == len(positions)
    assert [f.name for f in dataclasses.fields(counted)] == list(PIPES)
