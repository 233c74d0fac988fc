"""Values for the template of each engine."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ranklaunch.specs import pod as common
from ranklaunch.specs import slurm
from ranklaunch.specs.kubernetes.companions import companions
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.places import clouds, hpc

Shape = dict[str, Any]
ASCEND_QUEUE = "default"  # the Ascend Operator accepts no schedulingPolicy without a queue
# Conditions of an evicted pod: set by Kubernetes itself, and by Kueue for the pods that it manages.
PREEMPTED = ("DisruptionTarget", "TerminationTarget")
STOPPED = 143  # exit code of ranklaunch on all nodes after a stop request


def shape(spec: JobSpec) -> Shape:
    """Return the values for the template of the specification's engine."""
    body = clouds.BODIES.get(spec.engine)
    own_values = {"body": body(spec)} if body else SHAPES[spec.engine](spec)
    return {"spec": spec, "exit_codes": sorted(spec.restart.no_retry_exit_codes), "slots": common.slots(spec), **own_values}


def pod(spec: JobSpec, task: str = "", **more: Any) -> Shape:
    """Return the values for a pod. task: the pod's task, if there are several. more: values that replace these."""
    return {
        "labels": {**common.labels(spec), **_ring_label(spec), **({"framework": "pytorch"} if spec.engine == "acjob" else {})},
        "annotations": _sorted(spec.annotations),
        "fields": [*((name, value) for name, value in _fields(spec) if value), *_user_fields(spec)],
        "container": common.CONTAINERS.get(spec.engine, "train"),
        "image": common.image(spec),
        "command": common.COMMAND,
        "args": [common.literal(word) for word in common.program(spec)],
        "env": [*(_variable(each) for each in common.environment(spec, task)), *spec.extra_env],
        "ports": [{"name": name, "containerPort": port} for name, port in common.ports(spec).items()],
        "resources": common.resources(spec),
        "pod_security": common.pod_security(spec),
        "container_security": common.container_security(spec),
        "before": common.init_containers(spec),
        "mounts": common.mounts(spec),
        "volumes": common.volumes(spec),
        **more,
    }


def _variable(variable: Mapping[str, str]) -> Shape:
    if "field" in variable:
        return {"name": variable["name"], "valueFrom": {"fieldRef": {"fieldPath": variable["field"]}}}
    if "secret" in variable:
        return {"name": variable["name"], "valueFrom": {"secretKeyRef": {"name": variable["secret"], "key": variable["key"]}}}
    return {"name": variable["name"], "value": common.literal(variable["value"])}


