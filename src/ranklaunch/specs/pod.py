"""What is the same for every engine: the program's command, environment, devices, volumes, labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ranklaunch.env.settings import BY_MPI, MUSTER_PORT
from ranklaunch.specs import keys
from ranklaunch.specs.model import BY_NAMES, OF_KUBERNETES, JobSpec, Lifecycle

COMMAND = ["ranklaunch", "run", "--"]
GRACE_LEFT_S = 5  # of a pod's grace period, for ranklaunch itself to end
ASCEND_PORT = 2222  # of the rendezvous, where none is given: the Ascend Operator's
OWN_VOLUMES = ("shm", "rank-table", "ranklaunch-tmp")
CONTAINERS = {"acjob": "ascend", "trainjob": "node"}  # the operators of these two look for the container by its name; else train
DEFAULT_RESOURCES = {"gpu": "nvidia.com/gpu", "npu": "huawei.com/Ascend910", "cpu": ""}
TABLE_FOLDERS = {"ascend-operator": "/user/serverid/devindex/config", "cce": "/user/config", "file": "", "none": ""}
OF_MODELARTS = r"\$\{MA_[A-Z0-9_]+\}"  # what its shell puts into the program and its arguments
SECONDS_OF_HOUR = 3600
POOL_FLAVOR = "modelarts.pool.visual.{}"  # of a dedicated pool
POOL_FLAVORS = {1: "xlarge", 2: "2xlarge", 4: "4xlarge", 8: "8xlarge", 16: "16xlarge"}

# Variables of ranklaunch that follow from a value of the specification.
DERIVED: Mapping[str, str] = {
    "RANKLAUNCH_JOB_NAME": "name",
    "RANKLAUNCH_NODES": "nodes",
    "RANKLAUNCH_SLOTS": "devicesPerNode",
    "RANKLAUNCH_ACCELERATOR": "device.kind",
    "RANKLAUNCH_METHOD": "mode",
    "RANKLAUNCH_HOSTS": "name, nodes and network.hostNetwork",
    "RANKLAUNCH_MASTER_ADDR": "name and network.hostNetwork",
    "RANKLAUNCH_INTERFACE": "network.interface",
    "RANKLAUNCH_MASTER_PORT": "network.masterPort",
    "RANKLAUNCH_MUSTER_PORT": "network.musterPort",
    "RANKLAUNCH_SSHD_PORT": "network.sshPort",
    "RANKLAUNCH_RANK_TABLE": "rankTable.mountPath",
    "RANKLAUNCH_TASK": "tf.ps",
    "RANKLAUNCH_RESTARTS": "the pod",
    "RANKLAUNCH_LAUNCHER_AS_WORKER": "mpi.launcherAsWorker",
    "RANKLAUNCH_JOB_UID": "the pod; or muster.secretName",
}
# Variables of ranklaunch that a value sets where it is given, and `env` elsewhere.
SET_BY: Mapping[str, str] = {
    "RANKLAUNCH_MAX_RESTARTS": "restart.inPlace",
    "RANKLAUNCH_HANG": "hang.action",
    "RANKLAUNCH_HANG_S": "hang.seconds",
    "RANKLAUNCH_SAVE_SIGNAL": "save.signal",
    "RANKLAUNCH_SAVE_FILE": "save.file",
    "RANKLAUNCH_METRICS_PORT": "metrics.enabled",
    "RANKLAUNCH_SECRET": "muster.secretName",
}
LOGS_IN_TMP = "/tmp/ranklaunch-logs"  # of pods whose root cannot be written
# Where the engine counts restarts, in the names of the downward API.
RESTARTS: Mapping[str, str] = {
    "volcano": "metadata.annotations['volcano.sh/job-retry-count']",
    "jobset": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    "trainjob": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    "acjob": "metadata.labels['version']",
}
# Where the engine has an id of the job that it made at random: the same on all pods, and another for each job of one name.
UIDS: Mapping[str, str] = {
    "volcano": "metadata.annotations['scheduling.k8s.io/group-name']",
    "jobset": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
    "job": "metadata.labels['batch.kubernetes.io/controller-uid']",
    "trainjob": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
    "acjob": "metadata.annotations['scheduling.k8s.io/group-name']",
}
KEY_OF_SECRET, KEY_OF_SSH = "secret", "ssh-privatekey"


def non_empty(**values: Any) -> dict[str, Any]:
    """Return the values that are set."""
    return {name: value for name, value in values.items() if value}


def program(spec: JobSpec) -> list[str]:
    return [*(["-m", spec.module] if spec.module else [spec.script]), *spec.args]


def command(spec: JobSpec) -> list[str]:
    """Return what each node runs."""
    return [*COMMAND, *program(spec)]


def slots(spec: JobSpec) -> int:
    return (spec.mpi.slots if spec.engine == "mpijob" else 0) or spec.devices_per_node


def environment(spec: JobSpec, task: str = "") -> list[dict[str, str]]:
    """In order; each has name and value, or name and field, which the downward API fills, or name, secret and key."""
    made = [{"name": name, "value": value} for name, value in _made(spec, task) if value]
    if spec.engine in RESTARTS:
        made.append({"name": "RANKLAUNCH_RESTARTS", "field": RESTARTS[spec.engine]})
    made += _key(spec)
    return made + [{"name": name, "value": spec.env[name]} for name in sorted(spec.env)]


def set_by_values(spec: JobSpec) -> dict[str, str]:
    """Return the variables that values which are given set, with the paths of these."""
    values = {path: value for path, value, _ in keys.every_value(spec)}
    return {name: path for name, path in SET_BY.items() if values[path]}


def has_several_nodes(spec: JobSpec) -> bool:
    return spec.nodes + spec.tf.ps + launchers_alone(spec) > 1


def own_key(spec: JobSpec) -> bool:
    """Whether the user gives the key of the muster by a variable."""
    return bool({"RANKLAUNCH_SECRET", "RANKLAUNCH_SECRET_FILE"} & set(spec.env))


def _key(spec: JobSpec) -> Iterator[dict[str, str]]:
    """Yield the source of the muster's key, if nodes are to meet: nothing in it is made here, so two renders are the same."""
    if not has_several_nodes(spec) or spec.engine not in OF_KUBERNETES:
        return
    if spec.muster.secret_name:
        yield {"name": "RANKLAUNCH_SECRET", "secret": spec.muster.secret_name, "key": KEY_OF_SECRET}
    elif spec.engine == "mpijob":  # the operator makes it for ssh, before any pod
        yield {"name": "RANKLAUNCH_JOB_UID", "secret": f"{spec.name}-ssh", "key": KEY_OF_SSH}
    elif spec.engine != "acjob" or spec.scheduling.scheduler_name in ("", "volcano"):
        yield {"name": "RANKLAUNCH_JOB_UID", "field": UIDS[spec.engine]}


