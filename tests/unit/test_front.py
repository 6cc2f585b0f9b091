"""`simgpu.run` and the shape of its JSON."""

from __future__ import annotations

import json
import math

import pytest

import simgpu
from simgpu.errors import ProblemError, ScheduleError, SimgpuError, UnsupportedError, VerifyError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention
from simgpu.program.record import record
from simgpu.read.count import count
from simgpu.read.numeric import run_numeric
from simgpu.read.reference import random_inputs
from simgpu.schedules import make_schedule

SMALL = Attention(batch=1, heads_q=4, seq_q=512, head_dim=64, heads_kv=2)
UNITS = {"tensor", "mufu", "fma", "alu", "issue", "smem", "l1", "l2", "hbm", "tmem"}
STALLS = {"wait_copy", "wait_mma", "wait_barrier", "contended", "idle", "dispatch"}
COUNTS = {
    *("flops_tensor", "exps", "instructions", "global_read_bytes", "global_write_bytes"),
    *("l2_read_bytes", "l2_write_bytes", "hbm_read_bytes", "hbm_write_bytes"),
    *("smem_wavefronts", "smem_fill_bytes", "smem_operand_bytes", "smem_exchange_bytes"),
    *("local_bytes", "barriers", "atomics"),
}
RECORD = {"predicted", "bounds", "counts", "occupancy", "utilization", "stalls"}
LIMITS = {"registers", "shared", "warps", "blocks"}


@pytest.fixture(scope="module", params=["fa2", "fa1", "standard"])
def result(request):
    return simgpu.run(request.param, SMALL, "h200").to_dict()


def records(result):
    return [result, *result["launches"]]


def numbers(data):
    """Every number in plain data."""
    if isinstance(data, dict):
        for value in data.values():
            yield from numbers(value)
    elif isinstance(data, list):
        for value in data:
            yield from numbers(value)
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        yield data
    else:
        assert data is None or isinstance(data, (str, bool)), data


def test_the_top_level_has_the_keys_that_are_promised(result):
    top = {"schema", "version", "schedule", "problem", "gpu", "mix", "launches", "provenance"}
    assert top | RECORD <= set(result)
    assert result["schema"] == "simgpu.run/1"
    assert result["version"] == simgpu.__version__
    assert {"name", "params"} <= set(result["schedule"])
    assert {"name": "h200_sxm", "digest": load_profile("h200").digest}.items() <= (
        result["gpu"].items()
    )
    assert result["mix"] in ("analytic", "compiled")


def test_the_problem_is_named_as_promised(result):
    assert result["problem"] == {
        "batch": 1,
        "heads_q": 4,
        "heads_kv": 2,
        "seq_q": 512,
        "seq_kv": 512,
        "head_dim": 64,
        "dtype": "fp16",
        "mask": "none",
        "window": None,
    }


def test_every_record_has_the_keys_that_are_promised(result):
    for r in records(result):
        assert set(r) >= RECORD
        assert {"cycles", "time_us", "clock_mhz", "limiter"} <= set(r["predicted"])
        assert set(r["counts"]) >= COUNTS
        pipes = {"mufu", "fma", "alu", "lsu", "tensor", "total"}
        assert set(r["counts"]["instructions"]) >= pipes
        assert "critical_path" in r["bounds"]["cycles"]
        assert r["bounds"]["greatest"] in r["bounds"]["cycles"]
        assert set(r["occupancy"]["limits"]) == LIMITS
        warps = {"warps_per_sm", "achieved_warps_per_sm"}
        assert {"ctas_per_sm", "shared_at_carveout"} | warps <= set(r["occupancy"])
        assert set(r["utilization"]) == UNITS
        assert set(r["stalls"]) == STALLS
    assert "tflops" in result["predicted"]


