"""What msrun is told, what is refused or said, and what its words tell of the rank that failed first."""

from __future__ import annotations

import json

import helpers
import pytest

from ranklaunch.adapters.launchers import msrun
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan, RankLog
from ranklaunch.verdict.model import Failure

TABLE = "/user/config/jobstart_hccl.json"
SERVERS = helpers.server_table([("192.0.2.1", [("0", "0"), ("1", "1")]), ("192.0.2.2", [("0", "2"), ("1", "3")])])
SWAPPED = helpers.server_table([("192.0.2.1", [("0", "1"), ("1", "0")]), ("192.0.2.2", [("0", "2"), ("1", "3")])])
LARGER = helpers.server_table([("192.0.2.1", [("0", "0"), ("1", "1"), ("2", "2")]), ("192.0.2.2", [("0", "3")])])
PODS = helpers.group_table([("j-worker-0", "192.0.2.1", "01"), ("j-worker-1", "192.0.2.2", "01")])
SECOND = json.dumps(
    {
        "status": "completed",
        "version": "2.0",
        "rank_count": 2,
        "rank_list": [
            {"rank_id": i, "local_id": i, "device_id": i, "level_list": [{"net_layer": 0, "net_instance_id": "a"}]} for i in range(2)
        ],
    }
)


def plan(*args: str, nodes: int = 2, node: int = 1, table: str = "", program: str = "train.py", module: bool = False, **env: str) -> Plan:
    given = helpers.modelarts(nodes, 2, node, **env)
    del given["MA_CURRENT_INSTANCE_NAME"]
    files = {TABLE: table} if table else {}
    return helpers.plan(given, *args, program=program, module=module, files=files, method="msrun")


def argv(found: Plan) -> list[str]:
    return list(found.processes[0].argv)


def problems(**how: object) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(**how)  # type: ignore[arg-type]
    return str(caught.value)


def test_one_node() -> None:
    assert argv(plan("--lr", "1", nodes=1, node=0)) == [
        "msrun", "--worker_num=2", "--local_worker_num=2", "--master_port=8118", "--log_dir=/logs/attempt_1/msrun", "--join=True",
        "--cluster_time_out=600", "train.py", "--lr", "1",
    ]  # fmt: skip


def test_several_nodes() -> None:
    found = plan()
    assert argv(found) == [
        "msrun", "--worker_num=4", "--local_worker_num=2", f"--master_addr={helpers.hosts(2)[0]}", "--node_rank=1", "--master_port=8118",
        "--log_dir=/logs/attempt_1/msrun", "--join=True", "--cluster_time_out=600", "train.py",
    ]  # fmt: skip
    assert found.by_address
    assert ("hosts", helpers.hosts(2)[0]) in [(wait.kind, wait.what) for wait in found.waits]


@helpers.for_each(
    [
        ({"MSRUN_WORKER_NUM": "4"}, "--worker_num=4"),
        ({"MSRUN_MASTER_ADDR": "192.0.2.9"}, "--master_addr=192.0.2.9"),
        ({"MSRUN_MASTER_ADDR": "2001:db8::1"}, "--master_addr=[2001:db8::1]"),
        ({"MSRUN_MASTER_ADDR": "b", "RANKLAUNCH_MASTER_ADDR": "a"}, "--master_addr=a"),
        ({"MSRUN_MASTER_PORT": "9000"}, "--master_port=9000"),
        ({"MSRUN_MASTER_PORT": "9000", "RANKLAUNCH_MASTER_PORT": "9001"}, "--master_port=9001"),
        ({"MSRUN_LOG_DIR": "/cache/msrun logs"}, "--log_dir=/cache/msrun logs"),
        ({"MSRUN_LOG_DIR": "logs"}, f"--log_dir={helpers.CWD}/logs"),
        ({"MSRUN_LOG_DIR": "/cache", "MA_PROC_START_CNT": "2"}, "--log_dir=/cache/attempt_2"),
        ({"MA_PROC_START_CNT": "2"}, "--log_dir=/logs/attempt_2/msrun"),
        ({"MSRUN_CLUSTER_TIME_OUT": "7200"}, "--cluster_time_out=7200"),
        ({"MSRUN_CLUSTER_TIME_OUT": "-1"}, "--cluster_time_out=-1"),
    ]
)
def test_variables(env: dict[str, str], word: str) -> None:
    found = plan(**env)
    assert word in argv(found)
    assert not found.warnings


def test_the_address_that_is_given_is_waited_for() -> None:
    waits = [(wait.kind, wait.what) for wait in plan(MSRUN_MASTER_ADDR="scheduler.example").waits]
    assert ("hosts", "scheduler.example") in waits


