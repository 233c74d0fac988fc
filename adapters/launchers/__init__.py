"""Launchers by method name, and the choice of a method for a job."""

from __future__ import annotations

from importlib import import_module

from ranklaunch.adapters.launchers.shared.base import Launcher, launcher_of_program, script_of_program
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import BY_MPI, METHOD
from ranklaunch.errors import nearest
from ranklaunch.plan.model import Plan, Process

# The class of each method, in the module of the method's name.
LAUNCHERS = {
    "ranktable": "Ranktable", "torchrun": "Torchrun", "msrun": "Msrun", "pytorch": "Pytorch", "mpirun": "Mpirun",
    "tensorflow": "Tensorflow", "spawn": "Spawn", "deepspeed": "Deepspeed", "accelerate": "Accelerate", "megatron": "Megatron",
    "jax": "Jax", "ray": "Ray", "plain": "Plain",
}  # fmt: skip
_SERVERS = {"sshd": "shared.ssh"}  # modules with classes of services

ALIASES = dict.fromkeys(BY_MPI[1:], BY_MPI[0])
# Methods that distinguish parameter servers (ps) from workers.
WITH_TASKS = ("tensorflow", "plain")
# Methods that allow a node 0 without ranks.
WITHOUT_RANKS = ("mpirun", "msrun")
# Methods for a platform that starts ranklaunch once for each rank.
PER_RANK = ("spawn", "plain")
# Methods that identify node 0 by its address: each of several nodes needs its own machine or network namespace.
BY_ADDRESS = ("msrun",)
# Methods that start the program once on each node.
ONCE = ("plain", "pytorch", "tensorflow")


def launcher(method: str) -> type[Launcher]:
    """Return the class of a method. Import its module only now: importing all of them would delay every start."""
    result: type[Launcher] = getattr(import_module(f"{__name__}.{method}"), LAUNCHERS[method])
    return result


def started(process: Process, plan: Plan) -> Launcher:
    """Return the launcher object of a started process. Raises KeyError if `process.behaviour` names no class."""
    if not process.behaviour:
        return Launcher(process, plan)
    method = process.behaviour.partition(".")[0]
    module = import_module(f"{__name__}.{_SERVERS.get(method, method)}")
    classes = (each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Launcher))
    return {each.NAME: each for each in classes}[process.behaviour](process, plan)


def choose(job: Job, reader: Reader) -> tuple[type[Launcher], str]:
    """Return the launcher class for a job, and the reason: a setting, or a fact about the job."""
    requested = reader.get(METHOD).strip().lower()
    requested = ALIASES.get(requested, requested)
    problem = _problem(job, reader, requested) if requested else ""
    if problem:
        reader.problem(problem)
        return launcher("plain"), "the requested method is refused"
    name, why = _by_program(job, reader, requested) or _fitting(job)
    if not requested:
        reader.note(METHOD, name, "default")
    return launcher(name), why


def _by_program(job: Job, reader: Reader, requested: str) -> tuple[str, str] | None:
    """Return the method that the program or the user's setting determines, and the reason; None if neither does."""
    script = script_of_program(job, reader) if requested not in ONCE else None
    command = None if script else launcher_of_program(job, reader)
    by_user = (requested, f"{reader.source(METHOD)}={requested}".replace("option --method=", "option --method ")) if requested else None
    if not (script or command):
        return by_user
    from ranklaunch.adapters.launchers.shared import own_starts  # most programs start no ranks

    if command:
        return own_starts.of_launcher(job, reader, command, by_user, starts_once=requested in ONCE)
    return own_starts.of_script(job, reader, script, by_user) if script else by_user


def _problem(job: Job, reader: Reader, method: str) -> str:
    """Return the reason to refuse the requested method for this job, "" for none."""
    if method not in LAUNCHERS:
        return f"{reader.quoted(METHOD)}: expected one of {', '.join(LAUNCHERS)}{nearest(method, LAUNCHERS)}"
    if not job.nodes[0].slots and method not in WITHOUT_RANKS:
        return (
            f"{reader.described(METHOD)}: node 0 has no ranks, and only the methods {' and '.join(WITHOUT_RANKS)} support that: choose "
            "one of them, or give node 0 ranks (RANKLAUNCH_LAUNCHER_AS_WORKER=true; runLauncherAsWorker: true of an MPIJob)"
        )
    if job.among and method not in PER_RANK:
        return f"{reader.described(METHOD)} starts ranks, but with --per-rank the platform starts them: expected {' or '.join(PER_RANK)}"
    return ""


def _fitting(job: Job) -> tuple[str, str]:
    """Return the method for a program that starts no ranks, and the reason."""
    if job.among:
        return "spawn", "the platform starts one process for each rank"
    if not job.nodes[0].slots:
        return "mpirun", "node 0 has no ranks"
    if job.rank_table:
        return "ranktable", f"a rank table is given ({job.rank_table})"
    if job.has_tasks:
        return "tensorflow", "the job has parameter servers (ps) and workers"
    if job.world_size > 1:
        return "torchrun", f"no method asked for, no rank table, {job.world_size} ranks"
    return "plain", "no method asked for, one rank"
