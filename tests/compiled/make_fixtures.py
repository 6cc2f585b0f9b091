"""Writes the fixtures of tests/unit/test_sass.py; run it when the listing's text form changes.

A fixture is what the reader needs of a cubin, as text: facts in its first line, then one
instruction a line, operands only where the reader looks at them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from simgpu.compiled.aot import compile_job
from simgpu.compiled.job import file_job
from simgpu.compiled.listing import Listing

HERE = Path(__file__).parent
FOLDER = HERE / "fixtures"
POINTERS = "Q=*fp16 K=*fp16 V=*fp16 OUT=*fp16 L=*fp32 sm_scale=fp32 N=4096 H=32 D=64"
ROLES = (
    "Q=desc:fp16[128,64] K=desc:fp16[64,64] V=desc:fp16[64,64] OUT=desc:fp16[128,64] sm_scale=fp32"
)
CASES = {
    "sm90_two_loops": ("forward", 90, f"{POINTERS} BM=64 BN=32 CAUSAL=True num_warps=4"),
    "sm90_unrolled": ("forward", 90, f"{POINTERS} BM=64 BN=64 CAUSAL=True num_warps=4"),
    "sm90_split_d": ("forward", 90, f"{POINTERS} BM=64 BN=32 CAUSAL=False num_warps=8"),
    "sm80_one_loop": ("forward", 80, f"{POINTERS} BM=64 BN=32 CAUSAL=False num_warps=4"),
    "sm100_roles": (
        "with_roles",
        100,
        f"{ROLES} N=4096 D=64 BM=128 BN=64 WS=True num_warps=4",
    ),
}


def trimmed(listing):
    kept = []
    for x in listing.instructions:
        first = x.operands.split(",")[0]
        whole = x.base in ("BRA", "S2R", "UMOV") or x.base.startswith("UTC")
        kept.append(x._replace(operands=x.operands if whole else first * first.startswith("UR")))
    return Listing(tuple(kept))


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, (function, arch, settings) in CASES.items():
        settings = [*settings.split(), "num_stages=2"]
        (kernel,) = compile_job(file_job(f"{HERE / 'kernel_file.py'}:{function}", settings, arch))
        facts = {k: v for k, v in asdict(kernel).items() if k != "text"}
        text = f"# {json.dumps(facts)}\n{trimmed(kernel.listing).to_text()}"
        (FOLDER / f"{name}.sass.txt").write_text(text)


if __name__ == "__main__":
    main()
