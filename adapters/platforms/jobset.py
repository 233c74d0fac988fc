"""JobSet: a replicated Job whose pods are the nodes. They have the index of an Indexed Job, and names of the JobSet's own."""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, POD_INDEX, RESTARTS
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, NODES, SLOTS, make_job

NAME = "jobset"

VARIABLES: tuple[Variable[object], ...] = (POD_INDEX, HOSTNAME, RESTARTS)

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    """The index of an Indexed Job, in a pod whose name begins with its Service's, or with the job's."""
    return kubernetes.has_pod_index(reader) and kubernetes.replicated(reader) is not None


def read(reader: Reader, program: Program) -> Job:
    pod = kubernetes.replicated(reader)
    remedy = "set RANKLAUNCH_NODES to the replicated Job's parallelism, in its template"
    nodes = 1 if pod and _launches(reader, pod) else kubernetes.count(reader, NODES, remedy)
    if pod:
        kubernetes.refuse_other_jobs(reader, pod)
    made = kubernetes.pods(f"{pod.set}-{pod.job}-0", nodes, pod.service) if pod else ()
    remedy = "/etc/hosts has no name of this pod in a Service: is the JobSet's network.enableDNSHostnames off?"
    return make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, pod.set if pod else "", HOSTNAME.names[0], NAME),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, made, "HOSTNAME, /etc/hosts", remedy),
        slots=kubernetes.slots(reader, SLOTS, nodes),
        node_index=kubernetes.index(reader, POD_INDEX, nodes, kubernetes.index_by_name(reader)),
        instance_name=kubernetes.own_name(reader),
    )


def _launches(reader: Reader, pod: kubernetes.Pod) -> bool:
    """Whether this is the launcher of a TrainJob with mlPolicy.mpi, which is a problem: nothing but sshd runs in its nodes."""
    found = pod.job == "launcher" and reader.files.exists(kubernetes.MPI_HOST_FILE) and not reader.given(HOSTS)
    if found:
        reader.problem(
            f"{kubernetes.told_name(reader)} is the launcher of a TrainJob with mlPolicy.mpi, whose nodes do not run ranklaunch: expected "
            "a runtime without mlPolicy.mpi, whose nodes all do, such as ranklaunch-gpu-mpi of the chart ranklaunch-runtimes"
        )
    return found
