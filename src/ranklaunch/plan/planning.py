"""From an environment to the plan of one node: read, choose a launcher, plan. Pure: the same inputs give the same plan."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ranklaunch import showing
from ranklaunch.adapters import launchers, platforms
from ranklaunch.adapters.launchers.shared import base, variables
from ranklaunch.adapters.launchers.shared.base import PYTHON, Launcher, Need
from ranklaunch.adapters.platforms.shared.base import OF_ALL
from ranklaunch.env import parse, settings, tasks
from ranklaunch.env.job import Job, Program
from ranklaunch.env.reader import ROOT_ACCOUNT, Account, Arrived, Candidate, Reader, Variable
from ranklaunch.errors import ConfigError, RanklaunchError, UsageError, begins_like_ours
from ranklaunch.files import Files, Unchanged, folder_of, join, text_of
from ranklaunch.plan.model import RANKS, Plan, Process
from ranklaunch.render.templates import Bounded, Templates, unbounded
from ranklaunch.verdict import folders

_OF_EVERY_METHOD = (*settings.VARIABLES, *settings.PLAN_VARIABLES, *OF_ALL, *variables.VARIABLES)
_LEFT_ASIDE_BY_SOME: tuple[Variable[str], ...] = (settings.LOG_TAG, variables.INTERFACE)  # of these
_DS_OPTIONS = "--deepspeed"  # the beginning of options by which programs are told of such a configuration
_ONE_DEVICE_EACH = "--virtual-local-rank"  # torchrun's: each rank has one device and LOCAL_RANK 0
PREFIX = "RANKLAUNCH_"  # of ranklaunch's own variables
# Fields of a plan that few jobs ask for, each with the beginnings of options, and of variables without PREFIX, that ask for it.
OPTIONAL = {
    "known_errors": ("known_errors",),
    "fewer_ranks": ("fewer_ranks",),
    "rounds": ("max_restarts",),
    "marks": ("progress_file",),
    "save": ("save_",),
    "console": ("console",),
    "tell": ("metrics_", "on_event", "trainjob_"),
    "trust": ("exit", "left_ranks", "alone_s", "each_node", "nested", "end_timeout"),
    "watch": ("hang", "first_step", "expect", "slow"),
}


@dataclass(frozen=True)
class Request:
    """Everything from which a plan follows.

    options: by value name (settings.METHOD.value, ...), as on the command line. cwd: absolute
    folder of relative paths. arrived: facts that the start has brought so far. bounded: renders a
    user's own templates. elsewhere: as for the reader.
    """

    program: Program
    env: Mapping[str, str]
    files: Files
    options: Mapping[str, str]
    cwd: str = "/"
    arrived: Arrived = field(default_factory=Arrived)
    account: Account = ROOT_ACCOUNT
    bounded: Bounded = unbounded
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def reader(self) -> Reader:
        """Return a reader of options and environment, without anything that the start has brought."""
        return Reader(self.env, self.files, self.options, self.cwd)


def make_plan(request: Request) -> Plan:
    """Raises ConfigError with every problem found."""
    reader = _reader(request)
    try:
        return _planned(request, reader)
    except ConfigError as error:
        hints = _unknown(reader)  # a misspelt variable leaves something else missing
        if not hints:
            raise
        raise ConfigError(error.problems, (*error.hints, *hints)) from None


def _planned(request: Request, reader: Reader) -> Plan:
    templates = _templates(tuple(_folders(reader)), request.bounded)
    templates.forget()
    _warn_of_unused_templates(reader, templates)
    known = replace(platforms.read(reader, request.program), restart=reader.arrived.restart)
    _settle_grace(reader, known)
    job = _passed(known, reader, templates)
    launcher, why = launchers.choose(job, reader)
    try:
        plan = _launched(launcher, job, reader, templates)
    except ConfigError as error:
        for problem in error.problems:
            reader.problem(problem)
        reader.check()
        raise
    _say_unused(plan, reader)
    _warn_of_mig(plan, reader)
    variables.warn_of_recovery(reader)
    _judge_ds_config(plan, reader)
    prepare = (*(() if known.restart else _prepare(plan.job, reader)), *plan.prepare)
    rare = _optional(plan, reader)
    args = (*known.program.args, reader.get(settings.PASS)) if job is not known else None
    plan = replace(variables.recorded(_in_folder(plan), reader), **rare)
    if len((plan.job if plan.job.idle else job).everyone) > 1:
        from ranklaunch.plan import meeting  # one node alone compares nothing

        plan = meeting.planned(plan, job, reader, args)
    if reader.awaits_hosts:
        from ranklaunch.plan import prelaunch

        plan = prelaunch.without_hosts(plan, reader)
    reader.check()
    plan = replace(
        plan, why=why, prepare=prepare, values=reader.ledger.readings, warnings=tuple(reader.warnings), noted=tuple(reader.noted)
    )
    needs = {**PYTHON, **launcher.needs()}

    def noted(processes: Iterable[Process]) -> tuple[Process, ...]:
        return tuple(_with_origin(process, templates, needs) for process in processes)

    return replace(
        plan,
        gather=noted(plan.gather),
        prepare=noted(plan.prepare),
        services=noted(plan.services),
        processes=noted(plan.processes),
    )


def _optional(plan: Plan, reader: Reader) -> dict[str, Any]:
    """Return the fields of a plan that few jobs ask for."""
    names = (*reader.options, *(name[len(PREFIX) :].lower() for name in reader.env if name.startswith(PREFIX)))
    fields = [field for field, beginnings in OPTIONAL.items() if any(name.startswith(beginnings) for name in names)]
    if not fields:
        return {}
    from ranklaunch.plan import optional_features

    return optional_features.of(fields, plan, reader)


def _launched(launcher: type[Launcher], job: Job, reader: Reader, templates: Templates) -> Plan:
    if not any(map(reader.is_set, settings.PLACING)):
        return launcher.plan(job, reader, templates)
    from ranklaunch.rank_wrapper import rank  # nothing stands before most ranks

    placed = rank.placed(job, reader, templates, launcher, launcher.NAME in launchers.ONCE)
    return rank.told(launcher.plan(placed, reader, templates), job) if placed.place else launcher.plan(job, reader, templates)


def _passed(job: Job, reader: Reader, templates: Templates) -> Job:
    """Return the job with the user's own arguments, made of its values, for the program."""
    if not reader.is_set(settings.PASS):
        return job
    source = reader.get(settings.PASS)
    words = templates.words(
        source,
        reader.source(settings.PASS),
        job=job,
        nodes=len(job.nodes),
        node_index=job.node_index,
        slots=job.node.slots,
        first_rank=job.node.first_rank,
        world_size=job.world_size,
        master_addr=base.meeting_host(job, reader),
        master_port=reader.get(base.MASTER_PORT) if "master_port" in source else base.MASTER_PORT.default,
    )
    return replace(job, program=replace(job.program, args=(*job.program.args, *words)))


