"""Base class of launchers, and the pieces of their plans.

Each method has a subclass of Launcher. The defaults fit a process that is a rank itself, or that passes signals on to its ranks. plan()
and needs() are called before anything starts. Then each started process has one object: the supervisor reads its attributes, and calls
its methods to stop ranks. docs/launchers.md has the reasons for launchers' differences from the defaults.
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

PROOF_BEGUN = "begun"  # content of the file Launcher.proof until the exit code is known
After = Callable[[float, Callable[[], None]], object]  # after(seconds, function): call the function later

# A launcher that signals its ranks one by one waits for each. After this time ranklaunch signals the remaining ranks.
ONE_AFTER_THE_OTHER_S = 1.0
# Time for ranks that exit right after a signal. The launcher is stopped (SIGSTOP) meanwhile: after the exit of one rank it would
# kill the rest, which may be saving.
SETTLE_S = 1.0


@dataclass(frozen=True)
class Need:
    """Program that a plan starts. comes_with: hint in the message about a missing program. least: package and oldest sufficient version."""

    comes_with: str
    least: tuple[str, str] | None = None


PYTHON = dict.fromkeys(("python", "python3"), Need("name the interpreter with --python"))


class Started(Protocol):
    """Started launcher process."""

    def left(self) -> list[Any]:
        """Return the living ranks of the launcher on this node."""

    def hold(self) -> None:
        """Send SIGSTOP to the launcher and to all processes between the launcher and its ranks."""

    def hold_with_ranks(self) -> None:
        """Hold the launcher while it has ranks: the ranks can then exit by themselves."""

    def serve(self) -> None:
        """Continue a held launcher, because its ranks may need its store. Do nothing if a rank has failed."""


class Signals(Protocol):
    """Sender of signals during a stop and after a failure."""

    def signal(self, child: Any, number: int) -> None:
        """Signal the started process itself."""

    def signal_ranks(self, child: Any, number: int) -> None:
        """Signal the ranks of a launcher. If a rank is a shell or a wrapper, signal the programs inside."""

    def signal_in_turn(self, child: Any, number: int) -> None:
        """Signal the ranks of a launcher that ends all ranks after the first exit: first the ranks with a handler for the signal, then
        the rest."""

    def remind(self, child: Any) -> None:
        """Send SIGTERM to the launcher itself, and again after half of the grace."""

    def after(self, seconds: float, act: Callable[[], None]) -> object:
        """Call a function later, unless every process has ended by then."""


class Launcher:
    """Behaviour of one kind of launcher process.

    NAME: name of the method, or METHOD.VARIANT for a further class of the same method. VARIABLES: settings that plan() reads, besides
    ranklaunch.env.settings. The remaining attributes are facts about the launcher program.
    """

    NAME = ""
    VARIABLES: tuple[Variable[Any], ...] = ()

    # Place of the ranks in the process tree.
    DEPTH = 0  # generations from the launcher down to its ranks (1: its children); of a service: from a process that came through it
    CARRIERS: tuple[str, ...] = ()  # programs between the launcher and its ranks; of a service: searched on the whole node

    # Regular expressions for the launcher's output.
    STARTS = ""  # start of a rank, in the order of ranks; group: pid
    # End of the ranks after a failure; for a service: the service is useless. Groups: pid (of a rank), living (pid of a rank that had
    # not failed), agent (pid of the launcher).
    ENDS_RANKS: tuple[str, ...] = ()
    REPORTS = ""  # first line of the launcher's report of a failure; the rest may follow seconds later
    HAS_REPORTED = ""  # last line of the report: from then on the launcher may be killed, once its ranks are gone

    ON_EACH_NODE = ""  # lines that are the same on all nodes: shown on the console of node 0 only

    planned: Plan  # plan that contains the process

    def __init__(self, process: Process, planned: Plan | None = None) -> None:
        self.process = process
        if planned:
            self.planned = planned

    # Before the start

    @staticmethod
    def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
        """Return the plan of this node, `job.node`. Report problems to the reader, which raises all of them at once afterwards."""
        raise NotImplementedError

    @staticmethod
    def needs() -> Mapping[str, Need]:
        """Return the programs that plans of this method start, by program name."""
        return {}

    @staticmethod
    def starts_all(reader: Reader) -> bool:
        """Return True if node 0 starts the ranks of all nodes, with the environment of node 0."""
        return False

    # Ranks

    @property
    def starts_ranks(self) -> bool:
        return bool(self.DEPTH or self.CARRIERS)

    @property
    def kills_ranks(self) -> bool:
        """True for a launcher that sends SIGKILL to all its ranks after the first exit.

        ranklaunch stops such a launcher (SIGSTOP) and ends the other ranks itself. A launcher that sends SIGTERM gives its ranks time,
        and keeps the default.
        """
        return False

    @property
    def lonely_s(self) -> float:
        """Seconds within which the launcher must end after its last rank; 0: no limit."""
        return 0

    @property
    def repeats(self) -> bool:
        """True if the launcher's stdout repeats the files of its ranks: that stdout is discarded."""
        return False

    @property
    def proof(self) -> str:
        """Path of a file with the exit code of the process that starts the ranks, "" for none.

        With such a file, an exit code 0 of the launcher itself proves nothing.
        """
        return ""

    # What it reports

    @property
    def reporter(self) -> str:
        """Name of the launcher's report in ranklaunch.catalogue.reports, "" if its output may have reports of other launchers too."""
        return ""

    @staticmethod
    def report(text: str, pid: int = 0) -> Failure | None:
        """Return the rank that failed first, from the launcher's output tail; None if the exit code of the launcher is enough.

        pid: of the launcher, 0 if unknown; it tells the launcher's own lines from those of launchers that its ranks have started.
        """
        return None

    # Stopping

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        """Pass on a stop request: signal the launcher itself."""
        signals.signal(child, number)

    def alone(self, signals: Signals, child: Started) -> None:
        """Act during a stop when the last rank is gone. By default do nothing: the launcher was signalled before, and ends."""

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        """Act when the launcher has begun to end its ranks after a failure. signal_ranks: function that sends SIGTERM to the ranks."""

    def rank_failed(self, child: Started, stopping: bool) -> None:
        """Act after the failed exit of a rank. stopping: a stop has begun."""

    def outlived(self, end_at_once: Callable[[], None]) -> None:
        """Act when a service still runs after all ranks have ended and after SIGTERM."""


