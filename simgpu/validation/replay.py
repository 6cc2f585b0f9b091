"""Committed measurements as inputs of a prediction: schedule, problem, resources, and counters."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.errors import MeasureError, UnknownNameError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention
from simgpu.validation.ours import as_measured
from simgpu.validation.public import PUBLIC
from simgpu.validation.records import Measurement, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.validation.records import Kernel, Launch

#: Registers a thread beyond which a run counts as one that spills.
SPILLS = 10

#: Counters by the names of our records, for one launch.
COUNTERS = {
    "cycles": "sm__cycles_elapsed.max",
    "hbm_read_bytes": "dram__bytes_read.sum",
    "hbm_write_bytes": "dram__bytes_write.sum",
    "l2_read_bytes": "lts__t_sectors_op_read.sum",
    "l2_write_bytes": "lts__t_sectors_op_write.sum",
    "smem_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "mufu": "smsp__inst_executed_pipe_xu.sum",
    "fma": "smsp__inst_executed_pipe_fma.sum",
    "alu": "smsp__inst_executed_pipe_alu.sum",
    "lsu": "smsp__inst_executed_pipe_lsu.sum",
    "tensor": "sm__inst_executed_pipe_tensor.sum",
    "instructions": "smsp__inst_executed.sum",
    "ctas_per_sm": "occupancy",
    "registers": "launch__registers_per_thread",
    "seconds": "gpu__time_duration.sum",
}
SECTOR_BYTES = 32

#: Kernels of ours.
OURS = ("fa2", "fa1", "fa3", "standard")
#: Committed sets of a GPU, beside the first sweep over tiles.
SETS = (
    "runs",
    "fa3_runs",
    "unseen_runs",
    "fa3_persistent_runs",
    "unseen_second_runs",
    "fa3_lengths_runs",
    "unseen_third_runs",
    "fa2_lengths_runs",
    "unseen_fourth_runs",
)

#: Of the warm timed loop, beside the counters: its time a run, its cycles, and the SMs' own clock.
LOOP = ("time_us", "loop_cycles", "clock_mhz")


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured run of a kernel that one of our schedules describes.

    ``counters`` are summed over launches, by the keys of ``COUNTERS`` and ``LOOP``; ``resources``
    are what the compiler found of each launch, empty where it was not recorded; ``clocks_mhz`` is
    the SM clock of each launch while its counters were taken. ``kernel`` names one that is not
    ours.
    """

    set: str
    gpu: str
    schedule: str
    params: dict[str, Any]
    problem: Attention
    resources: tuple[dict[str, int], ...] = field(hash=False)
    counters: dict[str, float] = field(hash=False)
    kernel: str | None = None
    clocks_mhz: tuple[float, ...] = field(hash=False, default=())

    @property
    def spills(self) -> int:
        """The most registers a thread that a launch spills."""
        return max((found.get("spills", 0) for found in self.resources), default=0)

    @property
    def counter_clock_mhz(self) -> float | None:
        """The SM clock while the counters were taken: HBM's share of a cycle depends on it."""
        seconds = self.counters.get("seconds")
        return self.counters["cycles"] / seconds / 1e6 if seconds else None

    @property
    def label(self) -> str:
        """Problem and parameters, short."""
        p, k = self.problem, self.params
        heads = f"{p.heads_q}" if p.group == 1 else f"{p.heads_q}/{p.heads_kv}"
        seq = f"{p.seq_q}" if p.seq_q == p.seq_kv else f"{p.seq_q}:{p.seq_kv}"
        tile = f"{k.get('block_m')}x{k.get('block_n')} w{k.get('warps')} s{k.get('stages')}"
        shape = f"{p.batch}x{heads}x{seq} d{p.head_dim} {p.mask}"
        return f"{self.kernel or self.schedule} {shape} {tile if k else ''}".rstrip()


def committed(gpu: str = "h200_sxm") -> list[Measured]:
    """Return all committed runs of a GPU that a schedule of ours describes, with counters.

    ``gpu`` is a profile's name or alias; MeasureError where that GPU was not measured.
    """
    gpu = load_profile(gpu).name
    sets = Path(str(files("simgpu") / "validation" / "measured"))
    if not (sets / gpu).is_dir():
        known = ", ".join(sorted(folder.name for folder in sets.iterdir()))
        raise MeasureError(f"no committed measurements of {gpu}, only of {known}: give --measured")
    found = list(_tile_sweep(sets / gpu / "triton_fa2_counters.json", gpu))
    for name in SETS:
        found += from_records(sets / gpu / f"{name}.jsonl", gpu)
    return [*found, *_fa2_cuda(sets / gpu / "fa2_cuda_counters.json", gpu)]


def schedules_of(measured: list[Measured], name: str) -> list[Measured]:
    """Return the runs of one schedule; UnknownNameError when there are none."""
    found = [m for m in measured if m.schedule == name]
    if not found:
        raise UnknownNameError("measured schedule", name, {m.schedule for m in measured})
    return found


