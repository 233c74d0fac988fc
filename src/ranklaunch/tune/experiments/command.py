"""The supervisor's side of tune: from the command line to the verdict of the search."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from ranklaunch.command import launch, options
from ranklaunch.muster import wire
from ranklaunch.muster.secrets import secret
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import Request
from ranklaunch.read import tuning
from ranklaunch.supervise import nested
from ranklaunch.supervise.session import Session
from ranklaunch.system.signals import Signals
from ranklaunch.tune import table
from ranklaunch.tune.experiments import site
from ranklaunch.tune.experiments.folder import Searches
from ranklaunch.tune.experiments.work import Tuning
from ranklaunch.tune.search import Search

DESCRIPTION = "The fastest DeepSpeed configuration that fits, by trying: each experiment is a run of its own."
USAGE = "ranklaunch tune [OPTIONS] -- PROGRAM [ARGS...]"


def parser() -> options.JobParser:
    return options.JobParser("tune", DESCRIPTION, USAGE, tuning.VARIABLES)


def is_dry(argv: list[str], env: Mapping[str, str]) -> options.Given | None:
    """What is given, where it is only to be shown."""
    given = options.read(parser(), argv, env)
    given = replace(given, request=replace(given.request, account=options.own_account()))
    return given if site.reader_of(given.request).get(tuning.DRY_RUN) else None


def show(given: options.Given) -> int:
    """The space, what is left out of it, and the order; starts and writes nothing."""
    searches = Searches(site.make(given.request))
    settings = searches.settings()
    found = Search(settings, searches.known(settings))
    sys.stdout.write("".join(f"{line}\n" for line in table.described(found)))
    return 0


def main(argv: list[str], env: Mapping[str, str], signals: Signals, guard: int) -> int:
    given = options.read(parser(), argv, env)
    given = replace(given, request=replace(given.request, account=options.own_account()))
    searches: list[Searches] = []

    def make_plan(request: Request) -> Plan:
        """The places of a newer plan are those that count."""
        found = site.make(request)
        muster = found.plan.muster
        key = wire.job_key(secret(muster, request.env), found.plan.job.name) if muster else b""
        found = replace(found, key=key)
        if searches:
            searches[0].site = found
        else:
            searches.append(Searches(found))
            searches[0].settings()  # what is wrong with it is said before anything is waited for
        return site.tuned(found)

    start, _ = launch.opened(given, env, make_plan)
    inherited = nested.unmarked(given.request.env)
    session = Session(signals, inherited, guard)
    return session.run(start, kind=lambda start, around: Tuning(start, around, searches[0])).exit_code
