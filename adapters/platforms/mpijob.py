"""MPIJob of Kubeflow's MPI operator: node 0 is the launcher's pod, which starts the ranks of the others, and may have ranks too.

Only the launcher is given the host file; a worker knows its own name, and the rest by RANKLAUNCH_ variables.
"""

from __future__ import annotations

import re

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, RESTARTS
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, JOB_NAME, MASTER_ADDR, METHOD, NODE_INDEX, NODES, SLOTS, make_job, spread
from ranklaunch.values import replace

NAME = "mpijob"

HOST_FILE = kubernetes.MPI_HOST_FILE
LAUNCHER, WORKER = "launcher", "worker"

ROLE = Variable(
    "mpi_role", ("K_MPI_JOB_ROLE",), parse.OneOf(LAUNCHER, WORKER), WORKER, "launcher or worker: what this pod is in its MPIJob",
    "platform",
)  # fmt: skip
AS_WORKER = replace(
    kubernetes.LAUNCHER_AS_WORKER, default=False, default_text=f"true where {HOST_FILE} names the launcher, which only the launcher has"
)

VARIABLES: tuple[Variable[object], ...] = (ROLE, AS_WORKER, HOSTNAME, RESTARTS)

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_POD = re.compile(r"(?P<job>.+)-(?:launcher(?:-[a-z0-9]{5})?|worker-(?P<index>[0-9]{1,7}))")


def detect(reader: Reader) -> bool:
    return reader.given(ROLE)


def read(reader: Reader, program: Program) -> Job:
    reader.offer(METHOD.value, Candidate("MPIJob", "mpirun"))
    role = reader.get(ROLE)
    pod = None if kubernetes.on_host_network(reader) else _POD.fullmatch(kubernetes.own_name(reader))
    listed = [(kubernetes.relative(host), n) for host, n in kubernetes.mpi_file(reader, HOST_FILE)]
    job_name, said = _job_name(reader, pod, [host for host, _ in listed])
    has_ranks = _has_ranks(reader, listed)
    if listed and not has_ranks and not _names_launcher(listed):
        listed = [(_pod(job_name, "launcher"), 0), *listed]
    nodes = _count(reader, len(listed))
    if nodes > 1 and not job_name and kubernetes.own_name(reader):
        reader.problem(f"{kubernetes.told_name(reader)} is not the name of an MPIJob's pod: set {JOB_NAME.names[0]} to the MPIJob's")
    return make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, job_name, said, NAME),
        attempt=attempt(reader),
        hosts=_hosts(reader, nodes, job_name, [host for host, _ in listed]),
        slots=_slots(reader, nodes, [n for _, n in listed]),
        node_index=kubernetes.index(reader, NODE_INDEX, nodes, _places(reader, role, pod)),
        instance_name=kubernetes.own_name(reader),
        only_launches=not has_ranks and nodes > 1,
    )


def _pod(job: str, name: str) -> str:
    """As the pods of one namespace know each other."""
    return f"{job}-{name}.{job}"


def _job_name(reader: Reader, pod: re.Match[str] | None, listed: list[str]) -> tuple[str, str]:
    """By what this pod or node 0 is called (node 0 may be the first worker), else by the user; and who says so."""
    if pod:
        return pod["job"], HOSTNAME.names[0]
    told = [(variable.names[0], kubernetes.seen(reader, variable).partition(",")[0]) for variable in (HOSTS, MASTER_ADDR)]
    for source, host in [(HOST_FILE, listed[0] if listed else ""), *told]:
        found = _POD.fullmatch(host.strip().partition(".")[0])
        if found:
            return found["job"], source
    return kubernetes.seen(reader, JOB_NAME), JOB_NAME.names[0]


def _names_launcher(listed: list[tuple[str, int]]) -> bool:
    return bool(re.search(r"-launcher$", listed[0][0].partition(".")[0])) if listed else False


def _has_ranks(reader: Reader, listed: list[tuple[str, int]]) -> bool:
    """Whether the launcher has: the host file says it, and on a worker the user."""
    if not listed:
        return reader.get(AS_WORKER)
    named = _names_launcher(listed)
    if reader.given(AS_WORKER) and reader.get(AS_WORKER) != named:
        what = "names" if named else "does not name"
        reader.problem(f"{reader.told(AS_WORKER)}, but {HOST_FILE} {what} the launcher: expected the MPIJob's runLauncherAsWorker")
    if not reader.given(AS_WORKER):
        reader.ledger.note(AS_WORKER.value, showing.show(named), HOST_FILE)
    return named


def _count(reader: Reader, listed: int) -> int:
    if not listed:
        remedy = (
            "only the launcher has a host file: set RANKLAUNCH_NODES in the Worker's template to its replicas and the launcher together"
        )
        return kubernetes.count(reader, NODES, remedy)
    if reader.given(NODES) and reader.get(NODES) != listed:
        reader.problem(f"{reader.told(NODES)}, but with the launcher {HOST_FILE} has {listed} nodes: expected that number")
    if not reader.given(NODES):
        reader.ledger.note(NODES.value, str(listed), HOST_FILE)
    return listed


def _hosts(reader: Reader, nodes: int, job: str, listed: list[str]) -> tuple[str, ...]:
    if listed:
        return kubernetes.hosts(reader, nodes, listed, HOST_FILE, "")
    made = (_pod(job, "launcher"), *(_pod(job, f"worker-{i}") for i in range(nodes - 1))) if job else ()
    return kubernetes.hosts(reader, nodes, made, HOSTNAME.names[0], "HOSTNAME is not the name of an MPIJob's pod")


def _slots(reader: Reader, nodes: int, listed: list[int]) -> tuple[int, ...]:
    if not listed or reader.given(SLOTS):
        return kubernetes.slots(reader, SLOTS, nodes)
    reader.ledger.note(SLOTS.value, showing.show(listed), HOST_FILE)
    return spread(reader, SLOTS, tuple(listed), nodes)


def _places(reader: Reader, role: str, pod: re.Match[str] | None) -> list[tuple[str, int]]:
    """The launcher is node 0, whether it has ranks or not; worker I is node I + 1."""
    if role == LAUNCHER:
        return [(reader.told(ROLE), 0)]
    return [(kubernetes.told_name(reader), int(pod["index"]) + 1)] if pod and pod["index"] else []
