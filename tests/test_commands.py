"""Every command on every page is tried here as far as one machine can, is run by another test, or has a reason why not.

Commands of ranklaunch that only read or write files run as they stand. `run` and `simulate` are planned with the same words: the programs
and launchers themselves run in tests/launchers and in the tests of RUN_ELSEWHERE.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import helpers
import pytest

from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.entrypoints.main import COMMANDS
from testbench import places

pytestmark = [pytest.mark.processes, pytest.mark.one_python]  # one page starts torchrun

ROOT = helpers.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "containers/README.md", *ROOT.glob("charts/*/README.md")])
ENGLISH = [page for page in PAGES if "zh" not in page.parts and page.name != "CHANGELOG.md"]  # tests/test_chinese.py compares the commands

BLOCK = re.compile(r"^```([^`\n]*)\n(.*?)^```$|((?:^(?: {4}| {7})[^\n]*\n)+)", re.DOTALL | re.MULTILINE)
SHELLS = ("", "console", "bash", "text")
PROGRAMS = (
    "ranklaunch make docker kubectl helm promtool git pip pytest python python3 sh bash source export cd trap cat tar curl srun sbatch "
    "scontrol salloc flux torchrun mpirun accelerate deepspeed ray msrun"
)
COMMAND = re.compile(rf"(?:[A-Z][A-Z_]*=\S* |env |\.venv/bin/|[\w-]+/bin/)*(?:{'|'.join(PROGRAMS.split())})(?= [^:]|$)")

# Commands that this file does not try, by how they begin: the test that runs them, or why no test does.
RUN_ELSEWHERE = {
    r"make (environment|test|test-charts|test-launchers|lint)$": ".ci/run",
    r"make run( |$)": "tests/test_docs.py::test_make_run_trains_with_every_method",
    r"make dist$|pip install dist/": "tests/test_stranger.py",
    r"make docs": "tests/test_site.py",
    r"make golden|.*--update-golden": "tests/test_guide.py",
    r"make generate|.*docs/make_reference\.py|.*tools/(platforms|known_errors)\.py": "tests/test_docs.py::test_made_pages_are_fresh",
    r"make hosts|.*testbench\.hosts": "tests/cluster/test_hosts.py",
    r"make mutations": "tests/test_mutations.py",
    r"make bench|.*benchmarks\.bench": "tests/test_benchmarks.py",
    r".*tools/walks\.py": "tests/test_walks.py",
    r"\.venv/bin/pytest": ".ci/run",
    r"helm template .*prometheusrule": "tests/charts/test_monitoring.py",
    r"helm (template|install)": "tests/charts",
    r"sh install\.sh|sh containers/install\.sh": "tests/containers",
    r"ranklaunch run --hosts-command": "tests/launchers/test_batch_systems.py",
    r"ranklaunch simulate .*--method (tensorflow|ray|msrun)": "tests/launchers",
}
NOT_RUN = {
    r"make (venv|test-adapters|test-pythons)$": "does a part of what .ci/run does",
    r"make (corpus|tables)": "takes an hour, or compares with results of hours; the parts of it run in .ci/run",
    r"docker ": "needs Docker; tests/containers runs the same steps without it",
    r"kubectl ": "needs a cluster of Kubernetes",
    r"helm get": "needs a cluster of Kubernetes",
    r"git clone|cd ": "has a placeholder, or leads into the folder of the checkout or of the job",
    r"pip (install|download)|python3 -m venv|\.venv/bin/pip": "loads packages from the network, or has a placeholder",
    r"(srun|flux) bash|torchrun |mpirun |accelerate |deepspeed |bash scripts/|python -u|msrun ": (
        "what a page compares with, or what ranklaunch plans"
    ),
    r"trap |export |source |sbatch |scontrol |cat ": "a line of a batch script, or of the user's shell",
    r"sh rank\.sh": "starts the ranks of a plan by hand",
    r"bash -c": "a boot command of ModelArts, with its folders",
    r"flux run": "needs Flux",
    r"squeue ": "needs Slurm, and shows what its user wants to see",
    r"ranklaunch (save|logs --follow)": "needs a job that runs; tests/control asks one",
    r"python3 -c": "prints a path within the installed package",
    r"ranklaunch .*(\[|\.\.\.)": "a pattern of commands",
}


@dataclass(frozen=True)
class Command:
    """A command line of a page, and the output that the page shows below it."""

    line: str
    shown: str = ""

    @property
    def words(self) -> str:
        """The words behind `ranklaunch`, "" for another program."""
        match = re.fullmatch(
            rf"(?:srun(?: --?[\w-]+(?:=\S+)?)* |env |[A-Z][A-Z_]*=\S* )*ranklaunch ((?:--version|{'|'.join(COMMANDS)})\b.*)", self.line
        )
        return match[1] if match else ""

    @property
    def fails(self) -> bool:
        """The page shows a message of ranklaunch in place of an output, a difference, or what `check` found wrong."""
        return self.shown.startswith(("ranklaunch: ", "~ ")) or "\nwrong: " in self.shown


def commands(page: Path) -> Iterator[Command]:
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if (block[1] or "") in SHELLS:
            yield from in_block((block[2] or textwrap.dedent(block[3])).replace("\\\n", " "))


def in_block(text: str) -> Iterator[Command]:
    """Yield the lines behind "$ ", with the output below each; in a block without them, the lines that begin with a program."""
    if text.startswith("$ "):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            yield Command(line, shown)
    else:
        yield from (Command(re.split(r" {3,}", line)[0]) for line in map(str.strip, text.splitlines()) if COMMAND.match(line))


every_page = pytest.mark.parametrize("page", ENGLISH, ids=[str(page.relative_to(ROOT)) for page in ENGLISH])

HOST = socket.gethostname()
PROGRAM = re.compile(r"\b\w+\.py\b")
PLACES = {"/logs": "logs", "LOG_DIR": "logs", "runs/big": "logs", "/etc/ranklaunch/templates": "templates"}
FIRST_BLOCKS = {
    "job.env": "MA_NUM_HOSTS=", "run.yaml": "engine: job", "ds.json": '{"train_batch_size"', "templates/spawn/command.j2": "nice ",
}  # fmt: skip
MISSING = ("gone.py",)  # programs of which a page shows that they are missing
FILES = {
    "job.env": "MA_NUM_HOSTS=1\nMA_NUM_GPUS=8\nMA_VJ_NAME=llm\nMA_TASK_NAME=worker\nVC_TASK_INDEX=0\n",
    "ds.json": "{}", "ds_config.json": '{"train_micro_batch_size_per_gpu": 1}', "sft.yaml": "", "rank_1.log": "RuntimeError: no\n",
    "hosts": f"{HOST}\nh1\n", "hostfile": f"{HOST} slots=8\nh1 slots=8\n",
    "pretrain.sh": "torchrun --nnodes $NNODES pretrain.py\n", "run_ds.sh": "torchrun --nnodes $NNODES train.py\n",
    "save.json": '{"slurm": {"time": "12:00:00", "saveBefore": 300}, "env": {"RANKLAUNCH_SAVE_SIGNAL": "USR1"}}',
    "job.yaml": "name: llm\nnodes: 2\ndevicesPerNode: 8\nimage: {repository: train}\nscript: train.py\n",
}  # fmt: skip
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "RANKLAUNCH_PYTHON": sys.executable, "RANKLAUNCH_OPENMPI": "4",
}  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the log folder of a job that failed."""
    folder = tmp_path_factory.mktemp("failed")
    (folder / "train.py").write_text("raise ValueError('loss is nan')\n")
    assert start(["run", "--method", "spawn", "--slots", "2", "--log-dir", "logs", "train.py"], folder)[0] == 1
    return folder / "logs"


