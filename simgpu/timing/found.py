"""What a fast or exact simulation finds of a launch's CTAs."""

from __future__ import annotations

from typing import NamedTuple


class Found(NamedTuple):
    """End of the last CTA, CTA-cycles of residence, role-cycles by reason, CTAs on the device.

    All before the launch's own cycles; ``resident`` as in `LaunchTime`.
    """

    end: float
    residence: float
    time: dict[str, float]
    resident: tuple[tuple[float, int], ...] = ()