def test_numbers_are_finite_and_shares_are_shares(result):
    assert all(math.isfinite(x) for x in numbers(result))
    for r in records(result):
        assert all(0 <= x <= 1 + 1e-9 for x in (*r["utilization"].values(), *r["stalls"].values()))
        assert sum(r["stalls"].values()) <= 1 + 1e-9
        assert max(r["bounds"]["cycles"].values()) <= r["predicted"]["cycles"] * (1 + 1e-9)
        integers = {k: v for k, v in r["counts"].items() if k != "instructions"}
        assert all(isinstance(v, int) and v >= 0 for v in integers.values())


def test_the_top_level_sums_the_launches(result):
    launches = result["launches"]
    cycles = [r["predicted"]["cycles"] for r in launches]
    assert result["predicted"]["cycles"] == pytest.approx(sum(cycles))
    for name in COUNTS - {"instructions"}:
        assert result["counts"][name] == sum(r["counts"][name] for r in launches)
    assert result["occupancy"] == launches[cycles.index(max(cycles))]["occupancy"]


def test_it_is_json_and_the_same_bytes_again(result):
    name = result["schedule"]["name"]
    text = json.dumps(result, allow_nan=False)
    assert json.loads(text) == result
    assert json.dumps(simgpu.run(name, SMALL, "h200").to_dict(), allow_nan=False) == text


def test_time_is_cycles_over_the_clock_and_flops_are_the_conventional_ones():
    run = simgpu.run("fa2", SMALL, "h200", clock_mhz=1000)
    assert run.clock_mhz == 1000
    assert run.time_us == pytest.approx(run.cycles / 1000)
    flops = 4 * 512 * 512 * 64 * 4
    assert run.to_dict()["predicted"]["tflops"] == pytest.approx(flops / run.time_us * 1e-6)


def test_the_sustained_clock_is_the_profiles():
    run = simgpu.run("fa2", SMALL, "h200", clock="sustained")
    assert run.clock_mhz == load_profile("h200").device.sustained_mhz


def test_resources_take_the_place_of_estimates():
    resources = {"registers": 138, "shared_bytes": 131072}
    launch = simgpu.run("fa2", SMALL, "h200", resources=resources).launches[0]
    assert (launch.registers, launch.registers_estimated) == (138, False)
    assert launch.shared_bytes == 131072
    assert simgpu.run("fa2", SMALL, "h200", mix="analytic").launches[0].registers_estimated


def test_each_launch_may_have_resources_of_its_own():
    found = [{"registers": n, "spills": 0} for n in (93, 64, 168)]
    run = simgpu.run("standard", SMALL, "h200", resources=found)
    assert [x.registers for x in run.launches] == [93, 64, 168]
    assert not any(x.registers_estimated for x in run.launches)
    assert run.to_dict()["provenance"]["resources"] == found
    for_all = simgpu.run("standard", SMALL, "h200", resources={"registers": 100})
    assert [x.registers for x in for_all.launches] == [100, 100, 100]
    assert for_all.to_dict()["provenance"]["resources"] == {"registers": 100}


def test_a_resource_is_said_to_be_given_where_all_launches_have_it():
    given = {"registers": 200, "spills": 60}
    told, partly = (
        str(simgpu.run("standard", SMALL, "h200", resources=[given, given, last]))
        for last in (given, {"registers": 200})
    )
    assert "60 registers spill" in told
    assert "60 registers spill (estimated)" not in told
    assert "60 registers spill (estimated)" in partly


def test_resources_for_another_number_of_launches_are_refused():
    with pytest.raises(
        ScheduleError, match="given for 2 launches; standard has 3: qk, softmax, pv"
    ):
        simgpu.run("standard", SMALL, "h200", resources=[{}, {}])


