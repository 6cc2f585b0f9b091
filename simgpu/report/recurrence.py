"""Online softmax tile by tile: what NumPy's execution of FA2 holds after every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.index import Index
from simgpu.problem import Attention
from simgpu.program.listing import describe
from simgpu.program.ops import Apply, Arrive, Copy, Mma, Wait
from simgpu.program.record import record
from simgpu.program.tile import View
from simgpu.read.numeric import run_numeric
from simgpu.read.reference import random_inputs, reference
from simgpu.schedules import make_schedule
from simgpu.tensor import Tile

if TYPE_CHECKING:
    from simgpu.program.ops import Op
    from simgpu.read.numeric import Seen

#: Columns of O that are shown.
SHOWN = 8


def recurrence(row: int = 12, seed: int = 3) -> dict[str, Any]:
    """Return one query row's way through FA2, a moment for each operation.

    Scores are scaled by log2(e)/√d, so exponentials are powers of two. ``alpha`` is read off the
    accumulator: what an element was multiplied by. ``out`` is o/l, ``error`` its distance from the
    exact answer.
    """
    keys, block, d = 128, 16, 16
    problem = Attention(batch=1, heads_q=1, seq_q=64, seq_kv=keys, head_dim=d, dtype="fp32")
    made = make_schedule("fa2", {"block_m": 64, "block_n": block})
    inputs = random_inputs(problem, seed)
    exact = reference(problem, inputs)["O"][0, 0, row]
    eye = _Eye(row, exact)
    out = run_numeric(record(made, problem), inputs, watch=eye)["O"][0, 0, row]
    return {
        "row": row,
        "length": keys,
        "block": block,
        "head_dim": d,
        "exact": _rounded(exact[:SHOWN]),
        "final": _rounded(out[:SHOWN]),
        "moments": eye.moments,
    }


class _Eye:
    """Keeps what is to be shown of each operation."""

    def __init__(self, row: int, exact: Any) -> None:
        self._row, self._exact = row, exact
        self._before: Any = None
        self._tile = -1
        self._sram: dict[str, str] = {}
        self.moments: list[dict[str, Any]] = []

    def __call__(self, seen: Seen) -> None:
        """Look at one operation."""
        op, kind = seen.op, _kind(seen.op)
        self._follow(seen)
        rows = {b: seen.buffers[b, 0][0, 0, self._row] for b in ("m", "m_new", "l", "o", "s", "p")}
        before, self._before = self._before, rows["o"].copy()
        if isinstance(op, Arrive | Wait) or kind == "store":
            return
        if kind == "scores":
            self._tile += 1
        bound = op.bind({name: Index(number) for name, number in seen.env.items()})
        alpha = None
        if kind == "softmax" and abs(before).max() > 0:
            alpha = float(rows["o"][0] / before[0])
        total = float(rows["l"][0])
        seen_some = total > 0 and kind not in ("scores", "load")
        out = rows["o"] / total if seen_some and kind != "normalize" else rows["o"]
        self.moments.append(
            {
                "kind": kind,
                "op": describe(bound).partition(" -> ")[0],
                "tile": self._tile,
                "sram": dict(self._sram),
                "s": _rounded(rows["s"]),
                "p": _rounded(rows["p"]),
                "m": _rounded(rows["m"])[0],
                "m_new": _rounded(rows["m_new"])[0],
                "l": _rounded(rows["l"])[0],
                "alpha": None if alpha is None else round(alpha, 5),
                "o": _rounded(rows["o"][:SHOWN]),
                "out": _rounded(out[:SHOWN]),
                "error": float(abs(out - self._exact).max()) if kind in _TOLD else None,
            }
        )

    def _follow(self, seen: Seen) -> None:
        """Keep account of what each stage of shared memory holds."""
        op = seen.op
        if isinstance(op, Copy) and isinstance(op.dst, View) and isinstance(op.src, Tile):
            name = f"{op.dst.buffer.name}[{op.dst.slot(seen.env)}]"
            number = op.src.row.at(seen.env) // op.src.rows
            self._sram[name] = f"{op.src.tensor.name}{number}"
        elif isinstance(op, Arrive) and op.signal.barrier.name.endswith(".empty"):
            use = op.signal.use.at(seen.env)
            if use >= 0:
                ring = op.signal.barrier.name.removesuffix(".empty")
                self._sram[f"{ring}[{use % op.signal.barrier.stages}]"] = ""


#: After these the accumulator belongs to the keys seen so far.
_TOLD = ("products", "normalize")


def _kind(op: Op) -> str:
    match op:
        case Copy(src=Tile()):
            return "load"
        case Copy():
            return "store"
        case Mma(b=b):
            return "scores" if b.transposed else "products"
        case Apply(fn):
            known = {"row_max": "maximum", "exp_and_rescale": "softmax"}
            return known.get(fn.name, fn.name)
        case _:
            return "order"


def _rounded(values: Any) -> list[float | None]:
    """Return numbers of five digits; None for what was never written."""
    return [float(f"{x:.5g}") if abs(x) < 1e30 else None for x in values.astype(float)]
