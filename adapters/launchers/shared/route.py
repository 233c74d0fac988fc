"""Dynamic route planning of ModelArts: ranks in an order that fits the network's topology, for a start with a rank table.

The platform's library makes a new rank table before the start. (For torchrun, the platform sets RANK_AFTER_ACC on each node instead: see
launchers/torchrun.py.)

Source: ModelArts user guide, "Dynamic route acceleration for training jobs".
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from dataclasses import dataclass, replace
from typing import NoReturn

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.shared.base import ROUTE_PLAN, common_env, in_attempt
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import MUSTER
from ranklaunch.errors import ConfigError, unreadable
from ranklaunch.files import MOST_BYTES, own_program
from ranklaunch.plan.model import File, Process, Wait
from ranklaunch.ranktable import RankTable

TOPOLOGY = Variable(
    "topology", ("TOPO_FILE_PATH",), parse.text, "/user/config/ranktable_tor.json", "the network's topology, from the platform", "platform",
)  # fmt: skip
TOPOLOGY_WAIT_S = Variable("topology_wait_s", ("ROUTE_TOPO_WAIT_TIME",), parse.seconds, 300.0, "seconds to wait for the topology")
LIBRARY = Variable("route_library", ("RANKLAUNCH_ROUTE_LIBRARY",), parse.text, "/usr/local/route", "folder of the route_plan library")

VARIABLES = (ROUTE_PLAN, TOPOLOGY, TOPOLOGY_WAIT_S, LIBRARY)

LEAST_NODES = 3
PROGRAM = own_program("ask_route_plan.py")
_REMEDY = (
    f"{TOPOLOGY_WAIT_S.name} sets the seconds to wait; the file comes only with the cluster's cabinet plugin (ask the platform's support); "
    "ROUTE_PLAN=false keeps the order of the rank table and needs no topology"
)
# Files in the attempt's folder: the planned table, and the program's outcome.
_TABLE, _OUTCOME = "jobstart_routeplan.json", "route_plan.json"


@dataclass(frozen=True)
class Route:
    """Rank table to use, index of this node's entry, and the waits and steps after which a planned table can replace it."""

    table: RankTable
    index: int
    waits: tuple[Wait, ...] = ()
    gather: tuple[Process, ...] = ()
    files: tuple[File, ...] = ()


def plan_table(job: Job, reader: Reader, table: RankTable, index: int) -> Route:
    """Return the planned table if the library has made it, else the unplanned one; with a warning if planning does not apply.

    A failure of the library is an error: other nodes may have succeeded, and with two orders in one job two nodes would have the same
    rank. Without the library, or without a topology, a node keeps the order of its table; the muster checks that all nodes do the same.
    """
    unplanned = Route(table, index)
    if not reader.get(ROUTE_PLAN):
        return unplanned
    reason = _inapplicable(reader, table)
    if reason:
        reader.warn(f"ROUTE_PLAN=true: {reason}; ranks keep the order of the rank table")
        return unplanned
    outcome = _outcome(job, reader)
    if outcome is None:
        return _ask(job, reader, unplanned)
    status, why = outcome
    if status == "unavailable":
        missing = f"the image has no route_plan library for its Python ({why}; the library exists for Python 3.7 to 3.10)"
        return _without(reader, unplanned, "the library", f"{missing}: ranks keep the order of the rank table")
    if status != "planned":
        _fail(why)
    try:
        planned = ranktable.load(_path(job, _TABLE), reader.files)
    except (ranktable.NotReadyError, ConfigError) as error:
        _fail(f"the library's table: {error}")
    # Both tables must have the same devices of the same servers; otherwise two processes could get one device.
    before, after = ({server.server_id: sorted(server.device_ids) for server in each.servers} for each in (table, planned))
    if before != after:
        _fail("the library's table has other servers or devices than the one it was given")
    return Route(planned, [*after].index(table.servers[index].server_id))


def _fail(why: str) -> NoReturn:
    msg = f"ROUTE_PLAN=true: route planning failed: {why}; ROUTE_PLAN=false starts every node in the order of the rank table"
    raise ConfigError(msg) from None


def _inapplicable(reader: Reader, table: RankTable) -> str:
    if len(table.servers) < LEAST_NODES:
        return f"planning needs at least {LEAST_NODES} nodes, there are {len(table.servers)}"
    servers = {server.server_id for server in table.servers}
    if len(servers) < len(table.servers) or len({server.size for server in table.servers}) > 1:
        return "planning needs full nodes, with the same number of devices and one pod each"
    return "" if table.version in ("0.1", "1.0") else f"planning does not support rank tables of version {table.version}"


def _ask(job: Job, reader: Reader, unplanned: Route) -> Route:
    path, limit_s = reader.get(TOPOLOGY), reader.get(TOPOLOGY_WAIT_S)
    try:
        topology = File(_path(job, "ranktable_tor.json"), topology_text(path, reader))
    except ranktable.NotReadyError as state:
        if path not in reader.arrived.missed:
            return replace(unplanned, waits=(Wait("topology", path, limit_s, seen=str(state)),))
        why = f"no topology in {path} after {limit_s:g} s ({state})"
        if reader.get(MUSTER):
            return _without(
                reader, unplanned, "a topology", f"{why}: if no node has one, ranks keep the order of the rank table; {_REMEDY}"
            )
        _fail(f"{why}, and with {reader.described(MUSTER)} this node cannot check whether other nodes have one; {_REMEDY}")
    table = File(_path(job, "ranktable.json"), ranktable.for_hccl(unplanned.table))
    server = unplanned.table.servers[unplanned.index].server_id
    argv = (
        job.python, PROGRAM, topology.path, table.path, _path(job, _TABLE), server, reader.get(LIBRARY), _path(job, _OUTCOME),
    )  # fmt: skip
    step = Process("route plan", argv, log=_path(job, "route_plan.log"), env=common_env(job, reader), tag="[route plan] ")
    return replace(unplanned, gather=(step,), files=(topology, table))


def _without(reader: Reader, unplanned: Route, missing: str, why: str) -> Route:
    """Return the unplanned table, with a warning and a note: the muster refuses the job if another node has what this node lacks."""
    reader.warn(f"ROUTE_PLAN=true: {why}")
    reader.note(ROUTE_PLAN, f"true, but without {missing}", ROUTE_PLAN.name)
    return unplanned


def topology_text(path: str, reader: Reader) -> str:
    """Return the topology as JSON text; the platform writes it as base64 of gzip of JSON. Raises NotReadyError if incomplete or missing."""
    try:
        text = reader.files.text(path, MOST_BYTES)
        if text is None:
            state = "no such file"
        else:
            plain = text if text.lstrip().startswith("{") else gzip.decompress(base64.b64decode(text)).decode()
            status = json.loads(plain).get("status")
            if status == "completed":
                return plain
            state = f"status is {status!r}, not 'completed'"
    except (OSError, EOFError, ValueError, AttributeError, RecursionError, zlib.error) as error:
        state = f"neither a JSON object nor base64 of gzip of one (half-written?): {unreadable(error)}"
    raise ranktable.NotReadyError(state)


def _outcome(job: Job, reader: Reader) -> tuple[str, str] | None:
    path = _path(job, _OUTCOME)
    try:
        text = reader.files.text(path, MOST_BYTES)
        if not text:
            return None
        outcome = json.loads(text)
        return str(outcome["status"]), str(outcome["why"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "failed", f"{path} cannot be read"


def _path(job: Job, name: str) -> str:
    return in_attempt(job, name)
