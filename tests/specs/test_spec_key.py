"""Where the nodes of a job get the key of their muster from: nothing that another can guess from the specification, and nothing that two
renders would not have in common."""

from __future__ import annotations

import re

import helpers
import pytest

from ranklaunch.specs.pod import DERIVED, UIDS

NODES = ("--nodes", "2", "--devices", "1")
GIVEN = '"valueFrom": {"secretKeyRef": {"name": "keys", "key": "secret"}}'


def spec(kind: str, *options: str, script: str = "train.py") -> helpers.Result:
    device = ("--device-kind", "npu" if kind == "acjob" else "gpu")
    own = ("--set", "modelarts.flavor=x") if kind == "modelarts" else ()
    found = helpers.call("spec", kind, "--name", "llm", "--image", "train:1", *device, *NODES, *own, *options, "--", script)
    assert found.code == 0, found.err
    return found


@pytest.mark.parametrize("kind", UIDS)
def test_the_engine_has_an_id(kind: str) -> None:
    source = f'"RANKLAUNCH_JOB_UID", "valueFrom": {{"fieldRef": {{"fieldPath": "{UIDS[kind]}"}}}}'
    found = spec(kind).out
    assert source in found
    assert found == spec(kind).out
    assert "RANKLAUNCH_JOB_UID" not in spec(kind, "--nodes", "1").out


@pytest.mark.parametrize("kind", [*UIDS, "mpijob"])
def test_a_secret_of_the_users(kind: str) -> None:
    found = spec(kind, "--set", "muster.secretName=keys").out
    assert f'{{"name": "RANKLAUNCH_SECRET", {GIVEN}}}' in found
    assert "RANKLAUNCH_JOB_UID" not in found


def test_an_mpijob_has_the_key_that_its_operator_makes() -> None:
    key = '"RANKLAUNCH_JOB_UID", "valueFrom": {"secretKeyRef": {"name": "llm-ssh", "key": "ssh-privatekey"}}'
    assert spec("mpijob").out.count(key) == 2
    assert spec("mpijob", "--nodes", "1", "--set", "mpi.launcherAsWorker=false").out.count(key) == 2
    assert "RANKLAUNCH_JOB_UID" not in spec("mpijob", "--nodes", "1").out


def test_an_ascendjob_has_an_id_where_volcano_places_it() -> None:
    assert "RANKLAUNCH_JOB_UID" in spec("acjob", "--set", "scheduling.schedulerName=volcano").out
    assert "RANKLAUNCH_JOB_UID" not in spec("acjob", "--set", "scheduling.schedulerName=other").out


def test_slurm_has_a_file_of_the_users() -> None:
    assert "key=$HOME/.config/ranklaunch/key" in spec("slurm", "--cpu", "8").out
    for options in (("--nodes", "1"), ("--env", "RANKLAUNCH_SECRET_FILE=/home/me/key")):
        assert "ranklaunch/key" not in spec("slurm", "--cpu", "8", *options).out


def test_modelarts_has_none_and_says_so() -> None:
    assert "which others may guess" in spec("modelarts").err
    assert "guess" not in spec("modelarts", "--env", "RANKLAUNCH_SECRET_FILE=/cache/key").err
    assert "guess" not in spec("modelarts", "--nodes", "1").err


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("job", ("--env", "RANKLAUNCH_JOB_UID=x"), f"env.RANKLAUNCH_JOB_UID: made from {DERIVED['RANKLAUNCH_JOB_UID']}; set that"),
        ("job", ("--env", "RANKLAUNCH_SECRET=x"), "env.RANKLAUNCH_SECRET: muster.secretName sets it too"),
        ("slurm", (), "muster.secretName"),
    ],
)
def test_two_keys_are_refused(kind: str, options: tuple[str, ...], said: str) -> None:
    words = ("--name", "llm", "--image", "train:1", "--set", "muster.secretName=keys", *options, "--", "train.py")
    found = helpers.call("spec", kind, *words)
    assert found.code != 0
    assert re.search(re.escape(said), found.err)
