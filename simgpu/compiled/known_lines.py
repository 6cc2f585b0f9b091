"""Files of loops that came compiled with the package: a line for each kernel.

A line is what the kernel was specialised on, tab, its loops.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from simgpu.compiled.loopcode import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simgpu.timing.issued import Issued


def loops_text(source: str, loops: Sequence[Sequence[Issued]]) -> str:
    """Return loops, and what compiled them, as a line keeps them."""
    found = {"source": source, "loops": [to_json(tuple(x)) for x in loops]}
    return json.dumps(found, separators=(",", ":"))


def read_loops(text: str) -> tuple[str, tuple[tuple[Issued, ...], ...]]:
    """Return the source and the loops that `loops_text` wrote."""
    found = json.loads(text)
    return found["source"], tuple(map(from_json, found["loops"]))


@cache
def known_lines(schedule: str) -> dict[str, str]:
    """Return the lines of a schedule's kernels for sm_90 by what they were specialised on."""
    path = files("simgpu") / "compiled" / "known" / f"{schedule}_sm_90.tsv.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return {key: loops for key, _, loops in (line.partition("\t") for line in lines)}


def write_lines(schedule: str, lines: Mapping[str, str]) -> None:
    """Write the file that `known_lines` reads."""
    text = "".join(f"{key}\t{loops}\n" for key, loops in sorted(lines.items()))
    file = Path(__file__).with_name("known") / f"{schedule}_sm_90.tsv.gz"
    file.write_bytes(gzip.compress(text.encode(), mtime=0))
