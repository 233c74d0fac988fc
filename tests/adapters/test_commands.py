"""The commands of docs' contract, written out by hand: what every method starts on every node of 4 nodes with 8 slots, and on one."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.plan.model import Plan

JOB = "modelarts-job-5d2e7c1a"
H0 = "ma-job-5d2e7c1a-worker-0.ma-job-5d2e7c1a"
ARGS = ("--epochs=3", "a b")
NODES = range(4)
HCCL = {"HCCL_CONNECT_TIMEOUT": "1800", "HCCL_WHITELIST_DISABLE": "1"}


def plan(method: str, nodes: int, node: int, **more: str) -> Plan:
    return helpers.plan(helpers.modelarts(nodes, 8, node, **more), *ARGS, method=method)


def started(found: Plan) -> list[tuple[str, ...]]:
    return [process.argv for process in found.processes]


@pytest.mark.parametrize("node", NODES)
def test_torchrun(node: int) -> None:
    assert started(plan("torchrun", 4, node)) == [
        (
            "torchrun",
            "--nnodes=4",
            "--nproc_per_node=8",
            f"--node_rank={node}",
            f"--master_addr={H0}",
            "--master_port=18888",
            f"--rdzv_id={JOB}",
            "--rdzv_backend=static",
            "train.py",
            "--epochs=3",
            "a b",
        )
    ]


def test_torchrun_with_the_platforms_settings() -> None:
    found = plan("torchrun", 4, 1, MA_TORCHRUN_MASTER_PORT="29400", MA_EXTRA_TORCHRUN_PARAMS="--rdzv_conf=timeout=7200 --max_restarts 2")
    words = ["--rdzv_backend=static", "--rdzv_conf=timeout=7200", "--max_restarts", "2", "train.py", "--epochs=3", "a b"]
    assert list(started(found)[0][-7:]) == words
    assert "--master_port=29400" in started(found)[0]


def test_torchrun_on_one_node() -> None:
    found = plan("torchrun", 1, 0, MA_EXTRA_TORCHRUN_PARAMS="--max_restarts=1")
    assert started(found) == [
        ("torchrun", "--standalone", "--nnodes=1", "--nproc_per_node=8", "--max_restarts=1", "train.py", "--epochs=3", "a b")
    ]


@pytest.mark.parametrize("node", NODES)
def test_torchrun_after_route_planning(node: int) -> None:
    rank = [1, 2, 0, 3][node]
    found = plan("torchrun", 4, node, ROUTE_PLAN="true", RANK_AFTER_ACC=str(rank), MA_MASTER_INDEX="2")
    assert f"--node_rank={rank}" in started(found)[0]
    assert "--master_addr=ma-job-5d2e7c1a-worker-2.ma-job-5d2e7c1a" in started(found)[0]


def test_with_restarts_of_its_own_torchrun_fails_only_when_it_gives_up() -> None:
    """That it ends its ranks then says nothing yet."""
    assert helpers.launcher(plan("torchrun", 4, 1)).ENDS_RANKS
    restarting = helpers.launcher(plan("torchrun", 4, 1, MA_EXTRA_TORCHRUN_PARAMS="--max-restarts=2"))
    assert (restarting.ENDS_RANKS, restarting.DEPTH) == ((), 1)


def test_after_route_planning_the_master_is_waited_for() -> None:
    found = plan("torchrun", 4, 1, ROUTE_PLAN="true", RANK_AFTER_ACC="2", MA_MASTER_INDEX="2")
    assert [wait.what for wait in found.waits if wait.kind == "hosts"] == ["ma-job-5d2e7c1a-worker-2.ma-job-5d2e7c1a"]


@pytest.mark.parametrize("node", NODES)
def test_pytorch(node: int) -> None:
    assert started(plan("pytorch", 4, node)) == [
        (
            "python",
            "-u",
            "train.py",
            "--epochs=3",
            "a b",
            "--init_method",
            f"tcp://{H0}:6666",
            "--rank",
            str(node),
            "--world_size",
            "4",
        )
    ]


def test_pytorch_on_one_node() -> None:
    assert started(plan("pytorch", 1, 0)) == [("python", "-u", "train.py", "--epochs=3", "a b", "--init_method", "tcp://127.0.0.1:6666")]


@pytest.mark.parametrize("node", NODES)
def test_spawn(node: int) -> None:
    found = plan("spawn", 4, node)
    assert started(found) == [("python", "-u", "train.py", "--epochs=3", "a b")] * 8
    for local_rank, process in enumerate(found.processes):
        assert dict(process.env) == {
            "RANKLAUNCH_ATTEMPT": "1",
            "PYTHONUNBUFFERED": "1",
            **HCCL,
            "RANK": str(8 * node + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": "32",
            "LOCAL_WORLD_SIZE": "8",
            "GROUP_RANK": str(node),
            "MASTER_ADDR": H0,
            "MASTER_PORT": "29500",
        }
        assert process.log == f"/logs/attempt_1/rank_{8 * node + local_rank}.log"


@pytest.mark.parametrize("node", NODES)
def test_ranktable(node: int) -> None:
    pods = [(f"ma-job-5d2e7c1a-worker-{i}", f"192.0.2.{i}", "01234567") for i in (3, 1, 0, 2)]
    files = {"/user/config/jobstart_hccl.json": helpers.group_table(pods)}
    env = helpers.modelarts(4, 8, node, RANK_TABLE_FILE="/user/config")
    found = helpers.plan(env, *ARGS, files=files)
    assert found.method == "ranktable"
    assert started(found) == [("python", "-u", "train.py", "--epochs=3", "a b")] * 8
    for local_rank, process in enumerate(found.processes):
        rank = 8 * node + local_rank
        assert dict(process.env) == {
            "RANKLAUNCH_ATTEMPT": "1",
            "PYTHONUNBUFFERED": "1",
            **HCCL,
            "RANK_TABLE_FILE": "/logs/attempt_1/ranktable.json",
            "ASCEND_DEVICE_ID": str(local_rank),
            "DEVICE_ID": str(local_rank),
            "RANK_ID": str(rank),
            "RANK_SIZE": "32",
            "ASCEND_PROCESS_LOG_PATH": f"/logs/attempt_1/ascend/rank_{rank}",
        }
        assert process.log == f"/logs/attempt_1/rank_{rank}.log"
        assert process.copies == (f"/logs/{JOB}-proc-rank-{rank}-device-{local_rank}.txt",)


@pytest.mark.parametrize("node", NODES)
def test_plain(node: int) -> None:
    assert started(plan("plain", 4, node)) == [("python", "-u", "train.py", "--epochs=3", "a b")]


@pytest.mark.parametrize(
    ("method", "program", "module", "expected"),
    [
        ("plain", "pkg.train", True, ("python", "-u", "-m", "pkg.train", "x")),
        ("plain", "run.sh", False, ("bash", "run.sh", "x")),
        ("plain", "/opt/my trainer", False, ("/opt/my trainer", "x")),
        ("spawn", "pkg.train", True, ("python", "-u", "-m", "pkg.train", "x")),
        ("spawn", "run.sh", False, ("bash", "run.sh", "x")),
        ("torchrun", "pkg.train", True, ("torchrun", "--standalone", "--nnodes=1", "--nproc_per_node=2", "-m", "pkg.train", "x")),
        (
            "torchrun",
            "run.sh",
            False,
            ("torchrun", "--standalone", "--nnodes=1", "--nproc_per_node=2", "--no_python", "bash", "run.sh", "x"),
        ),
        ("torchrun", "trainer", False, ("torchrun", "--standalone", "--nnodes=1", "--nproc_per_node=2", "--no_python", "trainer", "x")),
        # A module whose name ends like a file is still a module.
        ("plain", "pkg.sh", True, ("python", "-u", "-m", "pkg.sh", "x")),
    ],
)
def test_programs_of_every_kind(method: str, program: str, module: bool, expected: tuple[str, ...]) -> None:
    found = helpers.plan(helpers.modelarts(1, 2), "x", program=program, module=module, method=method)
    assert found.processes[0].argv == expected


@pytest.mark.parametrize(
    ("env", "files", "options", "expected"),
    [
        ({"PATH": "/a:/b"}, {"/a/python3": ""}, {}, "python3"),
        ({"PATH": "/a:/b"}, {"/a/python3": "", "/b/python": ""}, {}, "python"),
        ({"PATH": "/a:/b"}, {}, {}, "python"),
        ({"PATH": "/a", "MA_SCRIPT_INTERPRETER": "/opt/py"}, {"/a/python": ""}, {}, "/opt/py"),
        ({"RANKLAUNCH_PYTHON": "py3", "MA_SCRIPT_INTERPRETER": "/opt/py"}, {}, {}, "py3"),
        ({"RANKLAUNCH_PYTHON": "py3"}, {}, {"python": "./venv/bin/python"}, "./venv/bin/python"),
    ],
)
def test_the_users_interpreter(env: dict[str, str], files: dict[str, str], options: dict[str, str], expected: str) -> None:
    assert helpers.plan(env, files=files, method="plain", **options).processes[0].argv[0] == expected


def test_an_interpreter_of_its_own_comes_first_on_path() -> None:
    """So that torchrun, and the python that a script starts, are that environment's."""
    found = helpers.plan(helpers.modelarts(1, 2), method="torchrun", python="/opt/venv/bin/python")
    assert found.processes[0].env["PATH"] == "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"
    again = helpers.plan(helpers.modelarts(1, 2, PATH="/opt/venv/bin:/bin"), method="torchrun", python="/opt/venv/bin/python")
    assert "PATH" not in again.processes[0].env


def test_a_relative_interpreter_gives_an_absolute_folder_on_path() -> None:
    found = helpers.plan(helpers.modelarts(1, 2), method="torchrun", python="venv/bin/python")
    assert found.processes[0].env["PATH"].startswith(f"{helpers.CWD}/venv/bin:")


@pytest.mark.parametrize(("given", "added"), [({}, "1"), ({"PYTHONUNBUFFERED": ""}, "1"), ({"PYTHONUNBUFFERED": "x"}, None)])
def test_output_is_not_held_back_unless_the_user_says_so(given: dict[str, str], added: str | None) -> None:
    found = helpers.plan(helpers.modelarts(1, 1, 0, **given), method="plain")
    assert found.processes[0].env.get("PYTHONUNBUFFERED") == added
