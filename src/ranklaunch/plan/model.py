"""Plan of one node's work, as values: printed by `plan`, executed by `run`, compared by the golden tests."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ranklaunch.env.job import Job, Node
from ranklaunch.env.reader import Reading
from ranklaunch.errors import counted
from ranklaunch.fields import json_of
from ranklaunch.redact import redact

if TYPE_CHECKING:
    from ranklaunch.plan.megatron import Layout

SCHEMA = "ranklaunch.plan/2"

RANKS, PROGRAM, NODES = "ranks", "program", "nodes"  # Plan.runs


@dataclass(frozen=True)
class File:
    """File to write before any process starts. mode: octal digits. source: path of the original of a copy, "" for a file with a text."""

    path: str
    text: str
    mode: str = "0600"
    source: str = ""


TABLE = "rank_table"  # fact of a Muster: digest of the ranks' rank table
RENEWED = "kubelet renews a mounted ConfigMap within about two minutes, and never one that is mounted by subPath"


@dataclass(frozen=True)
class Wait:
    """A condition for launch.

    kind and what: "rank table" or "topology", with a path; "hosts", with names and commas; "muster", with its place and members; "port",
    with HOST:PORT of SSH servers and commas (checked when this node's services have started); "hosts command", with the command, which
    `run` asks before it plans. seen: present state of the condition.
    """

    kind: str
    what: str
    timeout_s: float
    seen: str = ""


@dataclass(frozen=True)
class Process:
    """One process, started and supervised by ranklaunch.

    rank, local_rank: None for a launcher (torchrun), the starter of its ranks, and for steps.
    env: values added to the inherited environment. unset: inherited names to remove. cwd: None for the inherited folder.
    log: file for the output. copies: further files for the output. tag: text before each line on the console.
    node: index of the simulated node, for a process of `simulate`. comes_with: package of the program, for the message about a missing
    program. least: a package and its oldest working version. rival: name and description of another program with the same name.
    needs: further programs started by this one, each with its package.
    behaviour: launcher class for watching and stopping the process (ranklaunch.adapters.launchers); "" for a rank and for steps.
    template: name of the shipped template of argv, or path of the user's; "" for none.
    quiet: True to keep the lines off the console. may_end: True for a service that may end with 0 before the processes. outlasts: True
    for a service needed by ranks of other nodes until their ends. fails_as: exit code of the job when this service fails; 0: its own
    code. sessions: folders with a folder for each daemon, leftovers of killed daemons; {host} and {uid} stand for this host and user.
    """

    name: str
    argv: tuple[str, ...]
    log: str
    rank: int | None = None
    local_rank: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    cwd: str | None = None
    tag: str = ""
    copies: tuple[str, ...] = ()
    node: int | None = None
    comes_with: str = ""
    least: tuple[str, str] | None = None
    rival: tuple[str, str] | None = None
    behaviour: str = ""
    template: str = ""
    needs: tuple[tuple[str, str], ...] = ()
    quiet: bool = False
    may_end: bool = False
    outlasts: bool = False
    fails_as: int = 0
    sessions: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankLog:
    """Destination of one rank's lines: the file `log`, and the console with `tag`.

    key: name of the rank in the launcher's own files. rank: None for a process that is no rank (msrun's scheduler).
    """

    key: str
    rank: int | None
    log: str
    tag: str


@dataclass(frozen=True)
class RankOutputs:
    """Outputs of a launcher's own ranks, to tell their lines apart.

    They are files below `folder` with paths that match `pattern`, a regular expression; the matching group is the key of one of `logs`.
    With folder "", the ranks write through the launcher, with a match of the pattern before each piece.
    """

    folder: str
    pattern: str
    logs: tuple[RankLog, ...]

    @functools.cached_property
    def keys(self) -> Mapping[int, str]:
        """Keys by rank."""
        return {log.rank: log.key for log in self.logs if log.rank is not None}

    def key(self, rank: int | None) -> str:
        """Return the key of a rank, "" if it is unknown. None: the one process that is no rank."""
        without_rank = (log.key for log in self.logs if log.rank is None)
        return next(without_rank, "") if rank is None else self.keys.get(rank, "")


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds. wait_s: for each wait before launch. grace_s: from the first signal to SIGKILL."""

    wait_s: float
    grace_s: float


@dataclass(frozen=True)
class Muster:
    """Place and limits of the nodes' meeting before launch, and of their contact afterwards (docs/muster.md).

    node, hosts: this node's index and the names of all, in the platform's order; a rank table may change the order later. port: of node
    0. timeout_s: longest wait of all nodes for the last. lost_after_s: silence of a host's network until the node counts as lost.
    end_timeout_s: longest wait of a node with successful ranks for the rest. secret: source of the key, "" for a key derived from the
    job's name. facts: values required to be equal on all nodes; allowed: facts exempt from this. followers: nodes without processes of
    their own; they end after the rest.
    """

    node: int
    hosts: tuple[str, ...]
    port: int
    timeout_s: float
    lost_after_s: float
    end_timeout_s: float
    secret: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    followers: int = 0


