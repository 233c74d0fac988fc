"""ranklaunch save: ask all ranks of a running job to save, by the signal or file that their trainer knows (RANKLAUNCH_SAVE_SIGNAL,
RANKLAUNCH_SAVE_FILE); with a deadline, stop the job in time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.control import client
from ranklaunch.env import parse
from ranklaunch.errors import WaitError, numbered

USAGE = "ranklaunch save [LOG_DIR] [--deadline S]"
OPTIONS = (Option("--deadline", "deadline", "seconds until this job is killed: the job is stopped so early that its grace period fits"),)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.Parser("save", __doc__ or "", USAGE, OPTIONS)
    values, folder = parser.folder(argv)
    answer = client.ask(folder, env, {"do": "save", **_deadline(values, parser)})
    sys.stdout.write(client.lines(_text, answer))
    failure = client.lines(_failure, answer)
    if failure:
        raise WaitError(failure.rstrip())
    return 0


def _deadline(values: Mapping[str, str], parser: options.Parser) -> dict[str, float]:
    try:
        return {"deadline_s": parse.seconds(values["deadline"])} if "deadline" in values else {}
    except ValueError as error:
        parser.refuse(f"option --deadline={values['deadline']!r}: {error}")


def _text(answer: Mapping[str, Any]) -> Iterator[str]:
    nodes = answer["nodes"]
    for node in nodes:
        name = f"node {node['node']}"
        if node.get("again"):
            yield f"{name}: its ranks were asked a moment ago"
        elif "signal" in node:
            yield from (f"{name}: {line}" for line in _result(node))
    silent = answer.get("silent", ()) if nodes else ()
    if silent:
        yield f"{numbered(silent, 'node')}: no answer yet: it is not known whether the ranks there were asked"
    for node in nodes:
        if "stop_in_s" in node:
            yield f"the job is stopped in {node['stop_in_s']:g} s"


def _result(node: Mapping[str, Any]) -> Iterator[str]:
    ways = _ways(node)
    deaf = [f"no process of {', '.join(node['deaf'])} catches {node['signal']}, so it would end them"] if node["deaf"] else []
    problems = [*deaf, *filter(None, [node["trouble"]])]
    if ways:
        yield f"its ranks were asked to save by {' and '.join(ways)}"
        yield from problems
    else:
        yield f"its ranks could not be asked to save: {'; '.join(problems) or 'none runs here'}"


def _ways(node: Mapping[str, Any]) -> list[str]:
    """Return the ways by which a node's ranks were asked: signal and file. The answer of an older ranklaunch has no `by`."""
    if "by" in node:
        return [str(way) for way in node["by"]]
    return list(filter(None, [node["signal"], node["file"] and not node["trouble"] and f"touching {node['file']}"]))


def _failure(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the failure if no rank is known to have been asked, unless only a stop was asked for."""
    nodes = answer["nodes"]
    asked = any(node.get("again") or ("signal" in node and _ways(node)) for node in nodes)
    stop_alone = any("stop_in_s" in node for node in nodes) and not any("signal" in node for node in nodes)
    if not nodes:
        yield "no node has answered in time: no rank is known to have been asked to save"
    elif not (asked or stop_alone):
        yield "no rank is known to have been asked to save"
