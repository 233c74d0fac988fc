"""One direction: what is read and planned touches nothing, and what run imports is small."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import helpers
import pytest

CORE = helpers.ROOT / "src" / "ranklaunch"
LINKED = ("adapters", "entrypoints", "templates")
OTHERS = ("programs",)  # run by other interpreters
# What touches the disk, the clock, sockets and processes; everything else computes.
WITH_EFFECTS = (
    "system", "supervise", "command", "entrypoints", "__main__.py", "muster/hub.py", "muster/door.py", "muster/gathering.py",
    "muster/member.py",
)  # fmt: skip
STARTING = ("system", "supervise")  # of these, those that start and end processes


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
PURE = [path for path in EVERYTHING if not within(path, WITH_EFFECTS)]

# Modules that can do nothing but compute. typing_extensions: for type checkers alone. signal: for the numbers of signals. gzip: for
# decompress; its open is a call of TOUCH.
MAY_IMPORT = {
    "__future__", "base64", "binascii", "collections", "dataclasses", "datetime", "difflib", "errno", "functools", "gzip", "hashlib",
    "hmac", "importlib.import_module", "ipaddress", "itertools", "jinja2", "json", "math", "operator", "os.path", "posixpath",
    "ranklaunch", "re", "shlex", "signal", "types", "typing", "typing_extensions", "zlib",
}  # fmt: skip
# Functions that reach the disk, the terminal, the clock or a process, whatever module they come from.
TOUCH = {
    "open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "getenv", "environ", "environb", "getcwd", "listdir",
    "scandir", "stat", "lstat", "exists", "isdir", "isfile", "islink", "getsize", "realpath", "abspath", "expanduser", "expandvars",
    "fork", "kill", "killpg", "system", "popen", "Popen", "signal", "setitimer", "alarm", "pause", "sigwait", "raise_signal",
}  # fmt: skip
# Templates, as Jinja's own loader does for the others.
READS = {"render/simple.py": {"open", "isfile"}, "simple_templates.py": {"open", "isfile"}}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def used(tree: ast.AST) -> Iterator[str]:
    """Names that are called, and attributes that are looked up on modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node, ast.Attribute) and dotted(node).partition(".")[0] in ("gzip", "os", "signal", "posixpath", "sys"):
            yield node.attr


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@helpers.for_each({place(path): path for path in PURE})
def test_reading_and_planning_touch_nothing(path: Path) -> None:
    tree = parsed(path)
    foreign = {name for name in imports(tree) if not any(name == each or name.startswith(f"{each}.") for each in MAY_IMPORT)}
    assert foreign == set()
    assert set(used(tree)) & TOUCH == READS.get(place(path), set())


@helpers.for_each({place(path): path for path in EVERYTHING if place(path) != "entrypoints/main.py"})
def test_only_the_console_script_reads_the_environment(path: Path) -> None:
    tree = parsed(path)
    assert not {"environ", "environb", "getenv"} & set(used(tree))
    assert not {"os.environ", "os.getenv"} & set(imports(tree))


@helpers.for_each({place(path): path for path in EVERYTHING if not within(path, STARTING)})
def test_only_the_supervisor_starts_and_ends_processes(path: Path) -> None:
    tree = parsed(path)
    starters = {"fork", "kill", "killpg", "system", "popen", "execv", "execve", "execvp", "spawnv", "posix_spawn", "pidfd_send_signal"}
    assert not starters & set(used(tree))
    assert not {"subprocess", "multiprocessing"} & {name.partition(".")[0] for name in imports(tree)}


# The rooms, each with those that its modules may import. The root (values, errors, files, what is shown) is everybody's.
MAY_KNOW: dict[str, set[str]] = {
    "": set(),
    "catalogue": set(),
    "ranktable": set(),
    "system": set(),
    "render": set(),
    "read": {"ranktable", "verdict"},
    "verdict": set(),
    "specs": {"read", "render"},
    "plan": {"adapters", "ranktable", "read", "render"},
    "adapters": {"plan", "ranktable", "read", "render", "verdict"},
    "muster": {"plan", "system", "verdict"},
    "supervise": {"catalogue", "muster", "plan", "read", "system", "verdict"},
    "command": {"adapters", "plan", "ranktable", "read", "supervise", "system", "verdict"},
    "entrypoints": {"adapters", "command", "plan", "ranktable", "read", "render", "specs", "supervise", "system", "verdict"},
}  # fmt: skip
ONLY = {"__main__.py": {"entrypoints"}, "plan/planning.py": {"muster"}}  # beyond that


def room(name: str) -> str:
    """Of a module or of what is imported from one, "" for the root's."""
    words = name.split(".")
    return words[1] if len(words) > 2 and words[1] in MAY_KNOW else ""


@helpers.for_each({place(path): path for path in EVERYTHING})
def test_imports_go_one_way(path: Path) -> None:
    own = room(f"ranklaunch.{place(path).replace('/', '.')}")
    known = {room(name) for name in imports(parsed(path)) if name.startswith("ranklaunch.")}
    assert known <= {"", own, *MAY_KNOW[own], *ONLY.get(place(path), ())}


@pytest.mark.parametrize("kind", ["platforms", "launchers"])
def test_adapters_of_one_kind_know_none_of_the_other_and_none_of_each_other(kind: str) -> None:
    other = {"platforms": "launchers", "launchers": "platforms"}[kind]
    folder = helpers.ROOT / "adapters" / kind
    shared = {"__init__", "shared", "torchrun"}  # torchrun is what megatron and accelerate start
    for path in folder.rglob("*.py"):
        for name in imports(parsed(path)):
            assert not name.startswith(f"ranklaunch.adapters.{other}"), path
            if name.startswith(f"ranklaunch.adapters.{kind}.") and path.stem != "__init__":
                assert name.split(".")[3] in shared, path


@pytest.mark.parametrize("name", LINKED)
def test_folders_are_linked_into_the_package(name: str) -> None:
    link = CORE / name
    assert link.is_symlink(), f"{link} is no link: was the repository cloned with git's core.symlinks off?"
    assert link.resolve() == helpers.ROOT / name
    assert (helpers.ROOT / name).is_dir()


def test_nothing_else_is_linked() -> None:
    assert {path.name for path in CORE.rglob("*") if path.is_symlink()} == set(LINKED)


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
        "ranklaunch.command.launch",
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


@pytest.mark.processes
def test_the_folders_are_no_packages_of_their_own() -> None:
    for name in LINKED:
        command = [sys.executable, "-I", "-c", f"import {name}"]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False)
        assert f"No module named '{name}'" in done.stderr