@dataclass(frozen=True)
class Save:
    """Ways to ask the ranks to save: a signal (USR1, USR2 or TERM), and a file that is touched; "" for each that is not used."""

    signal: str = ""
    file: str = ""

    @property
    def wanted(self) -> bool:
        return bool(self.signal or self.file)


@dataclass(frozen=True)
class Console:
    """Choice of ranks' lines for the console.

    ranks: the shown ranks, as spans, "" for all. merge: show equal lines of several ranks once. most: bytes, after which only rank 0,
    warnings and errors are shown; 0: no limit. victims: fold (after a failure, one line for all lines of the ranks stopped because of it)
    or all.
    """

    ranks: str = ""
    merge: bool = False
    most: int = 0
    victims: str = "fold"

    @property
    def filters(self) -> bool:
        """True if some lines of running ranks are not shown at once."""
        return bool(self.ranks or self.merge or self.most)


@dataclass(frozen=True)
class Rounds:
    """Restarts in place. most: restarts without progress. never: exit codes that forbid a restart. restarted_outside: True if the platform
    counts its own starts of the job, so a new start may get other devices."""

    most: int
    never: tuple[int, ...] = ()
    restarted_outside: bool = False


@dataclass(frozen=True)
class Recorder:
    """An environment variable of every process that is started, with the reason."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Recorders:
    """Settings for processes to record their actions.

    folder: private folder of this machine for records until they become evidence, "" if none is needed. fifo: name of the variable with the
    beginning of the paths of fifos, which ask a recorder for a dump. Processes get it only if the folder can hold fifos.
    """

    variables: tuple[Recorder, ...] = ()
    folder: str = ""
    fifo: str = ""


@dataclass(frozen=True)
class Watch:
    """Reaction to a hang of the job (docs/hangs.md).

    hang: observe, stop, restart or off. hang_s, first_step_s: seconds without a sign of life, after and before the first step. expect: the
    user's rules, as given. slow: factor above the usual step time at which the job is reported as slow; 0: never.
    """

    hang: str = "observe"
    hang_s: float = 300.0
    first_step_s: float = 1800.0
    expect: str = ""
    slow: float = 2.0

    @property
    def look_s(self) -> float:
        """Seconds between two checks of the ranks."""
        return min(10.0, self.hang_s / 10)


@dataclass(frozen=True)
class Tell:
    """Tools that are notified about the job (docs/observability.md).

    metrics_file: "" for none; {node} in the name is this node's index. metrics_port: 0 for none. on_event: words of a
    command; node 0 appends the event's name and the path of its JSON, and runs it. trainjob: node 0 reports its steps to
    the status of its TrainJob.
    """

    metrics_file: str = ""
    on_event: tuple[str, ...] = ()
    trainjob: bool = False
    metrics_port: int = 0


@dataclass(frozen=True)
class Trust:
    """Degree of trust in a program's report of success (docs/supervision.md).

    exit: whole or program. left_ranks: wait or kill. silent_s: longest wait for ranks that outlive the program, in seconds without a sign
    of life. alone_s: seconds for which a launcher's ranks may work alone on one of several nodes. each_node_alone: True if they may do so
    for good. nested: stop or allow.
    """

    exit: str = "whole"
    left_ranks: str = "wait"
    silent_s: float = 600.0
    alone_s: float = 60.0
    each_node_alone: bool = False
    nested: str = "stop"


@dataclass(frozen=True)
class Plan:
    """Plan of one node.

    Steps and processes:
    - gather: steps that collect facts; after them the plan is made anew.
    - prepare: steps that run to their end, in order, before the processes.
    - services: run beside the processes, and are stopped after them; a node that has only services follows the rest.
    - runs: RANKS, PROGRAM (one on each node, untouched) or NODES (a process plays each node).
    - fewer_ranks: True if launchers may start fewer ranks than planned, and succeed.
    - slots: ranks of all nodes, if the job counts one slot for each program; else ().

    Files:
    - outputs: files of a launcher's ranks. kept: files of ranks, requested by the user.
    - private: folder for keys, for this account only; made before the files are written, and removed at the end.
    - offers: paths by name. When the nodes meet, each node sends the texts of these files to node 0, and node 0 sends its own to all.
    - shows: files to show after a success, if the job has made or renewed them.
    - known_errors: folder of the user's known errors. marks: patterns of paths of checkpoints' markers.

    Nodes:
    - muster: None for a single node, or if it is off. followers: as in Muster.
    - by_address: True if the plan names hosts by IPv4 address, and is made anew when these are known.
    - layout: groups of ranks, if the method knows them.

    Features: save, recorders (variables for all processes), watch, rounds (None: no restart in place), tell (None: no tool is notified),
    console (None: all lines are shown), trust.

    noted: warnings for the notes of the verdict.
    """

    job: Job
    method: str
    why: str
    processes: tuple[Process, ...]
    limits: Limits
    files: tuple[File, ...] = ()
    services: tuple[Process, ...] = ()
    waits: tuple[Wait, ...] = ()
    gather: tuple[Process, ...] = ()
    prepare: tuple[Process, ...] = ()
    outputs: RankOutputs | None = None
    kept: RankOutputs | None = None
    private: str = ""
    offers: Mapping[str, str] = field(default_factory=dict)
    by_address: bool = False
    followers: int = 0
    shows: tuple[str, ...] = ()
    muster: Muster | None = None
    layout: Layout | None = None
    runs: str = RANKS
    values: tuple[Reading, ...] = ()
    warnings: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    known_errors: str = ""
    save: Save = Save()
    recorders: Recorders = Recorders()
    watch: Watch = Watch()
    rounds: Rounds | None = None
    tell: Tell | None = None
    marks: tuple[str, ...] = ()
    console: Console | None = None
    fewer_ranks: bool = False
    trust: Trust = Trust()
    slots: tuple[int, ...] = ()

    @property
    def ranks_here(self) -> int:
        """Number of ranks on the node, including those that the program starts itself."""
        job = self.job
        return job.among[1] if job.among else self.slots[job.node_index] if self.slots else job.node.slots


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON of schema ranklaunch.plan/2, a contract: keys are only ever added. Secrets are hidden."""
    return {
        "schema": SCHEMA,
        "platform": plan.job.platform,
        "method": plan.method,
        "why": plan.why,
        "job": _job(plan.job),
        "files": json_of(plan.files),
        "private": plan.private,
        "services": list(map(_process, plan.services)),
        "waits": [{"for": wait.kind, **_fields(wait, "what", "timeout_s", "seen")} for wait in plan.waits],
        "muster": _muster(plan.muster) if plan.muster else None,
        "gather": list(map(_process, plan.gather)),
        "prepare": list(map(_process, plan.prepare)),
        "processes": list(map(_process, plan.processes)),
        "recorders": json_of(plan.recorders),
        "rank_logs": [_fields(log, "rank", "log", "tag") for log in (plan.outputs.logs if plan.outputs else ())],
        "layout": _layout(plan.layout) if plan.layout else None,
        "limits": json_of(plan.limits),
        "save": json_of(plan.save),
        **_set(restarts=plan.rounds and {**json_of(plan.rounds), "marks": list(plan.marks)}),
        "watch": _watch(plan.watch),
        **_set(
            console=json_of(plan.console),
            fewer_ranks=plan.fewer_ranks,
            trust=plan.trust != Trust() and json_of(plan.trust),
            tell=plan.tell and {**json_of(plan.tell), "on_event": list(redact.argv(plan.tell.on_event))},
        ),
        "values": json_of(plan.values),
        "warnings": list(plan.warnings),
    }


