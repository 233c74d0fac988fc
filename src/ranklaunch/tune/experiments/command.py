"""Command `ranklaunch tune`: from the command line to the verdict of the search."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from ranklaunch.cli import launch, options
from ranklaunch.env import tuning
from ranklaunch.muster import wire
from ranklaunch.muster.secret import secret
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import Request
from ranklaunch.supervise import nested
from ranklaunch.supervise.session import Session
from ranklaunch.system.signals import Signals
from ranklaunch.tune import table
from ranklaunch.tune.experiments import site as sites
from ranklaunch.tune.experiments.folder import Folder
from ranklaunch.tune.experiments.work import Tuning
from ranklaunch.tune.search import Search

DESCRIPTION = "The fastest DeepSpeed configuration that fits, by trying: each experiment is a run of its own."
USAGE = "ranklaunch tune [OPTIONS] -- PROGRAM [ARGS...]"


def is_dry(argv: list[str], env: Mapping[str, str]) -> options.CommandLine | None:
    """Return the command line if the search is only to be shown (--dry-run), else None."""
    command_line = _read(argv, env)
    return command_line if sites.reader_of(command_line.request).get(tuning.DRY_RUN) else None


def _read(argv: list[str], env: Mapping[str, str]) -> options.CommandLine:
    parser = options.JobParser("tune", DESCRIPTION, USAGE, tuning.VARIABLES)
    command_line = options.read(parser, argv, env)
    return replace(command_line, request=replace(command_line.request, account=options.own_account()))


def show(command_line: options.CommandLine) -> int:
    """Print the candidates, the pruned ones with reasons, and the order. Start and write nothing."""
    site = sites.make(command_line.request)
    settings = sites.settings(site)
    search = Search(settings, sites.known(site, settings))
    sys.stdout.write("".join(f"{line}\n" for line in table.described(search)))
    return 0


def main(argv: list[str], env: Mapping[str, str], signals: Signals, guard: int) -> int:
    command_line = _read(argv, env)
    kept: list[Folder] = []

    def make_plan(request: Request) -> Plan:
        """Return the plan of the search. Is called again if a rank table changes the order of the nodes."""
        site = sites.make(request)
        muster = site.plan.muster
        key = wire.job_key(secret(muster, request.env), site.plan.job.name) if muster else b""
        site = replace(site, key=key)
        if kept:
            kept[0].site = site
        else:
            sites.settings(site)  # refuse wrong settings before any wait
            kept.append(Folder(site))
        return sites.plan_of_search(site)

    start, _ = launch.opened(command_line, env, make_plan)
    start = replace(start, work=lambda attempt: Tuning(attempt, kept[0]))
    session = Session(signals, nested.unmarked(command_line.request.env), guard)
    return session.run(start).judgement.exit_code
