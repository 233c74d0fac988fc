"""Jobs of a real ranklaunch: start, signals, and files."""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbench.jobs.ends import checked_verdict
from testbench.jobs.processes import MARK, Family, children_of, command_of
from testbench.jobs.streams import Stream
from testbench.waiting import DEADLINE_S, free_port, sleep_until

RANKLAUNCH = (sys.executable, "-m", "ranklaunch")
AS_PID_1 = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
# Prefixes for the command of a job.
WITHOUT_STDOUT = ("sh", "-c", 'exec "$@" >&-', "sh")
WITHOUT_STDERR = ("sh", "-c", 'exec "$@" 2>&-', "sh")
WITHOUT_STDIN = ("sh", "-c", 'exec "$@" <&-', "sh")
WITHOUT_ANY = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")


def attempts(log_dir: Path) -> list[Path]:
    """Return the folders of attempts: in the log folder, or in the folders of nodes in it."""
    return sorted([*log_dir.glob("attempt_*"), *log_dir.glob("node_*/attempt_*")])


@functools.cache
def pid_1_prefix() -> tuple[str, ...]:
    """Return the words that make a command PID 1 of its own namespace; none if this machine does not allow it."""
    for words in (AS_PID_1, (AS_PID_1[0], "--map-root-user", *AS_PID_1[1:])):
        try:
            if subprocess.run([*words, "true"], capture_output=True, timeout=DEADLINE_S, check=False).returncode == 0:
                return words
        except OSError:
            break
    return ()


