"""Parts of a specification that all engines share: the program's command, environment, devices, volumes, labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ranklaunch.env.settings import BY_MPI, MUSTER_PORT
from ranklaunch.specs import keys
from ranklaunch.specs.model import BY_NAMES, OF_KUBERNETES, JobSpec, Lifecycle

COMMAND = ["ranklaunch", "run", "--"]
GRACE_LEFT_S = 5  # part of a pod's grace period in which ranklaunch itself ends
ASCEND_PORT = 2222  # the Ascend Operator's default port of the rendezvous
OWN_VOLUMES = ("shm", "rank-table", "ranklaunch-tmp")
CONTAINERS = {"acjob": "ascend", "trainjob": "node"}  # names that these two operators require; with other engines: train
DEFAULT_RESOURCES = {"gpu": "nvidia.com/gpu", "npu": "huawei.com/Ascend910", "cpu": ""}
TABLE_FOLDERS = {"ascend-operator": "/user/serverid/devindex/config", "cce": "/user/config", "file": "", "none": ""}
OF_MODELARTS = r"\$\{MA_[A-Z0-9_]+\}"  # variables that ModelArts' shell replaces in the program and its arguments
SECONDS_OF_HOUR = 3600
POOL_FLAVOR = "modelarts.pool.visual.{}"  # flavor of a dedicated pool
POOL_FLAVORS = {1: "xlarge", 2: "2xlarge", 4: "4xlarge", 8: "8xlarge", 16: "16xlarge"}

# Variables of ranklaunch that are always made from a value of the specification.
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
# Variables of ranklaunch that a value sets if it is given; otherwise `env` may set them.
SET_BY: Mapping[str, str] = {
    "RANKLAUNCH_MAX_RESTARTS": "restart.inPlace",
    "RANKLAUNCH_HANG": "hang.action",
    "RANKLAUNCH_HANG_S": "hang.seconds",
    "RANKLAUNCH_SAVE_SIGNAL": "save.signal",
    "RANKLAUNCH_SAVE_FILE": "save.file",
    "RANKLAUNCH_METRICS_PORT": "metrics.enabled",
    "RANKLAUNCH_SECRET": "muster.secretName",
}
LOGS_IN_TMP = "/tmp/ranklaunch-logs"  # log folder of pods with a read-only root
# Field with the engine's number of restarts, in the names of the downward API.
RESTARTS: Mapping[str, str] = {
    "volcano": "metadata.annotations['volcano.sh/job-retry-count']",
    "jobset": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    "trainjob": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    "acjob": "metadata.labels['version']",
}
# Field with a random id of the job: the same on all pods, and different for two jobs of the same name.
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
    """Return the words of the program after `ranklaunch run --`."""
    return [*(["-m", spec.module] if spec.module else [spec.script]), *spec.args]


def command(spec: JobSpec) -> list[str]:
    """Return the command line of each node."""
    return [*COMMAND, *program(spec)]


def slots(spec: JobSpec) -> int:
    """Return the number of ranks of each node."""
    return (spec.mpi.slots if spec.engine == "mpijob" else 0) or spec.devices_per_node


def environment(spec: JobSpec, task: str = "") -> list[dict[str, str]]:
    """Return the variables in order.

    Each has name and value; or name and field, for the downward API; or name, secret and key. task: the pod's task, "" if pods are alike.
    """
    variables = [{"name": name, "value": value} for name, value in _derived(spec, task) if value]
    if spec.engine in RESTARTS:
        variables.append({"name": "RANKLAUNCH_RESTARTS", "field": RESTARTS[spec.engine]})
    variables += _key(spec)
    return variables + [{"name": name, "value": spec.env[name]} for name in sorted(spec.env)]


def set_by_values(spec: JobSpec) -> dict[str, str]:
    """Return the variables of SET_BY whose values are given, with the paths of these values."""
    values = {path: value for path, value, _ in keys.every_value(spec)}
    return {name: path for name, path in SET_BY.items() if values[path]}


def has_several_nodes(spec: JobSpec) -> bool:
    """Return True if several nodes of ranklaunch meet; parameter servers and a launcher's own pod count."""
    return spec.nodes + spec.tf.ps + launchers_alone(spec) > 1


