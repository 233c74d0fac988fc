"""Method torchrun: one torchrun per node (torch >= 1.11), as ModelArts starts it with MA_RUN_METHOD=torchrun."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ranklaunch.adapters.launchers.shared import base, contradictions, user_options
from ranklaunch.adapters.launchers.shared.base import (
    ROUTE_PLAN,
    SETTLE_S,
    After,
    Launcher,
    Need,
    Signals,
    Started,
    failed_with,
    in_attempt,
    launcher_process,
    master_waits,
    planned,
    script_or_module,
)
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable, platform_count
from ranklaunch.env.settings import GRACE_S, MASTER_ADDR
from ranklaunch.plan import facts
from ranklaunch.plan.model import File, Plan, RankLog, RankOutputs
from ranklaunch.render.templates import Templates
from ranklaunch.showing import clipped
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Failure

NAME = "torchrun"
MODULE = "torch.distributed.run"

MASTER_PORT = replace(base.MASTER_PORT, names=(*base.MASTER_PORT.names, "MA_TORCHRUN_MASTER_PORT"), default=18888)
EXTRA = base.further_options(
    ("RANKLAUNCH_EXTRA_TORCHRUN_PARAMS", "MA_EXTRA_TORCHRUN_PARAMS"),
    "further options of torchrun; the last of two equal options wins, so they add to or override ranklaunch's",
)
RANK_AFTER_ACC = platform_count("rank_after_acc", ("RANK_AFTER_ACC",), "node rank after route planning", per_node=True)
MASTER_INDEX = platform_count("master_index", ("MA_MASTER_INDEX",), "index of the node that has rank 0 after route planning")

SHUTDOWN = Variable(
    "shutdown_timeout", ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT",), parse.count, 0, "seconds that ranks have after a stop before torch kills them",
    default_text="the grace, rounded up, and 5 more, where this torch knows the variable", per_node=True,
)  # fmt: skip

KILLS_AFTER_S = 30  # seconds from SIGTERM until torch kills its ranks
HELD_AFTER_S = 28  # seconds from SIGTERM until ranklaunch stops torch (SIGSTOP), if the grace is longer
_KNOWS_SHUTDOWN = "torch/distributed/launcher/api.py"  # torch 2.13; after a failure of a rank, the variable has no effect there

_FAILURE = r"(?m)^\s*rank\s*: (?P<rank>[0-9]+) \(local_rank: [0-9]+\)\s*^\s*exitcode\s*: (?P<code>-?[0-9]+) \(pid: (?P<pid>[0-9]+)\)"

# Prefix of a log line with the pid of the torchrun itself; older versions do not write it.
_AGENT = r"(?:\b(?P<agent>\d{1,10}) torch/\S+ )?"
# Report of a torchrun that was signalled itself, or of a failed rank.
_END_REPORT = (
    r"(?:SignalException: Process |\b)(?P<signalled>[0-9]{1,10}) (?:got signal: |torch/\S{1,120}\] Received )(?P<signal>[0-9]{1,2})\b|"
    + _AGENT
    + r"failed \(exitcode: (?P<code>-?[0-9]+)\) local_rank: [0-9]+ \(pid: (?P<pid>[0-9]+)\)"
)

# Torch 1.11 to 2.13 signals its ranks: SIGTERM after the failure of a rank, else the signal that torchrun itself got.
CLOSING = _AGENT + r"Sending process (?P<living>\d+) closing signal SIG"

# Last line of the summary after a failure, or of the traceback after a stop. Torch needs a second or more to exit after it.
REPORT_END = r"(?ms)Root Cause \(first observed failure\):.*?^=+\r?\n|SignalException: Process \d+ got signal: \d+\r?\n"

# Prefix of the warning about OMP_NUM_THREADS, by torch 2.6 and newer, 2.1 to 2.5, and older. An empty line with the prefix and a line of
# asterisks come before the warning.
_WARNS = (
    r"(?:W[0-9]{4} [0-9:.]+ +[0-9]+ torch/distributed/run\.py:[0-9]+\] ?|\[[0-9 :,.-]+\] torch\.distributed\.run: \[WARNING\] ?|"
    r"WARNING:torch\.distributed\.run:)"
)
ONE_THREAD = rf"{_WARNS}|(?:{_WARNS})?(?:\*{{41}}|Setting OMP_NUM_THREADS environment variable for each process .*)"

OWN_LOGS = r"(?:.*/)?([0-9]+)/(?:stdout|stderr)\.log"  # <run>/attempt_<n>/<local rank>/
_KEPT_LOGS = r"(?:.*/)?attempt_[0-9]+/([0-9]+)/(?:stdout|stderr)\.log"  # the same, in any folder

_VIRTUAL = "--virtual_local_rank"
_SHUTDOWN = "--shutdown_timeout"
_LOCAL_RANK = "--ranklaunch-local-rank=${local_rank}"  # argument for ranklaunch.programs.place_rank
_OUTPUT = ("--log_dir", "--redirects", "--tee", "--logs_specs")
OPTIONS = user_options.TORCHRUN


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    return plan_by(job, reader, templates, "torchrun/command.j2")


def plan_by(job: Job, reader: Reader, templates: Templates, template: str) -> Plan:
    extra = reader.get(EXTRA)
    job, node_rank, master = _route(job, reader)
    _lint(job, reader, extra)
    counts = (
        contradictions.Count("--nnodes", len(job.nodes), contradictions.NODES, as_range=True),
        contradictions.Count("--nproc_per_node", job.node.slots, contradictions.RANKS_HERE),
        contradictions.Count("--node_rank", node_rank, contradictions.INDEX),
    )
    contradictions.refuse(reader, EXTRA, extra, OPTIONS, NAME, counts)
    shown = with_dollars_doubled(job)
    values = {"node_rank": node_rank, "master_addr": master, "master_port": reader.get(MASTER_PORT), "extra": extra}
    argv = templates.command(template, job=shown, **values)
    own_words = (*user_options.long(user_options.before(argv, shown.program.path)), *extra)
    options = OPTIONS.options(own_words)
    if job.place and _VIRTUAL in options:  # LOCAL_RANK is 0 in all ranks: place_rank gets the local rank from torch's macro
        program = replace(shown.program, args=(_LOCAL_RANK, *shown.program.args))
        argv = templates.command(template, job=replace(shown, program=program), **values)
    argv = script_or_module(job, reader, templates, argv, (NAME,), MODULE)
    outputs = rank_outputs(job, reader, templates, NAME, own_words)
    env = {"TORCHELASTIC_ERROR_FILE": in_attempt(job, "torchrun_error.json")}
    if outputs:
        env.update({"PET_LOG_DIR": outputs.folder, "PET_REDIRECTS": "3"})
    return plan_of(job, reader, NAME, argv, env, own_words, options, outputs, master)


def plan_of(
    job: Job,
    reader: Reader,
    name: str,
    argv: tuple[str, ...],
    env: dict[str, str],
    own_words: Sequence[str],
    options: set[str],
    outputs: RankOutputs | None,
    master: str = "",
    files: tuple[File, ...] = (),
) -> Plan:
    """Return the plan of a method that runs torch's agent.

    name: the method. own_words: words of the launcher itself, from template and user. options: names of the options in these words.
    outputs: None if the user redirects the output of ranks.
    """
    process = launcher_process(job, reader, name, argv, env, Restarting.NAME if "--max_restarts" in options else NAME)
    waits = master_waits(job, reader, master)
    process = replace(process, env={**process.env, **_shutdown(job, reader, options)})
    kept = None if outputs else _kept_outputs(job, own_words)
    return planned(job, reader, name, (process,), files=files, waits=waits, outputs=outputs, kept=kept)


def with_dollars_doubled(job: Job) -> Job:
    """Return the job with each dollar doubled in the program's arguments, and in the path of a Python file or a shell script.

    torch expands these words as templates (${local_rank}), in which two dollars stand for one.
    """
    program = job.program
    args = [word.replace("$", "$$") for word in program.args]
    path = program.path.replace("$", "$$") if program.is_python or program.is_shell else program.path
    return replace(job, program=replace(program, path=path, args=tuple(args)))


def _shutdown(job: Job, reader: Reader, options: set[str]) -> dict[str, str]:
    """Return the variable that gives ranks the whole grace after a stop request, instead of torch's 30 s.

    {} for a torch that does not know the variable (ranklaunch stops such a torch before it kills ranks), and without a visible torch, as
    in a plan on another machine.
    """
    torch = facts.source(_KNOWS_SHUTDOWN, job, reader.files, reader.env, reader.cwd)
    name, grace_s, grace = SHUTDOWN.name, base.limits(reader).grace_s, reader.described(GRACE_S)
    is_long = grace_s > HELD_AFTER_S
    if is_long and "--max_restarts" in options:
        reader.warn(f"{grace}: with --max_restarts, torch kills ranks {KILLS_AFTER_S} s after a failure of another")
    if _SHUTDOWN in options:
        return {}
    if name not in torch:
        if torch and is_long and job.node_index == 0:
            reader.warn(
                f"{grace}: this torch kills ranks {KILLS_AFTER_S} s after a stop request, so it is halted after {HELD_AFTER_S} s; a rank "
                "that then needs its store, for example for a new process group, waits until it is killed"
            )
        return {}
    if reader.is_set(SHUTDOWN):
        seconds = reader.get(SHUTDOWN)
        if seconds < grace_s:
            reader.warn(
                f"{reader.described(SHUTDOWN)}: torch kills ranks then, before {grace} is over: set at least the grace, or unset it"
            )
    else:
        seconds = math.ceil(grace_s) + 5
        reader.note(SHUTDOWN, str(seconds), "the grace, rounded up, and 5 more")
    return {name: str(seconds)}


def report(text: str, pid: int = 0) -> Failure | None:
    """Return the failed rank from torchrun's output (form of torch 1.11 to 2.13).

    torchrun always exits with 1. Ranks and exit codes are in the summary of its exception, with or without @record: failures first, then
    the root cause. A torchrun that ends before its summary names no global rank, or reports only the signal that it got.
    """
    last, output = _last_of(text, pid)
    if last and last["signal"]:
        return failed_with(-int(last["signal"]), pid=int(last["signalled"]))
    failures, separator, root = output.rpartition("Root Cause (first observed failure):")
    if separator:
        return _summary(failures, root)
    return failed_with(int(last["code"]), pid=int(last["pid"])) if last else None


def _last_of(tail: str, pid: int) -> tuple[re.Match[str] | None, str]:
    """Return the last report of this torchrun about a failure or its own end, and the output from there to the next torchrun's report."""
    reports = [*re.finditer(_END_REPORT, tail)]
    matching = [number for number, each in enumerate(reports) if not pid or (each["signalled"] or each["agent"]) in (None, str(pid))]
    if not matching:
        return None, "" if reports else tail  # without reports: the cut-off beginning may have had the pid of the summary's torchrun
    last, *later = reports[matching[-1] :]
    return last, tail[last.start() : later[0].start() if later else len(tail)]


