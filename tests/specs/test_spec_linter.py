"""The linter finds nothing in what ranklaunch renders, and each mistake that is put in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helpers
import pytest
import spec_cases

from ranklaunch.specs.model import OF_KUBERNETES
from testbench.judges import linter

pytestmark = pytest.mark.specs

Object = dict[str, Any]


@pytest.mark.parametrize("case", spec_cases.accepted(*OF_KUBERNETES), ids=spec_cases.case_id)
def test_golden_specifications_are_right(case: Path) -> None:
    objects = spec_cases.objects_in(spec_cases.text_of(case))
    assert linter.lint(objects) == []
    assert {f"{each['kind']}/{each['apiVersion']}" for each in objects} & linter.RULES.keys()


def vc(edit: Callable[[Object], object]) -> tuple[str, Callable[[Object], object]]:
    return "volcano_gpu_torchrun", edit


def at(case: str, *path: Any) -> Callable[[Callable[[Any], object]], tuple[str, Callable[[Object], object]]]:
    """A mistake below a path of the last object of a case."""

    def make(edit: Callable[[Any], object]) -> tuple[str, Callable[[Object], object]]:
        def on(each: Object) -> object:
            place: Any = each
            for step in path:
                place = place[step]
            return edit(place)

        return case, on

    return make


JOB = at("job_gpu", "spec")
JOB_POD = at("job_gpu", "spec", "template", "spec")
JOB_CONTAINER = at("job_gpu", "spec", "template", "spec", "containers", 0)
TASK = at("volcano_gpu_torchrun", "spec", "tasks", 0)
JOBSET = at("jobset_gpu_restarts", "spec")
NODE = at("jobset_gpu_restarts", "spec", "replicatedJobs", 0)
RUNTIME_JOB = at("trainjob_gpu", "spec", "template", "spec", "replicatedJobs", 0)
MPI = at("mpijob_gpu", "spec")
AC = at("acjob_msrun", "spec")
AC_POD = at("acjob_msrun", "spec", "replicaSpecs", "Worker", "template")

PATCH = {
    "trainingRuntimeSpec": {
        "template": {
            "spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": {"containers": [{"name": "node", "env": [{}]}]}}}}}]}
        }
    }
}
MUTATIONS: dict[str, tuple[str, Callable[[Object], object]]] = {
    "minAvailable > replicas": vc(lambda job: job["spec"].update(minAvailable=9)),
    "exitCode 0": vc(lambda job: job["spec"]["policies"][0].update(exitCode=0)),
    "one of event and exitCode": vc(lambda job: job["spec"]["policies"][0].update(event="PodEvicted")),
    "action StopJob": vc(lambda job: job["spec"]["policies"][0].update(action="StopJob")),
    "an event twice": vc(lambda job: job["spec"]["policies"].append({"event": "PodFailed", "action": "AbortJob"})),
    "unknown event": vc(lambda job: job["spec"]["policies"].append({"event": "PodRunning", "action": "AbortJob"})),
    "exitCode after PodFailed": vc(lambda job: job["spec"]["policies"].append({"exitCode": 3, "action": "AbortJob"})),
    "unknown plugin": vc(lambda job: job["spec"]["plugins"].update(pytroch=[])),
    "two tasks of one name": vc(lambda job: job["spec"]["tasks"].append(job["spec"]["tasks"][0])),
    "pod's name too long": vc(lambda job: job["metadata"].update(name="x" * 60)),
    "task worker: left to the webhook": TASK(lambda task: task.pop("maxRetry")),
    "task worker: minAvailable": TASK(lambda task: task.update(minAvailable=5)),
    "worker: restartPolicy OnFailure": TASK(lambda task: task["template"]["spec"].update(restartPolicy="OnFailure")),
    "worker: no image": TASK(lambda task: task["template"]["spec"]["containers"][0].pop("image")),
    "worker: mount without volume": TASK(lambda task: task["template"]["spec"].pop("volumes")),
    "worker: requests != limits": TASK(
        lambda task: task["template"]["spec"]["containers"][0]["resources"]["requests"].update({"nvidia.com/gpu": "1"})
    ),
    "worker: no containers": TASK(lambda task: task["template"]["spec"].update(containers=[])),
    "hostNetwork without its dnsPolicy": JOB_POD(lambda pod: pod.update(hostNetwork=True)),
    "two volumes of one name": JOB_POD(lambda pod: pod["volumes"].append(pod["volumes"][0])),
    "two mounts at one path": JOB_CONTAINER(lambda container: container["volumeMounts"].append(container["volumeMounts"][0])),
    "a variable twice": JOB_CONTAINER(lambda container: container["env"].append(container["env"][0])),
    "is not whole": JOB_CONTAINER(
        lambda container: container["resources"].update(limits={"nvidia.com/gpu": "1.5"}, requests={"nvidia.com/gpu": "1.5"})
    ),
    "podFailurePolicy needs restartPolicy Never": JOB_POD(lambda pod: pod.update(restartPolicy="OnFailure")),
    "needs podReplacementPolicy Failed": JOB(lambda job: job.update(podReplacementPolicy="TerminatingOrFailed")),
    "exit codes not in order": JOB(lambda job: job["podFailurePolicy"]["rules"][0]["onExitCodes"].update(values=[3, 2])),
    "exit code 0": JOB(lambda job: job["podFailurePolicy"]["rules"][0]["onExitCodes"].update(values=[0, 2])),
    "unknown container": JOB(lambda job: job["podFailurePolicy"]["rules"][0]["onExitCodes"].update(containerName="main")),
    "successPolicy needs Indexed": JOB(lambda job: job.update(completionMode="NonIndexed", successPolicy={"rules": []})),
    "succeededIndexes beyond": JOB(lambda job: job.update(successPolicy={"rules": [{"succeededIndexes": "0-2"}]})),
    "completions == parallelism": JOB(lambda job: job.update(parallelism=1)),
    "a pod alone would be replaced": JOB(lambda job: job.update(backoffLimit=3)),
    "JobSet: successPolicy targets": JOBSET(lambda spec: spec["successPolicy"].update(targetReplicatedJobs=["launcher"])),
    "JobSet: rule name": JOBSET(lambda spec: spec["failurePolicy"]["rules"][0].update(name="never-again")),
    "JobSet: unknown reason": JOBSET(lambda spec: spec["failurePolicy"]["rules"][0].update(onJobFailureReasons=["ExitCode"])),
    "JobSet: rule targets": JOBSET(lambda spec: spec["failurePolicy"]["rules"][0].update(targetReplicatedJobs=["x"])),
    "JobSet: dependsOn": NODE(lambda job: job.update(dependsOn=[{"name": "x", "status": "Ready"}])),
    "JobSet job worker: podFailurePolicy needs": NODE(
        lambda job: job["template"]["spec"]["template"]["spec"].update(restartPolicy="OnFailure")
    ),
    "JobSet: pod's name": NODE(lambda job: job.update(name="n" * 60)),
    "runtime: two mlPolicies": at("trainjob_gpu", "spec", "mlPolicy")(lambda policy: policy.update(torch={}, mpi={})),
    "runtime: replicas": RUNTIME_JOB(lambda job: job.update(replicas=2)),
    "runtime: no container node": RUNTIME_JOB(
        lambda job: job["template"]["spec"]["template"]["spec"]["containers"][0].update(name="trainer")
    ),
    "runtime: a gang of Volcano": RUNTIME_JOB(lambda job: job["template"]["spec"]["template"]["spec"].pop("schedulerName")),
    "runtime: no job of the step": RUNTIME_JOB(lambda job: job["template"].pop("metadata")),
    "TrainJob: name": at("trainjob_gpu", "metadata")(lambda metadata: metadata.update(name="1demo")),
    "TrainJob: reserved": at("trainjob_gpu", "spec", "trainer", "env")(lambda env: env.append({"name": "PET_NNODES", "value": "2"})),
    "TrainJob: env of node": at("trainjob_gpu", "spec")(lambda spec: spec.update(runtimePatches=[PATCH])),
    "MPIJob: no Launcher": MPI(lambda spec: spec["mpiReplicaSpecs"].pop("Launcher")),
    "MPIJob: launchers": MPI(lambda spec: spec["mpiReplicaSpecs"]["Launcher"].update(replicas=2)),
    "MPIJob: replica type": MPI(lambda spec: spec["mpiReplicaSpecs"].update(Master=spec["mpiReplicaSpecs"]["Launcher"])),
    "MPIJob: no worker": MPI(lambda spec: spec["mpiReplicaSpecs"]["Worker"].update(replicas=0)),
    "MPIJob Worker: restartPolicy": MPI(lambda spec: spec["mpiReplicaSpecs"]["Worker"].update(restartPolicy="Always")),
    "MPIJob: cleanPodPolicy": MPI(lambda spec: spec["runPolicy"].update(cleanPodPolicy="Some")),
    "MPIJob: launcherCreationPolicy": MPI(lambda spec: spec.update(launcherCreationPolicy="Later")),
    "acjob: no framework label": at("acjob_msrun", "metadata", "labels")(lambda labels: labels.pop("framework")),
    "acjob: no chip label": at("acjob_msrun", "metadata", "labels")(lambda labels: labels.pop("ring-controller.atlas")),
    "acjob Worker: no container ascend": AC_POD(lambda pod: pod["spec"]["containers"][0].update(name="main")),
    "acjob Worker: no chip label": AC_POD(lambda pod: pod["metadata"]["labels"].pop("ring-controller.atlas")),
    "acjob: replica type": AC(lambda spec: spec["replicaSpecs"].update(Chief=spec["replicaSpecs"]["Worker"])),
    "acjob: successPolicy": AC(lambda spec: spec.update(successPolicy="Any")),
    "acjob: leader": AC(lambda spec: spec["replicaSpecs"]["Master"].update(replicas=2)),
    "acjob: restarts without end": AC(lambda spec: spec["runPolicy"].pop("backoffLimit")),
    "acjob: schedulingPolicy without queue": AC(lambda spec: spec["runPolicy"]["schedulingPolicy"].pop("queue")),
    "acjob Worker: restartPolicy": AC(lambda spec: spec["replicaSpecs"]["Worker"].update(restartPolicy="Sometimes")),
}


@helpers.for_each(list(MUTATIONS))
def test_mistake_is_found(expected: str) -> None:
    case, edit = MUTATIONS[expected]
    objects = spec_cases.objects_in(spec_cases.text_of(spec_cases.case_of(case)))
    before = copy.deepcopy(objects)
    for each in objects:
        try:
            edit(each)
        except (KeyError, IndexError):  # of the case's objects, the one that the mistake is about
            continue
    assert objects != before
    assert any(expected in problem for problem in linter.lint(objects)), linter.lint(objects)
