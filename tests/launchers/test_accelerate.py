"""The real accelerate on two hosts: it trains, it fails as its ranks fail, it stops, and it ends."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import HOSTILE

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.jobs.processes import command_of
from testbench.places import EXAMPLES, child

pytestmark = [
    pytest.mark.launchers,
    pytest.mark.skipif(not importlib.util.find_spec("accelerate"), reason="accelerate is not installed"),
]

MakeJob = Callable[..., LauncherJob]


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path) -> MakeJob:
    return lambda nodes=2, **how: LauncherJob(hosts(nodes), tmp_path, "accelerate", **how)


def test_digits_are_learned_and_learning_goes_on(job: MakeJob, tmp_path: Path) -> None:
    trained = job(slots=1)
    trained.start(EXAMPLES / "accelerate_digits.py", "--epochs", 2, "--checkpoint", tmp_path / "digits")
    assert trained.end(0)["reason"] == "all 2 ranks on 2 nodes succeeded"
    lines = [line for node in trained.nodes for line in node.out.splitlines()]
    assert "[rank 0] 2 ranks, mixed precision no; ignored arguments: []" in lines
    assert sorted(line.partition(" epoch")[0] for line in lines if "epoch 2/2" in line) == ["[rank 0]", "[rank 1]"]
    accuracy = next(float(line.split()[-1].rstrip("%")) for line in lines if "epoch 2/2" in line and "accuracy" in line)
    assert accuracy > 80
    assert "epoch 2/2" in trained.nodes[1].log("rank_1.log")
    assert [folder.name for folder in sorted((tmp_path / "digits").iterdir())] == ["saved-000001-000000", "saved-000002-000000"]


def test_a_configuration_of_the_users_own_has_this_jobs_place_put_in(job: MakeJob, tmp_path: Path) -> None:
    """What `accelerate config` once left in the home folder: of one machine, and elsewhere."""
    left = tmp_path / ".cache" / "huggingface" / "accelerate" / "default_config.yaml"
    left.parent.mkdir(parents=True)
    place = "num_machines: 1\nnum_processes: 1\nmain_process_ip: 192.0.2.1\nmain_process_port: 1\nmachine_rank: 0\n"
    left.write_text(f"compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n{place}mixed_precision: bf16\nuse_cpu: true\n")
    told = job()
    told.start(child("environment.py"), "--env", "RANK,WORLD_SIZE,ACCELERATE_*")
    assert told.end(0)["outcome"] == "succeeded"
    environments = [said["env"] for said in _said(told)]
    assert sorted((env["RANK"], env["WORLD_SIZE"]) for env in environments) == [(str(rank), "4") for rank in range(4)]
    assert {env["ACCELERATE_MIXED_PRECISION"] for env in environments} == {"bf16"}


def _said(job: LauncherJob) -> list[dict[str, Any]]:
    """By each rank; PyTorch may warn between them of a store that is gone already."""
    return [json.loads(line.partition("] ")[2]) for node in job.nodes for line in node.out.splitlines() if '"env"' in line]


@pytest.mark.parametrize(
    ("extra", "nodes"), [("--use_fsdp --fsdp_version 2", 1), pytest.param("--use_deepspeed --zero_stage 2", 2, marks=pytest.mark.table)]
)
def test_other_ways_to_train_are_asked_for(job: MakeJob, extra: str, nodes: int) -> None:
    """There is no device here on which they would train; their launchers start the ranks, and say what is wanted."""
    if "deepspeed" in extra and not importlib.util.find_spec("deepspeed"):
        pytest.skip("DeepSpeed is not installed")
    asked = job(nodes=nodes)
    asked.start(child("environment.py"), "--env", "RANK,ACCELERATE_*", env={"RANKLAUNCH_EXTRA_ACCELERATE_PARAMS": extra})
    assert asked.end(0)["outcome"] == "succeeded"
    name = "ACCELERATE_USE_FSDP" if "fsdp" in extra else "ACCELERATE_USE_DEEPSPEED"
    assert sorted((env["env"]["RANK"], env["env"][name]) for env in _said(asked)) == [(str(rank), "true") for rank in range(2 * nodes)]


def test_the_arguments_of_one_rank_arrive_as_they_are(job: MakeJob, tmp_path: Path) -> None:
    program = tmp_path / "args.py"
    program.write_text("import json, os, sys\nprint(json.dumps([os.environ['WORLD_SIZE'], *sys.argv[1:]]), flush=True)\n")
    words = ["first"] + [value for name, value in HOSTILE.items() if len(value) < 1000 and "UTF-8" not in name]
    given = job(nodes=1, slots=1)
    given.start(program, *words, env={"LANG": "C.UTF-8"})
    given.end(0)
    assert json.loads(given.nodes[0].log("rank_0.log")) == ["1", *words]


@pytest.mark.parametrize("first", [pytest.param("", id="empty"), pytest.param("-", id="dash", marks=pytest.mark.table)])
def test_first_arguments_on_which_it_fails(tmp_path: Path, first: str) -> None:
    """If this fails, accelerate has learned to take them: docs/launchers.md is to say so."""
    argv = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--num_processes", "2"]
    more = ["--main_process_port", "0", "--mixed_precision", "no", "--dynamo_backend", "no", child("exits.py"), first]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C"}
    done = subprocess.run([*argv, *more], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, "unhashable type: 'list'" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        pytest.param(("exits.py", 42), 42, None, id="exits", marks=pytest.mark.table),
        pytest.param(("killed.py",), 137, "SIGKILL", id="killed"),
    ],
)
def test_its_one_becomes_the_ranks_own_code(job: MakeJob, words: tuple[object, ...], code: int, name: str | None) -> None:
    failed = job()
    failed.start(child(str(words[0])), *words[1:], "--rank", 3)
    verdict = failed.end(code)
    culprit = verdict["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["signal"]) == (1, 3, name)
    assert "rank 3 on node 1 (h1)" in verdict["reason"]
    assert culprit["last_lines"][0] == "ready"
    victims = {(victim["node"], victim["rank"]) for node in failed.nodes for victim in node.verdict["victims"]}
    assert (1, 2) in victims


def test_a_program_that_saves_on_a_stop_request_has_time_to(job: MakeJob) -> None:
    stopped = job()
    stopped.start(child("saves_on_term.py"))
    for node in (0, 1):
        stopped.said(node, "ready", times=2)
    stopped.nodes[1].popen.send_signal(signal.SIGTERM)
    assert stopped.end(143)["outcome"] == "stopped"
    assert [node.out.count("] saved\n") for node in stopped.nodes] == [2, 2]


@pytest.mark.table
def test_the_example_saves_on_a_stop_request(job: MakeJob, tmp_path: Path) -> None:
    stopped = job()
    stopped.start(EXAMPLES / "accelerate_digits.py", "--epochs", 1000, "--checkpoint", tmp_path / "digits")
    stopped.said(0, "epoch 1/1000", times=2)
    stopped.nodes[0].popen.send_signal(signal.SIGTERM)
    stopped.end(143)
    assert "the next start goes on there" in stopped.nodes[0].out


NO_END_TRAINING = """
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model, optimizer = accelerator.prepare(torch.nn.Linear(4, 2), torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1))
accelerator.backward(model(torch.ones(8, 4)).sum())
print("trained", accelerator.process_index, accelerator.num_processes, flush=True)
"""


def test_a_program_that_ends_without_saying_so(job: MakeJob, tmp_path: Path) -> None:
    """PyTorch then ends well or, where threads of its own are slower, aborts: https://github.com/pytorch/pytorch/issues/190489."""
    program = tmp_path / "train.py"
    program.write_text(NO_END_TRAINING)
    ended = job(nodes=1)
    ended.start(program)
    code = ended.nodes[0].popen.wait(LONG_S)
    assert code in (0, 134)
    verdict = ended.end(code)
    if code:
        assert verdict["culprit"]["error"]["name"] == "torch-process-group-left"
        assert verdict["culprit"]["signal"] == "SIGABRT"
        return
    assert sorted(line for node in ended.nodes for line in node.out.splitlines() if "trained" in line) == [
        f"[rank {rank}] trained {rank} 2" for rank in range(2)
    ]


