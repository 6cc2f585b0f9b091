"""Predictions against what an H200 measured, on a sample of the committed runs of all problems.

The whole table is printed by `simgpu validate`; here is what must not get worse.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from simgpu.validation.compare import compare, tile_choice
from simgpu.validation.replay import SPILLS, committed

EVERY = 16


def ours():
    """Return the runs of our own kernels."""
    return [m for m in committed() if m.kernel is None]


@cache
def sample():
    """Return each 16th run of FA2 that does not spill, of all problems and tiles, compared."""
    runs = [m for m in ours() if m.schedule == "fa2" and m.spills <= SPILLS]
    compared = compare(runs[::EVERY])
    assert len(compared) > 25
    assert all(c.refused is None for c in compared)
    return compared


@pytest.mark.parametrize(
    ("metric", "mean", "worst"),
    [
        ("cycles", 0.055, 0.20),
        ("hbm_read_bytes", 0.02, 0.15),
        ("smem_wavefronts", 0.03, 0.15),
        ("mufu", 0.001, 0.001),
        ("tensor", 0.001, 0.001),
        ("fma", 0.005, 0.06),
        ("instructions", 0.005, 0.10),
        ("ctas_per_sm", 0.0, 0.0),
        ("clock_mhz", 0.02, 0.10),
    ],
)
def test_errors_stay_where_they_are(metric, mean, worst):
    known = [(e, c.measured.label) for c in sample() if (e := c.error(metric)) is not None]
    assert len(known) > 20
    errors = [abs(e) for e, _ in known]
    table = "\n".join(f"{e:+.3f} {label}" for e, label in known)
    assert fmean(errors) <= mean, table
    assert max(errors) <= worst, table


@pytest.mark.parametrize(
    ("schedule", "spills", "every", "mean", "worst"),
    [
        ("fa2", True, 8, 0.12, 0.30),
        ("fa3", False, 6, 0.05, 0.12),
        ("standard", False, 4, 0.04, 0.11),
    ],
)
def test_other_families_stay_where_they_are(schedule, spills, every, mean, worst):
    runs = [m for m in ours() if m.schedule == schedule and (m.spills > SPILLS) == spills]
    compared = compare(runs[::every])
    known = [(e, c.measured.label) for c in compared if (e := c.error("cycles")) is not None]
    assert len(known) >= 5
    table = "\n".join(f"{e:+.3f} {label}" for e, label in known)
    assert fmean(abs(e) for e, _ in known) <= mean, table
    assert max(abs(e) for e, _ in known) <= worst, table


def test_tiles_of_one_problem_are_ranked_as_measured():
    runs = [m for m in ours() if m.schedule == "fa2" and m.set == "tile sweep"]
    chosen = [m for m in runs if m.problem.head_dim == 128 and not m.problem.causal]
    (choice,) = tile_choice(compare(chosen[::2]))
    assert choice.tiles >= 15
    assert choice.spearman >= 0.9
    assert choice.regret <= 0.05


def test_the_package_of_fa3_stays_where_it_is():
    runs = [m for m in committed() if m.kernel == "FA3 (package)"]
    known = [(c.error("cycles"), c.measured.label) for c in compare(runs[::3])]
    table = "\n".join(f"{e:+.3f} {label}" for e, label in known)
    assert len(known) >= 10
    assert fmean(abs(e) for e, _ in known) <= 0.06, table
    assert max(abs(e) for e, _ in known) <= 0.20, table


def test_the_cuda_kernel_of_fa2_stays_where_it_is():
    """PyTorch's FlashAttention-2, by mma.sync: nothing is fitted to it."""
    sets = {"runs", "FA2 CUDA"}
    runs = [m for m in committed() if m.kernel == "FA2 (CUDA, PyTorch)" and m.set in sets]
    assert {m.set for m in runs} == sets
    compared = compare(runs[::5])
    table = "\n".join(f"{c.error('cycles'):+.3f} {c.measured.label}" for c in compared)
    errors = [abs(c.error("cycles")) for c in compared]
    assert len(errors) >= 10
    assert fmean(errors) <= 0.05, table
    assert max(errors) <= 0.15, table
    for metric, worst in (("tensor", 0.001), ("mufu", 0.01), ("smem_wavefronts", 0.02)):
        assert max(abs(c.error(metric)) for c in compared) <= worst
    assert all(c.error("ctas_per_sm") == 0 for c in compared)
