"""The site of a search: the user's job, on whose nodes experiments run, and their paths."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass, replace

from ranklaunch.env import settings as job_settings
from ranklaunch.env import tuning
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.errors import ConfigError, unreadable
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
TOPIC = "tune"  # of messages over the muster
NAME = re.compile(r"[A-Za-z0-9][\w.+=,-]{0,200}")  # of an experiment and its folder
AUTOTUNING = "--autotuning"
NODE_GRACE_S = 5.0  # beyond the grace of an experiment, which ends its own ranks first


@dataclass(frozen=True)
class Site:
    """plan: of the user's whole job. config: path of the user's DeepSpeed configuration. text: its
    content. exps: folder of the experiments. results: folder of the results. timeout_s: for each
    experiment. run: start the program with the best. key: secret of the job, the source of each
    experiment's secret. same: digest required of results of an earlier start.
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
        """Seconds that an experiment has to end."""
        return self.plan.limits.grace_s

    def folder(self, name: str) -> str:
        return join(self.exps, name)

    def secret(self, name: str) -> str:
        return hmac.digest(self.key, b"experiment\0" + name.encode(), hashlib.sha256).hex()


def reader_of(request: Request) -> Reader:
    return Reader(request.env, request.files, request.options, request.cwd)


def make(request: Request, key: bytes = b"") -> Site:
    """Read a request. Raises ConfigError."""
    reader = reader_of(request)
    # The batch sizes need not fit: the search replaces them.
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
    """Return the plan of the search itself: the nodes meet as the nodes of the job would; it has no
    processes, as these follow from the search."""
    plan = site.plan
    wanted = {variable.value: value for variable in tuning.VARIABLES if (value := _compared(site, variable))}
    facts = {"command": "tune", "ds_config": site.same, **wanted}
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
            f"method {plan.method}: tune knows {', '.join(METHODS)}; --method (RANKLAUNCH_METHOD) names one, whatever the job will be "
            "run with: DeepSpeed's configuration has nothing to do with what starts the ranks"
        )
        raise ConfigError(msg)
    if any(AUTOTUNING in word for process in plan.processes for word in process.argv):
        msg = f"{AUTOTUNING} is DeepSpeed's own search: leave it out for ranklaunch tune, or start ranklaunch run with it"
        raise ConfigError(msg)
    if plan.followers or plan.job.idle:
        msg = "tune starts every experiment on its nodes itself: leave out what has DeepSpeed start ranks on other nodes, or some of them"
        raise ConfigError(msg)


def _config(reader: Reader, plan: Plan) -> tuple[str, str]:
    """Return the path of the user's DeepSpeed configuration, and its text."""
    named = reader.get(tuning.DS_CONFIG) or ds_config.path_of(plan.job.program.args)
    if not named:
        msg = f"no DeepSpeed configuration: neither does the program have --deepspeed_config FILE, nor does {tuning.DS_CONFIG.both} say one"
        raise ConfigError(msg)
    path = absolute(named, plan.job.folder or reader.cwd)
    try:
        text = reader.files.text(path, ds_config.MOST_BYTES)
    except ValueError as error:
        msg = f"the DeepSpeed configuration {path}: {unreadable(error)}"
        raise ConfigError(msg) from None
    if text is None:
        msg = f"the DeepSpeed configuration {path} is not there, or cannot be read"
        raise ConfigError(msg)
    autotuning.loads(text, path)
    return path, text


def _digest(plan: Plan, text: str) -> str:
    """Return a digest, equal on all nodes, and in each start whose results are to count."""
    config = autotuning.loads(text, "")
    own = {key: value for key, value in config.items() if key != autotuning.SECTION}
    facts = [own, plan.job.program.path, plan.method, plan.job.accelerator]
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
        reader.problem(f"{reader.described(tuning.EXP_NODES)}: the job has {len(job.nodes)}")
    if 1 < nodes < len(job.nodes) and not all(node.host for node in job.nodes):
        reader.problem(
            f"{reader.described(tuning.EXP_NODES)}: nodes other than node 0 cannot meet where {job_settings.HOSTS.both} names none"
        )
    if slots > least:
        reader.problem(f"{reader.described(tuning.EXP_SLOTS)}: the node that has the fewest slots has {least}")
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
