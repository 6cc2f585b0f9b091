"""The command line: what it prints, and that every mistake is one line on stderr and status 2."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources

import pytest
from typer.testing import CliRunner

import simgpu
from simgpu.cli import app
from simgpu.hardware.load import profile_names
from simgpu.schedules import schedule_names

SIZES = ("--batch", "1", "--heads", "2", "--seqlen", "256", "--head-dim", "64")
RUN = ("run", "fa2", *SIZES)
H200_TEXT = (resources.files("simgpu") / "hw_profiles/h200_sxm.yaml").read_text(encoding="utf-8")
WRONG_SCHEDULE = '''
"""A schedule that forgets to wait for its product."""
from dataclasses import dataclass

from simgpu.algorithms.rows import SoftmaxRows
from simgpu.program.program import Grid
from simgpu.program.record import schedule


@schedule("hasty")
@dataclass(frozen=True, slots=True, kw_only=True)
class Hasty:
    block: int = 64

    def grid(self, p):
        return Grid(m=p.q_tiles(self.block), head=p.heads_q, batch=p.batch)

    def build(self, p, cta):
        b, d = self.block, p.head_dim
        q, k, v = (cta.smem(name, (b, d), p.dtype) for name in "qkv")
        rows = SoftmaxRows(cta, p, b, b, d)
        with cta.role("all", warps=4) as w:
            w.copy(p.q.tile(cta.m, b), q)
            rows.begin(w)
            for blocks in p.kv_ranges(cta.m, b, b):
                for i in w.repeat(len(blocks)):
                    j = i + blocks.start
                    w.wait_mma()
                    w.copy(p.k.tile(j, b), k)
                    w.copy(p.v.tile(j, b), v)
                    w.mma(rows.s, q, k.T, accumulate=False)
                    {wait}
                    rows.maximum(w, p.tile_mask(cta.m, b, j, b) if blocks.masked else None)
                    rows.softmax(w)
                    w.mma(rows.o, rows.p, v)
            w.wait_mma()
            w.copy(rows.end(w), p.o.tile(cta.m, b))
            w.copy(rows.l, p.lse.tile(cta.m, b))
'''


def call(*args, status=0):
    result = CliRunner().invoke(app, args)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def complaint(*args):
    """The one line that a mistake prints."""
    result = call(*args, status=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def data(*args, status=0):
    return json.loads(call(*args, "--json", status=status).stdout)


def test_run_prints_the_report_of_the_library():
    expected = simgpu.run("fa2", simgpu.Attention(batch=1, heads_q=2, seq_q=256, head_dim=64))
    assert call(*RUN).stdout == f"{expected}\n"
    assert data(*RUN) == expected.to_dict()


def test_every_flag_reaches_the_problem_and_the_schedule():
    flags = ["--gpu", "h100", "--batch", "3", "--heads", "4", "--kv-heads", "2", "--seqlen", "100"]
    flags += ["--seqlen-k", "140", "--head-dim", "80", "--window", "50", "--dtype", "bf16"]
    flags += ["--set", "block_n=32", "--set", "stages=3", "--clock-mhz", "1500", "--exact"]
    flags += ["--resources", "registers=150,shared_bytes=90000"]
    got = data("run", "fa2", *flags)
    assert got["gpu"]["name"] == "h100_sxm5"
    assert got["problem"] == {
        **{"batch": 3, "heads_q": 4, "heads_kv": 2, "seq_q": 100, "seq_kv": 140, "head_dim": 80},
        **{"dtype": "bf16", "mask": "window", "window": 50},
    }
    assert (got["schedule"]["params"]["block_n"], got["schedule"]["params"]["stages"]) == (32, 3)
    assert got["predicted"]["clock_mhz"] == 1500
    assert got["provenance"]["mode"] == "exact"
    launch = got["launches"][0]
    assert (launch["registers"], launch["shared_bytes"]) == (150, 90000)
    assert not launch["registers_estimated"]
    assert data(*RUN, "--causal")["problem"]["mask"] == "causal"


def test_run_writes_a_page_beside_the_report(tmp_path):
    path = tmp_path / "run.html"
    done = call(*RUN, "--html", str(path), "--alone")
    assert done.stdout == call(*RUN).stdout
    assert done.stderr.startswith(f"wrote {path} (")
    assert "<title>fa2 on NVIDIA H200" in path.read_text(encoding="utf-8")
    missing = tmp_path / "no" / "run.html"
    assert complaint(*RUN, "--html", str(missing)).startswith(f"cannot write {missing}: no such")


def test_show_lists_the_program_of_one_cta_in_launch_order():
    text = call("show", "fa2", *SIZES, "--cta", "3", "--causal").stdout
    assert text.startswith("fa2: CTA 3 (m 1, head 1, batch 0)\n")
    assert "role all: 4 warps, split-q" in text
    assert "mma   s = q·k" in text
    first = call("show", "fa2", *SIZES, "--cta", "0", "--causal").stdout
    assert first.count("repeat") < text.count("repeat")
    launches = call("show", "standard", *SIZES, "--cta", "5").stdout
    assert "qk: CTA 5 (m 1, n 2, head 0, batch 0)" in launches
    assert "there is no CTA 99: they are numbered from 0 to 3" in complaint(
        "show", "fa2", *SIZES, "--cta", "99"
    )


def test_profiles_are_listed():
    text = call("profiles").stdout
    assert all(name in text for name in profile_names())
    assert [row["name"] for row in data("profiles")] == profile_names()


def test_profile_show_lists_assumed_numbers_first_with_their_sources():
    text = call("profile", "show", "h100", "--sources").stdout
    kinds = [line.rpartition("(")[2] for line in text.splitlines() if " = " in line]
    assert kinds == sorted(kinds, key=["assumed)", "fitted)", "derived)", "measured)",
                                       "vendor)"].index)  # fmt: skip
    assert "device.sm_count = 132 (vendor)\n    NVIDIA H100 whitepaper" in text
    assert "device.sm_count" in call("profile", "show", "h100").stdout
    shown = data("profile", "show", "h100")
    assert shown["device"]["sm_count"]["kind"] == "vendor"


def test_schedules_are_listed_with_their_parameters():
    assert [row["name"] for row in data("schedules")] == schedule_names()
    assert "block_m=128" in call("schedules").stdout


def test_check_passes_a_lawful_schedule():
    result = call("check", "fa2", "--set", "block_m=64")
    assert result.stdout.splitlines()[-1].startswith("fa2: 30 passed, 0 failed")
    assert "FAIL" not in result.stdout


def test_check_finds_what_is_wrong_in_a_users_file(tmp_path):
    path = tmp_path / "hasty.py"
    path.write_text(WRONG_SCHEDULE.replace("{wait}", "pass"), encoding="utf-8")
    rows = data("check", str(path), status=1)
    failed = {row["law"]: row["detail"] for row in rows if row["status"] == "FAIL"}
    assert {"verified", "exact"} <= set(failed)
    assert "race on s slot 0: nothing orders 'mma   s = q·kᵀ" in failed["verified"]
    assert "NaN" in failed["exact"]
    path.write_text(WRONG_SCHEDULE.replace("{wait}", "w.wait_mma()"), encoding="utf-8")
    assert {row["status"] for row in data("check", str(path))} == {"pass"}


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--set", "block_m=100"), "block_m is 100: it must be a positive multiple of 16"),
        (("--set", "block_m"), "--set 'block_m': write key=value"),
        (("--set", "=3"), "--set '=3': write key=value"),
        (("--set", "stages=2", "--set", "stages=3"), "stages is given twice"),
        (("--set", "stages=many"), "stages='many': it must be a number"),
        (("--set", "blok_m=64"), "has no parameter 'blok_m'; did you mean 'block_m'"),
        (("--set", "loads=tam"), "loads='tam': it must be one of cp_async, tma"),
        (("--set", "block_n=512", "--set", "stages=4"), "does not fit in shared memory"),
        (("--resources", "registers"), "--resources 'registers': write key=value"),
        (("--resources", "register=9"), "unknown resource 'register'; did you mean 'registers'?"),
        (("--resources", "registers=lots"), "must be a whole number of at least 1"),
        (("--resources", "registers=0"), "must be a whole number of at least 1"),
        (("--resources", "shared_bytes=-5"), "must be a whole number of at least 0"),
        (("--resources", "registers=300"), "a thread wants 300 registers; it may have 255"),
        (("--resources", "shared_bytes=999999"), "wants 999999 bytes of shared memory"),
        (("--heads", "6", "--kv-heads", "4"), "heads_q 6 is not divisible by heads_kv 4"),
        (("--kv-heads", "0"), "heads_kv is 0: it must be a whole number of at least 1"),
        (("--seqlen", "0"), "seq_q is 0: it must be a whole number of at least 1"),
        (("--seqlen-k", "0"), "seq_kv is 0: it must be a whole number of at least 1"),
        (("--window", "0"), "window is 0: it must be a whole number of at least 1"),
        (("--batch", "-1"), "batch is -1: it must be a whole number of at least 1"),
        (("--dtype", "fp61"), "dtype 'fp61' is unknown; did you mean 'fp64' or 'fp16'"),
        (("--dtype", "fp32"), "h200_sxm has no tensor rate for fp32: `count` and NumPy execution"),
        (("--clock-mhz", "0"), "--clock-mhz is 0: it must be more than 0"),
        (("--clock-mhz", "nan"), "--clock-mhz is nan: it must be more than 0"),
        (("--gpu", "h20"), "unknown hardware profile 'h20'; did you mean"),
        (("--gpu", "missing.yaml"), "missing.yaml: cannot be read"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, tuple) else "",
)  # fmt: skip
def test_bad_input_is_one_line_and_status_2(args, text):
    assert text in complaint(*RUN, *args)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("sm_count:", "sm_cuont:", "device.sm_cuont: unknown key; did you mean 'sm_count'?"),
        (', source: "NVML power limit, H200"', "", "power.limit_watts.source: missing"),
        ("launch_cycles: {value: ", "launch_cycles: {value: -", "it must be at least 0"),
        ("sustained_mhz: {value: ", "sustained_mhz: {value: 99", "it must be at most 5000"),
        ("  idle_watts:", "  limit_watts: 3\n  idle_watts:", "power.limit_watts: duplicate key"),
    ],
)
def test_a_bad_profile_is_one_line_with_file_line_and_field(tmp_path, old, new, text):
    assert old in H200_TEXT
    path = tmp_path / "mine.yaml"
    path.write_text(H200_TEXT.replace(old, new), encoding="utf-8")
    for args in ((*RUN, "--gpu", str(path)), ("profile", "show", str(path))):
        line = complaint(*args)
        assert line.startswith(f"{path}:")
        assert text in line


def test_unknown_schedules_and_bad_files_are_one_line(tmp_path):
    assert "unknown schedule 'fa22'; did you mean 'fa2'" in complaint("run", "fa22")
    assert "there is no such file" in complaint("check", str(tmp_path / "no.py"))
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n", encoding="utf-8")
    assert "0 classes carry @schedule" in complaint("check", str(path))
    path.write_text("x = \n", encoding="utf-8")
    assert "cannot be read: SyntaxError" in complaint("check", str(path))


def shell(*args, cwd=None):
    command = [sys.executable, "-c", "from simgpu.cli import main; main()", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_the_shell_gets_status_and_streams(tmp_path):
    good = shell(*RUN, cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout == call(*RUN).stdout
    bad = shell("run", "fa2", "--gpu", "h20", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: unknown hardware profile 'h20'")
    assert "Traceback" not in bad.stderr


def test_a_users_file_is_checked_from_its_own_folder(tmp_path):
    (tmp_path / "my.py").write_text(
        WRONG_SCHEDULE.replace("{wait}", "w.wait_mma()"), encoding="utf-8"
    )
    done = shell("check", "my.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "hasty: 30 passed, 0 failed"
