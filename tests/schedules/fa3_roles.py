"""The name under which tests knew FlashAttention-3 before it was a schedule of its own."""

from __future__ import annotations

from simgpu.algorithms.fa3 import FlashAttention3 as FlashAttention3Roles

__all__ = ["FlashAttention3Roles"]
