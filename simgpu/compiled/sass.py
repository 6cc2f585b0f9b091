"""What a stretch of SASS asks of the SM: instructions by pipe, products, copies, spills, stalls.

The pipes are those of Nsight Compute on Hopper: with this table, counts of 136 measured launches
come out equal for the XU, FMA, ALU and tensor pipes and within 0.3 % for the LSU (tests/compiled).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from simgpu.compiled.flow import is_mma
from simgpu.program.mix import Mix

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from simgpu.compiled.listing import Instruction

_TABLE = {
    "xu": "MUFU F2F F2I I2F FRND POPC FLO BREV",
    "fma": "FADD FMUL FFMA FADD2 FMUL2 FFMA2 FADD32I FMUL32I FFMA32I IMAD IMUL VIADD "
    "HADD2 HMUL2 HFMA2 FSWZADD",
    "alu": "F2FP FMNMX FMNMX3 FSEL FSETP FSET FCHK IADD3 IADD IABS ISETP IMNMX VIMNMX VIMNMX3 LEA "
    "VIADDMNMX LOP3 LOP PLOP3 SGXT SHF SHL SHR MOV SEL PRMT P2R R2P I2FP F2IP CS2R R2UR VOTE "
    "ELECT BMSK HMNMX2 HSETP2 VABSDIFF I2IP",
    "lsu": "LDG STG LDS STS LDSM STSM LDL STL LD ST LDGSTS SHFL RED REDG ATOM ATOMG ATOMS MATCH "
    "LDGDEPBAR MEMBAR FENCE ERRBAR CCTL LDTM STTM",
}
_PIPE = {name: pipe for pipe, names in _TABLE.items() for name in names.split()}
# Uniform data path and asynchronous units that one thread starts.
_NOT_UNIFORM = ("UTMA", "UTC", "UBLK")


@dataclass(frozen=True, slots=True)
class PipeCounts:
    """Instructions by pipe; predicated-off ones count, as in ``smsp__inst_executed``.

    ``uniform`` is the uniform data path; ``other`` are barriers, branches, waits and system
    registers. ``tensor`` is one per product instruction and warp.
    """

    xu: int = 0
    fma: int = 0
    alu: int = 0
    lsu: int = 0
    tensor: int = 0
    uniform: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """All instructions issued."""
        return sum(getattr(self, f.name) for f in fields(self))

    def to_mix(self) -> Mix:
        """Return the counts in the cost model's words: ``xu`` is its ``mufu``."""
        rest = self.uniform + self.other
        return Mix(self.xu, self.fma, self.alu, self.lsu, self.tensor, rest)

    def __add__(self, other: PipeCounts) -> PipeCounts:
        return PipeCounts(*(getattr(self, n) + getattr(other, n) for n in PIPES))

    def __mul__(self, times: int) -> PipeCounts:
        return PipeCounts(*(getattr(self, n) * times for n in PIPES))


PIPES = tuple(f.name for f in fields(PipeCounts))


