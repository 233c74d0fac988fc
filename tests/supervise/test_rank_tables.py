"""Rank tables that appear, change and disappear under a real run, and route planning before it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.plan.model import TABLE, Plan
from ranklaunch.supervise.waits.table_renewal import Renewed
from ranklaunch.system.disk import DiskFiles
from ranklaunch.system.loop import Loop
from testbench.jobs.ends import check_end
from testbench.jobs.job import Job, Starter, attempts
from testbench.places import child
from testbench.waiting import sleep_until

PODS = [("j-worker-0", "192.0.2.1", "45"), ("j-worker-1", "192.0.2.2", "45")]


def env_of(path: Path, index: int = 1, **more: str) -> dict[str, str]:
    found = helpers.modelarts(2, 2, index, RANK_TABLE_FILE=str(path), MA_CURRENT_INSTANCE_NAME=f"j-worker-{index}", **more)
    del found["PATH"]
    return {**found, "RANKLAUNCH_MUSTER": "off"}  # the other node of the table is not there


def places(job: Job, rank: int, attempt: int = 1) -> dict[str, Any]:
    return dict(json.loads((job.of_attempt(attempt) / f"rank_{rank}.log").read_text())["env"])


def table_of(job: Job, rank: int, attempt: int = 1) -> dict[str, Any]:
    return dict(json.loads(Path(places(job, rank, attempt)["RANK_TABLE_FILE"]).read_text()))


def replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    os.replace(new, path)


def test_from_nothing_to_a_table_by_rename(as_process: Starter, tmp_path: Path) -> None:
    """Each state is seen and said: no file, nothing placed yet, some pods placed, half-written; then the table."""
    whole = helpers.group_table(PODS)
    path = tmp_path / "config" / "jobstart_hccl.json"
    path.parent.mkdir()
    job = as_process.run(child("environment.py"), env=env_of(path.parent))
    job.err.wait_for("no such file")
    replace(path, '{"status": "initializing"}')
    job.err.wait_for("""status is "initializing", not 'completed' (""")
    some = json.loads(whole)
    some["status"] = "initializing"
    del some["group_list"][0]["instance_list"][1]
    replace(path, json.dumps(some))
    job.err.wait_for("1 of 2 instances are listed")
    path.write_text(whole[:100])
    job.err.wait_for("not JSON (half-written?)")
    replace(path, whole)
    check_end(job, "succeeded", 0)
    assert [places(job, rank)["RANK_ID"] for rank in (2, 3)] == ["2", "3"]
    assert table_of(job, 2)["version"] == "1.0"
    said = [line for line in job.err.lines if "waiting for rank table" in line]
    assert all(str(path) in line for line in said)


@pytest.mark.parametrize("first", ["nothing", "an empty folder", "another file in it"])
def test_which_file_of_a_folder_it_is_may_be_known_later(as_process: Starter, tmp_path: Path, first: str) -> None:
    """jobstart_hccl.json or hccl.json, whichever comes; the folder itself may come later, too."""
    config = tmp_path / "config"
    if first != "nothing":
        config.mkdir()
    if first == "another file in it":
        (config / "hccl.json").write_text('{"status": "initializing"}')
    job = as_process.run(child("environment.py"), env=env_of(config))
    job.err.wait_for("initializing" if first == "another file in it" else "no such file")
    config.mkdir(exist_ok=True)
    replace(config / ("jobstart_hccl.json" if first == "another file in it" else "hccl.json"), helpers.group_table(PODS))
    check_end(job, "succeeded", 0)


def test_a_config_map_that_kubelet_swaps(as_process: Starter, tmp_path: Path) -> None:
    """The file is a link into ..data, a link to a folder; kubelet replaces ..data by rename, and the file itself never changes."""
    config = tmp_path / "config"
    for name, text in (("..1", '{"status": "initializing"}'), ("..2", helpers.group_table(PODS))):
        (config / name).mkdir(parents=True)
        (config / name / "jobstart_hccl.json").write_text(text)
    (config / "..data").symlink_to("..1")
    (config / "jobstart_hccl.json").symlink_to("..data/jobstart_hccl.json")
    job = as_process.run(child("environment.py"), env=env_of(config))
    job.err.wait_for("initializing")
    (config / "..data_tmp").symlink_to("..2")
    os.replace(config / "..data_tmp", config / "..data")
    check_end(job, "succeeded", 0)
    waited = next(event for event in job.events if event["event"] == "waited")
    assert waited["kind"] == "rank table"


def test_a_second_attempt_reads_the_table_of_the_new_node(as_process: Starter, tmp_path: Path) -> None:
    """Node 1 was replaced. Until the platform has made the table anew, the old one is there, completed and valid: it must not be used."""
    path = tmp_path / "jobstart_hccl.json"
    replace(path, helpers.group_table(PODS))
    first = as_process.run(child("environment.py"), env=env_of(path, MA_CURRENT_HOST_IP="192.0.2.2"))
    check_end(first, "succeeded", 0)
    second = as_process.run(child("environment.py"), env=env_of(path, MA_CURRENT_HOST_IP="192.0.2.7", MA_PROC_START_CNT="2"))
    second.err.wait_for("it has this container on host 192.0.2.2, but the host is 192.0.2.7")
    replace(path, helpers.group_table([PODS[0], ("j-worker-1", "192.0.2.7", "01")]))
    assert second.end() == 0
    assert [folder.name for folder in attempts(second.log_dir)] == ["attempt_1", "attempt_2"]
    for attempt, host, devices in ((1, "192.0.2.2", ["4", "5"]), (2, "192.0.2.7", ["0", "1"])):
        server = table_of(second, 2, attempt)["server_list"][1]
        assert (server["server_id"], [device["device_id"] for device in server["device"]]) == (host, devices)


def test_a_table_of_another_job_is_waited_out(as_process: Starter, tmp_path: Path) -> None:
    """Completed, valid, of as many nodes; only the names and hosts in it are others'."""
    path = tmp_path / "jobstart_hccl.json"
    replace(path, helpers.group_table([("i-worker-0", "192.0.2.8", "01"), ("i-worker-1", "192.0.2.9", "01")]))
    job = as_process.run(child("environment.py"), env=env_of(path, MA_CURRENT_HOST_IP="192.0.2.2"))
    job.err.wait_for("waiting for rank table")
    replace(path, helpers.group_table(PODS))
    check_end(job, "succeeded", 0)
    assert [server["server_id"] for server in table_of(job, 2)["server_list"]] == ["192.0.2.1", "192.0.2.2"]


def test_the_deadline_names_both_sides(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "jobstart_hccl.json"
    path.write_text(helpers.group_table([("i-worker-0", "192.0.2.8", "01"), ("i-worker-1", "192.0.2.9", "01")]))
    job = as_process.run(child("environment.py"), env=env_of(path, MA_CURRENT_HOST_IP="192.0.2.2", RANKLAUNCH_WAIT_S="1"))
    verdict = check_end(job, "failed", 75, victims={})
    for part in ("another job's", "pod name j-worker-1, addresses 192.0.2.2", "pod name i-worker-1, host 192.0.2.9"):
        assert part in verdict["reason"]


def test_the_survivor_of_a_replaced_node_reads_the_table_again(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "jobstart_hccl.json"
    replace(path, helpers.group_table(PODS))
    check_end(as_process.run(child("environment.py"), env=env_of(path, 0, MA_CURRENT_HOST_IP="192.0.2.1")), "succeeded", 0)
    replace(path, helpers.group_table([PODS[0], ("j-worker-1", "192.0.2.7", "01")]))
    again = as_process.run(child("environment.py"), env=env_of(path, 0, MA_CURRENT_HOST_IP="192.0.2.1", MA_PROC_START_CNT="2"))
    assert again.end() == 0
    assert [server["server_id"] for server in table_of(again, 0, 2)["server_list"]] == ["192.0.2.1", "192.0.2.7"]


FAILS_TWICE = """
import json, os, pathlib
table = json.loads(pathlib.Path(os.environ["RANK_TABLE_FILE"]).read_text())
start = len(list(pathlib.Path().glob("start-*")))
pathlib.Path(f"start-{start}").touch()
print("device", table["server_list"][0]["device"][0]["device_id"], flush=True)
if start < 2:
    raise (ValueError, KeyError)[start]("of round", start)
"""


def test_a_table_that_is_renewed_in_the_pause_before_a_restart_is_taken(as_process: Starter, tmp_path: Path) -> None:
    path, program = tmp_path / "table.json", tmp_path / "program.py"
    program.write_text(FAILS_TWICE)

    def renew(device: str) -> None:
        devices = [{"device_id": device, "device_ip": "192.0.2.5", "rank_id": "0"}]
        servers = [{"server_id": "127.0.0.1", "device": devices}]
        replace(path, json.dumps({"version": "1.0", "status": "completed", "server_count": "1", "server_list": servers}))

    renew("0")
    env = {"RANKLAUNCH_MAX_RESTARTS": "3", "RANKLAUNCH_ACCELERATOR": "npu", "RANK_TABLE_FILE": str(path)}
    job = as_process.run(program, options=("--method", "ranktable", "--slots", "1"), env=env, cwd=tmp_path)
    told = tmp_path / "logs"
    sleep_until(lambda: "".join(each.read_text() for each in told.rglob("events.jsonl")).count('"settle"') == 2, lambda: job.err.text)
    renew("5")  # the plan of this round has been made
    assert job.end(60) == 0
    assert [line.rpartition(" ")[2] for line in job.out.lines if "device " in line] == ["0", "0", "5"]


def test_a_table_that_was_renewed_after_the_plan_was_made_is_seen(tmp_path: Path) -> None:
    """Before anybody watches it."""
    path = tmp_path / "table.json"

    planned = helpers.plan(helpers.local(2))
    assert planned.muster
    muster = planned.muster

    def plan() -> Plan:
        job, facts = dataclasses.replace(planned.job, rank_table=str(path)), {TABLE: path.read_text()}
        return dataclasses.replace(planned, job=job, muster=dataclasses.replace(muster, facts=facts))

    replace(path, "old")
    told: list[Plan] = []
    loop, old = Loop(), plan()
    replace(path, "new")
    renewed = Renewed(old, DiskFiles(), loop, plan, told.append)
    loop.run_until(lambda: bool(told), loop.clock() + 20)
    renewed.close()
    assert [each.muster and each.muster.facts[TABLE] for each in told] == ["new"]


def test_the_deadline_says_what_was_seen(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "jobstart_hccl.json"
    some = json.loads(helpers.group_table(PODS, status="initializing"))
    del some["group_list"][0]["instance_list"][1]
    path.write_text(json.dumps(some))
    job = as_process.run(child("environment.py"), env=env_of(path, RANKLAUNCH_WAIT_S="1"))
    verdict = check_end(job, "failed", 75, victims={})
    for part in ("rank table", str(path), 'status is "initializing"', "1 of 2 instances are listed", "RANKLAUNCH_WAIT_S"):
        assert part in verdict["reason"]


# Route planning

FAKE = '''
"""Stands in for a closed library: what it was called with, and the servers in reverse order, ranks counted anew."""
import json, os, sys

class RoutePlan:
    @staticmethod
    def init(topo_file, rank_file, save_rank_file, cursrvip=None):
        print("planning for", cursrvip, flush=True)
        how = json.load(open(topo_file))["how"]
        if how == "raise":
            raise RuntimeError("no path between racks")
        if how == "refuse":
            return False, [], ""
        table = json.load(open(rank_file))
        assert table["version"] == "1.0"
        table["server_list"].reverse()
        if how == "lose":
            table["server_list"].pop()
            table["server_count"] = "2"
        for rank, device in enumerate(d for s in table["server_list"] for d in s["device"]):
            device["rank_id"] = str(rank)
        text = json.dumps(table)
        with open(save_rank_file, "w") as file:
            file.write(text[:50] if how == "half" else text)
        return True, [], cursrvip
'''
THREE = [(f"j-worker-{i}", f"192.0.2.{i + 1}", "01") for i in range(3)]


def route_planned(starter: Starter, folder: Path, how: str, fake: bool = True, **more: str) -> Job:
    """A run of node 0 of three. The library is a fake: the platform's is closed and cannot be had, so what is tested is how it is called
    (as the platform's published launcher calls it) and what becomes of each of its answers."""
    (folder / "library").mkdir()
    if fake:
        (folder / "library" / "route_plan.py").write_text(FAKE)
    (folder / "table.json").write_text(helpers.group_table(THREE))
    if how != "none":
        (folder / "topology.json").write_text(json.dumps({"status": "completed", "how": how}))
    env = helpers.modelarts(3, 2, 0, MA_CURRENT_INSTANCE_NAME="j-worker-0", RANK_TABLE_FILE=str(folder / "table.json"), ROUTE_PLAN="true")
    del env["PATH"]
    env["RANKLAUNCH_MUSTER"] = "off"  # the other nodes of the table are not there
    own = {"TOPO_FILE_PATH": str(folder / "topology.json"), "RANKLAUNCH_ROUTE_LIBRARY": str(folder / "library")}
    return starter.run(child("environment.py"), env={**env, **own, **more})


def test_ranks_follow_the_planned_table(as_process: Starter, tmp_path: Path) -> None:
    """The fake library puts node 0 last (it is a fake for a closed library that cannot be had)."""
    job = route_planned(as_process, tmp_path, "plan")
    check_end(job, "succeeded", 0)
    assert [places(job, rank)["RANK_ID"] for rank in (4, 5)] == ["4", "5"]
    assert [server["server_id"] for server in table_of(job, 4)["server_list"]] == ["192.0.2.3", "192.0.2.2", "192.0.2.1"]
    assert "[route plan] planning for 192.0.2.1" in job.out.lines
    assert (job.attempt / "route_plan.log").read_text() == "planning for 192.0.2.1\n"


def test_without_a_topology_a_node_that_meets_no_others_does_not_choose_an_order(as_process: Starter, tmp_path: Path) -> None:
    job = route_planned(as_process, tmp_path, "none", ROUTE_TOPO_WAIT_TIME="0.5")
    verdict = check_end(job, "failed", 78, victims={})
    for part in ("no topology in", "after 0.5 s", "ROUTE_TOPO_WAIT_TIME", "cabinet plugin", "ROUTE_PLAN=false", "RANKLAUNCH_MUSTER=off"):
        assert part in verdict["reason"]


def test_without_the_library_ranks_keep_their_order(as_process: Starter, tmp_path: Path) -> None:
    job = route_planned(as_process, tmp_path, "plan", fake=False)
    check_end(job, "succeeded", 0)
    assert [places(job, rank)["RANK_ID"] for rank in (0, 1)] == ["0", "1"]
    assert "the image has no route_plan library" in job.err.text


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raise", "RuntimeError: no path between racks"),
        ("refuse", "the library made no table"),
        ("half", "the library's table: not JSON (half-written?)"),
        ("lose", "the library's table has other servers or devices than the one it was given"),
    ],
)
def test_what_the_library_fails_at_fails_the_node(how: str, why: str, as_process: Starter, tmp_path: Path) -> None:
    """With a fake for the closed library. Other nodes may have succeeded: to go on would give two nodes the same ranks."""
    job = route_planned(as_process, tmp_path, how)
    verdict = check_end(job, "failed", 78, victims={})
    assert f"route planning failed: {why}" in verdict["reason"]
    assert not list(job.attempt.glob("rank_*.log"))
