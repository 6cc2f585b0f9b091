"""A real browser: Debian's chromium, driven headless by Playwright; skipped where there is none."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def asks(url):
    """Whether an address is anything but the page itself and what it carries."""
    return not url.startswith(("file:", "data:"))


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, request):
    """Open a page file; on leaving it, nothing may have been logged, thrown or asked for."""

    @contextmanager
    def opened(path, width=1280, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        page = context.new_page()
        trouble = []
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda r: trouble.append(r.url) if asks(r.url) else None)
        page.goto(Path(path).as_uri())
        yield page
        picture = page.screenshot(full_page=True)
        assert len(picture) > 20_000
        folder = request.config.getoption("--screenshots")
        if folder:
            name = f"{Path(path).stem}-{width}-{scheme}.png"
            Path(folder, name).write_bytes(picture)
        context.close()
        assert trouble == []

    return opened
