"""Whole plans as files: tests/golden/<adapter>/<case>/ holds what goes in and every byte that comes out.

In:  env (NAME=VALUE lines) or env.json, argv (options and program, a word per line) or argv.json, root/ (the container's files).
Out: plan.json (all nodes), plan.txt and plan.sh (the node whose environment it is), or error.txt where that node's plan is refused.

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

import helpers
import pytest
from golden_cases import CASES, GOLDEN, argv_of, case_id, env_of

from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.adapters.platforms import PLATFORMS

INPUTS = {"env", "env.json", "argv", "argv.json", "root"}
OUTPUTS = {"plan.json": ("--format=json", "--all-nodes"), "plan.txt": ("--format=text",), "plan.sh": ("--format=sh",)}

Planned = Callable[..., helpers.Result]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Planned:
    """Plans a case below its own root/, so that nothing of this machine is seen: neither its files nor where the repository is."""

    def plan(
        case: Path, *options: str, cwd: str = helpers.CWD, argv: list[str] | None = None, env: dict[str, str] | None = None
    ) -> helpers.Result:
        monkeypatch.chdir(case)
        monkeypatch.setattr(os, "getcwd", lambda: cwd)
        root = "root" if (case / "root").is_dir() else str(tmp_path)
        return helpers.call("plan", f"--root={root}", *options, *(argv or argv_of(case)), env=env or env_of(case))

    return plan


def outputs_of(case: Path, planned: Planned) -> dict[str, bytes]:
    results = {name: planned(case, *options) for name, options in OUTPUTS.items()}
    refused = results["plan.sh"]
    assert 70 not in {result.code for result in results.values()}, refused.err
    if refused.code:
        assert results["plan.txt"] == refused
        assert not refused.out
        return {"error.txt": f"exit {refused.code}\n{refused.err}".encode()}
    assert not any(result.err for result in results.values())
    return {name: result.out.encode(errors="surrogateescape") for name, result in results.items()}


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_plan_is_as_stored(case: Path, planned: Planned, request: pytest.FixtureRequest) -> None:
    outputs = outputs_of(case, planned)
    if request.config.getoption("--update-golden"):
        for name in {*OUTPUTS, "error.txt"}:
            (case / name).unlink(missing_ok=True)
        for name, data in outputs.items():
            (case / name).write_bytes(data)
    stored = {path.name for path in case.iterdir()} - INPUTS
    assert stored == outputs.keys(), "missing or extra files: renew with --update-golden"
    for name, data in outputs.items():
        if (case / name).read_bytes() != data:
            pytest.fail(difference(case / name, data), pytrace=False)


def difference(stored: Path, now: bytes) -> str:
    before, after = (data.decode(errors="backslashreplace").splitlines() for data in (stored.read_bytes(), now))
    lines = difflib.unified_diff(before, after, f"{case_id(stored.parent)}/{stored.name}", "now", n=1, lineterm="")
    return "\n".join(line[:200] for line in itertools.islice(lines, 40))


def test_tree_holds_cases_of_adapters_only() -> None:
    assert {path.name for path in GOLDEN.iterdir()} - {"specs"} == LAUNCHERS.keys() | PLATFORMS.keys()
    assert {path for path in GOLDEN.glob("*/*") if path.is_file()} == set()
    for case in CASES:
        names = {path.name for path in case.iterdir()}
        assert len(names & {"env", "env.json"}) == 1, case
        assert len(names & {"argv", "argv.json"}) == 1, case


PLANNED = [case for case in CASES if (case / "plan.json").exists()]


@pytest.mark.parametrize("case", PLANNED, ids=case_id)
def test_case_is_of_its_adapter(case: Path) -> None:
    plans = json.loads((case / "plan.json").read_text(encoding="utf-8"))
    assert [plan["job"]["node_index"] for plan in plans] == list(range(len(plans)))
    assert all(case.parent.name in (plan["method"], plan["platform"]) for plan in plans)


# What a node knows that no other does: its rank after route planning, the address of its host.
OWN_FACTS = {"torchrun/route-plan", "ranktable/stale-second-attempt"}


@pytest.mark.parametrize("case", [case for case in PLANNED if case_id(case) not in OWN_FACTS], ids=case_id)
def test_a_node_plans_for_itself_as_others_plan_for_it(case: Path, planned: Planned) -> None:
    own = planned(case, "--format=json").json
    plan = json.loads((case / "plan.json").read_text(encoding="utf-8"))[own["job"]["node_index"]]
    for changing in ("values", "warnings", "why"):
        del own[changing], plan[changing]
    assert own == plan


@pytest.mark.processes
def test_every_plan_as_shell_is_clean() -> None:
    scripts = [case / "plan.sh" for case in PLANNED]
    for script in scripts:
        done = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script
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


@pytest.mark.processes
@pytest.mark.parametrize("case", PLANNED, ids=case_id)
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

    done = subprocess.run(["/bin/sh", str(path)], cwd=work, env=env, capture_output=True, text=True, timeout=60, check=False)

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