def _made(spec: JobSpec, task: str) -> Iterator[tuple[str, str]]:
    """Names with their texts, "" for what is not set."""
    if spec.engine in OF_KUBERNETES:
        yield "RANKLAUNCH_JOB_NAME", spec.name
        yield "RANKLAUNCH_NODES", str(spec.nodes + launchers_alone(spec))
    if spec.engine != "modelarts":  # which knows its flavors itself
        yield "RANKLAUNCH_SLOTS", str(slots(spec))
    yield "RANKLAUNCH_ACCELERATOR", spec.device.kind
    yield "RANKLAUNCH_GRACE_S", grace(spec)
    yield "RANKLAUNCH_METHOD", _method(spec)
    yield from _nodes_on_the_hosts_network(spec)
    yield "RANKLAUNCH_INTERFACE", spec.network.interface
    yield "RANKLAUNCH_MASTER_PORT", str(spec.network.master_port or "")
    yield "RANKLAUNCH_MUSTER_PORT", str(spec.network.muster_port or "")
    yield "RANKLAUNCH_SSHD_PORT", str(spec.network.ssh_port or "")
    yield "RANKLAUNCH_RANK_TABLE", table_path(spec)
    yield "RANK_TABLE_FILE", _table_of_modelarts(spec)
    yield "RANKLAUNCH_TASK", task
    yield "RANKLAUNCH_HANG", spec.hang.action
    yield "RANKLAUNCH_HANG_S", str(spec.hang.seconds or "")
    yield "RANKLAUNCH_LOG_DIR", LOGS_IN_TMP if logs_go_to_tmp(spec) else ""
    yield "RANKLAUNCH_MAX_RESTARTS", str(spec.restart.in_place or "")
    yield "RANKLAUNCH_METRICS_PORT", str(spec.metrics.port) if spec.metrics.enabled else ""
    yield "RANKLAUNCH_SAVE_FILE", spec.save.file
    yield "RANKLAUNCH_SAVE_SIGNAL", spec.save.signal
    yield "RANKLAUNCH_LAUNCHER_AS_WORKER", str(spec.mpi.launcher_as_worker).lower() if spec.engine == "mpijob" else ""


def grace(spec: JobSpec) -> str:
    """Return RANKLAUNCH_GRACE_S, empty where ranklaunch's default holds: the platform has a period of its own, and the specification
    gives none. Pods of an existing runtime have the period of that runtime."""
    period = spec.lifecycle.grace_period_seconds
    known = not spec.trainer.runtime if spec.engine in OF_KUBERNETES else period != Lifecycle().grace_period_seconds
    known = known or has_sigterm_before_limit(spec)
    return str(period - GRACE_LEFT_S) if known and "RANKLAUNCH_GRACE_S" not in spec.env else ""