def _templates(folders: tuple[str, ...], bounded: Bounded) -> Templates:
    """Templates of users may change; the shipped ones are read once for all nodes."""
    return Templates(folders, bounded) if folders else _shipped(bounded)


@functools.lru_cache(maxsize=1)
def _shipped(bounded: Bounded) -> Templates:
    return Templates((), bounded)


def _reader(request: Request) -> Reader:
    files = Unchanged(request.files)
    return Reader(request.env, files, request.options, request.cwd, request.arrived, request.account, _per_node, request.elsewhere)


def _in_folder(plan: Plan) -> Plan:
    """Return the plan with each process in the folder where the platform runs the program."""
    if not plan.job.folder:
        return plan
    return replace(plan, processes=tuple(replace(process, cwd=process.cwd or plan.job.folder) for process in plan.processes))


def _with_origin(process: Process, templates: Templates, needs: Mapping[str, Need]) -> Process:
    """Return a process with the sources and the oldest version of its program, if known.

    A launcher that is started as a module (PYTHON -m) has the oldest version of its script.
    """
    program = process.argv[0].rpartition("/")[2]
    need, started = needs.get(program), needs.get(process.name if process.argv[1:2] == ("-m",) else program)
    least = started.least if started else None
    return replace(process, comes_with=need.comes_with if need else "", least=least, template=templates.source(process.argv))


