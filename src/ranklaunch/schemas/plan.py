"""File plan.json, and output of `ranklaunch plan --format json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.env.reader import Reading
from ranklaunch.plan.model import Console, File, Limits, Recorders, Save, Tell


class _OfAnyNode(TypedDict):
    index: int
    host: str
    slots: int
    first_rank: int


class Node(_OfAnyNode, total=False):
    """Container of the job. host: empty if unknown. slots: number of ranks; 0 for a node without ranks that serves the other nodes.
    first_rank: the rank of slot 0. task: ps or worker, in jobs with both; else empty. task_index: index among nodes of the same
    task. port: listening port, 0 if the platform assigns none. devices: numbers of the ranks' devices, if these are not the first
    devices of the node."""

    task: str
    task_index: int
    port: int
    devices: list[int]


class _OfAnyJob(TypedDict):
    name: str
    attempt: int
    world_size: int
    node_index: int
    accelerator: Literal["npu", "gpu", "cpu"]
    nodes: list[Node]


class Job(_OfAnyJob, total=False):
    """Facts from the platform. name: the same on every node. attempt: number of this start, from 1. restart: number of restarts of the
    ranks in place; absent for the first start. world_size: ranks of all nodes together. node_index: of this node. nodes: the
    participants, in the order of their indexes. idle: nodes asked to take no part."""

    restart: int
    idle: list[Node]


class Wait(TypedDict):
    """Condition for the launch. for_: kind of condition. what: by kind, the path, the names with commas between them, the place and members
    of the start barrier, HOST:PORT with commas, or the command. timeout_s: longest wait in seconds. seen: present state of the
    condition."""

    for_: Literal["rank table", "topology", "hosts", "muster", "port", "hosts command"]
    what: str
    timeout_s: float
    seen: str


class Muster(TypedDict):
    """Start barrier of the nodes (muster). host, port: listening address of node 0. node: index of this node, in the platform's order.
    timeout_s: longest wait for the last node. lost_after_s: silence until a host counts as lost. end_timeout_s: longest wait of a node
    with successful ranks for the other nodes. secret: source of the key; empty if the key is derived from the job's name. facts: values
    required to be the same on all nodes, by name. allowed: names of facts exempt from this. followers: number of nodes without processes
    of their own, which end with the other nodes."""

    host: str
    node: int
    port: int
    timeout_s: float
    lost_after_s: float
    end_timeout_s: float
    secret: str
    facts: Mapping[str, str]
    allowed: list[str]
    followers: int


class _OfAnyProcess(TypedDict):
    name: str
    rank: int | None
    local_rank: int | None
    argv: list[str]
    env: Mapping[str, str]
    unset: list[str]
    cwd: str | None
    log: str
    copies: list[str]
    tag: str
    behaviour: str


class Process(_OfAnyProcess, total=False):
    """Process started and supervised by ranklaunch. name: name in logs and messages. rank, local_rank: null for a launcher, since a
    launcher starts the ranks itself, and for preparing steps. argv: the command, word by word; secrets are hidden. env: variables added
    to the inherited environment. unset: inherited variables removed before env is added. cwd: null for the folder in which ranklaunch was
    started. log: file for the output. copies: further files for the output. tag: text before each line on the console. behaviour:
    launcher class for watching and stopping the process; empty for a rank and for steps. The other keys are present only if set. quiet:
    true if the output goes only to the log. may_end: true for a service allowed to end with 0 before the processes. outlasts: true for a
    service needed by ranks of other nodes until their ends. fails_as: exit code of the job when this service fails. sessions: folders
    with a folder for the service and each of its daemons, where {host} and {uid} stand for those of the node; ranklaunch removes the
    folders of killed daemons."""

    quiet: bool
    may_end: bool
    outlasts: bool
    fails_as: int
    sessions: list[str]


class RankLog(TypedDict):
    """Log of a rank started by a launcher. rank: null for a process without a rank, such as msrun's scheduler. log: path of the file. tag:
    text before each line on the console."""

    rank: int | None
    log: str
    tag: str


class _OfAnyLayout(TypedDict):
    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    order: str
    groups: Mapping[str, list[list[int]]]


class Layout(_OfAnyLayout, total=False):
    """Distribution of a model over ranks by Megatron: sizes of tensor (tp), pipeline (pp), context (cp), expert (ep) and data parallelism
    (dp). order: the kinds of parallelism in the order of rank numbers, the fastest-changing first. groups: lists of ranks, by kind.
    expert_tp, expert_dp: tensor and data parallelism of experts, if these are distributed in another way than the rest."""

    expert_tp: int
    expert_dp: int


class Restarts(TypedDict):
    """Restarts in place. most: largest number of restarts without progress. never: exit codes after which there is no restart.
    restarted_outside: true if the platform counts its own starts of the job. marks: patterns of the paths of checkpoints' markers."""

    most: int
    never: list[int]
    restarted_outside: bool
    marks: list[str]


class _OfAnyWatch(TypedDict):
    hang: str
    hang_s: float
    first_step_s: float
    expect: str


class Watch(_OfAnyWatch, total=False):
    """Reaction to a hang of the job (docs/hangs.md): hang is observe, stop, restart or off. hang_s, first_step_s: seconds without a sign
    of life, and the same before the first step. expect: the user's rules, unchanged. slow: factor above the usual step time for a report
    of the job as slow; 0 for never; missing for the default."""

    slow: float


class _OfAnyPlan(TypedDict):
    schema: Literal["ranklaunch.plan/2"]
    platform: str
    method: str
    why: str
    job: Job
    files: list[File]
    private: str
    services: list[Process]
    waits: list[Wait]
    muster: Muster | None
    gather: list[Process]
    prepare: list[Process]
    processes: list[Process]
    recorders: Recorders
    rank_logs: list[RankLog]
    layout: Layout | None
    limits: Limits
    save: Save
    watch: Watch
    values: list[Reading]
    warnings: list[str]


class Trust(TypedDict):
    """Degree of trust in a program's report of success. left_ranks: treatment of ranks that outlive the program. silent_s: longest wait
    for such ranks, in seconds without a sign of life. alone_s: seconds for a launcher's ranks to work alone on one of several nodes."""

    exit: Literal["whole", "program"]
    left_ranks: Literal["wait", "kill"]
    silent_s: float
    alone_s: float
    each_node_alone: bool
    nested: Literal["stop", "allow"]


class Plan(_OfAnyPlan, total=False):
    """Plan of one node. platform: source of the environment. method: way to start the ranks. why: reason for the method: the user's
    choice, or a sign in the environment. files: written before anything starts. private: folder for keys, made anew for the container's
    user alone before files are written, and removed at the end; empty for none. services: processes started before the ranks and ended
    after them. waits: conditions for everything else. muster: null for one node, or if switched off. gather: steps run after the waits to
    collect facts; the plan is then made anew. prepare: steps run to their end, in order, before the processes. processes: ranks, or a
    launcher. rank_logs: empty if the processes are the ranks. layout: null if the method has no groups of ranks. values: every value, with
    its source. warnings: texts for the user. restarts: null unless ranks may start again in place. tell: null unless tools are notified of
    the job. console: null unless the console shows less than everything. fewer_ranks: null unless launchers may start fewer ranks than
    planned. trust: null for the default. socket: path of the running job's socket, if outside the attempt's folder, else empty."""

    restarts: Restarts
    tell: Tell
    console: Console
    fewer_ranks: bool
    trust: Trust
    socket: str


DOCUMENTS: Mapping[str, Any] = {"plan": Plan}
