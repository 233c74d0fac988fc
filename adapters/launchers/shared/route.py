"""Dynamic route planning: ranks in the order that fits the network's topology. ModelArts knows two scenarios: rank table start, where
its library makes a new table before launch, and torchrun, where it tells every node its rank in RANK_AFTER_ACC.

Source: ModelArts user guide, "Dynamic route acceleration for training jobs".
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.shared.base import ROUTE_PLAN, attempt_dir, common_env
from ranklaunch.errors import ConfigError
from ranklaunch.files import join, own_program
from ranklaunch.plan.model import File, Process, Wait
from ranklaunch.ranktable import RankTable
from ranklaunch.read import parse
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import METHOD, MUSTER
from ranklaunch.values import Value

TOPOLOGY = Variable(
    "topology",
    ("TOPO_FILE_PATH",),
    parse.text,
    "/user/config/ranktable_tor.json",
    "the network's topology, from the platform",
    "platform",
)
TOPOLOGY_WAIT_S = Variable("topology_wait_s", ("ROUTE_TOPO_WAIT_TIME",), parse.seconds, 300.0, "seconds to wait for the topology")
LIBRARY = Variable("route_library", ("RANKLAUNCH_ROUTE_LIBRARY",), parse.text, "/usr/local/route", "folder of the route_plan library")

VARIABLES: tuple[Variable[object], ...] = (ROUTE_PLAN, TOPOLOGY, TOPOLOGY_WAIT_S, LIBRARY)

LEAST_NODES = 3
MOST_BYTES = 64 * 1024 * 1024
PROGRAM = own_program("ask_route_plan.py")


class Route(Value):
    """What route planning makes of a table: another table, or what must happen before it can."""

    table: RankTable
    index: int
    waits: tuple[Wait, ...] = ()
    gather: tuple[Process, ...] = ()
    files: tuple[File, ...] = ()


def plan_table(job: Job, reader: Reader, table: RankTable, index: int) -> Route:
    """The planned table once the library has made it; the given one where planning does not apply, which is then said.

    The library's failure is an error, not a reason to go on with the given table: other nodes may have succeeded, and two orders in
    one job give two nodes the same rank. Without a library, or without a topology, a node keeps the given order; that all do the same
    is seen at the muster.
    """
    if not reader.get(ROUTE_PLAN):
        return Route(table, index)
    reason = _inapplicable(reader, table)
    if reason:
        reader.warn(f"ROUTE_PLAN=true: {reason}; ranks keep the order of the rank table")
        return Route(table, index)
    outcome = _outcome(job, reader)
    if outcome is None:
        return _ask(job, reader, table, index)
    status, why = outcome
    if status == "unavailable":
        reader.warn(
            f"ROUTE_PLAN=true, but the image has no route_plan library for its Python ({why}; there is one for 3.7 to 3.10): ranks "
            "keep the order of the rank table"
        )
        reader.ledger.note(ROUTE_PLAN.value, "true, but without the library", ROUTE_PLAN.names[0])
        return Route(table, index)
    if status != "planned":
        raise _failed(why)
    return _planned(job, reader, table, index)


def _failed(why: str) -> ConfigError:
    msg = f"ROUTE_PLAN=true: route planning failed: {why}; ROUTE_PLAN=false starts every node in the order of the rank table"
    return ConfigError(msg)


def _planned(job: Job, reader: Reader, given: RankTable, index: int) -> Route:
    """The library's table: the same devices of the same servers in another order, or two processes have one device."""
    try:
        table = ranktable.load(_path(job, "jobstart_routeplan.json"), reader.files)
    except (ranktable.NotReadyError, ConfigError) as error:
        why = f"the library's table: {error}"
        raise _failed(why) from None
    before, after = ({server.server_id: sorted(server.device_ids) for server in each.servers} for each in (given, table))
    if before != after:
        why = "the library's table has other servers or devices than the one it was given"
        raise _failed(why)
    own = given.servers[index].server_id
    return Route(table, next(i for i, server in enumerate(table.servers) if server.server_id == own))


