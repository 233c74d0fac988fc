"""Google Cloud Vertex AI custom training: worker pools 0 (the primary replica) and 1 (the other replicas) are the nodes, in this order.

Source: https://cloud.google.com/vertex-ai/docs/training/distributed-training, "The format of CLUSTER_SPEC"; for the job's id
https://cloud.google.com/vertex-ai/docs/training/code-requirements, "Environment variables".
"""

from __future__ import annotations

import json

from ranklaunch.adapters.platforms.shared import base
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.parse import Endpoint
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, MASTER_ADDR, NODE_INDEX, NODES, SLOTS, devices, make_job, spread
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.typed import Any

NAME = "vertexai"

CLUSTER = Variable(
    "cluster_spec", ("CLUSTER_SPEC",), parse.text, "", "worker pools and this container's place in them, as JSON", "platform"
)
JOB_NAME = ANY_JOB_NAME.also("CLOUD_ML_JOB_ID")

VARIABLES: tuple[Variable[object], ...] = (CLUSTER, JOB_NAME)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_PRIMARY, _OTHERS = "workerpool0", "workerpool1"
Pools = tuple[tuple[Endpoint, ...], ...]
_EXPECTED = '{"cluster": {"workerpool0": ["HOST:PORT"], ...}, "task": {"type": "workerpool0", "index": 0}}'


def detect(reader: Reader) -> bool:
    return f'"{_PRIMARY}"' in reader.env.get(CLUSTER.names[0], "")


def read(reader: Reader, program: Program) -> Job:
    pools, kind, number = _parsed(reader)
    hosts = _hosts(reader, pools)
    own = _index(reader, pools, kind, number, len(hosts))
    slots = reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, len(hosts), own),
        hosts=hosts,
        slots=spread(reader, SLOTS, slots, len(hosts)),
        node_index=own,
    )


def _hosts(reader: Reader, pools: Pools) -> tuple[str, ...]:
    given = reader.get(HOSTS)
    named = given or tuple(endpoint.host for pool in pools for endpoint in pool)
    nodes = reader.get(NODES) if reader.given(NODES) else max(1, len(named))
    if named and nodes != len(named):
        source = reader.source(HOSTS) if given else CLUSTER.names[0]
        reader.problem(f"{reader.told(NODES)}, but {source} names {len(named)} hosts: expected as many names as nodes")
    if not named and nodes > 1 and not reader.given(MASTER_ADDR):
        reader.problem(f"{nodes} nodes, but none of {', '.join((*HOSTS.names, *CLUSTER.names, *MASTER_ADDR.names))} says where node 0 is")
    return named or ("localhost", *("",) * (nodes - 1))


def _parsed(reader: Reader) -> tuple[Pools, str, int]:
    """The two pools, and this container's pool and index in it."""
    if not reader.given(CLUSTER):
        return ((), ()), "", 0
    try:
        found: Any = json.loads(reader.get(CLUSTER))
        pools = tuple(tuple(e for item in found["cluster"].get(name, ()) for e in parse.endpoints(item)) for name in (_PRIMARY, _OTHERS))
        return pools, str(found["task"]["type"]), parse.count(str(found["task"]["index"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        reader.problem(f"{reader.told(CLUSTER)} is not understood: expected {_EXPECTED}")
        return ((), ()), "", 0


def _index(reader: Reader, pools: Pools, kind: str, number: int, nodes: int) -> int:
    if reader.by_user(NODE_INDEX) or reader.given(HOSTS) or not reader.given(CLUSTER):
        return base.index(reader, nodes, NODE_INDEX)
    sizes = {name: len(pool) for name, pool in zip((_PRIMARY, _OTHERS), pools)}
    if not pools[0]:  # which is said already
        return 0
    if number >= sizes.get(kind, 0):
        reader.problem(
            f"{CLUSTER.names[0]}: task {kind} {number} is none of the replicas of {_PRIMARY} and {_OTHERS}, which are the nodes; "
            f"other pools have other work"
        )
        return 0
    index = number if kind == _PRIMARY else sizes[_PRIMARY] + number
    reader.ledger.note(NODE_INDEX.value, str(index), CLUSTER.names[0])
    return index
