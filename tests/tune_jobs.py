"""A search with a program whose speed and need of memory are known (tests/children/tuned.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from testbench.jobs.job import Job, Starter
from testbench.places import child

GIB = 1 << 30
CONFIG: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": [2, 4, 6, 8],
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": "auto"},
    "autotuning": {"tuner_early_stopping": 0},
}
FEW = {**CONFIG, "train_micro_batch_size_per_gpu": [6, 8], "zero_optimization": {"stage": [1, 2]}}
BEST = "z2_mbs6_gas1"


def tune(starter: Starter, *more: object, folder: str = "logs", config: Any = CONFIG, words: tuple[object, ...] = (), **env: object) -> Job:
    path = starter.folder / "ds.json"
    path.write_text(json.dumps(config))
    options = ("--method", "spawn", "--slots", 2, "--python", sys.executable, "--grace-s", 5, "--memory", "40g")
    where = ("--log-dir", starter.folder / folder)
    given = {name: str(value) for name, value in env.items()}
    program = (child("tuned.py"), "--deepspeed_config", path, *words)
    return starter.command("tune", *options, *where, *more, "--", *program, log_dir=starter.folder / folder, env=given)


def found(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "tune" / "results.json").read_text())
    return values


def experiments(folder: Path) -> dict[str, Any]:
    return {each["name"]: each for each in found(folder)["experiments"]}
