"""What the front door refuses, and in which words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from simgpu.errors import ProblemError, ScheduleError, UnknownNameError, UnsupportedError
from simgpu.kernels import attention


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"impl": "fa4"}, UnknownNameError, "unknown kernel 'fa4'; did you mean"),
        ({"block": 64}, ScheduleError, "takes no parameter 'block'; did you mean 'block_"),
        ({"block_m": 48}, ScheduleError, "block_m=48: needs a power of two, 16 or more"),
        ({"impl": "fa3", "block_m": 64}, ScheduleError, "block_m=64: this kernel has two"),
        ({"impl": "fa3", "order": "last"}, ScheduleError, "order='last': 'longest_first' or"),
        (
            {"impl": "fa3", "persistent": True, "stages": 16},
            ScheduleError,
            "block_n=128 and stages=16 leave no room for O beside Q",
        ),
        ({"impl": "fa3"}, ProblemError, "dtype torch.float32: fa3 takes float16 and bfloat16"),
        ({"loads": "dma"}, ScheduleError, "loads='dma': 'cp_async' or 'tma'"),
        ({"scale": -1.0}, ProblemError, "scale -1.0: the online softmax needs a positive one"),
        ({"backward": {"dq": 1}}, ScheduleError, "kernel 'fa2_backward' takes no parameter 'dq'"),
    ],
)
def test_bad_parameters(change, error, text):
    torch = pytest.importorskip("torch")
    q = torch.randn(1, 2, 32, 64)
    with pytest.raises(error, match=text):
        attention(q, q, q, **change)


@pytest.mark.kernels
def test_fa3_runs_on_hopper_alone():
    torch = pytest.importorskip("torch")
    q = torch.randn(1, 2, 32, 64, dtype=torch.float16)
    with pytest.raises(UnsupportedError, match="fa3 is written for Hopper"):
        attention(q, q, q, impl="fa3")


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("q", "k", "text"),
    [
        ((1, 3, 8, 64), (1, 2, 8, 64), "3 query heads do not divide among 2 K/V heads"),
        ((1, 2, 8, 64), (2, 2, 8, 64), "differ in batch or head_dim"),
        ((1, 2, 8, 60), (1, 2, 8, 60), "head_dim 60: needs a multiple of 8"),
        ((2, 8, 64), (2, 8, 64), "must be \\(batch, heads, length, head_dim\\)"),
    ],
)
def test_bad_shapes(q, k, text):
    torch = pytest.importorskip("torch")
    with pytest.raises(ProblemError, match=text):
        attention(torch.zeros(q), torch.zeros(k), torch.zeros(k))


@pytest.mark.kernels
def test_gradient_of_a_bad_dq_by():
    torch = pytest.importorskip("torch")
    q = torch.randn(1, 1, 32, 64, requires_grad=True)
    out = attention(q, q, q, block_m=32, block_n=32, backward={"dq_by": "magic"})
    with pytest.raises(ScheduleError, match="dq_by='magic': 'rows' or 'atomics'"):
        out.sum().backward()


@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_without_torch_or_triton_only_use_fails(missing):
    # A process of its own: the module that is hidden must not have been imported before.
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import simgpu.kernels as kernels\n"
        "from simgpu.errors import MissingExtraError\n"
        "try:\n    kernels.attention(None, None, None)\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith('is not installed: pip install "simgpu[kernels]"')


def test_importing_the_kernels_imports_neither_torch_nor_triton():
    code = "import simgpu.kernels, sys; print('torch' in sys.modules, 'triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