class RanksFirst(Launcher):
    """Launcher that ignores SIGTERM, or passes SIGTERM on badly.

    ranklaunch signals the ranks directly, and the launcher after its last rank, so that the launcher reports their exits. A launcher
    that is still alive later is killed.
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
    """Launcher on node 0 that starts the ranks of all nodes, and ends all of them after the first exit."""

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        signals.signal_in_turn(child, number)

    def alone(self, signals: Signals, child: Started) -> None:
        """Do nothing: ranks on other nodes may live, and the launcher ends by itself after the last of them."""


# Pieces of plans


def failed_with(
    returncode: int, rank: int | None = None, pid: int | None = None, node: int | None = None, victims: tuple[tuple[int, int], ...] = ()
) -> Failure:
    """Return the failure of a rank as its launcher reports it.

    returncode: as in Python's subprocess, -N after signal N. Other parameters: as in Failure.
    """
    signal = max(0, -returncode)
    return Failure(rank, 128 + signal if signal else returncode, signal, pid, node=node, victims=victims)


MASTER_PORT = Variable(
    "master_port", ("RANKLAUNCH_MASTER_PORT",), parse.port, 29500, "port of the rendezvous on node 0", option="--master-port"
)


def further_options(names: tuple[str, ...], meaning: str) -> Variable[tuple[str, ...]]:
    """Return the setting for additional options of a launcher."""
    return Variable(names[0].removeprefix("RANKLAUNCH_").lower(), names, parse.words, (), meaning)


# Setting of the methods with route planning; all others warn that it has no effect.
ROUTE_PLAN = Variable("route_plan", ("ROUTE_PLAN",), parse.flag, False, "ranks follow the network's topology")


def launcher_of_program(job: Job, reader: Reader) -> Found | None:
    """Return the program as a launcher, None if the program is no known launcher."""
    program = job.program.stands_for or job.program
    if (program.is_python and not program.module) or program.is_shell:
        return None
    return starters(reader).find(program, reader.env)


def script_of_program(job: Job, reader: Reader) -> Script | None:
    """Return the program as a script, None unless it is a shell script that starts ranks. job: with the slots of the platform."""
    program = job.program
    if not program.is_shell and (program.module or program.name not in SHELLS):
        return None
    from ranklaunch.adapters.launchers.shared.scripts import rank_scripts  # imported late: most programs are no scripts

    known = starters(reader)
    text = rank_scripts.source(job, reader)
    return rank_scripts.find(job, reader, known, text, place_by_env(job, reader)) if known.may_start(text) else None


def starters(reader: Reader) -> Starters:
    """Return the table of commands that start ranks themselves, with the rows of the user's own file."""
    from ranklaunch.adapters.launchers.shared import starters as known  # imported late: most programs start no ranks

    path = reader.get(STARTERS_FILE)
    try:
        user_rows = known.read(reader.files, reader.absolute(path)) if path else ()
    except (ValueError, RecursionError) as error:
        msg = f"{reader.quoted(STARTERS_FILE)}: {unreadable(error)}"
        raise ConfigError(msg) from None
    return known.Starters(user_rows)


