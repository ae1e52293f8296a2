"""The page in a browser: nothing wrong, plots, and no sideways scrolling on a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.verdict.contents import contents
from slipstream.verdict.html import html
from tests.verdict.test_reports import QUESTIONS, all_failed, whole

CHROMIUM = Path("/usr/bin/chromium")
# It must reach nothing, and asks for nothing.
ARGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs {CHROMIUM}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGS.split())
        yield browser
        browser.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_a_report_on_a_screen(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(contents(whole(), QUESTIONS)))
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.evaluate(
        "[...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect())"
    )
    assert len(boxes) == 6
    assert all(300 <= box["width"] <= width and box["height"] > 150 for box in boxes)
    # Text of a plot is legible: at least 10 pixels high.
    sizes = page.evaluate(
        "[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 10
    # Nothing but the wide tables leaves the page, and those scroll by themselves.
    out = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,p,li,pre,figure')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert out == 0
    assert not said
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


def test_a_report_on_paper(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(contents(whole(), QUESTIONS)))
    page = browser.new_page(viewport={"width": 680, "height": 1000}, color_scheme="dark")
    page.emulate_media(media="print")
    page.goto(path.as_uri())
    # Black on white, also where the screen is dark; whole tables, since paper cannot scroll.
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 680
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()


def test_a_report_of_failures_alone(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(contents(all_failed(), QUESTIONS)))
    page = browser.new_page()
    page.goto(path.as_uri())
    assert "never became ready" in page.inner_text("ul.warning")
    page.close()
