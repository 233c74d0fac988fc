"""What is meant by a key that there is not: as others call it, as it is called in another group, or as it is nearly spelt."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from ranklaunch.errors import nearest

# What means something else in each group.
AMBIGUOUS = {"count", "enabled", "kind", "label", "name", "resource", "secretname", "source"}
# How other charts, engines and launchers call it, without case, dashes and underscores.
FAMILIAR: Mapping[str, str] = {
    "resources.limits": "devicesPerNode for devices, resources.cpu and resources.memory, and device.extra for others",
    "resources.requests": "devicesPerNode for devices, resources.cpu and resources.memory, and device.extra for others",
    "device.count": "devicesPerNode",
    "image.name": "image.repository",
    "image.registry": "image.repository, which has the registry in it",
    "shm.size": "shm.sizeLimit",
    **dict.fromkeys(
        ("accelerators", "devices", "gpu", "gpucount", "gpus", "gpuspernode", "nproc", "nprocpernode", "npu", "npus", "npuspernode",
         "numgpus", "numprocpernode", "processespernode", "rankspernode", "slots", "slotsperworker", "taskspernode"),
        "devicesPerNode",
    ),
    **dict.fromkeys(
        ("completions", "nnodes", "nodecount", "numnodes", "numworkers", "parallelism", "replicacount", "replicas", "worker", "workers"),
        "nodes",
    ),
    **dict.fromkeys(("cmd", "command", "entrypoint", "program"), "script, and args for its arguments"),
    **dict.fromkeys(("arguments", "scriptargs"), "args"),
    **dict.fromkeys(("environment", "envs", "envvars", "variables"), "env"),
    **dict.fromkeys(("configmaps", "extraenvfrom", "secrets"), "envFrom"),
    **dict.fromkeys(("backend", "framework", "launcher", "method", "strategy"), "mode"),
    **dict.fromkeys(("jobtype", "kind", "orchestrator", "platform", "type"), "engine"),
    **dict.fromkeys(("fullnameoverride", "jobname", "nameoverride"), "name"),
    **dict.fromkeys(("cwd", "workdir"), "workingDir"),
    **dict.fromkeys(("limits", "requests"), "devicesPerNode for devices, resources.cpu and resources.memory, and device.extra for others"),
    **dict.fromkeys(("sharedmemory", "shmsize"), "shm.sizeLimit"),
    **dict.fromkeys(("extravolumes", "persistence", "pvc", "storage"), "volumes, and volumeMounts"),
    "extravolumemounts": "volumeMounts",
    **dict.fromkeys(("priority", "priorityclassname"), "scheduling.priorityClass"),
    **dict.fromkeys(("gang", "minmember", "minreplicas"), "scheduling.minAvailable"),
    **dict.fromkeys(("clusterqueue", "kueue", "localqueue"), "scheduling.kueueQueue"),
    "queuename": "scheduling.queue, or scheduling.kueueQueue with Kueue",
    **dict.fromkeys(("backofflimit", "maxretries", "maxretry", "restarts", "retries", "restartpolicy"), "restart.maxRestarts"),
    **dict.fromkeys(("activedeadlineseconds", "deadline", "maxruntime", "timelimit", "timeout"), "lifecycle.deadlineSeconds"),
    **dict.fromkeys(("ttl", "ttlsecondsafterfinished"), "lifecycle.ttlSeconds"),
    **dict.fromkeys(("graceperiod", "terminationgraceperiodseconds"), "lifecycle.gracePeriodSeconds"),
    **dict.fromkeys(("imagepullsecrets", "imagepullsecret", "registrysecret"), "image.pullSecrets"),
    "imagepullpolicy": "image.pullPolicy",
    **dict.fromkeys(("containersecuritycontext", "podsecuritycontext", "securitycontext"), "security, and podTemplate.securityContext"),
    **dict.fromkeys(("serviceaccount", "serviceaccountname"), "serviceAccountName"),
    **dict.fromkeys(("extracontainer", "containers", "sidecar", "sidecars"), "extraContainers"),
    **dict.fromkeys(("extrainitcontainers", "initcontainer"), "initContainers"),
    **dict.fromkeys(("extraenvvars", "valuefrom"), "extraEnv"),
    **dict.fromkeys(("commonlabels", "podlabels"), "labels"),
    **dict.fromkeys(("commonannotations", "podannotations"), "annotations"),
    **dict.fromkeys(("pod", "podspec", "template"), "podTemplate"),
    **dict.fromkeys(
        ("dnsconfig", "dnspolicy", "hostaliases", "hostipc", "hostpid", "hostusers", "nodename", "preemptionpolicy", "runtimeclass",
         "runtimeclassname", "schedulinggates", "shareprocessnamespace", "topologyspreadconstraints"),
        "podTemplate, which has it as Kubernetes does",
    ),
}  # fmt: skip


def hint(path: str, known: Iterable[str], legal: Iterable[str] = ()) -> str:
    """What follows a key that there is not. known: the paths of all that there are. legal: the names that its group has."""
    name = plain(path.rpartition(".")[2])
    places = index(known)
    for word in (plain(path), name):
        if word in FAMILIAR or word in places:
            return f"; here it is {FAMILIAR.get(word) or places[word]}"
    near = difflib.get_close_matches(name, places, n=1, cutoff=0.8)
    if near:
        return f", did you mean '{places[near[0]]}'?"
    near = difflib.get_close_matches(name, FAMILIAR, n=1, cutoff=0.8)
    return f"; here it is {FAMILIAR[near[0]]}" if near else nearest(name, legal)


def meant(name: str, known: Iterable[str]) -> str:
    """The key that others call so; "" where there is none."""
    return FAMILIAR.get(plain(name)) or index(known).get(plain(name), "")


def index(known: Iterable[str]) -> dict[str, str]:
    """The path that a name stands for, where one alone can be meant: of two, the one that is less deep."""
    places: dict[str, str] = {}
    for path in sorted(known, key=lambda each: each.count(".")):
        places.setdefault(plain(path.rpartition(".")[2]), path)
    return {word: path for word, path in places.items() if word not in AMBIGUOUS}


def plain(name: str) -> str:
    """Without what differs from habit to habit."""
    return re.sub("[-_]", "", name).lower()
