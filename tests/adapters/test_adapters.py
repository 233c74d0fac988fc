"""What every adapter must keep to, whoever wrote it: run over all that the two registries list."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import golden_cases
import helpers
import pytest
from recorded_places import recorded_cases

from ranklaunch.adapters.launchers import ALIASES, LAUNCHERS, launcher
from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.env import settings
from ranklaunch.env.features import CHECK_VARIABLES
from ranklaunch.env.reader import Variable
from ranklaunch.errors import ConfigError
from ranklaunch.plan import planning
from ranklaunch.plan.model import Plan, as_json
from ranklaunch.specs.model import METHODS
from testbench import places

ADAPTERS = {**PLATFORMS, **LAUNCHERS}
FOLDER = helpers.ROOT / "adapters" / "platforms"
MODULES = [import_module(f"ranklaunch.adapters.platforms.{path.stem}") for path in sorted(FOLDER.glob("*.py")) if path.stem[0] != "_"]
TABLE = "/user/config/jobstart_hccl.json"
NAME = re.compile("[A-Z][A-Z0-9_]{3,}")
# Read, but of the system and not settings of a job.
OF_THE_SYSTEM = {"PATH", "PYTHONUNBUFFERED"}


@helpers.for_each({name: (name,) for name in PLATFORMS})
def test_platform_has_the_shape_of_one(name: str) -> None:
    platform = PLATFORMS[name]
    assert name == platform.NAME
    assert isinstance(platform.VARIABLES, tuple)
    assert all(isinstance(variable, Variable) for variable in platform.VARIABLES)
    for each in ("detect", "attempt", "read", "program", "failure_file", "log_dir"):
        wanted = list(inspect.signature(getattr(Place, each)).parameters)[1:]
        assert list(inspect.signature(getattr(platform, each)).parameters)[: len(wanted)] == wanted


@helpers.for_each(list(LAUNCHERS))
def test_launcher_has_the_shape_of_one(name: str) -> None:
    kind = launcher(name)
    module = sys.modules[kind.__module__]
    assert kind.NAME == name == module.__name__.rpartition(".")[2]
    assert (module.__doc__ or "").strip()
    assert all(isinstance(variable, Variable) for variable in kind.VARIABLES)
    assert kind.plan is not Launcher.plan


def test_every_launcher_is_registered() -> None:
    folder = helpers.ROOT / "adapters" / "launchers"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    helpers.listed_in("LAUNCHERS in adapters/launchers/__init__.py", LAUNCHERS, modules)


def test_every_module_of_a_platform_has_a_row_that_names_it() -> None:
    modules = {module.__name__.rpartition(".")[2] for module in MODULES}
    helpers.listed_in("kind in adapters/platforms/platforms.toml", {row.name for row in PLATFORMS.rows.values() if row.kind}, modules)


def test_rows_are_those_of_platforms_toml() -> None:
    tool = places.module("tools/platforms.py")
    assert tool.PATH.read_text(encoding="utf-8") == tool.made(), "run make generate"


@helpers.for_each({f"{variable.value}-{variable.names[0]}": variable for variable in planning.every_variable()})
def test_variable_is_fit_for_the_reference(variable: Variable[Any]) -> None:
    assert re.fullmatch("[a-z][a-z0-9_]*", variable.value)
    assert variable.meaning
    assert variable.names
    assert len(set(variable.names)) == len(variable.names)
    form = "_?[A-Z][A-Za-z0-9_]*" if variable.set_by != "user" else "[A-Z][A-Z0-9_]*"  # others' names are as they are
    assert all(re.fullmatch(form, name) for name in variable.names)
    assert variable.set_by in ("user", "platform", "image")
    assert re.fullmatch("(--[a-z][a-z0-9-]*)?", variable.option)
    if variable.default not in ("", (), None) and not variable.default_text:
        assert variable.parse(variable.shown_default) == variable.default


def test_specifications_know_every_method() -> None:
    helpers.listed_in("METHODS in src/ranklaunch/specs/model.py", METHODS, {"auto", *LAUNCHERS, *ALIASES})


def test_every_option_has_one_meaning_and_a_variable_of_its_name() -> None:
    """The name has the command's in front where another command has an option that is called the same."""
    values: dict[tuple[str, str], str] = {}
    for variable in planning.every_variable():
        if variable.option:
            command = "CHECK_" if variable in CHECK_VARIABLES else ""
            assert values.setdefault((command, variable.option), variable.value) == variable.value
            own = f"RANKLAUNCH_{command}{variable.option[2:].replace('-', '_').upper()}"
            assert own in variable.names, f"{variable.option} has no variable {own}"


