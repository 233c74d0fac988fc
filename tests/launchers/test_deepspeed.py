"""The real DeepSpeed on two hosts: it trains; how a job ends whose rank fails or is killed, that is stopped, or whose launcher dies."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ranklaunch.plan import ds_config
from testbench.hosts import Entered, Host, Hosts
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH, attempts
from testbench.jobs.processes import command_of
from testbench.places import EXAMPLES, ROOT, child
from testbench.waiting import ranks_ready, sleep_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.launchers,
    pytest.mark.skipif(not importlib.util.find_spec("deepspeed"), reason="DeepSpeed is not installed"),
]

LONG_S = 300  # DeepSpeed is imported three times for a rank, on two busy cores
SLOTS = 2


class Node:
    def __init__(self, popen: Entered, host: Host, log_dir: Path, out: Path) -> None:
        self.popen, self.host, self.log_dir, self._out = popen, host, log_dir, out

    @property
    def text(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def attempt(self) -> Path:
        (found,) = attempts(self.log_dir)
        return found

    @property
    def verdict(self) -> dict[str, Any]:
        return checked_verdict(self.attempt / "verdict.json")


class Job:
    def __init__(self, hosts: Hosts, folder: Path, slots: int = SLOTS) -> None:
        self.hosts, self._folder, self.slots = hosts, folder, slots
        self.nodes: list[Node] = []

    def start(self, program: object, *args: object, **env: str) -> None:
        self.nodes = [self._start(host, (program, *args), env) for host in self.hosts]

    def _start(self, host: Host, words: tuple[object, ...], more: dict[str, str]) -> Node:
        out, log_dir = self._folder / f"node{host.index}.out", self._folder / f"logs{host.index}"
        options = ("--method", "deepspeed", "--slots", self.slots, "--grace-s", 10, "--log-dir", log_dir)
        with open(out, "wb") as written:
            popen = host.popen(
                [*RANKLAUNCH, "run", "--python", sys.executable, *options, "--", *words],
                env=self._environment(host, more), cwd=self._folder, stdin=subprocess.DEVNULL, stdout=written, stderr=written,
            )  # fmt: skip
        return Node(popen, host, log_dir, out)

    def _environment(self, host: Host, more: dict[str, str]) -> dict[str, str]:
        kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        names = {"RANKLAUNCH_HOSTS": ",".join(host.name for host in self.hosts), "RANKLAUNCH_NODE": str(host.index)}
        env = {name: os.environ[name] for name in kept if name in os.environ}
        return {**env, **names, "LANG": "C", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **more}

    def wait_until_said(self, text: str, times: int = SLOTS) -> None:
        """By as many ranks of every node."""
        sleep_until(lambda: all(node.text.count(text) >= times for node in self.nodes), self.words, LONG_S)

    def end(self) -> list[int]:
        sleep_until(lambda: all([node.popen.poll() is not None for node in self.nodes]), self.words, LONG_S)  # noqa: C419 - each looks
        for node in self.nodes:
            assert not node.host.pids(), f"left on {node.host}: {[command_of(pid) for pid in node.host.pids()]}"
        return [node.popen.returncode for node in self.nodes]

    def words(self) -> str:
        return "\n".join(f"{node.host.name}:\n{node.text}" for node in self.nodes)


@pytest.fixture
def chosen(hosts: Callable[..., Hosts], tmp_path: Path) -> Iterator[Job]:
    """Of three nodes with four slots, of which some are chosen."""
    made = Job(hosts(3), tmp_path, slots=4)
    yield made
    for node in made.nodes:
        node.popen.kill()
        node.popen.wait(LONG_S)


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path) -> Iterator[Job]:
    made = Job(hosts(2), tmp_path)
    yield made
    for node in made.nodes:  # of a test that failed
        node.popen.kill()
        node.popen.wait(LONG_S)


def deepspeed_takes(numbers: dict[str, int], ranks: int) -> bool:
    from deepspeed.runtime.config import DeepSpeedConfig

    config: Any = DeepSpeedConfig.__new__(DeepSpeedConfig)
    config.world_size = ranks
    for name in (ds_config.TRAIN, ds_config.MICRO, ds_config.STEPS):
        setattr(config, name, numbers.get(name))
    try:
        config._configure_train_batch_size()
    except AssertionError:
        return False
    return True


def test_batch_sizes_are_judged_as_by_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # which it sets itself
    choices = itertools.product(range(1, 25), (None, 1, 2, 3, 5), (None, 1, 2, 3), range(1, 7))
    for *given, ranks in choices:
        numbers = {name: n for name, n in zip((ds_config.TRAIN, ds_config.MICRO, ds_config.STEPS), given) if n is not None}
        assert ds_config.fits(numbers, ranks) == deepspeed_takes(numbers, ranks), (numbers, ranks)


def test_digits_are_learned(job: Job, tmp_path: Path) -> None:
    job.slots = 1
    job.start(EXAMPLES / "deepspeed_digits.py", "--epochs", 2, "--checkpoint", tmp_path / "digits")
    assert job.end() == [0, 0], job.words()
    for node in job.nodes:
        rank = node.host.index
        losses = [float(line.split()[5]) for line in node.lines if line.startswith(f"[rank {rank}] epoch")]
        assert len(losses) == 2
        assert losses[1] < losses[0]
        assert "epoch 2/2" in (node.attempt / f"rank_{rank}.log").read_text()
    # Every rank has saved its own part of the optimizer's state.
    digits = tmp_path / "digits"
    assert len(list((digits / (digits / "latest").read_text()).glob("zero_pp_rank_*"))) == 2


@pytest.mark.table
def test_a_host_without_a_name_takes_part(job: Job) -> None:
    """As on platforms that name node 0 alone: its launcher on each node has no use for the others' names."""
    unnamed = {"RANKLAUNCH_HOSTS": "", "RANKLAUNCH_NODES": "2", "RANKLAUNCH_MASTER_ADDR": "h0"}
    job.hosts.unname(None, "h1")
    job.start(child("sums.py"), **unnamed)
    assert job.end() == [0, 0], job.words()
    for node in job.nodes:
        assert (node.attempt / "hostfile").read_text() == "h0 slots=2\nunnamed-1 slots=2\n"
        ranks = (2 * node.host.index, 2 * node.host.index + 1)
        assert sorted(line for line in node.lines if " place " in line) == [f"[rank {rank}] place {rank} sum 4" for rank in ranks]


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [(("exits.py", 42), 42, None), pytest.param(("killed.py",), 137, "SIGKILL", marks=pytest.mark.table)],  # by pdsh, one is killed
)
def test_a_ranks_end_is_the_jobs(job: Job, words: tuple[Any, ...], code: int, name: str | None) -> None:
    """DeepSpeed itself ends with 42 and 247, on that node alone, and does not say which rank it was."""
    job.start(child(words[0]), *words[1:], "--rank", 2)
    assert job.end() == [code, code], job.words()
    for node in job.nodes:
        found = node.verdict["culprit"]
        assert (found["node"], found["rank"], found["exit_code"], found["signal"]) == (1, 2, code, name), node.verdict
        assert found["last_lines"][0] == "ready"
    assert {"node": 1, "rank": 3, "signal": "SIGTERM", "name": "rank 3"} in job.nodes[1].verdict["victims"]


