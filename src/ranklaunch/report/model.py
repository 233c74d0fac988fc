"""Content of a report, shown by each format in its own way.

Times are seconds since 1970 by node 0's clock, None if unknown. Texts from processes and from other machines are safe
to print: secrets are hidden and control characters are escaped. HTML still needs its own escaping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from ranklaunch.fields import as_dict
from ranklaunch.verdict.blame import SuspectHost as SuspectHost
from ranklaunch.verdict.model import KnownError as KnownError

SCHEMA: Final = "ranklaunch.report/1"
Outcome = Literal["succeeded", "failed", "stopped", "unfinished"]
State = Literal["ended", "unfinished", "missing", "unread"]  # of a node

SUCCEEDED: Final = "succeeded"  # outcomes, as in verdict.json
FAILED: Final = "failed"
STILL: Final = "nothing moved"  # subject of a hang alarm
UNFINISHED: Final = "unfinished"  # no verdict: the job still runs, or all of it was killed

# Kinds of spans on a node's time line.
CONTAINER = "container"  # from the start of the container to that of ranklaunch
START = "start"  # reading, planning, checks and preparing steps, up to the launch; waits are spans of their own
WAIT = "wait"  # for a rank table, host names or ports; the text names them
MUSTER = "muster"  # start barrier: wait for the other nodes
LAUNCH = "launch"  # from the launch to the first step, or to the end if there is no step
STEPS = "steps"  # from the first step to the end
SAVING = "saving"  # a checkpoint is written, and no rank makes a step
STALLED = "stalled"  # nothing moves
SLOW = "slow"  # steps took much longer than before; overlaps the other kinds
STOP = "stop"  # from the deciding end to the end of the last process
GATE = "gate"  # restart gate, from the end of a round to the next release: cleanup, a pause, the wait for all nodes

# Kinds of marks (moments) on a node's time line.
READ, RELEASED, LAUNCHED, FIRST_OUTPUT, FIRST_STEP, FAILURE, SIGNAL, HANG, DONE, ENDED = (
    "read", "released", "launched", "first output", "first step", "failure", "signal", "hang", "done", "ended",
)  # fmt: skip

# Labels of the buckets, in display order. The buckets add up to the wall time of an attempt.
BUCKETS = {
    "waiting_s": "waiting for nodes",
    "startup_s": "start-up",
    "productive_s": "productive",
    "repeated_s": "repeated",
    "saving_s": "saving",
    "stalled_s": "stalled",
    "stopping_s": "stopping",
    "gate_s": "restart gate",
    "running_s": "running, no steps seen",
    "unknown_s": "unknown",
}


@dataclass(frozen=True)
class Span:
    """Span of time. kind: a kind of a node's span, or a bucket's name. ended: None if unknown. text: the awaited thing, or the node
    that came last to the muster."""

    kind: str
    began: float
    ended: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Mark:
    """Moment on a node's time line. rank: None if the moment belongs to no single rank."""

    kind: str
    at: float
    text: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class Seen:
    """Step in the output of a rank. at: time of the line that shows the step."""

    at: float
    epoch: int
    step: int


@dataclass(frozen=True)
class Culprit:
    """Process that decided the end, or another process that failed by itself. rank: None for a launcher or a preparing step. time: time of
    the failure, as in verdict.json. last_lines: end of its output, as in verdict.json. meaning: explanation of the exit status, if the
    output names no known error. log: path of its log, relative to the report's folder, "" if missing."""

    name: str
    node: int
    rank: int | None
    host: str = ""
    pid: int | None = None
    exit_code: int | None = None
    signal: str = ""
    out_of_memory: bool = False
    time: str = ""
    last_lines: tuple[str, ...] = ()
    error: KnownError | None = None
    meaning: str = ""
    log: str = ""


@dataclass(frozen=True)
class Suspect:
    """Rank that may hold up a hanging job. node: -1 if unknown. why: reason for the suspicion. file: file with its stacks. log: path
    of its log, relative to the report's folder."""

    rank: int
    node: int
    why: str
    file: str = ""
    log: str = ""