@helpers.for_each(list(ADAPTERS))
def test_adapter_has_golden_plans(name: str) -> None:
    recorded = any(case["platform"] == name for case in recorded_cases())
    assert recorded or any(case.parent.name == name for case in golden_cases.PLANNED), (
        f"make a file tests/golden/{name}/one-node.txt (those of another adapter show how), then run make golden"
    )


@helpers.for_each(list(PLATFORMS))
def test_detection_never_raises_and_claims_no_empty_environment(name: str) -> None:
    platform = PLATFORMS[name]
    assert platform.detect(helpers.reader({})) is (name == "local")
    everything = [each for variable in planning.every_variable() for each in variable.names]
    for value in helpers.HOSTILE.values():
        assert platform.detect(helpers.reader(dict.fromkeys(everything, value))) in (True, False)


# Reading is pure, and plans are what their contract says


SHAPES = {"one": (1, "2"), "three": (3, "2"), "uneven": (3, "2,1,3"), "cpu": (3, "0")}


def plan_of(name: str, platform: str, nodes: int, slots: str, index: int, **more: str) -> Plan:
    counts = [max(1, int(n)) for n in (slots.split(",") * nodes)[:nodes]]
    if platform == "modelarts":
        env = helpers.modelarts(nodes, 2, index, RANKLAUNCH_SLOTS=slots, RANK="7", **more)
    else:
        env = helpers.local(nodes, slots, index, RANK="7", **more)
    if platform == "mpijob":
        env["RANKLAUNCH_LAUNCHER_AS_WORKER"] = "true"
    job = env.get("MA_VJ_NAME", "n")
    table = helpers.group_table([(f"{job}-worker-{i}", f"192.0.2.{i}", [str(d) for d in range(n)]) for i, n in enumerate(counts)])
    files = {TABLE: table} if name == "ranktable" else {}
    return helpers.plan(env, "--lr", "0.1", files=files, method=name, platform=platform)


@pytest.mark.one_python
@helpers.for_each(
    [(name, list(SHAPES)[(i + j) % len(SHAPES)], platform) for i, name in enumerate(LAUNCHERS) for j, platform in enumerate(PLATFORMS)]
)
def test_planning_is_pure_and_complete(name: str, shape: str, platform: str) -> None:
    """Of every pair of a method, a platform and a shape of jobs."""
    nodes, slots = SHAPES[shape]
    refused = refusal(name, platform, nodes, slots)
    if refused:  # by a launcher whose nodes must be alike; which these are is for golden cases to say
        assert shape == "uneven", refused
        assert re.search(r"2, ?1, ?3.*\bspawn\b", refused), (
            f"{refused}: expected a launcher that says the counts and which method takes them (adapters/launchers/{name}.py), and a "
            f"platform that has its variables after the common ones, by Variable.also (adapters/platforms/{platform}.py)"
        )
        return
    for index in {0, nodes - 1}:
        check_plan(name, platform, nodes, slots, index)


def refusal(name: str, platform: str, nodes: int, slots: str) -> str:
    try:
        plan_of(name, platform, nodes, slots, 0)
    except ConfigError as error:
        return str(error)
    return ""


def check_plan(name: str, platform: str, nodes: int, slots: str, index: int) -> None:
    before = dict(os.environ)
    plan = plan_of(name, platform, nodes, slots, index)
    if index == 0:
        assert plan == plan_of(name, platform, nodes, slots, index)
    assert dict(os.environ) == before
    assert plan.method == name
    assert plan.job.platform == platform
    assert plan.why
    assert plan.processes or plan.services
    check_json(as_json(plan))
    for process in (*plan.processes, *plan.gather, *plan.prepare, *plan.services):
        for path in (process.log, *process.copies):
            assert os.path.normpath(path).startswith(f"{plan.job.log_dir}/")
    ranks = [process.rank for process in plan.processes if process.rank is not None]
    assert len(set(ranks)) == len(ranks)