@pytest.mark.parametrize(
    ("rank_logs", "reason"),
    [
        ("", "rank 1 on node 0 was killed by SIGKILL; among the last lines of all ranks: ready"),
        ("--enable_each_rank_log own", "rank 1 on node 0 was killed by SIGKILL; the kernel killed nothing"),
    ],
)
def test_ranks_that_share_its_output_are_told_apart(alone: Job, tmp_path: Path, rank_logs: str, reason: str) -> None:
    """By a template without files for them, or with others; launch.py says only how one has ended."""
    template = tmp_path / "own" / "deepspeed" / "command.j2"
    template.parent.mkdir(parents=True)
    shipped = (ROOT / "templates" / "deepspeed" / "command.j2").read_text()
    template.write_text(shipped.replace("--enable_each_rank_log {{ rank_logs }}", rank_logs))
    alone.start(child("killed.py"), "--rank", 1, RANKLAUNCH_TEMPLATES=str(tmp_path / "own"))
    assert alone.end() == [137], alone.words()
    verdict = alone.nodes[0].verdict
    assert verdict["reason"].startswith(reason)
    assert (verdict["culprit"]["rank"], verdict["culprit"]["signal"]) == (1, "SIGKILL")


# Rank 0 has trained for long, has another deepspeed evaluate, and gets over its failure.
EVALUATES = """
import os, subprocess, sys, time
if os.environ["RANK"] != "0":
    time.sleep(600)
time.sleep(1)
for step in range(2000):
    print("step", step, "loss", 1 / (step + 1))
sys.stdout.flush()
env = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
evaluation = ["--no_python", "--no_local_rank", "sh", "-c", "echo ERROR: no data; exit 3"]
words = ["--hostfile", "/dev/null", "--num_gpus", "1", "--master_port", "29777", *evaluation]
print("evaluated:", subprocess.run(["deepspeed", *words], env=env).returncode, flush=True)
time.sleep(2)
raise ValueError("loss went away")
"""


