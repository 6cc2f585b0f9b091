"""In the worker: a user's kernel file, the kernel in it, and values for its parameters."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from simgpu.compiled import standin

# A number of the scalar's type that Triton does not specialise on: neither 1 nor a multiple of 16.
_PLAIN: dict[str, Any] = {"i1": True, "i64": 2**40 + 1, "u64": 2**63 + 1, "u32": 2**31 + 1}
_PLAIN |= {"fp32": 0.5, "fp64": 0.5}


class JobError(Exception):
    """What is wrong with a job, in words for its author."""


_LOADED: dict[Path, Any] = {}


def load_file(path: Path) -> Any:
    """Import a kernel file by its path. Raises JobError if it needs what is not installed."""
    if path in _LOADED:
        return _LOADED[path]
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_{len(_LOADED)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise JobError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise JobError(f"{path.name} needs {error.name}, which is not installed") from error
    finally:
        sys.path.remove(str(path.parent))
    _LOADED[path] = module
    return module


def jit_function(module: Any, job: dict[str, Any]) -> Any:
    """Return the job's ``@triton.jit`` or Gluon function, out of its autotuner if it has one."""
    from triton.runtime.jit import JITFunction

    kernels = [name for name, x in vars(module).items() if _unwrapped(x, JITFunction)]
    named = getattr(module, job["function"], None)
    function = _unwrapped(named, JITFunction)
    if function is None:
        what = "is no @triton.jit function" if named is not None else "is not there"
        listed = f"; there are {', '.join(kernels)}" if kernels else ""
        file = Path(job["source"]).name
        raise JobError(f"{job['function']!r} {what} in {file}{listed}")
    return function


def _unwrapped(x: Any, kind: type) -> Any:
    """Return the JIT function inside autotuners and heuristics, or None."""
    while x is not None and not isinstance(x, kind):
        x = getattr(x, "fn", None)
    return x


def argument_values(function: Any, job: dict[str, Any]) -> list[Any]:
    """Return a value for every parameter, on which Triton specialises as on a real launch's."""
    given = dict(job["arguments"])
    missing, values = [], []
    for name, parameter in function.signature.parameters.items():
        if name in given:
            values.append(_value(given.pop(name)))
        elif parameter.default is not parameter.empty:
            values.append(parameter.default)
        else:
            missing.append(name)
    if given:
        names = ", ".join(function.signature.parameters)
        raise JobError(f"no argument {', '.join(given)}; {job['function']} takes {names}")
    if missing:
        raise JobError(
            f"{job['function']} has no value for {', '.join(missing)}: "
            f"give each, such as {missing[0]}='*fp16' or {missing[0]}=64"
        )
    return values


def _value(argument: dict[str, Any]) -> Any:
    if "value" in argument:
        return argument["value"]
    if "scalar" in argument:
        return _PLAIN.get(argument["scalar"], 7)
    if "type" in argument:
        import triton.language as tl

        return getattr(tl, argument["type"].removeprefix("tl."), argument["type"])
    name = argument.get("pointer") or argument["descriptor"]
    if name not in standin.DTYPES:
        raise JobError(f"no element type {name!r}; known: {', '.join(standin.DTYPES)}")
    if "pointer" in argument:
        return standin.Tensor((4096, 4096), standin.DTYPES[name])
    from triton.tools.tensor_descriptor import TensorDescriptor

    block = argument["block"]
    tensor = standin.Tensor((4096,) * (len(block) - 1) + (block[-1],), standin.DTYPES[name])
    return TensorDescriptor.from_tensor(tensor, block)
