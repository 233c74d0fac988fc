"""What mpirun and sshd are told, and what mpirun's last words tell of the rank that failed first."""

from __future__ import annotations

import re

import helpers
import pytest

from ranklaunch.adapters.launchers.shared import open_mpi
from ranklaunch.env.job import Program
from ranklaunch.env.reader import Account, Arrived
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import Request, make_plan
from ranklaunch.verdict.model import Failure

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 made"
NETWORKS = {"/sys/class/net/lo": "", "/sys/class/net/eth0": "", "/sys/class/net/ib0": ""}


def plan(nodes: int = 2, index: int = 0, slots: int = 2, files: dict[str, str] | None = None, **env: str) -> Plan:
    return helpers.plan(helpers.modelarts(nodes, slots, index, **env), "--epochs=3", files=files, method="mpirun")


def argv(plan: Plan) -> tuple[str, ...]:
    return plan.processes[0].argv


def forwarded(plan: Plan) -> list[str]:
    words = argv(plan)
    return [words[i + 1] for i, word in enumerate(words) if word == "-x"]


def file(plan: Plan, name: str) -> str:
    (text,) = [file.text for file in plan.files if file.path.endswith(f"/{name}")]
    return text


def without_forwarded(words: tuple[str, ...]) -> list[str]:
    return [word for i, word in enumerate(words) if word != "-x" and words[i - 1] != "-x"]


# What is started


def test_one_node_needs_no_ssh() -> None:
    found = plan(1)
    assert without_forwarded(argv(found)) == [
        "mpirun", "-np", "2", "-hostfile", "/logs/attempt_1/hostfile", "-bind-to", "none", "-map-by", "slot",
        "-mca", "pml", "ob1", "-mca", "btl", "^openib", "python", "-u", "train.py", "--epochs=3",
    ]  # fmt: skip
    assert (found.services, found.waits, found.private, found.offers, found.followers) == ((), (), "", {}, 0)
    assert file(found, "hostfile") == "localhost slots=2\n"


def test_several_nodes_are_reached_by_ssh() -> None:
    found = plan(3, MY_SSHD_PORT="2222")
    private = found.private
    assert re.fullmatch(r"/tmp/ranklaunch-modelarts-job-5d2e7c1a-1-0-[0-9a-f]{8}", private)
    assert without_forwarded(argv(found)) == [
        "mpirun", "-np", "6", "-hostfile", "/logs/attempt_1/hostfile", "-mca", "plm_rsh_args", f"-p 2222 -F {private}/ssh_config",
        "-bind-to", "none", "-map-by", "slot", "-mca", "pml", "ob1", "-mca", "btl", "^openib",
        "-mca", "plm_rsh_no_tree_spawn", "true", "python", "-u", "train.py", "--epochs=3",
    ]  # fmt: skip
    assert [service.argv for service in found.services] == [("/usr/sbin/sshd", "-D", "-e", "-f", f"{private}/sshd_config")]
    assert found.followers == 2
    assert found.by_address
    assert [wait.kind for wait in found.waits] == ["muster", "hosts", "port"]
    assert found.waits[2].what == ",".join(f"{host}:2222" for host in helpers.hosts(3))


@pytest.mark.parametrize(("version", "expected"), [("4", "^openib,vader"), ("5", "^openib,sm")])
def test_nodes_that_one_machine_plays_share_no_memory(version: str, expected: str) -> None:
    words = argv(plan(2, RANKLAUNCH_HOSTS="127.0.0.1,127.0.0.2", RANKLAUNCH_OPENMPI=version))
    assert words[words.index("btl") + 1] == expected


def test_sshd_lets_many_nodes_in_at_once() -> None:
    assert "MaxStartups 200\n" in file(plan(3), "sshd_config")
    assert "MaxStartups 300\n" in file(plan(150), "sshd_config")


def test_a_follower_has_sshd_alone() -> None:
    found = plan(3, 2)
    assert found.processes == ()
    assert [service.name for service in found.services] == ["sshd"]
    assert [wait.kind for wait in found.waits] == ["muster"]
    assert {file.path.rpartition("/")[2] for file in found.files} == {"sshd_config", "authorized_keys"}
    assert list(found.offers) == ["ssh host key"]


