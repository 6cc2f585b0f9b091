"""The compiler's counts laid over a recorded launch. Needs no Triton."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from importlib import metadata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import simgpu
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.cli import app
from simgpu.compiled import adjust as adjust_module
from simgpu.compiled.adjust import total_mix, with_compiled_mix
from simgpu.compiled.mix import CompiledMix
from simgpu.compiled.sass import PipeCounts
from simgpu.cost.instructions import instructions
from simgpu.cost.job import MissRates
from simgpu.cost.jobs import jobs
from simgpu.errors import CompileError, MissingExtraError, UnknownNameError, UnsupportedError
from simgpu.hardware.load import load_profile
from simgpu.hardware.machine import UNITS, Machine
from simgpu.problem import Attention
from simgpu.program.listing import listing
from simgpu.program.mix import Mix
from simgpu.program.ops import Apply, Repeat
from simgpu.program.program import walk
from simgpu.program.record import record, schedule
from simgpu.read.bound import bound
from simgpu.read.traffic import traffic
from simgpu.timing.cache import L2
from simgpu.timing.exact import Device
from simgpu.timing.shorten import shorten
from simgpu.timing.simulate import simulate

H200 = Machine.from_profile(load_profile("h200"))
FULL = Attention(batch=1, heads_q=2, seq_q=1024, head_dim=64)
CAUSAL = Attention(batch=2, heads_q=2, seq_q=1024, head_dim=64, causal=True)
RAGGED = Attention(batch=1, heads_q=2, seq_q=700, head_dim=64)
BLIND = Attention(batch=1, heads_q=2, seq_q=700, seq_kv=300, head_dim=64, causal=True)
PROBLEMS = {"full": FULL, "causal": CAUSAL, "ragged": RAGGED, "rows without keys": BLIND}
MIX = CompiledMix(
    kernel="k",
    source="Triton 3.6.0, sm_90a",
    registers=150,
    spills=3,
    shared_bytes=70_000,
    warps=4,
    prologue=PipeCounts(xu=5, fma=900, alu=1000, lsu=100, uniform=40, other=60),
    full=PipeCounts(xu=300, fma=1500, alu=800, lsu=150, tensor=90, uniform=100, other=150),
    between=PipeCounts(fma=200, alu=150, lsu=70, uniform=10, other=90),
    masked=PipeCounts(xu=310, fma=1700, alu=2000, lsu=150, tensor=90, uniform=100, other=140),
    epilogue=PipeCounts(xu=20, fma=1200, alu=800, lsu=90, uniform=20, other=30),
    full_stats=None,
    masked_stats=None,
)


def launch_of(problem, **params):
    return record(FlashAttention2(**params), problem).launches[0]


def amount(steps, role):
    """The instructions of steps, executed one after the other."""
    total = Mix()
    for op in walk(steps, {}):
        total = total.plus(instructions(op, role, H200))
    return total


def applies(steps):
    for step in steps:
        if isinstance(step, Repeat):
            yield from applies(step.body)
        elif isinstance(step, Apply):
            yield step


def passes_of(problem, cta_class):
    ranges = problem.kv_ranges(cta_class.env["m"], 128, 64)
    return [sum(len(r) for r in ranges if r.masked == masked) for masked in (False, True)]


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_every_pass_and_every_cta_add_up_to_the_compilers_counts(problem, stages):
    launch = launch_of(problem, stages=stages)
    adjusted = with_compiled_mix(launch, MIX, H200)
    for cta_class in adjusted.classes:
        (role,) = cta_class.program.roles
        assert amount(role.body, role) == pytest.approx(
            MIX.executed(*passes_of(problem, cta_class)).to_mix()
        )
        loops = [s for s in role.body if isinstance(s, Repeat) and list(applies(s.body))]
        for loop in loops:
            masked = any(op.mask for op in applies(loop.body))
            wanted = (MIX.masked if masked else MIX.full).to_mix()
            assert amount(loop.body, role) == pytest.approx(wanted)
    executed = PipeCounts()
    for cta_class, weight in zip(launch.classes, launch.weights(), strict=True):
        executed += MIX.executed(*passes_of(problem, cta_class)) * weight
    assert total_mix(adjusted, H200) == pytest.approx(executed.to_mix())
    assert total_mix(launch, H200) != pytest.approx(executed.to_mix())


counts = st.builds(PipeCounts, *(st.integers(0, 2000) for _ in range(7)))
mixes = st.builds(
    replace,
    st.just(MIX),
    **dict.fromkeys(("prologue", "full", "between", "masked", "epilogue"), counts),
)


@settings(max_examples=50)
@given(mix=mixes)
def test_no_unit_is_asked_for_less_than_nothing_and_nothing_is_left_out(mix):
    for cta_class in with_compiled_mix(launch_of(CAUSAL), mix, H200).classes:
        (role,) = cta_class.program.roles
        for op in applies(role.body):
            (job,) = jobs(op, role, {}, H200, "fp16", MissRates()).held
            assert min(job.demand) >= -1e-9
        least = mix.executed(*passes_of(CAUSAL, cta_class)).to_mix()
        for found, wanted in zip(amount(role.body, role), least, strict=True):
            assert found >= wanted - 1e-6


def test_what_was_adjusted_stays_so_when_programs_are_bound_and_cut_short():
    cta_class = with_compiled_mix(launch_of(FULL), MIX, H200).classes[0]
    short = shorten(cta_class.program, cta_class.env)
    assert short.removed
    for program in (cta_class.program, short.program):
        (role,) = program.roles
        found = [op.adjust for op in applies(role.body) if op.adjust]
        assert len(found) == 4  # before, in the steady loop, in its last pass, after
        assert [op.bind({}).adjust for op in applies(role.body) if op.adjust] == found
    assert " adjusted by mufu +" in listing(cta_class.program)


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
def test_conserved_and_bounded_as_ever(exact):
    launch = with_compiled_mix(launch_of(CAUSAL), MIX, H200)
    l2 = L2(H200.profile.memory.l2_effective_bytes)
    made = traffic(launch, CAUSAL, H200, 2, l2)
    time = simulate(launch, "fp16", H200, 2, made.misses, exact=exact)
    for unit, cycles in bound(launch, "fp16", H200, made).items():
        assert time.cycles >= cycles * (1 - 1e-9), unit
    device = Device(launch, "fp16", H200, 2, made.misses)
    device.run()
    for unit, demand in enumerate(made.demand):
        served = math.fsum(sm.units.served[unit] for sm in device.sms)
        assert served == pytest.approx(demand, rel=1e-9), UNITS[unit]


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(adjust_module, "compiled_mixes", lambda *asked, **how: (MIX,))


@pytest.mark.usefixtures("compiler")
def test_a_run_takes_instructions_and_resources_from_the_compiler_and_says_so():
    analytic, compiled = (simgpu.run("fa2", CAUSAL, mix=mix) for mix in ("analytic", "compiled"))
    assert (analytic.mix, compiled.mix) == ("analytic", "compiled")
    (launch,) = compiled.launches
    assert (launch.registers, launch.shared_bytes) == (150, 70_000)
    assert not launch.registers_estimated
    assert compiled.cycles != analytic.cycles
    found, counted = compiled.launches[0].counts(), analytic.launches[0].counts()
    assert found.pop("instructions") != counted.pop("instructions")
    assert found == counted
    told = compiled.provenance
    assert told["mix_source"] == "Triton 3.6.0, sm_90a"
    assert any(line.startswith("fma: analytic ") for line in told["mix_differences"])
    text = str(compiled)
    assert "compiled instruction mix (Triton 3.6.0, sm_90a); 3 registers spill" in text
    assert all(line in text for line in told["mix_differences"])
    assert "analytic instruction mix" in str(analytic)
    assert "mix_source" not in analytic.provenance


@pytest.mark.usefixtures("compiler")
def test_resources_that_are_given_win():
    run = simgpu.run("fa2", FULL, mix="compiled", resources={"registers": 200})
    (launch,) = run.launches
    assert (launch.registers, launch.shared_bytes) == (200, 70_000)
    spilling = simgpu.run("fa2", FULL, mix="compiled", resources={"spills": 90})
    assert spilling.launches[0].spills == 90
    assert spilling.longest.work.local_bytes > 0 == run.longest.work.local_bytes
    assert spilling.cycles > run.cycles


@schedule("fa2")
@dataclass(frozen=True, kw_only=True)
class Mine:
    """A schedule of a user's that took the name of ours."""

    def grid(self, p):
        return FlashAttention2().grid(p)

    def build(self, p, cta):
        FlashAttention2().build(p, cta)


