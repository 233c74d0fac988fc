"""Method tensorflow: the program once in each container, with the cluster as arguments and as TF_CONFIG. Parameter servers (ps) hold
the variables, workers train on them.

ModelArts starts the boot file of its TensorFlow engine in this way. The workers decide about success; a ps serves until they have ended.
On one node nothing is added. Without ps, all containers are workers (MultiWorkerMirroredStrategy).
"""

from __future__ import annotations

import json
from dataclasses import replace

from ranklaunch.adapters.launchers.shared import base
from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.env import parse
from ranklaunch.env.job import Job, Node
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.tasks import CONFIG, PS, WORKER
from ranklaunch.plan.model import Plan, Process
from ranklaunch.render.templates import Templates

NAME = "tensorflow"

PORT = Variable(
    "tensorflow_port", ("RANKLAUNCH_TENSORFLOW_PORT",), parse.port, 2222,
    "port on which each ps and each worker listens, if the platform names none", option="--tensorflow-port",
)  # fmt: skip

LONGEST = 128 * 1024 - 1  # bytes: Linux's limit for one argument or variable (MAX_ARG_STRLEN)


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    job = base.need_hosts(job, reader, NAME)
    job = replace(job, nodes=_nodes(job, reader.get(PORT)))
    argv = templates.command("tensorflow/command.j2", job=job, appended=_appended(job, reader))
    env = _environment(job, reader)
    process = base.rank_process(job, reader, templates, argv, 0, env, rank=job.node.task_index)
    serves = job.node.task == PS
    return base.planned(
        job, reader, NAME, () if serves else (process,), services=(_service(job, process),) if serves else (),
        followers=sum(node.task == PS for node in job.nodes), waits=base.master_waits(job, reader),
    )  # fmt: skip


def _nodes(job: Job, port: int) -> tuple[Node, ...]:
    """Return the nodes with one process each, for any number of slots. The process of a ps is no rank."""
    nodes: list[Node] = []
    ranks = 0
    for node in job.nodes:
        named = node if job.has_tasks else node._replace(task=WORKER, task_index=node.index)
        slots = int(named.task == WORKER)
        nodes.append(named._replace(slots=slots, first_rank=ranks, port=node.port or port))
        ranks += slots
    return tuple(nodes)


def _service(job: Job, process: Process) -> Process:
    """Return the process of a ps as a service.

    may_end: server.join() never returns, but a program may serve in another way. outlasts: at a stop request, workers save variables
    that the ps holds.
    """
    name, log = job.node.name, base.in_attempt(job, f"ps_{job.node.task_index}.log")
    return replace(process, name=name, log=log, tag=f"[{name}] ", rank=None, local_rank=None, may_end=True, outlasts=True)


def _cluster(job: Job) -> dict[str, list[str]]:
    """Return HOST:PORT of every container, by task: ps first, in the platform's order of arguments."""
    cluster: dict[str, list[str]] = {PS: [], WORKER: []}
    for node in job.nodes:
        cluster[node.task].append(f"{base.address(node.host)}:{node.port}")
    return {task: hosts for task, hosts in cluster.items() if hosts}


def _appended(job: Job, reader: Reader) -> tuple[str, ...]:
    """Return the arguments for the cluster, without those in the user's command."""
    if not job.has_peers:
        return ()
    arguments = {
        "--task_index": str(job.node.task_index),
        **{f"--{task}_hosts": ",".join(hosts) for task, hosts in _cluster(job).items()},
        "--job_name": job.node.task,
    }
    words = tuple(f"{name}={value}" for name, value in base.without_user_options(job, reader, arguments).items())
    for word in words:
        if len(word) > LONGEST:
            reader.problem(
                f"{word.partition('=')[0]} would have {len(word)} characters for {len(job.nodes)} containers, and one argument can have "
                f"{LONGEST}: set shorter names or IPv4 addresses (RANKLAUNCH_PS_HOSTS, RANKLAUNCH_WORKER_HOSTS)"
            )
    return words


def _environment(job: Job, reader: Reader) -> dict[str, str]:
    if not job.has_peers:
        return {}
    cluster = _cluster(job)
    text = json.dumps({"cluster": cluster, "task": {"type": job.node.task, "index": job.node.task_index}})
    if not _is_same(reader.env.get(CONFIG.name, ""), cluster):
        reader.warn("the inherited TF_CONFIG names another cluster: it is replaced")
    if len(f"TF_CONFIG={text}") > LONGEST:
        reader.warn(
            f"TF_CONFIG would have {len(text)} characters, more than a variable can have: it is not set; only the "
            "arguments name the cluster"
        )
        return {}
    return {"TF_CONFIG": text}


def _is_same(config: str, cluster: dict[str, list[str]]) -> bool:
    """Return True if an inherited TF_CONFIG names this cluster, or is empty."""
    try:
        return not config.strip() or bool(json.loads(config)["cluster"] == cluster)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


class Tensorflow(Launcher):
    """Launcher without a process of its own: ranklaunch starts the program once in each container."""

    NAME = NAME
    VARIABLES = (PORT,)
    plan = staticmethod(plan)
