"""DeepSpeed's launcher on node 0 only: it starts the ranks of all nodes by ssh, MPI or Slurm.

The other nodes run only the job's sshd; they end with node 0, and with the same exit code.
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
RUNNER, END = "runner", "end"  # folder of the wrapper script that the runner starts, and file with the exit code
PDSH, OPEN_MPI, MPICH, SLURM = "pdsh", "openmpi", "mpich", "slurm"
BY = Variable(
    "deepspeed_launcher",
    ("RANKLAUNCH_DEEPSPEED_LAUNCHER",),
    parse.OneOf(OWN_NODE, PDSH, OPEN_MPI, MPICH, "impi", "mvapich", SLURM),
    OWN_NODE,
    "how DeepSpeed starts the ranks of several nodes: no_ssh is one launcher on each node; the others are ways to reach them from node 0",
)

# Programs between the runner and the ranks of node 0.
_BY_MPI = ("mpirun", "mpirun.openmpi", "orterun", "prterun", "mpiexec.hydra", "hydra_pmi_proxy")
CARRIERS = ("deepspeed", "pdsh", "pdsh.bin", "ssh", *_BY_MPI, "srun")  # Debian's pdsh is a script, which becomes pdsh.bin
_CARRIER = {PDSH: PDSH, SLURM: "srun"}  # program that the runner starts; mpirun for all others
_WRAPPER = """#!/bin/sh
PATH={path}
echo {begun} > {proof}
{name} "$@"
code=$?
echo $code > {proof}
exit $code
"""
_EVEN = (MPICH, "impi", "mvapich", SLURM)
_WITHOUT_MEETING = (OPEN_MPI, "mvapich")  # DeepSpeed sets no MASTER_ADDR and MASTER_PORT for their ranks
_BY_SRUN = r"(?m)^srun: error: \S+: tasks? (?P<task>[0-9]+)[^:\n]*: (?:Exited with exit code (?P<code>[0-9]+)|(?P<end>[A-Z][\w/ ]+))"
_NODE_LOST = r"(?m)^srun: error: Node failure on (?P<host>\S+)"
FAILING = (r"^pdsh@\S+: \S+: ssh exited with exit code ",)  # by pdsh, also after a killed launch.py
_SIGTERM = r"(?P<signalled>\S+): .*\[launch\.py:[0-9]+:sigkill_handler\] Main process received SIGTERM, exiting"  # by launch.py
BY_PDSH = rf"(?m)^(?:pdsh@\S+: (?P<host>\S+): ssh exited with exit code (?P<code>[0-9]+)|{_SIGTERM})\s*$"
_SSH_LOST = 255  # exit code of ssh if the remote process was killed, and if ssh itself failed (with a message)
_SSH_MESSAGE = (
    r"(?:ssh|kex_exchange_identification|ssh_exchange_identification|client_loop|packet_write_wait|ssh_dispatch_run_fatal): "
    r"|Connection (?:to \S+ )?(?:closed|reset|timed out)\b|Timeout, server |Read from remote host "
    r"|(?:Received disconnect|Disconnected) from |Host key verification failed|Permission denied \("
    r"|Too many authentication failures|Unable to negotiate with "
)
# Signals by the C library's descriptions, and one by Slurm's.
_SIGNALS = {(signal.strsignal(number) or "").lower(): number for number in range(1, signal.SIGSYS + 1)}
_SIGNALS["out of memory"] = signal.SIGKILL
_OF_SRUN = {"SLURM_OVERLAP": "1", "SLURM_OVERCOMMIT": "1", "SLURM_KILL_BAD_EXIT": "1"}  # options of srun that DeepSpeed does not pass
_PLAIN = r"[\w@%+=:,./-]*"  # values that DeepSpeed does not quote
_TYPED = r"[\w@+=:,./ -]+"  # arguments that pdsh and the shells after it do not change


def plan(job: Job, reader: Reader, templates: Templates, idle: Plan, process: Process, hostfile: File, tunes: bool) -> Plan:
    """Return the plan of a job whose ranks DeepSpeed's runner starts from node 0.

    idle: the plan without processes. process: the runner on node 0. tunes: True for DeepSpeed's autotuner, whose further runners end
    leftover processes themselves: no wrapper script is added then.
    """
    by = reader.get(BY)
    _refuse(job, reader, by)
    behaviour = ssh.BelowPdsh.NAME if by == PDSH else ssh.NAME
    by_ssh = {} if by == SLURM else ssh.reached(job, reader, templates, behaviour)
    idle = replace(idle, followers=len(job.nodes) - 1, **by_ssh)
    private = ssh.private_folder(job, reader)
    if job.node_index:
        return idle
    waits = ssh.waits(job, reader, for_sshd=bool(idle.services))
    user = options.read_env_files(job, reader)
    path = process.env.get("PATH", reader.env.get("PATH", ""))
    files = [*idle.files, hostfile]
    if by == SLURM:  # srun passes on the runner's whole environment
        process = _below_srun(replace(process, env={**process.env, **options.expanded(user, reader.env)}), job, reader)
    else:
        path = f"{private}:{path}"
        forwarded = File(in_attempt(job, "deepspeed_env"), _forwarded(job, reader, by, process, user))
        settings = from_node_0.open_mpi_settings(reader)
        process = replace(process, env={**process.env, "PATH": path, **settings, "DS_ENV_FILE": forwarded.path})
        files += [forwarded, _ssh_program(job, reader) if idle.services else ssh.other_shell(job, reader)]
    if not tunes:
        process, carrier = _wrapped(process, by, private, path)
        files.append(carrier)
    return replace(idle, processes=(process,), files=tuple(files), private=private, waits=waits)


def with_exit_reports(job: Job) -> Job:
    """Return the job with a wrapper around the program that reports its exit code: DeepSpeed's helper for MPICH always exits with 0."""
    program = job.program
    first = ("--python",) if program.is_python else ("bash",) if program.is_shell else ()
    return replace(job, program=Program(ENDS, (*first, *program.words)))


