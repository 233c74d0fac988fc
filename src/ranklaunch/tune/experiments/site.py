"""Site of a search: the user's job, on whose nodes experiments run, and the paths of the search."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass, replace

from ranklaunch.env import settings as job_settings
from ranklaunch.env import tuning
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.errors import ConfigError, counted, unreadable
from ranklaunch.files import absolute, join
from ranklaunch.plan import ds_config
from ranklaunch.plan.model import NODES, Plan
from ranklaunch.plan.planning import Request, make_plan
from ranklaunch.system import memory
from ranklaunch.system.disk import DiskFiles
from ranklaunch.tune import autotuning, results
from ranklaunch.tune.model import Result, Settings
from ranklaunch.verdict import folders

METHODS = ("deepspeed", "torchrun", "accelerate", "spawn")
FOLDER = folders.TUNE  # in the log directory
VERDICT, CONFIG, COMMAND, LOG = folders.VERDICT, "ds_config.json", folders.COMMAND, "log"
TOPIC = "tune"  # topic of messages over the muster
NAME = re.compile(r"[A-Za-z0-9][\w.+=,-]{0,200}")  # of an experiment and its folder
AUTOTUNING = "--autotuning"
NODE_GRACE_S = 5.0  # beyond the grace of an experiment, which ends its own ranks first


@dataclass(frozen=True)
class Site:
    """Job and paths of a search. plan: of the user's whole job. config: path of the user's DeepSpeed
    configuration. text: content of this file. exps: folder of the experiments. results: folder of the
    results. timeout_s: limit of each experiment. run: start the program with the best configuration.
    key: secret of the job, from which the secret of each experiment is made. same: digest that results of
    an earlier start must have.
    """

    plan: Plan
    request: Request
    config: str
    text: str
    exps: str
    results: str
    timeout_s: float
    run: bool
    key: bytes
    same: str

    @property
    def grace_s(self) -> float:
        """Return the seconds that an experiment has to end after a stop request."""
        return self.plan.limits.grace_s

    def folder(self, name: str) -> str:
        return join(self.exps, name)

    def secret(self, name: str) -> str:
        return hmac.digest(self.key, b"experiment\0" + name.encode(), hashlib.sha256).hex()


def reader_of(request: Request) -> Reader:
    return Reader(request.env, request.files, request.options, request.cwd)


def make(request: Request, key: bytes = b"") -> Site:
    """Return the site of a request. Raises ConfigError."""
    reader = reader_of(request)
    # The user's batch sizes need not be consistent: the search replaces them.
    options = {**request.options, job_settings.CHECK_BATCH.value: "off"}
    plan = make_plan(replace(request, options=options))
    _require(plan)
    values = {variable: reader.get(variable) for variable in tuning.VARIABLES}
    reader.check()
    path, text = _config(reader, plan)
    logs = absolute(reader.get(job_settings.LOG_DIR), reader.cwd)
    return Site(
        plan=plan,
        request=request,
        config=path,
        text=text,
        exps=absolute(
            str(values[tuning.EXPS_DIR] or join(join(logs, FOLDER), results.EXPERIMENTS)),
            reader.cwd,
        ),
        results=absolute(str(values[tuning.RESULTS] or join(logs, FOLDER)), reader.cwd),
        timeout_s=float(str(values[tuning.TIMEOUT_S])),
        run=bool(values[tuning.RUN]),
        key=key,
        same=_digest(plan, text),
    )


def plan_of_search(site: Site) -> Plan:
    """Return the plan of the search itself. The nodes meet as the nodes of the job would. The plan has no
    processes: the search decides about these later."""
    plan = site.plan
    compared = {variable.value: value for variable in tuning.VARIABLES if (value := _compared(site, variable))}
    facts = {"command": "tune", "ds_config": site.same, **compared}
    return replace(
        plan,
        processes=(),
        services=(),
        outputs=None,
        files=(),
        gather=(),
        private="",
        by_address=False,
        followers=0,
        shows=(),
        layout=None,
        runs=NODES,
        waits=tuple(wait for wait in plan.waits if wait.kind in ("rank table", "muster")),
        limits=replace(plan.limits, grace_s=plan.limits.grace_s + NODE_GRACE_S),
        muster=plan.muster and replace(plan.muster, facts={**plan.muster.facts, **facts}, followers=0),
    )


def _compared(site: Site, variable: Variable[object]) -> str:
    """Return the value of a setting that must be equal on all nodes, "" for other settings."""
    reader = reader_of(site.request)
    local = (tuning.EXPS_DIR, tuning.RESULTS, tuning.DS_CONFIG, tuning.DRY_RUN)
    return "" if variable in local or not reader.is_set(variable) else str(reader.get(variable))


def _require(plan: Plan) -> None:
    if plan.method not in METHODS:
        msg = (
            f"method {plan.method}: tune supports {', '.join(METHODS)}; set one of these by --method (RANKLAUNCH_METHOD): the job itself "
            "may use another one later, as the best configuration does not depend on the launcher"
        )
        raise ConfigError(msg)
    if any(AUTOTUNING in word for process in plan.processes for word in process.argv):
        msg = f"{AUTOTUNING} is DeepSpeed's own search: leave it out for ranklaunch tune, or start ranklaunch run with it"
        raise ConfigError(msg)
    if plan.followers or plan.job.idle:
        msg = "tune starts each experiment on its nodes itself: leave out options by which DeepSpeed starts or skips other nodes"
        raise ConfigError(msg)


def _config(reader: Reader, plan: Plan) -> tuple[str, str]:
    """Return the path and the text of the user's DeepSpeed configuration. Raises ConfigError."""
    named = reader.get(tuning.DS_CONFIG) or ds_config.path_of(plan.job.program.args)
    if not named:
        msg = f"no DeepSpeed configuration: give the program --deepspeed_config FILE, or set {tuning.DS_CONFIG.both}"
        raise ConfigError(msg)
    path = absolute(named, plan.job.folder or reader.cwd)
    try:
        text = reader.files.text(path, ds_config.MOST_BYTES)
    except ValueError as error:
        msg = f"the DeepSpeed configuration {path}: {unreadable(error)}"
        raise ConfigError(msg) from None
    if text is None:
        msg = f"the DeepSpeed configuration {path} does not exist or cannot be read"
        raise ConfigError(msg)
    autotuning.loads(text, path)
    return path, text


