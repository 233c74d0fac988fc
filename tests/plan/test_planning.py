"""From an environment to a plan: pure, of any size, seen from any node."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import helpers
import pytest
from helpers import for_each

from ranklaunch.adapters import launchers, platforms
from ranklaunch.adapters.launchers.shared.variables import misleading
from ranklaunch.env import settings
from ranklaunch.env.job import Job, Program, make_nodes
from ranklaunch.errors import ConfigError, UsageError
from ranklaunch.plan import planning
from ranklaunch.plan.hints import behind, own_templates
from ranklaunch.plan.planning import Request

NODES = 10_000


def large(method: str, node: int, slots: str = "8") -> Request:
    env = helpers.modelarts(NODES, 8, 0, RANKLAUNCH_SLOTS=slots)
    return planning.for_node(Request(Program("train.py"), env, helpers.MemoryFiles(), {"method": method}, "/"), node)


@pytest.mark.parametrize("node", [0, 5_000, 9_999])
def test_a_job_of_10000_nodes_by_torchrun(node: int) -> None:
    started = time.process_time()
    plan = planning.make_plan(large("torchrun", node))
    assert plan.processes[0].argv[1:5] == (
        "--nnodes=10000",
        "--nproc_per_node=8",
        f"--node_rank={node}",
        f"--master_addr={helpers.hosts(1)[0]}",
    )
    assert plan.job.world_size == 80_000
    assert time.process_time() - started < 5


@pytest.mark.parametrize("node", [0, 5_000, 9_999])
def test_a_job_of_10000_nodes_by_spawn(node: int) -> None:
    slots = ",".join(str(1 + i % 3) for i in range(NODES))
    started = time.process_time()
    plan = planning.make_plan(large("spawn", node, slots))
    first = sum(1 + i % 3 for i in range(node))
    assert [process.env["RANK"] for process in plan.processes] == [str(first + i) for i in range(1 + node % 3)]
    assert {process.env["WORLD_SIZE"] for process in plan.processes} == {str(sum(1 + i % 3 for i in range(NODES)))}
    assert time.process_time() - started < 5


def test_a_job_of_10000_nodes_without_names_in_its_environment() -> None:
    """Volcano leaves them out where they would be too long, and mounts a file."""
    request = large("torchrun", 9_999)
    env = {name: value for name, value in request.env.items() if name != "VC_WORKER_HOSTS"}
    files = helpers.MemoryFiles({"/etc/volcano/worker.host": "\n".join(helpers.hosts(NODES))})
    plan = planning.make_plan(replace(request, env=env, files=files))
    assert plan.job.node.host == f"{helpers.JOB}-worker-9999.{helpers.JOB}"


def test_what_one_node_knows_of_itself_is_not_told_of_another() -> None:
    env = helpers.modelarts(4, 2, 1, HOSTNAME="h-1", MA_CURRENT_HOST_IP="192.0.2.1", RANKLAUNCH_NODE="1", RANK_AFTER_ACC="3", RANK="9")
    request = planning.for_node(Request(Program("train.py"), env, helpers.MemoryFiles(), {"slots": "2"}, "/"), 3)
    assert env.keys() - request.env.keys() == {"VC_TASK_INDEX", "MA_CURRENT_HOST_IP", "RANKLAUNCH_NODE", "RANK_AFTER_ACC"}
    # Names that end with the index are known of every node.
    assert request.env["HOSTNAME"] == "h-3"
    assert request.env["MA_CURRENT_INSTANCE_NAME"] == f"{helpers.JOB}-worker-3"
    assert request.options == {"slots": "2", "node_index": "3"}
    assert planning.make_plan(request).job.node_index == 3
    assert request.elsewhere["RANK_AFTER_ACC"] == "node 1"


def test_of_its_own_node_all_is_known() -> None:
    env = helpers.modelarts(4, 2, 1, HOSTNAME="h-1", RANK_AFTER_ACC="3")
    request = Request(Program("train.py"), env, helpers.MemoryFiles(), {}, "/")
    for given in (request, replace(request, options={"node_index": "2"})):
        own = planning.for_node(given, 1)
        assert (own.env, own.options, own.elsewhere) == (env, {"node_index": "1"}, {})


def test_names_of_hosts_do_not_end_with_the_index() -> None:
    """A table of hosts called host-1, host-0: whoever is on host-1 is node 0."""
    files = {"/t.json": helpers.server_table([("host-1", [("0", "0")]), ("host-0", [("0", "1")])])}
    env = helpers.modelarts(2, 1, 0, MA_CURRENT_HOST_IP="host-1", RANK_TABLE_FILE="/t.json")
    request = Request(Program("train.py"), env, helpers.MemoryFiles(files), {}, "/")
    assert planning.make_plan(request).job.node_index == 0
    assert planning.make_plan(planning.for_node(request, 0)).job.node_index == 0


def test_other_nodes_are_of_the_same_platform() -> None:
    """Which Volcano's index of this pod alone tells."""
    env = {"VC_TASK_INDEX": "1", "RANKLAUNCH_HOSTS": "a,b"}
    request = Request(Program("train.py"), env, helpers.MemoryFiles(), {}, "/")
    assert [planning.make_plan(planning.for_node(request, i)).job.platform for i in (0, 1)] == ["volcano", "volcano"]
    for given in (replace(request, options={"platform": "local"}), replace(request, env={**env, "RANKLAUNCH_PLATFORM": "local"})):
        assert planning.make_plan(planning.for_node(given, 0)).job.platform == "local"


