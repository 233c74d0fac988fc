"""The page for people: it says what there is to say, loads nothing, and whatever a log has brought in is text."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import reports
from left_behind import LeftBehind, culprit

from ranklaunch.errors import EXIT_CODES
from ranklaunch.report import assembly, model
from ranklaunch.report.formats import advice, html, text
from ranklaunch.report.formats.page import axis, lanes, plots
from ranklaunch.report.model import Report

VOID = {"meta", "link", "input"}
ELEMENTS = VOID | {
    "html", "head", "title", "style", "script", "body", "main", "header", "footer", "section", "div", "p", "a", "h1", "h2", "h3", "b", "em",
    "code", "pre", "small", "span", "dl", "dt", "dd", "ul", "li", "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td",
    "details", "summary", "label", "svg", "g", "defs", "pattern", "rect", "path", "line", "polyline", "text",
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


def test_levels_are_round_and_few() -> None:
    for most in (1e-4, 0.03, 0.7, 1.0, 2.0, 3.0, 59.0, 1234.0, 1e7):
        found = axis.levels(most)
        assert found[0] == 0
        assert 3 <= len(found) <= 4
        assert most * 0.999 <= found[-1] < 2.5 * most


def report_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    return assembly.report(str(reports.made(name, tmp_path, monkeypatch)))


@pytest.mark.parametrize("name", [name for name in reports.JOBS if name != "restarts"])
def test_every_text_is_escaped(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a field of a report is called."""
    page = html.shown(evil(report_of(name, tmp_path, monkeypatch)))
    assert "alert(1)" in Page(page).text
    assert "<img" not in page
    assert page.count("<script") == 1
    assert [char for char in set(page) if not char.isprintable() and char != "\n"] == []


def evil(value: Any, name: str = "") -> Any:
    """The value with EVIL behind each text, but for those that name a kind."""
    if is_dataclass(value):
        return replace(value, **{each.name: evil(getattr(value, each.name), each.name) for each in fields(value)})  # type: ignore[type-var]
    if isinstance(value, tuple):
        return tuple(evil(each, name) for each in value)
    return f"{value}{EVIL}" if isinstance(value, str) and name not in ("kind", "schema", "state", "outcome", "retry") else value


def test_a_node_whose_ranks_print_no_steps_is_not_waiting_for_its_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of("only rank 0", tmp_path, monkeypatch)
    one, two = lanes.lines_of(report)
    first = report.began + 5
    assert [(span.kind, span.ended) for span in one.spans if span.kind == "launch"] == [("launch", first)]
    assert [(span.kind, span.began) for span in two.spans if span.kind in ("launch", "running_s")] == [
        ("launch", report.began + 2), ("running_s", first),
    ]  # fmt: skip
    nobody = lanes.lines_of(report_of("import error", tmp_path / "other", monkeypatch))
    assert {span.kind for line in nobody for span in line.spans} == {"start", "muster", "running_s", "stop"}


def test_nothing_is_said_of_steps_that_nobody_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("only rank 0", "import error", "no memory"):
        page = Page(html.shown(report_of(name, tmp_path / name, monkeypatch))).text
        assert ("none was slower" in page, "A step took the median rank" in page) == (name == "no memory",) * 2
        assert "nothing stands out" not in page


def test_plots_have_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of("no memory", tmp_path, monkeypatch)
    drawn = {plot.name: plot for plot in plots.plots(report, axis.over(report.began, report.ended), {3: "failed"})}
    assert [tick.text for tick in drawn["Seconds of a step"].levels] == ["0", "200 ms", "400 ms", "600 ms"]
    assert [(tick.text, tick.place) for tick in drawn["Step"].levels] == [("0", "100%"), ("20", "50%"), ("40", "0%")]
    page = Page(html.shown(report))
    assert [attributes.get("class") for _, attributes in page.elements].count("levels") == 2
    assert "600 ms" in page.words


def test_ends_by_sigabrt_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent by ranklaunch, or of the rank's own."""
    report = report_of("aborted", tmp_path, monkeypatch)
    (node,) = (each for each in report.attempts[0].rounds[0].nodes if each.processes)
    assert [each.sent for each in node.processes] == ["SIGABRT", "SIGABRT"]
    own = replace(node, processes=tuple(replace(each, sent="") for each in node.processes))
    attempt = report.attempts[0]
    last = replace(attempt.rounds[0], nodes=(own,))
    page = Page(html.shown(replace(report, attempts=(replace(attempt, rounds=(last,)),)))).text
    assert "killed by SIGABRT" in page
    assert "sent by ranklaunch" not in page


