"""The guide of CONTRIBUTING.md, followed in a copy of the tree.

A test for each kind of change: a launcher, a platform, a known error, a rule, a message. Before all
steps are done, exactly the expected tests are red. Afterwards they are green. Code, rows and
commands are those of the guide.
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
MEETING = (*OPTIONS, *MEET.split())
STARTING = (
    "tests/test_wheel.py::test_wheel_holds_exactly_these_files",
    "tests/test_docs.py::test_make_run_trains_with_every_method[toy]",
)
NEW_FILES = ("adapters/launchers/toy.py", "templates/toy/command.j2")
# What a message has that tells what to do.
TELLS = re.compile(r"\b(add .+ to .+|run make golden|run make generate|run docs/make_reference\.py|make (a file )?tests/golden/)")
# Tests that are red for a launcher after step 5, and for a platform after its row.
RED_FOR_LAUNCHER = {
    "test_adapter_has_golden_plans",
    "test_checklist_is_what_every_adapter_has[launcher]",
    "test_every_method_and_platform_has_a_case",
    "test_every_method_has_a_row",
    "test_every_method_has_a_section",
    "test_make_run_trains_with_every_method[toy]",
    "test_refusals_are_as_stored[modelarts]",
    "test_specifications_know_every_method",
    "test_templates_page_knows_the_job",
    "test_tree_holds_cases_of_adapters_only",
    "test_wheel_holds_exactly_these_files",
}
RED_FOR_ROW = {"test_rows_are_those_of_platforms_toml"}
RED_FOR_PLATFORM = {
    "test_adapter_has_golden_plans",
    "test_every_method_and_platform_has_a_case",
    "test_every_platform_has_a_sample",
    "test_every_variable_and_option_is_named",
    "test_made_pages_are_fresh",
    "test_refusals_are_as_stored[modelarts]",
    "test_rows_that_count_have_a_case",
    "test_stale_page_is_named_and_made_anew",
    "test_tree_holds_cases_of_adapters_only",
}

CONTRIBUTING = (helpers.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return CONTRIBUTING.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of code between fences."""
    pattern = rf"^( *)```{language}\n(.*?)^\1```$"
    return [textwrap.dedent(found[1]) for found in re.findall(pattern, text, re.MULTILINE | re.DOTALL)]


def commands(text: str) -> list[list[str]]:
    """Return the commands of .venv/bin, as words for the interpreter: a script, or -m pytest."""
    found = re.findall(r"^ +\.venv/bin/(pytest|python) (.+)$", text, re.MULTILINE)
    programs = {"pytest": ("-m", "pytest"), "python": ()}
    return [[*programs[program], *words.split()] for program, words in found]


def named(text: str, pattern: str) -> list[str]:
    """Return the names in backticks that fit a pattern."""
    return re.findall(rf"`({pattern})`", text)


LAUNCHER_GUIDE = section("Add a launcher")
PLATFORM_GUIDE = section("Add a platform")
ERROR_GUIDE = section("Add a known error")
RULE_GUIDE = section("Add a rule of diagnosis")
MESSAGE_GUIDE = section("Change a message")

