"""Whole jobs as the engines of Kubernetes make them: every pod is planned from its own environment, and all plans are of one job.

A model of what each engine gives its pods: their names, variables and files. What it leaves to chance here is what users choose: names,
counts, tasks, plugins, the network, the method.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

import helpers
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranklaunch.plan.model import Plan


class Pod(NamedTuple):
    env: dict[str, str]
    files: dict[str, str]


Draw = st.DrawFn
Engine = st.SearchStrategy[list[Pod]]

COUNTS = st.sampled_from([1, 2, 3, 2, 3, 4, 11])
# Such as could be taken for a pod's, a task's or a machine's, or cut at the wrong place.
NAMES = st.one_of(
    st.sampled_from(
        [
            "j",
            "train-1",
            "a-0",
            "x-worker",
            "llama-7b-sft-0-1",
            "my-master",
            "my-master-0",
            "j-launcher",
            "worker-0",
            "node",
            "x-node-0",
            "n" * 40,
        ]
    ),
    st.from_regex(r"[a-z]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True),
)
# Machines' names, no two of which differ by nothing but a number that is the node's.
MACHINES = st.sampled_from(["gpu-{letter}", "npu-{letter}-worker-1", "rack-{letter}-0", "x-{letter}-master-0", "10-0-0-{place}"])
DEVICES = {
    "gpu": {**{f"/dev/nvidia{i}": "" for i in range(4)}, "/dev/nvidiactl": ""},
    "npu": {**{f"/dev/davinci{i}": "" for i in range(4)}, "/dev/davinci_manager": ""},
    "cpu": {},
}


def numbered(stem: str, count: int) -> list[str]:
    return [f"{stem}-{i}" for i in range(count)]


def hosts_file(pod: str, service: str = "", address: str = "10.244.0.9") -> dict[str, str]:
    """As kubelet writes it for a pod with a network of its own."""
    names = f"{pod}.{service}.team-a.svc.cluster.local\t{pod}" if service else pod
    return {"/etc/hosts": f"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n{address}\t{names}\n"}


def on_machines(draw: Draw, pods: list[Pod], whether: bool | None = None) -> list[Pod]:
    """The same pods, now and then on the host's network, where they are called like their machines and have these machines' files."""
    if not (draw(st.booleans()) if whether is None else whether):
        return pods
    form = draw(MACHINES)
    machines = [form.format(letter="kzbrqcwmdtfva"[i], place=40 - 3 * i) for i in range(len(pods))]
    return [
        Pod(
            {**pod.env, "HOSTNAME": name},
            {**pod.files, "/etc/hosts": f"# Kubernetes-managed hosts file (host network).\n10.0.0.1 {name}\n"},
        )
        for pod, name in zip(pods, machines)
    ]


def lists(draw: Draw, job: str, tasks: dict[str, int]) -> Pod:
    """What plugin svc gives to every pod: variables or files."""
    hosts = {task: [f"{pod}.{job}" for pod in numbered(f"{job}-{task}", count)] for task, count in tasks.items()}
    keys = {task: task.upper().replace("-", "_") for task in tasks}
    env = {f"VC_{keys[task]}_NUM": str(count) for task, count in tasks.items()}
    if draw(st.booleans()):
        return Pod(env, {f"/etc/volcano/{task.replace('-', '_')}.host": "\n".join(names) for task, names in hosts.items()})
    return Pod({**env, **{f"VC_{keys[task]}_HOSTS": ",".join(names) for task, names in hosts.items()}}, {})


def of_tasks(draw: Draw, job: str, tasks: dict[str, int], others: dict[str, int] | None = None) -> list[Pod]:
    """The pods of the tasks, in the order of these, in a job that has other tasks too."""
    told = lists(draw, job, {**tasks, **(others or {})})
    devices = DEVICES[draw(st.sampled_from(sorted(DEVICES)))]
    places = [(pod, i) for task, count in tasks.items() for i, pod in enumerate(numbered(f"{job}-{task}", count))]
    return [
        Pod(
            {**told.env, "HOSTNAME": pod, "VC_TASK_INDEX": str(i), "VK_TASK_INDEX": str(i)},
            {**told.files, **devices, **hosts_file(pod, job)},
        )
        for pod, i in places
    ]


@st.composite
def volcano(draw: Draw) -> list[Pod]:
    job, workers = draw(NAMES), draw(COUNTS)
    return of_tasks(draw, job, {draw(st.sampled_from(["worker", "trainer", "w-1"])): workers})


@st.composite
def volcano_with_plugin_pytorch(draw: Draw) -> list[Pod]:
    job, count = draw(NAMES), draw(COUNTS)
    master, workers = draw(st.sampled_from(["master", "head"])), draw(st.sampled_from(["worker", "trainer", "w-1"]))
    others = {"tensorboard": count + 1} if draw(st.booleans()) else {}
    pods = of_tasks(draw, job, {master: 1, workers: count}, others)
    plugin = {"MASTER_ADDR": f"{job}-{master}-0.{job}", "MASTER_PORT": "23456", "WORLD_SIZE": str(count + 1)}
    return on_machines(draw, [Pod({**pod.env, **plugin, "RANK": str(i)}, pod.files) for i, pod in enumerate(pods)])


@st.composite
def volcano_with_plugin_mpi(draw: Draw) -> list[Pod]:
    job, count = draw(NAMES), draw(COUNTS)
    master, workers = draw(st.sampled_from([("master", "worker"), ("mpimaster", "mpiworker"), ("launcher", "w-1")]))
    pods = of_tasks(draw, job, {master: 1, workers: count})
    pods[0].env["MPI_HOST"] = ",".join(f"{pod}.{job}" for pod in numbered(f"{job}-{workers}", count))
    return [Pod({**pod.env, "RANKLAUNCH_METHOD": "mpirun"}, pod.files) for pod in pods]


@st.composite
def volcano_with_the_operators_rank_table(draw: Draw) -> list[Pod]:
    job, count, knows = draw(NAMES), draw(COUNTS), draw(st.sampled_from(["POD_IP", "XDL_IP", "/etc/hosts"]))
    order = draw(st.permutations(range(count)))
    servers = [
        {
            "server_id": f"10.0.0.{i}", "container_ip": f"172.16.0.{i}",
            "device": [{"device_id": str(d), "device_ip": f"29.0.{i}.{d}", "rank_id": str(4 * i + d)} for d in range(4)],
        }
        for i in range(count)
    ]  # fmt: skip
    table = json.dumps({"status": "completed", "version": "1.0", "server_count": str(count), "server_list": servers})
    told = lists(draw, job, {"worker": count})
    pods = []
    for i, pod in enumerate(numbered(f"{job}-worker", count)):
        address = f"172.16.0.{order[i]}"
        known = {"POD_IP": {"POD_IP": address}, "XDL_IP": {"XDL_IP": f"10.0.0.{order[i]}"}}.get(knows, {})
        files = {**told.files, **DEVICES["npu"], "/user/serverid/devindex/config/hccl.json": table}
        files.update(hosts_file(pod, job, address) if knows == "/etc/hosts" else {})
        pods.append(Pod({**told.env, **known, "HOSTNAME": pod, "VC_TASK_INDEX": str(i), "RANKLAUNCH_METHOD": "ranktable"}, files))
    return [pods[order.index(i)] for i in range(count)]


@st.composite
def modelarts(draw: Draw) -> list[Pod]:
    count, slots = draw(COUNTS), draw(st.sampled_from([0, 1, 8]))
    return [Pod(helpers.modelarts(count, slots, i), {}) for i in range(count)]


def indexed(job: str, count: int, service: str) -> list[Pod]:
    counts = {"RANKLAUNCH_NODES": str(count), "RANKLAUNCH_SLOTS": "2"}
    return [
        Pod({**counts, "HOSTNAME": pod, "JOB_COMPLETION_INDEX": str(i)}, hosts_file(pod, service))
        for i, pod in enumerate(numbered(job, count))
    ]


@st.composite
def indexed_job(draw: Draw) -> list[Pod]:
    job, count = draw(NAMES), draw(COUNTS)
    service = draw(st.sampled_from([job, "0-svc", ""]))
    pods = indexed(job, count, service)
    if service:
        return pods
    return on_machines(draw, [Pod({**pod.env, "RANKLAUNCH_MASTER_ADDR": f"{job}-0.svc"}, pod.files) for pod in pods])


@st.composite
def jobset(draw: Draw) -> list[Pod]:
    job, count = draw(NAMES), draw(COUNTS)
    return indexed(f"{job}-{draw(st.sampled_from(['workers', 'w', 'node', 'a-1', 'launcher']))}-0", count, job)


@st.composite
def trainjob(draw: Draw) -> list[Pod]:
    job, count = draw(NAMES), draw(COUNTS)
    pods = indexed(f"{job}-node-0", count, job)
    if draw(st.booleans()):
        return pods
    torch = {"PET_NNODES": str(count), "PET_MASTER_ADDR": f"{job}-node-0-0.{job}", "PET_MASTER_PORT": "29500", "PET_NPROC_PER_NODE": "2"}
    return on_machines(
        draw, [Pod({**pod.env, **torch, "RANKLAUNCH_NODES": "", "PET_NODE_RANK": str(i)}, pod.files) for i, pod in enumerate(pods)]
    )


@st.composite
def pytorchjob(draw: Draw) -> list[Pod]:
    job, count, each = draw(NAMES), draw(COUNTS), draw(st.sampled_from(["auto", "4"]))
    address, port = f"{job}-master-0", "23456"
    nodes = f"{count}:{count}" if draw(st.booleans()) else str(count)
    common = {"PET_NNODES": nodes, "PET_NPROC_PER_NODE": each, "PET_MASTER_ADDR": address, "MASTER_ADDR": address, "PET_MASTER_PORT": port}
    common.update({"MASTER_PORT": port, "WORLD_SIZE": str(count * (4 if each == "4" else 1))})
    names = [f"{job}-master-0", *numbered(f"{job}-worker", count - 1)]
    return on_machines(
        draw,
        [
            Pod({**common, "HOSTNAME": pod, "RANK": str(i), "PET_NODE_RANK": str(i)}, {**hosts_file(pod), **DEVICES["gpu"]})
            for i, pod in enumerate(names)
        ],
    )


@st.composite
def mpijob(draw: Draw) -> list[Pod]:
    job, count, has_ranks = draw(NAMES), draw(COUNTS), draw(st.booleans())
    names = [f"{job}-launcher", *numbered(f"{job}-worker", count)]
    listed = "".join(f"{pod}.{job}.team-a.svc slots=2\n" for pod in names[0 if has_ranks else 1 :])
    of_worker = {"RANKLAUNCH_NODES": str(count + 1), "RANKLAUNCH_SLOTS": "2", "RANKLAUNCH_LAUNCHER_AS_WORKER": str(has_ranks).lower()}
    launcher = Pod({"K_MPI_JOB_ROLE": "launcher", "HOSTNAME": names[0]}, {"/etc/mpi/hostfile": listed, **hosts_file(names[0], job)})
    return [launcher, *(Pod({**of_worker, "K_MPI_JOB_ROLE": "worker", "HOSTNAME": pod}, hosts_file(pod, job)) for pod in names[1:])]


@st.composite
def ascendjob(draw: Draw) -> list[Pod]:
    job, count = draw(NAMES), draw(COUNTS)
    local, world, rank, host, port, leader = draw(
        st.sampled_from(
            [
                ("LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "master"),
                ("MS_LOCAL_WORKER", "MS_WORKER_NUM", "MS_NODE_RANK", "MS_SCHED_HOST", "MS_SCHED_PORT", "scheduler"),
                ("CM_LOCAL_WORKER", "CM_WORKER_SIZE", "CM_RANK", "CM_CHIEF_IP", "CM_CHIEF_PORT", "chief"),
            ]
        )
    )
    network = draw(st.booleans())
    common = {
        local: "8",
        world: str(8 * count),
        host: "10.96.1.1",
        port: "2222",
        "MINDX_TASK_ID": "6f1f",
        "HostNetwork": str(network).lower(),
    }
    names = [f"{job}-{leader}-0", *numbered(f"{job}-worker", count - 1)]
    pods = [Pod({**common, "HOSTNAME": pod, rank: str(i)}, hosts_file(pod)) for i, pod in enumerate(names)]
    return on_machines(draw, pods, whether=network)


# Those that need no names but node 0's, since some engines tell no others.
ANY = ("", "torchrun", "accelerate", "spawn", "plain", "pytorch", "msrun")
ENGINES: list[tuple[Callable[[], Engine], str]] = [
    (volcano, "volcano"), (volcano_with_plugin_pytorch, "volcano"), (volcano_with_plugin_mpi, "volcano"),
    (volcano_with_the_operators_rank_table, "volcano"), (modelarts, "modelarts"), (indexed_job, ""), (jobset, ""),
    (trainjob, "kubeflow_trainer"), (pytorchjob, "kubeflow_trainer"), (mpijob, "mpijob"), (ascendjob, "ascend_operator"),
]  # fmt: skip


def plans_of(pods: list[Pod], method: str) -> list[Plan]:
    methods = (
        {"RANKLAUNCH_METHOD": method}
        if method and not any({"RANKLAUNCH_METHOD", "K_MPI_JOB_ROLE"} & pod.env.keys() for pod in pods)
        else {}
    )
    return [helpers.plan({**{k: v for k, v in pod.env.items() if v}, **methods}, files=pod.files) for pod in pods]


def shared(plan: Plan) -> dict[str, object]:
    """What every node must see alike."""
    ports = sorted({word for process in plan.processes for word in process.argv if re.match("--(master|main_process)_port", word)})
    names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK_SIZE")
    env = sorted({f"{name}={process.env[name]}" for process in plan.processes for name in names if name in process.env})
    met = plan.muster and (plan.muster.port, helpers.of_all(plan.muster.facts), plan.muster.followers)
    job = plan.job
    common = {"method": plan.method, "job": job.name, "attempt": job.attempt, "platform": job.platform, "nodes": job.nodes, "met": met}
    return common if plan.method == "mpirun" else {**common, "ports": ports, "env": env}  # there node 0 alone starts any


@pytest.mark.one_python
@pytest.mark.parametrize(("engine", "platform"), ENGINES, ids=[engine.__name__ for engine, _ in ENGINES])
def test_every_pod_sees_the_same_job(engine: Callable[[], Engine], platform: str) -> None:
    @settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(pods=engine(), method=st.sampled_from(ANY))
    def check(pods: list[Pod], method: str) -> None:
        plans = plans_of(pods, method)
        first = plans[0]
        for plan in plans[1:]:
            assert shared(plan) == shared(first)
        assert not platform or first.job.platform == platform
        assert [plan.job.node_index for plan in plans] == list(range(len(pods)))
        assert len(first.job.nodes) == len(pods)
        assert [rank for node in first.job.nodes for rank in node.ranks] == list(range(first.job.world_size))
        started = [process.rank for plan in plans for process in plan.processes if process.rank is not None]
        assert not started or first.method == "plain" or started == list(range(first.job.world_size))
        if first.muster:
            assert sorted(plan.muster.node for plan in plans if plan.muster) == list(range(len(pods)))
            assert len({plan.muster.hosts for plan in plans if plan.muster}) == 1

    check()
