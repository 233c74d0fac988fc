"""ranklaunch stacks: where the ranks of a running job are, asked in any of its containers. All nodes take evidence, and the job goes on."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.control import client
from ranklaunch.entrypoints.status import one_folder
from ranklaunch.errors import WaitError, numbered

USAGE = "ranklaunch stacks [LOG_DIR] [--all-nodes]"
OPTIONS = (Option("--all-nodes", "all_nodes", "the ranks of all nodes, not of this one alone", takes=""),)
NO_STACK = (
    "no stack: its interpreter has ended or not begun, it is no CPython 3.8 or newer, was started with -I or -E, or the job with "
    "RANKLAUNCH_STACKS=off; py-spy on PATH shows it where the container lets it look"
)
STOPPED = "no stack: the process is stopped, as by SIGSTOP, and answers nothing"
ADDRESS, NUMBERS = re.compile(r"0x[0-9a-fA-F]+"), re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
LIBRARY = re.compile(r"site-packages|dist-packages|lib(?:64)?/python\d|<frozen")


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    given, words = options.Parser("stacks", __doc__ or "", USAGE, OPTIONS).apart(argv)
    folder = one_folder(words, USAGE)
    own = client.ask(folder, env, {"do": "status"}).get("node")
    answer = client.ask(folder, env, {"do": "stacks"})
    show = _all if "all_nodes" in given else partial(_of, own)
    text = client.lines(lambda answer: _text(show(answer)["ranks"]), answer)
    lacking = client.lines(lambda answer: _lacking(show(answer)), answer)
    if lacking and not text:
        raise WaitError(lacking.rstrip())
    sys.stdout.write(text + lacking)
    return 0


def _all(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return answer


def _of(node: object, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What it says of one node."""
    told = {name: [each for each in answer[name] if each["node"] == node] for name in ("ranks", "failed")}
    return {**told, "silent": [silent for silent in answer["silent"] if silent == node]}


def _lacking(answer: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"node {each['node']} could take no evidence: {each['why']}" for each in answer["failed"])
    if answer["silent"]:
        yield f"nothing came in time from {numbered(answer['silent'], 'node')}"


def _text(ranks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Ranks that are at the same place once, the smallest groups first, for they stand out."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for rank in ranks:
        groups.setdefault((rank["state"], _place(rank["stack"]), rank.get("exception", "")), []).append(rank)
    for (state, _, raised), those in sorted(groups.items(), key=lambda item: len(item[1])):
        first = those[0]
        yield f"{numbered((rank['rank'] for rank in those), 'rank')} (state {state}):"
        yield from (f"  {line}" for line in first["stack"].splitlines() or [STOPPED if state == "T" else NO_STACK])
        if raised:
            yield f"  it wrote down an exception: {raised}"
        yield f"  {first['file']}" if first["file"] else ""


def _place(stack: str) -> str:
    """Return what equal stacks have in common: lines of libraries may differ in numbers, lines of the program may not."""
    return "\n".join((NUMBERS if LIBRARY.search(line) else ADDRESS).sub("#", line) for line in stack.splitlines())
