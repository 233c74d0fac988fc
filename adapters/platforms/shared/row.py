"""A row of platforms.toml: where a platform, a scheduler or a script says of a job how many nodes it has, and which one this is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ranklaunch.errors import number

VALUES = ("nodes", "node_index", "hosts", "master_addr", "slots")  # of Refusal.unless
_PLUS = r" \+ ([0-9]+)$"

Texts = tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """A start that is refused. when: conditions that all hold then. text: message, in which {NAME} is a variable. unless: values (nodes,
    node_index, hosts, master_addr, slots) that allow the start if the user gives one of them."""

    when: Texts
    text: str
    unless: Texts = ("nodes", "node_index", "hosts")


@dataclass(frozen=True)
class Row:
    """A platform, as a user's own file may have it too.

    A condition is NAME (set), A|B (one of them set), NAME=VALUE, NAMES ~ REGEX (the values with blanks between match), /PATH (exists), or !
    and one of these (does not hold). A pattern is NAMES ~ REGEX, whose first group is the value; + N behind it adds to a number. Of several
    variables or patterns the first counts, and the others must agree with it.

    name: name of the platform, in small letters. sign: conditions that all hold where this is the platform. title: its name for people.
    recognised_by: its signs for people, if they are not `sign`. started_by: what starts ranklaunch on nodes. why: reason why it is
    asked before others. sources: pages that document the variables. nodes: variables with the number of nodes. node_index: variables
    with the index of this node, from 0. slots: variables with the ranks of a node, or of each node. gpus: true if other slots count
    GPUs. npus: true if slots count NPUs, unless the container has a sign of another device. job_name: variables with the name of the
    job. attempt: variables with the number of this start, from 1. restarts: variables with the number of restarts, from 0. ranks:
    variables with the number of all ranks, nodes times slots. hosts: variables with the hosts of all nodes, in node order, with blanks,
    commas or line breaks between. hosts_file: variables with the path of a file that has a host first on each line. slots_beside: true
    if both have the slots of each host too, as HOST:N or HOST slots=N. json_file: path of a file with an object of JSON. json_hosts:
    its key for the hosts of all nodes, in node order. json_node_index: its key for the index of this node, which else is found among
    the hosts. json_slots: its key for the ranks of each node. master: variables with the host of node 0, HOST or HOST:PORT. own:
    variables with the host of this node, which is that of node 0 on node 0 alone. node_index_like: patterns for the index. nodes_like:
    patterns for the number of nodes. slots_like: patterns for the ranks of a node. job_name_like: patterns for the name of the job.
    attempt_like: patterns for the number of this start. master_like: patterns for the host of node 0. hosts_like: text in which {i} is
    a node and {A|B} a variable, for the host of each node. hosts_each: the same for the name of a variable that has the host. refuse:
    starts that are refused. starts_once: how to start ranklaunch on each node, where the job's script runs on the first alone.
    no_count: what to do if nothing says how many nodes there are. no_first: what to do if nothing says where node 0 is. kills_after_s:
    seconds from the platform's signal to its SIGKILL. starts_late: true if nodes start minutes apart."""

    name: str
    sign: Texts = ()
    title: str = ""
    recognised_by: str = ""
    started_by: str = "the platform, on every node"
    why: str = ""
    sources: Texts = ()
    nodes: Texts = ()
    node_index: Texts = ()
    slots: Texts = ()
    gpus: bool = False
    npus: bool = False
    job_name: Texts = ()
    attempt: Texts = ()
    restarts: Texts = ()
    hosts: Texts = ()
    hosts_file: Texts = ()
    slots_beside: bool = False
    json_file: str = ""
    json_hosts: str = ""
    json_node_index: str = ""
    json_slots: str = ""
    master: Texts = ()
    own: Texts = ()
    ranks: Texts = ()
    node_index_like: Texts = ()
    nodes_like: Texts = ()
    slots_like: Texts = ()
    job_name_like: Texts = ()
    attempt_like: Texts = ()
    master_like: Texts = ()
    hosts_like: str = ""
    hosts_each: str = ""
    refuse: tuple[Refusal, ...] = ()
    starts_once: str = ""
    no_count: str = ""
    no_first: str = ""
    kills_after_s: float = 0.0
    starts_late: bool = False

    @property
    def conditions(self) -> Texts:
        """Return the sign, and when starts are refused."""
        return (*self.sign, *(each for refusal in self.refuse for each in refusal.when))

    @property
    def patterns(self) -> Texts:
        """Return all that may have a regular expression, but for what tells nodes apart."""
        return (*self.conditions, *self.nodes_like, *self.slots_like, *self.job_name_like, *self.attempt_like, *self.master_like)


R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Shipped(Row):
    """A row of platforms.toml. kind: class with rules of its own, in the module of the platform's name; "" for none. begins: for a
    platform that this class recognises, how names of its variables begin. ps: true if its tasks may be ps and workers, by lists of
    their hosts or by TF_CONFIG."""

    begins: Texts = ()
    kind: str = ""
    ps: bool = False


def made(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Return a row by the fields of its table."""
    refuse = tuple(Refusal(**_tuples(each)) for each in fields.get("refuse", ()))
    return kind(**{**_tuples(fields), "refuse": refuse})


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def holds(condition: str, env: Mapping[str, str], is_there: Callable[[str], bool]) -> bool:
    """Return True if a condition holds. is_there: tells whether a path is."""
    if condition.startswith("!"):
        return not holds(condition[1:], env, is_there)
    if condition.startswith("/"):
        return is_there(condition)
    if " ~ " in condition:
        return match(condition, env) is not None
    name, equals, value = condition.partition("=")
    if equals:
        return env.get(name, "").strip().lower() == value.lower()
    return any(env.get(each, "").strip() for each in condition.split("|"))


def match(pattern: str, env: Mapping[str, str]) -> re.Match[str] | None:
    """Return the match of NAMES ~ REGEX in the values of these variables, with blanks between."""
    names, _, regex = pattern.partition(" ~ ")
    text = " ".join(env.get(filled(name, env), "").strip() for name in names.split())
    return re.fullmatch(re.sub(_PLUS, "", regex), text, re.DOTALL)


def value_like(pattern: str, env: Mapping[str, str]) -> str:
    """Return the first group of a pattern that is set, plus the number behind it; "" where it does not match."""
    found, more = match(pattern, env), re.search(_PLUS, pattern)
    text = next(filter(None, found.groups()), "") if found else ""
    return str(int(text) + int(more[1])) if more and number(text) is not None else text


def names_in(pattern: str) -> list[str]:
    """Return the variables of a condition or a pattern."""
    names = re.split(" ~ |=", pattern.lstrip("!"))[0]
    return [name for name in re.split("[ |]", names) if "{" not in name and not name.startswith("/")]


def filled(text: str, env: Mapping[str, str], index: int = 0) -> str:
    """Return a text with {i} and {A|B} filled in; "" if none of the variables of a place is set."""
    missing = False

    def value(found: re.Match[str]) -> str:
        nonlocal missing
        text = str(index) if found[1] == "i" else next((env[name].strip() for name in found[1].split("|") if env.get(name, "").strip()), "")
        missing = missing or not text
        return text

    made = re.sub(r"\{([A-Za-z0-9_|]+)\}", value, text)
    return "" if missing else made