def test_extra_options_come_last_before_the_program() -> None:
    words = argv(plan(RANKLAUNCH_EXTRA_MSRUN_PARAMS='--bind_core=True --tail_worker_log "0,1"'))
    assert words[-4:] == ["--bind_core=True", "--tail_worker_log", "0,1", "train.py"]


@pytest.mark.parametrize(
    ("extra", "warned"),
    [
        ("--bind_core=True", ""),
        ("--master_addr=x", "its own --master_addr"),
        ("--log_dir=/x", "its own --log_dir"),
        ("--worker_log_name=x", "its own --worker_log_name"),
        ("--join=False", "its own --join"),
    ],
)
def test_options_that_fight_are_named(extra: str, warned: str) -> None:
    found = plan(RANKLAUNCH_EXTRA_MSRUN_PARAMS=extra)
    assert len(found.warnings) == bool(warned)
    assert all(warned in text and "RANKLAUNCH_EXTRA_MSRUN_PARAMS" in text for text in found.warnings)
    assert (found.outputs is None) == ("log" in extra)


@helpers.for_each(helpers.HOSTILE)
def test_arguments_arrive_unharmed(value: str) -> None:
    assert argv(plan(value, "--x", value))[-4:] == ["train.py", value, "--x", value]


# What starts the ranks


@pytest.mark.parametrize(
    ("python", "program", "module", "words"),
    [
        ("", "train.py", False, ["train.py"]),
        ("/opt/py/bin/python", "train.py", False, ["train.py"]),
        ("python3", "train.py", False, ["python3", "train.py"]),
        ("/opt/py/bin/python3", "train.py", False, ["python3", "train.py"]),
        ("", "pkg.train", True, ["python", "-m", "pkg.train"]),
        ("/opt/py/bin/python3", "pkg.train", True, ["python3", "-m", "pkg.train"]),
        ("", "python", False, ["python"]),
        ("python3", "pytest", False, ["pytest"]),
    ],
)
def test_interpreter(python: str, program: str, module: bool, words: list[str]) -> None:
    found = plan("--cluster", program=program, module=module, **({"RANKLAUNCH_PYTHON": python} if python else {}))
    assert argv(found)[-len(words) - 2 :] == ["--cluster_time_out=600", *words, "--cluster"]


@pytest.mark.parametrize("python", ["/opt/py/bin/python3.9", "python3.11", "/opt/pypy"])
def test_an_interpreter_that_msrun_would_not_start_is_refused(python: str) -> None:
    told = problems(RANKLAUNCH_PYTHON=python)
    assert all(word in told for word in (f"RANKLAUNCH_PYTHON={python}:", "python or python3", "--method spawn"))


def test_what_runs_in_place_of_such_an_interpreter_is_said() -> None:
    files = {"/opt/py/bin/python3.9": "", "/opt/py/bin/python3": ""}
    found = helpers.plan({"RANKLAUNCH_PYTHON": "/opt/py/bin/python3.9"}, files=files, method="msrun")
    assert argv(found)[-2:] == ["python3", "train.py"]
    assert found.processes[0].env["PATH"] == "/opt/py/bin"
    assert len(found.warnings) == 1
    assert "RANKLAUNCH_PYTHON=/opt/py/bin/python3.9" in found.warnings[0]
    assert "/opt/py/bin/python3 is what runs" in found.warnings[0]


@pytest.mark.parametrize("program", ["train.sh", "bin/train", "ls"])
def test_programs_that_python_does_not_start_are_refused(program: str) -> None:
    told = problems(program=program)
    assert all(word in told for word in (repr(program), "expected a .py file or -m MODULE", "--method spawn"))


# What cannot be


