"""What stands before the ranks of real launchers: cores of their own, as each rank sees them, and debuggers that are attached to."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbench.hosts import Hosts
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.jobs.on_hosts import LauncherJob
from testbench.places import child
from testbench.waiting import free_port, sleep_until

LONG_S = 240  # several imports of PyTorch on two busy cores
METHODS = ("spawn", pytest.param("deepspeed", marks=pytest.mark.table), pytest.param("torchrun", marks=pytest.mark.table))
PROGRAM = str(child("placed.py"))

pytestmark = [
    pytest.mark.processes,
    pytest.mark.launchers,
    pytest.mark.skipif(not importlib.util.find_spec("deepspeed"), reason="DeepSpeed is not installed"),
]
two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")


def words(folder: Path, method: str, *options: object) -> list[str]:
    common = ["--method", method, "--slots", "2", "--python", sys.executable, "--log-dir", str(folder / "logs")]
    return [*common, "--master-port", str(free_port()), *map(str, options), PROGRAM, "--local_rank_of_mine", "a b"]


def run(folder: Path, method: str, *options: object, **env: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, what the ranks told in their order, and all that was written."""
    command = [*RANKLAUNCH, "run", *words(folder, method, *options)]
    done = subprocess.run(command, env={**os.environ, **env}, cwd=folder, capture_output=True, text=True, timeout=LONG_S, check=False)
    told = [json.loads(text) for text in re.findall(r"placed (\{[^{}]*\})", done.stdout)]
    return done.returncode, sorted(told, key=lambda each: str(each["rank"])), done.stdout + done.stderr


