"""Contradictions in specifications for Kubernetes: rules for all its engines, then for each engine."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from ranklaunch.env.settings import MUSTER_PORT
from ranklaunch.specs import keys
from ranklaunch.specs.kubernetes import check, containers
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.pod import OWN_VOLUMES, device, launchers_alone, mounts, ports, volumes

# End of the longest name that an engine makes from the job's name. The whole name must fit a DNS label.
SUFFIXES: Mapping[str, str] = {
    "volcano": "-worker-{last}",
    "jobset": "-worker-0-{last}-xxxxx",
    "job": "-{last}-xxxxx",
    "trainjob": "-node-0-{last}-xxxxx",
    "mpijob": "-launcher-xxxxx",
    "acjob": "-worker-{last}",
}
RESERVED_BY_TRAINER = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
OF_ASCEND_JOBS = ("framework", "fault-scheduling", "fault-retry-times")  # labels that the Ascend Operator reads
NOT_OF_ASCEND_JOBS = ("hostUsers", "schedulingGates")  # fields of pods that are newer than AscendJob's definition
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
OWN_LABELS = ("ranklaunch/", "app.kubernetes.io/", "kueue.x-k8s.io/", "ring-controller.", "batch.kubernetes.io/")
MOST_OF_OBJECTS = 20  # reported problems of one value


def _name(spec: JobSpec) -> Iterator[str]:
    if not re.fullmatch("[a-z](?:[-a-z0-9]*[a-z0-9])?", spec.name):
        yield f"name={spec.name!r}: expected small letters, digits and dashes, beginning with a letter"
        return
    suffix = SUFFIXES[spec.engine].format(last=max(spec.nodes, spec.tf.ps) - 1)
    if len(spec.name) + len(suffix) > 63:
        yield f"name={spec.name!r}: {len(spec.name)} characters, expected at most {63 - len(suffix)}, for pods are called NAME{suffix}"


def _labels(spec: JobSpec) -> Iterator[str]:
    of_operator = OF_ASCEND_JOBS if spec.engine == "acjob" else ()
    for place, names, reserved in (("labels", spec.labels, of_operator), ("annotations", spec.annotations, ())):
        for name in names:
            if name in reserved or name.startswith(OWN_LABELS):
                remedy = "; set scheduling.kueueQueue" if name == KUEUE_QUEUE else ""
                yield f"{place}.{name}: the engine's or ranklaunch's own{remedy}"


def _resources(spec: JobSpec) -> Iterator[str]:
    """Refuse two requests for one resource: only the last would count."""
    rdma, devices = spec.network.rdma.resource, device(spec)
    if rdma and rdma == devices:
        yield f"network.rdma.resource={rdma!r}: the devices' own"
    path_of = {"cpu": "resources.cpu", "memory": "resources.memory", devices: "devicesPerNode", rdma: "network.rdma.count"}
    has_cpu_or_memory = bool(spec.resources.cpu or spec.resources.memory)
    for name in spec.device.extra:
        why = f"made from {path_of[name]}; set that" if name in path_of else _why_not_extra(name, has_cpu_or_memory)
        if why:
            yield f"device.extra.{name}: {why}"


def _why_not_extra(name: str, has_cpu_or_memory: bool) -> str:
    """Return the reason why a pod cannot request a resource, "" if it can. has_cpu_or_memory: the pod requests CPUs or memory too."""
    if name.startswith("hugepages-"):
        return "" if has_cpu_or_memory else "expected resources.cpu or resources.memory too, without which Kubernetes gives none"
    if "/" in name or name == "ephemeral-storage":
        return ""
    return f"Kubernetes has no such resource; one of a device plugin has a slash, as vendor.example/{name}"


def _ports(spec: JobSpec) -> Iterator[str]:
    network = spec.network
    for name, port in (("sshPort", network.ssh_port), ("masterPort", network.master_port), ("musterPort", network.muster_port)):
        if 0 < port < 1024 and spec.security.run_as_user:
            yield f"network.{name}={port}: expected 1024 or more, for security.runAsUser={spec.security.run_as_user} is not root"
    metrics = spec.metrics.port if spec.metrics.enabled else 0
    if 0 < metrics < 1024 and spec.security.run_as_user:
        yield f"metrics.port={metrics}: expected 1024 or more, for security.runAsUser={spec.security.run_as_user} is not root"
    set_ports = [port for port in (network.ssh_port, network.master_port, network.muster_port or MUSTER_PORT.default) if port]
    if len(set(set_ports)) < len(set_ports):
        yield (
            "network.masterPort, network.musterPort, network.sshPort: expected different ports; "
            f"musterPort is {MUSTER_PORT.default} unless it is set"
        )
    if metrics and metrics in (*set_ports, *ports(spec, with_metrics=False).values(), MUSTER_PORT.default):
        yield f"metrics.port={metrics}: expected another port than those of network"


def _shapes(spec: JobSpec) -> Iterator[str]:
    """Check the user's objects in Kubernetes' form."""
    for path, value, key in keys.every_value(spec):
        if key.of:
            wrong = check.problems(path, key.of + "[]" * (key.kind == keys.OBJECTS), value)
            yield from itertools.islice(wrong, MOST_OF_OBJECTS)
            if next(wrong, ""):
                yield f"{path}: and more of these"


def _volumes(spec: JobSpec) -> Iterator[str]:
    names = [volume.get("name") for volume in spec.volumes]
    own_names = [volume["name"] for volume in volumes(spec)[: -len(names) or None]]
    yield from _names_of_volumes(names)
    own_paths = [mount["mountPath"] for mount in mounts(spec)[: -len(spec.volume_mounts) or None]]
    yield from containers.mounts("volumeMounts", spec.volume_mounts, names, own_paths)
    yield from containers.problems(spec, [*own_names, *names])


def _names_of_volumes(names: Sequence[object]) -> Iterator[str]:
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(keys.LABEL, name):
            yield f"volumes: name {name!r}: expected {keys.FORMS[keys.LABEL]}"
        elif name in OWN_VOLUMES:
            yield f"volumes: name {name!r}: ranklaunch's own"
    if len({str(name) for name in names}) < len(names):
        yield "volumes: expected different names"


def _pull_secrets(spec: JobSpec) -> Iterator[str]:
    yield from containers.each_once("image.pullSecrets", spec.image.pull_secrets)


def _security(spec: JobSpec) -> Iterator[str]:
    for name in spec.security.capabilities:
        if name.startswith("CAP_"):
            yield f"security.capabilities: {name}: expected {name[4:]}, as Kubernetes calls it"
    context = spec.pod_template.get("securityContext")
    for name in ("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup"):
        if isinstance(context, Mapping) and name in context:
            key = "runAsUser" if name == "runAsNonRoot" else name
            yield f"podTemplate.securityContext.{name}: made from security.{key}; set that"


def _host_namespaces(spec: JobSpec) -> Iterator[str]:
    """Refuse namespaces of the host that a pod cannot have together, and dnsPolicy None without name servers."""
    pod = {**spec.pod_template, "hostNetwork": spec.network.host_network}
    shared = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)] if pod.get("hostUsers") is False else []
    for name in shared:
        yield f"podTemplate.hostUsers=false: expected no {name}: Kubernetes refuses a user namespace together with it"
    config = pod.get("dnsConfig")
    if pod.get("dnsPolicy") == "None" and not (isinstance(config, Mapping) and config.get("nameservers")):
        yield "podTemplate.dnsPolicy=None: expected nameservers in podTemplate.dnsConfig"


def _tolerations(spec: JobSpec) -> Iterator[str]:
    for index, each in enumerate(spec.scheduling.tolerations):
        path = f"scheduling.tolerations[{index}]"
        if each.get("operator") == "Exists" and each.get("value"):
            yield f"{path}.value: expected none with operator Exists"
        if not each.get("key") and each.get("operator") != "Exists":
            yield f"{path}.key: required, unless operator is Exists"
        if each.get("tolerationSeconds") is not None and each.get("effect") != "NoExecute":
            yield f"{path}.tolerationSeconds: expected effect NoExecute"


def _rank_table(spec: JobSpec) -> Iterator[str]:
    table = spec.rank_table
    if table.source == "ascend-operator" and table.config_map_name not in ("", f"rings-config-{spec.name}"):
        yield f"rankTable.configMapName={table.config_map_name!r}: the Ascend Operator writes only rings-config-{spec.name}"


def _pods(spec: JobSpec) -> Iterator[str]:
    pods = spec.nodes + spec.tf.ps + launchers_alone(spec)
    if spec.scheduling.min_available > pods:
        yield f"scheduling.minAvailable={spec.scheduling.min_available}: expected at most {pods}, the number of pods"


def _code_limit(spec: JobSpec) -> Iterator[str]:
    codes = spec.restart.no_retry_exit_codes
    if len(set(codes)) < len(codes):
        yield f"restart.noRetryExitCodes={list(codes)}: expected each code once"


def _affinity(spec: JobSpec) -> Iterator[str]:
    """Refuse an affinity in another form than Kubernetes': terms will be added to its lists."""
    for name in ("podAffinity", "podAntiAffinity"):
        rules = spec.scheduling.affinity.get(name)
        terms = rules.get("requiredDuringSchedulingIgnoredDuringExecution") if isinstance(rules, Mapping) else None
        if not (rules is None or isinstance(rules, Mapping)) or not (terms is None or isinstance(terms, list)):
            yield f"scheduling.affinity.{name}: expected an object, with lists of terms"


