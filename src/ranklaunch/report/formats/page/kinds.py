"""Kinds of spans and moments: what each is called, what it looks like (look.css has the colours), and what of it is to be seen."""

from __future__ import annotations

from collections.abc import Iterable

from ranklaunch.report import model
from ranklaunch.report.formats.page.markup import Html, tag
from ranklaunch.report.model import Mark, Span

# Of buckets, then of a node's spans.
CALLED = {
    **model.BUCKETS,
    model.CONTAINER: "container starts",
    model.START: "ranklaunch starts",
    model.WAIT: "waits",
    model.MUSTER: "muster: waits for the other nodes",
    model.LAUNCH: "ranks start, no step yet",
    model.STEPS: "steps",
    model.SAVING: "saving",
    model.STALLED: "nothing moves",
    model.STOP: "stops",
    model.GATE: "gate before a restart",
    "unknown": "unknown",
}
_LOOKS = {
    model.MUSTER: "waiting",
    model.WAIT: "waiting",
    model.START: "startup",
    model.STEPS: "productive",
    model.STOP: "stopping",
}
# Of moments: the sign, and what it says.
SIGNS = {
    model.RELEASED: ("released", "all nodes are here"),
    model.FIRST_OUTPUT: ("output", "first output"),
    model.FIRST_STEP: ("step", "first step"),
    model.FAILURE: ("failure", "what ended it"),
    model.SIGNAL: ("signal", "signal from outside"),
    model.HANG: ("hang", "alarm: nothing moves"),
    model.DONE: ("done", "its ranks are done"),
}
PATHS = {
    "released": "M0 0V9", "output": "M0 1L3 4.5L0 8L-3 4.5Z", "step": "M-3 0.5L4 4.5L-3 8.5Z", "failure": "M-4 0.5L4 8.5M4 0.5L-4 8.5",
    "signal": "M0 9V0.5L6 3L0 5.5", "hang": "M-2.5 0.5V8.5M2.5 0.5V8.5", "done": "M-4 4.5L-1 8L5 0.5",
}  # fmt: skip
MOST_TEXT = 300


def look(kind: str) -> str:
    """The class of a kind of span: what is much the same looks alike."""
    return _LOOKS.get(kind, kind.removesuffix("_s"))


def said(kind: str, text: str) -> str:
    """What a span or a moment is, and what is told of it."""
    called = CALLED[kind] if kind in CALLED else SIGNS[kind][1] if kind in SIGNS else kind
    return f"{called}: {text[:MOST_TEXT]}" if text else called


def legend(spans: Iterable[Span], marks: Iterable[Mark]) -> Html:
    """Of what is to be seen."""
    kinds, moments = {span.kind for span in spans}, {mark.kind for mark in marks}
    bars: dict[str, list[str]] = {}
    for kind, called in CALLED.items():
        if kind in kinds:
            bars.setdefault(look(kind), []).append(called)
    entries = [
        (tag("rect", width="14", height="12", class_=f"k-{name}"), " / ".join(dict.fromkeys(called))) for name, called in bars.items()
    ]
    for kind, (sign, called) in SIGNS.items():
        if kind in moments:
            entries.append((tag("path", d=PATHS[sign], class_=f"s-{sign}", transform="translate(7 2)"), called))
    return tag("ul", *(tag("li", _swatch(drawn), called) for drawn, called in entries), class_="legend")


def _swatch(drawn: Html) -> Html:
    return tag("svg", drawn, width="14", height="13", aria_hidden="true")
