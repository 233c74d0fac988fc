"""Jobs of LSF, PBS and Flux on two hosts: started, stopped and ended as there. What starts the tasks are stubs (testbench/batch)."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbench.batch import Batch
from testbench.hosts import Entered, Hosts, wait_until
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.places import child

LONG_S = 240.0
pytestmark = pytest.mark.launchers

FAILS = """
import os, sys, time
print("ready", flush=True)
if os.environ["RANK"] == "2":
    sys.exit(3)
time.sleep(600)
"""
WAITS = "import time; print('ready', flush=True); time.sleep(600)"
# How a user starts it, and the folder of its logs.
HOW = {
    "lsf": ('blaunch -z "h0 h1" {} PROGRAM', "job_71"),
    "pbs": ("for host in h0 h1; do pbs_tmrsh $host env RANKLAUNCH_HOSTS=h0,h1 {} PROGRAM & last=$!; done; wait $last", "job_71.s"),
    "flux": ("flux run -N 2 -n 2 {} --hosts-command 'flux hostlist -e -d , local' PROGRAM", "job_fStub1"),
}
PLACES = ["lsf", pytest.param("pbs", marks=pytest.mark.table), pytest.param("flux", marks=pytest.mark.table)]


@pytest.fixture
def batch(hosts: Callable[..., Hosts], tmp_path: Path) -> Iterator[Batch]:
    with Batch(hosts(2), tmp_path / "batch") as made:
        yield made


def start(batch: Batch, place: str, method: str, program: object) -> Entered:
    own = shlex.join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", method, "--slots", "2"])
    return batch.script(place, HOW[place][0].format(own).replace("PROGRAM", str(program)))


def verdicts(batch: Batch, place: str) -> list[dict[str, Any]]:
    folder = batch.folder / "ranklaunch-logs" / HOW[place][1]
    return [checked_verdict(folder / f"node_{i}" / "attempt_1" / "verdict.json") for i in range(2)]


def ended(job: Entered) -> tuple[int, str]:
    out, _ = job.communicate(timeout=LONG_S)
    return job.returncode, out


def written(batch: Batch, text: str) -> Path:
    path = batch.folder / "train.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("place", ["lsf", "pbs", "flux"])
def test_a_job_on_two_hosts(batch: Batch, place: str) -> None:
    """All ranks meet."""
    code, out = ended(start(batch, place, "torchrun", f"{child('sums.py')} HOSTNAME"))
    assert code == 0, out
    said = sorted(line.partition("place ")[2] for line in out.splitlines() if "place " in line)
    assert said == ["0 sum 4 at h0", "1 sum 4 at h0", "2 sum 4 at h1", "3 sum 4 at h1"], out
    assert [verdict["outcome"] for verdict in verdicts(batch, place)] == ["succeeded"] * 2


@pytest.mark.parametrize("place", PLACES)
def test_all_end_with_one_code(batch: Batch, place: str) -> None:
    code, out = ended(start(batch, place, "spawn", written(batch, FAILS)))
    assert code == 3, out
    assert [(each["exit_code"], each["culprit"]["rank"], each["culprit"]["node"]) for each in verdicts(batch, place)] == [(3, 2, 1)] * 2


def running(batch: Batch, place: str, method: str) -> Entered:
    """With all ranks ready."""
    job = start(batch, place, method, written(batch, WAITS))
    wait_for_ranks(batch, place, job)
    return job


def wait_for_ranks(batch: Batch, place: str, job: Entered) -> None:
    folder = batch.folder / "ranklaunch-logs" / HOW[place][1]
    logs = [folder / f"node_{rank // 2}/attempt_1/rank_{rank}.log" for rank in range(4)]
    wait_until(lambda: job.poll() is not None or all(log.exists() and "ready" in log.read_text() for log in logs), "ranks", LONG_S)
    assert job.poll() is None, job.communicate()


@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.table)])
@pytest.mark.parametrize("place", ["pbs", pytest.param("flux", marks=pytest.mark.table)])
def test_a_polite_signal_to_all_tasks_stops_the_job(batch: Batch, place: str, method: str) -> None:
    job = running(batch, place, method)
    batch.signal(signal.SIGTERM)
    _, out = ended(job)
    assert [(each["outcome"], each["exit_code"]) for each in verdicts(batch, place)] == [("stopped", 143)] * 2, out


def test_nothing_is_left_where_all_tasks_are_killed(batch: Batch) -> None:
    """As LSF ends parallel jobs: the ranks die with ranklaunch, whom nobody has asked."""
    job = running(batch, "lsf", "spawn")
    batch.signal(signal.SIGKILL)
    code, out = ended(job)
    assert code == 137, out
    for host in batch.hosts:
        wait_until(lambda host=host: not ranks_on(batch, host), f"ranks on {host.name}", LONG_S)


def ranks_on(batch: Batch, host: Any) -> list[int]:
    name = f"{batch.folder}/train.py".encode()
    return [pid for pid in host.pids() if name in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_task_for_each_rank(batch: Batch) -> None:
    """The third fails; all four end with its code."""
    own = shlex.join([*RANKLAUNCH, "run", "--python", sys.executable, "--per-rank"])
    hosts = "--hosts-command 'flux hostlist -e -d , local'"
    code, out = ended(batch.script("flux", f"flux run -N 2 -n 4 {own} {hosts} {child('sums.py')} LOCAL_RANK"))
    assert code == 0, out
    said = sorted(line.partition("place ")[2] for line in out.splitlines() if "place " in line)
    assert said == ["0 sum 4 at 0", "1 sum 4 at 1", "2 sum 4 at 0", "3 sum 4 at 1"], out

    code, out = ended(batch.script("flux", f"flux run -N 2 -n 4 {own} {hosts} {written(batch, FAILS)}"))
    assert code == 3, out
    found = [batch.folder / "ranklaunch-logs" / HOW["flux"][1] / f"node_{i}" / "attempt_2" / "verdict.json" for i in range(4)]
    assert [(each["exit_code"], each["culprit"]["rank"]) for each in map(checked_verdict, found)] == [(3, 2)] * 4


def of_spec(batch: Batch, place: str, program: str) -> Entered:
    """The script that `ranklaunch spec` writes, with the command ranklaunch on PATH."""
    command = batch.folder / "bin" / "ranklaunch"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(RANKLAUNCH)} "$@"\n')
    command.chmod(0o755)
    asked = ("--name", "llm", "--nodes", "2", "--devices", "2", "--device-kind", "cpu", "--cpu", "2", "--method", "spawn")
    words = (*RANKLAUNCH, "spec", place, *asked, "--env", f"RANKLAUNCH_PYTHON={sys.executable}", "--", written(batch, program))
    made = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=LONG_S, check=True)
    (batch.folder / "job.sh").write_text(made.stdout)
    own = {"PBS_O_WORKDIR": str(batch.folder), "LSB_DJOB_HOSTFILE": str(batch.folder / "nodes")}
    return batch.script(place, "exec bash job.sh", own)


@pytest.mark.parametrize("place", ["pbs", pytest.param("lsf", marks=pytest.mark.table), pytest.param("flux", marks=pytest.mark.table)])
def test_a_script_of_spec_ends_as_its_job_does(batch: Batch, place: str) -> None:
    code, out = ended(of_spec(batch, place, FAILS))
    assert code == 3, out
    assert [(each["exit_code"], each["culprit"]["rank"]) for each in verdicts(batch, place)] == [(3, 2)] * 2


def test_a_script_of_spec_for_pbs_outlives_the_polite_signal_to_all(batch: Batch) -> None:
    """With the script the job ends, and with the job its tasks."""
    job = of_spec(batch, "pbs", WAITS)
    wait_for_ranks(batch, "pbs", job)
    job.send_signal(signal.SIGTERM)
    batch.signal(signal.SIGTERM)
    code, out = ended(job)
    assert code == 143, out
    assert [(each["outcome"], each["exit_code"]) for each in verdicts(batch, "pbs")] == [("stopped", 143)] * 2, out


MPI_RANK = 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(cat /proc/sys/kernel/hostname)"'
BY_MPI = {
    "blaunch": ("lsf", 'blaunch -z "h0 h1" env {} job.sh'),
    "pbs_tmrsh": (
        "pbs",
        "for host in h0 h1; do pbs_tmrsh $host env RANKLAUNCH_HOSTS=h0,h1 PBS_NODEFILE=$PBS_NODEFILE {} sh job.sh & done; wait",
    ),
}


@pytest.mark.skipif(not shutil.which("mpirun"), reason="needs mpirun")
@pytest.mark.parametrize("shell", ["blaunch", pytest.param("pbs_tmrsh", marks=pytest.mark.table)])
def test_mpirun_without_ssh(batch: Batch, shell: str) -> None:
    """Its daemons come by the batch system's own way; nothing else runs on the other host."""
    place, how = BY_MPI[shell]
    folder = batch.folder / "mpi"
    folder.mkdir()
    names = ("RANKLAUNCH_RUN_DIR", "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory")
    own = " ".join([*(f"{name}={folder}" for name in names), f"RANKLAUNCH_REMOTE_SHELL={shell}"])
    words = shlex.join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", "mpirun", "--slots", "2", "sh", "-c", MPI_RANK])
    (batch.folder / "job.sh").write_text(f"#!/bin/sh\nexec {words}\n")
    (batch.folder / "job.sh").chmod(0o755)
    code, out = ended(batch.script(place, how.format(own).replace(" job.sh", " ./job.sh")))
    said = sorted(line.partition("] ")[2] for line in out.splitlines() if line.startswith("[rank"))
    assert (code, said) == (0, [f"rank {rank} of 4 on h{rank // 2}" for rank in range(4)]), out
    assert not (batch.folder / "ranklaunch-logs" / HOW[place][1] / "node_1/attempt_1/sshd.log").exists()


