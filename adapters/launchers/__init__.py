"""The launchers by method name."""

from __future__ import annotations

from importlib import import_module

from ranklaunch.adapters.launchers.shared.base import Launcher, own_launcher, own_script
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
# Methods that tell parameter servers (ps) from workers.
WITH_TASKS = ("tensorflow", "plain")
# Methods for a node 0 without ranks.
WITHOUT_RANKS = ("mpirun", "msrun")
# Methods for a platform that has started each rank.
PER_RANK = ("spawn", "plain")
# Methods that know node 0 by its address: several nodes need machines, or namespaces, of their own.
BY_ADDRESS = ("msrun",)
# Methods that start the program once on each node.
ONCE = ("plain", "pytorch", "tensorflow")


def launcher(method: str) -> type[Launcher]:
    """Return the class of a method. Its module is imported now: a start needs few of them, and is waited for."""
    result: type[Launcher] = getattr(import_module(f"{__name__}.{method}"), LAUNCHERS[method])
    return result


def started(process: Process, plan: Plan) -> Launcher:
    """Return the object for a process of a plan. Raises KeyError if its behaviour is no class's name."""
    if not process.behaviour:
        return Launcher(process, plan)
    method = process.behaviour.partition(".")[0]
    module = import_module(f"{__name__}.{_SERVERS.get(method, method)}")
    classes = (each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Launcher))
    return {each.NAME: each for each in classes}[process.behaviour](process, plan)


def choose(job: Job, reader: Reader) -> tuple[type[Launcher], str]:
    """Return the launcher of a job, and the reason: a setting, or a fact about the job."""
    asked = reader.get(METHOD).strip().lower()
    asked = ALIASES.get(asked, asked)
    problem = _problem(job, reader, asked) if asked else ""
    if problem:
        reader.problem(problem)
        return launcher("plain"), "a method was asked for that is refused"
    name, why = _by_program(job, reader, asked) or _fitting(job)
    if not asked:
        reader.note(METHOD, name, "default")
    return launcher(name), why


def _by_program(job: Job, reader: Reader, asked: str) -> tuple[str, str] | None:
    """Return the method by what the program is or the user asks for, and why; None where neither says it."""
    script = own_script(job, reader) if asked not in ONCE else None
    command = None if script else own_launcher(job, reader)
    by_user = (asked, f"{reader.source(METHOD)}={asked}".replace("option --method=", "option --method ")) if asked else None
    if not (script or command):
        return by_user
    from ranklaunch.adapters.launchers.shared import own_starts  # most programs start no ranks

    if command:
        return own_starts.of_launcher(job, reader, command, by_user, starts_once=asked in ONCE)
    return own_starts.of_script(job, reader, script, by_user) if script else by_user


def _problem(job: Job, reader: Reader, method: str) -> str:
    """Return why a job cannot have the method that was asked for."""
    if method not in LAUNCHERS:
        return f"{reader.quoted(METHOD)}: expected one of {', '.join(LAUNCHERS)}{nearest(method, LAUNCHERS)}"
    if not job.nodes[0].slots and method not in WITHOUT_RANKS:
        return (
            f"{reader.described(METHOD)}: node 0 has no ranks of its own, which only {' and '.join(WITHOUT_RANKS)} do with: "
            f"expected one of "
            "them, or a node 0 with ranks (RANKLAUNCH_LAUNCHER_AS_WORKER=true; runLauncherAsWorker: true of an MPIJob)"
        )
    if job.among and method not in PER_RANK:
        return f"{reader.described(METHOD)} starts ranks, and --per-rank has one started already: expected {' or '.join(PER_RANK)}"
    return ""


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
