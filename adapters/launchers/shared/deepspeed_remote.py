"""DeepSpeed's launcher on node 0 alone, which starts the ranks of all nodes by ssh, MPI or Slurm.

The other nodes have no process of their own beside the job's sshd; they follow node 0 and end as it does.
"""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Mapping
from dataclasses import replace

from ranklaunch.adapters.launchers.shared import from_node_0, ssh
from ranklaunch.adapters.launchers.shared.base import MASTER_PORT, PROOF_BEGUN, failed_with, in_attempt, meeting_of_ranks
from ranklaunch.adapters.launchers.shared.deepspeed import options
from ranklaunch.adapters.launchers.shared.variables import of_ranks
from ranklaunch.env import parse
from ranklaunch.env.job import Job, Program
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import RESTART_COUNT, RUN
from ranklaunch.files import join, own_program, which
from ranklaunch.plan.model import File, Plan, Process
from ranklaunch.redact import redact
from ranklaunch.redact.forms import is_secret
from ranklaunch.render.templates import Templates
from ranklaunch.showing import clipped
from ranklaunch.verdict.model import Failure

ENDS = own_program("end_as_rank.py")

OWN_NODE = "no_ssh"
RUNNER, END = "runner", "end"  # a folder for what the runner starts, and the file with its exit code
PDSH, OPEN_MPI, MPICH, SLURM = "pdsh", "openmpi", "mpich", "slurm"
BY = Variable(
    "deepspeed_launcher",
    ("RANKLAUNCH_DEEPSPEED_LAUNCHER",),
    parse.OneOf(OWN_NODE, PDSH, OPEN_MPI, MPICH, "impi", "mvapich", SLURM),
    OWN_NODE,
    "how DeepSpeed starts the ranks of several nodes: its launcher on each node, or one on node 0 that reaches the others so",
)

# Between the runner and the ranks of node 0, where it starts these itself.
_BY_MPI = ("mpirun", "mpirun.openmpi", "orterun", "prterun", "mpiexec.hydra", "hydra_pmi_proxy")
CARRIERS = ("deepspeed", "pdsh", "pdsh.bin", "ssh", *_BY_MPI, "srun")  # Debian's pdsh is a script, which becomes pdsh.bin
_CARRIER = {PDSH: PDSH, SLURM: "srun"}  # what the runner starts; else mpirun
_CARRIED = """#!/bin/sh
PATH={path}
echo {begun} > {proof}
{name} "$@"
code=$?
echo $code > {proof}
exit $code
"""
_EVEN = (MPICH, "impi", "mvapich", SLURM)
_WITHOUT_MEETING = (OPEN_MPI, "mvapich")  # DeepSpeed gives the ranks of these no MASTER_ADDR and MASTER_PORT
_BY_SRUN = r"(?m)^srun: error: \S+: tasks? (?P<task>[0-9]+)[^:\n]*: (?:Exited with exit code (?P<code>[0-9]+)|(?P<end>[A-Z][\w/ ]+))"
_NODE_LOST = r"(?m)^srun: error: Node failure on (?P<host>\S+)"
FAILING = (r"^pdsh@\S+: \S+: ssh exited with exit code ",)  # says pdsh, also of a launch.py that was killed
_TOLD = r"(?P<told>\S+): .*\[launch\.py:[0-9]+:sigkill_handler\] Main process received SIGTERM, exiting"  # says launch.py
BY_PDSH = rf"(?m)^(?:pdsh@\S+: (?P<host>\S+): ssh exited with exit code (?P<code>[0-9]+)|{_TOLD})\s*$"
_SSH_LOST = 255  # says ssh where what it had started there was killed, and where it says itself why it has failed
_SAID_BY_SSH = (
    r"(?:ssh|kex_exchange_identification|ssh_exchange_identification|client_loop|packet_write_wait|ssh_dispatch_run_fatal): "
    r"|Connection (?:to \S+ )?(?:closed|reset|timed out)\b|Timeout, server |Read from remote host "
    r"|(?:Received disconnect|Disconnected) from |Host key verification failed|Permission denied \("
    r"|Too many authentication failures|Unable to negotiate with "
)
# In the C library's words, and one of Slurm's own.
_SIGNALS = {(signal.strsignal(number) or "").lower(): number for number in range(1, signal.SIGSYS + 1)}
_SIGNALS["out of memory"] = signal.SIGKILL
_OF_SRUN = {"SLURM_OVERLAP": "1", "SLURM_OVERCOMMIT": "1", "SLURM_KILL_BAD_EXIT": "1"}  # options of srun that it is not told of
_PLAIN = r"[\w@%+=:,./-]*"  # what DeepSpeed puts between no quotes
_TYPED = r"[\w@+=:,./ -]+"  # arguments that pdsh and the shells behind it leave as they are