def _set(**values: object) -> dict[str, object]:
    """Return the values that are not empty; keys of empty values are left out."""
    return {name: value for name, value in values.items() if value}


def _fields(value: object, *names: str) -> dict[str, Any]:
    return {name: json_of(getattr(value, name)) for name in names}


def _job(job: Job) -> dict[str, Any]:
    return {
        **_fields(job, "name", "attempt"),
        **_set(restart=job.restart),
        **_fields(job, "world_size", "node_index", "accelerator"),
        "nodes": list(map(_node, job.nodes)),
        **_set(idle=list(map(_node, job.idle))),
    }


def _node(node: Node) -> dict[str, Any]:
    """Return a node as JSON. Missing tasks and devices are left out, since a job may have 10,000 nodes."""
    task = ("task", "task_index", "port") if node.task else ()
    return {**_fields(node, "index", "host", "slots", "first_rank", *task), **_set(devices=json_of(node.devices))}


def _watch(watch: Watch) -> dict[str, Any]:
    """Return the watch as JSON, without `slow` at its default."""
    names = ("hang", "hang_s", "first_step_s", "expect", *(("slow",) if watch.slow != Watch().slow else ()))
    return _fields(watch, *names)


def _layout(layout: Layout) -> dict[str, Any]:
    from ranklaunch.plan import megatron

    return megatron.as_json(layout)


def _muster(muster: Muster) -> dict[str, Any]:
    values = json_of(muster)
    return {"host": values.pop("hosts")[0], **values}


def _process(process: Process) -> dict[str, Any]:
    """Return a process as JSON, without rare fields at their defaults."""
    return {
        **_fields(process, "name", "rank", "local_rank"),
        "argv": list(redact.argv(process.argv)),
        "env": redact.environment(process.env),
        **_fields(process, "unset", "cwd", "log", "copies", "tag", "behaviour"),
        **_set(**_fields(process, "quiet", "may_end", "outlasts", "fails_as", "sessions")),
    }


def everything(plan: Plan, *, of_job: bool = False) -> str:
    """Return the work of a node, or of the job, as the subject of a sentence."""
    job = plan.job
    if plan.runs == NODES:
        return f"all {len(job.nodes)} nodes"
    if of_job and plan.runs == PROGRAM:
        return f"the program on all {len(job.nodes)} nodes"
    if of_job:
        return f"all {job.world_size} ranks on {counted(len(job.nodes), 'node')}"
    if job.is_idle:
        return "this node, which takes no part,"
    if job.node.slots == 1 or plan.runs == PROGRAM:
        return "the program"
    return f"all {job.node.slots} ranks" if len(job.nodes) == 1 else f"all {job.node.slots} ranks of node {job.node_index}"
