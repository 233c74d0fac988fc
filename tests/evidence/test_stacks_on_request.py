"""The sitecustomize that lets a Python write its stacks, and whoever asks for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ranklaunch.evidence import stack_signals, stacks
from ranklaunch.files import rankside

pytestmark = pytest.mark.processes

Started = Callable[..., "subprocess.Popen[str]"]
WAITS = """
import os, signal, time
def waits():
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(600)
waits()
"""

FORKS = f"{WAITS.rpartition('waits()')[0]}os.fork()\nwaits()\n"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    running: list[subprocess.Popen[str]] = []

    def start(text: str, stacks: bool = True, before: str = "", **env: str) -> subprocess.Popen[str]:
        program = tmp_path / f"program{len(running)}.py"  # one each: a child that has just been started may still be reading its own
        program.write_text(text, encoding="utf-8")
        path = {"PYTHONPATH": f"{rankside() if stacks else ''}:{before}"}
        child = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env={**os.environ, **path, **env})
        running.append(child)
        return child

    yield start
    for child in running:
        child.kill()
        child.wait()
        assert child.stdout
        child.stdout.close()


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout
    return child.stdout.readline().strip()


def test_a_process_writes_its_stacks_and_goes_on(started: Started) -> None:
    child = started(WAITS)
    assert line_of(child) == str(child.pid)
    for _ in range(2):  # the second answer has nothing of the first
        text = stack_signals.stacks([child.pid])[child.pid].decode()
        assert [frame.function for frame in stacks.main(text)] == ["waits", "<module>"]
        assert text.count("most recent call first") == 1
    assert child.poll() is None


def test_a_process_without_it_is_never_signalled(started: Started) -> None:
    """Not even one that catches the signal for something else, nor one in which the file's number is another file's by now."""
    catches = WAITS.replace("os.write(", "signal.signal(59, lambda *_: os._exit(3)); os.write(")
    closed = WAITS.replace("os.write(", "os.closerange(3, 20); os.write(")
    for child in (started(WAITS, stacks=False), started(catches, stacks=False), started(closed)):
        assert line_of(child) == str(child.pid)
        assert stack_signals.stacks([child.pid]) == {}
        assert child.poll() is None


def test_a_process_that_is_stopped_is_not_waited_for_for_ever(started: Started) -> None:
    child = started(WAITS)
    line_of(child)
    child.send_signal(signal.SIGSTOP)
    assert stack_signals.stacks([child.pid]) == {}


def test_what_python_forks_has_a_file_of_its_own(started: Started) -> None:
    child = started(FORKS)
    pids = {int(line_of(child)) for _ in range(2)}
    try:
        texts = stack_signals.stacks(pids)
        assert {pid: text.count(b"most recent call first") for pid, text in texts.items()} == dict.fromkeys(pids, 1)
    finally:
        for pid in pids - {child.pid}:
            os.kill(pid, signal.SIGKILL)


def test_the_sitecustomize_that_is_shadowed_is_imported_too(started: Started, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import builtins\nbuiltins.OWN = __file__\n", encoding="utf-8")
    program = "import sitecustomize\nprint(OWN, sitecustomize.__file__)\n"
    assert line_of(started(program, before=str(folder))) == f"{folder}/sitecustomize.py {folder}/sitecustomize.py"
