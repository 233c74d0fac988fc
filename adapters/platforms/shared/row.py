"""A row of platforms.toml: where a platform, a scheduler or a script says of a job how many nodes it has, and which one this is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ranklaunch.typed import Any
from ranklaunch.values import Value

VALUES = ("nodes", "node_index", "hosts", "master_addr", "slots")  # of Refusal.unless
_PLUS = re.compile(r" \+ ([0-9]+)$")


class Refusal(Value):
    """What nobody should start. when: conditions that all hold then. text: the message; NAME is filled in where it has {NAME}. unless:
    VALUES that allow it if the user gives one."""

    when: tuple[str, ...]
    text: str
    unless: tuple[str, ...] = ("nodes", "node_index", "hosts")


class Row(Value):
    """A platform. Names are those of environment variables; of several, the first that is set counts, and the others must agree.

    name: of the platform. sign: conditions, all of which hold where this is the platform. begins: for a platform with a module that
    recognises it, how names of its variables begin. module: part for one that adds facts to the row, whole for one that does all.
    title, recognised_by, started_by, why: for people: the platform, its signs if they are not `sign`, what starts ranklaunch on the nodes,
    and why it is asked before others. sources: pages that say so.

    A condition is NAME (set), A|B (one of them set), NAME=VALUE, NAMES ~ REGEX (values with blanks between), /PATH (is_there), or ! and
    one of these (does not hold).

    nodes, node_index, slots, job_name, attempt: names of variables. hosts: of lists of hosts, in node order, with blanks, commas or line
    breaks between. hosts_file: of the path of a file with a host first on each line. slots_beside: both say the slots of each host too,
    as HOST:N or HOST slots=N. master: of node 0's host, HOST or HOST:PORT. own: of this node's host, which is node 0's on node 0 alone.
    restarts: of counts from 0; the attempt is one more. ranks: of the number of all ranks: nodes times slots.

    *_like: NAMES ~ REGEX, whose group is the value, with + N behind it for one that counts from elsewhere. hosts_like: text in which {i} is
    the node and {A|B} a variable. hosts_each: the same for the name of a variable that has the host. {A} may be a part of NAMES too.

    no_count, no_first: what to do if nothing says how many nodes there are, or where node 0 is.
    starts_once: how to start ranklaunch on each node, where the job's script runs on the first alone.
    kills_after_s: seconds from the platform's signal to its SIGKILL. starts_late: nodes start minutes apart."""

    name: str
    sign: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    module: str = ""
    title: str = ""
    recognised_by: str = ""
    started_by: str = "the platform, on every node"
    why: str = ""
    sources: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node_index: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    job_name: tuple[str, ...] = ()
    attempt: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    hosts_file: tuple[str, ...] = ()
    slots_beside: bool = False
    master: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    node_index_like: tuple[str, ...] = ()
    nodes_like: tuple[str, ...] = ()
    slots_like: tuple[str, ...] = ()
    job_name_like: tuple[str, ...] = ()
    master_like: tuple[str, ...] = ()
    hosts_like: str = ""
    hosts_each: str = ""
    refuse: tuple[Refusal, ...] = ()
    starts_once: str = ""
    no_count: str = ""
    no_first: str = ""
    kills_after_s: float = 0.0
    starts_late: bool = False


def row(fields: Mapping[str, Any]) -> Row:
    refuse = tuple(Refusal(**_tuples(each)) for each in fields.get("refuse", ()))
    return Row(**{**_tuples(fields), "refuse": refuse})


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
    return re.fullmatch(_PLUS.sub("", regex), text)


def value_like(pattern: str, env: Mapping[str, str]) -> str:
    """Return the first group of a pattern that is set, plus the number behind it; "" where it does not match."""
    found, more = match(pattern, env), _PLUS.search(pattern)
    text = next(filter(None, found.groups()), "") if found else ""
    return str(int(text) + int(more[1])) if text and more else text


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
