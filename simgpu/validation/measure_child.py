"""The process that touches the GPU: makes the runs of a job file and reports each as a JSON line.

`simgpu.validation.measure_run` starts it, so that a kernel that kills the CUDA context, or the
process, costs one run and not the grid. Nsight Compute profiles the same process in mode ``count``.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton

from simgpu.kernels import stamp
from simgpu.validation import measure_cases as cases
from simgpu.validation import measure_time
from simgpu.validation.measure_grid import Point
from simgpu.validation.records import Kernel, Measurement, Method, Problem

# The CUDA context is gone: the parent goes on in a new process.
EXIT_LOST = 75


def say(**event: Any) -> None:
    """One event to the parent; a line of its own, whatever a library prints in between."""
    sys.stdout.write("\n" + json.dumps(event) + "\n")
    sys.stdout.flush()


def method() -> Method:
    """GPU, driver, versions, inputs and date of this process."""
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    cudnn: Any = torch.backends.cudnn
    if cudnn.version():
        versions["cudnn"] = str(cudnn.version())
    device = torch.cuda.get_device_properties(0)
    return Method(
        gpu=f"{device.name}, {device.multi_processor_count} SMs",
        driver=_driver(),
        versions=versions,
        inputs=cases.INPUTS,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def _driver() -> str | None:
    try:
        pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:
        return None


def reason(error: BaseException) -> str:
    """One line that says what went wrong with a run."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, torch.OutOfMemoryError):
        return f"out of memory: {text[:200]}"
    kinds = {type(x).__name__ for x in (error, error.__cause__) if x is not None}
    if kinds & {"CompilationError", "CompileTimeAssertionFailure", "PTXASError"}:
        return f"does not compile: {text[:200]}"
    if "OutOfResources" in kinds:
        return f"does not fit: {text[:200]}"
    return text[:240]


def lost() -> bool:
    """Whether the CUDA context can no longer be used."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def time_point(
    point: Point, bench: cases.Bench, sampler: measure_time.Sampler, seconds: float
) -> Measurement:
    """Check and time one run."""
    case = cases.build(point, bench)
    error, kernels = cases.check(point, case, bench)
    facts = cases.launch_facts(kernels)
    single: dict[str, Any] = facts[0].model_dump(exclude={"name", "counters"}) if facts else {}
    kernel = Kernel(name=point.kernel, params=point.params, **(single if len(facts) == 1 else {}))
    common: dict[str, Any] = {
        "problem": point.problem,
        "kernel": kernel,
        "error": error,
        "launches": tuple(facts) if len(facts) > 1 else (),
        "method": method(),
    }
    if not error.relative <= error.limit:
        wrong = f"wrong: relative error {error.relative:.2e}, limit {error.limit:.0e}"
        finite = common | {"error": error if error.relative < float("inf") else None}
        return Measurement(status="failed", reason=wrong, **finite)
    found = measure_time.measure(
        case.launch, graph=case.graph, sampler=sampler, seconds=seconds, cold=True
    )
    return Measurement(
        status="ok",
        time=found.warm,
        time_cold=found.cold,
        clock_mhz=found.clock_mhz,
        sm_clocks=found.sm_clocks,
        watts=found.watts,
        **common,
    )


def again_point(
    point: Point, bench: cases.Bench, sampler: measure_time.Sampler, seconds: float
) -> dict[str, Any]:
    """Time one run a second time, warm only."""
    case = cases.build(point, bench)
    found = measure_time.measure(
        case.launch, graph=case.graph, sampler=sampler, seconds=seconds, cold=False
    )
    return {
        "time": found.warm.model_dump(),
        "sm_clocks": found.sm_clocks.model_dump() if found.sm_clocks else None,
    }


def count_point(point: Point, bench: cases.Bench) -> None:
    """One launch for Nsight Compute, behind a marker that tells the runs apart."""
    case, failed = None, None
    try:
        case = cases.build(point, bench)
        case.launch()
        torch.cuda.synchronize()
    except Exception as error:
        failed = error
    profiler: Any = torch.cuda.profiler
    profiler.start()
    stamp.stamp()
    if case is not None and failed is None:
        case.launch()
    torch.cuda.synchronize()
    profiler.stop()
    if failed is not None:
        raise failed


def failure(point: Point, why: str, how: Method) -> Measurement:
    """The record of a run that could not be made."""
    return Measurement(
        problem=point.problem,
        kernel=Kernel(name=point.kernel, params=point.params),
        status="failed",
        reason=why,
        method=how,
    )


def run_job(job: dict[str, Any]) -> int:
    """Make the runs of a job; the exit status of the process."""
    if not torch.cuda.is_available():
        say(event="fatal", reason="torch sees no CUDA GPU")
        return 1
    mode, seconds, stop_at = job["mode"], job["seconds"], job["stop_at"]
    bench, how = cases.Bench(), method()
    sampler = measure_time.Sampler.open()
    for entry in job["points"]:
        if stop_at and time.time() > stop_at:
            break
        index = entry["index"]
        point = Point(
            problem=Problem(**entry["problem"]), kernel=entry["kernel"], params=entry["params"]
        )
        say(event="start", index=index)
        answer: dict[str, Any] = {}
        try:
            if mode == "time":
                answer["record"] = time_point(point, bench, sampler, seconds).line()
            elif mode == "again":
                answer["again"] = again_point(point, bench, sampler, seconds)
            elif mode == "count":
                count_point(point, bench)
            else:
                cases.build(point, bench).launch()
        except Exception as error:
            answer["reason"] = reason(error)
            if mode == "time":
                answer["record"] = failure(point, answer["reason"], how).line()
            if isinstance(error, torch.OutOfMemoryError):
                torch.cuda.empty_cache()
            if lost():
                say(event="done", index=index, **answer)
                return EXIT_LOST
        say(event="done", index=index, **answer)
    return 0


if __name__ == "__main__":
    status = run_job(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    sys.stdout.flush()
    if status == EXIT_LOST:
        # Skips torch's teardown, which can hang after a lost context.
        os._exit(status)
    sys.exit(status)
