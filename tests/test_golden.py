"""Plans as files: tests/golden/<adapter>/<case>/ holds what goes in and what comes out.

In:  env (NAME=VALUE lines) or env.json, argv (options and program, a word per line) or argv.json, root/ (the container's files).
Out: summary.txt, the plans of all nodes in short (plan_summary.py), and of the node whose environment it is whatever is there of plan.json,
     plan.txt and plan.sh, byte by byte. Or error.txt, where that node's plan is refused; most refusals are in <adapter>/refused.txt.

Renew with --update-golden, then read the diff: a golden file that nobody read proves nothing.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_cases
import helpers
import plan_summary
import pytest
from golden_cases import CASES, GOLDEN, PLANNED, REFUSALS, argv_of, case_id, env_of
from recorded_places import recorded_cases

from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.adapters.launchers.shared import communication
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.plan import prelaunch
from ranklaunch.rank_wrapper import rank
from ranklaunch.system import bounded

INPUTS = {"env", "env.json", "argv", "argv.json", "root"}
FORMS = {"plan.json": "json", "plan.txt": "text", "plan.sh": "sh"}

Planned = Callable[..., helpers.Result]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Planned:
    """Plans a case below its own root/, so that nothing of this machine is seen: neither its files nor where the repository is."""

    monkeypatch.setattr(rank, "STAND_IN", "/opt/ranklaunch/programs/place_rank.py")
    monkeypatch.setattr(communication, "RANKSIDE_PATH", "/opt/ranklaunch/rankside/path")
    monkeypatch.setattr(prelaunch, "MEASURE", "/opt/ranklaunch/programs/measure.py")

    def plan(
        case: Path, *options: str, cwd: str = helpers.CWD, argv: list[str] | None = None, env: dict[str, str] | None = None
    ) -> helpers.Result:
        monkeypatch.chdir(case)
        monkeypatch.setattr(os, "getcwd", lambda: cwd)
        monkeypatch.setattr(bounded, "call", lambda work, what: work())  # own templates, in this process
        root = "root" if (case / "root").is_dir() else str(tmp_path)
        return helpers.call("plan", f"--root={root}", *options, *(argv or argv_of(case)), env=env or env_of(case))

    return plan


# Of each method for one node and for several, and of each platform, one is whole.
BY_WEIGHT = [pytest.param(case, marks=() if (case / "plan.json").exists() else pytest.mark.one_python) for case in CASES]


@pytest.mark.parametrize("case", BY_WEIGHT, ids=case_id)
def test_plan_is_as_stored(case: Path, planned: Planned, request: pytest.FixtureRequest) -> None:
    stored = {path.name for path in case.iterdir()} - INPUTS
    result = planned(case, "--format=json")
    if result.code:
        outputs = {"error.txt": refused(case, planned)}
    else:
        nodes = planned(case, "--format=json", "--all-nodes").json
        check_nodes(case, result.json, nodes)
        outputs = {"summary.txt": plan_summary.summary(result.json, nodes).encode()}
        outputs.update({name: output(planned(case, f"--format={FORMS[name]}")) for name in stored & FORMS.keys()})
    if request.config.getoption("--update-golden"):
        for name in {*stored, *outputs}:
            (case / name).unlink(missing_ok=True)
        for name, data in outputs.items():
            (case / name).write_bytes(data)
        stored = set(outputs)
    assert stored == outputs.keys(), f"run make golden and read the diff: files of {case} are missing or too many"
    for name, data in outputs.items():
        compare(case / name, data)


def output(result: helpers.Result) -> bytes:
    assert (result.code, result.err) == (0, "")
    return result.out.encode(errors="surrogateescape")


# What a node knows that no other does: its rank after route planning, the address of its host.
OWN_FACTS = {"torchrun/route-plan", "ranktable/stale-second-attempt"}


def check_nodes(case: Path, own: Any, nodes: list[Any]) -> None:
    """That the plans are of this adapter, of each node, and that a node plans for itself as others plan for it."""
    assert [plan["job"]["node_index"] for plan in nodes] == list(range(len(nodes)))
    assert all(case.parent.name in (plan["method"], plan["platform"]) for plan in nodes)
    if case_id(case) not in OWN_FACTS:
        told = nodes[own["job"]["node_index"]]
        changing = ("values", "warnings", "why")
        assert [(key, value) for key, value in own.items() if key not in changing] == [
            (key, value) for key, value in told.items() if key not in changing
        ]


def refused(case: Path, planned: Planned, **how: Any) -> bytes:
    """What is said, in whatever form a plan is asked for."""
    result = planned(case, "--format=sh", **how)
    assert result.code not in (0, 70), result.err
    assert not result.out
    assert planned(case, "--format=text", **how) == result
    return f"exit {result.code}\n{result.err}".encode()


@pytest.mark.parametrize("file", REFUSALS, ids=lambda file: file.parent.name)
def test_refusals_are_as_stored(file: Path, planned: Planned, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    blocks = []
    for i, case in enumerate(golden_cases.refusals(file.read_text(encoding="utf-8"))):
        here = tmp_path / str(i)
        here.mkdir()
        if (case.like / "root").is_dir():
            shutil.copytree(case.like / "root", here / "root")
        for path, text in case.files.items():
            (here / "root" / path).parent.mkdir(parents=True, exist_ok=True)
            (here / "root" / path).write_text(text, encoding="utf-8")
        blocks.append(f"{case.asked}\n{refused(here, planned, argv=case.argv, env=case.env).decode()}")
    data = "\n".join(blocks).encode()
    if request.config.getoption("--update-golden"):
        file.write_bytes(data)
    compare(file, data)


def compare(stored: Path, data: bytes) -> None:
    if stored.read_bytes() != data:
        before, after = (data.decode(errors="backslashreplace").splitlines() for data in (stored.read_bytes(), data))
        lines = difflib.unified_diff(before, after, f"{case_id(stored.parent)}/{stored.name}", "now", n=1, lineterm="")
        said = f"{case_id(stored.parent)} is planned otherwise; if that is intended, run make golden and read the diff"
        pytest.fail("\n".join([said, *(line[:200] for line in itertools.islice(lines, 40))]), pytrace=False)


# What is there


def test_tree_holds_cases_of_adapters_only() -> None:
    helpers.listed_in(
        "the folders of tests/golden",
        {path.name for path in GOLDEN.iterdir()} - {"specs"} | {case["platform"] for case in recorded_cases()},
        LAUNCHERS.keys() | PLATFORMS.keys(),
    )
    assert {path for path in GOLDEN.glob("*/*") if path.is_file()} == set(REFUSALS)
    for case in CASES:
        names = {path.name for path in case.iterdir()}
        assert len(names & {"env", "env.json"}) == 1, case
        assert len(names & {"argv", "argv.json"}) == 1, case


def test_whole_plans_are_there_of_every_method_and_platform() -> None:
    """Of each method for one node and for several, where nothing is left out."""
    texts = [path.read_text(encoding="utf-8") for path in GOLDEN.glob("*/*/plan.json")]  # of new cases too, which were no plans at first
    plans = [json.loads(text) for text in texts if text]
    where = "the cases of tests/golden with a whole plan: an empty plan.json, then make golden"
    helpers.listed_in(where, {plan["platform"] for plan in plans} | {case["platform"] for case in recorded_cases()}, PLATFORMS)
    nodes = [f"{plan['method']} on {'several nodes' if len(plan['job']['nodes']) > 1 else 'one node'}" for plan in plans]
    helpers.listed_in(where, nodes, {f"{name} on {count}" for name in LAUNCHERS for count in ("one node", "several nodes")})


# plan.sh


# Whatever a method or a platform does to a script is in one of those stored whole, or as shell; the hostile have words to be quoted.
TRIED = [case for case in PLANNED if "hostile" in case.name or any((case / name).exists() for name in ("plan.json", "plan.sh"))]


@pytest.mark.one_python
@pytest.mark.processes
def test_every_kind_of_plan_as_shell_is_clean(planned: Planned, tmp_path: Path) -> None:
    """That shells can read them is shown below, where they run them."""
    scripts = [tmp_path / f"{case_id(case).replace('/', '_')}.sh" for case in TRIED]
    for case, script in zip(TRIED, scripts):
        script.write_bytes(output(planned(case, "--format=sh")))
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    # Not SC2016 and SC1003: words with $ or a backslash before the closing quote are what hostile cases are about.
    command = ["shellcheck", "--norc", "--exclude=SC2016,SC1003", *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


# What a shell makes of plan.sh, told by stubs that stand in for every program

STUB = """#!{python} -IS
import json, os, sys
given = open("/proc/self/environ", "rb").read().split(b"\\0")[:-1]
env = dict(pair.decode(errors="surrogateescape").split("=", 1) for pair in given)
record = "{folder}/%d" % os.getpid()
with open(record, "w") as file:
    json.dump({{"argv": sys.argv, "env": env, "cwd": os.getcwd()}}, file)
