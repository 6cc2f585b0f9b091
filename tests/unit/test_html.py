"""Pages: one file that loads nothing, with the text report's sentences and its own numbers."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from html import unescape
from itertools import pairwise

import pytest

import simgpu
from simgpu.errors import MissingExtraError, OutputError, ProfileError
from simgpu.hardware.load import load_profile
from simgpu.report.html import run_page
from simgpu.report.lanes import UNITS, first_ctas
from simgpu.report.outline import outline
from simgpu.report.output import check_writable, write_text
from simgpu.report.roofline import others, roofline
from tests.pages import Page, check_whole, squeezed

pytest.importorskip("jinja2", reason="pages need jinja2 (the report extra)")

PROBLEM = simgpu.Attention(batch=1, heads_q=4, seq_q=512, head_dim=64)


@pytest.fixture(scope="module")
def run():
    return simgpu.run("fa3", PROBLEM, "h100")


@pytest.fixture(scope="module")
def text(run):
    profile = load_profile("h100")
    beside, missing = others(run, profile)
    return run_page(run, profile, beside, missing)


def test_a_page_is_whole_and_says_what_the_text_report_says(run, text):
    words = squeezed(check_whole(text).words)
    found = outline(run)
    for said in (*found.headline, *(s.said for s in found.sections), found.provenance):
        assert squeezed(said) in words
    for title in (s.title for s in found.sections):
        assert title in words


def test_several_launches_have_a_column_each():
    run = simgpu.run("standard", PROBLEM, "a100")
    page = check_whole(run_page(run, load_profile("a100")))
    for launch in run.launches:
        assert f"{100 * launch.bounds['hbm'] / launch.cycles:.1f} % · " in page.words


def test_what_the_exact_mode_does_not_tell_is_not_drawn():
    tiny = simgpu.Attention(batch=1, heads_q=2, seq_q=128, head_dim=64)
    page = check_whole(run_page(simgpu.run("fa2", tiny, "h100", exact=True), load_profile("h100")))
    assert "waves-data" not in page.data
    assert "No timeline: none was asked for." in page.words


def test_a_run_writes_its_own_page(run, tmp_path):
    run.to_html(tmp_path / "run.html")
    page = check_whole((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert [p["name"] for p in page.data["roofline-data"]["points"]] == ["fa3"]
    assert page.data["sm-data"]["schedule"] == "fa3"
    with pytest.raises(OutputError, match="cannot write"):
        run.to_html(tmp_path)
    with pytest.raises(ProfileError, match=r"the run was on h100_sxm5 .*, a100"):
        run.to_html(tmp_path / "run.html", gpu="a100")


def test_every_number_of_the_profile_is_there_assumed_ones_first(text):
    words = squeezed(Page(text).words)
    places = [words.index(row.path) for row in load_profile("h100").sources()]
    assert len(places) > 50
    assert places == sorted(places)


def test_a_point_is_as_far_under_a_roof_as_its_level_is_idle(run, text):
    found = Page(text).data["roofline-data"]
    assert [p["name"] for p in found["points"]] == ["fa3", "standard", "fa1", "fa2"]
    for point in found["points"]:
        for level, rate in found["roofs_tb_per_s"].items():
            roof = point["intensity"][level] * rate
            assert point["tflops"] / roof == pytest.approx(point["use"][level], rel=1e-6)
    assert found["points"][0]["tflops"] == pytest.approx(run.tflops)
    # 4096 FLOP a clock on 132 SMs
    assert found["peak_tflops"] == pytest.approx(4096 * 132 * run.clock_mhz / 1e6, rel=1e-6)


def test_a_schedule_that_the_gpu_cannot_run_is_named_with_the_reason():
    profile = load_profile("a100")
    run = simgpu.run("fa2", PROBLEM, profile)
    found, missing = others(run, profile)
    assert [r.schedule for r in found] == ["standard", "fa1"]
    assert "no tma and no wgmma" in missing["fa3"]
    assert missing["fa3"] in unescape(run_page(run, profile, found, missing))


def test_text_from_outside_cannot_become_markup(run):
    bad = replace(run, schedule="</script><script>alert(1)</script>")
    text = run_page(bad, load_profile("h100"))
    assert "<script>alert" not in text
    check_whole(text)


def test_the_same_run_gives_the_same_bytes_quickly(run, text):
    profile = load_profile("h100")
    beside, missing = others(run, profile)
    start = time.perf_counter()
    again = run_page(run, profile, beside, missing)
    assert time.perf_counter() - start < 2
    assert again == text
    assert len(text.encode()) < 3e6
    assert roofline(profile, run.clock_mhz, [run]).points[0].name == "fa3"


def test_a_path_that_cannot_be_written_is_one_line(tmp_path):
    for path in (tmp_path, tmp_path / "no" / "run.html"):
        for attempt in (check_writable, lambda p: write_text(p, "x")):
            with pytest.raises(OutputError, match=r"^cannot write .*: .*; give a file in a folder"):
                attempt(path)
    check_writable(tmp_path / "new.html")
    assert not (tmp_path / "new.html").exists()
    (tmp_path / "old.html").write_text("kept", encoding="utf-8")
    check_writable(tmp_path / "old.html")
    assert (tmp_path / "old.html").read_text(encoding="utf-8") == "kept"


def test_without_jinja2_one_line_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r'pip install "simgpu\[report\]"'):
        run_page(run, load_profile("h100"))


def test_a_timeline_tells_what_the_simulation_did(run):
    profile = load_profile("h100")
    found, _ = first_ctas("fa3", run, profile)
    watched = simgpu.timeline("fa3", PROBLEM, profile, waves=1)
    drawn = [s for s in watched.spans if s.end > s.start]
    assert len(found["spans"]) == len(drawn) + len(watched.flights)
    assert found["rows"][:3] == ["CTA 0 producer", "CTA 0 consumer0", "CTA 0 consumer1"]
    ends = {}
    for row, start, end, *_ in sorted(found["spans"]):
        assert ends.get(row, 0) <= start <= end <= found["cycles"] + 0.1
        ends[row] = end
    assert [unit for unit, _ in found["units"]] == list(UNITS)
    assert len(found["flows"]) == len(watched.flows)
    data = Page(run_page(run, profile, timeline=found)).data["sm-data"]
    assert data == json.loads(json.dumps(found))


def test_what_is_too_much_to_draw_is_said_and_not_simulated():
    long = simgpu.Attention(batch=1, heads_q=1, seq_q=4096, head_dim=128)
    run = simgpu.run("fa2", long, "h100", params={"block_n": 16})
    run = replace(run, launches=(replace(run.launches[0], occupancy=_many(run)),))
    found, why = first_ctas("fa2", run, load_profile("h100"))
    assert found is None
    assert "too many to draw; a shorter --seqlen" in why
    assert why in unescape(run_page(run, load_profile("h100"), no_timeline=why))


def _many(run):
    return replace(run.launches[0].occupancy, ctas_per_sm=100)


@pytest.mark.parametrize("causal", [False, True])
def test_the_area_of_ctas_over_time_is_their_residence(causal):
    problem = simgpu.Attention(batch=4, heads_q=16, seq_q=2048, head_dim=64, causal=causal)
    run = simgpu.run("fa2", problem, "h100")
    (launch,), sms = run.launches, run.provenance["sms"]
    area = sum(n * (end - at) for (at, n), (end, _) in pairwise(launch.resident))
    warps = area * launch.warps / (launch.cycles * sms)
    assert warps == pytest.approx(launch.achieved_warps_per_sm, rel=0.1 if causal else 0.02)
    assert launch.resident[-1] == (pytest.approx(launch.cycles), 0)
    assert max(n for _, n in launch.resident) <= launch.occupancy.ctas_per_sm * sms
    drawn = Page(run_page(run, load_profile("h100"))).data["waves-data"]
    assert len(drawn["steps"]) <= 401
    assert drawn["steps"][-1] == [pytest.approx(launch.cycles, abs=0.1), 0]