@dataclass(frozen=True)
class Raised:
    """Exception recorded by the raising process itself; only a matching exit code confirms that the exception ended the process. rank: None
    for a helper, a child of multiprocessing or a launcher. at: time of the raise. where: main, thread, or process for a child of
    multiprocessing. thread: name of the thread, "" for the main thread. launcher: name of the raising launcher, "" for none. text: type,
    message and place. cause: the exception that caused this one, or during whose handling this one was raised, "" for none."""

    node: int
    rank: int | None
    pid: int
    at: float
    where: str
    thread: str
    launcher: str
    text: str
    cause: str = ""


@dataclass(frozen=True)
class Stacks:
    """Ranks whose main threads are at the same place. frames: stack of one of these ranks, innermost frame first. place: the collective,
    or the function that the program has called, with the place of the call."""

    ranks: tuple[int, ...]
    frames: tuple[str, ...]
    place: str = ""


@dataclass(frozen=True)
class Hang:
    """Hang alarm. since: time of the last movement. ended: time of the next movement, None without one. signals: the parts without
    movement."""

    since: float | None
    ended: float | None = None
    text: str = ""
    signals: tuple[str, ...] = ()
    suspects: tuple[Suspect, ...] = ()

    @property
    def subject(self) -> str:
        """Return the subject of the alarm: a standstill, or a broken rule of RANKLAUNCH_EXPECT, which may break while everything moves."""
        return "a rule was broken" if any(each.startswith("RANKLAUNCH_EXPECT:") for each in self.signals) else STILL


@dataclass(frozen=True)
class Evidence:
    """Evidence taken on one node at one time. folder: relative to the report's folder. why: reason for taking the evidence."""

    node: int
    folder: str
    files: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Process:
    """Rank, or another process that ranklaunch started. rank: None for a process that is no rank. began, first_output, ended: None if
    unknown. steps: a selection with the first and the last step. step_s: seconds of one step, on average. log: relative to the report's
    folder, "" for none. sent: last signal that a stop sent to the process, "" for none."""

    name: str
    rank: int | None
    node: int
    pid: int | None = None
    began: float | None = None
    first_output: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: str = ""
    max_rss_kb: int | None = None
    steps: tuple[Seen, ...] = ()
    step_s: float | None = None
    log: str = ""
    sent: str = ""


@dataclass(frozen=True)
class OnNode:
    """One node in one round. host: "" if unknown. folder: relative to the report's folder. state: ended; unfinished if the node's events
    stop before the end; missing if the node left no files; unread if its files cannot be read. clock_s: seconds to add to this node's
    clock for node 0's. troubles: problems of ranklaunch itself, such as a log that could not be written."""

    node: int
    host: str
    folder: str
    state: State
    began: float | None = None
    ended: float | None = None
    clock_s: float = 0.0
    spans: tuple[Span, ...] = ()
    marks: tuple[Mark, ...] = ()
    processes: tuple[Process, ...] = ()
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Round:
    """Time from one start of all ranks to their end. number: 0 for the first start, then the number of the restart. outcome: unfinished if
    no file has the end. late: the node that came last to the muster, in words. last: the node that came last, None if unknown.
    decision: the next action (a restart or none), and its reason. failed: time of the deciding end. best: the highest seen step
    (epoch, step). output: bytes written by all ranks so far, at evenly spaced times."""

    number: int
    outcome: Outcome = UNFINISHED
    began: float | None = None
    released: float | None = None
    launched: float | None = None
    first_output: float | None = None
    first_step: float | None = None
    failed: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    reason: str = ""
    culprit: Culprit | None = None
    failures: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    decision: str = ""
    lost_s: float | None = None
    late: str = ""
    last: int | None = None
    best: tuple[int, int] | None = None
    nodes: tuple[OnNode, ...] = ()
    output: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True)
class Buckets:
    """Wall time in seconds, by use; the sum is the whole wall time. running_s: takes the place of productive_s if no steps were seen.
    unknown_s: time without any record."""

    waiting_s: float = 0.0
    startup_s: float = 0.0
    productive_s: float = 0.0
    repeated_s: float = 0.0
    saving_s: float = 0.0
    stalled_s: float = 0.0
    stopping_s: float = 0.0
    gate_s: float = 0.0
    running_s: float = 0.0
    unknown_s: float = 0.0


