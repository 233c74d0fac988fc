"""The command line: commands, options, programs, and one message with the right exit code for every mistake."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import helpers
import pytest

from ranklaunch import __version__
from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.cli import host_command, options, usage
from ranklaunch.entrypoints import main as entrypoint
from ranklaunch.env import features, settings
from ranklaunch.env.job import Program
from ranklaunch.env.reader import Variable
from ranklaunch.errors import DEFECT, EXIT_CODES, WaitError


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"]])
def test_help(argv: list[str]) -> None:
    found = helpers.call(*argv)
    assert (found.code, found.err) == (0, "")
    assert all(f"\n  {name} " in found.out for name in entrypoint.COMMANDS)
    assert all(f"\n  {code:<10} {text}" in found.out for code, text in EXIT_CODES.items())


LONG = "a" * 50_000


@helpers.for_each(
    {
        "command": [LONG], "option": ["plan", f"--{LONG}"], "file": ["plan", f"--env-file={LONG}", "x.py"], "layout": ["layout", LONG],
        "completion": ["completion", LONG], "template": ["template", LONG], "explain": ["explain", LONG],
        "grep": ["logs", f"--grep=({LONG}"], "report": ["report", LONG], "table": ["check", f"--rank-table={LONG}", "x.py"],
    }
)  # fmt: skip
def test_messages_stay_short(argv: list[str]) -> None:
    found = helpers.call(*argv)
    assert found.code not in (0, DEFECT)
    assert max(map(len, (found.err or found.out).splitlines())) < 5000


def test_a_long_message_has_its_beginning_and_its_end() -> None:
    said = helpers.call("layout", LONG).err
    assert said.startswith("ranklaunch: ")
    assert " characters left out) ...aaa" in said
    assert not said.endswith("a\n")


@pytest.mark.parametrize("argv", [["--version"], ["-V"]])
def test_version(argv: list[str]) -> None:
    assert helpers.call(*argv) == helpers.Result(0, f"ranklaunch {__version__}\n", "")


def test_a_variable_without_a_name_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reads it and starts nothing with it: illegal environment variable name."""
    monkeypatch.setattr(os, "environ", {"": "x", "HOME": "/root"})
    assert entrypoint.inherited_environment() == {"HOME": "/root"}


