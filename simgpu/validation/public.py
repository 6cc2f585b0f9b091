"""Other people's kernels that a schedule of ours describes: parameters and what was compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PublicKernel:
    """A kernel, the schedule that describes it, and by head dim its tile and its resources."""

    title: str
    schedule: str
    params: dict[str, Any] = field(default_factory=dict)
    tiles: dict[int, dict[str, int]] = field(default_factory=dict)
    resources: dict[int, dict[str, int]] = field(default_factory=dict)

    def known(self, head_dim: int) -> bool:
        """Return whether its tile at a head dim is known."""
        return not self.tiles or head_dim in self.tiles

    def of(self, head_dim: int) -> dict[str, Any]:
        """Return the schedule's parameters at a head dim."""
        return {**self.params, **self.tiles.get(head_dim, {})}


#: By the names of `simgpu measure`. Tiles of FlashAttention-2 for sm_80 and sm_90 without dropout:
#: flash_fwd_launch_template.h. Spills: STL of the loop in PyTorch 2.11's library for sm_90.
PUBLIC = {
    "peer_fa2": PublicKernel(
        "FA2 (CUDA, PyTorch)",
        "fa2",
        {
            "warps": 4,
            "stages": 1,
            "order": "cuda",
            "instruction": "mma.sync",
            "fast_math": False,
        },
        {
            64: {"block_m": 128, "block_n": 128},
            128: {"block_m": 128, "block_n": 64},
            256: {"block_m": 64, "block_n": 64},
        },
        {
            64: {"registers": 255, "shared_bytes": 49152, "spills": 6},
            128: {"registers": 255, "shared_bytes": 65536, "spills": 14},
            256: {"registers": 254, "shared_bytes": 98304, "spills": 0},
        },
    ),
    "peer_fa3": PublicKernel("FA3 (package)", "fa3"),
}
