"""torchrun for real on two hosts, where it is too slow to say what became of its ranks."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.jobs.processes import command_of
from testbench.waiting import sleep_until

# The last rank waits to be killed; rank 0 dies of that.
PROGRAM = """
import os, pathlib, sys, time
print("ready", os.getpid(), flush=True)
while os.environ["RANK"] != "0" or not pathlib.Path("killed").exists():
    time.sleep(0.02)
sys.exit("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.11]:1234")
"""

pytestmark = pytest.mark.launchers


def ready(hosts: Hosts, folder: Path, text: str) -> tuple[LauncherJob, int, list[int]]:
    """A job of two ranks on each host, all of which are ready; the last node's torchrun, and its ranks."""
    program = folder / "train.py"
    program.write_text(text)
    job = LauncherJob(hosts, folder, "torchrun")
    job.start(program)
    for node in range(len(job.nodes)):
        job.said(node, "ready", times=2)
    commands = {pid: command_of(pid) for pid in job.nodes[-1].host.pids()}
    (torchrun,) = [pid for pid, command in commands.items() if "--nproc_per_node" in command]
    ranks = [pid for pid, command in commands.items() if command.endswith(f" -u {program}")]
    assert len(ranks) == 2, commands
    return job, torchrun, ranks


def test_a_rank_that_was_killed_is_known_before_torchrun_says_so(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Another node's word to stop comes first here, and torchrun, which is held up, says nothing at all."""
    job, torchrun, ranks = ready(hosts(2), tmp_path, PROGRAM)
    os.kill(torchrun, signal.SIGSTOP)
    os.kill(ranks[0], signal.SIGKILL)
    (tmp_path / "killed").touch()
    culprit = job.end(137)["culprit"]
    assert (culprit["node"], culprit["signal"]) == (1, "SIGKILL")
    assert culprit["rank"] in (2, 3)


# Rank 0 dies of what became of the last rank, at once: torchrun's own words do not tell which of both was first.
ENDS_AFTER = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
if os.environ["RANK"] == "3":
    print("ERROR: the quota of this folder is used up", file=sys.stderr, flush=True)
    open("ended", "w").close()
    os._exit(255)
while os.environ["RANK"] != "0" or not os.path.exists("ended"):
    time.sleep(0.005)
sys.exit("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.11]:1234")
"""


def of_rank(job: LauncherJob, rank: int) -> str:
    """The events that name it; none while its node has not begun."""
    try:
        lines = job.nodes[rank // 2].log("events.jsonl").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(line for line in lines if f'"rank {rank}"' in line)


@pytest.mark.parametrize(
    ("options", "shown"), [("--redirects 3 --log-dir kept", 0), ("--tee 3", 2), ("-r 1 -t 2", 0), ("--redirects 1 --tee 0:3", 1)]
)
def test_files_that_the_user_has_ranks_write_tell_why_one_has_failed(
    hosts: Callable[[int], Hosts], tmp_path: Path, options: str, shown: int
) -> None:
    """Both nodes write into one folder of the user's, or into temporary ones; a rank's stderr may be on the console. What is not shown
    there is not shown here."""
    program = tmp_path / "train.py"
    program.write_text(ENDS_AFTER)
    job = LauncherJob(hosts(2), tmp_path, "torchrun")
    job.start(program, env={"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": options})
    sleep_until(lambda: '"first output"' in of_rank(job, 0) and '"first output"' in of_rank(job, 3), job.words, LONG_S)
    (tmp_path / "go").touch()
    verdict = job.end(255)
    culprit = verdict["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["exit_code"]) == (1, 3, 255)
    assert verdict["reason"].endswith("exited with code 255: ERROR: the quota of this folder is used up")
    assert job.nodes[0].out.count("ready") == shown


# Rank 1 has another torchrun evaluate, and gets over its failure. Where the first rank of two ends, the other is ended.
EVALUATES = """
import os, subprocess, sys, time
if os.environ["RANK"] != "1":
    time.sleep(600)
time.sleep(1)
outer = ("TORCHELASTIC", "PET_", "GROUP_", "ROLE_", "MASTER_", "RANK", "LOCAL_", "WORLD_SIZE")
env = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
code = "import os, sys, time; time.sleep(600) if os.environ['RANK'] == '1' else sys.exit(3)"
done = subprocess.run(["torchrun", "--standalone", "--nproc-per-node", "2", "--no-python", sys.executable, "-c", code], env=env)
print("evaluated:", done.returncode, file=sys.stderr, flush=True)
time.sleep(1)
os.kill(os.getpid(), 9)
"""


def test_a_torchrun_that_a_rank_has_started_tells_of_its_own_ranks(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Into the output of the first, which all ranks share here, and in the same words."""
    program = tmp_path / "train.py"
    program.write_text(EVALUATES)
    job = LauncherJob(hosts(1), tmp_path, "torchrun")
    job.start(program, env={"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--redirects 1 --log-dir kept"})
    verdict = job.end(137)
    culprit = verdict["culprit"]
    assert (culprit["rank"], culprit["signal"]) == (1, "SIGKILL")
    assert "was killed by SIGKILL; among the last lines of all ranks: evaluated: 1" in verdict["reason"]


# Rank 0 has another torchrun evaluate, which fails and ends the other rank of its own, and gets over that.
GETS_OVER = """
import os, subprocess, time
if os.environ["RANK"] == "0":
    own = ("TORCHELASTIC_", "PET_", "GROUP_", "ROLE_", "LOCAL_", "RANK", "WORLD_SIZE", "MASTER_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    words = ["--nproc_per_node", "2", "--master_port", "29779", "--no_python", "sh", "-c", "[ $RANK = 1 ] || exit 3; exec sleep 600"]
    print("evaluated:", subprocess.run(["torchrun", *words], env=env).returncode, flush=True)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.1)
raise ValueError("out of data")
"""


def test_what_a_torchrun_ends_that_a_rank_has_started_is_none_of_the_first_ones(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Into the output of the first, where no rank has a file of its own."""
    program = tmp_path / "train.py"
    program.write_text(GETS_OVER)
    job = LauncherJob(hosts(1), tmp_path, "torchrun")
    job.start(program, env={"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--tee 0 --redirects 0"})
    job.said(0, "ready", times=2)
    assert "evaluated: 1" in job.nodes[0].out
    assert "says that a rank of it has failed" not in job.words()
    (tmp_path / "go").touch()
    verdict = job.end(1)
    assert verdict["reason"].endswith("exited with code 1: ValueError: out of data"), job.words()


GOES_ON = """
import os, sys, time
round_ = int(os.environ["RANKLAUNCH_RESTART_COUNT"])
for step in range(10 * round_, 10 * round_ + 10):
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.1)
if os.environ["RANK"] == "1":
    sys.exit(7 if round_ < 2 else 0)
time.sleep(600 if round_ < 2 else 0)
"""


def test_steps_in_files_that_the_user_has_ranks_write_are_progress(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """So that one restart is enough for two."""
    program = tmp_path / "train.py"
    program.write_text(GOES_ON)
    job = LauncherJob(hosts(1), tmp_path, "torchrun")
    job.start(program, env={"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--redirects 3 --log-dir kept", "RANKLAUNCH_MAX_RESTARTS": "1"})
    restarts = job.end(0)["restarts"]
    assert [each["progress"] for each in restarts] == [True, True], job.words()


def test_a_rank_is_on_its_own_node_where_nodes_have_no_names(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """As on platforms that tell the address of node 0 alone."""
    program = tmp_path / "train.py"
    program.write_text("import os, time\nif os.environ['RANK'] == '1':\n    raise SystemExit(7)\ntime.sleep(600)\n")
    job = LauncherJob(hosts(2), tmp_path, "torchrun")
    job.start(program, env={"RANKLAUNCH_HOSTS": "", "RANKLAUNCH_NODES": "2", "RANKLAUNCH_MASTER_ADDR": "h0"})
    culprit = job.end(7)["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["host"]) == (0, 1, "h0")


# Rank 0 has ended; its torchrun waits for the other node's, deaf to signals.
LEAVES = """
import os, sys, time
print("ready", os.getpid(), flush=True)
if os.environ["RANK"] != "0":
    time.sleep(600)
"""


@pytest.mark.parametrize("method", ["torchrun", pytest.param("accelerate", marks=pytest.mark.table)])
def test_a_launcher_without_ranks_does_not_hold_a_stop(hosts: Callable[[int], Hosts], tmp_path: Path, method: str) -> None:
    if method == "accelerate" and not importlib.util.find_spec("accelerate"):
        pytest.skip("accelerate is not installed")
    program = tmp_path / "train.py"
    program.write_text(LEAVES)
    job = LauncherJob(hosts(2), tmp_path, method, slots=1)
    job.start(program, options=("--grace-s", 120), env={"LOGLEVEL": "INFO"})
    job.said(1, "ready")
    sleep_until(lambda: "for other agents to finish" in job.nodes[0].out, job.words, LONG_S)
    began = time.monotonic()
    job.nodes[1].popen.send_signal(signal.SIGTERM)
    assert job.end(143)["outcome"] == "stopped"
    assert time.monotonic() - began < 60


SAVES_LATE = """
import os, signal, sys, time
def save(*_):
    print("saving", flush=True)
    time.sleep(40)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while not (os.environ["RANK"] == "1" and os.path.exists("fail")):
    time.sleep(0.1)
sys.exit(42)
"""


@pytest.mark.parametrize("why", [*(pytest.param(why, marks=pytest.mark.table) for why in ("stopped", "failed")), "failed without a word"])
def test_ranks_have_the_grace_and_not_torchruns_thirty_seconds(hosts: Callable[[int], Hosts], tmp_path: Path, why: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(SAVES_LATE)
    job = LauncherJob(hosts(1), tmp_path, "torchrun")
    job.start(
        program, options=("--grace-s", 90), env={"LOGLEVEL": "ERROR" if "word" in why else "WARNING", "RANKLAUNCH_CONSOLE_VICTIMS": "all"}
    )
    job.said(0, "ready", times=2)
    if why == "stopped":
        job.nodes[0].popen.send_signal(signal.SIGTERM)
        job.end(143)
    else:
        (tmp_path / "fail").touch()
        assert job.end(42)["culprit"]["rank"] == 1
    assert job.nodes[0].out.count("saved") == (2 if why == "stopped" else 1), job.words()


RESTARTED = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    raise KeyError("the first round")
time.sleep(600 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 2)
print("ready", flush=True)
while not (os.environ["RANK"] == "0" and os.path.exists("fail")):
    time.sleep(0.1)
sys.exit(42)
"""


@pytest.mark.parametrize("why", ["stopped", "failed", "killed"])
def test_a_failure_that_torchrun_has_outlived_is_not_what_the_job_ends_by(hosts: Callable[[int], Hosts], tmp_path: Path, why: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(RESTARTED)
    job = LauncherJob(hosts(1), tmp_path, "torchrun")
    job.start(program, env={"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--max_restarts=1"})
    job.said(0, "ready", times=2)
    if why == "stopped":
        job.nodes[0].popen.send_signal(signal.SIGTERM)
        assert job.end(143)["outcome"] == "stopped"
    elif why == "killed":
        (torchrun,) = [pid for pid in job.nodes[0].host.pids() if "--nproc_per_node" in command_of(pid)]
        os.kill(torchrun, signal.SIGKILL)
        verdict = job.end(137)
        assert (verdict["culprit"]["rank"], verdict["culprit"]["error"]) == (None, None)
        assert verdict["reason"].startswith("torchrun on node 0 was killed by SIGKILL"), verdict
    else:
        (tmp_path / "fail").touch()
        culprit = job.end(42)["culprit"]
        assert (culprit["rank"], culprit["last_lines"], culprit["error"]) == (0, ["ready"], None)


LOADS = """
import os, signal, subprocess, sys, time
worker = subprocess.Popen(["sleep", "600"])  # as a data loading worker: in the group of its rank, and it dies of SIGTERM
def save(*_):
    if os.environ["RANK"] == "1":
        sys.exit(143)
    time.sleep(2)
    print("saved" if worker.poll() is None else "its worker is gone", flush=True)
    worker.kill()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_stop_leaves_a_rank_its_workers(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Also where another rank has ended before it has saved, with the code of a stop; torchrun would see that at once."""
    program = tmp_path / "loads.py"
    program.write_text(LOADS)
    job = LauncherJob(hosts(1), tmp_path, "torchrun", slots=2)
    job.start(program, env={"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--monitor_interval=0.001"})
    job.said(0, "ready", times=2)
    job.nodes[0].popen.send_signal(signal.SIGTERM)
    job.end(143)
    assert "[rank 0] saved" in job.nodes[0].out


SAVES = """
import os, signal, sys, time
def halted():
    with open(f"/proc/{os.getppid()}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"
def save(*_):
    seen = halted()
    while halted():
        time.sleep(0.05)
    print("served again" if seen else "not halted", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


def test_torchrun_serves_ranks_that_save_after_the_first_second_of_a_stop(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Such as those that make a process group for it, which needs the job's store."""
    program = tmp_path / "saves.py"
    program.write_text(SAVES)
    host, outs = hosts(1), list[str]()
    while len(outs) < 3 and (not outs or "not halted" in outs[-1]):  # on a busy machine a rank may hear of the stop later than that
        place = tmp_path / str(len(outs))
        place.mkdir()
        job = LauncherJob(host, place, "torchrun", slots=2)
        job.start(program)
        job.said(0, "ready", times=2)
        job.nodes[0].popen.send_signal(signal.SIGTERM)
        job.end(143)
        outs.append(job.nodes[0].out)
    assert outs[-1].count("served again") == 2


STAYS = """
import time
print("ready", flush=True)
time.sleep(600)
"""
SAVES_AND_EXITS = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(9))" + STAYS


@pytest.mark.parametrize(
    ("nodes", "how", "text"), [(1, "SIGTERM", STAYS), (2, "SIGTERM", STAYS), (1, "SIGHUP", STAYS), (1, "SIGTERM", SAVES_AND_EXITS)]
)
def test_a_torchrun_that_somebody_tells_to_end_is_named_and_not_its_ranks(
    hosts: Callable[[int], Hosts], tmp_path: Path, nodes: int, how: str, text: str
) -> None:
    """Alone, nobody tells it to end a second time; of two, that depends on which is faster. With whatever code ranks end then."""
    job, torchrun, _ = ready(hosts(nodes), tmp_path, text)
    os.kill(torchrun, signal.Signals[how])
    verdict = job.end(128 + signal.Signals[how])
    assert (verdict["culprit"]["node"], verdict["culprit"]["rank"]) == (nodes - 1, None), job.words()
    assert re.match(rf"torchrun on node {nodes - 1}( \(h1\))? was killed by {how}", verdict["reason"]), job.words()


MEETS = """
import datetime
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
"""


def test_a_loopback_address_that_gloo_offers_to_another_host_is_named(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """As it does where a host's own name stands for 127.0.1.1 in /etc/hosts."""
    program = tmp_path / "train.py"
    program.write_text(MEETS)
    job = LauncherJob(hosts(2), tmp_path, "torchrun", slots=1)
    job.start(program, env={"GLOO_SOCKET_IFNAME": "lo"})
    verdict = job.end(1)
    assert verdict["culprit"]["error"]["name"] == "gloo-loopback-refused", job.words()
    assert "Connection refused, remote=[127.0.0.1]" in verdict["reason"]