def test_a_deepspeed_that_a_rank_has_started_tells_of_its_own_ranks(alone: Job, tmp_path: Path) -> None:
    """Into the output of the first, which the ranks share by a template without files for them."""
    template = tmp_path / "own" / "deepspeed" / "command.j2"
    template.parent.mkdir(parents=True)
    shipped = (ROOT / "templates" / "deepspeed" / "command.j2").read_text()
    template.write_text(shipped.replace("--enable_each_rank_log {{ rank_logs }}", ""))
    program = tmp_path / "train.py"
    program.write_text(EVALUATES)
    alone.start(program, RANKLAUNCH_TEMPLATES=str(tmp_path / "own"))
    assert alone.end() == [1], alone.words()
    verdict = alone.nodes[0].verdict
    assert verdict["reason"].endswith("exited with code 1: ValueError: loss went away")
    assert verdict["culprit"]["rank"] == 0


ALL_ARE_THERE = """
import json, os, socket, sys, time
world, rank, told = int(os.environ["WORLD_SIZE"]), os.environ["RANK"], sys.argv[-1]
names = ("LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES", "FOO", "BAR")
seen = {"host": socket.gethostname(), **{name: os.environ.get(name) for name in names}}
with open(f"{told}/{rank}.part", "w") as file:
    json.dump(seen, file)
os.rename(f"{told}/{rank}.part", f"{told}/{rank}.json")
while len([name for name in os.listdir(told) if name.endswith(".json")]) < world:
    time.sleep(0.05)
time.sleep(0 if rank == str(world - 1) else 600)
sys.exit(42)
"""


def told_by(folder: Path) -> list[dict[str, str]]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(len(list(folder.glob("*.json"))))]


def test_only_what_was_chosen_starts(chosen: Job, tmp_path: Path) -> None:
    """DeepSpeed's accelerator for CPUs calls its devices as that for GPUs does. The third node has the failure's code of the others."""
    told, program = tmp_path / "told", tmp_path / "program.py"
    told.mkdir()
    program.write_text(ALL_ARE_THERE)
    chosen.start(program, told, RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS="-i h0@h1:0,2")
    assert chosen.end() == [42, 42, 42], chosen.words()
    found = told_by(told)
    assert [each["host"] for each in found] == ["h0"] * 4 + ["h1"] * 2
    assert [each["LOCAL_RANK"] for each in found] == ["0", "1", "2", "3", "0", "1"]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in found] == ["0,1,2,3"] * 4 + ["0,2"] * 2
    for node in chosen.nodes:
        culprit = node.verdict["culprit"]
        assert (culprit["node"], culprit["rank"], culprit["host"]) == (1, 5, "h1")
    assert "[rank" not in chosen.nodes[2].text


