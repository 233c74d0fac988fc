"""What a rendered pod and its engine put into a container's environment, ranklaunch reads as the job that the values describe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import helpers
import pytest

from ranklaunch.errors import ConfigError, MissingProgramError
from testbench import engine_pods
from testbench.engine_pods import Asked
from testbench.judges.charts import CASES, RUNTIME_CASES, RUNTIMES, Object, case, case_id, load, of_kind, parse, rendered, rendered_with
from testbench.judges.schemas import pod_templates

WITH_RUNTIME = "trainjob-auto-gpu"  # its pod is the runtime's
HERE = [path for path in CASES if case_id(path) != WITH_RUNTIME]
PLATFORM = {
    "volcano": "volcano", "jobset": "jobset", "job": "indexed_job", "trainjob": "kubeflow_trainer", "mpijob": "mpijob",
    "acjob": "ascend_operator",
}  # fmt: skip
ATTEMPTS = {"job": 1, "mpijob": 1}  # after two restarts; the others say which start it is


def asked(values: Object) -> Asked:
    mpi = values.get("mpi", {})
    slots = mpi.get("slots") or values["devicesPerNode"] or 1
    has_ranks, ps = mpi.get("launcherAsWorker", True), values.get("tf", {}).get("ps", 0)
    return Asked(values["engine"], "demo", values["nodes"], slots, has_ranks, ps, restarts=2)


def containers(job: Asked, objects: list[Object]) -> Iterator[Object]:
    """In node order."""
    templates = list(pod_templates([each for each in objects if each["kind"] != "Pod"]))
    for index in range(job.pods):
        yield templates[-1 if index else 0 if job.engine in {"mpijob", "acjob"} else -1]["spec"]["containers"][0]


def checked(objects: list[Object], folder: Path) -> tuple[str, helpers.Result]:
    """(the number of ranks that the pod of `helm test` is told, what `ranklaunch check` says in it)."""
    pod = of_kind(objects, "Pod")
    (container,) = pod["spec"]["containers"]
    command, *words = container["args"]
    env = {"PATH": "/usr/bin:/bin", **engine_pods.told(container, {})}
    result = helpers.call(command, "--log-dir", str(folder), *words, env=env)
    return words[words.index("--slots") + 1], result


@pytest.mark.parametrize("values", HERE, ids=case_id)
def test_the_pod_of_helm_test_checks_as_many_ranks_as_the_run_has(values: Path, tmp_path: Path) -> None:
    """On one node; programs are missing here, and nothing else is wrong."""
    found = load(values)
    slots, result = checked(parse(rendered("4", values)), tmp_path)
    assert slots == str(found["nodes"] * asked(found).slots)
    assert result.code in (0, MissingProgramError.exit_code), result.out + result.err


@pytest.mark.parametrize(
    ("changes", "slots", "wrong"),
    [
        ({"env": {"RANKLAUNCH_TP": "8"}}, "16", ""),
        ({"env": {"RANKLAUNCH_TP": "4", "RANKLAUNCH_PP": "4"}}, "16", ""),
        ({"env": {"RANKLAUNCH_TP": "3"}}, "16", "16 ranks cannot be divided by tp 3"),
        ({"nodes": 2000, "env": {"RANKLAUNCH_TP": "8"}}, "4096", ""),  # no node has more
    ],
)
def test_the_pod_of_helm_test_knows_right_layouts_from_wrong_ones(changes: Object, slots: str, wrong: str, tmp_path: Path) -> None:
    done = rendered_with("4", tmp_path, case("job-torchrun-gpu"), {"mode": "megatron", **changes})
    assert done.returncode == 0, done.stderr
    told, result = checked(parse(done.stdout), tmp_path)
    assert told == slots
    assert result.code == (ConfigError if wrong else MissingProgramError).exit_code, result.out + result.err
    assert wrong in result.out


@pytest.mark.parametrize("values", HERE, ids=case_id)
def test_ranklaunch_reads_the_job_of_the_values(values: Path, tmp_path: Path) -> None:
    found = load(values)
    job_asked, objects = asked(found), parse(rendered("4", values))
    for index, container in enumerate(containers(job_asked, objects)):
        root = tmp_path / str(index)
        (root / "etc" / "mpi").mkdir(parents=True)
        (root / "etc" / "hosts").write_text(engine_pods.hosts_file(engine_pods.known_as(job_asked, index)), encoding="utf-8")
        if found["engine"] == "mpijob" and not index:
            (root / "etc" / "mpi" / "hostfile").write_text(engine_pods.mpi_host_file(job_asked), encoding="utf-8")
        env = {"PATH": "/usr/bin:/bin", **engine_pods.environment(container, job_asked, index)}
        result = helpers.call("plan", "--format", "json", "--root", str(root), "--", *container["args"], env=env)
        assert result.code == 0, result.err
        job = json.loads(result.out)["job"]
        assert json.loads(result.out)["platform"] == PLATFORM[found["engine"]]
        assert job["name"] == "demo"
        assert job["attempt"] == ATTEMPTS.get(found["engine"], 3)
        assert job["node_index"] == index
        ranks = {"jax": found["nodes"], "ray": 1}  # of methods that start one process for each node, or one for all
        assert job["world_size"] == ranks.get(found.get("mode", ""), found["nodes"] * job_asked.slots)
        assert job["accelerator"] == found.get("device", {}).get("kind", "gpu")


def test_a_runtime_says_itself_how_long_its_pods_have_to_end() -> None:
    """A TrainJob's variables come over those of its runtime, whose pod's period is the one that holds."""
    (values,) = [path for path in RUNTIME_CASES if case_id(path) == "gpu"]
    (pod,) = pod_templates(parse(rendered("4", values, RUNTIMES, "--set", "lifecycle.gracePeriodSeconds=900"))[0])
    (job,) = [each for each in parse(rendered("4", case(WITH_RUNTIME))) if each["kind"] == "TrainJob"]
    told = {each["name"]: each.get("value") for each in [*pod["spec"]["containers"][0]["env"], *job["spec"]["trainer"]["env"]]}
    assert (pod["spec"]["terminationGracePeriodSeconds"], told["RANKLAUNCH_GRACE_S"]) == (900, "895")
