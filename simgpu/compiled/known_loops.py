"""Loops of kernels that came compiled with the package, beside FlashAttention-2's mixes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.compiled import known_consumers, known_fa1
from simgpu.compiled.job import architecture
from simgpu.compiled.known_lines import known_lines, read_loops
from simgpu.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simgpu.hardware.profile import Profile
    from simgpu.problem import Attention
    from simgpu.timing.issued import Issued

_KEYS = {"fa1": known_fa1.specialisation, "fa3": known_consumers.specialisation}
_WARPGROUP = 4  # warps
_ROWS = 64  # of a consumer


class KnownLoops(NamedTuple):
    """The loop of each warpgroup that multiplies, and what compiled it."""

    source: str
    loops: tuple[tuple[Issued, ...], ...]


def known_loops(
    schedule: str, params: Mapping[str, Any], problem: Attention, profile: Profile
) -> KnownLoops | None:
    """Return the loops of a schedule's kernel if it is known for this GPU, else None.

    ``params`` leave nothing out. bf16 counts as fp16.
    """
    try:
        arch = architecture(profile)
    except CompileError:
        return None
    key = _KEYS[schedule](params, problem) if schedule in _KEYS and arch == 90 else None
    text = known_lines(schedule).get(key) if key else None
    if text is None:
        return None
    source, loops = read_loops(text)
    if len(loops) == 1:
        roles = schedule == "fa3"
        alike = params["block_m"] // _ROWS if roles else math.ceil(params["warps"] / _WARPGROUP)
        loops *= alike
    return KnownLoops(source, loops)