def named_node(request: Request) -> int | None:
    """Return the index that the option --node names; None without the option. Raises UsageError for a text that is no index."""
    text = request.options.get(settings.NODE_INDEX.value)
    try:
        return None if text is None else settings.NODE_INDEX.parse(text)
    except ValueError as error:
        msg = f"{settings.NODE_INDEX.option} {text!r}: {error}"
        raise UsageError(msg) from None


def for_node(request: Request, node: int, task: str = "") -> Request:
    """Return the request for the same job, seen from a node.

    For another node, facts about this node are left out. task: if those of the job differ; node is
    then the index within the task.
    """
    return next(for_nodes(request, [(node, task)]))


def for_nodes(request: Request, places: Iterable[tuple[int, str]]) -> Iterator[Request]:
    """Yield the request for each place: index and task."""
    reader = _reader(request)
    platform = "" if reader.is_set(settings.PLATFORM) else platforms.detected(reader)
    recognised: dict[str, bool] = {}  # by task, whose nodes differ in their numbers alone
    own = _own_place(request)
    dropped = [name for name in _per_node() if request.env.get(name, "").strip()]
    elsewhere = {**dict.fromkeys(dropped, f"node {own[0]}" if own else "another node"), **request.elsewhere}
    for node, task in places:
        if (node, task) == own:
            yield replace(request, options={**request.options, settings.NODE_INDEX.value: str(node)})
            continue
        own_options = {settings.NODE_INDEX.value: str(node), **({tasks.TASK.value: task} if task else {})}
        seen = replace(request, env=_env_of(request.env, node, task), options={**request.options, **own_options}, elsewhere=elsewhere)
        # By what is known of one node alone, the platform may have been recognised.
        if platform and task not in recognised:
            recognised[task] = platforms.detected(_reader(seen)) == platform
        yield seen if recognised.get(task, True) else replace(seen, options={**seen.options, settings.PLATFORM.value: platform})


def _own_place(request: Request) -> tuple[int, str] | None:
    """Return index and task of the node that the environment belongs to, None if unknown."""
    options = {name: value for name, value in request.options.items() if name != settings.NODE_INDEX.value}
    reader = _reader(replace(request, options=options))
    try:
        job = platforms.read(reader, request.program)
        reader.check()
    except RanklaunchError:
        return None
    return (job.node.task_index if job.node.task else job.node_index, job.node.task)


def _env_of(env: Mapping[str, str], node: int, task: str) -> dict[str, str]:
    others = dict(env)
    for variable in _that_change():
        for name in variable.names if variable.per_node or task else ():
            value = others.pop(name, "")
            if variable.ends_with_index and value:
                others[name] = re.sub(r"(?<=-)[0-9]{1,7}$", str(node), value)
    return others


@functools.cache
def _that_change() -> tuple[Variable[object], ...]:
    """From node to node, or from task to task."""
    return tuple(variable for variable in every_variable() if variable.per_node or variable.value == tasks.TASK.value)


@functools.cache
def _per_node() -> frozenset[str]:
    return frozenset(name for variable in every_variable() if variable.per_node for name in variable.names)


@functools.cache
def every_variable() -> tuple[Variable[object], ...]:
    """All tables, each variable once: common, platforms, launchers."""
    from ranklaunch.env import features, tuning  # of few jobs, and of one command

    tables = [
        *(settings.VARIABLES, features.VARIABLES, tuning.VARIABLES),
        *(settings.PLAN_VARIABLES, features.CHECK_VARIABLES, OF_ALL, variables.VARIABLES),
        *(p.VARIABLES for p in platforms.PLATFORMS.values()),
        *(launcher.VARIABLES for launcher in map(launchers.launcher, launchers.LAUNCHERS)),
    ]
    return tuple(dict.fromkeys(variable for table in tables for variable in table))


def _warn_of_unused_templates(reader: Reader, templates: Templates) -> None:
    if reader.is_set(settings.TEMPLATES):
        from ranklaunch.plan.hints import own_templates  # most have none

        for text in own_templates.unused(_named_folders(reader), reader.files, templates.shipped):
            reader.warn(text)


def _named_folders(reader: Reader) -> list[str]:
    return [folder for folder in reader.get(settings.TEMPLATES).split(":") if folder]


