"""Time line: spans and moments of each node; for many nodes, the number of nodes in each state.

Places are shares of the width: so width and zoom stretch time, but neither words nor signs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ranklaunch.report import model
from ranklaunch.report.formats import words
from ranklaunch.report.formats.page.axis import Axis, end_of
from ranklaunch.report.model import Attempt, Mark, OnNode, Report, Round, Span

MOST_NODES = 24  # lanes of single nodes
MOST_MARKS = 60  # signs in a lane
MOST_NAMES = 12  # rounds with a name
MOST_TEXT = 300
COLUMNS = 400  # of the lane that counts nodes by state
RUNNING = "running_s"
LEFT_NOTHING, GONE = "left no files", "gone before the end"
EMPTY = {"missing": "no files of this node are here", "unread": "its files cannot be read"}

# Class and text of each kind of span (buckets first) and of each kind of moment with a sign.
KINDS = {
    **{name: (name.removesuffix("_s"), text) for name, text in model.BUCKETS.items()},
    model.CONTAINER: ("container", "container starts"),
    model.START: ("startup", "ranklaunch starts"),
    model.WAIT: ("waiting", "waits"),
    model.MUSTER: ("waiting", "muster: waits for the other nodes"),
    model.LAUNCH: ("launch", "ranks start, no step yet"),
    model.STEPS: ("productive", "steps"),
    model.SAVING: ("saving", "saving"),
    model.STALLED: ("stalled", "nothing moves"),
    model.STOP: ("stopping", "stops"),
    model.GATE: ("gate", "gate before a restart"),
    "unknown": ("unknown", "unknown"),
    model.RELEASED: ("released", "all nodes are here"),
    model.FIRST_OUTPUT: ("output", "first output"),
    model.FIRST_STEP: ("step", "first step"),
    model.FAILURE: ("failure", "cause of the end"),
    model.SIGNAL: ("signal", "signal from outside"),
    words.ALARM: ("hang", "alarm: nothing moves"),
    words.WARNING: ("warning", "warning: nothing moves"),
    words.MOVED: ("moved", "moves again"),
    words.RULE: ("hang", "rule of RANKLAUNCH_EXPECT"),
    model.DONE: ("done", "its ranks are done"),
}


@dataclass(frozen=True)
class Line:
    """Lane of one node over all rounds. notable: reason to look at the node, "" for none. empty: text in place of spans."""

    node: int
    host: str
    spans: list[Span]
    marks: list[Mark]
    notable: str
    empty: str


def look(item: Span | Mark) -> str:
    return KINDS[_kind(item)][0]


def called(item: Span | Mark) -> str:
    """Return a span or a moment as text."""
    name = KINDS[_kind(item)][1]
    return f"{name}: {item.text[:MOST_TEXT]}" if item.text else name


def _kind(item: Span | Mark) -> str:
    return words.alarm_kind(item.text) if item.kind == model.HANG else item.kind


def legend(items: Iterable[Span | Mark]) -> dict[str, str]:
    """Return the texts of the present kinds, by look (class)."""
    present = set(map(_kind, items))
    texts_of: dict[str, dict[str, None]] = {}
    for kind in filter(present.__contains__, KINDS):
        name, text = KINDS[kind]
        texts_of.setdefault(name, {})[text] = None
    return {name: " / ".join(texts) for name, texts in texts_of.items()}


def sums(spans: Iterable[Span]) -> str:
    seconds: dict[str, float] = {}
    for span in spans:
        seconds[span.kind] = seconds.get(span.kind, 0.0) + end_of(span) - span.began
    return ", ".join(f"{KINDS[kind][1]} {words.long(each)}" for kind, each in seconds.items())


def names(rounds: Sequence[tuple[Attempt, Round]], axis: Axis) -> Iterator[tuple[str, str, bool]]:
    """Yield (place, name, is_tight) of each round if there are several. is_tight: True for a name close behind another."""
    last = -1.0
    for attempt, each in rounds if 1 < len(rounds) <= MOST_NAMES else ():
        share = axis.share(each.began or 0.0)
        if share - last > 0.055:  # the width of a name on a wide page
            name = f"restart {each.number}" if each.number else f"attempt {attempt.number}"
            yield axis.x(each.began or 0.0), name, last >= 0 and share - last < 0.2
            last = share


# Nodes


def lines_of(report: Report) -> list[Line]:
    nodes: dict[int, list[tuple[Round, OnNode]]] = {}
    for attempt in report.attempts:
        for each in attempt.rounds:
            for node in each.nodes:
                nodes.setdefault(node.node, []).append((each, node))
    notable, steps_seen = _notable(report), report.accounting.steps_seen
    return [
        Line(
            number,
            next((node.host for _, node in rounds if node.host), "")[:80],
            [span for each, node in rounds for span in _spans(node, each, steps_seen)],
            _with_sign([mark for _, node in rounds for mark in node.marks]),
            notable.get(number, ""),
            EMPTY.get(rounds[-1][1].state, "it left no events"),
        )
        for number, rounds in sorted(nodes.items())
    ]


def _spans(node: OnNode, each: Round, steps_seen: bool) -> Iterator[Span]:
    """Yield the spans of a node. If its ranks print no steps, its launch ends with the first step of another node. If no rank
    of the job prints steps, the whole launch counts as running."""
    prints_steps = any(process.steps for process in node.processes)
    until = each.first_step if steps_seen else float("-inf")
    for span in node.spans:
        if span.kind != model.LAUNCH or prints_steps or until is None or until >= end_of(span):
            yield span
            continue
        if span.began < until:
            yield Span(span.kind, span.began, until, span.text)
        yield Span(RUNNING, max(span.began, until), span.ended)


def _notable(report: Report) -> dict[int, str]:
    """Return the first reason to look at a node, by node."""
    last = report.attempts[-1]
    hang = words.standing(last)
    reasons = [(report.culprit.node, "failed first")] if report.culprit else []
    reasons += [(each.node, "failed too") for each in last.failures]
    reasons += [(each.node, f"suspect: rank {each.rank}") for each in hang.suspects] if hang else []
    reasons += [(node, LEFT_NOTHING) for node in last.missing]
    nodes = last.rounds[-1].nodes
    reasons += [(each.node, "cannot be read") for each in nodes if each.state == "unread"]
    reasons += [(node, GONE) for node in words.unended(report)]
    reasons += [(each.last, "came last") for each in last.rounds if each.last is not None]
    return dict(reversed(reasons))


def chosen(lines: Sequence[Line]) -> Sequence[Line]:
    """Return all lines; of many lines, the notable ones and then the first ones."""
    if len(lines) <= MOST_NODES:
        return lines
    first = sorted(lines, key=lambda line: (not line.notable, line.node))[: MOST_NODES // 2]
    return sorted(first, key=lambda line: line.node)


def _with_sign(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks that have a sign; of many marks, the first and the last ones."""
    signs = [mark for mark in marks if _kind(mark) in KINDS]
    half = MOST_MARKS // 2
    return signs if len(signs) <= MOST_MARKS else signs[:half] + signs[-half:]


