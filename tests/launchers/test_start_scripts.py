"""Start scripts and commands in the shape of public projects: each trains exactly once with the right ranks, or is refused with a line that
works when it is pasted. docs/scripts.md shows the table."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from start_scripts import ROWS, TRAINS, Row

from testbench import standins
from testbench.hosts import Hosts
from testbench.jobs.job import Job, Starter
from testbench.jobs.on_hosts import LauncherJob

pytestmark = [pytest.mark.launchers, pytest.mark.processes]

LONG_S = 240.0
ENV = {"RANKLAUNCH_ACCELERATOR": "cpu", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "MS_LOG_LEVEL": "4", "ACCELERATE_USE_CPU": "true"}
TRAIN = """
import os, time
env = os.environ
if env.get("MS_ROLE") == "MS_SCHED":  # MindSpore's scheduler runs the program too
    raise SystemExit
names = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("RANK_ID", "MS_WORKER_NUM"))
rank, world = next(((env[a], env[b]) for a, b in names if a in env and b in env), ("none", "none"))
time.sleep(2)  # so that two trainings would meet
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "seen", f"{rank}.{world}.{os.getpid()}"), "w").close()
"""
# As LLaMA-Factory and others do: torchrun, with the place in the environment.
CLI = """
import os, subprocess, sys
env = os.environ
words = ["--nnodes", env.get("NNODES", "1"), "--node_rank", env.get("NODE_RANK", "0"), "--nproc_per_node", env.get("NPROC_PER_NODE", "2")]
words += ["--master_addr", env.get("MASTER_ADDR", "127.0.0.1"), "--master_port", env.get("MASTER_PORT", "29700")]
sys.exit(subprocess.run([sys.executable, "-m", "torch.distributed.run", *words, "train.py", *sys.argv[2:]]).returncode)
"""
WRAPPER = """
import os, sys
words = sys.argv[1:]
while not words[0].startswith(("torchrun", "python")):
    words.pop(0)
os.execvp(words[0], words)
"""
COMMANDS = ("llamafactory-cli", "swift", "axolotl", "xtuner", "flagscale", "paddleformers-cli")
WRAPPERS = ("srun", "apptainer", "pixi", "py-spy")
FILES = {
    "train.py": TRAIN, "cli.py": CLI, "prepare.py": "", "inner.sh": "torchrun --nnodes $1 --node_rank $NODE_RANK --nproc_per_node 2 "
    "--master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py\n",
    "two.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmain_process_ip: '127.0.0.1'\nmain_process_port: 29712\n"
    "mixed_precision: 'no'\nnum_machines: 2\nnum_processes: 4\nrdzv_backend: static\nuse_cpu: true\n",
}  # fmt: skip
FOUND = {name: bool(importlib.util.find_spec(name)) for name in ("torch", "accelerate", "deepspeed", "mindspore")}
FOUND["mpirun"] = bool(shutil.which("mpirun"))


def cases(column: str) -> list[object]:
    """Rows with a cell in a column. CI runs the first of each kind that has one of the same outcome."""
    found, kinds = [], set()
    for row in ROWS:
        cell = getattr(row, column)
        if not cell:
            continue
        key = (row.kind, cell == TRAINS)
        marks = [] if key not in kinds and row.kind not in ("script", "command") else [pytest.mark.table]
        if not FOUND[row.needs]:
            marks.append(pytest.mark.skip(reason=f"{row.needs} is not installed"))
        kinds.add(key)
        found.append(pytest.param(row, id=row.shape.replace(" ", "-"), marks=marks))
    return found


def prepare(starter: Starter, row: Row) -> list[object]:
    """Write the program and what it calls; return the words of the program."""
    folder = starter.folder
    (folder / "seen").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    path = folder / "bin"
    standins.write(path, {**dict.fromkeys(COMMANDS, CLI), **dict.fromkeys(WRAPPERS, WRAPPER)})
    (folder / "train.sh").write_text(f"#!/bin/bash\n{row.line}\n")
    return [*shlex.split(row.line)] if row.is_command else ["train.sh"]


def environment(starter: Starter) -> dict[str, str]:
    paths = (Path(sys.executable).parent, starter.folder / "bin", "/usr/local/bin", "/usr/bin", "/bin")
    return {**ENV, "PATH": ":".join(map(str, paths)), "RANKLAUNCH_MASTER_PORT": str(starter.master_port)}


def on_nodes(starter: Starter, nodes: int, *words: object) -> Job:
    logs = ("--log-dir", starter.folder / "logs", "--grace-s", 5, "--python", sys.executable)
    how = ("run", "--slots", 2) if nodes == 1 else ("simulate", "--nodes", nodes, "--slots", 2)
    return starter.command(*how, *logs, *words, env=environment(starter))


def check_trained(starter: Starter, job: Job, ranks: int) -> None:
    assert job.end(LONG_S) == 0, job.err.text + job.out.text
    seen = sorted(path.name.rpartition(".")[0] for path in (starter.folder / "seen").iterdir())
    assert seen == [f"{rank}.{ranks}" for rank in range(ranks)], job.err.text + job.out.text


def check_pasted(starter: Starter, text: str, nodes: int) -> None:
    """Run the line that a refusal says."""
    line = re.search(r"ranklaunch run (--method \S+ -- .*?)(?:,| \(RANKLAUNCH|$)", text, re.MULTILINE)
    assert line, text
    words = [word.replace("...", "") for word in shlex.split(line[1]) if word != "..."]
    for path in (starter.folder / "seen").iterdir():
        path.unlink()
    check_trained(starter, on_nodes(starter, nodes, *words), 2 * nodes)


def check_pasted_on_hosts(hosts: Callable[[int], Hosts], starter: Starter, text: str) -> None:
    """As check_pasted, for msrun: its scheduler needs an address of node 0's alone."""
    assert "write ranklaunch run --method msrun -- train.py, which starts" in text
    job = LauncherJob(hosts(2), starter.folder, "msrun")
    job.start("train.py")
    assert job.end(0)["outcome"] == "succeeded"


@pytest.mark.parametrize("row", cases("one"))
def test_on_one_node(as_process: Starter, row: Row) -> None:
    words = prepare(as_process, row)
    job = on_nodes(as_process, 1, "--", *words)
    if row.one == TRAINS:
        check_trained(as_process, job, 2)
        return
    assert job.end(LONG_S) == 78, job.err.text
    assert row.one in job.err.text
    check_pasted(as_process, job.err.text, 1)


@pytest.mark.parametrize("row", cases("two"))
def test_on_two_nodes(as_process: Starter, hosts: Callable[[int], Hosts], row: Row) -> None:
    words = prepare(as_process, row)
    if row.two == TRAINS:
        check_trained(as_process, on_nodes(as_process, 2, "--", *words), 4)
        return
    if "ranks of their own" in row.two:
        job = on_nodes(as_process, 2, "--", *words)
        assert job.end(LONG_S) == 78, job.err.text
        assert row.two in job.err.text
        return
    place = ("--nodes", 2, "--node", 1, "--hosts", "10.0.0.1,10.0.0.2", "--slots", 2)
    job = as_process.command("run", *place, "--log-dir", as_process.folder / "logs", "--", *words, env=environment(as_process))
    assert job.end(LONG_S) == 78, job.err.text
    assert row.two in job.err.text
    assert not any((as_process.folder / "seen").iterdir())  # refused before anything was started
    if row.needs == "mindspore":
        check_pasted_on_hosts(hosts, as_process, job.err.text)
    else:
        check_pasted(as_process, job.err.text, 2)
