"""Comparisons: the sentences' numbers are the runs' own, and a refusal is a row."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

import simgpu
from simgpu.cli import app
from simgpu.errors import UnknownNameError, UnsupportedError
from simgpu.program.record import record
from simgpu.read.structure import structure
from simgpu.report.comparison import compare
from simgpu.report.side_by_side import render_comparison
from simgpu.report.why import why
from simgpu.schedules import make_schedule
from tests.pages import check_whole, squeezed

PROBLEM = simgpu.Attention(batch=4, heads_q=32, seq_q=1024, head_dim=128)
SIZES = ("--batch", "1", "--heads", "4", "--seqlen", "512")


@pytest.fixture(scope="module")
def gpus():
    return compare(["fa2", "fa3"], PROBLEM, ["a100", "h100"])


def said(found, label):
    (entry,) = [e for e in found.entries if e.label.startswith(label)]
    return " ".join(why(entry, found)), entry


def test_fa2_is_slower_than_fa3_on_an_h100_as_nothing_runs_under_its_products():
    long = simgpu.Attention(batch=4, heads_q=32, seq_q=4096, head_dim=128)
    found = compare(["fa2", "fa3"], long, ["h100"])
    text, fa2 = said(found, "fa2")
    _, fa3 = said(found, "fa3")
    ratio = fa2.run.time_us / fa3.run.time_us
    assert ratio > 1
    assert f"It takes {ratio:.2f} × the time of fa3" in text
    stalls = [run.launches[0].stalls for run in (fa2.run, fa3.run)]
    grown = max(stalls[0], key=lambda name: stalls[0][name] - stalls[1][name])
    for run in (fa2.run, fa3.run):
        assert f"{100 * run.launches[0].utilization['tensor']:.1f} %" in text
        assert f"{100 * run.launches[0].stalls[grown]:.1f} %" in text
    assert "one role issues a product, waits for it, and only then computes its softmax" in text
    assert "2 roles have products, so that one's softmax runs under another's" in text


def test_the_ratio_is_the_product_of_what_is_asked_and_how_busy_it_is_kept():
    found = compare(["standard", "fa3"], PROBLEM, ["h100"])
    text, slow = said(found, "standard")
    form = r"takes (\S+) ×.* asks (\S+) ×.*busy (\S+) % .*instead of (\S+) %"
    ratio, asked, mine, others = map(float, re.search(form, text).groups())
    assert ratio == pytest.approx(found.times(slow), abs=0.01)
    assert ratio == pytest.approx(asked * others / mine, rel=0.03)
    assert re.search(r"HBM alone would take \S+ % of its time", text)
    assert re.search(r"HBM moves \d+\.\d × the bytes of Q, K, V and O", text)


def test_a_schedule_that_a_gpu_cannot_run_is_a_row_that_says_what_it_lacks(gpus):
    text, fa3 = said(gpus, "fa3 on a100")
    assert fa3.run is None
    assert "fa3 needs tma and wgmma; a100_sxm4_80gb has no tma and no wgmma." in text
    # 16 exponentials a clock beside 2048 and 4096 FLOP, 512 FLOP and one exponential a score
    assert "exponentials take 25." in text
    assert "50." in text
    assert "there is less for a schedule to gain that runs softmax under products" in text
    assert gpus.times(fa3) is None


def test_a_gpus_fastest_is_compared_with_the_same_schedule_elsewhere(gpus):
    text, _ = said(gpus, "fa2 on a100")
    assert "the time of fa2 on h100_sxm5: at full rate the tensor cores of this GPU need" in text
    assert "Without wgmma a product holds the warps that issue it" in text
    assert said(gpus, "fa3 on h100")[0].startswith("The fastest here.")


def test_roles_share_the_work_as_the_papers_say():
    def of(name, **params):
        return structure(record(make_schedule(name, params), PROBLEM).launches[0])

    assert of("fa2").covered == 0
    assert of("fa2").loading == ()
    assert of("fa3").loading == ("producer",)
    assert of("fa3").computing == ("consumer0", "consumer1")
    assert 0.3 < of("fa3").covered < 0.6
    assert of("fa3", overlap=False).covered == 0
    assert of("fa3", specialized=False).loading == ()


def test_text_json_and_page_say_the_same(gpus):
    text, data = render_comparison(gpus), gpus.to_dict()
    assert data["schema"] == "simgpu.comparison/1"
    assert [(r["schedule"], r["gpu"], r["run"] is None) for r in data["rows"]] == [
        ("fa2", "a100_sxm4_80gb", False),
        ("fa3", "a100_sxm4_80gb", True),
        ("fa2", "h100_sxm5", False),
        ("fa3", "h100_sxm5", False),
    ]
    from simgpu.report.compare_page import compare_page

    words = squeezed(check_whole(compare_page(gpus)).words)
    for row in data["rows"]:
        for sentence in row["why"]:
            assert squeezed(sentence) in words
            assert squeezed(sentence) in squeezed(text)
    assert max(map(len, text.splitlines())) <= 100


def test_a_gpu_on_which_nothing_runs_still_has_a_page():
    from simgpu.report.compare_page import compare_page

    found = compare(["fa3"], PROBLEM, ["a100"])
    assert found.ran == []
    assert "needs tma and wgmma" in check_whole(compare_page(found)).words
    assert "needs tma and wgmma" in render_comparison(found)


def test_the_command_takes_a_list_of_gpus_and_writes_a_page(tmp_path):
    path = tmp_path / "cmp.html"
    args = ["compare", "fa2", "fa3", *SIZES, "--gpu", "a100,h100", "--html", str(path), "--json"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["rows"]) == 4
    assert "fa2 and fa3 on NVIDIA A100" in path.read_text(encoding="utf-8")


def test_mistakes_are_named():
    with pytest.raises(UnknownNameError, match="unknown schedule 'fa9'"):
        compare(["fa9"], PROBLEM)
    with pytest.raises(UnsupportedError, match="none of fa2, fa3 has a parameter 'tiles'"):
        compare(["fa2", "fa3"], PROBLEM, params={"tiles": 3})
    found = compare(["fa2", "fa3"], PROBLEM, ["h100"], params={"block_n": 32, "overlap": False})
    assert [e.run.params.get("overlap") for e in found.entries] == [None, False]
    assert [e.run.params["block_n"] for e in found.entries] == [32, 32]


def test_a_list_without_a_gpu_is_named():
    done = CliRunner().invoke(app, ["compare", "fa2", *SIZES, "--gpu", " , "])
    assert done.exit_code == 2
    assert done.stderr == "error: --gpu is empty: give a profile's name, or several with commas\n"
