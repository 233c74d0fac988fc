"""What does not go together: every rule that engines and their API servers leave to whoever writes a specification."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ranklaunch.read.settings import BY_MPI
from ranklaunch.specs import keys
from ranklaunch.specs.model import OF_KUBERNETES, JobSpec
from ranklaunch.specs.pod import DERIVED, OWN_VOLUMES, device, environment, flavor, launchers_alone, ports

# What an engine has no place for, by the beginning of the values' paths.
FOREIGN: Mapping[str, tuple[str, ...]] = {
    "modelarts": (
        "namespace", "resources.", "image.pull", "device.resourceName", "device.extra", "envFrom", "volumes", "volumeMounts", "shm.",
        "network.hostNetwork", "network.rdma.resource", "rankTable.", "scheduling.", "restart.noRetryExitCodes", "restart.onEviction",
        "lifecycle.ttlSeconds", "lifecycle.cleanPodPolicy", "security.", "serviceAccountName", "labels", "annotations", "mpi.", "trainer.",
    ),
    "slurm": (
        "namespace", "image.pull", "envFrom", "volumes", "volumeMounts", "shm.", "network.hostNetwork", "network.rdma.resource",
        "rankTable.configMapName", "rankTable.label", "scheduling.", "restart.onEviction", "lifecycle.ttlSeconds",
        "lifecycle.cleanPodPolicy", "security.", "serviceAccountName", "labels", "annotations", "mpi.", "trainer.", "device.extra",
    ),
    "volcano": ("scheduling.kueueQueue", "mpi.", "trainer.", "lifecycle.cleanPodPolicy"),
    "jobset": ("scheduling.queue", "scheduling.minAvailable", "mpi.", "trainer.", "lifecycle.cleanPodPolicy"),
    "job": (
        "scheduling.queue", "scheduling.minAvailable", "mpi.", "trainer.", "lifecycle.cleanPodPolicy", "restart.maxRestarts",
    ),
    "trainjob": ("scheduling.minAvailable", "mpi.", "lifecycle.cleanPodPolicy"),
    "mpijob": ("restart.maxRestarts", "trainer."),
    "acjob": ("scheduling.kueueQueue", "mpi.", "trainer."),
}  # fmt: skip
WHY: Mapping[str, str] = {
    "job restart.maxRestarts": "a Job starts single pods anew while the others wait for it; use jobset or volcano",
    "mpijob restart.maxRestarts": "an MPIJob starts the launcher alone anew, whatever its exit code; use jobset or volcano",
}
# The longest name that an engine makes from the job's, without it. Each must fit a DNS label.
SUFFIXES: Mapping[str, str] = {
    "volcano": "-worker-{last}",
    "jobset": "-worker-0-{last}-xxxxx",
    "job": "-{last}-xxxxx",
    "trainjob": "-node-0-{last}-xxxxx",
    "mpijob": "-launcher-xxxxx",
    "acjob": "-worker-{last}",
}
RESERVED_BY_TRAINER = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
OF_ASCEND_JOBS = ("framework", "fault-scheduling", "fault-retry-times")  # labels that the job's operator reads
LABEL_VALUE = r"(?:[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?"
MOST_BYTES_OF_VARIABLE = 128 * 1024
MOST_S_EARLY = 60  # that Slurm sends the signal of --signal before its time
MOST_MODELARTS_VARIABLES, MOST_MODELARTS_NAME, MOST_MODELARTS_VALUE = 100, 8192, 4096


def problems(spec: JobSpec) -> list[str]:
    """Every one, each with the path of the value that is wrong."""
    of_kind = OF_EACH_KUBERNETES if spec.engine in OF_KUBERNETES else ()
    return [problem for rule in (*COMMON, *of_kind, OF_ENGINE[spec.engine]) for problem in rule(spec)]


def _foreign(spec: JobSpec) -> Iterator[str]:
    for path, value, key in _given(spec):
        if any(path.startswith(start) for start in FOREIGN[spec.engine]) and value != key.default:
            why = WHY.get(f"{spec.engine} {path}", f"{spec.engine} has no place for it; leave it out")
            yield f"{path}: {why}"


def _given(group: object, place: str = "") -> Iterator[tuple[str, object, keys.Key]]:
    for name, field in keys.fields(type(group)).items():
        value = getattr(group, field.name)
        if "group" in field.metadata:
            yield from _given(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value, field.metadata["key"]


def _program(spec: JobSpec) -> Iterator[str]:
    if bool(spec.script) == bool(spec.module):
        yield f"script={spec.script!r}, module={spec.module!r}: expected one of the two"
    if spec.script.startswith("-"):
        yield f"script={spec.script!r}: begins with a dash; ./{spec.script} is a file of that name"
    if not spec.image.repository and not (spec.engine == "slurm" and spec.slurm.container == "none"):
        yield "image.repository: required (--image)"
    if re.search(r"[\s\0]|^-", spec.image.repository):
        yield f"image.repository={spec.image.repository!r}: expected the name of an image"
    if spec.name_suffix:
        yield "nameSuffix: the Helm chart's alone; put what should follow into name"


def _devices(spec: JobSpec) -> Iterator[str]:
    if spec.device.kind != "cpu" and not spec.devices_per_node:
        yield f"devicesPerNode=0: expected at least 1 with device.kind {spec.device.kind}"
    if spec.device.kind == "cpu" and spec.device.resource_name:
        yield "device.resourceName: with device.kind cpu there are no devices; put other resources into device.extra"
    for name, quantity in spec.device.extra.items():
        pattern = "[0-9]+" if "/" in name else keys.QUANTITY
        if not re.fullmatch(pattern, quantity):
            yield f"device.extra.{name}={quantity!r}: expected {'an integer' if '/' in name else 'a quantity such as 4 or 16Gi'}"


def _environment(spec: JobSpec) -> Iterator[str]:
    for name in sorted(set(spec.env) & set(DERIVED)):
        yield f"env.{name}: made from {DERIVED[name]}; set that"
    grace = spec.env.get("RANKLAUNCH_GRACE_S")
    if grace is not None and not spec.trainer.runtime:  # whose pod has a period of its own
        yield from _grace(grace, spec.lifecycle.grace_period_seconds)


def _size(spec: JobSpec) -> Iterator[str]:
    """Linux starts no program with a longer one."""
    for variable in environment(spec):
        size = len(f"{variable['name']}={variable.get('value', '')}".encode())
        if size >= MOST_BYTES_OF_VARIABLE:
            path = f"env.{variable['name']}" if variable["name"] in spec.env else f"nodes={spec.nodes}: {variable['name']}"
            yield f"{path}: {size} bytes, expected fewer than {MOST_BYTES_OF_VARIABLE}, the most that Linux starts a program with"


def _grace(text: str, period: int) -> Iterator[str]:
    if re.fullmatch(r"[0-9]+(?:\.[0-9]*)?", text) and float(text) < period:
        return
    yield f"env.RANKLAUNCH_GRACE_S={text!r}: expected seconds below lifecycle.gracePeriodSeconds={period}, after which the pod is killed"


def _method(spec: JobSpec) -> Iterator[str]:
    if spec.mode == "ranktable" and spec.rank_table.source == "none" and spec.engine != "modelarts":
        yield "mode=ranktable: expected a rankTable.source"
    if spec.mode in ("ranktable", "msrun") and spec.device.kind == "gpu":
        yield f"mode={spec.mode}: expected device.kind npu" + (" or cpu" if spec.mode == "msrun" else "")
    if spec.tf.ps and spec.engine != "volcano":
        yield f"tf.ps={spec.tf.ps}: {spec.engine} has one kind of pod; use volcano"
    if spec.tf.ps and spec.mode != "tensorflow":
        yield f"tf.ps={spec.tf.ps}: expected mode tensorflow, found {spec.mode}"


def _restart(spec: JobSpec) -> Iterator[str]:
    why = WHY.get(f"{spec.engine} restart.maxRestarts") or ("" if spec.restart.max_restarts else "expected restart.maxRestarts above 0")
    if spec.restart.on_eviction == "restart" and why:
        yield f"restart.onEviction=restart: {why}"


COMMON = (_foreign, _program, _devices, _environment, _size, _method, _restart)


# Kubernetes


def _name(spec: JobSpec) -> Iterator[str]:
    if not re.fullmatch(keys.LABEL, spec.name) or not spec.name[:1].isalpha():
        yield f"name={spec.name!r}: expected small letters, digits and dashes, beginning with a letter"
        return
    suffix = SUFFIXES[spec.engine].format(last=max(spec.nodes, spec.tf.ps) - 1)
    if len(spec.name) + len(suffix) > 63:
        yield f"name={spec.name!r}: {len(spec.name)} characters, expected at most {63 - len(suffix)}, for pods are called NAME{suffix}"


def _labels(spec: JobSpec) -> Iterator[str]:
    for place, names in (("labels", spec.labels), ("annotations", spec.annotations)):
        for name, value in names.items():
            if place == "labels" and not re.fullmatch(LABEL_VALUE, value):
                yield f"labels.{name}={value!r}: expected at most 63 letters, digits, dashes, dots and underscores"
            read = place == "labels" and spec.engine == "acjob" and name in OF_ASCEND_JOBS
            if read or name.startswith(("app.kubernetes.io/", "kueue.x-k8s.io/", "ring-controller.", "batch.kubernetes.io/")):
                yield f"{place}.{name}: the engine's or ranklaunch's own"
    for name, value in spec.scheduling.node_selector.items():
        if not re.fullmatch(LABEL_VALUE, value):
            yield f"scheduling.nodeSelector.{name}={value!r}: expected a node's label"


def _resources(spec: JobSpec) -> Iterator[str]:
    """What is asked for under one name twice, the last would count alone."""
    rdma, own = spec.network.rdma.resource, device(spec)
    for path, name in (("device.resourceName", spec.device.resource_name), ("network.rdma.resource", rdma)):
        if name and "/" not in name:
            yield f"{path}={name!r}: expected the name of a device plugin's resource, such as vendor.example/{name}"
    if rdma and rdma == own:
        yield f"network.rdma.resource={rdma!r}: the devices' own"
    made = {"cpu": "resources.cpu", "memory": "resources.memory", own: "devicesPerNode", rdma: "network.rdma.count"}
    for name in spec.device.extra:
        if name in made:
            yield f"device.extra.{name}: made from {made[name]}; set that"


def _ports(spec: JobSpec) -> Iterator[str]:
    network = spec.network
    if network.host_network and network.ssh_port == 22:
        yield "network.sshPort=22: the host's own sshd listens there, with network.hostNetwork"
    for name, port in (("sshPort", network.ssh_port), ("masterPort", network.master_port), ("musterPort", network.muster_port)):
        if 0 < port < 1024 and spec.security.run_as_user:
            yield f"network.{name}={port}: expected 1024 or more, for security.runAsUser={spec.security.run_as_user} is not root"
    given = [port for port in (network.ssh_port, network.master_port, network.muster_port) if port]
    if len(set(given)) < len(given):
        yield "network.masterPort, network.musterPort, network.sshPort: expected different ports"


def _volumes(spec: JobSpec) -> Iterator[str]:
    names = [volume.get("name") for volume in spec.volumes]
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(keys.LABEL, name):
            yield f"volumes: name {name!r}: expected small letters, digits and dashes"
        elif name in OWN_VOLUMES:
            yield f"volumes: name {name!r}: ranklaunch's own"
    if len({str(name) for name in names}) < len(names):
        yield "volumes: expected different names"
    yield from _mounts(spec, names)


def _mounts(spec: JobSpec, names: Sequence[object]) -> Iterator[str]:
    for mount in spec.volume_mounts:
        if mount.get("name") not in names:
            yield f"volumeMounts: name {mount.get('name')!r}: no volume of this name in volumes"
        if not str(mount.get("mountPath", "")).startswith("/"):
            yield f"volumeMounts: mountPath {mount.get('mountPath')!r}: expected a path from the root"
    paths = [str(mount.get("mountPath")) for mount in spec.volume_mounts]
    own = ["/dev/shm"] if spec.shm.enabled else []
    if len({*paths, *own}) < len(paths) + len(own):
        yield "volumeMounts: expected different mountPaths" + (", of which shm.enabled takes /dev/shm" if own else "")


def _rank_table(spec: JobSpec) -> Iterator[str]:
    table = spec.rank_table
    if table.source != "none" and spec.device.kind != "npu":
        yield f"rankTable.source={table.source}: expected device.kind npu, found {spec.device.kind}"
    if table.source == "ascend-operator" and spec.engine not in ("acjob", "volcano"):
        yield f"rankTable.source=ascend-operator: it writes none for {spec.engine}; use acjob or volcano"
    if table.source == "cce" and spec.engine != "volcano":
        yield f"rankTable.source=cce: its plugin writes none for {spec.engine}; use volcano"
    if table.source == "cce" and not table.config_map_name:
        yield "rankTable.configMapName: required with rankTable.source cce, for clusters call it differently"
    if table.source == "ascend-operator" and table.config_map_name not in ("", f"rings-config-{spec.name}"):
        yield f"rankTable.configMapName={table.config_map_name!r}: the Ascend Operator writes rings-config-{spec.name} alone"
    if table.source == "file" and not table.mount_path:
        yield "rankTable.mountPath: required with rankTable.source file"


def _pods(spec: JobSpec) -> Iterator[str]:
    pods = spec.nodes + spec.tf.ps + launchers_alone(spec)
    if spec.scheduling.min_available > pods:
        yield f"scheduling.minAvailable={spec.scheduling.min_available}: expected at most {pods}, the number of pods"
    if spec.scheduling.min_available and spec.tf.ps:
        yield "scheduling.minAvailable: with tf.ps every pod is needed"


def _code_limit(spec: JobSpec) -> Iterator[str]:
    codes = spec.restart.no_retry_exit_codes
    if len(set(codes)) < len(codes):
        yield f"restart.noRetryExitCodes={list(codes)}: expected each code once"


def _affinity(spec: JobSpec) -> Iterator[str]:
    """Terms are added to what the user gives: that must be what Kubernetes has there."""
    for name in ("podAffinity", "podAntiAffinity"):
        given = spec.scheduling.affinity.get(name)
        terms = given.get("requiredDuringSchedulingIgnoredDuringExecution") if isinstance(given, Mapping) else None
        if not (given is None or isinstance(given, Mapping)) or not (terms is None or isinstance(terms, list)):
            yield f"scheduling.affinity.{name}: expected an object, with lists of terms"


OF_EACH_KUBERNETES = (_affinity, _name, _labels, _resources, _ports, _volumes, _rank_table, _pods, _code_limit)


# One engine each


def _volcano(spec: JobSpec) -> Iterator[str]:
    if spec.lifecycle.deadline_seconds and spec.restart.max_restarts:
        yield "lifecycle.deadlineSeconds: volcano would start a job anew that is ended by it; leave it or restart.maxRestarts out"
    if spec.mode in BY_MPI and spec.tf.ps:
        yield f"mode={spec.mode}: expected no tf.ps"


def _jobset(spec: JobSpec) -> Iterator[str]:
    return iter(())


def _job(spec: JobSpec) -> Iterator[str]:
    if spec.mode in BY_MPI:
        yield f"mode={spec.mode}: expected a method without SSH for engine job; use jobset, volcano or mpijob"


def _trainjob(spec: JobSpec) -> Iterator[str]:
    for name in sorted(set(RESERVED_BY_TRAINER) & set(spec.env)):
        yield f"env.{name}: Kubeflow Trainer's own"
    if spec.trainer.runtime:
        yield from (f"{path}: that of the runtime {spec.trainer.runtime!r} holds; leave one of the two out" for path in _of_pod(spec))


def _of_pod(spec: JobSpec) -> Iterator[str]:
    """Values given that are about the pod of a runtime, which is not made here then."""
    starts = (
        "envFrom", "workingDir", "volumes", "volumeMounts", "shm.", "network.hostNetwork", "network.rdma.", "scheduling.", "restart.",
        "security.", "serviceAccountName", "image.pull", "lifecycle.ttlSeconds", "lifecycle.gracePeriodSeconds",
    )  # fmt: skip
    for path, value, key in _given(spec):
        if path.startswith(starts) and path != "scheduling.kueueQueue" and value != key.default:
            yield path


def _mpijob(spec: JobSpec) -> Iterator[str]:
    if spec.mode not in BY_MPI:
        yield f"mode={spec.mode}: expected mpirun with mpijob"
    if spec.network.host_network and spec.nodes + launchers_alone(spec) > 1:
        yield "network.hostNetwork: there an MPIJob's worker has no name, by which alone it knows which one it is; use volcano or jobset"


def _acjob(spec: JobSpec) -> Iterator[str]:
    if spec.device.kind != "npu":
        yield f"device.kind={spec.device.kind}: expected npu with acjob"
    if spec.mode in BY_MPI:
        yield f"mode={spec.mode}: an AscendJob's workers have no names by which MPI could reach them; use volcano or mpijob"
    if spec.mode == "tensorflow":
        yield "mode=tensorflow: an AscendJob's workers have no names by which they could reach each other; use volcano"
    if len(set(ports(spec).values())) < len(ports(spec)):
        taken = " and ".join(f"{port} ({name})" for name, port in ports(spec).items())
        yield f"network.masterPort, network.musterPort: expected different ports, found {taken}"
    late = [code for code in spec.restart.no_retry_exit_codes if code >= 128]
    if spec.restart.max_restarts and late:
        yield f"restart.noRetryExitCodes={late}: an AscendJob starts anew after every code from 128; expected codes below"
    if spec.restart.max_restarts and not spec.restart.after_eviction:
        yield "restart.onEviction=fail: an AscendJob starts anew after 143 too, with which the pods then end; leave restart.maxRestarts out"


def _modelarts(spec: JobSpec) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spec.name):
        yield f"name={spec.name!r}: expected 1 to 64 letters, digits, dashes and underscores"
    if not flavor(spec):
        yield "modelarts.flavor: required, but with modelarts.poolId and 1, 2, 4, 8 or 16 devices"
    if spec.modelarts.local_code_dir and not spec.modelarts.code_dir:
        yield "modelarts.localCodeDir: expected modelarts.codeDir too"
    if len(environment(spec)) > MOST_MODELARTS_VARIABLES:
        yield f"env: {len(environment(spec))} variables with ranklaunch's own, expected at most {MOST_MODELARTS_VARIABLES}"
    yield from _names_of_variables(spec)
    for name, value in spec.env.items():
        if len(name) > MOST_MODELARTS_NAME or len(value) > MOST_MODELARTS_VALUE:
            yield f"env.{name[:60]}: expected at most {MOST_MODELARTS_NAME} characters of name and {MOST_MODELARTS_VALUE} of text"
    for place, channels in (("inputs", spec.modelarts.inputs), ("outputs", spec.modelarts.outputs)):
        if not all(map(_channel, channels)):
            yield f"modelarts.{place}: expected strings name and obsUrl, and localDir or nothing"


def _channel(channel: Mapping[str, object]) -> bool:
    required, known = {"name", "obsUrl"}, {"name", "obsUrl", "localDir"}
    return required <= set(channel) <= known and all(isinstance(value, str) and value for value in channel.values())


def _names_of_variables(spec: JobSpec) -> Iterator[str]:
    for name in spec.env:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            yield f"env.{name}: expected letters, digits and underscores"


def _slurm(spec: JobSpec) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", spec.name):
        yield f"name={spec.name!r}: expected 1 to 128 letters, digits, dots, dashes and underscores"
    yield from _names_of_variables(spec)
    yield from _time_limit(spec)
    if not re.fullmatch("[0-9]*", spec.resources.cpu):
        yield f"resources.cpu={spec.resources.cpu!r}: expected an integer with slurm"
    if re.search(r"[\"'\\\s]", spec.working_dir):
        yield f"workingDir={spec.working_dir!r}: expected a path without quotes, backslashes and spaces"


def _time_limit(spec: JobSpec) -> Iterator[str]:
    deadline, grace = spec.lifecycle.deadline_seconds, spec.lifecycle.grace_period_seconds
    path = f"lifecycle.deadlineSeconds={deadline}"
    if deadline and spec.restart.max_restarts:
        yield f"{path}: the script would start a job anew that is ended by it; leave it or restart.maxRestarts out"
    if 0 < deadline <= grace + MOST_S_EARLY:
        how = f"{MOST_S_EARLY} seconds and lifecycle.gracePeriodSeconds={grace} before it"
        yield f"{path}: expected more than {grace + MOST_S_EARLY}, for Slurm sends SIGTERM up to {how}"


OF_ENGINE = {
    "volcano": _volcano, "jobset": _jobset, "job": _job, "trainjob": _trainjob, "mpijob": _mpijob, "acjob": _acjob,
    "modelarts": _modelarts, "slurm": _slurm,
}  # fmt: skip
