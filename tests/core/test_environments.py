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
    "Torque job on one node": "without a PBS_NODEFILE that can be read here",
    "PBS array subjob": "without a PBS_NODEFILE that can be read here",
    "torchrun, a rank on one machine": "torchrun has started several of ranklaunch",
    "accelerate launch, a rank on one machine": "torchrun has started several of ranklaunch",
    "Open MPI, four processes on one machine": "mpirun has started several of ranklaunch",
    "MPICH or Intel MPI (Hydra), four processes on one machine": "mpirun has started several of ranklaunch",
    "Horovod, horovodrun on localhost": "horovodrun has started several of ranklaunch",
}
# Places whose variables nothing here reads yet: each node trains alone.
MISSED = {
    "Azure Batch AI, TensorFlow worker",
    "Microsoft HPC Pack, task on two Linux nodes",
    "Google AI Platform Training, TF_CONFIG, chief",
    "Kubeflow MXJob, worker",
    "BytePS by hand, worker",
    "BytePS by hand, one process a GPU",
    "MXNet, dmlc tracker on Kubernetes, worker",
    "XGBoost, dmlc tracker over ssh",
    "Backend.AI cluster session, main",
    "Backend.AI cluster session, sub",
    "Grove PodCliqueScalingGroup, worker pod",
    "NVIDIA NIM for LLMs, multi-node, worker",
    "NVIDIA Base Command Platform, array job",
    "Snowflake ML Jobs, several instances",
    "XLearning (Hbox), distributed PyTorch",
    "XLearning (Hbox), distributed XGBoost",
    "XLearning (Hbox), distributed LightGBM",
    "XLearning (Hbox), TensorFlow worker",
    "FfDL (IBM), second learner of two",
    "KungFu, kungfu-run on two hosts",
    "PERSIA operator, nn-worker",
    "DeepSpeed launcher, a rank on the second node",
    "Composer launcher, a rank on the second node",
    "MVAPICH2, 8 processes on four hosts",
    "Cobalt job script on two nodes",
    "LoadLeveler parallel step on two nodes",
    "QCG-PilotJob task on two nodes",
    "DPDispatcher job on two nodes",
    "VESSL AI distributed experiment",
    "Polyaxon 0.x experiment, master",
    "Tencent Taiji, worker of SEED-X scripts",
    "ByteDance Arnold, worker",
    "AWS Neuron PJRT, two instances",
    "Bagua launcher, a rank on the second node",
    "H2O-3 cluster on Kubernetes",
    "spark-tensorflow-distributor, barrier task",
    "TensorFlow TF_CONFIG by hand, two workers",
    "Ray Train, a worker on the second node",
    "torchft, second of two replica groups",
    "Prime Intellect prime (DiLoCo), one of four",
    "MindSpore dynamic cluster, one process a server",
    "LitData optimize, machine of four",
    "pfl-research, native distribution on two machines",
}


def test_names_are_there_once() -> None:
    names = [each["name"] for each in ALONE]
    assert len(names) == len({*names}) > 60
    assert {*REFUSED} < {*names}


@helpers.for_each([each for each in ALONE if each["name"] not in REFUSED])
def test_a_machine_alone_is_one_node(environment: dict[str, Any]) -> None:
    assert len(helpers.plan(environment["env"]).job.nodes) == 1


@pytest.mark.parametrize("name", REFUSED)
def test_some_are_refused_for_another_reason(name: str) -> None:
    (environment,) = (each["env"] for each in ALONE if each["name"] == name)
    with pytest.raises(ConfigError, match=REFUSED[name]):
        helpers.plan(environment)


@helpers.for_each([each for each in SEVERAL if each["name"] not in MISSED])
def test_one_of_several_nodes_does_not_train_alone(environment: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        helpers.plan(environment["env"])


@helpers.for_each([each for each in SEVERAL if each["name"] in MISSED])
def test_what_is_missed_is_known(environment: dict[str, Any]) -> None:
    assert len(helpers.plan(environment["env"]).job.nodes) == 1
