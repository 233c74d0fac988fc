"""What the benchmarks start: when its ranks are up, how long it takes, what it costs, and whether anything of it is left. All of it
carries a mark in its environment, by which it is found and, where a benchmark has had enough, ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from benchmarks import processes

MARK = "BENCHMARK_JOB"
SHOWN = 300  # characters of the output of what has failed
CLEAR_S = 30.0
START_S = 180.0  # until all ranks are up
# What another job or a developer may have left in this environment, which would mislead or slow a launcher.
FOREIGN = (
    *("RANKLAUNCH_", "MA_", "VC_", "PET_", "OMPI_", "PMIX_", "MS_", "SLURM_", "HOROVOD_", "ACCELERATE_"),
    *("RANK", "WORLD_", "LOCAL_", "MASTER_"),
    "PYTHONDONTWRITEBYTECODE",  # what is installed was compiled
)
TOOLS = Path(sys.executable).parent  # the launchers of the same installation
RANK = Path(__file__).resolve().with_name("rank.py")  # what ranks do


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
            if self.popen.returncode is None:  # a host that was stopped has reaped its processes
                _, status, usage = os.wait4(self.popen.pid, 0)
                self.popen.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = usage.ru_utime + usage.ru_stime
            os.close(self._pidfd)
        return self.ended_at > 0

    def succeed(self, limit_s: float) -> None:
        if not self.wait(limit_s):
            msg = f"not done after {limit_s:g} s: {self.words()}"
            raise Failed(msg)
        if self.code:
            msg = f"exit code {self.code}: {self.words()}"
            raise Failed(msg)

    def words(self) -> str:
        return self._output.read_text(errors="replace").strip()[-SHOWN:]


def environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
    path = f"{TOOLS}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **more}


_Job = TypeVar("_Job", bound="Job")


class Job:
    """What is started together in one folder. Nothing of it is left behind the block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._started: list[Started] = []

    def __enter__(self: _Job) -> _Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def start(
        self,
        command: Sequence[object],
        popen: Callable[..., Any] = subprocess.Popen,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        **more: str,
    ) -> Started:
        """stdout: instead of the console, which is a file. more: variables of the environment."""
        output = self.folder / f"console-{len(self._started)}"
        with output.open("wb") as file:
            words, env = [str(word) for word in command], environment(**more, **{MARK: self._mark})
            how = {"stdin": stdin, "stdout": file if stdout is None else stdout, "stderr": file, "start_new_session": True}
            self._started.append(Started(popen(words, env=env, cwd=str(self.folder), **how), output))
        return self._started[-1]

    def wait_until_up(self, ranks: int) -> list[int]:
        """The pids of the ranks, as they know them: another host numbers its own."""
        files = [self.folder / f"up-{rank}" for rank in range(ranks)]
        deadline = time.monotonic() + START_S
        while not all(file.exists() for file in files):
            over = [one for one in self._started if one.wait(0.0)]
            if over or time.monotonic() > deadline:
                said = [f"exit code {one.code}: {one.words()}" for one in over] or [one.words() for one in self._started]
                msg = f"not up: {' | '.join(said)}"
                raise Failed(msg)
            time.sleep(0.01)
        return [int(file.read_text()) for file in files]

    def go(self) -> None:
        """For ranks that wait for it."""
        (self.folder / "go").touch()

    def left(self) -> list[int]:
        """The processes that have not ended."""
        return processes.having(MARK, self._mark)

    def _clear(self) -> None:
        deadline = time.monotonic() + CLEAR_S
        while time.monotonic() < deadline:
            left = self.left()
            for pid in left:
                self._kill(pid)
            gone = all([one.wait(0.0) for one in self._started])  # noqa: C419 - each is reaped
            if gone and not left:
                break
            time.sleep(0.01)

    def _kill(self, pid: int) -> None:
        """Through a descriptor that was checked: the number may be another's by now."""
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            try:
                if processes.has(pid, MARK, self._mark):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def timed(command: Sequence[object], folder: Path, limit_s: float, **more: str) -> dict[str, float]:
    """From the start of a command that succeeds to its end."""
    with Job(folder) as job:
        began = time.monotonic()
        one = job.start(command, **more)
        one.succeed(limit_s)
    return {"wall s": one.ended_at - began, "cpu s": one.cpu_s}
