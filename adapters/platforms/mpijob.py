"""MPIJob of Kubeflow's MPI operator: node 0 is the launcher's pod, which starts the ranks of the others, and may have ranks too.

Only the launcher is given the host file; a worker knows its own name, and the rest by RANKLAUNCH_ variables.
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
    "mpi_role", ("K_MPI_JOB_ROLE",), parse.OneOf(LAUNCHER, WORKER), WORKER, "launcher or worker: what this pod is in its MPIJob",
    "platform",
)  # fmt: skip
AS_WORKER = replace(
    kubernetes.LAUNCHER_AS_WORKER, default=False, default_text=f"true where {HOST_FILE} names the launcher, which only the launcher has"
)


_POD = r"(?P<job>.+)-(?:launcher(?:-[a-z0-9]{5})?|worker-(?P<index>[0-9]{1,7}))"


class Mpijob(Place):
    OWN = (ROLE, AS_WORKER, HOSTNAME)

    def facts(self, reader: Reader) -> Iterator[Fact]:
        """The launcher is node 0, whether it has ranks or not; worker I is node I + 1."""
        yield METHOD, "MPIJob", "mpirun"
        listed = [(kubernetes.relative(host), slots) for host, slots in kubernetes.mpi_file(reader, HOST_FILE)]
        own = "" if kubernetes.on_host_network(reader) else kubernetes.own_name(reader)
        job, source = _job_name(reader, own, listed)
        if job:
            yield JOB_NAME, source, job
        if listed:
            whole = _with_launcher(reader, listed, _pod(job, LAUNCHER))
            yield NODES, f"number of nodes in {HOST_FILE}", len(whole)
            yield from of_hosts(HOST_FILE, [host for host, _ in whole], [slots for _, slots in whole])
        elif job and _given_several(reader):
            workers = (_pod(job, f"{WORKER}-{i}") for i in range(reader.get(NODES) - 1))
            yield HOSTS, HOSTNAME.name, [_pod(job, LAUNCHER), *workers]
        yield from _index(reader, own)

    def finished(self, reader: Reader, job: Job) -> Job:
        """Leave node 0 without ranks if the launcher has none. Refuse pods of no known job: each would be a job of its own."""
        if job.has_peers and not reader.is_set(JOB_NAME) and kubernetes.own_name(reader):
            reader.problem(f"{kubernetes.told_name(reader)} is not the name of an MPIJob's pod: set {JOB_NAME.name} to the MPIJob's")
        if reader.get(AS_WORKER) or not job.has_peers:
            return job
        return replace(job, nodes=make_nodes([node.host for node in job.nodes], [0, *(node.slots for node in job.nodes[1:])]))


def _index(reader: Reader, own: str) -> Iterator[Fact]:
    pod = re.fullmatch(_POD, own)
    if reader.get(ROLE) == LAUNCHER:
        yield NODE_INDEX, ROLE.name, 0
    elif pod and pod["index"]:
        yield NODE_INDEX, f"the worker's number in {HOSTNAME.name}", int(pod["index"]) + 1


def _given_several(reader: Reader) -> bool:
    return reader.is_set(NODES) and reader.get(NODES) > 1


def _pod(job: str, name: str) -> str:
    """Return the name by which the pods of one namespace know a pod."""
    return f"{job}-{name}.{job}"


def _job_name(reader: Reader, own: str, listed: list[tuple[str, int]]) -> tuple[str, str]:
    """Return the job by the name of this pod or of node 0 (which may be the first worker), else the user's; and its source."""
    named = [(variable.name, reader.seen(variable).partition(",")[0]) for variable in (HOSTS, MASTER_ADDR)]
    for source, host in [(HOSTNAME.name, own), (HOST_FILE, listed[0][0] if listed else ""), *named]:
        match = re.fullmatch(_POD, host.strip().partition(".")[0])
        if match:
            return match["job"], source
    return reader.seen(JOB_NAME), JOB_NAME.name


def _with_launcher(reader: Reader, listed: list[tuple[str, int]], launcher: str) -> list[tuple[str, int]]:
    """Return all nodes of the host file, which names the launcher only if that has ranks."""
    named = listed[0][0].partition(".")[0].endswith(f"-{LAUNCHER}")
    reader.offer(AS_WORKER, HOST_FILE, named)
    if reader.get(AS_WORKER) != named:
        what = "names" if named else "does not name"
        reader.problem(f"{reader.described(AS_WORKER)}, but {HOST_FILE} {what} the launcher: expected the MPIJob's runLauncherAsWorker")
    return listed if named else [(launcher, 0), *listed]
