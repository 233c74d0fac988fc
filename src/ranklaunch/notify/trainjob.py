"""A TrainJob's status, from what the ranks of node 0 tell of their steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def status(ranks: Iterable[Mapping[str, Any]], now: str, *, done: bool = False) -> dict[str, Any] | None:
    """As Kubeflow Trainer has it; None where there is nothing to tell. now: UTC, ISO 8601. done: the job has succeeded."""
    seen = [rank for rank in ranks if rank.get("step") is not None]
    if not seen:
        return {"trainerStatus": {"progressPercentage": 100, "lastUpdatedTime": now}} if done else None
    ahead = max(seen, key=lambda rank: int(rank["step"]))
    metrics = [{"name": "step", "value": str(ahead["step"])}]
    if ahead.get("step_s") is not None:
        metrics.append({"name": "step_seconds", "value": f"{ahead['step_s']:g}"})
    return {"trainerStatus": {**_progress(ahead, done), "metrics": metrics, "lastUpdatedTime": now}}


def _progress(rank: Mapping[str, Any], done: bool) -> dict[str, int]:
    """As far as the number of all steps is known."""
    if done:
        return {"progressPercentage": 100, "estimatedRemainingSeconds": 0}
    step, steps, step_s = rank["step"], rank.get("steps"), rank.get("step_s")
    if not steps:
        return {}
    progress = {"progressPercentage": min(100, 100 * step // steps)}
    return progress if step_s is None else {**progress, "estimatedRemainingSeconds": round(max(0, steps - step) * step_s)}