DEEPSPEED_RANK = """
import os, sys, time
from pathlib import Path
own = Path(f"part-{os.environ['RANK']}")
own.write_text(os.uname().nodename)
own.rename(f"rank-{os.environ['RANK']}")
while sum(1 for each in Path().glob("rank-*")) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.1)
if sys.argv[-1] == "fails" and os.environ["RANK"] == "2":
    sys.exit(42)
time.sleep(600 if sys.argv[-1] == "fails" else 0)
"""


@pytest.mark.skipif(not shutil.which("pdsh") or not importlib.util.find_spec("deepspeed"), reason="needs pdsh and DeepSpeed")
@pytest.mark.parametrize(
    ("shell", "how", "code"),
    [
        ("blaunch", "fails", 42),
        *(pytest.param(*case, marks=pytest.mark.table) for case in [("blaunch", "works", 0), ("pbs_tmrsh", "fails", 42)]),
    ],
)
def test_deepspeed_without_ssh(batch: Batch, shell: str, how: str, code: int) -> None:
    """pdsh reaches the hosts by the batch system's own way."""
    place, line = BY_MPI[shell]
    set_there = {"RANKLAUNCH_DEEPSPEED_LAUNCHER": "pdsh", "DS_ACCELERATOR": "cpu", "RANKLAUNCH_RUN_DIR": batch.folder}
    own = " ".join([*(f"{name}={value}" for name, value in set_there.items()), f"RANKLAUNCH_REMOTE_SHELL={shell}"])
    words = (*RANKLAUNCH, "run", "--python", sys.executable, "--method", "deepspeed", "--slots", "2", written(batch, DEEPSPEED_RANK), how)
    (batch.folder / "job.sh").write_text(f"#!/bin/sh\nexec {shlex.join(map(str, words))}\n")
    (batch.folder / "job.sh").chmod(0o755)
    found, out = ended(batch.script(place, line.format(own).replace(" job.sh", " ./job.sh")))
    assert {path.name: path.read_text() for path in batch.folder.glob("rank-*")} == {f"rank-{rank}": f"h{rank // 2}" for rank in range(4)}
    assert found == (code if shell == "blaunch" else 0), out  # its script waits for all, and is told no code
    assert [verdict["exit_code"] for verdict in verdicts(batch, place)] == [code] * 2, out
    for host in batch.hosts:
        wait_until(lambda host=host: not ranks_on(batch, host), f"no rank on {host.name}", LONG_S)