def has_sigterm_before_limit(spec: JobSpec) -> bool:
    """Return True if the script asks Slurm for SIGTERM lifecycle.gracePeriodSeconds before the time limit."""
    own = spec.slurm
    is_limited = bool(spec.lifecycle.deadline_seconds or own.time_limit)
    has_signal = bool(own.save_before) or any(each.partition("=")[0] == "--signal" for each in own.directives)
    return spec.engine == "slurm" and is_limited and not has_signal


def launchers_alone(spec: JobSpec) -> int:
    """Pods that have no ranks."""
    return int(spec.engine == "mpijob" and not spec.mpi.launcher_as_worker)


def _method(spec: JobSpec) -> str:
    """ "" for what ranklaunch finds out itself: on an MPIJob the launcher knows no more of the workers than MPI does."""
    auto = BY_MPI[0] if spec.engine == "mpijob" else ""
    return auto if spec.mode == "auto" else spec.mode


def _nodes_on_the_hosts_network(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield nodes' names for the host's network: there no pod finds its own name in a Service. Elsewhere a pod makes the other names from
    its own: Linux starts no program with some 4,000 names in one variable."""
    form = {"job": "{name}-{i}.{name}", "jobset": "{name}-worker-0-{i}.{name}", "trainjob": "{name}-node-0-{i}.{name}"}.get(spec.engine, "")
    if not form or spec.nodes == 1 or not spec.network.host_network:
        return
    if spec.mode in BY_NAMES:
        yield "RANKLAUNCH_HOSTS", ",".join(form.format(name=spec.name, i=i) for i in range(spec.nodes))
    else:
        yield "RANKLAUNCH_MASTER_ADDR", form.format(name=spec.name, i=0)


def ports(spec: JobSpec, with_metrics: bool = True) -> dict[str, int]:
    """An AscendJob's leader is behind a Service that lets these through alone. The operator knows that of the rendezvous by its name."""
    network = spec.network
    muster = network.muster_port or MUSTER_PORT.default
    of_leader = {"ascendjob-port": network.master_port or ASCEND_PORT, "muster": muster} if spec.engine == "acjob" else {}
    return {**of_leader, **({"metrics": spec.metrics.port} if spec.metrics.enabled and with_metrics else {})}


def table_path(spec: JobSpec) -> str:
    return spec.rank_table.mount_path or TABLE_FOLDERS[spec.rank_table.source]


def _table_of_modelarts(spec: JobSpec) -> str:
    """ModelArts makes a table for jobs alone that name its folder."""
    set_by_user = {"RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0"} & set(spec.env)
    return TABLE_FOLDERS["cce"] if spec.engine == "modelarts" and spec.mode == "ranktable" and not set_by_user else ""


def image(spec: JobSpec) -> str:
    if spec.image.digest:
        return f"{spec.image.repository}@{spec.image.digest}"
    return f"{spec.image.repository}:{spec.image.tag}" if spec.image.tag else spec.image.repository


def literal(text: str) -> str:
    """As Kubernetes must read it in an argument or a variable, where $(NAME) stands for another one and $$ for $."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def device(spec: JobSpec) -> str:
    """The resource of a node's devices; "" where there are none."""
    return spec.device.resource_name or DEFAULT_RESOURCES[spec.device.kind]


def devices(spec: JobSpec) -> dict[str, str]:
    """Resources that are requested and limited alike."""
    name = device(spec)
    requested = {name: str(spec.devices_per_node)} if name and spec.devices_per_node else {}
    if spec.network.rdma.resource:
        requested[spec.network.rdma.resource] = str(spec.network.rdma.count)
    return {**requested, **dict(sorted(spec.device.extra.items()))}


def resources(spec: JobSpec, with_devices: bool = True) -> dict[str, dict[str, str]]:
    memory = {"memory": spec.resources.memory} if spec.resources.memory else {}
    alike = {**memory, **(devices(spec) if with_devices else {})}
    cpu = {"cpu": spec.resources.cpu} if spec.resources.cpu else {}
    requests = {"requests": {**cpu, **alike}, "limits": alike}
    return {name: each for name, each in requests.items() if each}


def flavor(spec: JobSpec) -> str:
    """Of ModelArts."""
    size = POOL_FLAVORS.get(spec.devices_per_node, "")
    return spec.modelarts.flavor or (POOL_FLAVOR.format(size) if spec.modelarts.pool_id and size else "")


def hours_of_deadline(spec: JobSpec) -> int:
    """As ModelArts counts it."""
    return math.ceil(spec.lifecycle.deadline_seconds / SECONDS_OF_HOUR)


def labels(spec: JobSpec) -> dict[str, str]:
    return {"app.kubernetes.io/name": "ranklaunch", "app.kubernetes.io/instance": spec.name, **dict(sorted(spec.labels.items()))}


def volumes(spec: JobSpec) -> list[Mapping[str, Any]]:
    every: list[Mapping[str, Any]] = []
    if spec.shm.enabled:
        limit = {"sizeLimit": spec.shm.size_limit} if spec.shm.size_limit else {}
        every.append({"name": "shm", "emptyDir": {"medium": "Memory", **limit}})
    if config_map(spec):
        every.append({"name": "rank-table", "configMap": {"name": config_map(spec)}})
    if needs_tmp(spec):
        every.append({"name": "ranklaunch-tmp", "emptyDir": {}})
    return [*every, *spec.volumes]


def mounts(spec: JobSpec) -> list[Mapping[str, Any]]:
    every: list[Mapping[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}] if spec.shm.enabled else []
    if config_map(spec):  # the folder: a file of a ConfigMap that is mounted alone is never brought up to date
        every.append({"name": "rank-table", "mountPath": table_path(spec)})
    if needs_tmp(spec):
        every.append({"name": "ranklaunch-tmp", "mountPath": "/tmp"})
    return [*every, *spec.volume_mounts]


def needs_tmp(spec: JobSpec) -> bool:
    """Where the root cannot be written, and no volume of the user's is there."""
    return spec.security.read_only_root_filesystem and "/tmp" not in [mount.get("mountPath") for mount in spec.volume_mounts]


def logs_go_to_tmp(spec: JobSpec) -> bool:
    """Return True where the root cannot be written and nothing says where logs go. What envFrom brings is not known here."""
    names = {*spec.env, *(str(each.get("name")) for each in spec.extra_env)}
    return spec.security.read_only_root_filesystem and not spec.env_from and not names & {"RANKLAUNCH_LOG_DIR", "MA_LOG_DIR"}


def config_map(spec: JobSpec) -> str:
    """With the rank table, to be mounted; "" where there is none."""
    made = f"rings-config-{spec.name}" if spec.rank_table.source == "ascend-operator" else ""
    return "" if spec.rank_table.source in ("none", "file") else spec.rank_table.config_map_name or made


def pod_security(spec: JobSpec) -> dict[str, Any]:
    """The user's own come over the kind of seccomp and when a volume's owner is changed."""
    security = spec.security
    group = {"runAsGroup": security.run_as_group} if security.run_as_group >= 0 else {}
    # A volume of millions of files that has the group already is not gone through again.
    volumes = {"fsGroup": security.fs_group, "fsGroupChangePolicy": "OnRootMismatch"} if security.fs_group >= 0 else {}
    user = {"runAsNonRoot": security.run_as_user > 0, "runAsUser": security.run_as_user}
    of_user: Any = spec.pod_template.get("securityContext") or {}
    return {**user, **group, **volumes, "seccompProfile": {"type": "RuntimeDefault"}, **of_user}


def container_security(spec: JobSpec) -> dict[str, Any]:
    fixed = {"readOnlyRootFilesystem": True} if spec.security.read_only_root_filesystem else {}
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities(spec), **fixed}


