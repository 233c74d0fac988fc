"""ranklaunch check: what would make run fail, all of it at once. Starts nothing; run it in the container that is to train."""

from __future__ import annotations

from collections.abc import Mapping

from ranklaunch.command import named, options
from ranklaunch.command.findings import Finding, findings
from ranklaunch.errors import ConfigError, MissingProgramError, WaitError, counted, reason
from ranklaunch.plan.planning import make_plan
from ranklaunch.read.job import Program
from ranklaunch.read.settings import ROOT

WITHOUT_PROGRAM = Program("true")  # is everywhere, so what is wrong is the job's or the image's
# The one that run would end with comes first: planning is before programs, and these are before what is waited for.
SEVEREST = (ConfigError.exit_code, MissingProgramError.exit_code, WaitError.exit_code)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.JobParser("check", __doc__ or "", "ranklaunch check [OPTIONS] [--] [PROGRAM [ARGS...]]")
    given = options.read(parser, argv, env, WITHOUT_PROGRAM)
    others = named.of_others(given)
    try:
        plan = make_plan(given.request if others else named.with_hosts(given.request))
    except ConfigError as error:
        found = [*(Finding(problem, error.exit_code) for problem in error.problems), *map(Finding, error.hints)]
    else:
        ranks = counted(plan.job.node.slots, "rank")
        place = "a node that takes no part" if plan.job.is_idle else f"node {plan.job.node_index} of {len(plan.job.nodes)}"
        _show(f"{plan.method} ({plan.why}): {place}, {ranks} here")
        found = [*map(Finding, others), *findings(plan, given.request.env, given.own.get(ROOT))]
    for finding in found:
        _show(f"{'wrong' if finding.code else 'note'}: {finding.text}")
    wrong = [finding.code for finding in found if finding.code]
    print(f"{counted(len(wrong), 'thing')} would make run fail")
    return next((code for code in SEVEREST if code in wrong), 0)


def _show(text: str) -> None:
    """Without secrets, control characters harmless."""
    print(reason(text).encode(errors="backslashreplace").decode())
