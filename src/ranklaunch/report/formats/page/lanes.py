"""A line of time for the job and for each node, all by one clock: spans as bars, moments as signs above them.

Places are shares of the width, so that the page's width and the zoom stretch time, and neither words nor signs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ranklaunch.errors import numbered
from ranklaunch.report import model
from ranklaunch.report.formats.page import axis, kinds
from ranklaunch.report.formats.page.axis import Axis, percent
from ranklaunch.report.formats.page.markup import Html, joined, scrolling, tag
from ranklaunch.report.formats.words import clock, long
from ranklaunch.report.model import Attempt, Mark, OnNode, Report, Span

MOST_NODES = 24  # that have a line of their own
MOST_SPANS = 400  # of a line
MOST_MARKS = 60
MOST_ROUNDS = 12  # that are named
HEIGHT, TOP, SIGNS = 30, 12, 9


@dataclass(frozen=True)
class Line:
    """Of a node over all rounds. notable: why it is shown before others, "" where nothing is to be said."""

    node: int
    host: str
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]
    notable: str = ""


def lines_of(report: Report) -> list[Line]:
    """By node; one that left nothing is there too."""
    found: dict[int, list[OnNode]] = {}
    for attempt in report.attempts:
        for each in attempt.rounds:
            for node in each.nodes:
                found.setdefault(node.node, []).append(node)
    why = _notable(report)
    return [
        Line(
            number, next((each.host for each in nodes if each.host), ""), tuple(span for each in nodes for span in each.spans),
            tuple(mark for each in nodes for mark in each.marks), why.get(number, ""),
        )
        for number, nodes in sorted(found.items())
    ]  # fmt: skip


def _notable(report: Report) -> dict[int, str]:
    """Why a node is worth looking at; the first reason counts."""
    last = report.attempts[-1]
    final = last.rounds[-1]
    reasons: list[tuple[int, str]] = []
    if report.culprit:
        reasons.append((report.culprit.node, "failed first"))
    reasons += [(each.node, "failed too") for each in last.failures]
    reasons += [(each.node, f"suspect: rank {each.rank}") for hang in last.hangs[-1:] for each in hang.suspects]
    reasons += [(node, "left nothing") for node in last.missing]
    reasons += [(each.node, "cannot be read") for each in final.nodes if each.state == "unread"]
    if report.outcome != model.UNFINISHED:
        reasons += [(each.node, "gone before the end") for each in final.nodes if each.state == "unfinished"]
    reasons += [(each.last, "came last") for each in last.rounds if each.last is not None]
    return dict(reversed(reasons))


def chosen(lines: Sequence[Line]) -> list[Line]:
    """All of them, or the notable and the first ones."""
    if len(lines) <= MOST_NODES:
        return list(lines)
    by_weight = sorted(lines, key=lambda line: (not line.notable, line.node))[: MOST_NODES // 2]
    return sorted(by_weight, key=lambda line: line.node)


def lane(name: object, drawing: Html, note: object = "", kind: str = "") -> Html:
    told = tag("small", note) if note else ""
    return tag("div", tag("div", tag("b", name), " ", told, class_="who"), drawing, class_=f"lane {kind}".rstrip())


def ruler(scale: Axis, label: str = "") -> Html:
    """Times since the beginning, for each zoom its own."""
    levels = joined(tag("g", *_ticks(scale, zoom), class_=f"z{zoom}") for zoom in axis.ZOOMS)
    return lane(label, tag("svg", levels, class_="ruler", width="100%", height="20", aria_hidden="true"), kind="time")


def _ticks(scale: Axis, zoom: int) -> Iterator[Html]:
    for at in axis.ticks(scale.seconds, axis.TICKS * zoom):
        share = at / scale.seconds
        anchor = "start" if share < 0.02 / zoom else "end" if share > 1 - 0.06 / zoom else "middle"
        yield tag("text", axis.said(at), x=percent(share), y="14", text_anchor=anchor)


def job_lane(report: Report, scale: Axis) -> Html:
    spans = [span for attempt in report.attempts for span in attempt.timeline]
    drawn = _bars(spans, scale)
    names = joined(_round_names(report.attempts, scale))
    label = f"The job: {', '.join(_sums(spans))}"
    return lane("Job", tag("svg", names, drawn, class_="bar", width="100%", height=str(HEIGHT), role="img", aria_label=label), kind="job")


def _sums(spans: Iterable[Span]) -> Iterator[str]:
    sums: dict[str, float] = {}
    for span in spans:
        sums[span.kind] = sums.get(span.kind, 0.0) + (span.ended or span.began) - span.began
    yield from (f"{kinds.CALLED.get(kind, kind)} {long(seconds)}" for kind, seconds in sums.items())


def _round_names(attempts: Sequence[Attempt], scale: Axis) -> Iterator[Html]:
    every = [(attempt, each) for attempt in attempts for each in attempt.rounds if each.began is not None]
    if not 1 < len(every) <= MOST_ROUNDS:
        return
    last = -1.0
    for attempt, each in every:
        share = scale.share(each.began or 0.0)
        if share - last > 0.055:  # its width, where the page is wide
            name = f"restart {each.number}" if each.number else f"attempt {attempt.number}"
            yield tag("text", name, x=percent(share), y="9", class_=f"name{' tight' if share - last < 0.2 and last >= 0 else ''}")
            last = share


def node_lane(line: Line, scale: Axis) -> Html:
    drawn = _bars(axis.merged(line.spans, scale, MOST_SPANS), scale)
    signs = joined(_sign(mark, scale) for mark in worth(line.marks))
    label = f"Node {line.node}: {', '.join(_sums(line.spans)) or 'nothing is left of it'}"
    empty = "" if line.spans else tag("text", "nothing of it is here", x="0", y="23", class_="name")
    note = joined(filter(None, (line.host[:80], tag("em", line.notable) if line.notable else "")), " ")
    drawing = tag("svg", drawn, signs, empty, class_="bar", width="100%", height=str(HEIGHT), role="img", aria_label=label)
    return lane(f"Node {line.node}", drawing, note)


def worth(marks: Sequence[Mark]) -> list[Mark]:
    found = [mark for mark in marks if mark.kind in kinds.SIGNS]
    return found[: MOST_MARKS // 2] + found[max(MOST_MARKS // 2, len(found) - MOST_MARKS // 2) :]


def _bars(spans: Iterable[Span], scale: Axis) -> Html:
    return joined(_bar(span, scale) for span in spans)


def _bar(span: Span, scale: Axis) -> Html:
    ended = span.began if span.ended is None else span.ended
    left, right = scale.share(span.began), scale.share(ended)
    about = tag("title", f"{long(ended - span.began)}, {_since(span.began, scale)}: {kinds.said(span.kind, span.text)}")
    place = {"x": percent(left), "width": percent(max(0.0, right - left)), "y": str(TOP), "height": str(HEIGHT - TOP - 2)}
    return tag("rect", about, **place, class_=f"k-{kinds.look(span.kind)}")


def _sign(mark: Mark, scale: Axis) -> Html:
    sign, _ = kinds.SIGNS[mark.kind]
    about = tag("title", f"{_since(mark.at, scale)}: {kinds.said(mark.kind, mark.text)}")
    drawn = tag("path", about, d=kinds.PATHS[sign], class_=f"s-{sign}")
    return tag("svg", drawn, x=percent(scale.share(mark.at)), overflow="visible", width="1", height=str(SIGNS))


def _since(at: float, scale: Axis) -> str:
    return f"{long(max(0.0, at - scale.began))} after the beginning"


def as_table(lines: Sequence[Line], scale: Axis) -> Html:
    """The same, to be read."""
    head = tag("tr", *(tag("th", name, scope="col") for name in ("node", "moment", "after")))
    rows = [_moment(line, mark, scale) for line in lines for mark in worth(line.marks)]
    if not rows:
        return Html("")
    table = scrolling("div", "Moments of nodes", tag("table", tag("thead", head), tag("tbody", *rows)), class_="wide")
    return tag("details", tag("summary", "The same in words"), table)


def _moment(line: Line, mark: Mark, scale: Axis) -> Html:
    after = long(max(0.0, mark.at - scale.began))
    return tag("tr", tag("td", str(line.node)), tag("td", kinds.said(mark.kind, mark.text)), tag("td", after, class_="n"))


def caption(report: Report, lines: Sequence[Line]) -> Html:
    late = next((each for each in report.attempts[-1].rounds if each.last is not None), None)
    told = [f"Times are since {clock(report.began)} UTC, by node 0’s clock."]
    told += [f"Node {late.last} was the last to come. {late.late.removeprefix('muster: ').capitalize()}."] if late else []
    gone = [line.node for line in lines if line.notable in ("left nothing", "gone before the end")]
    told += [f"Of {numbered(gone, 'node')} not all is here: what is drawn is what they told."] if gone else []
    return tag("p", " ".join(told), class_="note")