def test_no_command_is_a_wrong_command_line() -> None:
    found = helpers.call()
    assert (found.code, found.out) == (2, "")
    assert "usage: ranklaunch COMMAND" in found.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["plna", "x.py"], ["unknown command 'plna'", "run, plan, check, simulate", "did you mean 'plan'?"]),
        (["train.py"], ["unknown command 'train.py'"]),
        ([""], ["unknown command ''"]),
        (["--method", "spawn", "x.py"], ["unknown command '--method'"]),
        (["plan"], ["no PROGRAM given"]),
        (["plan", "--"], ["no PROGRAM given"]),
        (["plan", "-", "a"], ["PROGRAM '-' begins with a dash"]),
        (["plan", "--", "--odd-name", "-m"], ["PROGRAM '--odd-name' begins with a dash", "./--odd-name"]),
        (["plan", "-m"], ["no PROGRAM given"]),
        (["plan", ""], ["no PROGRAM given"]),
        (["plan", "--metod=x", "x.py"], ["--metod"]),
        (["plan", "--metod", "x", "x.py"], ["unknown option '--metod', did you mean '--method'?", "usage: ranklaunch plan"]),
        (["plan", "--meth", "spawn", "x.py"], ["unknown option '--meth'"]),
        (["check", "--nproc_per_node", "2", "x.py"], ["unknown option '--nproc_per_node', did you mean '--slots'?"]),
        (["plan", "--nproc-per-node=2", "x.py"], ["unknown option '--nproc-per-node=2', did you mean '--slots'?"]),
        (["plan", "--nnodes", "2", "x.py"], ["unknown option '--nnodes', did you mean '--nodes'?"]),
        (["plan", "--node_rank", "0", "x.py"], ["unknown option '--node_rank', did you mean '--node'?"]),
        (["plan", "--main_process_ip", "h", "x.py"], ["unknown option '--main_process_ip', did you mean '--master-addr'?"]),
        (["plan", "--num_gpus", "2", "x.py"], ["unknown option '--num_gpus', did you mean '--num-gpus'?"]),
        # Abbreviations are refused: an option of a later version could change their meaning.
        (["plan", "--meth=spawn", "x.py"], ["--meth=spawn"]),
        (["plan", "-x", "x.py"], ["unknown option '-x'"]),
        (["plan", "--method"], ["--method", "usage:"]),
        (["plan", "--format=xml", "x.py"], ["--format", "xml", "text, json, sh"]),
        (["plan", "--root=/no/such", "x.py"], ["--root /no/such: no such folder"]),
        (["plan", "--node=x", "x.py"], ["--node", "'x'", "whole number"]),
        (["plan", "--slots=x", "x.py"], ["option --slots='x'"]),
        (["plan", "--all-nodes=yes", "x.py"], ["--all-nodes"]),
        (["plan", "--log-dir", "--method", "x.py"], ["--log-dir"]),
    ],
)
def test_a_wrong_command_line(argv: list[str], words: list[str]) -> None:
    found = helpers.call(*argv)
    assert (found.code, found.out) == (2, "")
    assert all(line.startswith("ranklaunch: ") for line in found.err.splitlines())
    assert all(word in found.err for word in words), found.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["plan", "--method=torch", "x.py"], ["--method", "'torch'", "did you mean"]),
        (["plan", "--platform=x", "x.py"], ["--platform"]),
    ],
)
def test_an_unknown_name_in_an_option(argv: list[str], words: list[str]) -> None:
    found = helpers.call(*argv)
    assert found.code in (2, 78)
    assert all(word in found.err for word in words), found.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["x.py", "--epochs", "3"], Program("x.py", ("--epochs", "3"))),
        (["--", "x.py", "--epochs"], Program("x.py", ("--epochs",))),
        (["--method", "spawn", "x.py", "--method", "none"], Program("x.py", ("--method", "none"))),
        (["--method=spawn", "x.py", "--", "y"], Program("x.py", ("--", "y"))),
        (["--all-nodes", "x.py"], Program("x.py")),
        (["-m", "pkg.mod", "-m", "x"], Program("pkg.mod", ("-m", "x"), module=True)),
        (["--method", "spawn", "--", "-m", "pkg.mod"], Program("pkg.mod", module=True)),
        (["x y.py", "", "a b"], Program("x y.py", ("", "a b"))),
    ],
)
def test_everything_after_the_program_is_the_programs(words: list[str], expected: Program) -> None:
    values, after = options.JobParser("plan", "", "usage", settings.PLAN_VARIABLES).split(words)
    assert options.program_of(after) == expected
    assert values in ([], [("method", "spawn")], [("all_nodes", "true")])


def shown_in_help(variables: Iterable[Variable[object]]) -> bool:
    found = helpers.call("plan", "--help")
    assert found.code == 0
    words = re.findall(r"[\w-]+", found.out)
    return all(word in words for variable in variables if variable.option for word in (variable.option, *variable.names))


def test_every_option_shows_its_variables_in_the_help() -> None:
    assert shown_in_help(settings.VARIABLES)


def test_every_option_of_plan_alone_shows_its_variables_in_the_help() -> None:
    assert shown_in_help(settings.PLAN_VARIABLES)


def test_help_has_groups_defaults_methods_and_examples() -> None:
    found = " ".join(helpers.call("plan", "--help").out.split())
    for text in ("of this command: --format", "the job: --method", "of some methods: --cp", "methods: ", " examples: ranklaunch plan"):
        assert text in found
    assert "than the platform gave to earlier attempts (default: 25) [RANKLAUNCH_GRACE_S]" in found
    assert "port of the rendezvous on node 0 (default: the method's own) [" in found
    assert all(f" {name} " in found.partition("methods: ")[2] for name in LAUNCHERS)


