"""Names, variables and files that each engine's controller adds to the pods of a rendered job.

A model of documented and observed behaviour, because these tests have no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Object = dict[str, Any]


class Asked(NamedTuple):
    """A job, as the engine sees it.

    master: address of an AscendJob's leader. torch: the TrainJob's runtime has mlPolicy torch. restarts: number of restarts of the whole
    job by the engine.
    """

    engine: str
    name: str
    nodes: int
    slots: int
    launcher_has_ranks: bool = True
    ps: int = 0
    master: str = "10.9.9.9"
    torch: bool = False
    restarts: int = 0

    @property
    def pods(self) -> int:
        return self.nodes + (self.engine == "mpijob" and not self.launcher_has_ranks)


def of_pods(objects: Sequence[Object], asked: Asked) -> list[Object]:
    """Return the container template of each pod, in node order."""
    containers = list(every_container(objects))
    leader = containers[0] if asked.engine in ("mpijob", "acjob") else containers[-1]  # a TrainJob overrides its runtime
    return [containers[-1] if index else leader for index in range(asked.pods)]


def every_container(value: object) -> Iterator[Object]:
    if isinstance(value, dict) and {"command", "args", "env"} <= value.keys():
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from every_container(each)


_OF_LATER = {
    "volcano": "{name}-worker-{i}", "jobset": "{name}-worker-0-{i}", "job": "{name}-{i}", "trainjob": "{name}-node-0-{i}",
    "mpijob": "{name}-worker-{before}", "acjob": "{name}-worker-{before}",
}  # fmt: skip
_OF_FIRST = {"mpijob": "{name}-launcher", "acjob": "{name}-master-0"}


def host_name(asked: Asked, index: int, task: str = "worker") -> str:
    """Return the host name of a pod, in node order. task: task of a Volcano job with several."""
    if task != "worker":
        return f"{asked.name}-{task}-{index}"
    form = _OF_LATER[asked.engine] if index else _OF_FIRST.get(asked.engine, _OF_LATER[asked.engine])
    return form.format(name=asked.name, i=index, before=index - 1)


def known_as(asked: Asked, index: int, task: str = "worker") -> str:
    """Return the DNS name of a pod in its namespace. Pods of an AscendJob have none: their host name is returned."""
    name = host_name(asked, index, task)
    return name if asked.engine == "acjob" else f"{name}.{asked.name}"


def environment(container: Object, asked: Asked, index: int, task: str = "worker") -> dict[str, str]:
    """Return the environment that kubelet gives a pod's container, with the engine's variables."""
    written = {WRITTEN[asked.engine]: str(asked.restarts)} if asked.engine in WRITTEN else {}
    group = f"{asked.name}-{UID}"
    written |= {path: group if "group-name" in path else UID for path in (UIDS.get(asked.engine),) if path}
    return {**told(container, written), **added(asked, index, task)}


def told(container: Object, written: Mapping[str, str]) -> dict[str, str]:
    """Return a container's own variables with their values. A label or annotation that is not in `written` is empty."""
    return {each["name"]: _text(each, written) for each in container["env"]}


def _text(variable: Object, written: Mapping[str, str]) -> str:
    """Return the value of a variable. A Secret has a text that names its key and name, in the form of an SSH key."""
    if "value" in variable:
        text: str = variable["value"].replace("$$", "$")
        return text
    if "fieldRef" in variable["valueFrom"]:
        return written.get(variable["valueFrom"]["fieldRef"]["fieldPath"], "")
    secret = variable["valueFrom"]["secretKeyRef"]
    return f"-----BEGIN EC PRIVATE KEY-----\n{secret['key']} of {secret['name']}\n"


# Label or annotation in which the engine counts restarts of the whole job, by its path in the downward API.
WRITTEN = {
    "volcano": "metadata.annotations['volcano.sh/job-retry-count']",
    "jobset": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    "trainjob": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    "acjob": "metadata.labels['version']",
}


