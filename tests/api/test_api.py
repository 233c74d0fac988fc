"""The Python API: its signatures, the same results as the commands, errors as exceptions, and nothing printed, started or loaded early."""

from __future__ import annotations

import doctest
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_cases
import helpers
import pytest
import reports
from left_behind import LeftBehind

import ranklaunch
from ranklaunch import api
from ranklaunch.catalogue import answer
from ranklaunch.fields import names as names_of
from ranklaunch.specs.model import KINDS
from ranklaunch.system import bounded
from testbench import places
from testbench.judges import formats

PAGE = helpers.ROOT / "docs" / "api.md"
LOG = "ranklaunch: last lines of rank 0:\n  x\nstep 1\r\nConnection closed by peer [10.0.0.1]\nRuntimeError: CUDA out of memory.\n"
VALUES = {"name": "llm", "nodes": 2, "devicesPerNode": 8, "script": "train.py", "image": {"repository": "r.example.com/train", "tag": "1"}}

# A change here is a change of the API: docs/api.md and the changelog tell of it.
SIGNATURES = {
    "make_plan": "(env: 'Mapping[str, str]', argv: 'Sequence[str]') -> 'Plan'",
    "make_spec": "(kind: 'str', values: 'Mapping[str, object]') -> 'str'",
    "read_report": "(folder: 'Union[str, os.PathLike[str]]') -> 'Report'",
    "explain_log": "(text: 'str') -> 'Answer'",
    "as_json": "(value: 'Union[Plan, Report, Answer]') -> 'dict[str, Any]'",
}
TYPES = {"Answer", "ConfigError", "Plan", "RanklaunchError", "Report", "UsageError", "WaitError"}
ANSWER = {
    "kind": "Kind", "name": "str", "line": "str", "meaning": "str", "remedy": "str", "retry": "Retry", "source": "str", "family": "str",
    "line_number": "int | None", "skipped_bytes": "int", "others": "tuple[Answer, ...]",
}  # fmt: skip


# Names


def test_signatures_are_as_promised() -> None:
    assert {name: str(inspect.signature(getattr(ranklaunch, name))) for name in SIGNATURES} == SIGNATURES
    assert set(ranklaunch.__all__) == {"__version__", *SIGNATURES, *TYPES}
    assert set(api.__all__) == {*SIGNATURES, *TYPES}
    assert set(ranklaunch.__all__) <= set(dir(ranklaunch))


@pytest.mark.parametrize("name", SIGNATURES)
def test_types_can_be_asked_for_at_run_time(name: str) -> None:
    hints = typing.get_type_hints(getattr(ranklaunch, name))
    assert hints.keys() == {*inspect.signature(getattr(ranklaunch, name)).parameters, "return"}


def test_fields_of_an_answer_are_as_promised() -> None:
    assert ranklaunch.Answer.__annotations__ == ANSWER
    assert names_of(ranklaunch.Answer) == tuple(ANSWER)
    with pytest.raises(AttributeError, match="cannot assign to field 'kind'"):
        ranklaunch.Answer().kind = "cause"  # type: ignore[misc]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ranklaunch' has no attribute 'make_plans'"):
        ranklaunch.make_plans  # type: ignore[attr-defined]  # noqa: B018


def test_no_module_or_folder_of_the_package_is_called_like_the_api() -> None:
    package = helpers.ROOT / "src" / "ranklaunch"
    assert {path.stem for path in package.iterdir()} & set(ranklaunch.__all__) == set()


IMPORT_ALL = """
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
import ranklaunch
plan = ranklaunch.make_plan({{}}, ["--slots", "2", "train.py"])
assert plan.job.world_size == 2
assert "#SBATCH" in ranklaunch.make_spec("slurm", {{"name": "a", "script": "a.py", "resources": {{"cpu": "8"}}}})
assert ranklaunch.explain_log("").kind == "unknown"
try:
    ranklaunch.read_report("/nowhere")
except ranklaunch.ConfigError as error:
    assert "no such folder" in str(error)
assert all(callable(getattr(ranklaunch, name)) for name in {names!r})
"""


