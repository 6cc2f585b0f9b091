"""The page of a run in a browser."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.hardware.load import load_profile
from simgpu.report.html import run_page
from simgpu.report.lanes import first_ctas
from simgpu.report.roofline import others

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    profile = load_profile("h100")
    problem = simgpu.Attention(batch=1, heads_q=8, seq_q=1024, head_dim=128)
    run = simgpu.run("fa3", problem, profile)
    found = tmp_path_factory.mktemp("page") / "run.html"
    drawn = first_ctas("fa3", run, profile)
    found.write_text(run_page(run, profile, *others(run, profile), *drawn), encoding="utf-8")
    return found


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (375, "light")])
def test_it_loads_without_a_word_and_fits_its_window(visit, path, width, scheme):
    with visit(path, width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        names = page.locator("#roofline text").all_text_contents()
        assert {"fa1", "fa2", "fa3", "standard"} <= {name.split()[0] for name in names}


def test_the_theme_changes_by_keyboard_and_pictures_follow(visit, path):
    with visit(path) as page:
        before = page.locator("#roofline circle").first.get_attribute("fill")
        page.locator("#theme").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.locator("#roofline circle").first.get_attribute("fill") != before


def test_what_can_be_operated_has_a_name_and_takes_the_focus(visit, path):
    with visit(path) as page:
        for each in page.locator("button, a, summary, [tabindex='0']").all():
            name = each.get_attribute("aria-label") or each.text_content()
            assert name.strip()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        summary = page.locator("#light summary")
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("#light table.plain").is_visible()


def shown(page):
    return [float(page.locator("#sm").get_attribute(f"data-{end}")) for end in ("from", "to")]


def test_the_timeline_zooms_and_moves_by_keys_wheel_and_mouse(visit, path):
    with visit(path) as page:
        start, end = shown(page)
        page.locator("#sm").focus()
        page.keyboard.press("+")
        near = shown(page)
        assert near[1] - near[0] == pytest.approx((end - start) / 2)
        page.keyboard.press("ArrowRight")
        assert shown(page)[0] > near[0]
        page.keyboard.press("0")
        assert shown(page) == pytest.approx([start, end])
        box = page.locator("#sm canvas").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
        page.mouse.wheel(0, -300)
        page.wait_for_function("document.querySelector('#sm').dataset.to < " + str(end - 1))
        inside = shown(page)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2 - 100, box["y"] + 40)
        page.mouse.up()
        assert shown(page)[0] > inside[0]
        page.get_by_role("button", name="Zoom out").click()
        after = shown(page)
        assert after[1] - after[0] > inside[1] - inside[0]


def test_a_span_is_chosen_by_key_and_said_with_what_released_it(visit, path):
    with visit(path) as page:
        page.locator("#sm").focus()
        page.keyboard.press("ArrowDown")
        said = set()
        for _ in range(40):
            page.keyboard.press("n")
            said.add(page.locator("#sm-said").text_content())
        assert len(said) > 30
        assert any("waits for a product" in s and "released by CTA 0 products" in s for s in said)
        assert all(s.startswith("CTA 0 consumer0 ") for s in said)
