"""ranklaunch save: asks all ranks of a running job to save, as their trainer understands it (RANKLAUNCH_SAVE_SIGNAL, RANKLAUNCH_SAVE_FILE);
with a deadline, the job is stopped in time for that."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.control import client
from ranklaunch.entrypoints.status import one_folder
from ranklaunch.env import parse
from ranklaunch.errors import UsageError, WaitError, numbered

USAGE = "ranklaunch save [LOG_DIR] [--deadline S]"
OPTIONS = (Option("--deadline", "deadline", "seconds until this job is killed: it is stopped so that its grace ends before that"),)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    given, words = options.Parser("save", __doc__ or "", USAGE, OPTIONS).apart(argv)
    deadline = _seconds(given.get("deadline"))
    question = {"do": "save", **({} if deadline is None else {"deadline_s": deadline})}
    answer = client.ask(one_folder(words, USAGE), env, question)
    sys.stdout.write(client.lines(_text, answer))
    failure = client.lines(_failure, answer)
    if failure:
        raise WaitError(failure.rstrip())
    return 0


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse.seconds(text)
    except ValueError as error:
        msg = f"option --deadline={text!r}: {error}\nusage: {USAGE}"
        raise UsageError(msg) from None


def _text(answer: Mapping[str, Any]) -> Iterator[str]:
    nodes = answer["nodes"]
    for node in nodes:
        who = f"node {node['node']}"
        if node.get("again"):
            yield f"{who}: its ranks were asked a moment ago"
        elif "signal" in node:
            yield from (f"{who}: {line}" for line in _told(node))
    silent = answer.get("silent", ()) if nodes else ()
    if silent:
        yield f"{numbered(silent, 'node')}: no answer yet: whether the ranks there were asked is not known"
    for node in nodes:
        if "stop_in_s" in node:
            yield f"the job is stopped in {node['stop_in_s']:g} s"


def _told(node: Mapping[str, Any]) -> Iterator[str]:
    ways = _ways(node)
    deaf = [f"no process of {', '.join(node['deaf'])} catches {node['signal']}, so it would end them"] if node["deaf"] else []
    lacking = [*deaf, *filter(None, [node["trouble"]])]
    if ways:
        yield f"its ranks were asked to save by {' and '.join(ways)}"
        yield from lacking
    else:
        yield f"its ranks could not be asked to save: {'; '.join(lacking) or 'none runs here'}"


def _ways(node: Mapping[str, Any]) -> list[str]:
    """By which ranks were asked. An older ranklaunch on a node does not say `by`."""
    if "by" in node:
        return [str(way) for way in node["by"]]
    return list(filter(None, [node["signal"], node["file"] and not node["trouble"] and f"touching {node['file']}"]))


def _failure(answer: Mapping[str, Any]) -> Iterator[str]:
    """Where no rank is known to have been asked, and it was not only the stop that was wanted."""
    nodes = answer["nodes"]
    asked = any(node.get("again") or ("signal" in node and _ways(node)) for node in nodes)
    stop_alone = any("stop_in_s" in node for node in nodes) and not any("signal" in node for node in nodes)
    if not nodes:
        yield "no node has answered in time: nobody is known to have been asked"
    elif not (asked or stop_alone):
        yield "no rank is known to have been asked to save"
