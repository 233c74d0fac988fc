"""ranklaunch check: all causes that would make run fail, at once. Starts nothing; run it in the container of the training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ranklaunch.cli import host_command, options, platform_file
from ranklaunch.cli.preflight import Finding, findings
from ranklaunch.env.features import CHECK_FORMAT, CHECK_VARIABLES
from ranklaunch.env.job import Program
from ranklaunch.env.settings import ENV_FILE, ROOT
from ranklaunch.errors import ConfigError, MissingProgramError, WaitError, counted, reason, shortened
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import make_plan
from ranklaunch.processes.children import CANNOT_EXECUTE

SCHEMA = "ranklaunch.check/1"

WITHOUT_PROGRAM = Program("true")  # is everywhere, so what is wrong is the job's or the image's
# The one that run would end with comes first: planning is before programs, and these are before what is waited for.
SEVEREST = (ConfigError.exit_code, MissingProgramError.exit_code, CANNOT_EXECUTE, WaitError.exit_code)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.JobParser("check", __doc__ or "", "ranklaunch check [OPTIONS] [--] [PROGRAM [ARGS...]]", CHECK_VARIABLES)
    command_line = options.read(parser, argv, env, WITHOUT_PROGRAM)
    form = command_line.own.get(CHECK_FORMAT)
    command_line.own.check()
    plan, findings = _looked(command_line)
    wrong = [finding.code for finding in findings if finding.code]
    code = next((code for code in SEVEREST if code in wrong), 0)
    if form == "json":
        print(json.dumps(_as_json(plan, findings, code), indent=1))
    else:
        _show_all(plan, findings)
    return code


def _looked(command_line: options.CommandLine) -> tuple[Plan | None, list[Finding]]:
    """No plan where there can be none."""
    others = host_command.of_others(command_line)
    try:
        plan = make_plan(command_line.request if others else host_command.with_hosts(command_line.request))
    except ConfigError as error:
        return None, [*(Finding(problem, error.exit_code) for problem in error.problems), *map(Finding, error.hints)]
    others = [*others, *platform_file.notes(command_line.request, plan)]
    of_plan = findings(plan, command_line.request.env, command_line.own.get(ROOT))
    return plan, [*map(Finding, others), *_looked_for_here(command_line), *of_plan]


def _looked_for_here(command_line: options.CommandLine) -> Iterator[Finding]:
    """Yield a note if the environment is another container's and the files are this machine's."""
    if command_line.own.get(ENV_FILE) and not command_line.own.get(ROOT):
        where = "programs and files are looked for on this machine, not in the container of"
        below = f"{ROOT.option} DIR looks below a folder of yours; or start check in the container"
        yield Finding(f"{where} {ENV_FILE.option}: {below}")


def _show_all(plan: Plan | None, findings: Sequence[Finding]) -> None:
    if plan:
        place = "a node that takes no part" if plan.job.is_idle else f"node {plan.job.node_index} of {len(plan.job.nodes)}"
        print(_shown(f"{plan.method} ({plan.why}): {place}, {counted(plan.job.node.slots, 'rank')} here"))
    for finding in findings:
        print(_shown(f"{_kind(finding)}: {finding.text}"))
    print(f"{counted(sum(1 for finding in findings if finding.code), 'thing')} would make run fail")


def _as_json(plan: Plan | None, findings: Sequence[Finding], code: int) -> dict[str, Any]:
    """schema ranklaunch.check/1: keys are only ever added."""
    job = plan.job if plan else None
    return {
        "schema": SCHEMA,
        "exit_code": code,
        "method": plan.method if plan else None,
        "why": _shown(plan.why) if plan else None,
        "node": job.node_index if job else None,
        "nodes": len(job.nodes) if job else None,
        "ranks": (0 if job.is_idle else job.node.slots) if job else None,
        "findings": [{"kind": _kind(finding), "text": _shown(finding.text), "exit_code": finding.code} for finding in findings],
    }


def _kind(finding: Finding) -> str:
    return "wrong" if finding.code else "note"


def _shown(text: str) -> str:
    """Without secrets, control characters harmless, and not as long as what was given may be."""
    return shortened(reason(text)).encode(errors="backslashreplace").decode()
