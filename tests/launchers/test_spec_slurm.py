"""What `ranklaunch spec slurm` writes, on real Slurm: two nodes, by --submit."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_jobs import ALL_REDUCE, LONG_S, WAITS

from testbench import slurm
from testbench.hosts import Hosts, wait_until
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.places import child
from testbench.slurm import Slurm
from testbench.waiting import ranks_ready

pytestmark = pytest.mark.launchers

FAILS = """
import os, sys, time
if os.environ["RANK"] == "2":
    sys.exit(int(sys.argv[1]))
time.sleep(600)
"""
TOGETHER = f"""
import os, runpy, time
from pathlib import Path
Path(os.environ["SLURM_JOB_ID"] + "." + os.environ["RANK"] + ".here").touch()
while len(list(Path().glob("*.here"))) < 8:
    time.sleep(0.1)
runpy.run_path({child("sums.py")!r}, run_name="__main__")
"""
TELLS_CPUS = "import os; print('CPUs', len(os.sched_getaffinity(0)), flush=True)"


def submitted(
    slurm: Slurm, *options: str, text: str, method: str = "spawn", args: tuple[str, ...] = (), sbatch: tuple[str, ...] = ()
) -> int:  # fmt: skip
    """The job's number. In a folder on PATH is the command ranklaunch, as it is where it is installed. sbatch: options for one by hand."""
    command = slurm.folder / "bin" / "ranklaunch"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {" ".join(RANKLAUNCH)} "$@"\n')
    command.chmod(0o755)
    (slurm.folder / "train.py").write_text(text)
    asked = ("--name", "llm", "--nodes", "2", "--devices", "2", "--device-kind", "cpu", "--method", method, "--set", "slurm.container=none")
    asked += ("--set", "lifecycle.gracePeriodSeconds=10", "--env", f"RANKLAUNCH_PYTHON={sys.executable}")
    path = {"PATH": f"{command.parent}:{slurm.environment['PATH']}"}
    words = (command, "spec", "slurm", *asked, *options, *(() if sbatch else ("--submit",)), "--", "train.py", *args)
    with slurm.popen(*words, env=path) as job:
        out, err = job.communicate(timeout=LONG_S)
    assert job.returncode == 0, out + err
    assert ' srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 ' in out
    if sbatch:
        (slurm.folder / "job.sh").write_text(out)
        with slurm.popen("sbatch", *sbatch, "job.sh", env=path) as job:
            out, _ = job.communicate(timeout=LONG_S)
    return int(re.findall(r"^Submitted batch job (\d+)$", out, re.MULTILINE)[0])


def facts(slurm: Slurm, job: object) -> dict[str, str]:
    words = slurm.run("scontrol", "--oneliner", "show", "job", job).stdout.split()
    return dict(word.partition("=")[::2] for word in words)


def ended(slurm: Slurm, job: int) -> tuple[str, str, str]:
    """(state, exit code and signal, starts after the first)."""
    wait_until(lambda: slurm.state(job) not in ("PENDING", "RUNNING", "COMPLETING"), f"the end of job {job}", LONG_S)
    found = facts(slurm, job)
    return found["JobState"], found["ExitCode"], found["Restarts"]


def verdicts(slurm: Slurm, job: int, attempt: object = 1) -> list[tuple[str, int]]:
    found = sorted((slurm.folder / "ranklaunch-logs").glob(f"job_{job}.*/node_*/attempt_{attempt}/verdict.json"))
    return [(verdict["outcome"], verdict["exit_code"]) for verdict in map(checked_verdict, found)]


def said(slurm: Slurm, job: int) -> str:
    path = slurm.folder / f"slurm-{job}.out"
    return path.read_text() if path.exists() else ""


def test_it_trains(slurm: Slurm) -> None:
    job = submitted(slurm, text=ALL_REDUCE, method="torchrun")
    assert ended(slurm, job) == ("COMPLETED", "0:0", "0"), said(slurm, job)
    sums = sorted(line.partition("sum ")[2] for line in said(slurm, job).splitlines() if "sum " in line)
    assert sums == ["6 of 4 on h0"] * 2 + ["6 of 4 on h1"] * 2
    assert verdicts(slurm, job) == [("succeeded", 0)] * 2