_ON_A_NODE = ("NPROC_PER_NODE", "GPUS_PER_NODE", "MASTER_PORT")


def place_by_env(job: Job, reader: Reader) -> dict[str, str]:
    """Return variables with this node's place in the job, for a program that starts ranks itself.

    No launcher reads these names as its settings.
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
    """Return the folder of the attempt's latest start: the attempt itself, or its latest restart."""
    return _attempt_dir(job.log_dir, job.attempt, job.restart)


@functools.lru_cache(maxsize=4)  # called for each rank
def _attempt_dir(log_dir: str, attempt: int, restart: int) -> str:
    return folders.restart(folders.attempt(log_dir, attempt), restart)


def in_attempt(job: Job, name: str) -> str:
    """Return the path of a file in the attempt's folder."""
    return join(attempt_dir(job), name)


def once(job: Job, reader: Reader, templates: Templates, method: str, template: str, script: Script | None) -> Plan:
    """Return the plan that starts the program once on each node.

    script: the program, if it is a script that starts ranks itself.
    """
    env, unset, starts_ranks = _environment(job, reader, script)
    waits = master_waits(job, reader) if starts_ranks else ()
    slots = tuple(node.slots for node in job.nodes)
    # One process for each node, for any number of slots.
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


def _environment(job: Job, reader: Reader, script: Script | None) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """Return the variables to add, the names of variables to unset, and True if the program starts ranks itself."""
    if script:
        return script.env, script.unset, True
    command = launcher_of_program(job, reader)
    if not (command or job.among):
        return {}, misleading(reader.env), False
    # The user's launcher may read the platform's variables about ranks. With --per-rank these variables are right.
    unset = only_secrets(reader.env)
    if not command or command.starter.same_job or job.among:
        return {}, unset, False
    place = place_by_env(job, reader)
    # The user's values for one node (ranks, port) are kept.
    return {name: value for name, value in place.items() if not (name in _ON_A_NODE and reader.env.get(name))}, unset, True


def planned(job: Job, reader: Reader, method: str, processes: tuple[Process, ...], **further: Any) -> Plan:
    """Return the plan of a method with these processes. further: other fields of Plan, by name."""
    return Plan(job=job, method=method, why="", processes=processes, limits=limits(reader), **further)


def limits(reader: Reader) -> Limits:
    return Limits(wait_s=reader.get(WAIT_S), grace_s=reader.get(GRACE_S))


def master_waits(job: Job, reader: Reader, host: str = "") -> tuple[Wait, ...]:
    """Return the wait until the name of node 0 (or `host`) resolves, for ranks of several nodes; no wait for one node.

    The name may be published after the start of this container.
    """
    return (Wait("hosts", host or job.master, reader.get(WAIT_S)),) if job.has_peers else ()


def meeting_host(job: Job, reader: Reader) -> str:
    """Return the host of the rendezvous: node 0, or the loopback address for one node, which may be unable to resolve its own name."""
    return job.master if job.has_peers or reader.by_user(MASTER_ADDR) else "127.0.0.1"


def meeting_of_ranks(job: Job, reader: Reader, port: int) -> dict[str, str]:
    """Return MASTER_ADDR and MASTER_PORT for ranks that node 0 starts on all nodes.

    The address is the host of rank 0: the first node with ranks.
    """
    first = next((node for node in job.nodes if node.slots), job.nodes[0])
    return {"MASTER_ADDR": first.host if first.index else meeting_host(job, reader), "MASTER_PORT": str(port)}


def with_hosts(job: Job) -> Job:
    """Return the job with a host for every node. Nodes without a name get a distinct placeholder: most platforms name only node 0."""
    return replace(job, nodes=tuple(node._replace(host=node.host or f"unnamed-{node.index}") for node in job.nodes))


