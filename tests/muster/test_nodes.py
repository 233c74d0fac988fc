"""Nodes of one job, each a real ranklaunch on a loopback address of its own: they meet, compare, start together and end together."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.fields import NOTHING
from ranklaunch.muster import liveness
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job, Starter, attempts, code_of, codes
from testbench.places import child
from testbench.waiting import free_port, sleep_until

pytestmark = pytest.mark.processes

SHARED = ("outcome", "exit_code", "reason", "culprit", "failures", "notes")


class Nodes:
    """Starts nodes of one job. log directories are node_0, node_1, ..."""

    def __init__(self, starter: Starter, count: int, **settings: object) -> None:
        self.starter = starter
        self.count = count
        self.env = {f"RANKLAUNCH_{name.upper()}": str(value) for name, value in settings.items()}
        self.port = free_port()

    def start(
        self,
        node: int,
        *words: object,
        slots: object = 1,
        method: str = "spawn",
        log_dir: Path | None = None,
        inherits: Mapping[str, str] = NOTHING,
        **settings: object,
    ) -> Job:
        hosts = ",".join(f"127.0.0.{i + 1}" for i in range(self.count))
        shape = ("--hosts", hosts, "--node", node, "--slots", slots, "--muster-port", self.port)
        log_dir = log_dir or self.starter.folder / f"node_{node}"
        logs = () if "MA_LOG_DIR" in inherits else ("--log-dir", log_dir)
        shared = ("--python", sys.executable, *logs, "--grace-s", 5, "--method", method)
        env = {**self.env, **inherits, **{f"RANKLAUNCH_{name.upper()}": str(value) for name, value in settings.items()}}
        return self.starter.command("run", *shared, *shape, "--", *words, env=env, log_dir=log_dir)

    def start_task(self, node: int, task: str, index: int, *words: object) -> Job:
        """Of a TensorFlow job."""
        log_dir = self.starter.folder / f"node_{node}"
        shared = ("--python", sys.executable, "--log-dir", log_dir, "--grace-s", 5, "--muster-port", self.port)
        return self.starter.command("run", *shared, "--task", task, "--node", index, "--", *words, env=self.env, log_dir=log_dir)

    def start_all(self, *words: object) -> list[Job]:
        return [self.start(node, *words) for node in range(self.count)]


def verdict(job: Job) -> dict[str, Any]:
    return checked_verdict(attempts(job.log_dir)[-1] / "verdict.json")


def check_same(jobs: list[Job], code: int) -> dict[str, Any]:
    """All end with this code and one verdict."""
    assert codes(jobs) == [code] * len(jobs), "\n".join(job.err.text for job in jobs)
    first, *others = ({name: verdict(job)[name] for name in SHARED} for job in jobs)
    for other in others:
        assert other == first
    return first


def test_they_start_together_however_late_one_comes(as_process: Starter) -> None:
    """And no rank gets the key."""
    nodes = Nodes(as_process, 3, secret="do-not-tell")
    early = [nodes.start(node, child("environment.py")) for node in (1, 0)]
    for job in early:
        job.err.wait_for("muster: waiting for 1 of 3 nodes: 127.0.0.3 (node 2")
        assert job.out.text == ""
    jobs = [*early, nodes.start(2, child("environment.py"))]
    assert check_same(jobs, 0)["reason"] == "all 3 ranks on 3 nodes succeeded"
    assert not any("do-not-tell" in job.out.text for job in jobs)
    said = [re.findall(r"muster: all 3 nodes are ready; last came node 2 \(127.0.0.3\) after [0-9.]+ s\n", job.err.text) for job in jobs]
    assert [len(lines) for lines in said] == [0, 1, 0]  # node 0, the second of them
    for job in early:
        assert re.search(
            "last came node 2 .* s; this node waited [0-9.]+ s", next(e["late"] for e in job.events if e["event"] == "released")
        )
        names = [event["event"] for event in job.events]
        assert names.index("released") < names.index("spawn")


@pytest.mark.launchers
@pytest.mark.training
def test_one_log_folder_for_all_nodes(as_process: Starter) -> None:
    """As where MA_LOG_DIR is a disk of all: torchrun names the files of its ranks by their local ranks."""
    program = as_process.folder / "train.py"
    program.write_text("import os\nfor i in range(200): print('line', i, 'of', os.environ['RANK'], flush=True)\n")
    nodes = Nodes(as_process, 2, platform="modelarts", nodes=2, job_name="j", attempt=1, master_port=free_port())
    logs = as_process.folder / "logs"
    how = {"slots": 2, "method": "torchrun", "log_dir": logs, "inherits": {"MA_LOG_DIR": str(logs)}}
    jobs = [nodes.start(node, program, **how) for node in range(2)]
    assert codes(jobs) == [0, 0], jobs[0].err.text
    for node, job in enumerate(jobs):
        lines = [line for line in job.out.text.splitlines() if " of " in line]
        assert sorted(lines) == sorted(f"[rank {r}] line {i} of {r}" for r in (2 * node, 2 * node + 1) for i in range(200))
    for rank in range(4):
        assert jobs[0].log(rank).count(b"\n") == 200


def test_nodes_with_one_log_folder_have_one_attempt(as_process: Starter) -> None:
    """Of two, the second comes when the first has made its folder: once for the first time, and once more."""
    logs, nodes = as_process.folder / "logs", Nodes(as_process, 2)
    for number in (1, 2):
        first = nodes.start(0, child("environment.py"), log_dir=logs)
        first.wait_for_event("read", number)
        assert codes([first, nodes.start(1, child("environment.py"), log_dir=logs)]) == [0, 0], first.err.text
        found = [str(path.relative_to(logs)) for path in logs.glob("node_*/attempt_*/verdict.json")]
        assert sorted(found) == [f"node_{node}/attempt_{i}/verdict.json" for node in (0, 1) for i in range(1, number + 1)]
        for node in (0, 1):
            told = json.loads((logs / f"node_{node}" / f"attempt_{number}" / f"rank_{node}.log").read_text())
            assert told["env"]["RANKLAUNCH_ATTEMPT"] == str(number)


def test_one_never_comes(as_process: Starter) -> None:
    nodes = Nodes(as_process, 3, muster_timeout_s=3)
    found = check_same([nodes.start(node, child("environment.py")) for node in range(2)], 75)
    assert "waited 3 s in vain for the job's nodes: 1 of 3 nodes: 127.0.0.3 (node 2, nothing heard of it)" in found["reason"]


def test_node_0_never_comes(as_process: Starter) -> None:
    nodes = Nodes(as_process, 2, muster_timeout_s=3)
    job = nodes.start(1, child("environment.py"))
    assert job.end() == 75
    assert f"node 0 (127.0.0.1): no answer on port {nodes.port} (connection refused)" in verdict(job)["reason"]


def test_one_that_comes_after_a_stop_hears_of_it(as_process: Starter) -> None:
    """Node 0 was stopped before all were there: it listens for some seconds more."""
    nodes = Nodes(as_process, 3, muster_timeout_s=60)
    early = [nodes.start(node, child("environment.py")) for node in (1, 0)]
    early[1].err.wait_for("muster: waiting for 1 of 3 nodes")
    early[1].send(signal.SIGTERM)
    early[1].err.wait_for("waiting 5 s more for nodes")
    late = nodes.start(2, child("environment.py"))
    assert check_same([*early, late], 143)["reason"] == "node 0 (127.0.0.1): stopped by SIGTERM"


def test_node_0_that_comes_after_a_stop_hears_of_it(as_process: Starter) -> None:
    """A node that was stopped before it has reached node 0 goes on trying for some seconds."""
    nodes = Nodes(as_process, 2, muster_timeout_s=60)
    early = nodes.start(1, child("environment.py"))
    early.err.wait_for("muster: waiting for node 0")
    early.send(signal.SIGTERM)
    early.err.wait_for("trying 5 s more to report")
    late = nodes.start(0, child("environment.py"))
    assert check_same([early, late], 143)["reason"] == "node 1 (127.0.0.2): stopped by SIGTERM"


@pytest.mark.parametrize("first", [0, 1])
def test_a_node_that_is_stopped_before_it_has_read_anything_tells_the_others(as_process: Starter, tmp_path: Path, first: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(Path(child("stops_on_import.py")).read_text())
    search = ":".join(filter(None, (str(tmp_path), as_process.environment.get("PYTHONPATH"))))
    stopped = {"PYTHONPATH": search, "STOP_ON_IMPORT": "planning", "STOP_WHOM": "itself"}
    nodes = Nodes(as_process, 2, muster_timeout_s=60)
    jobs = [nodes.start(node, child("environment.py"), inherits=stopped if node == first else NOTHING) for node in range(2)]
    assert check_same(jobs, 143)["reason"] == f"node {first} (127.0.0.{first + 1}): stopped by SIGTERM"


def test_a_node_that_is_stopped_alone_does_not_wait_for_long(as_process: Starter) -> None:
    for node in range(2):
        job = Nodes(as_process, 2, muster_timeout_s=60).start(node, child("environment.py"))
        job.wait_for_event("wait")
        job.send(signal.SIGINT)
        job.err.wait_for("5 s more")
        job.send(signal.SIGINT)
        assert job.end(timeout=4) == 130


def test_node_0_hangs(as_process: Starter) -> None:
    """Its kernel answers, so it is not lost; whoever waits for it does so no longer than it would have waited itself."""
    nodes = Nodes(as_process, 3, muster_timeout_s=4)
    jobs = [nodes.start(node, child("environment.py")) for node in range(2)]
    jobs[1].err.wait_for("muster: waiting for 1 of 3 nodes")
    os.kill(jobs[0].supervisor, signal.SIGSTOP)
    assert code_of(jobs[1]) == 75
    assert "waited 4 s in vain for" in verdict(jobs[1])["reason"]
    os.kill(jobs[0].supervisor, signal.SIGCONT)
    assert codes(jobs) == [75, 75]


def test_they_disagree(as_process: Starter, tmp_path: Path) -> None:
    """Only what differs is said, and nothing of any rank has run."""
    program = tmp_path / "other" / "environment.py"
    program.parent.mkdir()
    program.write_text("print('another program')\n")
    nodes = Nodes(as_process, 2)
    jobs = [nodes.start(0, child("environment.py")), nodes.start(1, program, slots="1,2")]
    found = check_same(jobs, 78)
    for text in ("program differs", "slots differs: 1 on each on node 0", "1,2 on node 1", "world_size differs"):
        assert text in found["reason"]
    assert "method" not in found["reason"]
    assert all(job.out.text == "" for job in jobs)


def test_arguments_and_communication_that_differ(as_process: Starter) -> None:
    """Also what only the ranks would notice, late: one node with another batch size or another algorithm."""
    env: list[dict[str, str]] = [{"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}, {"NCCL_ALGO": "Tree"}]
    nodes = Nodes(as_process, 2)
    program = child("environment.py")
    jobs = [nodes.start(node, program, "--node", node, "--batch_size", 16 * (node + 1), inherits=env[node]) for node in range(2)]
    found = check_same(jobs, 78)
    assert "arguments differ: --batch_size 16 on node 0" in found["reason"]
    assert "--batch_size 32 on node 1" in found["reason"]
    assert "--node" not in found["reason"]
    assert "RANKLAUNCH_MUSTER_ALLOW=arguments" in found["reason"]
    assert "NCCL_ALGO differs: Ring on node 0" in found["reason"]
    assert "NCCL_DEBUG" not in found["reason"]


def test_two_say_that_they_are_the_same(as_process: Starter) -> None:
    nodes = Nodes(as_process, 3, lost_after_s=5)
    jobs = [nodes.start(0, child("environment.py")), nodes.start(1, child("environment.py"))]
    jobs[0].err.wait_for("muster: waiting for")
    again = nodes.start(1, child("environment.py"))
    found = check_same([*jobs, again], 78)
    assert "2 containers say that they are node 1" in found["reason"]


def test_a_container_that_is_started_again_takes_its_place(as_process: Starter) -> None:
    nodes = Nodes(as_process, 3)
    early, hub = nodes.start(1, child("environment.py")), nodes.start(0, child("environment.py"))
    hub.err.wait_for("1 of 3 nodes: 127.0.0.3")
    os.kill(early.supervisor, signal.SIGKILL)
    assert code_of(early) in (1, 137)
    hub.err.wait_for("node 1 (127.0.0.2) is gone")
    check_same([hub, nodes.start(1, child("environment.py")), nodes.start(2, child("environment.py"))], 0)


def test_another_key(as_process: Starter) -> None:
    nodes = Nodes(as_process, 2)
    # Node 0 waits longer, so that its end is not the last that node 1 hears of it.
    hub = nodes.start(0, child("environment.py"), secret="one", muster_timeout_s=10)
    hub.err.wait_for("waiting for")
    jobs = [hub, nodes.start(1, child("environment.py"), secret="two", muster_timeout_s=2)]
    assert codes(jobs) == [75, 75]
    assert "another RANKLAUNCH_SECRET there" in verdict(jobs[1])["reason"]
    assert "(another key)" in verdict(jobs[0])["reason"]
    assert "127.0.0.1 has another key" in jobs[0].err.text
    for job in jobs:
        assert not any(secret in path.read_text() for path in job.attempt.iterdir() for secret in ('"one"', '"two"'))


def test_a_key_in_a_file_and_what_is_allowed_to_differ(as_process: Starter, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key\n")
    (tmp_path / "same").write_text("a key")
    other = tmp_path / "other.py"
    other.write_text("print('another program')\n")
    nodes = Nodes(as_process, 2, muster_allow="program,torch")
    jobs = [nodes.start(0, child("environment.py"), secret_file=tmp_path / "key"), nodes.start(1, other, secret_file=tmp_path / "same")]
    check_same(jobs, 0)
    assert "derived from the job's name" not in jobs[0].err.text


def test_a_key_that_cannot_be_read(as_process: Starter, tmp_path: Path) -> None:
    job = Nodes(as_process, 2).start(0, child("environment.py"), secret_file=tmp_path / "nothing")
    assert job.end() == 78
    assert f"RANKLAUNCH_SECRET_FILE={tmp_path / 'nothing'}: No such file" in verdict(job)["reason"]


def test_a_program_that_is_missing_on_one_node(as_process: Starter, tmp_path: Path) -> None:
    """Found out before the meeting, and told to all: nobody waits for the deadline."""
    nodes = Nodes(as_process, 2)
    found = check_same([nodes.start(0, child("environment.py")), nodes.start(1, tmp_path / "nothing.py")], 69)
    assert found["reason"].startswith("node 1 (127.0.0.2): program ")


@pytest.mark.parametrize("node", [0, 1])
def test_a_log_folder_that_cannot_be_written_on_one_node(as_process: Starter, tmp_path: Path, node: int) -> None:
    (tmp_path / "file").write_text("")
    nodes = Nodes(as_process, 3)
    began = time.monotonic()
    jobs = [nodes.start(i, child("sleeper.py"), log_dir=tmp_path / "file" if i == node else None) for i in range(3)]
    assert codes(jobs) == [78, 78, 78], "\n".join(job.err.text for job in jobs)
    assert time.monotonic() - began < 15
    reason = f"node {node} (127.0.0.{node + 1}): log directory {tmp_path}/file/node_{node}/attempt_1: cannot be written by uid "
    for job in jobs:
        assert f"failed with exit code 78: {reason}" in job.err.text
        assert "ready" not in job.out.text
    assert all(verdict(job)["reason"].startswith(reason) for job in jobs if job is not jobs[node])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_restarts": 2}, "restarts differs: (none) on node 0 (127.0.0.1), 2 on node 1 (127.0.0.2)"),
        ({"max_restarts": 2, "no_restart_codes": "3"}, "(127.0.0.1), 2, never after 3 on node 1 (127.0.0.2)"),
        (
            {"hang": "stop", "hang_s": 60},
            "hang differs: (none) on node 0 (127.0.0.1), stop after 60 s, 1800 s before the first step on node 1 (127.0.0.2)",
        ),
    ],
    ids=["restarts", "codes", "hang"],
)
def test_restarts_and_hangs_are_the_same_on_all_nodes(as_process: Starter, settings: dict[str, Any], said: str) -> None:
    nodes = Nodes(as_process, 2)
    found = check_same([nodes.start(0, child("environment.py")), nodes.start(1, child("environment.py"), **settings)], 78)
    assert said in found["reason"]


def test_restarts_that_are_allowed_to_differ(as_process: Starter) -> None:
    nodes = Nodes(as_process, 2, muster_allow="restarts,hang")
    jobs = [nodes.start(0, child("environment.py")), nodes.start(1, child("environment.py"), max_restarts=1, hang="off")]
    check_same(jobs, 0)


def test_a_preparation_that_fails_on_one_node(as_process: Starter, tmp_path: Path) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.sh").write_text("echo trained\n")
    (tmp_path / "bad" / "ma-pre-start.sh").write_text("exit 9\n")
    nodes = Nodes(as_process, 2)
    found = check_same([nodes.start(node, tmp_path / name / "train.sh") for node, name in enumerate(("good", "bad"))], 9)
    assert found["culprit"]["name"] == "ma-pre-start.sh"
    assert found["culprit"]["node"] == 1


def test_what_node_0_does_once_is_there_for_all(as_process: Starter, tmp_path: Path) -> None:
    made = tmp_path / "made"
    program = tmp_path / "train.sh"
    program.write_text(f"test -e {made} && echo trained\n")
    jobs = Nodes(as_process, 2, once=f"sleep 0.5; mkdir {made}", same=program).start_all(program)
    check_same(jobs, 0)
    for job in jobs:
        assert job.out.text.count("[same]") == 1


def test_one_is_asked_to_stop(as_pid_1: Starter) -> None:
    jobs = Nodes(as_pid_1, 3).start_all(child("sleeper.py"))
    for job in jobs:
        job.out.wait_for("ready")
    jobs[1].send(signal.SIGTERM)
    found = check_same(jobs, 143)
    assert found["outcome"] == "stopped"
    assert found["reason"] == "node 1 (127.0.0.2): stopped by SIGTERM"


CANNOT_SAVE = """
import os, signal, sys, time
def save(number, frame):
    if os.environ["RANK"] == "1":
        raise OSError(28, "No space left on device")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
