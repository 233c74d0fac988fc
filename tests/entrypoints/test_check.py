"""What would make run fail is told beforehand, all of it, with the exit code that run would have."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import helpers
import pytest

from ranklaunch.cli.launch import machine_notes
from ranklaunch.system import disk, interfaces
from testbench.waiting import free_port

OWN = ("--python", sys.executable, "--method", "spawn")


@pytest.fixture
def train(tmp_path: Path) -> Path:
    program = tmp_path / "train.py"
    program.write_text("")
    return program


@pytest.mark.parametrize("command", ["plan", "check"])
def test_a_rule_that_is_none(command: str, train: Path, tmp_path: Path) -> None:
    """As in run; its message shows the rule as it was written."""
    env = {"PATH": os.environ["PATH"], "RANKLAUNCH_NODES": "1", "RANKLAUNCH_EXPECT": r"lr (\S+) is number; loss=(\d)\;x <20"}
    found = helpers.call(command, *OWN, "--log-dir", str(tmp_path / "logs"), "--", str(train), env=env)
    assert found.code == 78
    expected = r"'loss=(\d)\;x <20': expected REGEX < NUMBER, <=, > or >=, with blanks around the sign, as in: loss (\S+) < 20 ("
    assert expected in found.out + found.err


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "own", "runs"),
    [
        ((), {}, False),
        ((), {"RANKLAUNCH_HOSTS_COMMAND": "another"}, False),
        (("--hosts-command", "{}"), {}, True),
        ((), {"RANKLAUNCH_HOSTS_COMMAND": "{}"}, True),
    ],
)
def test_a_command_of_a_file_is_not_run(options: tuple[str, ...], own: dict[str, str], runs: bool, train: Path, tmp_path: Path) -> None:
    """Unless who starts check gives it, too."""
    command = f"touch {tmp_path}/run; echo localhost"
    (tmp_path / "env").write_text(f"PATH={os.environ['PATH']}\nRANKLAUNCH_HOSTS_COMMAND={command}\nRANKLAUNCH_NODES=1\n")
    given = ("--env-file", str(tmp_path / "env"), *(each.format(command) for each in options))
    env = {"PATH": os.environ["PATH"], **{name: value.format(command) for name, value in own.items()}}
    found = helpers.call("check", *OWN, *given, "--log-dir", str(tmp_path / "logs"), "--", str(train), env=env)
    assert (found.code, (tmp_path / "run").exists()) == (0, runs), found
    assert ("is not run by check" in found.out) != runs


@pytest.mark.parametrize(("slots", "ranks"), [("1", "1 rank"), ("2", "2 ranks")])
def test_nothing_is_wrong(slots: str, ranks: str, train: Path, tmp_path: Path) -> None:
    found = helpers.call(
        "check", *OWN, "--slots", slots, "--log-dir", str(tmp_path / "logs"), "--", str(train), env={"PATH": os.environ["PATH"]}
    )
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[0] == f"spawn (option --method spawn): node 0 of 1, {ranks} here"
    assert found.out.splitlines()[-1] == "0 things would make run fail"
    assert not (tmp_path / "logs").exists()


def test_without_a_program(tmp_path: Path) -> None:
    found = helpers.call("check", "--log-dir", str(tmp_path), env={"PATH": os.environ["PATH"]})
    assert (found.code, found.err) == (0, "")


def test_every_problem_of_the_environment() -> None:
    env = {"MA_NUM_HOSTS": "two", "MA_NUM_GPUS": "x", "PATH": os.environ["PATH"]}
    found = helpers.call("check", "--method", "torch", "--", "train.py", env=env)
    assert found.code == 78
    assert sum(line.startswith("wrong: ") for line in found.out.splitlines()) == 3
    assert all(word in found.out for word in ("MA_NUM_HOSTS='two'", "MA_NUM_GPUS='x'", "'torch'", "3 things"))


def test_a_misspelt_variable_is_a_note_beside_what_is_missing() -> None:
    found = helpers.call("check", "--", "train.py", env={"RANKLAUNCH_NODES": "2", "RANKLAUNCH_HOST": "a,b", "PATH": os.environ["PATH"]})
    assert found.code == 78
    assert "\nnote: RANKLAUNCH_HOST is no variable of ranklaunch's and has no effect, did you mean RANKLAUNCH_HOSTS?\n" in found.out


def test_the_program_is_where_plan_looks_for_it(train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the root, from this folder on."""
    (tmp_path / "root").mkdir()
    monkeypatch.chdir(tmp_path)
    words = (*OWN, "--root", "root", "--log-dir", str(tmp_path / "logs"), "--", train.name)
    missing = helpers.call("check", *words, env={"PATH": os.environ["PATH"]})
    assert missing.code == 69
    assert f"program 'train.py': no such file (looked for from {tmp_path}, below root)" in missing.out
    (tmp_path / f"root{tmp_path}").mkdir(parents=True)
    (tmp_path / f"root{train}").write_text("")
    assert helpers.call("check", *words, env={"PATH": os.environ["PATH"]}).code == 0


