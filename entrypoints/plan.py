"""ranklaunch plan: what run would do, and why. Starts and writes nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping

from ranklaunch.command import options
from ranklaunch.errors import UsageError
from ranklaunch.files import Unchanged
from ranklaunch.plan import show
from ranklaunch.plan.model import Plan, as_json
from ranklaunch.plan.planning import Request, for_node, for_nodes, make_plan
from ranklaunch.read.settings import ALL_NODES, FORMAT, NODE_INDEX, PLAN_VARIABLES
from ranklaunch.values import replace


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.JobParser("plan", __doc__ or "", "ranklaunch plan [OPTIONS] [--] PROGRAM [ARGS...]", PLAN_VARIABLES)
    given = options.read(parser, argv, env)
    form, all_nodes = given.own.get(FORMAT), given.own.get(ALL_NODES)
    given.own.check()
    for piece in _pieces(given.request, form, all_nodes):
        _write(piece)
    return 0


def _write(text: str) -> None:
    """Bytes that are no UTF-8 come out as they came in."""
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        data = text.encode(errors="backslashreplace")
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    else:  # replaced by something that takes text alone
        sys.stdout.write(os.fsdecode(data))


def _pieces(request: Request, form: str, all_nodes: bool) -> Iterator[str]:
    plans = _plans(request, all_nodes)
    if form == "json":
        if not all_nodes:
            yield json.dumps(as_json(next(plans)), indent=1) + "\n"
            return
        for i, plan in enumerate(plans):
            yield ("[\n" if i == 0 else ",\n") + json.dumps(as_json(plan), indent=1)
        yield "\n]\n"
        return
    show_plan = show.as_text if form == "text" else show.as_shell
    for i, plan in enumerate(plans):
        yield ("\n" if i else "") + show_plan(plan)


def _plans(request: Request, all_nodes: bool) -> Iterator[Plan]:
    if NODE_INDEX.value in request.options:
        request = for_node(request, _index(request))
    if not all_nodes:
        yield make_plan(request)
        return
    request = replace(request, files=Unchanged(request.files))
    nodes = make_plan(for_node(request, 0)).job.nodes
    for seen in for_nodes(request, ((node.task_index if node.task else node.index, node.task) for node in nodes)):
        yield make_plan(seen)


def _index(request: Request) -> int:
    text = request.options[NODE_INDEX.value]
    try:
        return NODE_INDEX.parse(text)
    except ValueError as error:
        msg = f"--node {text!r}: {error}"
        raise UsageError(msg) from None
