"""Pods of Kubernetes: names with a number at the end, a Service that resolves these names, and files with hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ranklaunch.adapters.platforms.shared import self_index
from ranklaunch.adapters.platforms.shared.facts import Fact
from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable, platform_text
from ranklaunch.env.settings import HOSTS, JOB_NAME, NODE_INDEX
from ranklaunch.files import MOST_BYTES
from ranklaunch.showing import clipped

T = TypeVar("T")

HOSTNAME = platform_text("hostname", ("HOSTNAME",), "name of this pod, as the engine numbers it", per_node=True, ends_with_index=True)
RESTARTS = Variable(
    "restarts", ("RANKLAUNCH_RESTARTS",), parse.count, 0,
    "number of restarts of the job, from 0, from a label or an annotation; the attempt is one more",
)  # fmt: skip
LAUNCHER_AS_WORKER = Variable(
    "launcher_as_worker", ("RANKLAUNCH_LAUNCHER_AS_WORKER",), parse.flag, True,
    "true if node 0, on which mpirun starts the ranks of all nodes, has ranks of its own; the same on every node",
)  # fmt: skip
HOST_IP = platform_text("host_ip", ("XDL_IP",), "address of the physical host: a rank table's server_id", per_node=True)
POD_IP = platform_text(
    "pod_ip",
    ("POD_IP",),
    "address of this pod, by which it is found in a rank table",
    per_node=True,
    default_text="the address of the pod's name in /etc/hosts",
)
# Not per_node: the variable is a sign of the platform too, so a plan for another node keeps it; the user's --node comes first.
POD_INDEX = replace(NODE_INDEX.also("JOB_COMPLETION_INDEX"), per_node=False)

MPI_HOST_FILE = "/etc/mpi/hostfile"  # of an MPIJob and of a TrainJob with mlPolicy.mpi, on the launcher alone

_OF_HOST_NETWORK = "# Kubernetes-managed hosts file (host network)."
_OF_CLUSTER = r"(?P<pod>[^.]+)\.(?P<service>[^.]+)\.(?P<namespace>[^.]+)\.svc(\..*)?"


# Names


def suffix(reader: Reader, variable: Variable[str]) -> tuple[str, str]:
    """Return the source of a pod's name, and the number at the end of the name; two empty texts without a number."""
    for candidate in reader.candidates(variable):
        number = re.search(r"-([0-9]{1,7})$", candidate.value)
        if number:
            return candidate.source, number[1]
    return "", ""


def stem(pod: str) -> str:
    """Return a pod's name without its number."""
    return re.sub(r"-[0-9]{1,7}$", "", pod)


def own_name(reader: Reader) -> str:
    """Return the name of this pod."""
    return reader.seen(HOSTNAME).partition(".")[0]


def on_host_network(reader: Reader) -> bool:
    """Return True for a pod on the host's network, where HOSTNAME is the machine's name. The kubelet notes this in the pod's /etc/hosts."""
    return reader.text("/etc/hosts").startswith(_OF_HOST_NETWORK)


def job_of_pod(reader: Reader) -> str:
    """Return the name of this pod's Indexed Job, from the pod's name; "" if HOSTNAME is the machine's name."""
    pod = "" if on_host_network(reader) else own_name(reader)
    numbered = any(pod.endswith(f"-{candidate.value.strip()}") for candidate in reader.candidates(POD_INDEX))
    return stem(pod) if numbered or (pod and service(reader)) else ""


def shown_name(reader: Reader) -> str:
    """Return HOSTNAME with the name of this pod, for messages."""
    return f"{HOSTNAME.name}={clipped(own_name(reader))}"


def service(reader: Reader) -> str:
    """Return the Service that resolves the names of this job's pods, "" without one. The kubelet writes a pod's full name into the pod's
    /etc/hosts."""
    own_stem = stem(own_name(reader))
    for full in names_here(reader) if own_stem else ():
        match = re.fullmatch(_OF_CLUSTER, full)
        if match and stem(match["pod"]) == own_stem:
            return match["service"]
    return ""


def own_address(reader: Reader) -> str:
    """Return the address beside this pod's name in /etc/hosts, "" without one."""
    return next(iter(self_index.known(reader).get(own_name(reader), ())), "")


