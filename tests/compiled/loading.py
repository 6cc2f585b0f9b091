"""Reads the fixtures: kernels as the compiler left them, without a compiler."""

from __future__ import annotations

import json
from pathlib import Path

from simgpu.compiled.aot import CompiledKernel

FOLDER = Path(__file__).parent / "fixtures"


def fixture_kernel(name: str) -> CompiledKernel:
    text = (FOLDER / f"{name}.sass.txt").read_text()
    facts = json.loads(text.splitlines()[0].removeprefix("# "))
    return CompiledKernel(text=text, **facts)