def test_a_whole_command_as_one_word_is_told_so() -> None:
    found = helpers.call("check", *OWN, "--", "python train.py", env={"PATH": os.environ["PATH"]})
    assert "program 'python train.py': no such file" in found.out
    assert "; the name contains a space: do not quote a whole command" in found.out


def test_options_behind_the_program_are_a_note(train: Path, tmp_path: Path) -> None:
    words = (*OWN, "--log-dir", str(tmp_path / "logs"), "--", str(train), "--slots", "2")
    note = f"--slots after {train} is passed to that program: put options of ranklaunch before it"
    found = helpers.call("check", *words, env={"PATH": os.environ["PATH"]})
    assert (found.code, found.err) == (0, "")
    assert f"\nnote: {note}\n" in found.out
    assert f"\nhints\n  {note}\n" in helpers.call("plan", *words, env={}).out


@pytest.mark.parametrize(("word", "option"), [("--nproc_per_node=2", "--slots"), ("--nnodes", "--nodes"), ("--node-rank", "--node")])
def test_options_of_torchrun_behind_the_program_are_a_note(word: str, option: str, train: Path, tmp_path: Path) -> None:
    found = helpers.call("check", *OWN, "--log-dir", str(tmp_path / "logs"), "--", str(train), word, env={"PATH": os.environ["PATH"]})
    said = f"{word.partition('=')[0]} after {train} is passed to that program: put {option}, ranklaunch's option, before it"
    assert f"\nnote: {said}\n" in found.out
    launcher = helpers.call(
        "check", "--log-dir", str(tmp_path / "logs"), "--", "torchrun", word, str(train), env={"PATH": os.environ["PATH"]}
    )
    assert "stands before it" not in launcher.out


