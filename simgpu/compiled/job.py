"""What is to be compiled: a kernel, its arguments and options, and for which GPU.

Jobs travel to the worker process as JSON, and their JSON is what the cache knows them by.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.errors import CompileError, UnknownNameError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simgpu.hardware.profile import Profile
    from simgpu.problem import Attention

OWN_KERNELS = ("fa2", "fa1", "fa3", "standard", "fa2_backward")
ARCHITECTURES = (80, 86, 89, 90, 100, 120)
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")

_POINTER = re.compile(r"^\*([a-z]+\d+[a-z0-9]*)$")
_DESCRIPTOR = re.compile(r"^desc:([a-z]+\d+[a-z0-9]*)\[(\d+(?:\s*,\s*\d+)*)\]$")
_SCALAR = re.compile(r"^(i1|i8|i16|i32|i64|u32|u64|fp32|fp64)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One kernel, or one host function that launches several, for one architecture.

    ``source`` is a name of `OWN_KERNELS` or the path of a Python file; ``function`` the kernel in
    that file. ``arguments`` holds JSON values: for own kernels the problem and the parameters, else
    what `parse_settings` returns. ``line_info`` is Triton's own default; without it the code can
    differ in a few instructions.
    """

    source: str
    function: str
    arch: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)
    line_info: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        return {
            "source": self.source,
            "function": self.function,
            "arch": self.arch,
            "arguments": dict(self.arguments),
            "options": dict(self.options),
            "line_info": self.line_info,
        }


def architecture(profile: Profile) -> int:
    """Return the profile's architecture as Triton counts it: 90 for compute capability 9.0.

    Raises CompileError for one that the SASS reader does not know.
    """
    major, minor = profile.compute_capability.split(".")
    arch = 10 * int(major) + int(minor)
    if arch not in ARCHITECTURES:
        known = ", ".join(f"sm_{a}" for a in ARCHITECTURES)
        raise CompileError(f"{profile.name} is sm_{arch}; code can be read for {known}")
    return arch


def own_job(
    name: str,
    params: Mapping[str, Any],
    problem: Attention,
    arch: int,
    *,
    options: Mapping[str, int] | None = None,
    line_info: bool = True,
) -> Job:
    """Return the job of one of our own kernels, launched as its host function launches it.

    ``params`` are that function's keywords (``block_m``, ``stages`` ...). Raises UnknownNameError,
    and UnsupportedError for a sliding window.
    """
    if name not in OWN_KERNELS:
        raise UnknownNameError("kernel", name, OWN_KERNELS)
    if problem.window is not None:
        raise UnsupportedError("our Triton kernels have no sliding window")
    shape = {
        key: getattr(problem, key)
        for key in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "dtype")
    }
    return Job(
        source=name,
        function="backward" if name == "fa2_backward" else "forward",
        arch=arch,
        arguments={"problem": {**shape, "causal": problem.causal}, "params": dict(params)},
        options=dict(options or {}),
        line_info=line_info,
    )


def file_job(kernel: str, settings: Iterable[str], arch: int, *, line_info: bool = True) -> Job:
    """Return the job of ``file.py:kernel`` with ``NAME=VALUE`` settings.

    Raises CompileError for a file that is not there or a setting that cannot be read.
    """
    file, _, function = kernel.rpartition(":")
    if not file or not function:
        names = ", ".join(OWN_KERNELS)
        raise CompileError(f"{kernel!r} is neither one of {names} nor file.py:kernel")
    path = Path(file)
    if not path.is_file():
        raise CompileError(f"no kernel file {file!r}")
    arguments, options = parse_settings(settings)
    return Job(
        source=str(path.resolve()),
        function=function,
        arch=arch,
        arguments=arguments,
        options=options,
        line_info=line_info,
    )


def parse_settings(settings: Iterable[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """Split ``NAME=VALUE`` settings into arguments of a kernel and launch options.

    ``*fp16`` is an aligned pointer, ``desc:fp16[128,64]`` a tensor descriptor with that block,
    ``i32`` or ``fp32`` a number nothing is known of; a number stands for itself (Triton specialises
    on 1 and on multiples of 16), as do True, False and None; anything else is a Triton type or a
    text. Raises CompileError.
    """
    arguments: dict[str, Any] = {}
    options: dict[str, int] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, text = name.strip(), text.strip()
        if not equals or not name.isidentifier() or not text:
            raise CompileError(f"setting {setting!r} is not NAME=VALUE")
        if name in OPTIONS:
            if not text.isdigit():
                raise CompileError(f"{name}={text}: needs a whole number")
            options[name] = int(text)
        else:
            arguments[name] = _argument(text)
    return arguments, options


def _argument(text: str) -> dict[str, Any]:
    if match := _POINTER.match(text):
        return {"pointer": match[1]}
    if match := _DESCRIPTOR.match(text):
        return {"descriptor": match[1], "block": [int(n) for n in match[2].split(",")]}
    if _SCALAR.match(text):
        return {"scalar": text}
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"type": text}
    if not isinstance(value, int | float | bool | str | None):
        raise CompileError(f"{text}: give a number, True, False, None or a type")
    return {"value": value}