@dataclass(frozen=True)
class Accounting:
    """Use of the time. wall_s: sum of the buckets, without the time between attempts. gaps_s: time between attempts, spent by the platform.
    goodput: productive share of the wall time, None if no steps were seen. time_to_recover_s: seconds from a failure to the next
    first step, gaps included, for each interruption with training afterwards. interruptions: rounds that ended with a failure or a stop.
    slow_s: part of the productive and repeated time during a slow phase of the job."""

    wall_s: float
    buckets: Buckets
    steps_seen: bool
    goodput: float | None = None
    time_to_first_step_s: float | None = None
    time_to_recover_s: tuple[float, ...] = ()
    interruptions: int = 0
    gaps_s: float = 0.0
    slow_s: float = 0.0


@dataclass(frozen=True)
class Gap:
    """Time between two attempts, in which no process of the job ran. after: number of the attempt before."""

    after: int
    began: float
    ended: float


@dataclass(frozen=True)
class Attempt:
    """One start of the job by its platform. outcome, exit_code, reason, culprit, failures and notes: from the end of the attempt. timeline:
    the job's time as spans without a gap, each with a bucket's name as its kind. missing: nodes that left no files. stop: effects of a
    stop request, in words, from verdict.json. because: the deciding rules, in their order, each with its finding."""

    number: int
    outcome: Outcome
    began: float
    ended: float
    exit_code: int | None = None
    reason: str = ""
    culprit: Culprit | None = None
    failures: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    stop: str = ""
    hangs: tuple[Hang, ...] = ()
    stacks: tuple[Stacks, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    rounds: tuple[Round, ...] = ()
    missing: tuple[int, ...] = ()
    timeline: tuple[Span, ...] = ()
    accounting: Accounting | None = None
    suspect_host: SuspectHost | None = None
    because: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """Node of the job, as in plan.json."""

    index: int
    host: str
    slots: int
    first_rank: int


@dataclass(frozen=True)
class Difference:
    """Fact with different values on the nodes: each value, and the nodes with this value."""

    name: str
    values: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Job:
    """Program, platform and nodes of the job; empty without a plan.json. why: reason for the method. hang_s, first_step_s: limits of the
    hang alarm in seconds, 0 for none."""

    name: str = ""
    platform: str = ""
    method: str = ""
    why: str = ""
    command: tuple[str, ...] = ()
    world_size: int = 0
    accelerator: str = ""
    nodes: tuple[Node, ...] = ()
    ranklaunch: str = ""
    hang_s: float = 0.0
    first_step_s: float = 0.0


@dataclass(frozen=True)
class Tail:
    """Last lines of a log: the culprit's, or a suspect's."""

    log: str
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Course of a job. Times are seconds since 1970 by node 0's clock. folder: path of the read folder. outcome, exit_code, reason,
    culprit: from the end of the newest attempt. began, ended: over all attempts. accounting: over all attempts. tails: last lines of the
    logs of the culprit and of suspects. troubles: unreadable and omitted parts. other_jobs: folders of other jobs in the same log folder.
    exceptions: from the last round, on all nodes. read_at: time of the report, 0 if left out."""

    folder: str
    job: Job
    outcome: Outcome
    exit_code: int | None
    reason: str
    culprit: Culprit | None
    began: float
    ended: float
    attempts: tuple[Attempt, ...]
    gaps: tuple[Gap, ...]
    accounting: Accounting
    differences: tuple[Difference, ...] = ()
    tails: tuple[Tail, ...] = ()
    troubles: tuple[str, ...] = ()
    other_jobs: tuple[str, ...] = ()
    exceptions: tuple[Raised, ...] = ()
    read_at: float = 0.0
    schema: Literal["ranklaunch.report/1"] = SCHEMA


def as_json(report: Report) -> dict[str, Any]:
    """Return the report in the schema ranklaunch.report/1, in which keys are only ever added."""
    return {"schema": SCHEMA, **as_dict(report)}