def need_hosts(job: Job, reader: Reader, method: str) -> Job:
    """Refuse nodes without names, for a method that reaches every node by name.

    Return the job with placeholders for missing names, so that the plan can go on and report further problems.
    """
    unnamed = [node.index for node in job.nodes if not node.host]
    if unnamed and not reader.awaits_hosts:
        first, last = unnamed[0], unnamed[-1]
        nodes = f"nodes {first} to {last} have no names" if 1 < len(unnamed) == last - first + 1 else f"node {first} has no name"
        remedy = f"name them by {HOSTS.both}, in node order, or choose another --method"
        reader.problem(f"{nodes}, and method {method} needs the names of all nodes: {remedy}")
    return with_hosts(job)


def check_before_much(job: Job, reader: Reader) -> None:
    """Raise the problems reported so far if the job has so many nodes that the rest of the plan takes seconds."""
    if len(job.nodes) > 10_000:
        reader.check()


def script_or_module(
    job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...], script: tuple[str, ...], module: str
) -> tuple[str, ...]:
    """Replace a launcher's script in a template's command by `PYTHON -m MODULE`.

    Do so only if the script is neither beside the interpreter nor on PATH, and the interpreter has the package.
    """
    name, search = script[0], common_env(job, reader).get("PATH", reader.env.get("PATH", ""))
    if argv[: len(script)] != script or which(name, search, reader.files):
        return argv
    from ranklaunch.plan import facts  # imported late: most images have the script

    if not facts.has(f"{module.replace('.', '/')}.py", job, reader.files, reader.env, reader.cwd):
        return argv
    words = (job.python, "-m", module)
    reader.ledger.note(name, " ".join(words), f"no {name} beside the interpreter or on PATH, and its package is there")
    return templates.changed(argv, (*words, *argv[len(script) :]))


def launcher_process(
    job: Job, reader: Reader, name: str, argv: tuple[str, ...], env: Mapping[str, str] = NOTHING, behaviour: str = ""
) -> Process:
    """Return the process of a launcher that starts ranks. behaviour: NAME of its launcher class."""
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
    """Return the process of one rank. local_rank: index of the rank on this node."""
    process = launcher_process(job, reader, f"rank {rank}", argv, env)
    tag = rank_tag(job, reader, templates, local_rank, rank)
    return replace(process, log=rank_log(job, rank), rank=rank, local_rank=local_rank, tag=tag)


def rank_outputs(
    job: Job, reader: Reader, templates: Templates, folder: str, pattern: str, *, by_local_rank: bool = False, of_all: bool = False
) -> RankOutputs:
    """Return the outputs of a launcher's ranks, with a log and a tag for each rank.

    folder: the ranks' output files are below it; "" if the launcher marks each piece of its own output with the rank. pattern: regular
    expression for the path of a file, or for the mark; its group is the rank. by_local_rank: the group is the index of the rank on its
    node. of_all: the ranks of all nodes write there.
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
    """Return the tag of a rank. node: node of the rank, if not this node."""
    if reader.options.get(LOG_TAG.value) == "":  # an explicit empty option turns tags off; an empty variable does not
        reader.note(LOG_TAG, "", f"option {LOG_TAG.option}")
        return ""
    all_ranks = (_known_by_tag(each, i, r) for each in ((job.node,) if node is None else job.nodes) for i, r in enumerate(each.ranks))
    values = _known_by_tag(node or job.node, local_rank, rank)
    return templates.inline(reader.get(LOG_TAG), LOG_TAG.name, all_ranks, **values)


def _known_by_tag(node: Node, local_rank: int, rank: int) -> dict[str, object]:
    return {"rank": rank, "local_rank": local_rank, "node": node.index, "host": node.host}


def common_env(job: Job, reader: Reader) -> dict[str, str]:
    """Return variables for all ranks and launchers.

    PYTHONUNBUFFERED: output appears at once. RANKLAUNCH_ATTEMPT: for scripts that resume. PATH: the folder of the user's interpreter
    comes first, so that launchers (torchrun, msrun) and their `python` are those of the interpreter.
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


def without_user_options(job: Job, reader: Reader, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments, by option, without options that the program already has. Warn of each of these: the user's value is kept."""
    user_options = {word.partition("=")[0] for word in job.program.args}
    for name in sorted(user_options & arguments.keys()):
        reader.warn(f"the program's own {name} is kept; ranklaunch would have passed {clipped(arguments[name])}")
    return {name: value for name, value in arguments.items() if name not in user_options}


def address(host: str) -> str:
    """Return a host in URL form: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host
