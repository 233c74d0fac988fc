"""Waiting before launch: until it is there, until the deadline, and always saying what is missing."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from testbench.jobs.ends import check_end
from testbench.jobs.job import Starter
from testbench.jobs.streams import tagged
from testbench.places import child
from testbench.waiting import sleep_until

ONE_NODE = {"MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "2"}
NOWHERE = "localhost-does-not-exist.invalid"


def table(status: str) -> str:
    devices = [{"device_id": str(i + 4), "device_ip": f"192.0.2.{i + 1}"} for i in range(2)]
    pod = {"pod_name": "job-worker-0", "server_id": "192.0.2.99", "devices": devices}
    group = {"group_name": "worker", "device_count": "2", "instance_count": "1", "instance_list": [pod]}
    return json.dumps({"status": status, "group_count": "1", "group_list": [group]})


def places(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line)["env"] for line in text.splitlines()]


def test_a_rank_table_that_comes_late(as_process: Starter, tmp_path: Path) -> None:
    """No file, a half-written one, one that is not completed: each is waited out; then the ranks run with the table in version 1.0."""
    path = tmp_path / "jobstart_hccl.json"
    env = {**ONE_NODE, "RANK_TABLE_FILE": str(path)}
    job = as_process.run(child("environment.py"), options=("--method", "ranktable"), env=env)
    job.err.wait_for("no such file")
    path.write_text(table("completed")[:100])
    path.write_text(table("initializing"))
    ready = tmp_path / "ready.json"
    ready.write_text(table("completed"))
    os.replace(ready, path)
    check_end(job, "succeeded", 0)
    for rank in range(2):
        place = places(job.log(rank))[0]
        assert (place["RANK_ID"], place["RANK_SIZE"], place["DEVICE_ID"], place["ASCEND_DEVICE_ID"]) == (
            str(rank),
            "2",
            str(rank),
            str(rank),
        )
        written = json.loads(Path(place["RANK_TABLE_FILE"]).read_text())
        assert written["version"] == "1.0"
        assert [device["rank_id"] for device in written["server_list"][0]["device"]] == ["0", "1"]
    names = [event["event"] for event in job.events]
    assert names.index("wait") < names.index("waited") < names.index("file") < names.index("spawn")
    assert tagged(job.out, "[rank 0] ") == job.log(0)
    copies = sorted(job.log_dir.glob("*-proc-rank-*-device-*.txt"))
    assert [copy.read_bytes() for copy in copies] == [job.log(0), job.log(1)]


def test_a_rank_table_that_is_never_completed(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "jobstart_hccl.json"
    path.write_text(table("initializing"))
    env = {**ONE_NODE, "RANK_TABLE_FILE": str(path), "RANKLAUNCH_WAIT_S": "3"}
    began = time.monotonic()
    job = as_process.run(child("environment.py"), options=("--method", "ranktable"), env=env)
    verdict = check_end(job, "failed", 75, victims={})
    assert 3 <= time.monotonic() - began < 20
    for text in ("rank table", str(path), '"initializing"', "RANKLAUNCH_WAIT_S"):
        assert text in verdict["reason"]
    assert any("waiting for rank table" in line and 'status is "initializing"' in line for line in job.err.lines)
    assert job.out.text == ""


def test_a_rank_table_that_is_wrong_is_not_waited_for(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "jobstart_hccl.json"
    path.write_text(table("initializing"))
    env = {**ONE_NODE, "RANK_TABLE_FILE": str(path)}
    job = as_process.run(child("environment.py"), options=("--method", "ranktable"), env=env)
    job.wait_for_event("wait")
    path.write_text(table("completed").replace('"device_count"', '"other"').replace('"instance_count": "1"', '"instance_count": "7"'))
    verdict = check_end(job, "failed", 78, victims={})
    assert "instance_count" in verdict["reason"]


def test_a_host_that_never_resolves(as_process: Starter) -> None:
    env = {"RANKLAUNCH_HOSTS": f"{NOWHERE},127.0.0.2", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_WAIT_S": "3", "RANKLAUNCH_MUSTER": "off"}
    began = time.monotonic()
    job = as_process.spawn(1, child("environment.py"), env=env)
    verdict = check_end(job, "failed", 75, victims={})
    assert 3 <= time.monotonic() - began < 20
    for text in ("waited 3 s in vain for hosts", f"{NOWHERE} (", "RANKLAUNCH_WAIT_S"):
        assert text in verdict["reason"]
    assert any("waiting for hosts" in line and f"{NOWHERE} (" in line for line in job.err.lines)


def test_a_muster_at_a_host_that_never_resolves(as_process: Starter) -> None:
    env = {"RANKLAUNCH_HOSTS": f"{NOWHERE},127.0.0.2", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_MUSTER_TIMEOUT_S": "3"}
    job = as_process.spawn(1, child("environment.py"), env=env)
    verdict = check_end(job, "failed", 75, victims={})
    for text in ("waited 3 s in vain for", f"node 0 ({NOWHERE}): its name does not resolve", "RANKLAUNCH_MUSTER_TIMEOUT_S"):
        assert text in verdict["reason"]
    assert any("muster: waiting for" in line and NOWHERE in line for line in job.err.lines)


def test_a_host_that_resolves(as_process: Starter) -> None:
    """The ranks of a node that had to wait leave everything in one folder, as any other."""
    env = {"RANKLAUNCH_HOSTS": "localhost,127.0.0.2", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_MUSTER": "off"}
    job = as_process.spawn(2, child("environment.py"), env=env)
    check_end(job, "succeeded", 0)
    assert [(place["RANK"], place["WORLD_SIZE"]) for rank in (2, 3) for place in places(job.log(rank))] == [("2", "4"), ("3", "4")]
    assert json.loads((job.attempt / "plan.json").read_text())["job"]["attempt"] == 1


def test_a_second_start_is_a_second_attempt(as_process: Starter) -> None:
    for attempt in (1, 2):
        job = as_process.spawn(1, child("exits.py"), 0)
        assert job.end() == 0
        assert sorted(path.name for path in job.log_dir.glob("attempt_*")) == [f"attempt_{i + 1}" for i in range(attempt)]


def test_hosts_that_a_command_names(as_process: Starter, tmp_path: Path) -> None:
    said = tmp_path / "asked"
    command = f"echo asked >> {said}; echo localhost"
    job = as_process.run(child("environment.py"), options=("--method", "spawn", "--hosts-command", command, "--slots", "1"))
    check_end(job, "succeeded", 0)
    assert json.loads((job.log_dir / "attempt_1" / "plan.json").read_text())["job"]["nodes"][0]["host"] == "localhost"
    assert said.read_text() == "asked\n"


def test_hosts_of_a_command_that_leaves_something_behind(as_process: Starter) -> None:
    """It has answered, although what it has left could still write."""
    job = as_process.run(
        child("environment.py"), options=("--method", "spawn", "--hosts-command", "sleep 600 & echo localhost", "--slots", "1")
    )
    check_end(job, "succeeded", 0)


def test_the_deadline_of_a_command_that_has_closed_its_output(as_process: Starter) -> None:
    options = ("--method", "spawn", "--hosts-command", "echo localhost; exec sleep 600 >&-", "--wait-s", "1")
    job = as_process.run(child("environment.py"), options=options)
    assert job.end() == 75
    assert any("waited 1 s in vain for" in line for line in job.err.lines)


def test_a_stop_request_ends_the_command_that_names_hosts(as_process: Starter, tmp_path: Path) -> None:
    started = tmp_path / "started"
    command = f"echo > {started}; exec sleep 600"
    options = ("--method", "spawn", "--hosts-command", command, "--nodes", "1")
    job = as_process.run(child("environment.py"), options=options)
    sleep_until(started.exists, "the command")
    os.kill(job.pid, signal.SIGTERM)
    check_end(job, "stopped", 143)
