"""A whole job on this machine: real runs of ranklaunch, one per node, that start, fail and stop together."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.cli import options, simulation
from ranklaunch.errors import ConfigError, UsageError
from ranklaunch.plan.planning import every_variable
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job, Starter
from testbench.places import child
from testbench.waiting import DEADLINE_S, sleep_until


def simulate(starter: Starter, nodes: int, slots: object, *words: object, method: str = "spawn", **how: Any) -> Job:
    options = ("--nodes", nodes, "--slots", slots, "--method", method, "--python", sys.executable, "--grace-s", 5)
    return starter.command("simulate", *options, "--log-dir", starter.folder / "logs", "--", *words, **how)


SHARED = ("outcome", "exit_code", "reason", "culprit", "failures", "notes")


def verdict(job: Job) -> dict[str, Any]:
    return checked_verdict(job.log_dir / "verdict.json")


def node_verdict(job: Job, node: int) -> dict[str, Any]:
    return checked_verdict(job.log_dir / f"node_{node}" / "attempt_1" / "verdict.json")


def environments(job: Job) -> dict[tuple[int, int], dict[str, str]]:
    """By node and rank, from the console."""
    found = (re.fullmatch(r"\[node (\d+)\] \[rank (\d+)\] (\{.*\})", line) for line in job.out.lines)
    return {(int(match[1]), int(match[2])): json.loads(match[3])["env"] for match in found if match}


def test_every_rank_knows_its_place(as_process: Starter) -> None:
    counts = [2, 3]
    job = simulate(as_process, 2, "2,3", child("environment.py"))
    assert job.end() == 0, job.err.text
    assert verdict(job)["outcome"] == "succeeded"
    seen = environments(job)
    assert sorted(seen) == [(0, 0), (0, 1), *((1, rank) for rank in range(2, sum(counts)))]
    for (node, rank), env in seen.items():
        place = {
            "RANK": rank, "WORLD_SIZE": sum(counts), "LOCAL_RANK": rank - (0 if node == 0 else counts[0]),
            "LOCAL_WORLD_SIZE": counts[node], "GROUP_RANK": node,
        }  # fmt: skip
        assert {name: int(env[name]) for name in place} == place
        assert env["MASTER_ADDR"] == "127.0.0.1"
    assert len({env["MASTER_PORT"] for env in seen.values()}) == 1
    for node in range(2):
        assert node_verdict(job, node)["outcome"] == "succeeded"


def test_a_rank_table(as_process: Starter) -> None:
    """Each rank gets a table of the whole job in which its own place is the one that its variables name."""
    job = simulate(as_process, 2, "2,1", child("environment.py"), method="ranktable")
    assert job.end() == 0, job.err.text
    seen = environments(job)
    assert sorted(seen) == [(0, 0), (0, 1), (1, 2)]
    for (node, rank), env in seen.items():
        table = json.loads(Path(env["RANK_TABLE_FILE"]).read_text())
        assert (table["version"], table["status"]) == ("1.0", "completed")
        assert [server["server_id"] for server in table["server_list"]] == ["127.0.0.1", "127.0.0.2"]
        devices = [device["rank_id"] for device in table["server_list"][node]["device"]]
        assert devices[int(env["DEVICE_ID"])] == env["RANK_ID"] == str(rank)
        assert env["RANK_SIZE"] == "3"
        assert env["ASCEND_DEVICE_ID"] == env["DEVICE_ID"]


def test_one_rank_fails(as_process: Starter) -> None:
    """The code is the rank's, the verdict names its node and its own last words; the other node is stopped."""
    job = simulate(as_process, 2, 2, child("told.py"), "--code", 42, "--rank", 3)
    job.out.wait_for("ready", 4)
    job.send(signal.SIGUSR1)
    assert job.end() == 42, job.err.text
    found = verdict(job)
    culprit = {name: found["culprit"][name] for name in ("node", "rank", "exit_code", "signal", "last_lines")}
    assert culprit == {"node": 1, "rank": 3, "exit_code": 42, "signal": None, "last_lines": ["ready", "rank 3 exits with 42"]}
    victims = [victim for node in range(2) for victim in node_verdict(job, node)["victims"]]
    assert sorted((victim["node"], victim["rank"]) for victim in victims) == [(0, 0), (0, 1), (1, 2)]
    assert "rank 3 on node 1 (127.0.0.2) exited with code 42" in job.err.text
    assert node_verdict(job, 1)["culprit"]["rank"] == 3
    for node in range(2):
        assert {name: node_verdict(job, node)[name] for name in SHARED} == {name: found[name] for name in SHARED}


