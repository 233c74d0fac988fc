"""Starting a real ranklaunch, talking to it and reading what it leaves.

Everything waits for a condition, with a deadline: nothing here sleeps for a time and hopes.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
CHILDREN = TESTS / "children"
EXAMPLES = TESTS.parent / "examples"

DEADLINE_S = 60.0  # of every wait: far more than a slow machine needs, so that reaching it is a defect
LOOK_AGAIN_S = 0.01

MARK = "RANKLAUNCH_TEST_ID"
RANKLAUNCH = (sys.executable, "-m", "ranklaunch")
AS_PID_1 = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
# In front of the command of a job.
WITHOUT_STDOUT = ("sh", "-c", 'exec "$@" >&-', "sh")
WITHOUT_STDERR = ("sh", "-c", 'exec "$@" 2>&-', "sh")
WITHOUT_STDIN = ("sh", "-c", 'exec "$@" <&-', "sh")
WITHOUT_ANY = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")


needs_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and util-linux: mounts, other users")


def as_user(uid: int) -> tuple[str, ...]:
    """Words in front of a command. The user may read everything (the interpreter may live in root's home) and write what is his."""
    capabilities = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search")
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *capabilities)


def as_user_alone(uid: int, gid: int) -> tuple[str, ...]:
    """Words in front of a command, as those of as_user; but the user reads what its files' modes let him read, as in a container."""
    no_capabilities = ("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")
    return ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *no_capabilities)


def copied_for_all(folder: Path) -> str:
    """An interpreter that such a user may run ("" if there is none) with what is copied into the folder: the repository and the
    interpreter of these tests may be where nobody else can read."""
    import jinja2
    import markupsafe

    import ranklaunch

    for package in (ranklaunch, jinja2, markupsafe):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    words = ("-c", "import jinja2, ranklaunch.entrypoints.main")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
    for interpreter in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [*as_user_alone(1000, 100), interpreter, *words], env=env, cwd="/", capture_output=True, timeout=60, check=False
            )
        except OSError:
            continue
        if done.returncode == 0:
            return interpreter
    return ""


def open_to_all(folder: Path) -> None:
    """pytest makes folders that only their owner may enter."""
    folder.chmod(0o777)
    for parent in folder.parents:
        if parent.stat().st_uid == os.getuid() and not stat.S_IMODE(parent.stat().st_mode) & 0o001:
            parent.chmod(0o755)


