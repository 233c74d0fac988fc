"""The supervisor's side of simulate: plays the platform. Each node's run is a process of one plan, so the job stops as one.

What ModelArts would give each container is made here: the variables, addresses 127.0.0.1, 127.0.0.2, ..., and the rank table in the
form that the platform writes (group_list). There is no accelerator behind it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping

from ranklaunch import reading, settings
from ranklaunch.adapters.launchers.base import MASTER_PORT
from ranklaunch.adapters.launchers.inherited import misleading
from ranklaunch.entrypoints import options
from ranklaunch.entrypoints.disk import DiskFiles
from ranklaunch.files import absolute
from ranklaunch.job import Job, make_nodes
from ranklaunch.plan import File, Limits, Plan, Process
from ranklaunch.planning import every_variable
from ranklaunch.supervise.record import Record
from ranklaunch.supervise.signals import Signals
from ranklaunch.supervise.supervisor import Supervisor
from ranklaunch.verdict import Failure

JOB = "modelarts-job-simulated"
MOST_NODES = 250  # addresses 127.0.0.1 to 127.0.0.250
NODE_GRACE_S = 5.0  # more than its nodes have: each ends its own ranks first


def main(argv: list[str], env: Mapping[str, str], signals: Signals, guard: int) -> int:
    parser = options.Parser(
        "simulate",
        "A whole job on this machine.",
        "ranklaunch simulate --nodes N --slots M[,M...] [OPTIONS] -- PROGRAM [ARGS...]",
    )
    options.add_shared(parser)
    given = options.read(parser, argv, env)
    plan = make_plan(given, sys.executable)
    record = Record(plan.job.log_dir)
    record.open()
    supervisor = Supervisor(
        plan,
        env=given.env,
        files=DiskFiles(),
        signals=signals,
        record=record,
        guard=guard,
        explain=lambda process, tail: _node_failure(plan.job, process),
    )
    return supervisor.run().exit_code


def make_plan(given: options.Given, interpreter: str) -> Plan:
    """One process per node: the same command line as the user's, with the platform's variables."""
    reader = settings.Reader(given.env, given.request.files, given.request.options, given.request.cwd)
    nodes = reader.get(reading.NODES)
    slots = reading.spread(reader, reading.SLOTS, reader.get(reading.SLOTS), nodes)
    if nodes > MOST_NODES:
        reader.problem(f"{nodes} nodes: simulate has addresses for {MOST_NODES}")
    grace_s = reader.get(reading.GRACE_S)
    log_dir = absolute(reader.get(reading.LOG_DIR), given.request.cwd)
    reader.check()
    attempt = _attempt(log_dir)
    table = os.path.join(log_dir, "platform", "jobstart_hccl.json")
    hosts = [f"127.0.0.{i + 1}" for i in range(nodes)]
    job = Job(
        name=JOB, platform="simulate", attempt=attempt, nodes=make_nodes(hosts, [max(1, n) for n in slots]), node_index=0,
        accelerator="cpu", program=given.request.program, python=interpreter, log_dir=log_dir,
    )  # fmt: skip
    with_table = given.request.options.get(reading.METHOD.value) == "ranktable"
    port = given.request.options.get(MASTER_PORT.value) or given.env.get(MASTER_PORT.names[0]) or str(_free_port())
    shared = {
        "MA_VJ_NAME": JOB,
        "MA_NUM_HOSTS": str(nodes),
        "MA_TASK_NAME": "worker",
        "VC_WORKER_NUM": str(nodes),
        "VC_WORKER_HOSTS": ",".join(hosts),
        "MA_PROC_START_CNT": str(attempt),
        "RANKLAUNCH_ACCELERATOR": reader.get(reading.ACCELERATOR) or reading.find_accelerator(reader, slots[0], False, ("cpu", "default")),
        "RANKLAUNCH_SLOTS": ",".join(map(str, slots)),
        "RANKLAUNCH_MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": given.env.get("GLOO_SOCKET_IFNAME", "lo"),
        **({"RANK_TABLE_FILE": table} if with_table else {}),
    }
    command = (interpreter, "-m", "ranklaunch", "run", *_passed_on(given), "--", *given.request.program.words)
    processes = tuple(
        Process(
            name=f"node {i}",
            argv=command,
            log=os.path.join(log_dir, f"node_{i}", "console.log"),
            env={
                **shared,
                "MA_NUM_GPUS": str(slots[i]),
                "VC_TASK_INDEX": str(i),
                "MA_CURRENT_INSTANCE_NAME": f"{JOB}-worker-{i}",
                "MA_CURRENT_HOST_IP": hosts[i],
                "RANKLAUNCH_LOG_DIR": os.path.join(log_dir, f"node_{i}"),
            },
            unset=_platform_variables(given.env),
            tag=f"[node {i}] " if nodes > 1 else "",
        )
        for i in range(nodes)
    )
    return Plan(
        job=job, method="simulate", why="", processes=processes, limits=Limits(0, grace_s + NODE_GRACE_S),
        files=(File(table, rank_table(hosts, slots), "0644"),) if with_table else (),
    )  # fmt: skip


def rank_table(hosts: list[str], slots: tuple[int, ...]) -> str:
    """A table as ModelArts writes it: pods in no order, every scalar a text. Device addresses are of a documentation range."""
    pods = [
        {
            "pod_name": f"{JOB}-worker-{i}",
            "server_id": host,
            "devices": [{"device_id": str(d), "device_ip": f"192.0.2.{d + 1}"} for d in range(max(1, slots[i]))],
        }
        for i, host in enumerate(hosts)
    ]
    group = {
        "group_name": "worker",
        "device_count": str(sum(max(1, n) for n in slots)),
        "instance_count": str(len(pods)),
        "instance_list": pods[::-1],
    }
    return json.dumps({"status": "completed", "group_count": "1", "group_list": [group]}, indent=1) + "\n"


def _passed_on(given: options.Given) -> list[str]:
    """The options of this command line that are for each node's run; counts, folders and the port come from us."""
    ours = {v.value for v in (reading.NODES, reading.SLOTS, reading.HOSTS, reading.NODE_INDEX, reading.LOG_DIR, MASTER_PORT)}
    named = {v.value: v.option for v in every_variable() if v.option}
    words = [f"{named[name]}={value}" for name, value in given.request.options.items() if name not in ours]
    if given.parsed.root:
        words.append(f"--root={given.parsed.root}")
    return words


