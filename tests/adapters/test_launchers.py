"""Details of the other launchers: ranktable's place in its table, pytorch's appended arguments, steps before the launch."""

from __future__ import annotations

import json

import helpers
import pytest

from ranklaunch.env.job import Program
from ranklaunch.env.reader import Arrived
from ranklaunch.errors import ConfigError
from ranklaunch.plan import planning
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import Request, make_plan

TABLE = "/user/config/jobstart_hccl.json"
TWO_PODS = helpers.group_table([("j-worker-0", "192.0.2.1", "01"), ("j-worker-1", "192.0.2.2", "01")])
ONE_HOST = helpers.group_table([("j-worker-1", "192.0.2.1", "4567"), ("j-worker-0", "192.0.2.1", "0123")])
SERVERS = helpers.server_table([("192.0.2.1", [("0", "0"), ("1", "1")]), ("192.0.2.2", [("0", "2"), ("1", "3")])])


def ranktable(table: str, nodes: int = 2, index: int = 0, **env: str) -> Plan:
    given = helpers.modelarts(nodes, 2, index)
    del given["MA_CURRENT_INSTANCE_NAME"]
    return helpers.plan({**given, **env}, files={TABLE: table}, method="ranktable")


def ranks(found: Plan) -> list[int | None]:
    return [process.rank for process in found.processes]


MIG = {"CUDA_VISIBLE_DEVICES": "MIG-a,MIG-b", "RANKLAUNCH_ACCELERATOR": "gpu"}


@helpers.for_each(
    [
        ("spawn", {}, ["MIG-a", "MIG-b"], "each rank gets one, as device 0"),
        ("spawn", {"RANKLAUNCH_SLOTS": "3"}, ["MIG-a", "MIG-b", "MIG-a"], "each rank gets one, as device 0"),
        ("spawn", {"CUDA_VISIBLE_DEVICES": "MIG-a"}, [None, None], ""),
        ("spawn", {"CUDA_VISIBLE_DEVICES": "0,1"}, [None, None], ""),
        ("spawn", {"RANKLAUNCH_ACCELERATOR": "cpu"}, [None, None], ""),
        ("spawn", {"RANKLAUNCH_SLOTS": "1"}, [None], ""),
        ("torchrun", {}, [None], "shows each of the 2 ranks on this node the first of them alone: --method spawn gives each rank its own"),
        ("torchrun", {"MA_EXTRA_TORCHRUN_PARAMS": "--virtual-local-rank"}, [None], ""),
        ("accelerate", {}, [None], "--method spawn"),
        ("plain", {}, [None], "--method spawn"),
        ("plain", {"RANKLAUNCH_SLOTS": "1"}, [None], ""),
    ]
)
def test_a_process_sees_one_mig_device(method: str, env: dict[str, str], devices: list[str | None], said: str) -> None:
    found = helpers.plan(helpers.local(**{**MIG, **env}), files={"/dev/nvidia0": ""}, method=method)
    assert [process.env.get("CUDA_VISIBLE_DEVICES") for process in found.processes] == devices
    if method == "spawn":
        assert [process.env["LOCAL_RANK"] for process in found.processes] == list("012")[: len(devices)]
    warnings = [warning for warning in found.warnings if "MIG" in warning]
    assert len(warnings) == bool(said)
    assert all(said in warning for warning in warnings)


@pytest.mark.parametrize(("slots", "warned"), [("2", False), ("3", True)])
def test_one_device_file_may_have_several_mig_devices(slots: str, warned: bool) -> None:
    found = helpers.plan(helpers.local(slots=slots, **MIG), files={"/dev/nvidia0": ""}, method="spawn")
    assert any("3 ranks on this node, which has 2 GPUs (CUDA_VISIBLE_DEVICES)" in warning for warning in found.warnings) == warned
    assert any("ranks on this node, which has" in warning for warning in found.warnings) == warned


