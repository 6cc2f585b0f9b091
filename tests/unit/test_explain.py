"""What the explaining page teaches with is what the readings say."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

import simgpu
from simgpu.cli import app
from simgpu.program.ops import Mma
from simgpu.program.record import record
from simgpu.read.count import count
from simgpu.read.numeric import run_numeric
from simgpu.read.reference import random_inputs
from simgpu.report import lessons
from simgpu.report.explain_page import explain_page
from simgpu.report.recurrence import recurrence
from simgpu.schedules import make_schedule
from tests.pages import check_whole

GPUS, LENGTHS = ("h100",), (512,)


@pytest.fixture(scope="module")
def row():
    return recurrence()


def of_kind(row, kind):
    return [m for m in row["moments"] if m["kind"] == kind]


def test_a_watcher_sees_each_operation_and_changes_nothing():
    problem = simgpu.Attention(batch=1, heads_q=1, seq_q=128, head_dim=32, dtype="fp32")
    recording = record(make_schedule("fa2", {"block_m": 64}), problem)
    inputs, seen = random_inputs(problem), []
    watched = run_numeric(recording, inputs, watch=lambda s: seen.append((s.at["m"], s.op)))
    plain = run_numeric(recording, inputs)
    assert np.array_equal(watched["O"], plain["O"])
    products = [at for at, op in seen if isinstance(op, Mma)]
    assert products == [0] * 4 + [1] * 4


def test_the_row_ends_at_the_exact_answer_and_nears_it_tile_by_tile(row):
    ends = of_kind(row, "products")
    assert [m["tile"] for m in ends] == list(range(8))
    assert row["final"] == pytest.approx(row["exact"], abs=1e-5)
    assert ends[-1]["error"] < 1e-6 < 0.1 < ends[0]["error"]
    assert ends[-1]["out"] == pytest.approx(row["exact"], abs=1e-4)


def test_the_recurrence_holds_between_moments(row):
    before = None
    for maximum, softmax in zip(of_kind(row, "maximum"), of_kind(row, "softmax"), strict=True):
        assert (
            softmax["m"]
            == maximum["m_new"]
            == pytest.approx(max(max(maximum["s"]), -np.inf if before is None else before["m"]))
        )
        alpha = 0.0 if before is None else 2 ** (before["m"] - softmax["m"])
        if before is not None:
            assert softmax["alpha"] == pytest.approx(alpha, rel=1e-3)
        old = 0.0 if before is None else before["l"]
        assert softmax["l"] == pytest.approx(alpha * old + sum(softmax["p"]), rel=1e-3)
        before = softmax
    assert sum(m["alpha"] is not None and m["alpha"] < 0.99 for m in of_kind(row, "softmax")) >= 3


def test_shared_memory_never_holds_more_than_its_stages(row):
    for moment in row["moments"]:
        assert set(moment["sram"]) <= {"q[0]", "k[0]", "k[1]", "v[0]", "v[1]"}
    for moment in of_kind(row, "products"):
        assert f"V{moment['tile']}" in moment["sram"].values()
    assert of_kind(row, "scores")[3]["sram"]["k[1]"] == "K3"


def test_fa1_walks_columns_and_fa2_rows_and_their_bytes_are_counted():
    found = lessons.orders()
    assert [v[1:3] for v in found["fa1"]["visits"]] == [[q, k] for k in range(4) for q in range(4)]
    assert [v[1:3] for v in found["fa2"]["visits"]] == [[q, k] for q in range(4) for k in range(4)]
    assert {v[0] for v in found["fa1"]["visits"]} == {0}
    assert [v[0] for v in found["fa2"]["visits"]] == [q for q in range(4) for _ in range(4)]
    problem = simgpu.Attention(batch=1, heads_q=1, seq_q=256, head_dim=64)
    for name, order in found.items():
        sizes = {"block_m": 64, "block_n": 64}
        work = count(record(make_schedule(name, sizes), problem))
        assert sum(v[3] for v in order["visits"]) == work.global_read_bytes
        assert sum(v[4] for v in order["visits"]) == work.global_write_bytes


def test_bytes_of_a_point_are_those_of_a_run():
    found = lessons.traffic(LENGTHS, (64,), (128,), GPUS)["points"]["h100/512/64/128"]
    problem = simgpu.Attention(batch=1, heads_q=lessons.HEADS, seq_q=512, head_dim=64)
    counts = simgpu.run("fa2", problem, "h100", params={"block_m": 128}).to_dict()["counts"]
    assert found["fa2"]["asked"] == counts["global_read_bytes"] + counts["global_write_bytes"]
    assert found["fa2"]["hbm"] >= counts["hbm_read_bytes"]
    assert found["standard"]["hbm"] > 2 * found["fa2"]["hbm"]
    assert lessons.sizes(1024)["in_hbm"] == 2 * 2 * 1024**2


def test_a_tile_that_does_not_fit_is_said():
    found = lessons.traffic(LENGTHS, (128,), (1024,), GPUS)["points"]["h100/512/128/1024"]
    assert found["fa2"]["refused"]


def test_only_split_k_exchanges():
    parts = lessons.exchange()["partitions"]
    assert parts["split-q"]["between warps"] == 0 < parts["split-k"]["between warps"]


def test_the_page_is_whole():
    page = check_whole(explain_page(lengths=LENGTHS, gpus=GPUS))
    assert "attends to 128 keys" in page.words
    rows = [page.data[f"{which}-data"]["rows"] for which in ("on", "off")]
    assert all("CTA 0 consumer1" in names for names in rows)


def test_a_path_that_cannot_be_written_is_said_before_anything_is_counted(tmp_path):
    done = CliRunner().invoke(app, ["explain", "--html", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: cannot write {tmp_path}: ")