def test_the_nodes_know_each_other_by_a_key_of_the_users(slurm: Slurm) -> None:
    """Made by the first job, and taken only where nobody else can read it."""
    key = slurm.folder / ".config" / "ranklaunch" / "key"
    texts = []
    for mode in (0o600, 0o600, 0o640):
        if key.exists():
            key.chmod(mode)
        job = submitted(slurm, text=TELLS_CPUS)
        assert ended(slurm, job) == ("COMPLETED", "0:0", "0"), said(slurm, job)
        assert stat.S_IMODE(key.stat().st_mode) == mode
        assert ("derived from the job's name" in said(slurm, job)) is (mode == 0o640)
        assert ("expected a file of yours with mode 0600" in said(slurm, job)) is (mode == 0o640)
        texts.append(key.read_text())
    assert texts == texts[:1] * 3
    assert re.fullmatch("[0-9a-f]{64}", texts[0])
    assert list(key.parent.iterdir()) == [key]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU, which is every task's")
def test_ranks_have_all_cpus_of_the_job_where_slurm_binds_tasks(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    if reason := slurm.missing():
        pytest.skip(reason)
    with Slurm(hosts(2), tmp_path / "slurm", binds=True) as cluster:
        job = submitted(cluster, "--cpu", "2", text=TELLS_CPUS)
        assert ended(cluster, job) == ("COMPLETED", "0:0", "0"), said(cluster, job)
        assert said(cluster, job).count("CPUs 2\n") == 4, said(cluster, job)


def test_sbatch_may_be_told_of_more_tasks(slurm: Slurm) -> None:
    """srun takes their number from sbatch, and leaves its own --ntasks-per-node aside then."""
    job = submitted(slurm, text=TELLS_CPUS, sbatch=("--ntasks-per-node=4",))
    assert ended(slurm, job) == ("COMPLETED", "0:0", "0"), said(slurm, job)
    assert said(slurm, job).count("CPUs ") == 4


def test_jobs_with_the_same_first_node_do_not_meet(slurm: Slurm) -> None:
    """Each waits for the other's ranks to run."""
    jobs = [submitted(slurm, text=TOGETHER) for _ in range(2)]
    for job in jobs:
        assert ended(slurm, job) == ("COMPLETED", "0:0", "0"), said(slurm, job)
        assert said(slurm, job).count(" sum 4\n") == 4, said(slurm, job)


def test_jobs_that_share_a_port_are_told(slurm: Slurm) -> None:
    """Long before the muster's 600 seconds are over, on the node that cannot listen and on the other, which meets the first job there."""
    first = submitted(slurm, "--set", "network.musterPort=18889", text=WAITS)
    wait_until(lambda: ranks_ready(said(slurm, first)) == 4, "four ranks", LONG_S)
    second = submitted(slurm, "--set", "network.musterPort=18889", text=WAITS)
    assert ended(slurm, second) == ("FAILED", "75:0", "0"), said(slurm, second)
    assert "port 18889 of this node is in use by process " in said(slurm, second)
    assert "another ranklaunch has answered in place of node 0 (h0)" in said(slurm, second)
    slurm.run("scancel", first, check=True)
    assert ended(slurm, first)[0] == "CANCELLED"


def test_lines_and_options_of_the_users(slurm: Slurm) -> None:
    (slurm.folder / "activate").write_text('export MINE="$NOT_SET of the setup"\n')
    options = ("--set", 'slurm.setup=["source ./activate"]', "--set", 'slurm.srunOptions=["--label"]', "--set", "slurm.output=out-%j.txt")
    job = submitted(slurm, *options, text="import os; print('mine', os.environ['MINE'], flush=True)")
    assert ended(slurm, job)[0] == "COMPLETED"
    lines = [line for line in (slurm.folder / f"out-{job}.txt").read_text().splitlines() if "mine  of the setup" in line]
    assert sorted(line[:2] for line in lines) == ["0:", "0:", "1:", "1:"]


@pytest.mark.table  # Slurm's limits are whole minutes
def test_a_start_that_meets_its_time_limit_is_followed_by_another(slurm: Slurm) -> None:
    job = submitted(slurm, "--set", "slurm.time=2", "--max-restarts", "1", text=WAITS)
    wait_until(lambda: facts(slurm, job)["Restarts"] == "1", "the requeue", LONG_S)
    assert verdicts(slurm, job) == [("stopped", 143)] * 2, said(slurm, job)
    slurm.run("scancel", job, check=True)


def test_exit_codes_are_the_jobs_and_some_are_started_anew(slurm: Slurm) -> None:
    job = submitted(slurm, text=FAILS, args=("5",))
    assert ended(slurm, job) == ("FAILED", "5:0", "0"), said(slurm, job)
    assert verdicts(slurm, job) == [("failed", 5)] * 2

    job = submitted(slurm, "--max-restarts", "1", text=FAILS, args=("78",))
    assert ended(slurm, job) == ("FAILED", "78:0", "0"), said(slurm, job)
    assert verdicts(slurm, job) == [("failed", 78)] * 2

    job = submitted(slurm, "--max-restarts", "1", text=FAILS, args=("5",))
    wait_until(lambda: slurm.state(job) == "PENDING" and facts(slurm, job)["Restarts"] == "1", "the requeue", LONG_S)
    assert verdicts(slurm, job) == [("failed", 5)] * 2

    def second() -> bool:
        slurm.hurry(job)
        return len(verdicts(slurm, job, attempt="[!1]")) == 2

    try:
        wait_until(second, "the second attempt", LONG_S)
    finally:
        print(facts(slurm, job), said(slurm, job))  # why it has not come
    state, code, restarts = ended(slurm, job)
    assert (state, code) == ("FAILED", "5:0"), said(slurm, job)
    assert int(restarts) >= 1  # of which some may be Slurm's own
    assert verdicts(slurm, job, attempt="[!1]") == [("failed", 5)] * 2


SAVES = """
import os, pathlib, signal, sys, time
rank, saved = os.environ["RANK"], pathlib.Path("saved." + os.environ["RANK"])
if saved.exists():
    print("rank", rank, "goes on from step", saved.read_text(), "in attempt", int(os.environ["SLURM_RESTART_COUNT"]) + 1, flush=True)
    sys.exit()
signal.signal(signal.SIGUSR1, lambda *_: saved.write_text("7"))
print("ready", flush=True)
time.sleep(600)
"""


def goes_on(slurm: Slurm, job: int) -> None:
    """The start after the warning: each rank has its checkpoint, and nothing of the first start ran any more at the requeue."""
    wait_until(lambda: facts(slurm, job)["Restarts"] == "1", "the requeue", LONG_S)
    assert verdicts(slurm, job) == [("stopped", 143)] * 2, said(slurm, job)
    assert "DUE TO JOB REQUEUE" not in re.sub(r"\*\*\* JOB .*", "", said(slurm, job))  # of the step; the script itself is signalled

    def is_done() -> bool:
        slurm.hurry(job)
        return slurm.state(job) == "COMPLETED"

    wait_until(is_done, "the second start", LONG_S)
    lines = sorted(line.partition("] ")[2] for line in said(slurm, job).splitlines() if " goes on " in line)
    assert lines == [f"rank {rank} goes on from step 7 in attempt 2" for rank in range(4)], said(slurm, job)
    assert verdicts(slurm, job, attempt=2) == [("succeeded", 0)] * 2


SAVE_SIGNAL = ("--max-restarts", "1", "--env", "RANKLAUNCH_SAVE_SIGNAL=USR1")


def test_ranks_save_before_the_limit_and_the_requeued_job_goes_on(slurm: Slurm) -> None:
    job = submitted(slurm, *SAVE_SIGNAL, "--set", 'slurm.directives=["--signal=B:USR1@12"]', text=SAVES)
    wait_until(lambda: ranks_ready(said(slurm, job)) == 4, "four ranks", LONG_S)
    slurm.run("scancel", "--batch", "--signal=USR1", job, check=True)
    goes_on(slurm, job)


@pytest.mark.table  # Slurm's limits are whole minutes
def test_slurm_itself_warns_before_the_limit(slurm: Slurm) -> None:
    job = submitted(slurm, *SAVE_SIGNAL, "--set", "slurm.time=2", "--set", "slurm.saveBefore=30", text=SAVES)
    goes_on(slurm, job)


def test_a_warning_before_any_rank_runs_stops_the_step(slurm: Slurm) -> None:
    """No socket answers yet: the script then has Slurm stop the step, and requeues all the same."""
    prolog = slurm.folder / "prolog.sh"
    prolog.write_text("#!/bin/sh\nexec sleep 60\n")
    prolog.chmod(0o755)
    waits = ("--set", f'slurm.srunOptions=["--task-prolog={prolog}"]')
    job = submitted(slurm, *SAVE_SIGNAL, *waits, "--set", "slurm.saveBefore=12", text=SAVES)
    wait_until(lambda: slurm.run("squeue", "--steps", "--noheader").stdout.count(f"{job}.0"), "the step", LONG_S)
    slurm.run("scancel", "--batch", "--signal=USR1", job, check=True)
    wait_until(lambda: facts(slurm, job)["Restarts"] == "1", "the requeue", LONG_S)
    slurm.run("scancel", job, check=True)


DEVICE_FAILS = """
import os, sys
if os.environ["SLURMD_NODENAME"] == "h0":
    sys.exit("RuntimeError: CUDA error: uncorrectable ECC error encountered")
print("trained on", os.environ["SLURMD_NODENAME"], flush=True)
"""


def test_a_job_whose_device_has_failed_is_requeued_without_its_host(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Hosts that were left out before stay so, and the job's comment says what has happened."""
    if reason := slurm.missing():
        pytest.skip(reason)
    with Slurm(hosts(3), tmp_path / "slurm") as cluster:
        options = ("--nodes", "1", "--max-restarts", "1", "--env", "RANKLAUNCH_MAX_RESTARTS=1")
        job = submitted(cluster, *options, "--set", 'slurm.directives=["--exclude=h2"]', text=DEVICE_FAILS)
        wait_until(lambda: facts(cluster, job)["Restarts"] == "1", "the requeue", LONG_S)
        wait_until(lambda: facts(cluster, job)["ExcNodeList"] == "h2,h0", "the list", LONG_S)
        (verdict,) = (cluster.folder / "ranklaunch-logs").glob(f"job_{job}.0/attempt_1/verdict.json")
        found = json.loads(verdict.read_text())
        assert (found["exit_code"], found["suspect_host"]["host"]) == (75, "h0")
        shown = cluster.run("scontrol", "show", "job", job).stdout
        assert f"Comment={found['reason'][:200]}" in shown

        def is_done() -> bool:
            cluster.hurry(job)
            return cluster.state(job) == "COMPLETED"

        wait_until(is_done, "the second start", LONG_S)
        assert said(cluster, job).count("trained on h1") == 2


def test_a_task_of_an_array_is_requeued_alone(slurm: Slurm) -> None:
    """One task of an array has the array's number as its job's: scontrol takes that for all tasks."""
    fails = "import os, sys, time; time.sleep(600 * (os.environ['SLURM_ARRAY_TASK_ID'] == '0')); sys.exit(5)"
    array = submitted(slurm, "--nodes", "1", "--max-restarts", "1", "--set", 'slurm.directives=["--array=0-1"]', text=fails)
    wait_until(lambda: facts(slurm, f"{array}_1")["Restarts"] == "1", "the requeue", LONG_S)
    assert (facts(slurm, f"{array}_0")["JobState"], facts(slurm, f"{array}_0")["Restarts"]) == ("RUNNING", "0")
    assert ["Comment" in facts(slurm, f"{array}_{task}") for task in range(2)] == [False, True]
    slurm.run("scancel", array, check=True)


def test_scancel_leaves_nothing(slurm: Slurm) -> None:
    before = set(processes(slurm))
    job = submitted(slurm, "--max-restarts", "3", text=WAITS)
    wait_until(lambda: ranks_ready(said(slurm, job)) == 4, "four ranks", LONG_S)
    assert set(processes(slurm)) - before
    slurm.run("scancel", job, check=True)
    assert ended(slurm, job)[::2] == ("CANCELLED", "0")
    wait_until(lambda: len(verdicts(slurm, job)) == 2, "verdicts", LONG_S)
    assert verdicts(slurm, job) == [("stopped", 143)] * 2, said(slurm, job)
    wait_until(lambda: not set(processes(slurm)) - before, "processes are left", LONG_S)


def processes(slurm: Slurm) -> list[int]:
    return [pid for host in slurm.hosts for pid in host.pids()]
