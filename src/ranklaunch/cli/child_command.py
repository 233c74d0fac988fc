"""Command line and environment of a child run: a `ranklaunch run` that another command starts as a process."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Collection, Mapping
from typing import Any

from ranklaunch.adapters.launchers.shared.variables import misleading
from ranklaunch.env import settings
from ranklaunch.env.reader import Variable
from ranklaunch.plan.planning import every_variable

Variables = Collection["Variable[Any]"]  # in quotes: Variable cannot be subscripted at run time


def own_command() -> tuple[str, ...]:
    """Return the command that starts this program again.

    The script is used if it exists: with -m, modules in the working folder could hide modules of Python. -I is passed on, so that a child
    ignores PYTHONPATH and the like if this process does.
    """
    python = (sys.executable, "-I") if sys.flags.isolated else (sys.executable,)
    script = os.path.abspath(sys.argv[0])
    by_script = os.path.basename(script) == "ranklaunch" and os.path.isfile(script)
    return (*python, script) if by_script else (*python, "-m", "ranklaunch")


def passed_on(options: Mapping[str, str], left_out: Variables) -> list[str]:
    """Return the options of a command line that each child run gets too. left_out: options that the child gets in another way."""
    not_passed = {v.value for v in left_out}
    by_value = {v.value: v for v in every_variable() if v.option}
    return [_option(by_value[name], value) for name, value in options.items() if name not in not_passed]


def _option(variable: Variable[Any], value: str) -> str:
    return variable.option if variable.is_switch and value == "true" else f"{variable.option}={value}"


def of_platforms(env: Mapping[str, str], not_inherited: Variables) -> tuple[str, ...]:
    """Return the names of inherited variables to hide from a child run.

    They are variables of the platform that this machine may belong to, and ranklaunch's own for settings that options pass. not_inherited:
    settings that no child run may inherit, even if the user has set them.
    """
    inherited = _user_settings(not_inherited)
    known = {name for variable in every_variable() for name in variable.names} - inherited - {"HOSTNAME"}
    return tuple(
        sorted(
            {name for name in env if name in known or (name.startswith(("MA_", "VC_")) and name not in inherited)}
            | set(misleading(env)) - inherited
        )
    )


def of_image(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of variables about the image; they hold for every run in the container."""
    return tuple(name for name in env if any(name in v.names and v.setter(name) == "image" for v in every_variable()))


def _user_settings(not_inherited: Variables) -> set[str]:
    """Return the names of variables with settings of the user that every run gets."""
    left_out = {variable.value for variable in not_inherited}
    inherited = [variable for variable in every_variable() if variable.value not in left_out]
    return {name for v in inherited for name in v.names if v.setter(name) == "user" or v.value == settings.PYTHON.value}


def free_ports(count: int) -> tuple[int, ...]:
    """Return free ports, all different: sockets stay open until the last is bound, since separate requests may return one port twice.

    Ports differ even between simulated nodes, since TensorFlow listens on all addresses of a machine.
    """
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return tuple(probe.getsockname()[1] for probe in probes)
