"""Content of a report: values shown by each format in its own way.

Times are seconds since 1970 by node 0's clock, None if unknown. Texts of processes and of other machines are fit to be
shown: secrets are hidden and control characters are escapes. Makers of HTML still have to escape them.
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
STILL: Final = "nothing moved"  # what a hang alarm is about
UNFINISHED: Final = "unfinished"  # of what left no verdict: it runs, or everything of it was killed

# Kinds of spans. Of a node's time line:
CONTAINER = "container"  # from the start of its container to that of ranklaunch
START = "start"  # reading, planning, checking, preparing steps: to the launch, beside the waits
WAIT = "wait"  # for a table, names or ports; text: for what
MUSTER = "muster"  # for the other nodes
LAUNCH = "launch"  # from the launch to the first step, or to the end where there is none
STEPS = "steps"  # from the first step to the end
SAVING = "saving"  # a checkpoint, while no rank goes on
STALLED = "stalled"  # nothing moves
SLOW = "slow"  # steps took much longer than before; beside the others
STOP = "stop"  # from what decided to the end of everything
GATE = "gate"  # from the end of a round to the next release: what ranks leave behind, a pause, all nodes again

# Kinds of marks: moments of a node's time line.
READ, RELEASED, LAUNCHED, FIRST_OUTPUT, FIRST_STEP, FAILURE, SIGNAL, HANG, DONE, ENDED = (
    "read", "released", "launched", "first output", "first step", "failure", "signal", "hang", "done", "ended",
)  # fmt: skip

# The buckets, in their order, and what each is called. Their sum is the wall time of an attempt.
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
    """Span of time. kind: one of those above, or a bucket. ended: None if unknown. text: the awaited thing, or the last node to come."""

    kind: str
    began: float
    ended: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Mark:
    """rank: None for what is no rank's."""

    kind: str
    at: float
    text: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class Seen:
    """A step of a rank: when its line came."""

    at: float
    epoch: int
    step: int


@dataclass(frozen=True)
class Culprit:
    """Also of another process that failed by itself. rank: None for a launcher or a preparing step. time: from the verdict. last_lines: of
    the verdict. meaning: meaning of its end, if its output says nothing. log: the path of its log, relative to the report's folder, ""
    if missing."""

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
    """Who holds a hanging job up, and why that is thought. file: where its stacks are."""

    rank: int
    node: int
    why: str
    file: str = ""
    log: str = ""


@dataclass(frozen=True)
class Raised:
    """An exception recorded by its own process; an exit code must confirm the record. rank: null for a helper, a child of multiprocessing
    or a launcher. at: time of the raise. where: main, thread, or process for a child of multiprocessing. thread: its name, "" for the
    main thread. launcher: name of the raising launcher, "" for none. text: type, message and place. cause: the exception that caused
    this one, or was in handling at the time, "" for none."""

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
    """Ranks whose main threads stand at one place. frames: of one of them, the innermost first. place: the collective, or the function that
    the program has called, and where."""

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
    def what(self) -> str:
        """Say what the alarm is about: a rule of the user's may break while everything moves."""
        return "a rule was broken" if any(each.startswith("RANKLAUNCH_EXPECT:") for each in self.signals) else STILL


@dataclass(frozen=True)
class Evidence:
    """Taken on one node at one time. folder: relative to the report's."""

    node: int
    folder: str
    files: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Process:
    """Rank, or another started process: rank is None then. began, first_output, ended: None if unknown. steps: thinned, with
    the first and the last. step_s: seconds of one step, on average. log: relative to the report's folder, "" for none.
    sent: last signal of the stop that ended the process, "" for none."""

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
    """One node in one round. host: "" if unknown. folder: relative to the report's. state: ended; unfinished if its events stop before the
    end; missing if the node left nothing; unread if its files cannot be read. clock_s: correction of its own clock to node 0's.
    troubles: such as a log that could not be written."""

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
    """Time from one start of all ranks to their end; the first has the number 0. outcome: unfinished if no record has its end. late: last
    at the muster, in words; last: this node, None if unknown. decision: the next step, and its reason. failed: time of the deciding
    failure. best: the highest seen step (epoch, step). output: bytes written by all ranks up to a time, at equal times."""

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
    """Where the wall time went, in seconds; their sum is that time. running_s: in place of productive_s where no steps were seen.
    unknown_s: of which nothing tells."""

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
    """wall_s: the sum of the buckets, so without the time between attempts: gaps_s, the platform's part. goodput: productive share of the
    wall time, None if no steps were seen. time_to_recover_s: of each interruption with training afterwards, from the failure to the next
    first step, gaps included. interruptions: rounds with a failure or a stop as their end. slow_s: part of the productive and repeated
    time during a slow phase of the job."""

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
    """Between two attempts, when nothing of the job ran. after: the attempt before it."""

    after: int
    began: float
    ended: float


@dataclass(frozen=True)
class Attempt:
    """outcome, exit_code, reason, culprit, failures and notes: of its end. timeline: the job's time, span by span, each of the kind of a
    bucket's name; the spans follow each other without a gap. missing: nodes that left nothing. stop: effects of a stop request, in words,
    from verdict.json. because: the deciding rules, in their order, each with its finding."""

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
    """As the plans have it."""

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
    """What ran, and where; empty where no plan was left. hang_s, first_step_s: limits of the hang alarm in seconds, 0 for none."""

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
    """The last lines of a log that matters: the culprit's, and those of suspects."""

    log: str
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Course of a job. Times are seconds since 1970 by node 0's clock. folder: path of the read folder. outcome, exit_code, reason,
    culprit: of the newest attempt's end. began, ended: of all attempts. accounting: over all attempts. tails: of relevant logs.
    troubles: unreadable and omitted parts. other_jobs: folders of other jobs below the same one. exceptions: of the last round, on all
    nodes. read_at: time of the report, 0 if left out."""

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
    """Schema ranklaunch.report/1: keys are only ever added."""
    return {"schema": SCHEMA, **as_dict(report)}
