"""Names of a job's files and folders, for their writers and readers. Paths are text; nothing here touches a disk.

    LOGS[/job_<id>][/node_<i>]/attempt_<k>/    plan.json, events.jsonl, verdict.json, ends.json, rank_<r>.log, times_<i>, and
                                               files of launchers
        evidence/node_<i>/<n>/                 the n-th collection of evidence
        records/node_<i>/                      records of ranks and launchers about themselves (ranklaunch.rankside)

Ranks started again in place write below the attempt, in restart_<r>/, with the same names; the attempt's own verdict.json is the end
of all. The two parts in brackets exist where several jobs or nodes may share one log folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ranklaunch.files import join

PLAN, EVENTS, VERDICT = "plan.json", "events.jsonl", "verdict.json"
ROUND = "round.json"  # how a round has ended that another follows
ENDS = "ends.json"  # how each process of this node ended
HANG = "hang.json"  # what was said of the last alarm, where a command is told of it
SLOW = "slow.json"  # the last event of a slow job, where a command is told of it
EVIDENCE = "evidence"
RECORDS = "records"
TUNE, BEST = "tune", "run"  # of a search, and of what was run with the best that it found: beside its own attempt
OF_TUNE = ("exps", "results.json")  # in the former, where it has tried something
COMMAND = "command.txt"  # of an experiment
RANK_TABLE = "ranktable.json"  # as HCCL reads it
ATTEMPTS, OF_NODES = "attempt_*", "node_*/attempt_*"  # for people

_ATTEMPT = "attempt_([0-9]{1,6})"


def job(logs: str, name: str) -> str:
    """name: the id of a job, fit for a file."""
    return join(logs, f"job_{name}")


def node(logs: str, index: int) -> str:
    return join(logs, f"node_{index}")


def attempt(logs: str, number: int) -> str:
    """logs: the folder of one node, or of all where each has a disk of its own."""
    return join(logs, f"attempt_{number}")


def restart(attempt: str, number: int) -> str:
    """number: 0 is the first start, whose folder is the attempt's own."""
    return join(attempt, f"restart_{number}") if number else attempt


def rank_log(attempt: str, rank: int) -> str:
    return join(attempt, f"rank_{rank}.log")


def times(folder: str, node: int) -> str:
    """Return the path of the times of the logs' parts in a folder, as seen by this node's supervisor: a line `f NUMBER NAME` for each log,
    and one `NUMBER END MICROSECONDS` for each part, which begins at the end of the part before. Time is since 1970, by node 0's clock
    if known."""
    return join(folder, f"times_{node}")


def socket(node: int) -> str:
    """The name, in an attempt's folder, of what a node's supervisor is asked at."""
    return f"node_{node}.sock"


def stop_clock(node: int) -> str:
    """The name, in an attempt's folder, of the file that tells how long a stop of this node took."""
    return f"stop_clock_{node}"


def killed_after(clock: str) -> int:
    """Seconds from a stop request to the kill, as a stop's clock tells; 0 where everything had ended before, or it tells nothing."""
    _, line, ticks = clock.partition("\n")
    return len(ticks) if line and ticks and not ticks.strip(".") else 0


def evidence(attempt: str, node: int) -> str:
    """Return one node's evidence folder, with a folder inside for each time of capture."""
    return join(join(attempt, EVIDENCE), f"node_{node}")


def records(attempt: str, node: int) -> str:
    """Folder of the records that ranks and launchers of one node write."""
    return join(join(attempt, RECORDS), f"node_{node}")


def attempts(names: Iterable[str]) -> list[int]:
    """The numbers of the attempts among the names in a folder, ascending."""
    return sorted(int(match[1]) for match in (re.fullmatch(_ATTEMPT, name) for name in names) if match)


def newest(names: Iterable[str]) -> int:
    """The number of the last attempt among the names in a folder, 0 where there is none."""
    return max(attempts(names), default=0)