def _fields(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each field of the pod's spec; a false value means that the field is left out."""
    scheduling = spec.scheduling
    yield "subdomain", spec.name if spec.engine == "job" else ""
    yield "schedulerName", scheduling.scheduler_name or ("volcano" if _needs_volcano(spec) else "")
    yield "priorityClassName", scheduling.priority_class
    yield "serviceAccountName", spec.service_account_name
    yield "imagePullSecrets", [{"name": name} for name in spec.image.pull_secrets]
    yield "hostNetwork", spec.network.host_network
    if not spec.pod_template.get("dnsPolicy"):
        yield "dnsPolicy", "ClusterFirstWithHostNet" if spec.network.host_network else ""
    yield "activeDeadlineSeconds", spec.lifecycle.deadline_seconds if spec.engine == "volcano" else 0
    yield "nodeSelector", _sorted(scheduling.node_selector)
    yield "tolerations", list(scheduling.tolerations)
    yield "affinity", common.affinity(spec)


def _user_fields(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    """Yield the user's own fields of the pod's spec, also those with the value false."""
    for name, value in sorted(spec.pod_template.items()):
        if value is not None and name != "securityContext":
            yield name, value


def _needs_volcano(spec: JobSpec) -> bool:
    """Return True if Volcano's scheduler must be named in each pod: Kubeflow Trainer makes a PodGroup, and leaves schedulerName out."""
    return spec.engine == "acjob" or (spec.engine == "trainjob" and bool(spec.scheduling.queue))


def _sorted(names: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(names.items()))


def _ring_label(spec: JobSpec) -> dict[str, str]:
    source = "ascend-operator" if spec.engine == "acjob" else spec.rank_table.source
    names = {"ascend-operator": ("ring-controller.atlas", "ascend-910b"), "cce": ("ring-controller.cce", "ascend-1980")}
    if source not in names:
        return {}
    name, chip = names[source]
    return {name: spec.rank_table.label or chip}


# Kubernetes


def _objects(spec: JobSpec) -> Shape:
    """Return the values for the templates of every Kubernetes engine."""
    queue = {"kueue.x-k8s.io/queue-name": spec.scheduling.kueue_queue} if spec.scheduling.kueue_queue else {}
    return {
        "object_labels": {**common.labels(spec), **queue, **_ring_label(spec)},
        "object_annotations": _sorted(spec.annotations),
        "pod": pod(spec),
        "companions": companions(spec),
        "config_map": common.config_map(spec),
        "makes_table": spec.rank_table.source == "ascend-operator",
        "table_labels": {**common.labels(spec), **_ring_label(spec)},
    }


def _job(spec: JobSpec) -> Shape:
    return {
        **_objects(spec),
        "rules_of_pods": _rules_of_pods(spec),
        "rules_of_jobs": _rules_of_jobs(spec),
        "deadline_of_job": spec.lifecycle.deadline_seconds,
        "ancestor_step": spec.engine == "trainjob",
    }


def _rules_of_pods(spec: JobSpec) -> list[Shape]:
    """Return the rules of a pod failure policy. A Job ended by such a rule has the reason PodFailurePolicy, and the rule in its message."""
    container = common.CONTAINERS.get(spec.engine, "train")
    by_code = [
        {"action": "FailJob", "onExitCodes": {"containerName": container, "operator": "In", "values": codes}}
        for codes in (sorted(spec.restart.no_retry_exit_codes), _stopped_codes(spec))
        if codes
    ]
    return [*by_code, {"action": "FailJob", "onPodConditions": [{"type": each, "status": "True"} for each in PREEMPTED]}]


def _stopped_codes(spec: JobSpec) -> list[int]:
    """Return the exit code of stopped pods if an eviction must end the job, else [].

    After an eviction all pods of the job end with this code, and only the evicted pod has a condition.
    """
    needs_no_rule = spec.restart.after_eviction or not spec.restart.max_restarts
    return [] if needs_no_rule or STOPPED in spec.restart.no_retry_exit_codes else [STOPPED]


def _rules_of_jobs(spec: JobSpec) -> list[Shape]:
    """Return the rules for a JobSet with a failed Job, by the Job's reason and message. The first match counts.

    Without a match, the JobSet is restarted and the restart is counted. This includes exit code 143 without an eviction's condition: a
    program may end with 143 by itself every time.
    """
    evicted = {
        "name": "evicted", "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": [f"has condition {each} " for each in PREEMPTED],
    }  # fmt: skip
    never = {"name": "neverAgain", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"]}
    return [*([evicted] if spec.restart.after_eviction else []), never]


def _trainjob(spec: JobSpec) -> Shape:
    makes_runtime = not spec.trainer.runtime
    return {
        **_job(spec),
        "deadline_of_job": 0,
        "runtime": spec.name if makes_runtime else spec.trainer.runtime,
        "runtime_kind": "TrainingRuntime" if makes_runtime else spec.trainer.runtime_kind,
    }


def _volcano(spec: JobSpec) -> Shape:
    on_failure = "RestartJob" if spec.restart.max_restarts else "TerminateJob"
    least = spec.scheduling.min_available
    ps = [_task(spec, "ps", spec.tf.ps, spec.tf.ps)] if spec.tf.ps else []
    return {
        **_objects(spec),
        "scheduler": spec.scheduling.scheduler_name or "volcano",
        "min_available": least or spec.nodes + spec.tf.ps,
        "on_failure": on_failure,
        "on_eviction": "RestartJob" if spec.restart.after_eviction else "TerminateJob",
        "exit_codes": [*sorted(spec.restart.no_retry_exit_codes), *_stopped_codes(spec)],
        "tasks": [*ps, _task(spec, "worker", spec.nodes, least or spec.nodes)],
    }


def _task(spec: JobSpec, name: str, replicas: int, least: int) -> Shape:
    template = pod(spec, name if spec.tf.ps else "", resources=common.resources(spec, with_devices=name != "ps"))
    return {"name": name, "replicas": replicas, "min_available": least, "decides": bool(spec.tf.ps) and name == "worker", "pod": template}


def _policy(spec: JobSpec) -> Shape:
    """Return the schedulingPolicy of an MPIJob or an AscendJob."""
    scheduling = spec.scheduling
    queue_name = scheduling.queue or (ASCEND_QUEUE if spec.engine == "acjob" else "")
    queue = {"queue": queue_name} if queue_name else {}
    priority = {"priorityClass": scheduling.priority_class} if scheduling.priority_class else {}
    return {"minAvailable": scheduling.min_available or spec.nodes + common.launchers_alone(spec), **queue, **priority}


def _roles(spec: JobSpec, first: str) -> list[Shape]:
    """Return the leading pod and the workers. first: name of the leader's role."""
    launchers = common.launchers_alone(spec)
    count = spec.nodes - 1 + launchers
    leader = pod(spec, resources=common.resources(spec, with_devices=False)) if launchers else pod(spec)
    workers = [{"name": "Worker", "replicas": count, "pod": pod(spec)}] if count else []
    return [{"name": first, "replicas": 1, "pod": leader}, *workers]


def _mpijob(spec: JobSpec) -> Shape:
    return {**_objects(spec), "scheduling_policy": _policy(spec), "roles": _roles(spec, "Launcher")}


def _acjob(spec: JobSpec) -> Shape:
    """Return the values for an AscendJob, without the label fault-retry-times: it retries after every exit code."""
    objects = _objects(spec)
    faults = {"fault-scheduling": "force" if spec.restart.after_eviction else "off"}
    objects["object_labels"] = {**objects["object_labels"], "framework": "pytorch", **faults}
    return {
        **objects,
        "scheduler": spec.scheduling.scheduler_name or "volcano",
        "scheduling_policy": _policy(spec),
        "roles": _roles(spec, "Master"),
    }


# ModelArts


def _modelarts(spec: JobSpec) -> Shape:
    return {"body": {"kind": "job", "metadata": _metadata(spec), "algorithm": _algorithm(spec), "spec": _placed(spec)}}


def _metadata(spec: JobSpec) -> Shape:
    modelarts, retries = spec.modelarts, spec.restart.max_restarts
    tolerance = {
        "job-retry-num": str(retries) if retries else "",
        "job-unconditional-retry": "true" if modelarts.unconditional_retry else "",
        "hang-retry": "true" if modelarts.hang_retry else "",
    }
    annotations = {f"fault-tolerance/{name}": value for name, value in tolerance.items() if value}
    return {"name": spec.name, **common.non_empty(workspace_id=modelarts.workspace_id, annotations=annotations)}


def _algorithm(spec: JobSpec) -> Shape:
    modelarts = spec.modelarts
    return {
        "engine": {"image_url": common.image(spec)},
        "command": _boot_command(spec),
        **common.non_empty(code_dir=modelarts.code_dir, local_code_dir=modelarts.local_code_dir, working_dir=spec.working_dir),
        "environments": {each["name"]: each["value"] for each in common.environment(spec)},
        **common.non_empty(inputs=[_channel(each) for each in modelarts.inputs], outputs=[_channel(each) for each in modelarts.outputs]),
    }


def _boot_command(spec: JobSpec) -> str:
    """Return the shell command: the lines of setup, then ranklaunch by exec, so that it replaces the shell."""
    words = " ".join(map(_word, [*common.COMMAND, *_program_on_modelarts(spec)]))
    setup = spec.modelarts.setup
    return " && ".join([*setup, f"exec {words}" if setup else words])


def _program_on_modelarts(spec: JobSpec) -> list[str]:
    """Return the program's words. A relative path is looked up in the folder of the code, unless workingDir is set."""
    words, modelarts = common.program(spec), spec.modelarts
    is_of_code = bool(modelarts.code_dir) and not spec.working_dir and not spec.script.startswith(("/", "${"))
    if is_of_code and ("/" in spec.script or spec.script.endswith((".py", ".sh"))):
        folder = modelarts.local_code_dir.rstrip("/") or f"${{MA_JOB_DIR}}/{posixpath.basename(modelarts.code_dir.rstrip('/'))}"
        words[0] = f"{folder}/{spec.script.removeprefix('./')}"
    return words


def _word(text: str) -> str:
    """Quote a word for ModelArts' shell, so that only the platform's variables are replaced in it."""
    parts = re.split(f"({common.OF_MODELARTS})", text)
    return "".join(f'"{part}"' if index % 2 else shlex.quote(part) for index, part in enumerate(parts) if part) or "''"


def _channel(channel: Mapping[str, Any]) -> Shape:
    return {
        "name": channel["name"],
        **common.non_empty(local_dir=channel.get("localDir")),
        "remote": {"obs": {"obs_url": channel["obsUrl"]}},
    }


def _placed(spec: JobSpec) -> Shape:
    modelarts = spec.modelarts
    hours = common.hours_of_deadline(spec)
    return {
        "resource": {"flavor_id": common.flavor(spec), "node_count": spec.nodes, **common.non_empty(pool_id=modelarts.pool_id)},
        **common.non_empty(
            volumes=list(modelarts.volumes),
            log_export_path={"obs_url": modelarts.log_url} if modelarts.log_url else None,
            auto_stop={"time_unit": "HOURS", "duration": hours} if hours else None,
            schedule_policy={"priority": modelarts.priority} if modelarts.priority else None,
        ),
    }


SHAPES: Mapping[str, Callable[[JobSpec], Shape]] = {
    "volcano": _volcano, "jobset": _job, "job": _job, "trainjob": _trainjob, "mpijob": _mpijob, "acjob": _acjob,
    "modelarts": _modelarts, "slurm": slurm.shape, **dict.fromkeys(hpc.DIRECTIVES, hpc.shape),
}  # fmt: skip
