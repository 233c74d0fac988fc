"""ranklaunch plan: show what run would do, and why. Starts and writes nothing."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ranklaunch.cli import options
from ranklaunch.env.settings import ALL_NODES, ENV_FILE, FORMAT, PLAN_VARIABLES, ROOT, SLURM, SPEC, VERBOSE
from ranklaunch.files import Noted, Unchanged
from ranklaunch.plan import show
from ranklaunch.plan.model import Plan, as_json
from ranklaunch.plan.planning import Request, for_node, for_nodes, make_plan, named_node
from ranklaunch.rank_wrapper import vscode

MOST_FOUND = 12  # listed files of this machine


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.JobParser("plan", __doc__ or "", "ranklaunch plan [OPTIONS] [--] PROGRAM [ARGS...]", PLAN_VARIABLES)
    command_line = _of_body(parser, argv, env) or options.read(parser, argv, env)
    form, all_nodes, verbose = command_line.own.get(FORMAT), command_line.own.get(ALL_NODES), command_line.own.get(VERBOSE)
    root, recorded = command_line.own.get(ROOT), command_line.own.get(ENV_FILE) or command_line.own.get(SPEC)
    command_line.own.record(SLURM)
    command_line.own.check()
    files = Noted(command_line.request.files)
    request = replace(command_line.request, files=files, env=options.allocated(command_line))

    def as_text(plan: Plan) -> str:
        return show.as_text(plan, verbose, _local_files(files, request.cwd, recorded, root))

    for piece in _pieces(request, form, all_nodes, as_text):
        _write(piece)
    return 0


def _of_body(parser: options.JobParser, argv: list[str], env: Mapping[str, str]) -> options.CommandLine | None:
    """Return the request of a body of ModelArts' API; None without --spec."""
    if SPEC.names[0] not in env and not any(word.partition("=")[0] == SPEC.option for word in argv):
        return None
    from ranklaunch.cli import job_body  # few plans need it

    return job_body.read(parser, argv, env)


def _local_files(files: Noted, cwd: str, recorded: str, root: str) -> Iterator[str]:
    """Yield the files that were found on this machine, if the environment or the files are another machine's."""
    if not recorded and not root:
        return
    yield f"{cwd}, the start of relative paths"
    # Files of packages are listed by their folder.
    paths = sorted({re.sub(r"(/(?:site|dist)-packages)/.*", r"\1", path) for path in files.found if not root or not path.startswith("/")})
    yield from paths[:MOST_FOUND]
    if len(paths) > MOST_FOUND:
        yield f"... and {len(paths) - MOST_FOUND} more"
    if paths and not root:
        yield f"give {ROOT.option} DIR to look these up below a copy of the other machine's files"


def _write(text: str) -> None:
    """Write a text to standard output. Bytes of the input that are not UTF-8 are written unchanged."""
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        data = text.encode(errors="backslashreplace")
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    else:  # replaced by an object that takes only text
        sys.stdout.write(os.fsdecode(data))


def _pieces(request: Request, form: str, all_nodes: bool, as_text: Callable[[Plan], str]) -> Iterator[str]:
    plans = _plans(request, all_nodes)
    if form == "vscode":
        yield vscode.as_launch(plans, request.cwd)
        return
    if form == "json":
        yield from _as_json(plans, all_nodes)
        return
    show_plan = as_text if form == "text" else show.as_shell
    for i, plan in enumerate(plans):
        yield ("\n" if i else "") + show_plan(plan)


def _as_json(plans: Iterator[Plan], is_list: bool) -> Iterator[str]:
    for i, plan in enumerate(plans):
        yield (",\n" if i else "[\n" if is_list else "") + json.dumps(as_json(plan), indent=1)
    yield "\n]\n" if is_list else "\n"


def _plans(request: Request, all_nodes: bool) -> Iterator[Plan]:
    index = named_node(request)
    request = request if index is None or all_nodes else for_node(request, index)
    if not all_nodes:
        yield make_plan(request)
        return
    request = replace(request, files=Unchanged(request.files))
    job = make_plan(for_node(request, 0)).job
    requests = for_nodes(request, ((node.task_index if node.task else node.index, node.task) for node in job.everyone))
    # Idle nodes come last, independent of the platform's order.
    yield from sorted(map(make_plan, requests), key=lambda plan: plan.job.node_index) if job.idle else map(make_plan, requests)
