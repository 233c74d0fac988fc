"""The work of `simulate` in the supervisor process. Each node's run is a process of one plan, so the job stops as a whole.

Nodes have the addresses 127.0.0.1, 127.0.0.2, ... and get RANKLAUNCH_ variables, as on platform local. In an environment of ModelArts, they
get the variables of its containers. A rank table has ModelArts' form (group_list). A TensorFlow job of N nodes has N workers and N ps. No
accelerator is involved.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from ranklaunch.adapters.launchers import BY_ADDRESS, tensorflow
from ranklaunch.adapters.launchers.shared.base import MASTER_PORT
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.cli import options
from ranklaunch.cli.child_command import free_ports, of_platforms, own_command, passed_on
from ranklaunch.env import settings, tasks
from ranklaunch.env.job import Job, make_nodes
from ranklaunch.env.reader import Reader
from ranklaunch.env.tasks import PS, WORKER
from ranklaunch.errors import UsageError
from ranklaunch.files import join
from ranklaunch.muster import wire
from ranklaunch.plan.model import NODES, File, Limits, Plan, Process
from ranklaunch.supervise import nested
from ranklaunch.supervise.context import Start
from ranklaunch.supervise.record import Record
from ranklaunch.supervise.session import Session
from ranklaunch.system import disk
from ranklaunch.system.disk import DiskFiles
from ranklaunch.system.signals import Signals
from ranklaunch.verdict import folders, messages
from ranklaunch.verdict.blame import Judgement

JOB, OF_MODELARTS = "simulated-job", "modelarts-job-simulated"  # names of jobs
PLATFORM = "simulate"
MOST_VERDICT = 16 * 1024 * 1024  # bytes
MOST_NODES = 250  # addresses 127.0.0.1 to 127.0.0.250
# Settings that simulate itself gives to each node.
OURS = (
    settings.NODES, settings.SLOTS, settings.HOSTS, settings.NODE_INDEX, settings.LOG_DIR, settings.ENV_FILE, MASTER_PORT,
    settings.MUSTER_PORT,
)  # fmt: skip
TASKS = (tasks.TASK, tasks.PS_HOSTS, tasks.WORKER_HOSTS)  # passed as a platform's variables; options for them are refused
# Settings that the environment may have from another job.
NOT_INHERITED = (
    *OURS, settings.ACCELERATOR, settings.PLATFORM, settings.MASTER_ADDR, settings.JOB_NAME, settings.ATTEMPT, settings.RANK_TABLE,
    settings.TERMINATION_LOG, *TASKS,
)  # fmt: skip
NODE_GRACE_S = 5.0  # added to the nodes' own grace period: each node stops its ranks first


def main(argv: list[str], env: Mapping[str, str], signals: Signals, guard: int) -> int:
    parser = options.JobParser(
        "simulate",
        "A whole job on this machine.",
        "ranklaunch simulate --nodes N --slots M[,M...] [OPTIONS] -- PROGRAM [ARGS...]",
    )
    command_line = options.read(parser, argv, env)
    plan = make_plan(command_line)
    record = Record(plan.job.log_dir)
    record.open()
    start = Start(plan, record, DiskFiles(), told=lambda process: _node_judgement(plan.job, process))
    # No control socket: the nodes answer, since they know the ranks.
    session = Session(signals, nested.unmarked(command_line.request.env), guard, has_desk=False)
    return session.run(start).judgement.exit_code


@dataclass(frozen=True)
class Cluster:
    """Simulated containers.

    job: the job's name. slots: of the workers, which come first. ports: of TensorFlow's workers and ps, () for a job without ps. table:
    path of the rank table, "" if the method has none. on_modelarts: True for ModelArts' variables.
    """

    job: str
    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    ports: tuple[int, ...]
    accelerator: str
    attempt: int
    log_dir: str
    port: int
    muster_port: int
    secret: str
    table: str
    on_modelarts: bool

    @property
    def workers(self) -> int:
        return len(self.slots)

    def place(self, node: int) -> tuple[str, int]:
        """Return the task of a node, and its index within the task."""
        return (WORKER, node) if node < self.workers else (PS, node - self.workers)

    def name(self, node: int) -> str:
        task, index = self.place(node)
        return f"{task} {index}" if self.ports else f"node {node}"

    def node_dir(self, node: int) -> str:
        return folders.node(self.log_dir, node)


def make_plan(command_line: options.CommandLine) -> Plan:
    """Return a plan with one process per node: the user's command line, with the variables that a platform would set."""
    _refuse_tasks(command_line.request.options)
    reader = command_line.request.reader()
    cluster = _cluster(reader)
    grace_s = reader.get(settings.GRACE_S)
    reader.check()
    job = Job(
        name=cluster.job,
        platform=PLATFORM,
        attempt=cluster.attempt,
        nodes=make_nodes(cluster.hosts, [max(1, n) for n in cluster.slots] + [1] * (len(cluster.hosts) - cluster.workers)),
        node_index=0,
        accelerator=cluster.accelerator,
        program=command_line.request.program,
        python=sys.executable,
        log_dir=cluster.log_dir,
    )
    table = (File(cluster.table, rank_table(cluster), "0644"),) if cluster.table else ()
    processes = tuple(_node(command_line, cluster, node) for node in range(len(cluster.hosts)))
    return Plan(job=job, method=PLATFORM, why="", processes=processes, limits=Limits(0, grace_s + NODE_GRACE_S), files=table, runs=NODES)


