"""Grids of measurements: files and flags."""

from __future__ import annotations

import pytest

from simgpu.errors import MeasureError, UnknownNameError
from simgpu.validation.measure_grid import flags_grid, load_grid, parse_params

SHAPE = {"batch": 1, "heads": 2, "seqlen": 128, "head_dim": 64}

GRID = """
schema: simgpu.grid/1
groups:
  tiles:
    kernels: [fa2]
    problems:
      - {batch: 1, heads: 8, heads_kv: 2, seqlen: 256, head_dim: 64, mask: [none, causal]}
    params: {block_m: [64, 128], stages: [1, 2, 3]}
    counters: 1
  best:
    kernels: [fa2, peer_cudnn]
    problems: [{batch: 1, heads: 8, heads_kv: 2, seqlen: 256, head_dim: 64}]
    params: {}
    again: true
"""


def test_grid_file(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    found = load_grid(path)
    assert len(found) == 2 * 6 + 2
    assert len({p.key for p in found}) == len(found)
    assert [p.problem.mask for p in found] == ["none"] * 8 + ["causal"] * 6
    assert str(found[0]) == "fa2 1x8/2x256x64 fp16 none block_m=64 stages=1"


def test_a_point_in_two_groups_keeps_the_most(tmp_path):
    text = GRID.replace("[fa2, peer_cudnn]", "[fa2]").replace(
        "params: {}", "params: {block_m: [64], stages: [2]}"
    )
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    both = [p for p in load_grid(path) if p.again]
    assert [(p.counters, p.params) for p in both] == [(1, {"block_m": 64, "stages": 2})]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("seqlen: 256", "seqlen: long", "groups.tiles.problems.0.seqlen: Input should be a valid"),
        ("counters: 1", "counter: 1", "groups.tiles.counter: Extra inputs are not permitted"),
        ("groups:", "groups: [", "not YAML"),
    ],
)
def test_a_bad_grid_names_the_field(tmp_path, old, new, text):
    path = tmp_path / "grid.yaml"
    path.write_text(GRID.replace(old, new, 1))
    with pytest.raises(MeasureError, match=text):
        load_grid(path)


def test_an_unknown_kernel_in_a_grid():
    with pytest.raises(UnknownNameError, match="unknown kernel 'fa22'; did you mean 'fa2'"):
        flags_grid(["fa22"], shape=SHAPE, params={})


def test_parameters_from_flags():
    assert parse_params(["block_m=64,128", "loads=tma"]) == {"block_m": [64, 128], "loads": ["tma"]}
    with pytest.raises(MeasureError, match="parameter 'block_m': write name=value"):
        parse_params(["block_m"])
