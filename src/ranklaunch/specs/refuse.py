"""What does not go together: every rule that engines and their API servers leave to whoever writes a specification."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ranklaunch.specs import keys, refuse_kubernetes, slurm
from ranklaunch.specs.image import what_is_wrong
from ranklaunch.specs.model import BY_SCRIPT, OF_CLOUDS, OF_KUBERNETES, JobSpec
from ranklaunch.specs.places import clouds, hpc
from ranklaunch.specs.pod import DERIVED, POOL_FLAVORS, environment, flavor

# What nobody but the engines of Kubernetes has, or the charts' own platforms.
NOWHERE_ELSE = (
    "namespace", "image.pull", "device.resourceName", "device.extra", "envFrom", "volumes", "volumeMounts", "network.hostNetwork",
    "network.rdma.", "muster.", "rankTable.", "scheduling.", "restart.onEviction", "lifecycle.ttlSeconds",
    "lifecycle.cleanPodPolicy", "security.", "serviceAccountName", "labels", "annotations", "mpi.", "trainer.",
)  # fmt: skip
# Which kinds a group of values is for.
OWN: Mapping[str, tuple[str, ...]] = {"modelarts.": ("modelarts",), "slurm.": ("slurm",), "cloud.": OF_CLOUDS, "batch.": BY_SCRIPT}
OF_AWS = ("cloud.instanceType", "cloud.role", "cloud.executionRole")
ON_HOSTS = (*NOWHERE_ELSE, "image.", "shm.", "restart.")
# What an engine has no place for, by the beginning of the values' paths.
FOREIGN: Mapping[str, tuple[str, ...]] = {
    "modelarts": (
        "namespace", "resources.", "image.pull", "device.resourceName", "device.extra", "envFrom", "volumes", "volumeMounts", "shm.",
        "network.hostNetwork", "network.rdma.", "muster.", "rankTable.", "scheduling.", "restart.noRetryExitCodes",
        "restart.onEviction", "lifecycle.ttlSeconds", "lifecycle.cleanPodPolicy", "security.", "serviceAccountName", "labels",
        "annotations", "mpi.", "trainer.",
    ),
    "slurm": (
        "namespace", "image.pull", "envFrom", "shm.", "network.hostNetwork", "network.rdma.", "muster.",
        "rankTable.configMapName", "rankTable.label", "scheduling.", "restart.onEviction", "lifecycle.ttlSeconds",
        "lifecycle.cleanPodPolicy", "security.", "serviceAccountName", "labels", "annotations", "mpi.", "trainer.", "device.extra",
    ),
    "sky": (
        *NOWHERE_ELSE, "shm.", "lifecycle.deadlineSeconds", "restart.noRetryExitCodes", "cloud.fleets", *OF_AWS, "cloud.compute",
    ),
    "dstack": (*NOWHERE_ELSE, "shm.enabled", "restart.", "cloud.infra", "cloud.code", *OF_AWS, "cloud.compute"),
    "aws_batch": (
        *NOWHERE_ELSE, "shm.enabled", "workingDir", "cloud.accelerator", "cloud.infra", "cloud.spot", "cloud.fleets", "cloud.code",
        "cloud.compute",
    ),
    "azureml": (
        *NOWHERE_ELSE, "shm.enabled", "resources.", "restart.", "cloud.accelerator", "cloud.infra", "cloud.spot", "cloud.fleets", *OF_AWS,
    ),
    "lsf": (*ON_HOSTS, "resources.memory"),
    "pbs": ON_HOSTS,
    "flux": (*ON_HOSTS, "resources.memory"),
    "volcano": ("scheduling.kueueQueue", "mpi.", "trainer.", "lifecycle.cleanPodPolicy"),
    "jobset": ("scheduling.queue", "scheduling.minAvailable", "mpi.", "trainer.", "lifecycle.cleanPodPolicy"),
    "job": (
        "scheduling.queue", "scheduling.minAvailable", "mpi.", "trainer.", "lifecycle.cleanPodPolicy", "restart.maxRestarts",
    ),
    "trainjob": ("scheduling.minAvailable", "mpi.", "lifecycle.cleanPodPolicy"),
    "mpijob": ("restart.maxRestarts", "trainer."),
    "acjob": ("scheduling.kueueQueue", "mpi.", "trainer."),
}  # fmt: skip
OF_SCRIPTS = ("account", "output", "setup", "directives")  # what Slurm and the other batch systems have alike
OF_PODS = ("extraEnv", "initContainers", "extraContainers", "podTemplate")  # what no other platform than those of Kubernetes has
WHY: Mapping[str, str] = {
    "job restart.maxRestarts": "a Job starts single pods anew while the others wait for it; use jobset or volcano",
    "modelarts resources.cpu": "the flavor has it; use modelarts.flavor",
    "modelarts resources.memory": "the flavor has it; use modelarts.flavor",
    "modelarts envFrom": "ModelArts has no Secrets and ConfigMaps; use env, and for what is secret a file on a volume of modelarts.volumes",
    "modelarts volumes": "ModelArts mounts nfs, pfs and obs alone; use modelarts.volumes",
    "modelarts volumeMounts": "a volume of modelarts.volumes says itself where it is mounted",
    "modelarts scheduling.queue": "use modelarts.poolId",
    "modelarts scheduling.priorityClass": "use modelarts.priority",
    "modelarts muster.secretName": "use env.RANKLAUNCH_SECRET_FILE, with a file that all nodes see",
    "slurm envFrom": "use env, or a line of slurm.setup that sources a file",
    "slurm scheduling.queue": "Slurm's queues are partitions; use slurm.partition",
    "slurm scheduling.priorityClass": "use slurm.qos",
    "slurm scheduling.nodeSelector": 'use slurm.directives, such as ["--constraint=a100"]',
    "slurm scheduling.affinity": 'use slurm.directives, such as ["--exclude=node017"]',
    "slurm muster.secretName": "use env.RANKLAUNCH_SECRET_FILE; without it the script makes a key of yours",
    "slurm shm.sizeLimit": "/dev/shm is the node's own",
    "aws_batch workingDir": "a job of AWS Batch has that of its image; let the program be a script that goes elsewhere",
    "aws_batch cloud.spot": "the compute environment of the job queue says it",
    "dstack restart.maxRestarts": "dstack starts a task anew for a time, not so many times (retry); start it anew by its exit code",
    "azureml resources.cpu": "the compute has it; use cloud.compute",
    "azureml resources.memory": "the compute has it; use cloud.compute",
    "azureml restart.maxRestarts": "Azure ML starts jobs anew by itself, where a node of low priority is taken away",
    "sky lifecycle.deadlineSeconds": "SkyPilot ends no job by its time; use --down and --idle-minutes-to-autostop of sky launch",
    "sky restart.noRetryExitCodes": "SkyPilot has no codes after which it never starts anew",
    **{f"{kind} restart.maxRestarts": "the system starts a job anew after lost hosts alone (batch.directives)" for kind in BY_SCRIPT},
    **{f"{kind} image.repository": "the program runs on the hosts themselves; let batch.setup start a container" for kind in BY_SCRIPT},
    **{f"{kind} {path}": "use batch.queue" for kind in BY_SCRIPT for path in ("scheduling.queue", "slurm.partition")},
    **{f"{kind} slurm.{name}": f"use batch.{name}" for kind in BY_SCRIPT for name in OF_SCRIPTS},
    **{f"slurm batch.{name}": f"use slurm.{name}" for name in OF_SCRIPTS},
    "slurm batch.queue": "use slurm.partition",
    "lsf resources.memory": 'its unit is the cluster\'s; use batch.directives, such as ["-M 400GB"]',
    "flux resources.memory": "Flux gives no memory",
    "mpijob restart.maxRestarts": "an MPIJob starts the launcher alone anew, whatever its exit code; use jobset or volcano",
}
NO_IMAGE = ("sky", *BY_SCRIPT)  # may do without one
MOST_BYTES_OF_VARIABLE = 128 * 1024
MOST_MODELARTS_VARIABLES, MOST_MODELARTS_NAME, MOST_MODELARTS_VALUE = 100, 8192, 4096
_WITHOUT_GPUS = {"ranktable": "npu", "msrun": "npu or cpu"}  # methods of MindSpore, and what they compute on


def problems(spec: JobSpec) -> list[str]:
    """Every one, each with the path of the value that is wrong."""
    of_kind = refuse_kubernetes.OF_EACH if spec.engine in OF_KUBERNETES else ()
    return [problem for rule in (*COMMON, *of_kind, OF_ENGINE[spec.engine]) for problem in rule(spec)]


def _foreign(spec: JobSpec) -> Iterator[str]:
    of_others = tuple(group for group, kinds in OWN.items() if spec.engine not in kinds)
    foreign = FOREIGN[spec.engine] + of_others + (() if spec.engine in OF_KUBERNETES else OF_PODS)
    for path, value, key in keys.given(spec):
        if path.startswith(foreign) and value != key.default:
            why = WHY.get(f"{spec.engine} {path}", f"{spec.engine} has no place for it; leave it out")
            yield f"{path}: {why}"


def _program(spec: JobSpec) -> Iterator[str]:
    if bool(spec.script) == bool(spec.module):
        which = "both are given; leave one out" if spec.script else "neither is given: what is to run? Put it at the end, after --"
        yield f"script={spec.script!r}, module={spec.module!r}: {which}"
    if spec.script.startswith("-"):
        yield f"script={spec.script!r}: begins with a dash; ./{spec.script} is a file of that name"
    if not spec.image.repository and not (spec.engine in NO_IMAGE or (spec.engine == "slurm" and spec.slurm.container == "none")):
        yield "image.repository: required (--image)"
    # Names in a registry are ASCII; for Slurm it may be a file.
    if re.search(r"[\s\0]|^-" if spec.engine == "slurm" else r"[^!-~]|^-", spec.image.repository):
        yield f"image.repository={spec.image.repository!r}: expected the name of an image"
    if spec.name_suffix:
        yield "nameSuffix: the Helm chart's alone; put what should follow into name"


def _image(spec: JobSpec) -> Iterator[str]:
    given = spec.image
    beside = f"image.tag is {given.tag}" if given.tag else "image.digest is given" if given.digest else ""
    wrong = what_is_wrong(given.repository, beside) if spec.engine != "slurm" else ""  # whose programs name images in ways of their own
    if wrong:
        yield f"image.repository={given.repository!r}: {wrong}"


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
    if spec.muster.secret_name and "RANKLAUNCH_SECRET" in spec.env:
        yield "env.RANKLAUNCH_SECRET: that of muster.secretName; leave one of the two out"
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
    if spec.mode in _WITHOUT_GPUS and spec.device.kind == "gpu":
        yield f"mode={spec.mode}: expected device.kind {_WITHOUT_GPUS[spec.mode]}"
    if spec.tf.ps and spec.engine != "volcano":
        yield f"tf.ps={spec.tf.ps}: {spec.engine} has one kind of pod; use volcano"
    if spec.tf.ps and spec.mode != "tensorflow":
        yield f"tf.ps={spec.tf.ps}: expected mode tensorflow, found {spec.mode}"


def _restart(spec: JobSpec) -> Iterator[str]:
    why = WHY.get(f"{spec.engine} restart.maxRestarts") or ("" if spec.restart.max_restarts else "expected restart.maxRestarts above 0")
    if spec.restart.on_eviction == "restart" and why:
        yield f"restart.onEviction=restart: {why}"


COMMON = (_foreign, _program, _image, _devices, _environment, _size, _method, _restart)


# Others than those of Kubernetes


def _modelarts(spec: JobSpec) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spec.name):
        yield f"name={spec.name!r}: expected 1 to 64 letters, digits, dashes and underscores"
    if not flavor(spec):
        sizes = ", ".join(map(str, POOL_FLAVORS))
        yield f"modelarts.flavor: required (--flavor), unless modelarts.poolId is set (--pool-id) and devicesPerNode is one of {sizes}"
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
            yield f"modelarts.{place}: expected a name and an obsUrl in each, as strings, and if wanted a localDir"


def _channel(channel: Mapping[str, object]) -> bool:
    required, known = {"name", "obsUrl"}, {"name", "obsUrl", "localDir"}
    return required <= set(channel) <= known and all(isinstance(value, str) and value for value in channel.values())


def _names_of_variables(spec: JobSpec) -> Iterator[str]:
    for name in spec.env:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            yield f"env.{name}: expected letters, digits and underscores"


def _slurm(spec: JobSpec) -> Iterator[str]:
    yield from _names_of_variables(spec)
    yield from slurm.problems(spec)


def _elsewhere(spec: JobSpec) -> Iterator[str]:
    yield from _names_of_variables(spec)
    yield from (hpc if spec.engine in BY_SCRIPT else clouds).problems(spec)


OF_ENGINE = {
    **refuse_kubernetes.OF_ENGINE, "modelarts": _modelarts, "slurm": _slurm, **dict.fromkeys((*OF_CLOUDS, *BY_SCRIPT), _elsewhere),
}  # fmt: skip