# The launcher that the guide shows, and what it starts: no more than each rank with its number, and its output in a file.
(LAUNCHER,) = blocks(LAUNCHER_GUIDE, "python")
_, _, AND_MORE = LAUNCHER_GUIDE.partition("For the launcher above:\n\n")
TEMPLATE = textwrap.dedent(AND_MORE.partition("\n\n")[0]) + "\n"
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

    def append(self, path: str, text: str) -> None:
        self.write(path, (self.folder / path).read_text(encoding="utf-8") + text)

    def substitute(self, path: str, pattern: str, new: str) -> None:
        text = (self.folder / path).read_text(encoding="utf-8")
        text, count = re.subn(pattern, new, text, flags=re.MULTILINE | re.DOTALL)
        assert count == 1, f"{path} has not {pattern!r} once"
        self.write(path, text)

    def golden(self) -> dict[Path, bytes]:
        """Return the golden files, by their paths in the repository."""
        files = (self.folder / "tests" / "golden").rglob("*.txt")
        return {path.relative_to(self.folder): path.read_bytes() for path in files}

    def red(self, *words: str) -> dict[str, str]:
        """Run tests, and return the output of each that fails, by its name."""
        done = self.pytest("-q", "-p", "no:cacheprovider", *words)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        parts = re.split(r"^_{3,} (\S+) _{3,}$", done.stdout, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2]))

    def run(self, *words: str) -> None:
        done = self.python(*words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree")


def check_red(red: dict[str, str], names: set[str]) -> None:
    """Check that these tests are red, and that each says what to do."""
    assert red.keys() == names
    assert {name: output for name, output in red.items() if not TELLS.search(output)} == {}


# A launcher


def test_a_launcher_is_added_as_the_guide_says(tree: Tree, tmp_path: Path) -> None:
    steps_1_to_5(tree)
    check_red(tree.red(*MEETING) | tree.red(*STARTING), RED_FOR_LAUNCHER)
    steps_from_6(tree)
    assert tree.red(*MEETING) | tree.red(*STARTING) == {}
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


def steps_1_to_5(tree: Tree) -> None:
    """Add the launcher's class and template, so that users can ask for the method."""
    tree.write("adapters/launchers/toy.py", LAUNCHER)
    tree.write("templates/toy/command.j2", TEMPLATE)
    tree.put("adapters/launchers/__init__.py", '"plain": "Plain",\n', '"plain": "Plain", "toy": "Toy",\n')


def steps_from_6(tree: Tree) -> None:
    tree.put("src/ranklaunch/specs/model.py", '"mpi", "horovod",', '"mpi", "horovod", "toy",')
    two_nodes = "RANKLAUNCH_NODES=2\nRANKLAUNCH_HOSTS=h0,h1\nRANKLAUNCH_NODE=1\n"
    for case, env in (("toy/one-node", ""), ("toy/two-nodes", two_nodes)):
        variables = "".join(f"+{line}\n" for line in env.splitlines())
        tree.write(f"tests/golden/{case}.txt", f"{variables}$ --method=toy train.py\n")
    tree.add("Makefile", "EXAMPLE_toy      := examples/ddp_spawn_digits.py --procs_per_node $(SLOTS)")
    tree.add("docs/start.md", "    make run METHOD=toy           one process on one node, which starts its own ranks")
    tree.add("docs/templates.md", "- `templates/toy/command.j2`: method toy")
    tree.add("docs/methods.md", "| `toy` | one process; programs that start their ranks | the program once | yes |")
    tree.put("docs/methods.md", "\n## plain\n", "\n## toy\n\nThe program once on each node.\n\n## plain\n")
    tree.add("tests/test_wheel.py", *(f'    "ranklaunch/{path}",' for path in NEW_FILES))
    stored = "refusals_are_as_stored or (plan_is_as_stored and toy)"
    tree.run("-m", "pytest", "--update-golden", "tests/test_golden.py", "-k", stored)
    tree.run("docs/make_reference.py")


# A platform


def test_a_platform_is_added_as_the_guide_says(tree: Tree) -> None:
    row, case = blocks(PLATFORM_GUIDE, "toml")
    last = '[[platform]]\nname = "local"\n'
    tree.put("adapters/platforms/platforms.toml", last, f"{row}\n{last}")
    rows, *others = commands(PLATFORM_GUIDE)
    check_red(tree.red("tests/adapters/test_adapters.py", "-k", "rows"), RED_FOR_ROW)
    tree.run(*rows)
    check_red(tree.red(*MEETING), RED_FOR_PLATFORM)
    tree.append("tests/environments/places.toml", f"\n{case}")
    for words in others:
        tree.run(*words)
    assert tree.red(*MEETING) == {}


# A known error


def test_a_known_error_is_added_as_the_guide_says(tree: Tree) -> None:
    (entry,) = blocks(ERROR_GUIDE, "toml")
    check, *renew = commands(ERROR_GUIDE)
    (family,) = named(ERROR_GUIDE, r"catalogue/\w+\.toml")
    tree.append(family, f"\n{entry}")
    red = tree.red(*check[2:])
    assert red.keys() == set(named(ERROR_GUIDE, r"test_\w+"))
    assert TELLS.search(red["test_what_is_loaded_is_what_people_have_written"])
    for words in renew:
        tree.run(*words)
    assert tree.red(*check[2:]) == {}


# A rule of diagnosis


def test_a_rule_of_diagnosis_is_added_as_the_guide_says(tree: Tree) -> None:
    rule, row = blocks(RULE_GUIDE, "python")
    check, renew = commands(RULE_GUIDE)
    (name,) = re.findall(r"^def (\w+)", rule)
    (module,) = named(RULE_GUIDE, r"src/\S+\.py")
    (table,) = named(RULE_GUIDE, r"tests/\S+/test_diagnose\.py")
    rules = r"^RECORD_RULES: (\S+\[\S+, ...\]) = \((.*?),?\s*\)\n"
    tree.substitute(module, rules, rf"{rule}\n\nRECORD_RULES: \1 = (\2, {name})\n")
    red = tree.red(*check[2:])
    check_red(red, set(named(RULE_GUIDE, r"test_\w+")))
    tree.substitute(table, r"^(FITS = \{\n)", rf"\1{row}")
    tree.run(*renew)
    assert tree.red(*check[2:]) == {}


# A message


def test_a_message_is_changed_as_the_guide_says(tree: Tree) -> None:
    (change,) = blocks(MESSAGE_GUIDE, "diff")
    old, new = (line[1:] for line in change.splitlines())
    check, renew = commands(MESSAGE_GUIDE)
    (source,) = named(MESSAGE_GUIDE, r"adapters/\S+\.py")
    (copied,) = named(MESSAGE_GUIDE, r"test_\w+\[\w+\]")
    tree.put(source, old, new)
    red = tree.red(*check[2:])
    check_red(red, {copied})
    assert f"{new}\n" in red[copied]
    tree.run(*renew)
    assert tree.red(*check[2:]) == {}
    before = {path: (helpers.ROOT / path).read_bytes() for path in tree.golden()}
    after = tree.golden()
    changed = {path for path in after if after[path] != before[path]}
    assert {path.parent.name for path in changed} == {copied.partition("[")[2].rstrip("]")}
    for path in changed:
        assert after[path].replace(new.encode(), old.encode()) == before[path]
