"""The real mpirun and sshd on several hosts: what reaches the ranks, where they are, which keys let them in, and how a job ends."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import helpers
import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LauncherJob
from testbench.jobs.users import as_user, as_user_alone, copied_for_all, needs_root, open_to_all
from testbench.places import EXAMPLES, child
from testbench.waiting import sleep_until

ATTEMPT_S = 240
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin"

pytestmark = [
    pytest.mark.launchers,
    pytest.mark.skipif(
        not shutil.which("mpirun") or not shutil.which("sshd", path=SBIN), reason="needs mpirun of Open MPI, and OpenSSH's server"
    ),
]

# Writes into a folder, which all hosts have, what the rank named by Open MPI was given.
TELL = f'{sys.executable} {child("environment.py")} --env "X_*,RANKLAUNCH_*,MA_*,VC_*" "$@" > "$FOLDER/$OMPI_COMM_WORLD_RANK.json"'
WHERE = 'echo "$(cat /proc/sys/kernel/hostname)" > "$FOLDER/$OMPI_COMM_WORLD_RANK"'

BY_MPI = 'from mpi4py import MPI; print("sum", MPI.COMM_WORLD.allreduce(1), flush=True)'

MakeJob = Callable[..., LauncherJob]


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path) -> MakeJob:
    (tmp_path / "told").mkdir()
    (tmp_path / "run").mkdir()
    return lambda nodes=2, slots=1: LauncherJob(hosts(nodes), tmp_path, "mpirun", slots)


def own(job: LauncherJob, **more: str) -> dict[str, str]:
    """Variables of a job whose keys are in a folder of the test's, and whose ranks know where to write."""
    return {"RANKLAUNCH_RUN_DIR": str(job.folder / "run"), "FOLDER": str(job.folder / "told"), **more}


def check_no_keys_left(job: LauncherJob, *secrets: str) -> None:
    assert os.listdir(job.folder / "run") == []
    for path in job.folder.glob("h*/**/*"):
        text = path.read_bytes() if path.is_file() else b""
        assert not any(secret.encode() in text for secret in ("PRIVATE KEY", *secrets)), path


def test_a_place_for_keys_that_cannot_be_written(job: MakeJob) -> None:
    started = job()
    (started.folder / "file").write_text("")
    started.start("sh", "-c", "true", env=own(started, RANKLAUNCH_RUN_DIR=str(started.folder / "file" / "run")))
    assert [node.popen.wait(ATTEMPT_S) for node in started.nodes] == [78, 78], started.words()
    assert all("set RANKLAUNCH_RUN_DIR to another folder" in node.verdict["reason"] for node in started.nodes)


def test_values_reach_another_host_unchanged(job: MakeJob) -> None:
    started = job()
    values = {f"X_{number}": value for number, value in enumerate([*helpers.HOSTILE.values(), "z" * 5000, "$(touch pwned)\\\n\"';é"])}
    arguments = [value for value in helpers.HOSTILE.values() if len(value) < 20_000]
    started.start("sh", "-c", TELL, "sh", *arguments, env=own(started, **values))
    started.end(0)
    for rank in (0, 1):
        told = json.loads((started.folder / "told" / f"{rank}.json").read_text())
        assert {name: value for name, value in told["env"].items() if name.startswith("X_")} == values
        assert told["argv"][2:] == arguments
        assert "RANKLAUNCH_SECRET" not in told["env"]
        assert told["env"].get("RANKLAUNCH_NODE") == ("0" if rank == 0 else None)
    assert not list(started.folder.rglob("pwned"))
    check_no_keys_left(started)


@pytest.mark.skipif(not importlib.util.find_spec("mpi4py"), reason="mpi4py is not installed")
def test_it_divides_its_command_line_at_a_colon_of_the_programs() -> None:
    """So that ranklaunch has to refuse it."""
    as_root = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    words = ["mpirun", "--oversubscribe", "-np", "1", "echo", "one", ":", "-np", "1", "echo", "two"]
    done = subprocess.run(words, env=as_root, capture_output=True, text=True, timeout=ATTEMPT_S, check=True)
    assert sorted(done.stdout.splitlines()) == ["one", "two"]