def own_key(spec: JobSpec) -> bool:
    """Return True if a variable of the user sets the key of the muster."""
    return bool({"RANKLAUNCH_SECRET", "RANKLAUNCH_SECRET_FILE"} & set(spec.env))


def _key(spec: JobSpec) -> Iterator[dict[str, str]]:
    """Yield the source of the muster's key if several nodes meet. No key is made here, so two renders are equal."""
    if not has_several_nodes(spec) or spec.engine not in OF_KUBERNETES:
        return
    if spec.muster.secret_name:
        yield {"name": "RANKLAUNCH_SECRET", "secret": spec.muster.secret_name, "key": KEY_OF_SECRET}
    elif spec.engine == "mpijob":  # the operator makes it for ssh, before any pod
        yield {"name": "RANKLAUNCH_JOB_UID", "secret": f"{spec.name}-ssh", "key": KEY_OF_SSH}
    elif spec.engine != "acjob" or spec.scheduling.scheduler_name in ("", "volcano"):
        yield {"name": "RANKLAUNCH_JOB_UID", "field": UIDS[spec.engine]}


def _derived(spec: JobSpec, task: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the variables that values set; "" for a variable that is not set."""
    if spec.engine in OF_KUBERNETES:
        yield "RANKLAUNCH_JOB_NAME", spec.name
        yield "RANKLAUNCH_NODES", str(spec.nodes + launchers_alone(spec))
    if spec.engine != "modelarts":  # ModelArts' own variables have the number of devices
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
    """Return the text of RANKLAUNCH_GRACE_S, "" to leave the variable out.

    It is left out if env sets it, if the pods' period is that of an existing runtime, or if the platform has a period of its own and the
    specification gives none.
    """
    period = spec.lifecycle.grace_period_seconds
    is_known = not spec.trainer.runtime if spec.engine in OF_KUBERNETES else period != Lifecycle().grace_period_seconds
    is_known = is_known or has_sigterm_before_limit(spec)
    return str(period - GRACE_LEFT_S) if is_known and "RANKLAUNCH_GRACE_S" not in spec.env else ""


def has_sigterm_before_limit(spec: JobSpec) -> bool:
    """Return True if the script asks Slurm for SIGTERM lifecycle.gracePeriodSeconds before the time limit."""
    slurm = spec.slurm
    is_limited = bool(spec.lifecycle.deadline_seconds or slurm.time_limit)
    has_signal = bool(slurm.save_before) or any(each.partition("=")[0] == "--signal" for each in slurm.directives)
    return spec.engine == "slurm" and is_limited and not has_signal


def launchers_alone(spec: JobSpec) -> int:
    """Return the number of pods that launch ranks but have none: 0 or 1."""
    return int(spec.engine == "mpijob" and not spec.mpi.launcher_as_worker)


def _method(spec: JobSpec) -> str:
    """Return the method, "" if ranklaunch chooses. An MPIJob gets mpirun: its launcher knows only as much of the workers as MPI needs."""
    auto = BY_MPI[0] if spec.engine == "mpijob" else ""
    return auto if spec.mode == "auto" else spec.mode


def _nodes_on_the_hosts_network(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the variable with the names of all nodes, or of node 0, for pods on the host's network: there a pod cannot find its own name.

    On the pods' network no variable is set: a pod makes the other names from its own. Linux starts no program with some 4,000 names in one
    variable.
    """
    form = {"job": "{name}-{i}.{name}", "jobset": "{name}-worker-0-{i}.{name}", "trainjob": "{name}-node-0-{i}.{name}"}.get(spec.engine, "")
    if not form or spec.nodes == 1 or not spec.network.host_network:
        return
    if spec.mode in BY_NAMES:
        yield "RANKLAUNCH_HOSTS", ",".join(form.format(name=spec.name, i=i) for i in range(spec.nodes))
    else:
        yield "RANKLAUNCH_MASTER_ADDR", form.format(name=spec.name, i=0)


def ports(spec: JobSpec, with_metrics: bool = True) -> dict[str, int]:
    """Return the ports of a container by name.

    An AscendJob's leader is behind a Service that passes only these ports. The operator knows the port of the rendezvous by its name.
    """
    network = spec.network
    muster = network.muster_port or MUSTER_PORT.default
    of_leader = {"ascendjob-port": network.master_port or ASCEND_PORT, "muster": muster} if spec.engine == "acjob" else {}
    return {**of_leader, **({"metrics": spec.metrics.port} if spec.metrics.enabled and with_metrics else {})}


def table_path(spec: JobSpec) -> str:
    """Return the path of the rank table or of its folder, "" without a table."""
    return spec.rank_table.mount_path or TABLE_FOLDERS[spec.rank_table.source]


def _table_of_modelarts(spec: JobSpec) -> str:
    """Return the table's folder for RANK_TABLE_FILE, or "". ModelArts makes a table only for jobs that set this variable."""
    set_by_user = {"RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0"} & set(spec.env)
    return TABLE_FOLDERS["cce"] if spec.engine == "modelarts" and spec.mode == "ranktable" and not set_by_user else ""


def image(spec: JobSpec) -> str:
    """Return the image with its digest or tag."""
    if spec.image.digest:
        return f"{spec.image.repository}@{spec.image.digest}"
    return f"{spec.image.repository}:{spec.image.tag}" if spec.image.tag else spec.image.repository


def literal(text: str) -> str:
    """Escape a text for an argument or a variable in Kubernetes: there $(NAME) stands for a variable, and $$ for $."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def device(spec: JobSpec) -> str:
    """Return the resource name of a node's devices, "" without devices."""
    return spec.device.resource_name or DEFAULT_RESOURCES[spec.device.kind]


def devices(spec: JobSpec) -> dict[str, str]:
    """Return the resources whose request and limit are equal."""
    name = device(spec)
    requested = {name: str(spec.devices_per_node)} if name and spec.devices_per_node else {}
    if spec.network.rdma.resource:
        requested[spec.network.rdma.resource] = str(spec.network.rdma.count)
    return {**requested, **dict(sorted(spec.device.extra.items()))}


def resources(spec: JobSpec, with_devices: bool = True) -> dict[str, dict[str, str]]:
    """Return requests and limits of a container."""
    memory = {"memory": spec.resources.memory} if spec.resources.memory else {}
    limits = {**memory, **(devices(spec) if with_devices else {})}
    cpu = {"cpu": spec.resources.cpu} if spec.resources.cpu else {}
    both = {"requests": {**cpu, **limits}, "limits": limits}
    return {name: each for name, each in both.items() if each}


def flavor(spec: JobSpec) -> str:
    """Return the flavor id for ModelArts, "" if no flavor fits."""
    size = POOL_FLAVORS.get(spec.devices_per_node, "")
    return spec.modelarts.flavor or (POOL_FLAVOR.format(size) if spec.modelarts.pool_id and size else "")


def hours_of_deadline(spec: JobSpec) -> int:
    """Return the deadline in whole hours, rounded up, as ModelArts counts it."""
    return math.ceil(spec.lifecycle.deadline_seconds / SECONDS_OF_HOUR)


def labels(spec: JobSpec) -> dict[str, str]:
    return {"app.kubernetes.io/name": "ranklaunch", "app.kubernetes.io/instance": spec.name, **dict(sorted(spec.labels.items()))}


def volumes(spec: JobSpec) -> list[Mapping[str, Any]]:
    """Return ranklaunch's own volumes, then the user's."""
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
    """Return the mounts of ranklaunch's own volumes, then the user's."""
    every: list[Mapping[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}] if spec.shm.enabled else []
    if config_map(spec):  # the whole folder: kubelet never updates a single file that is mounted by subPath
        every.append({"name": "rank-table", "mountPath": table_path(spec)})
    if needs_tmp(spec):
        every.append({"name": "ranklaunch-tmp", "mountPath": "/tmp"})
    return [*every, *spec.volume_mounts]


def needs_tmp(spec: JobSpec) -> bool:
    """Return True if the root is read-only and the user mounts no volume at /tmp."""
    return spec.security.read_only_root_filesystem and "/tmp" not in [mount.get("mountPath") for mount in spec.volume_mounts]


def logs_go_to_tmp(spec: JobSpec) -> bool:
    """Return True if the root is read-only and no variable names a log folder. With envFrom, whose variables are unknown, return False."""
    names = {*spec.env, *(str(each.get("name")) for each in spec.extra_env)}
    return spec.security.read_only_root_filesystem and not spec.env_from and not names & {"RANKLAUNCH_LOG_DIR", "MA_LOG_DIR"}


def config_map(spec: JobSpec) -> str:
    """Return the name of the ConfigMap with the rank table, "" without one."""
    default = f"rings-config-{spec.name}" if spec.rank_table.source == "ascend-operator" else ""
    return "" if spec.rank_table.source in ("none", "file") else spec.rank_table.config_map_name or default


def pod_security(spec: JobSpec) -> dict[str, Any]:
    """Return the pod's security context. The user's own fields may replace seccompProfile and fsGroupChangePolicy."""
    security = spec.security
    group = {"runAsGroup": security.run_as_group} if security.run_as_group >= 0 else {}
    # OnRootMismatch: kubelet does not visit the millions of files of a volume whose root has the group already.
    volumes = {"fsGroup": security.fs_group, "fsGroupChangePolicy": "OnRootMismatch"} if security.fs_group >= 0 else {}
    user = {"runAsNonRoot": security.run_as_user > 0, "runAsUser": security.run_as_user}
    of_user: Any = spec.pod_template.get("securityContext") or {}
    return {**user, **group, **volumes, "seccompProfile": {"type": "RuntimeDefault"}, **of_user}


def container_security(spec: JobSpec) -> dict[str, Any]:
    read_only = {"readOnlyRootFilesystem": True} if spec.security.read_only_root_filesystem else {}
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities(spec), **read_only}


