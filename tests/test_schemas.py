"""docs/schemas/: made from the types, strict, and true of all that commands say; api/test_api.py shows that of every golden plan."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.verdict.events import EVENTS
from ranklaunch.verdict.model import Culprit, Judgement, KnownError, Verdict, Victim, as_json
from testbench import places
from testbench.judges import formats


@pytest.mark.one_python
@pytest.mark.skipif(sys.version_info < (3, 10), reason="types cannot be asked for their parts")
def test_they_are_made_from_the_types() -> None:
    made = places.module("tools/schemas.py").files()
    earlier = places.module("tools/schemas.py").EARLIER
    there = {path.name: path.read_text(encoding="utf-8") for path in formats.FOLDER.iterdir() if path.name not in earlier}
    assert there == made, "run make generate and read the diff"


def verdict() -> dict[str, Any]:
    error = KnownError("name", "cause", "line", "meaning", "remedy", "source", "no")
    culprit = Culprit(1, None, None, 137, "SIGKILL", True, ("a line",), "rank 3", "host", "2026-01-01T00:00:00+00:00", error)
    made = Verdict(Judgement("failed", 137, "a reason", culprit, (culprit,), ("a note",)), (Victim(0, 0, "SIGTERM"),), "t", "t")
    return json.loads(json.dumps(as_json(made)))  # type: ignore[no-any-return]


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


def test_a_key_that_is_missing_misspelt_or_of_another_type_is_noticed() -> None:
    whole = verdict()
    formats.check("verdict", whole)
    for key in whole:
        with pytest.raises(AssertionError, match=f"verdict: '{key}' is a required property"):
            formats.check("verdict", without(whole, key))
    for key in whole["culprit"]:
        with pytest.raises(AssertionError, match=r"verdict\.culprit"):
            formats.check("verdict", {**whole, "culprit": without(whole["culprit"], key)})
    for wrong, told in (({"culprits": None}, "culprits"), ({"exit_code": "1"}, "exit_code"), ({"outcome": "won"}, "outcome")):
        with pytest.raises(AssertionError, match=told):
            formats.check("verdict", {**whole, **wrong})


def test_each_event_has_its_own() -> None:
    kinds = formats.schema("events")["$defs"]
    assert {kind["properties"]["event"]["const"] for kind in kinds.values()} == {event.name for event in EVENTS}
    done = {"event": "done", "time": "t", "monotonic": 1.5}
    formats.check_events([done])
    formats.check("events", done)
    for wrong in ({**done, "more": 1}, without(done, "time"), {**done, "event": "dome"}):
        with pytest.raises(AssertionError):
            formats.check_events([wrong])


def test_what_commands_say_fits(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    (tmp_path / "log").write_text("ModuleNotFoundError: No module named 'torch'\nsomething else\n")
    (tmp_path / "empty").write_text("")
    for log in ("log", "empty"):
        formats.check("explain", json.loads(helpers.call("explain", "--format", "json", str(tmp_path / log), env=env).out))
    (tmp_path / "attempt_1").mkdir()
    (tmp_path / "attempt_1" / "verdict.json").write_text(json.dumps(verdict()))
    formats.check("report", helpers.call("report", str(tmp_path), "--format", "json", env=env).json)
    for method in ("spawn", "megatron"):
        options = ("--method", method, "--slots", "4", "--log-dir", str(tmp_path / "logs"), "--python", sys.executable)
        formats.check("plan", helpers.call("plan", *options, "--format", "json", "train.py", env=env).json)
    plans = helpers.call("plan", "--nodes", "2", "--hosts", "a,b", "--all-nodes", "--format", "json", "train.py", env=env).json
    assert len(plans) == 2
    for plan in plans:
        formats.check("plan", plan)


@pytest.mark.parametrize(
    ("env", "code", "told"),
    [
        ({}, 0, {"method": "spawn", "node": 0, "nodes": 1, "ranks": 2, "why": "option --method spawn"}),
        ({"RANKLAUNCH_NODES": "many"}, 78, {"method": None, "why": None, "node": None, "nodes": None, "ranks": None}),
    ],
)
def test_check_as_json(env: dict[str, str], code: int, told: dict[str, Any], tmp_path: Path) -> None:
    options = ("--method", "spawn", "--slots", "2", "--log-dir", str(tmp_path / "logs"), "--python", sys.executable)
    found = helpers.call("check", *options, "--format", "json", env={"PATH": os.environ["PATH"], **env})
    document = json.loads(found.out)
    formats.check("check", document)
    assert (found.code, document["exit_code"]) == (code, code)
    assert {name: document[name] for name in told} == told
    assert {each["exit_code"] for each in document["findings"] if each["kind"] == "wrong"} == {code} - {0}