def test_ranks_meet_on_uneven_hosts(job: MakeJob) -> None:
    started = job(3, "2,1,1")
    started.start("sh", "-c", f'{WHERE}; exec "$@"', "sh", sys.executable, "-c", BY_MPI, env=own(started))
    verdict = started.end(0)
    assert verdict["outcome"] == "succeeded"
    where = [(started.folder / "told" / str(rank)).read_text().strip() for rank in range(4)]
    assert where == ["h0", "h0", "h1", "h2"]
    first = started.nodes[0]
    assert sorted(re.findall(r"^\[rank (\d)\] sum 4$", first.out, re.MULTILINE)) == ["0", "1", "2", "3"]
    assert first.log("rank_3.log") == "sum 4\n"


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.parametrize(
    ("nodes", "slots", "env", "place"),
    [
        pytest.param(1, 2, {}, "127.0.0.1 29500", marks=pytest.mark.table),
        (2, 1, {"RANKLAUNCH_MASTER_PORT": "29871", "MASTER_ADDR": "192.0.2.9", "MASTER_PORT": "1"}, "h0 29871"),
    ],
)
def test_ranks_meet_by_env_too(job: MakeJob, nodes: int, slots: int, env: dict[str, str], place: str) -> None:
    """MASTER_ADDR and MASTER_PORT of a platform or an image are another rendezvous's."""
    started = job(nodes, slots)
    started.start(child("meets_by_env.py"), env=own(started, **env))
    started.end(0)
    out = started.nodes[0].out
    assert sorted(re.findall(r"^\[rank (\d)\] rank \1 meets at (.*)$", out, re.MULTILINE)) == [("0", place), ("1", place)]
    assert sorted(re.findall(r"^\[rank (\d)\] rank \1 has met 2$", out, re.MULTILINE)) == ["0", "1"]


RAISES = """
from mpi4py import MPI
for step in range(1, 9):
    print("step:", step, MPI.COMM_WORLD.allreduce(1), flush=True)
    assert step < 5 or MPI.COMM_WORLD.rank != 1, "label 1003"
"""


@pytest.mark.skipif(not importlib.util.find_spec("mpi4py"), reason="mpi4py is not installed")
def test_who_waits_in_mpi_finalize_after_an_exception_is_to_blame(job: MakeJob) -> None:
    started = job()
    (started.folder / "train.py").write_text(RAISES, encoding="utf-8")
    started.start(started.folder / "train.py", env=own(started, RANKLAUNCH_HANG="stop", RANKLAUNCH_HANG_S="5"))
    verdict = started.end(1)
    assert verdict["reason"] == "rank 1 on node 1 (h1) exited with code 1: AssertionError: label 1003"
    assert verdict["failures"] == []
    assert [suspect["rank"] for suspect in verdict["hang"]["suspects"]] == [1]


@pytest.mark.skipif(not importlib.util.find_spec("horovod"), reason="Horovod is not installed")
def test_horovod_on_two_hosts(job: MakeJob) -> None:
    started = job(2)
    started.start(EXAMPLES / "hvd_synthetic.py", "--num-iters", 2, "--num-batches", 2, env=own(started))
    started.end(0)
    out = started.nodes[0].out
    assert "[rank 0] 2 ranks, 1 on this node" in out
    assert re.search(r"^\[rank 0\] total of 2 ranks: [1-9][0-9.]* img/sec$", out, re.MULTILINE)
    assert sorted(re.findall(r"^\[rank (\d)\] rank \1: [0-9.]+ img/sec$", out, re.MULTILINE)) == ["0", "1"]


