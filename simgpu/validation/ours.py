"""Our measured kernels as schedules: what they do beside what their parameters say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a measured kernel does that its parameters do not say. Ours in Triton: FA1 splits rows over
#: its warps, begins in registers, and loads and stores its state by rows; standard attention masks
#: the scores before it stores them. FA3 in Gluon has two consumers, P in registers and, when it is
#: persistent, a buffer of its own for O and the next tile's first scores under its store; it
#: rescales O after PV at every head dim.
AS_MEASURED: dict[str, dict[str, Any]] = {
    "fa1": {
        "warp_partition": "split-q",
        "initial": "registers",
        "state": "coalesced",
        "ahead": True,
    },
    "standard": {"mask": "scores"},
    "fa3": {
        "block_m": 128,
        "p_in": "registers",
        "padding": "power_of_two",
        "o_in": "own",
        "cluster": 1,
        "rescale": "after_pv",
        "scores_ahead": True,
    },
}
#: Records of our FA3 that do not say whether it was persistent are of the kernel before it could
#: be: a program a tile, and causal tiles longest first in each head by itself.
ONCE: dict[str, dict[str, Any]] = {
    "fa3": {"persistent": False, "order": "longest_first_by_head"},
}


def as_measured(kernel: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the schedule that describes a kernel measured with ``params``."""
    once = {} if "persistent" in params else ONCE.get(kernel, {})
    return {**once, **params, **AS_MEASURED.get(kernel, {})}
