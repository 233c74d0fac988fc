"""Names of a job's files and folders, for their writers and readers. Pure: paths are text.

    LOGS[/job_<id>][/node_<i>]/attempt_<k>/    plan.json, events.jsonl, verdict.json, ends.json, rank_<r>.log, times_<i>, and
                                               files of launchers; <i> is a node
        evidence/node_<i>/<n>/                 the n-th collection of evidence
        records/node_<i>/                      records of ranks and launchers about themselves (ranklaunch.rankside)

After a restart in place, ranks write into restart_<r>/ below the attempt, with the same names. The attempt's own verdict.json is about
the whole attempt. The two parts in brackets exist if several jobs or nodes may share one log folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ranklaunch.files import join

PLAN, EVENTS, VERDICT = "plan.json", "events.jsonl", "verdict.json"
ROUND = "round.json"  # verdict of a round that another round follows
ENDS = "ends.json"  # end of each process of this node
HANG = "hang.json"  # the last hang alarm; exists if a command is notified of hangs
SLOW = "slow.json"  # the last event of a slow job; exists if a command is notified of slow jobs
EVIDENCE = "evidence"
RECORDS = "records"
TUNE, BEST = "tune", "run"  # folders of a search and of the run with its best settings, beside the attempt
OF_TUNE = ("exps", "results.json")  # names in the folder of a search that has tried something
COMMAND = "command.txt"  # command of an experiment
RANK_TABLE = "ranktable.json"  # in HCCL's format
ATTEMPTS, OF_NODES = "attempt_*", "node_*/attempt_*"  # patterns for messages

_ATTEMPT = "attempt_([0-9]{1,6})"


def job(logs: str, name: str) -> str:
    """Return the folder of a job. name: the job's id, valid as a file name."""
    return join(logs, f"job_{name}")


def node(logs: str, index: int) -> str:
    return join(logs, f"node_{index}")


def attempt(logs: str, number: int) -> str:
    """Return the folder of an attempt. logs: the folder of one node, or the log folder if each node has its own disk."""
    return join(logs, f"attempt_{number}")


def restart(attempt: str, number: int) -> str:
    """Return the folder of a round. number: restarts before; 0 for the first start, which uses the attempt's folder."""
    return join(attempt, f"restart_{number}") if number else attempt


def rank_log(attempt: str, rank: int) -> str:
    return join(attempt, f"rank_{rank}.log")


def times(folder: str, node: int) -> str:
    """Return the path of the file with the times at which this node's supervisor read parts of the logs in a folder.

    A line `f NUMBER NAME` numbers a log. A line `NUMBER END MICROSECONDS` gives the time of one part, from the end of the part before to
    byte END. Times are since 1970, by node 0's clock if known.
    """
    return join(folder, f"times_{node}")


def socket(node: int) -> str:
    """Return the name of a supervisor's control socket in an attempt's folder."""
    return f"node_{node}.sock"


def stop_clock(node: int) -> str:
    """Return the name of the file in an attempt's folder that records the duration of a node's stop."""
    return f"stop_clock_{node}"


def killed_after(clock: str) -> int:
    """Return the seconds from a stop request to the kill. clock: content of the stop clock, a line and one dot for each second. Return 0
    if all processes had exited before, or if the content is invalid."""
    _, line, ticks = clock.partition("\n")
    return len(ticks) if line and ticks and not ticks.strip(".") else 0


def evidence(attempt: str, node: int) -> str:
    """Return one node's evidence folder. Each collection has a folder inside."""
    return join(join(attempt, EVIDENCE), f"node_{node}")


def records(attempt: str, node: int) -> str:
    """Return the folder of the records that ranks and launchers of one node write."""
    return join(join(attempt, RECORDS), f"node_{node}")


def attempts(names: Iterable[str]) -> list[int]:
    """Return the numbers of the attempts among the names in a folder, ascending."""
    return sorted(int(match[1]) for match in (re.fullmatch(_ATTEMPT, name) for name in names) if match)


def newest(names: Iterable[str]) -> int:
    """Return the number of the last attempt among the names in a folder, 0 for none."""
    return max(attempts(names), default=0)
