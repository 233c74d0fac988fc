"""LeaderWorkerSet, old PyTorchJobs, AIHC, TI-ONE, PaddleJobs, Beaker, Determined, MosaicML and OCI."""

from __future__ import annotations

import helpers
import pytest
from golden_cases import recorded

from ranklaunch.adapters.platforms import choose

PLACES = ("leaderworkerset", "aihc", "pytorchjob", "tione", "paddlejob", "beaker", "determined", "mosaicml", "oci")
SAMPLES = {case.folder: case for case in recorded() if case.folder in PLACES and case.name.endswith(("/two-nodes", "/three-nodes"))}


def chosen(env: dict[str, str], files: dict[str, str] | None = None) -> str:
    return choose(helpers.reader(env, files or {})).NAME


@helpers.for_each(PLACES)
def test_ranklaunch_variables_come_first(name: str) -> None:
    own = {"RANKLAUNCH_HOSTS": "x,y", "RANKLAUNCH_NODES": "2", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_SLOTS": "3"}
    told = {**own, "RANKLAUNCH_METHOD": "spawn", "RANKLAUNCH_JOB_NAME": "own", "RANKLAUNCH_ATTEMPT": "4"}
    found = helpers.plan({**SAMPLES[name].env, **told}, files=SAMPLES[name].files).job
    assert ([node.host for node in found.nodes], found.node_index, found.node.slots) == (["x", "y"], 0, 3)
    assert (found.platform, found.name, found.attempt) == (name, "own", 4)


def test_a_rank_of_a_launcher_in_an_old_pytorchjob_is_no_node_of_it() -> None:
    assert chosen({**SAMPLES["pytorchjob"].env, "LOCAL_RANK": "0"}) == "local"


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
