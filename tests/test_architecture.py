"""One direction: what is read and planned touches nothing, and what run imports is small."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import helpers
import pytest

CORE = helpers.ROOT / "src" / "ranklaunch"
LINKED = ("adapters", "entrypoints", "templates")
FOR_DEVELOPMENT = ("benchmarks", "testbench")  # linked beside the package; no wheel has them
OTHERS = ("programs", "rankside")  # run by other interpreters
_OF_EVIDENCE = ("collection", "collector", "dumps", "folder", "processes", "stack_signals", "tools")
_OF_HANGS = ("alarms", "cpu_limit", "devices", "monitor", "pace", "rank_lines", "sampler", "slow_job", "uncaught")
# What touches the disk, the clock, sockets and processes; everything else computes.
WITH_EFFECTS = (
    "api", "cli", "control", "entrypoints", "output", "processes", "supervise", "system", "__main__.py",
    "ends/collect.py",
    *(f"evidence/{name}.py" for name in _OF_EVIDENCE),
    *(f"hangs/{name}.py" for name in _OF_HANGS),
    *(f"logs/{name}.py" for name in ("merging", "reading", "search")),
    *(f"muster/{name}.py" for name in ("dialler", "door", "driver", "nodes")),
    *(f"notify/{name}.py" for name in ("endpoint", "hook", "metrics", "notifications")),
    "report/reading.py", "tune/experiments",
    "restarts/cleaning.py", "restarts/round_facts.py",
)  # fmt: skip
STARTING = (
    "control",
    "evidence",
    "hangs",
    "notify",
    "processes",
    "restarts",
    "supervise",
    "system",
)  # of these, those that start and end processes


@functools.cache
def place(path: Path) -> str:
    """A module by its place in the package."""
    return str(path.relative_to(CORE if CORE in path.parents else helpers.ROOT))


def within(path: Path, places: tuple[str, ...]) -> bool:
    return any(place(path) == each or place(path).startswith(f"{each}/") for each in places)


EVERYTHING = sorted(
    path
    for path in (*CORE.rglob("*.py"), *(helpers.ROOT / "adapters").rglob("*.py"), *(helpers.ROOT / "entrypoints").rglob("*.py"))
    if not (CORE in path.parents and within(path, (*LINKED, *OTHERS)))
)
CORE_ONLY = [path for path in EVERYTHING if CORE in path.parents]
PURE = [path for path in EVERYTHING if not within(path, WITH_EFFECTS)]

# Modules that can do nothing but compute. typing_extensions: for type checkers alone. signal: for the numbers of signals. gzip: for
# decompress; its open is a call of TOUCH. get_data: of what belongs to the package itself. catch_warnings: to make errors of them.
MAY_IMPORT = {
    "__future__", "base64", "binascii", "bisect", "codecs.BOM_UTF16_BE", "codecs.BOM_UTF16_LE", "collections", "dataclasses", "datetime",
    "difflib", "errno", "functools", "gzip", "hashlib", "hmac", "importlib.import_module", "ipaddress", "itertools", "jinja2", "json",
    "math", "operator", "os.path", "pickletools", "pkgutil.get_data", "posixpath",
    "ranklaunch", "re", "shlex", "signal", "struct", "types", "typing",
    "typing_extensions", "unicodedata", "warnings.catch_warnings", "warnings.simplefilter", "xml.etree", "zlib",
}  # fmt: skip
# Functions that reach the disk, the terminal, the clock or a process, whatever module they come from.
TOUCH = {
    "open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "getenv", "environ", "environb", "getcwd", "listdir",
    "scandir", "stat", "lstat", "exists", "isdir", "isfile", "islink", "getsize", "realpath", "abspath", "expanduser", "expandvars",
    "fork", "kill", "killpg", "system", "popen", "Popen", "signal", "setitimer", "alarm", "pause", "sigwait", "raise_signal",
}  # fmt: skip
# Templates, as Jinja's own loader does for the others.
READS = {"render/templates.py": {"open", "isfile"}}


@dataclass
class Facts:
    """What the rules look at in one module. used: names that are called, and attributes that are looked up on modules."""

    imports: set[str] = field(default_factory=set)
    imports_at_run_time: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)


@functools.cache
def facts(path: Path) -> Facts:
    """Of a module, which is read once by each process that runs tests."""
    found = Facts()
    below: deque[tuple[ast.AST, bool]] = deque([(ast.parse(path.read_text(encoding="utf-8")), True)])
    while below:
        node, runs = below.popleft()
        note(node, runs, found)
        unused = node.body if isinstance(node, ast.If) and dotted(node.test) == "TYPE_CHECKING" else ()
        below.extend((inner, runs and inner not in unused) for inner in ast.iter_child_nodes(node))
    return found


def note(node: ast.AST, runs: bool, found: Facts) -> None:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        names = {f"{start}{alias.name}" for alias in node.names}
        found.imports |= names
        found.imports_at_run_time |= names if runs else set()
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        found.used.add(node.func.id)
    elif isinstance(node, ast.Attribute) and dotted(node).partition(".")[0] in ("gzip", "os", "signal", "posixpath", "sys"):
        found.used.add(node.attr)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def reading_and_planning_touch_nothing(path: Path) -> None:
    foreign = {name for name in facts(path).imports if not any(name == each or name.startswith(f"{each}.") for each in MAY_IMPORT)}
    assert foreign == set()
    assert facts(path).used & TOUCH == READS.get(place(path), set())


def only_the_console_script_reads_the_environment(path: Path) -> None:
    assert not {"environ", "environb", "getenv"} & facts(path).used
    assert not {"os.environ", "os.getenv"} & facts(path).imports


def only_the_supervisor_starts_and_ends_processes(path: Path) -> None:
    starters = {"fork", "kill", "killpg", "system", "popen", "execv", "execve", "execvp", "spawnv", "posix_spawn", "pidfd_send_signal"}
    assert not starters & facts(path).used
    assert not {"subprocess", "multiprocessing"} & {name.partition(".")[0] for name in facts(path).imports}


# The rooms, each with the rooms that its modules may import, are a table in docs/architecture.md. The root and redact are for all rooms.
PAGE = (helpers.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """Return the first and the last cell of each row of the table below a heading."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \|(.*)\|$", table, re.MULTILINE))


