"""Base class of launchers, and the pieces of their plans.

Each method has a class below Launcher. Its defaults fit a process that is a rank itself, or passes signals on to its ranks. plan()
and needs() are called before anything starts. From the start on there is one object for each started process: the supervisor asks the
object, and calls its methods to stop ranks. docs/launchers.md has the reasons for launchers' differences from the defaults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ranklaunch.adapters.launchers.shared import variables
from ranklaunch.adapters.launchers.shared.variables import misleading, only_secrets
from ranklaunch.env import parse
from ranklaunch.env.job import SHELLS, Job, Node
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import (
    DEBUG,
    DEBUG_SWITCHES,
    GRACE_S,
    HOSTS,
    LOG_TAG,
    MASTER_ADDR,
    STARTERS_FILE,
    WAIT_S,
)
from ranklaunch.errors import ConfigError, unreadable
from ranklaunch.fields import NOTHING
from ranklaunch.files import folder_of, join, which
from ranklaunch.plan.model import PROGRAM, Limits, Plan, Process, RankLog, RankOutputs, Wait
from ranklaunch.render.templates import Templates
from ranklaunch.showing import clipped
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Failure

if TYPE_CHECKING:
    from ranklaunch.adapters.launchers.shared.scripts.rank_scripts import Script
    from ranklaunch.adapters.launchers.shared.starters import Found, Starters

PROOF_BEGUN = "begun"  # in the file of Launcher.proof, until an exit code is
After = Callable[[float, Callable[[], None]], object]  # calls later, after so many seconds

ONE_AFTER_THE_OTHER_S = 1.0  # for a launcher that signals its ranks one after the other to have reached those that end at once
SETTLE_S = 1.0  # for ranks that end at once: a launcher that saw it would end the others, which may be saving


@dataclass(frozen=True)
class Need:
    """Program started by a plan. comes_with: the hint if missing. least: a package, and its oldest sufficient version."""

    comes_with: str
    least: tuple[str, str] | None = None


PYTHON = dict.fromkeys(("python", "python3"), Need("name the interpreter with --python"))


class Started(Protocol):
    """A process that was started as a launcher."""

    def left(self) -> list[Any]:
        """Return the ranks that live, on this node."""

    def hold(self) -> None:
        """Stop the launcher by SIGSTOP, with all processes between it and its ranks."""

    def hold_with_ranks(self) -> None:
        """Hold the launcher if it has ranks, until they have ended by themselves."""

    def serve(self) -> None:
        """Let a held launcher go on, whose store its ranks may need, unless a rank has failed."""


class Signals(Protocol):
    """Sender of signals, in a stop and after a failure."""

    def signal(self, child: Any, number: int) -> None:
        """Signal the started process itself."""

    def signal_ranks(self, child: Any, number: int) -> None:
        """Signal the ranks of a launcher, through shells and wrappers."""

    def signal_in_turn(self, child: Any, number: int) -> None:
        """Signal the ranks of a launcher that ends all after the first death: first the ranks with a handler for the signal, then the
        rest."""

    def remind(self, child: Any) -> None:
        """Send SIGTERM to a launcher itself, and once more after half of the grace."""

    def after(self, seconds: float, act: Callable[[], None]) -> object:
        """Call a function later, unless everything has ended by then."""


class Launcher:
    """NAME: of the method; METHOD.VARIANT for another class of the same method. VARIABLES: read by plan() beyond
    ranklaunch.env.settings. The remaining attributes are facts about the program."""

    NAME = ""
    VARIABLES: tuple[Variable[Any], ...] = ()

    # Where its ranks are.
    DEPTH = 0  # generations from the process down to its ranks (1: its children); of a service: from what has come through it
    CARRIERS: tuple[str, ...] = ()  # programs through which alone its ranks come; below a service: anywhere on this node

    # What it writes, as regular expressions.
    STARTS = ""  # as it starts each rank, in their order; group pid
    # As it ends its ranks after a failure; of a service: that it is of no use. Groups: pid or living (a rank that had not failed): of a
    # rank; agent: of the launcher.
    ENDS_RANKS: tuple[str, ...] = ()
    REPORTS = ""  # the beginning of its report of the failure; it may end seconds later
    HAS_REPORTED = ""  # the end of its report: it may be killed then, once its ranks are gone

    ON_EACH_NODE = ""  # lines that it writes on each node alike: the console of node 0 alone shows them

    planned: Plan  # of which the process is

    def __init__(self, process: Process, planned: Plan | None = None) -> None:
        self.process = process
        if planned:
            self.planned = planned

    # Before the start

    @staticmethod
    def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
        """Return what happens on the job's own node. Problems go to the reader, which raises them all at once afterwards."""
        raise NotImplementedError

    @staticmethod
    def needs() -> Mapping[str, Need]:
        """Return the programs that plans of this method start, by name."""
        return {}

    @staticmethod
    def starts_all(reader: Reader) -> bool:
        """Return True if node 0 starts the ranks of all nodes, with its own variables."""
        return False

    # Ranks

    @property
    def starts_ranks(self) -> bool:
        return bool(self.DEPTH or self.CARRIERS)

    @property
    def kills_ranks(self) -> bool:
        """True for a launcher that sends SIGKILL to all its ranks at the first end of one.

        ranklaunch holds such a launcher, and ends the other ranks itself. A launcher that sends
        SIGTERM leaves its ranks time, and keeps the default.
        """
        return False

    @property
    def lonely_s(self) -> float:
        """Seconds for the launcher to end after the last of its ranks; 0: no limit."""
        return 0

    @property
    def repeats(self) -> bool:
        """True if its standard output repeats the files of its ranks: it is thrown away."""
        return False

    @property
    def proof(self) -> str:
        """Path of a file with the exit code of the process that starts the ranks, "" for none.

        With such a file the launcher's own 0 proves nothing.
        """
        return ""

    # What it reports

    @property
    def reporter(self) -> str:
        """Name of its report in ranklaunch.catalogue.reports, if no other launcher's report can be in its output; else ""."""
        return ""

    @staticmethod
    def report(text: str, pid: int = 0) -> Failure | None:
        """Return the rank that failed first, by the end of the process's output; None if the exit code of the process says enough.

        pid: of the process, 0 if unknown. Its ranks may have started other launchers of the same kind.
        """
        return None

    # Stopping

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        """Pass on a stop request: the process itself gets the signal."""
        signals.signal(child, number)

    def alone(self, signals: Signals, child: Started) -> None:
        """Act during a stop when the last rank is gone. The process was signalled before, and ends."""

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        """Act when the launcher has begun to end its ranks after a failure. signal_ranks: sends SIGTERM to them."""

    def rank_failed(self, child: Started, stopping: bool) -> None:
        """Act when a rank was seen to fail."""

    def outlived(self, end_at_once: Callable[[], None]) -> None:
        """Act when a service has outlived all ranks, and has heard SIGTERM."""


