"""The page for people: it says what there is to say, loads nothing, and whatever a log has brought in is text."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import reports

from ranklaunch.report import assembly
from ranklaunch.report.formats import html
from ranklaunch.report.formats.page import axis, markup

VOID = {"meta", "link", "input"}
ELEMENTS = VOID | {
    "html", "head", "title", "style", "script", "body", "main", "header", "footer", "section", "div", "p", "a", "h1", "h2", "h3", "b", "em",
    "code", "pre", "small", "span", "dl", "dt", "dd", "ul", "li", "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td",
    "details", "summary", "label", "svg", "g", "defs", "pattern", "rect", "path", "polyline", "text",
}  # fmt: skip
EVIL = "</script></style></title></pre><script>alert(1)</script><img src=//x onerror=alert(1)>\"'>&amp;\x1b[2J\u202e\x00\ud800\u2028"


class Page(HTMLParser):
    """Its elements with their attributes, and its text. Raises AssertionError where elements do not end as they began."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.mark.parametrize("name", reports.JOBS)
def test_a_page_says_what_there_is_to_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(html.shown(assembly.report(str(reports.made(name, tmp_path, monkeypatch)))))
    assert [words for words in reports.SAID[name] if words not in page.text] == []


def test_nothing_is_loaded_and_no_other_style_or_script_is_used() -> None:
    text = html.shown(reports.large(3, 4, line=EVIL))
    page = Page(text)
    assert {name for name, _ in page.elements} <= ELEMENTS
    assert [name for name, _ in page.elements].count("script") == 1
    keys = {key for _, attributes in page.elements for key in attributes}
    assert not {key for key in keys if key.startswith("on")} | keys & {"src", "srcset", "style", "action", "ping", "xlink:href"}
    assert {attributes["href"] for _, attributes in page.elements if "href" in attributes} == {"#line", "data:,"}
    policy = next(each["content"] or "" for name, each in page.elements if each.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    for kind in ("style", "script"):
        (own,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}'" in policy


def test_what_a_log_has_brought_in_is_text() -> None:
    text = html.shown(reports.large(3, 4, line=EVIL))
    text.encode()
    assert [char for char in set(text) if not char.isprintable() and char != "\n"] == []
    assert "</script><img src=//x onerror=alert(1)>\"'>&amp;\\x1b[2J\\u202e\\x00\\ud800\\u2028" in Page(text).text


@pytest.mark.parametrize(("nodes", "slots", "steps"), [(512, 8, 16), (2, 8, 200)], ids=["many ranks", "many steps"])
def test_a_page_is_never_large(nodes: int, slots: int, steps: int) -> None:
    text = html.shown(reports.large(nodes, slots, steps, line="<&'\" ", lines=200))
    assert len(text.encode()) < 5_000_000
    assert "Slow: rank 5." in text
    assert "Failed: rank 7." in text


def test_a_rank_that_stopped_before_the_others() -> None:
    report = reports.large(2, 8)
    page = Page(html.shown(replace(report, attempts=(replace(report.attempts[0], culprit=None),))))
    assert "Stopped before the others: rank 7." in page.text


def test_ticks_are_round_and_few() -> None:
    for seconds in (0.001, 0.7, 5, 59, 3600, 90_000, 1e7):
        found = list(axis.ticks(seconds, 6))
        assert 2 <= len(found) <= 7
        assert found[0] == 0
        assert found[-1] <= seconds


def test_attributes_and_what_is_inside_are_escaped() -> None:
    made = markup.tag("a", "<b>", markup.tag("i", "&"), class_='"x"', aria_label="'", hidden=True, id=None)
    assert made == '<a class="&quot;x&quot;" aria-label="&#39;" hidden>&lt;b&gt;<i>&amp;</i></a>'