def test_eager_launches_take_at_least_the_hosts_time():
    params = {"mask": "pass", "copies": True, "eager": True}
    run = simgpu.run("standard", SMALL, "h200", params=params, clock="sustained")
    assert [x.name for x in run.launches] == [
        *("copy_q", "copy_k", "qk", "mask", "softmax", "copy_v", "pv")
    ]
    host = load_profile("h200").costs.eager_launch_us
    assert host is not None
    assert run.time_us == pytest.approx(7 * host)
    sooner = simgpu.run("standard", SMALL, "h200", params={**params, "eager": False})
    assert sooner.cycles < run.cycles


def test_parameters_and_objects_give_the_same_run():
    params = {"block_n": "32", "stages": 3}
    named = simgpu.run("fa2", SMALL, "h200", params=params)
    made = simgpu.run(make_schedule("fa2", params), SMALL, load_profile("h200"))
    assert named.to_dict() == made.to_dict()
    assert named.params["block_n"] == 32


def test_causal_does_less_and_exact_is_near():
    full, causal = (
        simgpu.run("fa2", Attention(batch=1, heads_q=4, seq_q=512, head_dim=64, causal=c), "h200")
        for c in (False, True)
    )
    assert causal.launches[0].work.flops_tensor < full.launches[0].work.flops_tensor
    exact = simgpu.run("fa2", SMALL, "h200", exact=True)
    assert exact.to_dict()["provenance"]["mode"] == "exact"
    assert exact.cycles == pytest.approx(simgpu.run("fa2", SMALL, "h200").cycles, rel=0.05)


REFUSED = [
    (ScheduleError, {"params": {"block_m": 100}}, "block_m is 100: it must be a positive multiple"),
    (
        ScheduleError,
        {"params": {"blok_m": 64}},
        "has no parameter 'blok_m'; did you mean 'block_m'",
    ),
    (ScheduleError, {"params": {"stages": "two"}}, "stages='two': it must be a number"),
    (VerifyError, {"params": {"block_n": 256, "stages": 8}}, "does not fit in shared memory"),
    (ScheduleError, {"resources": {"registers": 300}}, "a thread wants 300 registers"),
    (ScheduleError, {"resources": {"register": 3}}, "unknown resource 'register'; did you mean"),
]


@pytest.mark.parametrize(("kind", "options", "text"), REFUSED, ids=[r[2] for r in REFUSED])
def test_what_cannot_be_is_refused_in_one_line(kind, options, text):
    with pytest.raises(kind) as caught:
        simgpu.run("fa2", SMALL, "h200", **options)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schedule", "gpu", "text"),
    [("fa22", "h200", "unknown schedule 'fa22'; did you mean"), ("fa2", "h20", "did you mean")],
)
def test_unknown_names_say_what_is_near(schedule, gpu, text):
    with pytest.raises(SimgpuError, match="did you mean") as caught:
        simgpu.run(schedule, SMALL, gpu)
    assert text in str(caught.value)


def test_bad_problems_are_refused():
    with pytest.raises(ProblemError, match="heads_q 4 is not divisible by heads_kv 3"):
        Attention(batch=1, heads_q=4, heads_kv=3, seq_q=8, head_dim=16)
    with pytest.raises(ProblemError, match="seq_q is 0: it must be a whole number of at least 1"):
        Attention(batch=1, heads_q=4, seq_q=0, head_dim=16)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_without_a_tensor_rate_only_simulation_is_refused(dtype):
    gpu = load_profile("h200").with_changes({"rates.tensor_flops_fp64": None})
    p = Attention(batch=1, heads_q=1, seq_q=64, head_dim=16, dtype=dtype)
    params = {"block_m": 32, "block_n": 16}
    with pytest.raises(UnsupportedError) as caught:
        simgpu.run("fa2", p, gpu, params=params)
    assert f"has no tensor rate for {dtype}" in str(caught.value)
    assert "\n" not in str(caught.value)
    recording = record(make_schedule("fa2", params), p)
    assert count(recording).flops_tensor > 0
    assert run_numeric(recording, random_inputs(p))["O"].shape == (1, 1, 64, 16)
