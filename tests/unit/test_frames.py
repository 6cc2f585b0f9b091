"""Runs and timelines as frames and in notebooks."""

from __future__ import annotations

import sys
from html.parser import HTMLParser

import pytest

import simgpu
from simgpu.errors import MissingExtraError

PROBLEM = simgpu.Attention(batch=1, heads_q=2, seq_q=256, head_dim=64)


def test_a_run_is_a_row_for_each_launch():
    run = simgpu.run("standard", PROBLEM, params={"block_m": 64})
    table = run.to_pandas()
    assert list(table["name"]) == [launch.name for launch in run.launches]
    assert table["predicted.cycles"].sum() == pytest.approx(run.cycles)
    assert set(table["schedule.params.block_m"]) == {64}
    assert set(table["problem.seq_q"]) == {256}
    for reason in run.launches[0].stalls:
        expected = [launch.stalls[reason] for launch in run.launches]
        assert list(table[f"stalls.{reason}"]) == expected
    counts = run.to_dict()["counts"]
    assert table["counts.hbm_read_bytes"].sum() == counts["hbm_read_bytes"]


class Checked(HTMLParser):
    """The cells of a table; fails when tags do not nest."""

    def __init__(self):
        super().__init__()
        self.open, self.rows, self.tags = [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_a_notebook_shows_a_table_without_scripts():
    run = simgpu.run("fa2", PROBLEM)
    page = Checked()
    page.feed(run._repr_html_())
    assert page.open == []
    assert "script" not in page.tags
    cells = {row[0]: row[-1] for row in page.rows}
    assert cells["Elapsed Cycles"] == f"{run.cycles:,.0f}"


def test_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r'pandas .*: pip install "simgpu\[report\]"'):
        simgpu.run("fa2", PROBLEM).to_pandas()