def _folders(reader: Reader) -> list[str]:
    folders = _named_folders(reader)
    for folder in folders:
        if not reader.files.is_dir(folder):
            candidate = reader.candidates(settings.TEMPLATES)[0]
            msg = f"{candidate.source}={showing.clipped(candidate.value)!r}: no such folder: {showing.one_line(folder)}"
            raise ConfigError(msg)
    return [reader.files.real(folder) for folder in folders]


def _prepare(job: Job, reader: Reader) -> tuple[Process, ...]:
    folder = folder_of(job.program.path)
    beside = (join(folder, name) for name in (*settings.PRE_START_SCRIPTS, settings.REQUIREMENTS))
    of_platform = not (job.program.module or job.is_idle) and reader.get(settings.PRE_START) and any(map(reader.files.exists, beside))
    if job.is_idle or not (of_platform or reader.is_set(settings.ONCE) or reader.is_set(settings.SAME)):
        return ()
    from ranklaunch.plan import prelaunch  # most have none

    return prelaunch.steps(job, reader)


def _say_unused(plan: Plan, reader: Reader) -> None:
    """Warn of settings without effect, which nobody should find out by a slow job."""
    of_method, of_platform = launchers.launcher(plan.method).VARIABLES, platforms.known(reader)[plan.job.platform].VARIABLES
    _warn_of_method(plan, reader, {variable.value for variable in of_method})
    unread = [variable for variable in _LEFT_ASIDE_BY_SOME if not reader.ledger.reading(variable.value)]
    _warn_of_no_effect(unread, reader, f"with method {plan.method}")
    if _given_to_others((*_OF_EVERY_METHOD, *of_platform, *of_method), reader) or _nearly_own(reader):
        _warn_of_no_effect(_others(map(launchers.launcher, launchers.LAUNCHERS), of_method), reader, f"with method {plan.method}")
        of_others = _others(platforms.PLATFORMS.values(), (*_OF_EVERY_METHOD, *of_platform))
        # An option that is not the variable's is an option of launchers.
        set_here = [each for each in of_others if each.option or each.value not in reader.options]
        _warn_of_no_effect(set_here, reader, f"on platform {plan.job.platform}")
        for text in _unknown(reader):
            reader.warn(text)


def _warn_of_method(plan: Plan, reader: Reader, known: Collection[str]) -> None:
    """Warn of tasks and of a route that the method does not know. known: names of its values."""
    if plan.job.has_tasks and plan.method not in launchers.WITH_TASKS:
        reader.warn(f"method {plan.method} takes the ps for nodes like the others; method tensorflow knows them")
    if base.ROUTE_PLAN.value not in known and reader.peek(base.ROUTE_PLAN):
        reader.warn(f"ROUTE_PLAN=true has no effect with method {plan.method}")


def _others(adapters: Iterable[Any], known: Iterable[Variable[object]]) -> Iterable[Variable[object]]:
    """Return the variables of adapters that are not known, each once."""
    names = {variable.value for variable in known}
    return {v.value: v for adapter in adapters for v in adapter.VARIABLES if v.value not in names}.values()


def _warn_of_no_effect(variables: Iterable[Variable[object]], reader: Reader, where: str) -> None:
    for variable in variables:
        if reader.by_user(variable):
            reader.warn(f"{reader.candidates(variable)[0].quoted} has no effect {where}")


def _warn_of_mig(plan: Plan, reader: Reader) -> None:
    """Warn of several MIG devices for several ranks: CUDA shows each process one of them, as device 0."""
    job, name = plan.job, settings.VISIBLE_GPUS.names[0]
    mig = settings.mig_devices(reader) if job.accelerator == "gpu" and plan.processes else ()
    words = {word.replace("_", "-") for process in plan.processes for word in process.argv}
    if len(mig) < 2 or plan.ranks_here < 2 or _ONE_DEVICE_EACH in words:
        return
    if name in plan.processes[0].env:
        reader.warn(
            f"{name} names {len(mig)} MIG devices: each rank gets one, as device 0: a program that takes the device of its LOCAL_RANK "
            "fails in all ranks but the first of a node"
        )
    else:
        reader.warn(
            f"{name} names {len(mig)} MIG devices, and CUDA shows each of the {plan.ranks_here} ranks on this node the first of them "
            "alone: --method spawn gives each rank its own, as device 0"
        )


