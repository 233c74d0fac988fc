"""Print tables of the results of tests/cluster/test_hangs.py and test_default_hangs.py. FILE has a line of JSON for each run of a program.

RANKLAUNCH_HANG_TABLE=FILE .venv/bin/pytest -m "table or not table" tests/cluster/test_hangs.py tests/cluster/test_default_hangs.py
.venv/bin/python tools/hang_table.py FILE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Run = dict[str, Any]


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        sys.stderr.write(__doc__ or "")
        return 2
    path = Path(argv[0])
    runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    samples = [run for run in runs if "name" in run]
    lines = [*(table(samples) if samples else ()), *defaults(runs)]
    print("\n".join(lines) if lines else "no program that hangs was run")
    return 0


def defaults(runs: list[Run]) -> Iterator[str]:
    """Yield the table of jobs with default settings: a row for each method, a column for each place of the hang."""
    cells = [(*run["default"].split(" ", 5), run) for run in runs if "default" in run]
    places = sorted({place for *_, place, _ in cells})
    if cells:
        yield ""
        yield f"| method | {' | '.join(places)} |"
        yield "| --- |" + " --- |" * len(places)
    for method in sorted({cell[0] for cell in cells}):
        found = [[_cell(cell) for cell in cells if (cell[0], cell[5]) == (method, place)] for place in places]
        yield f"| {method} | {' | '.join('; '.join(each) for each in found)} |"
    if cells:
        named = [run for *_, run in cells if run["names"]]
        right = sum(_is_right(run) for run in named)
        yield ""
        yield f"Alarms {_share(sum(run['seen'] for *_, run in cells), len(cells))}, the right rank named {_share(right, len(named))}."
    healthy = [run for run in runs if "healthy" in run]
    if healthy:
        yield f"Alarms of healthy programs {_share(sum(run['seen'] for run in healthy), len(healthy))}."


def _cell(cell: tuple[Any, ...]) -> str:
    """Return "NODES x RANKS MOMENT ✓" for an alarm that names the right rank, if there is one to name; else with ✗."""
    _, nodes, _, slots, moment, _, run = cell
    return f"{nodes} x {slots} {moment} {'✓' if run['seen'] and (run['names'] is None or _is_right(run)) else '✗'}"


def table(runs: list[Run]) -> Iterator[str]:
    yield "| program | runs | alarms | named, in how many of them | evidence of all nodes after |"
    yield "| --- | --- | --- | --- | --- |"
    for name in dict.fromkeys(run["name"] for run in runs):
        own = [run for run in runs if run["name"] == name]
        alarms = [run for run in own if run["seen"]]
        expected = "none expected" if not own[0]["hangs"] else ""
        yield f"| {name} | {len(own)} | {len(alarms)} | {_named(alarms) or expected} | {_seconds(alarms)} |"
    hangs, others = ([run for run in runs if run["hangs"] is kind] for kind in (True, False))
    found, false = sum(run["seen"] for run in hangs), sum(run["seen"] for run in others)
    right = [run for run in hangs if run["seen"] and run["names"] is not None]
    yield ""
    named = _share(sum(map(_is_right, right)), len(right))
    yield f"Recall {_share(found, len(hangs))}, precision {_share(found, found + false)}, the right ranks named {named}."


def _named(alarms: list[Run]) -> str:
    verdicts = [f"rank {', '.join(map(str, run['named']))}" if run["named"] else "symmetric" for run in alarms]
    return "; ".join(f"{text}: {verdicts.count(text)}" for text in dict.fromkeys(verdicts))


def _seconds(alarms: list[Run]) -> str:
    """Return the longest time until the evidence of all nodes was there; "" if no run has one."""
    times = [run["evidence_s"] for run in alarms if run["evidence_s"] is not None]
    return f"{max(times):.1f} s" if times else ""


def _is_right(run: Run) -> bool:
    return bool(run["named"] == run["names"])


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
