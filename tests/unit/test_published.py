"""`simgpu validate --published`: units, tables, and what it says of a file that is wrong."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import simgpu
from simgpu.cli import app
from simgpu.errors import MeasureError, UnknownNameError
from simgpu.hardware.load import load_profile
from simgpu.validation.published import of_schedule, publications, read_publication
from simgpu.validation.published_errors import predict, published_table

HEAD = """\
schema: simgpu.published/1
paper: Ours
source: "table 1"
gpu: h100_sxm5
clock_mhz: 1500
dtype: fp16
kernels:
  FA2:
    schedule: fa2
    tiles: {64: [{block_m: 128, block_n: 128, warps: 8}]}
  tuned:
    schedule: fa2
    tiles: {any: [{block_m: 64}, {block_m: 128}, {block_m: 256, block_n: 256, stages: 4}]}
rows:
"""
ROW = "  - {kernel: FA2, batch: 1, heads: 4, seqlen: 512, head_dim: 64, causal: true, tflops: 50}\n"
#: 2·512²·64·4 FLOP in this many ms are 50 TFLOP/s.
MS = 2 * 512 * 512 * 64 * 4 / 50e12 * 1e3


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "ours.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_committed_row_is_a_problem_of_a_known_gpu_and_schedule():
    found = publications()
    assert {p.gpu for p in found} == {
        "a100_sxm4_40gb",
        "a100_sxm4_80gb",
        "h100_sxm5",
        "b200_sxm",
    }
    assert sum(len(p.rows) for p in found) == 135
    known = set(simgpu.schedules.schedule_names())
    for p in found:
        load_profile(p.gpu)
        assert {kernel.schedule for kernel in p.kernels.values()} <= known
        assert {row.kernel for row in p.rows} == set(p.kernels)
        for row in p.rows:
            row.problem(p.dtype)


def test_a_prediction_is_that_of_run_at_the_stated_clock(written):
    (found,) = predict([read_publication(written(HEAD + ROW))])
    problem = simgpu.Attention(batch=1, heads_q=4, seq_q=512, head_dim=64, causal=True)
    params = {"block_m": 128, "block_n": 128, "warps": 8}
    ours = simgpu.run("fa2", problem, "h100", params=params, clock_mhz=1500)
    assert found.predicted_tflops["simgpu"] == pytest.approx(ours.tflops)
    assert found.error() == pytest.approx(ours.tflops / 50 - 1)
    bounds = ours.launches[0].bounds
    share = max(bounds["tensor"], bounds["hbm"]) / ours.cycles
    assert found.predicted_tflops["roofline"] == pytest.approx(ours.tflops / share)
    exps = max(bounds["tensor"], bounds["hbm"], bounds["mufu"]) / ours.cycles
    assert found.predicted_tflops["roofline_exp"] == pytest.approx(ours.tflops / exps)


def test_shared_memory_that_the_kernel_is_known_to_take_is_given(written):
    known = HEAD.replace("  tuned:", "    shared_bytes: {64: 200000}\n  tuned:")
    (given,) = predict([read_publication(written(known + ROW))])
    problem = simgpu.Attention(batch=1, heads_q=4, seq_q=512, head_dim=64, causal=True)
    params = {"block_m": 128, "block_n": 128, "warps": 8}
    ours = simgpu.run(
        "fa2", problem, "h100", params=params, resources={"shared_bytes": 200000}, clock_mhz=1500
    )
    assert given.predicted_tflops["simgpu"] == pytest.approx(ours.tflops)


def test_without_a_clock_the_sustained_one_counts(written):
    unstated = HEAD.replace("clock_mhz: 1500\n", "")
    clock = load_profile("h100").device.sustained_mhz
    stated = HEAD.replace("1500", f"{clock:g}")
    (a,), (b,) = (predict([read_publication(written(x + ROW))]) for x in (unstated, stated))
    assert a.predicted_tflops == b.predicted_tflops


def test_a_clock_that_the_board_cannot_hold_is_not_taken(written):
    row = ROW.replace("batch: 1", "batch: 16").replace("seqlen: 512", "seqlen: 4096")
    (found,) = predict([read_publication(written(HEAD.replace("1500", "1900") + row))])
    problem = simgpu.Attention(batch=16, heads_q=4, seq_q=4096, head_dim=64, causal=True)
    params = {"block_m": 128, "block_n": 128, "warps": 8}
    ours = simgpu.run("fa2", problem, "h100", params=params)
    assert ours.clock_mhz < 1900
    assert found.predicted_tflops["simgpu"] == pytest.approx(ours.tflops)


def test_milliseconds_are_the_same_speed(written):
    row = ROW.replace("tflops: 50", f"ms: {MS}")
    (in_ms,) = predict([read_publication(written(HEAD + row))])
    (in_tflops,) = predict([read_publication(written(HEAD + ROW))])
    assert in_ms.error() == pytest.approx(in_tflops.error())
    assert in_ms.unit == "ms"
    assert in_ms.in_unit() == pytest.approx(MS / (1 + in_ms.error()))


def test_of_several_tiles_the_fastest_counts_and_those_that_do_not_fit_do_not(written):
    row = ROW.replace("FA2", "tuned")
    (found,) = predict([read_publication(written(HEAD + row))])
    problem = simgpu.Attention(batch=1, heads_q=4, seq_q=512, head_dim=64, causal=True)
    runs = [
        simgpu.run("fa2", problem, "h100", params={"block_m": m}, clock_mhz=1500) for m in (64, 128)
    ]
    assert found.predicted_tflops["simgpu"] == pytest.approx(max(r.tflops for r in runs))


def test_a_row_whose_tile_does_not_fit_says_so_and_is_in_no_mean(written):
    tile = HEAD.replace("warps: 8}", "warps: 8, stages: 9}")
    runs = predict([read_publication(written(tile + ROW + ROW.replace("FA2", "tuned")))])
    assert "shared memory" in runs[0].refused
    assert [line.rows for line in published_table(runs)] == [1, 1]


def test_a_table_has_mean_bias_and_worst_by_kernel_and_in_all(written):
    rows = ROW + ROW.replace("tflops: 50", "tflops: 5000") + ROW.replace("FA2", "tuned")
    runs = predict([read_publication(written(HEAD + rows))])
    fa2, _, everything = published_table(runs)
    errors = [runs[0].error(), runs[1].error()]
    assert (fa2.kernel, fa2.gpu, fa2.rows) == ("FA2", "h100_sxm5", 2)
    assert fa2.mean["simgpu"] == pytest.approx(sum(map(abs, errors)) / 2)
    assert fa2.bias == pytest.approx(sum(errors) / 2)
    assert fa2.worst == max(errors, key=abs)
    assert everything.rows == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gpu: h100_sxm5", "gpu: h1000", r"ours.yaml:4: gpu: unknown hardware profile 'h1000'"),
        ("seqlen: 512", "seqlen: none", r"ours.yaml:15: rows.0.seqlen: .*valid integer"),
        ("seqlen: 512, ", "", r"ours.yaml:15: rows.0.seqlen: Field required"),
        ("tflops: 50", "tflops: 50, ms: 2", r"ours.yaml:15: rows.0: .*either tflops or ms"),
        (
            "causal: true, tflops: 50",
            "causal: true",
            r"ours.yaml:15: rows.0: .*either tflops or ms",
        ),
        ("kernel: FA2,", "kernel: FA9,", r"ours.yaml:15: rows.0.kernel: 'FA9' is not under kernel"),
        ("dtype: fp16", "dtype: fp17", r"ours.yaml:6: dtype: "),
        ("clock_mhz: 1500", "clock: 1500", r"ours.yaml:5: clock: Extra inputs"),
        ("paper: Ours", "paper: [Ours", r"ours.yaml:\d+: not YAML"),
        (HEAD + ROW, "", r"ours.yaml:1: file: "),
    ],
)
def test_a_malformed_file_names_file_line_and_field(written, old, new, said):
    with pytest.raises(MeasureError, match=said):
        read_publication(written((HEAD + ROW).replace(old, new)))


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(MeasureError, match=r"none.yaml: cannot be read"):
        read_publication(tmp_path / "none.yaml")


def test_a_gpu_or_schedule_without_rows_says_which_have_some():
    assert {p.gpu for p in publications("h100")} == {"h100_sxm5"}
    with pytest.raises(MeasureError, match=r"^no published rows of h200_sxm, only of a100_sxm4_40"):
        publications("h200")
    with pytest.raises(UnknownNameError, match=r"unknown published schedule 'fa9'"):
        of_schedule(publications(), "fa9")


def test_the_command_prints_a_table_and_json():
    asked = ["validate", "--published", "--gpu", "b200", "--every", "12"]
    text = CliRunner().invoke(app, [*asked, "--runs"]).output
    for word in ("published", "predicted", "roofline", "with exp", "bias", "worst", "no schedule"):
        assert word in text
    data = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    assert data["schema"] == "simgpu.published_errors/1"
    assert data["rows"][-1]["rows"] == len(data["runs"]) == 2
    assert set(data["rows"][0]["mean"]) == {"simgpu", "roofline", "roofline_exp"}
    assert any("backward" in x["what"] for x in data["not_predicted"])


def test_the_flag_goes_alone():
    done = CliRunner().invoke(app, ["validate", "--published", "--by", "mask"])
    assert done.exit_code == 2
