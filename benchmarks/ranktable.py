"""Rank tables of 1,000 to 131,072 ranks: validating, finding one's own slice and planning a node, against json.loads of the same text.

    python benchmarks/ranktable.py [--json FILE]

Each row is measured in turn in one process, best of several rounds (A B A B ...); memory is what Python has allocated at the peak
(tracemalloc), in a round of its own because it slows everything down. Ratios are what counts: seconds depend on the machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from ranklaunch import ranktable
from ranklaunch.files import NoFiles
from ranklaunch.job import Program
from ranklaunch.planning import Request, make_plan
from ranklaunch.ranktable import make

SERVERS = (128, 1024, 16384)
DEVICES = 8
ROUNDS = 5


class OneFile(NoFiles):
    """A view of files with a rank table in it and nothing else."""

    def __init__(self, text: str) -> None:
        self._text = text

    def text(self, path: str, limit: int) -> str | None:
        return self._text if path == ranktable.DEFAULT_PATHS[0] else None

    def exists(self, path: str) -> bool:
        return path == ranktable.DEFAULT_PATHS[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    given = parser.parse_args()
    rows = [row(servers, version) for version in ("1.0", "0.1") for servers in SERVERS]
    print(f"{'ranks':>7} {'version':>7} {'MB':>5} {'json.loads':>10} {'validate':>9} {'plan':>8} {'time ratio':>10} {'memory ratio':>12}")
    for r in rows:
        print(
            f"{r['ranks']:7} {r['version']:>7} {r['megabytes']:5.1f} {r['json_s'] * 1e3:8.1f}ms {r['validate_s'] * 1e3:7.1f}ms "
            f"{r['plan_s'] * 1e3:6.1f}ms {r['plan_s'] / r['json_s']:10.2f} {r['plan_bytes'] / r['json_bytes']:12.2f}"
        )
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


def row(servers: int, version: str) -> dict[str, Any]:
    made = make.make(tuple(make.addresses("10.0.0.0/8", servers)), _devices(servers))
    text = make.text_of(made, version)
    request = Request(Program("train.py"), _env(servers), OneFile(text), {"method": "ranktable"})
    steps: dict[str, Callable[[], object]] = {
        "json": lambda: json.loads(text),
        "validate": lambda: ranktable.parse(text, "table"),
        "plan": lambda: make_plan(request),
    }
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(ROUNDS):
        for name, step in steps.items():
            gc.collect()
            began = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - began)
    return {
        "ranks": servers * DEVICES,
        "version": version,
        "megabytes": len(text) / 1e6,
        **{f"{name}_s": seconds for name, seconds in best.items()},
        "json_bytes": _allocated(steps["json"]),
        "plan_bytes": _allocated(steps["plan"]),
    }


def _devices(servers: int) -> list[list[tuple[str, str]]]:
    ips = make.addresses("29.0.0.0/8", servers * DEVICES)
    return [[(str(d), next(ips)) for d in range(DEVICES)] for _ in range(servers)]


def _env(servers: int) -> dict[str, str]:
    return {
        "MA_NUM_HOSTS": str(servers),
        "MA_NUM_GPUS": str(DEVICES),
        "MA_VJ_NAME": "job",
        "VC_TASK_INDEX": str(servers // 2),
        "RANK_TABLE_FILE": ranktable.DEFAULT_PATHS[0],
    }


def _allocated(step: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    kept = step()  # noqa: F841 - alive while its size is read
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main()
