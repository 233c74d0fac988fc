"""What runs on a node before the nodes meet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan
from ranklaunch.plan.prelaunch import MEASURE


def plan(index: int, nodes: int = 2, files: dict[str, str] | None = None, **env: str) -> Plan:
    return helpers.plan(helpers.modelarts(nodes, 2, index, **env), files=files, method="spawn")


def test_the_users_command_runs_on_node_0_alone() -> None:
    steps = [plan(index, RANKLAUNCH_ONCE="download | tar x").prepare for index in range(2)]
    assert [[step.argv for step in each] for each in steps] == [[("sh", "-c", "download | tar x")], []]


def test_nobody_would_wait_for_it_without_the_muster() -> None:
    for index in range(2):
        with pytest.raises(ConfigError, match="RANKLAUNCH_ONCE=true: the other nodes would not wait for it with RANKLAUNCH_MUSTER=off"):
            plan(index, RANKLAUNCH_ONCE="true", RANKLAUNCH_MUSTER="off")
    assert len(plan(0, 1, RANKLAUNCH_ONCE="true").prepare) == 1


def test_what_must_be_the_same_is_looked_at_on_each_node() -> None:
    for index in range(2):
        (step,) = plan(index, RANKLAUNCH_SAME="data:/cache").prepare
        assert step.argv[2:] == (f"{step.log[: -len('same.log')]}same.json", f"{helpers.CWD}/data", "/cache")


@pytest.mark.parametrize(("nodes", "muster", "words"), [(1, "on", "one node"), (2, "off", "RANKLAUNCH_MUSTER=off")])
def test_where_nothing_is_compared_nothing_is_looked_at(nodes: int, muster: str, words: str) -> None:
    found = plan(0, nodes, RANKLAUNCH_SAME="data", RANKLAUNCH_MUSTER=muster)
    assert found.prepare == ()
    assert any("RANKLAUNCH_SAME=data has no effect" in warning and words in warning for warning in found.warnings)


DATA = f"{helpers.CWD}/data"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (json.dumps({DATA: "2 files", "/cache": "1 file"}), {"same data": "2 files", "same /cache": "1 file"}),
        ("", {}),
        ("{", {}),
        ("[1]", {}),
        ('{"/x": 1}', {}),
        (json.dumps({DATA: []}), {}),
        ("[" * 100_000, {}),
        (f'{{"{DATA}": {"[" * 900}{"]" * 900}}}', {}),
    ],
)
def test_what_was_found_is_compared(text: str, told: dict[str, str]) -> None:
    before = plan(0, RANKLAUNCH_SAME="data:/cache")
    path = before.prepare[0].argv[2]
    muster = plan(0, files={path: text}, RANKLAUNCH_SAME="data:/cache", RANKLAUNCH_ATTEMPT="1").muster
    assert muster
    assert {name: value for name, value in muster.facts.items() if name.startswith("same")} == told


# The program that looks


def measured(folder: Path, *paths: str) -> tuple[int, dict[str, str], str]:
    outcome = folder / "outcome.json"
    ended = subprocess.run([sys.executable, MEASURE, outcome, *paths], cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, json.loads(outcome.read_text()) if outcome.exists() else {}, ended.stderr


@pytest.mark.processes
def test_folders_are_the_same_whatever_the_order_of_their_files(tmp_path: Path) -> None:
    for folder, names in (("one", ("a", "b/c", "b/d")), ("other", ("b/d", "b/c", "a"))):
        for name in names:
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(name)
    (tmp_path / "half" / "b").mkdir(parents=True)
    (tmp_path / "half" / "a").write_text("a")
    (tmp_path / "half" / "b" / "link").symlink_to(tmp_path)  # which is not entered
    code, found, _ = measured(tmp_path, "one", "other", "half", "one/a")
    assert code == 0
    assert found["one"] == found["other"]
    assert found["one"].startswith("3 files, 7 bytes, names ")
    assert found["half"].startswith("2 files, ")
    assert found["one/a"].startswith("1 file, 1 bytes")


@pytest.mark.processes
def test_a_name_tells_folders_apart(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.bin").write_text("x")
    _, found, _ = measured(tmp_path, "one", "other")
    assert found["one"] != found["other"]


@pytest.mark.processes
def test_what_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    os.symlink("nowhere", tmp_path / "data" / "dangling")
    code, found, said = measured(tmp_path, "nothing", "data")
    assert (code, found) == (78, {})
    assert said.splitlines() == ["nothing: No such file or directory", "data: No such file or directory: data/dangling"]
