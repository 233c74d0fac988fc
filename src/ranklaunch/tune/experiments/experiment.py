"""One experiment on one node as a `ranklaunch run`: its command line, environment and files."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT
from ranklaunch.cli.child_command import of_image, of_platforms, own_command, passed_on
from ranklaunch.env import settings, tasks, tuning
from ranklaunch.fields import names
from ranklaunch.files import join
from ranklaunch.plan.model import Process
from ranklaunch.system import disk
from ranklaunch.tune import metrics, words
from ranklaunch.tune.experiments.site import COMMAND, CONFIG, LOG, NAME, Site, program_words
from ranklaunch.tune.model import Experiment

# Settings that tune passes to each run as options of its own, or handles itself.
OURS = (
    settings.PLATFORM, settings.METHOD, settings.NODES, settings.SLOTS, settings.HOSTS,
    settings.NODE_INDEX, settings.LOG_DIR, settings.ENV_FILE, settings.JOB_NAME, settings.ATTEMPT,
    settings.ACCELERATOR, settings.PYTHON, settings.MASTER_ADDR, MASTER_PORT, settings.MUSTER_PORT,
    settings.PRE_START, settings.ONCE, settings.SAME, *tuning.VARIABLES,
)  # fmt: skip
NOT_INHERITED = (
    *OURS, settings.RANK_TABLE, settings.TERMINATION_LOG, settings.SECRET, settings.SECRET_FILE,
    settings.JOB_UID, tasks.TASK, tasks.PS_HOSTS, tasks.WORKER_HOSTS,
)  # fmt: skip
# Variables with words of the launcher, among which DeepSpeed's configuration may be named.
EXTRAS = (
    "RANKLAUNCH_EXTRA_ACCELERATE_PARAMS",
    "RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS",
    "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS",
)


@dataclass(frozen=True)
class Order:
    """Experiment and its nodes, by decision of node 0. nodes: indices; the first node leads. ports: of the
    rendezvous and of the muster, free on the first node."""

    name: str
    kind: str
    config: Mapping[str, Any]
    args: Mapping[str, str]
    nodes: tuple[int, ...]
    slots: int
    ports: tuple[int, ...] = ()

    @property
    def leader(self) -> int:
        return self.nodes[0]

    @property
    def experiment(self) -> Experiment:
        return Experiment(self.name, self.kind, self.config, len(self.nodes), self.slots, self.args)


def read(body: Mapping[str, Any]) -> Order:
    """Return the order in a message. Raises ValueError, TypeError or LookupError."""
    order = Order(**{name: body[name] for name in names(Order)})
    if not NAME.fullmatch(order.name) or type(order.config) is not dict:
        msg = f"an experiment called {order.name!r:.80}"
        raise ValueError(msg)
    args = {str(option): str(value) for option, value in order.args.items()}
    nodes, ports = (
        tuple(int(node) for node in order.nodes),
        tuple(int(port) for port in order.ports),
    )
    return Order(order.name, str(order.kind), order.config, args, nodes, int(order.slots), ports)


def clear_folder(site: Site, order: Order) -> None:
    """Make the experiment's folder, without files of an unfinished earlier start."""
    folder = site.folder(order.name)
    if os.path.isdir(folder) and not os.path.islink(folder):
        shutil.rmtree(folder)
    disk.make_folder(folder)


