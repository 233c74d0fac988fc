"""DeepSpeed's runner on node 0 that reaches the others by MPICH or by Slurm: which ranks start where, and with what the job ends."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbench import slurm as slurm_bench
from testbench.hosts import Entered, Hosts
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.jobs.on_hosts import LauncherJob
from testbench.places import child
from testbench.slurm import Slurm
from testbench.waiting import sleep_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.launchers,
    pytest.mark.skipif(not importlib.util.find_spec("deepspeed"), reason="DeepSpeed is not installed"),
]

LONG_S = 300
MPICH = shutil.which("mpirun.mpich")
RANK = """
import json, os, signal, socket, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM} if "saves" in sys.argv else ())
names = ("LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "FOO", "SLURM_LOCALID", "SLURM_NTASKS")
told, rank = sys.argv[-1], os.environ.get("RANK") or os.environ["SLURM_PROCID"]
with open(f"{told}/{rank}.part", "w") as file:
    json.dump({"host": socket.gethostname(), **{name: os.environ.get(name) for name in names}}, file)
os.rename(f"{told}/{rank}.part", f"{told}/{rank}.json")
while len([name for name in os.listdir(told) if name.endswith(".json")]) < 4:
    time.sleep(0.05)
if "saves" in sys.argv:
    signal.sigwait({signal.SIGTERM})
    time.sleep(3 * int(rank))
    open(f"{told}/{rank}.saved", "w").close()
    sys.exit(0)
if rank == "3":
    print("no image 17", flush=True)
    sys.exit(42)
time.sleep(600)
"""
COMMON = {"DS_ACCELERATOR": "cpu", "RANKLAUNCH_EXCLUDE": "h1", "RANKLAUNCH_SLOTS": "2", "RANKLAUNCH_METHOD": "deepspeed"}


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where each rank leaves what it knows; the program, and a file of variables, lie beside it."""
    folder = tmp_path / "told"
    folder.mkdir()
    (tmp_path / "program.py").write_text(RANK)
    return folder


def run(told: Path, *words: object, grace_s: int = 5) -> list[object]:
    return [*RANKLAUNCH, "run", "--python", sys.executable, "--grace-s", grace_s, "--", told.parent / "program.py", *words, told]


def seen(told: Path) -> list[dict[str, str]]:
    return [json.loads((told / f"{rank}.json").read_text()) for rank in range(len(list(told.glob("*.json"))))]


needs_mpich = pytest.mark.skipif(
    not MPICH or not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs MPICH (mpirun.mpich) and sshd"
)


def by_mpich(made: Hosts, folder: Path, words: list[object]) -> list[Entered]:
    """On the first and the last of three hosts."""
    (folder / "bin").mkdir()
    (folder / "bin" / "mpirun").symlink_to(str(MPICH))
    (folder / "bin" / "hydra_pmi_proxy").symlink_to(Path(str(MPICH)).with_name("hydra_pmi_proxy"))  # which is looked for beside it
    (folder / ".deepspeed_env").write_text("FOO=bar\n")
    env = {name: os.environ[name] for name in ("HOME", "TMPDIR", "PYTHONPATH") if name in os.environ}
    env = {**env, **COMMON, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "RANKLAUNCH_RUN_DIR": str(folder)}
    env |= {"RANKLAUNCH_DEEPSPEED_LAUNCHER": "mpich", "RANKLAUNCH_HOSTS": "h0,h1,h2", "RANKLAUNCH_LOG_DIR": str(folder / "logs")}
    return [
        host.popen(words, env={**env, "RANKLAUNCH_NODE": str(host.index)}, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for host in made
    ]


@needs_mpich
def test_by_mpich(hosts: Callable[..., Hosts], told: Path) -> None:
    """Its helper ends with 0 whatever its rank ended with."""
    folder = told.parent
    of_each = by_mpich(hosts(3), folder, run(told))
    texts = [node.communicate(timeout=LONG_S)[0] for node in of_each]
    assert [node.returncode for node in of_each] == [42] * 3, texts
    assert [(each["host"], each["LOCAL_RANK"], each["MASTER_ADDR"], each["FOO"]) for each in seen(told)] == [
        (host, local, "h0", "bar") for host in ("h0", "h2") for local in "01"
    ]
    for index in range(3):
        culprit = checked_verdict(folder / "logs" / f"node_{index}" / "attempt_1" / "verdict.json")["culprit"]
        assert (culprit["rank"], culprit["node"], culprit["host"], culprit["exit_code"]) == (3, 1, "h2", 42)
        assert culprit["last_lines"][-1] == "no image 17"


@needs_mpich
def test_all_ranks_of_mpich_have_time_to_save(hosts: Callable[..., Hosts], told: Path) -> None:
    """Its proxy ends all of a node when a helper dies, which waits for a rank and hears nothing."""
    of_each = by_mpich(hosts(3), told.parent, run(told, "saves", grace_s=60))
    sleep_until(lambda: len(list(told.glob("*.json"))) == 4, "ranks that wait for the signal", LONG_S)
    of_each[0].send_signal(signal.SIGTERM)
    texts = [node.communicate(timeout=LONG_S)[0] for node in of_each]
    assert [node.returncode for node in of_each] == [143] * 3, texts
    assert sorted(int(path.stem) for path in told.glob("*.saved")) == [0, 1, 2, 3], texts


@pytest.mark.skipif(not shutil.which("ompi_info") or not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs Open MPI and sshd")
def test_ranks_of_open_mpi_meet_by_env(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    job = LauncherJob(hosts(2), tmp_path, "deepspeed", 1)
    env = {"RANKLAUNCH_DEEPSPEED_LAUNCHER": "openmpi", "DS_ACCELERATOR": "cpu", "MASTER_ADDR": "192.0.2.9"}
    job.start(child("meets_by_env.py"), env=env, options=("--master-port", "29871"))
    job.end(0)
    out = job.nodes[0].out
    assert sorted(re.findall(r"rank \d meets at .*", out)) == [f"rank {rank} meets at h0 29871" for rank in (0, 1)]
    assert sorted(re.findall(r"rank \d has met .*", out)) == [f"rank {rank} has met 2" for rank in (0, 1)]


@pytest.mark.skipif(bool(slurm_bench.missing()), reason=slurm_bench.missing())
def test_by_slurm(hosts: Callable[..., Hosts], told: Path) -> None:
    """Below the srun that has started ranklaunch on each node, whose tasks have what there is."""
    with Slurm(hosts(3), told.parent / "slurm") as cluster:
        (cluster.folder / ".deepspeed_env").write_text("FOO=bar\n")
        env = {**COMMON, "RANKLAUNCH_DEEPSPEED_LAUNCHER": "slurm"}
        job = cluster.popen("srun", "-N3", "--ntasks-per-node=1", *run(told), env=env)
        out, err = job.communicate(timeout=LONG_S)
        assert job.returncode == 42, out + err
        logs = cluster.folder / "ranklaunch-logs" / "job_1.0"
        culprits = [checked_verdict(logs / f"node_{i}" / "attempt_1" / "verdict.json")["culprit"] for i in range(3)]
    assert [(each["host"], each["SLURM_LOCALID"], each["SLURM_NTASKS"], each["FOO"]) for each in seen(told)] == [
        (host, local, "4", "bar") for host in ("h0", "h2") for local in "01"
    ]
    assert [(each["rank"], each["host"], each["exit_code"], each["last_lines"][-1]) for each in culprits] == [
        (3, "h2", 42, "no image 17")
    ] * 3
