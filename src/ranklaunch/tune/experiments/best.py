"""Program with the best configuration: its command line for the user, and the run of `--run`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ranklaunch.cli.child_command import own_command
from ranklaunch.env import settings, tuning
from ranklaunch.files import join
from ranklaunch.plan.model import Process
from ranklaunch.plan.planning import every_variable
from ranklaunch.redact import redact
from ranklaunch.system import disk
from ranklaunch.tune import results, words
from ranklaunch.tune.experiments.site import CONFIG, Site, program_words, reader_of
from ranklaunch.tune.search import Search
from ranklaunch.verdict import folders

RUN_LOGS = folders.BEST  # in the log directory


@dataclass(frozen=True)
class Chosen:
    """Best configuration, as sent by node 0. args: options of the program for this configuration. port: port of
    the muster of the run."""

    config: Mapping[str, Any]
    args: Mapping[str, str]
    port: int


def read(body: Mapping[str, Any]) -> Chosen:
    """Return the best configuration in a message of node 0. Raises ValueError, TypeError or LookupError."""
    args = {str(name): str(value) for name, value in dict(body["args"]).items()}
    return Chosen(dict(body["config"]), args, int(body["port"]))


def command_line(site: Site, search: Search) -> list[str]:
    """Return a line with the command that starts the program with the best configuration, [] without one."""
    if not search.best:
        return []
    options = site.request.options
    logs = {settings.LOG_DIR.value: _logs(site)} if settings.LOG_DIR.value in options else {}
    args = results.optimal_words(search, join(site.results, results.OPTIMAL))
    argv = ("ranklaunch", "run", *_options({**options, **logs}), "--", *program_words(site), *args)
    return [f"with the best: {shlex.join(redact.argv(argv))}"]


def process(site: Site, chosen: Chosen) -> Process:
    """Write the configuration, and return the run as the user would start it in this container. The
    muster of the run has another port than the muster of the search."""
    job, logs = site.plan.job, _logs(site)
    config = join(folders.node(logs, job.node_index), CONFIG)
    disk.write(config, json.dumps(chosen.config, indent=1).encode() + b"\n", 0o644)
    args = words.changed(job.program.args, config, chosen.args)
    changed = {
        settings.METHOD.value: site.plan.method,
        settings.MUSTER_PORT.value: str(chosen.port),
        settings.LOG_DIR.value: logs,
    }
    options = _options({**site.request.options, **changed})
    of_search = [name for variable in tuning.VARIABLES for name in variable.names]
    return Process(
        name="run",
        argv=(*own_command(), "run", *options, "--", *program_words(site), *args),
        log=join(logs, f"console_{job.node_index}.log"),
        unset=tuple(name for name in of_search if name in site.request.env),
        cwd=job.folder or None,
        node=job.node_index,
    )


def _logs(site: Site) -> str:
    """Return the log directory of the run. It differs from that of the search, so that both verdicts are kept."""
    return join(settings.log_dir(reader_of(site.request)), RUN_LOGS)


def _options(values: Mapping[str, str]) -> list[str]:
    """Return options as words, without those that only `tune` has."""
    of_search = {variable.value for variable in tuning.VARIABLES}
    return [_option(name, value) for name, value in values.items() if name not in of_search]


def _option(name: str, value: str) -> str:
    variable = next(variable for variable in every_variable() if variable.value == name and variable.option)
    return variable.option if variable.is_switch and value == "true" else f"{variable.option}={value}"
