"""Kernel tests run in Triton's interpreter, in a process of their own.

The variable must stand before Triton is imported, and a process that compiles must not have it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
READY = all(importlib.util.find_spec(name) for name in ("torch", "triton"))

if READY and "triton" not in sys.modules and os.environ.get("SIMGPU_TEST_GPU") != "1":
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot run here, each with its reason."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    for item in items:
        if HERE not in item.path.parents:
            continue
        if not READY:
            item.add_marker(pytest.mark.skip(reason="torch and triton are not installed"))
        elif item.get_closest_marker("gpu"):
            if interpreted:
                reason = "Triton interprets in this process: set SIMGPU_TEST_GPU=1 to use the GPU"
                item.add_marker(pytest.mark.skip(reason=reason))
            elif not _cuda():
                item.add_marker(pytest.mark.skip(reason="torch sees no CUDA GPU"))
        elif item.get_closest_marker("kernels") and not interpreted:
            reason = "Triton compiles in this process; these tests need its interpreter"
            item.add_marker(pytest.mark.skip(reason=reason))


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()
