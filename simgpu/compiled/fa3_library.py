"""Kernels of FlashAttention-3's public package, as nvdisasm reads them out of its library."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.compiled.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Iterator

#: flash::CollectiveMainloopFwdSm90<stages, cluster, (rows, keys, head dim), head dim of V, element,
#: accumulator, sm90, then twelve flags>. A repeated type is named by a reference.
_KERNEL = re.compile(
    r"CollectiveMainloopFwdSm90ILi2EN4cute5tupleIJNS5_1CILi(?P<cluster>\d)EE.*?"
    r"NS6_IJ(?P<tile>NS7_ILi\d+EEE.*?)EEELi(?P<head_dim_v>\d+)ENS_\d+(?P<element>[a-z0-9_]+)_tEf"
    r"NS_4arch4Sm90E(?P<flags>(?:Lb[01]E)+)"
)
_SIZE = re.compile(r"NS7_ILi(\d+)EEE|S[A-Z0-9]_")
_FLAGS = (
    "causal", "local", "softcap", "varlen", "paged", "append", "qv", "p_in_registers", "overlap",
    "pack_gqa", "split", "v_colmajor",
)  # fmt: skip
_PLAIN = ("local", "softcap", "varlen", "paged", "append", "qv", "pack_gqa", "split", "v_colmajor")


class LibraryKernel(NamedTuple):
    """A kernel: its tile and what else it was specialised on, and its instructions."""

    tile: dict[str, Any]
    listing: Listing


def kernels_of(library: Path) -> Iterator[LibraryKernel]:
    """Yield the plain kernels for sm_90: no cluster, no window, no paging, one split.

    A cluster shares loads and changes nothing about a consumer's loop. Needs Triton, which brings
    NVIDIA's tools.
    """
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        _output(knobs.nvidia.cuobjdump.path, "-xelf", "sm_90", str(library.resolve()), at=folder)
        for cubin in sorted(Path(folder).glob("*.cubin")):
            text = _output(knobs.nvidia.nvdisasm.path, "-c", "-hex", str(cubin), at=folder)
            for section in text.split("\n\t.section\t.text.")[1:]:
                name = section.split(",", 1)[0]
                tile = _tile(name)
                if tile is not None:
                    yield LibraryKernel(tile, Listing.from_nvdisasm(section))


def _tile(name: str) -> dict[str, Any] | None:
    found = _KERNEL.search(name)
    if found is None or found["cluster"] != "1":
        return None
    flags = dict(zip(_FLAGS, re.findall(r"[01]", found["flags"]), strict=False))
    if any(flags[x] == "1" for x in _PLAIN) or flags["overlap"] == "0":
        return None
    sizes: list[int] = []
    for size in _SIZE.finditer(found["tile"]):
        # a reference in a tile is to its rows, and to head dim 64's or 128's tile alone
        sizes.append(int(size[1]) if size[1] else sizes[0])
    if len(sizes) != 3 or sizes[2] != int(found["head_dim_v"]):
        return None
    return {
        "block_m": sizes[0],
        "block_n": sizes[1],
        "head_dim": sizes[2],
        "causal": flags["causal"] == "1",
        "p_in": "registers" if flags["p_in_registers"] == "1" else "smem",
        "fp8": found["element"] != "bfloat16",
    }


def _output(tool: str, *args: str, at: str) -> str:
    return subprocess.run([tool, *args], cwd=at, capture_output=True, text=True, check=True).stdout