OUTSIDE_SLURM = {f"{runtime}_MCA_{framework}": "^slurm" for runtime in ("OMPI", "PRTE") for framework in ("ras", "plm")}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        ({"SLURM_JOBID": "7"}, OUTSIDE_SLURM),
        ({"SLURM_JOBID": "7", "OMPI_MCA_plm": "rsh"}, {name: value for name, value in OUTSIDE_SLURM.items() if name != "OMPI_MCA_plm"}),
    ],
)
def test_open_mpi_leaves_slots_and_daemons_to_ranklaunch_under_slurm(env: dict[str, str], expected: dict[str, str]) -> None:
    for found in (plan(2, **env), plan(1, **env)):
        assert {name: value for name, value in found.processes[0].env.items() if name in OUTSIDE_SLURM} == expected


@pytest.mark.parametrize("index", range(3))
def test_without_the_names_of_all_hosts_it_is_refused(index: int) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^nodes 1 to 2 have no names, and method mpirun needs the names of all nodes: name them by --hosts \(RANKLAUNCH_HOSTS\)",
    ):
        helpers.plan(helpers.only_first_named(3, 2, index), method="mpirun")
    named = helpers.only_first_named(3, 2, index, RANKLAUNCH_HOSTS="a,b,c", RANKLAUNCH_MASTER_ADDR="a")
    assert helpers.plan(named, method="mpirun").job.world_size == 6


@pytest.mark.parametrize(
    ("env", "files"), [({}, {"/opt/mpi/bin/mpirun": "", "/opt/mpi/bin/prterun": ""}), ({"RANKLAUNCH_OPENMPI": "5"}, {})]
)
def test_version_5_has_other_words(env: dict[str, str], files: dict[str, str]) -> None:
    found = plan(files=files, PATH="/opt/mpi/bin:/usr/bin", **env)
    assert without_forwarded(argv(found))[1:] == [
        "-np", "4", "--hostfile", "/logs/attempt_1/hostfile", "--prtemca", "plm_ssh_args", f"-p 36666 -F {found.private}/ssh_config",
        "--bind-to", "none", "--map-by", "slot", "--output", "tag", "--mca", "pml", "ob1", "--mca", "btl", "^openib",
        "--prtemca", "plm_ssh_no_tree_spawn", "1", "python", "-u", "train.py", "--epochs=3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        ({"/opt/mpi/bin/mpirun": ""}, "/opt/mpi/bin:/usr/bin", "/opt/mpi/bin/mpirun"),
        ({"/usr/bin/mpirun": "", "/opt/mpi/bin/mpirun": ""}, "/usr/bin:/opt/mpi/bin", "mpirun"),
        ({"/usr/local/bin/mpirun": ""}, "/usr/local/bin", "mpirun"),
        ({}, "/usr/bin", "mpirun"),
    ],
)
def test_a_full_path_where_the_others_would_not_find_it(files: dict[str, str], path: str, expected: str) -> None:
    assert argv(plan(files=files, PATH=path))[0] == expected


@pytest.mark.parametrize("method", ["mpirun", "horovod", "mpi"])
def test_its_other_names(method: str) -> None:
    assert helpers.plan(helpers.modelarts(2, 2), method=method).method == "mpirun"


def test_slots_of_the_platforms_own_variable() -> None:
    found = plan(2, slots=8, MY_MPI_SLOTS="3")
    assert argv(found)[1:3] == ("-np", "6")
    assert [(node.slots, node.first_rank) for node in found.job.nodes] == [(3, 0), (3, 3)]
    assert file(found, "hostfile") == "".join(f"{host} slots=3\n" for host in helpers.hosts(2))


def test_uneven_slots() -> None:
    found = helpers.plan(helpers.local(3, "2,1,1"), method="mpirun", log_dir="/logs")
    assert file(found, "hostfile") == "n0 slots=2\nn1 slots=1\nn2 slots=1\n"
    assert found.outputs
    assert [(log.key, log.rank, log.log, log.tag) for log in found.outputs.logs][-1] == (
        "3",
        3,
        "/logs/node_0/attempt_1/rank_3.log",
        "[rank 3] ",
    )


# What the ranks are given


def test_names_are_forwarded_and_never_values() -> None:
    env = {"X_SPACES": "two words; $HOME", "LD_LIBRARY_PATH": "/opt/lib", "ZZZ": "1", "BASH_FUNC_x%%": "() { :; }", "9X": "1"}
    names = forwarded(plan(**env))
    assert {"X_SPACES", "ZZZ", "PATH", "RANKLAUNCH_ATTEMPT"} <= set(names)
    assert not {"BASH_FUNC_x%%", "9X"} & set(names)
    assert names[-1] == "LD_LIBRARY_PATH"
    assert [name for name in names if "=" in name and not name.startswith(("NCCL_", "HOROVOD_"))] == []
    assert len(names) == len({name.partition("=")[0] for name in names})