def test_a_pause_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its warning and its alarm are moments of the time line."""
    report = report_of("pause", tmp_path, monkeypatch)
    page = html.shown(report)
    before, _, moments = page.partition("<summary>The same in words</summary>")
    moments, _, behind = moments.partition("</table>")
    assert ">warning: nothing moves: for 4 s nothing has moved on 2 ranks (output, CPU); hang alarm at 8 s" in moments
    assert ">alarm: nothing moves: the job hangs: for 4 s" in moments
    assert ">moves again: it moves again: output" in moments
    visible = re.sub(r"<title>.*?</title>", "", before + behind)
    assert "the job hangs" not in visible
    assert "hang alarm at" not in visible
    assert "<dt>Hang</dt>" not in page
    assert "<dt>Pause</dt>" in page


ELSEWHERE = ("If logs of node 1 lie elsewhere, put them here and report again.", "")
STEPS = {
    "success": [],
    "import error": [
        ("Install it.", ""),
        ("Read the last lines of rank 1 on node 0 (h0):", "ranklaunch logs {} --rank 1 --tail 100"),
        ("Started as it is, the job ends the same way.", ""),
    ],
    "no memory": [
        ("Use less memory (a smaller batch, fewer data-loading workers, no data that grows), or give the container a larger limit.", ""),
        ("Read the last lines of rank 3 on node 1 (h1):", "ranklaunch logs {} --rank 3 --tail 100"),
    ],
    "hang": [
        ("Read the last lines of rank 1 (h0), which may hold up the others:", "ranklaunch logs {} --rank 1 --tail 100"),
        ("See the evidence: stacks, states of processes, devices:", "{}/node_0/attempt_1/evidence/node_0/1"),
        ("If the job only looked as if it hung, raise RANKLAUNCH_HANG_S (it was 300 s).", ""),
        ELSEWHERE,
    ],
    "killed": [
        ("If the job still runs, in one of its containers:", "ranklaunch status {}"),
        ELSEWHERE,
    ],
    "lost node": [(f"Exit code 75: {EXIT_CODES[75]}.", "")],
    "pause": [("If such pauses are usual, raise RANKLAUNCH_HANG_S (it was 300 s).", ""), ELSEWHERE],
}  # fmt: skip


@pytest.mark.parametrize(("wrote", "signal", "step"), [
    ("", "", "No output of rank 1 on node 0 (h0): look in the program for an exit with code 3, and read the last lines of all ranks:"),
    ("", "SIGKILL", "No output of rank 1 on node 0 (h0): read the last lines of all ranks:"),
    ("one line\n", "", "Read the last lines of rank 1 on node 0 (h0):"),
])  # fmt: skip
def test_what_next_after_a_rank_without_output(wrote: str, signal: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(left: LeftBehind) -> None:
        node = left.node(0).starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 3, "rank 1")
        (node.folder / "rank_1.log").write_text(wrote)
        node.verdict(
            "failed", 3, "rank 1 exited with code 3", culprit=culprit(1, host="h0", exit_code=3, signal=signal or None, last_lines=())
        )

    monkeypatch.setitem(reports.JOBS, "silent", silent)
    report = report_of("silent", tmp_path, monkeypatch)
    found = [(each.text, each.code.replace(report.folder, "{}")) for each in advice.steps(report)]
    assert (step, f"ranklaunch logs {{}}{' --rank 1' if wrote else ''} --tail 100") in found


@pytest.mark.parametrize("name", STEPS)
def test_what_next(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(name, tmp_path, monkeypatch)
    found = [(step.text, step.code.replace(report.folder, "{}")) for step in advice.steps(report)]
    assert found == STEPS[name]
    page = Page(html.shown(report)).text
    assert ("What next" in page) == bool(found)
    for each in advice.steps(report):
        assert f"{each.text} {each.code}".strip() in page
    shown = text.shown(report)
    for each in (*advice.look(report), *advice.explanations(report)):
        assert f"  {each.text} {each.code}".rstrip() in shown.splitlines()


def test_where_to_start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the verdict, for the attempt that it is about, and quoted for a shell."""
    report = report_of("long lines", tmp_path / "a folder", monkeypatch)
    steps = [(each.text, each.code) for each in advice.steps(report)]
    assert ("To restart all ranks automatically after such a failure, in the same containers, set", "RANKLAUNCH_MAX_RESTARTS=3") in steps
    (logs,) = (code for _, code in steps if code.startswith("ranklaunch logs"))
    assert logs == f"ranklaunch logs '{report.folder}' --rank 1 --tail 100"
    attempt = replace(
        report.attempts[0], suspect_host=model.SuspectHost("h0", 0, "a device has failed"), outcome="stopped", stop="saved: no"
    )
    again = replace(report, attempts=(report.attempts[0], replace(attempt, number=2)), outcome="stopped", exit_code=143)
    steps = [(each.text, each.code) for each in advice.steps(again)]
    assert ("Leave out h0 (node 0) the next time: a device has failed", "") in steps
    assert any(code.endswith(" --attempt 2 --rank 1 --tail 100") for _, code in steps)
    assert any(text.startswith("To lose no work at a stop") for text, _ in steps)
