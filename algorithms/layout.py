"""From the layout of a product's accumulator to whole rows, and back, through shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simgpu.program.role import RoleBuilder
    from simgpu.program.tile import View

#: Bytes a thread that one round passes through shared memory, in which a compiler saves room (read
#: off Triton 3.6 for sm_90).
ROUND_BYTES = 64
LANES = 32


def change_layout(
    w: RoleBuilder, src: View, via: View, dst: View, warps: int, *, rounds: bool = True
) -> None:
    """Pass a register tile through shared memory into another layout of registers.

    ``via`` is an exchange buffer of one shape with both. With ``rounds`` 64 bytes a thread go at a
    time, between barriers; all bytes are written with the last round.
    """
    if rounds:
        for _ in range(2 * (via.buffer.bytes // (ROUND_BYTES * LANES * warps) - 1)):
            w.sync()
    w.sync()
    w.copy(src, via)
    w.sync()
    w.copy(via, dst)