def _platform_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Variables of a platform that this machine may itself be on, and of ours that the options above have used up."""
    kept = {
        name
        for v in (reading.GRACE_S, reading.WAIT_S, reading.TEMPLATES, reading.LOG_TAG, reading.PYTHON, reading.METHOD)
        for name in v.names
    }
    known = {name for variable in every_variable() for name in variable.names} - kept - {"HOSTNAME"}
    return tuple(sorted({name for name in env if name in known or name.startswith(("MA_", "VC_"))} | set(misleading(env))))


def _attempt(log_dir: str) -> int:
    names = DiskFiles().names(os.path.join(log_dir, "node_0"))
    numbers = [int(match[1]) for match in (re.fullmatch("attempt_([0-9]{1,6})", name) for name in names) if match]
    return max(numbers, default=0) + 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _node_failure(job: Job, process: Process) -> Failure | None:
    """The culprit that a node's own verdict names."""
    node = int(process.name.rpartition(" ")[2])
    path = os.path.join(job.log_dir, f"node_{node}", f"attempt_{job.attempt}", "verdict.json")
    try:
        with open(path, encoding="utf-8") as file:
            culprit = json.load(file)["culprit"]
        return Failure(culprit["rank"], culprit["exit_code"], _number(culprit["signal"]), culprit["pid"], node=node)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _number(name: str | None) -> int:
    return signal.Signals[name].value if name and name in signal.Signals.__members__ else 0
