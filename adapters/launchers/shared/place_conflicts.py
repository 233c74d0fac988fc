"""Comparison of a launcher's options with this node's place in the job, to find ranks that would train alone or wait forever.

    torchrun --nnodes 2 --node_rank 0 --master_addr 127.0.0.1 train.py      on node 1 of 2: its --node_rank is 0, where this is node 1

Words that are known only at run time prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.adapters.launchers.shared.accelerate import default_file, merge
from ranklaunch.adapters.launchers.shared.starters import Found, Starter
from ranklaunch.adapters.launchers.shared.user_options import HOSTNAME, PARSERS, Parser, is_unknown, with_underscores
from ranklaunch.env.parse import is_loopback
from ranklaunch.env.reader import Reader
from ranklaunch.errors import number
from ranklaunch.fields import NOTHING
from ranklaunch.files import MOST_BYTES, absolute
from ranklaunch.showing import clipped

# Options for the number of ranks on one node, and on all nodes, by the field `options` of a starter.
_RANKS_HERE = {
    "torchrun": ("--nproc_per_node",), "msrun": ("--local_worker_num",), "deepspeed": ("--num_gpus", "--num_accelerators"),
}  # fmt: skip
_RANKS_OF_ALL = {"msrun": "--worker_num", "accelerate": "--num_processes"}
_STATIC = "static"  # rendezvous in which options name node 0 and the index of each node


@dataclass(frozen=True)
class Place:
    """Place of this node in the job.

    nodes: number of nodes. node: index of this node. master: host of node 0. host: name of this host, "" if unknown; on other nodes than
    node 0 it is a wrong address for a launcher. reader: for accelerate's configuration file; None to ignore the file. folder: working
    directory of the program.
    """

    nodes: int
    node: int
    master: str
    host: str = ""
    reader: Reader | None = None
    folder: str = ""


def reason(start: Found, place: Place, env: Mapping[str, str] = NOTHING) -> str:
    """Return why this launcher contradicts the node's place, as the end of a sentence; "" if it does not, or if only the run shows it.

    env: more variables read by the launcher.
    """
    if place.nodes < 2:
        return ""
    if start.starter.everywhere:
        return "which each node would submit" if start.starter.cluster else "of which one starts the ranks of all nodes"
    words = _words(start, place, env)
    return "" if words.is_open else words.first(_RULES)


def waits_for_nobody(start: Found, place: Place, env: Mapping[str, str] = NOTHING) -> str:
    """Return why a running launcher without ranks will never start any, as the end of a sentence; "" if it may. For several nodes only."""
    return "" if place.nodes < 2 or start.starter.everywhere else _words(start, place, env).first(_WAITING)


def ranks_here(start: Found, nodes: int) -> tuple[str, str]:
    """Return a launcher's option for its number of ranks on this node, and the value; ("", "") without one.

    nodes: number of nodes of the job. For an option that counts the ranks of all nodes, the value is divided by this number, rounded up.
    """
    values, _ = _read(start)
    option = next((option for option in _RANKS_HERE.get(start.starter.options, ()) if option in values), "")
    if option:
        return option, values[option].strip()
    option = _RANKS_OF_ALL.get(start.starter.options, "")
    total = number(values.get(option, ""))
    return (option, str(math.ceil(total / nodes))) if total else ("", "")


def is_open(start: Found) -> bool:
    """Return True if words known only at run time may set the launcher's number of nodes."""
    return bool(start.starter.nodes) and _read(start)[1]