def plan(job: Job, reader: Reader, templates: Templates, own: Plan, process: Process, hostfile: File, tunes: bool) -> Plan:
    """Return the plan of a job with ranks started from node 0 by DeepSpeed's runner.

    own: the plan without processes. process: the runner on node 0. tunes: the runner is DeepSpeed's tuner; its own runners
    end the remaining processes.
    """
    by = reader.get(BY)
    _refuse(job, reader, by)
    behaviour = ssh.BelowPdsh.NAME if by == PDSH else ssh.NAME
    by_ssh = {} if by == SLURM else ssh.reached(job, reader, templates, behaviour)
    own = replace(own, followers=len(job.nodes) - 1, **by_ssh)
    private = ssh.private_folder(job, reader)
    if job.node_index:
        return own
    waits = ssh.waits(job, reader, for_sshd=bool(own.services))
    user = options.read_env_files(job, reader)
    path = process.env.get("PATH", reader.env.get("PATH", ""))
    files = [*own.files, hostfile]
    if by == SLURM:  # srun hands on whatever the runner has
        process = _below_srun(replace(process, env={**process.env, **options.expanded(user, reader.env)}), job, reader)
    else:
        path = f"{private}:{path}"
        forwarded = File(in_attempt(job, "deepspeed_env"), _forwarded(job, reader, by, process, user))
        settings = from_node_0.open_mpi_settings(reader)
        process = replace(process, env={**process.env, "PATH": path, **settings, "DS_ENV_FILE": forwarded.path})
        files += [forwarded, _ssh_program(job, reader) if own.services else ssh.other_shell(job, reader)]
    if not tunes:
        process, carrier = _carried(process, by, private, path)
        files.append(carrier)
    return replace(own, processes=(process,), files=tuple(files), private=private, waits=waits)


def told_of_ends(job: Job) -> Job:
    """The job with a program that runs the rank's own, and says how that ends: DeepSpeed's helper for MPICH ends with 0 in any case."""
    program = job.program
    first = ("--python",) if program.is_python else ("bash",) if program.is_shell else ()
    return replace(job, program=Program(ENDS, (*first, *program.words)))


def _below_srun(process: Process, job: Job, reader: Reader) -> Process:
    """Return the process with settings for the runner's srun inside another srun: the inner srun gets the tasks of each node, shares
    resources with the outer one, ends all tasks after the failure of one, and does not inherit the outer binding."""
    missing = {name: value for name, value in _OF_SRUN.items() if name not in reader.env}
    env = {**missing, "SLURM_NNODES": str(len(job.nodes)), "SLURM_NTASKS_PER_NODE": str(job.node.slots)}
    unset = {*process.unset, *(name for name in reader.env if name.startswith("SLURM_CPU_BIND"))} - env.keys()
    return replace(process, env={**process.env, **env}, unset=tuple(sorted(unset)))


def of_node(match: re.Match[str], tail: str, node: int | None) -> Failure:
    """Return the failure reported by pdsh for a node without a failure from launch.py, or with only a SIGTERM. node: the node's index,
    None
    if launch.py did not name it."""
    host = match["host"] or match["told"]
    if match["told"]:
        return Failure(None, 143, signal.SIGTERM, node=node, name="launch.py", host=host)
    code = int(match["code"])
    if code != _SSH_LOST:
        return Failure(None, code, node=node, host=host)
    before = re.findall(rf"^{re.escape(host)}: (.*)", tail[: match.start()], re.MULTILINE)
    if not before or re.match(_SAID_BY_SSH, before[-1]):
        return Failure(None, code, node=node, name="ssh to launch.py", host=host)
    return Failure(None, 137, signal.SIGKILL, node=node, name="launch.py", host=host)


def told_by_srun(tail: str) -> Failure | None:
    """Return the first task whose failure srun reports, or an earlier lost node.

    srun then ends the other tasks, and exits with the largest exit code. A lost node is named as Slurm writes it.
    """
    match, lost = re.search(_BY_SRUN, tail), re.search(_NODE_LOST, tail)
    if lost and not (match and match.start() < lost.start()):
        return Failure(None, 137, name="srun's step", host=lost["host"])
    if not match:
        return None
    code = int(match["code"]) if match["code"] else -_SIGNALS.get(match["end"].strip().lower(), 0)
    return failed_with(code, rank=int(match["task"])) if code else None


