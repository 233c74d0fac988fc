"""One experiment on one node: the run that it is, and what its verdict says."""

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
from ranklaunch.command.below import of_image, of_platforms, own_command, passed_on
from ranklaunch.fields import names
from ranklaunch.files import join
from ranklaunch.plan.model import Process
from ranklaunch.read import settings, tasks, tuning
from ranklaunch.system import disk
from ranklaunch.system.disk import DiskFiles
from ranklaunch.tune import metrics, words
from ranklaunch.tune.experiments.site import COMMAND, CONFIG, LOG, NAME, VERDICT, Site
from ranklaunch.tune.model import FAILED, HUNG, OK, OUT_OF_MEMORY, Experiment
from ranklaunch.verdict import folders

# What tune says to each run by options, or has seen to itself.
OURS = (
    settings.PLATFORM, settings.METHOD, settings.NODES, settings.SLOTS, settings.HOSTS, settings.NODE_INDEX, settings.LOG_DIR,
    settings.ENV_FILE, settings.JOB_NAME, settings.ATTEMPT, settings.ACCELERATOR, settings.PYTHON, settings.MASTER_ADDR, MASTER_PORT,
    settings.MUSTER_PORT, settings.PRE_START, settings.ONCE, settings.SAME, *tuning.VARIABLES,
)  # fmt: skip
NOT_INHERITED = (
    *OURS, settings.RANK_TABLE, settings.TERMINATION_LOG, settings.SECRET, settings.SECRET_FILE, settings.JOB_UID, tasks.TASK,
    tasks.PS_HOSTS, tasks.WORKER_HOSTS,
)  # fmt: skip
# Of those that name DeepSpeed's configuration in the environment of the program, or of a launcher.
EXTRAS = ("RANKLAUNCH_EXTRA_ACCELERATE_PARAMS", "RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS", "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS")
MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc|failed to allocate memory"
    r"|\bENOMEM\b|Malloc device memory failed|CUBLAS_STATUS_ALLOC_FAILED"
)
MOST_VERDICT = 16 * 1024 * 1024  # bytes
MOST_REASON = 300  # characters


@dataclass(frozen=True)
class Order:
    """What node 0 has decided. nodes: by index, the first of them leads. ports: of the rendezvous and of the muster, free on that one."""

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
    """Of a word. Raises ValueError, TypeError or LookupError."""
    order = Order(**{name: body[name] for name in names(Order)})
    if not NAME.fullmatch(order.name) or type(order.config) is not dict:
        msg = f"an experiment called {order.name!r:.80}"
        raise ValueError(msg)
    args = {str(option): str(value) for option, value in order.args.items()}
    nodes, ports = tuple(int(node) for node in order.nodes), tuple(int(port) for port in order.ports)
    return Order(order.name, str(order.kind), order.config, args, nodes, int(order.slots), ports)


def fresh(site: Site, order: Order) -> None:
    """Nothing of a start of it that was not finished is left."""
    folder = site.folder(order.name)
    if os.path.isdir(folder) and not os.path.islink(folder):
        shutil.rmtree(folder)
    disk.make_folder(folder)


def process(site: Site, order: Order) -> Process:
    """The run of this node's part, whose files are written too."""
    job, folder = site.plan.job, site.folder(order.name)
    own = order.nodes.index(job.node_index)
    ending = f"_{own}" if own else ""
    config = join(folder, CONFIG)
    if not own or not os.path.exists(config):
        disk.write(config, json.dumps(metrics.placed(order.experiment, folder), indent=1).encode() + b"\n", 0o644)
    made, unset = _environment(site, order, config)
    argv = (*own_command(), "run", *_options(site, order, own), "--", *_program(site, order, config))
    disk.write(join(folder, f"{COMMAND}{ending}"), _shown(site, argv, made, unset).encode(errors="surrogateescape"), 0o600)
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


def _options(site: Site, order: Order, own: int) -> list[str]:
    job = site.plan.job
    hosts = [job.nodes[node].host for node in order.nodes]
    where = f"{settings.HOSTS.option}={','.join(hosts)}" if all(hosts) else f"{settings.MASTER_ADDR.option}={hosts[0]}"
    several = [
        f"{settings.NODES.option}={len(order.nodes)}",
        where,
        f"{settings.NODE_INDEX.option}={own}",
        f"{settings.MUSTER_PORT.option}={order.ports[1]}",
    ]
    return [
        f"{settings.PLATFORM.option}=local",
        f"{settings.METHOD.option}={site.plan.method}",
        f"{settings.SLOTS.option}={order.slots}",
        f"{settings.ACCELERATOR.option}={job.accelerator}",
        f"{settings.PYTHON.option}={job.python}",
        f"{settings.JOB_NAME.option}={job.name}-{order.name}",
        f"{settings.LOG_DIR.option}={join(site.folder(order.name), 'logs')}",
        f"{settings.PRE_START.option}=off",
        *(several if len(order.nodes) > 1 else [f"{settings.NODES.option}=1"]),
        *passed_on(site.request.options, OURS),
    ]