def _refuse_tasks(options: Mapping[str, str]) -> None:
    names = [variable.option for variable in TASKS if variable.value in options]
    if names:
        msg = (
            f"{names[0]}: simulate chooses addresses and tasks itself; with --method {tensorflow.NAME}, --nodes N makes "
            "N workers and N ps: leave it out"
        )
        raise UsageError(msg)


def _cluster(reader: Reader) -> Cluster:
    nodes = reader.get(settings.NODES)
    method = reader.get(settings.METHOD)
    containers = 2 * nodes if method == tensorflow.NAME and nodes > 1 else nodes
    if containers > MOST_NODES:
        reader.problem(f"{nodes} nodes: simulate has addresses for {MOST_NODES} containers")
    if method in BY_ADDRESS and nodes > 1:
        reader.problem(
            f"{reader.described(settings.METHOD)} on {nodes} nodes: {method} starts its scheduler on every "
            "machine that has node 0's address, and here all nodes share this machine: take --nodes 1 "
            "to run it, or `ranklaunch plan --all-nodes` to see what each node would start; in a checkout "
            f"of ranklaunch `make hosts N={nodes} METHOD={method}` makes several hosts (docs/local.md)"
        )
    slots = settings.spread(reader, settings.SLOTS, reader.get(settings.SLOTS), nodes)
    reader.check()
    log_dir = reader.absolute(reader.get(settings.LOG_DIR))
    with_table = method == "ranktable"
    on_modelarts = _is_modelarts(reader)
    port, muster_port, *ports = free_ports(2 + (containers if containers > nodes else 0))
    return Cluster(
        job=OF_MODELARTS if on_modelarts else JOB,
        hosts=tuple(f"127.0.0.{i + 1}" for i in range(containers)),
        slots=slots,
        ports=tuple(ports),
        accelerator=reader.get(settings.ACCELERATOR) or settings.find_accelerator(reader, slots[0], False, ("cpu", "default")),
        attempt=_attempt(log_dir),
        log_dir=log_dir,
        port=reader.get(MASTER_PORT) if reader.is_set(MASTER_PORT) else port,
        muster_port=reader.get(settings.MUSTER_PORT) if reader.is_set(settings.MUSTER_PORT) else muster_port,
        secret=secrets.token_hex(16),
        table=os.path.join(log_dir, "platform", "jobstart_hccl.json") if with_table else "",
        on_modelarts=on_modelarts,
    )


def _is_modelarts(reader: Reader) -> bool:
    """Return True if an option names platform modelarts, or the environment (mostly from --env-file) has its variables."""
    platform = reader.options.get(settings.PLATFORM.value) or reader.env.get(settings.PLATFORM.names[0])
    return platform == "modelarts" if platform else PLATFORMS["modelarts"].detect(reader)


def _node(command_line: options.CommandLine, cluster: Cluster, node: int) -> Process:
    return Process(
        name=cluster.name(node),
        argv=(*own_command(), "run", *passed_on(command_line.request.options, OURS), "--", *command_line.request.program.words),
        log=os.path.join(cluster.node_dir(node), "console.log"),
        env=_environment(command_line.request.env, cluster, node),
        unset=of_platforms(command_line.request.env, NOT_INHERITED),
        tag=f"[{cluster.name(node)}] " if len(cluster.hosts) > 1 else "",
        node=node,
    )


