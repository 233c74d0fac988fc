"""plan.json, and what `ranklaunch plan --format json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.env.provenance import Reading
from ranklaunch.plan.model import Console, File, Limits, Recorders, Save, Tell


class _OfAnyNode(TypedDict):
    index: int
    host: str
    slots: int
    first_rank: int


class Node(_OfAnyNode, total=False):
    """One container of the job. host: empty where unknown. slots: ranks on it; 0 where it only serves the others. first_rank: the rank of
    its slot 0. task: what it does where the containers of a job differ: ps or worker. task_index: its index among those of its task.
    port: the one at which it is told to listen, 0 where the platform tells none. devices: numbers of those that its ranks use, where they
    are not the first of the node."""

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
    """What the platform has given. name: the same on every node. attempt: which start this is, from 1. restart: how often ranks were
    started again in place; not there for the first start. world_size: ranks of all nodes together. node_index: of this node. nodes: those
    that take part, in the order of their indexes. idle: those that were asked to take no part."""

    restart: int
    idle: list[Node]


class Wait(TypedDict):
    """Something that must be there before launch. for_: what kind of thing. what: the path, the names with commas between them, who meets
    where, HOST:PORT with commas, or the command. timeout_s: seconds that it is waited for. seen: what is there in its place so far."""

    for_: Literal["rank table", "topology", "hosts", "muster", "port", "hosts command"]
    what: str
    timeout_s: float
    seen: str


class Muster(TypedDict):
    """Where the nodes meet before launch. host, port: where node 0 listens. node: index of this one, in the platform's order. timeout_s:
    how long all wait for the last. lost_after_s: silence after which a host is lost. end_timeout_s: how long a node whose ranks have
    succeeded waits for the others. secret: where the key comes from; empty: it is derived from the job's name. facts: what must be the
    same on all nodes, by name. allowed: names of facts that may differ. followers: how many nodes have no processes of their own and
    follow the others."""

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
    """One that ranklaunch starts and supervises. name: how it is called in logs and messages. rank, local_rank: null for a launcher, which
    starts the ranks itself, and for preparing steps. argv: the command, word by word; secrets are hidden. env: variables added to the
    inherited environment. unset: inherited variables removed from it, before env is added. cwd: null for the folder that ranklaunch was
    started in. log: the file that receives its output. copies: further files that do. tag: what stands before each of its lines on the
    console. behaviour: the launcher that it is, by which it is watched and stopped; empty for a rank and for steps. The others are only
    there where they are set. quiet: its lines go to its log alone. may_end: a service that may end with 0 before the processes do.
    outlasts: a service that the ranks of other nodes need until they have ended. fails_as: exit code of the job that the service's failure
    makes fail. sessions: folders in which it and its daemons have folders of their own, with {host} and {uid} for the node's: ranklaunch
    removes those of killed ones."""

    quiet: bool
    may_end: bool
    outlasts: bool
    fails_as: int
    sessions: list[str]


class RankLog(TypedDict):
    """Where a rank writes that a launcher starts. rank: null for what is no rank, as msrun's scheduler. log: the file. tag: what stands
    before each of its lines on the console."""

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
    """How Megatron spreads a model over ranks: sizes of tensor (tp), pipeline (pp), context (cp), expert (ep) and data parallelism (dp).
    order: which kind counts fastest when ranks are numbered. groups: by kind, the lists of ranks. expert_tp, expert_dp: tensor and data
    parallelism of experts, where these are laid out in another way than the rest."""

    expert_tp: int
    expert_dp: int


class Restarts(TypedDict):
    """Restarts in place. most: without progress. never: exit codes after which there is none. restarted_outside: whether the platform
    counts its own starts of the job. marks: patterns of the paths of checkpoints' markers."""

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
    """What is done where the job hangs (docs/hangs.md): hang is observe, stop, restart or off. hang_s, first_step_s: seconds without a sign
    of life, and the same before the first step. expect: the user's rules, as they were given. slow: factor above the usual step time from
    which on the job is reported as slow; 0 for never; not there for the default."""

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
    """How far a program's account of its success is believed. silent_s: seconds without a sign of life after which ranks that it left
    at work are not waited for. alone_s: seconds that the ranks of a launcher may work alone on one of several nodes."""

    exit: Literal["whole", "program"]
    left_ranks: Literal["wait", "kill"]
    silent_s: float
    alone_s: float
    each_node_alone: bool
    nested: Literal["stop", "allow"]


class Plan(_OfAnyPlan, total=False):
    """All that one node would do, or did. platform: whose environment was read. method: how ranks are started. why: who chose the method,
    or what is there that calls for it. files: written before anything starts. private: a folder for keys, made anew for the container's
    user alone before files are written, and removed at the end; empty where none is needed. services: processes that are started before
    the ranks and ended after them. waits: what must be there before anything else happens. muster: null for one node, or where it is
    switched off. gather: steps run after the waits that bring facts; what they bring makes the plan anew. prepare: steps run to their
    end, in order, before the processes. processes: what is started. rank_logs: empty where the processes are the ranks. layout: null
    where the method does not know which ranks belong together. values: every value that was read, and where it came from. warnings: for
    people. restarts: only where ranks may start again in place. tell: only where tools are told of the job. console: only where it shows
    less than everything. fewer_ranks: only where launchers may start fewer ranks than planned. trust: only where success is believed
    otherwise than by default. socket: of a running job, where it is asked, if that is not in the attempt's folder, else empty."""

    restarts: Restarts
    tell: Tell
    console: Console
    fewer_ranks: bool
    trust: Trust
    socket: str


DOCUMENTS: Mapping[str, Any] = {"plan": Plan}