def _inapplicable(reader: Reader, table: RankTable) -> str:
    if len(table.servers) < LEAST_NODES:
        return f"it needs at least {LEAST_NODES} nodes, there are {len(table.servers)}"
    if len({server.size for server in table.servers}) > 1:
        return "it needs full nodes, and these have different numbers of devices"
    if len({server.server_id for server in table.servers}) < len(table.servers):
        return "it needs full nodes, and two pods share a server"
    if reader.env.get(METHOD.names[-1]):
        return f"with a rank table it needs {METHOD.names[-1]} unset"
    if table.version not in ("0.1", "1.0"):
        return f"it knows no rank tables of version {table.version}"
    return ""


def _ask(job: Job, reader: Reader, table: RankTable, index: int) -> Route:
    path = reader.get(TOPOLOGY)
    try:
        topology = File(_path(job, "ranktable_tor.json"), topology_text(path, reader))
    except ranktable.NotReadyError as seen:
        if path in reader.arrived.missed:
            return _without_topology(reader, Route(table, index), f"no topology in {path} after {reader.get(TOPOLOGY_WAIT_S):g} s ({seen})")
        return Route(table, index, waits=(Wait("topology", path, reader.get(TOPOLOGY_WAIT_S), seen=str(seen)),))
    given = File(_path(job, "ranktable.json"), ranktable.for_hccl(table))
    server = table.servers[index].server_id
    argv = (
        job.python, PROGRAM, topology.path, given.path, _path(job, "jobstart_routeplan.json"), server,
        reader.get(LIBRARY), _path(job, "route_plan.json"),
    )  # fmt: skip
    step = Process("route plan", argv, log=_path(job, "route_plan.log"), env=common_env(job, reader), tag="[route plan] ")
    return Route(table, index, gather=(step,), files=(topology, given))


def _without_topology(reader: Reader, given: Route, why: str) -> Route:
    """Where no node has one, all keep the given order; by what is noted here, the muster refuses where some have one."""
    remedy = (
        f"{TOPOLOGY_WAIT_S.names[0]} sets how long it is waited for; it comes where the cluster's cabinet plugin is on, which the "
        "platform's support knows; ROUTE_PLAN=false keeps the order of the rank table without it"
    )
    if not reader.get(MUSTER):
        msg = f"ROUTE_PLAN=true: {why}, and with {reader.told(MUSTER)} nobody knows whether other nodes have one; {remedy}"
        raise ConfigError(msg)
    reader.warn(f"ROUTE_PLAN=true: {why}: where no node has one, ranks keep the order of the rank table; {remedy}")
    reader.ledger.note(ROUTE_PLAN.value, "true, but without a topology", ROUTE_PLAN.names[0])
    return given


def topology_text(path: str, reader: Reader) -> str:
    """The topology as JSON text; the platform writes it as base64 of gzip of JSON. Raises NotReadyError, ConfigError."""
    try:
        text = reader.files.text(path, MOST_BYTES)
    except UnicodeDecodeError as error:
        msg = f"not UTF-8 text (half-written?): {error.reason} at byte {error.start}"
        raise ranktable.NotReadyError(msg) from None
    except ValueError as error:
        msg = f"topology {path}: {error}"
        raise ConfigError(msg) from None
    if not text or not text.strip():
        msg = "no such file" if text is None else "the file is empty"
        raise ranktable.NotReadyError(msg)
    plain = text if text.lstrip().startswith("{") else _unpacked(text)
    try:
        status = json.loads(plain).get("status")
    except (ValueError, AttributeError, RecursionError) as error:
        msg = f"not a JSON object (half-written?): {error}"
        raise ranktable.NotReadyError(msg) from None
    if status != "completed":
        msg = f"status is {status!r}, not 'completed'"
        raise ranktable.NotReadyError(msg)
    return plain


def _unpacked(text: str) -> str:
    try:
        return gzip.decompress(base64.b64decode(text, validate=False)).decode()
    except (OSError, EOFError, ValueError, binascii.Error, zlib.error) as error:
        msg = f"neither JSON nor base64 of gzip (half-written?): {error}"
        raise ranktable.NotReadyError(msg) from None


def _outcome(job: Job, reader: Reader) -> tuple[str, str] | None:
    try:
        text = reader.files.text(_path(job, "route_plan.json"), MOST_BYTES)
        if not text:
            return None
        outcome = json.loads(text)
        return str(outcome["status"]), str(outcome["why"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "failed", f"{_path(job, 'route_plan.json')} cannot be read"


def _path(job: Job, name: str) -> str:
    return join(attempt_dir(job), name)
