"""From an environment to the plan of one node: read, choose a launcher, plan. The same inputs always give the same plan."""

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
_IGNORED_BY_SOME: tuple[Variable[str], ...] = (settings.LOG_TAG, variables.INTERFACE)  # by some methods
_DS_OPTIONS = "--deepspeed"  # beginning of a program's options for a DeepSpeed configuration
_ONE_DEVICE_EACH = "--virtual-local-rank"  # torchrun: each rank has one device and LOCAL_RANK 0
PREFIX = "RANKLAUNCH_"  # of ranklaunch's own variables
# Fields of a plan that few jobs need. Each has the beginnings of the options, and of the variables without PREFIX, that ask for it.
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
    """All inputs of a plan.

    options: texts of the command line by value name (settings.METHOD.value, ...). cwd: absolute folder of relative paths. arrived: facts
    that have become known since the start. bounded: renders a user's own templates. elsewhere: as for the reader.
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
        """Return a reader of options and environment, without facts that have become known since the start."""
        return Reader(self.env, self.files, self.options, self.cwd)


def make_plan(request: Request) -> Plan:
    """Return the plan of one node. Raises ConfigError with all problems."""
    reader = _reader(request)
    try:
        return _planned(request, reader)
    except ConfigError as error:
        hints = _unknown_variables(reader)  # a misspelt variable may be the reason why a value is missing
        if not hints:
            raise
        raise ConfigError(error.problems, (*error.hints, *hints)) from None


def _planned(request: Request, reader: Reader) -> Plan:
    templates = _templates(tuple(_folders(reader)), request.bounded)
    templates.forget()
    _warn_of_unused_templates(reader, templates)
    platform_job = replace(platforms.read(reader, request.program), restart=reader.arrived.restart)
    _settle_grace(reader, platform_job)
    job = _with_passed_arguments(platform_job, reader, templates)
    launcher, why = launchers.choose(job, reader)
    try:
        plan = _plan_of(launcher, job, reader, templates)
    except ConfigError as error:
        for problem in error.problems:
            reader.problem(problem)
        reader.check()
        raise
    _warn_of_unused(plan, reader)
    _warn_of_mig(plan, reader)
    variables.warn_of_recovery(reader)
    _judge_ds_config(plan, reader)
    prepare = (*(() if platform_job.restart else _prepare(plan.job, reader)), *plan.prepare)
    optional = _optional(plan, reader)
    args = (*platform_job.program.args, reader.get(settings.PASS)) if job is not platform_job else None
    plan = replace(variables.recorded(_in_folder(plan), reader), **optional)
    if len((plan.job if plan.job.idle else job).everyone) > 1:
        from ranklaunch.plan import meeting  # a single node compares nothing

        plan = meeting.planned(plan, job, reader, args)
    if reader.awaits_hosts:
        from ranklaunch.plan import prelaunch

        plan = prelaunch.without_hosts(plan, reader)
    reader.check()
    plan = replace(
        plan, why=why, prepare=prepare, values=reader.ledger.readings, warnings=tuple(reader.warnings), noted=tuple(reader.noted)
    )
    needs = {**PYTHON, **launcher.needs()}

    def with_origin(processes: Iterable[Process]) -> tuple[Process, ...]:
        return tuple(_with_origin(process, templates, needs) for process in processes)

    return replace(
        plan,
        gather=with_origin(plan.gather),
        prepare=with_origin(plan.prepare),
        services=with_origin(plan.services),
        processes=with_origin(plan.processes),
    )


def _optional(plan: Plan, reader: Reader) -> dict[str, Any]:
    """Return the fields of OPTIONAL that options or variables ask for."""
    names = (*reader.options, *(name[len(PREFIX) :].lower() for name in reader.env if name.startswith(PREFIX)))
    fields = [field for field, beginnings in OPTIONAL.items() if any(name.startswith(beginnings) for name in names)]
    if not fields:
        return {}
    from ranklaunch.plan import optional_features

    return optional_features.of(fields, plan, reader)


def _plan_of(launcher: type[Launcher], job: Job, reader: Reader, templates: Templates) -> Plan:
    """Return the launcher's plan, with the rank wrapper before ranks if a setting asks for it."""
    if not any(map(reader.is_set, settings.PLACING)):
        return launcher.plan(job, reader, templates)
    from ranklaunch.rank_wrapper import rank  # most jobs need no wrapper

    placed = rank.placed(job, reader, templates, launcher, launcher.NAME in launchers.ONCE)
    return rank.told(launcher.plan(placed, reader, templates), job) if placed.place else launcher.plan(job, reader, templates)


