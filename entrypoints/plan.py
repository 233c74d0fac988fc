"""ranklaunch plan: what run would do, and why. Starts and writes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping

from ranklaunch import show
from ranklaunch.entrypoints import options
from ranklaunch.errors import UsageError, nearest
from ranklaunch.plan import Plan, as_json
from ranklaunch.planning import Request, for_node, make_plan
from ranklaunch.reading import NODE_INDEX

FORMATS = ("text", "json", "sh")


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.Parser("plan", __doc__ or "", "ranklaunch plan [OPTIONS] [--] PROGRAM [ARGS...]")
    options.add_shared(parser)
    parser.add_argument(
        "--format",
        default="text",
        metavar="|".join(FORMATS),
        help="text for people, json for tools, sh to paste into a shell",
    )
    parser.add_argument("--all-nodes", action="store_const", const=True, default=False, help="the plan of every node, in node order")
    given = options.read(parser, argv, env)
    form = given.parsed.format
    if form not in FORMATS:
        msg = f"--format {form!r}: expected one of {', '.join(FORMATS)}{nearest(form, FORMATS)}"
        raise UsageError(msg)
    for piece in _pieces(given.request, form, given.parsed.all_nodes):
        sys.stdout.write(piece.encode(errors="backslashreplace").decode())
    return 0


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
    first = make_plan(for_node(request, 0))
    yield first
    for index in range(1, len(first.job.nodes)):
        yield make_plan(for_node(request, index))


def _index(request: Request) -> int:
    text = request.options[NODE_INDEX.value]
    try:
        return NODE_INDEX.parse(text)
    except ValueError as error:
        msg = f"--node {text!r}: {error}"
        raise UsageError(msg) from None