class RanksFirst(Launcher):
    """A launcher that ignores SIGTERM, or passes SIGTERM on badly.

    Its ranks are signalled directly. The launcher is signalled after the end of its ranks, to report
    their ends, and is killed if still alive later.
    """

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        if self.kills_ranks:
            child.hold()
        signals.signal_ranks(child, number)

    def alone(self, signals: Signals, child: Started) -> None:
        signals.remind(child)

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        after(ONE_AFTER_THE_OTHER_S, signal_ranks)


class FromNode0(RanksFirst):
    """A launcher on node 0 that starts the ranks of all nodes, and ends all after the first end."""

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        signals.signal_in_turn(child, number)

    def alone(self, signals: Signals, child: Started) -> None:
        """Do nothing: ranks on other nodes may live, and the launcher ends when these are gone too."""


# Pieces of plans


def failed_with(
    returncode: int, rank: int | None = None, pid: int | None = None, node: int | None = None, victims: tuple[tuple[int, int], ...] = ()
) -> Failure:
    """Return a launcher's report of the end of a rank.

    returncode: as Python's subprocess has it, -N after signal N. The rest: as in Failure.
    """
    signal = max(0, -returncode)
    return Failure(rank, 128 + signal if signal else returncode, signal, pid, node=node, victims=victims)


