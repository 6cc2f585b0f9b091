"""simgpu predicts, explains and checks how attention kernels run on GPUs.

Names are loaded when they are first used, so that importing simgpu stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_WHERE = {
    "Attention": "simgpu.problem",
    "Profile": "simgpu.hardware.profile",
    "Run": "simgpu.result.run",
    "SimgpuError": "simgpu.errors",
    "count": "simgpu.read.count",
    "listing": "simgpu.program.listing",
    "load_profile": "simgpu.hardware.load",
    "make_schedule": "simgpu.schedules",
    "record": "simgpu.program.record",
    "run": "simgpu.front",
    "run_numeric": "simgpu.read.numeric",
    "schedule": "simgpu.program.record",
    "sweep": "simgpu.sweeping",
    "timeline": "simgpu.front",
    "verify": "simgpu.program.verify",
}

if TYPE_CHECKING:
    from simgpu.errors import SimgpuError
    from simgpu.front import run, timeline
    from simgpu.hardware.load import load_profile
    from simgpu.hardware.profile import Profile
    from simgpu.problem import Attention
    from simgpu.program.listing import listing
    from simgpu.program.record import record, schedule
    from simgpu.program.verify import verify
    from simgpu.read.count import count
    from simgpu.read.numeric import run_numeric
    from simgpu.result.run import Run
    from simgpu.schedules import make_schedule
    from simgpu.sweeping import sweep

__all__ = [
    "Attention",
    "Profile",
    "Run",
    "SimgpuError",
    "count",
    "listing",
    "load_profile",
    "make_schedule",
    "record",
    "run",
    "run_numeric",
    "schedule",
    "sweep",
    "timeline",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'simgpu' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