MAY_KNOW = {"": set[str](), **{name: set(re.findall(r"`([a-z_]+)`", cell)) for name, cell in rows("Who may import whom").items()}}
ONLY = {"__init__.py": {"api"}, "__main__.py": {"entrypoints"}}  # beyond that


def room(name: str) -> str:
    """Of a module or of what is imported from one, "" for the root's."""
    words = name.split(".")
    return words[1] if len(words) > 2 and words[1] in MAY_KNOW else ""


def imports_go_one_way(path: Path) -> None:
    own = room(f"ranklaunch.{place(path).replace('/', '.')}")
    known = {room(name) for name in facts(path).imports if name.startswith("ranklaunch.")}
    assert known <= {"", own, *MAY_KNOW[own], *ONLY.get(place(path), ())}


def name_of(path: Path) -> str:
    """A module's full name."""
    return f"ranklaunch.{place(path)}".replace("/", ".").removesuffix(".py").removesuffix(".__init__")


MODULES = {name_of(path): path for path in EVERYTHING}


def imported_modules(path: Path) -> set[str]:
    """Modules of ours that one imports when it runs, also inside functions."""
    return {name if name in MODULES else name.rpartition(".")[0] for name in facts(path).imports_at_run_time} & MODULES.keys()


def no_modules_import_each_other_in_a_circle() -> None:
    left = {name: imported_modules(path) for name, path in MODULES.items()}
    while leaves := {name for name, below in left.items() if not below & left.keys()}:
        left = {name: below for name, below in left.items() if name not in leaves}
    assert left == {}


def adapters_of_one_kind_know_none_of_the_other_and_none_of_each_other(path: Path) -> None:
    kind = path.relative_to(helpers.ROOT / "adapters").parts[0]
    other = {"platforms": "launchers", "launchers": "platforms"}[kind]
    shared = {"__init__", "shared", "torchrun"}  # torchrun is what megatron and accelerate start
    for name in facts(path).imports:
        assert not name.startswith(f"ranklaunch.adapters.{other}")
        if name.startswith(f"ranklaunch.adapters.{kind}.") and path.stem != "__init__":
            assert name.split(".")[3] in shared


