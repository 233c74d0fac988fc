"""Where a search takes place: the job on whose nodes experiments run, and the places of what they leave behind."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass, replace

from ranklaunch.errors import ConfigError, unreadable
from ranklaunch.files import absolute, join
from ranklaunch.plan import ds_config
from ranklaunch.plan.model import NODES, Plan
from ranklaunch.plan.planning import Request, make_plan
from ranklaunch.read import settings, tuning
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.tune import autotuning
from ranklaunch.tune.results import EXPERIMENTS
from ranklaunch.verdict import folders

METHODS = ("deepspeed", "torchrun", "accelerate", "spawn")
FOLDER = folders.TUNE  # in the log directory, which platforms keep
VERDICT, CONFIG, COMMAND, LOG = folders.VERDICT, "ds_config.json", folders.COMMAND, "log"
TOPIC = "tune"  # of words over the muster
NAME = re.compile(r"[A-Za-z0-9][\w.+=,-]{0,200}")  # of an experiment, and so of its folder
AUTOTUNING = "--autotuning"
NODE_GRACE_S = 5.0  # more than an experiment has: it ends its own ranks first


@dataclass(frozen=True)
class Site:
    """plan: of the user's whole job. config: the path of the user's DeepSpeed configuration; text: what is in it. timeout_s: of each
    experiment. key: from which each experiment's own follows. same: by what results of an earlier start are of the same search."""

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
        """Of one experiment."""
        return self.plan.limits.grace_s

    def folder(self, name: str) -> str:
        return join(self.exps, name)

    def secret(self, name: str) -> str:
        return hmac.digest(self.key, b"experiment\0" + name.encode(), hashlib.sha256).hex()


def reader_of(request: Request) -> Reader:
    return Reader(request.env, request.files, request.options, request.cwd)


def make(request: Request, key: bytes = b"") -> Site:
    """Raises ConfigError."""
    reader = reader_of(request)
    # Its batch sizes need not fit: they are what is looked for.
    plan = make_plan(replace(request, options={**request.options, settings.CHECK_BATCH.value: "off"}))
    _require(plan)
    values = {variable: reader.get(variable) for variable in tuning.VARIABLES}
    reader.check()
    path, text = _config(reader, plan)
    logs = absolute(reader.get(settings.LOG_DIR), reader.cwd)
    return Site(
        plan=plan,
        request=request,
        config=path,
        text=text,
        exps=absolute(str(values[tuning.EXPS_DIR] or join(join(logs, FOLDER), EXPERIMENTS)), reader.cwd),
        results=absolute(str(values[tuning.RESULTS] or join(logs, FOLDER)), reader.cwd),
        timeout_s=float(str(values[tuning.TIMEOUT_S])),
        run=bool(values[tuning.RUN]),
        key=key,
        same=_digest(plan, text),
    )


def tuned(site: Site) -> Plan:
    """The plan of the search itself: the nodes meet as those of the job would, and what runs then is not planned."""
    plan = site.plan
    wanted = {variable.value: value for variable in tuning.VARIABLES if (value := _said(site, variable))}
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


def _said(site: Site, variable: Variable[object]) -> str:
    """What the nodes must be told alike; where each has its own folders, or shows what it would do, is its own affair."""
    reader = reader_of(site.request)
    own = (tuning.EXPS_DIR, tuning.RESULTS, tuning.DS_CONFIG, tuning.DRY_RUN)
    return "" if variable in own or not reader.given(variable) else str(reader.get(variable))


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
    """The path of the user's DeepSpeed configuration, and its text."""
    given = reader.get(tuning.DS_CONFIG) or ds_config.path_of(plan.job.program.args)
    if not given:
        msg = f"no DeepSpeed configuration: neither does the program have --deepspeed_config FILE, nor does {tuning.DS_CONFIG.both} say one"
        raise ConfigError(msg)
    path = absolute(given, plan.job.folder or reader.cwd)
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
    """What the nodes must agree on, and an earlier start too, for its results to count."""
    own = {key: value for key, value in autotuning.loads(text, "").items() if key != autotuning.SECTION}
    said = [own, plan.job.program.path, plan.method, plan.job.accelerator]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode(errors="surrogateescape")).hexdigest()[:16]
