"""The GPU that is here: CUDA C compiled at run time, launched, and timed in its own cycles."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from statistics import median
from typing import TYPE_CHECKING, Any

from simgpu.errors import MeasureError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simgpu.hardware.profile import Capability

#: Samples of each benchmark, after one launch that warms up.
REPEATS = 7

#: Shared memory from here on needs consent.
STATIC_SHARED = 48 * 1024


@dataclass(slots=True)
class Gpu:
    """One CUDA device: its properties, and compiled kernels by name and definitions."""

    torch: Any
    name: str
    compute_capability: tuple[int, int]
    sms: int
    l2_bytes: int
    memory_bytes: int
    _kernels: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    _pool: Any = None

    @classmethod
    def here(cls) -> Gpu:
        """Return the current device; a one-line error where torch, its compiler or a GPU lacks."""
        try:
            import torch
        except ImportError:
            raise MissingExtraError("torch", "kernels") from None
        if not torch.cuda.is_available():
            raise MeasureError("torch sees no CUDA GPU: calibrate on the machine that has it")
        if not hasattr(torch.cuda, "_compile_kernel"):
            raise MeasureError(
                f"torch {torch.__version__} cannot compile CUDA C: calibrate needs 2.9 or newer"
            )
        p = torch.cuda.get_device_properties(torch.cuda.current_device())
        sms, l2 = p.multi_processor_count, p.L2_cache_size
        return cls(torch, p.name, (p.major, p.minor), sms, l2, p.total_memory)

    def capabilities(self) -> frozenset[Capability]:
        """Return what kernels may use, by compute capability."""
        found: set[Capability] = {"mma_sync"}
        if self.compute_capability >= (8, 0):
            found |= {"cp_async", "mbarrier"}
        if self.compute_capability >= (9, 0):
            found |= {"tma", "clusters"}
        if self.compute_capability[0] == 9:
            found.add("wgmma")
        return frozenset(found)

    def kernel(self, file: str, name: str, **define: object) -> Any:
        """Compile kernel ``name`` of ``cuda/file`` with macros defined, once."""
        macros = "".join(f"#define {key} {value}\n" for key, value in sorted(define.items()))
        key = (file, name, macros)
        if key not in self._kernels:
            root = files("simgpu.calibrate") / "cuda"
            common = (root / "common.cuh").read_text(encoding="utf-8")
            source = macros + common + (root / file).read_text(encoding="utf-8")
            major, minor = self.compute_capability
            arch = f"{major}{minor}" + ("a" if major >= 9 else "")
            try:
                made = self.torch.cuda._compile_kernel(source, name, compute_capability=arch)
            except (RuntimeError, OSError) as error:
                raise MeasureError(f"{file}: {name}: {str(error)[:500]}") from None
            self._kernels[key] = made
        return self._kernels[key]

    def pool(self, size: int) -> Any:
        """Return at least ``size`` bytes of random device memory, as int32; kept."""
        words = size // 4
        if self._pool is None or self._pool.numel() < words:
            self._pool = None
            make = self.torch.randint
            self._pool = make(0, 1 << 16, (words,), dtype=self.torch.int32, device="cuda")
        return self._pool

    def ints(self, values: int | Sequence[int]) -> Any:
        """Return int32 device memory: so many zeros, or these values."""
        if isinstance(values, int):
            return self.torch.zeros(values, dtype=self.torch.int32, device="cuda")
        return self.torch.tensor(list(values), dtype=self.torch.int32, device="cuda")

    def launch(
        self, kernel: Any, args: Sequence[Any], *, ctas: int, threads: int, shared: int = 0
    ) -> None:
        """Launch on the current stream."""
        if shared >= STATIC_SHARED:
            kernel.set_shared_memory_config(shared)
        kernel(grid=(ctas, 1, 1), block=(threads, 1, 1), args=list(args), shared_mem=shared)

    def cycles(
        self,
        kernel: Any,
        args: Sequence[Any] = (),
        *,
        ctas: int = 1,
        threads: int = 32,
        shared: int = 0,
        repeats: int = REPEATS,
        warm: int = 1,
    ) -> list[float]:
        """Return, launch by launch, the cycles that the slowest CTA reports.

        The kernel's first argument is where CTA i writes its cycles; ``args`` follow.
        """
        out = self.ints(ctas)
        found = []
        for _ in range(repeats + warm):
            self.launch(kernel, [out, *args], ctas=ctas, threads=threads, shared=shared)
            self.torch.cuda.synchronize()
            found.append(float(out.max().item()))
        return found[warm:]

    def microseconds(self, run: Callable[[], object], repeats: int = REPEATS) -> list[float]:
        """Return the device time of each of some runs, after one that warms up."""
        event = self.torch.cuda.Event
        run()
        found = []
        for _ in range(repeats):
            start, end = event(enable_timing=True), event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) * 1e3)
        return found

    def graph(self, run: Callable[[], object], times: int) -> Callable[[], object]:
        """Return a CUDA graph of ``times`` runs, to be replayed."""
        run()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(times):
                run()
        replay: Callable[[], object] = graph.replay
        return replay


def slope(cycles: Mapping[int, Sequence[float]]) -> list[float]:
    """Return cycles a unit of work, from samples at two amounts of work."""
    (few, at_few), (many, at_many) = sorted(cycles.items())
    base = median(at_few)
    return [(c - base) / (many - few) for c in at_many]
