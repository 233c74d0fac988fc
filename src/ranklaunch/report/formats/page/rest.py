"""What is below: earlier rounds, hangs and stacks, what differed between nodes, the last lines of logs, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ranklaunch.errors import counted, numbered
from ranklaunch.report import exception_records
from ranklaunch.report.formats import words
from ranklaunch.report.formats.page.markup import Html, cut, joined, scrolling, tag, text
from ranklaunch.report.model import Attempt, Difference, Evidence, Hang, Report, Round, Stacks, Tail

MOST_SHORT = 24  # characters of a cell that is not broken
MOST_EXCEPTIONS = 64
MOST_ROUNDS = 50
MOST_EARLIER = 8  # rounds whose last lines are shown
MOST_HANGS = 8
MOST_SUSPECTS = 16
MOST_FRAMES = 20
MOST_EVIDENCE = 64
MOST_LINE = 1000  # characters of a line of a log
TAILS = 2_000_000  # characters of all tails
MOST_LOGS = 512  # by name
MOST_TROUBLES = 40


def _section(name: str, title: str, *parts: object) -> Html:
    return tag("section", tag("h2", title, id=name), *parts, aria_labelledby=name)


def _table(label: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Html:
    head = tag("tr", *(tag("th", each, scope="col") for each in columns))
    body = joined(tag("tr", *map(_cell, row)) for row in rows)
    return scrolling("div", label, tag("table", tag("thead", head), tag("tbody", body)), class_="wide")


def _cell(cell: object) -> Html:
    short = len(str(cell)) <= MOST_SHORT or str(cell).startswith(("<b>", "<code>", "<span"))
    return tag("td", cell, class_="n" if short else "long")


# Earlier


def rounds(report: Report) -> Html:
    every = [(attempt, each) for attempt in report.attempts for each in attempt.rounds]
    if len(every) < 2:
        return Html("")
    left = max(0, len(every) - MOST_ROUNDS)
    more = tag("p", f"{left} earlier ones are left out.", class_="note") if left else ""
    gaps = {gap.after: gap for gap in report.gaps}
    rows = [_round(attempt, each, gaps[attempt.number].ended - gaps[attempt.number].began
                   if attempt.number in gaps and each is attempt.rounds[-1] else None) for attempt, each in every[left:]]  # fmt: skip
    columns = ("round", "end", "after", "step", "why", "then")
    lines = [_lines(attempt, each) for attempt, each in every[:-1] if each.culprit and each.culprit.last_lines]
    return _section("rounds", "Attempts and restarts", more, _table("Attempts and restarts", columns, rows), *lines[-MOST_EARLIER:])


def _round(attempt: Attempt, each: Round, gap_s: float | None) -> tuple[object, ...]:
    over = each.failed if each.failed is not None else each.ended
    lasted = words.long(over - each.began) if over is not None and each.began is not None else ""
    then = each.decision + (f" {words.long(gap_s)} until the platform started the next attempt" if gap_s is not None else "")
    error = each.culprit.error if each.culprit else None
    why = joined((each.reason, tag("small", error.remedy))) if error and error.remedy else each.reason
    return _name(attempt, each), tag("span", each.outcome, class_="mark"), lasted, str(each.best[1]) if each.best else "", why, then.strip()


def _name(attempt: Attempt, each: Round) -> str:
    return f"attempt {attempt.number}{f', restart {each.number}' if each.number else ''}"


def _lines(attempt: Attempt, each: Round) -> Html:
    assert each.culprit
    name = tag("summary", tag("b", _name(attempt, each)), f": last lines of {words.who(each.culprit)}")
    lines = "\n".join(cut(line, MOST_LINE) for line in each.culprit.last_lines[-40:])
    return tag("details", name, scrolling("pre", f"Last lines of {_name(attempt, each)}", lines))


# Exceptions


def exceptions(report: Report) -> Html:
    groups = exception_records.alike(report.exceptions)
    if not groups:
        return Html("")
    rows = [
        (
            words.raised_by(group),
            joined((tag("code", cut(group[0].text, MOST_LINE)), tag("small", group[0].cause) if group[0].cause else "")),
        )
        for group in groups[:MOST_EXCEPTIONS]
    ]
    more = tag("p", f"and {len(groups) - MOST_EXCEPTIONS} more") if len(groups) > MOST_EXCEPTIONS else ""
    note = tag("p", f"{words.OF_EXCEPTIONS[0].upper()}{words.OF_EXCEPTIONS[1:]}.", class_="note")
    return _section("exceptions", "Exceptions", note, _table("Exceptions", ("who, when", "exception"), rows), more)


# Hangs


def hangs(report: Report) -> Html:
    last = report.attempts[-1]
    if not (last.hangs or last.stacks or last.evidence):
        return Html("")
    parts = [joined(_hang(each) for each in last.hangs[-MOST_HANGS:]), _groups(last.stacks), _evidence(last.evidence)]
    return _section("hang", "Hangs and stacks", *parts)


def _hang(hang: Hang) -> Html:
    since = f"since {words.clock(hang.since)} UTC" if hang.since else ""
    over = f"until {words.clock(hang.ended)}" if hang.ended else ""
    signals = f"({', '.join(hang.signals)})" if hang.signals else ""
    told = " ".join(filter(None, (hang.what.capitalize(), since, over, signals)))
    suspects = [
        (str(each.rank), str(each.node), each.why, tag("code", each.file) if each.file else "") for each in hang.suspects[:MOST_SUSPECTS]
    ]
    more = len(hang.suspects) - MOST_SUSPECTS
    table = _table("Suspects", ("suspect rank", "node", "why", "file"), suspects) if suspects else ""
    return joined(
        (
            tag("p", f"{told}."),
            tag("p", hang.text, class_="note") if hang.text else "",
            table,
            tag("p", f"and {more} more") if more > 0 else "",
        )
    )


def _groups(groups: Iterable[Stacks]) -> Html:
    """The smallest first: who is not where the others are is worth looking at."""
    found = sorted(groups, key=lambda group: len(group.ranks))
    if not found:
        return Html("")
    return joined((tag("h3", "Where ranks stand"), tag("div", *map(_group, found), class_="groups")))


def _group(group: Stacks) -> Html:
    frames = "\n".join(cut(frame.strip(), 300) for frame in group.frames[:MOST_FRAMES])
    name = cut(numbered(group.ranks, "rank"), 200)
    caption = tag("figcaption", tag("b", name), f" {counted(len(group.ranks), 'rank')}" if len(group.ranks) > 1 else "")
    return tag(
        "figure",
        caption,
        scrolling("pre", f"Stack of {name}", frames or "no Python stack"),
        class_="lines",
    )


def _evidence(every: tuple[Evidence, ...]) -> Html:
    if not every:
        return Html("")
    items = [tag("li", tag("code", cut(each.folder, 300)), f": {counted(len(each.files), 'file')}{f', {each.why}' if each.why else ''}")
             for each in every[:MOST_EVIDENCE]]  # fmt: skip
    return tag("details", tag("summary", f"Evidence, {counted(len(every), 'folder')}"), tag("ul", *items))


# Nodes


def differences(report: Report) -> Html:
    if not report.differences:
        return Html("")
    rows = [row for each in report.differences for row in _difference(each)]
    table = _table("Differences", ("what", "value", "nodes"), rows)
    return _section("differences", "Not the same on all nodes", table)


def _difference(each: Difference) -> Iterator[tuple[object, ...]]:
    for number, (value, nodes) in enumerate(each.values):
        yield "" if number else tag("b", each.name), tag("code", value or "(nothing)"), cut(numbered(nodes, "node"), 300)


# Logs


def logs(report: Report) -> Html:
    tails = joined(_tails(report.tails))
    shown = {tail.log for tail in report.tails if tail.lines}
    names = [process.log for each in report.attempts for round_ in each.rounds for node in round_.nodes for process in node.processes
             if process.log and process.log not in shown]  # fmt: skip
    if not (names or tails):
        return Html("")
    more = len(names) - MOST_LOGS
    items = joined(tag("li", tag("code", cut(name, 300))) for name in names[:MOST_LOGS])
    others = "Other logs" if tails else "Logs"
    rest = tag("details", tag("summary", f"{others}, {counted(len(names), 'file')}"), tag("ul", items, class_="names"),
               tag("p", f"and {more} more") if more > 0 else "") if names else ""  # fmt: skip
    where = tag("p", "Paths are below ", tag("code", report.folder), ".", class_="note")
    return _section("logs", "Logs", where, tails, rest)


def _tails(tails: Iterable[Tail]) -> Iterator[Html]:
    left = TAILS
    for tail in tails:
        if not tail.lines:
            continue
        kept = list(_last(tail.lines, left))[::-1]
        left -= sum(map(len, kept)) + len(kept)
        name = tag("summary", tag("b", tail.name), ": the last ", counted(len(kept), "line"), " of ", tag("code", cut(tail.log, 300)))
        yield tag("details", name, scrolling("pre", f"Last lines of {tail.name}", joined(kept, "\n")))


def _last(lines: tuple[str, ...], most: int) -> Iterator[Html]:
    """From the last one on, for so many characters."""
    for line in reversed(lines):
        escaped = text(cut(line, MOST_LINE))
        most -= len(escaped) + 1
        if most < 0:
            return
        yield escaped


def notes(report: Report) -> Html:
    told = [*report.troubles[:MOST_TROUBLES], *_troubles_of_nodes(report)]
    if report.other_jobs:
        told.append(f"Other jobs in the same folder: {', '.join(report.other_jobs[:20])}")
    more = len(report.troubles) - MOST_TROUBLES
    if more > 0:
        told.append(f"and {more} more")
    return _section("notes", "What else was noted", tag("ul", *(tag("li", each) for each in told))) if told else Html("")


def _troubles_of_nodes(report: Report) -> list[str]:
    found = [f"node {node.node}: {trouble}" for each in report.attempts[-1].rounds for node in each.nodes for trouble in node.troubles]
    return list(dict.fromkeys(found))[:MOST_TROUBLES]
