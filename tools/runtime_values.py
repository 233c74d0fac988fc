"""Values of charts/ranklaunch-runtimes, in the form of ranklaunch.specs.model. tools/chart_values.py writes them into the chart."""

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
    resource_name: str = text("nvidia.com/gpu", "resource name of the GPUs", pattern=PLUGGED)
    devices_per_node: int = whole(8, 1, 1024, "devices of each node; a TrainJob overrides it by resourcesPerNode")
    node_selector: Pairs = pairs("labels that a node must have", pattern=keys.RESOURCE)
    tolerations: Objects = objects("tolerations of the pods, in Kubernetes' form", "Toleration")


@dataclass(frozen=True)
class Npu(Gpu):
    enabled: bool = flag(True, "make the three runtimes for Ascend NPUs")
    resource_name: str = text("huawei.com/Ascend910", "resource name of the NPUs", pattern=PLUGGED)


@dataclass(frozen=True)
class Policies:
    plain: bool = flag(
        True, "runtime without a policy of Trainer: ranklaunch detects the method, or RANKLAUNCH_METHOD in the TrainJob's env names it"
    )
    torch: bool = flag(True, "runtime with Trainer's torch policy, which sets the numbers of nodes and devices; method torchrun")
    mpi: bool = flag(True, "runtime for method mpirun, with ranklaunch's own SSH server on each node")


@dataclass(frozen=True)
class Image:
    repository: str = text("", "image of TrainJobs that name none; empty: every TrainJob must name one", pattern=IMAGE)
    tag: str = text("", "tag of the image", pattern=keys.TAG)
    pull_policy: str = text("IfNotPresent", "when the image is pulled", "IfNotPresent", "Always", "Never")
    pull_secrets: tuple[str, ...] = texts("names of Secrets with the registry's credentials", pattern=keys.NAMES)


@dataclass(frozen=True)
class Shm:
    size_limit: str = text("", "size of the memory at /dev/shm; empty: as much as the pod's memory allows", pattern=keys.MEMORY)


@dataclass(frozen=True)
class Scheduling:
    volcano_queue: str = text(
        "",
        "queue of Volcano's scheduler, which starts the pods of a job as a gang; empty: no gang, and the cluster's scheduler",
        pattern=keys.LABEL,
    )
    priority_class: str = text("", "PriorityClass of the pods", pattern=keys.NAMES)


@dataclass(frozen=True)
class Restart:
    max_restarts: int = whole(
        0, 0, 1000, "number of times that a job is restarted after a failure; 0: never. A TrainJob has no field for it"
    )
    no_retry_exit_codes: tuple[int, ...] = wholes((2, 69, 76, 78), 1, 255, "exit codes after which a job is never restarted")
    on_eviction: str = text(
        "",
        "reaction when the cluster takes a pod away (eviction, preemption); empty: restart if maxRestarts is above 0",
        "",
        "restart",
        "fail",
    )


@dataclass(frozen=True)
class Lifecycle:
    ttl_seconds: int = whole(DAY, 0, 10_000_000, "seconds until a finished job is deleted; 0: never")
    grace_period_seconds: int = whole(60, 10, 86400, "seconds from SIGTERM to SIGKILL of a pod; RANKLAUNCH_GRACE_S is 5 less")


@dataclass(frozen=True)
class Runtimes:
    name_prefix: str = text(
        "ranklaunch", "prefix of the runtimes' names: ranklaunch-gpu, ranklaunch-gpu-torch, ranklaunch-gpu-mpi, and the same with "
        "npu", pattern=PREFIX,
    )  # fmt: skip
    gpu: Gpu = group(Gpu)
    npu: Npu = group(Npu)
    runtimes: Policies = group(Policies)
    image: Image = group(Image)
    env: Pairs = pairs("environment variables, as name: text", pattern=keys.VARIABLE)
    extra_env: Objects = objects(
        "further environment variables, in the form of Kubernetes' env: with valueFrom, and with $(NAME) for another variable", "EnvVar"
    )
    volumes: Objects = objects("volumes of the pods, in Kubernetes' form", "Volume")
    volume_mounts: Objects = objects("mounts of volumes in the program's container, in Kubernetes' form", "VolumeMount")
    init_containers: Objects = objects("containers that end before the program starts, in Kubernetes' form", "Container")
    extra_containers: Objects = objects(
        "containers beside the program, in Kubernetes' form; they become sidecars, which start before the program and end after it",
        "Container",
    )
    pod_template: Mapping[str, object] = keys.an_object(
        "further fields of the pods' spec, those of podTemplate in the chart ranklaunch", "PodTemplate"
    )
    shm: Shm = group(Shm)
    scheduling: Scheduling = group(Scheduling)
    restart: Restart = group(Restart)
    lifecycle: Lifecycle = group(Lifecycle)
    security: Security = group(Security)
    labels: Pairs = pairs("further labels of the runtimes", pattern=keys.RESOURCE)
