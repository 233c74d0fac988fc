"""Ranks that work alone on one of several nodes, two of one place, and ranks that start ranks of their own end the job with 78; programs
that only look so do not. The launcher is a stand-in, whose ranks meet nobody."""

from __future__ import annotations

import pytest

from testbench import standins
from testbench.jobs.job import Job, Starter

pytestmark = pytest.mark.processes

# Works until the file `go` is there, or for so many steps.
TRAIN = """
import os, sys, time
steps = int(os.environ.get("STEPS", "0"))
print("rank", os.environ.get("RANK"), "of", os.environ.get("WORLD_SIZE"), flush=True)
if steps:
    for step in range(steps):
        print(f"step {step} loss 0.{step}", flush=True)
        time.sleep(0.1)
else:
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)
"""
QUICK = "import os\nprint('quick', os.environ.get('RANK'))\n"
CLI = "import os, subprocess, sys\nsys.exit(subprocess.run(['torchrun', *sys.argv[1:]]).returncode)\n"  # as llamafactory-cli


def write(starter: Starter, text: str) -> dict[str, str]:
    """Write the program; return its variables."""
    folder = starter.folder
    path = standins.put(folder / "bin", "torchrun", "msrun")
    for name, code in {"train.py": TRAIN, "quick.py": QUICK, "cli.py": CLI}.items():
        (folder / name).write_text(code)
    (folder / "train.sh").write_text(f"export PATH={path}:$PATH\nR=torch; R=$(echo ${{R}}run)\n{text}\n")
    return {"GO": str(folder / "go")}


def run(starter: Starter, text: str, *options: object, **env: str) -> Job:
    given = write(starter, text)
    return starter.run("train.sh", options=("--slots", 2, *options), env={**given, **env})


def simulate(starter: Starter, text: str, *options: object, **env: str) -> Job:
    """Two nodes of two ranks, on this host."""
    given = write(starter, text)
    words = ("simulate", "--nodes", 2, "--slots", 2, "--log-dir", starter.folder / "logs", "--grace-s", 10, *options, "--", "train.sh")
    return starter.command(*words, env={"RANKLAUNCH_MASTER_PORT": str(starter.master_port), **given, **env})


def reason(job: Job) -> str:
    return str(job.verdict["reason"])


# Ranks that start ranks


STARTERS = [
    "$R --nproc_per_node 2 --master_port 2950$RANK train.py",
    "python cli.py --nproc_per_node 2 --master_port 2950$RANK train.py",
    "MASTER_PORT=29999 python cli.py --nproc_per_node 1 --master_port 29999 train.py",
]


@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers)])
@pytest.mark.parametrize("text", STARTERS)
def test_a_program_that_starts_its_own_ranks_is_refused(as_process: Starter, text: str, method: str) -> None:
    job = run(as_process, text, "--method", method)
    assert job.end(120) == 78, job.err.text
    assert reason(job).startswith("ranks 0-1 each start ranks of their own (torchrun), which want ")
    assert "run it once per node: ranklaunch run --method plain -- train.sh" in reason(job)


def test_without_records_it_is_refused_too(as_process: Starter) -> None:
    job = run(as_process, STARTERS[0], "--method", "spawn", RANKLAUNCH_RANKSIDE="off")
    assert job.end(120) == 78, job.err.text


def test_it_may_be_allowed(as_process: Starter) -> None:
    job = run(as_process, STARTERS[0].replace("train.py", "quick.py"), "--method", "spawn", RANKLAUNCH_NESTED="allow")
    assert job.end(120) == 0, job.err.text


# Alone


ALONE = "$R --nproc_per_node 2 train.py"


@pytest.mark.parametrize(
    ("text", "env"),
    [
        pytest.param(ALONE, {"STEPS": "1000"}, id="they print a step"),
        pytest.param(ALONE, {"RANKLAUNCH_ALONE_S": "1"}, marks=pytest.mark.table, id="they last"),
        pytest.param(ALONE, {"STEPS": "1000", "RANKLAUNCH_RANKSIDE": "off"}, marks=pytest.mark.table, id="without records"),
        pytest.param(ALONE.replace("train.py", "quick.py"), {}, id="they end well"),
    ],
)
def test_nodes_that_work_alone_end_the_job(as_process: Starter, text: str, env: dict[str, str]) -> None:
    job = simulate(as_process, text, "--method", "plain", **env)
    assert job.end(120) == 78, job.err.text
    assert "works alone: its world has 2 of the 4 ranks of the job: write ranklaunch run --method torchrun -- " in job.err.text