def names_here(reader: Reader) -> list[str]:
    """Return the names in /etc/hosts. They are this pod's, also in a plan for another node."""
    return [*self_index.known(reader)]


def relative(host: str) -> str:
    """Return POD.SERVICE of a full name, which pods of the same namespace can resolve."""
    match = re.fullmatch(_OF_CLUSTER, host)
    return f"{match['pod']}.{match['service']}" if match else host


def pods(stem_: str, nodes: int, service_: str) -> tuple[str, ...]:
    """Return the names of all nodes: POD-0.SERVICE, POD-1.SERVICE, ..."""
    return tuple(f"{stem_}-{i}.{service_}" for i in range(nodes))


# Pods of Indexed Jobs, and of JobSets, which are made of Indexed Jobs


class Pod(NamedTuple):
    """Pod of a replicated Job of a JobSet. Its name is SET-JOB-<job_index>-<index>, in a Service."""

    set: str
    job: str
    job_index: int
    service: str


def has_pod_index(reader: Reader) -> bool:
    return any(candidate.source == POD_INDEX.names[-1] for candidate in reader.candidates(POD_INDEX))


def replicated(reader: Reader) -> Pod | None:
    """Return the parts of this pod's name if it is a JobSet's; else None. The JobSet has the Service's name, or the user's job name."""
    pod, service_name = "" if on_host_network(reader) else own_name(reader), service(reader)
    for set_ in (service_name, reader.seen(JOB_NAME)):
        rest = re.fullmatch(r"(.+)-([0-9]{1,7})-[0-9]{1,7}", pod[len(set_) + 1 :]) if set_ and pod.startswith(f"{set_}-") else None
        if rest:
            return Pod(set_, rest[1], int(rest[2]), service_name or set_)
    return None


def refuse_other_jobs(reader: Reader, pod: Pod) -> None:
    """Refuse a pod of a further Job of the JobSet: each Job counts its pods from 0, so that two pods would be node 0."""
    if pod.job_index and not reader.is_set(HOSTS):
        reader.problem(
            f"{shown_name(reader)} is a pod of Job {pod.job_index} of {pod.job}: expected all nodes in one Job "
            "(replicas: 1, and parallelism: as many as nodes); else set RANKLAUNCH_HOSTS and RANKLAUNCH_NODE, or, if this is a pod of the "
            f"Indexed Job {stem(own_name(reader))}, RANKLAUNCH_PLATFORM=indexed_job"
        )


def of_pods(reader: Reader, job: str, stem_: str, service_: str, nodes: int, source: str = "HOSTNAME, /etc/hosts") -> Iterator[Fact]:
    """Yield the job's name, the hosts and the index from the names of an Indexed Job's pods.

    stem_: pods' name without the index, "" if no Service resolves the names. source: source of the names.
    """
    if job:
        yield JOB_NAME, source, job
    if stem_ and nodes > 1:
        yield HOSTS, source, pods(stem_, nodes, service_)
    if service(reader) or replicated(reader):  # without them, HOSTNAME may not be the name that the Job controller gave
        yield NODE_INDEX, f"the number in {HOSTNAME.name}", suffix(reader, HOSTNAME)[1]


# Files


def host_file(reader: Reader, path: str, variable: Variable[T]) -> tuple[str, ...]:
    """Return the hosts of a file with a host on each line; () without such a file."""
    try:
        text = reader.files.text(path, MOST_BYTES)
        result = parse.hosts(",".join(text.split())) if text and text.strip() else ()
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return ()
    if result:
        reader.note(variable, ",".join(result), path)
    return result


def mpi_file(reader: Reader, path: str) -> tuple[tuple[str, int], ...]:
    """Return the hosts and slots of an MPI host file: HOST slots=N, or HOST:N. A line without a number is one slot."""
    try:
        text = reader.files.text(path, MOST_BYTES) or ""
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return ()
    result = []
    for i, line in enumerate(text.splitlines(), 1):
        bare = line.partition("#")[0].strip()
        match = re.fullmatch(r"([^\s:]+)(?:\s*:\s*|\s+slots\s*=\s*)?([0-9]{1,4})?", bare)
        if bare and (not match or not parse.is_host(match[1])):
            reader.problem(f"{path}: line {i}, {clipped(line)!r}: expected HOST slots=N")
        elif bare and match:
            result.append((match[1], int(match[2] or 1)))
    return tuple(result)
