"""The rows of a report's tables: one value for each launch, and for all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.report.words import COMPUTE, LIMITS, MEMORY, STALLS, TAKEN, amount, percent, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    #: One record of ``Run.to_dict()``: a launch, or the top level.
    Record = dict[str, Any]


class Row(NamedTuple):
    """A metric: its name, its unit, and its text for a record ("" where it has none)."""

    name: str
    unit: str
    text: Callable[[Record], str]


def speed_of_light(top: Record, shares: bool) -> list[Row]:
    """Time, throughputs, and the greatest bounds, with their ``shares`` of the prediction."""
    bounds: dict[str, float] = top["bounds"]["cycles"]
    greatest = sorted(bounds, key=lambda name: -bounds[name])[:5]
    if "critical_path" not in greatest:
        greatest.append("critical_path")
    return [
        Row("Elapsed Cycles", "cycle", lambda r: whole(r["predicted"]["cycles"])),
        Row("Duration", "us", lambda r: f"{r['predicted']['time_us']:,.1f}"),
        Row("SM Frequency", "MHz", lambda r: f"{r['predicted']['clock_mhz']:,.0f}"),
        Row("Useful Throughput", "TFLOP/s", _tflops),
        Row("Compute (SM) Throughput", "%", lambda r: _most(r, COMPUTE)),
        Row("Memory Throughput", "%", lambda r: _most(r, MEMORY)),
        *(Row(f"Bound: {name}", "cycle", _bound(name, shares)) for name in greatest),
    ]


def compute() -> list[Row]:
    """Use of the pipes, and the instructions behind it."""
    pipes = {"tensor": "Tensor", "mufu": "MUFU (XU)", "fma": "FMA", "alu": "ALU"}
    counted = {**pipes, "lsu": "LSU", "total": "All"}
    return [
        *(Row(f"{name} Pipe Utilization", "%", _used(key)) for key, name in pipes.items()),
        Row("LSU Port Utilization", "%", _used("l1")),
        Row("Issue Slots Busy", "%", _used("issue")),
        *(Row(f"{n} Instructions", "inst", _instructions(k)) for k, n in counted.items()),
        Row("Executed Tensor FLOP", "TFLOP", lambda r: f"{r['counts']['flops_tensor'] / 1e12:.3f}"),
        Row("Exponentials", "", lambda r: whole(r["counts"]["exps"])),
    ]


def memory(top: Record) -> list[Row]:
    """Bytes at each level, shared memory's wavefronts, tensor memory's port where it is used."""
    sizes = {
        "HBM Read": "hbm_read",
        "HBM Written": "hbm_write",
        "L2 Read": "l2_read",
        "L2 Written": "l2_write",
        "Read by CTAs": "global_read",
        "Written by CTAs": "global_write",
        "Shared: Filled by Copies": "smem_fill",
        "Shared: Read as MMA Operands": "smem_operand",
        "Shared: Exchanged by Warps": "smem_exchange",
        "Local: Spilled and Loaded": "local",
    }
    return [
        Row("HBM Throughput", "%", _used("hbm")),
        Row("L2 Throughput", "%", _used("l2")),
        Row("Shared Memory Throughput", "%", _used("smem")),
        *([Row("Tensor Memory Port Busy", "%", _used("tmem"))] if _uses_tmem(top) else []),
        *(Row(name, "", _bytes(f"{key}_bytes")) for name, key in sizes.items()),
        Row("Shared Wavefronts", "", lambda r: whole(r["counts"]["smem_wavefronts"])),
    ]


def occupancy(top: Record) -> list[Row]:
    """CTAs an SM by each limit, and warps in theory and on average."""
    limit = "Block Limit "
    known = {k: name for k, name in LIMITS.items() if k != "tensor_memory" or _uses_tmem(top)}
    return [
        *(Row(limit + name.title(), "block", _limit(key)) for key, name in known.items()),
        Row("Shared Limit at Carve-Out", "block", _occupied("shared_at_carveout")),
        Row("Blocks Per SM", "block", _occupied("ctas_per_sm")),
        Row("Theoretical Active Warps", "warp/SM", _occupied("warps_per_sm")),
        Row("Achieved Active Warps", "warp/SM", _occupied("achieved_warps_per_sm", digits=2)),
    ]


def warp_state() -> list[Row]:
    """Shares of the roles' time: work, and each reason for a stall."""

    def work(r: Record) -> str:
        return _bar(1.0 - sum(r["stalls"].values()))

    def stall(name: str) -> Callable[[Record], str]:
        return lambda r: _bar(r["stalls"][name])

    return [Row("working", "%", work), *(Row(name, "%", stall(name)) for name in STALLS)]