def before(spec: JobSpec) -> list[Mapping[str, Any]]:
    """Return the containers to start before the program: ending ones, then permanent ones. An engine waits for the end of a pod, and a
    pod
    does not wait for the latter."""
    return [*spec.init_containers, *({**each, "restartPolicy": "Always"} for each in spec.extra_containers)]


def capabilities(spec: JobSpec) -> dict[str, list[str]]:
    added = sorted({*spec.security.capabilities, *(["IPC_LOCK"] if spec.network.rdma.resource else [])})
    return {"drop": ["ALL"], **({"add": added} if added else {})}


def affinity(spec: JobSpec) -> dict[str, Any]:
    """Return the user's affinity, with all pods within one value of a label, and no pod beside another with the same ports."""
    rules: dict[str, Any] = dict(spec.scheduling.affinity)
    if spec.scheduling.topology:
        own = {"app.kubernetes.io/instance": spec.name}
        rules["podAffinity"] = _with_term(rules.get("podAffinity"), _term(spec.scheduling.topology, own))
    if spec.network.host_network:
        every = {"app.kubernetes.io/name": "ranklaunch"}
        rules["podAntiAffinity"] = _with_term(rules.get("podAntiAffinity"), _term("kubernetes.io/hostname", every))
    return rules


def _term(topology: str, chosen: Mapping[str, str]) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": dict(chosen)}, "topologyKey": topology}


def _with_term(rules: Any, term: Mapping[str, Any]) -> dict[str, Any]:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    return {**(rules or {}), name: [*((rules or {}).get(name) or []), term]}
