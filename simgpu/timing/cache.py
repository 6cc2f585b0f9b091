"""L2 at tile grain: which touches of global memory go on to HBM.

The dispatch order gives the order of touches: as many CTAs as fit run as one wave, in step, and
CTAs of a wave that touch one tile in the same step share the access. A tile touched again is still
there when the distinct bytes touched since fit in L2 (least recently used). First touches are known
exactly; how many of the others miss is found by following some of them.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from simgpu.program.ops import Copy, Repeat
from simgpu.program.program import walk
from simgpu.tensor import Tile, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from simgpu.problem import Attention
    from simgpu.program.ops import Step
    from simgpu.program.program import CtaClass, Launch, Point
    from simgpu.tensor import Tensor

#: Waves that are followed, and about how many touches; the rest of a launch is like them.
WAVES, TOUCHES = 3, 30_000

#: The class and the work coordinates of a CTA.
Member = tuple[int, "Point"]


@dataclass(slots=True)
class Reuse:
    """What following the touches of one tensor showed; bytes."""

    asked: float = 0.0  # by CTAs
    asked_late: float = 0.0  # of those, in a step in which somebody finds it missing
    shared: float = 0.0  # after sharing within a step
    again: float = 0.0  # of those, touched before
    missed: float = 0.0  # of those, no longer in L2 (for writes: no longer dirty there)
    fresh: bool = True  # nothing of it was touched, or held, before
    first: float = 0.0  # asked for by the first wave
    first_late: float = 0.0  # of those, in a step in which somebody finds it missing

    def late_share(self, first: bool) -> float:
        """Return the share of what waves in step ask for that they wait for HBM with.

        Of the ``first`` wave, or of the later ones; all of it where none was followed.
        """
        if first:
            return self.first_late / self.first if self.first else 1.0
        later = self.asked - self.first
        return (self.asked_late - self.first_late) / later if later else 1.0

    def beyond(self, asked: float, distinct: float) -> float:
        """Return the bytes that go beyond L2 when CTAs ask for ``asked`` of ``distinct`` bytes."""
        if not self.asked:
            return 0.0
        through = asked * self.shared / self.asked
        first = min(distinct, through) if self.fresh else 0.0
        rate = self.missed / self.again if self.again else 0.0
        return first + rate * (through - first)


#: A tensor that was not reached while following: each byte of it once.
NEVER = Reuse(asked=1.0, shared=1.0)


@dataclass(frozen=True, slots=True)
class _Touch:
    tensor: Tensor
    write: bool
    bytes: int
    at: tuple[int, int]  # where it lies for a CTA at the grid's origin
    moves: tuple[tuple[str, int, int], ...]  # by how many rows and columns along each work axis

    def place(self, point: Point) -> tuple[int, int]:
        """Return the first row and column for the CTA at ``point``."""
        row, col = self.at
        if self.moves:
            at = dict(point)
            for axis, down, right in self.moves:
                row, col = row + down * at[axis], col + right * at[axis]
        return row, col


class L2:
    """The cache, kept from launch to launch."""

    def __init__(self, capacity: float) -> None:
        self._capacity = self._all = capacity
        self._tiles: OrderedDict[Hashable, tuple[Tensor, int, bool]] = OrderedDict()
        self._seen: set[Hashable] = set()
        self._arriving: set[Hashable] = set()  # brought in by the step that is being followed
        self._used = 0

    def follow(self, launch: Launch, problem: Attention, wave: int) -> dict[str, dict[str, Reuse]]:
        """Follow a launch, ``wave`` CTAs at a time; return {"read" | "written": {tensor: Reuse}}.

        When the heads of a wave touch too much to follow, some of them are followed in their share
        of the cache.
        """
        whole = self._whole_tensors(problem)
        self._tiles.clear()
        self._seen.clear()
        self._used = 0
        found: dict[str, dict[str, Reuse]] = {"read": {}, "written": {}}
        sequences = [list(islice(_touches(c), TOUCHES)) for c in launch.classes]
        steps_of: dict[tuple[Member, ...], list[list[tuple[_Touch, int, Point]]]] = {}
        for number, heads in enumerate(islice(_waves(launch, wave), WAVES)):
            for members in heads.values():
                if members not in steps_of:
                    steps_of[members] = list(_steps(sequences, members))
            longest = max(len(steps_of[members]) for members in heads.values())
            followed = min(len(heads), max(1, TOUCHES // (WAVES * max(1, longest))))
            self._capacity = self._all * followed / len(heads)
            for step in range(longest):
                self._arriving.clear()
                for head, members in islice(heads.items(), followed):
                    if step < len(steps_of[members]):
                        for touch, ctas, point in steps_of[members][step]:
                            key = self._key(touch, head, point, problem)
                            reuse, missed = self._touch(key, touch, ctas, found)
                            reuse.asked_late += touch.bytes * ctas * missed
                            if number == 0:
                                reuse.first += touch.bytes * ctas
                                reuse.first_late += touch.bytes * ctas * missed
        self._capacity = self._all
        for reuses in found.values():
            for name, reuse in reuses.items():
                reuse.fresh = reuse.fresh and name not in whole
        return found

    def _whole_tensors(self, problem: Attention) -> set[str]:
        """Return the tensors that the launches before have left in L2 as a whole."""
        held: dict[str, float] = {}
        total: dict[str, float] = {}
        for tensor, size, _ in self._tiles.values():
            held[tensor.name] = held.get(tensor.name, 0.0) + size
            total[tensor.name] = tensor_bytes(tensor, problem)
        return {name for name, size in held.items() if size >= total[name]}

    @staticmethod
    def _key(touch: _Touch, head: tuple[int, int], point: Point, problem: Attention) -> Hashable:
        h, batch = head
        h = h // problem.group if touch.tensor.heads == "kv" else h
        return (touch.tensor.name, h, batch, touch.place(point))

    def _touch(
        self, key: Hashable, touch: _Touch, ctas: int, found: dict[str, dict[str, Reuse]]
    ) -> tuple[Reuse, bool]:
        """Touch a tile; return its tensor's account, and whether it arrives in this step."""
        name, size = touch.tensor.name, touch.bytes
        reuses = found["written" if touch.write else "read"]
        if name not in reuses:
            reuses[name] = Reuse(fresh=touch.write or name not in found["written"])
        reuse = reuses[name]
        reuse.asked += size * ctas
        accesses = 1 if self._capacity else ctas  # without a cache nobody shares
        reuse.shared += size * accesses
        present = self._tiles.pop(key, None)
        if present is not None:
            self._used -= present[1]
        repeated = size * (accesses if key in self._seen else accesses - 1)
        reuse.again += repeated
        if present is None or (touch.write and not present[2]):
            reuse.missed += repeated
        self._seen.add(key)
        if size <= self._capacity:
            self._tiles[key] = (touch.tensor, size, touch.write or bool(present and present[2]))
            self._used += size
        while self._used > self._capacity:
            _, (_, evicted, _) = self._tiles.popitem(last=False)
            self._used -= evicted
        if present is None:
            self._arriving.add(key)
        return reuse, key in self._arriving