def _summary(text: str, root: str) -> Failure | None:
    """Return the failure of the root cause. text: output before the root cause, with the other failures."""
    rows = re.findall(_FAILURE, root) + re.findall(_FAILURE, text.rpartition("Failures:")[2])
    failures = [(int(rank), int(code), int(pid)) for rank, code, pid in rows]
    if not failures:
        return None
    # torchrun compares times in seconds, so its root cause may be a rank that torchrun itself ended by SIGTERM.
    first = next((each for each in failures if each[1] != -signal.SIGTERM), failures[0])
    rank, code, pid = first
    victims = tuple((each[0], -each[1]) for each in failures if each != first and each[1] < 0)
    return failed_with(code, rank, pid, victims=victims)


def _keeps_order(job: Job, own_words: Sequence[str]) -> bool:
    """Return True if each node gets the ranks planned for it: only the static rendezvous uses --node_rank."""
    return not job.has_peers or OPTIONS.last(own_words, "--rdzv_backend") in ("", "static")


def rank_outputs(job: Job, reader: Reader, templates: Templates, folder: str, own_words: Sequence[str]) -> RankOutputs | None:
    """Return one output file for each rank; torchrun alone mixes the lines of ranks.

    Files are named by local rank, so each node needs its own folder in a shared log directory. None if the user redirects the ranks'
    output, or uses a rendezvous backend that numbers the nodes itself (all but static). own_words: words of torchrun itself, from any
    template.
    """
    if OPTIONS.options(own_words).intersection(_OUTPUT) or not _keeps_order(job, own_words):
        return None
    path = in_attempt(job, folder)
    path = folders.node(path, job.node_index) if job.has_peers else path
    return base.rank_outputs(job, reader, templates, path, OWN_LOGS, by_local_rank=True)


