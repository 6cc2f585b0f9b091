"""Importing simgpu is quick and brings nothing heavy; its folders are nobody's top-level names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import simgpu

HEAVY = ("torch", "triton", "matplotlib", "pandas", "numpy", "pydantic", "rich", "typer", "simpy")


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_simgpu_is_quick_and_brings_nothing_heavy():
    code = (
        "import sys, time; start = time.perf_counter(); import simgpu; "
        f"print(time.perf_counter() - start, *[m for m in {HEAVY} if m in sys.modules])"
    )
    seconds, *heavy = python(code).split()
    print(f"import simgpu: {float(seconds):.3f} s")
    assert float(seconds) < 1
    assert heavy == []


def test_predicting_brings_no_kernel_or_report_library():
    code = (
        "import sys, simgpu; p = simgpu.Attention(batch=1, heads_q=1, seq_q=128, head_dim=64); "
        "print(simgpu.run('fa2', p, mix='analytic')); "
        "print(*[m for m in ('torch', 'triton', 'matplotlib', 'pandas', 'numpy') "
        "if m in sys.modules], sep='\\n')"
    )
    assert python(code).splitlines()[-1].endswith("(fa2).")


@pytest.mark.parametrize("name", ["cli", "front", "laws", "schedules", "kernels"])
def test_our_folders_are_not_top_level_modules(name):
    code = (
        f"import sys, simgpu.{name}; from simgpu.schedules import schedule_class; "
        "[schedule_class(n) for n in ('fa1', 'fa2', 'standard')]; "
        "print(*[m for m in ('algorithms', 'kernels', 'hw_profiles') if m in sys.modules])"
    )
    assert python(code) == ""


def test_this_test_run_has_them_under_simgpu_only():
    assert not {"algorithms", "kernels", "hw_profiles"} & set(sys.modules)


def test_public_names_are_at_most_15_and_all_there():
    assert len(simgpu.__all__) <= 15
    assert simgpu.__all__ == sorted(simgpu.__all__, key=lambda n: (n.islower(), n))
    assert all(getattr(simgpu, name) is not None for name in simgpu.__all__)
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        _ = simgpu.rnu
