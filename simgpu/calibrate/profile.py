"""From results to a profile: which of its numbers were measured, and the file that says so."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import yaml

from simgpu.errors import MeasureError, ProfileError
from simgpu.hardware.load import load_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from simgpu.calibrate.case import Result
    from simgpu.calibrate.gpu import Gpu
    from simgpu.hardware.profile import Profile

#: A set of L2 counts as held while its bandwidth is this share of the best.
KNEE = 0.8
MIB = 1 << 20

MMA_FLOPS = 2 * 16 * 8 * 16  # of an m16n8k16
SCHEDULERS = 4

#: Profile numbers that are one benchmark's value: number → benchmark, and what it is multiplied by.
DIRECT: dict[str, tuple[str, float]] = {
    "rates.mufu_instructions": ("ex2_per_cycle", 1.0),
    "rates.fma_instructions": ("ffma_per_cycle", 1.0),
    "rates.alu_instructions": ("fmnmx_per_cycle", 1.0),
    "rates.issue_slots": ("issue_4_warps_4_chains_per_cycle", 1.0),
    "rates.smem_bytes": ("shared_read_bytes_per_cycle", 1.0),
    "rates.l2_bytes": ("tma_bytes_per_cycle", 1.0),
    "memory.hbm_sustained_gb_per_s": ("hbm_read_gb_per_s", 1.0),
    "memory.l2_hit_latency_cycles": ("l2_latency_cycles", 1.0),
    "memory.hbm_latency_cycles": ("hbm_latency_cycles", 1.0),
    "memory.smem_latency_cycles": ("shared_latency_cycles", 1.0),
    "memory.tma_latency_cycles": ("tma_latency_cycles", 1.0),
    "costs.mma_sync_cycles": ("mma_sync_lone_warp_cycles", 1.0),
    "costs.mma_sync_latency_cycles": ("mma_sync_latency_cycles", 1.0),
    "power.idle_watts": ("idle_watts", 1.0),
}


def knee_bytes(found: Mapping[str, Result]) -> tuple[int, Result] | None:
    """Return the largest set that L2 serves at nearly its best bandwidth, and that result."""
    sets = {
        int(name.split("_")[2]) * MIB: r
        for name, r in found.items()
        if name.startswith("l2_read_") and name.endswith("_mib_bytes_per_cycle")
    }
    if not sets:
        return None
    best = max(r.value for r in sets.values())
    held = 0
    for size in sorted(sets):
        if sets[size].value < KNEE * best:
            break
        held = size
    return (held, sets[held]) if held else None


def numbers(found: Mapping[str, Result], gpu: Gpu, date: str) -> dict[str, dict[str, Any]]:
    """Return the profile numbers that results give, as ``section.name`` → the YAML mapping."""

    def leaf(value: float, r: Result) -> dict[str, Any]:
        source = f"simgpu calibrate on {gpu.name}: {r.name}"
        spread = round(r.spread, 4)
        return dict(value=value, kind="measured", source=source, spread=spread, date=date)

    made: dict[str, dict[str, Any]] = {}
    for path, (name, factor) in DIRECT.items():
        if name in found:
            made[path] = leaf(float(f"{found[name].value * factor:.4g}"), found[name])
    wide = [r for n, r in found.items() if n.startswith("wgmma_") and n.endswith("flops_per_cycle")]
    products = wide or [r for n, r in found.items() if n == "mma_sync_flops_per_cycle"]
    if products:
        best = max(products, key=lambda r: r.value)
        for dtype in ("fp16", "bf16"):
            made[f"rates.tensor_flops_{dtype}"] = leaf(float(f"{best.value:.4g}"), best)
    if rate := found.get("mma_sync_flops_per_cycle"):
        slots = MMA_FLOPS * SCHEDULERS / rate.value
        made["costs.mma_sync_slots"] = leaf(float(f"{slots:.4g}"), rate)
    if knee := knee_bytes(found):
        made["memory.l2_effective_bytes"] = leaf(knee[0], knee[1])
        small = [r for n, r in found.items() if n.startswith("l2_read_") and "_mib_" in n]
        best = max(small, key=lambda r: r.value)
        made["memory.l2_bandwidth_bytes_per_clock"] = leaf(float(f"{best.value:.4g}"), best)
    return made


def document(
    results: list[Result], gpu: Gpu, base: str, name: str, date: str | None = None
) -> dict[str, Any]:
    """Return a profile that extends ``base`` by what was measured; every result is kept beside it.

    Raises ProfileError when the base cannot be loaded or the result is not a profile.
    """
    load_profile(base)
    found = {r.name: r for r in results}
    date = date or datetime.now(UTC).date().isoformat()
    made: dict[str, Any] = {
        "schema": "simgpu.profile/1",
        "name": name,
        "title": f"{gpu.name}, calibrated {date}",
        "extends": base,
    }
    for path, leaf in numbers(found, gpu, date).items():
        section, number = path.split(".")
        made.setdefault(section, {})[number] = leaf
    properties = {"source": f"device property, {gpu.name}", "kind": "measured", "date": date}
    made.setdefault("device", {})["sm_count"] = {"value": gpu.sms, **properties}
    made.setdefault("memory", {})["l2_capacity_bytes"] = {"value": gpu.l2_bytes, **properties}
    made["measurements"] = {
        r.name: {k: v for k, v in dataclasses.asdict(r).items() if k != "name"} for r in results
    }
    for m in made["measurements"].values():
        m["value"], m["spread"] = float(f"{m['value']:.5g}"), round(m["spread"], 4)
    return made


def write(made: dict[str, Any], output: Path) -> Profile:
    """Write a profile, read it back and return it; MeasureError where it cannot be written."""
    text = yaml.safe_dump(made, sort_keys=False, width=1000, allow_unicode=True)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror or error
        raise MeasureError(f"{output}: cannot be written: {why}; check the path") from None
    try:
        return load_profile(output)
    except ProfileError as error:
        raise ProfileError(f"what was measured makes no profile: {error}") from None


def run_all(
    benchmarks: list[Any], gpu: Gpu, progress: Callable[[str, str], None]
) -> tuple[list[Result], dict[str, str]]:
    """Run benchmarks one by one; return the results, and why the others have none.

    ``progress`` is told each name and what was found.
    """
    from simgpu.calibrate.case import summary

    results: list[Result] = []
    failed: dict[str, str] = {}
    able = gpu.capabilities()
    for b in benchmarks:
        lacking = [need for need in b.needs if need not in able]
        try:
            samples = [] if lacking else b.run(gpu)
            why = f"needs {', '.join(lacking)}" if lacking else "the tool does not answer"
        except (MeasureError, RuntimeError, ArithmeticError) as error:
            samples, why = [], str(error).splitlines()[0][:200]
        if not samples:
            failed[b.name] = why
            progress(b.name, f"left out: {why}")
            continue
        results.append(summary(b, samples))
        progress(b.name, f"{results[-1].value:.5g} {b.unit}")
    return results, failed