def _below_srun(process: Process, job: Job, reader: Reader) -> Process:
    """Return the runner's process with settings for its srun, which runs inside another srun.

    The inner srun gets the number of tasks of each node, shares resources with the outer one, ends all tasks after the failure of one, and
    does not inherit the CPU binding.
    """
    missing = {name: value for name, value in _OF_SRUN.items() if name not in reader.env}
    env = {**missing, "SLURM_NNODES": str(len(job.nodes)), "SLURM_NTASKS_PER_NODE": str(job.node.slots)}
    unset = {*process.unset, *(name for name in reader.env if name.startswith("SLURM_CPU_BIND"))} - env.keys()
    return replace(process, env={**process.env, **env}, unset=tuple(sorted(unset)))


def failure_of_node(match: re.Match[str], tail: str, node: int | None) -> Failure:
    """Return the failure of a node by pdsh's message, or by launch.py's message about SIGTERM.

    match: of BY_PDSH. node: index of the node, None if launch.py did not log it.
    """
    host = match["host"] or match["signalled"]
    if match["signalled"]:
        return Failure(None, 143, signal.SIGTERM, node=node, name="launch.py", host=host)
    code = int(match["code"])
    if code != _SSH_LOST:
        return Failure(None, code, node=node, host=host)
    before = re.findall(rf"^{re.escape(host)}: (.*)", tail[: match.start()], re.MULTILINE)
    if not before or re.match(_SSH_MESSAGE, before[-1]):
        return Failure(None, code, node=node, name="ssh to launch.py", host=host)
    return Failure(None, 137, signal.SIGKILL, node=node, name="launch.py", host=host)


def failure_by_srun(tail: str) -> Failure | None:
    """Return the first failed task that srun reports, or a lost node if srun reports that earlier. A lost node has Slurm's node name.

    srun then ends the other tasks, and exits with the largest exit code.
    """
    match, lost = re.search(_BY_SRUN, tail), re.search(_NODE_LOST, tail)
    if lost and not (match and match.start() < lost.start()):
        return Failure(None, 137, name="srun's step", host=lost["host"])
    if not match:
        return None
    code = int(match["code"]) if match["code"] else -_SIGNALS.get(match["end"].strip().lower(), 0)
    return failed_with(code, rank=int(match["task"])) if code else None


def _refuse(job: Job, reader: Reader, by: str) -> None:
    """Refuse a job that DeepSpeed cannot start by the chosen way to the nodes."""
    if by == PDSH:
        _refuse_harmed(job, reader)
        return
    program, described = job.program, reader.described(BY)
    if not ssh.by_ssh(reader):
        shell = reader.described(ssh.REMOTE_SHELL)
        reader.problem(f"{shell}: it can replace ssh only if DeepSpeed reaches the other nodes by pdsh; set {BY.name}={PDSH}")
    wrong = {
        "then needs the same number of slots on every node; use no_ssh, or --method torchrun or spawn": by in _EVEN and job.slots_differ,
        "then starts only Python files; use no_ssh": by == SLURM and (program.module or not program.is_python),
        "then cannot choose devices, only the first of each node; use no_ssh or pdsh": any(node.devices for node in job.nodes),
    }
    for effect in (effect for effect, applies in wrong.items() if applies):
        reader.problem(f"{described}: DeepSpeed {effect}")
    if by == OPEN_MPI and not which("prterun", reader.env.get("PATH", ""), reader.files):
        from_node_0.refuse_addresses(job, reader, described)
    from_node_0.refuse_colon(program.args, reader, described, _CARRIER.get(by, "mpirun"))


