"""The process that compiles: jobs as JSON lines in, what became of each as JSON lines out.

It is its own process because Triton's interpreter and its compiler cannot share one, and because a
kernel file is somebody's program. Run as ``python -m simgpu.compiled.worker``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.compiled import standin
from simgpu.compiled.job import OWN_KERNELS
from simgpu.compiled.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Callable

# A number of the scalar's type that Triton does not specialise on: neither 1 nor a multiple of 16.
_PLAIN: dict[str, Any] = {"i1": True, "i64": 2**40 + 1, "u64": 2**63 + 1, "u32": 2**31 + 1}
_PLAIN |= {"fp32": 0.5, "fp64": 0.5}


class JobError(Exception):
    """What is wrong with a job, in words for its author."""


def main() -> None:
    """Answer every job on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Triton prints a failing kernel's code on standard output
    jobs = [json.loads(line) for line in sys.stdin if line.strip()]
    own = all(job["source"] in OWN_KERNELS for job in jobs)
    if own or importlib.util.find_spec("torch") is None:
        standin.install_torch()
    waiting: list[Callable[[], dict[str, Any]]] = []
    with ThreadPoolExecutor(1) as pool:  # one kernel is disassembled while the next one compiles
        for job in jobs:
            waiting.append(_begin(job, pool))
            while len(waiting) > 1:
                print(json.dumps(waiting.pop(0)()), file=answers, flush=True)
        for finish in waiting:
            print(json.dumps(finish()), file=answers, flush=True)


def _begin(job: dict[str, Any], pool: ThreadPoolExecutor) -> Callable[[], dict[str, Any]]:
    """Compile a job; what is returned waits for its disassembly and gives the answer."""
    try:
        kernels, sources = _compile(job)
    except JobError as error:
        return partial(dict, error=str(error))
    except Exception as error:  # whatever a kernel file or the compiler raises is the answer
        return partial(dict, error=_why(error, job["arch"]))
    read = [pool.submit(_disassemble, kernel.asm["cubin"]) for kernel, _ in kernels]

    def finish() -> dict[str, Any]:
        texts = [future.result() for future in read]
        if not all(text and usage for text, usage in texts):
            return {"error": f"the disassembler of this Triton does not read sm_{job['arch']}"}
        found = [_describe(job, *pair, *text) for pair, text in zip(kernels, texts, strict=True)]
        return {"kernels": found, "sources": sources}

    return finish


def _compile(job: dict[str, Any]) -> tuple[list[tuple[Any, Any]], dict[str, str]]:
    """Return every (compiled kernel, its function) of a job, and the files it came from."""
    from triton import knobs
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    knobs.compilation.disable_line_info = not job["line_info"]
    driver.set_active(standin.Driver(job["arch"]))
    if job["source"] not in OWN_KERNELS:
        module = _load(Path(job["source"]))
        function = _jit_function(module, job)
        kernel = function.warmup(*_values(function, job), grid=(1, 1, 1), **job["options"])
        return [(kernel, function)], _sources(Path(job["source"]).parent)
    module = importlib.import_module(f"simgpu.kernels.{job['source']}")
    found: list[tuple[Any, Any]] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kwargs |= job["options"]
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        found.append((kernel, self))
        return kernel

    JITFunction.run = compile_only
    try:
        _launch_own(module, job)
    finally:
        JITFunction.run = run
    return found, _sources(Path(str(module.__file__)).parent)


def _launch_own(module: Any, job: dict[str, Any]) -> None:
    p, params = job["arguments"]["problem"], job["arguments"]["params"]
    dtype = standin.DTYPES.get(p["dtype"])
    if dtype is None:
        raise JobError(f"dtype {p['dtype']}: the kernels take fp16, bf16 and fp32")
    rows = standin.Tensor((p["batch"], p["heads_q"], p["seq_q"], p["head_dim"]), dtype)
    keys = standin.Tensor((p["batch"], p["heads_kv"], p["seq_kv"], p["head_dim"]), dtype)
    lse = standin.Tensor(rows.shape[:3], standin.DTYPES["fp32"])
    tensors = [rows, keys, keys, rows, lse]
    if job["function"] == "backward":
        tensors += [rows, rows, keys, keys]
    scale = p["head_dim"] ** -0.5
    getattr(module, job["function"])(*tensors, causal=p["causal"], scale=scale, **params)


def _load(path: Path) -> Any:
    sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(path.stem)
    except ModuleNotFoundError as error:
        raise JobError(f"{path.name} needs {error.name}, which is not installed") from error
    finally:
        sys.path.remove(str(path.parent))


def _jit_function(module: Any, job: dict[str, Any]) -> Any:
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


def _values(function: Any, job: dict[str, Any]) -> list[Any]:
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


def _sources(folder: Path) -> dict[str, str]:
    """Return the files of a kernel's folder that were loaded, with the hash of their text."""
    files = {str(getattr(m, "__file__", None) or "") for m in list(sys.modules.values())}
    inside = sorted(f for f in files if f and Path(f).is_relative_to(folder) and Path(f).is_file())
    return {f: hashlib.sha256(Path(f).read_bytes()).hexdigest() for f in inside}


def _disassemble(cubin: bytes) -> tuple[str, str]:
    """Return nvdisasm's text and cuobjdump's line of resources; empty where they fail."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        text = _output(knobs.nvidia.nvdisasm.path, "-c", "-hex", "-g", str(file))
        return text, _output(knobs.nvidia.cuobjdump.path, "-res-usage", str(file))


def _describe(
    job: dict[str, Any], kernel: Any, function: Any, text: str, usage: str
) -> dict[str, Any]:
    data = kernel.metadata
    found = dict(re.findall(r"\b(REG|STACK):(\d+)", usage))
    ttir = str(kernel.asm.get("ttir", ""))
    return {
        "name": data.name,
        "arch": job["arch"],
        "registers": int(found["REG"]),
        "stack_bytes": int(found["STACK"]),
        "shared_bytes": data.shared,
        "warps": data.num_warps,
        "warps_asked": _asked(kernel, data),
        "stages": data.num_stages,
        "tensor_memory_columns": getattr(data, "tmem_size", 0) or 0,
        "wants_roles": "tt.warp_specialize" in ttir,
        "loads_by_descriptor": "tt.descriptor_load" in ttir,
        "constants": _constants(kernel, function),
        "cubin_sha256": hashlib.sha256(kernel.asm["cubin"]).hexdigest(),
        "triton_version": data.triton_version,
        "listing": Listing.from_nvdisasm(text).to_text(),
    }


def _asked(kernel: Any, data: Any) -> int:
    found = re.search(r'"ttg\.num-warps" = (\d+)', str(kernel.asm.get("ttgir", "")))
    return int(found[1]) if found else int(data.num_warps)


def _constants(kernel: Any, function: Any) -> dict[str, Any]:
    """Return the compile-time numbers of a kernel by name."""
    constants = getattr(kernel.src, "constants", {})
    named = {function.arg_names[key[0]]: value for key, value in constants.items() if len(key) == 1}
    return {k: v for k, v in named.items() if isinstance(v, int | float | bool | str)}


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout


def _why(error: Exception, arch: int) -> str:
    text = str(error)
    if "is not defined for option 'gpu-name'" in text:
        from triton import __version__

        return f"Triton {__version__} is too old for sm_{arch}: its assembler does not know it"
    for line in text.splitlines():
        if "fatal" in line or "error" in line.lower():
            return f"{type(error).__name__}: {line.strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no reason given'}"


if __name__ == "__main__":
    main()
