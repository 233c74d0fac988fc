"""Values that the chart ranklaunch must refuse, each with the name that the message must have."""

from __future__ import annotations

from typing import Any, NamedTuple

from testbench.judges.charts import Object

GPU, NPU, CPU = "volcano-torchrun-gpu", "volcano-ranktable-npu", "job-plain-cpu"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Bad(NamedTuple):
    name: str
    changes: Object
    case: str = GPU


def set_to(value: Any, path: str, case: str = GPU) -> Bad:
    changes = value
    for part in reversed(path.split(".")):
        changes = {part: changes}
    return Bad(path, changes, case)


BY_SCHEMA = [
    set_to("slurm", "engine"),
    set_to("torchrn", "mode"),
    set_to(0, "nodes"),
    set_to("2", "nodes"),
    set_to(1.5, "devicesPerNode"),
    set_to(0, "devicesPerNode"),
    set_to("tpu", "device.kind"),
    set_to("a b", "device.resourceName"),
    set_to({"hugepages-2Mi": 4}, "device.extra"),
    set_to("lots", "resources.memory"),
    set_to("", "image.repository"),
    set_to("a:b", "image.tag"),
    set_to("sha256:12", "image.digest"),
    set_to("Sometimes", "image.pullPolicy"),
    set_to([1, 2], "args"),
    set_to({"A": 1}, "env"),
    set_to({"A B": "x"}, "env"),
    set_to("here", "workingDir"),
    set_to(True, "shm.sizeLimit"),
    set_to("yes", "network.hostNetwork"),
    set_to(65536, "network.masterPort"),
    set_to(0, "network.rdma.count"),
    set_to("operator", "rankTable.source", NPU),
    set_to("Research", "scheduling.queue"),
    set_to([], "scheduling.affinity"),
    set_to({"a b": "1"}, "scheduling.nodeSelector"),
    set_to({"a b": "1"}, "labels"),
    set_to({"a b": "1"}, "annotations"),
    set_to({"": "1"}, "annotations"),
    set_to(-1, "restart.maxRestarts"),
    set_to([0], "restart.noRetryExitCodes"),
    set_to([256], "restart.noRetryExitCodes"),
    set_to("ignore", "restart.onEviction"),
    set_to(9, "lifecycle.gracePeriodSeconds"),
    set_to("Some", "lifecycle.cleanPodPolicy", "mpijob-mpi-gpu"),
    set_to(-1, "security.runAsUser"),
    set_to(["net_raw"], "security.capabilities"),
    set_to("random", "nameSuffix"),
    Bad("replicas", {"replicas": 2}),
    Bad("maxRestart", {"restart": {"maxRestart": 2}}),
    Bad("privileged", {"security": {"privileged": True}}),
    Bad("slurm", {"slurm": {"partition": "a"}}),
]
BY_ENGINE = [
    set_to(1, "restart.maxRestarts", "job-torchrun-gpu"),
    set_to("restart", "restart.onEviction", "job-torchrun-gpu"),
    set_to("mpi", "mode", "acjob-msrun-npu"),
    set_to("tensorflow", "mode", "acjob-msrun-npu"),
    set_to("cpu", "device.kind", "acjob-msrun-npu"),
    set_to("torchrun", "mode", "mpijob-mpi-gpu"),
    set_to(1, "restart.maxRestarts", "mpijob-mpi-gpu"),
    set_to("msrun", "mode"),
    set_to("ranktable", "mode"),
]
BY_TEMPLATE = [
    set_to("", "script"),
    Bad("script", {"module": "trainer.main"}),
    set_to("-c", "script"),
    set_to("-x", "image.repository"),
    set_to({"vendor.example/nic": "half"}, "device.extra"),
    set_to("nvidia.com/gpu", "device.resourceName", CPU),
    set_to("memory", "device.resourceName"),
    set_to("nvidia.com/gpu", "network.rdma.resource"),
    set_to("hca", "network.rdma.resource"),
    *(set_to({name: "4"}, "device.extra") for name in ("cpu", "memory", "nvidia.com/gpu")),
    Bad("device.extra", {"network": {"rdma": {"resource": "rdma/hca"}}, "device": {"extra": {"rdma/hca": "4"}}}),
    Bad("RANKLAUNCH_NODES", {"env": {"RANKLAUNCH_NODES": "3"}}),
    Bad("RANKLAUNCH_METHOD", {"mode": "auto", "env": {"RANKLAUNCH_METHOD": "mpirun"}}, "job-torchrun-gpu"),
    Bad("RANKLAUNCH_METHOD", {"mode": "auto", "env": {"RANKLAUNCH_METHOD": "mpirun"}}, "acjob-msrun-npu"),
    Bad("RANKLAUNCH_SSHD_PORT", {"env": {"RANKLAUNCH_SSHD_PORT": "22"}, "network": {"hostNetwork": True}}),
    *(Bad("RANKLAUNCH_GRACE_S", {"env": {"RANKLAUNCH_GRACE_S": text}}) for text in ("60", "", "1e1", ".5", " 5", "5 ", "-1", "inf")),
    set_to(["a", "b\0"], "args"),
    set_to({"A": "\\\0"}, "env"),
    set_to([{"name": "a", "hostPath": {"path": "/\0"}}], "volumes"),
    Bad("LONG", {"env": {"LONG": "x" * 131072}}),
    Bad("nodes", {"nodes": 10000, "mode": "deepspeed", "network": {"hostNetwork": True}}, "jobset-torchrun-gpu"),
    set_to(900, "lifecycle.gracePeriodSeconds", "trainjob-auto-gpu"),
    set_to("rdma/ib", "network.rdma.resource", "trainjob-auto-gpu"),
    set_to(2, "network.rdma.count", "trainjob-auto-gpu"),
    Bad("PET_NNODES", {"env": {"PET_NNODES": "3"}}, "trainjob-torchrun-gpu"),
    Bad("mode", {"mode": "ranktable", "rankTable": {"source": "none"}}, "volcano-msrun-npu"),
    set_to("mpi", "mode", "job-torchrun-gpu"),
    Bad("tf.ps", {"tf": {"ps": 1}, "mode": "tensorflow"}, "jobset-torchrun-gpu"),
    set_to(1, "tf.ps"),
    set_to(0, "restart.maxRestarts")._replace(name="restart.onEviction"),
    set_to([2, 2], "restart.noRetryExitCodes"),
    Bad("restart.noRetryExitCodes", {"restart": {"maxRestarts": 1, "noRetryExitCodes": [137]}}, "acjob-msrun-npu"),
    Bad("restart.onEviction", {"restart": {"maxRestarts": 1, "onEviction": "fail"}}, "acjob-msrun-npu"),
    set_to("ascend-operator", "rankTable.source"),
    set_to("ascend-operator", "rankTable.source", "trainjob-msrun-npu"),
    set_to("cce", "rankTable.source", "acjob-msrun-npu"),
    set_to("", "rankTable.configMapName", "volcano-msrun-npu"),
    set_to("rings-config-other", "rankTable.configMapName", NPU),
    set_to("file", "rankTable.source", NPU)._replace(name="rankTable.mountPath"),
    set_to(3, "scheduling.minAvailable"),
    set_to(2, "scheduling.minAvailable", "job-torchrun-gpu"),
    set_to("research", "scheduling.queue", "job-torchrun-gpu"),
    set_to("research", "scheduling.kueueQueue"),
    set_to({"pool": "a b"}, "scheduling.nodeSelector"),
    Bad("network.sshPort", {"network": {"hostNetwork": True, "sshPort": 22}}),
    set_to(80, "network.masterPort"),
    Bad("network.musterPort", {"network": {"masterPort": 29500, "musterPort": 29500}}),
    set_to(True, "network.hostNetwork", "mpijob-mpi-gpu"),
    set_to(2222, "network.musterPort", "acjob-msrun-npu"),
    set_to(18889, "network.masterPort", "acjob-msrun-npu"),
    Bad("volumes", {"volumes": [{"name": "shm", "emptyDir": {}}], "volumeMounts": []}),
    Bad("volumes", {"volumes": [{"name": 1}], "volumeMounts": []}),
    Bad("volumeMounts", {"volumeMounts": [{"name": "nope", "mountPath": "/x"}]}),
    Bad("volumeMounts", {"volumeMounts": [{"name": "data", "mountPath": "/dev/shm"}]}),
    Bad("labels", {"labels": {"app.kubernetes.io/name": "x"}}),
    Bad("labels", {"labels": {"team": "a b"}}),
    Bad("framework", {"labels": {"framework": "mindspore"}}, "acjob-msrun-npu"),
    Bad("fault-scheduling", {"labels": {"fault-scheduling": "grace"}}, "acjob-msrun-npu"),
    Bad("fault-retry-times", {"labels": {"fault-retry-times": "3"}}, "acjob-msrun-npu"),
    set_to(60, "lifecycle.deadlineSeconds"),
    set_to("All", "lifecycle.cleanPodPolicy", "job-torchrun-gpu"),
    set_to(2, "mpi.slots"),
    set_to(False, "mpi.launcherAsWorker"),
    *(set_to(value, "scheduling.affinity.podAffinity") for value in ("near", "", 0, False, [])),
    *(set_to(value, "scheduling.affinity.podAntiAffinity." + REQUIRED)._replace(name="podAntiAffinity") for value in ("", 0, {})),
    set_to("ranklaunch-gpu", "trainer.runtime"),
    Bad("workingDir", {"workingDir": "/x"}, "trainjob-auto-gpu"),
    *(set_to(name, "name") for name in ("Train", "- a", "*a", "[", "a: b", "a\nb", "1")),
    Bad("podAffinity", {"scheduling": {"affinity": {"podAffinity": "near"}, "topology": "zone"}}),
    set_to("a" * 60, "name"),
    set_to("other", "namespace"),
]
EVERY = [*BY_SCHEMA, *BY_ENGINE, *BY_TEMPLATE]


def bad_id(bad: Bad) -> str:
    return f"{bad.case} {bad.changes}"[:100]