@helpers.for_each(
    [
        (TWO_PODS, 0, {}, [0, 1]),
        (TWO_PODS, 1, {}, [2, 3]),
        (TWO_PODS, 1, {"MA_CURRENT_INSTANCE_NAME": "j-worker-1"}, [2, 3]),
        (TWO_PODS, 1, {"HOSTNAME": "j-worker-1"}, [2, 3]),
        (TWO_PODS, 1, {"MA_CURRENT_HOST_IP": "192.0.2.2"}, [2, 3]),
        (TWO_PODS, 1, {"MA_CURRENT_IP": "192.0.2.2"}, [2, 3]),
        # Another name for this container than the table's, as images and operators set it: the position counts.
        (TWO_PODS, 1, {"HOSTNAME": "notebook-7f"}, [2, 3]),
        (TWO_PODS, 1, {"MA_CURRENT_IP": "10.9.9.9"}, [2, 3]),
        (ONE_HOST, 1, {"MA_CURRENT_HOST_IP": "192.0.2.1"}, [4, 5, 6, 7]),
        (ONE_HOST, 0, {"MA_CURRENT_INSTANCE_NAME": "j-worker-0", "MA_CURRENT_HOST_IP": "192.0.2.1"}, [0, 1, 2, 3]),
        (SERVERS, 1, {"MA_CURRENT_HOST_IP": "192.0.2.2"}, [2, 3]),
        (SERVERS, 0, {}, [0, 1]),
    ]
)
def test_own_place_in_the_table(table: str, index: int, env: dict[str, str], expected: list[int]) -> None:
    found = ranktable(table, 2, index, **env)
    assert ranks(found) == expected
    assert [process.env["ASCEND_DEVICE_ID"] for process in found.processes] == [str(i) for i in range(len(expected))]
    assert {process.env["RANK_SIZE"] for process in found.processes} == {"8" if table is ONE_HOST else "4"}


@pytest.mark.parametrize(
    ("table", "nodes", "index", "env", "words"),
    [
        (TWO_PODS, 2, 0, {"MA_CURRENT_HOST_IP": "192.0.2.2"}, ["host address 192.0.2.2 is entry 1", "node index 0 is entry 0"]),
        (TWO_PODS, 2, 0, {"HOSTNAME": "j-worker-1"}, ["pod name j-worker-1 is entry 1", "node index 0 is entry 0"]),
        (SERVERS, 2, 1, {"MA_CURRENT_IP": "192.0.2.1"}, ["host address 192.0.2.1 is entry 0", "node index 1 is entry 1"]),
        (TWO_PODS, 3, 2, {}, [TABLE, "none of the table's 2", "node 2"]),
    ],
)
def test_a_table_of_another_job_is_refused(table: str, nodes: int, index: int, env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        ranktable(table, nodes, index, **env)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(("index", "words"), [(0, "it has 1 entry for 2 nodes"), (1, "is none of the table's 1")])
def test_a_table_in_which_two_pods_are_one_server_is_refused(index: int, words: str) -> None:
    """Version 1.0 knows hosts and no pods: pod 0 would start the ranks of both, on its own devices."""
    merged = helpers.server_table([("192.0.2.1", [(str(i), str(i)) for i in range(4)])])
    with pytest.raises(ConfigError) as caught:
        ranktable(merged, 2, index)
    assert str(caught.value).startswith(f"rank table {TABLE}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "it has 2 entries for 1 node, and only the node index, 0, tells which one is this container's"),
        ({"RANKLAUNCH_HOSTS": "192.0.2.2,192.0.2.1"}, "host address 192.0.2.2 is entry 1; node index 0 is entry 0"),
    ],
)
def test_a_table_of_several_servers_says_nothing_of_which_this_is(env: dict[str, str], words: str) -> None:
    """Without a platform, each machine would take itself for node 0."""
    with pytest.raises(ConfigError) as caught:
        helpers.plan({"RANKLAUNCH_RANK_TABLE": TABLE, "RANKLAUNCH_SLOTS": "2", **env}, method="ranktable", files={TABLE: SERVERS})
    assert words in str(caught.value)


def test_a_table_with_too_few_entries_may_be_that_of_an_earlier_attempt() -> None:
    found = ranktable(helpers.group_table([("j-worker-0", "192.0.2.1", "01")]), MA_PROC_START_CNT="2")
    assert [wait.kind for wait in found.waits] == ["rank table", "muster"]
    assert "it has 1 entry for 2 nodes" in found.waits[0].seen


