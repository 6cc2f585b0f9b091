"""The explaining page in a browser: it steps by keyboard, and its sliders move numbers."""

from __future__ import annotations

import pytest

from simgpu.report.explain_page import explain_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("page") / "explain.html"
    found.write_text(explain_page(lengths=(512, 1024), gpus=("a100", "h100")), encoding="utf-8")
    return found


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (375, "light")])
def test_it_fits_its_window(visit, path, width, scheme):
    with visit(path, width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_stepper_goes_by_keyboard_to_the_exact_answer(visit, path):
    with visit(path) as page:
        page.locator("#steps").focus()
        said = [page.locator("#doing").text_content()]
        for _ in range(12):
            page.keyboard.press("ArrowRight")
            said.append(page.locator("#doing").text_content())
        assert len(set(said)) == 13
        assert "α" in " ".join(said)
        assert page.locator("#sram span.free").count() >= 1
        page.keyboard.press("ArrowLeft")
        assert page.locator("#doing").text_content() == said[-2]
        page.keyboard.press("End")
        assert float(page.locator("#error").text_content().split()[1]) < 1e-6
        assert page.locator("#history tr.later").count() == 0
        page.keyboard.press("Home")
        assert page.locator("#history tr.later").count() == 8
        page.get_by_role("button", name="Next tile").click()
        assert page.locator("#history tr.later").count() == 7


def test_sliders_move_numbers(visit, path):
    with visit(path) as page:
        for name in ("s-n", "s-d", "s-tile"):
            before = page.locator("#bytes").text_content()
            page.locator(f"#{name}").focus()
            page.keyboard.press("ArrowLeft")
            assert page.locator("#bytes").text_content() != before
        page.locator("#s-gpu").focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator("#s-gpu + output").text_content() == "a100"


def test_loop_orders_and_ping_pong_move(visit, path):
    with visit(path) as page:
        page.locator("#s-order").focus()
        page.keyboard.press("Home")
        for _ in range(2):
            page.keyboard.press("ArrowRight")
        lit = [page.locator(f"#orders > div:nth-child({n}) i").all() for n in (1, 2)]
        filled = [[i for i, c in enumerate(cells) if c.text_content()] for cells in lit]
        assert filled == [[0, 4], [0, 1]]
        before = page.locator("#on").get_attribute("data-from")
        page.locator("#play").click()
        page.wait_for_function(f"document.querySelector('#on').dataset.from != {before!r}")
        page.locator("#play").click()
        assert page.locator("#play").text_content() == "Play"
