"""Recording a CTA: what a schedule's ``build`` talks to.

It declares storage, barriers and roles, and owns ring slots, barrier phases and credits; what a
role does is recorded by its `RoleBuilder`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from simgpu.errors import ScheduleError
from simgpu.program.axis import Axis
from simgpu.program.program import Partition, Role, TileProgram
from simgpu.program.role import RoleBuilder
from simgpu.program.tile import Barrier, Buffer, Ring, View
from simgpu.tensor import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.program.ops import Instruction


class Cta:
    """One thread block being recorded: declares storage, barriers and roles.

    Grid coordinates are attributes by their axis's name (``cta.m``). Shapes are (rows, cols) in
    elements. ScheduleError for a name that is taken, an unknown axis, or a side below 1.
    """

    def __init__(self, coordinates: dict[str, int]) -> None:
        #: Axes whose value, not only their symbol, went into the program.
        self.looked_at: set[str] = set()
        self._axes = {n: Axis(0, ((n, 1),), v, self.looked_at) for n, v in coordinates.items()}
        self._buffers: list[Buffer] = []
        self._barriers: list[Barrier] = []
        self._rings: list[Ring] = []
        self._roles: list[Role] = []

    def __getattr__(self, name: str) -> Axis:
        axes: dict[str, Axis] = self.__dict__["_axes"]
        if name not in axes:
            raise ScheduleError(f"this launch has no grid axis {name!r}: it has {sorted(axes)}")
        return axes[name]

    def smem(
        self, name: str, shape: tuple[int, int], dtype: str, *, over: Ring | None = None
    ) -> View:
        """Declare a tile in shared memory, of its own or ``over`` the storage of a ring.

        Tiles over one ring lie side by side, in order of declaration; what is longer than the ring
        takes memory beyond it. Barriers have to keep apart those who use the ring and the tiles.
        """
        if over is None:
            return View(self._declare(Buffer(name, shape, dtype, "smem")))
        below = over.buffer.name
        offset = sum(b.bytes for b in self._buffers if b.over == below)
        return View(self._declare(Buffer(name, shape, dtype, "smem", over=below, offset=offset)))

    def exchange(self, name: str, shape: tuple[int, int], dtype: str) -> View:
        """Declare a tile in shared memory through which warps pass results to one another."""
        return View(self._declare(Buffer(name, shape, dtype, "smem", exchange=True)))

    def regs(
        self,
        name: str,
        shape: tuple[int, int],
        dtype: str,
        *,
        by_columns: bool = False,
        threads: int | None = None,
    ) -> View:
        """Declare a tile spread over the registers of the role that uses it.

        ``by_columns``: where warps repeat one another's rows (split-d), each holds some columns.
        ``threads`` hold each row of statistics, where it is not the quad of a product's row.
        """
        return View(
            self._declare(
                Buffer(name, shape, dtype, "regs", by_columns=by_columns, threads=threads)
            )
        )

    def ring(
        self, name: str, shape: tuple[int, int], dtype: str, *, stages: int, consumers: int = 1
    ) -> Ring:
        """Declare ``stages`` tiles in shared memory; free once all consumers release it."""
        if stages < 1:
            raise ScheduleError(f"ring {name!r} has {stages} stages: it needs at least 1")
        buffer = self._declare(Buffer(name, shape, dtype, "smem", stages))
        full = self._barrier(f"{name}.full", "mbarrier", 1, stages)
        empty = self._barrier(f"{name}.empty", "mbarrier", consumers, stages)
        self._rings.append(Ring(buffer, full, empty))
        return self._rings[-1]

    def barrier(self, name: str, count: int = 1) -> Barrier:
        """Declare a named barrier whose phases complete after ``count`` arrivals."""
        return self._barrier(name, "named", count, 1)

    def mbarrier(self, name: str, count: int = 1) -> Barrier:
        """Declare an mbarrier for a one-off transfer such as Q."""
        return self._barrier(name, "mbarrier", count, 1)

    @contextmanager
    def role(
        self,
        name: str,
        *,
        warps: int,
        partition: Partition = "split-q",
        registers: int | None = None,
        instruction: Instruction | None = None,
    ) -> Iterator[RoleBuilder]:
        """Record what ``warps`` warps do together, in program order: ``with cta.role(...) as w``.

        ``partition`` says which warps own what; ``registers`` a thread, if set apart (setmaxnreg);
        ``instruction`` what its products are written with, if not the best that the machine has.
        """
        builder = RoleBuilder(self, name, instruction)
        yield builder
        role = Role(name, warps, partition, registers, tuple(builder.steps), *builder.overlap)
        self._roles.append(role)

    def finish(self) -> TileProgram:
        """Return the recorded program."""
        if not self._roles:
            raise ScheduleError("the schedule recorded no role: nothing would run")
        declared = tuple(self._buffers), tuple(self._barriers), tuple(self._rings)
        return TileProgram(tuple(self._roles), *declared)

    def _declare(self, buffer: Buffer) -> Buffer:
        dtype_bytes(buffer.dtype)
        name, shape = buffer.name, buffer.shape
        if min(shape) < 1:
            raise ScheduleError(f"buffer {name!r} has shape {shape}: every side must be positive")
        if any(b.name == name for b in self._buffers):
            raise ScheduleError(f"buffer {name!r} is declared twice")
        self._buffers.append(buffer)
        return buffer

    def _barrier(
        self, name: str, kind: Literal["mbarrier", "named", "group"], count: int, stages: int
    ) -> Barrier:
        if any(b.name == name for b in self._barriers):
            raise ScheduleError(f"barrier {name!r} is declared twice")
        self._barriers.append(Barrier(name, kind, count, stages))
        return self._barriers[-1]