# What a place reads a second time: to compare it with what others say, or where it starts a process for each rank.
READ_TWICE = {"LEPTON_JOB_NAME", "RANK"}


@for_each({**platforms.PLATFORMS, **{name: launchers.launcher(name) for name in launchers.LAUNCHERS}})
def test_every_variable_gives_one_value(adapter: Any) -> None:
    """In one place; in another, WORLD_SIZE counts processes and no nodes."""
    variables = [*settings.VARIABLES, *settings.PLAN_VARIABLES, *adapter.VARIABLES]
    values: dict[str, set[str]] = {}
    for variable in variables:
        if not variable.value.endswith("_signs"):  # of those only the presence counts
            for name in variable.names:
                values.setdefault(name, set()).add(variable.value)
    assert {name: found for name, found in values.items() if len(found) > 1 and name not in READ_TWICE} == {}


def test_no_variable_is_listed_twice() -> None:
    variables = planning.every_variable()
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize(
    ("table", "slots", "method", "why"),
    [
        (True, "8", "ranktable", "a rank table is given (/user/config/jobstart_hccl.json)"),
        (False, "8", "torchrun", "no method asked for, no rank table, 8 ranks"),
        (False, "1", "plain", "no method asked for, one rank"),
        (False, "0", "plain", "no method asked for, one rank"),
    ],
)
def test_the_method_that_fits(table: bool, slots: str, method: str, why: str) -> None:
    files = {"/user/config/jobstart_hccl.json": helpers.group_table([(f"{helpers.JOB}-worker-0", "a", "01234567")])} if table else {}
    plan = helpers.plan(helpers.modelarts(1, int(slots)), files=files)
    assert (plan.method, plan.why) == (method, why)