def _with_passed_arguments(job: Job, reader: Reader, templates: Templates) -> Job:
    """Return the job with the program's further arguments from RANKLAUNCH_PASS, a template filled with values of the job."""
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
    """Return the templates. A user's templates may change; the shipped templates are read once for all nodes."""
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
    """Return a process with the package, the oldest version and the template of its program, if known.

    A launcher that is started as a module (PYTHON -m) has the oldest version of its script.
    """
    program = process.argv[0].rpartition("/")[2]
    need, started = needs.get(program), needs.get(process.name if process.argv[1:2] == ("-m",) else program)
    least = started.least if started else None
    return replace(process, comes_with=need.comes_with if need else "", least=least, template=templates.source(process.argv))


def named_node(request: Request) -> int | None:
    """Return the index from option --node, None without the option. Raises UsageError."""
    text = request.options.get(settings.NODE_INDEX.value)
    try:
        return None if text is None else settings.NODE_INDEX.parse(text)
    except ValueError as error:
        msg = f"{settings.NODE_INDEX.option} {text!r}: {error}"
        raise UsageError(msg) from None


def for_node(request: Request, node: int, task: str = "") -> Request:
    """Return the request for the same job on a given node.

    If the node is not this one, facts about this node are left out. task: the node's task, if the job has several; `node` is then the
    index within the task.
    """
    return next(for_nodes(request, [(node, task)]))


def for_nodes(request: Request, places: Iterable[tuple[int, str]]) -> Iterator[Request]:
    """Yield the request for each place: index and task."""
    reader = _reader(request)
    platform = "" if reader.is_set(settings.PLATFORM) else platforms.detected(reader)
    recognised: dict[str, bool] = {}  # by task: nodes of one task differ only in their index
    own_place = _own_place(request)
    dropped = [name for name in _per_node() if request.env.get(name, "").strip()]
    elsewhere = {**dict.fromkeys(dropped, f"node {own_place[0]}" if own_place else "another node"), **request.elsewhere}
    for node, task in places:
        if (node, task) == own_place:
            yield replace(request, options={**request.options, settings.NODE_INDEX.value: str(node)})
            continue
        own_options = {settings.NODE_INDEX.value: str(node), **({tasks.TASK.value: task} if task else {})}
        other = replace(request, env=_env_of(request.env, node, task), options={**request.options, **own_options}, elsewhere=elsewhere)
        # The sign of the platform may be a variable about this node, which is left out.
        if platform and task not in recognised:
            recognised[task] = platforms.detected(_reader(other)) == platform
        yield other if recognised.get(task, True) else replace(other, options={**other.options, settings.PLATFORM.value: platform})


def _own_place(request: Request) -> tuple[int, str] | None:
    """Return index and task of this environment's node, None if they are unknown."""
    options = {name: value for name, value in request.options.items() if name != settings.NODE_INDEX.value}
    reader = _reader(replace(request, options=options))
    try:
        job = platforms.read(reader, request.program)
        reader.check()
    except RanklaunchError:
        return None
    return (job.node.task_index if job.node.task else job.node_index, job.node.task)


def _env_of(env: Mapping[str, str], node: int, task: str) -> dict[str, str]:
    """Return the environment of another node: variables about this node are removed, or get the other index at their end."""
    of_node = dict(env)
    for variable in _changing_variables():
        for name in variable.names if variable.per_node or task else ():
            value = of_node.pop(name, "")
            if variable.ends_with_index and value:
                of_node[name] = re.sub(r"(?<=-)[0-9]{1,7}$", str(node), value)
    return of_node


@functools.cache
def _changing_variables() -> tuple[Variable[object], ...]:
    """Return the variables that differ from node to node, or from task to task."""
    return tuple(variable for variable in every_variable() if variable.per_node or variable.value == tasks.TASK.value)