def test_every_common_option_is_in_a_group() -> None:
    common = (*settings.VARIABLES, *features.OF_CONSOLE, *features.OF_SAVING)
    assert {variable.option for variable in common if variable.option} == {n for names in usage.GROUPS.values() for n in names}


def test_options_come_before_variables() -> None:
    env = {"RANKLAUNCH_METHOD": "plain", "RANKLAUNCH_SLOTS": "1"}
    found = helpers.call("plan", "--format=json", "--method=spawn", "--slots", "2", "x.py", env=env).json
    assert (found["method"], len(found["processes"])) == ("spawn", 2)


@pytest.mark.parametrize("variable", ["RANKLAUNCH_FORMAT", "RANKLAUNCH_ALL_NODES"])
def test_every_option_has_a_variable(variable: str) -> None:
    env = {"RANKLAUNCH_FORMAT": "json", variable: {"RANKLAUNCH_FORMAT": "json"}.get(variable, "true")}
    found = helpers.call("plan", "x.py", env=env)
    assert found.code == 0
    assert found.out.startswith("[" if variable == "RANKLAUNCH_ALL_NODES" else "{")


# Errors


def test_a_defect_is_one_of_ours_and_shows_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    from ranklaunch.entrypoints import plan

    def broken(*_: object) -> int:
        msg = "of all things \udce9"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(plan, "main", broken)
    found = helpers.call("plan", "x.py")
    assert (found.code, found.out) == (70, "")
    assert f"ranklaunch: a defect in ranklaunch {__version__}; please report it with this:" in found.err
    assert "ZeroDivisionError: of all things" in found.err
    assert all(line.startswith("ranklaunch: ") for line in found.err.splitlines())


def test_a_library_that_is_not_installed_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    from ranklaunch.entrypoints import plan

    def broken(*_: object) -> int:
        msg = "No module named 'jinja2'"
        raise ModuleNotFoundError(msg, name="jinja2")

    monkeypatch.setattr(plan, "main", broken)
    found = helpers.call("plan", "x.py")
    assert (found.code, found.out) == (69, "")
    assert found.err.startswith(f"ranklaunch: No module named 'jinja2': {sys.executable}, which runs ranklaunch, needs this module")


def test_every_line_of_a_message_is_marked() -> None:
    found = helpers.call("plan", "x.py", env={"RANKLAUNCH_NODES": "x", "RANKLAUNCH_NODE": "y"})
    assert found.code == 78
    assert len(found.err.splitlines()) >= 2
    assert all(line.startswith("ranklaunch: ") for line in found.err.splitlines())


@helpers.for_each({name: value for name, value in helpers.HOSTILE.items() if value.strip()})
def test_messages_survive_hostile_values(value: str) -> None:
    found = helpers.call("plan", "x.py", env={"RANKLAUNCH_NODES": value, "RANKLAUNCH_METHOD": value, "MA_NUM_GPUS": value})
    assert found.code == 78
    assert "RANKLAUNCH_NODES=" in found.err
    assert all(line.startswith("ranklaunch: ") for line in found.err.splitlines())
    assert len(found.err) < 5_000