@helpers.for_each(list(LAUNCHERS))
def test_every_rank_of_a_job_is_started_once(name: str) -> None:
    slots = "2" if refusal(name, "modelarts", 3, "2,1,3") else "2,1,3"
    plans = [plan_of(name, "modelarts", 3, slots, index) for index in range(3)]
    nodes = plans[0].job.nodes
    started = [(plan.job.node, process.rank, process.local_rank) for plan in plans for process in plan.processes]
    if any(rank is None for _, rank, _ in started):  # the launcher starts them
        assert len(started) == 3 - plans[0].followers
        assert all(rank in node.ranks for node, rank, _ in started if rank is not None)
    else:
        assert started == [(node, rank, rank - node.first_rank) for node in nodes for rank in node.ranks]


@helpers.for_each(list(LAUNCHERS))
def test_misleading_variables_are_removed(name: str) -> None:
    for process in plan_of(name, "modelarts", 3, "2", 1, PET_NNODES="9", MS_ROLE="x", MS_ENABLE_TFT="kept").processes:
        assert set(process.unset) == {"RANK", "PET_NNODES", "MS_ROLE"}


STRANGE_NAMES = ["../../../etc/cron.d/x", "a/b", "/etc/x", *(value for value in helpers.HOSTILE.values() if value.strip())]


@helpers.for_each([(name, job_name) for name in LAUNCHERS for job_name in STRANGE_NAMES])
def test_logs_lie_in_their_folder_whatever_the_job_is_called(name: str, job_name: str) -> None:
    plan = plan_of(name, "modelarts", 1, "1", 0, RANKLAUNCH_JOB_NAME=job_name)
    for process in plan.processes:
        for path in (process.log, *process.copies):
            parent, _, last = path.rpartition("/")
            assert parent in (plan.job.log_dir, f"{plan.job.log_dir}/attempt_1")
            assert len(os.fsencode(last)) <= 255
            assert "\n" not in last


PROCESS = {
    "name": str, "rank": (int, type(None)), "local_rank": (int, type(None)), "argv": [str], "env": {str: str}, "unset": [str],
    "cwd": (str, type(None)), "log": str, "copies": [str], "tag": str,
    "behaviour": str,
}  # fmt: skip
OF_FEW = {"quiet": bool, "may_end": bool, "outlasts": bool, "fails_as": int, "sessions": [str]}  # of processes, where they are set
NODE = {"index": int, "host": str, "slots": int, "first_rank": int}
OF_TASKS = {"task": str, "task_index": int, "port": int}  # where those of the nodes differ
SCHEMA: dict[str, Any] = {
    "schema": str, "platform": str, "method": str, "why": str,
    "job": {
        "name": str, "attempt": int, "world_size": int, "node_index": int, "accelerator": str,
        "nodes": [NODE],
    },
    "files": [{"path": str, "mode": str, "text": str, "source": str}],
    "private": str,
    "services": [PROCESS],
    "waits": [{"for": str, "what": str, "timeout_s": (int, float), "seen": str}],
    "gather": [PROCESS],
    "prepare": [PROCESS],
    "muster": {
        "host": str, "node": int, "port": int, "timeout_s": (int, float), "lost_after_s": (int, float), "end_timeout_s": (int, float),
        "secret": str, "facts": {str: str}, "allowed": [str], "followers": int,
    },
    "rank_logs": [{"rank": (int, type(None)), "log": str, "tag": str}],
    "processes": [PROCESS],
    "layout": {
        "tp": int, "pp": int, "cp": int, "ep": int, "dp": int, "order": str, "groups": {"tp": [[int]], "pp": [[int]], "dp": [[int]]},
    },
    "limits": {"wait_s": (int, float), "grace_s": (int, float)},
    "recorders": {"variables": [{"name": str, "value": str, "why": str}], "folder": str, "fifo": str},
    "save": {"signal": str, "file": str},
    "watch": {"hang": str, "hang_s": (int, float), "first_step_s": (int, float), "expect": str},
    "values": [{"name": str, "value": str, "source": str, "overrides": [{"source": str, "value": str}]}],
    "warnings": [str],
}  # fmt: skip