def _refuse_harmed(job: Job, reader: Reader) -> None:
    """Refuse words that pdsh and the shells after it would change."""
    words = (job.program.path, *job.program.args, job.folder or reader.cwd)
    harmed = next((word for word in words if not re.fullmatch(_TYPED, word)), None)
    if harmed is not None:
        described = f"{reader.described(BY)}: {clipped(harmed)!r} would be changed on the way"
        reader.problem(f"{described}: pdsh passes it to a shell on each node; use no_ssh")


def _ssh_program(job: Job, reader: Reader) -> File:
    """Return a script named ssh that uses the job's port and key. DeepSpeed, pdsh and every MPI call ssh by this name."""
    path = which("ssh", reader.env.get("PATH", ""), reader.files) or "/usr/bin/ssh"
    config = shlex.quote(ssh.client_config(job, reader))
    return File(ssh.program(job, reader), f'#!/bin/sh\nexec {shlex.quote(path)} -F {config} "$@"\n', "0700")


def _wrapped(process: Process, by: str, private: str, path: str) -> tuple[Process, File]:
    """Return the runner, and a script that wraps the program that the runner starts (pdsh, mpirun or srun).

    The runner takes a death by signal for success, so the script writes the exit code into a file. path: PATH for the wrapped program.
    """
    name, folder = _CARRIER.get(by, "mpirun"), join(private, RUNNER)
    text = _WRAPPER.format(path=shlex.quote(path), begun=PROOF_BEGUN, proof=shlex.quote(join(folder, END)), name=name)
    program = File(join(folder, name), text, "0700")
    return replace(process, env={**process.env, "PATH": f"{folder}:{path}"}), program


def _forwarded(job: Job, reader: Reader, by: str, process: Process, user: Mapping[str, str]) -> str:
    """Return the text of the file with variables that DeepSpeed forwards to the ranks.

    Without the file, DeepSpeed forwards few variables (PYTHON*, NCCL*, ...). It prints all forwarded ones, so secrets are left out.
    user: variables of the user's own files for DeepSpeed; they come last and unchanged.
    """
    recorders = {each.name: each.value for each in of_ranks(job, reader, True)}
    of_ranklaunch = {**recorders, RUN: reader.arrived.run_id, RESTART_COUNT: str(reader.arrived.restart)}
    meeting = meeting_of_ranks(job, reader, reader.get(MASTER_PORT)) if by in _WITHOUT_MEETING else {}
    values = {**reader.env, **process.env, **of_ranklaunch, **meeting, **user}
    names = sorted({*(name for name in from_node_0.forwarded(reader, values) if name != "HOME"), *meeting, *user})
    lost = _lost(reader, by, {name: values[name] for name in names})
    texts = {name: _escaped(values[name]) if by == PDSH else values[name] for name in names if name not in user}
    return "".join(f"{name}={text}\n" for name, text in (*texts.items(), *user.items()) if name not in lost)


def _lost(reader: Reader, by: str, values: Mapping[str, str]) -> set[str]:
    """Return the names of variables that are not forwarded, and warn of them."""
    secret = [name for name, value in values.items() if is_secret(name) or redact.text(value) != value]
    damaged = [name for name, value in values.items() if name not in secret and not _arrives(value, by)]
    for lost, effect in ((secret, "print the value on the console"), (damaged, "change the value on the way")):
        if lost:
            reader.warn(f"{reader.described(BY)}: the ranks do not get {', '.join(lost)}: DeepSpeed would {effect}")
    return {*secret, *damaged}


def _arrives(value: str, by: str) -> bool:
    """Return True if a value reaches the ranks unchanged.

    DeepSpeed strips values, and line ends break its commands. With MPI it quotes some values, and the quotes become part of the value.
    """
    return not re.search(r"[\r\n]", value) and value == value.strip() and (by == PDSH or bool(re.fullmatch(_PLAIN, value)))


def _escaped(value: str) -> str:
    """Return the value escaped for double quotes of a shell, and for pdsh, which expands %h to a host."""
    return options.escaped(value).replace("%", "%%")