os.rename(record, record + ".json")
"""
OF_SHELLS = ("PWD", "OLDPWD", "SHLVL", "_")  # which shells set themselves, whatever they are given


# A platform's plans have other values, in scripts of the form that their method has.
RUN = [case for case in TRIED if case.parent.name in LAUNCHERS or "hostile" in case.name or (case / "plan.sh").exists()]


@pytest.mark.one_python
@pytest.mark.processes
@pytest.mark.parametrize("case", RUN, ids=case_id)
def test_shell_starts_what_the_plan_says(case: Path, planned: Planned, tmp_path: Path) -> None:
    """plan.sh as it would be on this machine: with files in the test's own folder, and stubs first on PATH."""
    work, stubs, seen = tmp_path / "work", tmp_path / "stubs", tmp_path / "seen"
    for folder in (work, stubs, seen):
        folder.mkdir()
    stub = stubs / "any"
    stub.write_text(STUB.format(python=sys.executable, folder=seen), encoding="utf-8")
    stub.chmod(0o755)
    argv = [f"--log-dir={work}/logs", *(word.replace("/opt/", f"{work}/opt/") for word in argv_of(case))]
    env = {name: value.replace("/opt/", f"{work}/opt/") for name, value in env_of(case).items()}
    env["PATH"] = f"{stubs}:{os.environ['PATH']}"
    env["RANKLAUNCH_RUN_DIR"] = str(work)
    texts = (planned(case, f"--format={form}", cwd=str(work), argv=argv, env=env).out for form in ("json", "sh"))
    # What is in a folder of the system, or of the container, is in the test's own here.
    text, script = (re.sub(r"(?<![\w.])/(usr/sbin/|root/\.ssh/|opt/ml/code\b)", rf"{work}/\1", each) for each in texts)
    plan = json.loads(text)
    for source in filter(None, (file["source"] for file in plan["files"])):
        Path(source).parent.mkdir(parents=True, exist_ok=True)
        Path(source).touch()
    given, env = env, {**env, **{each["name"]: each["value"] for each in plan["recorders"]["variables"]}}
    processes = [*plan["prepare"], *plan["services"], *plan["processes"]]
    for process in processes:
        process["cwd"] = process["cwd"] or str(work)
        Path(process["cwd"]).mkdir(parents=True, exist_ok=True)
    written = [*(file["path"] for file in plan["files"]), *(process["log"] for process in processes)]
    assert all(path.startswith(f"{work}/") for path in written), "this would write outside the test's own folder"
    for program in {process["argv"][0] for process in processes}:
        put_stub(stub, program, stubs, work)
    path = tmp_path / "plan.sh"
    path.write_bytes(script.encode(errors="surrogateescape"))

    done = subprocess.run(["/bin/sh", str(path)], cwd=work, env=given, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    started = [told_by(record) for record in seen.glob("*.json")]
    if plan["processes"]:  # the script ends its services as soon as these have ended, which is before a stub can tell of itself
        beside = [expected_of(service, env) for service in plan["services"]]
        started = [each for each in started if each not in beside]
        processes = [*plan["prepare"], *plan["processes"]]
    expected = [expected_of(process, env) for process in processes]
    assert sorted(started, key=json.dumps) == sorted(expected, key=json.dumps)
    for file in plan["files"]:
        assert Path(file["path"]).read_text(encoding="utf-8") == file["text"]  # of a copy: none
        assert f"{Path(file['path']).stat().st_mode & 0o777:04o}" == file["mode"]


def put_stub(stub: Path, program: str, stubs: Path, work: Path) -> None:
    if "/" not in program:
        (stubs / program).symlink_to(stub)
        return
    assert program.startswith(f"{work}/"), "this would need a stub outside the test's own folder"
    Path(program).parent.mkdir(parents=True)
    Path(program).symlink_to(stub)


def told_by(record: Path) -> dict[str, Any]:
    told = json.loads(record.read_text(encoding="utf-8"))
    return {**told, "env": {name: value for name, value in told["env"].items() if name not in OF_SHELLS}}


def expected_of(process: dict[str, Any], inherited: dict[str, str]) -> dict[str, Any]:
    """What a stub tells when it is started as the plan says: its argv[0] is the path at which it was found."""
    env = {name: value for name, value in inherited.items() if name not in process["unset"]}
    env.update(process["env"])
    return {"argv": [shutil.which(process["argv"][0], path=env["PATH"]), *process["argv"][1:]], "env": env, "cwd": process["cwd"]}
