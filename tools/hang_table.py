"""Makes a table of what tests/cluster/test_hangs.py has noted: FILE, a line of JSON for each run of a program.

RANKLAUNCH_HANG_TABLE=FILE .venv/bin/pytest -m "table or not table" tests/cluster/test_hangs.py
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
    print("\n".join(table(runs)) if runs else "no program that hangs was run")
    return 0


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
    told = [f"rank {', '.join(map(str, run['named']))}" if run["named"] else "symmetric" for run in alarms]
    return "; ".join(f"{text}: {told.count(text)}" for text in dict.fromkeys(told))


def _seconds(alarms: list[Run]) -> str:
    """At most."""
    found = [run["evidence_s"] for run in alarms if run["evidence_s"] is not None]
    return f"{max(found):.1f} s" if found else ""


def _is_right(run: Run) -> bool:
    return bool(run["named"] == run["names"])


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