def _kept_outputs(job: Job, own_words: Sequence[str]) -> RankOutputs | None:
    """Return the files that torchrun writes for the user's --redirects or --tee, in any folder. The tags are those of torchrun."""
    role = OPTIONS.last(own_words, "--role") or "default"
    logs = tuple(RankLog(str(i), rank, "", f"[{role}{i}]:") for i, rank in enumerate(job.node.ranks))
    return RankOutputs("/", _KEPT_LOGS, logs) if _keeps_order(job, own_words) else None


def _route(job: Job, reader: Reader) -> tuple[Job, int, str]:
    """Return the job with this node's ranks by the route plan, the node rank, and the host of the master.

    A contradiction between this node's rank and the master's is refused: a fallback on one node alone would give two nodes the same rank.
    The planned ranks of other nodes are known only on those nodes.
    """
    rank, master = _planned_place(job, reader)
    if (rank, master) == (job.node_index, 0):
        return job, rank, job.master
    host = job.nodes[master].host
    reader.note(MASTER_ADDR, host, MASTER_INDEX.name)
    reader.warn("ROUTE_PLAN=true: the first ranks shown for other nodes are those before route planning")
    node = job.node._replace(first_rank=rank * job.node.slots)
    return replace(job, nodes=(*job.nodes[: job.node_index], node, *job.nodes[job.node_index + 1 :])), rank, host


