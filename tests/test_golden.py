"""Plans as files: tests/golden/<adapter>/<case>.txt holds inputs and outputs (golden_cases.py has the form).

The output is the plans of all nodes in short (plan_summary.py) and, where the case asks for them, further forms of the own node's plan;
or the message of a refusal. Most refusals are in <adapter>/refused.txt.

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
from golden_cases import CASES, GOLDEN, PLANNED, REFUSALS, Inputs, case_id, inputs_of
from recorded_places import recorded_cases

from ranklaunch.adapters.launchers import LAUNCHERS, ray
from ranklaunch.adapters.launchers.shared import variables
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.plan import prelaunch
from ranklaunch.rank_wrapper import rank
from ranklaunch.system import bounded

Planned = Callable[..., helpers.Result]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Planned:
    """Plans a case below a root of its own, so that nothing of this machine is seen: neither its files nor where the repository is."""

    monkeypatch.setattr(rank, "STAND_IN", "/opt/ranklaunch/programs/place_rank.py")
    monkeypatch.setattr(variables, "RANKSIDE_PATH", "/opt/ranklaunch/rankside/path")
    for name, program in (("OFFER_STEP", "ray_offer"), ("NODE_PROGRAM", "ray_node"), ("DRIVER_PROGRAM", "ray_driver")):
        monkeypatch.setattr(ray, name, f"/opt/ranklaunch/programs/{program}.py")
    monkeypatch.setattr(prelaunch, "MEASURE", "/opt/ranklaunch/programs/measure.py")
    monkeypatch.setattr(bounded, "call", lambda work, what: work())  # own templates, in this process
    folders: list[Path] = []

    def plan(inputs: Inputs, *options: str, cwd: str = helpers.CWD) -> helpers.Result:
        folders.append(tmp_path / f"planned_{len(folders)}")
        folders[-1].mkdir()
        golden_cases.write_files(inputs.files, folders[-1] / "root")
        monkeypatch.chdir(folders[-1])
        monkeypatch.setattr(os, "getcwd", lambda: cwd)
        return helpers.call("plan", "--root=root", *options, *inputs.argv, env=inputs.env)

    return plan


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_plan_is_as_stored(case: Path, planned: Planned, request: pytest.FixtureRequest) -> None:
    inputs = inputs_of(case)
    forms = golden_cases.outputs_of(case).keys() - {"plan"}
    result = planned(inputs, "--format=json")
    if result.code:
        outputs = refused(inputs, planned)
    else:
        nodes = planned(inputs, "--format=json", "--all-nodes").json
        check_nodes(case, result.json, nodes)
        like = planned(inputs_of(golden_cases.path_of(inputs.like)), "--format=json").json if inputs.like else None
        outputs = plan_summary.summary(result.json, nodes, like)
        outputs += "".join(f"== {form}\n{in_form(form, inputs, planned, result.json)}" for form in FORMS if form in forms)
    data = f"{golden_cases.head_of(case)}\n{outputs}".encode(errors="surrogateescape")
    if request.config.getoption("--update-golden"):
        case.write_bytes(data)
    compare(case, data)


FORMS = ("files", "text", "sh", "json")


def in_form(form: str, inputs: Inputs, planned: Planned, plan: Any) -> str:
    if form == "files":
        return plan_summary.long_files(plan)
    result = planned(inputs, f"--format={form}")
    assert (result.code, result.err) == (0, "")
    return result.out


# What a node knows that no other does: its rank after route planning, the address of its host.
OWN_FACTS = {"torchrun/route-plan", "ranktable/stale-second-attempt"}


def check_nodes(case: Path, own: Any, nodes: list[Any]) -> None:
    """That the plans are of this adapter, of each node, and that a node plans for itself as others plan for it."""
    assert [plan["job"]["node_index"] for plan in nodes] == list(range(len(nodes)))
    assert all(case.parent.name in (plan["method"], plan["platform"]) for plan in nodes)
    if case_id(case) not in OWN_FACTS:
        by_others = nodes[own["job"]["node_index"]]
        changing = ("values", "warnings", "why")
        assert [(key, value) for key, value in own.items() if key not in changing] == [
            (key, value) for key, value in by_others.items() if key not in changing
        ]


def refused(inputs: Inputs, planned: Planned) -> str:
    """Exit code and message, which are the same in every form."""
    result = planned(inputs, "--format=sh")
    assert result.code not in (0, 70), result.err
    assert not result.out
    assert planned(inputs, "--format=text") == result
    return f"exit {result.code}\n{result.err}"


@pytest.mark.parametrize("file", REFUSALS, ids=lambda file: file.parent.name)
def test_refusals_are_as_stored(file: Path, planned: Planned, request: pytest.FixtureRequest) -> None:
    cases = golden_cases.refusals(file.read_text(encoding="utf-8"))
    data = "\n".join(f"{case.head}\n{refused(case.inputs, planned)}" for case in cases).encode()
    if request.config.getoption("--update-golden"):
        file.write_bytes(data)
    compare(file, data)


def compare(stored: Path, data: bytes) -> None:
    if stored.read_bytes() != data:
        before, after = (data.decode(errors="backslashreplace").splitlines() for data in (stored.read_bytes(), data))
        lines = difflib.unified_diff(before, after, case_id(stored), "now", n=1, lineterm="")
        message = f"{case_id(stored)} is planned otherwise; if that is intended, run make golden and read the diff"
        pytest.fail("\n".join([message, *(line[:200] for line in itertools.islice(lines, 40))]), pytrace=False)


# The tree


def test_tree_holds_cases_of_adapters_only() -> None:
    helpers.listed_in(
        "the folders of tests/golden",
        {path.name for path in GOLDEN.iterdir()} - {"specs"} | {case["platform"] for case in recorded_cases()},
        LAUNCHERS.keys() | PLATFORMS.keys(),
    )
    assert [path for path in GOLDEN.rglob("*") if path.is_file() and (path.parent.parent != GOLDEN or path.suffix != ".txt")] == []


def test_every_method_and_platform_has_a_case() -> None:
    """Each method for one node and for several."""
    shapes = [golden_cases.shape_of(case) for case in PLANNED]
    platforms = {shape.platform for shape in shapes} | {case["platform"] for case in recorded_cases()}
    helpers.listed_in("the cases of tests/golden", platforms, PLATFORMS)
    wanted = {f"{name} on {count}" for name in LAUNCHERS for count in ("one node", "several nodes")}
    helpers.listed_in("the cases of tests/golden", {f"{shape.method} on {shape.nodes}" for shape in shapes}, wanted)


def test_each_form_is_stored() -> None:
    """What summaries leave out as usual is to be read somewhere, too."""
    forms = {form for case in PLANNED for form in golden_cases.outputs_of(case)}
    assert forms == {"plan", *FORMS}
    whole = [case for case in PLANNED if "json" in golden_cases.outputs_of(case)]
    assert "several nodes" in {golden_cases.shape_of(case).nodes for case in whole}


# plan.sh


# One case of each method for one node and for several, and those that have words to be quoted or are stored as shell.
SHELLS = sorted(
    {
        *{(shape.method, shape.nodes): case for case in reversed(PLANNED) for shape in [golden_cases.shape_of(case)]}.values(),
        *(case for case in PLANNED if "hostile" in case.stem or "sh" in golden_cases.outputs_of(case)),
    }
)


@pytest.mark.one_python
@pytest.mark.processes
def test_every_kind_of_plan_as_shell_is_clean(planned: Planned, tmp_path: Path) -> None:
    """That shells can read them is shown below, where they run them."""
    scripts = [tmp_path / f"{case_id(case).replace('/', '_')}.sh" for case in PLANNED]
    for case, script in zip(PLANNED, scripts):
        script.write_text(in_form("sh", inputs_of(case), planned, None), encoding="utf-8", errors="surrogateescape")
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


@pytest.mark.one_python
@pytest.mark.processes
@pytest.mark.parametrize("case", SHELLS, ids=case_id)
def test_shell_starts_what_the_plan_says(case: Path, planned: Planned, tmp_path: Path) -> None:
    """plan.sh as it would be on this machine: with files in the test's own folder, and stubs first on PATH."""
    work, stubs, seen = tmp_path / "work", tmp_path / "stubs", tmp_path / "seen"
    for folder in (work, stubs, seen):
        folder.mkdir()
    stub = stubs / "any"
    stub.write_text(STUB.format(python=sys.executable, folder=seen), encoding="utf-8")
    stub.chmod(0o755)
    inputs = inputs_of(case)
    argv = [f"--log-dir={work}/logs", *(word.replace("/opt/", f"{work}/opt/") for word in inputs.argv)]
    env = {name: value.replace("/opt/", f"{work}/opt/") for name, value in inputs.env.items()}
    env["PATH"] = f"{stubs}:{os.environ['PATH']}"
    env["RANKLAUNCH_RUN_DIR"] = str(work)
    inputs = inputs._replace(argv=argv, env=env)
    texts = (planned(inputs, f"--format={form}", cwd=str(work)).out for form in ("json", "sh"))
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
