"""Rules for rendered objects that no schema has: mistakes that an API server accepts, and that the engine then refuses or never runs.

The rules are those of the engines' controllers and webhooks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Object = dict[str, Any]
VOLCANO_PLUGINS = {"env", "svc", "ssh", "tensorflow", "mpi", "pytorch", "hcclrank", "ray", "configmap1980"}
VOLCANO_EVENTS = {"*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated"}
VOLCANO_ACTIONS = {"AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob", "ResumeJob"}
JOB_REASONS = {"BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"}
RESERVED_ENV = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


def lint(objects: list[Object]) -> list[str]:
    """Return the mistakes of all objects."""
    return [problem for each in objects for problem in (*RULES.get(each["kind"] + "/" + each["apiVersion"], _nothing)(each),)]


def _nothing(each: Object) -> Iterator[str]:
    return iter(())


def _pod(template: Object, place: str, restart: tuple[str, ...] = ("Never",)) -> Iterator[str]:
    pod = template["spec"]
    if pod.get("restartPolicy") not in restart:
        yield f"{place}: restartPolicy {pod.get('restartPolicy')}"
    volumes = [volume.get("name") for volume in pod.get("volumes", [])]
    if len(set(volumes)) < len(volumes):
        yield f"{place}: two volumes of one name"
    if pod.get("hostNetwork") and pod.get("dnsPolicy", "ClusterFirst") == "ClusterFirst":
        yield f"{place}: hostNetwork without its dnsPolicy"
    if not pod.get("containers"):
        yield f"{place}: no containers"
    for container in pod.get("containers", []):
        yield from _container(container, volumes, place)


def _container(container: Object, volumes: list[str], place: str) -> Iterator[str]:
    if not container.get("image"):
        yield f"{place}: no image"
    mounts = container.get("volumeMounts", [])
    if unknown := {mount.get("name") for mount in mounts} - set(volumes):
        yield f"{place}: mount without volume {sorted(map(str, unknown))}"
    if len({mount.get("mountPath") for mount in mounts}) < len(mounts):
        yield f"{place}: two mounts at one path"
    names = [variable["name"] for variable in container.get("env", [])]
    if len(set(names)) < len(names):
        yield f"{place}: a variable twice"
    yield from _resources(container.get("resources", {}), place)


def _resources(resources: Object, place: str) -> Iterator[str]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name in {*requests, *limits}:
        if "/" not in name:
            continue
        if requests.get(name, limits.get(name)) != limits.get(name):
            yield f"{place}: requests != limits of {name}"
        if not re.fullmatch("[0-9]+", str(limits.get(name))):
            yield f"{place}: {limits.get(name)} of {name} is not whole"


def _job_spec(spec: Object, place: str) -> Iterator[str]:
    pod = spec["template"]["spec"]
    yield from _pod(spec["template"], place, ("Never", "OnFailure"))
    containers = {container["name"] for container in pod.get("containers", [])}
    indexed = spec.get("completionMode") == "Indexed"
    rules = spec.get("podFailurePolicy", {}).get("rules", [])
    if rules and pod.get("restartPolicy") != "Never":
        yield f"{place}: podFailurePolicy needs restartPolicy Never"
    if rules and spec.get("podReplacementPolicy", "Failed") != "Failed":
        yield f"{place}: podFailurePolicy needs podReplacementPolicy Failed"
    for codes in (rule["onExitCodes"] for rule in rules if "onExitCodes" in rule):
        values = codes["values"]
        if values != sorted(set(values)):
            yield f"{place}: exit codes not in order"
        if 0 in values and codes["operator"] == "In":
            yield f"{place}: exit code 0"
        if codes.get("containerName", next(iter(containers), "")) not in containers:
            yield f"{place}: unknown container {codes['containerName']}"
    if "successPolicy" in spec and not indexed:
        yield f"{place}: successPolicy needs Indexed"
    for rule in spec.get("successPolicy", {}).get("rules", []):
        if any(int(index) >= spec["completions"] for index in re.findall("[0-9]+", rule.get("succeededIndexes", ""))):
            yield f"{place}: succeededIndexes beyond completions"
    if indexed and spec.get("completions") != spec.get("parallelism"):
        yield f"{place}: a gang needs completions == parallelism"


def _job(job: Object) -> Iterator[str]:
    yield from _job_spec(job["spec"], "Job")
    if job["spec"].get("backoffLimit") != 0:
        yield "Job: a pod alone would be replaced"


def _volcano(job: Object) -> Iterator[str]:
    spec = job["spec"]
    tasks = spec["tasks"]
    if spec.get("minAvailable", 0) > sum(task["replicas"] for task in tasks):
        yield "vcjob: minAvailable > replicas"
    if len({task["name"] for task in tasks}) < len(tasks):
        yield "vcjob: two tasks of one name"
    if unknown := set(spec.get("plugins", {})) - VOLCANO_PLUGINS:
        yield f"vcjob: unknown plugin {sorted(unknown)}"
    yield from _policies(spec.get("policies", []), "vcjob")
    for task in tasks:
        place = f"vcjob task {task['name']}"
        if task.get("minAvailable", 0) > task["replicas"]:
            yield f"{place}: minAvailable > replicas"
        if not task.get("maxRetry") or "minAvailable" not in task:  # else applying the manifest again would change the task
            yield f"{place}: left to the webhook, which lets nobody take it away again"
        if len(f"{job['metadata']['name']}-{task['name']}-{task['replicas'] - 1}") > 63:
            yield f"{place}: pod's name too long"
        yield from _policies(task.get("policies", []), place)
        yield from _pod(task["template"], place)


def _policies(policies: list[Object], place: str) -> Iterator[str]:
    events: list[str] = []
    for policy in policies:
        if policy.get("action") not in VOLCANO_ACTIONS:
            yield f"{place}: action {policy.get('action')}"
        if ("exitCode" in policy) == bool(policy.get("event") or policy.get("events")):
            yield f"{place}: one of event and exitCode"
        if policy.get("exitCode") == 0:
            yield f"{place}: exitCode 0"
        if "exitCode" in policy and "PodFailed" in events:
            yield f"{place}: exitCode after PodFailed never matches"
        events += [policy["event"]] if "event" in policy else policy.get("events", [])
    if unknown := set(events) - VOLCANO_EVENTS:
        yield f"{place}: unknown event {sorted(unknown)}"
    if len(set(events)) < len(events) or ("*" in events and len(events) > 1):
        yield f"{place}: an event twice"


def _jobset(jobset: Object) -> Iterator[str]:
    yield from _jobset_spec(jobset["spec"], jobset["metadata"]["name"])


def _jobset_spec(spec: Object, name: str) -> Iterator[str]:
    jobs = {job["name"]: job for job in spec["replicatedJobs"]}
    if unknown := set(spec.get("successPolicy", {}).get("targetReplicatedJobs", [])) - set(jobs):
        yield f"JobSet: successPolicy targets {sorted(unknown)}"
    for rule in spec.get("failurePolicy", {}).get("rules", []):
        if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"]):
            yield f"JobSet: rule name {rule['name']}"
        if unknown := set(rule.get("onJobFailureReasons", [])) - JOB_REASONS:
            yield f"JobSet: unknown reason {sorted(unknown)}"
        if unknown := set(rule.get("targetReplicatedJobs", [])) - set(jobs):
            yield f"JobSet: rule targets {sorted(unknown)}"
    for job in jobs.values():
        if unknown := {each["name"] for each in job.get("dependsOn", [])} - set(jobs):
            yield f"JobSet: dependsOn {sorted(unknown)}"
        inner = job["template"]["spec"]
        yield from _job_spec(inner, f"JobSet job {job['name']}")
        if len(f"{name}-{job['name']}-{job.get('replicas', 1) - 1}-{inner.get('completions', 1) - 1}-xxxxx") > 63:
            yield "JobSet: pod's name too long"


def _runtime(runtime: Object) -> Iterator[str]:
    policy = runtime["spec"].get("mlPolicy", {})
    if len(set(policy) - {"numNodes"}) > 1:
        yield "runtime: two mlPolicies"
    spec = runtime["spec"]["template"]["spec"]
    problems = _jobset_spec(spec, runtime["metadata"]["name"])
    of_job = runtime["kind"] == "ClusterTrainingRuntime"  # for these each TrainJob sets the image
    yield from (problem for problem in problems if not (of_job and problem.endswith(": no image")))
    for job in spec["replicatedJobs"]:
        if job["template"].get("metadata", {}).get("labels", {}).get("trainer.kubeflow.org/trainjob-ancestor-step") != "trainer":
            continue
        if job.get("replicas", 1) != 1:
            yield "runtime: replicas of the trainer's job"
        if "volcano" in runtime["spec"].get("podGroupPolicy", {}) and not job["template"]["spec"]["template"]["spec"].get("schedulerName"):
            yield "runtime: a gang of Volcano that another scheduler places"
        if "node" not in {container["name"] for container in job["template"]["spec"]["template"]["spec"]["containers"]}:
            yield "runtime: no container node"
        return
    yield "runtime: no job of the step trainer"


def _trainjob(job: Object) -> Iterator[str]:
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", job["metadata"]["name"]):
        yield "TrainJob: name"
    trainer = job["spec"].get("trainer", {})
    if reserved := {variable["name"] for variable in trainer.get("env", [])} & RESERVED_ENV:
        yield f"TrainJob: reserved {sorted(reserved)}"
    yield from _resources(trainer.get("resourcesPerNode", {}), "TrainJob")
    for patch in job["spec"].get("runtimePatches", []):
        for inner in patch.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", []):
            pod = inner.get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
            if any(container["name"] == "node" and container.get("env") for container in pod.get("containers", [])):
                yield "TrainJob: env of node is patched"


def _mpijob(job: Object) -> Iterator[str]:
    spec = job["spec"]
    replicas = spec["mpiReplicaSpecs"]
    if "Launcher" not in replicas:
        yield "MPIJob: no Launcher"
    if replicas.get("Launcher", {}).get("replicas", 1) != 1:
        yield "MPIJob: launchers"
    if set(replicas) - {"Launcher", "Worker"}:
        yield "MPIJob: replica type"
    if replicas.get("Worker", {}).get("replicas", 1) < 1:
        yield "MPIJob: no worker"
    if spec.get("runPolicy", {}).get("cleanPodPolicy") not in ("None", "Running", "All"):
        yield "MPIJob: cleanPodPolicy"
    if spec.get("launcherCreationPolicy", "AtStartup") not in ("AtStartup", "WaitForWorkersReady"):
        yield "MPIJob: launcherCreationPolicy"
    for name, role in replicas.items():
        if role.get("restartPolicy") not in ("Never", "OnFailure"):
            yield f"MPIJob {name}: restartPolicy {role.get('restartPolicy')}"
        yield from _pod(role["template"], f"MPIJob {name}")


def _acjob(job: Object) -> Iterator[str]:
    spec = job["spec"]
    leaders = {"pytorch": "Master", "mindspore": "Scheduler", "tensorflow": "Chief"}
    leader = leaders.get(job["metadata"].get("labels", {}).get("framework", ""))
    if not leader:
        yield "acjob: no framework label"
    if "ring-controller.atlas" not in job["metadata"].get("labels", {}):
        yield "acjob: no chip label"
    if spec.get("successPolicy", "") not in ("", "AllWorkers"):
        yield "acjob: successPolicy"
    if unknown := set(spec["replicaSpecs"]) - {leader, "Worker"}:
        yield f"acjob: replica type {sorted(unknown)}"
    if spec["replicaSpecs"].get(leader, {}).get("replicas") != 1:
        yield "acjob: leader"
    if spec.get("runPolicy", {}).get("backoffLimit", -1) < 0:
        yield "acjob: restarts without end"
    if "schedulingPolicy" in spec.get("runPolicy", {}) and not spec["runPolicy"]["schedulingPolicy"].get("queue"):
        yield "acjob: schedulingPolicy without queue"
    for name, role in spec["replicaSpecs"].items():
        if role.get("restartPolicy") not in ("Never", "OnFailure", "Always", "ExitCode"):
            yield f"acjob {name}: restartPolicy {role.get('restartPolicy')}"
        containers = {container["name"]: container for container in role["template"]["spec"].get("containers", [])}
        if "ascend" not in containers:
            yield f"acjob {name}: no container ascend"
        if "ring-controller.atlas" not in role["template"].get("metadata", {}).get("labels", {}):
            yield f"acjob {name}: no chip label on the pod"
        yield from _pod(role["template"], f"acjob {name}")


RULES: dict[str, Callable[[Object], Iterator[str]]] = {
    "Job/batch/v1": _job,
    "Job/batch.volcano.sh/v1alpha1": _volcano,
    "JobSet/jobset.x-k8s.io/v1alpha2": _jobset,
    "TrainingRuntime/trainer.kubeflow.org/v1alpha1": _runtime,
    "ClusterTrainingRuntime/trainer.kubeflow.org/v1alpha1": _runtime,
    "TrainJob/trainer.kubeflow.org/v1alpha1": _trainjob,
    "MPIJob/kubeflow.org/v2beta1": _mpijob,
    "AscendJob/mindxdl.gitee.com/v1": _acjob,
}
