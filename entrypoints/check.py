"""ranklaunch check: show all causes that would make run fail, at once. Starts nothing; run it in the container of the training."""

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

WITHOUT_PROGRAM = Program("true")  # exists everywhere: all problems are the job's or the image's
# Exit codes in the order in which run would meet them: planning, then programs, then waits.
SEVEREST = (ConfigError.exit_code, MissingProgramError.exit_code, CANNOT_EXECUTE, WaitError.exit_code)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.JobParser("check", __doc__ or "", "ranklaunch check [OPTIONS] [--] [PROGRAM [ARGS...]]", CHECK_VARIABLES)
    command_line = options.read(parser, argv, env, WITHOUT_PROGRAM)
    form = command_line.own.get(CHECK_FORMAT)
    command_line.own.check()
    plan, findings = _checked(command_line)
    wrong = [finding.code for finding in findings if finding.code]
    code = next((code for code in SEVEREST if code in wrong), 0)
    if form == "json":
        print(json.dumps(_as_json(plan, findings, code), indent=1))
    else:
        _show_all(plan, findings)
    return code


def _checked(command_line: options.CommandLine) -> tuple[Plan | None, list[Finding]]:
    """Return the plan, None if planning fails, and all findings."""
    skipped = host_command.skipped(command_line)
    try:
        plan = make_plan(command_line.request if skipped else host_command.with_hosts(command_line.request))
    except ConfigError as error:
        return None, [*(Finding(problem, error.exit_code) for problem in error.problems), *map(Finding, error.hints)]
    notes = [*skipped, *platform_file.notes(command_line.request, plan)]
    of_plan = findings(plan, command_line.request.env, command_line.own.get(ROOT))
    return plan, [*map(Finding, notes), *_note_on_files(command_line), *of_plan]


def _note_on_files(command_line: options.CommandLine) -> Iterator[Finding]:
    """Yield a note if the environment is another container's and the files are this machine's."""
    if command_line.own.get(ENV_FILE) and not command_line.own.get(ROOT):
        where = "programs and files are looked for on this machine, not in the container of"
        remedy = f"give {ROOT.option} DIR with a copy of the container's files, or start check in the container"
        yield Finding(f"{where} {ENV_FILE.option}: {remedy}")


def _show_all(plan: Plan | None, findings: Sequence[Finding]) -> None:
    if plan:
        place = "a node that takes no part" if plan.job.is_idle else f"node {plan.job.node_index} of {len(plan.job.nodes)}"
        print(_shown(f"{plan.method} ({plan.why}): {place}, {counted(plan.job.node.slots, 'rank')} here"))
    for finding in findings:
        print(_shown(f"{_kind(finding)}: {finding.text}"))
    print(f"{counted(sum(1 for finding in findings if finding.code), 'thing')} would make run fail")


def _as_json(plan: Plan | None, findings: Sequence[Finding], code: int) -> dict[str, Any]:
    """Return the findings as JSON of schema ranklaunch.check/1, a contract: keys are only ever added."""
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
    """Return a text for the console or JSON: secrets hidden, control characters escaped, and shortened."""
    return shortened(reason(text)).encode(errors="backslashreplace").decode()