@pytest.mark.parametrize(
    ("env", "options", "method", "why"),
    [
        ({"MA_RUN_METHOD": "spawn"}, {}, "spawn", "MA_RUN_METHOD=spawn"),
        ({"MA_RUN_METHOD": "spawn", "RANKLAUNCH_METHOD": "plain"}, {}, "plain", "RANKLAUNCH_METHOD=plain"),
        ({"MA_RUN_METHOD": "spawn", "RANKLAUNCH_METHOD": "plain"}, {"method": "pytorch"}, "pytorch", "option --method pytorch"),
        ({"MA_RUN_METHOD": ""}, {}, "torchrun", "no method asked for, no rank table, 8 ranks"),
    ],
)
def test_the_method_asked_for(env: dict[str, str], options: dict[str, str], method: str, why: str) -> None:
    plan = helpers.plan(helpers.modelarts(1, 8, 0, **env), **options)
    assert (plan.method, plan.why) == (method, why)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", "/workspace/ranklaunch-logs"), ("./a/b", "/workspace/a/b"), ("a", "/workspace/a"), ("/logs", "/logs"), ("/logs/", "/logs")],
)
def test_the_log_folder_is_absolute(given: str, expected: str) -> None:
    assert helpers.plan({"RANKLAUNCH_LOG_DIR": given}).job.log_dir == expected


@pytest.mark.parametrize("folders", ["/no/such", "/templates:/no/such", ":/no/such:"])
def test_a_template_folder_that_is_not_there_is_refused(folders: str) -> None:
    with pytest.raises(ConfigError, match=r"RANKLAUNCH_TEMPLATES=.*no such folder: /no/such"):
        helpers.plan({"RANKLAUNCH_TEMPLATES": folders}, files={"/templates/x": ""})


# What is removed from the environment of the ranks

GONE = """
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT
    PET_NNODES PET_RDZV_ENDPOINT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT RANK_ID RANK_SIZE DEVICE_ID ASCEND_DEVICE_ID
    RANK_TABLE_FILE RANK_TABLE_FILE_V_1_0 MS_ROLE MS_SCHED_HOST MS_SCHED_PORT MS_NODE_ID MS_NODE_RANK MS_WORKER_NUM MS_LOCAL_WORKER
    MS_SERVER_NUM MS_WORKER_IP MS_HCCL_CM_INIT OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK PMI_SIZE PMI_FD PMIX_RANK
"""
KEPT = """
    MS_ENABLE_TFT MS_ENABLE_THM MS_TOPO_TIMEOUT MS_NODE_TIMEOUT MS_ENABLE_RECOVERY MS_RECOVERY_PATH HIGH_AVAILABILITY TTP_PORT
    PROCESS_RECOVER ELASTIC_PROCESS_RECOVER_ENABLE ENABLE_RESTART_FAULT_PROCESS MINDIO_FOR_MINDSPORE MINDIO_WAIT_MINDX_TIME
    TORCH_NCCL_ASYNC_ERROR_HANDLING HCCL_ASYNC_ERROR_HANDLING HCCL_CONNECT_TIMEOUT ASCEND_VISIBLE_DEVICES ASCEND_RT_VISIBLE_DEVICES
    CUDA_VISIBLE_DEVICES NCCL_DEBUG MASTER RANKS MY_RANK RANK_TABLE_FILE_BACKUP rank PET OMP_NUM_THREADS MINDX_TASK_ID VC_TASK_INDEX
    MA_NUM_HOSTS OMPI_MCA_btl LD_LIBRARY_PATH PATH
"""


@for_each(GONE.split())
def test_misleading(name: str) -> None:
    assert misleading({name: "x", "PATH": "/bin"}) == (name,)


@for_each(KEPT.split())
def test_not_misleading(name: str) -> None:
    assert misleading({name: "x"}) == ()


def test_removed_names_are_sorted() -> None:
    assert misleading({"WORLD_SIZE": "", "PET_A": "", "RANK": "1"}) == ("PET_A", "RANK", "WORLD_SIZE")


# Jobs


def test_nodes_have_the_ranks_after_those_before_them() -> None:
    nodes = make_nodes(["a", "b", "c"], [2, 1, 3])
    assert [list(node.ranks) for node in nodes] == [[0, 1], [2], [3, 4, 5]]
    job = Job("j", "local", 1, nodes, 1, "cpu", Program("x.py"), "python", "/logs")
    assert (job.node.host, job.master, job.world_size, job.slots_differ) == ("b", "a", 6, True)


