"""LeaderWorkerSet, old PyTorchJobs, AIHC, TI-ONE, PaddleJobs, Beaker, Determined, MosaicML and OCI."""

from __future__ import annotations

import helpers
import pytest
from golden_cases import recorded

from ranklaunch.adapters.platforms import choose

PLACES = ("leaderworkerset", "aihc", "pytorchjob", "tione", "paddlejob", "beaker", "determined", "mosaicml", "oci")
SAMPLES = {case.folder: case for case in recorded() if case.folder in PLACES and case.name.endswith(("/two-nodes", "/three-nodes"))}
# Each of these missing, the rest is of no such place.
NEEDED = {
    "leaderworkerset": ("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE"),
    "aihc": ("WORLD_SIZE", "RANK"),
    "pytorchjob": ("WORLD_SIZE", "RANK", "MASTER_ADDR", "HOSTNAME"),
    "tione": ("NODE_LIST", "INDEX", "GPU_NUM_PER_NODE"),
    "paddlejob": ("PADDLE_JOB_ID", "PADDLE_NNODES"),
    "beaker": ("BEAKER_JOB_ID", "BEAKER_NODE_ID"),
    "determined": ("DET_ALLOCATION_ID",),
    "mosaicml": ("MOSAICML_PLATFORM", "NUM_NODES"),
    "oci": ("JOB_RUN_OCID", "NODE_RANK", "INITIAL_CLUSTER_SIZE"),
}


def chosen(env: dict[str, str], files: dict[str, str] | None = None) -> str:
    return choose(helpers.reader(env, files or {})).NAME


@helpers.for_each({f"{name} {missing}": (name, missing) for name, all_of in NEEDED.items() for missing in all_of})
def test_half_an_environment_is_not_the_places(name: str, missing: str) -> None:
    sample = SAMPLES[name]
    assert chosen(sample.env, sample.files) == name
    assert chosen({key: text for key, text in sample.env.items() if key != missing}, sample.files) != name


@helpers.for_each(PLACES)
def test_ranklaunch_variables_come_first(name: str) -> None:
    own = {"RANKLAUNCH_HOSTS": "x,y", "RANKLAUNCH_NODES": "2", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_SLOTS": "3"}
    told = {**own, "RANKLAUNCH_METHOD": "spawn", "RANKLAUNCH_JOB_NAME": "own", "RANKLAUNCH_ATTEMPT": "4"}
    found = helpers.plan({**SAMPLES[name].env, **told}, files=SAMPLES[name].files).job
    assert ([node.host for node in found.nodes], found.node_index, found.node.slots) == (["x", "y"], 0, 3)
    assert (found.platform, found.name, found.attempt) == (name, "own", 4)


LAPTOP = {"BEAKER_TOKEN": "t", "BEAKER_ADDR": "a", "DET_MASTER": "https://d", "MOSAICML_API_KEY": "k", "AIHC_TENSORBOARD_LOG_PATH": "/t"}
ALONE = {
    "a laptop": LAPTOP,
    "a notebook of Determined": {"DET_ALLOCATION_ID": "x", "DET_TASK_ID": "x"},
    "a job of OCI on one node": {"JOB_RUN_OCID": "x", "JOB_OCID": "y"},
    "a list of nodes of somebody's": {"NODE_LIST": "a:8", "INDEX": "0"},
    "a pod with leftovers": {"PADDLE_TRAINER_ID": "0", "LWS_WORKER_INDEX": "0", "MASTER_ADDR": "pj-master-0", "HOSTNAME": "pj-master-0"},
    "ranks of one machine": {"MASTER_ADDR": "localhost", "WORLD_SIZE": "2", "RANK": "1", "HOSTNAME": "my-workstation"},
}


@helpers.for_each(ALONE)
def test_what_is_no_job_of_a_place_is_nobodys(env: dict[str, str]) -> None:
    assert chosen(env) == "local"


def test_a_rank_of_a_launcher_in_an_old_pytorchjob_is_no_node_of_it() -> None:
    assert chosen({**SAMPLES["pytorchjob"].env, "LOCAL_RANK": "0"}) == "local"


# Two signs at once: what is inside, what is around it, and which counts.
PAIRS = {
    "Determined on Slurm": ("slurm/four-nodes", "determined", "slurm"),
    "an image with Volcano's variables in Beaker": ("volcano/plugin-pytorch", "beaker", "beaker"),
    "AIHC's PyTorch operator": ("pytorchjob/three-nodes", "aihc", "aihc"),
    "a newer PyTorchJob": ("kubeflow_trainer/pytorchjob", "pytorchjob", "kubeflow_trainer"),
    "a PyTorch job in PaddlePaddle's image": ("kubeflow_trainer/pytorchjob", "paddlejob", "kubeflow_trainer"),
}


@helpers.for_each(PAIRS)
def test_of_two_places_the_outer_is_taken(other: str, name: str, wanted: str) -> None:
    (around,) = (case for case in recorded() if case.name == other)
    sample = SAMPLES[name]
    assert chosen({**sample.env, **around.env}, {**sample.files, **around.files}) == wanted


def test_nothing_of_a_place_reaches_the_ranks_that_counts_nodes() -> None:
    for name in ("aihc", "pytorchjob", "tione", "mosaicml"):
        for process in helpers.plan(SAMPLES[name].env, method="torchrun").processes:
            assert {"RANK", "WORLD_SIZE", "MASTER_ADDR"} & set(SAMPLES[name].env) <= set(process.unset)


@pytest.mark.parametrize(("run", "attempt"), [("0", 1), ("1", 1), ("3", 3)])
def test_a_run_of_a_trial_is_an_attempt(run: str, attempt: int) -> None:
    sample = SAMPLES["determined"]
    assert helpers.plan({**sample.env, "DET_TRIAL_RUN_ID": run}, files=sample.files).job.attempt == attempt


def test_the_groups_of_a_leaderworkerset_are_jobs_of_their_own() -> None:
    found = [
        helpers.plan({**SAMPLES["leaderworkerset"].env, "HOSTNAME": f"llm-{group}-1", "LWS_LEADER_ADDRESS": f"llm-{group}.llm.train"}).job
        for group in (0, 1)
    ]
    assert [job.name for job in found] == ["llm-0", "llm-1"]
    assert [node.host for node in found[1].nodes] == ["llm-1.llm.train", "llm-1-1.llm.train", "llm-1-2.llm.train"]
