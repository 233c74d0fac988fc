"""The guide of CONTRIBUTING.md, followed: in a copy of the tree a launcher and a platform are added.

With the modules alone the tests that it names are red, and each says what to do; with all of its steps they are green.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import helpers
import pytest

pytestmark = [pytest.mark.processes, pytest.mark.guide]

(MEET,) = re.findall(r"^ADAPTERS_MEET := (.*)$", (helpers.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
# Of the plans that are stored, those of others are left out, which take their time: but what is refused may list all methods. So are
# the two tests that try hundreds of values on every adapter, whichever these are.
OPTIONS = ("-m", "not processes", "-k", "toy or not (plan_is_as_stored or detection_never_raises or test_arguments_arrive_as_they_are)")
STARTING = (
    "tests/test_wheel.py::test_wheel_holds_exactly_these_files",
    "tests/test_docs.py::test_make_run_trains_with_every_method[toy]",
)
NEW_FILES = ("adapters/launchers/toy.py", "templates/toy/command.j2")
# What a message has that tells what to do.
TELLS = re.compile(r"\b(add .+ to .+|run make golden|run make generate|run docs/make_reference\.py|make (a file )?tests/golden/)")

CONTRIBUTING = (helpers.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROW = textwrap.dedent(CONTRIBUTING.partition("   ```toml\n")[2].partition("   ```\n")[0])
CASE = """
[[case]]
platform = "toycloud"
env = { TOYCLOUD_JOB = "j", TOYCLOUD_NODES = "2", TOYCLOUD_NODE = "1", TOYCLOUD_HOSTS = "h0,h1" }
plan = "toycloud, attempt 1: node 1 of 2, first h0, 1 slots on each"
"""


# The launcher that the guide shows, and what it starts: no more than each rank with its number, and its output in a file.
GUIDE = CONTRIBUTING.partition("## Add a launcher\n")[2]
LAUNCHER = textwrap.dedent(GUIDE.partition("   ```python\n")[2].partition("   ```\n")[0])
TEMPLATE = textwrap.dedent(GUIDE.partition("For the launcher above:\n\n")[2].partition("\n\n")[0]) + "\n"
STARTRANKS = """#!{python}
import argparse, os, subprocess, sys
parser = argparse.ArgumentParser()
for name in ("ranks", "first", "world"):
    parser.add_argument(f"--{{name}}", type=int)
parser.add_argument("--logs")
parser.add_argument("words", nargs=argparse.REMAINDER)
asked = parser.parse_args()
os.makedirs(asked.logs, exist_ok=True)
started = []
for i in range(asked.ranks):
    env = {{"RANK": str(asked.first + i), "LOCAL_RANK": str(i), "WORLD_SIZE": str(asked.world)}}
    with open(f"{{asked.logs}}/{{asked.first + i}}.log", "w") as log:
        started.append(subprocess.Popen(asked.words, env={{**os.environ, **env}}, stdout=log, stderr=log))
sys.exit(any([each.wait() for each in started]))
"""
PROGRAM = """
import os, sys, time
print("rank", os.environ["RANK"], "is here", flush=True)
time.sleep(2 if os.environ["RANK"] == "1" else 4)
sys.exit(7 if os.environ["RANK"] == "1" else 0)
"""


class Tree:
    """A copy of the repository, which its tests take for their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        skipped = shutil.ignore_patterns(".git", ".venv*", ".*cache", ".hypothesis", "__pycache__", "runs", "ranklaunch-logs")
        shutil.copytree(helpers.ROOT, folder, symlinks=True, ignore=skipped)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text, encoding="utf-8")

    def add(self, path: str, *lines: str) -> None:
        """Each as a line of its own, behind the one that is there once and like it but for the name: toy for plain."""
        text = (self.folder / path).read_text(encoding="utf-8")
        for line in lines:
            like = line.replace("toy", "plain")
            assert text.count(f"\n{like}\n") == 1, f"{path} has not one line {like!r}"
            text = text.replace(f"\n{like}\n", f"\n{like}\n{line}\n")
        self.write(path, text)

    def python(self, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(self.folder / "src"), "COLUMNS": "2000"}
        env["PATH"] = f"{path}:{env['PATH']}" if path else env["PATH"]
        env.pop("CI", None)  # where golden files may not be written
        return subprocess.run([sys.executable, *words], cwd=self.folder, env=env, capture_output=True, text=True, timeout=600, check=False)

    def pytest(self, *words: str) -> subprocess.CompletedProcess[str]:
        # A folder of its own: in the one that all share, a pytest that ends also clears away what earlier runs have left, however much.
        return self.python("-m", "pytest", f"--basetemp={self.folder.parent / 'temporary'}", *words)

    def put(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path} has not {old!r} once"
        self.write(path, text.replace(old, new))

    def red(self) -> dict[str, str]:
        """What the tests that come first say, and those that know files and examples, by those that fail."""
        found: dict[str, str] = {}
        for words in ((*OPTIONS, *MEET.split()), STARTING):
            done = self.pytest("-q", "-p", "no:cacheprovider", *words)
            assert done.returncode in (0, 1), done.stdout + done.stderr
            parts = re.split(r"^_{3,} (\S+) _{3,}$", done.stdout, flags=re.MULTILINE)
            found.update(zip(parts[1::2], parts[2::2]))
        return found