SCRIPTS = {
    "lsf": r'blaunch -z "h0 h1" ranklaunch run \.\.\.',
    "pbs": r"for host in .* RANKLAUNCH_HOSTS=h0,h1 ranklaunch run \.\.\. & done; wait \$!",
    "flux": r"flux run -N NODES -n NODES ranklaunch run \.\.\.",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_script_on_the_first_host_is_refused_with_what_starts_it_on_all(batch: Batch, place: str) -> None:
    """The line is one that does."""
    own = shlex.join([*RANKLAUNCH, "run", "--python", sys.executable, "--method", "spawn", "--slots", "1"])
    code, out = ended(batch.script(place, f"{own} {child('sums.py')}"))
    assert code == 78, out
    found = re.search(SCRIPTS[place], out)
    assert found, out
    if place != "flux":  # which needs its hosts, too
        code, out = ended(batch.script(place, found[0].replace("ranklaunch run ...", f"{own} {child('sums.py')}")))
        assert (code, len(re.findall("place [01] sum 2", out))) == (0, 2), out


def test_blaunch_for_each_slot_is_refused(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    with Batch(hosts(2), tmp_path / "batch", slots=2) as batch:
        own = shlex.join([*RANKLAUNCH, "run", "--python", sys.executable, "--muster-timeout-s", "5"])
        code, out = ended(batch.script("lsf", f"blaunch {own} {child('sums.py')}"))
    assert code == 78, out
    assert "expected one ranklaunch on each node" in out
