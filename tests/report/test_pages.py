"""Pages in a browser: each at two widths, in light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reports

from ranklaunch.report import assembly
from ranklaunch.report.formats import html

pytestmark = [pytest.mark.launchers, pytest.mark.processes, pytest.mark.one_python]

WIDTHS = {"wide": (1400, "light"), "narrow": (400, "dark")}
# Whether what has the focus can be seen to have it, and is on the page.
FOCUSED = """() => {
  const seen = document.activeElement, shown = seen.labels?.[0] ?? seen, style = getComputedStyle(shown);
  const marked = style.outlineStyle != 'none' && parseFloat(style.outlineWidth) > 0;
  return [seen.tagName, seen.getAttribute('aria-label') ?? shown.innerText, marked];
}"""
REACHABLE = (
    "() => [...document.querySelectorAll('a[href], summary, [tabindex], input:checked')].filter(each => each.checkVisibility()).length"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on PATH")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=path, args=["--no-sandbox"])  # which as root it needs
        yield found
        found.close()


@pytest.fixture(scope="module")
def axe() -> Any:
    """Judges contrast, names, roles and the order of headings."""
    return pytest.importorskip("axe_playwright_python.sync_playwright").Axe()


@pytest.mark.parametrize("name", [*reports.JOBS, "large"])
def test_pages_are_whole_and_can_be_used(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any, axe: Any) -> None:
    report = reports.large(64, 8) if name == "large" else assembly.report(str(reports.made(name, tmp_path, monkeypatch)))
    file = tmp_path / "report.html"
    file.write_text(html.shown(report), encoding="utf-8")
    for width, scheme in WIDTHS.values():
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        told: list[str] = []
        page.on("console", lambda message, told=told: told.append(message.text))
        page.on("pageerror", lambda error, told=told: told.append(str(error)))
        page.on("request", lambda request, told=told: told.append(request.url))
        page.goto(file.as_uri())
        assert told == [file.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        text = " ".join(page.inner_text("body").split())
        assert [words for words in reports.SAID.get(name, ()) if words not in text and not _folded(page, words)] == []
        found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]})
        assert found.violations_count == 0, found.generate_report()
        _is_used_by_keys(page)
        page.close()


def _folded(page: Any, words: str) -> bool:
    """In what is shown when it is asked for."""
    return any(words in " ".join(each.split()) for each in page.locator("details, title").all_text_contents())


def _is_used_by_keys(page: Any) -> None:
    """All that can be operated comes by Tab, each with a mark; the zoom widens the line of time, and what is folded opens."""
    seen = []
    for _ in range(page.evaluate(REACHABLE)):
        page.keyboard.press("Tab")
        seen.append(tuple(page.evaluate(FOCUSED)))
    assert len(seen) >= 5
    assert [each for each in seen if not each[2]] == []
    assert ("DIV", "Time line; scrolls sideways", True) in seen
    assert [name for name, _, _ in seen].count("INPUT") == 1
    before = page.evaluate("document.querySelector('.scroll').scrollWidth")
    page.locator("#z1").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.querySelector('.scroll').scrollWidth") > 3 * before
    assert page.evaluate("document.querySelector('.scroll').scrollLeft") > 0
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details").first.get_attribute("open") is not None


def test_on_paper_nothing_is_cut_off(tmp_path: Path, browser: Any) -> None:
    file = tmp_path / "report.html"
    file.write_text(html.shown(reports.large(3, 8)), encoding="utf-8")
    page = browser.new_page(color_scheme="dark")
    page.goto(file.as_uri())
    page.locator("#z16").check(force=True)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.outcome')).color") == "rgb(173, 31, 26)"  # dark enough for white
    assert page.evaluate("document.querySelector('.scroll').scrollWidth <= document.querySelector('.scroll').clientWidth")
    assert not page.locator(".zoom > label").first.is_visible()
    page.close()
