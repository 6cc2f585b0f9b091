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
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.compiled import standin
from simgpu.compiled.arguments import JobError, argument_values, jit_function, load_file
from simgpu.compiled.job import OWN_KERNELS
from simgpu.compiled.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
    with tempfile.TemporaryFile("w+") as said:
        try:
            with _standard_error(said.fileno()):
                kernels, sources = _compile(job)
        except JobError as error:
            return partial(dict, error=str(error))
        except Exception as error:  # whatever a kernel file or the compiler raises is the answer
            said.seek(0)
            return partial(dict, error=_why(error, said.read(), job["arch"]))
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
        module = load_file(Path(job["source"]))
        function = jit_function(module, job)
        kernel = function.warmup(*argument_values(function, job), grid=(1, 1, 1), **job["options"])
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
    source = str(kernel.asm.get("source", ttir))  # ahead of passes that take descriptors away
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
        "wants_roles": "tt.warp_specialize" in source,
        "loads_by_descriptor": "tt.descriptor_load" in source,
        "loop_flops": loop_flops(ttir),
        "constants": _constants(kernel, function),
        "cubin_sha256": hashlib.sha256(kernel.asm["cubin"]).hexdigest(),
        "triton_version": data.triton_version,
        "listing": Listing.from_nvdisasm(text).to_text(),
    }


def loop_flops(ttir: str) -> list[int]:
    """Return the FLOPs of one pass of each innermost loop of the source that has products."""
    found: list[int] = []
    open_loops: list[list[int]] = []  # indentation, FLOPs
    for line in ttir.splitlines():
        indent = len(line) - len(line.lstrip())
        if " scf.for " in line:
            open_loops.append([indent, 0])
        elif open_loops and (match := _DOT.search(line)):
            m, k, n = (int(size) for size in match.groups())
            open_loops[-1][1] += 2 * m * n * k
        elif open_loops and line.lstrip().startswith("}") and indent == open_loops[-1][0]:
            found.append(open_loops.pop()[1])
    return [flops for flops in found if flops]


_DOT = re.compile(r"tt\.dot .*: tensor<(\d+)x(\d+)x[^>]*> \* tensor<\d+x(\d+)x")


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


@contextmanager
def _standard_error(file: int) -> Iterator[None]:
    """Send what the compiler's libraries print to ``file``: they say there why they failed."""
    kept = os.dup(2)
    os.dup2(file, 2)
    os.dup2(file, 1)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.dup2(kept, 1)
        os.close(kept)


def _why(error: Exception, said: str, arch: int) -> str:
    text = str(error)
    if "is not defined for option 'gpu-name'" in text:
        from triton import __version__

        return f"Triton {__version__} is too old for sm_{arch}: its assembler does not know it"
    if text.startswith("at ") and len(text.splitlines()) > 1:  # a place, the source, the reason
        place, *_, reason = (line.strip() for line in text.strip().splitlines())
        return f"{type(error).__name__}: {place.removesuffix(':')} of the kernel: {reason}"
    lines = [line.strip() for line in (*text.splitlines(), *said.splitlines())]
    telling = [line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)]
    last = [line for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {(telling or last or ['no reason given'])[0].strip()}"


if __name__ == "__main__":
    main()
