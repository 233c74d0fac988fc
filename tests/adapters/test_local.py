"""No platform: everything is the user's word, or what the machine has."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.env.job import Job
from ranklaunch.errors import ConfigError


def job(files: dict[str, str] | None = None, **env: str) -> Job:
    return helpers.plan(env, files=files, method="spawn").job


def test_nothing_given_is_one_process_here() -> None:
    found = helpers.plan({})
    assert found.method == "plain"
    assert (found.job.platform, found.job.name, found.job.attempt, found.job.master) == ("local", "local", 1, "localhost")
    assert [(node.slots, node.first_rank) for node in found.job.nodes] == [(1, 0)]
    assert found.job.accelerator == "cpu"
    assert found.waits == ()


@pytest.mark.parametrize(
    ("env", "hosts", "slots"),
    [
        ({"RANKLAUNCH_SLOTS": "3"}, ["localhost"], [3]),
        ({"RANKLAUNCH_HOSTS": "a"}, ["a"], [1]),
        ({"RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_SLOTS": "2"}, ["a", "b"], [2, 2]),
        ({"RANKLAUNCH_NODES": "2", "RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_SLOTS": "2,0"}, ["a", "b"], [2, 1]),
        ({"RANKLAUNCH_NODES": "3", "RANKLAUNCH_MASTER_ADDR": "m", "RANKLAUNCH_NODE": "1"}, ["m", "", ""], [1, 1, 1]),
        ({"RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_MASTER_ADDR": "10.0.0.1", "RANKLAUNCH_NODE": "0"}, ["10.0.0.1", "b"], [1, 1]),
        ({"RANKLAUNCH_HOSTS": "::1,::2", "RANKLAUNCH_NODE": "0"}, ["::1", "::2"], [1, 1]),
    ],
)
def test_nodes(env: dict[str, str], hosts: list[str], slots: list[int]) -> None:
    found = job(**env)
    assert [node.host for node in found.nodes] == hosts
    assert [node.slots for node in found.nodes] == slots


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RANKLAUNCH_NODES": "2"}, ["RANKLAUNCH_HOSTS", "RANKLAUNCH_MASTER_ADDR", "RANKLAUNCH_NODE"]),
        ({"RANKLAUNCH_HOSTS": "a,b"}, ["--node (RANKLAUNCH_NODE) does not say", "0 to 1"]),
        ({"RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_NODE": "2"}, ["RANKLAUNCH_NODE=2", "0 to 1"]),
        ({"RANKLAUNCH_NODE": "1"}, ["RANKLAUNCH_NODE=1", "0 to 0"]),
        ({"RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_NODES": "3", "RANKLAUNCH_NODE": "0"}, ["names 2 hosts", "RANKLAUNCH_NODES is 3"]),
        (
            {"RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_SLOTS": "1,2,3"},
            ["RANKLAUNCH_SLOTS='1,2,3'", "3 numbers for 2 nodes"],
        ),
        ({"RANKLAUNCH_NODES": "0"}, ["RANKLAUNCH_NODES='0'"]),
        ({"RANKLAUNCH_HOSTS": "a b"}, ["RANKLAUNCH_HOSTS='a b'"]),
        ({"RANKLAUNCH_MASTER_ADDR": "a b"}, ["RANKLAUNCH_MASTER_ADDR='a b'"]),
    ],
)
def test_refused(env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        job(**env)
    assert all(word in str(caught.value) for word in words), caught.value


@helpers.for_each(
    [
        ({"RANKLAUNCH_NODES": "2", "RANKLAUNCH_MASTER_ADDR": "127.0.0.1"}, "RANKLAUNCH_MASTER_ADDR=127.0.0.1: each of the 2 nodes would"),
        ({"RANKLAUNCH_NODES": "2", "RANKLAUNCH_MASTER_ADDR": "::1"}, "RANKLAUNCH_MASTER_ADDR=::1"),
        ({"RANKLAUNCH_HOSTS": "localhost,h1"}, "RANKLAUNCH_HOSTS=localhost,h1: each"),
        ({"RANKLAUNCH_HOSTS": "h0,h1", "RANKLAUNCH_MASTER_ADDR": "localhost"}, "RANKLAUNCH_MASTER_ADDR=localhost"),
        ({"RANKLAUNCH_HOSTS": "127.0.0.1,127.0.0.2"}, ""),  # one host plays both
        ({"RANKLAUNCH_HOSTS": "h0,localhost"}, ""),
        ({"RANKLAUNCH_NODES": "1", "RANKLAUNCH_MASTER_ADDR": "localhost"}, ""),
    ]
)
def test_a_loopback_host_of_node_0_is_warned_of(env: dict[str, str], said: str) -> None:
    for node in ("0", "1") if env.get("RANKLAUNCH_NODES") != "1" else ("0",):
        found = helpers.plan({**env, "RANKLAUNCH_NODE": node}).warnings
        assert [warning.startswith(said) for warning in found] == [True] * bool(said), found


def test_options_are_named_as_they_were_given() -> None:
    with pytest.raises(Exception, match="--node"):
        helpers.plan({}, hosts="a,b", node_index="2")


@pytest.mark.parametrize(
    ("devices", "slots", "accelerator"),
    [
        (["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], 2, "gpu"),
        (["davinci0", "davinci1", "davinci2", "davinci_manager"], 3, "npu"),
        (["davinci0", "davinci_manager", "nvidia0", "nvidia1", "nvidiactl"], 1, "npu"),
        (["null", "nvidiactl"], 1, "cpu"),
    ],
)
def test_devices_of_this_machine(devices: list[str], slots: int, accelerator: str) -> None:
    found = job(files={f"/dev/{name}": "" for name in devices})
    assert found.node.slots == slots
    assert found.accelerator == accelerator


UNREADABLE = [
    ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": "all"}, "'all' is no device's number or id, so that CUDA sees 0 devices", 1),
    ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": '"0,1"'}, "'\"0' is no device's number or id, so that CUDA sees 0 devices", 1),
    ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": "0-1"}, "'0-1' is no device's number or id, so that CUDA sees 1 device ", 1),
    ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": "0,x"}, "'x' is no device's number or id, so that CUDA sees 1 device ", 1),
    ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": "all"}, "(/dev has 2 device files: nvidia0, nvidia1)", 1),
    ("davinci0 davinci1", {"ASCEND_RT_VISIBLE_DEVICES": "0-1"}, "'0-1' is no device's number or id, so that CANN sees 0 devices", 1),
    ("", {"CUDA_VISIBLE_DEVICES": "all", "RANKLAUNCH_ACCELERATOR": "gpu"}, "(/dev has 0 device files)", 1),
    ("", {"CUDA_VISIBLE_DEVICES": "all"}, "", 1),
    *[("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": text}, "", slots) for text, slots in (("1", 1), ("0, 1", 2), ("0,1,", 2), ("", 1))],
    *[("nvidia0", {"CUDA_VISIBLE_DEVICES": text}, "", 1) for text in ("-1", "NoDevFiles", "GPU-8f2c", "MIG-8f2c,MIG-9a")],
]


@helpers.for_each(UNREADABLE)
def test_a_list_of_devices_that_is_none(devices: str, env: dict[str, str], said: str, slots: int) -> None:
    found = helpers.plan(env, files={f"/dev/{name}": "" for name in devices.split()}, method="spawn")
    warnings = [warning for warning in found.warnings if "_VISIBLE_DEVICES=" in warning]
    assert len(warnings) == bool(said), warnings
    assert all(said in warning for warning in warnings), warnings
    assert found.job.node.slots == slots


def test_given_slots_come_before_devices() -> None:
    assert job(files={"/dev/nvidia0": ""}, RANKLAUNCH_SLOTS="4").node.slots == 4


@pytest.mark.parametrize(
    ("names", "attempt"),
    [([], 1), (["attempt_1"], 2), (["attempt_9", "attempt_10"], 11), (["attempt_x", "attempt_", "attempt_01a", "other", "attempt_-1"], 1)],
)
def test_attempts_go_on_after_those_that_are_there(names: list[str], attempt: int) -> None:
    files = {f"/logs/{name}/verdict.json": "" for name in names}
    assert job(files=files, RANKLAUNCH_LOG_DIR="/logs").attempt == attempt
    assert job(files=files, RANKLAUNCH_LOG_DIR="/logs", RANKLAUNCH_ATTEMPT="7").attempt == 7


@pytest.mark.parametrize(
    ("there", "attempts"),
    [
        ((), (1, 1, 1)),
        (("node_0/attempt_1/plan.json",), (2, 1, 1)),  # the others come later, to what has begun
        (("node_0/attempt_1/plan.json", "node_0/attempt_1/verdict.json"), (2, 2, 2)),  # they did not come in time
        (("node_0/attempt_1/plan.json", "node_1/attempt_1/plan.json", "node_2/attempt_1/plan.json"), (2, 2, 2)),  # all lost their power
        (("node_0/attempt_2/plan.json", "node_1/attempt_1/verdict.json", "node_2/attempt_1/verdict.json"), (3, 2, 2)),
        (("node_1/attempt_2/verdict.json", "node_2/attempt_3/plan.json"), (3, 3, 4)),  # node 0 is new
        (("attempt_4/verdict.json",), (1, 1, 1)),  # of a job of one node
    ],
)
def test_nodes_of_one_folder_have_one_attempt(there: tuple[str, ...], attempts: tuple[int, ...]) -> None:
    files = {f"/logs/{path}": "" for path in there}
    nodes = {"RANKLAUNCH_NODES": "3", "RANKLAUNCH_MASTER_ADDR": "h0", "RANKLAUNCH_LOG_DIR": "/logs"}
    found = [job(files=files, RANKLAUNCH_NODE=str(node), **nodes) for node in range(3)]
    assert tuple(each.attempt for each in found) == attempts
    assert [each.log_dir for each in found] == ["/logs/node_0", "/logs/node_1", "/logs/node_2"]


def test_of_many_nodes_few_are_looked_at() -> None:
    files = {
        "/logs/node_15/attempt_1/verdict.json": "",
        "/logs/node_16/attempt_7/verdict.json": "",
        "/logs/node_99/attempt_1/plan.json": "",
    }
    nodes = {"RANKLAUNCH_NODES": "100", "RANKLAUNCH_MASTER_ADDR": "h0", "RANKLAUNCH_LOG_DIR": "/logs"}
    assert [job(files=files, RANKLAUNCH_NODE=node, **nodes).attempt for node in ("0", "16", "99")] == [2, 8, 2]


def test_a_wrong_number_of_hosts_is_one_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        job(RANKLAUNCH_HOSTS="a,b", RANKLAUNCH_NODES="3", RANKLAUNCH_NODE="0")
    assert len(caught.value.problems) == 1


def test_no_host_is_said_once_for_all() -> None:
    with pytest.raises(ConfigError) as caught:
        job(RANKLAUNCH_NODES="3", RANKLAUNCH_NODE="0")
    assert len(caught.value.problems) == 1


# One of several containers, of an engine that no platform reads

PYTORCH = {"MASTER_ADDR": "pj-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "RANK": "1"}
SEVERAL = [
    pytest.param({"PET_NNODES": "3", "PET_NPROC_PER_NODE": "8"}, "PET_NNODES=3", id="a PyTorchJob of workers alone"),
    pytest.param({"PET_NNODES": "2:4", "PET_RDZV_ENDPOINT": "pj-worker-0:23456"}, "PET_NNODES=2:4", id="an elastic PyTorchJob"),
    pytest.param({"PET_NNODES": "1:4"}, "PET_NNODES=1:4", id="an elastic PyTorchJob that may have one"),
    pytest.param(PYTORCH, "WORLD_SIZE=3", id="a PyTorchJob without PET_ variables"),
    pytest.param({**PYTORCH, "WORLD_SIZE": "2"}, "WORLD_SIZE=2", id="the smallest one"),
    pytest.param({**PYTORCH, "HOSTNAME": "pj-worker-0", "WORKER_ADDRS": "pj-worker-0"}, "WORLD_SIZE=3", id="an XGBoostJob"),
    pytest.param({"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1"}, "LWS_GROUP_SIZE=2", id="a LeaderWorkerSet"),
    pytest.param({"OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh"}, "/etc/mpi/kubexec.sh", id="an MPIJob of version 1"),
]


@pytest.mark.parametrize(("env", "sign"), SEVERAL)
def test_one_of_several_containers_does_not_train_alone(env: dict[str, str], sign: str) -> None:
    with pytest.raises(ConfigError) as caught:
        helpers.plan(env)
    (problem,) = caught.value.problems
    words = (sign, "RANKLAUNCH_NODES", "RANKLAUNCH_NODE ", "RANKLAUNCH_MASTER_ADDR", "RANKLAUNCH_PLATFORM=local")
    assert all(word in problem for word in words), problem


@pytest.mark.parametrize(("env", "sign"), SEVERAL)
@pytest.mark.parametrize(
    ("told", "nodes"),
    [
        ({"RANKLAUNCH_PLATFORM": "local"}, 1),
        ({"RANKLAUNCH_NODES": "1"}, 1),
        ({"RANKLAUNCH_NODES": "2", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_MASTER_ADDR": "m"}, 2),
        ({"RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_NODE": "1"}, 2),
    ],
)
def test_the_users_word_on_the_number_of_nodes_is_enough(env: dict[str, str], sign: str, told: dict[str, str], nodes: int) -> None:
    found = helpers.plan({**env, **told})
    assert len(found.job.nodes) == nodes
    assert sign not in " ".join(found.warnings)


BY_MPIRUN = {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}
BY_INTEL_MPI = {"PMI_SIZE": "8", "PMI_RANK": "3", "MPI_LOCALNRANKS": "8"}
SALLOC = {"SLURM_JOB_ID": "5", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "vm", "SLURM_NTASKS": "8"}


@pytest.mark.parametrize("env", [BY_MPIRUN, BY_INTEL_MPI, {**SALLOC, **BY_MPIRUN}, {**SALLOC, **BY_INTEL_MPI}])
def test_several_of_ranklaunch_that_an_mpirun_has_started_do_not_train_alone(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="=8: mpirun has started several of ranklaunch, and each would start all of the node's ranks"):
        helpers.plan(env)
    assert len(helpers.plan({**env, "RANKLAUNCH_PLATFORM": "local"}).job.nodes) == 1
    assert len(helpers.plan({**env, "RANKLAUNCH_OUTER_RUN": "x"}).job.nodes) == 1  # a rank of ranklaunch's that asks for a plan
    assert len(helpers.plan({name: "1" if text == "8" else "0" for name, text in BY_MPIRUN.items()}).job.nodes) == 1


BY_TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
BY_HOROVODRUN = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"}


@pytest.mark.parametrize(("name", "env"), [("torchrun", BY_TORCHRUN), ("horovodrun", BY_HOROVODRUN)])
def test_several_of_ranklaunch_that_another_launcher_has_started(name: str, env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"=2: {name} has started several of ranklaunch, and each would start all"):
        helpers.plan(env)
    for told in ({"RANKLAUNCH_PLATFORM": "local"}, {"RANKLAUNCH_OUTER_RUN": "x"}):
        assert len(helpers.plan({**env, **told}).job.nodes) == 1
    assert len(helpers.plan({name: "1" if text == "2" else "0" for name, text in env.items()}).job.nodes) == 1


LISTED = "10.0.0.5,10.0.0.6"
ONE_SERVER = helpers.server_table([("10.0.0.5", [("0", "0")])])
TWO_SERVERS = helpers.server_table([("10.0.0.5", [("0", "0")]), ("10.0.0.6", [("0", "1")])])
HOSTS_OF_SGE = "node7.cluster 8 all.q@node7 UNDEF\nnode8.cluster 8 all.q@node8 UNDEF\n"
OWN_PREFIX = {"ACME_GROUP_SIZE": "2", "ACME_NODE_RANK": "1", "ACME_LEADER_ADDR": "10.0.0.1", "ACME_NUM_GPUS": "8"}
JAX = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0", "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234"}
DMLC = {"DMLC_NUM_WORKER": "2", "DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "10.0.0.1"}
MINDSPORE = {"MS_WORKER_NUM": "16", "MS_LOCAL_WORKER": "8", "MS_NODE_RANK": "1", "MS_SCHED_HOST": "10.0.0.1"}
CHIEF_AND_WORKER = '{"cluster": {"chief": ["a:2222"], "worker": ["b:2222"]}, "task": {"type": "chief", "index": 0}}'
LIGHTNING = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "NODE_RANK": "3"}
CLEARML = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}
# Environment, files, and the variables that the message names.
UNKNOWN: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, ...]]] = {
    "a place with a prefix of its own": (OWN_PREFIX, {}, ("ACME_GROUP_SIZE=2", "ACME_LEADER_ADDR=10.0.0.1")),
    "node 0 of such a place": ({**OWN_PREFIX, "ACME_NODE_RANK": "0"}, {}, ("ACME_GROUP_SIZE=2", "ACME_LEADER_ADDR=10.0.0.1")),
    "indexes from 1": ({"NUM_MACHINES": "2", "MACHINE_RANK": "2", "MAIN_PROCESS_IP": "m"}, {}, ("NUM_MACHINES=2", "MACHINE_RANK=2")),
    "another word for nodes": ({"TOTAL_NODES": "4", "NODE_RANK": "0", "MASTER_ADDR": "m"}, {}, ("TOTAL_NODES=4", "NODE_RANK=0")),
    "an index and no count": (LIGHTNING, {}, ("NODE_RANK=3", "MASTER_ADDR=10.0.0.1")),
    "a group's index": ({"GROUP_RANK": "1", "LEADER_ADDR": "10.0.0.1"}, {}, ("GROUP_RANK=1", "LEADER_ADDR=10.0.0.1")),
    "groups": (
        {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "m"}, {},
        ("GROUP_WORLD_SIZE=2", "GROUP_RANK=0", "MASTER_ADDR=m"),
    ),
    "ClearML": ({**CLEARML, "LOCAL_RANK": "0"}, {}, ("WORLD_SIZE=2", "RANK=1", "MASTER_ADDR=10.0.0.1")),
    "a list of local ranks": (
        {"MASTER_ADDR": "m", "WORLD_SIZE": "16", "LOCAL_RANK": "0,1", "LOCAL_WORLD_SIZE": "8"}, {}, ("WORLD_SIZE=16", "LOCAL_WORLD_SIZE=8")
    ),
    "accelerate's words": (
        {"NUM_MACHINES": "2", "MACHINE_RANK": "0", "MAIN_PROCESS_IP": "m"}, {}, ("NUM_MACHINES=2", "MACHINE_RANK=0", "MAIN_PROCESS_IP=m")
    ),
    "nodes of many processes": (
        {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "m", "LOCAL_WORLD_SIZE": "8"}, {}, ("NNODES=2", "NODE_RANK=0", "MASTER_ADDR=m")
    ),
    "a list of hosts for an address": (
        {"NODE_COUNT": "2", "NODE_INDEX": "0", "WORKER_HOSTS": "a,b"}, {}, ("NODE_COUNT=2", "NODE_INDEX=0", "WORKER_HOSTS=a,b")
    ),
    "a machine file for an address": (
        {"NNODES": "2", "NODE_RANK": "0", "MACHINEFILE": "/m"}, {"/m": "a\nb\n"}, ("NNODES=2", "NODE_RANK=0", "MACHINEFILE=/m")
    ),
    "a list of hosts for a count": ({"NODE_LIST": "a:8,b:8", "INDEX": "1"}, {}, ("NODE_LIST=a:8,b:8", "INDEX=1")),
    "a list with this machine": ({"QCG_PM_NODELIST": "a,b", "HOSTNAME": "b"}, {}, ("QCG_PM_NODELIST=a,b",)),
    "a list with the master": (
        {"MLRS_NODE_IPS": LISTED, "MLRS_HEAD_IP": "10.0.0.5"}, {}, (f"MLRS_NODE_IPS={LISTED}", "MLRS_HEAD_IP=10.0.0.5")
    ),
    "Grid Engine": ({"NHOSTS": "2", "PE_HOSTFILE": "/pe"}, {"/pe": HOSTS_OF_SGE}, ("PE_HOSTFILE=/pe with 2 hosts",)),
    "Grid Engine, file of root": ({"NHOSTS": "2", "PE_HOSTFILE": "/pe"}, {}, ("NHOSTS=2", "PE_HOSTFILE=/pe")),
    "OAR": ({"OAR_NODEFILE": "/oar"}, {"/oar": "a\na\nb\n"}, ("OAR_NODEFILE=/oar with 2 hosts",)),
    "Cobalt": ({"COBALT_NODEFILE": "/cobalt"}, {"/cobalt": "a\nb\n"}, ("COBALT_NODEFILE=/cobalt with 2 hosts",)),
    "MindSpore": ({**MINDSPORE, "MS_NODE_RANK": ""}, {}, ("MS_WORKER_NUM=16", "MS_LOCAL_WORKER=8")),
    "MindSpore without a local count": (
        {"MS_WORKER_NUM": "2", "MS_SCHED_HOST": "10.0.0.1"}, {}, ("MS_WORKER_NUM=2", "MS_SCHED_HOST=10.0.0.1")
    ),
    "TensorFlow on Ascend": ({"CM_WORKER_SIZE": "16", "CM_LOCAL_WORKER": "8"}, {}, ("CM_WORKER_SIZE=16", "CM_LOCAL_WORKER=8")),
    "DMLC": (DMLC, {}, ("DMLC_NUM_WORKER=2", "DMLC_PS_ROOT_URI=10.0.0.1")),
    "DMLC's tracker": ({"DMLC_NUM_WORKER": "2", "DMLC_TRACKER_URI": "m"}, {}, ("DMLC_NUM_WORKER=2", "DMLC_TRACKER_URI=m")),
    "a chief and a worker": ({"TF_CONFIG": CHIEF_AND_WORKER}, {}, ("TF_CONFIG", "with 2 hosts")),
    "a rank table": ({"RANK_TABLE_FILE": "/t.json", "MA_RUN_METHOD": "spawn"}, {"/t.json": TWO_SERVERS}, ("/t.json has 2 servers",)),
    "a PaddleJob": ({"PADDLE_NNODES": "2"}, {}, ("PADDLE_NNODES=2",)),
    "an XGBoostJob's master": (
        {"MASTER_ADDR": "x-master-0", "WORLD_SIZE": "2", "RANK": "0", "WORKER_ADDRS": "x-worker-0"}, {},
        ("WORLD_SIZE=2", "RANK=0", "MASTER_ADDR=x-master-0"),
    ),
}  # fmt: skip


@helpers.for_each(UNKNOWN)
def test_a_node_of_a_job_that_is_not_known_does_not_train_alone(env: dict[str, str], files: dict[str, str], signs: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        helpers.plan(env, files=files)
    (problem,) = caught.value.problems
    ways = ("RANKLAUNCH_NODES,", "RANKLAUNCH_NODE ", "RANKLAUNCH_MASTER_ADDR", "RANKLAUNCH_NODES=1", "RANKLAUNCH_PLATFORM=local")
    assert [word for word in (*signs, *ways) if word not in problem] == [], problem
    for way in ({"RANKLAUNCH_NODES": "1"}, {"RANKLAUNCH_PLATFORM": "local"}):
        found = helpers.plan({**env, **way}, files=files)
        assert (len(found.job.nodes), found.noted) == (1, ())


@helpers.for_each(
    {
        "NNODES alone": ({"NNODES": "2"}, "NNODES=2"),
        "NUM_NODES alone": ({"NUM_NODES": "2"}, "NUM_NODES=2"),
        "a count and an index": ({"NODE_COUNT": "2", "NODE_INDEX": "0"}, "NODE_COUNT=2 and NODE_INDEX=0"),
        "groups": ({"GROUP_WORLD_SIZE": "2", "GROUP_RANK": "1"}, "GROUP_WORLD_SIZE=2 and GROUP_RANK=1"),
        "processes by hand": ({"WORLD_SIZE": "8", "RANK": "3"}, "WORLD_SIZE=8 and RANK=3"),
        "Modal": ({"MODAL_CLUSTER_ID": "cl-01J"}, "MODAL_CLUSTER_ID=cl-01J"),
    }
)
def test_a_container_that_may_be_one_of_several_is_warned(env: dict[str, str], sign: str) -> None:
    found = helpers.plan(env)
    (warning,) = found.warnings
    assert (len(found.job.nodes), found.noted) == (1, (warning,))
    assert [word for word in (sign, "RANKLAUNCH_NODES=1", "RANKLAUNCH_PLATFORM=local") if word not in warning] == [], warning
    assert helpers.plan({**env, "RANKLAUNCH_NODES": "1"}).warnings == ()


HERE = {"MASTER_ADDR": "localhost", "WORLD_SIZE": "2", "RANK": "0"}


@helpers.for_each(
    {
        "one node": ({"SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_IPS": "a"}, {}),
        "an array's member": ({"AWS_BATCH_JOB_ID": "x", "AWS_BATCH_JOB_ARRAY_SIZE": "9", "AWS_BATCH_JOB_ARRAY_INDEX": "1"}, {}),
        "a login node": ({"PBS_NUM_NODES": "2", "LSB_MCPU_HOSTS": "a 1 b 1", "NODE_LIST": "a,b"}, {}),
        "a rank table of one server": ({"RANK_TABLE_FILE": "/t.json", "MA_RUN_METHOD": "ranktable"}, {"/t.json": ONE_SERVER}),
        "ranks of one machine": (HERE, {}),
        "hosts of a search engine": ({"OPENSEARCH_HOSTS": "os-0,os-1", "OPENSEARCH_INDEX": "1"}, {}),
        "JAX on one machine": ({**JAX, "JAX_COORDINATOR_ADDRESS": "localhost:1234"}, {}),
        "DMLC on one machine": ({**DMLC, "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_WORKER_ID": "1"}, {}),
        "all of MindSpore's workers": ({**MINDSPORE, "MS_WORKER_NUM": "8", "MS_NODE_RANK": "0"}, {}),
        "Grid Engine, one host": ({"NHOSTS": "1", "PE_HOSTFILE": "/pe"}, {"/pe": "node7 8 all.q@node7 UNDEF\n"}),
        "TensorFlow's tutorial": ({"TF_CONFIG": '{"cluster": {"worker": ["localhost:1", "localhost:2"]}, "task": {"index": 0}}'}, {}),
        "workers, tasks and replicas": (
            {f"{kind}_{form}": "4" for kind in ("WORKERS", "NUM_WORKERS", "TASKS", "REPLICAS") for form in ("COUNT", "TOTAL")}
            | {"NUM_WORKERS": "4", "WORKERS": "4", "REPLICAS": "3", "REPLICA_INDEX": "1", "WORKER_ID": "1", "MASTER_ADDR": "m"}, {},
        ),
        "counts of this node": ({"LOCAL_WORLD_SIZE": "8", "LOCAL_INDEX": "1", "LOCAL_NUM_NODES": "2", "MASTER_ADDR": "m"}, {}),
        "a CI system": ({"CI_NODE_TOTAL": "4", "CI_NODE_INDEX": "2", "CIRCLE_NODE_TOTAL": "4", "CIRCLE_NODE_INDEX": "1"}, {}),
        "a service's nodes": ({"REDIS_NODES": "r0 r1", "REDIS_MASTER_HOST": "r0", "ALLOWED_HOSTS": "a.com,b.com"}, {}),
    }
)  # fmt: skip
def test_a_machine_that_has_such_variables_is_one_node(env: dict[str, str], files: dict[str, str | ValueError]) -> None:
    found = helpers.plan(env, files=files)
    assert (len(found.job.nodes), found.noted) == (1, ())


def test_the_workers_of_an_mpijob_of_version_1_are_known_by_what_is_mounted() -> None:
    with pytest.raises(ConfigError, match="version 1"):
        helpers.plan({}, files={"/etc/mpi/kubexec.sh": "#!/bin/sh\n"})


@helpers.for_each(
    [
        {"PET_NNODES": "1"},
        {"PET_NNODES": "1:1"},
        {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "m"},
        {"WORLD_SIZE": "8"},
        {**PYTORCH, "WORLD_SIZE": "1", "RANK": "0"},
        {**PYTORCH, "WORLD_SIZE": "many"},
        # Ranks of this machine alone.
        {**PYTORCH, "MASTER_ADDR": "localhost"},
        {**PYTORCH, "MASTER_ADDR": "127.0.0.1"},
        {"LWS_GROUP_SIZE": "1", "LWS_WORKER_INDEX": "0"},
    ]
)
def test_what_an_image_may_have_left_is_no_sign_of_others(left: dict[str, str]) -> None:
    assert len(helpers.plan(left).job.nodes) == 1


@helpers.for_each(
    [
        {"LOCAL_RANK": "3"},
        {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
        {"TORCHELASTIC_RUN_ID": "x"},
        {"OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        {"PMI_RANK": "0"},
        {"RANKLAUNCH_OUTER_RUN": "x"},
    ]
)
def test_a_rank_of_a_launcher_is_warned(of_rank: dict[str, str]) -> None:
    (warning,) = helpers.plan({**PYTORCH, **of_rank}).warnings
    assert "WORLD_SIZE=3" in warning
    assert "rank" in warning


@pytest.mark.parametrize(
    "env", [{"CLUSTER_SIZE": "3", "NODE_ID": "0", "DB_PRIMARY_HOST": "db"}, {"WORLD_SIZE": "4", "RANK": "2", "MYSQL_MASTER_HOST": "db"}]
)
def test_the_master_of_a_database_is_no_address_of_another_node(env: dict[str, str]) -> None:
    found = helpers.plan(env)
    assert len(found.job.nodes) == 1
    assert "may be one of several nodes" in found.warnings[0]
