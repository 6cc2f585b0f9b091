"""The words that reports use for units, stalls and limits, and how they write numbers."""

from __future__ import annotations

UNITS = {
    "tensor": "the tensor cores",
    "mufu": "the MUFU (exponentials)",
    "fma": "the FMA pipe",
    "alu": "the ALU pipe",
    "issue": "instruction issue",
    "lsu": "the load unit",
    "l1": "the load unit",
    "smem": "shared memory",
    "l2": "L2",
    "hbm": "HBM",
    "tmem": "tensor memory",
    "critical_path": "the longest CTA's chain of dependences",
}

STALLS = {
    "wait_copy": "waiting for copies",
    "wait_mma": "waiting for products (MMA)",
    "wait_barrier": "waiting for other warps",
    "contended": "sharing a unit with others",
    "idle": "slots without a CTA",
    "dispatch": "starting CTAs",
}

#: How CTAs come by tiles, by `Grid.persistent`.
TAKEN = {None: "one each", "static": "every n-th tile", "dynamic": "next tile off a counter"}

LIMITS = {
    "registers": "registers",
    "shared": "shared memory",
    "warps": "warps",
    "blocks": "blocks",
    "tensor_memory": "tensor memory",
}

#: What schedules need of a GPU, and what it is.
CAPABILITIES = {
    "tma": "whole tiles are copied for one thread that asks, while no warp is held",
    "wgmma": "products run behind the warps that issued them, so that these go on meanwhile",
    "cp_async": "copies to shared memory pass registers by",
    "mbarrier": "copies arrive at barriers in shared memory",
    "setmaxnreg": "registers move from roles that copy to roles that compute",
    "clusters": "CTAs reach each other's shared memory",
    "tcgen05": "one thread issues products, whose results lie in tensor memory",
    "tensor_memory": "accumulators lie outside the registers",
    "two_cta_mma": "two CTAs make products together",
    "max3": "one instruction takes the maximum of three numbers",
    "mma_sync": "products hold their warp until they are done",
    "fp8": "products of 8-bit numbers",
    "fp4": "products of 4-bit numbers",
}

COMPUTE = ("tensor", "mufu", "fma", "alu", "issue")
MEMORY = ("smem", "tmem", "l1", "l2", "hbm")


def whole(value: float) -> str:
    """Return a number with separators and no fraction; a very large one with four digits."""
    return f"{value:,.0f}" if value < 1e9 else f"{value:.3e}"


def percent(share: float) -> str:
    """Return a share as a percentage with one digit."""
    return f"{100 * share:.1f}"


def amount(size: float) -> str:
    """Return bytes with a unit that leaves one to three digits before the point."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "KB")):
        if size >= 1000**power:
            return f"{size / 1000**power:.2f} {unit}"
    return f"{size:.0f} B"


def sentence(text: str) -> str:
    """Return ``text`` with a capital and a full stop."""
    return text[:1].upper() + text[1:] + "."