@dataclass(frozen=True, slots=True)
class Product:
    """One kind of tensor-core instruction: how often, and its FLOPs each (0: shape not known).

    ``per`` is who executes one: a ``warp`` (mma.sync), a ``warpgroup`` (wgmma) or the ``cta``.
    """

    opcode: str
    count: int
    shape: tuple[int, int, int]
    per: str

    @property
    def flops(self) -> int:
        """FLOPs of all ``count`` of them."""
        m, n, k = self.shape
        return 2 * m * n * k * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What one pass over a stretch of code executes, per warp.

    ``loads`` and the like are instructions. ``stall_cycles`` are static: what a lone warp needs if
    no operand is ever late. ``serial_products`` are wgmma that the compiler waits for one by one.
    """

    pipes: PipeCounts
    products: tuple[Product, ...]
    exps: int
    shared_loads: int
    shared_stores: int
    async_copies: int
    global_loads: int
    tma: int
    barriers: int
    spill_loads: int
    spill_stores: int
    serial_products: int
    stall_cycles: int
    lines: tuple[int, int]


def pipe_of(x: Instruction) -> str:
    """Return the pipe of an instruction, as a field name of `PipeCounts`."""
    base = x.base
    if base in _PIPE:
        return _PIPE[base]
    if is_mma(x.opcode):
        return "tensor"
    if base == "S2R" and "SR_TID" in x.operands:
        return "lsu"
    if base.startswith("U") and not base.startswith(_NOT_UNIFORM):
        return "uniform"
    return "other"


def count_pipes(code: Iterable[Instruction]) -> PipeCounts:
    """Return the instructions of ``code`` by pipe, each counted once."""
    return PipeCounts(**Counter(map(pipe_of, code)))


def read_stretch(code: Sequence[Instruction], before: Sequence[Instruction] = ()) -> Stats:
    """Return what ``code`` executes; ``before`` is what may set up its product descriptors."""
    n = Counter(x.base for x in code)
    lines = [x.line for x in code if x.line] or [0]
    waits = sum(x.opcode.startswith("WARPGROUP.DEPBAR") for x in code)
    wgmma = sum(x.base in ("HGMMA", "QGMMA", "IGMMA") for x in code)
    return Stats(
        pipes=count_pipes(code),
        products=_products(code, before),
        exps=sum(x.opcode.startswith("MUFU.EX2") for x in code),
        shared_loads=n["LDS"] + n["LDSM"],
        shared_stores=n["STS"] + n["STSM"],
        async_copies=n["LDGSTS"],
        global_loads=n["LDG"],
        tma=sum(x.base.startswith(("UTMALDG", "UTMASTG", "UBLKCP")) for x in code),
        barriers=n["BAR"] + sum(x.opcode.startswith("SYNCS.PHASECHK") for x in code),
        spill_loads=n["LDL"],
        spill_stores=n["STL"],
        serial_products=waits if wgmma and waits > wgmma // 2 else 0,
        stall_cycles=sum(x.stall for x in code),
        lines=(min(lines), max(lines)),
    )


def _products(code: Sequence[Instruction], before: Sequence[Instruction]) -> tuple[Product, ...]:
    seen: Counter[tuple[str, tuple[int, int, int], str]] = Counter()
    constants: dict[str, int] = {}  # of uniform registers, as the code runs past
    for n, x in enumerate((*before, *code)):
        if is_mma(x.opcode):
            if n >= len(before):
                seen[(x.opcode, *_shape(x, constants))] += 1
        elif match := _UNIFORM.match(x.operands):
            constants.pop(match[1], None)
            if x.base == "UMOV" and match[2]:
                constants[match[1]] = int(match[2], 16)
    return tuple(Product(op, count, shape, per) for (op, shape, per), count in seen.items())


_UNIFORM = re.compile(r"^(UR\d+),(?: 0x([0-9a-f]+)$)?")
_IDESC = re.compile(r"idesc\[(UR\d+)\]")
_LONG = re.compile(r"\.(\d+)x(\d+)x(\d+)")
_SHORT = re.compile(r"^[A-Z]MMA\.(16)(8)(\d+)")
# 32 bytes of the inner dimension a tcgen05 instruction, by the kind of its operands.
_TCGEN05_DEPTH = {"UTCHMMA": 16, "UTCQMMA": 32, "UTCIMMA": 32, "UTCOMMA": 64}


def _shape(x: Instruction, constants: dict[str, int]) -> tuple[tuple[int, int, int], str]:
    """Return (M, N, K) of a product and who executes it; zeros where the code does not say."""
    if match := _LONG.search(x.opcode):
        return (int(match[1]), int(match[2]), int(match[3])), "warpgroup"
    if match := _SHORT.search(x.opcode):
        return (int(match[1]), int(match[2]), int(match[3])), "warp"
    word = constants.get(match[1], 0) if (match := _IDESC.search(x.operands)) else 0
    # PTX ISA, tcgen05 instruction descriptor: N/8 in bits 17 to 22, M/16 in bits 24 to 28.
    m, n = (word >> 24 & 31) << 4, (word >> 17 & 63) << 3
    return (m, n, _TCGEN05_DEPTH.get(x.base, 0) if m and n else 0), "cta"
