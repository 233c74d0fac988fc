"""ranklaunch save: asks all ranks of a running job to save, as their trainer understands it (RANKLAUNCH_SAVE_SIGNAL, RANKLAUNCH_SAVE_FILE);
with a deadline, the job is stopped in time for that."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from ranklaunch.command import asking, options
from ranklaunch.command.options import Option
from ranklaunch.entrypoints.status import one_folder
from ranklaunch.errors import UsageError, numbered
from ranklaunch.read import parse
from ranklaunch.typed import Any

USAGE = "ranklaunch save [LOG_DIR] [--deadline S]"
OPTIONS = (Option("--deadline", "deadline", "seconds until this job is killed: it is stopped so that its grace ends before that"),)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    given, words = options.Parser("save", __doc__ or "", USAGE, OPTIONS).apart(argv)
    deadline = _seconds(given.get("deadline"))
    question = {"do": "save", **({} if deadline is None else {"deadline_s": deadline})}
    answer = asking.ask(one_folder(words, USAGE), env, question)
    sys.stdout.write(asking.lines(_text, answer))
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
    if not nodes:
        yield "no node has answered in time: nobody is known to have been asked"
    for node in nodes:
        who = f"node {node['node']}"
        if node.get("again"):
            yield f"{who}: its ranks were asked a moment ago"
        elif "signal" in node:
            ways = " and ".join(filter(None, [node["signal"], node["file"] and f"touching {node['file']}"]))
            yield f"{who}: its ranks were asked to save by {ways}"
            if node["deaf"]:
                yield f"{who}: not {', '.join(node['deaf'])}: no process there catches {node['signal']}, so it would end them"
            if node["trouble"]:
                yield f"{who}: {node['trouble']}"
    silent = answer.get("silent", ()) if nodes else ()
    if silent:
        yield f"{numbered(silent, 'node')}: no answer yet: whether the ranks there were asked is not known"
    for node in nodes:
        if "stop_in_s" in node:
            yield f"the job is stopped in {node['stop_in_s']:g} s"
