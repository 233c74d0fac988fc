"""Child runs: the command line and the environment of a `ranklaunch run` that another command starts as a process."""

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

Variables = Collection["Variable[Any]"]  # a class of ours that is no generic one when it runs


def own_command() -> tuple[str, ...]:
    """This very program. By its script where there is one: -m would let modules in the user's folder hide those of Python. Where this
    one is kept from PYTHONPATH and the like, so are those."""
    python = (sys.executable, "-I") if sys.flags.isolated else (sys.executable,)
    script = os.path.abspath(sys.argv[0])
    by_script = os.path.basename(script) == "ranklaunch" and os.path.isfile(script)
    return (*python, script) if by_script else (*python, "-m", "ranklaunch")


def passed_on(options: Mapping[str, str], ours: Variables) -> list[str]:
    """Return the options of a command line that each child run gets too. ours: options that the child gets in another way."""
    own_values = {v.value for v in ours}
    named = {v.value: v for v in every_variable() if v.option}
    return [_option(named[name], value) for name, value in options.items() if name not in own_values]


def _option(variable: Variable[Any], value: str) -> str:
    return variable.option if variable.is_switch and value == "true" else f"{variable.option}={value}"


def of_platforms(env: Mapping[str, str], not_inherited: Variables) -> tuple[str, ...]:
    """Return the names of inherited variables to hide from a child run: variables of platforms this machine may belong to, and
    ours for settings passed by options.
    """
    kept = _of_user(not_inherited)
    known = {name for variable in every_variable() for name in variable.names} - kept - {"HOSTNAME"}
    return tuple(
        sorted(
            {name for name in env if name in known or (name.startswith(("MA_", "VC_")) and name not in kept)} | set(misleading(env)) - kept
        )
    )


def of_image(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return variables about the image. They hold for every run in the container."""
    return tuple(name for name in env if any(name in v.names and v.setter(name) == "image" for v in every_variable()))


def _of_user(not_inherited: Variables) -> set[str]:
    """Names of the settings in the environment that are for each run."""
    left_out = {variable.value for variable in not_inherited}
    wanted = [variable for variable in every_variable() if variable.value not in left_out]
    return {name for v in wanted for name in v.names if v.setter(name) == "user" or v.value == settings.PYTHON.value}


def free_ports(count: int) -> tuple[int, ...]:
    """Return different ports, since separate requests may return equal ones: TensorFlow listens on all addresses of a machine."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return tuple(probe.getsockname()[1] for probe in probes)
