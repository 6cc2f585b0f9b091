"""The page of a comparison in a browser."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.report.compare_page import compare_page
from simgpu.report.comparison import compare

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
@pytest.mark.parametrize("gpus", [["h100"], ["a100", "h100"]])
def test_it_loads_without_a_word_and_fits_its_window(visit, tmp_path, gpus, width, scheme):
    problem = simgpu.Attention(batch=1, heads_q=8, seq_q=512, head_dim=128)
    path = tmp_path / f"compare{len(gpus)}.html"
    path.write_text(compare_page(compare(["fa2", "fa3"], problem, gpus)), encoding="utf-8")
    with visit(path, width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("#roofline svg").count() == (len(gpus) == 1)
        assert page.locator("#why li").first.is_visible()
        assert page.locator("#why article").count() == 2 * len(gpus)