def _planned_place(job: Job, reader: Reader) -> tuple[int, int]:
    """Return the rank of this node and the index of the master, by the route plan or else by the platform's order."""
    by_platform, count = (job.node_index, 0), len(job.nodes)
    if not reader.get(ROUTE_PLAN) or count == 1:
        return by_platform
    owner = reader.elsewhere.get(RANK_AFTER_ACC.name, "")
    if not reader.is_set(RANK_AFTER_ACC) and not owner:
        reader.warn("ROUTE_PLAN=true, but RANK_AFTER_ACC is not set: the platform's node order is used")
        return by_platform
    master = reader.get(MASTER_INDEX)
    rank = reader.get(RANK_AFTER_ACC) if reader.is_set(RANK_AFTER_ACC) else _stand_in(job, reader, master, owner)
    wrong = [(name, value) for name, value in ((RANK_AFTER_ACC, rank), (MASTER_INDEX, master)) if value >= count and reader.is_set(name)]
    for name, value in wrong:
        reader.problem(f"{name.name}={value}: expected 0 to {count - 1}, for {count} nodes")
    if wrong:
        return by_platform
    _refuse_other_route(job, reader, rank, master)
    return rank, master


def _refuse_other_route(job: Job, reader: Reader, rank: int, master: int) -> None:
    if (rank == 0) != (job.node_index == master):
        reader.problem(
            f"RANK_AFTER_ACC={rank} contradicts MA_MASTER_INDEX={master} on node {job.node_index}: rank 0 is the master's; "
            "set ROUTE_PLAN=false to use the platform's node order on every node"
        )
    if job.slots_differ:
        reader.problem("ROUTE_PLAN=true needs the same number of slots on every node; set ROUTE_PLAN=false")


def _stand_in(job: Job, reader: Reader, master: int, owner: str) -> int:
    """Return a placeholder for the node rank of a node whose RANK_AFTER_ACC is unknown here.

    0 for the master, the master's index for node 0, the node's own index for any other node. owner: node of this environment.
    """
    if job.node_index == master:
        return 0
    rank = job.node_index or master
    reader.warn(
        f"ROUTE_PLAN=true: this is the environment of {owner}; the RANK_AFTER_ACC of node {job.node_index} is known only on that node: "
        f"--node_rank={rank} is a placeholder"
    )
    return rank


