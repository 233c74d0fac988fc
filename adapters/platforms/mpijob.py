"""MPIJob of Kubeflow's MPI operator: node 0 is the launcher's pod, which starts the ranks of the others, and may have ranks too.

Only the launcher is given the host file; a worker knows its own name, and the rest by RANKLAUNCH_ variables.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, RESTARTS
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, JOB_NAME, MASTER_ADDR, METHOD, NODE_INDEX, NODES, SLOTS, make_job
from ranklaunch.showing import show
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

_POD = re.compile(r"(?P<job>.+)-(?:launcher(?:-[a-z0-9]{5})?|worker-[0-9]{1,7})")


def detect(reader: Reader) -> bool:
    return reader.given(ROLE)


def read(reader: Reader, program: Program) -> Job:
    reader.offer(METHOD.value, Candidate("MPIJob", "mpirun"))
    own = "" if kubernetes.on_host_network(reader) else kubernetes.own_name(reader)
    listed = [(kubernetes.relative(host), slots) for host, slots in kubernetes.mpi_file(reader, HOST_FILE)]
    job, source = _job_name(reader, own, listed)
    if listed:
        listed = _with_launcher(reader, listed, _pod(job, "launcher"))
    remedy = "only the launcher has a host file: set RANKLAUNCH_NODES in the Worker's template to its replicas and the launcher together"
    nodes = len(listed) or kubernetes.count(reader, NODES, remedy)
    if nodes > 1 and not job and kubernetes.own_name(reader):
        reader.problem(f"{kubernetes.told_name(reader)} is not the name of an MPIJob's pod: set {JOB_NAME.names[0]} to the MPIJob's")
    pods = [_pod(job, name) for name in ("launcher", *(f"worker-{i}" for i in range(nodes - 1)))] if job else []
    hosts, named_by = ([host for host, _ in listed], HOST_FILE) if listed else (pods, HOSTNAME.names[0])
    return make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, job, source, NAME),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, hosts, named_by, "HOSTNAME is not the name of an MPIJob's pod"),
        slots=kubernetes.slots(reader, SLOTS, nodes),
        node_index=kubernetes.index(reader, NODE_INDEX, nodes, _places(reader, own)),
        instance_name=kubernetes.own_name(reader),
        only_launches=not reader.get(AS_WORKER) and nodes > 1,
    )


def _pod(job: str, name: str) -> str:
    """Return the name by which the pods of one namespace know a pod."""
    return f"{job}-{name}.{job}"


def _job_name(reader: Reader, own: str, listed: list[tuple[str, int]]) -> tuple[str, str]:
    """Return the job by the name of this pod or of node 0 (which may be the first worker), else the user's; and its source."""
    told = [(variable.names[0], kubernetes.seen(reader, variable).partition(",")[0]) for variable in (HOSTS, MASTER_ADDR)]
    for source, host in [(HOSTNAME.names[0], own), (HOST_FILE, listed[0][0] if listed else ""), *told]:
        found = _POD.fullmatch(host.strip().partition(".")[0])
        if found:
            return found["job"], source
    return kubernetes.seen(reader, JOB_NAME), JOB_NAME.names[0]


def _with_launcher(reader: Reader, listed: list[tuple[str, int]], launcher: str) -> list[tuple[str, int]]:
    """Offer what the host file says of all nodes, and return it with the launcher, which it names only if that has ranks."""
    named = listed[0][0].partition(".")[0].endswith("-launcher")
    reader.offer(AS_WORKER.value, Candidate(HOST_FILE, show(named)))
    if reader.get(AS_WORKER) != named:
        what = "names" if named else "does not name"
        reader.problem(f"{reader.told(AS_WORKER)}, but {HOST_FILE} {what} the launcher: expected the MPIJob's runLauncherAsWorker")
    whole = listed if named else [(launcher, 0), *listed]
    reader.offer(NODES.value, Candidate(HOST_FILE, str(len(whole))))
    reader.offer(SLOTS.value, Candidate(HOST_FILE, show([slots for _, slots in whole])))
    if reader.get(NODES) != len(whole):
        reader.problem(f"{reader.told(NODES)}, but with the launcher {HOST_FILE} has {len(whole)} nodes: expected that number")
    return whole


def _places(reader: Reader, own: str) -> list[tuple[str, int]]:
    """Return 0 for the launcher, whether it has ranks or not, and I + 1 for worker I."""
    if reader.get(ROLE) == LAUNCHER:
        return [(reader.told(ROLE), 0)]
    worker = re.fullmatch(r".+-worker-([0-9]{1,7})", own)
    return [(kubernetes.told_name(reader), int(worker[1]) + 1)] if worker else []
