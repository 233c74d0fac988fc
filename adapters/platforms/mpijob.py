"""MPIJob of Kubeflow's MPI operator. Node 0 is the launcher's pod, which starts the ranks of the workers and may have ranks of its own.

Only the launcher has the host file. A worker knows its own name; RANKLAUNCH_ variables give the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact, of_hosts
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.env import parse
from ranklaunch.env.job import Job, make_nodes
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import HOSTS, JOB_NAME, MASTER_ADDR, METHOD, NODE_INDEX, NODES

HOST_FILE = kubernetes.MPI_HOST_FILE
LAUNCHER, WORKER = "launcher", "worker"

ROLE = Variable(
    "mpi_role", ("K_MPI_JOB_ROLE",), parse.OneOf(LAUNCHER, WORKER), WORKER, "role of this pod in its MPIJob: launcher or worker",
    "platform",
)  # fmt: skip
AS_WORKER = replace(
    kubernetes.LAUNCHER_AS_WORKER, default=False, default_text=f"true if {HOST_FILE}, which only the launcher has, names the launcher"
)


_POD = r"(?P<job>.+)-(?:launcher(?:-[a-z0-9]{5})?|worker-(?P<index>[0-9]{1,7}))"


class Mpijob(Place):
    OWN = (ROLE, AS_WORKER, HOSTNAME)

    def facts(self, reader: Reader) -> Iterator[Fact]:
        """Yield the nodes: the launcher is node 0, with or without ranks; worker I is node I + 1."""
        yield METHOD, "MPIJob", "mpirun"
        listed = [(kubernetes.relative(host), slots) for host, slots in kubernetes.mpi_file(reader, HOST_FILE)]
        own_name = "" if kubernetes.on_host_network(reader) else kubernetes.own_name(reader)
        job, source = _job_name(reader, own_name, listed)
        if job:
            yield JOB_NAME, source, job
        if listed:
            nodes = _with_launcher(reader, listed, _pod(job, LAUNCHER))
            yield NODES, f"number of nodes in {HOST_FILE}", len(nodes)
            yield from of_hosts(HOST_FILE, [host for host, _ in nodes], [slots for _, slots in nodes])
        elif job and _has_several_nodes(reader):
            workers = (_pod(job, f"{WORKER}-{i}") for i in range(reader.get(NODES) - 1))
            yield HOSTS, HOSTNAME.name, [_pod(job, LAUNCHER), *workers]
        yield from _index(reader, own_name)

    def finished(self, reader: Reader, job: Job) -> Job:
        """Return the job, without ranks on node 0 if the launcher has none. Refuse pods of an unknown job: each would be its own job."""
        if job.has_peers and not reader.is_set(JOB_NAME) and kubernetes.own_name(reader):
            reader.problem(f"{kubernetes.shown_name(reader)} is not the name of an MPIJob's pod: set {JOB_NAME.name} to the MPIJob's name")
        if reader.get(AS_WORKER) or not job.has_peers:
            return job
        return replace(job, nodes=make_nodes([node.host for node in job.nodes], [0, *(node.slots for node in job.nodes[1:])]))


def _index(reader: Reader, own_name: str) -> Iterator[Fact]:
    pod = re.fullmatch(_POD, own_name)
    if reader.get(ROLE) == LAUNCHER:
        yield NODE_INDEX, ROLE.name, 0
    elif pod and pod["index"]:
        yield NODE_INDEX, f"the worker's number in {HOSTNAME.name}", int(pod["index"]) + 1


def _has_several_nodes(reader: Reader) -> bool:
    return reader.is_set(NODES) and reader.get(NODES) > 1


def _pod(job: str, name: str) -> str:
    """Return the host name of a pod, which pods of the same namespace can resolve."""
    return f"{job}-{name}.{job}"


def _job_name(reader: Reader, own_name: str, listed: list[tuple[str, int]]) -> tuple[str, str]:
    """Return the job's name and its source: the name of this pod, or of node 0 (which may be the first worker), else the user's name."""
    by_user = [(variable.name, reader.seen(variable).partition(",")[0]) for variable in (HOSTS, MASTER_ADDR)]
    for source, host in [(HOSTNAME.name, own_name), (HOST_FILE, listed[0][0] if listed else ""), *by_user]:
        match = re.fullmatch(_POD, host.strip().partition(".")[0])
        if match:
            return match["job"], source
    return reader.seen(JOB_NAME), JOB_NAME.name


def _with_launcher(reader: Reader, listed: list[tuple[str, int]], launcher: str) -> list[tuple[str, int]]:
    """Return the nodes with their slots: the host file's, and the launcher with 0 slots if the file does not name it."""
    has_launcher = listed[0][0].partition(".")[0].endswith(f"-{LAUNCHER}")
    reader.offer(AS_WORKER, HOST_FILE, has_launcher)
    if reader.get(AS_WORKER) != has_launcher:
        verb = "names" if has_launcher else "does not name"
        reader.problem(f"{reader.described(AS_WORKER)}, but {HOST_FILE} {verb} the launcher: expected the MPIJob's runLauncherAsWorker")
    return listed if has_launcher else [(launcher, 0), *listed]
