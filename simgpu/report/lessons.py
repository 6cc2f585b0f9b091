"""What the explaining page teaches with: numbers of our own readings, ready to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.errors import SimgpuError
from simgpu.front import timeline
from simgpu.place import place, prepare
from simgpu.problem import Attention
from simgpu.program.ops import Apply, Copy, Mma
from simgpu.program.program import walk
from simgpu.program.record import record
from simgpu.read.count import count
from simgpu.report.lanes import lanes
from simgpu.report.remedies import compulsory_bytes
from simgpu.schedules import make_schedule
from simgpu.tensor import Tile, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simgpu.program.program import TileProgram

LENGTHS, DIMS, TILES = (512, 1024, 2048, 4096), (64, 128), (64, 128)
GPUS = ("a100", "h100", "b200")
HEADS = 16


def traffic(
    lengths: Sequence[int] = LENGTHS,
    dims: Sequence[int] = DIMS,
    tiles: Sequence[int] = TILES,
    gpus: Sequence[str] = GPUS,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return bytes by schedule on a lattice of lengths, head dims, tiles and GPUs.

    A tile is the block of rows that stays on chip while the other operands stream past: Q rows in
    FA2, keys in FA1. ``asked`` is what CTAs ask for, ``hbm`` what of it L2 does not hold.
    """
    points = {}
    for gpu in gpus:
        for n in lengths:
            for d in dims:
                for tile in tiles:
                    key = f"{gpu}/{n}/{d}/{tile}"
                    points[key] = _bytes(gpu, n, d, tile)
                progress()
    axes = {"gpu": list(gpus), "n": list(lengths), "d": list(dims), "tile": list(tiles)}
    return {"axes": axes, "heads": HEADS, "points": points}


def _bytes(gpu: str, n: int, d: int, tile: int) -> dict[str, Any]:
    problem = Attention(batch=1, heads_q=HEADS, seq_q=n, head_dim=d)
    found: dict[str, Any] = {"least": compulsory_bytes(problem), "scores": 2 * HEADS * n * n}
    settings = {"standard": {}, "fa1": {"block_n": tile}, "fa2": {"block_m": tile}}
    for name, params in settings.items():
        try:
            case = prepare(name, problem, gpu, params, None, None, "analytic")
            launches = list(place(case))
        except SimgpuError as error:
            found[name] = {"refused": str(error)}
            continue
        served = [launch.served for launch in launches]
        found[name] = {
            "asked": sum(s.work.global_read_bytes + s.work.global_write_bytes for s in served),
            "hbm": round(sum(s.hbm_read_bytes + s.hbm_write_bytes for s in served)),
            "launches": len(served),
        }
    return found


def orders(n: int = 256, d: int = 64, tile: int = 64) -> dict[str, Any]:
    """Return in which order FA1 and FA2 meet Q and K/V tiles, and what each meeting moves.

    A visit is [CTA, Q tile, K/V tile, bytes read since the last, bytes written since], of one head.
    """
    problem = Attention(batch=1, heads_q=1, seq_q=n, head_dim=d)
    sizes = {"block_m": tile, "block_n": tile}
    return {
        name: {
            "tiles": n // tile,
            "visits": _visits(name, sizes, problem),
            "least": compulsory_bytes(problem),
        }
        for name in ("fa1", "fa2")
    }


def _visits(name: str, sizes: dict[str, int], problem: Attention) -> list[list[int]]:
    (launch,) = record(make_schedule(name, sizes), problem).launches
    numbers = launch.class_numbers()
    axes = list(launch.grid.work_axes)
    visits: list[list[int]] = []
    for number, at in enumerate(launch.grid.coordinates()):
        where = {axis: at[axis] for axis in axes}
        program = launch.classes[numbers[tuple(where.items())]].program
        visits += _of_cta(number, program, where)
    return visits


def _of_cta(number: int, program: TileProgram, env: dict[str, int]) -> list[list[int]]:
    """Return the visits of one CTA; its last one carries what it writes at its end."""
    visits: list[list[int]] = []
    now = {"Q": -1, "K": -1}
    held: dict[tuple[str, int], int] = {}
    read = written = 0
    for op in walk(program.roles[0].body, env):
        if isinstance(op, Copy) and isinstance(op.src, Tile):
            read += op.src.valid_bytes(env)
            if op.src.tensor.name in now and not isinstance(op.dst, Tile):
                tile = op.src.row.at(env) // op.src.rows
                held[op.dst.buffer.name, op.dst.slot(env)] = tile
        elif isinstance(op, Copy) and isinstance(op.dst, Tile):
            written += op.dst.valid_bytes(env)
        elif isinstance(op, Mma) and not op.accumulate and op.b.transposed:
            now["Q"] = held[op.a.buffer.name, op.a.slot(env)]
            now["K"] = held[op.b.buffer.name, op.b.slot(env)]
            if visits:
                visits[-1][4] = written
                written = 0
            visits.append([number, now["Q"], now["K"], read, 0])
            read = 0
    visits[-1][3] += read
    visits[-1][4] += written
    return visits


def exchange(n: int = 1024, d: int = 64) -> dict[str, Any]:
    """Return FA1's shared-memory bytes by what they are for, with split-K and with split-Q."""
    problem = Attention(batch=1, heads_q=1, seq_q=n, head_dim=d)
    found = {}
    for partition in ("split-k", "split-q"):
        params = {"warp_partition": partition, "block_m": 64}
        work = count(record(make_schedule("fa1", params), problem))
        found[partition] = {
            "between warps": work.smem_exchange_bytes,
            "operands of products": work.smem_operand_bytes,
            "filled by copies": work.smem_fill_bytes,
            "barriers": work.barriers,
        }
    return {"n": n, "d": d, "partitions": found}


def pingpong(gpu: str = "h100", n: int = 1024) -> dict[str, Any]:
    """Return FA3's first CTA of an SM with consumers that take turns, and without.

    At head dim 64, where softmax is half of the work and turns matter most.
    """
    problem = Attention(batch=4, heads_q=32, seq_q=n, head_dim=64)
    return {
        name: lanes(timeline("fa3", problem, gpu, params={"pingpong": on}, waves=1))
        for name, on in (("on", True), ("off", False))
    }


def sizes(n: int = 4096, d: int = 128) -> dict[str, int]:
    """Return what of S is ever there at once: in standard attention's HBM, in an FA2 CTA."""
    problem = Attention(batch=1, heads_q=1, seq_q=n, head_dim=d)
    (launch,) = record(make_schedule("fa2", None), problem).launches
    program = launch.classes[0].program
    scores = {
        op.args[0].buffer
        for role in program.roles
        for op in walk(role.body, dict(launch.classes[0].env))
        if isinstance(op, Apply) and op.fn.exps
    }
    written = {
        op.dst.tensor
        for part in record(make_schedule("standard", None), problem).launches
        for role in part.classes[0].program.roles
        for op in walk(role.body, dict(part.classes[0].env))
        if isinstance(op, Copy) and isinstance(op.dst, Tile) and op.dst.tensor.cols == n
    }
    return {
        "n": n,
        "on_chip": sum(buffer.bytes for buffer in scores),
        "in_hbm": sum(t.rows * t.cols * dtype_bytes(t.dtype) for t in written),
    }
