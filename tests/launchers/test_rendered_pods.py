"""What `ranklaunch spec` writes, for real: each pod's container with what its engine adds, as ranklaunch on a host, and what the engine
would do after its end. One of the engines trains with PyTorch; of others is seen that their ranks meet."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import helpers
import pytest
import spec_cases
from pod_jobs import MakePods, Pods, needs_mpi

from testbench import engine_pods
from testbench.engine_pods import Asked, Object
from testbench.places import child

pytestmark = pytest.mark.launchers

BY_TORCH = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print("place", os.environ["RANK"], "sum", int(one), flush=True)
dist.destroy_process_group()
"""
BY_MPI = """
from mpi4py import MPI
print("place", MPI.COMM_WORLD.rank, "sum", MPI.COMM_WORLD.allreduce(1), flush=True)
"""
FAILS = """
import os, sys, time
if os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "3":
    sys.exit(int(sys.argv[1]))
time.sleep(600)
"""
SLEEPS = """
import os, time
print("place", os.environ["RANK"], "ready", flush=True)
time.sleep(600)
"""
CPU = ("--device-kind", "cpu")
RETRIES = ("--max-restarts", "2")
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "volcano": (*CPU, *RETRIES), "jobset": (*CPU, *RETRIES), "job": CPU, "trainjob": (*CPU, *RETRIES),
    "trainjob-torch": (*CPU, "--set", "trainer.runtime=torch-distributed"), "mpijob": CPU,
    "mpijob-alone": (*CPU, "--set", "mpi.launcherAsWorker=false"), "acjob": ("--device-kind", "npu", *RETRIES),
}  # fmt: skip
METHODS = {"volcano": "torchrun", "trainjob-torch": "auto", "mpijob": "mpirun", "mpijob-alone": "mpirun", "acjob": "msrun"}
PROGRAMS = {"trainjob-torch": BY_TORCH, "mpijob": BY_MPI, "mpijob-alone": BY_MPI, "acjob": Path(child("mindspore_sum.py")).read_text()}
# Whether the whole job starts anew after an exit code, as docs/specs.md has it.
AGAIN = {
    "volcano": {5: True, 78: False, 143: True}, "jobset": {5: True, 78: False, 143: True}, "job": {5: False, 78: False, 143: False},
    "trainjob": {5: True, 78: False, 143: True}, "mpijob": {5: False, 78: False, 143: False}, "acjob": {5: False, 78: False, 143: True},
}  # fmt: skip
needs_msrun = pytest.mark.skipif(not shutil.which("msrun", path=str(Path(sys.executable).parent)), reason="needs MindSpore")
MARKS = {"mpijob": [needs_mpi], "mpijob-alone": [needs_mpi], "acjob": [needs_msrun]}
every_kind = pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS.get(kind, [])) for kind in OPTIONS])


def rendered(kind: str, method: str, *program: object, set_: Sequence[str] = ()) -> list[Object]:
    more = [word for each in set_ for word in ("--set", each)]
    options = ("--name", "llm", "--image", "train:1", "--nodes", "2", "--devices", "2", "--method", method, *OPTIONS[kind], *more)
    result = helpers.call("spec", kind.partition("-")[0], *options, "--", *map(str, program))
    assert result.code == 0, result.err
    return spec_cases.objects_in(result.out)


def asked(kind: str) -> Asked:
    return Asked(kind.partition("-")[0], "llm", 2, 2, kind != "mpijob-alone", torch=kind == "trainjob-torch")


def started(make: MakePods, kind: str, objects: list[Object]) -> Pods:
    """Each pod's container, on a host that is called as the pod is. An AscendJob's leader is behind a Service of its declared ports."""
    job_asked = asked(kind)
    services = ["service"] if job_asked.engine == "acjob" else []
    job = make(*(engine_pods.known_as(job_asked, index) for index in range(job_asked.pods)), *services)
    containers = engine_pods.of_pods(objects, job_asked)
    if job_asked.engine == "mpijob":
        job.has_file(0, "etc/mpi/hostfile", engine_pods.mpi_host_file(job_asked))
    if services:
        job_asked = job_asked._replace(master=job.hosts[-1].address)
        job.serve(len(job.hosts) - 1, 0, [port["containerPort"] for port in containers[0]["ports"]])
    assert all(container["command"] == ["ranklaunch", "run", "--"] for container in containers)
    assert len({tuple(container["args"]) for container in containers}) == 1
    envs = [engine_pods.environment(container, job_asked, index) for index, container in enumerate(containers)]
    job.launch(envs, *containers[0]["args"])
    return job