@helpers.for_each(
    [
        ({"RANKLAUNCH_SLOTS": "2,3"}, ["RANKLAUNCH_SLOTS", "2,3 slots", "same number on every node", "--method spawn"]),
        ({"MSRUN_WORKER_NUM": "8"}, ["MSRUN_WORKER_NUM=8 contradicts the job, which has 4 ranks on 2 nodes"]),
        ({"MSRUN_WORKER_NUM": "x"}, ["MSRUN_WORKER_NUM='x'", "expected a whole number"]),
        ({"MSRUN_MASTER_PORT": "0"}, ["MSRUN_MASTER_PORT='0'", "expected a whole number from 1 to 65535"]),
        ({"RANKLAUNCH_MASTER_PORT": "65536"}, ["RANKLAUNCH_MASTER_PORT='65536'", "1 to 65535"]),
        ({"MSRUN_CLUSTER_TIME_OUT": "soon"}, ["MSRUN_CLUSTER_TIME_OUT='soon'", "expected a whole number"]),
        ({"MSRUN_MASTER_ADDR": "a b"}, ["MSRUN_MASTER_ADDR='a b'", "expected a host name"]),
        ({"RANKLAUNCH_EXTRA_MSRUN_PARAMS": "'x"}, ["RANKLAUNCH_EXTRA_MSRUN_PARAMS", "expected shell words"]),
        ({"RANKLAUNCH_EXTRA_MSRUN_PARAMS": "--worker_n=3"}, ["RANKLAUNCH_EXTRA_MSRUN_PARAMS has --worker_num 3: expected 4"]),
        ({"RANKLAUNCH_EXTRA_MSRUN_PARAMS": "--local_worker_num 1"}, ["--local_worker_num 1: expected 2", "RANKLAUNCH_SLOTS"]),
        ({"RANKLAUNCH_EXTRA_MSRUN_PARAMS": "--node=3"}, ["--node_rank 3: expected 1"]),
        ({"RANKLAUNCH_EXTRA_MSRUN_PARAMS": "--n 3"}, ["--node_rank 3: expected 1"]),
        ({"RANKLAUNCH_MASTER_PORT": "18889"}, ["RANKLAUNCH_MUSTER_PORT", "port of the rendezvous too"]),
        ({"MS_RANKTABLE_ENABLE": "true"}, ["MS_RANKTABLE_ENABLE=true", "no rank table"]),
    ]
)
def test_refused(env: dict[str, str], words: list[str]) -> None:
    told = problems(**env)
    assert all(word in told for word in words), told


@pytest.mark.parametrize("hosts", ["127.0.0.1,127.0.0.2", "localhost,b", "::1,::2"])
def test_several_nodes_on_one_machine_are_refused(hosts: str) -> None:
    told = problems(RANKLAUNCH_HOSTS=hosts)
    assert f"RANKLAUNCH_HOSTS={hosts}" in told
    assert "each msrun would start its own scheduler" in told


def test_all_problems_at_once() -> None:
    told = problems(program="train.sh", RANKLAUNCH_SLOTS="2,3", MSRUN_WORKER_NUM="8", MSRUN_MASTER_PORT="0")
    assert len(told.splitlines()) == 4


# Rank tables


@pytest.mark.parametrize("node", [0, 1])
def test_a_table_goes_to_msrun_where_it_is_wanted(node: int) -> None:
    found = plan(node=node, table=SERVERS, MS_RANKTABLE_ENABLE="true")
    assert f"--rank_table_file={TABLE}" in argv(found)
    assert found.files == found.warnings == ()


def test_a_table_whose_order_is_not_that_of_the_nodes_is_refused() -> None:
    """Though its ranks are those that msrun gives: this node would train with the other's devices."""
    table = json.loads(SERVERS)
    for i, server in enumerate(table["server_list"]):
        server["container_ip"] = f"172.16.0.{i}"
    env = {
        "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j", "VC_WORKER_NUM": "2", "VC_TASK_INDEX": "0", "HOSTNAME": "j-worker-0",
        "POD_IP": "172.16.0.1", "RANKLAUNCH_SLOTS": "2", "RANK_TABLE_FILE": TABLE, "MS_RANKTABLE_ENABLE": "true",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"number 1 of its servers, but it is node 0: expected the same$"):
        helpers.plan(env, files={TABLE: json.dumps(table)}, method="msrun", accelerator="npu")


def test_a_table_of_modelarts_is_written_anew() -> None:
    found = plan(table=PODS, MS_RANKTABLE_ENABLE="true")
    assert [file.path for file in found.files] == ["/logs/attempt_1/ranktable.json"]
    assert f"--rank_table_file={found.files[0].path}" in argv(found)
    assert json.loads(found.files[0].text)["version"] == "1.0"


def test_a_table_of_ones_own() -> None:
    given = helpers.modelarts(2, 2, 1, MSRUN_RANK_TABLE_FILE="/code/table.json")
    del given["MA_CURRENT_INSTANCE_NAME"]
    found = helpers.plan(given, files={"/code/table.json": SERVERS}, method="msrun")
    assert "--rank_table_file=/code/table.json" in argv(found)


def test_a_table_that_is_not_ready_is_waited_for() -> None:
    found = plan(table='{"status":"initializing"}', MS_RANKTABLE_ENABLE="true")
    assert [wait.kind for wait in found.waits] == ["rank table", "muster", "hosts"]
    assert f"--rank_table_file={TABLE}" in argv(found)