def sleep_until(condition: Callable[[], Any], what: str, timeout: float = DEADLINE_S) -> Any:
    """The first true value of condition. Fails, saying what was waited for, when there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {timeout:g} s in vain: {what() if callable(what) else what}"
        time.sleep(LOOK_AGAIN_S)


def child(name: str) -> str:
    path = CHILDREN / name
    assert path.is_file(), path
    return str(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# Processes


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def state_of(pid: int) -> str:
    """The letter that /proc gives, "" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(pid: int) -> list[int]:
    return [found for found in pids() if parent_of(found) == pid]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def memory_of(pid: int, field: str = "VmRSS") -> int:
    """Kilobytes; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


class Family:
    """Every process of one test: each inherits a variable that no other process has."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._needle = f"{MARK}={self.mark}".encode()

    def members(self) -> list[int]:
        """Zombies are none of them: their environment is gone."""
        return [pid for pid in pids() if pid != os.getpid() and self._needle in _environment(pid)]

    def wait_until_gone(self, timeout: float = DEADLINE_S) -> None:
        sleep_until(lambda: not self.members(), lambda: f"left: {self.describe()}", timeout)

    def describe(self) -> str:
        return "; ".join(f"{pid} ({state_of(pid)}) {command_of(pid)}" for pid in self.members()) or "none"

    def kill(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            found = self.members()
            if not found:
                return
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(LOOK_AGAIN_S)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


# What comes out


class Stream:
    """Collects what comes out of a pipe or a pseudo-terminal until its end. Closes fd then."""

    def __init__(self, fd: int) -> None:
        self.data = bytearray()
        self.ended = False
        self._fd = fd
        self._grown = threading.Condition()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 1 << 20)
            except OSError:  # a pseudo-terminal that nobody has open any more
                data = b""
            with self._grown:
                self.data += data
                self.ended = not data
                self._grown.notify_all()
            if not data:
                os.close(self._fd)
                return

    @property
    def text(self) -> str:
        with self._grown:
            return self.data.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def wait_for(self, text: str, count: int = 1, timeout: float = DEADLINE_S) -> None:
        wanted = text.encode()
        with self._grown:
            self._grown.wait_for(lambda: self.ended or self.data.count(wanted) >= count, timeout)
            found = self.data.count(wanted)
            assert found >= count, f"{text!r} came {found} times of {count} in:\n{self.data[-4000:].decode(errors='replace')}"

    def wait_for_end(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "somebody still holds the writing end"


# ranklaunch


@functools.cache
def pid_1_prefix() -> tuple[str, ...]:
    """Words that make a command PID 1 of a namespace of its own; none where this machine does not allow it."""
    for words in (AS_PID_1, (AS_PID_1[0], "--map-root-user", *AS_PID_1[1:])):
        try:
            if subprocess.run([*words, "true"], capture_output=True, timeout=DEADLINE_S, check=False).returncode == 0:
                return words
        except OSError:
            break
    return ()


class Job:
    """A ranklaunch that was started. pid: where signals for it go; log_dir: its log directory. out and err: its two streams, None
    where the test has given others."""

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
        """The process that has the ranks as its children: as PID 1 ranklaunch itself, else its one child."""
        return self.pid if self.as_pid_1 else int(sleep_until(lambda: children_of(self.pid), "ranklaunch has no child")[0])

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, timeout: float = DEADLINE_S, *, at_once: bool = True) -> int:
        """The exit code as a shell gives it. at_once: nothing may be left at the moment in which ranklaunch has ended."""
        code = self.popen.wait(timeout)
        left = self.family.describe() if at_once and self.family.members() else ""
        assert not left, f"left behind: {left}"
        if not at_once:
            self.family.wait_until_gone()
        for stream in (self._out, self._err):
            if stream:
                stream.wait_for_end()
        return code if code >= 0 else 128 - code

    def end_killed(self) -> None:
        """Waits for the end of a ranklaunch that was killed by SIGKILL, and for that of everything that it had started."""
        code = self.end(at_once=False)
        # unshare cannot kill itself by SIGKILL to tell of its child's end, and exits with 1 in its place.
        assert code == 137 or (self.as_pid_1 and code == 1)

    # What it leaves

    @property
    def attempt(self) -> Path:
        """The one attempt's folder."""
        folders = sorted(self.log_dir.glob("attempt_*"))
        assert len(folders) == 1, f"{folders}; {self.err.text if self._err else ''}"
        return folders[0]

    def log(self, rank: int) -> bytes:
        return (self.attempt / f"rank_{rank}.log").read_bytes()

    @property
    def verdict(self) -> dict[str, Any]:
        return checked_verdict(self.attempt / "verdict.json")

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.attempt / "events.jsonl").read_text().splitlines()]

    def wait_for_event(self, name: str, count: int = 1, timeout: float = DEADLINE_S) -> None:
        needle = f'"event": "{name}"'
        files = lambda: self.log_dir.glob("attempt_*/events.jsonl")  # noqa: E731
        sleep_until(lambda: sum(f.read_text().count(needle) for f in files()) >= count, f"event {name} in {self.log_dir}", timeout)