@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.table), 2])
@pytest.mark.parametrize("stubborn", ["", 'trap "" TERM; '], ids=["obeys", "stubborn"])
def test_what_ranks_leave_behind_does_not_hold_up_the_end(job: MakeJob, nodes: int, stubborn: str) -> None:
    """mpirun waits until nobody has its ranks' pipes any more. What was there before the ranks stays until the end."""
    started = job(nodes)
    daemon = f"(setsid sh -c '{stubborn}echo left $$; sleep 600; :' &)"
    started.start("sh", "-c", f"{daemon}; sleep 1; echo rank $OMPI_COMM_WORLD_RANK done", env=own(started))
    assert started.end(0)["outcome"] == "succeeded"
    assert sorted(re.findall(r"rank (\d) done", started.nodes[0].out)) == [str(rank) for rank in range(nodes)]
    for node, left in zip(started.nodes, re.findall(r"left \d+", started.nodes[0].out)):
        assert "have ended, but orphans hold their pipes: " in node.err, left
        assert "echo left" in node.err
        (note,) = node.verdict["notes"]
        assert note.startswith("ended processes that the program left behind: ")
        assert note.endswith("by SIGKILL" if stubborn else "by SIGTERM")


@pytest.mark.parametrize("code", [pytest.param(0, marks=pytest.mark.table), 3])
def test_ranks_that_leave_something_and_fail(job: MakeJob, code: int) -> None:
    started = job(1, 2)
    started.start("sh", "-c", f"(setsid sleep 600 &); exit {code}", env=own(started))
    assert started.end(code)["exit_code"] == code


@pytest.mark.parametrize("program", ["mpirun", "orted"])
def test_the_session_of_what_is_killed_is_removed(job: MakeJob, program: str) -> None:
    """And no other job's. Which it was is said on all nodes."""
    started = job()
    others = started.folder / "t" / "ompi.h0.0" / "pid.1" / "pmix_dstor_ds12_1"
    others.mkdir(parents=True)
    started.start("sh", "-c", "echo up; sleep 600", env=own(started))
    started.said(0, "up", 2)
    running = [pid for node in started.nodes for pid in node.host.pids()]
    victim = next(pid for pid in running if Path(f"/proc/{pid}/comm").read_text().strip() == program)
    os.kill(victim, signal.SIGKILL)
    for node in started.nodes:
        node.popen.wait(ATTEMPT_S)
    assert [str(path.relative_to(started.folder)) for path in started.folder.glob("t/*/*")] == ["t/ompi.h0.0/pid.1"]
    assert others.is_dir()
    node = ("mpirun", "orted").index(program)
    for each in started.nodes:
        assert each.verdict["reason"].startswith(f"{program} on node {node} (h{node}) was killed by SIGKILL"), started.words()


