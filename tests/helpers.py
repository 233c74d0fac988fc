"""What several test files share: calling ranklaunch in process, files that exist only in memory, and environments to start from."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import pytest

from ranklaunch.adapters import launchers
from ranklaunch.adapters.launchers.shared.base import Launcher, Signals, Started
from ranklaunch.entrypoints import main as entrypoint
from ranklaunch.env.job import Program
from ranklaunch.env.reader import Reader
from ranklaunch.output.pipe import Output, PipeReader
from ranklaunch.plan.agreement import is_of_ranks
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import Request, make_plan
from ranklaunch.system.loop import Loop
from testbench.places import ROOT

TESTS = ROOT / "tests"
CWD = "/workspace"  # the folder that tests plan from; it need not exist
JOB = "ma-job-5d2e7c1a"
numbers_have_a_limit = pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="this Python reads numbers of any length")

# Values that something on the way from an environment to a process could trip over.
HOSTILE: dict[str, str] = {
    "empty": "",
    "space": " ",
    "spaces": "two  words ",
    "tab": "a\tb",
    "newline": "first line\nsecond line\n",
    "carriage return": "a\r\nb",
    "single quote": "it's",
    "double quote": 'say "hi"',
    "both quotes": """'"'"'""",
    "dollar": "$HOME ${HOME} $(touch pwned) $$",
    "backticks": "`touch pwned`",
    "semicolon": "a; touch pwned; b",
    "ampersand": "a && b & c | d > e < f",
    "backslash": "a\\b\\",
    "backslash n": r"not a\nnewline",
    "glob": "*? [a-z] {a,b} ~",
    "comment": "#not a comment",
    "exclamation": "!!",
    "equals": "--a=b=c",
    "dashes": "--",
    "percent": "%s %(x)s %d",
    "jinja": "{{ job.name }} {% raw %} {# x #}",
    "unicode": "Größe 训练 🚀",
    "right to left": "abc\u202edef",
    "line separators": "a\u2028b\u0085c\x0bd\x0ce",
    "escape": "\x1b[31mred\x1b[0m\x07",
    "bytes that are not UTF-8": "caf\udce9",
    "10 kB": "x" * 10_000,
    "100 kB": "y z" * 33_333,
}


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def call(*argv: str, env: Mapping[str, str] | None = None) -> Result:
    """ranklaunch with these words, in this process."""
    out, err = console(), console()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = entrypoint.main(list(argv), env or {})
    return Result(code, written(out), written(err))


Cases = Union[Mapping[str, Any], Sequence[Any]]  # by their names, or without; a tuple is several arguments


def for_each(cases: Cases) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Makes one test of a check that must hold in each of the cases. It takes no fixtures."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            check_each(check, cases)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def check_each(check: Callable[..., None], cases: Cases) -> None:
    """Fails once, and names all cases in which the check does not hold, each with why. No case at all is a mistake."""
    named = cases if isinstance(cases, Mapping) else {f"{i}, {case!r:.200}": case for i, case in enumerate(cases)}
    assert named
    wrong = [f"{name}: {why}" for name, case in named.items() if (why := _why_not(check, case))]
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(named)}:\n" + "\n".join(wrong), pytrace=False)


def _why_not(check: Callable[..., None], case: Any) -> str:
    try:
        check(*(case if type(case) is tuple else (case,)))
    except (Exception, pytest.fail.Exception) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def listed_in(where: str, listed: Iterable[str], wanted: Iterable[str]) -> None:
    """Fails with what a person has to add to a list, or to take out. where: which list, and in which file."""
    there, all_of_them = set(listed), set(wanted)
    said = [f"add {name} to {where}" for name in sorted(all_of_them - there)]
    said += [f"take {name} out of {where}" for name in sorted(there - all_of_them)]
    if said:
        pytest.fail("; ".join(said), pytrace=False)


def console() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True)


def written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(errors="surrogateescape")


class MemoryFiles:
    """A view of files given as path: text. One of a strange form raises what its ValueError says; None: there, but not for
    this user."""

    def __init__(self, files: Mapping[str, str | ValueError | None] | None = None) -> None:
        self.files = dict(files or {})

    def text(self, path: str, limit: int) -> str | None:
        found = self.files.get(path)
        if isinstance(found, ValueError):
            raise found
        return found

    def exists(self, path: str) -> bool:
        return path in self.files or self.is_dir(path)

    def is_dir(self, path: str) -> bool:
        return any(name.startswith(f"{path.rstrip('/')}/") for name in self.files)

    def names(self, path: str) -> tuple[str, ...]:
        start = f"{path.rstrip('/')}/"
        return tuple(sorted({name[len(start) :].partition("/")[0] for name in self.files if name.startswith(start)}))

    def real(self, path: str) -> str:
        return path


def reader(env: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None, **options: str) -> Reader:
    return Reader(env or {}, MemoryFiles(files), options, CWD)


def plan(
    env: Mapping[str, str],
    *args: str,
    program: str = "train.py",
    module: bool = False,
    files: Mapping[str, str | ValueError | None] | None = None,
    **options: str,
) -> Plan:
    """The plan of one node. options: by the name of their value (method="spawn")."""
    return make_plan(Request(Program(program, args, module), env, MemoryFiles(files), options, CWD))


def of_all(facts: Mapping[str, str]) -> dict[str, str]:
    """What nodes with and without ranks tell the muster alike."""
    return {name: value for name, value in facts.items() if not is_of_ranks(name)}


def hosts(nodes: int, job: str = JOB) -> list[str]:
    return [f"{job}-worker-{i}.{job}" for i in range(nodes)]


