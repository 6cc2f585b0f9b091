"""Kernel tests run in Triton's interpreter: the variable must stand before Triton is imported."""

from __future__ import annotations

import os
import sys

if "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"