if os.environ["RANK"] == sys.argv[1]:
    time.sleep(1)
    raise ValueError("no image 17")
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["a stop", "a failure"])
def test_a_rank_that_cannot_save_is_noted_wherever_that_was_decided(as_process: Starter, tmp_path: Path, how: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(CANNOT_SAVE)
    jobs = Nodes(as_process, 2).start_all(program, "none" if how == "a stop" else "0")
    for job in jobs:
        job.out.wait_for("ready")
    if how == "a stop":
        jobs[0].send(signal.SIGTERM)
    found = check_same(jobs, 143 if how == "a stop" else 1)
    assert found["notes"] == ["rank 1 on node 1 (127.0.0.2) failed with exit code 1 while it was being stopped: see rank_1.log"]


TOLD_TOO_LATE = f"""
import atexit, os, signal, sys, time, traceback
rank = int(os.environ["RANK"])
{helpers.AS_PYTORCHS_HOOK}print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
if rank == 1:
    atexit.register(time.sleep, 600)
    raise OSError(28, "No space left on device")
time.sleep(600)
"""


def test_a_rank_that_could_not_save_before_the_signal_came_is_noted(as_process: Starter, tmp_path: Path) -> None:
    """Ranks that agree on a stop may hear of it from each other. The hook is as PyTorch's; the handlers of Python are gone by then."""
    program = tmp_path / "program.py"
    program.write_text(TOLD_TOO_LATE)
    jobs = Nodes(as_process, 2).start_all(program, tmp_path / "stops")
    for job in jobs:
        job.out.wait_for("ready")
    (tmp_path / "stops").touch()
    jobs[1].out.wait_for("No space left on device")
    jobs[0].send(signal.SIGTERM)
    why = "it had raised: OSError: [Errno 28] No space left on device"
    assert f"rank 1 on node 1 (127.0.0.2) was still running when it was stopped, but {why}" in check_same(jobs, 143)["notes"]


SAVES = """
import os, signal, sys, time
def save(number, frame):
    print("saving", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, save)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


def test_an_interrupt_of_all_nodes_is_each_ones_first(as_process: Starter, tmp_path: Path) -> None:
    """Another node's word may be faster than the signal; what is being saved is not lost for that."""
    program, may_end = tmp_path / "program.py", tmp_path / "may_end"
    program.write_text(SAVES)
    jobs = Nodes(as_process, 2).start_all(program, may_end)
    for job in jobs:
        job.out.wait_for("ready")
    jobs[1].send(signal.SIGINT)
    jobs[0].out.wait_for("saving")
    jobs[0].send(signal.SIGINT)
    jobs[0].err.wait_for("SIGINT: stopping already; a second SIGINT kills everything at once, even while a checkpoint is being saved")
    may_end.touch()
    assert check_same(jobs, 130)["reason"] == "node 1 (127.0.0.2): stopped by SIGINT"
    assert all("saved" in job.out.text for job in jobs)


def saving(starter: Starter, folder: Path, number: int) -> tuple[list[Job], Path]:
    """Two nodes whose ranks save, since node 0 was stopped, until the file is there."""
    program, may_end = folder / "program.py", folder / "may_end"
    program.write_text(SAVES)
    jobs = Nodes(starter, 2).start_all(program, may_end)
    for job in jobs:
        job.out.wait_for("ready")
    jobs[0].send(number)
    for job in jobs:
        job.out.wait_for("saving")
    return jobs, may_end


def test_node_0_interrupted_twice_tells_the_others_before_it_leaves(as_process: Starter, tmp_path: Path) -> None:
    """They go on saving."""
    jobs, may_end = saving(as_process, tmp_path, signal.SIGINT)
    jobs[0].send(signal.SIGINT)
    assert code_of(jobs[0]) == 130
    time.sleep(2 * liveness.RETURN_S)  # a node 0 that has said nothing is given up then
    may_end.touch()
    assert check_same(jobs, 130)["reason"] == "node 0 (127.0.0.1): stopped by SIGINT"
    assert "saved" in jobs[1].out.text


def test_a_node_0_that_is_lost_while_all_stop_is_not_why(as_process: Starter, tmp_path: Path) -> None:
    jobs, may_end = saving(as_process, tmp_path, signal.SIGTERM)
    os.kill(jobs[0].supervisor, signal.SIGKILL)
    os.kill(jobs[0].pid, signal.SIGKILL)
    jobs[0].end_killed()
    time.sleep(2 * liveness.RETURN_S)  # then it is given up
    may_end.touch()
    assert jobs[1].end() == 143
    assert verdict(jobs[1])["reason"] == "node 0 (127.0.0.1): stopped by SIGTERM"


def test_a_node_that_has_succeeded_waits_for_the_others(as_process: Starter) -> None:
    nodes = Nodes(as_process, 2, muster_allow="program")
    jobs = [nodes.start(0, child("exits.py"), 0), nodes.start(1, child("told.py"), "--code", 0, "--rank", 1)]
    jobs[0].err.wait_for("the program succeeded; waiting for the other nodes, which are still running")
    sleep_until(lambda: "ready" in jobs[1].out.text, "node 1 is not ready")
    jobs[1].send(signal.SIGUSR1)
    assert check_same(jobs, 0)["reason"] == "all 2 ranks on 2 nodes succeeded"


def test_a_node_that_has_succeeded_before_another_fails(as_process: Starter) -> None:
    nodes = Nodes(as_process, 2, muster_allow="program")
    jobs = [nodes.start(0, child("exits.py"), 0), nodes.start(1, child("told.py"), "--code", 7, "--rank", 1)]
    jobs[0].err.wait_for("waiting for the other nodes")
    sleep_until(lambda: "ready" in jobs[1].out.text, "node 1 is not ready")
    jobs[1].send(signal.SIGUSR1)
    found = check_same(jobs, 7)
    assert found["culprit"]["node"] == 1
    assert any(re.fullmatch(r"node 0 had ended with 0, [0-9.]+ s before the failure", note) for note in found["notes"])


WAITS_FOR_GO = """
import os, sys, time
if os.environ["RANK"] == "{rank}":
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
"""


def test_a_rank_that_had_ended_is_noted_once(as_process: Starter, tmp_path: Path) -> None:
    """Its own node has noted it, and so has node 0, by clocks of its own."""
    program = tmp_path / "program.py"
    program.write_text(f"{WAITS_FOR_GO.format(rank=1)}    sys.exit(9)\n")
    nodes = Nodes(as_process, 2)
    jobs = [nodes.start(node, program, tmp_path / "go", slots="2,1") for node in range(2)]
    jobs[0].wait_for_event("exit")
    (tmp_path / "go").touch()
    notes = check_same(jobs, 9)["notes"]
    assert len([note for note in notes if note.startswith("rank 0 on node 0 had ended with 0")]) == 1


def test_a_node_that_has_succeeded_waits_no_longer_than_it_may(as_process: Starter) -> None:
    """It ends with 0, and node 0 goes on."""
    nodes = Nodes(as_process, 2, end_timeout_s=3, muster_allow="program")
    programs = [(child("told.py"), "--code", 0, "--rank", 0), (child("exits.py"), 0)]
    jobs = [nodes.start(node, *programs[node]) for node in range(2)]
    assert code_of(jobs[1]) == 0
    assert "other nodes were still running 3 s later" in verdict(jobs[1])["reason"]
    sleep_until(lambda: "ready" in jobs[0].out.text, "the other is not ready")
    jobs[0].send(signal.SIGUSR1)
    assert jobs[0].end() == 0


def test_nobody_goes_on_without_node_0(as_process: Starter) -> None:
    """Nobody would watch the others: all end with 75, and each says which of its ranks were still working."""
    nodes = Nodes(as_process, 2, end_timeout_s=3, muster_allow="program")
    programs = [(child("exits.py"), 0), (child("told.py"), "--code", 0, "--rank", 1)]
    jobs = [nodes.start(node, *programs[node]) for node in range(2)]
    assert check_same(jobs, 75)["reason"].endswith("still ran 3 s later (RANKLAUNCH_END_TIMEOUT_S)")
    assert "ranklaunch: still working here: rank 1" in jobs[1].err.text


LEAVES = """
import os, signal, subprocess, sys, time
if os.environ["RANK"] == "0":
    left = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"]
    subprocess.Popen(left, stdout=subprocess.PIPE).stdout.readline()
    sys.exit(0)
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


def test_a_node_that_ends_what_its_program_left_waits_for_nobody(as_process: Starter, tmp_path: Path) -> None:
    """However long that takes, the job's end has been decided: node 0 says nothing of others that run, and does not leave them alone."""
    program = tmp_path / "program.py"
    program.write_text(LEAVES)
    nodes = Nodes(as_process, 2, end_timeout_s=3)
    jobs = [nodes.start(node, program, 0.3, 7) for node in range(2)]
    found = check_same(jobs, 7)
    assert found["culprit"]["node"] == 1
    assert not any("succeeded" in job.err.text for job in jobs), jobs[0].err.text


def test_a_job_that_has_succeeded_waits_for_nobody(as_process: Starter, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LEAVES)
    jobs = Nodes(as_process, 2).start_all(program, 0, 0)
    assert codes(jobs) == [0, 0]
    assert "waiting at most" in jobs[0].err.text
    assert "waiting for the other nodes" not in jobs[0].err.text


def test_a_node_that_has_succeeded_is_asked_to_stop(as_process: Starter) -> None:
    nodes = Nodes(as_process, 2, muster_allow="program")
    jobs = [nodes.start(0, child("told.py"), "--code", 0), nodes.start(1, child("exits.py"), 0)]
    jobs[1].err.wait_for("waiting for the other nodes")
    jobs[1].send(signal.SIGTERM)
    assert code_of(jobs[1]) == 0
    sleep_until(lambda: "ready" in jobs[0].out.text, "node 0 is not ready")
    jobs[0].send(signal.SIGUSR1)
    assert jobs[0].end() == 0


TASKS = """
import sys, time
print("ready", flush=True)
time.sleep(0 if {"--job_name=worker", "--task_index=0"} <= set(sys.argv) else 600)
"""


def test_node_0_with_followers_is_asked_to_stop_after_its_success(as_process: Starter, tmp_path: Path) -> None:
    """It cannot leave a ps alone, so the job ends, and whose work was not finished was stopped."""
    program = tmp_path / "program.py"
    program.write_text(TASKS)
    nodes = Nodes(as_process, 3, method="tensorflow", worker_hosts="127.0.0.1:4001,127.0.0.2:4002", ps_hosts="127.0.0.3:4003")
    jobs = [nodes.start_task(node, task, index, program) for node, (task, index) in enumerate([("worker", 0), ("worker", 1), ("ps", 0)])]
    jobs[0].err.wait_for("succeeded; waiting for the other nodes")
    for job in jobs[1:]:
        job.out.wait_for("ready")
    jobs[0].send(signal.SIGTERM)
    found = check_same(jobs, 143)
    assert found["outcome"] == "stopped"
    assert found["reason"] == "node 0 (127.0.0.1): stopped by SIGTERM"
    assert any(note.startswith("node 0 had ended with 0") and note.endswith("before the request") for note in found["notes"])


def test_without_a_muster_each_is_alone(as_process: Starter) -> None:
    nodes = Nodes(as_process, 2, muster="off")
    jobs = [nodes.start(0, child("exits.py"), 0), nodes.start(1, child("exits.py"), 5)]
    assert codes(jobs) == [0, 5]
    assert not any("muster:" in job.err.text for job in jobs)


CONSEQUENCE = 'raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.2]:31337")'
PROGRAM = f"""
import atexit, os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
print("ready", flush=True)
if os.environ["RANK"] == "0":
    while not (folder / "waits").exists():
        time.sleep(0.01)
    {CONSEQUENCE}
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
(folder / "waits").touch()
time.sleep(0.3)
atexit.register(time.sleep, 600)  # as threads do that do not end
raise ValueError("loss is nan")
"""


def test_a_cause_that_comes_later_wins(as_process: Starter, tmp_path: Path) -> None:
    """Rank 0 dies of its peer first; the peer is then told to stop while it is on its way out by itself."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = check_same(Nodes(as_process, 2).start_all(program, tmp_path), 1)
    assert (found["culprit"]["rank"], found["culprit"]["error"]["line"]) == (1, "ValueError: loss is nan")
    assert [failure["rank"] for failure in found["failures"]] == [0]
    assert found["failures"][0]["error"]["kind"] == "consequence"


def test_only_consequences(as_process: Starter, tmp_path: Path) -> None:
    """Nobody says why: the first consequence is named, as one, with who had left before."""
    program = tmp_path / "program.py"
    program.write_text(f"{WAITS_FOR_GO.format(rank=0)}    {CONSEQUENCE}\n")
    jobs = Nodes(as_process, 2).start_all(program, tmp_path / "go")
    jobs[1].err.wait_for("waiting for the other nodes")
    (tmp_path / "go").touch()
    found = check_same(jobs, 1)
    assert "looks like the consequence of another failure" in found["reason"]
    assert "[127.0.0.2]:31337" in found["reason"]
    assert any(note.startswith("node 1 had ended with 0") and "consequence" in note for note in found["notes"])


# Rank 2 fails once all have begun; the others take their time to end.
SLOW_TO_END = """
import os, signal, sys, time
rank, folder = os.environ["RANK"], sys.argv[1]
signal.signal(signal.SIGTERM, lambda *_: open(f"{folder}/told_{rank}", "w").close())
open(f"{folder}/began_{rank}", "w").close()
while rank == "2" and not all(os.path.exists(f"{folder}/began_{each}") for each in (0, 1)):
    time.sleep(0.02)
if rank == "2":
    sys.exit(7)
time.sleep(600)
"""


def test_nodes_that_are_hurried_together_agree(as_process: Starter, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SLOW_TO_END)
    jobs = Nodes(as_process, 3, max_restarts=2).start_all(program, tmp_path)
    for node in (0, 1):
        sleep_until((tmp_path / f"told_{node}").exists, "the stop")
    for _ in range(2):
        for job in jobs[:2]:
            job.send(signal.SIGINT)
        for job in jobs[:2]:
            job.err.wait_for("SIGINT: stopping already")
    assert codes(jobs) == [130, 130, 130], "\n".join(job.err.text for job in jobs)
    assert len({verdict(job)["reason"] for job in jobs}) == 1


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("node", [0, 1])
def test_whoever_stops_one_node_while_ranks_end_to_start_again_stops_the_job(
    as_process: Starter, tmp_path: Path, node: int, times: int
) -> None:
    """It ends the job, also where the same signal again ends that node at once, and it waits for nobody."""
    program = tmp_path / "program.py"
    program.write_text(SLOW_TO_END)
    nodes = Nodes(as_process, 3, max_restarts=2)
    jobs = nodes.start_all(program, tmp_path)
    sleep_until((tmp_path / f"told_{node}").exists, "the stop")
    jobs[node].send(signal.SIGINT)
    jobs[node].err.wait_for("SIGINT: stopping already")
    if times > 1:
        jobs[node].send(signal.SIGINT)
    assert codes(jobs) == [130, 130, 130], "\n".join(job.err.text for job in jobs)
    for job in jobs:
        found = verdict(job)
        assert (found["outcome"], found["reason"]) == ("stopped", f"node {node} (127.0.0.{node + 1}): stopped by SIGINT")
        assert found["notes"][0].startswith("the stop request came while ranks were being ended for a restart: rank 2 on node 2 (127")
    assert [verdict(job).get("stop", {}).get("signal") for job in jobs] == ["SIGINT" if i == node else None for i in range(3)]
