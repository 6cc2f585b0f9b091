"""Tile functions as nvcc compiles them without ``--use_fast_math``."""

from __future__ import annotations

from dataclasses import replace

from simgpu.program.fns import exp_and_rescale
from simgpu.program.mix import Mix


def _mix(held: tuple[float, ...], masked: bool) -> Mix:
    s, rows = held[0], held[2]
    # FMUL and FADD for an FFMA; FSETP and two predicated FMUL keep exponentials that are denormal
    guards = Mix(fma=3 * s + 3 * rows, alu=s + 2 * rows)
    return exp_and_rescale.mix(held, masked).plus(guards)


#: `exp_and_rescale` with what guards denormals (SASS of PyTorch 2.11's FlashAttention-2, sm_90);
#: the guards of one score wait for no other's.
guarded_exp_and_rescale = replace(
    exp_and_rescale, name="guarded_exp_and_rescale", mix=_mix, dense=True
)