def check_json(data: dict[str, Any]) -> None:
    """Keys are only ever added within schema 2: adding one means adding it here and in the documentation."""
    assert json.loads(json.dumps(data)) == data
    assert data["schema"] == "ranklaunch.plan/2"
    shape = {**SCHEMA, "job": {**SCHEMA["job"], "nodes": [{**NODE, **OF_TASKS} if data["job"]["nodes"][0].get("task") else NODE]}}
    check(data, shape, "plan")


def check(value: Any, shape: Any, where: str) -> None:
    if where in ("plan.muster", "plan.layout") and value is None:  # one node or switched off; a method that knows none
        return
    if isinstance(shape, dict) and str in shape:
        assert all(isinstance(key, str) and isinstance(each, str) for key, each in value.items()), where
    elif isinstance(shape, dict):
        few = OF_FEW if shape is PROCESS else {}
        assert shape.keys() <= value.keys() <= {**shape, **few}.keys(), where
        shape = {**shape, **few}
        for key in value:
            check(value[key], shape[key], f"{where}.{key}")
    elif isinstance(shape, list):
        assert type(value) is list, where
        for each in value:
            check(each, shape[0], f"{where}[]")
    else:
        assert type(value) in (shape if isinstance(shape, tuple) else (shape,)), where


# Variables are named in tables and nowhere else


def sources() -> list[ModuleType]:
    return [*MODULES, planning, settings]


def read_names(module: ModuleType) -> set[str]:
    """Names that stand as text in env.get("NAME"), env["NAME"] and "NAME" in env."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and is_env(node.func.value):
            found |= texts(node.args[0])
        elif isinstance(node, ast.Subscript) and is_env(node.value) and isinstance(node.ctx, ast.Load):
            found |= texts(node.slice)
        elif isinstance(node, ast.Compare) and any(is_env(each) for each in node.comparators):
            found |= texts(node.left)
    return found


def is_env(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "env") or (isinstance(node, ast.Name) and node.id == "env")


def texts(node: ast.AST) -> set[str]:
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and NAME.fullmatch(each.value)
    }


def known_names() -> set[str]:
    return {name for variable in planning.every_variable() for name in variable.names}


@helpers.for_each({module.__name__: module for module in sources()})
def test_variables_that_are_read_stand_in_a_table(module: ModuleType) -> None:
    assert read_names(module) - known_names() - OF_THE_SYSTEM == set()


@helpers.for_each({module.__name__: module for module in sources()})
def test_messages_name_only_variables_that_exist(module: ModuleType) -> None:
    """Names that a message or comment of the code speaks of: a misspelt one would send people looking for it."""
    literals = [
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    spoken = {name for text in literals for name in re.findall(r"\b(?:MA|RANKLAUNCH|VC|VK|DLS|BATCH|MSRUN|MY)_[A-Z0-9_]+\b", text)}
    given = {"RANKLAUNCH_FIRST_RANK", "RANKLAUNCH_WORLD_SIZE", *settings.SET_FOR_RANKS}  # what programs are told, and nobody reads here
    assert {name for name in spoken if not name.endswith("_")} <= known_names() | given


def test_an_unknown_adapter_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ranktable'"):
        helpers.plan({"RANKLAUNCH_METHOD": "rank-table"})
    with pytest.raises(ConfigError, match="did you mean 'modelarts'"):
        helpers.plan({"RANKLAUNCH_PLATFORM": "model-arts"})


@pytest.mark.parametrize("given", ["Torchrun", " torchrun ", "TORCHRUN"])
def test_methods_are_taken_in_any_case(given: str) -> None:
    assert helpers.plan({"RANKLAUNCH_METHOD": given}).method == "torchrun"
