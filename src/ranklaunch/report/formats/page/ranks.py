"""Ranks of the last round side by side, with outliers marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ranklaunch.errors import counted, numbered
from ranklaunch.report.formats import words
from ranklaunch.report.formats.page.axis import Tick, levels, middle, percent
from ranklaunch.report.model import Process, Report

MOST_ROWS = 64
MOST_ODD = 24  # ranks that stand out
LEAST_DOTS = 24  # ranks; for fewer ranks the table is enough
SLOW = 1.25  # factor of the median rank's seconds of a step
SLOW_S = 0.02  # and at least so many seconds longer
BEHIND = 3  # median steps without a step of this rank, while other ranks went on
MOST_DOTS = 20_000
WIDE, HIGH = 10_000, 1000
LABELS = {
    "failed": "failed",
    "suspect": "suspect",
    "stopped": "stopped before the others",
    "slow": "slow",
}


@dataclass(frozen=True)
class Dots:
    """Plot of the seconds of a step by rank. last: the last rank. paths: SVG paths of the dots, by look."""

    last: int
    levels: list[Tick]
    paths: dict[str, str]


@dataclass(frozen=True)
class Ranks:
    """Ranks of the last round. odd: looks of ranks that stand out (keys of LABELS), worst first. middle_s, slowest_s:
    seconds of a step of the median and of the slowest rank, 0 for unknown."""

    every: list[Process]
    odd: dict[int, str]
    middle_s: float
    slowest_s: float


def ranks_of(report: Report) -> Ranks:
    nodes = report.attempts[-1].rounds[-1].nodes
    processes = [each for node in nodes for each in node.processes]
    every = sorted((each for each in processes if each.rank is not None), key=number)
    timed = [each.step_s for each in every if each.step_s]
    middle_s = middle(timed) if timed else 0.0
    odd = list(_odd(report, every, middle_s).items())[:MOST_ODD]
    return Ranks(every, dict(odd), middle_s, max(timed, default=0.0))


def number(each: Process) -> int:
    return each.rank or 0


def seconds(each: Process) -> float:
    return each.step_s or 0.0


def _odd(report: Report, every: Sequence[Process], middle_s: float) -> dict[int, str]:
    """Return the worst look of each rank that stands out, by rank, worst first."""
    last = report.attempts[-1]
    hang = words.standing(last)
    slow = [each for each in every if seconds(each) > max(SLOW * middle_s, middle_s + SLOW_S)]
    result: dict[int, str] = {}
    looks: dict[str, list[int | None]] = {
        "failed": [each.rank for each in (last.culprit, *last.failures) if each],
        "suspect": [each.rank for each in hang.suspects] if hang else [],
        "stopped": _stopped(every, middle_s),
        "slow": [each.rank for each in sorted(slow, key=seconds, reverse=True)],
    }
    for look, ranks in looks.items():
        result.update({rank: look for rank in ranks if rank is not None and rank not in result})
    return result


def _stopped(every: Sequence[Process], middle_s: float) -> list[int | None]:
    """Return ranks whose last step is lower than the furthest and long before the other ranks' last step; none if they are half of
    the ranks or more."""
    last_steps = [(each.rank, each.steps[-1]) for each in every if each.steps]
    if not last_steps or not middle_s:
        return []
    usual = middle(step.at for _, step in last_steps)
    furthest = max((step.epoch, step.step) for _, step in last_steps)
    early = [(rank, step) for rank, step in last_steps if usual - step.at > BEHIND * middle_s]
    behind = [rank for rank, step in early if (step.epoch, step.step) < furthest]
    return behind if 2 * len(behind) < len(last_steps) else []


def note(ranks: Ranks) -> Iterator[str]:
    """Yield sentences about the ranks: number, median step time, ranks that stand out."""
    timed = sum(each.step_s is not None for each in ranks.every)
    yield f"{counted(len(ranks.every), 'rank')} in the last round."
    if timed > 1:
        yield f"A step took the median rank {words.exact(ranks.middle_s)}."
    for look, called in LABELS.items():
        odd = sorted(rank for rank, worst in ranks.odd.items() if worst == look)
        if odd:
            yield f"{called.capitalize()}: {numbered(odd, 'rank')}."
    if timed < len(ranks.every):
        yield f"The seconds of a step are known for {counted(timed, 'rank') if timed else 'no rank'}."
    if timed > 1 and not {"slow", "stopped"} & {*ranks.odd.values()}:
        yield f"Of the {timed} ranks with steps, none was slower than the median by a quarter,"
        yield "and none stopped before the others."


def dots(ranks: Ranks) -> Dots | None:
    timed = [each for each in ranks.every if each.step_s]
    if len(ranks.every) < LEAST_DOTS or not timed:
        return None
    texts = levels(ranks.slowest_s)
    last, most = number(ranks.every[-1]), texts[-1]
    stride = max(1, len(timed) // MOST_DOTS)
    paths: dict[str, str] = {}
    for i, each in enumerate(timed):
        if i % stride == 0 or number(each) in ranks.odd:
            look = ranks.odd.get(number(each), "")
            x, y = (number(each) + 0.5) / (last + 1), 1 - seconds(each) / most
            paths[look] = paths.get(look, "") + f"M{WIDE * x:.0f} {HIGH * y:.0f}h0"
    ticks = [Tick(percent(1 - each / most), words.exact(each) if each else "0") for each in texts]
    return Dots(last, ticks, dict(sorted(paths.items())))


def rows(ranks: Ranks) -> list[Process]:
    """Return the ranks of the table: all; of many ranks, those that stand out and the first ones."""
    if len(ranks.every) <= MOST_ROWS:
        return ranks.every
    odd = [each for each in ranks.every if each.rank in ranks.odd]
    ordinary = [each for each in ranks.every if each.rank not in ranks.odd]
    return odd + ordinary[: max(8, 16 - len(odd))]