def _digest(plan: Plan, text: str) -> str:
    """Return a digest of configuration, program, launcher and accelerator: equal on all nodes, and in starts with comparable results."""
    config = autotuning.loads(text, "")
    without_section = {key: value for key, value in config.items() if key != autotuning.SECTION}
    facts = [without_section, plan.job.program.path, plan.method, plan.job.accelerator]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


# Settings of the search


def settings(site: Site) -> Settings:
    """Return the settings of the search. Raises ConfigError."""
    reader, job = reader_of(site.request), site.plan.job
    is_set = [variable for variable in tuning.OF_SEARCH if reader.is_set(variable)]
    options = {variable.option: reader.get(variable) for variable in is_set}
    nodes = reader.get(tuning.EXP_NODES) or len(job.nodes)
    least = min(node.slots for node in job.nodes)
    slots = reader.get(tuning.EXP_SLOTS) or least
    if nodes > len(job.nodes):
        reader.problem(f"{reader.described(tuning.EXP_NODES)}: the job has {counted(len(job.nodes), 'node')}")
    if 1 < nodes < len(job.nodes) and not all(node.host for node in job.nodes):
        reader.problem(
            f"{reader.described(tuning.EXP_NODES)}: experiments without node 0 need the names of all hosts: set {job_settings.HOSTS.both}"
        )
    if slots > least:
        reader.problem(f"{reader.described(tuning.EXP_SLOTS)}: the node with the fewest slots has {least}")
    reader.check()
    size, _ = device_memory(site, slots)
    return autotuning.settled(
        autotuning.loads(site.text, site.config),
        job.program.args,
        nodes,
        slots,
        options,
        memory=size,
        device=job.accelerator,
        seed=reader.get(tuning.SEED),
        width=len(job.nodes) // nodes,
        of=site.same,
    )


def device_memory(site: Site, slots: int) -> tuple[int, str]:
    """Return the memory of each device in bytes, and the source of the number."""
    reader = reader_of(site.request)
    if reader.is_set(tuning.MEMORY):
        return reader.get(tuning.MEMORY), reader.source(tuning.MEMORY)
    return memory.of_devices(site.plan.job.accelerator, site.request.env, slots)


def known(site: Site, settings: Settings) -> tuple[Result, ...]:
    """Return the results of earlier starts."""
    return results.known(DiskFiles(), site.results, settings, site.exps)


def program_words(site: Site) -> tuple[str, ...]:
    """Return the program's words without its arguments."""
    program = site.plan.job.program
    return program.words[: len(program.words) - len(program.args)]