@every_kind
def test_pods_train_together(pods: MakePods, tmp_path: Path, kind: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAMS.get(kind) or Path(child("sums.py")).read_text())
    job = started(pods, kind, rendered(kind, METHODS.get(kind, "spawn"), program))
    job.end(0)
    assert job.places() == [f"{rank} sum 4" for rank in range(4)]


@pytest.mark.skipif(not importlib.util.find_spec("deepspeed"), reason="DeepSpeed is not installed")
def test_ascend_pods_meet_by_deepspeed(pods: MakePods) -> None:
    """An AscendJob's workers are known to nobody, which only a launcher on one node that starts the others needs."""
    job = started(pods, "acjob", rendered("acjob", "deepspeed", child("sums.py")))
    job.end(0)
    assert job.places() == [f"{rank} sum 4" for rank in range(4)]


@every_kind
@pytest.mark.parametrize("code", [5, pytest.param(78, marks=pytest.mark.table)])
def test_pods_end_as_the_first_failing_rank_does(pods: MakePods, tmp_path: Path, kind: str, code: int) -> None:
    program = tmp_path / "train.py"
    program.write_text(FAILS)
    method = "mpirun" if kind in ("mpijob", "mpijob-alone") else "spawn"
    job = started(pods, kind, rendered(kind, method, program, code))
    culprit = job.end(code)["culprit"]
    place = (asked(kind).pods - 1, 3)
    assert (culprit["node"], culprit["rank"]) == (job.culprit_of_mpirun(*place) if method == "mpirun" else place)


def test_workers_and_ps_are_told_of_each_other(pods: MakePods, tmp_path: Path) -> None:
    go = tmp_path / "go"
    words = (child("task.py"), "--do", f"worker0=after:{go}", "--do", f"worker1=after:{go}")
    objects = rendered("volcano", "tensorflow", *words, set_=["tf.ps=1", "devicesPerNode=0"])
    job_asked = Asked("volcano", "llm", 2, 0, ps=1)
    tasks = {task["name"]: task["template"]["spec"]["containers"][0] for task in objects[-1]["spec"]["tasks"]}
    members = [("worker", 0), ("worker", 1), ("ps", 0)]
    job = pods(*(engine_pods.known_as(job_asked, index, task) for task, index in members))
    job.launch([engine_pods.environment(tasks[task], job_asked, index, task) for task, index in members], *tasks["worker"]["args"])
    for node in range(len(members)):
        job.said(node, "ready")  # else the ps may be ended before it has said what it was told
    go.touch()
    assert job.end(0)["reason"] == "all 2 ranks on 3 nodes succeeded"
    told = [json.loads(node.out[node.out.index("{") :].splitlines()[0]) for node in job.nodes]
    assert [each["place"] for each in told] == ["worker0", "worker1", "ps0"]
    known = {task: [known.partition(":")[0] for known in listed] for task, listed in told[0]["config"]["cluster"].items()}
    assert known == {"worker": job.names[:2], "ps": job.names[2:]}
    assert all(each["config"]["cluster"] == told[0]["config"]["cluster"] for each in told)


def test_pods_of_which_one_is_taken_away(pods: MakePods, tmp_path: Path) -> None:
    """All end as it does, so that the engine knows what happened whichever it sees first."""
    program = tmp_path / "train.py"
    program.write_text(SLEEPS)
    job = started(pods, "jobset", rendered("jobset", "spawn", program))
    for node in (0, 1):
        job.said(node, "ready", 2)
    job.nodes[1].popen.send_signal(signal.SIGTERM)
    assert job.end(143)["outcome"] == "stopped"


PREEMPTED = ("DisruptionTarget", "TerminationTarget")  # by Kubernetes' documents, and by Kueue's


