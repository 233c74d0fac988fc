"""The ranks of the last round beside each other: how long a step took each, how far each came, and who stands out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.errors import counted, numbered
from ranklaunch.report.formats import words
from ranklaunch.report.formats.page.axis import Axis, middle, percent
from ranklaunch.report.formats.page.markup import Html, cut, joined, scrolling, tag
from ranklaunch.report.model import Process, Report

MOST_ROWS = 64
MOST_ODD = 24  # ranks that stand out
SLOW = 1.25  # times as long as the middle rank
SLOW_S = 0.02  # and so much longer
BEHIND = 3  # steps' time without one, while others went on
MOST_DOTS = 20_000
WIDE, HIGH = 10_000, 1000
LABELS = {"failed": "failed", "suspect": "suspect", "stopped": "stopped before the others", "slow": "slow"}


@dataclass(frozen=True)
class Ranks:
    """odd: of what looks strange, the look (a key of LABELS). middle_s: seconds of a step of the middle rank, None where none is known.
    slowest_s: of the slowest, 0 where none is known."""

    processes: tuple[Process, ...]
    odd: Mapping[int, str]
    middle_s: float | None
    slowest_s: float


def ranks_of(report: Report) -> Ranks:
    last = report.attempts[-1].rounds[-1]
    every = sorted((each for node in last.nodes for each in node.processes if each.rank is not None), key=lambda each: each.rank or 0)
    known = [each.step_s for each in every if each.step_s]
    middle_s = middle(known) if known else None
    return Ranks(tuple(every), dict(_odd(report, every, middle_s)), middle_s, max(known, default=0.0))


def _odd(report: Report, every: Sequence[Process], middle_s: float | None) -> Iterator[tuple[int, str]]:
    """The worst look of each."""
    last = report.attempts[-1]
    failed = [each.rank for each in (last.culprit, *last.failures) if each and each.rank is not None]
    suspects = [each.rank for hang in last.hangs[-1:] for each in hang.suspects]
    slow = sorted((each for each in every if _is_slow(each, middle_s)), key=lambda each: -(each.step_s or 0.0))
    found: dict[int, str] = {}
    for ranks, look in (
        (failed, "failed"),
        (suspects, "suspect"),
        (_stopped(every, middle_s), "stopped"),
        ([each.rank for each in slow], "slow"),
    ):
        found.update({rank: look for rank in ranks if rank is not None and rank not in found})
    yield from list(found.items())[:MOST_ODD]


def _is_slow(each: Process, middle_s: float | None) -> bool:
    return bool(middle_s and each.step_s and each.step_s > SLOW * middle_s and each.step_s - middle_s > SLOW_S)


def _stopped(every: Sequence[Process], middle_s: float | None) -> list[int | None]:
    """Fewer than half of them: those whose last step is less and was long before the others' last."""
    seen = [each for each in every if each.steps]
    if not seen or not middle_s:
        return []
    usual = middle(each.steps[-1].at for each in seen)
    furthest = max((each.steps[-1].epoch, each.steps[-1].step) for each in seen)
    found = [each.rank for each in seen
             if (each.steps[-1].epoch, each.steps[-1].step) < furthest and usual - each.steps[-1].at > BEHIND * middle_s]  # fmt: skip
    return found if 2 * len(found) < len(seen) else []


def section(report: Report, found: Ranks, scale: Axis) -> Html:
    if not found.processes:
        return Html("")
    title = tag("h2", "Ranks", id="ranks")
    return tag("section", title, tag("p", _said(found), class_="note"), _strips(found), _table(found, scale), aria_labelledby="ranks")


def _said(found: Ranks) -> str:
    """What can be said of them in a sentence or two."""
    told = [f"{counted(len(found.processes), 'rank')} in the last round."]
    if found.middle_s:
        told.append(f"A step took the middle rank {words.exact(found.middle_s)}.")
    for look, called in LABELS.items():
        ranks = sorted(rank for rank, each in found.odd.items() if each == look)
        if ranks:
            told.append(f"{called.capitalize()}: {numbered(ranks, 'rank')}.")
    if found.middle_s and not {"slow", "stopped"} & {*found.odd.values()}:
        told.append("None was slower than the others by a quarter, and none stopped before them.")
    return " ".join(told)


# All of them, as dots


