"""A search as lines of text: its plan, and its results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ranklaunch.errors import counted
from ranklaunch.showing import one_line
from ranklaunch.tune import memory, results
from ranklaunch.tune.model import FLOPS, LATENCY, MODEL, OK, PROFILE, PRUNED, RANDOM, THROUGHPUT, TOKENS, Candidate, Result, Row
from ranklaunch.tune.search import Search
from ranklaunch.tune.tuners import order

MOST_ROWS = 60  # candidates in the order of --dry-run
UNITS = {THROUGHPUT: "samples/s", LATENCY: "s/step", FLOPS: "TFLOPS/device"}
CONSOLE_UNITS = {THROUGHPUT: "samples/s", LATENCY: "s a step", FLOPS: "FLOPS a device"}
HEAD = ("", "configuration", "stage", "micro", "steps", "offload", "others", "status")


def described(search: Search) -> list[str]:
    """Return the lines of --dry-run: the space, pruned candidates, and the order."""
    settings, rows = search.settings, search.rows
    remaining = [row for row in rows if row.status != PRUNED]
    ranks = f"{counted(settings.ranks, 'rank')} on {counted(settings.nodes, 'node')}"
    lines = [f"{counted(len(rows), 'candidate')}, {len(rows) - len(remaining)} of them pruned; each experiment has {ranks}"]
    lines += [*(f"warning: {warning}" for warning in settings.warnings), *needs(search), ""]
    chosen = {candidate.name: candidate for candidate in search.space}
    usual = [chosen[row.name] for row in remaining if row.name in chosen and not chosen[row.name].reserve]
    lines += [f"order: {_order(search)}", *_numbered(search, usual)]
    reserve = len(remaining) - len(usual)
    if reserve:
        lines.append(f"only if nothing else fits: {counted(reserve, 'candidate')} with the optimizer's states on the host")
    return [*lines, *_reasons(row for row in rows if row.status == PRUNED)]


def _order(search: Search) -> str:
    settings = search.settings
    early = f", until {settings.early_stop} in a row were not better" if settings.early_stop else ""
    most = f"at most {counted(settings.max_trials, 'trial')}{early}"
    if settings.tuner == RANDOM:
        return f"by chance, seed {settings.seed}, {most}"
    if settings.tuner == MODEL:
        return f"by the expected improvement of a model of the measurements, seed {settings.seed}, {most}; the candidates:"
    return f"stage after stage as long as these become faster, {most}"


def _numbered(search: Search, usual: Sequence[Candidate]) -> list[str]:
    ordered = order(search.settings, usual) if search.settings.tuner == RANDOM else list(usual)
    first = (
        []
        if search.settings.info or any(result.kind == PROFILE for result in search.results)
        else ["  0 profile: one sample of each rank, for the memory that is needed"]
    )
    named = [f"{number:3} {each.name}{_others(each.others)}" for number, each in enumerate(ordered, 1)]
    return [*first, *named[:MOST_ROWS], *([f"  ... and {len(named) - MOST_ROWS} more"] if len(named) > MOST_ROWS else [])]


def _others(others: object) -> str:
    return f"  {json.dumps(others)}" if others else ""


def needs(search: Search) -> list[str]:
    """Return lines about the needed memory of each stage, or a line with the reason for which this is unknown."""
    settings, info = search.settings, search.info
    stages = {candidate.stage: candidate for candidate in reversed(search.space) if not candidate.reserve}
    needed = {stage: memory.needed(settings, info, stages[stage]) for stage in sorted(stages)}
    if not all(needed.values()):
        return ["the number of parameters is not known: nothing is pruned by memory"]
    lines = [
        f"{info['num_params']:.4g} parameters; a device has {memory.shown(settings.memory) if settings.memory else 'an unknown memory'}"
    ]
    for stage, need in needed.items():
        if need:
            parts = ", ".join(
                f"{name} {memory.shown(getattr(need, name))}" for name in ("parameters", "gradients", "optimizer", "overhead")
            )
            lines.append(f"stage {stage} needs {memory.shown(need.least)}: {parts}")
    if not settings.memory:
        lines.append("the memory of a device is not known: nothing is pruned by memory; set --memory (RANKLAUNCH_MEMORY)")
    return lines


def lines(search: Search) -> list[str]:
    """Return the table of trials, best first; then the candidates without a trial, with the reasons; then the verdict."""
    rows = sorted(search.rows, key=lambda row: _rank(search, row))
    tried = [row for row in rows if row.status not in ("waiting", PRUNED, "not tried")]
    table = _aligned([(*HEAD, unit(search.settings.metric, search.best)), *(_cells(search, row) for row in tried)])
    rest = _reasons(row for row in rows if row not in tried)
    return [*table, *rest, "", *verdict(search)]


def unit(metric: str, best: Result | None, units: Mapping[str, str] = UNITS) -> str:
    """Return the unit of a metric. best: any successful result, as all results of a program have the same unit."""
    return "tokens/s" if metric == THROUGHPUT and best and TOKENS in best.metrics else units[metric]


def verdict(search: Search) -> Iterator[str]:
    best, metric = search.best, search.settings.metric
    if search.reason:
        yield f"ended: {one_line(search.reason)}"
    if best is None:
        yield "no configuration ended well"
        return
    difference = results.difference(search)
    again = f"; second run: {difference:+.1%}" if difference is not None else ""
    unsure = ", more than a tenth apart: measure more steps (--end-profile-step)" if results.confirmed(search) is False else ""
    yield f"best: {best.name} with {_shown(metric, best.metrics[metric])} {unit(metric, best)}{again}{unsure}"


def _rank(search: Search, row: Row) -> tuple[int, float]:
    value = row.value if row.status == OK else None
    if value is None:
        return (1, 0.0)
    return (0, value if search.settings.metric == LATENCY else -value)


def _cells(search: Search, row: Row) -> tuple[str, ...]:
    best = search.best
    others = ", ".join(f"{path.rpartition('.')[2]}={json.dumps(value)}" for path, value in row.others.items())
    status = row.status if row.status == OK or not row.reason else f"{row.status}: {one_line(row.reason)[:60]}"
    value = _shown(search.settings.metric, row.value) if row.value is not None else ""
    mark = "*" if best and best.name == row.name else ""
    return (mark, row.name, str(row.stage), str(row.micro), str(row.steps), row.offload or "-", others[:60], status, value)


def _shown(metric: str, value: float) -> str:
    return f"{value / 1e12 if metric == FLOPS else value:.4g}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:]) or at == 1]
    widths = {at: max(len(row[at]) for row in rows) for at in kept}
    return ["  ".join(row[at].ljust(widths[at]) for at in kept).rstrip() for row in rows]


def _reasons(rows: Iterable[Row]) -> list[str]:
    """Return lines about candidates without a trial, grouped by the reason."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(f"{row.status}: {one_line(row.reason)}" if row.reason else row.status, []).append(row.name)
    return [f"{counted(len(names), 'candidate')} {reason} ({_few(names)})" for reason, names in groups.items()]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:2])} ... {names[-1]}"