def process(site: Site, order: Order) -> Process:
    """Write the files of this node's run, and return the run."""
    job, folder = site.plan.job, site.folder(order.name)
    index = order.nodes.index(job.node_index)
    ending = f"_{index}" if index else ""
    config = join(folder, CONFIG)
    if not index or not os.path.exists(config):
        disk.write(
            config,
            json.dumps(metrics.placed(order.experiment, folder), indent=1).encode() + b"\n",
            0o644,
        )
    made, unset = _environment(site, order, config)
    args = words.changed(job.program.args, config, order.args)
    argv = (*own_command(), "run", *_options(site, order, index), "--", *program_words(site), *args)
    shown = _shell_command(site, argv, made, unset)
    disk.write(join(folder, f"{COMMAND}{ending}"), shown.encode(errors="surrogateescape"), 0o600)
    secret = {settings.SECRET.names[0]: site.secret(order.name)} if len(order.nodes) > 1 else {}
    return Process(
        name=order.name,
        argv=argv,
        log=join(folder, f"{LOG}{ending}"),
        env={**made, **secret},
        unset=unset,
        cwd=job.folder or None,
        quiet=True,
    )


def _options(site: Site, order: Order, index: int) -> list[str]:
    """Return the options of this node's run. index: of this node among the nodes of the experiment."""
    job = site.plan.job
    return [
        f"{settings.PLATFORM.option}=local",
        f"{settings.METHOD.option}={site.plan.method}",
        f"{settings.SLOTS.option}={order.slots}",
        f"{settings.ACCELERATOR.option}={job.accelerator}",
        f"{settings.PYTHON.option}={job.python}",
        f"{settings.JOB_NAME.option}={job.name}-{order.name}",
        f"{settings.LOG_DIR.option}={join(site.folder(order.name), 'logs')}",
        f"{settings.PRE_START.option}=off",
        *(_meeting(site, order, index) if len(order.nodes) > 1 else [f"{settings.NODES.option}=1"]),
        *passed_on(site.request.options, OURS),
    ]


def _meeting(site: Site, order: Order, index: int) -> list[str]:
    """Return the options by which the nodes of one experiment meet."""
    hosts = [site.plan.job.nodes[node].host for node in order.nodes]
    address = f"{settings.MASTER_ADDR.option}={hosts[0]}"
    if all(hosts):
        address = f"{settings.HOSTS.option}={','.join(hosts)}"
    return [
        f"{settings.NODES.option}={len(order.nodes)}",
        address,
        f"{settings.NODE_INDEX.option}={index}",
        f"{settings.MUSTER_PORT.option}={order.ports[1]}",
    ]


def _environment(site: Site, order: Order, config: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables to set for the run, and the names to remove. In variables, the path of the user's
    configuration is replaced by that of the experiment's."""
    env = site.request.env
    kept = {settings.OUTER_RUN, *of_image(env)}
    unset = [name for name in of_platforms(env, NOT_INHERITED) if name in env and name not in kept]
    paths = {site.config, os.path.relpath(site.config, site.request.cwd)}
    made = dict(site.plan.job.env)
    for name, value in env.items():
        if value in paths and name not in unset:
            made[name] = config
        elif name in EXTRAS and any(path in value for path in paths):
            made[name] = _replaced(value, paths, config)
    # The container continues after the run: the run must not write the container's termination message.
    made[settings.TERMINATION_LOG.names[0]] = join(site.folder(order.name), "no-termination-log")
    made[MASTER_PORT.names[0]] = str(order.ports[0])
    return made, tuple(name for name in unset if name not in made)


def _replaced(value: str, paths: set[str], config: str) -> str:
    for path in sorted(paths, key=len, reverse=True):
        value = re.sub(rf"(?<![\w/.-]){re.escape(path)}(?![\w/.-])", lambda _: config, value)
    return value


def _shell_command(site: Site, argv: Sequence[str], env: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return the run as a shell command for the user, without secrets: on several nodes, the user has to
    set RANKLAUNCH_SECRET."""
    kept = {name: value for name, value in env.items() if name != settings.TERMINATION_LOG.names[0]}
    changes = [
        *(word for name in unset for word in ("-u", name)),
        *(f"{name}={value}" for name, value in kept.items()),
    ]
    command = ["env", *changes, *argv] if changes else list(argv)
    return f"cd {shlex.quote(site.plan.job.folder or site.request.cwd)} &&\n{shlex.join(command)}\n"
