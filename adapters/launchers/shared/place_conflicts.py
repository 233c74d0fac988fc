"""A launcher's own words against the place of its node in the job: ranks that would train alone, or wait for nobody.

    torchrun --nnodes 2 --node_rank 0 --master_addr 127.0.0.1 train.py      on node 1 of 2: its --node_rank is 0, and this is node 1

Words that are known only when the launcher runs prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Optional

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared import user_options
from ranklaunch.adapters.launchers.shared.parsers import PARSERS
from ranklaunch.adapters.launchers.shared.starters import Found
from ranklaunch.env.parse import is_loopback
from ranklaunch.errors import number
from ranklaunch.fields import NOTHING

# Options for the ranks of one node, and for those of all nodes, by the launcher whose options a command has.
_RANKS_HERE = {
    "torchrun": ("--nproc_per_node",), "msrun": ("--local_worker_num",), "deepspeed": ("--num_gpus", "--num_accelerators"),
}  # fmt: skip
_RANKS_OF_ALL = {"msrun": "--worker_num", "accelerate": "--num_processes"}
_STATIC = "static"  # rendezvous by which node 0 is told, and each node its index
Config = Callable[[str], Optional[Mapping[str, object]]]  # values of a configuration file of accelerate's; None if it cannot be read


@dataclass(frozen=True)
class Place:
    """This node in the job. nodes: how many there are. node: its index. master: host of node 0. config: reads a configuration of
    accelerate's, "" for the usual one. host: the name of this host, where it is known; then an address of it is another host only on other
    nodes than node 0."""

    nodes: int
    node: int
    master: str
    config: Config | None = None
    host: str = ""

    @property
    def is_local(self) -> bool:
        """Return True if all nodes are on one host, as in a simulated job."""
        return is_loopback(self.master)


@dataclass(frozen=True)
class _Told:
    """What a launcher is told. values: the last value of each option, "" for a switch. is_open: unknown words may add to it."""

    values: Mapping[str, str]
    is_open: bool = False


def reason(found: Found, place: Place, env: Mapping[str, str] = NOTHING) -> str:
    """Return why a launcher must not run so on this node, as the end of a sentence; "" if it may, or nobody knows before it runs.

    env: variables that the launcher reads besides.
    """
    if place.nodes < 2:
        return ""
    if found.starter.everywhere:
        return "of which one starts the ranks of all nodes"
    told = _told(found, place, env)
    return "" if told.is_open else next(filter(None, (rule(found, told.values, place) for rule in _RULES)), "")


def waits_for_nobody(found: Found, place: Place, env: Mapping[str, str] = NOTHING) -> str:
    """Return why a launcher of a job of several nodes that runs here, and has started no rank yet, will start none; "" if it may."""
    if place.nodes < 2 or found.starter.everywhere:
        return ""
    told = _told(found, place, env)
    return next(filter(None, (rule(found, told.values, place) for rule in _WAITING)), "")


def ranks_here(found: Found, nodes: int) -> tuple[str, str]:
    """Return the option by which a launcher is told how many ranks it starts on this node, and its value; ("", "") without one.

    nodes: of the job. Of a number of ranks of all nodes, the value is the number on one node.
    """
    told = _read(found).values
    option = next((option for option in _RANKS_HERE.get(found.starter.options, ()) if option in told), "")
    if option:
        return option, told[option].strip()
    option = _RANKS_OF_ALL.get(found.starter.options, "")
    total = number(told.get(option, ""))
    return (option, str(math.ceil(total / nodes))) if total else ("", "")


def is_open(found: Found) -> bool:
    """Return True if words that are known only when the launcher runs may say which nodes it is for."""
    return bool(found.starter.nodes) and _read(found).is_open


# Rules, the first that applies


def _alone(found: Found, told: Mapping[str, str], place: Place) -> str:
    nodes = found.starter.nodes
    if _is_torchrun(found) and "--standalone" in told:
        return "and with --standalone each node would train alone"
    return f"and without {nodes} each node would train alone" if nodes and nodes not in told else ""


def _other_count(found: Found, told: Mapping[str, str], place: Place) -> str:
    nodes = found.starter.nodes
    text = told.get(nodes, "")
    parts = text.split(":")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return ""
    counts = [number(part) or math.inf for part in parts]  # None: too many digits
    fits = min(counts) <= place.nodes <= max(counts)
    return "" if fits else f"and its {nodes} is {showing.clipped(text)}"


def _workers_of_one_node(found: Found, told: Mapping[str, str], place: Place) -> str:
    """msrun: as many ranks in all as on this node."""
    of_all, here = told.get("--worker_num", ""), told.get("--local_worker_num", "")
    is_msrun = found.starter.options == "msrun"
    return f"and its --worker_num, {of_all}, is that of one node" if is_msrun and of_all.isdigit() and of_all == here else ""


def _other_index(found: Found, told: Mapping[str, str], place: Place) -> str:
    if not _has_index(found, told):
        return ""
    text = told.get(found.starter.node, "")
    index = number(text) if text.isascii() and text.isdigit() else None
    if index in (None, place.node):
        return ""
    return f"and its {found.starter.node} is {showing.clipped(text)}, where this is node {place.node}"


def _no_index(found: Found, told: Mapping[str, str], place: Place) -> str:
    missing = _meets_at_node_0(found, told) and found.starter.node not in told
    return f"and without {found.starter.node} each node would be node 0" if missing else ""


def _no_address(found: Found, told: Mapping[str, str], place: Place) -> str:
    missing = _meets_at_node_0(found, told) and found.starter.address not in told and found.starter.endpoint not in told
    if missing and not place.is_local:
        return f"and without {found.starter.address} each node would wait for the others on itself"
    return ""


def _own_address(found: Found, told: Mapping[str, str], place: Place) -> str:
    if place.is_local:
        return ""
    endpoint = told.get(found.starter.endpoint, "")
    option = found.starter.endpoint if endpoint else found.starter.address
    host = _host(endpoint) if endpoint else told.get(option, "")
    is_own = host == user_options.HOSTNAME or (bool(place.host) and place.node > 0 and host == place.host)
    meant = is_own or is_loopback(host)
    return f"and its {option} is {showing.clipped(told[option])}, which is another host on each node" if meant else ""


def _too_many(found: Found, told: Mapping[str, str], place: Place) -> str:
    """Return a contradiction only if the launcher waits for more nodes than there are."""
    least = number(told.get(found.starter.nodes, "").partition(":")[0])
    return _other_count(found, told, place) if least is not None and least > place.nodes else ""


_RULES = (_alone, _other_count, _workers_of_one_node, _other_index, _no_index, _no_address, _own_address)
_WAITING = (_too_many, _other_index, _no_address, _own_address)


def _is_torchrun(found: Found) -> bool:
    return found.starter.options == "torchrun"


def _meets_at_node_0(found: Found, told: Mapping[str, str]) -> bool:
    """Return True for a torchrun of several nodes with the static rendezvous."""
    nodes = told.get(found.starter.nodes, "")
    return _is_torchrun(found) and _has_index(found, told) and nodes.isascii() and nodes.isdigit() and nodes != "1"


def _has_index(found: Found, told: Mapping[str, str]) -> bool:
    """Return False if nodes are numbered by another rendezvous than the static one."""
    return told.get("--rdzv_backend", _STATIC) == _STATIC


def _host(endpoint: str) -> str:
    host, colon, port = endpoint.rpartition(":")
    return host if (colon and port.isdigit()) or user_options.is_unknown(port) else endpoint


# What a launcher is told


def _told(found: Found, place: Place, env: Mapping[str, str]) -> _Told:
    read = _read(found)
    values = {**_of_variables(found, env), **read.values}
    path = values.get("--config_file", "")
    if found.starter.options != "accelerate" or not place.config:
        return _Told(values, read.is_open)
    if user_options.is_unknown(path):
        return _Told(values, is_open=True)
    config = place.config(path)
    if config is None:
        return _Told(values, is_open=True)
    named = {"num_machines": found.starter.nodes, "machine_rank": found.starter.node, "main_process_ip": found.starter.address}
    of_file = {named[name]: str(value) for name, value in config.items() if name in named and value is not None}
    return _Told({**of_file, **values}, read.is_open)


def _of_variables(found: Found, env: Mapping[str, str]) -> dict[str, str]:
    beginning = found.starter.variables
    names = (found.starter.nodes, found.starter.node, found.starter.address, found.starter.endpoint, "--rdzv_backend", "--standalone")
    variables = {name: env.get(f"{beginning}{name[2:].upper()}", "").strip() for name in names if beginning and name}
    return {name: value for name, value in variables.items() if value}


def _read(found: Found) -> _Told:
    """Read a launcher's options, to the word that is its program."""
    values: dict[str, str] = {}
    is_open, known = False, True
    spelled, following = _parser(found)
    rest = iter(found.words)
    for word in rest:
        if word == "--":
            break
        if not word.startswith("-"):
            if user_options.UNKNOWN in word:
                is_open = True
            elif known:
                break
            continue
        name, equals, value = word.partition("=")
        is_open = is_open or user_options.UNKNOWN in name
        takes = 0 if equals else following(name)
        known = takes is not None
        values[spelled(name)] = value if equals else next(rest, "") if takes else ""
    return _Told(values, is_open)


def _parser(found: Found) -> tuple[user_options.Spell, Callable[[str], int | None]]:
    """Return how the launcher spells and reads its options."""
    row = found.starter
    if row.options:
        parser = PARSERS[row.options]
        return parser.spelled, parser.following
    with_value = {user_options.with_underscores(each) for each in (row.nodes, row.node, row.address, row.endpoint) if each}
    written = {user_options.with_underscores(each): each for each in (row.nodes, row.node, row.address, row.endpoint) if each}

    def spelled(name: str) -> str:
        whole = user_options.with_underscores(name)
        return written.get(whole, whole)

    return spelled, lambda name: 1 if user_options.with_underscores(name) in with_value else None