def test_it_is_asked_to_stop(as_pid_1: Starter) -> None:
    job = simulate(as_pid_1, 2, 2, child("saves_on_term.py"))
    job.out.wait_for("ready", 4)
    job.send(signal.SIGTERM)
    assert job.end() == 143, job.err.text
    assert verdict(job)["outcome"] == "stopped"
    assert job.out.text.count("saved") == 4
    for node in range(2):
        assert node_verdict(job, node)["exit_code"] == 143


def test_its_nodes_answer_whoever_asks(as_process: Starter) -> None:
    """Whatever was written last: the simulator's own session knows of no rank, and not how they are asked to save."""
    job = simulate(as_process, 2, 1, child("sleeper.py"), env={"RANKLAUNCH_SAVE_FILE": str(as_process.folder / "save")})
    job.out.wait_for("ready", 2)
    sockets = lambda: {path.relative_to(job.log_dir).parts[0] for path in job.log_dir.rglob("node_*.sock")}  # noqa: E731
    sleep_until(lambda: sockets() >= {"node_0", "node_1"}, "there are no sockets of the nodes")
    (job.log_dir / "events.jsonl").touch()
    asked = helpers.call("status", str(job.log_dir))
    assert (asked.code, "spawn on local, 2 nodes, 2 ranks known" in asked.out) == (0, True), asked
    asked = helpers.call("save", str(job.log_dir))
    assert (asked.code, asked.out.count("were asked to save by touching")) == (0, 2), asked
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_it_is_killed(ranklaunch: Starter) -> None:
    job = simulate(ranklaunch, 2, 2, child("family.py"), "--stubborn")
    job.out.wait_for("ready", 4)
    job.send(signal.SIGKILL)
    job.end_killed()


def test_its_supervisor_is_killed(as_process: Starter) -> None:
    job = simulate(as_process, 2, 2, child("family.py"), "--stubborn")
    job.out.wait_for("ready", 4)
    os.kill(job.supervisor, signal.SIGKILL)
    assert job.end(DEADLINE_S) == 137


def test_a_node_is_killed(as_process: Starter) -> None:
    """As when a container is lost: the job ends, and says which node it was."""
    job = simulate(as_process, 2, 1, child("sleeper.py"))
    job.out.wait_for("ready", 2)
    nodes = sleep_until(lambda: sorted(job.children), "no nodes")
    os.kill(nodes[1], signal.SIGKILL)
    assert job.end() == 137, job.err.text
    found = verdict(job)["culprit"]
    assert (found["node"], found["signal"]) == (1, "SIGKILL")


def of_nodes(env: dict[str, str], *words: str) -> list[dict[str, str]]:
    """What the runs of the nodes find in their environments."""
    parser = options.JobParser("simulate", "", "")
    plan = simulation.make_plan(options.read(parser, ["--nodes", "2", "--slots", "1", *words, "--", "train.py"], env))
    return [
        {**{name: value for name, value in env.items() if name not in process.unset}, **process.env} for process in plan.processes
    ]  # fmt: skip