def test_the_table_counts_where_counts_differ() -> None:
    found = ranktable(helpers.group_table([("j-worker-0", "a", "0123"), ("j-worker-1", "b", "01")]))
    assert ranks(found) == [0, 1, 2, 3]
    assert found.job.world_size == 6
    assert found.warnings == ("the rank table has 6 devices, but the node and device counts give 4: the table is used",)


def test_a_table_that_is_not_ready_is_waited_for() -> None:
    found = ranktable('{"status":"initializing"}', 2, 1, RANKLAUNCH_WAIT_S="30")
    assert [(wait.kind, wait.timeout_s) for wait in found.waits] == [("rank table", 30), ("muster", 30)]
    assert found.waits[0].what == TABLE
    assert found.files == ()
    assert ranks(found) == [2, 3]


def test_the_table_is_written_where_the_ranks_look() -> None:
    found = ranktable(TWO_PODS)
    assert [file.path for file in found.files] == ["/logs/attempt_1/ranktable.json"]
    assert json.loads(found.files[0].text)["version"] == "1.0"
    assert found.processes[0].env["RANK_TABLE_FILE"] == found.files[0].path
    assert [wait.kind for wait in found.waits] == ["muster"]


def test_no_table_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a rank table: RANK_TABLE_FILE is not set"):
        helpers.plan(helpers.modelarts(2, 2), method="ranktable")


# Launchers whose script is not there

PYTHON, PACKAGES = "/opt/venv/bin/python", "/opt/venv/lib/python3.11/site-packages"
RUN_PY = {
    "torchrun": "torch/distributed/run.py",
    "accelerate": "accelerate/commands/launch.py",
    "deepspeed": "deepspeed/launcher/runner.py",
}


@pytest.mark.parametrize("method", [*RUN_PY, "megatron"])
@pytest.mark.parametrize(
    ("files", "as_module"),
    [
        (["{python}", "{packages}/{run}"], True),
        (["{python}", "{packages}/{run}", "/opt/venv/bin/{script}"], False),
        (["{python}", "{packages}/{run}", "/usr/bin/{script}"], False),
        (["{python}", "{packages}/other/__init__.py"], False),  # check says that it is missing
        ([], False),  # nothing is seen of the interpreter, as where another machine plans
    ],
)
def test_a_launcher_without_its_script_is_started_as_a_module(method: str, files: list[str], as_module: bool) -> None:
    script = "torchrun" if method == "megatron" else method
    names = {"python": PYTHON, "packages": PACKAGES, "run": RUN_PY[script], "script": script}
    env = helpers.local(1, "2", PATH="/usr/bin:/bin", RANKLAUNCH_LOG_DIR="/logs")
    found = helpers.plan(env, method=method, files={path.format(**names): "" for path in files}, python=PYTHON)
    (process,) = found.processes
    module = RUN_PY[script][: -len(".py")].replace("/", ".")
    assert (process.argv[:3] == (PYTHON, "-m", module)) is as_module, process.argv
    assert as_module or process.argv[0] == script
    assert (process.name, process.tag, process.log) == (script, f"[{script}] ", f"/logs/attempt_1/{script}.log")
    assert [reading.source for reading in found.values if reading.name == script] == (
        [f"no {script} beside the interpreter or on PATH, and its package is there"] if as_module else []
    )
    assert process.least == (("torch", "1.11") if script == "torchrun" else None)


# pytorch


@pytest.mark.parametrize(
    ("args", "appended", "warned"),
    [
        ((), ["--init_method", "tcp://h:6666", "--rank", "0", "--world_size", "2"], []),
        (("--rank", "5"), ["--init_method", "tcp://h:6666", "--world_size", "2"], ["--rank"]),
        (("--rank=5", "--world_size=9"), ["--init_method", "tcp://h:6666"], ["--rank", "--world_size"]),
        (("--init_method=env://",), ["--rank", "0", "--world_size", "2"], ["--init_method"]),
        (("--ranks=5", "--", "rank"), ["--init_method", "tcp://h:6666", "--rank", "0", "--world_size", "2"], []),
    ],
)
def test_appended_arguments(args: tuple[str, ...], appended: list[str], warned: list[str]) -> None:
    found = helpers.plan(helpers.modelarts(2, 8, 0, RANKLAUNCH_HOSTS="h,i"), *args, method="pytorch")
    assert list(found.processes[0].argv) == ["python", "-u", "train.py", *args, *appended]
    assert [text.split()[3] for text in found.warnings] == warned