def only_first_named(nodes: int = 3, slots: int = 2, index: int = 1, **more: str) -> dict[str, str]:
    """What Kubeflow's PyTorchJob sets: node 0's name, and no other."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "HOSTNAME": f"bert-worker-{index - 1}" if index else "bert-master-0",
        "PET_NNODES": str(nodes), "PET_NODE_RANK": str(index), "PET_MASTER_ADDR": "bert-master-0", "PET_MASTER_PORT": "23456",
        "PET_NPROC_PER_NODE": str(slots), **more,
    }  # fmt: skip


def modelarts(nodes: int = 4, slots: int = 8, index: int = 0, **more: str) -> dict[str, str]:
    """What ModelArts sets in the container of one node."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "MA_NUM_HOSTS": str(nodes),
        "MA_NUM_GPUS": str(slots),
        "MA_TASK_NAME": "worker",
        "MA_VJ_NAME": JOB,
        "MA_CURRENT_INSTANCE_NAME": f"{JOB}-worker-{index}",
        "VC_TASK_INDEX": str(index),
        "VC_WORKER_NUM": str(nodes),
        "VC_WORKER_HOSTS": ",".join(hosts(nodes)),
        "MA_LOG_DIR": "/logs",
        **more,
    }


def local(nodes: int = 1, slots: str = "2", index: int = 0, **more: str) -> dict[str, str]:
    """What a user sets where there is no platform."""
    names = {"RANKLAUNCH_HOSTS": ",".join(f"n{i}" for i in range(nodes)), "RANKLAUNCH_NODE": str(index)} if nodes > 1 else {}
    return {"RANKLAUNCH_NODES": str(nodes), "RANKLAUNCH_SLOTS": slots, **names, **more}


def group_table(pods: Sequence[tuple[str, str, Sequence[str]]], **more: object) -> str:
    """A rank table as ModelArts writes it, of (pod name, server id, device ids)."""
    listed = [
        {
            "pod_name": name,
            "server_id": server,
            "devices": [{"device_id": device, "device_ip": f"192.0.2.{10 * i + int(device)}"} for device in devices],
        }
        for i, (name, server, devices) in enumerate(pods)
    ]
    group = {
        "group_name": "worker",
        "device_count": str(sum(len(devices) for _, _, devices in pods)),
        "instance_count": str(len(pods)),
        "instance_list": listed,
    }
    return json.dumps({"status": "completed", "group_count": "1", "group_list": [group], **more})


def server_table(servers: Sequence[tuple[str, Sequence[tuple[str, str]]]], **more: object) -> str:
    """A rank table of version 1.0, of (server id, [(device id, rank id)])."""
    ips = (f"198.51.{100 + n // 250}.{n % 250 + 1}" for n in itertools.count())
    listed = [
        {"server_id": server, "device": [{"device_id": device, "device_ip": next(ips), "rank_id": rank} for device, rank in devices]}
        for server, devices in servers
    ]
    return json.dumps({"status": "completed", "version": "1.0", "server_count": str(len(listed)), "server_list": listed, **more})


def no_texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """What may stand where a file of text is expected, and what is said of it."""
    fifo, latin, wide, large = (folder / name for name in ("fifo", "latin-1", "utf-16", "large"))
    os.mkfifo(fifo)
    latin.write_bytes(b"caf\xe9\n")
    wide.write_text("{}", encoding="utf-16")
    large.write_bytes(b" " * (1 << 20) + b" ")
    yield folder, "a folder, not a regular file"
    yield fifo, "a FIFO, not a regular file"
    yield Path(os.devnull), "a device, not a regular file"
    yield latin, "not UTF-8 text: invalid continuation byte at byte 3"
    yield wide, "not UTF-8 text: invalid start byte at byte 0"
    yield large, "1048577 bytes, more than the limit of 1048576"


def refuse(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As to whoever is not root."""

    def refusing(real: Callable[[str], Any]) -> Callable[[str], Any]:
        def look(path: str) -> Any:
            if Path(path) == folder:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return real(path)

        return look

    monkeypatch.setattr(os, "listdir", refusing(os.listdir))
    monkeypatch.setattr(os, "scandir", refusing(os.scandir))


# What PyTorch's hook does with an exception that nobody catches; part of a program that has imported sys and traceback, and knows its rank.
AS_PYTORCHS_HOOK = """
def marked(*error):
    for line in "".join(traceback.format_exception(*error)).splitlines():
        print(f"[rank{rank}]: {line}" if line else "", file=sys.stderr, flush=True)
sys.excepthook = marked
"""


def launcher(plan: Plan) -> Launcher:
    """Return the launcher of a plan's first process."""
    return launchers.started(plan.processes[0], plan)


def pipe_reader(written: bytes) -> PipeReader:
    """Return the reader of a pipe, after a process has written into the pipe and closed it."""
    readable, writable = os.pipe()
    os.write(writable, written)
    os.close(writable)
    output = Output((), "", lambda *lines: None, lambda: 0.0, pytest.fail)
    made = PipeReader(readable, output, Loop())
    made.drain()
    return made


class NoSignals(Signals):
    """Sends no signal. held_after: seconds after which a child is to be held with its ranks."""

    def __init__(self, child: Started) -> None:
        self.child = child
        self.held_after: list[float] = []

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        if act == self.child.hold_with_ranks:
            self.held_after.append(seconds)


class NoProcess(Started):
    """A started launcher without a process and without ranks."""

    def left(self) -> list[Any]:
        return []


def holds(plan: Plan) -> tuple[float, float]:
    """Return after how many seconds a plan's launcher is held in a stop and after a failure; 0: never."""
    child = NoProcess()
    in_stop, after_failure = NoSignals(child), NoSignals(child)
    launcher(plan).stop(in_stop, child, 15)
    launcher(plan).failing(after_failure.after, child, lambda: None)
    return sum(in_stop.held_after), sum(after_failure.held_after)