@helpers.for_each([
        "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "USER", "LOGNAME", "SHELL", "SSH_CLIENT", "SSH_CONNECTION",
        "OMPI_MCA_btl", "PMIX_MCA_gds", "PRTE_MCA_plm", "RANKLAUNCH_SECRET", "RANKLAUNCH_NODE", "VC_TASK_INDEX",
        "MA_CURRENT_INSTANCE_NAME", "MA_CURRENT_HOST_IP",
        "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "RANK_TABLE_FILE", "MS_ROLE", "PET_NNODES",
    ])  # fmt: skip
def test_what_belongs_to_one_node_or_launcher_stays(name: str) -> None:
    env = {name: "0" if name in ("RANKLAUNCH_NODE", "VC_TASK_INDEX") else "1.2.3.4"}
    found = plan(**env) if name != "MA_CURRENT_INSTANCE_NAME" else plan()
    assert name not in {word.partition("=")[0] for word in forwarded(found)}


def test_defaults_that_the_user_overrides() -> None:
    defaults = ["NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=eth0,bond0", "NCCL_SOCKET_FAMILY=AF_INET", "HOROVOD_MPI_THREADS_DISABLE=1"]
    assert [name for name in forwarded(plan()) if "=" in name] == defaults
    mine = {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_FAMILY": "AF_INET6", "HOROVOD_MPI_THREADS_DISABLE": "0"}
    names = forwarded(plan(**mine))
    assert not any("=" in name for name in names)
    assert set(mine) <= set(names)


@pytest.mark.parametrize(
    ("env", "files", "expected", "own"),
    [
        ({}, NETWORKS, "eth0", None),
        ({"MY_MPI_BTL_TCP_IF": "ib0,ib1"}, NETWORKS, "ib0", "ib0"),
        ({"RANKLAUNCH_MPI_INTERFACES": "ib0", "MY_MPI_BTL_TCP_IF": "eth0"}, NETWORKS, "ib0", "ib0"),
        ({"MY_MPI_BTL_TCP_IF": "x0"}, NETWORKS, None, None),
        ({"MY_MPI_BTL_TCP_IF": "x0"}, {}, "x0", "x0"),
    ],
)
def test_interfaces_that_are_not_there_are_left_out(
    env: dict[str, str], files: dict[str, str], expected: str | None, own: str | None
) -> None:
    found = plan(files=files, **env)
    names = [name.partition("=")[2] for name in forwarded(found) if name.startswith("NCCL_SOCKET_IFNAME")]
    assert names == ([expected] if expected else [])
    assert found.processes[0].env.get("OMPI_MCA_btl_tcp_if_include") == own
    assert found.processes[0].env.get("OMPI_MCA_oob_tcp_if_include") == own


def test_extra_options_come_last_before_the_program() -> None:
    words = argv(plan(RANKLAUNCH_EXTRA_MPIRUN_PARAMS='--mca a "b c"'))
    assert words[-8:] == ("true", "--mca", "a", "b c", "python", "-u", "train.py", "--epochs=3")


@pytest.mark.parametrize("extra", ["-np 1", "--np 1", "-n 1", "-c 1"])
def test_another_number_of_ranks_is_refused(extra: str) -> None:
    with pytest.raises(ConfigError, match="RANKLAUNCH_EXTRA_MPIRUN_PARAMS has -np 1: expected 4"):
        plan(index=1, RANKLAUNCH_EXTRA_MPIRUN_PARAMS=extra)
    assert plan(RANKLAUNCH_EXTRA_MPIRUN_PARAMS=extra.replace("1", "4")).processes


@pytest.mark.parametrize(
    ("slots", "env", "host", "port"),
    [
        ("2", {}, helpers.hosts(2)[0], "29500"),
        ("2", {"RANKLAUNCH_MASTER_PORT": "1234", "MASTER_ADDR": "left.behind", "MASTER_PORT": "1"}, helpers.hosts(2)[0], "1234"),
    ],
)
def test_ranks_know_where_to_meet(slots: str, env: dict[str, str], host: str, port: str) -> None:
    found = plan(RANKLAUNCH_SLOTS=slots, **env)
    assert {"MASTER_ADDR", "MASTER_PORT"} <= {*forwarded(found)}
    assert (found.processes[0].env["MASTER_ADDR"], found.processes[0].env["MASTER_PORT"]) == (host, port)


def test_on_one_node_they_meet_within_it() -> None:
    assert plan(1).processes[0].env["MASTER_ADDR"] == "127.0.0.1"


def test_a_place_to_meet_of_the_users_own_is_theirs() -> None:
    given = forwarded(plan(RANKLAUNCH_EXTRA_MPIRUN_PARAMS="-x MASTER_ADDR=h --x MASTER_PORT"))
    assert [name for name in given if name.startswith("MASTER_")] == ["MASTER_ADDR=h"]
    assert "--x" in argv(plan(RANKLAUNCH_EXTRA_MPIRUN_PARAMS="--x MASTER_PORT"))


@helpers.for_each(
    [
        ("other", "other"),
        ("-x A=1 --mca a b other -v", "other"),
        ("--oversubscribe nsys profile", "nsys"),
        ("-x A=1 -mca a b --prtemca a b --output tag -host h0,h1 --new a", None),
    ]
)
def test_a_word_that_would_be_the_program_is_refused(extra: str, word: str | None) -> None:
    if not word:
        assert plan(RANKLAUNCH_EXTRA_MPIRUN_PARAMS=extra).processes
        return
    with pytest.raises(ConfigError, match=f"RANKLAUNCH_EXTRA_MPIRUN_PARAMS has the word '{word}'.*RANKLAUNCH_RANK_PREFIX"):
        plan(RANKLAUNCH_EXTRA_MPIRUN_PARAMS=extra)


# ssh


@pytest.mark.parametrize("name", ["../../etc", "a b;c", "x" * 300, "é\n"])
def test_hostile_job_names_make_a_plain_folder(name: str) -> None:
    found = helpers.plan(helpers.local(2, RANKLAUNCH_JOB_NAME=name), method="mpirun", log_dir="/logs")
    assert re.fullmatch(r"/tmp/ranklaunch-[A-Za-z0-9_.-]{1,80}-1-0-[0-9a-f]{8}", found.private)


def test_jobs_of_one_name_have_folders_of_their_own() -> None:
    folders = [helpers.plan(helpers.local(2), method="mpirun", log_dir=logs).private for logs in ("/a", "/b")]
    assert folders[0] != folders[1]


def request(account: Account, arrived: Arrived | None = None, nodes: int = 2, index: int = 0) -> Plan:
    env = helpers.local(nodes, index=index)
    options = {"method": "mpirun", "log_dir": "/logs"}
    files = helpers.MemoryFiles()
    return make_plan(Request(Program("train.py", (), False), env, files, options, helpers.CWD, arrived or Arrived(), account))


def test_an_account_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="need a user name"):
        request(Account("", "", False))
    assert request(Account("", "", False), nodes=1).services == ()