class Starter:
    """Starts jobs of one test in one of the two forms: a plain process, or PID 1 of a namespace of its own."""

    def __init__(self, family: Family, folder: Path, as_pid_1: bool) -> None:
        self.family = family
        self.folder = folder
        self.as_pid_1 = as_pid_1
        self.jobs: list[Job] = []

    @property
    def environment(self) -> dict[str, str]:
        """Small, so that what is on the machine that runs the tests does not decide."""
        kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
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
        """ranklaunch with these words. prefix: what runs it, inside the namespace; outside: what runs unshare. stdout and stderr:
        descriptors in place of pipes whose ends the job collects."""
        form = pid_1_prefix() if self.as_pid_1 else ()
        popen = subprocess.Popen(
            [*outside, *form, *prefix, *RANKLAUNCH, *map(str, words)],
            env={**self.environment, **(env or {})},
            cwd=cwd or self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE if stderr is None else stderr,
            preexec_fn=_as_from_a_terminal,
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
        """`ranklaunch run` of a program and its arguments."""
        log_dir = log_dir or self.folder / "logs"
        shared = ("--python", sys.executable, "--log-dir", log_dir, "--grace-s", grace_s)
        return self.command("run", *shared, *options, "--", *words, log_dir=log_dir, **how)

    def spawn(self, ranks: int, *words: object, options: Sequence[object] = (), **how: Any) -> Job:
        """A program once per rank."""
        return self.run(*words, options=("--method", "spawn", "--slots", ranks, *options), **how)

    def clean_up(self) -> str:
        """Ends everything that is left; what that was."""
        left = self.family.describe() if self.family.members() else ""
        self.family.kill()
        for job in self.jobs:
            job.popen.wait(DEADLINE_S)
        return left


def _as_from_a_terminal() -> None:
    """Whatever this test run ignores (it may run under nohup, or behind a shell's `&`), ranklaunch starts with the defaults."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# What must be true of what it leaves


def checked_verdict(path: Path) -> dict[str, Any]:
    """A verdict, after everything that holds for each."""
    verdict: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert verdict["schema"] == "ranklaunch.verdict/1"
    assert verdict["outcome"] in ("succeeded", "failed", "stopped")
    assert verdict["reason"].strip()
    assert 0 <= verdict["exit_code"] <= 255
    assert (verdict["exit_code"] == 0) == (verdict["outcome"] == "succeeded")
    started, ended = (datetime.datetime.fromisoformat(verdict[key]) for key in ("started", "ended"))
    assert started.utcoffset() == datetime.timedelta(0)
    assert started < ended
    if verdict["culprit"] is not None:
        _check_culprit(verdict["culprit"])
        own = 75 if verdict["culprit"]["name"] == "sshd" else verdict["culprit"]["exit_code"]  # what sshd ends with says nothing
        assert own == verdict["exit_code"]
        assert verdict["outcome"] == "failed"
    for victim in verdict["victims"]:
        assert victim.keys() >= {"node", "rank", "signal"}
        assert victim["signal"].startswith("SIG")
    return verdict


def _check_culprit(culprit: dict[str, Any]) -> None:
    assert culprit.keys() >= {"node", "rank", "pid", "exit_code", "signal", "out_of_memory", "last_lines"}
    assert isinstance(culprit["out_of_memory"], bool)
    assert all(isinstance(line, str) for line in culprit["last_lines"])
    if culprit["signal"]:
        assert culprit["exit_code"] == 128 + signal.Signals[culprit["signal"]]


def check_events(events: list[dict[str, Any]], verdict: dict[str, Any]) -> None:
    """In order of time, from the reading to the end, and each process that was started has ended once."""
    assert all(event["event"] and event["time"] for event in events)
    times = [event["monotonic"] for event in events]
    assert times == sorted(times)
    names = [event["event"] for event in events]
    assert names[0] == "read"
    assert names[-1] == "end"
    assert names.count("ending") == names.count("end") == 1
    assert (events[-1]["outcome"], events[-1]["exit_code"]) == (verdict["outcome"], verdict["exit_code"])
    spawned = [event["pid"] for event in events if event["event"] == "spawn"]
    exited = [event["pid"] for event in events if event["event"] == "exit"]
    assert sorted(spawned) == sorted(exited)
    assert len(set(spawned)) == len(spawned)


def check_end(
    job: Job,
    outcome: str,
    exit_code: int,
    *,
    culprit: Mapping[str, Any] | None = None,
    victims: Mapping[int, str] | None = None,
    timeout: float = DEADLINE_S,
) -> dict[str, Any]:
    """Waits for the end, which must be this one, in code, verdict and events alike. culprit: what must be true of it, None for no culprit.
    victims: the signal of each rank, where it matters."""
    code = job.end(timeout)
    said = job.err.text if job._err else ""
    assert code == exit_code, said
    verdict = job.verdict
    assert (verdict["outcome"], verdict["exit_code"]) == (outcome, exit_code), verdict
    if culprit is None:
        assert verdict["culprit"] is None
    else:
        assert verdict["culprit"] is not None
        assert {name: verdict["culprit"][name] for name in culprit} == culprit
    if victims is not None:
        assert {victim["rank"]: victim["signal"] for victim in verdict["victims"]} == victims
    check_events(job.events, verdict)
    if job._err:
        assert "Traceback" not in said
        assert f"{outcome} with exit code {exit_code}" in said
        assert verdict["reason"] in said
    return verdict


def tagged(stream: Stream, tag: str) -> bytes:
    """The lines of a stream that begin with a tag, without it."""
    start = tag.encode()
    lines = bytes(stream.data).splitlines(keepends=True)
    return b"".join(line[len(start) :] for line in lines if line.startswith(start))