@pytest.mark.parametrize(
    ("kind", "on_eviction"),
    [
        (kind, how)
        for kind in ("volcano", "jobset", "trainjob", "acjob")
        for how in ("", "restart", "fail")
        if (kind, how) != ("acjob", "fail")
    ],
)
def test_after_an_eviction(kind: str, on_eviction: str) -> None:
    """Whichever pod is seen first: the one that is gone, killed or in time, or one of the others, which were told to stop. The former alone
    says that it was taken away: a program that ends with 143 by itself starts anew restart.maxRestarts times at most."""
    objects = rendered(kind, "spawn", "train.py", set_=[f"restart.onEviction={on_eviction}"])
    disrupted, terminated = PREEMPTED
    seen = [
        starts_anew(kind, objects, code, evicted) for code, evicted in ((143, disrupted), (143, terminated), (143, ""), (137, disrupted))
    ]
    assert seen == [on_eviction != "fail"] * 4
    if kind in ("jobset", "trainjob"):
        spec = objects[-1]["spec"] if kind == "jobset" else objects[0]["spec"]["template"]["spec"]
        uncounted = [jobset_rule(spec, 143, evicted)["action"] == "RestartJobSetAndIgnoreMaxRestarts" for evicted in (*PREEMPTED, "")]
        assert uncounted == [on_eviction != "fail"] * 2 + [False]


@pytest.mark.parametrize("kind", AGAIN)
def test_engine_starts_anew_after_the_codes_that_the_page_says(kind: str) -> None:
    objects = rendered(kind, "mpirun" if kind == "mpijob" else "spawn", "train.py")
    assert {code: starts_anew(kind, objects, code) for code in AGAIN[kind]} == AGAIN[kind]


def starts_anew(kind: str, objects: list[Object], code: int, evicted: str = "") -> bool:
    """Whether the engine starts all pods anew after one of them has ended with this code. Pods never start alone: each says Never.

    evicted: the condition of a pod that was taken away.
    """
    spec = objects[-1]["spec"]
    assert set(re.findall("'restartPolicy': '([A-Za-z]+)'", str(objects))) <= {"Never", "ExitCode"}
    if kind == "volcano":  # the first policy that fits; a failing pod is event and code in one
        event = "PodEvicted" if evicted else "PodFailed"
        fitting = (each for each in spec["policies"] if each.get("exitCode") == code or each.get("event") == event)
        return bool(next(fitting)["action"] == "RestartJob" and spec["maxRetry"] > 1)
    if kind == "acjob":
        by_code = {role["restartPolicy"] for role in spec["replicaSpecs"].values()} == {"ExitCode"} and code >= 128
        whatever_the_code = int(objects[-1]["metadata"]["labels"].get("fault-retry-times", 0)) > 0
        return bool((by_code or whatever_the_code) and spec["runPolicy"]["backoffLimit"])
    if kind == "mpijob":
        return bool(spec["runPolicy"]["backoffLimit"])
    if kind == "job":
        return not failed(spec, code, evicted)[0]
    jobset = spec if kind == "jobset" else objects[0]["spec"]["template"]["spec"]
    action = jobset_rule(jobset, code, evicted)["action"]
    return bool(action == "RestartJobSetAndIgnoreMaxRestarts" or (action == "RestartJobSet" and jobset["failurePolicy"]["maxRestarts"]))


def failed(job: Object, code: int, evicted: str) -> tuple[str, str]:
    """Reason and message with which the Job ends: by the first rule that fits, or because it may fail no more often. The messages are
    those of Kubernetes' Job controller."""
    names = {each["name"] for each in job["template"]["spec"]["containers"]}
    for index, rule in enumerate(job["podFailurePolicy"]["rules"]):
        assert rule["action"] == "FailJob"
        end = f"matching FailJob rule at index {index}"
        if "onExitCodes" in rule and code in rule["onExitCodes"]["values"]:
            assert rule["onExitCodes"]["containerName"] in names
            return "PodFailurePolicy", f"Container {min(names)} for pod ns/llm-0 failed with exit code {code} {end}"
        if {"type": evicted, "status": "True"} in rule.get("onPodConditions", []):
            return "PodFailurePolicy", f"Pod ns/llm-0 has condition {evicted} {end}"
    assert job["backoffLimit"] == 0
    return "BackoffLimitExceeded", "Job has reached the specified backoff limit"


def jobset_rule(jobset: Mapping[str, Any], code: int, evicted: str) -> Object:
    """The first of the rules that fits reason and message; the controller's own where none does."""
    reason, message = failed(jobset["replicatedJobs"][0]["template"]["spec"], code, evicted)
    for rule in jobset["failurePolicy"].get("rules", []):
        patterns = rule.get("onJobFailureMessagePatterns", [""])
        if reason in rule["onJobFailureReasons"] and any(re.search(pattern, message) for pattern in patterns):
            return dict(rule)
    return {"action": "RestartJobSet"}