@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/false"])
def test_an_account_without_a_shell_is_refused(shell: str) -> None:
    with pytest.raises(ConfigError, match=rf"that of nobody is {shell}, which ends every session: set a shell in the image"):
        request(Account("nobody", "/nonexistent", False, shell))
    assert request(Account("nobody", "/nonexistent", False, shell), nodes=1).services == ()


def test_another_account_than_root() -> None:
    found = request(Account("trainer", "/home/trainer", False))
    config = file(found, "sshd_config")
    assert "AllowUsers trainer\nPermitRootLogin no\n" in config
    assert "  User trainer\n" in file(found, "ssh_config")
    assert [step.name for step in found.prepare] == ["host key", "user key"]
    assert "PermitRootLogin prohibit-password" in file(request(Account("root", "/root", True)), "sshd_config")


def test_keys_of_the_nodes_reach_each_other() -> None:
    account = Account("root", "/root", True)
    arrived = Arrived(
        {"n0": "192.0.2.1", "n1": "192.0.2.2"}, {0: {"ssh user key": KEY, "ssh host key": KEY}, 1: {"ssh host key": f"{KEY}1"}}
    )
    first, second = request(account, arrived), request(account, arrived, index=1)
    assert file(first, "known_hosts").splitlines() == [
        f"[n0]:36666 {KEY}", f"[192.0.2.1]:36666 {KEY}", f"[n1]:36666 {KEY}1", f"[192.0.2.2]:36666 {KEY}1",
    ]  # fmt: skip
    assert file(first, "hostfile") == "192.0.2.1 slots=2\n192.0.2.2 slots=2\n"
    assert file(second, "authorized_keys") == f"{KEY}\n"