@every_page
def test_commands_of_a_page(page: Path, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run them in the order of the page: a command may read what an earlier one has written."""
    monkeypatch.chdir(tmp_path)
    lay_out(page, tmp_path)
    shutil.copytree(logs, tmp_path / "logs")
    for command in commands(page):
        if not any(re.match(pattern, command.line) for pattern in (*RUN_ELSEWHERE, *NOT_RUN)):
            assert command.words, f"add the test that runs it, or why none does, to {Path(__file__).name}: {command.line}"
            code, output = run(shlex.split(command.words, comments=True), command.line, tmp_path)
            assert (code != 0) == command.fails, f"{command.line}\n{output}"


def lay_out(page: Path, folder: Path) -> None:
    """Write the files that commands of pages name: as the page shows them, else smallest ones."""
    text = page.read_text(encoding="utf-8")
    shown = [block[2] for block in BLOCK.finditer(text) if block[2]]
    of_page = {name: each for name, start in FIRST_BLOCKS.items() for each in shown if each.startswith(start)}
    for name, content in {**FILES, **of_page, **dict.fromkeys({*PROGRAM.findall(text)} - {*MISSING}, "")}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    for name in ("examples", "charts"):
        (folder / name).symlink_to(ROOT / name)


def run(words: list[str], line: str, folder: Path) -> tuple[int, str]:
    """Run a command of ranklaunch. Return its exit code and its stderr."""
    end = next((i for i, word in enumerate(words) if word in ("|", "||", "&", ">", ">/dev/null") or word.endswith(";")), len(words))
    file = words[end + 1] if words[end : end + 1] == [">"] else ""
    words = [PLACES.get(word, word).rstrip(";") for word in words[: end + (end < len(words) and words[end].endswith(";"))]]
    if words[0] == "spec":
        words = [word for word in words if word != "--submit"]
    if words[0] in ("simulate", "tune") or words[:3] == ["run", "--method", "spawn"]:
        return start(words, folder)
    if words[0] == "run":
        words[0] = "plan"
        words[1:1] = ["--slurm", "nodes=4,gpus=8"] if line.startswith("srun ") else []
    env = {
        **ENVIRONMENT,
        **dict(word.split("=", 1) for word in shlex.split(line.partition("ranklaunch ")[0]) if re.match("[A-Z_]+=", word)),
    }
    result = helpers.call(*words, env=env)
    if file:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(result.out)
    return result.code, result.err


def start(words: list[str], folder: Path, **more: str) -> tuple[int, str]:
    """Run ranklaunch in a process of its own. Return its exit code and its stderr."""
    own = {**{name: value for name, value in os.environ.items() if not name.startswith("RANKLAUNCH_")}, **more}
    command = [sys.executable, "-m", "ranklaunch", words[0], "--python", sys.executable, *words[1:]]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


def test_each_reason_is_that_of_a_command() -> None:
    lines = [command.line for page in ENGLISH for command in commands(page)]
    unused = [pattern for pattern in (*RUN_ELSEWHERE, *NOT_RUN) if not any(re.match(pattern, line) for line in lines)]
    assert unused == []


def test_the_tests_that_run_commands_are_there() -> None:
    for where in RUN_ELSEWHERE.values():
        file, _, name = where.partition("::")
        assert (ROOT / file).exists(), where
        assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), where


def test_the_page_of_commands_has_the_help_of_each() -> None:
    tool = places.module("tools/commands.py")
    assert tool.PAGE.read_text(encoding="utf-8") == "".join(tool.page()), "make generate"


ROW = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \|", re.MULTILINE)


def files_of_page() -> set[str]:
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    return {name for row in ROW.findall(page) for name in re.findall("`([^`]+)`", row)}


FAILS = """
import os, time
print("step 1", flush=True)
if os.environ["RANK"] == "3":
    raise ValueError("no")
time.sleep(600)
"""


def test_each_file_of_a_job_is_on_the_page_of_files(tmp_path: Path) -> None:
    """Run a job of two nodes that fails, starts again in place, and fails again."""
    (tmp_path / "train.py").write_text(FAILS)
    words = ["simulate", "--nodes", "2", "--slots", "2", "--method", "spawn", "--log-dir", "logs", "train.py"]
    assert start(words, tmp_path, RANKLAUNCH_MAX_RESTARTS="1")[0] == 76
    numbers = re.compile(r"(?<=[_/.-])[0-9]+")
    patterns = {re.sub("(?<=[_/.])[RIN](?=[/.]|$)", "0", name) for name in files_of_page()}
    written = {numbers.sub("0", str(path.relative_to(tmp_path / "logs"))) for path in (tmp_path / "logs").glob("**/*") if path.is_file()}
    assert "node_0/attempt_0/restart_0/rank_0.log" in written
    names = {re.sub(r"^(node_0/)?(attempt_0/)?(restart_0/)?", "", path) for path in written}
    assert {name for name in names if not any(name == each or (each.endswith("/") and name.startswith(each)) for each in patterns)} == set()


def test_each_file_of_the_page_is_in_the_sources() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for folder in ("src", "adapters") for path in (ROOT / folder).glob("**/*.py"))
    stems = {re.split(r"_?[RIN](?=[/.]|$)|/", name)[0] for name in files_of_page()}
    of_names = {f"{name}.log" for name in (*LAUNCHERS, "once", "ma-pre-start.sh", "pip-requirements.txt")}  # of a process with this name
    assert {stem for stem in stems - of_names if stem not in sources} == set()
