"""Slurm's environment: host lists with ranges, one ranklaunch on each node, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import helpers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranklaunch.adapters import platforms
from ranklaunch.adapters.platforms.shared import hostlist
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

STEP = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_STEP_NODELIST": "n[1-3]",
    "SLURM_STEP_NUM_NODES": "3", "SLURM_NNODES": "3", "SLURM_NODEID": "1", "SLURMD_NODENAME": "n2", "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    "SLURM_TASKS_PER_NODE": "1(x3)", "SLURM_GPUS_ON_NODE": "2",
}  # fmt: skip
BATCH = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_NODEID": "0",
    "SLURMD_NODENAME": "n1", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "4",
}  # fmt: skip


# As Slurm 22.05 gives them to a script; SLURM_STEP_NODELIST of a step of both is then n[1-3], and n1 is SLURM_NODEID 2.
COMPONENTS = {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]"}
LAST_FIRST = {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n3", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-2]"}


LOGS = f"{helpers.CWD}/ranklaunch-logs"


def plan(base: dict[str, str] = STEP, without: tuple[str, ...] = (), files: dict[str, str] | None = None, **env: str) -> Plan:
    whole = {name: value for name, value in {**base, **env}.items() if name not in without}
    return helpers.plan(whole, files=files, method="spawn")


def refused(**how: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan(**how)
    return list(caught.value.problems)


def source(found: Plan, name: str) -> str:
    return next(reading.source for reading in found.values if reading.name == name)


# Host lists

LISTS = [
    ("node1", ["node1"]),
    ("node1,node2", ["node1", "node2"]),
    ("node[001-003,7]", ["node001", "node002", "node003", "node7"]),
    ("gpu-a[1-2]b[3-4]", ["gpu-a1b3", "gpu-a1b4", "gpu-a2b3", "gpu-a2b4"]),
    ("node[001-003,7],gpu-a[1-2]b[3-4]", ["node001", "node002", "node003", "node7", "gpu-a1b3", "gpu-a1b4", "gpu-a2b3", "gpu-a2b4"]),
    ("n[9-11]", ["n9", "n10", "n11"]),
    ("n[09-11]", ["n09", "n10", "n11"]),
    ("n[99-101]", ["n99", "n100", "n101"]),
    ("a-[00,1]", ["a-00", "a-1"]),
    ("a[1-02]", ["a1", "a2"]),
    ("a[1-2],a[2-3]", ["a1", "a2", "a2", "a3"]),
    ("[1-2]", ["1", "2"]),
    ("a[1-2][3-4]x[01-2]", ["a13x01", "a13x02", "a23x01", "a23x02", "a14x01", "a14x02", "a24x01", "a24x02"]),
    ("rack[1-2]-ib", ["rack1-ib", "rack2-ib"]),
    (" n1 ", ["n1"]),
]


@pytest.mark.parametrize(("text", "names"), LISTS, ids=[text for text, _ in LISTS])
def test_host_list(text: str, names: list[str]) -> None:
    assert list(hostlist.hosts(text)) == names


@helpers.for_each(
    [
        "n[3-1]", "n[1", "n1]", "n[]", "n[1,]", "n[a-b]", "n[1-2-3]", "n[[1]]", "a,,b", "a,", ",a", "", "a b", "n[-1]", "n[1-2]é", "n[ 1]",
        "n[1]" * 1000,
    ]
)  # fmt: skip
def test_host_list_refused(text: str) -> None:
    with pytest.raises(ValueError, match="as Slurm writes them"):
        hostlist.hosts(text)


@pytest.mark.one_python
@pytest.mark.parametrize(
    "text",
    [
        "node[1-1000000000]", "n[0-999999999999999999]", "n[1-60000],m[1-60000]", "a[1-1000][1-1000]", "a[1-999][1-999][1-999][1-999]",
        "n[1-65537]", "[1-1000000000]", ",".join(["n[1-9999]"] * 7), "n[1-2]" * 1000,
    ],
)  # fmt: skip
def test_too_many_hosts_are_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(ValueError, match="at most 65536"):
        hostlist.hosts(text)


def test_as_many_hosts_as_slurm_expands() -> None:
    assert len(hostlist.hosts("n[0-65535]")) == 65_536


numbers = st.integers(0, 120)
ranges = st.builds(
    lambda low, more, width: f"{low:0{width}}" + (f"-{low + more:0{width}}" if more else ""), numbers, st.integers(0, 4), st.integers(1, 4)
)
brackets = st.lists(ranges, min_size=1, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
prefixes = st.text("abz-", min_size=1, max_size=3).filter(lambda text: text[0] != "-")
items = st.builds(
    lambda first, rest: first + "".join(rest), prefixes, st.lists(st.one_of(brackets, brackets, prefixes), max_size=3)
).map(lambda text: text if text.endswith("]") or text[-1] != "-" else f"{text}x")  # fmt: skip
lists = st.lists(items.filter(lambda text: "]" not in text or text.endswith("]")), min_size=1, max_size=3).map(",".join)


@pytest.fixture(scope="module")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=none\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=all Nodes=ALL\n")
    return path


@pytest.mark.processes
@settings(max_examples=60, derandomize=True, database=None)
@given(text=lists)
def test_host_lists_are_expanded_as_scontrol_does(slurm_conf: Path, text: str) -> None:
    scontrol = shutil.which("scontrol")
    if not scontrol:
        pytest.skip("Slurm is not installed")
    command = [scontrol, "show", "hostnames", text]
    done = subprocess.run(command, env={"SLURM_CONF": str(slurm_conf)}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert list(hostlist.hosts(text)) == done.stdout.split()


@pytest.mark.parametrize(
    ("text", "counts"), [("2(x3),1", (2, 2, 2, 1)), ("1", (1,)), ("4(x2)", (4, 4)), ("1,2,3", (1, 2, 3)), ("72(x1),36", (72, 36))]
)
def test_numbers_per_node(text: str, counts: tuple[int, ...]) -> None:
    assert hostlist.counts(text) == counts


@helpers.for_each(["", "x", "2(x)", "2x3", "(x3)", "2(x3", "-1", "1,,2", "1(x1000000000)", "1(x60000),1(x60000)"])
def test_numbers_per_node_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        hostlist.counts(text)


# A job


def test_a_step_is_the_job() -> None:
    job = plan().job
    assert (job.platform, job.name, job.attempt, job.node_index, job.accelerator) == ("slurm", "slurm-7.0", 1, 1, "gpu")
    assert [(node.host, node.slots) for node in job.nodes] == [("n1", 2), ("n2", 2), ("n3", 2)]
    assert job.log_dir == f"{helpers.CWD}/ranklaunch-logs/job_7.0/node_1"


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"SLURM_JOB_NAME": "my job"}, "my job-7.0"),
        ({"SLURM_JOB_NAME": "x", "RANKLAUNCH_JOB_NAME": "own"}, "own"),
        ({"SLURM_STEP_ID": "3"}, "slurm-7.3"),
    ],
)
def test_name(env: dict[str, str], name: str) -> None:
    assert plan(**env).job.name == name


@pytest.mark.parametrize(
    ("env", "attempt"),
    [
        ({}, 1),
        ({"SLURM_RESTART_COUNT": "0"}, 1),
        ({"SLURM_RESTART_COUNT": "2"}, 3),
        ({"SLURM_RESTART_COUNT": "2", "RANKLAUNCH_ATTEMPT": "9"}, 9),
    ],
)
def test_attempt(env: dict[str, str], attempt: int) -> None:
    assert plan(**env).job.attempt == attempt


@pytest.mark.parametrize(
    ("env", "slots", "expected"),
    [
        ({}, 2, "SLURM_GPUS_ON_NODE"),
        ({"RANKLAUNCH_SLOTS": "5"}, 5, "RANKLAUNCH_SLOTS"),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_STEP_GPUS": "0,1,2"}, 3, "SLURM_STEP_GPUS"),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_JOB_GPUS": "3"}, 1, "SLURM_JOB_GPUS"),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_GPUS_PER_NODE": "4"}, 4, "SLURM_GPUS_PER_NODE"),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_GPUS_PER_NODE": "a100:4"}, 4, "SLURM_GPUS_PER_NODE"),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_GPUS_PER_NODE": "a100:2,v100:1"}, 3, "SLURM_GPUS_PER_NODE"),
        ({"SLURM_GPUS_ON_NODE": ""}, 1, "Slurm, which gives no device"),
        ({"SLURM_GPUS_ON_NODE": "0"}, 1, "SLURM_GPUS_ON_NODE"),
    ],
)
def test_slots(env: dict[str, str], slots: int, expected: str) -> None:
    found = plan(**env)
    assert [node.slots for node in found.job.nodes] == [slots] * 3
    assert source(found, "slots") == expected


def test_accelerators_that_slurm_does_not_give_are_not_taken() -> None:
    found = plan(without=("SLURM_GPUS_ON_NODE",), files={"/dev/nvidia0": "", "/dev/nvidiactl": ""})
    assert found.job.node.slots == 1
    assert any("SLURM_GPUS_ON_NODE" in warning and "--slots" in warning for warning in found.warnings)


def test_a_script_on_one_node_has_its_tasks_for_slots() -> None:
    job = plan(BATCH).job
    assert (job.name, [(node.host, node.slots) for node in job.nodes], job.accelerator) == ("slurm-7", [("n1", 4)], "cpu")
    assert job.log_dir == f"{helpers.CWD}/ranklaunch-logs/job_7"


SHELL = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2",
    "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1", "SLURM_NTASKS": "6", "SLURM_TASKS_PER_NODE": "3(x2)", "SLURM_STEP_ID": "4294967290",
    "SLURM_STEPID": "4294967290", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}  # fmt: skip


@pytest.mark.parametrize("nodes", ["2", "1"])
def test_the_shell_of_salloc_is_no_step_of_srun(nodes: str) -> None:
    """SLURM_NNODES: of the job, or of that step, which is on the first node."""
    (problem,) = refused(base=SHELL, SLURM_NNODES=nodes)
    assert "2 nodes, and no SLURM_STEP_ID of srun: this is the job's script or shell" in problem
    assert "srun --ntasks=2 --ntasks-per-node=1 ranklaunch" in problem


def test_the_shell_of_salloc_on_one_node_is_like_a_script() -> None:
    one = {"SLURM_JOB_NODELIST": "n1", "SLURM_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1"}
    found = plan(SHELL, SLURM_TASKS_PER_NODE="3", **one)
    assert ([(node.host, node.slots) for node in found.job.nodes], found.job.name) == ([("n1", 3)], "slurm-7")
    assert found.job.log_dir == f"{LOGS}/job_7"
    assert not found.warnings
    assert platforms.attempt_dir(helpers.reader({**SHELL, **one, "RANKLAUNCH_SLOTS": "many"})) == f"{LOGS}/job_7/attempt_1"


def test_where_nobody_asks_for_tasks_slurm_counts_processors() -> None:
    found = plan(BATCH, without=("SLURM_NTASKS",), SLURM_TASKS_PER_NODE="128", SLURM_CPUS_ON_NODE="128")
    assert [node.slots for node in found.job.nodes] == [1]
    assert [text for text in found.warnings if "SLURM_TASKS_PER_NODE=128 counts processors" in text and "--slots" in text]
    assert plan(BATCH, without=("SLURM_NTASKS",), SLURM_NTASKS_PER_NODE="4").job.node.slots == 4
    assert not plan(BATCH, without=("SLURM_NTASKS",), SLURM_TASKS_PER_NODE="1").warnings
    assert not plan(BATCH, without=("SLURM_NTASKS",), SLURM_GPUS_ON_NODE="2").warnings


def test_uneven_tasks_without_srun_are_the_slots_where_the_node_is_said() -> None:
    env = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", "SLURM_NNODES": "3", "SLURM_TASKS_PER_NODE": "2(x2),1"}
    job = plan(BATCH, RANKLAUNCH_NODE="2", **env).job
    assert ([node.slots for node in job.nodes], job.node_index) == ([2, 2, 1], 2)


def test_a_given_log_folder_is_shared_by_nodes_only() -> None:
    assert plan(RANKLAUNCH_LOG_DIR="/logs").job.log_dir == "/logs/node_1"
    assert plan(BATCH, RANKLAUNCH_LOG_DIR="/logs").job.log_dir == "/logs"


def test_the_folder_of_what_ends_before_there_is_a_job() -> None:
    """On a shared disk the nodes would write over each other's verdicts."""

    def folder(base: dict[str, str], **env: str) -> str:
        return platforms.attempt_dir(helpers.reader({**base, **env}))

    for base in (STEP, BATCH):
        job = plan(base).job
        assert folder(base, RANKLAUNCH_SLOTS="many") == f"{job.log_dir}/attempt_1"
    assert folder(STEP, SLURM_RESTART_COUNT="2", RANKLAUNCH_LOG_DIR="/logs") == "/logs/node_1/attempt_3"
    assert folder(STEP, RANKLAUNCH_PLATFORM="local") == folder(STEP, RANKLAUNCH_PLATFORM="lokal") == f"{LOGS}/attempt_1"