@functools.cache
def _per_node() -> frozenset[str]:
    return frozenset(name for variable in every_variable() if variable.per_node for name in variable.names)


@functools.cache
def every_variable() -> tuple[Variable[object], ...]:
    """Return the variables of all tables (common, platforms, launchers), each once."""
    from ranklaunch.env import features, tuning  # needed by few jobs, and by one command

    tables = [
        *(settings.VARIABLES, features.VARIABLES, tuning.VARIABLES),
        *(settings.PLAN_VARIABLES, features.CHECK_VARIABLES, OF_ALL, variables.VARIABLES),
        *(p.VARIABLES for p in platforms.PLATFORMS.values()),
        *(launcher.VARIABLES for launcher in map(launchers.launcher, launchers.LAUNCHERS)),
    ]
    return tuple(dict.fromkeys(variable for table in tables for variable in table))


def _warn_of_unused_templates(reader: Reader, templates: Templates) -> None:
    if reader.is_set(settings.TEMPLATES):
        from ranklaunch.plan.hints import own_templates  # most jobs have no templates of their own

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
    paths = (join(folder, name) for name in (*settings.PRE_START_SCRIPTS, settings.REQUIREMENTS))
    of_platform = not (job.program.module or job.is_idle) and reader.get(settings.PRE_START) and any(map(reader.files.exists, paths))
    if job.is_idle or not (of_platform or reader.is_set(settings.ONCE) or reader.is_set(settings.SAME)):
        return ()
    from ranklaunch.plan import prelaunch  # most jobs have no such steps

    return prelaunch.steps(job, reader)


def _warn_of_unused(plan: Plan, reader: Reader) -> None:
    """Warn of settings without effect."""
    of_method, of_platform = launchers.launcher(plan.method).VARIABLES, platforms.known(reader)[plan.job.platform].VARIABLES
    _warn_of_method(plan, reader, {variable.value for variable in of_method})
    unread = [variable for variable in _IGNORED_BY_SOME if not reader.ledger.reading(variable.value)]
    _warn_of_no_effect(unread, reader, f"with method {plan.method}")
    if _has_settings_beside((*_OF_EVERY_METHOD, *of_platform, *of_method), reader) or _nearly_own(reader):
        of_other_methods = _foreign_variables(map(launchers.launcher, launchers.LAUNCHERS), of_method)
        _warn_of_no_effect(of_other_methods, reader, f"with method {plan.method}")
        of_other_platforms = _foreign_variables(platforms.PLATFORMS.values(), (*_OF_EVERY_METHOD, *of_platform))
        # A variable without an option may share its value's name with an option of launchers: such an option was not meant for it.
        set_here = [each for each in of_other_platforms if each.option or each.value not in reader.options]
        _warn_of_no_effect(set_here, reader, f"on platform {plan.job.platform}")
        for text in _unknown_variables(reader):
            reader.warn(text)


def _warn_of_method(plan: Plan, reader: Reader, known: Collection[str]) -> None:
    """Warn of tasks and of a route that the method does not know. known: names of its values."""
    if plan.job.has_tasks and plan.method not in launchers.WITH_TASKS:
        reader.warn(f"method {plan.method} takes parameter servers (ps) for ordinary nodes; set method tensorflow, which knows them")
    if base.ROUTE_PLAN.value not in known and reader.peek(base.ROUTE_PLAN):
        reader.warn(f"ROUTE_PLAN=true has no effect with method {plan.method}")


def _foreign_variables(adapters: Iterable[Any], known: Iterable[Variable[object]]) -> Iterable[Variable[object]]:
    """Return the variables of adapters that are not in `known`, each once."""
    names = {variable.value for variable in known}
    return {v.value: v for adapter in adapters for v in adapter.VARIABLES if v.value not in names}.values()


def _warn_of_no_effect(variables: Iterable[Variable[object]], reader: Reader, where: str) -> None:
    for variable in variables:
        if reader.by_user(variable):
            reader.warn(f"{reader.candidates(variable)[0].quoted} has no effect {where}")