def _strips(found: Ranks) -> Html:
    """From 24 ranks on, where a table is not seen at a glance."""
    timed = [(each.rank or 0, each.step_s) for each in found.processes if each.step_s]
    if len(found.processes) < 24 or not timed:
        return Html("")
    most = 1.15 * max(seconds for _, seconds in timed)
    last = max(each.rank or 0 for each in found.processes)
    dots = joined(_dots(timed, found.odd, last, most))
    grid = tag("path", d=f"M0 {HIGH}H{WIDE}M0 1H{WIDE}", class_="grid", vector_effect="non-scaling-stroke")
    plot = tag("svg", grid, dots, viewBox=f"0 0 {WIDE} {HIGH}", preserveAspectRatio="none", width="100%", height="120", class_="plot",
               role="img", aria_label=f"Seconds of a step by rank, 0 to {most:.3g} s")  # fmt: skip
    caption = tag("figcaption", f"How long a step took ranks 0 to {last}, from left to right; 0 to {most:.3g} s")
    return tag("figure", caption, plot, class_="strip")


def _dots(timed: Sequence[tuple[int, float]], odd: Mapping[int, str], last: int, most: float) -> Iterator[Html]:
    stride = max(1, len(timed) // MOST_DOTS)
    by_look: dict[str, list[str]] = {}
    for i, (rank, seconds) in enumerate(timed):
        if i % stride == 0 or rank in odd:
            place = f"M{WIDE * (rank + 0.5) / (last + 1):.0f} {HIGH * (1 - seconds / most):.0f}h0"
            by_look.setdefault(odd.get(rank, ""), []).append(place)
    for look in sorted(by_look):
        yield tag("path", d="".join(by_look[look]), class_=f"dots {look}".rstrip(), vector_effect="non-scaling-stroke")


# Some of them, in words


def _table(found: Ranks, scale: Axis) -> Html:
    rows = _worth(found)
    columns = ("rank", "node", "a step took", "last step", "after", "end", "memory at most", "log")
    cells = [_cells(each, found, scale) for each in rows]
    used = [i for i, _ in enumerate(columns) if any(of_row[i] for of_row in cells)]
    head = tag("tr", *(tag("th", columns[i], scope="col") for i in used))
    body = joined(_row(found.odd.get(each.rank or 0, ""), of_row, used) for each, of_row in zip(rows, cells))
    left = len(found.processes) - len(rows)
    more = tag("p", f"and {counted(left, 'rank')} more, of which nothing stands out", class_="note") if left else ""
    table = tag("table", tag("thead", head), tag("tbody", body), class_="ranks")
    return joined((scrolling("div", "Ranks", table, class_="wide"), more))


def _worth(found: Ranks) -> list[Process]:
    if len(found.processes) <= MOST_ROWS:
        return list(found.processes)
    first = [each for each in found.processes if each.rank in found.odd]
    return first + [each for each in found.processes if each.rank not in found.odd][: max(8, 16 - len(first))]


def _cells(each: Process, found: Ranks, scale: Axis) -> tuple[object, ...]:
    seen = each.steps[-1] if each.steps else None
    return (
        str(each.rank), str(each.node), _took(each, found), _place(seen.epoch, seen.step) if seen else "",
        words.long(max(0.0, seen.at - scale.began)) if seen else "", words.end(each.exit_code, each.signal),
        words.memory(each.max_rss_kb) if each.max_rss_kb else "", tag("code", cut(each.log, 200)) if each.log else "",
    )  # fmt: skip


def _row(look: str, cells: Sequence[object], used: Sequence[int]) -> Html:
    name = joined((cells[0], tag("span", LABELS[look], class_=f"mark {look}"))) if look else cells[0]
    return tag("tr", tag("th", name, scope="row"), *(tag("td", cells[i]) for i in used[1:]), class_=look or None)


def _took(each: Process, found: Ranks) -> object:
    if not each.step_s:
        return ""
    bar = tag(
        "svg",
        tag("rect", width=percent(each.step_s / found.slowest_s), height="8"),
        width="64",
        height="8",
        aria_hidden="true",
        class_="short",
    )
    return joined((bar, f" {words.exact(each.step_s)}"))


def _place(epoch: int, step: int) -> str:
    return f"{epoch}.{step}" if epoch else str(step)
