"""Hints about variables that look like ranklaunch's own and are unknown. Without a hint they would silently have no effect."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from ranklaunch.errors import counted
from ranklaunch.showing import clipped

MOST_SHOWN = 8  # unknown variables that are named
# Our names for names of other launchers that have no similar spelling.
ELSEWHERE = {
    "NPROC_PER_NODE": "SLOTS",
    "NPROC": "SLOTS",
    "NUM_PROCESSES": "SLOTS",
    "NUM_GPUS": "SLOTS",
    "GPUS_PER_NODE": "SLOTS",
    "GPUS": "SLOTS",
    "NNODES": "NODES",
    "NUM_MACHINES": "NODES",
    "NODE_RANK": "NODE",
    "MACHINE_RANK": "NODE",
    "MAIN_PROCESS_IP": "MASTER_ADDR",
    "MAIN_PROCESS_PORT": "MASTER_PORT",
}
# Variables that Kubernetes sets in every container for a Service whose name begins with "ranklaunch".
_LINK = re.compile(r"RANKLAUNCH_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)")


def elsewhere(option: str) -> str:
    """Return ranklaunch's option with the meaning of another launcher's option; "" if none is known."""
    name = ELSEWHERE.get(option.lstrip("-").replace("-", "_").upper(), "")
    return f"--{name.lower().replace('_', '-')}" if name else ""


def warnings(names: Iterable[str], env: Mapping[str, str], known: Collection[str]) -> tuple[str, ...]:
    """Return the warnings about unknown variables. known: names of ranklaunch's own variables."""
    unknown = sorted(name for name in names if env[name].strip() and not _is_link(name, env[name]))
    return tuple(_warnings(unknown[:MOST_SHOWN], known)) + (
        (f"{counted(len(unknown) - MOST_SHOWN, 'more variable')} begin with RANKLAUNCH_ and are none of ranklaunch's",)
        if len(unknown) > MOST_SHOWN
        else ()
    )


def _warnings(names: Iterable[str], known: Collection[str]) -> Iterator[str]:
    endings = [name[len("RANKLAUNCH_") :] for name in sorted(known)]
    for name in names:
        ending = name.upper().partition("_")[2]
        near = ELSEWHERE.get(ending) or _nearest(ending, endings)
        hint = f", did you mean RANKLAUNCH_{near}?" if near else ""
        yield f"{clipped(name)} is no variable of ranklaunch's and has no effect{hint}"


def _nearest(ending: str, endings: Iterable[str]) -> str:
    """Return the nearest ending, "" if none is near. An ending with the same first word goes before a more similar one."""
    near = difflib.get_close_matches(ending, endings, n=MOST_SHOWN, cutoff=0.6)
    word = ending.partition("_")[0]
    return next((each for each in near if each.partition("_")[0] == word), near[0] if near else "")


def _is_link(name: str, value: str) -> bool:
    return bool(_LINK.fullmatch(name)) or (name.endswith("_PORT") and "://" in value)