def test_settings_of_the_user_reach_every_node(tmp_path: Path) -> None:
    """Those of every launcher; but no place that this machine may itself have in a job."""
    named = {name for variable in every_variable() for name in variable.names if variable.setter(name) == "user"}
    for name in (
        "RANKLAUNCH_TP",
        "RANKLAUNCH_MIXED_PRECISION",
        "RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS",
        "MY_MPI_SLOTS",
        "HCCL_CONNECT_TIMEOUT",
    ):
        assert name in named
    not_inherited = {variable.value for variable in simulation.NOT_INHERITED}
    others = {name for variable in every_variable() for name in variable.names if variable.value in not_inherited}
    places = tmp_path / "places.json"
    places.write_text("[]", encoding="utf-8")
    known = {
        "RANKLAUNCH_PLATFORM_FILE": str(places),
        "RANKLAUNCH_WAIT_S": "5",
        "RANKLAUNCH_GRACE_S": "5",
        "RANKLAUNCH_MUSTER_PORT": "4711",
        "RANKLAUNCH_ROOT": "/",
    }
    env = {**dict.fromkeys(named - others, "as the user has it"), **known}
    for found in of_nodes({**env, "RANKLAUNCH_LOG_DIR": str(tmp_path)}):
        wanted = {name: value for name, value in env.items() if name != "RANKLAUNCH_MUSTER_PORT"}  # that one is simulate's own to say
        assert {name: found.get(name) for name in wanted} == wanted


def test_the_place_of_this_machine_reaches_no_node(tmp_path: Path) -> None:
    ours = ("HOSTS", "NODE", "MASTER_ADDR", "JOB_NAME", "TASK", "PLATFORM", "ATTEMPT", "PS_HOSTS", "TERMINATION_LOG")
    others = ("MSRUN_MASTER_ADDR", "MA_TASK_INDEX", "VC_PS_HOSTS", "RANK_TABLE_FILE", "TF_CONFIG", "MASTER_ADDR")
    here = dict.fromkeys((*(f"RANKLAUNCH_{name}" for name in ours), *others), "7")
    for found in of_nodes(here, "--log-dir", str(tmp_path)):
        assert "7" not in {found.get(name) for name in here}


def test_wrong_counts(as_process: Starter) -> None:
    job = simulate(as_process, 2, "2,3,4", child("environment.py"))
    assert job.end() in (2, 78)
    assert "3 numbers for 2 nodes" in job.err.text


@helpers.for_each([("--ps-hosts", "127.0.0.9"), ("--worker-hosts", "a,b"), ("--task", "ps")])
def test_tasks_are_not_told(option: str, value: str) -> None:
    """Each container would take itself for the one that is told."""
    with pytest.raises(UsageError, match=rf"{option}: simulate .* makes N workers and N ps: leave it out"):
        of_nodes({}, option, value, "--method", "tensorflow")


@helpers.for_each(
    {
        "by the option": (("--method", "msrun"), {}, "option --method=msrun"),
        "by a variable": ((), {"RANKLAUNCH_METHOD": "msrun"}, "RANKLAUNCH_METHOD=msrun"),
    }
)
def test_several_nodes_of_msrun_are_refused_with_what_runs_them(words: tuple[str, ...], env: dict[str, str], named: str) -> None:
    """Before any node starts: MindSpore would start a scheduler on each of them."""
    with pytest.raises(ConfigError) as caught:
        of_nodes(env, *words)
    (said,) = caught.value.problems
    assert said.startswith(f"{named} on 2 nodes: ")
    assert "take --nodes 1" in said
    assert "`ranklaunch plan --all-nodes`" in said
    assert "in a checkout of ranklaunch `make hosts N=2 METHOD=msrun`" in said
    assert len(of_nodes(env, *words, "--nodes", "1")) == 1


def shown(job: Job, pattern: str) -> bool:
    return bool(re.search(pattern, job.out.text))


