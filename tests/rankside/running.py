"""Starting the programs of this folder as jobs, and comparing what they left with what the tables say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rankside.expected import (
    Expected,
    Record,
    of_kind,
    read_records,
    wrong_files,
    wrong_numbers,
    wrong_records,
)

from testbench.jobs.job import Job, Starter

LONG_S = 240  # several imports of PyTorch, of DeepSpeed or of MindSpore on two busy cores
# Names of a rank's number, as launchers call it.
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK_ID", "MS_NODE_ID")
ENV = {"RANKLAUNCH_ACCELERATOR": "cpu", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}

# The launcher records of each method, by name; and the launcher that a rank record names as what placed the rank.
LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "spawn": (),
    "torchrun": ("torchrun",),
    "megatron": ("torchrun",),
    "accelerate": ("accelerate",),
    "deepspeed": ("deepspeed",),
    "msrun": ("msrun",),
    "mpirun": (),
    "script": ("torchrun",),
}
PLACED_BY: Mapping[str, str] = {
    "spawn": "ranklaunch",
    "torchrun": "torchrun",
    "megatron": "torchrun",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "msrun": "msrun",
    "mpirun": "mpirun",
    "script": "torchrun",
}

SCRIPT = """#!/bin/bash
set -e
echo "starting"
torchrun --nproc-per-node 2 --master-port "${{MASTER_PORT:-29500}}" {program}
"""


def start(starter: Starter, folder: Path, program: Path, method: str, **more: str) -> Job:
    """A job of two ranks of a program that lies in this folder."""
    words: tuple[object, ...] = (program,)
    options: tuple[object, ...] = ("--method", method, "--slots", 2)
    if method == "script":
        script = folder / "run.sh"
        script.write_text(SCRIPT.format(program=program))
        words, options = ("bash", script), ("--method", "plain")
    return starter.run(*words, options=options, cwd=folder, log_dir=folder / "logs", grace_s=5, env={**ENV, **more})


def rank_of(record: Record) -> str:
    variables = record.data.get("variables") or {}
    return next((str(variables[name]) for name in RANK_NAMES if name in variables), "")


def pid_of(folder: Path, rank: int) -> int:
    """As the rank itself has written it down."""
    file = folder / f"pid-{rank}"
    return int(file.read_text()) if file.exists() else 0


def differences(folder: Path, expected: Sequence[Expected], method: str, nodes: Mapping[int, int], logs: Path | None = None) -> list[str]:
    """Of a job of two ranks, whose rank 1 is the program. nodes: of each rank. logs: where its records are."""
    records = read_records(logs or folder / "logs")
    wrong = wrong_files(records) + wrong_numbers(records)
    launchers = {record.process for record in of_kind(records, "launcher")}
    ranks = {rank: (nodes[rank], pid_of(folder, rank)) for rank in (0, 1)}
    wrong += _wrong_ranks(of_kind(records, "rank"), ranks, method)
    wrong += _wrong_launchers(records, method, _ended_by_signals(logs or folder / "logs"))
    others = [
        _with_process(record, ranks) for record in records if record.kind in {"exception", "exit"} and record.process not in launchers
    ]
    return wrong + wrong_records(expected, others)


def _with_process(record: Record, ranks: Mapping[int, tuple[int, int]]) -> Record:
    by = {ranks[0]: "rank 0", ranks[1]: "rank"}.get(record.process, "child")
    return Record(record.path, record.data, by)


def _wrong_ranks(records: Iterable[Record], ranks: Mapping[int, tuple[int, int]], method: str) -> list[str]:
    """Each rank has one record, of the process that ran the program; the launcher has placed it."""
    wrong = []
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(rank_of(record), []).append(record)
    for rank, process in ranks.items():
        of_rank = found.pop(str(rank), [])
        if [record.process for record in of_rank] != [process]:
            wrong.append(f"rank records of rank {rank} are {[record.path.name for record in of_rank]}: its node and pid are {process}")
        for record in of_rank:
            if record.data.get("launcher") != PLACED_BY[method]:
                wrong.append(f"{record.path.name} has the launcher {record.data.get('launcher')!r}")
            if (record.data.get("top") or {}).get("pid") != record.pid:
                wrong.append(f"{record.path.name} has the top {record.data.get('top')!r}")
    return wrong + [f"too much: {record} of rank {rank!r}" for rank, left in found.items() for record in left]


def _ended_by_signals(logs: Path) -> set[int]:
    """Pids, by ranklaunch's own events."""
    lines = [line for file in logs.rglob("events.jsonl") for line in file.read_text(encoding="utf-8").splitlines()]
    events = [json.loads(line) for line in lines]
    return {event["pid"] for event in events if event["event"] == "exit" and event["signal"]}


def _wrong_launchers(records: Sequence[Record], method: str, ended_by_signals: set[int]) -> list[str]:
    """The launchers that a method starts have a record each, and an exit record, unless a signal has ended them."""
    launchers = of_kind(records, "launcher")
    names = {str(record.data.get("name")) for record in launchers}
    wrong = [] if names == set(LAUNCHERS[method]) else [f"launcher records are of {sorted(names)}, and {method} has {LAUNCHERS[method]}"]
    ended = {record.process for record in of_kind(records, "exit")}
    left = [record for record in launchers if record.process not in ended and record.pid not in ended_by_signals]
    return wrong + [f"no exit record of {record}" for record in left]


def codes_of_launchers(records: Sequence[Record]) -> list[object]:
    launchers = {record.process for record in of_kind(records, "launcher")}
    return [record.data.get("code") for record in of_kind(records, "exit") if record.process in launchers]


def check(wrong: Sequence[str], job: Job | None = None) -> None:
    """Fail, and name everything that is different."""
    if wrong:
        words = f"\n\n{job.err.text[-3000:]}\n{job.out.text[-3000:]}" if job else ""
        pytest.fail("\n".join(["", *wrong]) + words, pytrace=False)


def bare_environment(folder: Path, **more: str) -> dict[str, Any]:
    """How to start a program without ranklaunch, as its rank 1: for subprocess."""
    (folder / "pid-0").write_text("0")  # the peer is there
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {"cwd": folder, "env": {**kept, "LANG": "C", "OMP_NUM_THREADS": "1", "RANK": "1", **more}}