def test_ranklaunch_variables_come_first() -> None:
    job = plan(RANKLAUNCH_HOSTS="a,b", RANKLAUNCH_NODE="0", RANKLAUNCH_SLOTS="1,3", RANKLAUNCH_MASTER_ADDR="m").job
    assert ([node.host for node in job.nodes], job.node_index, [node.slots for node in job.nodes]) == (["m", "b"], 0, [1, 3])


def test_a_step_on_some_of_the_nodes_is_said() -> None:
    found = plan(SLURM_JOB_NODELIST="n[1-8]")
    assert any("3 of the 8 nodes" in warning for warning in found.warnings)
    assert not plan().warnings


@helpers.for_each([
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3)"}, ["SLURM_STEP_TASKS_PER_NODE=2(x3)", "srun --ntasks=3 --ntasks-per-node=1 ", "--slots"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}, ["SLURM_STEP_TASKS_PER_NODE=2(x2),1", "--slots"]),
        ({"without": ("SLURM_STEP_ID", "SLURM_STEP_NODELIST")}, ["no SLURM_STEP_ID", "srun --ntasks=3 --ntasks-per-node=1"]),
        ({"SLURM_STEP_NUM_NODES": "4"}, ["SLURM_STEP_NODELIST names 3 hosts", "SLURM_STEP_NUM_NODES=4"]),
        ({"SLURM_NODEID": "3", "without": ("SLURMD_NODENAME",)}, ["SLURM_NODEID=3", "0 to 2"]),
        ({"SLURMD_NODENAME": "n3"}, ["SLURM_NODEID='1'", "place of n3 among the hosts='2'", "RANKLAUNCH_NODE"]),
        ({"SLURM_STEP_NODELIST": "m[1-3]", "SLURMD_NODENAME": "m2"}, ["names m1", "SLURM_JOB_NODELIST=n[1-3]"]),
        ({"SLURM_HET_SIZE": "2"}, ["SLURM_HET_SIZE=2", "RANKLAUNCH_HOSTS"]),
        ({"base": {**BATCH, **COMPONENTS}}, ["SLURM_JOB_NODELIST=n1: 1 of the 3 nodes of the job", "srun --het-group=0-1 "]),
        ({"SLURM_STEP_NODELIST": "n[1-"}, ["SLURM_STEP_NODELIST='n[1-'", "as Slurm writes them"]),
        ({"SLURM_STEP_NODELIST": "n[1-1000000000]"}, ["SLURM_STEP_NODELIST='n[1-1000000000]'", "at most 65536"]),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_GPUS_PER_NODE": "a100"}, ["SLURM_GPUS_PER_NODE='a100'"]),
        ({"without": ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")}, ["3 nodes", "SLURM_JOB_NODELIST", "RANKLAUNCH_HOSTS"]),
        ({"RANKLAUNCH_NODES": "5"}, ["RANKLAUNCH_NODES=5", "3 hosts"]),
        ({"SLURM_RESTART_COUNT": "x"}, ["SLURM_RESTART_COUNT='x'"]),
    ])  # fmt: skip
def test_refused(how: dict[str, Any], words: list[str]) -> None:
    problems = refused(**how)
    assert len(problems) == 1, problems
    assert all(word in problems[0] for word in words), problems


def test_a_heterogeneous_job_that_is_described_is_planned() -> None:
    job = plan(SLURM_HET_SIZE="2", RANKLAUNCH_HOSTS="a,b,c", RANKLAUNCH_NODE="2", RANKLAUNCH_SLOTS="4,4,1").job
    assert (len(job.nodes), job.node_index) == (3, 2)


def test_the_components_of_a_heterogeneous_job_are_in_the_order_of_sruns_numbers() -> None:
    job = plan(**LAST_FIRST, SLURM_NODEID="2", SLURMD_NODENAME="n2").job
    assert ([node.host for node in job.nodes], job.node_index) == (["n3", "n1", "n2"], 2)


@pytest.mark.parametrize(
    ("env", "slots", "said"),
    [
        ({}, [2, 2, 2], "SLURM_GPUS_ON_NODE"),
        ({"SLURM_GPUS_PER_NODE_HET_GROUP_0": "a100:4", "SLURM_GPUS_PER_NODE_HET_GROUP_1": "2"}, [4, 2, 2], "the components' GPUs"),
        ({"SLURM_GPUS_PER_NODE_HET_GROUP_1": "2"}, [1, 2, 2], "the components' GPUs"),
        ({"SLURM_GPUS_PER_NODE_HET_GROUP_1": "2", "RANKLAUNCH_SLOTS": "3"}, [3, 3, 3], "RANKLAUNCH_SLOTS"),
    ],
)
def test_slots_of_components(env: dict[str, str], slots: list[int], said: str) -> None:
    found = plan(**COMPONENTS, **env)
    assert [node.slots for node in found.job.nodes] == slots
    assert source(found, "slots") == said


def test_a_step_on_one_component_is_said() -> None:
    step = {"SLURM_STEP_NODELIST": "n[2-3]", "SLURM_JOB_NODELIST": "n[2-3]", "SLURM_STEP_NUM_NODES": "2", "SLURM_NNODES": "2"}
    found = plan(**COMPONENTS, **step, SLURM_NODEID="0", SLURMD_NODENAME="n2")
    assert [node.host for node in found.job.nodes] == ["n2", "n3"]
    assert any("SLURM_STEP_NODELIST=n[2-3]: 2 of the 3 nodes of the job; srun --het-group=0-1" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("env", "is_slurm"),
    [
        ({}, False),
        ({"SLURM_JOB_ID": "7"}, False),
        ({"SLURM_JOB_ID": "7", "SLURM_NNODES": "1"}, True),
        ({"SLURM_CONF": "x"}, False),
        (STEP, True),
    ],
)
def test_detection(env: dict[str, str], is_slurm: bool) -> None:
    assert platforms.PLATFORMS["slurm"].detect(helpers.reader(env)) is is_slurm


# What ranks are told of Slurm's tasks: libraries go by it rather than by RANK and WORLD_SIZE

TASKS = {
    "SLURM_NTASKS": "3", "SLURM_NPROCS": "3", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NTASKS_PER_NODE": "1", "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0", "SLURM_GTIDS": "1",
}  # fmt: skip
OF_TASKS = {*TASKS, "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"}


def seen(found: Plan, number: int = 0) -> dict[str, str]:
    """What a process of the plan has of these variables."""
    process = found.processes[number]
    inherited = {name: value for name, value in {**STEP, **TASKS}.items() if name not in process.unset}
    return {name: value for name, value in {**inherited, **process.env}.items() if name in OF_TASKS | {"SLURM_NODEID", "SLURM_JOB_ID"}}


@pytest.mark.parametrize("number", [0, 1])
def test_each_rank_is_one_of_slurms_tasks(number: int) -> None:
    assert seen(plan(**TASKS), number) == {
        "SLURM_JOB_ID": "7", "SLURM_NODEID": "1", "SLURM_NTASKS": "6", "SLURM_NPROCS": "6", "SLURM_STEP_NUM_TASKS": "6",
        "SLURM_NTASKS_PER_NODE": "2", "SLURM_PROCID": str(2 + number), "SLURM_LOCALID": str(number),
    }  # fmt: skip


def test_tasks_on_each_node_are_told_where_that_is_one_number() -> None:
    """Lightning refuses several tasks without it."""
    assert seen(plan(without=("SLURM_NTASKS_PER_NODE",), **TASKS))["SLURM_NTASKS_PER_NODE"] == "2"
    assert "SLURM_NTASKS_PER_NODE" not in seen(plan(RANKLAUNCH_SLOTS="1,2,3", **TASKS))


def test_a_number_of_tasks_without_their_ids_is_not_left_alone() -> None:
    found = plan(without=("SLURM_PROCID", "SLURM_LOCALID"), **TASKS)
    assert (seen(found)["SLURM_PROCID"], seen(found)["SLURM_LOCALID"]) == ("2", "0")


def test_an_index_of_the_users_own_is_slurms_too() -> None:
    assert seen(plan(RANKLAUNCH_NODE="2", **TASKS))["SLURM_NODEID"] == "2"


@pytest.mark.parametrize("method", ["deepspeed", "pytorch", "mpirun"])
def test_ranks_of_another_launcher_know_no_tasks(method: str) -> None:
    found = helpers.plan({**STEP, **TASKS, "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1"}, method=method)
    assert not OF_TASKS & seen(found).keys()
    assert {*found.processes[0].unset} >= OF_TASKS


@pytest.mark.parametrize("method", ["torchrun", "plain", "tensorflow"])
def test_tasks_stay_where_they_mislead_nobody(method: str) -> None:
    """One process for each task; or ranks of torchrun, which say so in other variables that go before."""
    assert seen(helpers.plan({**STEP, **TASKS}, method=method)).keys() >= OF_TASKS


def test_without_slurm_nothing_is_told_of_tasks() -> None:
    assert not any(name.startswith("SLURM_") for name in helpers.plan({}, method="spawn", RANKLAUNCH_SLOTS="2").processes[0].env)


# An allocation that is asked for alone


@pytest.mark.parametrize(
    ("asked", "slots", "kind"), [("nodes=3,gpus=8", [8] * 3, "gpu"), ("nodes=2", [1] * 2, "cpu"), ("nodes=1,gpus=4", [4], "gpu")]
)
def test_the_plan_of_an_allocation(asked: str, slots: list[int], kind: str) -> None:
    """On a login node: what another job has left in the environment counts for nothing."""
    leftover = {"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "x[1-9]", "CUDA_VISIBLE_DEVICES": "", "SLURM_HET_SIZE": "2"}
    found = helpers.call("plan", "--slurm", asked, "--format", "json", "train.py", env=leftover).json
    assert (found["platform"], found["job"]["accelerator"]) == ("slurm", kind)
    assert [(node["host"], node["slots"]) for node in found["job"]["nodes"]] == [(f"node{i + 1}", n) for i, n in enumerate(slots)]
    every = helpers.call("plan", "--slurm", asked, "--all-nodes", "--format", "json", "train.py", env=leftover).json
    assert [plan["job"]["node_index"] for plan in every] == list(range(len(slots)))


def test_the_plan_of_an_allocation_keeps_its_gpus_beside_a_number_of_ranks() -> None:
    job = helpers.call("plan", "--slurm", "nodes=2,gpus=8", "--slots", "4", "--format", "json", "train.py").json["job"]
    assert (job["accelerator"], job["world_size"]) == ("gpu", 8)


@helpers.for_each(["nodes=0", "nodes=x", "gpus=8", "nodes=2,gpus=", "nodes=2 gpus=8", "nodes=2,gpus=9999", "4", "nodes=70000"])
def test_no_allocation(asked: str) -> None:
    found = helpers.call("plan", "--slurm", asked, "train.py")
    assert (found.code, found.out) in ((2, ""), (78, ""))


# Ports


@pytest.mark.parametrize(
    ("job", "ports"), [("7", (20028, 20029)), ("2999", (31996, 31997)), ("3000", (20000, 20001)), ("4x", (29500, 18889))]
)
def test_ports_follow_from_the_jobs_number_on_every_node(job: str, ports: tuple[int, int]) -> None:
    """As in the script of ranklaunch spec slurm."""
    for node, name in enumerate(("n1", "n2", "n3")):
        found = plan(SLURM_JOB_ID=job, SLURM_NODEID=str(node), SLURMD_NODENAME=name)
        assert found.muster
        assert (found.processes[0].env["MASTER_PORT"], found.muster.port) == (str(ports[0]), ports[1])
    reason = "default" if job == "4x" else "20000 + SLURM_JOB_ID % 3000 * 4"
    assert source(found, "master_port") == reason


def test_ports_of_the_users_stay() -> None:
    found = plan(RANKLAUNCH_MASTER_PORT="5000", RANKLAUNCH_MUSTER_PORT="5001")
    assert found.muster
    assert (found.processes[0].env["MASTER_PORT"], found.muster.port) == ("5000", 5001)
    assert (source(found, "master_port"), source(found, "muster_port")) == ("RANKLAUNCH_MASTER_PORT", "RANKLAUNCH_MUSTER_PORT")
    by_method = helpers.plan({**STEP, "MSRUN_MASTER_PORT": "5002"}, method="msrun")
    assert source(by_method, "master_port") == "MSRUN_MASTER_PORT"


def test_sshd_has_the_third_port() -> None:
    found = helpers.plan(STEP, method="mpirun")
    assert (source(found, "sshd_port"), next(each.value for each in found.values if each.name == "sshd_port")) == (
        "20002 + SLURM_JOB_ID % 3000 * 4", "20030",
    )  # fmt: skip


def test_torchrun_on_one_node_chooses_a_port_itself() -> None:
    """Without a warning of a port that nobody has given."""
    assert helpers.plan(BATCH, method="torchrun").warnings == ()
    (warning,) = helpers.plan({**BATCH, "RANKLAUNCH_MASTER_PORT": "5000"}, method="torchrun").warnings
    assert "ignores the master port" in warning
