"""What FA3's host code decides: how many programs, and which heads come together."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from simgpu.algorithms.fa3 import FlashAttention3
from simgpu.algorithms.tiles import heads_together
from simgpu.kernels import fa3, fa3_tiles
from simgpu.kernels.common import Shape
from simgpu.problem import Attention
from simgpu.program.ops import Copy
from simgpu.program.program import walk
from simgpu.program.record import record

pytestmark = pytest.mark.kernels


def test_the_driver_is_asked_once_for_its_number_of_sms(monkeypatch):
    asked = []

    def properties(device):
        asked.append(device)
        return {"multiprocessor_count": 132}

    active = SimpleNamespace(utils=SimpleNamespace(get_device_properties=properties))
    monkeypatch.setattr(fa3.triton.runtime, "driver", SimpleNamespace(active=active))
    fa3._sms.cache_clear()
    try:
        assert [fa3._sms(7), fa3._sms(7)] == [132, 132]
    finally:
        fa3._sms.cache_clear()
    assert asked == [7]


@pytest.mark.parametrize(
    ("batch", "heads_q", "heads_kv", "seq_kv", "head_dim", "heads"),
    [
        (4, 16, 16, 4096, 128, 16),  # 2 MiB a K/V head, 32 MiB together
        (1, 64, 64, 5000, 128, 8),  # 13 fit: a power of two
        (2, 32, 8, 4096, 128, 64),  # 16 K/V heads, each of 4 query heads
        (1, 4, 4, 512, 64, 4),  # all there are
        (1, 4, 2, 2**20, 128, 2),  # not one fits
    ],
)
def test_heads_together_have_their_keys_and_values_in_l2(
    batch, heads_q, heads_kv, seq_kv, head_dim, heads
):
    shape = Shape(
        batch=batch,
        heads_q=heads_q,
        heads_kv=heads_kv,
        seq_q=1024,
        seq_kv=seq_kv,
        head_dim=head_dim,
    )
    assert fa3._together(shape) == heads


def plain(function, **names):
    """A Gluon function as Python, on whole numbers."""
    return FunctionType(function.fn.__code__, names)


def tile_at(index, problem, shape, *, longest):
    """What the kernel makes of tile number ``index``: its head, its first row, its key blocks."""
    gl = SimpleNamespace(cdiv=lambda a, b: -(-a // b), minimum=min, maximum=max)
    heads = problem.batch * problem.heads_q
    sizes = (problem.seq_q, problem.seq_kv, heads, fa3._together(shape), 128, 64)
    return plain(fa3_tiles.tile_at, gl=gl)(index, *sizes, problem.causal, longest)[:3]


@pytest.mark.parametrize(
    "problem",
    [
        Attention(batch=2, heads_q=3, seq_q=700, head_dim=128),
        Attention(batch=2, heads_q=3, seq_q=700, head_dim=128, causal=True),
        Attention(batch=3, heads_q=16, heads_kv=8, seq_q=5000, head_dim=128, causal=True),
        Attention(batch=1, heads_q=2, seq_q=300, seq_kv=900, head_dim=64, causal=True),
    ],
)
@pytest.mark.parametrize("order", ["longest_first", "first_to_last"])
@pytest.mark.parametrize("persistent", [True, False])
def test_the_schedule_takes_tiles_in_the_kernel_s_order(problem, order, persistent):
    shape = Shape(
        **{n: getattr(problem, n) for n in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv")},
        head_dim=problem.head_dim,
    )
    schedule = FlashAttention3(
        block_m=128, block_n=64, order=order, persistent=persistent, o_in="own"
    )
    (launch,) = record(schedule, problem).launches
    assert heads_together(problem) == fa3._together(shape)
    assert (launch.grid.persistent == "dynamic") == (persistent and problem.causal)
    expected = []
    for c, at in zip(launch.in_order(), launch.grid.coordinates(), strict=True):
        program, env = launch.classes[c].program, dict(at)
        copies = [
            (op.src.tensor.name, op.src.row.at(env))
            for op in walk(program.roles[0].body, env)
            if isinstance(op, Copy)
        ]
        (first, *_), keys = ([row for name, row in copies if name == x] for x in ("Q", "K"))
        assert keys == sorted(keys, reverse=True)
        expected.append((at["batch"] * problem.heads_q + at["head"], first, len(keys)))
    longest = problem.causal and order == "longest_first"
    found = [tile_at(i, problem, shape, longest=longest) for i in range(len(expected))]
    assert found == expected