def test_nodes_may_work_alone_where_they_are_to(as_process: Starter) -> None:
    job = simulate(as_process, ALONE, "--method", "plain", STEPS="5", RANKLAUNCH_EACH_NODE_ALONE="1")
    assert job.end(120) == 0, job.err.text


def test_ranks_of_two_nodes_with_one_place_end_the_job(as_process: Starter) -> None:
    text = "$R --nproc_per_node 2 --nnodes 2 --node_rank 0 --master_addr 127.0.0.1 train.py"
    job = simulate(as_process, text, "--method", "plain")
    assert job.end(120) == 78, job.err.text
    assert "ranks 0-1 of nodes 0 and 1 have the same place, rank 0 of 4, at 127.0.0.1:29500" in job.err.text


# Programs that only look so

MAIN = "$R --nproc_per_node 2 --nnodes 2 --node_rank $RANKLAUNCH_TEST_NODE --master_addr 127.0.0.1 train.py"
# The index of the node that a simulated job plays.
NODE = "RANKLAUNCH_TEST_NODE=0; case $RANKLAUNCH_OUTER_RUN in *node_1*) RANKLAUNCH_TEST_NODE=1;; esac\n"


TWO_NODES = {
    "the job alone": f"{NODE}{MAIN}",
    "preparation on each node": f"$R --nproc_per_node 2 quick.py; {NODE}{MAIN}",
    "an evaluation on each node": f"{NODE}{MAIN}; $R --nproc_per_node 2 quick.py",
    "independent jobs": "python train.py",
    "a sweep of independent jobs": "for i in 1 2; do STEPS=5 python train.py & done; wait",
    "a program that sets the variables itself": "RANK=0 WORLD_SIZE=1 python train.py",
}


@pytest.mark.parametrize("text", TWO_NODES.values(), ids=TWO_NODES)
@pytest.mark.table
def test_programs_of_two_nodes_that_are_right(as_process: Starter, text: str) -> None:
    job = simulate(as_process, text, "--method", "plain", STEPS="20", RANKLAUNCH_ALONE_S="1")
    assert job.end(120) == 0, job.err.text


RIGHT = {
    "all ranks evaluate later": "python train.py; $R --nproc_per_node 1 --master_port 2950$RANK quick.py",
    "one rank evaluates": "[ $RANK = 0 ] && $R --nproc_per_node 1 train.py; python train.py",
    "a sweep": "$R --nproc_per_node 1 --master_port 2950$RANK train.py",
    "a daemon": "python train.py; (python train.py &)",
    "a program in a program": "python -c 'import subprocess, sys; subprocess.run([sys.executable, \"train.py\"])'",
    "a rank number of the program's own": "RANK=7 python train.py",  # vLLM and Ray give their workers some
}
OF_TABLE = [pytest.param(text, id=name, marks=pytest.mark.table if i else []) for i, (name, text) in enumerate(RIGHT.items())]


@pytest.mark.parametrize("text", OF_TABLE)
def test_ranks_that_are_right(as_process: Starter, text: str) -> None:
    job = run(as_process, text, "--method", "spawn", STEPS="15")
    assert job.end(120) == 0, job.err.text


# Node 0 has ended


@pytest.mark.parametrize("keeps", ["sleep 600", "exec sleep 600", "sleep 600 & wait"])
def test_a_node_that_is_kept_for_others_ends_with_node_0(as_process: Starter, keeps: str) -> None:
    job = simulate(as_process, f"{NODE}[ $RANKLAUNCH_TEST_NODE = 0 ] || {keeps}", "--method", "plain")
    assert job.end(120) == 0, job.err.text


def test_a_node_that_hangs_after_node_0_ended_is_noticed(as_process: Starter) -> None:
    program = "import time\nprint('iter 0: loss 1.0', flush=True)\ntime.sleep(600)\n"
    (as_process.folder / "hangs.py").write_text(program)
    env = {"RANKLAUNCH_HANG": "stop", "RANKLAUNCH_HANG_S": "5", "RANKLAUNCH_FIRST_STEP_S": "5"}
    job = simulate(as_process, f"{NODE}[ $RANKLAUNCH_TEST_NODE = 0 ] || exec python hangs.py", "--method", "plain", **env)
    assert job.end(120) == 75, job.err.text
    assert "the job hangs" in job.err.text