# Label or annotation with the id of the job, by its path in the downward API.
UIDS = {
    "volcano": "metadata.annotations['scheduling.k8s.io/group-name']",
    "jobset": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
    "job": "metadata.labels['batch.kubernetes.io/controller-uid']",
    "trainjob": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
    "acjob": "metadata.annotations['scheduling.k8s.io/group-name']",
}
UID = "5d1a2f0c-6b1e-4a57-9c39-1f0f6f3f7e21"


def added(asked: Asked, index: int, task: str = "worker") -> dict[str, str]:
    """Return the variables that the engine adds to a pod's container."""
    own = {
        "volcano": _volcano, "jobset": _indexed, "job": _indexed, "trainjob": _trainjob, "mpijob": _mpijob, "acjob": _acjob,
    }[asked.engine]  # fmt: skip
    return {"HOSTNAME": host_name(asked, index, task), **own(asked, index)}


def _volcano(asked: Asked, index: int) -> Mapping[str, str]:
    """Return the variables of Volcano's plugins env and svc."""
    tasks = {task: count for task, count in (("worker", asked.nodes), ("ps", asked.ps)) if count}
    hosts = {task: [f"{asked.name}-{task}-{i}.{asked.name}" for i in range(count)] for task, count in tasks.items()}
    lists = {f"VC_{task.upper()}_HOSTS": ",".join(names) for task, names in hosts.items()}
    counts = {f"VC_{task.upper()}_NUM": str(len(names)) for task, names in hosts.items()}
    return {"VC_TASK_INDEX": str(index), "VK_TASK_INDEX": str(index), **lists, **counts}


def _indexed(asked: Asked, index: int) -> Mapping[str, str]:
    return {"JOB_COMPLETION_INDEX": str(index)}


def _trainjob(asked: Asked, index: int) -> Mapping[str, str]:
    place = {"JOB_COMPLETION_INDEX": str(index)}
    if not asked.torch:
        return place
    master = {"PET_MASTER_ADDR": known_as(asked, 0), "PET_MASTER_PORT": "29500"}
    counts = {"PET_NNODES": str(asked.nodes), "PET_NPROC_PER_NODE": str(asked.slots)}
    return {**place, **master, **counts, "PET_NODE_RANK": str(index)}


def _mpijob(asked: Asked, index: int) -> Mapping[str, str]:
    if index:
        return {"K_MPI_JOB_ROLE": "worker"}
    mpi = {"keep_fqdn_hostnames": "true", "default_hostfile": "/etc/mpi/hostfile", "set_default_slots": str(asked.slots)}
    return {"K_MPI_JOB_ROLE": "launcher", **{f"OMPI_MCA_orte_{name}": value for name, value in mpi.items()}}


def mpi_host_file(asked: Asked, namespace: str = "default") -> str:
    """Return /etc/mpi/hostfile of an MPIJob's launcher."""
    names = [known_as(asked, index) for index in range(asked.pods)][asked.pods - asked.nodes :]
    return "".join(f"{name}.{namespace}.svc slots={asked.slots}\n" for name in names)


def hosts_file(host: str, namespace: str = "default") -> str:
    """Return the line that kubelet writes into a pod's /etc/hosts. host: name from known_as."""
    return f"10.0.0.2\t{host}.{namespace}.svc.cluster.local\t{host.partition('.')[0]}\n"


def _acjob(asked: Asked, index: int) -> Mapping[str, str]:
    """Return the variables of an AscendJob of framework pytorch, which rendered jobs have."""
    devices = ",".join(map(str, range(asked.slots)))
    world = {"WORLD_SIZE": str(asked.nodes * asked.slots), "LOCAL_WORLD_SIZE": str(asked.slots), "LOCAL_RANK": devices}
    task = {"MINDX_TASK_ID": "6f1f0c52", "MINDX_SERVER_IP": "10.0.0.2", "REPLICA_TYPE": "Worker" if index else "Master"}
    return {**world, **task, "RANK": str(index), "MASTER_ADDR": asked.master, "MASTER_PORT": "2222"}