@pytest.mark.parametrize(
    ("files", "used"),
    [
        ({"id_rsa": "k", "id_rsa.pub": KEY, "authorized_keys": f"# all\n{KEY}\n"}, "id_rsa"),
        ({"id_rsa": "k", "authorized_keys": KEY}, "id_rsa"),
        ({"id_rsa": "k", "id_rsa.pub": KEY, "id_ed25519": "k", "id_ed25519.pub": "ssh-ed25519 OTHER", "authorized_keys": KEY}, "id_rsa"),
        ({"id_rsa": "k", "id_rsa.pub": "ssh-rsa OTHER", "authorized_keys": KEY}, ""),
        ({"id_rsa": "k", "id_rsa.pub": KEY}, ""),
        ({"id_rsa": "k", "id_rsa.pub": KEY, "authorized_keys": " \n"}, ""),
        ({"authorized_keys": KEY}, ""),
    ],
)
def test_keys_that_are_there_are_used_where_they_let_one_in(files: dict[str, str], used: str) -> None:
    found = plan(files={f"/root/.ssh/{name}": text for name, text in files.items()})
    sources = {file.path.rpartition("/")[2]: file.source for file in found.files if file.source}
    expected = {"authorized_keys": "/root/.ssh/authorized_keys", "key": f"/root/.ssh/{used}"} if used else {}
    assert sources == expected
    assert ("user key" in [step.name for step in found.prepare]) == (not used)
    assert "ssh user key" in plan(files={f"/root/.ssh/{name}": text for name, text in files.items()}, RANKLAUNCH_SSH_KEYS="new").offers


@pytest.mark.parametrize("withheld", ["id_rsa", "authorized_keys"])
def test_keys_that_this_user_cannot_read(withheld: str) -> None:
    """As engines mount them for root alone: a key of this run's own does the same, which is better than an end by a refused copy."""
    files = {"/root/.ssh/id_rsa": "k", "/root/.ssh/id_rsa.pub": KEY, "/root/.ssh/authorized_keys": KEY, f"/root/.ssh/{withheld}": None}
    found = plan(files=files)
    assert "ssh user key" in found.offers
    assert f"/root/.ssh/{withheld} exists, but this user cannot read it" in "".join(found.warnings)


def test_a_folder_without_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="RANKLAUNCH_SSH_KEYS=/keys: expected authorized_keys"):
        plan(RANKLAUNCH_SSH_KEYS="/keys", files={"/keys/id_rsa": "k"})


# What mpirun says at the end

EXITED_4 = """
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[50011,1],3]
  Exit code:    42
--------------------------------------------------------------------------
"""
KILLED_4 = "mpirun noticed that process rank 2 with PID 0 on node 10.77.3.11 exited on signal 9 (Killed).\n"
EXITED_5 = """
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-h0-28@1,1]
   Exit code:    42
"""
ABORTED_4 = "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 9.\n"
ABORTED_5 = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n  Proc: [[38117,1],2]\n  Errorcode: 256\n"
FATAL_4 = """
[h1:00235] *** An error occurred in MPI_Bcast
[h1:00235] *** reported by process [3193962497,3]
[h1:00235] *** on communicator MPI_COMM_WORLD
[h1:00235] *** MPI_ERR_ROOT: invalid root
[h1:00235] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
[h1:00235] ***    and potentially your MPI job)
"""
KILLED_5 = "prterun noticed that process rank 1 with PID 4711 on node h1 exited on\nsignal 11 (Segmentation fault).\n"


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (EXITED_4, Failure(3, 42)),
        (KILLED_4, Failure(2, 137, 9)),
        (EXITED_5, Failure(1, 42)),
        (KILLED_5, Failure(1, 139, 11, 4711)),
        (ABORTED_4, Failure(3, 9)),
        (ABORTED_5 + EXITED_4, Failure(2, 1)),
        (EXITED_4 + ABORTED_5, Failure(2, 1)),
        (f"Primary job  terminated normally, but 1 process returned\n{ABORTED_4}{KILLED_4}", Failure(2, 137, 9)),  # and 3 has lost it
        (f"Primary job  terminated normally, but 1 process returned\n{ABORTED_4}", Failure(3, 9)),
        (FATAL_4, Failure(3, 8)),
        (FATAL_4.replace("ROOT", "OF_ITS_OWN"), None),
        ("There are not enough slots available in the system", None),
        ("", None),
    ],
)
def test_the_rank_that_failed_first(said: str, failure: Failure | None) -> None:
    assert open_mpi.report(said) == failure


