"""Jobs of two tasks: workers decide, parameter servers (ps) serve until they have ended, and nobody waits for ever."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest

from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job, Starter
from testbench.places import child

NODES = {"worker 0": 0, "worker 1": 1, "ps 0": 2, "ps 1": 3}
DONE = ("--do", "worker0=after:go", "--do", "worker1=after:go")
SHARED = ("outcome", "exit_code", "reason", "culprit", "failures", "notes")


def simulate(starter: Starter, *orders: object, grace_s: float = 5, options: tuple[object, ...] = (), **how: Any) -> Job:
    where = ("--nodes", 2, "--method", "tensorflow", "--grace-s", grace_s, "--log-dir", starter.folder / "logs")
    return starter.command("simulate", *where, *options, "--", child("task.py"), *orders, **how)


def let_go(job: Job, starter: Starter, ready: int = 4) -> None:
    """Lets the workers end, once all are at work: a ps that is ended at once has said nothing."""
    job.out.wait_for("ready", ready)
    (starter.folder / "go").touch()


def check_all(job: Job, code: int) -> dict[str, Any]:
    """Every container has the same verdict; that."""
    verdicts = [checked_verdict(job.log_dir / f"node_{node}" / "attempt_1" / "verdict.json") for node in NODES.values()]
    common = [{name: verdict[name] for name in SHARED} for verdict in verdicts]
    assert all(each == common[0] for each in common), common
    assert common[0]["exit_code"] == code
    return common[0]


SAVES = """
import os, signal, sys, time
told = dict(word[2:].split("=", 1) for word in sys.argv[1:])
place = told["job_name"] + told["task_index"]
def save(number, frame):
    before = sorted(name for name in os.listdir() if name.startswith("saved-"))
    time.sleep(1 if place.startswith("worker") else 3)
    open(f"saved-{place}", "w").close()
    print("saved after", before, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while not (place == "worker1" and os.path.exists("fail")):
    time.sleep(0.05)
sys.exit(42)
"""


@pytest.mark.parametrize("why", ["stop", "fail"])
def test_a_ps_is_there_until_the_workers_have_saved(as_process: Starter, why: str) -> None:
    """What they save is on the ps. It has the rest of the grace then, to save something itself."""
    (as_process.folder / "program.py").write_text(SAVES)
    where = ("--nodes", 2, "--method", "tensorflow", "--grace-s", 20, "--log-dir", as_process.folder / "logs")
    job = as_process.command("simulate", *where, "--", as_process.folder / "program.py")
    job.out.wait_for("ready", 4)
    if why == "stop":
        job.send(signal.SIGTERM)
    else:
        (as_process.folder / "fail").touch()
    code = {"stop": 143, "fail": 42}[why]
    assert job.end() == code
    culprit = check_all(job, code)["culprit"]
    assert culprit is None if why == "stop" else (culprit["node"], culprit["rank"], culprit["name"]) == (NODES["worker 1"], 1, "rank 1")
    workers = [f"saved-worker{i}" for i in range(2 if why == "stop" else 1)]
    for index in range(2):
        assert f"[ps {index}] saved after {workers}" in job.out.text, job.out.text


def test_each_container_is_told_its_own_place_and_a_ps_may_end_by_itself_or_not_obey(as_process: Starter) -> None:
    """One that does not is killed when the grace is over, and the job has succeeded all the same."""
    job = simulate(as_process, *DONE, "--do", "ps0=exit:0", "--do", "ps1=hold", grace_s=1)
    job.out.wait_for('"place": "ps0"')
    let_go(job, as_process, 3)
    assert job.end() == 0, job.out.text + job.err.text
    assert check_all(job, 0)["reason"] == "all 2 ranks on 4 nodes succeeded"
    check_places(job)


def check_places(job: Job) -> None:
    """By what each has said."""
    found = (re.fullmatch(r"\[(worker|ps) (\d)\] \[(rank|ps) (\d)\] (\{.*\})", line) for line in job.out.lines)
    told = {match[1] + match[2]: (match[3] + match[4], json.loads(match[5])) for match in found if match}
    assert sorted(told) == ["ps0", "ps1", "worker0", "worker1"]
    clusters = [said["config"]["cluster"] for _, said in told.values()]
    for place, (tag, said) in told.items():
        assert said["place"] == place
        assert tag == place.replace("worker", "rank")
        assert said["config"]["task"] == {"type": place[:-1], "index": int(place[-1])}
        assert said["config"]["cluster"] == clusters[0]
        assert said["rest"] == [f"--{task}_hosts={','.join(clusters[0][task])}" for task in ("ps", "worker")]
    addresses = [address for addresses in clusters[0].values() for address in addresses]
    assert len({address.rpartition(":")[2] for address in addresses}) == 4  # TensorFlow listens on all addresses of a machine


def test_a_ps_that_fails_decides_for_all(as_process: Starter) -> None:
    job = simulate(as_process, "--do", "ps1=exit:42")
    assert job.end() == 42, job.out.text
    culprit = check_all(job, 42)["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["name"]) == (NODES["ps 1"], None, "ps 1")


def test_a_worker_that_never_ends(as_process: Starter) -> None:
    """As in TensorFlow, where a worker may wait for ever for worker 0, which has succeeded."""
    job = simulate(as_process, "--do", "worker0=exit:0", options=("--end-timeout-s", 1))
    assert job.end() == 75, job.out.text
    reason = check_all(job, 75)["reason"]
    assert reason == ("the program succeeded on node 0 (127.0.0.1), but node 1 (127.0.0.2) still ran 1 s later (RANKLAUNCH_END_TIMEOUT_S)")


def test_worker_0_may_take_its_time(as_process: Starter) -> None:
    """It exports and evaluates when the others have ended."""
    job = simulate(as_process, "--do", "worker1=exit:0", options=("--end-timeout-s", 1))
    job.out.wait_for("[worker 1] ranklaunch: succeeded")
    job.send(signal.SIGTERM)
    assert job.end() == 143, job.out.text