MASTER_PORT = Variable(
    "master_port", ("RANKLAUNCH_MASTER_PORT",), parse.port, 29500, "port of the rendezvous on node 0", option="--master-port"
)


def further_options(names: tuple[str, ...], meaning: str) -> Variable[tuple[str, ...]]:
    """Return the variable with a user's own options for a launcher."""
    return Variable(names[0].removeprefix("RANKLAUNCH_").lower(), names, parse.words, (), meaning)


# Of those that can; others say that it has no effect.
ROUTE_PLAN = Variable("route_plan", ("ROUTE_PLAN",), parse.flag, False, "ranks follow the network's topology")


def own_launcher(job: Job, reader: Reader) -> Found | None:
    """Return the launcher that the program is; None for most programs, after a quick look."""
    program = job.program.stands_for or job.program
    if (program.is_python and not program.module) or program.is_shell:
        return None
    return starters(reader).find(program, reader.env)


def own_script(job: Job, reader: Reader) -> Script | None:
    """Return the program if it is a shell script with its own start of ranks. job: with the slots of the platform."""
    program = job.program
    if not program.is_shell and (program.module or program.name not in SHELLS):
        return None
    from ranklaunch.adapters.launchers.shared.scripts import rank_scripts  # most programs are none

    known = starters(reader)
    text = rank_scripts.source(job, reader)
    return rank_scripts.find(job, reader, known, text, place_by_env(job, reader)) if known.may_start(text) else None


def starters(reader: Reader) -> Starters:
    """Return the commands that are known to start ranks themselves, the user's own among them."""
    from ranklaunch.adapters.launchers.shared import starters as known  # most programs are none of them

    path = reader.get(STARTERS_FILE)
    try:
        own = known.read(reader.files, reader.absolute(path)) if path else ()
    except (ValueError, RecursionError) as error:
        msg = f"{reader.quoted(STARTERS_FILE)}: {unreadable(error)}"
        raise ConfigError(msg) from None
    return known.Starters(own)


_ON_A_NODE = ("NPROC_PER_NODE", "GPUS_PER_NODE", "MASTER_PORT")


def place_by_env(job: Job, reader: Reader) -> dict[str, str]:
    """Return this node's place for a program that starts ranks itself.

    The names of these variables are settings of no launcher.
    """
    return {
        "NNODES": str(len(job.nodes)),
        "NODE_RANK": str(job.node_index),
        "NPROC_PER_NODE": str(job.node.slots),
        "GPUS_PER_NODE": str(job.node.slots),
        "MASTER_ADDR": meeting_host(job, reader),
        "MASTER_PORT": str(reader.get(MASTER_PORT)),
    }


def attempt_dir(job: Job) -> str:
    """Return the folder of the attempt's last start."""
    return _attempt_dir(job.log_dir, job.attempt, job.restart)


@functools.lru_cache(maxsize=4)  # asked for each rank
def _attempt_dir(log_dir: str, attempt: int, restart: int) -> str:
    return folders.restart(folders.attempt(log_dir, attempt), restart)


def in_attempt(job: Job, name: str) -> str:
    """Return the path of a file in the attempt's folder."""
    return join(attempt_dir(job), name)


def once(job: Job, reader: Reader, templates: Templates, method: str, template: str, script: Script | None) -> Plan:
    """Return the plan of the program once on each node.

    script: the program, if it starts ranks itself.
    """
    env, unset, starts_ranks = _surroundings(job, reader, script)
    waits = master_waits(job, reader) if starts_ranks else ()
    slots = tuple(node.slots for node in job.nodes)
    # One process each, whatever the slots.
    job = replace(job, nodes=tuple(node._replace(slots=1, first_rank=node.index) for node in job.nodes))
    process = Process(
        name="program",
        argv=templates.command(template, job=job),
        log=rank_log(job, job.node_index),
        rank=job.node_index,
        local_rank=job.among[0] if job.among else 0,
        env={**common_env(job, reader), **env},
        unset=unset,
    )
    return planned(job, reader, method, (process,), waits=waits, runs=PROGRAM, slots=slots)