# Many nodes at once


def crowd(lines: Sequence[Line], axis: Axis) -> Iterator[tuple[str, str]]:
    """Yield (look, area) for each kind of span: stacked areas of the share of nodes in that state, over time."""
    changes: dict[str, list[float]] = {name: [0.0] * (COLUMNS + 2) for name, _ in KINDS.values()}
    for line in lines:
        for span in line.spans:
            for at, by in ((span.began, 1), (end_of(span), -1)):
                place = COLUMNS * axis.share(at)
                rest = int(place) + 1 - place  # share of the column behind the place
                changes[look(span)][int(place)] += by * rest
                changes[look(span)][int(place) + 1] += by * (1 - rest)
    lower = [0.0] * COLUMNS
    for name, counts in changes.items():
        if any(counts):
            upper = [low + count / len(lines) for low, count in zip(lower, accumulate(counts))]
            yield name, _area(lower, upper)
            lower = upper


def _area(lower: Sequence[float], upper: Sequence[float]) -> str:
    """Return the SVG path of the area between two stepped lines: the upper one forwards, the lower one back."""
    forwards = "L".join(f"{x} {_y(share)}H{x + 1}" for x, share in enumerate(upper))
    back = "L".join(f"{x + 1} {_y(share)}H{x}" for x, share in reversed([*enumerate(lower)]))
    return f"M{forwards}L{back}Z"


def _y(share: float) -> str:
    return f"{1000 * (1 - min(1.0, share)):.0f}"
