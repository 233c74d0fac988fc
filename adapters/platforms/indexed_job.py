"""A plain Indexed Job of Kubernetes (batch/v1), which tells each pod its index and nothing else."""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, POD_INDEX, RESTARTS
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import NODES, SLOTS, make_job

NAME = "indexed_job"

VARIABLES: tuple[Variable[object], ...] = (POD_INDEX, HOSTNAME, RESTARTS)

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return kubernetes.has_pod_index(reader)


def read(reader: Reader, program: Program) -> Job:
    nodes = kubernetes.count(reader, NODES, "set RANKLAUNCH_NODES to the Job's completions, in its template")
    pod, service = kubernetes.own_name(reader), kubernetes.service(reader)
    made = kubernetes.pods(kubernetes.stem(pod), nodes, service) if service else ()
    remedy = "/etc/hosts has no name of this pod in a Service, as a headless Service whose name is the template's subdomain gives it"
    return make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, kubernetes.job_of_pod(reader), HOSTNAME.names[0], NAME),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, made, "HOSTNAME, /etc/hosts", remedy),
        slots=kubernetes.slots(reader, SLOTS, nodes),
        node_index=kubernetes.index(reader, POD_INDEX, nodes, kubernetes.index_by_name(reader)),
        instance_name=pod,
    )
