"""Readings, findings, mixes and reports of fixture kernels. Needs no Triton."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from simgpu.cli import app
from simgpu.compiled import mix as mix_module
from simgpu.compiled import report
from simgpu.compiled.aot import CompiledKernel
from simgpu.compiled.job import Job, own_job
from simgpu.compiled.lint import lint
from simgpu.compiled.mix import compiled_mix, compiled_mixes, differences, mix_of
from simgpu.compiled.reading import executed_by_cta, has_products, read_kernel
from simgpu.compiled.sass import PipeCounts
from simgpu.errors import CompileError, UnsupportedError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention
from simgpu.program.mix import Mix
from tests.compiled.loading import fixture_kernel

H100, A100, B200 = load_profile("h100"), load_profile("a100"), load_profile("b200")
TWO_LOOPS = fixture_kernel("sm90_two_loops")
PROBLEM = Attention(batch=1, heads_q=8, seq_q=1024, head_dim=64)
JOB = own_job("fa2", {"block_m": 128, "block_n": 128, "stages": 2}, PROBLEM, 90)


def refuse(job):
    raise CompileError("not in this test")


def findings(kernel, profile=H100, job=JOB, compile_=refuse):
    return {f.code: f for f in lint(read_kernel(kernel, profile), job, profile, compile_)}


def test_a_reading_says_what_fits_and_what_the_loop_does():
    reading = read_kernel(TWO_LOOPS, H100)
    assert reading.gpu == "h100_sxm5"
    assert reading.occupancy.ctas_per_sm > 1
    assert [loop.role for loop in reading.loops] == ["all", "all"]
    assert reading.main == reading.loops[0]
    assert reading.main.flops == 4 * 64 * 32 * 64 == TWO_LOOPS.loop_flops[0]
    assert not reading.specialised
    assert has_products(TWO_LOOPS)


def test_roles_by_what_their_loops_do():
    reading = read_kernel(fixture_kernel("sm100_roles"), B200)
    assert reading.specialised
    assert sorted(x.role for x in reading.loops) == ["correction", "load", "mma", "softmax"]
    assert findings(fixture_kernel("sm100_roles"), B200) == {}


def test_a_clean_kernel_has_no_findings():
    assert findings(TWO_LOOPS) == {}
    assert findings(fixture_kernel("sm80_one_loop"), A100) == {}


def test_duplicated_tensor_work_is_found():
    finding = findings(fixture_kernel("sm90_split_d"))["duplicated-work"]
    assert "1.5× the tensor work: 8 warps share too few rows" in finding.text
    assert finding.evidence == "786,432 FLOPs a pass, the source has 524,288"
    assert str(finding).startswith("h100_sxm5 forward: 1.5×")


def test_other_products_than_the_source_has():
    finding = findings(replace(TWO_LOOPS, loop_flops=[10**6]))["work-differs"]
    assert finding.text.startswith("0.524× the products")


def test_too_much_shared_memory_and_the_largest_tile_that_fits():
    big = replace(TWO_LOOPS, shared_bytes=300_000)
    tried = []

    def compile_(job):
        params = job.arguments["params"]
        tried.append(params)
        tile = params["block_m"] * params["block_n"] * params["stages"]
        return (replace(TWO_LOOPS, shared_bytes=tile * 20),)

    finding = findings(big, compile_=compile_)["does-not-fit"]
    assert finding.text.endswith("block_m=128, block_n=64, stages=1, 163,840 bytes")
    assert "wants 300000 bytes of shared memory; it may have 232448" in finding.evidence
    assert tried[0] == {"block_m": 128, "block_n": 128, "stages": 1}
    assert findings(big)["does-not-fit"].text.endswith("nothing smaller tried does")


def test_a_files_kernel_is_made_smaller_by_its_constants():
    job = Job(
        source="k.py",
        function="k",
        arch=90,
        arguments={"BLOCK_M": {"value": 64}, "N": {"value": 4096}},
        options={"num_stages": 2},
    )

    def compile_(smaller):
        size = smaller.arguments["BLOCK_M"]["value"] * smaller.options["num_stages"]
        assert smaller.arguments["N"] == {"value": 4096}
        return (replace(TWO_LOOPS, shared_bytes=size * 4000),)

    big = replace(TWO_LOOPS, shared_bytes=512_000)
    finding = findings(big, job=job, compile_=compile_)["does-not-fit"]
    assert finding.text.endswith("BLOCK_M=32, num_stages=1, 128,000 bytes")


def test_too_many_threads_is_another_reason():
    finding = findings(replace(TWO_LOOPS, warps=64, warps_asked=64))["does-not-fit"]
    assert "threads" in finding.evidence


def spilling(**changes):
    text = TWO_LOOPS.text.replace(" IADD3\n", " LDL\n").replace(" LOP3.LUT\n", " STL\n")
    return replace(TWO_LOOPS, text=text, stack_bytes=64, registers=255, **changes)


def test_spills_inside_and_outside_the_loop():
    inside = findings(spilling())["spills-in-loop"]
    assert inside.evidence.startswith("255 registers, 64 bytes of stack, ")
    outside = findings(replace(TWO_LOOPS, stack_bytes=8))["spills"]
    assert "not inside the hot loop" in outside.text


def test_the_collapse_to_32_registers_and_its_cure():
    collapsed = replace(spilling(), registers=32, stack_bytes=11_736)

    def compile_(job):
        assert job.options == {"maxnreg": 255}
        return (replace(TWO_LOOPS, registers=255, stack_bytes=880),)

    finding = findings(collapsed, compile_=compile_)["register-collapse"]
    assert finding.text.endswith("maxnreg=255 cures it")
    assert finding.evidence == (
        "32 registers, 11,736 bytes of stack; then 255 registers, 880 bytes"
    )
    assert "cures" not in findings(collapsed)["register-collapse"].text


def test_roles_that_were_asked_for_and_not_made():
    assert findings(replace(TWO_LOOPS, wants_roles=True))["no-roles"].evidence == (
        "num_warps is still 4"
    )


def test_descriptors_on_a_gpu_without_tma():
    ampere = fixture_kernel("sm80_one_loop")
    plain = replace(ampere, loads_by_descriptor=True, text=ampere.text.replace(" LDGSTS.", " LDG."))
    finding = findings(plain, A100)["descriptors-without-tma"]
    assert finding.evidence == "4 LDG and no LDGSTS in the hot loop"
    assert "descriptors-without-tma" not in findings(plain)


def test_a_mix_has_its_masked_pass_in_a_loop_or_behind_it():
    two, one = mix_of(TWO_LOOPS), mix_of(fixture_kernel("sm90_unrolled"))
    assert two.between.total > 0
    assert one.between.total == 0
    for mix in (two, one):
        assert mix.masked.tensor == mix.full.tensor > 0
        assert mix.masked.xu == mix.full.xu
        assert mix.masked.alu > mix.full.alu
        assert mix.masked_stats is not None
    assert two.executed(3, 2) == executed_by_cta(TWO_LOOPS, (3, 2))
    none = mix_of(fixture_kernel("sm80_one_loop"))
    assert none.masked == PipeCounts()
    assert none.masked_stats is None
    assert none.source == "Triton 3.6.0, sm_80"


def test_no_common_mix_for_roles():
    with pytest.raises(UnsupportedError, match="the warps of with_roles have roles"):
        mix_of(fixture_kernel("sm100_roles"))


def test_compiled_mix_asks_for_the_schedules_kernel(monkeypatch):
    asked = []

    def compile_job(job, *, cache_dir):
        asked.append(job)
        return (TWO_LOOPS,) if job.source == "fa2" else (TWO_LOOPS, TWO_LOOPS)

    monkeypatch.setattr(mix_module, "compile_job", compile_job)
    params = {"block_m": 64, "block_n": 32, "warps": 4, "warp_partition": "split-q"}
    assert compiled_mix("fa2", params, PROBLEM, H100).registers == TWO_LOOPS.registers
    assert asked[0].arch == 90
    assert asked[0].arguments["params"] == {"block_m": 64, "block_n": 32, "warps": 4}
    assert len(compiled_mixes("standard", {}, PROBLEM, H100)) == 2
    with pytest.raises(UnsupportedError, match="standard is 2 launches"):
        compiled_mix("standard", {}, PROBLEM, H100)
    with pytest.raises(UnsupportedError, match="no Triton kernel of schedule 'mine'"):
        compiled_mix("mine", {}, PROBLEM, H100)


def test_differences_of_more_than_a_tenth_are_told():
    compiled = PipeCounts(xu=100, fma=1000, alu=100, uniform=30, other=20).to_mix()
    assert compiled == Mix(mufu=100, fma=1000, alu=100, other=50)
    analytic = Mix(mufu=100, fma=1099, alu=120, lsu=5, other=50)
    assert differences(analytic, compiled) == [
        "alu: analytic 120, compiled 100 instructions (+20%)",
        "lsu: analytic 5, compiled 0 instructions (where there is none)",
    ]


@pytest.fixture
def compiled_for(monkeypatch):
    names = {80: "sm80_one_loop", 90: "sm90_split_d", 100: "sm100_roles"}

    def compile_jobs(jobs, *, cache_dir):
        return [
            (fixture_kernel(names[job.arch]),)
            if job.arch in names
            else CompileError(f"fa2 for sm_{job.arch}: no")
            for job in jobs
        ]

    monkeypatch.setattr(report, "compile_jobs", compile_jobs)


@pytest.mark.usefixtures("compiled_for")
def test_the_report_is_a_table_with_a_column_a_gpu():
    found = report.compile_report(
        "fa2", ["a100", "h100", "rtx_5090"], settings=["block_m=64"], with_lint=True
    )
    text = found.text
    head = next(line for line in text.splitlines() if "a100" in line)
    assert head.split() == ["a100_sxm4_80gb", "h100_sxm5"]
    assert "loop: products" in text
    assert "64x16x16" in text
    assert "0.79" in text
    assert "rtx_5090: fa2 for sm_120: no" in text
    assert "1.5× the tensor work" in text
    content = json.loads(found.to_json())
    assert [r["gpu"] for r in content["readings"]] == ["a100_sxm4_80gb", "h100_sxm5"]
    assert content["readings"][1]["loops"][0]["flops"] == 786_432
    assert content["findings"][0]["code"] == "duplicated-work"
    assert "listing" not in content["readings"][0]


@pytest.mark.usefixtures("compiled_for")
def test_roles_have_rows_of_their_own_and_silence_means_no_lint():
    text = report.compile_report("fa2", ["b200"]).text
    assert "mma loop 0: products" in text
    assert "tensor memory, columns" in text
    assert "no findings" not in text
    assert "no findings" in report.compile_report("fa2", ["b200"], with_lint=True).text


@pytest.mark.usefixtures("compiled_for")
def test_no_gpu_gave_a_result():
    with pytest.raises(CompileError, match="rtx_5090: fa2 for sm_120: no"):
        report.compile_report("fa2", ["rtx_5090"])
    with pytest.raises(CompileError, match="num_warps: our kernels call it warps"):
        report.compile_report("fa2", ["h100"], settings=["num_warps=4"])
    with pytest.raises(CompileError, match="no GPU was named"):
        report.compile_report("fa2", [])


def test_spills_are_counted_as_triton_counts_them():
    kernel = replace(TWO_LOOPS, stack_bytes=80)
    assert isinstance(kernel, CompiledKernel)
    assert kernel.spills == 20


@pytest.mark.usefixtures("compiled_for")
def test_the_command_prints_the_report():
    runner = CliRunner()
    said = runner.invoke(app, ["compile", "fa2", "--gpu", "a100", "--gpu", "h100", "--lint"])
    assert said.exit_code == 0, said.output
    assert "h100_sxm5 forward: 1.5× the tensor work" in said.output
    said = runner.invoke(app, ["compile", "fa2", "--gpu", "h100", "--json"])
    assert json.loads(said.output)["readings"][0]["registers"] == 66
    said = runner.invoke(app, ["compile", "nowhere.py:k", "--gpu", "h100"])
    assert said.exit_code == 2
