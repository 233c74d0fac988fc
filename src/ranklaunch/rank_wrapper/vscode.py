"""File launch.json for Visual Studio Code, by which its debugger attaches to the ranks of a job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ranklaunch.env.settings import DEBUGPY
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import PROGRAM, Plan

EVERYWHERE = ("0.0.0.0", "::")


def as_launch(plans: Iterable[Plan], cwd: str) -> str:
    """Return the text of launch.json. cwd: working folder of the program, if the plan names none. Raises ConfigError without a debugger."""
    configurations = [entry for plan in plans for entry in _entries(plan, cwd)]
    if not configurations:
        msg = f"--format vscode needs ranks with a debugger, and no rank has one: add {DEBUGPY.both}"
        raise ConfigError(msg)
    both = {"name": "all ranks", "configurations": [entry["name"] for entry in configurations]}
    return json.dumps({"version": "0.2.0", "configurations": configurations, "compounds": [both]}, indent=2) + "\n"


def _entries(plan: Plan, cwd: str) -> Iterator[dict[str, Any]]:
    text = next((reading.value for reading in plan.values if reading.name == "debuggers"), "")
    node = plan.job.node
    folder = next((process.cwd for process in plan.processes if process.cwd), cwd)
    for i, place in enumerate(text.split(",") if text else ()):
        host, _, port = place.rpartition(":")
        name = "program" if plan.runs == PROGRAM else f"rank {_rank(plan, i)}"
        yield {
            "name": f"{name} (node {node.index}{f', {node.host}' if node.host else ''})",
            "type": "debugpy",
            "request": "attach",
            "connect": {"host": (node.host or "127.0.0.1") if host in EVERYWHERE else host, "port": int(port)},
            "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": folder}],
            "justMyCode": False,
        }


def _rank(plan: Plan, local_rank: int) -> int:
    """Return the rank with this local rank. A rank table may number the plan's processes differently."""
    ranks = {process.local_rank: process.rank for process in plan.processes if process.rank is not None}
    rank = ranks.get(local_rank)
    return plan.job.node.first_rank + local_rank if rank is None else rank