@pytest.mark.parametrize(
    ("program", "python", "shell", "words"),
    [
        (Program("a.py", ("x",)), True, False, ("a.py", "x")),
        (Program("a.sh", ("x",)), False, True, ("a.sh", "x")),
        (Program("a.sh", module=True), True, False, ("-m", "a.sh")),
        (Program("a"), False, False, ("a",)),
        (Program("a.PY"), False, False, ("a.PY",)),
        (Program(".py"), True, False, (".py",)),
    ],
)
def test_kinds_of_program(program: Program, python: bool, shell: bool, words: tuple[str, ...]) -> None:
    assert (program.is_python, program.is_shell, program.words) == (python, shell, words)


@pytest.mark.parametrize("names", ["slots", "torch,world_size", "master_port", "method"])
def test_what_nodes_cannot_differ_in_cannot_be_allowed(names: str) -> None:
    with pytest.raises(ConfigError, match=f"RANKLAUNCH_MUSTER_ALLOW={names}: ranks cannot meet where the nodes differ in"):
        helpers.plan({**helpers.modelarts(2, 2, 0), "RANKLAUNCH_MUSTER_ALLOW": names}, method="spawn")


def seconds_for_all(nodes: int) -> float:
    """Of CPU time, to plan every node and show it as a script."""
    env = helpers.local(nodes=nodes, slots="8", RANKLAUNCH_HOSTS=",".join(f"host-{i}" for i in range(nodes)))
    began = time.process_time()
    found = helpers.call("plan", "--format", "sh", "--all-nodes", "x.py", env=env)
    took = time.process_time() - began
    assert (found.code, found.out.count("exec env")) == (0, nodes)
    return took


@pytest.mark.one_python
def test_plans_of_all_nodes_take_time_by_their_number() -> None:
    """Four times as many take four times as long; what each does for all of them would make that sixteen times."""
    seconds_for_all(2)  # imports
    few, many = seconds_for_all(100), seconds_for_all(400)
    assert many < 8 * few


@pytest.mark.parametrize("method", ["mpirun", "deepspeed"])
def test_a_job_of_very_many_nodes_without_names_is_refused(method: str) -> None:
    env = {"RANKLAUNCH_NODES": "20000", "RANKLAUNCH_SLOTS": "8", "RANKLAUNCH_MASTER_ADDR": "h0", "RANKLAUNCH_NODE": "0"}
    found = helpers.call("plan", "--method", method, "x.py", env={**env, "RANKLAUNCH_DEEPSPEED_LAUNCHER": "pdsh"})
    assert found.code == 78
    assert "nodes 1 to 19999 have no names" in found.err


# Settings that the chosen method does not know


