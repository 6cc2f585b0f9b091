"""Reading: how the roles of a program share its work, and what runs behind their backs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from simgpu.program.ops import Apply, Copy, Mma, Wait
from simgpu.program.program import walk
from simgpu.read.bound import longest

if TYPE_CHECKING:
    from simgpu.program.ops import Op
    from simgpu.program.program import Launch, Role

#: Operations of a role that are looked at: enough for many passes of any loop.
MOST = 4000


@dataclass(frozen=True, slots=True)
class Structure:
    """Roles by what they do, in the CTA with the most work.

    ``computing`` are the roles with products, ``loading`` those that only copy. ``covered`` is the
    share of products that a tile function of the same role runs under: it comes after the product
    was issued and before it is waited for.
    """

    computing: tuple[str, ...]
    loading: tuple[str, ...]
    covered: float


def structure(launch: Launch) -> Structure:
    """Return how one launch's roles share the work."""
    cta_class = launch.classes[longest(launch)]
    computing, loading = [], []
    products = covered = 0
    for role in cta_class.program.roles:
        found = _products(role, cta_class.env)
        if found:
            computing.append(role.name)
        elif _only_copies(role, cta_class.env):
            loading.append(role.name)
        products += len(found)
        covered += sum(found)
    return Structure(tuple(computing), tuple(loading), covered / max(1, products))


def _products(role: Role, env: dict[str, int]) -> list[bool]:
    """Return for each product of a role whether one of its tile functions runs under it."""
    inside = dict(env)
    found: list[bool] = []
    open_: dict[int, tuple[str, int]] = {}  # product: barrier and use that say it is done
    for op in islice(walk(role.body, inside), MOST):
        match op:
            case Mma(signal=signal):
                if signal is not None:
                    open_[len(found)] = signal.barrier.name, signal.use.at(inside)
                found.append(False)
            case Apply():
                for number in open_:
                    found[number] = True
            case Wait(signal=signal):
                name, use = signal.barrier.name, signal.use.at(inside)
                open_ = {n: x for n, x in open_.items() if x[0] != name or x[1] > use}
    return found


def _only_copies(role: Role, env: dict[str, int]) -> bool:
    ops: list[Op] = list(islice(walk(role.body, dict(env)), MOST))
    return any(isinstance(op, Copy) for op in ops) and not any(isinstance(op, Apply) for op in ops)
