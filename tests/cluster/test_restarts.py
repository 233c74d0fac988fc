"""On three hosts: after a failure anywhere, all ranks of all nodes start again in place, and end as if nothing had happened. Each failure
with each launcher is in tests/launchers/test_restarts.py."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from training_jobs import Training

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LauncherJob
from testbench.waiting import sleep_until

MakeHosts = Callable[..., Hosts]


def test_a_node_that_is_lost_ends_the_job(hosts: MakeHosts, tmp_path: Path) -> None:
    training = Training(hosts(3), tmp_path, "spawn", "0:0:4:hang")
    training.wait_for("sum_0_4_5")
    training.job.nodes[2].popen.send_signal(signal.SIGKILL)
    for node in training.job.nodes[:2]:
        node.popen.wait(60)
        assert node.popen.returncode == 137
        assert "not started again: node 2" in "\n".join(node.verdict["notes"])


def test_node_0_that_is_cut_off_is_the_one_to_leave_out(hosts: MakeHosts, tmp_path: Path) -> None:
    """None of the others, whichever it misses first; they say the same of it."""
    three = hosts(3)
    training = Training(three, tmp_path, "spawn", "0:0:4:hang", env={"RANKLAUNCH_LOST_AFTER_S": "5"})
    training.wait_for("sum_0_4_5")
    three[0].cut()
    nodes = training.job.nodes
    for node in nodes:
        node.popen.wait(60)
    assert [(node.popen.returncode, node.verdict["suspect_host"]["host"]) for node in nodes] == [(75, "h0")] * 3
    words = "node 0 (h0) hears none of the 2 other nodes any more: they fell silent together"
    assert words in nodes[0].verdict["reason"]
    said = [line for line in nodes[0].err.splitlines() if "stopping, " in line or "failed with " in line]
    assert [words in line for line in said] == [True, True]
    assert "not started again: every other node is gone" in "\n".join(nodes[0].verdict["notes"])


def test_a_rank_table_is_waited_for_until_all_nodes_have_the_new_one(hosts: MakeHosts, tmp_path: Path) -> None:
    training = Training(hosts(3), tmp_path, "ranktable", "0:3:4:told")
    training.wait_for("failed")
    nodes = training.job.nodes
    for node in nodes[:2]:
        training.place_table(node.host, 2)
    (training.folder / "go").touch()
    sleep_until(lambda: "the same rank table on all nodes" in nodes[2].err, training.job.words, 120)
    assert not (training.folder / "sum_1_4_0").exists()
    training.place_table(nodes[2].host, 2)
    training.check(1)
    assert all("198.51.102." in node.log("restart_1/ranktable.json") for node in nodes)


def test_a_stop_request_at_the_gate_ends_all(hosts: MakeHosts, tmp_path: Path) -> None:
    """Two failures without progress bring a pause, in which one node is told to stop."""
    training = Training(hosts(3), tmp_path, "spawn", "0:3:1:kill", "1:3:1:exit")
    job = training.job
    sleep_until(lambda: "starting all ranks again in 10 s" in job.nodes[1].err, job.words, 120)
    job.nodes[1].popen.send_signal(signal.SIGTERM)
    assert job.end(143)["outcome"] == "stopped"


def test_a_network_that_is_away_for_a_moment_is_waited_for(hosts: MakeHosts, tmp_path: Path) -> None:
    """It may be just what ranks have failed of."""
    training = Training(hosts(3), tmp_path, "spawn", "0:3:4:told")
    training.wait_for("failed")
    nodes = training.job.nodes
    nodes[2].host.cut()
    (training.folder / "go").touch()
    sleep_until(lambda: "node 2 (h2) has not answered the order to stop" in nodes[0].err, training.job.words, 120)
    nodes[2].host.mend()
    training.check(1)


def test_a_network_that_is_away_at_the_end_hides_no_success(hosts: MakeHosts, tmp_path: Path) -> None:
    three, go = hosts(3), tmp_path / "go"
    job = LauncherJob(three, tmp_path, "spawn", 1)
    job.start("sh", "-c", f'echo ready; while [ $RANK != 2 -a ! -e "{go}" ]; do sleep 0.1; done')
    sleep_until(lambda: "which are still running" in job.nodes[2].err, job.words, 120)
    three[2].cut()
    go.touch()
    sleep_until(lambda: "node 2 (h2) has not received the verdict" in job.nodes[0].err, job.words, 120)
    three[2].mend()
    assert job.end(0)["reason"] == "all 3 ranks on 3 nodes succeeded"


@pytest.mark.parametrize("number", [0, 1])
def test_a_node_that_cannot_begin_a_round_ends_all_with_its_reason(hosts: MakeHosts, tmp_path: Path, number: int) -> None:
    """Its next folder cannot be made."""
    training = Training(hosts(3), tmp_path, "spawn", "0:3:4:told")
    training.wait_for("failed")
    folder = training.job.nodes[number]._attempt / "restart_1"
    folder.touch()
    (training.folder / "go").touch()
    verdict = training.job.end(78)
    assert f"restart 1 cannot begin: log directory {folder}: cannot be written" in verdict["reason"]
