"""A report as a page for people: one file that loads nothing, and runs nothing but a zoom that remembers its place."""

from __future__ import annotations

import base64
import hashlib
from pkgutil import get_data

from ranklaunch.report.formats.page import axis, crowd, head, kinds, lanes, plots, ranks, rest
from ranklaunch.report.formats.page.axis import Axis
from ranklaunch.report.formats.page.markup import Html, joined, scrolling, tag, void
from ranklaunch.report.formats.page.ranks import Ranks
from ranklaunch.report.model import Report

_ROOM = "ranklaunch.report.formats.page"
_HATCHES = ("repeated", "unknown", "stalled")


def shown(report: Report) -> str:
    style, script = _own("look.css"), _own("zoom.js")
    beginning = tag("head", *_meta(report, style, script), tag("style", Html(style)))
    page = tag("html", beginning, tag("body", *_body(report), tag("script", Html(script))), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _own(name: str) -> str:
    return (get_data(_ROOM, name) or b"").decode()


def _meta(report: Report, style: str, script: str) -> tuple[Html, ...]:
    """Nothing may be loaded, and no style or script but these two may be used, whatever a log has brought in."""
    allowed = ("default-src 'none'", f"style-src '{_digest(style)}'", f"script-src '{_digest(script)}'", "img-src data:", "base-uri 'none'")
    policy = "; ".join((*allowed, "form-action 'none'"))
    return (
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=policy),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        void("meta", name="referrer", content="no-referrer"),
        void("link", rel="icon", href="data:,"),
        tag("title", head.title(report)),
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _body(report: Report) -> tuple[Html, ...]:
    scale = axis.over(report.began, report.ended)
    found = ranks.ranks_of(report)
    sections = (
        head.time(report), _time_line(report, scale, found), ranks.section(report, found, scale), rest.exceptions(report),
        rest.hangs(report), rest.rounds(report), rest.differences(report), rest.logs(report), rest.notes(report),
    )  # fmt: skip
    made = f"Made by ranklaunch report{f' of what ranklaunch {report.job.ranklaunch} left' if report.job.ranklaunch else ''} in "
    foot = tag("footer", tag("p", made, tag("code", report.folder)))
    skip = tag("a", "To the time line", href="#line", class_="skip")
    return skip, _patterns(), tag("main", head.header(report), *sections), foot


def _patterns() -> Html:
    """Hatches, for those who do not tell colours apart."""
    size = {"width": "6", "height": "6"}
    made = [
        tag("pattern", tag("rect", **size, class_=f"p-{name}"), tag("path", d="M0 0V6", class_="hatch"), id=f"hatch-{name}", **size,
            patternUnits="userSpaceOnUse", patternTransform="rotate(45)")
        for name in _HATCHES
    ]  # fmt: skip
    return tag("svg", tag("defs", *made), width="0", height="0", aria_hidden="true", class_="defs")


def _time_line(report: Report, scale: Axis, found: Ranks) -> Html:
    if not report.began:  # a verdict alone, that does not tell
        return Html("")
    lines = lanes.lines_of(report)
    some = lanes.chosen(lines)
    counted = crowd.counted_lane(lines, scale) if len(some) < len(lines) else Html("")
    drawn = [
        lanes.ruler(scale, "Since the beginning"), lanes.job_lane(report, scale), counted, *(lanes.node_lane(line, scale) for line in some),
        *plots.lanes_of(report, scale, found.odd), lanes.ruler(scale),
    ]  # fmt: skip
    region = scrolling("div", "Time line; scrolls sideways", tag("div", *drawn, class_="lanes"), class_="scroll")
    figure = tag("div", *_zooms(), region, class_="zoom")
    title = tag("h2", "Time line", id="line")
    spans = [span for each in report.attempts for span in each.timeline] + [span for line in lines for span in line.spans]
    key = kinds.legend(spans, (mark for line in some for mark in lanes.worth(line.marks)))
    return tag("section", title, lanes.caption(report, lines), figure, key, lanes.as_table(some, scale), aria_labelledby="line")


def _zooms() -> tuple[Html, ...]:
    """Radio buttons: the page needs no script to zoom."""
    return (
        tag("span", "Zoom", class_="label", id="zooms"),
        *(joined((void("input", type="radio", name="zoom", id=f"z{zoom}", checked=zoom == 1, aria_describedby="zooms"),
                  tag("label", f"{zoom}×", for_=f"z{zoom}"))) for zoom in axis.ZOOMS),
    )  # fmt: skip