def launch_statistics(sms: int | None) -> list[Row]:
    """What was launched."""
    return [
        Row(
            "Grid, Fastest Axis First",
            "",
            lambda r: " × ".join(map(str, r.get("grid", {}).values())),
        ),
        Row("Grid Size", "block", lambda r: whole(r["ctas"]) if "ctas" in r else ""),
        Row("Tiles", "tile", lambda r: whole(tiles(r)) if "grid" in r else ""),
        Row("Tiles Taken", "", _taken),
        Row("Block Size", "warp", lambda r: str(r.get("warps", ""))),
        Row("Registers Per Thread", "register", _registers),
        Row("Spilled Per Thread", "register", lambda r: str(r.get("spills", ""))),
        Row("Shared Memory Per Block", "byte", _shared),
        Row("Waves Per SM", "", lambda r: f"{waves(r, sms):.2f}" if sms and "grid" in r else ""),
    ]


def tiles(record: Record) -> int:
    """Return the tiles of a launch: as many CTAs, unless they are persistent."""
    total = 1
    for size in record["grid"].values():
        total *= size
    return total


def waves(record: Record, sms: int) -> float:
    """Return how often a launch's tiles fill all slots of the device."""
    return tiles(record) / (int(record["occupancy"]["ctas_per_sm"]) * sms)


def _tflops(r: Record) -> str:
    return f"{r['predicted']['tflops']:,.1f}" if "tflops" in r["predicted"] else ""


def _uses_tmem(r: Record) -> bool:
    return bool(r["utilization"]["tmem"] > 0)


def _most(r: Record, units: tuple[str, ...]) -> str:
    return percent(max(r["utilization"][u] for u in units))


def _bound(name: str, shares: bool) -> Callable[[Record], str]:
    def text(r: Record) -> str:
        cycles = r["bounds"]["cycles"][name]
        share = f" ({100 * cycles / r['predicted']['cycles']:.0f} %)" if shares else ""
        return f"{whole(cycles)}{share}"

    return text


def _instructions(key: str) -> Callable[[Record], str]:
    return lambda r: whole(r["counts"]["instructions"][key])


def _used(unit: str) -> Callable[[Record], str]:
    return lambda r: percent(r["utilization"][unit])


def _bytes(name: str) -> Callable[[Record], str]:
    return lambda r: amount(r["counts"][name])


def _limit(name: str) -> Callable[[Record], str]:
    return lambda r: whole(limits[name]) if name in (limits := r["occupancy"]["limits"]) else ""


def _occupied(name: str, digits: int = 0) -> Callable[[Record], str]:
    return lambda r: f"{r['occupancy'][name]:.{digits}f}"


def _bar(share: float) -> str:
    return f"{'▪' * round(share * 10)} {percent(share):>5}".strip()


def _taken(r: Record) -> str:
    return TAKEN[r["persistent"]] if "persistent" in r else ""


def _registers(r: Record) -> str:
    if "registers" not in r:
        return ""
    return f"{r['registers']} estimated" if r["registers_estimated"] else str(r["registers"])


def _shared(r: Record) -> str:
    return whole(r["shared_bytes"]) if "shared_bytes" in r else ""