def init_containers(spec: JobSpec) -> list[Mapping[str, Any]]:
    """Return the pod's init containers: those of the user, then sidecars. A pod ends without waiting for its sidecars."""
    return [*spec.init_containers, *({**each, "restartPolicy": "Always"} for each in spec.extra_containers)]


def capabilities(spec: JobSpec) -> dict[str, list[str]]:
    added = sorted({*spec.security.capabilities, *(["IPC_LOCK"] if spec.network.rdma.resource else [])})
    return {"drop": ["ALL"], **({"add": added} if added else {})}


def affinity(spec: JobSpec) -> dict[str, Any]:
    """Return the user's affinity with two rules added: scheduling.topology, and one pod of ranklaunch per host on the hosts' network."""
    rules: dict[str, Any] = dict(spec.scheduling.affinity)
    if spec.scheduling.topology:
        of_job = {"app.kubernetes.io/instance": spec.name}
        rules["podAffinity"] = _with_term(rules.get("podAffinity"), _term(spec.scheduling.topology, of_job))
    if spec.network.host_network:
        of_all_jobs = {"app.kubernetes.io/name": "ranklaunch"}
        rules["podAntiAffinity"] = _with_term(rules.get("podAntiAffinity"), _term("kubernetes.io/hostname", of_all_jobs))
    return rules


def _term(topology: str, match_labels: Mapping[str, str]) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": dict(match_labels)}, "topologyKey": topology}


def _with_term(rules: Any, term: Mapping[str, Any]) -> dict[str, Any]:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    return {**(rules or {}), name: [*((rules or {}).get(name) or []), term]}