@pytest.mark.parametrize(
    ("what", "gpu", "problem", "error", "text"),
    [
        ("fa1", "h200", FULL, UnsupportedError, "kernel 'fa1' has no compiled mix"),
        ("standard", "h200", FULL, UnsupportedError, "kernel 'qk' has no compiled mix"),
        (Mine(), "h200", FULL, UnsupportedError, "no Triton kernel of Mine to compile"),
        (
            "fa2",
            "h200",
            Attention(batch=1, heads_q=1, seq_q=512, head_dim=64, window=100),
            UnsupportedError,
            "no sliding window",
        ),
        (
            "fa2",
            load_profile("h200").model_copy(update={"compute_capability": "7.5"}),
            FULL,
            CompileError,
            "sm_75; code can be read for sm_80",
        ),
    ],
    ids=["fa1", "standard", "a user's", "window", "old GPU"],
)
def test_what_cannot_be_compiled_is_one_clear_line(what, gpu, problem, error, text):
    with pytest.raises(error) as found:
        simgpu.run(what, problem, gpu, mix="compiled")
    assert text in str(found.value)
    assert "\n" not in str(found.value)


def test_without_triton_the_extra_is_named(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(MissingExtraError, match=r"triton is not installed: pip install "):
        simgpu.run("fa2", FULL, mix="compiled")


def test_an_unknown_mix_and_the_command_line():
    with pytest.raises(UnknownNameError, match="unknown mix 'compild'; did you mean 'compiled'"):
        simgpu.run("fa2", FULL, mix="compild")
    result = CliRunner().invoke(app, ["run", "fa1", "--seqlen", "512", "--mix", "compiled"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: kernel 'fa1' has no compiled mix")
