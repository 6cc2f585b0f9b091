"""Conversions at the edge: cycles inside, seconds and bytes a second only here."""

from __future__ import annotations


def cycles_to_us(cycles: float, clock_mhz: float) -> float:
    """Return microseconds for ``cycles`` at ``clock_mhz``."""
    return cycles / clock_mhz


def gb_per_s_to_bytes_per_cycle(gb_per_s: float, clock_mhz: float) -> float:
    """Return bytes a cycle for a bandwidth in 10⁹ B/s at ``clock_mhz``."""
    return gb_per_s * 1e3 / clock_mhz


def tflops(flops: float, time_us: float) -> float:
    """Return 10¹² FLOP a second."""
    return flops / time_us * 1e-6