LAUNCHER = re.compile(
    r"(?<![a-z])(torchrun|msrun|mpirun|mpiexec|orterun|orted|prted|prterun|deepspeed|accelerate|horovod(run)?|pdsh|srun|launch[._]py)(?![a-z])",
    re.IGNORECASE,
)
MAY_NAME_LAUNCHERS = (
    "tune/",  # a search of DeepSpeed configurations
    "specs/model.py", "specs/slurm.py",  # srun is part of a job's specification
)  # fmt: skip


def no_launcher_is_named(path: Path) -> None:
    """But in constants of a module, which are data, and in docstrings."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    data = [node for node in module.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    found: set[str] = set()
    left: list[ast.AST] = [module]
    while left:
        node = left.pop()
        documented = isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None
        text = next(iter(node.body)) if documented else None
        left += [each for each in ast.iter_child_nodes(node) if each not in data and each is not text]
        names = [getattr(node, name, None) for name in ("id", "attr", "name", "arg", "module", "value")]
        found |= {str(name) for name in names if isinstance(name, (str, bytes)) and LAUNCHER.search(str(name))}
    assert found == set()


# Each with the modules that it is for. All are one test: to read the modules takes longer than to look at them.
RULES: dict[Callable[[Path], None], list[Path]] = {
    reading_and_planning_touch_nothing: PURE,
    only_the_console_script_reads_the_environment: [path for path in EVERYTHING if place(path) != "entrypoints/main.py"],
    only_the_supervisor_starts_and_ends_processes: [path for path in EVERYTHING if not within(path, STARTING)],
    imports_go_one_way: EVERYTHING,
    no_launcher_is_named: [path for path in CORE_ONLY if not place(path).startswith(MAY_NAME_LAUNCHERS)],
    adapters_of_one_kind_know_none_of_the_other_and_none_of_each_other: [
        path for kind in ("platforms", "launchers") for path in (helpers.ROOT / "adapters" / kind).rglob("*.py")
    ],
}
OF_ALL = (no_modules_import_each_other_in_a_circle,)


def test_modules_keep_the_rules() -> None:
    one_by_one = {f"{rule.__name__}: {place(path)}": (rule, path) for rule, paths in RULES.items() for path in paths}
    together = {rule.__name__: (rule,) for rule in OF_ALL}
    helpers.check_each(lambda rule, *path: rule(*path), {**one_by_one, **together})


# docs/architecture.md


def test_the_page_has_every_room_and_no_other() -> None:
    packages = (CORE, helpers.ROOT / "adapters", helpers.ROOT / "entrypoints")
    files = [path for folder in packages for path in folder.rglob("*.py") if not (CORE in path.parents and within(path, LINKED))]
    folders = {f"{path.parent.relative_to(helpers.ROOT)}/" for path in files}
    assert rows("Rooms").keys() == {*folders, "templates/"}


def test_each_room_has_a_row_of_imports() -> None:
    rooms = {room(f"{name}.module") for name in MODULES} - {"", "redact"}
    assert rows("Who may import whom").keys() == rooms
    besides = dict(re.findall(r"`([a-z_/]+\.py)` also `([a-z]+)`", PAGE))
    assert {name: {other} for name, other in besides.items()} == ONLY


@pytest.mark.parametrize("heading", re.findall(r"^## (From .*)$", PAGE, re.MULTILINE))
def test_each_step_of_a_walk_names_its_module(heading: str) -> None:
    """That the names exist, test_docs.py sees to."""
    steps = re.split(r"^[0-9]+\. ", PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0], flags=re.MULTILINE)[1:]
    assert len(steps) >= 5
    assert [step for step in steps if not step.startswith("`ranklaunch.")] == []


@pytest.mark.parametrize("name", LINKED)
def test_folders_are_linked_into_the_package(name: str) -> None:
    link = CORE / name
    assert link.is_symlink(), f"{link} is no link: was the repository cloned with git's core.symlinks off?"
    assert link.resolve() == helpers.ROOT / name
    assert (helpers.ROOT / name).is_dir()


@pytest.mark.parametrize("name", FOR_DEVELOPMENT)
def test_what_serves_development_is_importable_beside_the_package(name: str) -> None:
    assert (CORE.parent / name).is_symlink()
    assert (CORE.parent / name).resolve() == helpers.ROOT / name


def test_the_testbench_knows_no_test() -> None:
    own = {path.stem for path in (helpers.ROOT / "tests").rglob("*.py")} - {"__init__"}
    files = [path for name in FOR_DEVELOPMENT for path in (helpers.ROOT / name).rglob("*.py")]
    assert {place(path) for path in files if own & {name.partition(".")[0] for name in facts(path).imports}} == set()


def test_folders_of_tests_are_rooms() -> None:
    """Those beside the rooms have jobs of a kind."""
    tests = helpers.ROOT / "tests"
    folders = {path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")}
    rooms = {name.removeprefix("ranklaunch.").partition(".")[0] for name in MODULES} | {*OTHERS}
    assert folders - rooms == {"charts", "cluster", "containers", "launchers"}


def test_nothing_else_is_linked() -> None:
    assert {path.name for path in CORE.rglob("*") if path.is_symlink()} == set(LINKED)
    there = {path.name for path in CORE.parent.iterdir()} - {"__pycache__"}
    assert there == {"ranklaunch", "ranklaunch_start.py", *FOR_DEVELOPMENT}


def test_no_code_of_ours_changes_where_python_looks_for_modules() -> None:
    """But for where the command begins, which puts the program's folders last, and a program that a foreign interpreter runs: its own
    folder, which is the package's, must not be one of those."""
    folders = ("adapters", "entrypoints", "src", "testbench", "benchmarks", "tests", "tools", "docs", "examples")
    files = [path for folder in folders for path in (helpers.ROOT / folder).rglob("*.py")]
    changing = {place(path) for path in files if "sys." + "path" in path.read_text(encoding="utf-8")}
    assert {path.rpartition("/")[2] for path in changing} == {"ask_route_plan.py", "ranklaunch_start.py"}


