"""The values of charts/ranklaunch-runtimes, as ranklaunch.specs.model has those of charts/ranklaunch. tools/chart_values.py writes both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ranklaunch.specs import keys
from ranklaunch.specs.keys import flag, group, objects, pairs, text, texts, whole, wholes
from ranklaunch.specs.model import DAY, Objects, Pairs, Security

PREFIX = r"[a-z](?:[-a-z0-9]{0,40}[a-z0-9])?"
IMAGE = r"[!-,.-?A-~][!-?A-~]*"
PLUGGED = rf"{keys.NAMES}/[A-Za-z0-9](?:[-_.A-Za-z0-9]{{0,61}}[A-Za-z0-9])?"
FORMS = {
    PREFIX: "small letters, digits and dashes, beginning with a letter, at most 42",
    IMAGE: "the name of an image, without digest",
    PLUGGED: "the name of a device plugin's resource, such as vendor.example/gpu",
}


@dataclass(frozen=True)
class Gpu:
    enabled: bool = flag(True, "make the three runtimes for GPUs")
    resource_name: str = text("nvidia.com/gpu", "resource that a node's GPUs are asked for by", pattern=PLUGGED)
    devices_per_node: int = whole(8, 1, 1024, "how many of them a node has; a TrainJob's resourcesPerNode says another number")
    node_selector: Pairs = pairs("labels that a node must have", pattern=keys.RESOURCE)
    tolerations: Objects = objects("tolerations, as Kubernetes has them", "Toleration")


@dataclass(frozen=True)
class Npu(Gpu):
    enabled: bool = flag(True, "make the three runtimes for Ascend NPUs")
    resource_name: str = text("huawei.com/Ascend910", "resource that a node's NPUs are asked for by", pattern=PLUGGED)


@dataclass(frozen=True)
class Policies:
    plain: bool = flag(True, "no policy of Trainer: ranklaunch chooses the method, or RANKLAUNCH_METHOD in the TrainJob's env does")
    torch: bool = flag(True, "Trainer's torch policy: it tells nodes and devices; method torchrun")
    mpi: bool = flag(True, "method mpirun, with ranklaunch's own SSH server on each node")


@dataclass(frozen=True)
class Image:
    repository: str = text("", "image of TrainJobs that name none; empty: each must", pattern=IMAGE)
    tag: str = text("", "tag of the image", pattern=keys.TAG)
    pull_policy: str = text("IfNotPresent", "when the image is pulled", "IfNotPresent", "Always", "Never")
    pull_secrets: tuple[str, ...] = texts("names of Secrets to pull with", pattern=keys.NAMES)


@dataclass(frozen=True)
class Shm:
    size_limit: str = text("", "size of the memory at /dev/shm; empty: what the pod's memory allows", pattern=keys.MEMORY)


@dataclass(frozen=True)
class Scheduling:
    volcano_queue: str = text(
        "", "gang by Volcano's scheduler, in this queue; empty: no gang, and the cluster's scheduler", pattern=keys.LABEL
    )
    priority_class: str = text("", "PriorityClass of the pods", pattern=keys.NAMES)


@dataclass(frozen=True)
class Restart:
    max_restarts: int = whole(0, 0, 1000, "how often a job is started anew after a failure. A TrainJob cannot say this itself")
    no_retry_exit_codes: tuple[int, ...] = wholes((2, 69, 76, 78), 1, 255, "exit codes after which it never is")
    on_eviction: str = text(
        "", "what the loss of a pod to the cluster does; empty: restart where maxRestarts is above 0", "", "restart", "fail"
    )


@dataclass(frozen=True)
class Lifecycle:
    ttl_seconds: int = whole(DAY, 0, 10_000_000, "a finished job is deleted after so many seconds; 0: never")
    grace_period_seconds: int = whole(60, 10, 86400, "seconds from SIGTERM to SIGKILL of a pod; RANKLAUNCH_GRACE_S is 5 less")


@dataclass(frozen=True)
class Runtimes:
    name_prefix: str = text(
        "ranklaunch", "what the runtimes' names begin with: ranklaunch-gpu, ranklaunch-gpu-torch, ranklaunch-gpu-mpi, and the same with "
        "npu", pattern=PREFIX,
    )  # fmt: skip
    gpu: Gpu = group(Gpu)
    npu: Npu = group(Npu)
    runtimes: Policies = group(Policies)
    image: Image = group(Image)
    env: Pairs = pairs("environment, name: text", pattern=keys.VARIABLE)
    extra_env: Objects = objects("further environment, as Kubernetes' env: with valueFrom, and with $(NAME) for another", "EnvVar")
    volumes: Objects = objects("volumes of the pods, as Kubernetes has them", "Volume")
    volume_mounts: Objects = objects("where they are mounted, as Kubernetes has it", "VolumeMount")
    init_containers: Objects = objects("containers that end before the program starts, as Kubernetes has them", "Container")
    extra_containers: Objects = objects(
        "containers beside the program, as Kubernetes has them: sidecars, which start before it and end after it", "Container"
    )
    pod_template: Mapping[str, object] = keys.an_object("further fields of the pods' spec, as the chart ranklaunch has them", "PodTemplate")
    shm: Shm = group(Shm)
    scheduling: Scheduling = group(Scheduling)
    restart: Restart = group(Restart)
    lifecycle: Lifecycle = group(Lifecycle)
    security: Security = group(Security)
    labels: Pairs = pairs("further labels of the runtimes", pattern=keys.RESOURCE)
