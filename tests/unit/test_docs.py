"""Every code block of the tutorial and the guides works, and prints what stands below it.

Blocks of sh run in a shell, of python as a program; console is not run. `<!-- file NAME -->`
before a block makes it a file, `<!-- status N -->` says how it ends. The lines of a `text` block
below must be in the output, with numbers replaced by N: predictions move, words do not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from simgpu.hardware.sections import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "docs/tutorial/first-ten-minutes.md",
    "docs/guides/add-a-gpu.md",
    "docs/guides/read-a-report.md",
]
BLOCK = re.compile(r"(?:<!-- (\w+) (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    mark: str
    value: str
    language: str
    text: str


def blocks(page):
    return [Block(*m) for m in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]


def execute(block, folder):
    """Run a block; the entry point is on the PATH as in an activated environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = (
        ["bash", "-ec", block.text]
        if block.language == "sh"
        else [sys.executable, "-c", block.text]
    )
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = int(block.value) if block.mark == "status" else 0
    assert done.returncode == expected, f"{block.text}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def shape(line):
    """A line without its numbers and spaces."""
    return " ".join(re.sub(r"\d[\d,.]*", "N", line).split())


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_work(page, tmp_path):
    output = ""
    for block in blocks(page):
        if block.mark == "file":
            (tmp_path / block.value).write_text(block.text, encoding="utf-8")
        elif block.language in ("sh", "python"):
            output = execute(block, tmp_path)
        elif block.language == "text":
            # cells of a table wrap, so a phrase may be cut by line ends
            flat = shape(output.replace("\n", " "))
            for line in filter(None, map(shape, block.text.splitlines())):
                assert line in flat, f"{line!r} is not in the output:\n{output}"


def test_the_check_that_compares_output_can_fail():
    assert shape(" Elapsed Cycles   cycle  98,765") == shape("Elapsed Cycles cycle 1")
    assert shape("Elapsed Cycles") not in shape("Elapsed Time 3")


@pytest.mark.parametrize("page", [*PAGES, "docs/background/machine.md", "CHANGELOG.md"])
def test_links_inside_the_repository_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_the_background_names_only_numbers_that_profiles_have():
    known = {name for model in SECTIONS.values() for name in model.model_fields}
    units = ("_cycles", "_bytes", "_share", "_slots", "_sms", "_mhz", "_score", "_efficiency")
    text = (ROOT / "docs/background/machine.md").read_text(encoding="utf-8")
    named = {n for n in re.findall(r"`([a-z0-9_]+)`", text) if n.endswith(units)}
    assert len(named) > 8
    assert named <= known
