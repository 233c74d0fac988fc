"""Evidence of a running job: when it is taken, what of, and what it does to the end of the job."""

from __future__ import annotations

import json
import os
import pickle
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from testbench.jobs.job import Job, Starter, attempts
from testbench.places import child
from testbench.waiting import DEADLINE_S, free_port, sleep_until

pytestmark = pytest.mark.processes


def failing(starter: Starter, ranks: int = 3, *words: object, **how: Any) -> Job:
    """Of which rank 1 times out as soon as all others wait."""
    go = starter.folder / "go"
    job = starter.spawn(ranks, child("times_out.py"), go, *words, **how)
    for rank in range(ranks):
        job.out.wait_for(f"[rank {rank}] ready")
    go.touch()
    return job


def taken(job: Job) -> list[dict[str, Any]]:
    return [event for event in job.events if event["event"] == "evidence"]


def node(
    starter: Starter, index: int, *words: object, method: str = "spawn", slots: int = 2, recorders: dict[str, str] | None = None,
    **settings: object,
) -> Job:  # fmt: skip
    """One of two, which has STACKS on."""
    shape = ("--hosts", "127.0.0.1,127.0.0.2", "--node", index, "--slots", slots, "--method", method, "--grace-s", 5)
    env = {"RANKLAUNCH_STACKS": "on", **(recorders or {}), **{f"RANKLAUNCH_{name.upper()}": str(value) for name, value in settings.items()}}
    logs = starter.folder / f"node_{index}"
    return starter.command("run", "--python", sys.executable, "--log-dir", logs, *shape, "--", *words, env=env, log_dir=logs)


def in_evidence(job: Job, node: int = 0, number: int = 1) -> Path:
    return attempts(job.log_dir)[-1] / "evidence" / f"node_{node}" / str(number)


