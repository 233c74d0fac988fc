"""Check of the variables in `env` and `extraEnv`: names unknown to ranklaunch, unreadable values, and variables of ranks.

variables.json has the names and the forms of values. tools/spec_variables.py makes that file, for the charts too.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from pkgutil import get_data
from typing import Any

from ranklaunch.errors import begins_like_ours
from ranklaunch.redact.redact import environment
from ranklaunch.specs.model import JobSpec
from ranklaunch.specs.pod import DERIVED

PREFIX = "RANKLAUNCH_"
NEAR = 0.6  # similarity of two names without their prefix, for a hint
# Key to set in place of a variable of ranks; the remaining variables have none.
SAID_BY: Mapping[str, str] = {
    "MASTER_PORT": "network.masterPort", "PET_MASTER_PORT": "network.masterPort", "MS_SCHED_PORT": "network.masterPort",
    "WORLD_SIZE": "nodes and devicesPerNode", "LOCAL_WORLD_SIZE": "devicesPerNode", "PET_NNODES": "nodes",
    "PET_NPROC_PER_NODE": "devicesPerNode", "MS_WORKER_NUM": "nodes and devicesPerNode", "MS_LOCAL_WORKER": "devicesPerNode",
}  # fmt: skip


@functools.cache
def table() -> Mapping[str, Any]:
    """Return all of variables.json."""
    result: Mapping[str, Any] = json.loads(get_data("ranklaunch.specs", "variables.json") or b"")
    return result


def problems(spec: JobSpec) -> Iterator[str]:
    for name, value in sorted(spec.env.items()):
        yield from _problem(f"env.{name}", name, value)
    for each in spec.extra_env:
        name, text = str(each.get("name")), str(each.get("value") or "")
        # Kubernetes replaces $(NAME) by another variable: the final value is not known here.
        yield from _problem(f"extraEnv: {name}", name, "" if "$(" in text else text)


def _problem(place: str, name: str, value: str) -> Iterator[str]:
    if is_removed(name):
        remedy = f"set {SAID_BY[name]}" if name in SAID_BY else "leave it out"
        yield f"{place}: ranklaunch removes it before ranks start, and sets what they need; {remedy}"
    elif name.startswith(PREFIX) and name not in DERIVED:
        form = table()["forms"].get(name)
        if form is None:
            yield f"{place}: ranklaunch has no such variable{_hint(name)}"
        elif form and value.strip() and not re.match(form["pattern"], value):
            shown = environment({name: value})[name]
            yield f"{place}={shown!r}: expected {form['form']}"
    elif not name.startswith(PREFIX):
        meant = f"{PREFIX}{name.upper().partition('_')[2]}"
        if meant in table()["forms"] and begins_like_ours(name):
            yield f"{place}: ranklaunch has no such variable{_hint(meant)}"


def is_removed(name: str) -> bool:
    """Return True for a variable that reaches no rank as it is set: ranklaunch replaces or removes it."""
    return any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in table()["removed"])


def _hint(name: str) -> str:
    ending = name[len(PREFIX) :].upper()
    endings = [each[len(PREFIX) :] for each in table()["forms"]]
    near = table()["elsewhere"].get(ending) or next(iter(difflib.get_close_matches(ending, endings, n=1, cutoff=NEAR)), "")
    if not near:
        return ""
    meant = f"{PREFIX}{near}"
    return f", did you mean {meant}?" + (f" It is made from {DERIVED[meant]}; set that" if meant in DERIVED else "")
