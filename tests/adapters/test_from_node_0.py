"""What of node 0's environment goes to the ranks of other nodes, by mpirun and by DeepSpeed's launchers on node 0."""

from __future__ import annotations

from collections.abc import Callable

import helpers
import pytest

from ranklaunch.plan.model import Plan

Forwarded = Callable[..., set[str]]


def by_mpirun(**env: str) -> set[str]:
    words = plan("mpirun", **env).processes[0].argv
    return {words[i + 1].partition("=")[0] for i, word in enumerate(words) if word == "-x"}


def by_pdsh(**env: str) -> set[str]:
    found = plan("deepspeed", RANKLAUNCH_DEEPSPEED_LAUNCHER="pdsh", **env)
    (text,) = [file.text for file in found.files if file.path.endswith("/deepspeed_env")]
    return {line.partition("=")[0] for line in text.splitlines()}


def plan(method: str, **env: str) -> Plan:
    hosts = {
        "PATH": "/usr/bin",
        "HOME": "/root",
        "RANKLAUNCH_HOSTS": "a,b",
        "RANKLAUNCH_NODE": "0",
        "RANKLAUNCH_SLOTS": "2",
        "RANKLAUNCH_PLATFORM": "local",
    }
    return helpers.plan({**hosts, **env}, method=method)


OF_NODE_0 = """
    HCCL_IF_IP HCCL_LOGIC_SUPERPOD_ID NVIDIA_VISIBLE_DEVICES ASCEND_VISIBLE_DEVICES POD_IP POD_NAME NODE_NAME
    SLURM_PROCID SLURM_LOCALID SLURM_STEP_GPUS SLURM_JOB_GPUS SLURM_NTASKS SLURM_JOB_NAME_X HOSTNAME
    SKYPILOT_NODE_RANK DSTACK_NODE_RANK DSTACK_JOB_ID AWS_BATCH_JOB_NODE_INDEX AZUREML_CR_NODE_RANK RUNPOD_POD_ID NODE_RANK
    LEPTON_JOB_WORKER_INDEX MF_PARALLEL_NODE_INDEX BATCH_TASK_INDEX
    JOB_COMPLETION_INDEX NPU_POD PDSH_RCMD_TYPE HYDRA_LAUNCHER OMPI_MCA_btl ORTE_X DS_ENV_FILE RANK
"""
OF_THE_JOB = "HCCL_SOCKET_IFNAME HCCL_EXEC_TIMEOUT POD_NAMESPACE MY_NODE_NAME SLURM_JOB_ID SLURM_JOB_NAME SLURM_SUBMIT_DIR \
    SKYPILOT_TASK_ID DSTACK_RUN_NAME AWS_BATCH_JOB_ID AZUREML_RUN_ID"


@helpers.for_each([(way, name) for way in (by_mpirun, by_pdsh) for name in OF_NODE_0.split()])
def test_what_is_node_0s_own_stays_there(forwarded: Forwarded, name: str) -> None:
    assert name not in forwarded(**{name: "10.0.0.1"})


@helpers.for_each([(way, name) for way in (by_mpirun, by_pdsh) for name in OF_THE_JOB.split()])
def test_what_is_the_jobs_arrives(forwarded: Forwarded, name: str) -> None:
    assert name in forwarded(**{name: "eth0"})


@pytest.mark.parametrize("forwarded", [by_mpirun, by_pdsh])
@pytest.mark.parametrize(
    ("value", "arrives"),
    [("0,1", True), ("2", True), ("GPU-8f2c,GPU-91d0", False), ("MIG-1c2d", False), ("MIG-GPU-8f2c/1/0", False)],
)
@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_devices_by_number_are_those_of_every_node(forwarded: Forwarded, name: str, value: str, arrives: bool) -> None:
    assert (name in forwarded(**{name: value})) == arrives
