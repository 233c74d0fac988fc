"""Facts of a round on this node for the decision about another round: steps, checkpoints, a stop
request."""

from __future__ import annotations

import glob
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ranklaunch.errors import RanklaunchError
from ranklaunch.hangs.steps import Steps
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.ending import placed, stopped_by
from ranklaunch.system import disk
from ranklaunch.system.bounded import within
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import Ending

TAIL = 64 * 1024  # bytes read at the end of a rank's log
MOST_LOGS = 16  # logs that are read: trainers print in the first or the last rank
MOST_MARKS = 10_000  # checkpoint markers


def state(
    plan: Plan, kept: Sequence[str], launched_at: float | None, now: float, *, finished: bool, failure: RanklaunchError | None = None
) -> Mapping[str, Any]:
    """Return the facts of this node as JSON.

    kept: further logs of ranks, kept by a launcher. launched_at: None if no rank was started.
    launched_at and now are monotonic seconds. finished: a rank ended with 0 by itself. failure:
    error because of which this round and later ones cannot begin here.
    """
    if launched_at is None:
        return {"launched": False, "unable": bool(failure)}
    place = highest([*logs(plan), *kept])
    today, seconds = time.time(), now - launched_at  # monotonic, so setting the clock does not change the length of a round
    found, mark, at = marks(plan.marks, today - seconds) if plan.marks else (False, None, None)
    return {
        "launched": True,
        "seconds": round(seconds, 3),
        "finished": finished,
        "place": list(place) if place else None,
        "marks": found,
        "mark": mark,
        "since_mark_s": round(max(0.0, today - at), 3) if at else None,
    }


def asked(plan: Plan, ending: Ending, request: tuple[int, float] | None) -> Mapping[str, Any]:
    """Return facts about a stop request, a hang or the death of ranklaunch on this node.

    request: signal and time of the first stop request. A request counts if it came after the ending,
    or if the ending is its result.
    """
    facts: dict[str, Any] = {"gone": blame.place(plan.job.node_index, plan.job.node.host)} if ending.killed else {}
    if ending.hung and plan.watch.hang == "stop":
        facts["hung"] = True
    if request and (request[1] >= ending.at or ending.outcome == "stopped"):
        facts["stop"] = [128 + request[0], placed(plan, stopped_by(request[0]))]
    return facts


def logs(plan: Plan) -> list[str]:
    """Return the logs of this node's ranks; if there are many, those of the first and the last ranks."""
    paths = [process.log for process in plan.processes if process.rank is not None]
    paths += [log.log for log in (plan.outputs.logs if plan.outputs else ()) if log.rank is not None]
    paths = paths or [process.log for process in plan.processes]
    half = MOST_LOGS // 2
    return paths if len(paths) <= MOST_LOGS else [*paths[:half], *paths[-half:]]


def highest(paths: Iterable[str]) -> tuple[int, int] | None:
    """Return the epoch and the highest step in the tails of these logs. Only the ranks with the most
    reliable kind of step lines count."""
    last_steps = []
    for path in paths:
        steps = Steps()
        steps.feed(disk.end_of(path, TAIL) + b"\n", 0.0)
        last_steps += [steps.last] if steps.last else []
    best = min((step.weight for step in last_steps), default=0)
    return max(((step.place.epoch, step.place.step) for step in last_steps if step.weight == best), default=None)


def marks(patterns: Sequence[str], since: float) -> tuple[bool, int | None, float | None]:
    """Return True if any checkpoint marker can be read, then the highest step of the markers newer
    than `since`, and its time.

    The search runs in a process with a time limit: a mount may not answer.
    """
    answer = within(lambda: json.dumps(_marks(patterns)).encode())
    numbers = [(number, at) for number, at in json.loads(answer or b"[]")]
    newest = max((each for each in numbers if each[1] >= since), default=(None, None))
    return bool(numbers), *newest


def _marks(patterns: Sequence[str]) -> list[tuple[int, float]]:
    return [(number, at) for path in _paths(patterns) if (number := _number(path)) is not None and (at := _made(path)) is not None]


def _paths(patterns: Sequence[str]) -> list[str]:
    paths = (path for pattern in patterns for path in glob.glob(pattern)[:MOST_MARKS])
    return [path for path in paths if not is_unfinished(path)]


def _number(path: str) -> int | None:
    number = step_in_name(path)
    if number is not None or os.path.isdir(path):
        return number
    try:
        return step_in_text(disk.read(disk.readable(path), MOST_OF_MARKER).decode(errors="replace"))
    except (OSError, disk.NotRegularError):
        return None


def _made(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


# Markers that trainers write beside their checkpoints, with the step in their name or text
#
# - latest_checkpointed_iteration.txt (Megatron): the iteration, or the word release;
# - latest (DeepSpeed): the folder's name, global_step1000;
# - checkpoint-1000 (Hugging Face), step_1000, iter_0001000, epoch=3-step=1000.ckpt: the name
# itself.

MOST_OF_MARKER = 4096  # bytes
_IN_NAME = re.compile(r"(?:checkpoint|global_?step|step|iter|iteration|ckpt)[-_=]?(\d{1,15})(?!\d)", re.IGNORECASE)
_UNFINISHED = re.compile(r"(?i)^\.?te?mp[-_.]|[-_.~]te?mp\b|\.(?:part|partial|incomplete|unfinished|inprogress|in_progress|new|swp)$|~$")
_IN_TEXT = re.compile(r"(\d{1,15})\s*$")


def step_in_name(path: str) -> int | None:
    """Return the step number in the last part of a path; None without one."""
    numbers = _IN_NAME.findall(_last_part(path))
    return int(numbers[-1]) if numbers else None


def is_unfinished(path: str) -> bool:
    """Return True for the name of a file or folder under construction, to be renamed at the end."""
    return bool(_UNFINISHED.search(_last_part(path)))


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def step_in_text(text: str) -> int | None:
    """Return the number at the end of a marker's text."""
    match = _IN_TEXT.search(text[:MOST_OF_MARKER].strip())
    return int(match[1]) if match else None