@pytest.mark.parametrize("error", [MemoryError(), *(OSError(number, "of all things") for number in entrypoint.SHORTAGES)], ids=str)
def test_what_the_system_refuses_is_no_defect(error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from ranklaunch.entrypoints import plan

    def refused(*_: object) -> int:
        raise error

    monkeypatch.setattr(plan, "main", refused)
    assert helpers.call("plan", "x.py").code == WaitError.exit_code
    said = capfd.readouterr().err
    assert said == f"ranklaunch: the system refuses, trying again may help: {str(error) or 'no memory left'}\n"


@pytest.mark.processes
@pytest.mark.parametrize("nodes", ["1", "200"])
def test_a_plan_that_a_full_disk_does_not_take_is_no_success(nodes: str) -> None:
    words = (
        "plan",
        "--method",
        "spawn",
        "--slots",
        "8",
        "--nodes",
        nodes,
        "--master-addr",
        "h",
        "--all-nodes",
        "true",
        "--format",
        "json",
        "x.py",
    )
    with open("/dev/full", "wb") as full:
        found = subprocess.run([sys.executable, "-m", "ranklaunch", *words], stdout=full, stderr=subprocess.PIPE, check=False)
    assert found.returncode == WaitError.exit_code
    assert found.stderr == b"ranklaunch: the system refuses, trying again may help: [Errno 28] No space left on device: 'standard output'\n"


class Full(io.StringIO):
    """What nobody reads, or what is written to a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "")


@pytest.mark.parametrize(("argv", "code"), [(["plan", "--method", "spawn", "--slots", "x", "x.py"], 2), (["check", "--method", "x"], 78)])
def test_an_error_that_cannot_be_said_keeps_its_code(argv: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """75, with which a full disk ends a command, would be tried again in vain."""
    monkeypatch.setattr(sys, "stderr", Full())
    assert entrypoint.main(argv, {}) == code


def test_a_console_that_takes_nothing_does_not_end_the_wait_for_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    host_command._say("the command of hosts has named none yet")


@pytest.mark.processes
@pytest.mark.parametrize("command", ["plan", "run"])
def test_too_little_memory_is_no_defect(command: str, tmp_path: Path) -> None:
    for kilobytes in range(14_000, 30_000, 2_000):
        own = ("--method", "spawn", "--slots", "2", "--log-dir", str(tmp_path / str(kilobytes)), "true")
        words = ("sh", "-c", f'ulimit -v {kilobytes}; exec "$@"', "sh", sys.executable, "-m", "ranklaunch", command, *own)
        found = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        assert found.returncode != DEFECT, kilobytes
        assert b"defect" not in found.stderr, kilobytes


@pytest.mark.processes
@pytest.mark.parametrize("limit", [5, 6, 7, 8])  # with 4, Python itself may not come as far as us: a .pth file that imports needs more
def test_so_few_descriptors_that_nothing_can_be_said(limit: int) -> None:
    words = ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", sys.executable, "-m", "ranklaunch", "run", "true")
    found = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert found.returncode == WaitError.exit_code
    assert found.stderr.startswith(b"ranklaunch: ")
    assert b"Traceback" not in found.stderr


@pytest.mark.processes
def test_what_is_shown_is_utf_8_whatever_the_locale() -> None:
    words = (sys.executable, "-m", "ranklaunch", "explain", "--find", b"\xc3\x9c\xff")
    found = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert (found.returncode, found.stdout) == (1, b"\xc3\x9c\\udcff: no known error has these words\n")


@pytest.mark.processes
def test_whoever_presses_ctrl_c_gets_no_traceback() -> None:
    words = (sys.executable, "-m", "ranklaunch", "explain", "-")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asked:
        assert asked.stdin
        asked.stdin.write(b"x" * 1_000_000)  # more than a pipe holds: it reads
        while asked.poll() is None:  # between two of its reads, Python keeps it until the second is over
            asked.send_signal(signal.SIGINT)
            time.sleep(0.05)
        assert (asked.returncode, asked.stdout and asked.stdout.read(), asked.stderr and asked.stderr.read()) == (130, b"", b"")


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_commands_that_start_processes_are_not_called_by_accident(command: str) -> None:
    """They need the signals that script() takes over first; without them nothing may start."""
    found = helpers.call(command, "x.py")
    assert found.code == 70
    assert "script()" in found.err


@pytest.mark.processes
def test_a_python_that_is_too_old_is_told_so() -> None:
    """Where it takes ranklaunch from PYTHONPATH: pip would have refused. Here it says that it is old."""
    program = "import sys; sys.version_info = (3, 8, 18); from ranklaunch_start import script; script()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (69, f"ranklaunch: it needs Python 3.9 or newer; {sys.executable} is 3.8\n")
