"""A TrainJob with a runtime of charts/ranklaunch-runtimes: from its pods' environment, ranklaunch reads the job that is meant."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import helpers
import pytest

from testbench import engine_pods
from testbench.engine_pods import Asked
from testbench.judges.charts import RUN, RUNTIME_CASES, RUNTIMES, Object, case_id, helm, of_kind, parse, rendered
from testbench.judges.schemas import pod_templates

NODES, DEVICES = 2, 8
NAMES = [f"ranklaunch-{device}{policy}" for device in ("gpu", "npu") for policy in ("", "-torch", "-mpi")]
METHODS = {"torch": "torchrun", "mpi": "mpirun"}
EVERY = next(path for path in RUNTIME_CASES if case_id(path) == "default")
FILES = {"gpu": "nvidia", "npu": "davinci"}


def runtime_called(name: str) -> Object:
    return next(each for each in parse(rendered("4", EVERY, RUNTIMES)) if each["metadata"]["name"] == name)


def by_the_chart(name: str, device: str) -> Object:
    values = {
        "engine": "trainjob", "nodes": NODES, "devicesPerNode": DEVICES, "device.kind": device, "image.repository": "a/b",
        "script": "train.py", "trainer.runtime": name, "trainer.runtimeKind": "ClusterTrainingRuntime",
    }  # fmt: skip
    words = [word for path, value in values.items() for word in ("--set", f"{path}={value}")]
    done = helm("4", "template", "demo", RUN, *words)
    assert done.returncode == 0, done.stderr
    return of_kind(parse(done.stdout), "TrainJob")


def by_hand(name: str, device: str) -> Object:
    """That of the chart's page."""
    (text,) = re.findall(r"```yaml\n(.*?)```", (RUNTIMES / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (job,) = parse(text.replace("ranklaunch-npu", name))
    assert job["spec"]["runtimeRef"] == {"name": name}
    assert (job["spec"]["trainer"]["numNodes"], job["spec"]["trainer"]["numProcPerNode"]) == (NODES, DEVICES)
    return job


def told(container: Object) -> dict[str, str]:
    """As kubelet makes it, with a restart-attempt of 0."""
    written = {engine_pods.WRITTEN["trainjob"]: "0", engine_pods.UIDS["trainjob"]: engine_pods.UID}
    return engine_pods.told(container, written)


def environment(runtime: Object, job: Object, added: Mapping[str, str]) -> dict[str, str]:
    """Of one name, the TrainJob's variable comes over the runtime's, and Trainer's own over both."""
    (pod,) = pod_templates(runtime)
    return {"PATH": "/usr/bin:/bin", **told(pod["spec"]["containers"][0]), **told(job["spec"]["trainer"]), **added}


def container_files(root: Path, device: str, asked: Asked, index: int) -> None:
    for folder in ("dev", "etc"):
        (root / folder).mkdir(parents=True)
    for number in range(DEVICES):
        (root / "dev" / f"{FILES[device]}{number}").touch()
    (root / "etc" / "hosts").write_text(engine_pods.hosts_file(engine_pods.known_as(asked, index)), encoding="utf-8")


@pytest.mark.parametrize("make", [by_the_chart, by_hand])
@pytest.mark.parametrize("name", NAMES)
def test_ranklaunch_reads_the_job(name: str, make: Callable[[str, str], Object], tmp_path: Path) -> None:
    device, _, policy = name.removeprefix("ranklaunch-").partition("-")
    runtime = runtime_called(name)
    job = make(name, device)
    asked = Asked("trainjob", "demo", NODES, DEVICES, torch="torch" in runtime["spec"]["mlPolicy"])
    assert asked.torch == (policy == "torch")
    for index in range(NODES):
        container_files(tmp_path / str(index), device, asked, index)
        env = environment(runtime, job, engine_pods.added(asked, index))
        words = ("--root", str(tmp_path / str(index)), "--", *job["spec"]["trainer"]["args"])
        result = helpers.call("plan", "--format", "json", *words, env=env)
        assert result.code == 0, result.err
        plan = json.loads(result.out)
        assert (plan["platform"], plan["method"]) == ("kubeflow_trainer", METHODS.get(policy, "torchrun"))
        found = plan["job"]
        assert (found["name"], found["node_index"], found["attempt"], found["accelerator"]) == ("demo", index, 1, device)
        assert found["world_size"] == NODES * DEVICES
        assert [node["host"] for node in found["nodes"]] == [f"demo-node-0-{i}.demo" for i in range(NODES)]
