"""Mistakes of a first day: the chart and `ranklaunch spec` name the same value and the same remedy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import helpers
import pytest
from chart_slips import SLIPS, Slip, slip_id

from ranklaunch.plan.planning import every_variable
from ranklaunch.redact.redact import environment
from ranklaunch.specs import variables
from testbench import places
from testbench.judges.charts import RELEASE, RUN, RUNTIMES, Object, case, every_helm, helm, load, rendered_with

WARNED, REFUSED = ([slip for slip in SLIPS if slip.warned == warned] for warned in (True, False))
OF_ENV = [slip for slip in REFUSED if set(slip.changes) <= {"env", "extraEnv"} and slip.path != "env"]


def merged(values: Any, changes: Any) -> Any:
    if not (isinstance(values, dict) and isinstance(changes, dict)):
        return changes
    return {**values, **{name: merged(values.get(name), change) for name, change in changes.items()}}


def spec(folder: Path, slip: Slip) -> helpers.Result:
    values: Object = merged(load(case(slip.case)), slip.changes)
    path = folder / "values.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return helpers.call("spec", values["engine"], "--name", RELEASE, "--values", str(path))


def named(text: str, slip: Slip) -> bool:
    return any(slip.path in line and slip.remedy in line for line in text.splitlines())


def test_there_are_enough() -> None:
    assert len(SLIPS) >= 46


@pytest.mark.parametrize("slip", REFUSED, ids=slip_id)
def test_both_refuse(slip: Slip, tmp_path: Path) -> None:
    ours = spec(tmp_path, slip)
    done = rendered_with("4", tmp_path, case(slip.case), slip.changes)
    assert ours.code == 78
    assert done.returncode != 0
    assert done.stdout == ""
    for text in (ours.err, done.stderr):
        assert named(text, slip), text


@pytest.mark.parametrize("slip", WARNED, ids=slip_id)
def test_both_warn(slip: Slip, tmp_path: Path) -> None:
    ours = spec(tmp_path, slip)
    changed = tmp_path / "changes.json"
    changed.write_text(json.dumps(slip.changes), encoding="utf-8")
    done = helm("4", "install", RELEASE, RUN, "--values", case(slip.case), "--values", changed, "--dry-run=client")
    assert ours.code == done.returncode == 0, done.stderr
    warnings = "\n".join(line for line in done.stdout.splitlines() if line.startswith("Warning: "))
    for text in (ours.err, warnings):
        assert named(text, slip), text
        assert not re.search(r"abc\b|abcdefgh", text)  # the secrets of the table


@pytest.mark.parametrize(
    ("folder", "more"),
    [("/tmp/logs", {}), ("/data/logs", {}), ("/data", {}), ("/dev/shm/logs", {}), ("logs", {"workingDir": "/data"})],
)
def test_logs_on_a_volume_are_no_slip(folder: str, more: Object, tmp_path: Path) -> None:
    changes = {"env": {"RANKLAUNCH_LOG_DIR": folder}, "security": {"readOnlyRootFilesystem": True}, **more}
    slip = Slip("security.readOnlyRootFilesystem", changes, "")
    changed = tmp_path / "changes.json"
    changed.write_text(json.dumps(changes), encoding="utf-8")
    done = helm("4", "install", RELEASE, RUN, "--values", case(slip.case), "--values", changed, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    for text in (spec(tmp_path, slip).err, done.stdout):
        assert "can be written" not in text


def test_a_mount_without_a_path_is_one_problem(tmp_path: Path) -> None:
    slip = Slip("volumeMounts", {"volumeMounts": [{"name": "data"}]}, "required")
    ours, theirs = spec(tmp_path, slip).err, rendered_with("4", tmp_path, case(slip.case), slip.changes).stderr
    assert [text.count("volumeMounts") for text in (ours, theirs)] == [1, 1]


def test_a_reference_to_another_variable_is_no_secret(tmp_path: Path) -> None:
    """Kubernetes puts the value of a Secret in for $(NAME)."""
    variables = [{"name": "DB_PASSWORD", "value": "$(PW)"}, {"name": "DB_URL", "value": "postgres://user:$(PW)@db/train"}]
    slip = Slip("extraEnv", {"extraEnv": variables}, "")
    changed = tmp_path / "changes.json"
    changed.write_text(json.dumps(slip.changes), encoding="utf-8")
    done = helm("4", "install", RELEASE, RUN, "--values", case(slip.case), "--values", changed, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    for text in (spec(tmp_path, slip).err, done.stdout):
        assert "for all to read" not in text


@every_helm
def test_the_chart_of_runtimes_refuses_such_variables(major: str, tmp_path: Path) -> None:
    """All of env and extraEnv at once, but names that a runtime refuses for reasons of its own."""
    own = ("RANKLAUNCH_NODES", "PET_NNODES")
    slips = [slip for slip in OF_ENV if not slip.path.endswith(own)]
    env = {name: value for slip in slips for name, value in slip.changes.get("env", {}).items()}
    more = [each for slip in slips for each in slip.changes.get("extraEnv", ())]
    changed = tmp_path / "changes.json"
    changed.write_text(json.dumps({"env": env, "extraEnv": more}), encoding="utf-8")
    done = helm(major, "template", RELEASE, RUNTIMES, "--values", changed)
    assert done.returncode != 0
    for slip in slips:
        said = slip.remedy if "RANKLAUNCH_" in slip.path + slip.remedy else "removes it before ranks start"
        assert named(done.stderr, slip._replace(remedy=said)), slip


@every_helm
@pytest.mark.parametrize("slip", [slip for slip in SLIPS if slip.path in ("env", "image")], ids=slip_id)
def test_the_chart_of_runtimes_knows_shapes_of_kubernetes(major: str, slip: Slip, tmp_path: Path) -> None:
    changed = tmp_path / "changes.json"
    changed.write_text(json.dumps(slip.changes), encoding="utf-8")
    done = helm(major, "template", RELEASE, RUNTIMES, "--values", changed)
    assert done.returncode != 0
    assert named(done.stderr, slip), done.stderr


SAMPLES = (
    *("", " ", "0", "1", "7", "65535", "0.5", ".5", "5.", "1e3", "-1", "5m", "three", "on", "Off", "TRUE", "false", "yes", "no", "none"),
    *("observe", "Stop", "restart", "maybe", "SIGUSR1", "usr2", "TERM", "HUP", "100M", "1G", "32g", "2,3", "2;3", "8", " 8 ", "wait"),
    *("whole", "program", "fold", "all", "cores", "ssh", "5678", "nan", "inf", "kill", "NONE"),
)  # fmt: skip


def test_patterns_take_what_parsers_take() -> None:
    """A value that ranklaunch reads is never refused. What it does not read may pass: numbers beyond a limit, and free texts."""
    known = {name: variable for variable in every_variable() for name in variable.names}
    forms = variables.table()["forms"]
    assert set(forms) == {name for name in known if name.startswith(variables.PREFIX)}
    for name, form in forms.items():
        for text in SAMPLES:
            taken = not form or not text.strip() or bool(re.match(form["pattern"], text))
            assert taken or not _reads(known[name].parse, text), (name, text)
    assert sum(bool(form) for form in forms.values()) > 60


def _reads(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


NAMES = (
    *("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MY_PW", "SSH_KEY", "AUTH", "GITHUB_TOKEN", "S3_ACCESS_KEY_ID"),
    *("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "NUM_TOKENS_PER_BATCH", "PAD_TOKEN_ID", "TOKEN_DROPOUT", "KEY_FRAMES", "SECRET_NAME", "PWD"),
    *("OMP_NUM_THREADS", "NCCL_DEBUG", "PATH", "HOME", "PASSES", "RANKLAUNCH_PASS", "SECRET_URL", "TOKEN_COUNT"),
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets_are_the_same(name: str) -> None:
    secrets = variables.table()["secrets"]
    found = bool(re.search(secrets["names"], name)) and not re.search(secrets["plain"], name)
    assert found == (environment({name: "abc"})[name] != "abc")


def test_variables_are_those_of_the_tables() -> None:
    tool = places.module("tools/spec_variables.py")
    assert tool.PAGE.read_text(encoding="utf-8") == tool.made(), "run tools/chart_values.py"
