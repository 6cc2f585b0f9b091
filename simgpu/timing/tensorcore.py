"""The tensor core of a scheduler, cycle by cycle: products in order, and what they read."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simgpu.hardware.machine import Machine
    from simgpu.hardware.sections import Issue

#: Of one row or column of a product's operands.
DEPTH_BYTES = 32
_ROWS = 64


class TensorCore:
    """Products of 64 rows, one after the other; their operands come through shared memory."""

    def __init__(self, machine: Machine, numbers: Issue) -> None:
        self._numbers = numbers
        self._column_cycles = 2 * _ROWS * 16 / machine.tensor_flops("fp16")
        self._smem_bytes = machine.profile.rates.smem_bytes
        self.free = 0.0  # when it has done all products that were issued
        self._smem = 0.0
        self._fills: list[tuple[float, float]] = []  # when copies land, and how long they take
        self._products: list[tuple[float, float, bool]] = []  # begin, end, A in registers

    def land(self, at: float, cycles: float) -> None:
        """Let a copy arrive ``at`` that cycle, which takes shared memory for ``cycles``."""
        heapq.heappush(self._fills, (at, cycles))

    def room(self) -> float:
        """Return when another product can be queued."""
        most = self._numbers.mma_queue
        return self._products[-most][0] if len(self._products) >= most else 0.0

    def multiply(self, columns: int, *, in_registers: bool, now: float) -> float:
        """Queue a product; return when it is done."""
        begin = max(self.free, now)
        self.free = max(
            begin + columns * self._column_cycles,
            self._operands(columns + (0 if in_registers else _ROWS), begin),
        )
        self._products = [x for x in self._products if x[1] > now]
        self._products.append((begin, self.free, in_registers))
        return self.free

    def reads_registers(self, now: float) -> bool | None:
        """Say whether the product that runs has A in registers; None when none runs."""
        return next((a for begin, end, a in self._products if begin <= now < end), None)

    def _operands(self, rows: int, begin: float) -> float:
        """Return when shared memory has delivered a product's operands, among copies that land."""
        free = max(self._smem, begin - self._numbers.operand_lead_cycles)
        while self._fills and self._fills[0][0] <= begin:
            free = max(free, self._fills[0][0]) + heapq.heappop(self._fills)[1]
        done = free + DEPTH_BYTES * rows / self._smem_bytes
        while self._fills and self._fills[0][0] <= done:
            done += heapq.heappop(self._fills)[1]
        self._smem = done
        return done