@pytest.mark.parametrize(
    ("host", "expected"),
    [("worker-0.j", "tcp://worker-0.j:6666"), ("10.0.0.1", "tcp://10.0.0.1:6666"), ("2001:db8::1", "tcp://[2001:db8::1]:6666")],
)
def test_addresses_in_urls(host: str, expected: str) -> None:
    found = helpers.plan(helpers.local(2, "1", 0, RANKLAUNCH_HOSTS=f"{host},b"), method="pytorch")
    assert expected in found.processes[0].argv


# Tags


def test_tags() -> None:
    template = "{{ rank }}/{{ local_rank }}@{{ node }} {{ host }}> "
    found = helpers.plan(helpers.local(2, "2", 1, RANKLAUNCH_LOG_TAG=template), method="spawn")
    assert [process.tag for process in found.processes] == ["2/0@1 n1> ", "3/1@1 n1> "]
    assert helpers.plan(helpers.local(1, "1"), method="plain").processes[0].tag == ""
    assert helpers.plan(helpers.local(1, "2"), method="torchrun").processes[0].tag == "[torchrun] "


# Before the launch

HERE = "/code/"


@pytest.mark.parametrize(
    ("files", "program", "steps"),
    [
        ((), "/code/train.py", []),
        (("ma-pre-start.sh",), "/code/train.py", [("bash", "/code/ma-pre-start.sh")]),
        (("ma_pre_start.sh",), "/code/train.py", [("bash", "/code/ma_pre_start.sh")]),
        (("ma_pre_start.sh", "ma-pre-start.sh"), "/code/train.py", [("bash", "/code/ma-pre-start.sh")]),
        (("pip-requirements.txt",), "/code/train.py", [("python", "-m", "pip", "install", "-r", "/code/pip-requirements.txt")]),
        (
            ("pip-requirements.txt", "ma-pre-start.sh"),
            "/code/run.sh",
            [("bash", "/code/ma-pre-start.sh"), ("python", "-m", "pip", "install", "-r", "/code/pip-requirements.txt")],
        ),
        (("ma-pre-start.sh",), "/other/train.py", []),
    ],
)
def test_steps_before_the_launch(files: tuple[str, ...], program: str, steps: list[tuple[str, ...]]) -> None:
    found = helpers.plan(helpers.local(), files=dict.fromkeys((HERE + name for name in files), ""), program=program, method="spawn")
    assert [step.argv for step in found.prepare] == steps
    assert all(step.rank is None for step in found.prepare)


def test_no_steps_for_a_module_or_when_switched_off() -> None:
    files = {"ma-pre-start.sh": "", "/code/ma-pre-start.sh": ""}
    assert helpers.plan(helpers.local(), files=files, program="train.py", method="spawn").prepare
    assert not helpers.plan(helpers.local(), files=files, program="train", module=True, method="spawn").prepare
    assert not helpers.plan(helpers.local(RANKLAUNCH_PRE_START="off"), files=files, program="train.py", method="spawn").prepare


def test_steps_are_not_misled_either() -> None:
    found = helpers.plan(helpers.local(RANK="3"), files={"ma-pre-start.sh": ""}, method="spawn")
    assert found.prepare[0].unset == ("RANK",)


# Route plans elsewhere


@pytest.mark.parametrize("method", ["spawn", "pytorch", "plain"])
def test_a_route_plan_without_effect_is_said(method: str) -> None:
    found = helpers.plan(helpers.modelarts(2, 2, 0, ROUTE_PLAN="true"), method=method)
    assert found.warnings == (f"ROUTE_PLAN=true has no effect with method {method}",)


def test_an_option_without_effect_is_said_once() -> None:
    found = helpers.plan(helpers.local(), method="tensorflow", master_port="31077")
    assert found.warnings == ("option --master-port='31077' has no effect with method tensorflow",)