def test_mpirun_beside_the_interpreter_is_the_one_that_runs() -> None:
    there = {"/opt/conda/bin/python": "", "/opt/conda/bin/mpirun": "", "/opt/conda/bin/prterun": "", "/usr/bin/mpirun": ""}
    found = plan(2, files=there, PATH="/usr/bin:/bin", RANKLAUNCH_PYTHON="/opt/conda/bin/python")
    assert argv(found)[:5] == ("/opt/conda/bin/mpirun", "-np", "4", "--hostfile", "/logs/attempt_1/hostfile")


def test_known_hosts_at_the_usual_port_of_ssh() -> None:
    keys = {index: {"ssh host key": f"{KEY} {index}"} for index in range(2)}
    for port, first in (("22", "{} ssh-ed25519"), ("2222", "[{}]:2222 ssh-ed25519")):
        env = helpers.modelarts(2, 2, 0, MY_SSHD_PORT=port)
        request = Request(Program("train.py"), env, helpers.MemoryFiles(), {"method": "mpirun"}, "/", arrived=Arrived(shared=keys))
        assert file(make_plan(request), "known_hosts").startswith(first.format(helpers.hosts(2)[0]))


def test_a_folder_for_keys_with_a_space_is_refused() -> None:
    with pytest.raises(ConfigError, match="RANKLAUNCH_RUN_DIR=/tmp/my runs: expected a folder without spaces"):
        plan(2, RANKLAUNCH_RUN_DIR="/tmp/my runs")


@pytest.mark.parametrize(("hosts", "family"), [("fd00::1,fd00::2", "AF_INET6"), ("192.0.2.1,192.0.2.2", "AF_INET"), ("a,b", "AF_INET")])
def test_nccl_speaks_what_the_hosts_have(hosts: str, family: str) -> None:
    found = helpers.plan({"RANKLAUNCH_HOSTS": hosts, "RANKLAUNCH_NODE": "0", "RANKLAUNCH_OPENMPI": "5"}, method="mpirun")
    assert f"NCCL_SOCKET_FAMILY={family}" in found.processes[0].argv


@pytest.mark.parametrize("method", ["mpirun", "deepspeed"])
@pytest.mark.parametrize("hosts", ["h0,h0", "h0,H0"])
def test_a_host_that_is_there_twice_is_refused(method: str, hosts: str) -> None:
    """Open MPI 4 ends with "the two methods is not supported"."""
    with pytest.raises(ConfigError, match=f"method {method}: h0 is the host of several nodes, but a hostfile lists each host once"):
        helpers.plan({"RANKLAUNCH_HOSTS": hosts, "RANKLAUNCH_NODE": "0"}, method=method)


@pytest.mark.parametrize(
    ("method", "by", "starter"),
    [("mpirun", "no_ssh", "mpirun"), *(("deepspeed", by, "mpirun") for by in ("openmpi", "mpich")), ("deepspeed", "slurm", "srun")],
)
def test_a_colon_among_the_programs_arguments_is_refused(method: str, by: str, starter: str) -> None:
    """They begin another program at it: mpirun drops one that stands last, and takes what follows for a program's path."""
    env = {"RANKLAUNCH_HOSTS": "h0,h1", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_DEEPSPEED_LAUNCHER": by}
    with pytest.raises(ConfigError, match=f"the program has the argument ':', at which {starter} begins another program"):
        helpers.plan(env, "--lr", "1", ":", "4", method=method)
    assert helpers.plan(env, "1:", "::", method=method).processes


def test_deepspeeds_own_ways_hand_on_a_colon() -> None:
    env = {"RANKLAUNCH_HOSTS": "h0,h1", "RANKLAUNCH_NODE": "0"}
    assert helpers.plan(env, ":", method="deepspeed").processes[0].argv[-1] == ":"
    assert helpers.plan({**env, "RANKLAUNCH_DEEPSPEED_LAUNCHER": "pdsh"}, ":", method="deepspeed").processes[0].argv[-1] == ":"


@pytest.mark.parametrize("method", ["mpirun", "deepspeed"])
def test_ipv6_addresses_as_hosts_are_refused(method: str) -> None:
    """Open MPI 4 refuses them itself, and then does not end."""
    env = {"RANKLAUNCH_HOSTS": "fd00::1,fd00::2", "RANKLAUNCH_NODE": "0"}
    with pytest.raises(ConfigError, match="Open MPI 4 accepts no IPv6 address as a host, such as fd00::1"):
        helpers.plan({**env, "RANKLAUNCH_DEEPSPEED_LAUNCHER": "openmpi"}, method=method)