class Job:
    """A started ranklaunch.

    pid: process to send signals to. log_dir: its log directory. out, err: its stdout and stderr, if the test has not redirected them.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], family: Family, log_dir: Path, as_pid_1: bool, streams: Sequence[Stream | None]
    ) -> None:
        self.popen = popen
        self.family = family
        self.log_dir = log_dir
        self.as_pid_1 = as_pid_1
        self._out, self._err = streams
        self._pid = 0

    @property
    def out(self) -> Stream:
        assert self._out
        return self._out

    @property
    def err(self) -> Stream:
        assert self._err
        return self._err

    @property
    def pid(self) -> int:
        if not self._pid:
            find = functools.partial(children_of, self.popen.pid)
            self._pid = sleep_until(find, "unshare has no child")[0] if self.as_pid_1 else self.popen.pid
        return self._pid

    @property
    def supervisor(self) -> int:
        """Pid of the parent of the ranks: ranklaunch itself if it is PID 1, else its only child."""
        return self.pid if self.as_pid_1 else int(sleep_until(lambda: children_of(self.pid), "ranklaunch has no child")[0])

    @property
    def children(self) -> list[int]:
        """Children of the supervisor, except a guardian with the same command line."""
        return [pid for pid in children_of(self.supervisor) if command_of(pid) != command_of(self.supervisor)]

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, timeout: float = DEADLINE_S, *, at_once: bool = True) -> int:
        """Wait for the end; return the exit code as a shell reports it. at_once: no process may be alive when ranklaunch has ended."""
        code = self.popen.wait(timeout)
        orphans = self.family.describe() if at_once and self.family.members() else ""
        assert not orphans, f"left behind: {orphans}"
        if not at_once:
            self.family.wait_until_gone()
        for stream in (self._out, self._err):
            if stream:
                stream.wait_for_end()
        return code if code >= 0 else 128 - code

    def end_killed(self) -> None:
        """Wait for the end of a ranklaunch that was killed by SIGKILL, and of all processes that it had started."""
        code = self.end(at_once=False)
        # unshare cannot repeat its child's SIGKILL on itself, and exits with 1 instead.
        assert code == 137 or (self.as_pid_1 and code == 1)

    # Its files

    @property
    def attempt(self) -> Path:
        """Folder of the only attempt."""
        folders = attempts(self.log_dir)
        assert len(folders) == 1, f"{folders}; {self.err.text if self._err else ''}"
        return folders[0]

    def of_attempt(self, number: int) -> Path:
        """Return the folder of one of several attempts."""
        (folder,) = (folder for folder in attempts(self.log_dir) if folder.name == f"attempt_{number}")
        return folder

    def log(self, rank: int) -> bytes:
        return (self.attempt / f"rank_{rank}.log").read_bytes()

    @property
    def verdict(self) -> dict[str, Any]:
        return checked_verdict(self.attempt / "verdict.json")

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.attempt / "events.jsonl").read_text().splitlines()]

    def wait_for_event(self, name: str, count: int = 1, timeout: float = DEADLINE_S) -> None:
        def has_come() -> bool:
            files = [folder / "events.jsonl" for folder in attempts(self.log_dir)]
            texts = [file.read_text() for file in files if file.exists()]
            return sum(text.count(f'"event": "{name}"') for text in texts) >= count

        sleep_until(has_come, f"event {name} in {self.log_dir}", timeout)


def code_of(job: Job) -> int:
    """Return the exit code of a node, while other nodes may still run."""
    code = job.popen.wait(DEADLINE_S)
    return code if code >= 0 else 128 - code


def codes(jobs: Sequence[Job]) -> list[int]:
    """Return the exit codes of all nodes, and check that no process is left. Until the last node ends, its processes may run."""
    exit_codes = [code_of(job) for job in jobs]
    assert [job.end() for job in jobs] == exit_codes
    return exit_codes


class Starter:
    """Starter of one test's jobs, each as a plain process or as PID 1 of its own namespace."""

    def __init__(self, family: Family, folder: Path, as_pid_1: bool) -> None:
        self.family = family
        self.folder = folder
        self.as_pid_1 = as_pid_1
        self.jobs: list[Job] = []

    @functools.cached_property
    def master_port(self) -> int:
        """Port of the rendezvous of this test's jobs."""
        return free_port()

    @property
    def environment(self) -> dict[str, str]:
        """Small environment: variables of this machine do not matter. RANKLAUNCH_RANKSIDE=off runs a whole suite without records."""
        kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "RANKLAUNCH_RANKSIDE")
        return {**{name: os.environ[name] for name in kept if name in os.environ}, "LANG": "C", MARK: self.family.mark}

    def command(
        self,
        *words: object,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        outside: Sequence[str] = (),
        cwd: Path | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        log_dir: Path | None = None,
        new_session: bool = False,
    ) -> Job:
        """Start ranklaunch with these words.

        prefix: words before ranklaunch, inside the namespace. outside: words before unshare. stdout, stderr: descriptors to use instead of
        pipes, whose output the job collects.
        """
        form = pid_1_prefix() if self.as_pid_1 else ()
        popen = subprocess.Popen(
            [*outside, *form, *prefix, *RANKLAUNCH, *map(str, words)],
            env={**self.environment, **(env or {})},
            cwd=cwd or self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE if stderr is None else stderr,
            preexec_fn=as_from_a_terminal,
            start_new_session=new_session,
        )
        streams = [Stream(os.dup(pipe.fileno())) if pipe else None for pipe in (popen.stdout, popen.stderr)]
        for pipe in (popen.stdout, popen.stderr):
            if pipe:
                pipe.close()
        job = Job(popen, self.family, log_dir or self.folder / "logs", self.as_pid_1, streams)
        self.jobs.append(job)
        return job

    def run(self, *words: object, options: Sequence[object] = (), grace_s: float = 10, log_dir: Path | None = None, **how: Any) -> Job:
        """Start `ranklaunch run` with a program and its arguments.

        The rendezvous gets a port of this test unless options or env name one: tests that run at once would share the default port.
        """
        log_dir = log_dir or self.folder / "logs"
        shared = ("--python", sys.executable, "--log-dir", log_dir, "--grace-s", grace_s)
        env = how.pop("env", None) or {}
        if "--master-port" not in options and not any(name.endswith("MASTER_PORT") for name in env):
            env = {"RANKLAUNCH_MASTER_PORT": str(self.master_port), **env}
        return self.command("run", *shared, *options, "--", *words, log_dir=log_dir, env=env, **how)

    def spawn(self, ranks: int, *words: object, options: Sequence[object] = (), **how: Any) -> Job:
        """Start a program once per rank, with method spawn."""
        return self.run(*words, options=("--method", "spawn", "--slots", ranks, *options), **how)

    def clean_up(self) -> str:
        """Kill the processes that still run. Return their description, "" for none."""
        orphans = self.family.describe() if self.family.members() else ""
        self.family.kill()
        for job in self.jobs:
            job.popen.wait(DEADLINE_S)
        return orphans


def as_from_a_terminal() -> None:
    """Reset the signals that this test run may ignore (nohup, a shell's `&`), so that ranklaunch starts with the defaults."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
