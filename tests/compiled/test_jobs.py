"""What is asked of the compiler, what it answered before, and every way in which it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from simgpu.compiled import aot, cache
from simgpu.compiled.aot import compile_job, compile_jobs, triton_version
from simgpu.compiled.job import Job, architecture, file_job, own_job, parse_settings
from simgpu.errors import CompileError, MissingExtraError, UnknownNameError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention

PROBLEM = Attention(batch=1, heads_q=8, seq_q=1024, head_dim=64)
JOB = own_job("fa2", {"block_m": 64}, PROBLEM, 90)


def test_settings_become_arguments_and_options():
    arguments, options = parse_settings(
        [
            "Q=*fp16",
            "K = desc:bf16[64, 128]",
            "N=4096",
            "s=fp32",
            "F=True",
            "T=tl.float16",
            "num_warps=8",
            "maxnreg=128",
        ]
    )
    assert arguments == {
        "Q": {"pointer": "fp16"},
        "K": {"descriptor": "bf16", "block": [64, 128]},
        "N": {"value": 4096},
        "s": {"scalar": "fp32"},
        "F": {"value": True},
        "T": {"type": "tl.float16"},
    }
    assert options == {"num_warps": 8, "maxnreg": 128}


@pytest.mark.parametrize("setting", ["Q", "=3", "Q=", "2x=3", "num_warps=eight", "N=[1]"])
def test_a_setting_that_cannot_be_read_is_named(setting):
    with pytest.raises(CompileError) as error:
        parse_settings([setting])
    assert setting.split("=")[-1] in str(error.value)
    assert "\n" not in str(error.value)


def test_files_and_names_that_are_not_there():
    with pytest.raises(CompileError, match=r"no kernel file 'nowhere\.py'"):
        file_job("nowhere.py:k", [], 90)
    with pytest.raises(CompileError, match=r"'fa9' is neither one of fa2, .* nor file\.py:kernel"):
        file_job("fa9", [], 90)
    with pytest.raises(UnknownNameError, match="did you mean 'fa2'"):
        own_job("fa22", {}, PROBLEM, 90)


def test_architectures_are_those_whose_code_can_be_read():
    assert [architecture(load_profile(g)) for g in ("a100", "h200", "rtx_5090")] == [80, 90, 120]
    other = load_profile("h100").model_copy(update={"compute_capability": "7.0"})
    with pytest.raises(CompileError, match=r"is sm_70; code can be read for sm_80, sm_86"):
        architecture(other)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("3.1.0", "Triton 3.1.0 is too old: simgpu reads 3.6 to 3.9"),
        ("3.10.0", "Triton 3.10.0 is too new: simgpu reads 3.6 to 3.9"),
    ],
)
def test_a_triton_of_the_wrong_age(monkeypatch, version, text):
    monkeypatch.setattr(metadata, "version", lambda name: version)
    monkeypatch.setattr(aot.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(CompileError) as error:
        triton_version()
    assert str(error.value) == text


def test_no_triton(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(MissingExtraError, match=r'triton is not installed: pip install "simgpu\['):
        compile_job(JOB)


def test_the_cache_forgets_when_a_file_changes(tmp_path):
    source = tmp_path / "k.py"
    source.write_text("one")
    digest = cache._digest(source)
    answer = {"kernels": [{"name": "k"}], "sources": {str(source): digest}}
    cache.store(tmp_path, JOB, "3.6.0", answer)
    assert cache.load(tmp_path, JOB, "3.6.0") == [{"name": "k"}]
    assert cache.load(tmp_path, JOB, "3.7.0") is None
    other = own_job("fa2", {"block_m": 128}, PROBLEM, 90)
    assert cache.load(tmp_path, other, "3.6.0") is None
    source.write_text("two")
    assert cache.load(tmp_path, JOB, "3.6.0") is None
    source.unlink()
    assert cache.load(tmp_path, JOB, "3.6.0") is None


def test_a_cache_that_cannot_be_used_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache.store(blocked, JOB, "3.6.0", {"kernels": [], "sources": {}})
    assert cache.load(blocked, JOB, "3.6.0") is None
    cache.store(tmp_path, JOB, "3.6.0", {"kernels": [], "sources": {}})
    (entry,) = (tmp_path / "compiled").iterdir()
    entry.write_text("{ broken")
    assert cache.load(tmp_path, JOB, "3.6.0") is None


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "simgpu"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == Path.home() / ".cache" / "simgpu"
    assert cache.cache_folder("here") == Path("here")


def kernel(name):
    fields = {"arch": 90, "registers": 32, "stack_bytes": 0, "shared_bytes": 0, "warps": 4}
    fields |= {"warps_asked": 4, "stages": 2, "tensor_memory_columns": 0, "wants_roles": False}
    fields |= {"loop_flops": [], "loads_by_descriptor": False, "constants": {}, "listing": ""}
    return {"name": name, **fields, "cubin_sha256": "", "triton_version": "3.6.0"}


@pytest.fixture
def triton_is_there(monkeypatch):
    monkeypatch.setattr(aot, "triton_version", lambda: "3.6.0")


@pytest.mark.usefixtures("triton_is_there")
def test_a_job_that_ends_the_process_costs_only_itself(monkeypatch, tmp_path):
    """The compiler is C++: it may end the process instead of raising."""

    def ask(jobs):
        names = [job.source for job in jobs]
        alive = names[: names.index("bad")] if "bad" in names else names
        return [{"kernels": [kernel(n)], "sources": {}} for n in alive], "Aborted"

    monkeypatch.setattr(aot, "_ask", ask)
    jobs = [Job(source=name, function="f", arch=90) for name in ("a", "bad", "c", "d")]
    found = compile_jobs(jobs, cache_dir=tmp_path)
    assert [x if isinstance(x, CompileError) else x[0].name for x in found] == [
        "a",
        found[1],
        "c",
        "d",
    ]
    assert str(found[1]) == "f for sm_90: the compiler process ended: Aborted"


@pytest.mark.usefixtures("triton_is_there")
def test_what_was_compiled_is_not_compiled_again(monkeypatch, tmp_path):
    asked = []

    def ask(jobs):
        asked.extend(jobs)
        return [{"kernels": [kernel("k")], "sources": {}} for _ in jobs], ""

    monkeypatch.setattr(aot, "_ask", ask)
    first = compile_job(JOB, cache_dir=tmp_path)
    assert compile_job(JOB, cache_dir=tmp_path) == first
    assert asked == [JOB]


def test_the_worker_answers_what_it_cannot_do_in_one_line(tmp_path):
    """Without Triton too: its absence is an answer like any other."""
    done = subprocess.run(
        [sys.executable, "-m", "simgpu.compiled.worker"],
        input=json.dumps(Job(source="fa2", function="forward", arch=90).to_json()),
        capture_output=True,
        text=True,
        check=True,
    )
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert list(answer) == ["error"]
    assert "\n" not in answer["error"]


def test_importing_the_reader_imports_neither_torch_nor_triton():
    modules = ("aot", "cache", "flow", "job", "lint", "listing", "mix", "reading", "report", "sass")
    lines = [f"import simgpu.compiled.{name}" for name in modules]
    lines.append("import sys; assert not {'torch', 'triton'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