def _judge_ds_config(plan: Plan, reader: Reader) -> None:
    """Judge the DeepSpeed configuration of a program that has one; autotuning tries numbers of its own."""
    tuned = any("--autotuning" in word for process in plan.processes for word in process.argv)
    if tuned or plan.runs != RANKS or not any(word.startswith(_DS_OPTIONS) for word in plan.job.program.args):
        return
    from ranklaunch.plan import ds_config  # most have none

    judged = ds_config.judged(plan.job, reader.files, reader.cwd) if reader.get(settings.CHECK_BATCH) else None
    if judged and judged.certain:
        reader.problem(f"{judged.text}; {settings.CHECK_BATCH.names[0]}=off where the program changes the numbers by itself")
    elif judged:
        reader.warn(judged.text)


def _unknown(reader: Reader) -> tuple[str, ...]:
    """Return notes on variables that begin like ranklaunch's own and that no table has."""
    own = [name for name in reader.env if name.startswith(PREFIX) and name not in settings.SET_FOR_RANKS]
    nearly = _nearly_own(reader)
    if not own and not nearly:
        return ()
    from ranklaunch.plan.hints import unknown

    meant = {name: f"{PREFIX}{name.upper().partition('_')[2]}" for name in nearly}
    misspelt = [name for name in own if name not in _own_names()] + [name for name in nearly if meant[name] in _own_names()]
    return unknown.said(misspelt, reader.env, _own_names())


def _nearly_own(reader: Reader) -> list[str]:
    """Return names whose first word is nearly RANKLAUNCH: RANKLAUCH_HANG, ranklaunch_hang."""
    names = (name for name in reader.env if name[:1] in "Rr" and 8 <= name.find("_") <= 12 and not name.startswith(PREFIX))
    return [name for name in names if begins_like_ours(name)]


@functools.cache
def _own_names() -> frozenset[str]:
    return frozenset(name for variable in every_variable() for name in variable.names if name.startswith(PREFIX))


def _given_to_others(known: Iterable[Variable[object]], reader: Reader) -> bool:
    """Return True if options, or variables of ranklaunch's own, are set beside these."""
    names = {*settings.SET_FOR_RANKS, *(name for variable in known for name in (variable.value, *variable.names))}
    return any(name not in names for name in (*reader.options, *(name for name in reader.env if name.startswith(PREFIX))))


# Grace period by the clocks of earlier attempts: how long this platform waited before it killed the container

SPARE_S = 5.0  # fewer than were seen
MOST_CLOCKS = 5  # attempts, the last, that are looked at
MOST_CLOCK = 64 * 1024  # bytes, one a second


def _settle_grace(reader: Reader, job: Job) -> None:
    """For a grace of `auto`, take the seconds given by this platform before; warn of a longer grace. Earlier attempts with a killed
    container have left clocks of their stops."""
    seen = [(seconds, number) for number in range(job.attempt)[-MOST_CLOCKS:] if (seconds := _killed_after(reader, job, number))]
    first = reader.candidates(settings.GRACE_S)[:1]
    is_auto = bool(first) and parse.is_auto(first[0].value)
    if not seen and not is_auto:
        return
    reason = f"attempt {min(seen)[1]} was killed {min(seen)[0]} s after its stop request" if seen else "nothing seen yet"
    if is_auto:
        grace_s = max(1.0, min(seen)[0] - SPARE_S) if seen else parse.GRACE_S
        reader.settle(settings.GRACE_S.value, Candidate(f"{first[0].source}={parse.AUTO}: {reason}", f"{grace_s:g}"))
    elif reader.get(settings.GRACE_S) >= min(seen)[0]:
        reader.warn(
            f"{reason}, before {reader.described(settings.GRACE_S)} was over: {settings.GRACE_S.names[0]}={parse.AUTO} stays below that"
        )


def _killed_after(reader: Reader, job: Job, attempt: int) -> int:
    """Return the seconds from the stop request to the kill, 0 for an attempt that ended by itself, was not stopped, or left no clock."""
    path = join(folders.attempt(job.log_dir, attempt), folders.stop_clock(job.node_index))
    return folders.killed_after(text_of(reader.files, path, MOST_CLOCK))