def test_all_nodes_of_a_job_can_be_planned_from_one() -> None:
    request = planning.Request(helpers.Program("train.py"), helpers.modelarts(4, 2, 2), helpers.MemoryFiles(), {"method": "spawn"}, "/")
    plans = [planning.make_plan(planning.for_node(request, node)) for node in range(4)]
    assert [process.rank for found in plans for process in found.processes] == list(range(8))
    assert len({found.job.name for found in plans}) == 1


@pytest.mark.parametrize("method", ["spawn", "pytorch", "accelerate"])
@pytest.mark.parametrize(("env", "expected"), [({}, "127.0.0.1"), ({"RANKLAUNCH_MASTER_ADDR": "here"}, "here")])
def test_one_node_meets_within_itself(method: str, env: dict[str, str], expected: str) -> None:
    """A host name that nobody resolves would let its ranks wait for ever."""
    process = helpers.plan({**helpers.modelarts(1, 2, 0), **env}, method=method).processes[0]
    words = [*process.argv, *(f"tcp://{value}:6666" for name, value in process.env.items() if name == "MASTER_ADDR")]
    assert f"tcp://{expected}:6666" in words or expected in words


@pytest.mark.parametrize(("options", "expected"), [({"log_tag": ""}, ["", ""]), ({}, ["[rank 0] ", "[rank 1] "])])
def test_no_tag_is_a_tag(options: dict[str, str], expected: list[str]) -> None:
    found = helpers.plan({**helpers.modelarts(1, 2, 0), "RANKLAUNCH_LOG_TAG": ""}, method="spawn", **options)
    assert [process.tag for process in found.processes] == expected


@pytest.mark.parametrize(("node", "first"), [(0, "0"), (1, "2"), (2, "3")])
def test_pytorch_tells_first_rank_and_world_size_where_slots_differ(node: int, first: str) -> None:
    found = helpers.plan({**helpers.modelarts(3, 2, node), "RANKLAUNCH_SLOTS": "2,1,3"}, method="pytorch")
    env = found.processes[0].env
    assert (env["RANKLAUNCH_FIRST_RANK"], env["RANKLAUNCH_WORLD_SIZE"]) == (first, "6")
    assert any("RANKLAUNCH_FIRST_RANK and RANKLAUNCH_WORLD_SIZE" in warning for warning in found.warnings)


def test_pytorch_with_even_slots_tells_no_ranks() -> None:
    found = helpers.plan(helpers.modelarts(3, 2, 0), method="pytorch")
    assert "RANKLAUNCH_FIRST_RANK" not in found.processes[0].env
    assert not found.warnings


# Without a topology


def route_without_topology(node: int, **env: str) -> Plan:
    pods = [(f"{helpers.JOB}-worker-{i}", f"192.0.2.{i + 1}", "01") for i in range(3)]
    files = {"/table.json": helpers.group_table(pods)}
    told = helpers.modelarts(3, 2, node, RANK_TABLE_FILE="/table.json", ROUTE_PLAN="true", ROUTE_TOPO_WAIT_TIME="60", **env)
    missed = Arrived(missed=("/user/config/ranktable_tor.json",))
    return make_plan(Request(Program("train.py"), told, helpers.MemoryFiles(files), {}, helpers.CWD, missed))


def test_without_a_topology_a_node_keeps_the_order_and_tells_the_others_so() -> None:
    plan = route_without_topology(1)
    assert [process.rank for process in plan.processes] == [2, 3]
    assert (plan.gather, [wait.kind for wait in plan.waits]) == ((), ["muster"])
    assert plan.muster
    assert plan.muster.facts["route_plan"] == "true, but without a topology"
    (warning,) = [text for text in plan.warnings if "topology" in text]
    for part in ("after 60 s", "if no node has one", "ROUTE_TOPO_WAIT_TIME", "cabinet plugin", "ROUTE_PLAN=false"):
        assert part in warning


def test_that_nodes_may_differ_in_it_cannot_be_allowed() -> None:
    with pytest.raises(ConfigError, match="ranks cannot meet where the nodes differ in route_plan"):
        route_without_topology(1, RANKLAUNCH_MUSTER_ALLOW="route_plan")
