"""Jobs of the benchmarks: the start of ranks, duration, CPU time, and leftover processes. All processes of a job carry a mark in their
environment, by which leftovers are found and killed."""

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
SHOWN = 300  # characters of the output of a failed process
CLEAR_S = 30.0
START_S = 180.0  # limit until all ranks are up
# Variables of another job or of a developer, which would mislead or slow a launcher.
FOREIGN = (
    *("RANKLAUNCH_", "MA_", "VC_", "PET_", "OMPI_", "PMIX_", "MS_", "SLURM_", "HOROVOD_", "ACCELERATE_"),
    *("RANK", "WORLD_", "LOCAL_", "MASTER_"),
    "PYTHONDONTWRITEBYTECODE",  # installed packages are compiled
)
TOOLS = Path(sys.executable).parent  # launchers of the same installation
RANK = Path(__file__).resolve().with_name("rank.py")  # program of the ranks


class Failed(Exception):
    pass


class Started:
    """Started process, whose descendants carry the same mark. ended_at: monotonic time of the end, 0 before. cpu_s: CPU seconds of the
    process and of all descendants that were waited for."""

    def __init__(self, popen: subprocess.Popen[Any], output: Path) -> None:
        self.popen = popen
        self._output = output
        self._pidfd = os.pidfd_open(popen.pid)
        self.ended_at = 0.0
        self.cpu_s = 0.0

    @property
    def code(self) -> int:
        """Return the exit code as a shell has it."""
        code = self.popen.returncode
        return 128 - code if code < 0 else code

    def wait(self, limit_s: float) -> bool:
        """Wait for the end, at most `limit_s` seconds. Return True if the process has ended."""
        if not self.ended_at and select.select([self._pidfd], [], [], max(0.0, limit_s))[0]:
            self.ended_at = time.monotonic()
            if self.popen.returncode is None:  # else a stopped host has reaped the process already
                _, status, usage = os.wait4(self.popen.pid, 0)
                self.popen.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = usage.ru_utime + usage.ru_stime
            os.close(self._pidfd)
        return self.ended_at > 0

    def succeed(self, limit_s: float) -> None:
        if not self.wait(limit_s):
            msg = f"no end after {limit_s:g} s: {self.output_end()}"
            raise Failed(msg)
        if self.code:
            msg = f"exit code {self.code}: {self.output_end()}"
            raise Failed(msg)

    def output_end(self) -> str:
        return self._output.read_text(errors="replace").strip()[-SHOWN:]


def environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
    path = f"{TOOLS}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **more}


_Job = TypeVar("_Job", bound="Job")


class Job:
    """Processes that are started together in one folder. None of them outlives the with block."""

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
        """Start a process of the job. popen: function that starts it, such as that of a host. stdout: in place of a file in the job's
        folder. more: further variables of the environment."""
        output = self.folder / f"console-{len(self._started)}"
        with output.open("wb") as file:
            words, env = [str(word) for word in command], environment(**more, **{MARK: self._mark})
            streams = {"stdin": stdin, "stdout": file if stdout is None else stdout, "stderr": file}
            process = popen(words, env=env, cwd=str(self.folder), **streams, start_new_session=True)
            self._started.append(Started(process, output))
        return self._started[-1]

    def wait_until_up(self, ranks: int) -> list[int]:
        """Wait until all ranks are up. Return their pids as the ranks themselves see them: on another host, the pid differs there."""
        files = [self.folder / f"up-{rank}" for rank in range(ranks)]
        deadline = time.monotonic() + START_S
        while not all(file.exists() for file in files):
            ended = [one for one in self._started if one.wait(0.0)]
            if ended or time.monotonic() > deadline:
                texts = [f"exit code {one.code}: {one.output_end()}" for one in ended] or [one.output_end() for one in self._started]
                msg = f"not all ranks are up: {' | '.join(texts)}"
                raise Failed(msg)
            time.sleep(0.01)
        return [int(file.read_text()) for file in files]

    def go(self) -> None:
        """Let waiting ranks continue."""
        (self.folder / "go").touch()

    def remaining(self) -> list[int]:
        """Return the pids of the job's processes that have not ended."""
        return processes.having(MARK, self._mark)

    def _clear(self) -> None:
        deadline = time.monotonic() + CLEAR_S
        while time.monotonic() < deadline:
            remaining = self.remaining()
            for pid in remaining:
                self._kill(pid)
            gone = all([one.wait(0.0) for one in self._started])  # noqa: C419 - each is reaped
            if gone and not remaining:
                break
            time.sleep(0.01)

    def _kill(self, pid: int) -> None:
        """Kill a process of the job by a checked descriptor: another process may have the pid by now."""
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            try:
                if processes.has(pid, MARK, self._mark):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def timed(command: Sequence[object], folder: Path, limit_s: float, **more: str) -> dict[str, float]:
    """Return the wall and CPU seconds of a command. Raises Failed unless it succeeds within the limit."""
    with Job(folder) as job:
        began = time.monotonic()
        one = job.start(command, **more)
        one.succeed(limit_s)
    return {"wall s": one.ended_at - began, "cpu s": one.cpu_s}
