"""The launchers by method name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ranklaunch.adapters.launchers.shared.base import (
    Job,
    Launcher,
    Plan,
    Process,
    Reader,
    nearest,
    own_launcher,
    own_script,
)
from ranklaunch.env.settings import BY_MPI, METHOD
from ranklaunch.modules import Modules

if TYPE_CHECKING:
    from ranklaunch.adapters.launchers.shared.scripts.rank_scripts import Script
    from ranklaunch.adapters.launchers.shared.starters import Found

METHODS = (
    "ranktable", "torchrun", "msrun", "pytorch", "mpirun", "tensorflow", "spawn", "deepspeed", "accelerate", "megatron", "plain",
)  # fmt: skip
LAUNCHERS: Modules[type[Launcher]] = Modules(__name__, METHODS, "LAUNCHER")
_SERVERS = {"sshd": "shared.ssh"}  # modules with classes of services


ALIASES = dict.fromkeys(BY_MPI[1:], BY_MPI[0])
# Methods that tell parameter servers (ps) from workers.
WITH_TASKS = ("tensorflow", "plain")
# Methods for a node 0 without ranks.
WITHOUT_RANKS = ("mpirun", "msrun")
# Methods for a platform that has started each rank.
PER_RANK = ("spawn", "plain")
# Methods that start the program once on each node.
ONCE = ("plain", "pytorch", "tensorflow")


_ONLY_THE_RUN = "; whether they are this node's ranks of the job shows only when it runs"


def started(process: Process, plan: Plan) -> Launcher:
    """Return the object for a process of a plan. Raises KeyError if its behaviour is no class's name."""
    if not process.behaviour:
        return Launcher(process, plan)
    method = process.behaviour.partition(".")[0]
    module = import_module(f"{__name__}.{_SERVERS.get(method, method)}")
    classes = (each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Launcher))
    return {each.NAME: each for each in classes}[process.behaviour](process, plan)


def choose(job: Job, reader: Reader) -> tuple[type[Launcher], str]:
    """Return the launcher of a job, and the reason: the setting that asks for it, or the fact that calls for it."""
    asked = reader.get(METHOD).strip().lower()
    asked = ALIASES.get(asked, asked)
    problem = _problem(job, reader, asked) if asked else ""
    if problem:
        reader.problem(problem)
        return LAUNCHERS["plain"], "a method was asked for that is refused"
    script = own_script(job, reader) if asked not in ONCE else None
    own = None if script else own_launcher(job, reader)
    if own:
        _refuse_twice(job, reader, own, asked)
    if script:
        name, why = _once(job, reader, script, asked)
    elif asked:
        name, why = asked, f"{reader.source(METHOD)}={asked}".replace("option --method=", "option --method ")
    elif own:
        shown = _ONLY_THE_RUN if len(job.nodes) > 1 and not own.starter.nodes else ""
        name, why = "plain", f"the program is {own.name}, which starts ranks itself{shown}"
    else:
        name, why = _fitting(job)
    if not asked:
        reader.ledger.note(METHOD.value, name, "default")
    return LAUNCHERS[name], why


def _problem(job: Job, reader: Reader, method: str) -> str:
    """Return why a job cannot have the method that was asked for."""
    if method not in LAUNCHERS:
        return f"{reader.quoted(METHOD)}: expected one of {', '.join(LAUNCHERS)}{nearest(method, LAUNCHERS)}"
    if not job.nodes[0].slots and method not in WITHOUT_RANKS:
        return (
            f"{reader.told(METHOD)}: node 0 has no ranks of its own, which only {' and '.join(WITHOUT_RANKS)} do with: expected one of "
            "them, or a node 0 with ranks (RANKLAUNCH_LAUNCHER_AS_WORKER=true; runLauncherAsWorker: true of an MPIJob)"
        )
    if job.among and method not in PER_RANK:
        return f"{reader.told(METHOD)} starts ranks, and --per-rank has one started already: expected {' or '.join(PER_RANK)}"
    return ""


def _refuse_twice(job: Job, reader: Reader, own: Found, asked: str) -> None:
    """Refuse a program that is a launcher if its ranks, or the job, would be started more than once."""
    from ranklaunch.adapters.launchers.shared import node_place, place_conflicts  # most programs are no launchers

    wrong = place_conflicts.reason(own, node_place.of(job, reader), reader.env) if not asked else ""
    if own.is_run_within(job.program):
        reader.problem(
            f"the program is {own.name}, which would start the same job below this one: write the program itself (the image's ENTRYPOINT "
            "may be a ranklaunch run already); a job of its own needs another --job-name and another --log-dir"
        )
    elif asked and asked not in ONCE:
        reader.problem(
            f"the program is {own.name}, which starts ranks itself, and {reader.told(METHOD)} would start it for each rank: write "
            f"{own.instead}, or choose method plain, which starts it once on each node"
        )
    elif wrong:
        reader.problem(
            f"{len(job.nodes)} nodes, and the program is {own.name}, {wrong}: write {own.instead}, which starts the ranks of all nodes, "
            "or choose method plain, which starts it as it is on each node"
        )
    elif not asked:
        node_place.warn_of_ranks(job, reader, [own])


def _once(job: Job, reader: Reader, script: Script, asked: str) -> tuple[str, str]:
    """Return the method of a script that starts ranks, and why: it runs once on each node, whatever was asked for."""
    from ranklaunch.adapters.launchers.shared import node_place  # most programs are no scripts that start ranks

    why = f"{script.path} starts ranks itself ({script.name})"
    name = "megatron" if asked == "megatron" else "plain"
    place = node_place.of(job, reader)
    wrong = script.wrong(place)
    if wrong:
        reader.problem(
            f"{len(job.nodes)} nodes, and {script.path} starts {script.name}, {wrong}: give it what the script finds in NNODES, NODE_RANK, "
            f"NPROC_PER_NODE, MASTER_ADDR and MASTER_PORT; or write {script.starts[0].instead}, which starts the ranks of all nodes; or "
            "choose method plain, which starts the script as it is on each node"
        )
    else:
        node_place.warn_of_ranks(job, reader, script.starts, script.path)
    if not wrong and script.shows_when_it_runs(place):
        why = f"{why}{_ONLY_THE_RUN}"
    if not wrong and asked and name != asked:
        reader.warn(f"{why}, so it is started once on each node, by method {name}, and not by {reader.told(METHOD)}")
    return name, why


def _fitting(job: Job) -> tuple[str, str]:
    """Return the method for a program that starts no ranks, and why."""
    if job.among:
        return "spawn", "the platform has started one for each rank"
    if not job.nodes[0].slots:
        return "mpirun", "node 0 has no ranks of its own"
    if job.rank_table:
        return "ranktable", f"a rank table is given ({job.rank_table})"
    if job.has_tasks:
        return "tensorflow", "ps are given beside the workers"
    if job.world_size > 1:
        return "torchrun", f"no method asked for, no rank table, {job.world_size} ranks"
    return "plain", "no method asked for, one rank"
