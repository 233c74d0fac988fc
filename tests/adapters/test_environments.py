"""Environments of machines and containers that work alone, from public documents: none is taken for one of several nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent.parent / "environments"
ALONE: list[dict[str, Any]] = tomllib.loads((FOLDER / "single.toml").read_text(encoding="utf-8"))["environment"]
SEVERAL: list[dict[str, Any]] = tomllib.loads((FOLDER / "several.toml").read_text(encoding="utf-8"))["environment"]
# Of these one ranklaunch per rank, shard or job was started, which has to be said.
REFUSED = {
    "Kubernetes Indexed Job, shard 3": "set RANKLAUNCH_NODES",
    "Google Cloud Batch, array task on its own": "BATCH_HOSTS_FILE.* says where node 0 is",
    "Torque job on one node": "only the job's script has PBS's list of hosts",
    "PBS array subjob": "only the job's script has PBS's list of hosts",
    "torchrun, a rank on one machine": "torchrun has started several of ranklaunch",
    "accelerate launch, a rank on one machine": "torchrun has started several of ranklaunch",
    "Open MPI, four processes on one machine": "mpirun has started several of ranklaunch",
    "MPICH or Intel MPI (Hydra), four processes on one machine": "mpirun has started several of ranklaunch",
    "Horovod, horovodrun on localhost": "horovodrun has started several of ranklaunch",
}
# Taken for the only node, with a warning: a rank of another launcher, or a count and an index without the address of another host.
WARNED = {
    "DeepSpeed launcher, a rank on the second node",
    "Composer launcher, a rank on the second node",
    "Bagua launcher, a rank on the second node",
    "Ray Train, a worker on the second node",
    "Prime Intellect prime (DiLoCo), one of four",
    "LitData optimize, machine of four",
}
# Nothing here looks like a count of nodes with an index or an address: each node trains alone. docs/local.md names them too.
MISSED = {
    "Grove PodCliqueScalingGroup, worker pod",
    "NVIDIA NIM for LLMs, multi-node, worker",
    "NVIDIA Base Command Platform, array job",
    "XLearning (Hbox), distributed LightGBM",
    "FfDL (IBM), second learner of two",
    "KungFu, kungfu-run on two hosts",
    "PERSIA operator, nn-worker",
    "DPDispatcher job on two nodes",
    "AWS Neuron PJRT, two instances",
    "H2O-3 cluster on Kubernetes",
    "torchft, second of two replica groups",
}


def test_names_are_there_once() -> None:
    names = [each["name"] for each in ALONE]
    assert len(names) == len({*names}) > 60
    assert {*REFUSED} < {*names}


@helpers.for_each([each for each in ALONE if each["name"] not in REFUSED])
def test_a_machine_alone_is_one_node(environment: dict[str, Any]) -> None:
    plan = helpers.plan(environment["env"])
    assert (len(plan.job.nodes), plan.noted) == (1, ())


@pytest.mark.parametrize("name", REFUSED)
def test_some_are_refused_for_another_reason(name: str) -> None:
    (environment,) = (each["env"] for each in ALONE if each["name"] == name)
    with pytest.raises(ConfigError, match=REFUSED[name]):
        helpers.plan(environment)


@helpers.for_each([each for each in SEVERAL if each["name"] not in MISSED | WARNED])
def test_one_of_several_nodes_does_not_train_alone(environment: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        helpers.plan(environment["env"], files=environment.get("files", {}))


@helpers.for_each([each for each in SEVERAL if each["name"] in WARNED])
def test_some_are_warned(environment: dict[str, Any]) -> None:
    plan = helpers.plan(environment["env"])
    assert (len(plan.job.nodes), len(plan.noted)) == (1, 1)


@helpers.for_each([each for each in SEVERAL if each["name"] in MISSED])
def test_what_is_missed_is_known(environment: dict[str, Any]) -> None:
    plan = helpers.plan(environment["env"])
    assert (len(plan.job.nodes), plan.noted) == (1, ())


def test_the_page_names_what_is_missed() -> None:
    page = (helpers.ROOT / "docs" / "local.md").read_text(encoding="utf-8")
    assert {each["name"] for each in SEVERAL} > MISSED | WARNED
    assert {name for name in MISSED if name.partition(",")[0] not in page} == set()