def tensor_bytes(tensor: Tensor, problem: Attention) -> int:
    """Return the bytes of a whole tensor."""
    heads = problem.heads_q if tensor.heads == "q" else problem.heads_kv
    return problem.batch * heads * tensor.rows * tensor.cols * dtype_bytes(tensor.dtype)


def _touches(cta_class: CtaClass) -> Iterator[_Touch]:
    """Yield the global tiles that a CTA touches, in program order."""
    env = cta_class.env
    origin = dict.fromkeys(env, 0)
    for role in cta_class.program.roles:
        variables = dict(env)
        for op in walk(_global_copies(role.body), variables):
            assert isinstance(op, Copy)
            for tile, write in ((op.src, False), (op.dst, True)):
                if isinstance(tile, Tile):
                    size = math.prod(tile.valid(variables)) * dtype_bytes(tile.tensor.dtype)
                    rows, cols = dict(tile.row.terms), dict(tile.col.terms)
                    moves = tuple(
                        (n, rows.get(n, 0), cols.get(n, 0)) for n in env if n in rows or n in cols
                    )
                    start = variables | origin
                    at = (tile.row.at(start), tile.col.at(start))
                    if size:
                        yield _Touch(tile.tensor, write, size, at, moves)


def _global_copies(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps without what touches no global memory."""
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, Repeat):
            body = _global_copies(step.body)
            kept += [replace(step, body=body)] if body else []
        elif isinstance(step, Copy) and (isinstance(step.src, Tile) or isinstance(step.dst, Tile)):
            kept.append(step)
    return tuple(kept)


def _steps(
    sequences: list[list[_Touch]], members: tuple[Member, ...]
) -> Iterator[list[tuple[_Touch, int, Point]]]:
    """Yield, step by step, the distinct tiles that CTAs of one head touch, and how many do."""
    points: dict[int, list[Point]] = {}
    for number, point in members:
        points.setdefault(number, []).append(point)
    for step in range(max(len(sequences[number]) for number in points)):
        distinct: dict[Hashable, tuple[_Touch, int, Point]] = {}
        for number, alike in points.items():
            if step < len(sequences[number]):
                touch = sequences[number][step]
                together = 1 if touch.moves else len(alike)
                for point in alike if touch.moves else alike[:1]:
                    key = (touch.tensor.name, touch.place(point))
                    known = distinct.get(key)
                    distinct[key] = (touch, (known[1] if known else 0) + together, point)
        yield list(distinct.values())


def _waves(launch: Launch, wave: int) -> Iterator[dict[tuple[int, int], tuple[Member, ...]]]:
    """Yield the CTAs of each wave, or the tiles that persistent ones have, by (head, batch)."""
    numbers = launch.class_numbers()
    axes = list(launch.grid.work_axes)
    points = launch.grid.coordinates()
    while chunk := list(islice(points, wave)):
        heads: dict[tuple[int, int], list[Member]] = {}
        for at in chunk:
            point = tuple((name, at[name]) for name in axes)
            key = (at.get("head", 0), at.get("batch", 0))
            heads.setdefault(key, []).append((numbers[point], point))
        yield {head: tuple(members) for head, members in heads.items()}