def test_a_stop_request_reaches_the_ranks(job: Job) -> None:
    """DeepSpeed's runner would die of it and leave its launch.py and the ranks."""
    job.start(child("saves_on_term.py"))
    job.wait_until_said("] ready")
    job.nodes[1].popen.send_signal(signal.SIGTERM)
    assert job.end() == [143, 143], job.words()
    for node in job.nodes:
        assert node.verdict["reason"] == "node 1 (h1): stopped by SIGTERM"
        assert sum(line.endswith("] saved") for line in node.lines) == SLOTS, node.text


def test_its_success_is_not_believed_when_a_part_of_it_was_killed(job: Job) -> None:
    """The runner ends with 0 when launch.py is killed, while the ranks go on."""
    job.start(child("sleeper.py"))
    job.wait_until_said("] ready")
    launch = next(pid for pid in job.nodes[1].host.pids() if "deepspeed.launcher.launch" in command_of(pid))
    os.kill(launch, signal.SIGKILL)
    assert job.end() == [137, 137], job.words()
    for node in job.nodes:
        assert "node 1 (h1): deepspeed ended with 0 while ranks 2, 3 were still running" in node.verdict["reason"]


DIES_FIRST = """
import os, signal, sys
if "deepspeed.launcher.launch" in sys.orig_argv and "--node_rank=1" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nor_when_that_was_killed_before_it_had_started_ranks(job: Job, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES_FIRST)
    job.start(child("sleeper.py"), PYTHONPATH=str(tmp_path))
    assert job.end() == [137, 137], job.words()
    for node in job.nodes:
        assert "node 1 (h1): deepspeed ended with 0 before a rank had started" in node.verdict["reason"]


SAVES = """
import json, os, signal, sys, time
def save(number, frame):
    time.sleep(2)
    open(f"{os.path.dirname(__file__)}/saved-{os.environ['RANK']}", "w").close()
    print("has saved", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
told = json.dumps([os.environ[name] for name in ("RANK", "WORLD_SIZE", "COST")])
print(f"can save {told}\\n", end="", flush=True)
time.sleep(600)
"""
PDSH = {"RANKLAUNCH_DEEPSPEED_LAUNCHER": "pdsh"}


KILLED = """
import os, signal, time
if os.environ["RANK"] == "2":
    open(f"{os.path.dirname(__file__)}/killed", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""
LATE = """
import os, sys, time
if "deepspeed.launcher.launch" in sys.orig_argv and "--node_rank=0" in sys.orig_argv:
    while not os.path.exists(f"{os.path.dirname(__file__)}/killed"):
        time.sleep(0.05)
    time.sleep(3)
"""


@pytest.mark.table  # by pdsh, and of some nodes, are tests of their own
@pytest.mark.skipif(not shutil.which("pdsh") or not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs pdsh and sshd")
def test_from_the_first_node_that_takes_part(chosen: Job, tmp_path: Path) -> None:
    """Each finds its line of the hostfile. What is in .deepspeed_env reaches the ranks of the other nodes."""
    told, program = tmp_path / "told", tmp_path / "program.py"
    told.mkdir()
    program.write_text(ALL_ARE_THERE)
    (tmp_path / "hosts").write_text("# the cluster\nh0 slots=2\nh1 slots=2\nh2 slots=2\n")
    (tmp_path / ".deepspeed_env").write_text("FOO=from the file\nBAR=$NONE-$FOO.\n")
    found = {"RANKLAUNCH_HOSTS": "", "RANKLAUNCH_NODE": "", "RANKLAUNCH_HOSTFILE": str(tmp_path / "hosts")}
    chosen.start(program, told, **PDSH, **found, RANKLAUNCH_EXCLUDE="h0@h2:0,2,3", RANKLAUNCH_RUN_DIR=str(tmp_path))
    assert chosen.end() == [42, 42, 42], chosen.words()
    seen = told_by(told)
    assert [each["host"] for each in seen] == ["h1"] * 4 + ["h2"]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in seen] == ["0,1,2,3"] * 4 + ["1"]
    assert {(each["MASTER_ADDR"], each["FOO"], each["BAR"]) for each in seen} == {("h1", "from the file", "-from the file.")}
    assert [node.verdict["culprit"]["node"] for node in chosen.nodes] == [1, 1, 1]


@pytest.mark.skipif(not shutil.which("pdsh") or not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs pdsh and sshd")
def test_from_node_0_a_ranks_end_is_the_jobs(job: Job, tmp_path: Path) -> None:
    """Although another node starts its ranks only after that."""
    program = tmp_path / "program.py"
    program.write_text(KILLED)
    (tmp_path / "sitecustomize.py").write_text(LATE)
    job.start(program, **PDSH, RANKLAUNCH_RUN_DIR=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert job.end() == [137, 137], job.words()
    for node in job.nodes:
        found = node.verdict["culprit"]
        assert (found["node"], found["exit_code"], found["signal"]) == (1, 137, "SIGKILL"), node.verdict


@pytest.mark.skipif(not shutil.which("pdsh") or not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs pdsh and sshd")
def test_from_node_0_every_rank_has_the_grace(job: Job, tmp_path: Path) -> None:
    """Its launch.py would tell one after the other, and pdsh ends all when it is told itself. What the ranks are told comes by it, too."""
    program, cost = tmp_path / "program.py", '5$ "x" `y` %h a b'
    program.write_text(SAVES)
    job.start(program, **PDSH, RANKLAUNCH_RUN_DIR=str(tmp_path), COST=cost)

    def told() -> list[list[str]]:  # they share pdsh's output, so that two may stand on one line
        return sorted(json.loads(text) for text in re.findall(r"can save (\[.*?\])", job.nodes[0].text))

    sleep_until(lambda: len(told()) == 2 * SLOTS, job.words, LONG_S)
    assert told() == [[str(rank), "4", cost] for rank in range(4)]
    job.nodes[1].popen.send_signal(signal.SIGTERM)
    assert job.end() == [143, 143], job.words()
    assert sorted(tmp_path.glob("saved-*")) == [tmp_path / f"saved-{rank}" for rank in range(2 * SLOTS)], job.words()
    assert job.nodes[0].text.count("has saved") == 2 * SLOTS, job.words()  # pdsh, which was not told, has brought it here


WITHOUT_END = "node 0 (h0): deepspeed ended with 0, but the process that it had started for the ranks did not end by itself: it was killed"
OF_PDSH = {  # by what is in its command, and what is said
    "itself": ("-S -f", "deepspeed on node 0 (h0) exited with code 137: "),
    "what runs it": ("/runner/pdsh", WITHOUT_END),
}


@pytest.mark.skipif(not shutil.which("pdsh") or not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs pdsh and sshd")
@pytest.mark.parametrize("part", [pytest.param("itself", marks=pytest.mark.table), "what runs it"])
def test_from_node_0_its_success_is_not_believed_when_what_it_had_started_was_killed(job: Job, tmp_path: Path, part: str) -> None:
    """The runner takes the end of a program that a signal has killed for success."""
    text, reason = OF_PDSH[part]
    (tmp_path / "program.py").write_text(SAVES)
    job.start(tmp_path / "program.py", **PDSH, RANKLAUNCH_RUN_DIR=str(tmp_path), COST="1")
    sleep_until(lambda: job.nodes[0].text.count("can save") == 2 * SLOTS, job.words, LONG_S)
    found = [pid for pid in job.nodes[0].host.pids() if text in command_of(pid) and "pdsh" in command_of(pid)]
    os.kill(found[-1], signal.SIGKILL)
    assert job.end() == [137, 137], job.words()
    for node in job.nodes:
        assert node.verdict["reason"].startswith(reason), node.verdict["reason"]


@pytest.mark.skipif(not shutil.which("pdsh") or not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs pdsh and sshd")
@pytest.mark.parametrize("where", [1, pytest.param(0, marks=pytest.mark.table)])  # the other's ranks are ended, and say so
def test_from_node_0_a_part_of_it_that_is_killed_ends_the_job(job: Job, tmp_path: Path, where: int) -> None:
    """pdsh says so of ssh, and waits for the other node."""
    job.start(child("sleeper.py"), **PDSH, RANKLAUNCH_RUN_DIR=str(tmp_path))
    sleep_until(lambda: ranks_ready(job.nodes[0].text) == 2 * SLOTS, job.words, LONG_S)
    pids = job.nodes[where].host.pids()
    launch = [pid for pid in pids if "-m deepspeed.launcher.launch" in command_of(pid) and command_of(pid).startswith(sys.executable)]
    os.kill(launch[-1], signal.SIGKILL)
    assert job.end() == [137, 137], job.words()
    for node in job.nodes:
        said = f"launch.py on node {where} (h{where}) was killed by SIGKILL; among the last lines of all ranks: ready"
        assert node.verdict["reason"].startswith(said)


@pytest.mark.table  # mpirun has the same in test_mpirun.py
@pytest.mark.skipif(not shutil.which("pdsh") or not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs pdsh and sshd")
def test_from_node_0_what_ranks_leave_behind_does_not_hold_up_the_end(job: Job, tmp_path: Path) -> None:
    """pdsh waits until nobody has its ranks' pipes any more, on each node."""
    program = tmp_path / "leaves.sh"
    program.write_text("(setsid sleep 600 &)\n")
    job.start(program, **PDSH, RANKLAUNCH_RUN_DIR=str(tmp_path))
    assert job.end() == [0, 0], job.words()
    for node in job.nodes:
        (note,) = node.verdict["notes"]
        assert note.startswith("ended processes that the program left behind: ")


def test_what_a_rank_is_told(job: Job) -> None:
    hostile = ["--", "a b", "$HOME", "--", "*", 'say "hi"', "it's", ""]
    job.start(child("environment.py"), *hostile)
    assert job.end() == [0, 0], job.words()
    for rank in range(2 * SLOTS):
        node = job.nodes[rank // SLOTS]
        told = json.loads((node.attempt / f"rank_{rank}.log").read_text())
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank % SLOTS), "WORLD_SIZE": "4", "MASTER_ADDR": "h0", "MASTER_PORT": "29500"}
        assert {name: told["env"][name] for name in place} == place
        assert told["argv"] == [f"--local_rank={rank % SLOTS}", *hostile]


@pytest.fixture
def alone(hosts: Callable[..., Hosts], tmp_path: Path) -> Iterator[Job]:
    made = Job(hosts(1), tmp_path)
    yield made
    for node in made.nodes:
        node.popen.kill()
        node.popen.wait(LONG_S)


@pytest.mark.table  # those of two are in test_only_what_was_chosen_starts
def test_devices_of_one_node_are_those_that_were_chosen(alone: Job) -> None:
    """DeepSpeed's accelerator for CPUs calls its devices as that for GPUs does, and has as many as LOCAL_SIZE says."""
    chosen = {"CUDA_VISIBLE_DEVICES": "4,5", "LOCAL_SIZE": "8", "RANKLAUNCH_ACCELERATOR": "gpu"}
    alone.start(child("environment.py"), "--env", "LOCAL_RANK,CUDA_VISIBLE_DEVICES", **chosen)
    assert alone.end() == [0]
    for rank in range(SLOTS):
        found = json.loads((alone.nodes[0].attempt / f"rank_{rank}.log").read_text().splitlines()[0])
        assert found["env"] == {"LOCAL_RANK": str(rank), "CUDA_VISIBLE_DEVICES": "4,5"}