def _program(site: Site, order: Order, config: str) -> tuple[str, ...]:
    program = site.plan.job.program
    args = words.changed(program.args, config, order.args)
    return (*program.words[: len(program.words) - len(program.args)], *args)


def _environment(site: Site, order: Order, config: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """What is added for the run, and what it does not inherit. A variable that names the user's configuration names the experiment's."""
    env = site.request.env
    kept = {settings.OUTER_RUN, *of_image(env)}
    unset = tuple(name for name in of_platforms(env, NOT_INHERITED) if name in env and name not in kept)
    named = {site.config, os.path.relpath(site.config, site.request.cwd)}
    made = dict(site.plan.job.env)
    for name, value in env.items():
        if value in named and name not in unset:
            made[name] = config
        elif name in EXTRAS and any(path in value for path in named):
            made[name] = _replaced(value, named, config)
    made[settings.TERMINATION_LOG.names[0]] = join(site.folder(order.name), "no-termination-log")  # the container goes on
    made[MASTER_PORT.names[0]] = str(order.ports[0])
    return made, tuple(name for name in unset if name not in made)


def _replaced(value: str, named: set[str], config: str) -> str:
    for path in sorted(named, key=len, reverse=True):
        value = re.sub(rf"(?<![\w/.-]){re.escape(path)}(?![\w/.-])", lambda found: config, value)
    return value


def _shown(site: Site, argv: Sequence[str], env: Mapping[str, str], unset: Sequence[str]) -> str:
    """The same for a shell, without what is secret: several nodes need a RANKLAUNCH_SECRET of their own."""
    kept = {name: value for name, value in env.items() if name != settings.TERMINATION_LOG.names[0]}
    before = [*(word for name in unset for word in ("-u", name)), *(f"{name}={value}" for name, value in kept.items())]
    words_ = ["env", *before, *argv] if before else list(argv)
    return f"cd {shlex.quote(site.plan.job.folder or site.request.cwd)} &&\n{shlex.join(words_)}\n"


# What came of it


def attempt(site: Site, order: Order) -> str:
    """The newest folder of this node's run. One that failed before it knew its nodes has left none of a node."""
    logs, files = join(site.folder(order.name), "logs"), DiskFiles()
    own = folders.node(logs, order.nodes.index(site.plan.job.node_index))
    here = own if files.names(own) else logs
    return folders.attempt(here, folders.newest(files.names(here)))


def verdict(site: Site, order: Order) -> dict[str, Any] | None:
    """Of this node's run; None where it has written none. A copy stands in the experiment's folder."""
    try:
        data = disk.read(disk.own(join(attempt(site, order), folders.VERDICT)), MOST_VERDICT)
        found = json.loads(data)
    except (OSError, ValueError, RecursionError, disk.NotRegularError):
        return None
    if not isinstance(found, dict):
        return None
    disk.write(join(site.folder(order.name), VERDICT), data, 0o644)
    return found


def status(found: Mapping[str, Any] | None, code: int, hung_after_s: float) -> tuple[str, str]:
    """Of model.STATUSES, and why. hung_after_s: it was ended for that; 0: it was not."""
    if hung_after_s:
        return HUNG, f"it had not ended after {hung_after_s:g} s"
    if found and found.get("outcome") == "succeeded":
        return OK, ""
    reason = str(found.get("reason", "")) if found else f"its ranklaunch ended with exit code {code} and left no verdict"
    return (OUT_OF_MEMORY if _by_memory(found) else FAILED), reason[:MOST_REASON]


def _by_memory(found: Mapping[str, Any] | None) -> bool:
    """The kernel has counted it, or a process has said so; of the one that decided, or of another that ended by itself."""
    failures = [each for each in ((found or {}).get("culprit"), *((found or {}).get("failures") or ())) if isinstance(each, dict)]
    return any(failure.get("out_of_memory") or any(map(MEMORY.search, _lines(failure))) for failure in failures)


def _lines(failure: Mapping[str, Any]) -> list[str]:
    error = failure.get("error")
    told = [str(error.get("line", ""))] if isinstance(error, dict) else []
    return [*told, *map(str, failure.get("last_lines") or ())]
