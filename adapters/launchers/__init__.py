"""The launchers by method name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.errors import nearest
from ranklaunch.modules import Modules
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader
from ranklaunch.read.settings import BY_MPI, METHOD

LAUNCHERS: Modules[Launcher] = Modules(
    __name__,
    (
        "ranktable", "torchrun", "msrun", "pytorch", "mpirun", "tensorflow", "spawn", "deepspeed", "accelerate", "megatron", "plain",
    ),
)  # fmt: skip

if TYPE_CHECKING:  # imported when they are asked for, by name, which mypy cannot follow: here it holds each against the protocol
    from ranklaunch.adapters.launchers import (
        accelerate,
        deepspeed,
        megatron,
        mpirun,
        msrun,
        plain,
        pytorch,
        ranktable,
        spawn,
        tensorflow,
        torchrun,
    )

    CHECKED: dict[str, Launcher] = {
        "ranktable": ranktable,
        "torchrun": torchrun,
        "msrun": msrun,
        "pytorch": pytorch,
        "mpirun": mpirun,
        "tensorflow": tensorflow,
        "spawn": spawn,
        "deepspeed": deepspeed,
        "accelerate": accelerate,
        "megatron": megatron,
        "plain": plain,
    }

ALIASES = dict.fromkeys(BY_MPI[1:], BY_MPI[0])
# Of programs that plans start: the package that each comes with, and its oldest version that starts ranks as plans expect it.
LEAST = {"torchrun": ("torch", "1.11"), "msrun": ("mindspore", "2.3.0")}
# Programs that plans start: where each comes from, said where one is missing.
COMES_WITH = {
    "torchrun": "it comes with PyTorch 1.11 or newer: is --python the interpreter that has it?",
    "msrun": "it comes with MindSpore 2.3.0 or newer: is --python the interpreter that has it?",
    "deepspeed": "it comes with DeepSpeed: is --python the interpreter that has it?",
    "accelerate": "it comes with Hugging Face Accelerate: is --python the interpreter that has it?",
    "mpirun": "it comes with Open MPI 4 or 5 (openmpi-bin on Debian and Ubuntu)",
    "sshd": "it comes with OpenSSH (openssh-server on Debian and Ubuntu)",
    "ssh-keygen": "it comes with OpenSSH (openssh-client on Debian and Ubuntu)",
    "python": "name the interpreter with --python",
    "python3": "name the interpreter with --python",
}
# They know ps from workers.
WITH_TASKS = ("tensorflow", "plain")
# They do with a node 0 that has none.
WITHOUT_RANKS = ("mpirun", "msrun")


def choose(job: Job, reader: Reader) -> tuple[Launcher, str]:
    """The launcher, and why: who asked for it, or what there is that calls for it."""
    given = reader.get(METHOD).strip().lower()
    if given:
        given = ALIASES.get(given, given)
        if given not in LAUNCHERS:
            reader.problem(f"{reader.quoted(METHOD)}: expected one of {', '.join(LAUNCHERS)}{nearest(given, LAUNCHERS)}")
            return LAUNCHERS["plain"], "an unknown method was asked for"
        if not job.nodes[0].slots and given not in WITHOUT_RANKS:
            _refuse_without_ranks(reader)
            return LAUNCHERS["plain"], "a method was asked for that node 0 cannot have"
        return LAUNCHERS[given], f"{reader.source(METHOD)}={given}".replace("option --method=", "option --method ")
    name, why = _fitting(job)
    reader.ledger.note(METHOD.value, name, "default")
    return LAUNCHERS[name], why


def _refuse_without_ranks(reader: Reader) -> None:
    """On a node that only launches."""
    reader.problem(
        f"{reader.told(METHOD)}: node 0 has no ranks of its own, which only {' and '.join(WITHOUT_RANKS)} do with: expected one of them, "
        "or a node 0 with ranks (RANKLAUNCH_LAUNCHER_AS_WORKER=true; runLauncherAsWorker: true of an MPIJob)"
    )


def _fitting(job: Job) -> tuple[str, str]:
    if not job.nodes[0].slots:
        return "mpirun", "node 0 has no ranks of its own"
    if job.rank_table:
        return "ranktable", f"a rank table is given ({job.rank_table})"
    if job.has_tasks:
        return "tensorflow", "ps are given beside the workers"
    if job.world_size > 1:
        return "torchrun", f"no method asked for, no rank table, {job.world_size} ranks"
    return "plain", "no method asked for, one rank"