def test_a_second_attempt_in_the_same_containers(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    made = hosts(2)
    (tmp_path / "run").mkdir()
    assert [attempt(made, tmp_path, number) for number in (1, 2)] == [[0, 0], [0, 0]]
    logs = tmp_path / "h0"
    for number in (1, 2):
        folder = logs / f"attempt_{number}"
        assert (folder / "rank_1.log").read_text() == f"attempt {number}\n"
        rows = (folder / "hostfile").read_text().splitlines()
        assert [row.partition(" ")[2] for row in rows] == ["slots=1"] * 2
        assert "Server listening on" in (folder / "sshd.log").read_text()
    assert os.listdir(tmp_path / "run") == []


def test_the_hostfile_has_addresses(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    made = hosts(2)
    (tmp_path / "run").mkdir()
    assert attempt(made, tmp_path, 1) == [0, 0]
    rows = (tmp_path / "h0" / "attempt_1" / "hostfile").read_text().splitlines()
    assert rows == [f"{host.address} slots=1" for host in made]


def attempt(made: Hosts, folder: Path, number: int) -> list[int]:
    names = ",".join(host.name for host in made)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    started = []
    for host in made:
        of_platform = helpers.modelarts(len(made), 1, host.index, VC_WORKER_HOSTS=names, MA_PROC_START_CNT=str(number))
        env = {**of_platform, **kept, "HOME": str(folder), "MA_RUN_METHOD": "mpirun", "RANKLAUNCH_ACCELERATOR": "cpu"}
        env.update(RANKLAUNCH_RUN_DIR=str(folder / "run"), MA_LOG_DIR=str(folder / host.name))
        words = ("run", "--", "sh", "-c", "echo attempt $RANKLAUNCH_ATTEMPT")
        started.append(host.popen([sys.executable, "-m", "ranklaunch", *words], env=env, cwd=folder, stdin=subprocess.DEVNULL))
    return [popen.wait(ATTEMPT_S) for popen in started]


# Keys


@pytest.fixture
def volcano(tmp_path: Path) -> Path:
    """What Volcano's ssh plugin mounts: an RSA key in PEM form, its public half, and authorized_keys with the same; all may read them."""
    return keys_of_volcano(tmp_path / ".ssh")


def keys_of_volcano(folder: Path) -> Path:
    folder.mkdir()
    make_key(folder / "id_rsa", "-t", "rsa", "-b", "2048", "-m", "PEM")
    shutil.copy(folder / "id_rsa.pub", folder / "authorized_keys")
    (folder / "config").write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nPort 22\n")
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def make_key(path: Path, *words: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", path, *words], check=True, stdin=subprocess.DEVNULL, timeout=60)


def accepted(job: LauncherJob) -> str:
    """How node 1 has let node 0 in."""
    (line,) = re.findall(r"^Accepted publickey for .*$", job.nodes[1].log("sshd.log"), re.MULTILINE)
    return line


def test_keys_of_volcano_are_used(job: MakeJob, volcano: Path) -> None:
    started = job()
    started.start("sh", "-c", WHERE, env=own(started, RANKLAUNCH_SSH_KEYS=str(volcano)))
    started.end(0)
    assert "RSA SHA256:" in accepted(started)
    line = (volcano / "id_rsa").read_text().splitlines()[3]
    check_no_keys_left(started, line)
    assert {path.stat().st_mode & 0o777 for path in volcano.iterdir()} == {0o644}


def test_keys_of_the_account_are_found(hosts: Callable[..., Hosts], tmp_path: Path, volcano: Path) -> None:
    started = at_home(hosts, tmp_path)
    started.end(0)
    assert "RSA SHA256:" in accepted(started)
    check_no_keys_left(started)


def test_keys_that_let_nobody_in_are_not_used(hosts: Callable[..., Hosts], tmp_path: Path, volcano: Path) -> None:
    make_key(volcano / "other", "-t", "ed25519")
    shutil.move(volcano / "other.pub", volcano / "authorized_keys")
    started = at_home(hosts, tmp_path)
    started.end(0)
    assert "ED25519 SHA256:" in accepted(started)
    check_no_keys_left(started)


def at_home(hosts: Callable[..., Hosts], folder: Path) -> LauncherJob:
    """A job on hosts on which the folder is root's home."""
    made = hosts(2)
    has_account(made, folder, f"root:x:0:0:root:{folder}:/bin/sh")
    for name in ("run", "told"):
        (folder / name).mkdir()
    started = LauncherJob(made, folder, "mpirun", 1)
    started.start("sh", "-c", WHERE, env=own(started))
    return started


def has_account(made: Hosts, folder: Path, line: str) -> None:
    name = line.partition(":")[0]
    for file, new in (("passwd", line), ("shadow", f"{name}:*:19000:0:99999:7:::")):
        others = [each for each in Path("/etc", file).read_text().splitlines() if not each.startswith(f"{name}:")]
        (folder / file).write_text("\n".join([new, *others, ""]))
        (folder / file).chmod(0o640 if file == "shadow" else 0o644)
        for host in made:
            host.run(["mount", "--bind", folder / file, f"/etc/{file}"], check=True)


def test_a_folder_without_keys_is_refused(job: MakeJob) -> None:
    started = job()
    folder = started.folder / "told"
    started.start("sh", "-c", WHERE, env=own(started, RANKLAUNCH_SSH_KEYS=str(folder)))
    assert [node.popen.wait(ATTEMPT_S) for node in started.nodes] == [78, 78], started.words()
    for node in started.nodes:
        assert f"RANKLAUNCH_SSH_KEYS={folder}: expected authorized_keys there" in node.err
    assert os.listdir(folder) == []


# What may be missing


@pytest.fixture
def programs(tmp_path: Path) -> Callable[..., str]:
    """A PATH that lacks some programs."""

    def without(*names: str) -> str:
        folder = tmp_path / "bin"
        folder.mkdir()
        for source in ("/bin", "/usr/bin"):
            for name in os.listdir(source):
                if name not in names and not (folder / name).is_symlink():
                    (folder / name).symlink_to(f"{source}/{name}")
        return str(folder)

    return without


def test_mpirun_that_is_not_there_is_named(job: MakeJob, programs: Callable[..., str]) -> None:
    started = job()
    started.start("sh", "-c", WHERE, env=own(started, PATH=programs("mpirun", "mpirun.openmpi", "orterun")))
    verdict = started.end(69)
    assert "mpirun" in verdict["reason"]
    assert "Open MPI" in verdict["reason"]


def test_sshd_that_is_not_there_is_named(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    made = hosts(2)
    empty = tmp_path / "empty"
    empty.mkdir()
    made[1].run(["mount", "--bind", empty, "/usr/sbin"], check=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "told").mkdir()
    started = LauncherJob(made, tmp_path, "mpirun", 1)
    started.start("sh", "-c", WHERE, env=own(started))
    verdict = started.end(69)
    assert "sshd" in verdict["reason"]
    assert "openssh-server" in verdict["reason"]


TAKES_PORT = """
import socket, sys
both = sys.argv[1] == "both"
server = socket.create_server(("", 36666), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
    connection.close()
"""


@pytest.mark.parametrize("families", ["IPv4", "both"])
def test_a_port_that_another_has_taken_is_named(hosts: Callable[..., Hosts], tmp_path: Path, families: str) -> None:
    """At once, also where sshd would go on to serve IPv6 alone."""
    made = hosts(2)
    (tmp_path / "run").mkdir()
    (tmp_path / "told").mkdir()
    taken = made[1].popen([sys.executable, "-c", TAKES_PORT, families], stdout=subprocess.PIPE, text=True)
    assert taken.stdout
    assert taken.stdout.readline() == "ready\n"
    started = LauncherJob(made, tmp_path, "mpirun", 1)
    started.start("sh", "-c", WHERE, env=own(started, RANKLAUNCH_WAIT_S="600", RANKLAUNCH_MUSTER_TIMEOUT_S="600"))
    codes = [node.popen.wait(ATTEMPT_S) for node in started.nodes]
    taken.kill()
    taken.communicate(timeout=60)
    assert codes == [75, 75], started.words()
    assert "sshd on node 1 (h1) exited with code 255: Bind to port 36666" in started.nodes[0].verdict["reason"], started.words()
    assert "Bind to port 36666 on 0.0.0.0 failed: Address already in use" in started.nodes[1].log("sshd.log")


# Users and signals


@needs_root
def test_without_root(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    made = hosts(2)
    for name in ("run", "told"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    open_to_all(tmp_path)
    for host in made:
        (tmp_path / host.name).mkdir()
        (tmp_path / host.name).chmod(0o777)
    has_account(made, tmp_path, f"trainer:x:1000:1000::{tmp_path}:/bin/sh")
    started = LauncherJob(made, tmp_path, "mpirun", 1)
    started.start("sh", "-c", f"{WHERE}; id -u", prefix=as_user(1000), env=own(started, RANKLAUNCH_SSH_KEYS="new"))
    started.end(0)
    assert [(started.folder / "told" / str(rank)).read_text().strip() for rank in (0, 1)] == ["h0", "h1"]
    assert started.nodes[0].log("rank_1.log") == "1000\n"
    assert "Accepted publickey for trainer" in accepted(started)


@pytest.fixture
def trainer(hosts: Callable[..., Hosts]) -> Iterator[LauncherJob]:
    """For a user of group 100 who has no right beyond what modes of files say, as in a container of the chart. Not in pytest's folders:
    each session of pytest that starts closes them for others."""
    made = hosts(2)
    with tempfile.TemporaryDirectory(prefix="ranklaunch-test-") as name:
        folder = Path(name)
        open_to_all(folder)
        interpreter = copied_for_all(folder / "lib")
        if not interpreter:
            pytest.skip("there is no Python that other users can run")
        for each in ("run", "told", *(host.name for host in made)):
            (folder / each).mkdir()
            (folder / each).chmod(0o777)
        has_account(made, folder, f"trainer:x:1000:100::{folder}:/bin/sh")
        job = LauncherJob(made, folder, "mpirun", 1)
        job.interpreter = interpreter
        yield job


def alone(job: LauncherJob, **more: str) -> dict[str, str]:
    return own(job, PYTHONPATH=str(job.folder / "lib"), **more)


def mounted(job: LauncherJob, mode: int) -> Path:
    """Keys of root's and of group 100, as an engine mounts them with fsGroup."""
    folder = keys_of_volcano(job.folder / ".ssh")
    folder.chmod(0o755)
    for path in folder.iterdir():
        os.chown(path, 0, 100)
        path.chmod(mode)
    return folder


@needs_root
def test_keys_that_the_group_may_read_are_used(trainer: LauncherJob) -> None:
    keys = mounted(trainer, 0o640)
    trainer.start("sh", "-c", f"{WHERE}; id -u", prefix=as_user_alone(1000, 100), env=alone(trainer))
    trainer.end(0)
    assert trainer.nodes[0].log("rank_1.log") == "1000\n"
    assert "Accepted publickey for trainer" in accepted(trainer)
    assert "RSA SHA256:" in accepted(trainer)
    check_no_keys_left(trainer, (keys / "id_rsa").read_text().splitlines()[3])


@needs_root
def test_keys_that_root_alone_may_read_are_not_used(trainer: LauncherJob) -> None:
    keys = mounted(trainer, 0o600)
    trainer.start("sh", "-c", f"{WHERE}; id -u", prefix=as_user_alone(1000, 100), env=alone(trainer))
    trainer.end(0)
    assert trainer.nodes[0].log("rank_1.log") == "1000\n"
    assert "ED25519 SHA256:" in accepted(trainer)
    for node in trainer.nodes:
        assert f"{keys}/authorized_keys exists, but this user cannot read it" in node.err


@needs_root
def test_keys_that_root_alone_may_read_are_refused_where_they_are_named(trainer: LauncherJob) -> None:
    keys = mounted(trainer, 0o600)
    env = alone(trainer, RANKLAUNCH_SSH_KEYS=str(keys))
    trainer.start("sh", "-c", WHERE, prefix=as_user_alone(1000, 100), env=env)
    assert [node.popen.wait(ATTEMPT_S) for node in trainer.nodes] == [78, 78], trainer.words()
    for node in trainer.nodes:
        assert f"RANKLAUNCH_SSH_KEYS={keys}: expected authorized_keys there" in node.err
        assert "this user must be able to read both" in node.err


def test_a_stop_request_on_one_node_stops_all(job: MakeJob) -> None:
    started = job(3)
    started.start(child("saves_on_term.py"), "--takes", 1, options=("--grace-s", 20), env=own(started))
    stop_when_ready(started)
    assert os.listdir(started.folder / "run") == []


@pytest.mark.parametrize(("stopped", "code"), [pytest.param(True, 143, marks=pytest.mark.table), (False, 70)])
def test_an_sshd_that_ends_before_a_stop_is_heard_of(job: MakeJob, stopped: bool, code: int) -> None:
    """As where a platform signals all processes of a job, this one last."""
    started = job(2)
    started.start(child("saves_on_term.py"), env=own(started))
    started.said(0, "ready", 2)
    (server,) = (pid for pid in started.nodes[1].host.pids() if re.search(rb"sshd[ \0]-D", Path(f"/proc/{pid}/cmdline").read_bytes()))
    os.kill(server, signal.SIGTERM)
    if stopped:
        sleep_until(lambda: re.search('"exit".*"sshd"', started.nodes[1].log("events.jsonl")), "sshd's end")
        started.nodes[1].popen.send_signal(signal.SIGTERM)
    reason = "stopped by SIGTERM" if stopped else "sshd ended while the ranks needed it"
    assert started.end(code)["reason"] == f"node 1 (h1): {reason}"


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param("$((1 + 2 * OMPI_COMM_WORLD_RANK))", id="last-slowest", marks=pytest.mark.table),
        pytest.param("$((5 - 2 * OMPI_COMM_WORLD_RANK))", id="first-slowest"),
    ],
)
def test_all_ranks_have_time_to_save(job: MakeJob, seconds: str) -> None:
    started = job(3)
    words = f"exec {sys.executable} -u {child('saves_on_term.py')} --takes {seconds}"
    started.start("sh", "-c", words, options=("--grace-s", 20), env=own(started))
    stop_when_ready(started)
    assert sorted(re.findall(r"^\[rank (\d)\] saved$", started.nodes[0].out, re.MULTILINE)) == ["0", "1", "2"], started.words()
    assert [node.verdict["stop"]["ended_by_themselves"] for node in started.nodes] == [[0], [1], [2]]


WRAPPER = f"{sys.executable} -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))'"


@pytest.mark.parametrize(
    "script",
    [
        "{program}; code=$?; exit $code",
        "timeout 600 {program}; code=$?; exit $code",
        "{program} | tee $FOLDER/$OMPI_COMM_WORLD_RANK; exit 0",
        f"exec {WRAPPER} {{program}}",
        pytest.param(f"{WRAPPER} {{program}} | tee $FOLDER/$OMPI_COMM_WORLD_RANK; exit 0", marks=pytest.mark.table),
    ],
)
def test_programs_in_scripts_have_time_to_save(job: MakeJob, script: str) -> None:
    """The shell, or what else waits for the program, would die of the signal alone, and Open MPI then kills the rank's process group."""
    started = job(3)
    program = f"{sys.executable} -u {child('saves_on_term.py')} --takes $((5 - 2 * OMPI_COMM_WORLD_RANK))"
    started.start("bash", "-c", script.format(program=program), options=("--grace-s", 60), env=own(started))
    began = time.monotonic()
    stop_when_ready(started)
    assert sorted(re.findall(r"^\[rank (\d)\] saved$", started.nodes[0].out, re.MULTILINE)) == ["0", "1", "2"], started.words()
    assert [node.verdict["stop"]["caught_by"] for node in started.nodes] == [[0], [1], [2]]
    assert time.monotonic() - began < 55


@pytest.mark.parametrize("script", ["{program}; code=$?; exit $code", "exec {program}"])
def test_user_signals_reach_programs(job: MakeJob, script: str) -> None:
    """Through mpirun, to all nodes, where the ranks themselves catch them; else by each node's own ranklaunch."""
    started = job(2)
    started.start("bash", "-c", script.format(program=f"{sys.executable} -u {child('signals.py')}"), env=own(started))
    started.said(0, "ready", 2)
    started.nodes[1].popen.send_signal(signal.SIGUSR1)
    if "exec" in script:
        sleep_until(lambda: "SIGUSR1 is left to the launcher on node 0" in started.nodes[1].err, started.words)
    started.nodes[0].popen.send_signal(signal.SIGUSR1)
    started.said(0, "SIGUSR1", 2)
    started.nodes[0].popen.send_signal(signal.SIGTERM)
    started.end(143)
    assert started.nodes[0].out.count("SIGUSR1") == 2


def stop_when_ready(job: LauncherJob) -> None:
    job.said(0, "ready", 3)
    job.nodes[1].popen.send_signal(signal.SIGTERM)
    job.end(143)