IMPORTED = """
import os, sys, sysconfig
before = set(sys.modules)
import {modules}
stdlib = os.path.realpath(sysconfig.get_paths()["stdlib"])
for name in sorted(set(sys.modules) - before):
    file = getattr(sys.modules[name], "__file__", None) or ""
    inside = os.path.realpath(file).startswith(stdlib + os.sep) and "site-packages" not in file
    print(name if file and not inside else "")
"""


def third_party(modules: str) -> set[str]:
    """Packages from outside the standard library that an import brings in, in a fresh interpreter."""
    script = IMPORTED.format(modules=modules)
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.processes
@pytest.mark.parametrize(
    "modules",
    [
        "ranklaunch.adapters.launchers, ranklaunch.adapters.platforms, ranklaunch.plan.planning",
        "ranklaunch.cli.launch",
        "ranklaunch.entrypoints.plan",
        "ranklaunch.entrypoints.spec",
    ],
)
def test_jinja_is_the_only_dependency_and_comes_when_a_template_needs_it(modules: str) -> None:
    assert third_party(modules) == {"ranklaunch"}
    assert third_party(f"{modules}, ranklaunch.render.jinja") == {"ranklaunch", "jinja2", "markupsafe"}


@pytest.mark.processes
def test_the_outer_process_of_run_stays_small() -> None:
    assert third_party("ranklaunch.entrypoints.main, ranklaunch.entrypoints.run") == {"ranklaunch"}


TOO_LARGE = ("argparse", "selectors", "subprocess", "zlib")  # of the standard library


@pytest.mark.processes
def test_a_start_imports_nothing_large(tmp_path: Path) -> None:
    words = ["run", "--method", "spawn", "--slots", "1", "--python", sys.executable, "--log-dir", str(tmp_path), "--", "/bin/true"]
    command = [sys.executable, "-v", "-m", "ranklaunch", *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "\nimport 'ranklaunch.supervise.attempt'" in done.stderr
    assert {name for name in TOO_LARGE if f"\nimport '{name}'" in done.stderr} == set()


@pytest.mark.processes
def test_the_folders_are_no_packages_of_their_own() -> None:
    for name in LINKED:
        command = [sys.executable, "-I", "-c", f"import {name}"]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False)
        assert f"No module named '{name}'" in done.stderr