def test_a_launcher_and_a_platform_are_added_as_the_guide_says(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree")
    modules(tree)
    red = tree.red()
    assert {name: said for name, said in red.items() if not TELLS.search(said)} == {}
    assert len(red) > 10
    everything_else(tree)
    assert tree.red() == {}
    toy_names_the_rank_that_failed(tree, tmp_path)


def toy_names_the_rank_that_failed(tree: Tree, folder: Path) -> None:
    """Each rank has a log and a tag, and the verdict names the one that failed, with its own code."""
    (folder / "bin").mkdir()
    (folder / "bin" / "startranks").write_text(STARTRANKS.format(python=sys.executable), encoding="utf-8")
    (folder / "bin" / "startranks").chmod(0o755)
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    words = ("--method", "toy", "--slots", "2", "--log-dir", str(folder / "logs"), "--", str(folder / "train.py"))
    done = tree.python("-m", "ranklaunch", "run", *words, path=str(folder / "bin"))
    assert done.returncode == 7, done.stderr
    attempt = folder / "logs" / "attempt_1"
    assert [(attempt / f"rank_{rank}.log").read_text() for rank in (0, 1)] == ["rank 0 is here\n", "rank 1 is here\n"]
    assert {"[rank 0] rank 0 is here", "[rank 1] rank 1 is here"} <= set(done.stdout.splitlines())
    culprit = json.loads((attempt / "verdict.json").read_text())["culprit"]
    assert (culprit["rank"], culprit["exit_code"]) == (1, 7)


def modules(tree: Tree) -> None:
    """Steps 1 to 5 of a launcher, and the row of a platform: they are there, and can be asked for."""
    tree.write("adapters/launchers/toy.py", LAUNCHER)
    tree.write("templates/toy/command.j2", TEMPLATE)
    tree.put("adapters/platforms/platforms.toml", '[[platform]]\nname = "local"\n', f'{ROW}\n[[platform]]\nname = "local"\n')
    assert tree.python("tools/platforms.py").returncode == 0
    tree.put("adapters/launchers/__init__.py", '"plain": "Plain",\n', '"plain": "Plain", "toy": "Toy",\n')


def everything_else(tree: Tree) -> None:
    """Steps 6 and on."""
    tree.put("src/ranklaunch/specs/model.py", '"mpi", "horovod",', '"mpi", "horovod", "toy",')
    two_nodes = "RANKLAUNCH_NODES=2\nRANKLAUNCH_HOSTS=h0,h1\nRANKLAUNCH_NODE=1\n"
    for case, env in (("toy/one-node", ""), ("toy/two-nodes", two_nodes)):
        variables = "".join(f"+{line}\n" for line in env.splitlines())
        tree.write(f"tests/golden/{case}.txt", f"{variables}$ --method=toy train.py\n")
    cases = tree.folder / "tests" / "environments" / "places.toml"
    cases.write_text(cases.read_text(encoding="utf-8") + CASE, encoding="utf-8")
    tree.add("Makefile", "EXAMPLE_toy      := examples/ddp_spawn_digits.py --procs_per_node $(SLOTS)")
    tree.add("docs/start.md", "    make run METHOD=toy           one process on one node, which starts its own ranks")
    tree.add("docs/templates.md", "| `templates/toy/command.j2` | method toy |")
    tree.add("docs/methods.md", "| `toy` | the program once | yes |")
    tree.put("docs/methods.md", "\n## plain\n", "\n## toy\n\nThe program once on each node.\n\n## plain\n")
    tree.add("tests/test_wheel.py", *(f'    "ranklaunch/{path}",' for path in NEW_FILES))
    renewed = tree.pytest("--update-golden", "tests/test_golden.py", "-k", "refusals_are_as_stored or (plan_is_as_stored and toy)")
    assert renewed.returncode == 0, renewed.stdout
    made = tree.python("docs/make_reference.py")
    assert made.returncode == 0, made.stderr