def _lint(job: Job, reader: Reader, extra: tuple[str, ...]) -> None:
    options, source = OPTIONS.options(extra), reader.source(EXTRA)
    if job.has_peers:
        contradictions.warn_of_meeting(reader, source, options, "--master_addr", "--master_port")
    elif "--master_port" in options or not all(each.is_derived for each in reader.candidates(MASTER_PORT)):
        reader.warn("one node: torchrun --standalone picks a free port itself and ignores the master port")
    if not _keeps_order(job, extra):
        backend = OPTIONS.last(extra, "--rdzv_backend")
        needed = backend == "c10d" and "--rdzv_endpoint" not in options
        hint = f", and --rdzv_endpoint={job.master}:{reader.get(MASTER_PORT)} is needed" if needed else ""
        described = f"{source} has --rdzv_backend={clipped(backend)}"
        reader.warn(f"{described}: ranks follow torchrun's own order of the hosts, not the node order{hint}")
    if "--standalone" in options and job.has_peers:
        reader.problem(f"{source} has --standalone, with which each of the {len(job.nodes)} nodes meets nobody but itself: remove it")
    _lint_number(job, reader, f"{source} has --nproc_per_node", OPTIONS.last(extra, "--nproc_per_node"))
    lint(job, reader, NAME, source, options)


def _lint_number(job: Job, reader: Reader, has: str, text: str) -> None:
    """Refuse a value of --nproc_per_node that torchrun refuses, and warn of a word (gpu, auto) with which torchrun counts devices."""
    if text in user_options.DEVICE_WORDS:
        reader.warn(f"{has} {text}: torchrun counts the devices itself, and {job.node.slots} ranks are planned on this node")
    elif text and not contradictions.NUMBER.fullmatch(text):
        planned_here = contradictions.Count("--nproc_per_node", job.node.slots, contradictions.RANKS_HERE)
        reader.problem(planned_here.contradiction(f"{has} {clipped(text)}, which torchrun refuses"))


def lint(job: Job, reader: Reader, name: str, source: str, options: set[str]) -> None:
    """Warn of options and files that torch's agent handles alone, or ignores. name: the method."""
    if "--max_restarts" in options:
        reader.warn(f"{source} has --max_restarts: {name} restarts this node's ranks without the other nodes")
    if job.rank_table:
        reader.warn(f"method {name} does not use the rank table {job.rank_table}")


class Torchrun(Launcher):
    """torch's agent, which torchrun, accelerate and Megatron start. After its own ranks have succeeded, it waits up to 300 s for the ranks
    of other nodes."""

    NAME = NAME
    VARIABLES: tuple[Variable[Any], ...] = (MASTER_PORT, EXTRA, ROUTE_PLAN, RANK_AFTER_ACC, MASTER_INDEX, SHUTDOWN)
    DEPTH = 1
    ENDS_RANKS: tuple[str, ...] = (CLOSING,)
    HAS_REPORTED = REPORT_END
    ON_EACH_NODE = ONE_THREAD
    plan = staticmethod(plan)
    report = staticmethod(report)

    @staticmethod
    def needs() -> Mapping[str, Need]:
        hint = "it comes with PyTorch 1.11 or newer: is --python the interpreter that has it?"
        return {"torchrun": Need(hint, ("torch", "1.11"))}

    @property
    def reporter(self) -> str:
        return "torchrun" if self.planned.kept else ""

    @property
    def lonely_s(self) -> float:
        return 330 if self.planned.job.has_peers else 30

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        """Signal the ranks only. torch would pass SIGTERM to the process groups of its ranks, so also to data loading workers.

        torchrun is stopped while the first ranks exit, continues to serve its store, and is stopped again before it would kill ranks.
        """
        child.hold()
        signals.signal_ranks(child, number)
        signals.after(SETTLE_S, child.serve)
        own_words = user_options.before(self.process.argv, self.planned.job.program.path)
        if SHUTDOWN.name not in self.process.env and _SHUTDOWN not in OPTIONS.options(own_words):
            self._hold_in_time(signals.after, child)

    def alone(self, signals: Signals, child: Started) -> None:
        signals.remind(child)

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        self._hold_in_time(after, child)

    def rank_failed(self, child: Started, stopping: bool) -> None:
        """Hold torch during a stop: after the failure of a rank, torch would end the other ranks."""
        if stopping:
            child.hold()

    def _hold_in_time(self, after: After, child: Started) -> None:
        if self.planned.limits.grace_s > HELD_AFTER_S:
            after(HELD_AFTER_S, child.hold_with_ranks)


class Restarting(Torchrun):
    """torch's agent with --max_restarts: after a failure, it ends its ranks and starts them again."""

    NAME = "torchrun.restarting"
    ENDS_RANKS = ()
    HAS_REPORTED = ""
    lonely_s = Launcher.lonely_s
    stop = Launcher.stop
    alone = Launcher.alone
    rank_failed = Launcher.rank_failed
