"""ranklaunch stacks: show where the ranks of a running job are, from any of its containers. All nodes collect evidence; the job goes on."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.control import client
from ranklaunch.errors import WaitError, numbered

USAGE = "ranklaunch stacks [LOG_DIR] [--all-nodes]"
OPTIONS = (Option("--all-nodes", "all_nodes", "show the ranks of all nodes, not only of this one", takes=""),)
NO_STACK = (
    "no stack: the interpreter has ended or not begun, is no CPython 3.8 or newer, or was started with -I or -E; or the job has "
    "RANKLAUNCH_STACKS=off; with py-spy on PATH there is one, if the container permits ptrace"
)
STOPPED = "no stack: the process is stopped, as by SIGSTOP, and cannot answer"
ADDRESS, NUMBERS = re.compile(r"0x[0-9a-fA-F]+"), re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
LIBRARY = re.compile(r"site-packages|dist-packages|lib(?:64)?/python\d|<frozen")


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    values, folder = options.Parser("stacks", __doc__ or "", USAGE, OPTIONS).folder(argv)
    this_node = client.ask(folder, env, {"do": "status"}).get("node")
    answer = client.ask(folder, env, {"do": "stacks"})
    if "all_nodes" not in values:
        answer = client.understood(partial(_of_node, this_node), answer)
    text, missing = client.lines(_text, answer), client.lines(_missing, answer)
    if missing and not text:
        raise WaitError(missing.rstrip())
    sys.stdout.write(text + missing)
    return 0


def _of_node(node: object, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an answer that is about one node."""
    parts = {name: [each for each in answer[name] if each["node"] == node] for name in ("ranks", "failed")}
    return {**parts, "silent": [silent for silent in answer["silent"] if silent == node]}


def _missing(answer: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"node {each['node']} could collect no evidence: {each['why']}" for each in answer["failed"])
    if answer["silent"]:
        yield f"no answer in time from {numbered(answer['silent'], 'node')}"


def _text(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield each stack once, with all ranks that are there. The smallest groups come first: they are the conspicuous ones."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for rank in answer["ranks"]:
        groups.setdefault((rank["state"], _place(rank["stack"]), rank.get("exception", "")), []).append(rank)
    for (state, _, exception), ranks in sorted(groups.items(), key=lambda item: len(item[1])):
        first = ranks[0]
        yield f"{numbered((rank['rank'] for rank in ranks), 'rank')} (state {state}):"
        yield from (f"  {line}" for line in first["stack"].splitlines() or [STOPPED if state == "T" else NO_STACK])
        if exception:
            yield f"  recorded exception: {exception}"
        yield f"  {first['file']}" if first["file"] else ""


def _place(stack: str) -> str:
    """Return a key that equal stacks share: numbers in lines of libraries are masked, in lines of the program only addresses."""
    return "\n".join((NUMBERS if LIBRARY.search(line) else ADDRESS).sub("#", line) for line in stack.splitlines())
