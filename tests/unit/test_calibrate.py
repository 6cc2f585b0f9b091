"""Calibration without a GPU: declarations, the profile that results make, and its errors."""

from __future__ import annotations

from importlib.resources import files
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from simgpu.calibrate import coalescer, memory, pipes, power, sync, tensor
from simgpu.calibrate.case import Benchmark, Result, summary
from simgpu.calibrate.gpu import Gpu, slope
from simgpu.calibrate.profile import document, knee_bytes, run_all, write
from simgpu.cli import app
from simgpu.errors import MeasureError, ProfileError
from simgpu.hardware.load import load_profile

ALL = [b for m in (memory, pipes, tensor, sync, coalescer, power) for b in m.benchmarks()]
GPU = Gpu(torch=None, name="Test GPU", compute_capability=(9, 0), sms=100, l2_bytes=1 << 25,
          memory_bytes=1 << 35)  # fmt: skip


def result(name: str, value: float, spread: float = 0.01) -> Result:
    return Result(name, "unit", "a method", value, spread, 7)


def found(**values: float) -> dict[str, Result]:
    return {name: result(name, value) for name, value in values.items()}


def test_every_benchmark_says_what_it_measures_and_how():
    names = [b.name for b in ALL]
    assert len(names) == len(set(names)) > 60
    assert all(b.unit and len(b.method) > 8 for b in ALL)


def test_a_summary_is_the_median_and_the_range_over_it():
    made = summary(Benchmark("x", "cycle", "a method", lambda gpu: []), [4.0, 5.0, 6.0])
    assert (made.value, made.spread, made.repeats) == (5.0, pytest.approx(0.4), 3)


def test_a_slope_drops_what_is_fixed():
    assert slope({64: [1064.0, 1064.0], 320: [1320.0, 1576.0]}) == [1.0, 2.0]


def test_the_knee_is_the_last_set_before_bandwidth_falls():
    sets = {4: 4000.0, 32: 4400.0, 48: 3900.0, 64: 3000.0, 96: 4400.0}
    made = {f"l2_read_{k}_mib_bytes_per_cycle": v for k, v in sets.items()}
    size, at = knee_bytes(found(**made))
    assert (size, at.value) == (48 << 20, 3900.0)
    assert knee_bytes({}) is None


def test_measured_numbers_are_laid_over_the_base(tmp_path):
    results = list(found(ex2_per_cycle=0.25, hbm_read_gb_per_s=1234.5, launch_us=0.5).values())
    output = tmp_path / "mine.yaml"
    made = write(document(results, GPU, "h200", "mine", "2026-01-02"), output)
    assert made.rates.mufu_instructions == 0.25
    assert made.memory.hbm_sustained_gb_per_s == 1234.0  # four digits
    assert made.device.sm_count == 100
    assert made.rates.fma_instructions == load_profile("h200").rates.fma_instructions
    origin = made.origins["rates.mufu_instructions"]
    assert (origin.kind, origin.spread, origin.date) == ("measured", 0.01, "2026-01-02")
    assert made.measurements["launch_us"].value == 0.5  # no profile number: kept beside them
    assert made.digest == load_profile(output).digest


def test_the_best_product_gives_the_tensor_rate(tmp_path):
    names = {"wgmma_n64_a_shared_1_warpgroups_flops_per_cycle": 4000.0,
             "wgmma_n128_a_shared_2_warpgroups_flops_per_cycle": 4096.0}  # fmt: skip
    made = write(document(list(found(**names).values()), GPU, "h200", "x"), tmp_path / "x.yaml")
    assert made.rates.tensor_flops_fp16 == made.rates.tensor_flops_bf16 == 4096.0


def test_what_cannot_run_is_left_out_with_its_reason():
    def broken(gpu):
        raise RuntimeError("out of memory\nand more")

    cases = [
        Benchmark("fine", "u", "a method", lambda gpu: [1.0, 1.0]),
        Benchmark("broken", "u", "a method", broken),
        Benchmark("blackwell", "u", "a method", lambda gpu: [1.0], ("tcgen05",)),
    ]
    said = []
    results, failed = run_all(cases, GPU, lambda name, text: said.append(name))
    assert [r.name for r in results] == ["fine"]
    assert failed == {"broken": "out of memory", "blackwell": "needs tcgen05"}
    assert said == ["fine", "broken", "blackwell"]


def test_a_profile_that_cannot_be_written_says_where(tmp_path):
    made = document([result("ex2_per_cycle", 0.5)], GPU, "h200", "x")
    with pytest.raises(MeasureError, match="cannot be written"):
        write(made, tmp_path / "no" / "x.yaml")


def test_an_impossible_number_names_itself(tmp_path):
    made = document([result("ex2_per_cycle", 1e6)], GPU, "h200", "x")
    with pytest.raises(ProfileError, match="mufu_instructions"):
        write(made, tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--only", "pips"), "pipes"),
        (("--output", "x.txt"), "ends in .yaml"),
        (("--base", "h20"), "h200"),
    ],
)
def test_errors_come_before_any_work(args, said):
    done = CliRunner().invoke(app, ["calibrate", *args])
    assert done.exit_code == 2
    assert said in done.output


def test_without_a_gpu_one_line_says_so(monkeypatch):
    fake = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False), __version__="2.9")
    monkeypatch.setitem(__import__("sys").modules, "torch", fake)
    done = CliRunner().invoke(app, ["calibrate"])
    assert done.exit_code == 2
    assert "torch sees no CUDA GPU" in done.output


def test_a_torch_without_the_compiler_says_which_it_needs(monkeypatch):
    fake = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True), __version__="2.6")
    monkeypatch.setitem(__import__("sys").modules, "torch", fake)
    with pytest.raises(MeasureError, match="cannot compile CUDA C: calibrate needs"):
        Gpu.here()


def test_the_committed_calibration_is_a_profile():
    path = files("simgpu") / "validation/measured/h200_sxm/calibration.yaml"
    made = load_profile(str(path))
    assert len(made.measurements) > 80
    assert made.rates.tensor_flops_fp16 == pytest.approx(4096, rel=0.01)
