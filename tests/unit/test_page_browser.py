"""The page in headless Chromium: widths, themes, keyboard, sorting and filtering, and the time to the first view."""

import copy
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.harness.page import result_page
from ptxmotion.harness.results import read, settle

RESULTS = Path(__file__).parents[1] / "results" / "suites_full_h200.json"
PROGRAMS = 60

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'ptxmotion[browser]'")
    found = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
    with api.sync_playwright() as playwright:
        path = found or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("needs Chromium: install it, or `playwright install chromium`")
        # The sandbox of Chromium does not run as root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 60 programs."""
    pytest.importorskip("matplotlib")
    result = read(RESULTS)
    first = [each for each in result.benchmarks if each.candidates]
    result.benchmarks = []
    for number in range(PROGRAMS):
        each = copy.deepcopy(first[number % len(first)])
        each.fullname = f"{each.fullname}-{number}"
        result.benchmarks.append(each)
    settle(result)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(result_page(result), encoding="utf-8")
    return path


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_it_fits_every_width_in_both_themes_without_errors(
    browser: Any, page_file: Path, width: int, theme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    problems: list[str] = []

    def on_request(request: Any) -> None:
        if not request.url.startswith("file:"):
            problems.append(request.url)

    def on_message(message: Any) -> None:
        problems.append(str(getattr(message, "text", message)))

    page.on("console", on_message)
    page.on("pageerror", on_message)
    page.on("request", on_request)
    page.goto(page_file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (theme == "light")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The text of plots has the colour of the page.
    text, plot = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.querySelector('.plot text')).fill]"
    )
    assert text == plot
    assert problems == []
    if folder := os.environ.get("PTXMOTION_SCREENSHOTS"):
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = false")
        page.locator("details").first.evaluate("each => each.open = true")
        page.screenshot(path=Path(folder) / f"{theme}-{width}.png", full_page=False)
        page.locator("details").first.evaluate("each => each.scrollIntoView()")
        page.wait_for_timeout(500)  # a part is drawn when it comes into view
        page.screenshot(path=Path(folder) / f"{theme}-{width}-program.png", full_page=False)
    context.close()


def test_the_first_view_takes_less_than_a_second(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    # The policy of the page forbids `eval`, which `wait_for_function` uses.
    paint = page.evaluate(
        """new Promise((done) => new PerformanceObserver((list) => {
             for (const each of list.getEntriesByName("first-contentful-paint")) done(each.startTime);
           }).observe({ type: "paint", buffered: true }))"""
    )
    assert paint <= 1000, f"{paint:.0f} ms"
    page.close()


def test_it_sorts_and_filters_and_opens_programs(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    rows = page.locator("#results tbody tr")
    every = rows.count()
    assert page.locator("#shown").inner_text() == f"{every} of {every} rows"

    def speedups() -> list[float]:
        keys = page.eval_on_selector_all("#results tbody td[data-key]", "all => all.map(x => x.dataset.key)")
        return [float(key) for key in keys if key]

    for direction in ("ascending", "descending"):
        page.get_by_role("button", name="speedup").focus()
        page.keyboard.press("Enter")
        assert page.locator("#results th").nth(3).get_attribute("aria-sort") == direction
        assert speedups() == sorted(speedups(), reverse=direction == "descending")
    page.locator("#filter").fill("-7")
    shown = [row for row in rows.all() if row.is_visible()]
    assert 0 < len(shown) < every and all("-7" in row.inner_text() for row in shown)
    page.locator("#filter").fill("")
    verdict = rows.first.get_attribute("data-verdict")
    page.locator("#verdict").select_option(verdict)
    assert all(row.get_attribute("data-verdict") == verdict for row in rows.all() if row.is_visible())
    page.locator("a[data-verdict=FASTER]").click()
    visible = [row for row in rows.all() if row.is_visible()]
    assert visible and all(row.get_attribute("data-verdict") == "FASTER" for row in visible)
    assert page.locator("#verdict").input_value() == "FASTER"
    link = page.locator("#results tbody tr:not([hidden]) a").first
    target = str(link.get_attribute("href"))[1:]
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(100)
    assert page.evaluate("id => document.getElementById(id).open", target)
    page.close()


def test_the_theme_button_works_by_keyboard_and_is_remembered(browser: Any, page_file: Path) -> None:
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.locator("#theme").focus()
    page.keyboard.press("Space")
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) != "rgb(255, 255, 255)"
    page.reload()
    assert page.evaluate(colour) != "rgb(255, 255, 255)"
    context.close()


def test_it_can_be_read_without_javascript(browser: Any, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("#results tbody tr").first.is_visible()
    assert not page.locator(".controls").is_visible() and not page.locator("#theme").is_visible()
    context.close()