@two_cores
@pytest.mark.parametrize("method", [*METHODS, "msrun", pytest.param("accelerate", marks=pytest.mark.table)])
def test_each_rank_has_a_core_of_its_own(method: str, tmp_path: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    code, told, text = run(tmp_path, method, "--bind-cores", f"{first},{second}", OMP_NUM_THREADS="")
    assert code == 0, text
    assert [(each["cores"], each["threads"], each["left"]) for each in told] == [([first], "1", []), ([second], "1", [])]
    given = [["--local_rank=0"], ["--local_rank=1"]] if method == "deepspeed" else [[], []]
    assert [each["argv"] for each in told] == [[*words, "--local_rank_of_mine", "a b"] for words in given]


@two_cores
def test_each_rank_has_its_own_where_torchrun_tells_all_the_same_number(tmp_path: Path) -> None:
    """With --virtual-local-rank each rank has LOCAL_RANK 0 and one device, which it sees as its first."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    prefix = ("--rank-prefix", "env X_NUMBER={{ local_rank }}")
    extra = {"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--virtual-local-rank", "OMP_NUM_THREADS": ""}
    code, told, text = run(tmp_path, "torchrun", "--bind-cores", f"{first},{second}", *prefix, **extra)
    assert code == 0, text
    assert [(each["cores"], each["number"], each["local_rank"]) for each in told] == [([first], "0", "0"), ([second], "1", "0")]
    assert [each["argv"] for each in told] == [["--local_rank_of_mine", "a b"]] * 2


@two_cores
@pytest.mark.skipif(not shutil.which("numactl"), reason="numactl is not installed")
def test_deepspeed_binds_by_its_own_options(tmp_path: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    extra = f"--bind_cores_to_rank --bind_core_list {first},{second}"
    code, told, text = run(tmp_path, "deepspeed", RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS=extra)
    assert code == 0, text
    assert [each["cores"] for each in told] == [[first], [second]]


class Debugger:
    """Speaks the Debug Adapter Protocol with one rank."""

    def __init__(self, host: str, port: int) -> None:
        self._sock = sleep_until(lambda: self._connected(host, port), f"a debugger at {host}:{port}", LONG_S)
        self._file = self._sock.makefile("rb")
        self._sent = 0

    def _connected(self, host: str, port: int) -> socket.socket | None:
        try:
            return socket.create_connection((host, port), timeout=LONG_S)
        except ConnectionRefusedError:
            return None

    def close(self) -> None:
        self._file.close()
        self._sock.close()

    def send(self, command: str, **arguments: object) -> None:
        self._sent += 1
        text = json.dumps({"seq": self._sent, "type": "request", "command": command, "arguments": arguments}).encode()
        self._sock.sendall(b"Content-Length: %d\r\n\r\n" % len(text) + text)

    def until(self, kind: str, name: str) -> dict[str, Any]:
        """The body of the next event or response of this name."""
        while True:
            size = 0
            while line := self._file.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    size = int(line.partition(b":")[2])
            assert size, f"the debugger has gone before {kind} {name}"
            found = json.loads(self._file.read(size))
            if found["type"] == kind and found.get("event", found.get("command")) == name:
                assert found.get("success", True), found
                return dict(found.get("body", {}))

    def stopped_in_say(self) -> str:
        """What the frame calls rank, once the rank has stopped there."""
        self.send("initialize", adapterID="debugpy", pathFormat="path")
        self.until("response", "initialize")
        self.send("attach", justMyCode=False)
        self.until("event", "initialized")
        self.send("setFunctionBreakpoints", breakpoints=[{"name": "say"}])
        self.until("response", "setFunctionBreakpoints")
        self.send("configurationDone")
        thread = self.until("event", "stopped")["threadId"]
        self.send("stackTrace", threadId=thread)
        frame = self.until("response", "stackTrace")["stackFrames"][0]
        assert frame["source"]["path"] == PROGRAM
        self.send("evaluate", expression="rank", frameId=frame["id"])
        rank = str(self.until("response", "evaluate")["result"])
        self.send("continue", threadId=thread)
        self.until("response", "continue")
        return rank


@pytest.fixture
def debugged(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[bytes], list[dict[str, Any]]]]:
    """A job whose ranks wait for debuggers, and where these attach."""
    if not importlib.util.find_spec("debugpy"):
        pytest.skip("debugpy is not installed")
    given = words(tmp_path, request.param, "--debugpy", free_port(2), "--debugpy-wait")
    shown = subprocess.run([*RANKLAUNCH, "plan", "--format", "vscode", *given], capture_output=True, text=True, timeout=LONG_S, check=True)
    with open(tmp_path / "out", "wb") as out, subprocess.Popen([*RANKLAUNCH, "run", *given], stdout=out, stderr=out, cwd=tmp_path) as job:
        try:
            yield job, json.loads(shown.stdout)["configurations"]
        finally:
            job.terminate()
            job.wait(LONG_S)


@pytest.mark.parametrize("debugged", METHODS, indirect=True)
def test_a_debugger_attaches_to_each_rank(debugged: tuple[subprocess.Popen[bytes], list[dict[str, Any]]], tmp_path: Path) -> None:
    job, configurations = debugged
    assert [entry["name"] for entry in configurations] == ["rank 0 (node 0, localhost)", "rank 1 (node 0, localhost)"]
    for rank, entry in enumerate(configurations):
        debugger = Debugger(**entry["connect"])
        assert debugger.stopped_in_say() == f"'{rank}'"
        debugger.close()
    assert job.wait(LONG_S) == 0, (tmp_path / "out").read_text()
    (verdict,) = (tmp_path / "logs").glob("attempt_1/verdict.json")
    assert checked_verdict(verdict)["outcome"] == "succeeded"


@two_cores
@pytest.mark.parametrize("way", ["mpirun", "pdsh", pytest.param("openmpi", marks=pytest.mark.table)])
def test_where_node_0_starts_the_ranks_of_all_nodes(way: str, hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Its variables reach those of the other node unharmed, and the command before each knows which rank of the job it is."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    job = LauncherJob(hosts(2), tmp_path, "mpirun" if way == "mpirun" else "deepspeed")
    prefix = "env OMP_NUM_THREADS={{ 10 * node + rank }}"
    env = {} if way == "mpirun" else {"RANKLAUNCH_DEEPSPEED_LAUNCHER": way}
    job.start(PROGRAM, "a", options=("--bind-cores", f"{first},{second}", "--rank-prefix", prefix), env=env)
    job.end(0)
    told = [json.loads(text) for text in re.findall(r"placed (\{[^{}]*\})", job.nodes[0].out)]
    found = sorted((int(each["threads"]), each["cores"], each["left"]) for each in told)
    assert found == [(0, [first], []), (1, [second], []), (12, [first], []), (13, [second], [])]
