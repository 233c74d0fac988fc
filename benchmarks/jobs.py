"""What the benchmarks start: how long it takes, what it costs, and whether anything of it is left. All of it carries a mark in its
environment, by which it is found and, where a benchmark has had enough, ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

MARK = "BENCHMARK_JOB"
SHOWN = 300  # characters of the output of what has failed
CLEAR_S = 30.0
# What another job or a developer may have left in this environment, which would mislead or slow a launcher.
FOREIGN = (
    *("RANKLAUNCH_", "MA_", "VC_", "PET_", "OMPI_", "PMIX_", "MS_", "SLURM_", "HOROVOD_", "ACCELERATE_"),
    *("RANK", "WORLD_", "LOCAL_", "MASTER_"),
    "PYTHONDONTWRITEBYTECODE",  # what is installed was compiled
)
TOOLS = Path(sys.executable).parent  # the launchers of the same installation


class Failed(Exception):
    pass


class Started:
    """One process that was started, and by its mark all that came of it."""

    def __init__(self, popen: subprocess.Popen[Any], output: Path) -> None:
        self.popen = popen
        self._output = output
        self._pidfd = os.pidfd_open(popen.pid)
        self.ended_at = 0.0
        self.cpu_s = 0.0

    @property
    def code(self) -> int:
        """As a shell sees it."""
        code = self.popen.returncode
        return 128 - code if code < 0 else code

    def wait(self, limit_s: float) -> bool:
        """Whether it has ended within the limit. CPU: its own, and of all its descendants that were waited for."""
        if not self.ended_at and select.select([self._pidfd], [], [], max(0.0, limit_s))[0]:
            self.ended_at = time.monotonic()
            _, status, usage = os.wait4(self.popen.pid, 0)
            self.popen.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
            os.close(self._pidfd)
        return self.ended_at > 0

    def words(self) -> str:
        return self._output.read_text(errors="replace").strip()[-SHOWN:]


def environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
    path = f"{TOOLS}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **more}


@contextlib.contextmanager
def job(folder: Path) -> Iterator[Callable[..., Started]]:
    """Gives what starts a command as part of one job. Nothing of the job is left behind it."""
    mark = uuid.uuid4().hex
    started: list[Started] = []

    def start(command: Sequence[object], popen: Callable[..., Any] = subprocess.Popen, **more: str) -> Started:
        output = folder / f"console-{len(started)}"
        with output.open("wb") as file:
            words, env = [str(word) for word in command], environment(**more, **{MARK: mark})
            how = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file, "start_new_session": True}
            started.append(Started(popen(words, env=env, cwd=str(folder), **how), output))
        return started[-1]

    start.mark = mark  # type: ignore[attr-defined]
    try:
        yield start
    finally:
        clear(mark, started)


def marked(mark: str) -> list[int]:
    """The processes of a job that have not ended. A zombie has no environment any more."""
    wanted = f"{MARK}={mark}".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and wanted in _environ(name)]


def _environ(pid: object) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def clear(mark: str, started: Sequence[Started]) -> int:
    """Ends what is left of a job; how many processes that were."""
    found: set[int] = set()
    deadline = time.monotonic() + CLEAR_S
    while time.monotonic() < deadline:
        left = marked(mark)
        found.update(left)
        for pid in left:
            _kill(pid, mark)
        gone = all([one.wait(0.0) for one in started])  # noqa: C419 - each is reaped
        if gone and not left:
            break
        time.sleep(0.01)
    return len(found)


def _kill(pid: int, mark: str) -> None:
    """Through a descriptor that was checked: the number may be another's by now."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if f"{MARK}={mark}".encode() in _environ(pid):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def timed(command: Sequence[object], folder: Path, limit_s: float, **more: str) -> dict[str, float]:
    """From the start of a command that succeeds to its end."""
    with job(folder) as start:
        began = time.monotonic()
        one = start(command, **more)
        if not one.wait(limit_s):
            msg = f"not done after {limit_s:g} s: {one.words()}"
            raise Failed(msg)
    if one.code:
        msg = f"exit code {one.code}: {one.words()}"
        raise Failed(msg)
    return {"wall s": one.ended_at - began, "cpu s": one.cpu_s}