def _warn_of_mig(plan: Plan, reader: Reader) -> None:
    """Warn of several MIG devices for several ranks: CUDA shows each process only one MIG device, as device 0."""
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
    from ranklaunch.plan import ds_config  # most programs have no such configuration

    judged = ds_config.judged(plan.job, reader.files, reader.cwd) if reader.get(settings.CHECK_BATCH) else None
    if judged and judged.certain:
        reader.problem(f"{judged.text}; set {settings.CHECK_BATCH.names[0]}=off if the program changes the numbers by itself")
    elif judged:
        reader.warn(judged.text)


def _unknown_variables(reader: Reader) -> tuple[str, ...]:
    """Return warnings about variables that begin like ranklaunch's own and are in no table."""
    with_prefix = [name for name in reader.env if name.startswith(PREFIX) and name not in settings.SET_FOR_RANKS]
    nearly = _nearly_own(reader)
    if not with_prefix and not nearly:
        return ()
    from ranklaunch.plan.hints import unknown

    meant = {name: f"{PREFIX}{name.upper().partition('_')[2]}" for name in nearly}
    misspelt = [name for name in with_prefix if name not in _own_names()] + [name for name in nearly if meant[name] in _own_names()]
    return unknown.warnings(misspelt, reader.env, _own_names())


def _nearly_own(reader: Reader) -> list[str]:
    """Return names whose first word is nearly RANKLAUNCH: RANKLAUCH_HANG, ranklaunch_hang."""
    names = (name for name in reader.env if name[:1] in "Rr" and 8 <= name.find("_") <= 12 and not name.startswith(PREFIX))
    return [name for name in names if begins_like_ours(name)]


@functools.cache
def _own_names() -> frozenset[str]:
    return frozenset(name for variable in every_variable() for name in variable.names if name.startswith(PREFIX))


def _has_settings_beside(known: Iterable[Variable[object]], reader: Reader) -> bool:
    """Return True if an option, or a variable of ranklaunch's own, is set that is not in `known`."""
    names = {*settings.SET_FOR_RANKS, *(name for variable in known for name in (variable.value, *variable.names))}
    return any(name not in names for name in (*reader.options, *(name for name in reader.env if name.startswith(PREFIX))))


# Grace period from earlier attempts: seconds from the stop request until this platform killed the container

SPARE_S = 5.0  # subtracted from the shortest measured time
MOST_CLOCKS = 5  # newest attempts to look at
MOST_CLOCK = 64 * 1024  # bytes of a stop clock; it grows by one a second


def _settle_grace(reader: Reader, job: Job) -> None:
    """Choose the grace period for `auto`, and warn of a fixed one that is too long.

    If the platform killed the container of an earlier attempt, the stop clock there shows how many seconds it had waited.
    """
    kills = [(seconds, number) for number in range(job.attempt)[-MOST_CLOCKS:] if (seconds := _killed_after(reader, job, number))]
    first = reader.candidates(settings.GRACE_S)[:1]
    is_auto = bool(first) and parse.is_auto(first[0].value)
    if not kills and not is_auto:
        return
    reason = f"attempt {min(kills)[1]} was killed {min(kills)[0]} s after its stop request" if kills else "no attempt was killed yet"
    if is_auto:
        grace_s = max(1.0, min(kills)[0] - SPARE_S) if kills else parse.GRACE_S
        reader.settle(settings.GRACE_S.value, Candidate(f"{first[0].source}={parse.AUTO}: {reason}", f"{grace_s:g}"))
    elif reader.get(settings.GRACE_S) >= min(kills)[0]:
        auto = f"{settings.GRACE_S.names[0]}={parse.AUTO}"
        reader.warn(f"{reason}, before {reader.described(settings.GRACE_S)} was over: set {auto} to stay below that")


def _killed_after(reader: Reader, job: Job, attempt: int) -> int:
    """Return the seconds from an attempt's stop request to its kill; 0 if it ended by itself, was not stopped, or left no clock."""
    path = join(folders.attempt(job.log_dir, attempt), folders.stop_clock(job.node_index))
    return folders.killed_after(text_of(reader.files, path, MOST_CLOCK))
