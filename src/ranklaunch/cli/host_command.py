"""Hosts from the user's command (--hosts-command), which `run` and `check` execute before they plan."""

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
    """Return the request with the hosts from the command. Without a command, or after a stop request, return it unchanged."""
    reader = request.reader()
    # Hosts set in two ways are a contradiction, which the plan reports.
    if not reader.is_set(HOSTS_COMMAND) or any(map(reader.is_set, (HOSTS, HOSTS_FROM))):
        return request
    command, timeout_s = reader.get(HOSTS_COMMAND), reader.get(WAIT_S)
    answer = host_command.ask(command, reader.described(HOSTS_COMMAND), request.env, timeout_s, _say, signals)
    return request if answer is None else replace(request, arrived=replace(request.arrived, named=answer))


def skipped(command_line: CommandLine) -> list[str]:
    """Return a note about a host command from a file: `check` does not run it, since another user may have written the file."""
    reader, own = command_line.request.reader(), command_line.own
    if not reader.is_set(HOSTS_COMMAND) or own.get(HOSTS_COMMAND) == reader.get(HOSTS_COMMAND):
        return []
    file = own.get(ENV_FILE)
    return [f"{reader.described(HOSTS_COMMAND)} of {file} is not run by check; give {HOSTS_COMMAND.option} on the command line"]


def _say(text: str) -> None:
    try:
        print(f"ranklaunch: {text}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads stderr; the job goes on
        pass