@dataclass(frozen=True)
class _Words:
    """Options of a launcher on a node. values: last value of each option, "" for a switch. is_open: unknown words may add options.

    Each rule is a method that returns the contradiction as the end of a sentence, or "".
    """

    row: Starter
    place: Place
    values: Mapping[str, str]
    is_open: bool

    def first(self, rules: Sequence[Callable[[_Words], str]]) -> str:
        """Return the contradiction of the first rule that finds one, "" if none does."""
        return next(filter(None, (rule(self) for rule in rules)), "")

    @property
    def is_static(self) -> bool:
        """True for the static rendezvous, which takes the index of each node; other kinds number the nodes themselves."""
        return self.values.get("--rdzv_backend", _STATIC) == _STATIC

    @property
    def meets_at_node_0(self) -> bool:
        """True for a torchrun with several nodes and the static rendezvous."""
        nodes = self.values.get(self.row.nodes, "")
        return self.row.options == "torchrun" and self.is_static and nodes.isascii() and nodes.isdigit() and nodes != "1"

    @property
    def is_local(self) -> bool:
        """True if all nodes are on one host, as in a simulated job."""
        return is_loopback(self.place.master)

    def alone(self) -> str:
        if self.row.options == "torchrun" and "--standalone" in self.values:
            return "and with --standalone each node would train alone"
        missing = self.row.nodes and self.row.nodes not in self.values
        return f"and without {self.row.nodes} each node would train alone" if missing else ""

    def other_count(self) -> str:
        text = self.values.get(self.row.nodes, "")
        parts = text.split(":")
        if not all(part.isascii() and part.isdigit() for part in parts):
            return ""
        counts = [number(part) or math.inf for part in parts]  # None: too many digits
        fits = min(counts) <= self.place.nodes <= max(counts)
        return "" if fits else f"and its {self.row.nodes} is {clipped(text)}"

    def workers_of_one_node(self) -> str:
        """Return a contradiction if an msrun of several nodes starts all its ranks on this one.

        The right number of ranks of a node is not known here, so either option may be the wrong one.
        """
        total = self.values.get("--worker_num", "")
        wrong = self.row.options == "msrun" and total.isdigit() and total == self.values.get("--local_worker_num", "")
        return f"and its --worker_num and its --local_worker_num are both {total}, which leaves no rank for another node" if wrong else ""

    def other_index(self) -> str:
        text = self.values.get(self.row.node, "") if self.is_static else ""
        if number(text) in (None, self.place.node):
            return ""
        return f"and its {self.row.node} is {clipped(text)}, where this is node {self.place.node}"

    def no_index(self) -> str:
        missing = self.meets_at_node_0 and self.row.node not in self.values
        return f"and without {self.row.node} each node would be node 0" if missing else ""

    def no_address(self) -> str:
        missing = self.meets_at_node_0 and not self.values.keys() & {self.row.address, self.row.endpoint}
        return f"and without {self.row.address} each node would wait for the others on itself" if missing and not self.is_local else ""

    def own_address(self) -> str:
        endpoint = self.values.get(self.row.endpoint, "")
        option = self.row.endpoint if endpoint else self.row.address
        host = _host(endpoint) if endpoint else self.values.get(option, "")
        local_names = {HOSTNAME, self.place.host if self.place.node else ""} - {""}
        wrong = not self.is_local and (host in local_names or is_loopback(host))
        return f"and its {option} is {clipped(self.values[option])}, which is another host on each node" if wrong else ""

    def too_many(self) -> str:
        """Return a contradiction if the launcher waits for more nodes than the job has."""
        least = number(self.values.get(self.row.nodes, "").partition(":")[0])
        return self.other_count() if least is not None and least > self.place.nodes else ""


_RULES = (
    _Words.alone, _Words.other_count, _Words.workers_of_one_node, _Words.other_index, _Words.no_index, _Words.no_address,
    _Words.own_address,
)  # fmt: skip
_WAITING = (_Words.too_many, _Words.other_index, _Words.no_address, _Words.own_address)


def _host(endpoint: str) -> str:
    host, colon, port = endpoint.rpartition(":")
    return host if (colon and port.isdigit()) or is_unknown(port) else endpoint


# Options from the command line, variables and configuration files


def _words(start: Found, place: Place, env: Mapping[str, str]) -> _Words:
    row, (values, is_open) = start.starter, _read(start)
    names = filter(None, (row.nodes, row.node, row.address, row.endpoint, "--rdzv_backend", "--standalone")) if row.variables else ()
    variables = {name: env.get(f"{row.variables}{name[2:].upper()}", "").strip() for name in names}
    values = {**{name: value for name, value in variables.items() if value}, **values}
    path = values.get("--config_file", "")
    if row.options != "accelerate" or not place.reader:
        return _Words(row, place, values, is_open)
    config = None if is_unknown(path) else _config(place.reader, place.folder, path)
    if config is None:
        return _Words(row, place, values, True)
    option_of = {"num_machines": row.nodes, "machine_rank": row.node, "main_process_ip": row.address}
    of_file = {option_of[name]: str(value) for name, value in config.items() if name in option_of and value is not None}
    return _Words(row, place, {**of_file, **values}, is_open)


def _config(reader: Reader, folder: str, path: str) -> Mapping[str, object] | None:
    """Return the values of an accelerate configuration file, None if unreadable. path: "" for the default file."""
    path = absolute(path, folder or reader.cwd) if path else default_file.path(reader)
    try:
        text = reader.files.text(path, MOST_BYTES) if path else ""
        return None if text is None else merge.loads(text, path)
    except (ValueError, RecursionError):
        return None


def _read(start: Found) -> tuple[Mapping[str, str], bool]:
    """Return a launcher's options before its program, and True if words known only at run time may add options."""
    row = start.starter
    written = {with_underscores(each): each for each in (row.nodes, row.node, row.address, row.endpoint) if each}
    parser = PARSERS[row.options] if row.options else Parser((*written,), hyphens=True)
    values, _, is_open = parser.read(start.words)
    return {written.get(name, name): value for name, value in values.items()}, is_open
