"""The site of the documentation: built as `make docs` builds it, then opened in a browser at two widths."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytestmark = [pytest.mark.launchers, pytest.mark.one_python]

ROOT = Path(__file__).parent.parent
PAGES = [f"docs/{name}.html" for name in ("index", "start", "modelarts", "known-errors", "variables", "adr/index")]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site, check its links, and serve it on this machine."""
    pytest.importorskip("sphinx")
    site = tmp_path_factory.mktemp("site")
    built = subprocess.run(["make", "docs", f"SITE={site}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=os.fspath(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on PATH")
    with sync_api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-background-networking"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [1300, 400])
def test_pages_fit_and_say_nothing_to_the_console(address: str, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name in PAGES:
        page.goto(f"{address}/{name}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.locator("h1").is_visible()
        sidebar = page.locator(".sidebar-tree").first
        assert sidebar.is_visible() == (width == 1300) or page.evaluate("document.querySelector('.sidebar-drawer').offsetLeft < 0")
    assert errors == []
    page.close()


def test_the_address_of_the_site_is_its_first_page(address: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"{address}/")
    page.wait_for_url("**/docs/index.html")
    page.close()


def test_search_finds_a_page(address: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"{address}/search.html?q=RANKLAUNCH_LOST_AFTER_S")
    page.locator("#search-results li a").first.wait_for()
    assert any("Muster" in each for each in page.locator("#search-results li a").all_inner_texts())
    page.close()


@pytest.mark.parametrize(("code", "entry"), [("EI0002", "hccl-notify-timeout-ei0002"), ("207018", "npu-out-of-memory")])
def test_a_code_is_found_among_the_known_errors(address: str, browser: Any, code: str, entry: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/docs/known-errors.html")
    rows = page.locator("#known-errors table tbody tr:visible")
    all_rows = rows.count()
    page.locator(".filter input").fill(code)
    names = page.locator("#known-errors table tbody tr:visible td:first-child").all_inner_texts()
    assert entry in names
    assert len(names) < 10 < all_rows
    page.locator(".filter input").fill("")
    assert rows.count() == all_rows
    page.close()


@pytest.mark.parametrize(
    ("code", "page", "text"),
    [("507054", "known-errors", "npu-memory-ecc-error"), ("76", "exit-codes", "restarts in place made no progress")],
)
def test_a_search_for_digits_leads_to_the_table_of_codes(address: str, browser: Any, code: str, page: str, text: str) -> None:
    """Sphinx itself finds no page: it drops words of digits."""
    tab = browser.new_page()
    tab.goto(f"{address}/docs/index.html")
    field = tab.locator("input[name=q]").first
    field.fill(code)
    field.press("Enter")
    tab.wait_for_url(f"**/docs/{page}.html*")
    tab.locator("td:visible", has_text=text).first.wait_for()
    tab.close()


def test_the_workflow_builds_the_site_as_make_does() -> None:
    assert "- run: make docs\n" in (ROOT / ".github" / "workflows" / "pages.yml").read_text()
