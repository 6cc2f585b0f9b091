"""What FA3's host code decides: how many programs, and which heads come together."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from simgpu.kernels import fa3
from simgpu.kernels.common import Shape

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