@pytest.mark.parametrize(
    ("method", "env", "options", "said"),
    [
        ("spawn", {}, {"tp": "2"}, ["option --tp='2'"]),
        ("spawn", {"RANKLAUNCH_MIXED_PRECISION": "bf16"}, {}, ["RANKLAUNCH_MIXED_PRECISION='bf16'"]),
        ("spawn", {"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "-v"}, {"pp": "2"}, ["RANKLAUNCH_EXTRA_TORCHRUN_PARAMS='-v'", "option --pp='2'"]),
        ("spawn", {"RANKLAUNCH_MASTER_PORT": "1234", "RANKLAUNCH_INTERFACE": "eth0"}, {}, []),
        ("plain", {"RANKLAUNCH_MASTER_PORT": "1234"}, {"log_tag": "x"}, ["RANKLAUNCH_MASTER_PORT='1234'", "option --log-tag='x'"]),
        ("plain", {"RANKLAUNCH_INTERFACE": "eth0"}, {}, ["RANKLAUNCH_INTERFACE='eth0'"]),
        ("torchrun", {"MSRUN_MASTER_PORT": "8118", "MA_EXTRA_TORCHRUN_PARAMS": "-v"}, {}, []),
        ("torchrun", {"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "-v"}, {}, []),
        ("megatron", {}, {"tp": "2", "mixed_precision": "bf16"}, ["option --mixed-precision='bf16'"]),
    ],
)
def test_settings_without_effect_are_said(method: str, env: dict[str, str], options: dict[str, str], said: list[str]) -> None:
    warnings = helpers.plan({**helpers.modelarts(1, 4), **env}, method=method, **options).warnings
    assert sorted(text for text in warnings if " has no effect " in text) == sorted(
        f"{text} has no effect with method {method}" for text in said
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RANKLAUNCH_GRACE", ", did you mean RANKLAUNCH_GRACE_S?"),
        ("RANKLAUNCH_NPROC_PER_NODE", ", did you mean RANKLAUNCH_SLOTS?"),
        ("RANKLAUNCH_HANG_AFTER_S", ", did you mean RANKLAUNCH_HANG_S?"),  # not LOST_AFTER_S, though that has more letters of it
        ("RANKLAUNCH_zebra", ""),
        ("RANKLAUCH_HANG", ", did you mean RANKLAUNCH_HANG?"),
        ("ranklaunch_hang", ", did you mean RANKLAUNCH_HANG?"),
    ],
)
def test_variables_that_are_none_of_ours_are_said(name: str, hint: str) -> None:
    said = f"{name} is no variable of ranklaunch's and has no effect{hint}"
    assert helpers.plan({**helpers.modelarts(1, 4), name: "9"}).warnings == (said,)
    # Where something is missing, it is what leads to the remedy.
    with pytest.raises(ConfigError, match="2 nodes, but") as refused:
        helpers.plan({"RANKLAUNCH_NODES": "2", name: "a,b"})
    assert refused.value.hints == (said,)


def test_variables_that_others_call_like_ours_are_not_said() -> None:
    """Those of a Service called ranklaunch-x, what a run sets for what it starts, and what is empty."""
    links = {"RANKLAUNCH_X_SERVICE_HOST": "10.0.0.1", "RANKLAUNCH_X_SERVICE_PORT": "80", "RANKLAUNCH_X_PORT": "tcp://10.0.0.1:80"}
    links.update({"RANKLAUNCH_X_PORT_80_TCP": "tcp://10.0.0.1:80", "RANKLAUNCH_X_PORT_80_TCP_ADDR": "10.0.0.1"})
    assert helpers.plan({**helpers.modelarts(1, 4), **links, "RANKLAUNCH_OUTER_RUN": "[]", "RANKLAUNCH_GRACE": ""}).warnings == ()
    assert helpers.plan({**helpers.modelarts(1, 4), "RAY_HANG": "1", "RANKLAUCH_ZEBRA": "1", "LAUNCH_HANG": "1"}).warnings == ()


def test_very_many_unknown_variables_are_counted() -> None:
    warnings = helpers.plan({**helpers.modelarts(1, 4), **{f"RANKLAUNCH_ZEBRA_{i:03}": "1" for i in range(100)}}).warnings
    assert len(warnings) == 9
    assert warnings[-1].startswith("92 more variables begin with RANKLAUNCH_")


def test_templates_that_nothing_uses_are_said() -> None:
    names = ("/t/spawn/comand.j2", "/t/spawn/command.j2", "/t/part.j2", "/t/..data/spawn/x.j2", "/t/README.md")
    files = {**dict.fromkeys(names, ""), "/t/torchrun/command.j2": '{% include "part.j2" %}'}
    said = "/t/spawn/comand.j2: no method and no other template uses a template of this name, did you mean 'spawn/command.j2'?"
    assert helpers.plan({"RANKLAUNCH_TEMPLATES": "/t"}, files=files).warnings == (said,)


def test_a_folder_of_templates_may_hold_anything() -> None:
    """That of the program, with its data below it, is not gone through."""
    files = helpers.MemoryFiles({f"/t/data{i}/{j}/x": "" for i in range(5) for j in range(1000)})
    asked: list[str] = []
    files.is_dir = lambda path: bool(asked.append(path)) or not path.endswith("x")  # type: ignore[method-assign]
    assert not list(own_templates.unused(["/t"], files, ()))
    assert 0 < len(asked) <= own_templates.MOST


# Options behind the program


@for_each([((), ()), (("--slots", "2", "--nodes=2", "--lr", "3"), ("--slots", "--nodes")), (("slots", "-m", "--slots2"), ())])
def test_options_of_ours_behind_the_program_are_seen(args: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert behind.names(Program("train.py", args)) == found
    assert bool(behind.hint(Program("train.py", args))) == bool(found)


# The interface of all communication


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        ({"RANKLAUNCH_INTERFACE": "eth1"}, {"NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "eth1", "TP_SOCKET_IFNAME": "eth1"}),
        ({"RANKLAUNCH_INTERFACE": "eth1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "eth"}, {"TP_SOCKET_IFNAME": "eth1"}),
    ],
)
@pytest.mark.parametrize("kind", ["gpu", "cpu"])
@pytest.mark.parametrize("method", ["spawn", "torchrun", "accelerate", "deepspeed", "pytorch", "msrun", "mpirun"])
def test_the_interface_of_gpus_and_cpus(env: dict[str, str], expected: dict[str, str], kind: str, method: str) -> None:
    given = {**helpers.modelarts(2, 2), "RANKLAUNCH_ACCELERATOR": kind, **env}
    plan = helpers.plan(given, method=method, files={"/proc/net/route": "Iface Destination\neth0 00000000\n"})
    assert {name: value for name, value in plan.processes[0].env.items() if name.endswith("_SOCKET_IFNAME")} == expected
    if env:
        assert next(reading for reading in plan.values if reading.name == "interface").value == "eth1"


def test_routes_that_cannot_be_read_name_no_interface() -> None:
    given = {**helpers.modelarts(2, 2), "RANKLAUNCH_ACCELERATOR": "npu"}
    plan = helpers.plan(given, method="spawn", files={"/proc/net/route": ValueError("it is no text")})
    assert "HCCL_SOCKET_IFNAME" not in plan.processes[0].env


def test_the_interface_of_all_is_mpis_too() -> None:
    env = {**helpers.modelarts(2, 2), "RANKLAUNCH_ACCELERATOR": "gpu", "RANKLAUNCH_INTERFACE": "eth1"}
    (process,) = helpers.plan(env, method="mpirun").processes
    assert process.env["OMPI_MCA_btl_tcp_if_include"] == process.env["OMPI_MCA_oob_tcp_if_include"] == "eth1"
    assert "NCCL_SOCKET_IFNAME" in process.argv
    assert not [word for word in process.argv if word.startswith("NCCL_SOCKET_IFNAME=")]
    (own,) = helpers.plan({**env, "RANKLAUNCH_MPI_INTERFACES": "ib0"}, method="mpirun").processes
    assert own.env["OMPI_MCA_btl_tcp_if_include"] == "ib0"


@pytest.mark.parametrize(
    ("env", "timeout_s", "source"),
    [
        ({"RANKLAUNCH_WAIT_S": "5"}, 5, "RANKLAUNCH_WAIT_S"),
        ({"RANKLAUNCH_WAIT_S": "5", "RANKLAUNCH_MUSTER_TIMEOUT_S": "7"}, 7, "RANKLAUNCH_MUSTER_TIMEOUT_S"),
        ({}, 600, "default"),
    ],
)
def test_nodes_wait_for_each_other_as_long_as_for_all_else(env: dict[str, str], timeout_s: float, source: str) -> None:
    found = helpers.plan({**helpers.modelarts(2, 2, 0), **env}, method="spawn")
    assert found.muster
    reading = next(value for value in found.values if value.name == "muster_timeout_s")
    assert (found.muster.timeout_s, reading.value, reading.source) == (timeout_s, str(timeout_s), source)


SLURM = {
    "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "a[1-2]", "SLURM_PROCID": "0", "SLURM_NODEID": "0",
    "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "1(x2)",
}  # fmt: skip
OF_TRAINJOB = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "m"}
OF_SAGEMAKER = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-1"}


@for_each(
    [
        ({}, "RANKLAUNCH_NODES", "abc", {"RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_NODE": "1"}),
        ({}, "RANKLAUNCH_NODES", "0", {"RANKLAUNCH_SLOTS": "2,3", "RANKLAUNCH_MASTER_ADDR": "m", "RANKLAUNCH_NODE": "1"}),
        ({}, "RANKLAUNCH_HOSTS", "a b/", {"RANKLAUNCH_NODES": "2", "RANKLAUNCH_NODE": "1"}),
        ({}, "RANKLAUNCH_HOSTS", "a,", {"RANKLAUNCH_NODE": "1"}),
        ({}, "RANKLAUNCH_SLOTS", "x", {}),
        ({}, "RANKLAUNCH_NODE", "x", {"RANKLAUNCH_HOSTS": "a,b"}),
        (helpers.modelarts(2, 2, 1), "MA_NUM_HOSTS", "x", {}),
        (helpers.modelarts(2, 2, 1), "VC_WORKER_HOSTS", "a,b/", {}),
        ({"VC_TASK_INDEX": "0"}, "RANKLAUNCH_HOSTS", "a/", {}),
        ({"VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "a,b"}, "VC_WORKER_HOSTS", "a,b/", {}),
        ({"JOB_COMPLETION_INDEX": "1"}, "RANKLAUNCH_HOSTS", "a/", {}),
        *((SLURM, name, text, {}) for name, text in (("SLURM_NNODES", "x"), ("SLURM_JOB_NODELIST", "a[1-"), ("SLURM_NODEID", "x"))),
        *((OF_TRAINJOB, name, text, {}) for name, text in (("PET_NNODES", "x"), ("PET_NODE_RANK", "x"), ("PET_MASTER_ADDR", "m/"))),
        *((OF_SAGEMAKER, name, text, {}) for name, text in (("SM_HOSTS", "[1"), ("SM_NUM_GPUS", "x"))),
    ]
)
def test_a_malformed_value_is_one_problem(platform: dict[str, str], name: str, text: str, more: dict[str, str]) -> None:
    """What follows from the default that stands in its place is none."""
    with pytest.raises(ConfigError) as caught:
        helpers.plan({**platform, **more, name: text})
    (problem,) = caught.value.problems
    assert problem.startswith(f"{name}={text!r}: expected "), problem


def test_malformed_values_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        helpers.plan({"RANKLAUNCH_NODES": "x", "RANKLAUNCH_SLOTS": "y", "RANKLAUNCH_WAIT_S": "z"})
    assert {problem.partition("=")[0] for problem in caught.value.problems} >= {"RANKLAUNCH_NODES", "RANKLAUNCH_SLOTS"}


def test_a_malformed_option_is_a_wrong_command_line() -> None:
    with pytest.raises(UsageError):
        helpers.plan({"RANKLAUNCH_NODES": "2", "RANKLAUNCH_NODE": "1"}, hosts="a b/")


@pytest.mark.parametrize(("restarts", "warned"), [("0", True), ("", True), ("2", False)])
def test_a_restart_after_a_hang_without_restarts_is_warned_of(restarts: str, warned: bool) -> None:
    env = {"RANKLAUNCH_HANG": "restart", "RANKLAUNCH_MAX_RESTARTS": restarts}
    found = helpers.plan(helpers.modelarts(1, 2, 0, **env), method="spawn")
    texts = [text for text in found.warnings if "RANKLAUNCH_MAX_RESTARTS is 0" in text]
    assert len(texts) == warned