def test_a_launcher_that_hangs_when_its_ranks_have_ended(job: MakeJob, tmp_path: Path) -> None:
    """It is stopped by a signal here, for want of a way to make it hang by itself. What its ranks ended with, nobody knows then."""
    program = tmp_path / "train.py"
    program.write_text("import time\nprint('ready', flush=True)\ntime.sleep(20)\n")  # long enough for ranklaunch to have seen its ranks
    hanging = job(nodes=1)
    hanging.start(program)
    hanging.said(0, "ready", times=2)
    (launcher,) = (
        pid for pid in hanging.nodes[0].host.pids() if "accelerate launch" in command_of(pid) and "--main_process_ip" in command_of(pid)
    )
    os.kill(launcher, signal.SIGSTOP)
    verdict = hanging.end(75)
    assert verdict["outcome"] == "failed"
    assert re.fullmatch("accelerate has not ended [0-9]+ s after the last of its ranks", verdict["reason"])


@pytest.mark.table
def test_ranks_that_accelerate_does_not_know_of_train_alone(tmp_path: Path) -> None:
    """Why ranklaunch sets ACCELERATE_USE_CPU: without a device and without it, each rank believes that it is the only one."""
    program = tmp_path / "who.py"
    program.write_text('import os\nfrom accelerate import Accelerator\nos.write(1, b"%d\\n" % Accelerator().num_processes)\n')
    told = {}
    for cpu in ({}, {"ACCELERATE_USE_CPU": "true"}):
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C", "OMP_NUM_THREADS": "1", **cpu}
        argv = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--num_processes", "2"]
        more = ["--main_process_port", "0", "--mixed_precision", "no", "--dynamo_backend", "no"]
        done = subprocess.run([*argv, *more, str(program)], env=env, capture_output=True, text=True, timeout=240, check=False)
        told[bool(cpu)] = [line for line in done.stdout.splitlines() if line.isdigit()]
    assert told == {False: ["1", "1"], True: ["2", "2"]}


ONE_PROCESS = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_CPU", "num_machines": 2, "num_processes": 4}


def test_a_configuration_by_which_each_node_trains_alone_is_refused(job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(ONE_PROCESS))
    refused = job()
    refused.start(child("prints.py"), env={"RANKLAUNCH_EXTRA_ACCELERATE_PARAMS": "--config_file mine.json"})
    assert "distributed_type MULTI_CPU" in refused.end(78)["reason"]
    assert [node.out for node in refused.nodes] == ["", ""]