@helpers.for_each([{}, {"MS_RANKTABLE_ENABLE": "True"}])
def test_a_table_that_is_not_wanted(env: dict[str, str]) -> None:
    found = plan(table=SERVERS, **env)
    assert not any("rank_table" in word for word in argv(found))
    assert any("does not use the rank table" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("table", "env", "words"),
    [
        (SWAPPED, {}, [TABLE, "ranks 1,0 and 2-3", "msrun numbers them 0-1 and 2-3", "--method ranktable"]),
        (LARGER, {}, ["ranks 0-2 and 3 on its servers"]),
        (SECOND, {"MA_NUM_HOSTS": "1"}, ["version 2.0", "expected one that MindSpore reads, 1.0 or 1.2"]),
        (SERVERS, {"MA_CURRENT_HOST_IP": "192.0.2.1"}, [TABLE, "host address 192.0.2.1 is entry 0"]),
        ('{"status":"completed","version":"1.0"}', {}, [TABLE]),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table: str, env: dict[str, str], words: list[str]) -> None:
    nodes, node = (1, 0) if table is SECOND else (2, 1)
    told = problems(table=table, nodes=nodes, node=node, MS_RANKTABLE_ENABLE="true", **env)
    assert all(word in told for word in words), told


# The process, and what it says


def test_recovery_settings_stay_and_stale_ones_go() -> None:
    stale = {"MS_ROLE": "MS_SCHED", "MS_SCHED_HOST": "10.0.0.9", "MS_NODE_ID": "7", "RANK_ID": "3", "DEVICE_ID": "3"}
    kept = {"MS_ENABLE_TFT": "{}", "MS_NODE_TIMEOUT": "900", "MS_TOPO_TIMEOUT": "600", "MS_ENABLE_RECOVERY": "1", "MS_RECOVERY_PATH": "/x"}
    assert set(plan(**stale, **kept).processes[0].unset) == {*stale}


@helpers.for_each(
    {
        "as MindSpore's pages write it": ("{TTP:1,UCE:1,ARF:1}", True),
        "as Ascend Operator writes it": ("{ARF:1,RSC:1}", True),
        "quoted": ('{"ARF": 1}', True),
        "off": ("{TTP:1,ARF:0}", False),
        "others": ("{TTP:1,UCE:1,HCCE:1}", False),
        "none": ("", False),
    }
)
def test_a_recovery_that_needs_the_other_ranks_alive_is_warned_of(value: str, warned: bool) -> None:
    """Whatever the method: the plan says why ARF does nothing, and what to do."""
    for method in ("msrun", "spawn", "plain"):
        found = helpers.plan(helpers.modelarts(2, 2, 1, MS_ENABLE_TFT=value), method=method)
        said = [text for text in found.warnings if "ARF" in text]
        assert len(said) == warned
        assert all("RANKLAUNCH_MAX_RESTARTS" in text and "taskd" in text for text in said)


def test_ranks_write_files_of_their_own() -> None:
    found = plan()
    assert found.outputs
    assert found.outputs.folder == "/logs/attempt_1/msrun"
    ranks = (RankLog("2", 2, "/logs/attempt_1/rank_2.log", "[rank 2] "), RankLog("3", 3, "/logs/attempt_1/rank_3.log", "[rank 3] "))
    assert found.outputs.logs == ranks


def test_the_node_that_starts_the_scheduler_follows_it() -> None:
    """Where all nodes have one log folder, its lines come once."""
    scheduler = RankLog("scheduler", None, "/logs/attempt_1/scheduler.log", "[scheduler] ")
    for found in (plan(VC_TASK_INDEX="0"), plan(MSRUN_MASTER_ADDR="10.0.0.2")):
        assert found.outputs
        assert found.outputs.logs[-1] == scheduler


def test_its_ranks_are_told_directly() -> None:
    assert (plan().processes[0].rank, helpers.launcher(plan()).DEPTH, helpers.launcher(plan()).kills_ranks) == (None, 1, True)


SAID = """[ERROR] ME(14936:139637106486144):2026-11-21-10:38:25.104.000 [mindspore/parallel/cluster/process_entity/_api.py:365] \
Worker process 15005 exit with exception. Error code: {code}.
[WARNING] ME(14936:139637106486144):2026-11-21-10:38:25.104.000 [mindspore/parallel/cluster/process_entity/_api.py:370] \
There's worker exits with exception, kill all other workers.
[ERROR] ME(14936:139637106486144):2026-11-21-10:38:25.486.000 [mindspore/parallel/cluster/process_entity/_api.py:385] \
Scheduler process 15001 exit with exception.
RuntimeError: Distributed job exited with exception. Please check logs in directory: /logs.
"""


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (SAID.format(code=42), Failure(None, 42, 0, 15005)),
        (SAID.format(code=-9), Failure(None, 137, 9, 15005)),
        (SAID.format(code=1).splitlines()[2], None),
        ("", None),
    ],
)
def test_what_it_says_of_the_rank_that_failed(tail: str, expected: Failure | None) -> None:
    assert msrun.report(tail) == expected


def test_what_it_says_when_it_ends_its_ranks() -> None:
    assert all(text in SAID for text in helpers.launcher(plan()).ENDS_RANKS)
