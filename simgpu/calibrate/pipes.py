"""FMA, ALU, MUFU and conversion pipes: throughput, latency, mixtures, and how slots fill up."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from simgpu.calibrate.case import Benchmark
from simgpu.calibrate.gpu import slope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simgpu.calibrate.gpu import Gpu

FILE = "pipes.cu"
STEPS = (16, 144)
BODY = 128  # instructions a step of the kernel's loop
SCHEDULERS = 4


class Instruction(NamedTuple):
    """One instruction on x[k], with operands b and c of the same type."""

    type: str
    asm: str
    operands: str

    def statement(self) -> str:
        """Return it as a statement of the kernel."""
        return f'asm volatile("{self.asm}" : {self.operands});'


FFMA = Instruction("float", "fma.rn.f32 %0, %0, %1, %2;", '"+f"(x[k]) : "f"(b), "f"(c)')
FADD = Instruction("float", "add.rn.f32 %0, %0, %1;", '"+f"(x[k]) : "f"(b)')
FMNMX = Instruction("float", "max.f32 %0, %0, %1;", '"+f"(x[k]) : "f"(b)')
EX2 = Instruction("float", "ex2.approx.ftz.f32 %0, %0;", '"+f"(x[k]) :')
RSQ = Instruction("float", "rsqrt.approx.ftz.f32 %0, %0;", '"+f"(x[k]) :')
LOP3 = Instruction("u32", "lop3.b32 %0, %0, %1, %2, 0x96;", '"+r"(x[k]) : "r"(b), "r"(c)')
IADD = Instruction("u32", "add.s32 %0, %0, %1;", '"+r"(x[k]) : "r"(b)')
F2FP = Instruction("u32", "cvt.rn.f16x2.f32 %0, %1, %1;", '"=r"(x[k]) : "f"(__uint_as_float(x[k]))')
SHFL = Instruction("u32", "shfl.sync.bfly.b32 %0, %0, 1, 0x1f, 0xffffffff;", '"+r"(x[k]) :')

INSTRUCTIONS = {
    "ffma": FFMA,
    "fadd": FADD,
    "fmnmx": FMNMX,
    "ex2": EX2,
    "rsqrt": RSQ,
    "lop3": LOP3,
    "iadd": IADD,
    "f2fp": F2FP,
    "shfl": SHFL,
}

#: Statements of one instruction each, and how many there are of them.
MIXTURES = {
    "ex2_and_3_ffma": (EX2, FFMA, FFMA, FFMA),
    "ex2_and_7_ffma": (EX2, *(FFMA,) * 7),
    "ffma_and_fmnmx": (FFMA, FMNMX),
    "ex2_ffma_fmnmx_fadd": (EX2, FFMA, FMNMX, FADD),
}


def benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of the pipes."""
    for name, instruction in INSTRUCTIONS.items():
        yield _throughput(name, (instruction,))
        yield Benchmark(
            f"{name}_latency_cycles",
            "cycle",
            f"one warp, one chain of dependent {name}",
            partial(_latency, instruction),
        )
    for name, mixture in MIXTURES.items():
        yield _throughput(name, mixture)
    for warps in (1, 2, 4):
        for chains in (1, 2, 4):
            yield Benchmark(
                f"issue_{warps}_warps_{chains}_chains_per_cycle",
                "instruction/cycle/SM",
                f"{warps} warps a scheduler, {chains} independent chains of fma each",
                partial(_rate, (FFMA,), 128 * warps, chains),
            )


def _throughput(name: str, mixture: tuple[Instruction, ...]) -> Benchmark:
    return Benchmark(
        f"{name}_per_cycle",
        "instruction/cycle/SM",
        f"16 warps, 8 independent chains of {name.replace('_', ' ')}",
        partial(_rate, mixture, 512, 8),
    )


def _rate(mixture: tuple[Instruction, ...], threads: int, chains: int, gpu: Gpu) -> list[float]:
    """Return warp instructions a cycle of one SM."""
    issued = threads / 32 * BODY * len(mixture)
    return [issued / x for x in _cycles(gpu, mixture, threads, chains)]


def _latency(instruction: Instruction, gpu: Gpu) -> list[float]:
    """Return cycles of one instruction in a dependent chain."""
    return [x / BODY for x in _cycles(gpu, (instruction,), 32, 1)]


def _cycles(gpu: Gpu, mixture: tuple[Instruction, ...], threads: int, chains: int) -> list[float]:
    """Return cycles of a step: BODY repetitions of the mixture in every warp."""
    body = " ".join(i.statement() for i in mixture)
    kernel = gpu.kernel(FILE, "pipe", TYPE=mixture[0].type, CHAINS=chains, BODY=body)
    return slope({n: gpu.cycles(kernel, [n], threads=threads) for n in STEPS})