def test_before_a_rank_is_ended_it_says_where_it_waits(as_process: Starter) -> None:
    """At once, or at the end of the grace where it ignores SIGTERM, which is no failure of its own. Who catches SIGTERM has its grace."""
    job = failing(as_process, 4, "--term", "2=1", "--term", "3=ignore", env={"RANKLAUNCH_STACKS": "on"}, grace_s=3)
    assert job.end() == 1
    folder = in_evidence(job)
    verdict = job.verdict
    assert verdict["culprit"]["rank"] == 1
    assert verdict["culprit"]["error"]["name"] == "gloo-timeout"
    assert [victim["signal"] for victim in verdict["victims"]] == ["SIGABRT", "SIGTERM", "SIGABRT"]
    assert verdict["failures"] == []
    assert verdict["evidence"] == str(folder.parents[1])
    assert [event["stacks"] for event in taken(job)] == [3]
    for rank in (0, 2, 3):
        assert "in waits_for_rank\n" in (folder / f"rank_{rank}.stacks.txt").read_text()
    for rank in (0, 3):
        assert "in waits_for_rank\n" in (folder / f"rank_{rank}.aborted.txt").read_text()
        assert b"Fatal Python error: Aborted" in job.log(rank)
    shown = job.out.text + job.err.text
    assert not any(word in shown for word in ("Fatal Python error", "Extension modules", "most recent call first"))
    assert "had said" not in json.dumps(verdict)
    assert job.log(2) == b"ready\nsaved\n"
    assert [event["exit_code"] for event in job.events if event["event"] == "exit" and event["rank"] == 2] == [0]
    found = json.loads((folder / "processes.json").read_text())
    assert {each["rank"] for each in found} == {0, 2, 3}
    assert all(len(each["samples"]) == 2 and each["samples"][0]["state"] == "S" for each in found)
    for path in (folder.parents[1], folder.parent, folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert not list(Path(as_process.folder).rglob("core*"))


def test_a_rank_that_raises_as_it_is_ended_did_not_fail(as_process: Starter) -> None:
    """It would be a cause, where the first failure is a consequence; but while evidence was taken it had the time to fail by itself."""
    says = "RuntimeError: worker 3 died unexpectedly"
    job = failing(as_process, 2, "--says", says, "--term", "0=raise", grace_s=20)
    assert job.end() == 1
    verdict = job.verdict
    assert verdict["culprit"]["rank"] == 1
    assert "rank 0 failed with exit code 1 while it was being stopped: see rank_0.log" in verdict["notes"]


def test_all_nodes_take_it_before_the_stop(as_process: Starter) -> None:
    go, port = as_process.folder / "go", free_port()
    jobs = [node(as_process, i, child("times_out.py"), go, "--rank", 3, muster_port=port) for i in range(2)]
    for rank in range(4):
        jobs[rank // 2].out.wait_for(f"[rank {rank}] ready")
    go.touch()
    assert [job.popen.wait(DEADLINE_S) for job in jobs] == [1, 1], "\n".join(job.err.text for job in jobs)
    for i, ranks in enumerate(((0, 1), (2,))):
        assert jobs[i].verdict["culprit"]["rank"] == 3
        summary = json.loads((in_evidence(jobs[i], i) / "summary.json").read_text())
        assert summary["why"] == "rank 3 failed with gloo-timeout"
        assert {int(rank): "in waits_for_rank" in told["stack"][0] for rank, told in summary["ranks"].items()} == dict.fromkeys(ranks, True)
        names = [event["event"] for event in jobs[i].events]
        assert names.index("evidence") < names.index("exit", names.index("ending"))


def test_a_rank_that_time_outs_name_is_named_on_its_node(as_process: Starter) -> None:
    says = "RuntimeError: EI0002: The Notify register has not received the Notify record from remote rank [2]."
    go, port = as_process.folder / "go", free_port()
    jobs = [node(as_process, i, child("times_out.py"), go, "--rank", 0, "--says", says, muster_port=port) for i in range(2)]
    for rank in range(4):
        jobs[rank // 2].out.wait_for(f"[rank {rank}] ready")
    go.touch()
    assert [job.popen.wait(DEADLINE_S) for job in jobs] == [1, 1], "\n".join(job.err.text for job in jobs)
    for job in jobs:
        assert (job.verdict["culprit"]["rank"], job.verdict["culprit"]["node"]) == (2, 1)
        assert job.verdict["because"][0]["rule"] == "waited-for"


def test_who_is_stopped_while_another_times_out_is_noted(as_process: Starter) -> None:
    go = as_process.folder / "go"
    job = as_process.spawn(3, child("times_out.py"), go, grace_s=3)
    for rank in range(3):
        job.out.wait_for(f"[rank {rank}] ready")
    os.kill(next(event["pid"] for event in job.events if event["event"] == "spawn" and event["rank"] == 2), signal.SIGSTOP)
    go.touch()
    assert job.end() == 1
    assert job.verdict["culprit"]["rank"] == 1
    assert job.verdict["notes"] == ["who held the others up, by the evidence: rank 2: its process is stopped (state T)"]


def kept_in(folder: Path) -> dict[str, str]:
    """As ranks with PyTorch on GPUs have it from ranklaunch, but in this folder: PyTorch may not be here."""
    return {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/trace_", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/pipe_"}


def recorded(*finished: bool, last: str = "all_reduce") -> bytes:
    """A flight recorder's dump: of each collective, whether it has ended. last: the operation of the last one."""
    entries = [
        {
            "process_group": ("0", "default_pg"), "pg_id": 0, "collective_seq_id": number,
            "profiling_name": f"nccl:{last}" if number == len(finished) else "nccl:all_reduce",
            "input_sizes": [[1048576]], "state": "completed" if done else "scheduled", "is_p2p": False,
        }
        for number, done in enumerate(finished, 1)
    ]  # fmt: skip
    return pickle.dumps({"version": "2.10", "entries": entries, "pg_config": {"0": {"ranks": "[0, 1]"}}}, protocol=2)


def test_who_has_not_come_to_a_collective_of_nccl_is_noted(as_process: Starter) -> None:
    """By the last dump of the rank that has timed out, too. The culprit remains the one that failed."""
    for rank, finished in enumerate(((True, False), (True,))):
        (as_process.folder / f"dump_{rank}").write_bytes(recorded(*finished))
    words = (child("nccl_times_out.py"), *(as_process.folder / f"dump_{rank}" for rank in range(2)))
    job = as_process.spawn(2, *words, env=kept_in(as_process.folder), grace_s=3)
    assert job.end() == 134
    assert (job.verdict["culprit"]["rank"], job.verdict["culprit"]["error"]["name"]) == (0, "nccl-collective-timeout")
    note = "who held the others up, by the evidence: rank 1: it has not reached all_reduce number 2 of group default_pg, where others wait"
    assert job.verdict["notes"] == [note]
    assert f"ranklaunch: {note}" in job.err.text
    summary = json.loads((in_evidence(job) / "summary.json").read_text())
    assert {rank: (told["state"], bool(told["recorder"])) for rank, told in summary["ranks"].items()}["0"] == ("gone", True)


def test_who_is_in_another_collective_of_nccl_is_noted(as_process: Starter) -> None:
    """Of two nobody knows which is right, so both are named, the one that has timed out too."""
    for rank, last in enumerate(("all_reduce", "all_gather")):
        (as_process.folder / f"dump_{rank}").write_bytes(recorded(True, False, last=last))
    words = (child("nccl_times_out.py"), *(as_process.folder / f"dump_{rank}" for rank in range(2)))
    job = as_process.spawn(2, *words, env=kept_in(as_process.folder), grace_s=3)
    assert job.end() == 134
    (note,) = job.verdict["notes"]
    number = "of [[1048576]], where others are in another operation, as number 2 of group default_pg"
    assert note == f"who held the others up, by the evidence: rank 0: it is in all_reduce {number}; rank 1: it is in all_gather {number}"


@pytest.mark.parametrize("where", ["told", "nowhere", pytest.param("by ranklaunch", marks=pytest.mark.launchers)])  # needs PyTorch
def test_the_last_dump_of_a_rank_is_found_where_it_is_kept(as_process: Starter, where: str) -> None:
    """Where nothing is told, that is where PyTorch puts it."""
    for rank, finished in enumerate(((True, False), (True,))):
        (as_process.folder / f"dump_{rank}").write_bytes(recorded(*finished))
    cache = as_process.folder / ".cache" / "torch"
    cache.mkdir(parents=True)
    mine, usual = str(as_process.folder / "mine_"), str(cache / "comm_lib_trace_rank_")
    own, stems = {
        "told": ({"TORCH_FR_DUMP_TEMP_FILE": mine, "RANKLAUNCH_ACCELERATOR": "gpu"}, [mine]),
        "nowhere": ({"RANKLAUNCH_RECORDERS": "off"}, [usual]),
        "by ranklaunch": ({"RANKLAUNCH_ACCELERATOR": "gpu"}, []),
    }[where]
    words = (child("nccl_times_out.py"), *(as_process.folder / f"dump_{rank}" for rank in range(2)), "deaf", *stems)
    job = as_process.spawn(2, *words, env={"HOME": str(as_process.folder), "XDG_CACHE_HOME": "", **own}, grace_s=3)
    assert job.end() == 134
    assert "rank 1: it has not reached all_reduce number 2" in job.verdict["notes"][0]


def test_node_0_waits_for_the_evidence_of_all_nodes(as_process: Starter) -> None:
    """Of two, the other takes longer: its rank has dumped before, and looks at its fifo no more."""
    for rank, finished in enumerate(((True, False), (True,))):
        (as_process.folder / f"dump_{rank}").write_bytes(recorded(*finished))
    words = (child("nccl_times_out.py"), *(as_process.folder / f"dump_{rank}" for rank in range(2)), "deaf")
    port = free_port()
    jobs = [node(as_process, i, *words, slots=1, muster_port=port, recorders=kept_in(as_process.folder)) for i in range(2)]
    assert [job.popen.wait(DEADLINE_S) for job in jobs] == [134, 134], "\n".join(job.err.text for job in jobs)
    for job in jobs:
        (note,) = job.verdict["notes"]
        assert note.startswith("who held the others up, by the evidence: rank 1: it has not reached all_reduce number 2 of group ")


def test_what_takes_longer_than_the_grace_is_waited_for(as_process: Starter) -> None:
    """The recorder of the other node's rank does not answer. Before that was waited for, the reason was what node 0 knew at first."""
    (as_process.folder / "dump_0").write_bytes(recorded(True, False))
    words = (child("nccl_times_out.py"), as_process.folder / "dump_0", as_process.folder / "dump_1", "mute")
    port = free_port()
    jobs = [node(as_process, i, *words, slots=1, muster_port=port, recorders=kept_in(as_process.folder)) for i in range(2)]
    assert [job.popen.wait(DEADLINE_S) for job in jobs] == [134, 134], "\n".join(job.err.text for job in jobs)
    for job in jobs:
        assert job.verdict["culprit"]["error"]["name"] == "nccl-collective-timeout"
    assert json.loads((in_evidence(jobs[1], 1) / "summary.json").read_text())["seconds"] > 7


@pytest.mark.parametrize("what", ["a stop request", "a failure of its own"])
def test_of_what_nobody_else_is_to_blame_for_none_is_taken(as_process: Starter, what: str) -> None:
    words = ("--rank", 7) if what == "a stop request" else ("--says", "ValueError: too many values to unpack")
    job = failing(as_process, 2, *words, env={"RANKLAUNCH_STACKS": "on"})
    if what == "a stop request":
        job.send(signal.SIGTERM)
    assert job.end() == (143 if what == "a stop request" else 1)
    assert taken(job) == []
    assert "evidence" not in job.verdict
    assert not (attempts(job.log_dir)[-1] / "evidence").exists()
    assert b"Fatal Python error" not in job.log(0)


def test_where_nothing_is_recorded_no_rank_gets_another_signal(as_process: Starter) -> None:
    job = failing(as_process, 2, env={"RANKLAUNCH_RECORDERS": "off"})
    assert job.end() == 1
    assert job.log(0) == b"ready\n"
    assert [event["signal"] for event in job.events if event["event"] == "exit" and event["rank"] == 0] == ["SIGTERM"]


def test_a_stop_request_does_not_wait_for_evidence(as_process: Starter) -> None:
    """A tool of the devices that does not answer is not waited for either: it ends with all the rest."""
    tools = as_process.folder / "tools"
    tools.mkdir()
    tool = tools / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho $$ > {tools}/pid\nexec sleep 600\n")
    tool.chmod(0o755)
    job = failing(as_process, 2, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    sleep_until(lambda: (tools / "pid").exists(), "the tool to be asked")
    job.send(signal.SIGTERM)
    assert job.end() == 1
    assert taken(job) == []


@pytest.mark.launchers
def test_of_ranks_that_torchrun_has_started(as_process: Starter) -> None:
    go, ports = as_process.folder / "go", {"muster_port": free_port(2), "master_port": free_port()}
    jobs = [node(as_process, i, child("times_out.py"), go, method="torchrun", **ports) for i in range(2)]
    for rank in range(4):
        jobs[rank // 2].out.wait_for(f"[rank {rank}] ready")
    go.touch()
    assert [job.popen.wait(DEADLINE_S) for job in jobs] == [1, 1], "\n".join(job.err.text for job in jobs)
    assert jobs[1].verdict["culprit"]["rank"] == 1
    assert jobs[1].verdict["failures"] == []
    for rank in (2, 3):
        assert "in waits_for_rank\n" in (in_evidence(jobs[1], 1) / f"rank_{rank}.stacks.txt").read_text()
        assert "in waits_for_rank\n" in (in_evidence(jobs[1], 1) / f"rank_{rank}.aborted.txt").read_text()
