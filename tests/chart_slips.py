"""Values that a user of Kubernetes, torchrun or another chart writes by mistake. Chart and `ranklaunch spec` refuse them, or warn."""

from __future__ import annotations

from typing import Any, NamedTuple

from testbench.judges.charts import Object

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
GPU, NPU, RAY = "volcano-torchrun-gpu", "volcano-msrun-npu", "volcano-ray-gpu"


class Slip(NamedTuple):
    """path: the value's, as both name it. remedy: words of both messages. warned: it renders, with a warning."""

    path: str
    changes: Object
    remedy: str
    case: str = GPU
    warned: bool = False


def variable(name: str, value: str, remedy: str, *, case: str = GPU, warned: bool = False) -> Slip:
    return Slip(f"env.{name}", {"env": {name: value}}, remedy, case, warned)


def extra(name: str, value: str, remedy: str, *, warned: bool = False) -> Slip:
    return Slip(f"extraEnv: {name}", {"extraEnv": [{"name": name, "value": value}]}, remedy, warned=warned)


def key(path: str, value: Any, meant: str) -> Slip:
    changes = value
    for part in reversed(path.split(".")):
        changes = {part: changes}
    return Slip(path, changes, f"unknown key; here it is {meant}")


TOKEN = "hf_" + "abcdefghij" * 4
DATA_READ_ONLY = {"volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]}
REMOVED = "removes it before ranks start"
ONE_TEXT = "the program and its arguments in one text"
SLIPS = (
    # names and values of ranklaunch's variables
    variable("RANKLAUNCH_METHD", "torchrun", "did you mean RANKLAUNCH_METHOD? It is made from mode; set that"),
    variable("RANKLAUNCH_NPROC_PER_NODE", "8", "did you mean RANKLAUNCH_SLOTS? It is made from devicesPerNode; set that"),
    variable("RANKLAUNCH_LOGDIR", "/data", "did you mean RANKLAUNCH_LOG_DIR?"),
    variable("RANKLAUNCH_MAXRESTARTS", "1", "did you mean RANKLAUNCH_MAX_RESTARTS?"),
    variable("RANKLAUNCH_COSNOLE", "0", "did you mean RANKLAUNCH_CONSOLE?"),
    variable("RANKLAUNCH_QWERTZ", "1", "ranklaunch has no such variable"),
    variable("RANKLAUCH_HANG", "restart", "did you mean RANKLAUNCH_HANG?"),
    variable("ranklaunch_hang", "restart", "did you mean RANKLAUNCH_HANG?"),
    extra("RANKLAUCH_HANG", "restart", "did you mean RANKLAUNCH_HANG?"),
    variable("RANKLAUNCH_NODES", "three", "made from nodes; set that"),
    variable("RANKLAUNCH_HANG", "maybe", "expected one of observe, stop, restart, off"),
    variable("RANKLAUNCH_HANG_S", "5m", "expected seconds, a number"),
    variable("RANKLAUNCH_MAX_RESTARTS", "three", "expected a whole number"),
    variable("RANKLAUNCH_MUSTER", "perhaps", "expected true or false"),
    variable("RANKLAUNCH_SAVE_SIGNAL", "HUP", "expected one of USR1, USR2, TERM, none"),
    variable("RANKLAUNCH_NO_RESTART_CODES", "2;3", "expected exit codes"),
    extra("RANKLAUNCH_METHD", "torchrun", "did you mean RANKLAUNCH_METHOD?"),
    extra("RANKLAUNCH_WAIT_S", "10 min", "expected seconds, a number"),
    # variables of ranks
    variable("RANK", "0", REMOVED),
    variable("WORLD_SIZE", "16", "set nodes and devicesPerNode"),
    variable("LOCAL_RANK", "0", REMOVED),
    variable("NODE_RANK", "0", REMOVED),
    variable("MASTER_ADDR", "demo-0", REMOVED),
    variable("MASTER_PORT", "29500", "set network.masterPort"),
    variable("PET_NNODES", "2", "set nodes"),
    extra("MASTER_ADDR", "demo-0", REMOVED),
    # logs
    *(
        Slip(
            "security.readOnlyRootFilesystem",
            {"env": {"RANKLAUNCH_LOG_DIR": folder}, "security": {"readOnlyRootFilesystem": True}, **more},
            "env.RANKLAUNCH_LOG_DIR is on no volume of volumeMounts that can be written",
            warned=True,
        )
        for folder, more in (("/logs", {}), ("logs", {}), ("/data/logs", DATA_READ_ONLY), ("../logs", {"workingDir": "/tmp"}))
    ),
    # secrets
    Slip("shm.enabled", {"mode": "ray", "shm": {"enabled": False}}, "Ray's object store goes to /tmp then; leave it out", RAY, warned=True),
    Slip("shm.sizeLimit", {"shm": {"sizeLimit": "20Gi"}}, "Ray's object store takes 30 % of resources.memory", RAY, warned=True),
    variable("HF_TOKEN", "hf_abcdefgh", "a Secret in envFrom or extraEnv does not", warned=True),
    variable("AWS_SECRET_ACCESS_KEY", "abc", "a Secret in envFrom or extraEnv does not", warned=True),
    variable("NOTE", TOKEN, "a Secret in envFrom or extraEnv does not", warned=True),
    variable("DB_URL", "postgres://user:abc@db/train", "a Secret in envFrom or extraEnv does not", warned=True),
    Slip("args", {"args": ["--api-key abc"]}, "args", warned=True),
    Slip("args", {"args": [TOKEN]}, "args hold a secret for all to read (", warned=True),
    extra("DB_PASSWORD", "abc", "a Secret in envFrom or extraEnv does not", warned=True),
    Slip("args", {"args": ["--api-key", "abc"]}, "args hold a secret for all to read (--api-key '***')", warned=True),
    Slip("args", {"args": ["--wandb-token=abc"]}, "--wandb-token=***", warned=True),
    # program and arguments
    Slip("script", {"script": "train.py --epochs 3"}, ONE_TEXT),
    Slip("script", {"script": "python train.py"}, ONE_TEXT),
    Slip("script", {"script": "torchrun train.py"}, ONE_TEXT),
    Slip("args", {"args": ["--epochs 3"]}, "make two words of them", warned=True),
    Slip("args", {"args": ["--data", "${DATA}"]}, "${DATA} stays as it is written", warned=True),
    # devices and methods
    Slip("device.resourceName", {"device": {"resourceName": "huawei.com/Ascend910"}}, "expected device.kind npu"),
    Slip("device.resourceName", {"device": {"resourceName": "nvidia.com/gpu"}}, "expected device.kind gpu", NPU),
    Slip("device.extra", {"device": {"extra": {"nvidia.com/gpu": "8"}}}, "expected device.kind gpu", NPU),
    Slip("mode", {"mode": "torch"}, "did you mean 'torchrun'?"),
    Slip("mode", {"mode": "ddp"}, "did you mean 'torchrun'?"),
    Slip("mode", {"mode": "mindspore"}, "did you mean 'msrun'?", NPU),
    # queues
    Slip("scheduling.queue", {"scheduling": {"queue": "a"}}, "for a queue of Kueue, set scheduling.kueueQueue", "job-torchrun-gpu"),
    Slip("scheduling.queue", {"scheduling": {"queue": "a"}}, "for a queue of Kueue, set scheduling.kueueQueue", "jobset-torchrun-gpu"),
    Slip("scheduling.kueueQueue", {"scheduling": {"kueueQueue": "a"}}, "use scheduling.queue"),
    Slip("scheduling.kueueQueue", {"scheduling": {"kueueQueue": "a"}}, "use scheduling.queue", "acjob-msrun-npu"),
    key("queue", "research", "scheduling.queue, or scheduling.kueueQueue with Kueue"),
    Slip(f"labels.{KUEUE_QUEUE}", {"labels": {KUEUE_QUEUE: "a"}}, "set scheduling.kueueQueue", "jobset-torchrun-gpu"),
    # keys as Kubernetes has them
    Slip("env", {"env": [{"name": "A", "value": "b"}]}, "a list as Kubernetes has it goes into extraEnv"),
    Slip("image", {"image": "registry.example.com/train:1"}, "expected a map with keys of repository, tag"),
    key("restartPolicy", "OnFailure", "restart.maxRestarts"),
    key("backoffLimit", 3, "restart.maxRestarts"),
    key("restart.backoffLimit", 3, "restart.maxRestarts"),
    key("hang.timeout", 600, "hang.seconds"),
    key("restart.limit", 3, "restart.maxRestarts"),
    key("networkTopology", {"mode": "hard"}, "scheduling.topology, a label of nodes"),
    key("runPolicy", {"cleanPodPolicy": "None"}, "lifecycle, and restart"),
    key("preemption", "restart", "restart.onEviction"),
    key("pods", 2, "nodes"),
    key("command", ["python", "train.py"], "script, and args"),
    key("containers", [], "extraContainers"),
    key("imagePullPolicy", "Always", "image.pullPolicy"),
    key("imagePullSecrets", [], "image.pullSecrets"),
    key("resources.limits", {"nvidia.com/gpu": 8}, "devicesPerNode for devices"),
    key("completions", 2, "nodes"),
    key("activeDeadlineSeconds", 60, "lifecycle.deadlineSeconds"),
    key("ttlSecondsAfterFinished", 60, "lifecycle.ttlSeconds"),
    key("terminationGracePeriodSeconds", 60, "lifecycle.gracePeriodSeconds"),
    key("hostNetwork", True, "network.hostNetwork"),
    key("schedulerName", "volcano", "scheduling.schedulerName"),
    key("minAvailable", 2, "scheduling.minAvailable"),
    key("securityContext", {}, "security"),
    key("serviceAccount", "trainer", "serviceAccountName"),
    key("podFailurePolicy", {}, "restart.noRetryExitCodes"),
    key("livenessProbe", {}, "left out: a probe would end pods"),
    key("readinessProbe", {}, "left out: pods must find each other before they are ready"),
    key("ports", [], "left out"),
    key("spec", {}, "left out"),
    Slip("save.qwertz", {"save": {"qwertz": 1}}, "unknown key: expected one of signal, file"),
    # ports
    Slip("network.masterPort", {"network": {"masterPort": 18889}}, "expected different ports; musterPort is 18889"),
    # mounts
    Slip("volumeMounts[0].mountPath", {"volumeMounts": [{"name": "data"}]}, "required"),
)  # fmt: skip


def slip_id(slip: Slip) -> str:
    return f"{slip.case} {slip.changes}"[:100]