def _surroundings(job: Job, reader: Reader, script: Script | None) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """Return added variables of the program, names of variables to unset, and True if the program starts ranks itself."""
    if script:
        return script.env, script.unset, True
    command = own_launcher(job, reader)
    if not (command or job.among):
        return {}, misleading(reader.env), False
    # A launcher of the user's own may read what the platform says of ranks, and a rank that it has started is one.
    unset = only_secrets(reader.env)
    if not command or command.starter.same_job or job.among:
        return {}, unset, False
    place = place_by_env(job, reader)
    # What a command is to do on one node is the user's.
    return {name: value for name, value in place.items() if not (name in _ON_A_NODE and reader.env.get(name))}, unset, True


def planned(job: Job, reader: Reader, method: str, processes: tuple[Process, ...], **further: Any) -> Plan:
    """Return the plan of a method with these processes. further: other fields of the plan, by name."""
    return Plan(job=job, method=method, why="", processes=processes, limits=limits(reader), **further)


def limits(reader: Reader) -> Limits:
    return Limits(wait_s=reader.get(WAIT_S), grace_s=reader.get(GRACE_S))


def master_waits(job: Job, reader: Reader, host: str = "") -> tuple[Wait, ...]:
    """Return the wait for the name of node 0, or of host, where ranks of several nodes meet.

    The name may be published after the start of this container.
    """
    return (Wait("hosts", host or job.master, reader.get(WAIT_S)),) if job.has_peers else ()


def meeting_host(job: Job, reader: Reader) -> str:
    """Return the host where ranks meet: node 0. Ranks of one node meet within it: its name may be unknown even to itself."""
    return job.master if job.has_peers or reader.by_user(MASTER_ADDR) else "127.0.0.1"


def meeting_of_ranks(job: Job, reader: Reader, port: int) -> dict[str, str]:
    """Return MASTER_ADDR and MASTER_PORT for ranks that node 0 starts on all nodes.

    The address is the host of rank 0: node 0 if node 0 has ranks.
    """
    first = next((node for node in job.nodes if node.slots), job.nodes[0])
    return {"MASTER_ADDR": first.host if first.index else meeting_host(job, reader), "MASTER_PORT": str(port)}


def with_hosts(job: Job) -> Job:
    """Return the job with a host for every node, by which a launcher tells them apart. Most platforms name node 0 alone."""
    return replace(job, nodes=tuple(node._replace(host=node.host or f"unnamed-{node.index}") for node in job.nodes))


def need_hosts(job: Job, reader: Reader, method: str) -> Job:
    """Refuse nodes without names, for a method that reaches every node by name.

    Return the job with hosts, so that its other problems are found too.
    """
    unnamed = [node.index for node in job.nodes if not node.host]
    if unnamed and not reader.awaits_hosts:
        first, last = unnamed[0], unnamed[-1]
        who = f"nodes {first} to {last} have no names" if 1 < len(unnamed) == last - first + 1 else f"node {first} has no name"
        remedy = f"name them by {HOSTS.both}, in node order, or choose another --method"
        reader.problem(f"{who}, and method {method} needs those of all nodes: {remedy}")
    return with_hosts(job)


def check_before_much(job: Job, reader: Reader) -> None:
    """Raise the problems found so far for a job so large that the rest of the plan takes seconds."""
    if len(job.nodes) > 10_000:
        reader.check()


def script_or_module(
    job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...], script: tuple[str, ...], module: str
) -> tuple[str, ...]:
    """Replace a launcher's script in a template's command by the launcher's module.

    That is done if the user's interpreter has the package, and the script is neither beside the
    interpreter nor on PATH.
    """
    name, search = script[0], common_env(job, reader).get("PATH", reader.env.get("PATH", ""))
    if argv[: len(script)] != script or which(name, search, reader.files):
        return argv
    from ranklaunch.plan import facts  # most have the script

    if not facts.has(f"{module.replace('.', '/')}.py", job, reader.files, reader.env, reader.cwd):
        return argv
    words = (job.python, "-m", module)
    reader.ledger.note(name, " ".join(words), f"no {name} beside the interpreter or on PATH, and its package is there")
    return templates.changed(argv, (*words, *argv[len(script) :]))


