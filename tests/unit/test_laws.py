"""The laws as a library: what is wrong is found, said, and said where."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from simgpu import laws
from simgpu.algorithms.fa2 import FlashAttention2
from simgpu.algorithms.rows import SoftmaxRows
from simgpu.errors import ScheduleError
from simgpu.hardware.load import load_profile
from simgpu.problem import Attention
from simgpu.program.program import Grid
from simgpu.program.record import record, schedule
from simgpu.schedules import make_schedule

H200 = load_profile("h200")
P = Attention(batch=1, heads_q=2, seq_q=70, seq_kv=100, head_dim=16, causal=True)


@schedule("small")
@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """FlashAttention-2 with no overlap, and one thing wrong."""

    fault: str = ""
    block: int = 32

    def grid(self, p):
        if self.fault == "refuses" or (self.fault == "no causal" and p.causal):
            raise ScheduleError("this schedule has no causal mask")
        return Grid(m=p.q_tiles(self.block), head=p.heads_q, batch=p.batch)

    def build(self, p, cta):
        b, d = self.block, p.head_dim
        q, k, v = (cta.smem(name, (b, d), p.dtype) for name in "qkv")
        rows = SoftmaxRows(cta, p, b, b, d)
        with cta.role("all", warps=2) as w:
            w.copy(p.q.tile(cta.m, b), q)
            rows.begin(w)
            for blocks in p.kv_ranges(cta.m, b, b):
                for i in w.repeat(len(blocks)):
                    j = i + blocks.start
                    w.wait_mma()
                    if self.fault != "no K":
                        w.copy(p.k.tile(j, b), k)
                    w.copy(p.v.tile(0 if self.fault == "first V" else j, b), v)
                    w.mma(rows.s, q, k.T, accumulate=False)
                    w.wait_mma()
                    masked = blocks.masked and self.fault != "no mask"
                    rows.maximum(w, p.tile_mask(cta.m, b, j, b) if masked else None)
                    rows.softmax(w)
                    w.mma(rows.o, rows.p, v)
            w.wait_mma()
            w.copy(rows.end(w), p.o.tile(cta.m, b))
            if self.fault != "no LSE":
                w.copy(rows.m if self.fault == "wrong LSE" else rows.l, p.lse.tile(cta.m, b))


def test_a_lawful_schedule_passes_every_law():
    found = list(laws.check(Small(), H200, [P]))
    assert [v.law for v in found] == ["verified", "exact", "exact", "conserved", "bounded"]
    assert {v.status for v in found} == {"pass"}
    assert "error " in found[1].detail


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("no K", "NaN, something was read before it was written"),
        ("first V", "first at batch 0, head 0, row 32"),
        ("no mask", "first at batch 0, head 0, row 0"),
        ("wrong LSE", "LSE is off by"),
    ],
)
@pytest.mark.parametrize("dtype", ["fp64", "fp16"])
def test_wrong_numbers_are_found_and_placed(fault, text, dtype):
    if (fault, dtype) == ("wrong LSE", "fp16"):
        pytest.skip("LSE is compared in fp64, where there is no rounding")
    p = Attention(batch=1, heads_q=2, seq_q=100, head_dim=16, causal=True)
    verdict = laws.exact(Small(fault=fault), p, dtype)
    assert verdict.status == "FAIL"
    assert verdict.problem.endswith(dtype)
    assert verdict.detail.startswith("program order: ")
    assert text in verdict.detail


def test_a_schedule_without_lse_is_still_checked():
    assert laws.exact(Small(fault="no LSE"), P, "fp64").status == "pass"


def test_what_does_not_fit_is_said_with_the_bytes():
    big = FlashAttention2(block_m=256, block_n=256, stages=3)
    p = Attention(batch=1, heads_q=1, seq_q=256, head_dim=128)
    verdict = laws.verified(record(big, p), H200)
    assert verdict.status == "FAIL"
    assert "does not fit in shared memory: " in verdict.detail
    assert verdict.detail.startswith("fa2 at {'m': 0}: ")


def test_some_problems_may_be_refused_but_not_all():
    full = Attention(batch=1, heads_q=1, seq_q=64, head_dim=16)
    found = list(laws.check(Small(fault="no causal"), H200, [P, full]))
    assert [v.status for v in found] == ["refused", *["pass"] * 5]
    assert found[0].detail == "this schedule has no causal mask"
    found = list(laws.check(Small(fault="refuses"), H200, [P, full]))
    assert [v.status for v in found] == ["refused", "refused", "FAIL"]


def test_stored_scores_are_compared_with_unfused_attention():
    p = Attention(batch=1, heads_q=2, seq_q=128, head_dim=32)
    fused, unfused = (laws.exact(make_schedule(n), p, "fp16") for n in ("fa2", "standard"))
    assert (fused.status, unfused.status) == ("pass", "pass")
    allowed = [float(v.detail.rpartition(" ")[2]) for v in (fused, unfused)]
    assert allowed[1] > allowed[0]


def test_a_dtype_without_a_rate_is_refused_by_the_timed_laws_alone():
    p = Attention(batch=1, heads_q=1, seq_q=64, head_dim=16, dtype="fp32")
    (verdict,) = laws.timed(record(Small(), p), H200)
    assert verdict.status == "refused"
    assert "no tensor rate for fp32" in verdict.detail
