"""The hosts that a command of the user's names: run and check ask it before they plan."""

from __future__ import annotations

import sys
from dataclasses import replace

from ranklaunch.adapters.platforms.shared.base import HOSTS_COMMAND, HOSTS_FROM
from ranklaunch.cli.options import CommandLine
from ranklaunch.env.settings import ENV_FILE, HOSTS, WAIT_S
from ranklaunch.plan.planning import Request
from ranklaunch.supervise.waits import host_command
from ranklaunch.system.signals import Signals


def with_hosts(request: Request, signals: Signals | None = None) -> Request:
    """The request with its answer, where there is such a command; without one where a stop request has come first."""
    reader = request.reader()
    if not reader.is_set(HOSTS_COMMAND) or any(map(reader.is_set, (HOSTS, HOSTS_FROM))):  # both are a contradiction, which the plan says
        return request
    command, timeout_s = reader.get(HOSTS_COMMAND), reader.get(WAIT_S)
    answer = host_command.ask(command, reader.described(HOSTS_COMMAND), request.env, timeout_s, _say, signals)
    return request if answer is None else replace(request, arrived=replace(request.arrived, named=answer))


def of_others(command_line: CommandLine) -> list[str]:
    """Return a finding for a host command from a file: `check` does not run it, as another user may have written the file."""
    reader, own = command_line.request.reader(), command_line.own
    if not reader.is_set(HOSTS_COMMAND) or own.get(HOSTS_COMMAND) == reader.get(HOSTS_COMMAND):
        return []
    return [f"{reader.described(HOSTS_COMMAND)} of {own.get(ENV_FILE)} is not run by check; {HOSTS_COMMAND.option} on the command line is"]


def _say(text: str) -> None:
    try:
        print(f"ranklaunch: {text}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it; the job goes on
        pass