def launcher_process(
    job: Job, reader: Reader, name: str, argv: tuple[str, ...], env: Mapping[str, str] = NOTHING, behaviour: str = ""
) -> Process:
    """Return a process that starts this node's ranks itself. behaviour: NAME of its launcher's class."""
    return Process(
        name=name,
        argv=argv,
        log=in_attempt(job, f"{name}.log"),
        env={**common_env(job, reader), **variables.environment(job, reader), **env},
        unset=misleading(reader.env),
        tag=f"[{name}] ",
        behaviour=behaviour,
    )


def rank_process(
    job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...], local_rank: int, env: dict[str, str], rank: int
) -> Process:
    """Return the process of one rank. local_rank: its number on this node."""
    process = launcher_process(job, reader, f"rank {rank}", argv, env)
    tag = rank_tag(job, reader, templates, local_rank, rank)
    return replace(process, log=rank_log(job, rank), rank=rank, local_rank=local_rank, tag=tag)


def rank_outputs(
    job: Job, reader: Reader, templates: Templates, folder: str, pattern: str, *, by_local_rank: bool = False, of_all: bool = False
) -> RankOutputs:
    """Return the outputs of a launcher's ranks, so each gets a log and a tag: files below a folder, with paths that match a regular
    expression with the rank as its group; "" for the folder: pieces of the launcher's own output, marked by the launcher.

    by_local_rank: the group is the rank's number on its node. of_all: the ranks of all nodes write there.
    """
    logs = []
    for node in job.nodes if of_all else (job.node,):
        for local_rank, rank in enumerate(node.ranks):
            tag = rank_tag(job, reader, templates, local_rank, rank, node)
            logs.append(RankLog(str(local_rank if by_local_rank else rank), rank, rank_log(job, rank), tag))
    return RankOutputs(folder, pattern, tuple(logs))


def rank_log(job: Job, rank: int) -> str:
    return folders.rank_log(attempt_dir(job), rank)


def rank_tag(job: Job, reader: Reader, templates: Templates, local_rank: int, rank: int, node: Node | None = None) -> str:
    """Return the tag of a rank. node: its node, if that is not the own one."""
    if reader.options.get(LOG_TAG.value) == "":  # said, unlike a variable that is empty
        reader.note(LOG_TAG, "", f"option {LOG_TAG.option}")
        return ""
    others = (_known_by_tag(each, i, r) for each in ((job.node,) if node is None else job.nodes) for i, r in enumerate(each.ranks))
    values = _known_by_tag(node or job.node, local_rank, rank)
    return templates.inline(reader.get(LOG_TAG), LOG_TAG.name, others, **values)


def _known_by_tag(node: Node, local_rank: int, rank: int) -> dict[str, object]:
    return {"rank": rank, "local_rank": local_rank, "node": node.index, "host": node.host}


def common_env(job: Job, reader: Reader) -> dict[str, str]:
    """Return variables for all ranks and launchers.

    Output comes at once rather than by the block. Resuming scripts see the attempt. The user's interpreter is first on
    PATH, so launchers (torchrun, msrun) and their `python` are its own.
    """
    env = {**dict(job.env), "RANKLAUNCH_ATTEMPT": str(job.attempt), **(job.place(job) if job.place else {})}
    debug = DEBUG_SWITCHES if reader.is_set(DEBUG) and reader.get(DEBUG) else {}
    unless_set = {**debug, "PYTHONUNBUFFERED": "1"}
    env.update({name: value for name, value in unless_set.items() if not reader.env.get(name)})
    folder = folder_of(job.python) and reader.absolute(folder_of(job.python))
    search = reader.env.get("PATH", "")
    if folder and search.split(":")[0] != folder:
        env["PATH"] = f"{folder}:{search}" if search else folder
    return env


def not_own(job: Job, reader: Reader, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments, by option, that the user has not given the program. The user's own stand."""
    own = {word.partition("=")[0] for word in job.program.args}
    for name in sorted(own & arguments.keys()):
        reader.warn(f"the program's own {name} stands; ranklaunch would have given {clipped(arguments[name])}")
    return {name: value for name, value in arguments.items() if name not in own}


def address(host: str) -> str:
    """Return a host as in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host