@pytest.mark.processes
@pytest.mark.parametrize(("slots", "said"), [("1", True), ("2", False)])
def test_run_says_that_a_number_of_ranks_behind_the_program_is_none_of_its_own(slots: str, said: bool, tmp_path: Path) -> None:
    words = ("--slots", slots, "--log-dir", str(tmp_path), "--", "true", "--slots", "2")
    ours = [sys.executable, "-m", "ranklaunch", "run", *OWN, *words]
    found = subprocess.run(ours, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert found.returncode == 0, found
    assert found.stderr.count("warning: --slots after true is passed to that program: put options of ranklaunch before it") == said


def test_problems_are_shown_without_secrets_and_control_characters(tmp_path: Path) -> None:
    words = ("--python", "python --token hunter2", "--method", "spawn", "--log-dir", str(tmp_path), "--", "gone\x1b[2J.py")
    found = helpers.call("check", *words, env={"PATH": os.environ["PATH"]})
    assert found.code == 69
    assert "program 'python --token ***' not found" in found.out
    assert "hunter2" not in found.out
    assert "\x1b" not in found.out


def test_programs_that_are_missing(tmp_path: Path) -> None:
    words = ("--python", "python-not-there", "--method", "spawn", "--log-dir", str(tmp_path), "--", "gone.py")
    found = helpers.call("check", *words, env={"PATH": os.environ["PATH"]})
    assert found.code == 69
    assert "wrong: program 'gone.py': no such file" in found.out
    assert "program 'python-not-there' not found on PATH" in found.out
    assert "2 things" in found.out
    (tmp_path / "train").mkdir()
    found = helpers.call("check", "--method", "plain", "--log-dir", str(tmp_path), "--", f"{tmp_path}/train", env={})
    assert f"program '{tmp_path}/train' is a folder" in found.out


def test_a_launcher_whose_interpreter_is_not_there_or_not_for_this_user(train: Path, tmp_path: Path) -> None:
    """As in an environment that was moved, or that root has made for itself."""
    python, torchrun = tmp_path / "venv/python", tmp_path / "bin/torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text(f"#!{python} -s\n")
    torchrun.chmod(0o755)
    words = ("--method", "torchrun", "--slots", "2", "--log-dir", str(tmp_path / "logs"), "--", str(train))
    path = {"PATH": f"{torchrun.parent}:{os.environ['PATH']}"}
    found = helpers.call("check", *words, env=path)
    assert found.code == 126
    assert f"cannot execute {torchrun}: its first line names an interpreter that is not there: '{python} -s'\n" in found.out
    assert "1 thing would make run fail" in found.out
    python.parent.mkdir()
    python.write_text("")
    found = helpers.call("check", *words, env=path)
    assert found.code == 126
    assert f"its first line names an interpreter that user id {os.geteuid()} may not execute: '{python} -s'\n" in found.out
    python.chmod(0o755)
    assert helpers.call("check", *words, env=path).code == 0


@helpers.for_each(
    {
        "DeepSpeed's own binding": ("deepspeed", {"RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS": "--bind_cores"}, "numactl"),  # an abbreviation
        "a command before ranks": ("spawn", {"RANKLAUNCH_RANK_PREFIX": "not-there"}, "not-there"),
    }
)
def test_what_stands_before_ranks_must_be_there(method: str, env: dict[str, str], missing: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("deepspeed", "train.py"):
            Path(folder, name).write_text("")
            Path(folder, name).chmod(0o755)
        words = ("--python", sys.executable, "--method", method, "--slots", "2", "--log-dir", folder, "--", f"{folder}/train.py")
        found = helpers.call("check", *words, env={"PATH": folder, **env})
    assert found.code == 69
    assert f"it starts '{missing}', which is not found on PATH=" in found.out


@pytest.mark.parametrize("method", ["torchrun", "accelerate", "deepspeed", "mpirun"])
def test_an_executable_that_ranks_are_to_run_must_be_there(method: str, tmp_path: Path) -> None:
    """Launchers find that out themselves, after their own start, and end with codes of their own."""
    launcher = tmp_path / method
    launcher.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    launcher.chmod(0o755)
    Path(tmp_path, "there").touch(mode=0o755)
    said = {}
    for program in ("not-there", "./not-there", "there"):
        words = ("--python", sys.executable, "--method", method, "--slots", "2", "--log-dir", str(tmp_path), "--", program, "-x")
        said[program] = helpers.call("check", *words, env={"PATH": str(tmp_path)}).out
    assert [f"{method}: program '{program}' not found" in out for program, out in said.items()] == [True, True, False], said


@pytest.mark.parametrize("folder", ["file/logs", "file"])
def test_a_log_directory_that_cannot_be_made(folder: str, train: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = helpers.call("check", *OWN, "--log-dir", str(tmp_path / folder), "--", str(train), env={"PATH": os.environ["PATH"]})
    assert found.code == 78
    assert f"{tmp_path}/file cannot be written" in found.out


def test_ports_that_are_taken(train: Path, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        words = ("--nodes", "2", "--hosts", "a,b", "--muster-port", port, "--log-dir", str(tmp_path), "--", str(train))
        found = helpers.call("check", *OWN, "--node", "0", *words, env={"PATH": os.environ["PATH"]})
        other = helpers.call("check", *OWN, "--node", "1", *words, env={"PATH": os.environ["PATH"]})
    assert (found.code, other.code) == (75, 0)
    assert f"wrong: port {port} of the muster is taken on this node" in found.out


def test_ranks_that_may_meet_by_mpi_alone_do_without_the_port(train: Path, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        words = ("--nodes", "2", "--hosts", "a,b", "--method", "mpirun", "--master-port", port, "--", str(train))
        found = helpers.call("check", *OWN[:2], "--node", "0", "--log-dir", str(tmp_path), *words, env={"PATH": os.environ["PATH"]})
    assert f"note: port {port} of the rendezvous is taken on this node" in found.out


def test_the_port_of_the_jobs_sshd(train: Path, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        words = ("--nodes", "2", "--hosts", "a,b", "--method", "mpirun", "--sshd-port", port, "--log-dir", str(tmp_path), "--", str(train))
        found = helpers.call("check", *OWN[:2], "--node", "1", *words, env={"PATH": os.environ["PATH"]})
    assert f"wrong: port {port} of the job's sshd is taken on this node" in found.out


def test_the_key_and_the_folder_for_keys(train: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {"PATH": os.environ["PATH"], "RANKLAUNCH_SECRET_FILE": str(tmp_path / "gone"), "RANKLAUNCH_RUN_DIR": str(tmp_path / "file")}
    words = ("--nodes", "2", "--hosts", "a,b", "--method", "mpirun", "--log-dir", str(tmp_path), "--", str(train))
    found = helpers.call("check", *OWN[:2], "--node", "1", *words, env=env)
    assert found.code == 78
    assert f"wrong: RANKLAUNCH_SECRET_FILE={tmp_path}/gone: No such file or directory" in found.out
    assert "name another with RANKLAUNCH_RUN_DIR" in found.out


def test_what_would_be_waited_for_is_no_failure(train: Path, tmp_path: Path) -> None:
    table = ("--rank-table", str(tmp_path / "table.json"), "--log-dir", str(tmp_path), "--method", "ranktable")
    found = helpers.call("check", "--python", sys.executable, *table, "--", str(train), env={"PATH": os.environ["PATH"]})
    assert found.code == 0
    assert f"note: run would wait for rank table {tmp_path / 'table.json'}" in found.out


def test_a_wrong_command_line() -> None:
    found = helpers.call("check", "--metod", "spawn")
    assert found.code == 2
    assert "did you mean '--method'?" in found.err


# Names of hosts

NOWHERE = "no-such-host.invalid"


def named(hosts: str, train: Path, tmp_path: Path, node: str = "1", method: str = "spawn") -> helpers.Result:
    nodes = ("--nodes", str(hosts.count(",") + 1), "--hosts", hosts, "--node", node, "--master-port", str(free_port()))
    words = ("--method", method, *nodes, "--log-dir", str(tmp_path))
    return helpers.call("check", *OWN[:2], *words, "--", str(train), env={"PATH": os.environ["PATH"], "RANKLAUNCH_RUN_DIR": str(tmp_path)})


@pytest.mark.parametrize("node", ["0", "1"])
def test_the_host_of_node_0_is_looked_up(node: str, train: Path, tmp_path: Path) -> None:
    found = named(f"{NOWHERE},192.0.2.2", train, tmp_path, node)
    assert found.code == 0
    assert f"note: run would wait for hosts: {NOWHERE} (its name does not resolve" in found.out


def test_names_are_looked_up_where_no_thread_is_left(monkeypatch: pytest.MonkeyPatch, train: Path, tmp_path: Path) -> None:
    def start(thread: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", start)
    found = named(f"{NOWHERE},192.0.2.2", train, tmp_path)
    assert found.code == 0
    assert f"note: run would wait for hosts: {NOWHERE} (its name does not resolve" in found.out


def test_hosts_that_a_node_does_not_need_are_not_looked_up(train: Path, tmp_path: Path) -> None:
    assert "wait for hosts" not in named(f"192.0.2.1,{NOWHERE}", train, tmp_path).out


def test_a_host_whose_own_name_stands_for_the_loopback_address(monkeypatch: pytest.MonkeyPatch, train: Path, tmp_path: Path) -> None:
    """As Debian's 127.0.1.1 does in /etc/hosts."""
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    note = "note: this host's own name, localhost, resolves to "
    assert note in named("192.0.2.1,192.0.2.2", train, tmp_path).out
    assert note not in named("192.0.2.1", train, tmp_path, node="0").out
    monkeypatch.setattr(socket, "gethostname", lambda: "192.0.2.2")
    assert "own name" not in named("192.0.2.1,192.0.2.2", train, tmp_path).out


@pytest.mark.parametrize("option", ["--interface", "GLOO_SOCKET_IFNAME"])
def test_where_an_interface_is_named_the_hosts_name_does_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    words = ("--hosts", "192.0.2.1,192.0.2.2", "--node", "1", "--slots", "1", "--method", "spawn", "--log-dir", str(tmp_path), "--", "x.py")
    env = {"PATH": os.environ["PATH"], **({} if option.startswith("--") else {option: "eth7"})}
    found = helpers.call("check", *((option, "eth7") if option.startswith("--") else ()), *words, env=env)
    assert "own name" not in found.out
    assert "program 'x.py': no such file" in found.out


@helpers.for_each(
    {
        "a beginning, for Gloo": (
            2,
            {"GLOO_SOCKET_IFNAME": "e"},
            "GLOO_SOCKET_IFNAME=e names no interface of this machine (lo, eth0)",
        ),
        "all but one, for Gloo": (2, {"GLOO_SOCKET_IFNAME": "^lo"}, "GLOO_SOCKET_IFNAME=^lo names no interface"),
        "one of two, for Gloo": (2, {"GLOO_SOCKET_IFNAME": "eth0,eth1"}, "GLOO_SOCKET_IFNAME=eth0,eth1 names no interface"),
        "an interface, for Gloo": (2, {"GLOO_SOCKET_IFNAME": "eth0"}, ""),
        "an alias, for Gloo": (2, {"GLOO_SOCKET_IFNAME": "eth0:1"}, ""),
        "another one, for NCCL": (
            2,
            {"NCCL_SOCKET_IFNAME": "eth1"},
            "NCCL_SOCKET_IFNAME=eth1 names no interface of this machine",
        ),
        "none left, for NCCL": (2, {"NCCL_SOCKET_IFNAME": "^docker,lo,veth,eth"}, "NCCL_SOCKET_IFNAME=^docker,lo,veth,eth names no"),
        "no whole name, for NCCL": (2, {"NCCL_SOCKET_IFNAME": "=eth"}, "NCCL_SOCKET_IFNAME==eth names no"),
        "a beginning, for NCCL": (2, {"NCCL_SOCKET_IFNAME": "bond,eth"}, ""),
        "one left, for NCCL": (2, {"NCCL_SOCKET_IFNAME": "^docker0,lo"}, ""),
        "whole names that are left out, for NCCL": (2, {"NCCL_SOCKET_IFNAME": "^=eth,lo"}, ""),
        "NCCL without a GPU": (2, {"NCCL_SOCKET_IFNAME": "eth1", "RANKLAUNCH_ACCELERATOR": "cpu"}, ""),
        "one node": (1, {"GLOO_SOCKET_IFNAME": "e"}, ""),
        "nothing named": (2, {}, ""),
    }
)
def test_an_interface_that_is_not_there(nodes: int, env: dict[str, str], said: str) -> None:
    given = {**helpers.local(nodes), "RANKLAUNCH_ACCELERATOR": "gpu", **env}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interfaces, "with_address", lambda: ["lo", "eth0"])
        found = [note for note in machine_notes(helpers.plan(given, method="spawn"), given) if "_SOCKET_IFNAME=" in note]
    assert len(found) == bool(said), found
    assert all(note.startswith(said) for note in found), found


def test_interfaces_of_this_machine(train: Path, tmp_path: Path) -> None:
    assert {"lo"} <= {*interfaces.with_address()} <= {name for _, name in socket.if_nameindex()}
    words = ("--hosts", "192.0.2.1,192.0.2.2", "--node", "1", "--slots", "1", "--log-dir", str(tmp_path), "--", str(train))
    found = helpers.call("check", *OWN, *words, env={"PATH": os.environ["PATH"], "GLOO_SOCKET_IFNAME": "^lo"})
    assert found.code == 0
    assert "\nnote: GLOO_SOCKET_IFNAME=^lo names no interface of this machine (lo" in found.out


@pytest.mark.processes
def test_run_gives_notes_about_this_machine_too(tmp_path: Path) -> None:
    nodes = ("--hosts", "127.0.0.1,127.0.0.2", "--node", "0", "--muster", "off")
    ours = [sys.executable, "-m", "ranklaunch", "run", *OWN, *nodes, "--slots", "1", "--log-dir", str(tmp_path), "--", "true"]
    found = subprocess.run(ours, env={**os.environ, "GLOO_SOCKET_IFNAME": "^lo"}, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found
    assert found.stderr.count("warning: GLOO_SOCKET_IFNAME=^lo names no interface of this machine (lo") == 1


@helpers.for_each(
    [
        ("spawn", "2", 64 << 20, "64.0 MiB for 2 ranks"),
        ("plain", "8", 1 << 20, "1.0 MiB for 8 ranks"),
        ("spawn", "2", (64 << 20) + 4096, ""),
        ("spawn", "2", None, ""),
        ("spawn", "1", 64 << 20, ""),
        ("ray", "1", 64 << 20, "64.0 MiB, which is too small for Ray's object store: it goes to /tmp"),
        ("ray", "8", 1 << 30, ""),
    ]
)
def test_a_small_shared_memory(method: str, slots: str, size: int | None, said: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "size_of", {"/dev/shm": size}.get)
        found = list(machine_notes(helpers.plan(helpers.local(slots=slots), method=method), {}))
    assert len(found) == bool(said), found
    assert all(word in note for note in found for word in (said, "--shm-size", "emptyDir of medium Memory"))


@pytest.mark.parametrize("method", ["ray", "jax"])
@pytest.mark.parametrize("has", [False, True])
def test_the_package_of_a_method(method: str, has: bool, tmp_path: Path) -> None:
    """A note, since Python may find it where .pth files lead."""
    packages = tmp_path / "opt/lib/python3.11/site-packages"
    (packages / (method if has else "other")).mkdir(parents=True)
    (packages / (method if has else "other") / "__init__.py").touch()
    (tmp_path / "opt/bin").mkdir()
    (tmp_path / "opt/bin/python3.11").symlink_to(sys.executable)
    words = ("--python", "/opt/bin/python3.11", "--root", str(tmp_path), "--log-dir", str(tmp_path / "logs"), "--slots", "1")
    found = helpers.call("check", "--method", method, *words, env={"PATH": os.environ["PATH"]})
    remedy = f"pip install {method} there; paths in .pth files were not searched"
    note = f"note: {method} is not among the packages of /opt/bin/python3.11: {remedy}"
    assert (note in found.out) != has, found


@pytest.mark.parametrize("method", ["ray", "jax"])
def test_a_port_of_the_head_or_the_coordinator_that_is_taken(method: str, train: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = ("--hosts", "127.0.0.1,127.0.0.2", "--node", "0", "--slots", "1", "--master-port", port)
        found = helpers.call(
            "check", "--method", method, "--python", sys.executable, *words, "--log-dir", str(tmp_path / "l"), "--", str(train)
        )
    assert f"wrong: port {port} of the rendezvous is taken on this node" in found.out
    assert found.code == 75


def test_the_size_of_a_file_system(tmp_path: Path) -> None:
    found = disk.size_of(str(tmp_path))
    assert found is None or found > 0
    assert disk.size_of(str(tmp_path / "gone")) is None


def test_every_host_that_a_method_reaches_is_looked_up(train: Path, tmp_path: Path) -> None:
    found = named(f"192.0.2.1,{NOWHERE}", train, tmp_path, node="0", method="mpirun")
    assert f"run would wait for hosts: {NOWHERE} (" in found.out


def test_one_node_needs_no_name(train: Path, tmp_path: Path) -> None:
    assert NOWHERE not in named(NOWHERE, train, tmp_path, node="0").out


def test_more_ranks_than_devices(tmp_path: Path) -> None:
    for name in ("davinci0", "davinci1"):
        (tmp_path / "root" / "dev").mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / "dev" / name).write_text("")
    env = {"PATH": os.environ["PATH"], "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "8"}
    (tmp_path / "root" / "train.py").write_text("")
    found = helpers.call("check", *OWN, "--root", str(tmp_path / "root"), "--log-dir", str(tmp_path / "logs"), "--", "/train.py", env=env)
    assert found.code == 0
    assert "note: MA_NUM_GPUS=8: 8 ranks on this node, which has 2 NPUs" in found.out


def with_launchers(folder: Path, method: str, package: str, train: Path) -> tuple[str, ...]:
    """What is said to ranklaunch where this is the launchers' package."""
    (folder / "venv" / "lib" / "python3.9" / "site-packages" / f"{package}.dist-info").mkdir(parents=True)
    (folder / "venv" / "bin").mkdir()
    for name in ("torchrun", "msrun"):
        program = folder / "venv" / "bin" / name
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
    (folder / "venv" / "bin" / "python").symlink_to(sys.executable)
    python, logs = str(folder / "venv/bin/python"), str(folder / "logs")
    return ("--method", method, "--slots", "2", "--python", python, "--log-dir", logs, "--", str(train))


@pytest.mark.parametrize(
    ("method", "package", "code"),
    [
        ("torchrun", "torch-1.10.2+cpu", 69),
        ("megatron", "torch-1.10.2", 69),
        ("torchrun", "torch-1.11.0", 0),
        ("torchrun", "torch-1.11.0a0+gitbc2c6ed", 0),
        ("torchrun", "torch-2.13", 0),
        ("msrun", "mindspore-2.2.14", 69),
        ("msrun", "mindspore-2.3.0rc1", 0),
        ("msrun", "nothing-1.0", 0),
    ],
)
def test_launchers_that_are_too_old(method: str, package: str, code: int, train: Path, tmp_path: Path) -> None:
    """By what pip has left beside the launcher, of which nothing is imported."""
    found = helpers.call("check", *with_launchers(tmp_path, method, package, train), env={"PATH": os.environ["PATH"]})
    check_too_old(found.code, found.out + found.err, code, package, tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize(("real", "code"), [("mpiexec.hydra", 69), ("orterun", 0)])
@pytest.mark.parametrize("command", ["check", "run"])
def test_an_mpirun_of_mpich(command: str, real: str, code: int, tmp_path: Path) -> None:
    """Which is a link to a program of another name."""
    (tmp_path / real).write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / real).chmod(0o755)
    (tmp_path / "mpirun").symlink_to(real)
    words = (command, "--method", "mpirun", "--slots", "2", "--log-dir", str(tmp_path / "logs"), "--", "true")
    ours = [sys.executable, "-m", "ranklaunch", *words]
    found = subprocess.run(ours, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, check=False)
    assert found.returncode == code, found
    assert (f"{tmp_path}/mpirun is MPICH's, and method mpirun needs Open MPI's" in found.stdout + found.stderr) == bool(code)


@pytest.mark.processes
@pytest.mark.parametrize(("package", "code"), [("torch-1.10.2+cpu", 69), ("torch-1.11.0", 0)])
def test_a_launcher_that_is_too_old_is_not_started(package: str, code: int, train: Path, tmp_path: Path) -> None:
    ours = [sys.executable, "-m", "ranklaunch", "run", *with_launchers(tmp_path, "torchrun", package, train)]
    found = subprocess.run(ours, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    check_too_old(found.returncode, found.stdout + found.stderr, code, package, tmp_path)


def check_too_old(found: int, said: str, code: int, package: str, folder: Path) -> None:
    assert found == code, said
    if code:
        assert f": {folder}/venv/bin/" in said
        assert f" is of {package.replace('-', ' ')}, which is too old: " in said
        assert "is too old: " in said


@pytest.mark.parametrize("option", ["", "--env-file", "--root"])
def test_files_of_this_machine_are_noted_for_another_environment(
    option: str,
    train: Path,
    tmp_path: Path,
) -> None:
    env_file = tmp_path / "env"
    env_file.write_text("RANKLAUNCH_NODES=1\nPATH=/none\n", encoding="utf-8")
    words = {
        "": (),
        "--env-file": ("--env-file", str(env_file)),
        "--root": ("--env-file", str(env_file), "--root", str(tmp_path)),
    }[option]
    env = {"PATH": os.environ["PATH"], "RANKLAUNCH_NODES": "1"}
    logs = str(tmp_path / "logs")
    found = helpers.call("check", *words, "--slots", "1", "--log-dir", logs, str(train), env=env)
    noted = "note: programs and files are looked for on this machine" in found.out
    assert noted == (option == "--env-file"), found