# A text is the name of a list in rules.json.
OF_EACH = (
    _affinity, _name, "labels", _labels, _resources, "hosts", _ports, _shapes, _volumes, _pull_secrets, _security, _host_namespaces,
    _tolerations, "monitoring", "rank_table", _rank_table, _pods, _code_limit,
)  # fmt: skip


# One engine each


def _no_rules(spec: JobSpec) -> Iterator[str]:
    return iter(())


def _trainjob(spec: JobSpec) -> Iterator[str]:
    for place, names in (("env.", spec.env), ("extraEnv: ", [each.get("name") for each in spec.extra_env])):
        yield from (f"{place}{name}: Kubeflow Trainer's own" for name in RESERVED_BY_TRAINER if name in names)
    if spec.trainer.runtime:
        holds = f"the runtime {spec.trainer.runtime!r} sets it"
        yield from (f"{path}: {holds}; leave it or trainer.runtime out" for path in _pod_values(spec))


def _pod_values(spec: JobSpec) -> Iterator[str]:
    """Yield the paths of given values that belong to the pod. An existing runtime has a pod of its own."""
    beginnings = (
        "envFrom", "workingDir", "volumes", "volumeMounts", "shm.", "network.hostNetwork", "network.rdma.", "scheduling.", "restart.",
        "security.", "serviceAccountName", "image.pull", "lifecycle.ttlSeconds", "lifecycle.gracePeriodSeconds", "initContainers",
        "extraContainers", "podTemplate", "metrics.podMonitor",
    )  # fmt: skip
    for path, value, key in keys.every_value(spec):
        if path.startswith(beginnings) and path != "scheduling.kueueQueue" and value != key.default:
            yield path