@pytest.mark.processes
def test_the_functions_work_after_every_module_was_imported() -> None:
    """An import of a submodule sets an attribute of the package, which must not stand in for a function."""
    package = helpers.ROOT / "src" / "ranklaunch"
    paths = [path.relative_to(package) for folder in package.iterdir() for path in (folder.rglob("*.py") if folder.is_dir() else [folder])]
    ours = sorted(path for path in paths if path.suffix == ".py" and path.parts[0] not in ("programs", "rankside", "__main__.py"))
    modules = [".".join(("ranklaunch", *path.with_suffix("").parts)).removesuffix(".__init__") for path in ours]
    assert len(modules) > 300
    script = IMPORT_ALL.format(modules=modules, names=list(SIGNATURES))
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.processes
def test_importing_the_package_loads_no_other_module() -> None:
    script = "import sys; before = set(sys.modules); import ranklaunch; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["ranklaunch"]


# The same results as the commands


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ranklaunch.RanklaunchError) as caught:
        call()
    return caught.value.exit_code, str(caught.value)


def test_plans_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all golden cases: every platform and method."""
    monkeypatch.setattr(os, "getcwd", lambda: helpers.CWD)
    monkeypatch.setattr(bounded, "call", lambda work, what: work())  # own templates, in this process

    def check(case: Path) -> None:
        env, argv, files, _ = golden_cases.inputs_of(case)
        folder = tmp_path / case.parent.name / case.stem
        folder.mkdir(parents=True)
        root = folder / "root"
        golden_cases.write_files(files, root)
        (folder / "env.json").write_text(json.dumps(env))
        said = helpers.call("plan", "--format", "json", "--env-file", str(folder / "env.json"), f"--root={root}", *argv)
        made = json.loads(json.dumps(ranklaunch.as_json(ranklaunch.make_plan(env, [f"--root={root}", *argv]))))
        assert made == said.json
        formats.check("plan", made)

    helpers.check_each(check, {golden_cases.case_id(case): case for case in golden_cases.PLANNED})


def test_the_option_node_plans_another_node() -> None:
    env = helpers.modelarts(nodes=3, index=0)
    plan = ranklaunch.make_plan(env, ["--node", "2", "train.py"])
    assert (plan.job.node_index, plan.job.world_size) == (2, 24)
    code, text = refused(lambda: ranklaunch.make_plan(env, ["--node", "x", "train.py"]))
    assert (code, text.partition(":")[0]) == (2, "--node 'x'")


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        {**VALUES, "engine": "slurm"},
        {**VALUES, "engine": "anything"},
        {**VALUES, "env": {"API_TOKEN": "aVerySecretWord123"}},
        {**VALUES, "nodes": "two", "colour": {"of": 1}},
        {**VALUES, "volumes": ({"name": "data", "emptyDir": {}},), "args": ("--lr", "$HOME")},
        {},
    ],
)
def test_specifications_are_those_of_the_command(values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text(json.dumps(values))
    for kind in KINDS:
        said = helpers.call("spec", kind, "--values", str(path))
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            if said.code:
                code, text = refused(lambda kind=kind: ranklaunch.make_spec(kind, values))  # type: ignore[misc]
                assert (code, "".join(f"ranklaunch: {line}\n" for line in text.splitlines())) == (said.code, said.err)
                continue
            assert ranklaunch.make_spec(kind, values) == said.out
        assert "".join(f"ranklaunch: warning: {note.message}\n" for note in noted) == said.err
        assert {note.filename for note in noted} <= {__file__}


def test_an_unknown_kind_is_a_usage_error() -> None:
    code, text = refused(lambda: ranklaunch.make_spec("slurms", VALUES))
    assert (code, text.partition(": ")[0], text.rpartition(", ")[2]) == (2, "unknown kind 'slurms'", "did you mean 'slurm'?")


@pytest.mark.parametrize("name", ["import_error", "success", "restarts"])
def test_reports_are_those_of_the_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    getattr(reports, name)(LeftBehind(tmp_path / "logs", monkeypatch))
    shown = helpers.call("report", str(tmp_path / "logs"), "--format", "json").json
    for folder in (tmp_path / "logs", str(tmp_path / "logs")):
        made = json.loads(json.dumps(ranklaunch.as_json(ranklaunch.read_report(folder))))
        assert made["read_at"] >= shown["read_at"] > 0
        assert {**made, "read_at": 0} == {**shown, "read_at": 0}
        formats.check("report", made)


@pytest.mark.parametrize("text", [LOG, "", "step 1\n", "\ufeffgrün\udce9\nKeyError: 'x'\n", "no such\r: line\rMemoryError\n"])
def test_answers_are_those_of_the_command(text: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(text.encode(errors="replace"))
    shown = json.loads(helpers.call("explain", "--format", "json", str(path)).out)
    found = ranklaunch.explain_log(text)
    document = json.loads(json.dumps(ranklaunch.as_json(found)))
    assert {**document, "log": str(path)} == shown
    assert (found.kind, found.line_number, len(found.others)) == (shown["kind"], shown["line_number"], len(shown["others"]))
    formats.check("explain", document)


def test_of_a_long_log_the_end_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MOST_BYTES", 64)
    found = ranklaunch.explain_log(f"ModuleNotFoundError: No module named 'x'\n{'.' * 60}\nMemoryError\n")
    assert (found.line, found.line_number, found.skipped_bytes, found.others) == ("MemoryError", None, 50, ())


# Errors


def test_errors_are_exceptions_and_nothing_is_printed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: dict[str, tuple[dict[str, str], list[str]]] = {
        "help": ({}, ["--help"]), "no program": ({}, []), "unknown option": ({}, ["--nods", "2", "train.py"]),
        "of plan alone": ({}, ["--all-nodes", "train.py"]), "environment": ({"MA_NUM_HOSTS": "two"}, ["train.py"]),
        "root": ({}, ["--root", "/nowhere", "train.py"]),
        "a misspelt name": ({"RANKLAUNCH_METHODE": "x", "RANKLAUNCH_NODES": "x"}, ["t.py"]),
    }  # fmt: skip
    codes = {name: refused(lambda words=words: ranklaunch.make_plan(*words))[0] for name, words in asked.items()}  # type: ignore[misc]
    assert codes == {**dict.fromkeys(asked, 2), "environment": 78, "a misspelt name": 78}
    with pytest.raises(ranklaunch.ConfigError) as caught:
        ranklaunch.make_plan(*asked["a misspelt name"])
    assert len(caught.value.problems) == len(caught.value.hints) == 1
    assert str(caught.value) == "\n".join((*caught.value.problems, *caught.value.hints))
    assert refused(lambda: ranklaunch.read_report(tmp_path))[0] == 78
    assert capfd.readouterr() == ("", "")
    assert [*tmp_path.iterdir()] == []


def test_secrets_in_an_error_are_hidden() -> None:
    with pytest.raises(ranklaunch.RanklaunchError) as caught:
        ranklaunch.make_plan({"RANKLAUNCH_NODES": "https://me:aVerySecretWord123@example.org/"}, ["train.py"])
    assert isinstance(caught.value, ranklaunch.ConfigError)
    assert "RANKLAUNCH_NODES" in str(caught.value)
    assert "aVerySecretWord123" not in f"{caught.value}{caught.value.problems}{caught.value.args}"


@pytest.mark.parametrize(
    ("env", "argv", "message"),
    [({}, "train.py", "argv: "), ({}, ["train.py", 1], "argv: "), ({"A": 1}, ["t.py"], "env: .* for A"), ({1: "a"}, ["t.py"], "env: .* 1")],
)
def test_a_value_of_another_type_is_a_type_error(env: Any, argv: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ranklaunch.make_plan(env, argv)


def test_what_has_no_json_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a Plan, a Report or an Answer, found dict"):
        ranklaunch.as_json({})  # type: ignore[arg-type]


def test_the_environment_of_this_process_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKLAUNCH_NODES", "x")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert ranklaunch.make_plan({}, ["--slots", "3", "train.py"]).job.world_size == 3


def test_threads_get_plans_of_their_own() -> None:
    made: dict[int, tuple[int, tuple[str, ...], str]] = {}

    def plan(slots: int) -> None:
        plan = ranklaunch.make_plan({}, ["--slots", str(slots), "--method", "torchrun", f"train{slots}.py"])
        made[slots] = plan.job.world_size, plan.processes[0].argv[-1:], plan.processes[0].template

    threads = [threading.Thread(target=plan, args=(slots,)) for slots in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == {slots: (slots, (f"train{slots}.py",), "torchrun/command.j2") for slots in range(1, 9)}


@pytest.mark.processes
def test_a_template_of_the_users_leaves_no_process_behind() -> None:
    options = ["--method", "spawn", "--slots", "2", "--log-tag", "{{ rank * 2 }}> "]
    assert [process.tag for process in ranklaunch.make_plan({}, [*options, "train.py"]).processes] == ["0> ", "2> "]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    code, text = refused(lambda: ranklaunch.make_plan({}, [*options[:-1], "{{ 9 ** (9 ** 9) }}", "train.py"]))
    assert (code, "it takes more than 2 s of CPU time" in text) == (78, True)


# docs/api.md and the example


def test_examples_of_the_page_come_out_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports.import_error(LeftBehind(tmp_path / "logs", monkeypatch))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, "docs/api.md", str(PAGE), 0)
    shown: list[str] = []
    result = doctest.DocTestRunner().run(test, out=shown.append)
    assert result.failed == 0, "".join(shown)


def test_attributes_on_the_page_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports.import_error(LeftBehind(tmp_path / "logs", monkeypatch))
    values: dict[str, Any] = {
        "Plan": ranklaunch.make_plan({}, ["--slots", "2", "train.py"]),
        "Report": ranklaunch.read_report(tmp_path / "logs"),
        "Answer": ranklaunch.explain_log(LOG),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, value in values.items():
        (table,) = re.findall(rf"^\| attribute of an? {name} \|.*\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
        first = [span for row in table.splitlines() for span in re.findall(r"`([a-z_.]+)`", row.split("|")[1])]
        assert len(first) > 8
        for path in first:
            found: Any = value
            for part in path.split("."):
                assert hasattr(found, part), f"{name}.{path}"
                found = getattr(found, part)
    job, (process, *_) = values["Plan"].job, values["Plan"].processes
    for value, names in (
        (job.nodes[0], ("index", "host", "slots", "first_rank")),
        (process, ("name", "argv", "env", "unset", "cwd", "rank", "log")),
    ):
        assert all(hasattr(value, name) and f"`{name}`" in text for name in names)


def test_the_example_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    reports.import_error(LeftBehind(tmp_path / "logs", monkeypatch))
    (tmp_path / "log").write_text(LOG)
    example = places.module("examples/python_api.py")
    assert [example.main(words) for words in (["plan", "t.py"], ["why", str(tmp_path / "logs")], ["explain", str(tmp_path / "log")])] == [
        0
    ] * 3
    lines = capsys.readouterr().out.splitlines()
    assert [line[:16] for line in lines[:3]] == ["h0: 8 of 16 rank", "h1: 8 of 16 rank", "failed: rank 1 e"]
    assert json.loads("\n".join(lines[3:]))["name"] == "cuda-out-of-memory"
    assert example.main(["plan"]) == 2
    assert capsys.readouterr().err.startswith("no PROGRAM given")