def _refuse(job: Job, reader: Reader, by: str) -> None:
    """Refuse what DeepSpeed cannot do by its way to the nodes."""
    if by == PDSH:
        _refuse_harmed(job, reader)
        return
    program, described = job.program, reader.described(BY)
    if not ssh.by_ssh(reader):
        shell = reader.described(ssh.REMOTE_SHELL)
        reader.problem(f"{shell}: it takes ssh's place where DeepSpeed reaches the other nodes by pdsh; set {BY.name}={PDSH}")
    wrong = {
        "needs the same number of slots on every node for it; use no_ssh, or --method torchrun or spawn": by in _EVEN and job.slots_differ,
        "starts nothing but Python files by it": by == SLURM and (program.module or not program.is_python),
        "cannot choose devices by it, only the first of each node; use no_ssh or pdsh": any(node.devices for node in job.nodes),
    }
    for effect in (effect for effect, applies in wrong.items() if applies):
        reader.problem(f"{described}: DeepSpeed {effect}")
    if by == OPEN_MPI and not which("prterun", reader.env.get("PATH", ""), reader.files):
        from_node_0.refuse_addresses(job, reader, described)
    from_node_0.refuse_colon(program.args, reader, described, _CARRIER.get(by, "mpirun"))


def _refuse_harmed(job: Job, reader: Reader) -> None:
    """Refuse words that pdsh and the shells behind it would change."""
    words = (job.program.path, *job.program.args, job.folder or reader.cwd)
    harmed = next((word for word in words if not re.fullmatch(_TYPED, word)), None)
    if harmed is not None:
        described = f"{reader.described(BY)}: {clipped(harmed)!r} would not arrive as it is"
        reader.problem(f"{described}: pdsh hands it to a shell on each node; use no_ssh")


def _ssh_program(job: Job, reader: Reader) -> File:
    """An ssh that knows the job's own port and key. DeepSpeed, pdsh and every MPI call it by this name."""
    path = which("ssh", reader.env.get("PATH", ""), reader.files) or "/usr/bin/ssh"
    config = shlex.quote(ssh.client_config(job, reader))
    return File(ssh.program(job, reader), f'#!/bin/sh\nexec {shlex.quote(path)} -F {config} "$@"\n', "0700")


def _carried(process: Process, by: str, private: str, path: str) -> tuple[Process, File]:
    """Return the runner, and a script in place of the program that the runner starts.

    The runner takes a death by signal for success and a shell's exit code as it is, so the script writes the exit status into a file.
    path: PATH of the program itself.
    """
    name, folder = _CARRIER.get(by, "mpirun"), join(private, RUNNER)
    text = _CARRIED.format(path=shlex.quote(path), begun=PROOF_BEGUN, proof=shlex.quote(join(folder, END)), name=name)
    program = File(join(folder, name), text, "0700")
    return replace(process, env={**process.env, "PATH": f"{folder}:{path}"}), program


def _forwarded(job: Job, reader: Reader, by: str, process: Process, user: Mapping[str, str]) -> str:
    """Return the lines of the variables for DeepSpeed to forward.

    DeepSpeed forwards few variables by itself (PYTHON*, NCCL*, ...), and prints all forwarded ones, so secrets are left out. user:
    variables of the user's files for DeepSpeed, unchanged and last.
    """
    recorders = {each.name: each.value for each in of_ranks(job, reader, True)}
    own = {**recorders, RUN: reader.arrived.run_id, RESTART_COUNT: str(reader.arrived.restart)}
    meeting = meeting_of_ranks(job, reader, reader.get(MASTER_PORT)) if by in _WITHOUT_MEETING else {}
    values = {**reader.env, **process.env, **own, **meeting, **user}
    names = sorted({*(name for name in from_node_0.forwarded(reader, values) if name != "HOME"), *meeting, *user})
    lost = _lost(reader, by, {name: values[name] for name in names})
    texts = {name: _escaped(values[name]) if by == PDSH else values[name] for name in names if name not in user}
    return "".join(f"{name}={text}\n" for name, text in (*texts.items(), *user.items()) if name not in lost)


def _lost(reader: Reader, by: str, values: Mapping[str, str]) -> set[str]:
    """Return the names of variables that the ranks must do without, with a warning."""
    secret = [name for name, value in values.items() if is_secret(name) or redact.text(value) != value]
    damaged = [name for name, value in values.items() if name not in secret and not _arrives(value, by)]
    for lost, effect in ((secret, "show the value on the console"), (damaged, "damage the value on the way")):
        if lost:
            reader.warn(f"{reader.described(BY)}: the ranks do not get {', '.join(lost)}: DeepSpeed would {effect}")
    return {*secret, *damaged}


def _arrives(value: str, by: str) -> bool:
    """Return True if a value reaches the ranks unchanged.

    DeepSpeed strips values, and line ends break its commands. By MPI it quotes some values, and the quotes stay.
    """
    return not re.search(r"[\r\n]", value) and value == value.strip() and (by == PDSH or bool(re.fullmatch(_PLAIN, value)))


def _escaped(value: str) -> str:
    """For the double quotes of a shell, and for pdsh, to which %h is a host."""
    return options.escaped(value).replace("%", "%%")