def _environment(env: Mapping[str, str], cluster: Cluster, node: int) -> dict[str, str]:
    """Return the variables of a node's run, in addition to the user's settings."""
    variables = {
        **(_of_modelarts(cluster, node) if cluster.on_modelarts else _of_local(cluster, node)),
        "RANKLAUNCH_SLOTS": ",".join(map(str, cluster.slots)),
        "RANKLAUNCH_ACCELERATOR": cluster.accelerator,
        "RANKLAUNCH_MUSTER_PORT": str(cluster.muster_port),
        settings.SECRET.names[0]: env.get(settings.SECRET.names[0]) or cluster.secret,
        "GLOO_SOCKET_IFNAME": env.get("GLOO_SOCKET_IFNAME") or "lo",
    }
    # The port is a free one, so that simultaneous simulated jobs do not meet. With a rank table, only the program knows the port.
    by_table = {"RANK_TABLE_FILE": cluster.table}
    return {**variables, **(by_table if cluster.table else {"RANKLAUNCH_MASTER_PORT": str(cluster.port)})}


def _of_local(cluster: Cluster, node: int) -> dict[str, str]:
    task, index = cluster.place(node)
    addresses = _addresses(cluster)
    lists = {
        "RANKLAUNCH_TASK": task,
        "RANKLAUNCH_WORKER_HOSTS": ",".join(addresses[: cluster.workers]),
        "RANKLAUNCH_PS_HOSTS": ",".join(addresses[cluster.workers :]),
    }
    return {
        "RANKLAUNCH_PLATFORM": "local",
        "RANKLAUNCH_JOB_NAME": cluster.job,
        "RANKLAUNCH_NODES": str(cluster.workers),
        "RANKLAUNCH_HOSTS": ",".join(cluster.hosts[: cluster.workers]),
        "RANKLAUNCH_NODE": str(index),
        "RANKLAUNCH_ATTEMPT": str(cluster.attempt),
        "RANKLAUNCH_LOG_DIR": cluster.log_dir
        if len(cluster.hosts) > 1
        else cluster.node_dir(node),  # several nodes make node folders there
        **(lists if addresses else {}),
    }


def _of_modelarts(cluster: Cluster, node: int) -> dict[str, str]:
    task, index = cluster.place(node)
    addresses = _addresses(cluster)
    lists = {"TF_WORKER_HOSTS": addresses[: cluster.workers], "TF_PS_HOSTS": addresses[cluster.workers :]}
    return {
        "MA_VJ_NAME": cluster.job,
        "MA_TASK_NAME": task,
        "MA_NUM_HOSTS": str(cluster.workers),
        "MA_NUM_GPUS": str(cluster.slots[node]) if task == WORKER else "0",
        "MA_PROC_START_CNT": str(cluster.attempt),
        "MA_CURRENT_INSTANCE_NAME": f"{cluster.job}-{task}-{index}",
        "MA_CURRENT_HOST_IP": cluster.hosts[node],
        "VC_TASK_INDEX": str(index),
        "VC_WORKER_NUM": str(cluster.workers),
        "VC_WORKER_HOSTS": ",".join(cluster.hosts[: cluster.workers]),
        "MA_LOG_DIR": cluster.node_dir(node),
        **({"VC_PS_NUM": str(cluster.workers), **{name: f"[{','.join(values)}]" for name, values in lists.items()}} if addresses else {}),
    }


def _addresses(cluster: Cluster) -> list[str]:
    """Return the addresses of a TensorFlow job's workers and ps; [] for another job."""
    return [f"{host}:{port}" for host, port in zip(cluster.hosts, cluster.ports)]


def rank_table(cluster: Cluster) -> str:
    """Return a rank table in ModelArts' form: pods unordered, all scalars texts. Device addresses are of the range for benchmarks."""
    counts = [max(1, n) for n in cluster.slots]
    addresses = (f"198.18.{n // 250}.{n % 250 + 1}" for n in itertools.count())
    pods = [
        {
            "pod_name": f"{cluster.job}-worker-{i}",
            "server_id": host,
            "devices": [{"device_id": str(d), "device_ip": next(addresses)} for d in range(counts[i])],
        }
        for i, host in enumerate(cluster.hosts)
    ]
    group = {
        "group_name": "worker",
        "device_count": str(sum(counts)),
        "instance_count": str(len(pods)),
        "instance_list": pods[::-1],
    }
    return json.dumps({"status": "completed", "group_count": "1", "group_list": [group]}, indent=1) + "\n"


def _attempt(log_dir: str) -> int:
    return folders.newest(DiskFiles().names(folders.node(log_dir, 0))) + 1


def _node_judgement(job: Job, process: Process) -> Judgement | None:
    """Return the judgement in a node's own verdict, which is the same on all nodes; None if it cannot be read."""
    if process.node is None:
        return None
    path = join(folders.attempt(folders.node(job.log_dir, process.node), job.attempt), folders.VERDICT)
    try:
        return messages.judgement(json.loads(disk.read(disk.own(path), MOST_VERDICT)))
    except (OSError, disk.NotRegularError, *wire.NOT_UNDERSTOOD):
        return None