def test_a_rank_table_that_comes_late(as_process: Starter) -> None:
    """Absent, begun, half-written, then whole: both nodes wait for it, say what they see, and then run with it."""
    folder = as_process.folder / "config"
    folder.mkdir()
    path = folder / "jobstart_hccl.json"
    pods = [
        {
            "pod_name": f"simulated-job-worker-{i}",
            "server_id": f"127.0.0.{i + 1}",
            "devices": [{"device_id": str(d), "device_ip": f"198.18.{i}.{d + 1}"} for d in range(2)],
        }
        for i in (1, 0)
    ]
    group = {"group_name": "worker", "device_count": "4", "instance_count": "2", "instance_list": pods}
    whole = json.dumps({"status": "completed", "group_count": "1", "group_list": [group]})
    options = ("--nodes", 2, "--slots", 2, "--method", "ranktable", "--rank-table", folder, "--python", sys.executable, "--grace-s", 5)
    job = as_process.command("simulate", *options, "--log-dir", as_process.folder / "logs", "--", child("environment.py"))
    for text, seen in ((None, "no such file"), ('{"status": "initializing"}', "initializing"), (whole[:100], "half-written")):
        if text is not None:
            path.write_text(text, encoding="utf-8")
        for node in range(2):
            pattern = rf"\[node {node}\] ranklaunch: waiting for rank table .*{seen}"
            sleep_until(functools.partial(shown, job, pattern), f"node {node} does not say: {seen}")
    path.with_suffix(".new").write_text(whole, encoding="utf-8")
    path.with_suffix(".new").rename(path)
    assert job.end() == 0, job.out.text
    assert {place: env["RANK_ID"] for place, env in environments(job).items()} == {(0, 0): "0", (0, 1): "1", (1, 2): "2", (1, 3): "3"}


def tells_of_rank_1(job: Job) -> None:
    assert {name: verdict(job)[name] for name in SHARED} == {name: node_verdict(job, 0)[name] for name in SHARED}
    assert verdict(job)["reason"] == "rank 1 on node 1 (127.0.0.2) exited with code 1: ValueError: bad label"


# Rank 1 fails, and rank 0 takes all of the grace.
FAILS_AND_STAYS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
if os.environ["RANK"] == "1":
    time.sleep(1)
    raise ValueError("bad label")
time.sleep(600)
"""


def test_a_stop_that_comes_while_the_nodes_end_after_a_failure_is_not_the_reason(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(FAILS_AND_STAYS)
    job = simulate(as_process, 2, 1, program)
    said = lambda: job.out.text + job.err.text  # noqa: E731
    sleep_until(lambda: "stopping, at most" in said(), said, DEADLINE_S)
    job.send(signal.SIGTERM)
    assert job.end() == 1, said()
    tells_of_rank_1(job)


# Of the node on which rank 2 is, the supervisor dies as the others end after rank 1's failure.
FAILS_AND_KILLS = """
import os, signal, time
def kills(number, frame):
    os.kill(os.getppid(), signal.SIGKILL)
if os.environ["RANK"] == "2":
    signal.signal(signal.SIGTERM, kills)
print("ready", flush=True)
if os.environ["RANK"] == "1":
    time.sleep(2)
    raise ValueError("bad label")
time.sleep(600)
"""


def test_a_supervisor_that_is_killed_while_the_nodes_end_after_a_failure_is_not_the_reason(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(FAILS_AND_KILLS)
    job = simulate(as_process, 3, 1, program)
    assert job.end() == 1, job.out.text + job.err.text
    tells_of_rank_1(job)


def test_without_a_platform_it_plays_none(as_process: Starter) -> None:
    job = simulate(as_process, 2, 1, child("environment.py"))
    assert job.end() == 0, job.out.text
    plans = [json.loads((job.log_dir / f"node_{node}" / "attempt_1" / "plan.json").read_text()) for node in range(2)]
    assert [(plan["platform"], plan["job"]["name"]) for plan in plans] == [("local", "simulated-job")] * 2
    assert "modelarts" not in job.out.text + job.err.text
    assert "simulated-job: spawn on local, 2 nodes" in helpers.call("report", str(job.log_dir)).out


@helpers.for_each(
    {
        "variables of the platform": ({"MA_NUM_HOSTS": "4", "MA_VJ_NAME": "theirs"}, ()),
        "the platform's name": ({}, ("--platform", "modelarts")),
    }
)
def test_modelarts_is_played_where_the_environment_is_one_of_it(env: dict[str, str], words: tuple[str, ...]) -> None:
    for node, found in enumerate(of_nodes(env, *words)):
        assert (found["MA_NUM_HOSTS"], found["MA_VJ_NAME"]) == ("2", "modelarts-job-simulated")
        assert found["MA_CURRENT_INSTANCE_NAME"] == f"modelarts-job-simulated-worker-{node}"
        assert "RANKLAUNCH_NODES" not in found