def _mpijob(spec: JobSpec) -> Iterator[str]:
    if spec.network.host_network and spec.nodes + launchers_alone(spec) > 1:
        yield "network.hostNetwork: an MPIJob's worker takes its index from its host name, which is the host's there; use volcano or jobset"


def _acjob(spec: JobSpec) -> Iterator[str]:
    own_ports = ports(spec, with_metrics=False)
    if len(set(own_ports.values())) < len(own_ports):
        listed = " and ".join(f"{port} ({name})" for name, port in own_ports.items())
        yield f"network.masterPort, network.musterPort: expected different ports, found {listed}"
    yield from (f"podTemplate.{name}: an AscendJob's definition has none" for name in NOT_OF_ASCEND_JOBS if name in spec.pod_template)
    sidecars = [*spec.extra_containers, *(each for each in spec.init_containers if each.get("restartPolicy"))]
    if sidecars:
        place = "extraContainers" if spec.extra_containers else "initContainers: restartPolicy"
        yield f"{place}: an AscendJob's definition has no sidecars, and it would wait for them for ever; use volcano"
    retried = [code for code in spec.restart.no_retry_exit_codes if code >= 128]
    if spec.restart.max_restarts and retried:
        yield f"restart.noRetryExitCodes={retried}: an AscendJob restarts after every code from 128 on; expected codes below 128"


OF_ENGINE = {
    **dict.fromkeys(("volcano", "jobset", "job"), _no_rules), "trainjob": _trainjob, "mpijob": _mpijob, "acjob": _acjob,
}  # fmt: skip