def from_records(path: Path, gpu: str) -> Iterator[Measured]:
    """Yield the runs of a JSON-lines file of `simgpu measure` that can be predicted.

    MeasureError where there is none, such as a file that was measured without counters.
    """
    some = False
    for record in read(path):
        name, public = record.kernel.name, PUBLIC.get(record.kernel.name)
        known = public.known(record.problem.head_dim) if public else name in OURS
        if record.status == "ok" and known:
            counters = _summed(record)
            if counters:
                some = True
                yield _from_record(record, {**counters, **_loop(record)}, gpu, path.stem)
    if not some:
        kernels = "no run with counters of fa1, fa2, fa3 or standard, or of a public kernel of them"
        raise MeasureError(f"{path}: {kernels}: run `simgpu measure` with --counters")


def _from_record(
    record: Measurement, counters: dict[str, float], gpu: str, origin: str
) -> Measured:
    p, k = record.problem, record.kernel
    problem = Attention(
        batch=p.batch,
        heads_q=p.heads_q,
        heads_kv=p.heads_kv,
        seq_q=p.seq_q,
        seq_kv=p.seq_kv,
        head_dim=p.head_dim,
        dtype=p.dtype,
        causal=p.mask == "causal",
    )
    if k.name in PUBLIC:
        return _public(k.name, problem, counters, gpu, origin)
    return Measured(
        origin,
        gpu,
        k.name,
        as_measured(k.name, k.params),
        problem,
        tuple(_found(x) for x in (record.launches or (k,))),
        counters,
        clocks_mhz=tuple(_clock_mhz(x.counters or {}) for x in record.launches),
    )


def _public(
    name: str, problem: Attention, counters: dict[str, float], gpu: str, origin: str
) -> Measured:
    kernel = PUBLIC[name]
    known = kernel.resources.get(problem.head_dim)
    return Measured(
        origin,
        gpu,
        kernel.schedule,
        kernel.of(problem.head_dim),
        problem,
        (known,) if known else (),
        counters,
        kernel.title,
    )


def _clock_mhz(raw: dict[str, float]) -> float:
    return raw[COUNTERS["cycles"]] / raw[COUNTERS["seconds"]] / 1e6


def _found(of: Kernel | Launch) -> dict[str, int]:
    """Return what the compiler found of a launch, as ``simgpu.run`` takes it."""
    found = {"registers": of.registers, "shared_bytes": of.shared_bytes, "spills": of.spills}
    return {name: value for name, value in found.items() if value is not None}


def _loop(record: Measurement) -> dict[str, float]:
    time, clocks = record.time, record.sm_clocks
    if time is None or clocks is None or time.cycles is None:
        return {}
    return dict(zip(LOOP, (time.median_us, time.cycles, clocks.high), strict=True))


def _summed(record: Measurement) -> dict[str, float]:
    parts = [record.counters] if record.counters else [x.counters for x in record.launches]
    total: dict[str, float] = {}
    for part in parts:
        for name, value in (part or {}).items():
            total[name] = total.get(name, 0.0) + value
    if not total:
        return {}
    if len(parts) > 1:
        for name in [n for n in total if n.startswith("launch__")]:
            del total[name]
    return _named(total)


def _named(raw: dict[str, float]) -> dict[str, float]:
    found = {key: raw[name] for key, name in COUNTERS.items() if name in raw}
    for key in ("l2_read_bytes", "l2_write_bytes"):
        if key in found:
            found[key] *= SECTOR_BYTES
    limits = [v for n, v in raw.items() if n.startswith("launch__occupancy_limit")]
    if limits:
        found["ctas_per_sm"] = min(limits)
    return found


def _runs(path: Path) -> Iterator[tuple[dict[str, Any], Attention]]:
    """Yield the runs of a file of counters alone, and their problems."""
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    except (OSError, ValueError, KeyError) as error:
        raise MeasureError(f"{path}: cannot be read: {error}") from error
    for run in runs:
        p = run["problem"]
        problem = Attention(
            batch=p["batch"],
            heads_q=p["heads"],
            seq_q=p["seqlen"],
            head_dim=p["head_dim"],
            dtype=p["dtype"],
            causal=p["causal"],
        )
        yield run, problem


def _fa2_cuda(path: Path, gpu: str) -> Iterator[Measured]:
    """Yield the runs of PyTorch's FlashAttention-2 by whose counters its cost was found."""
    for run, problem in _runs(path):
        yield _public("peer_fa2", problem, _named(run["counters"]), gpu, "FA2 CUDA")


def _tile_sweep(path: Path, gpu: str) -> Iterator[Measured]:
    """Yield the runs of the first sweep over tiles, which has its own layout."""
    for run, problem in _runs(path):
        k = run["kernel"]
        params = {
            "block_m": k["block_m"],
            "block_n": k["block_n"],
            "warps": k["num_warps"],
            "stages": k["num_stages"],
        }
        yield Measured(
            "tile sweep",
            gpu,
            "fa2",
            params,
            problem,
            (
                {
                    "registers": k["registers"],
                    "shared_bytes": k["shared_bytes"],
                    "spills": k["spilled_registers"],
                },
            ),
            _named(run["counters"]),
        )
