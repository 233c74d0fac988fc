"""The work of `run` in the supervisor process, from the command line to the verdict."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ranklaunch import errors
from ranklaunch.adapters import platforms
from ranklaunch.adapters.launchers.shared.base import attempt_dir
from ranklaunch.adapters.launchers.shared.variables import GLOO_INTERFACE, NCCL_INTERFACE
from ranklaunch.adapters.platforms.shared.base import HOSTS_COMMAND, RUN_ID
from ranklaunch.cli import options
from ranklaunch.env.reader import Arrived
from ranklaunch.env.settings import ATTEMPT, SLOTS, TERMINATION_LOG
from ranklaunch.errors import RanklaunchError, refused
from ranklaunch.plan import planning
from ranklaunch.plan.model import Plan
from ranklaunch.processes.children import MARK, environment, marked
from ranklaunch.showing import clipped
from ranklaunch.supervise.context import After, Start, Teller
from ranklaunch.supervise.record import Record, now, run_id
from ranklaunch.supervise.session import Session
from ranklaunch.system import disk, tree
from ranklaunch.system.signals import Signals
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Judgement, Verdict

if TYPE_CHECKING:
    from ranklaunch.muster.events import Again, Decide, Decided
    from ranklaunch.restarts.cleaning import Held
    from ranklaunch.restarts.decision import Decider
    from ranklaunch.supervise.nested import Outer

T = TypeVar("T")
SHARED, SMALL_BYTES = "/dev/shm", 64 * 1024 * 1024
GLOO, NCCL = GLOO_INTERFACE.names[0], NCCL_INTERFACE.names[0]
DESCRIPTION = "Launch this node's part of the job: the container ENTRYPOINT."


def main(argv: list[str], env: Mapping[str, str], signals: Signals, guard: int) -> int:
    start, inherited = begin(argv, env, signals)
    gc.freeze()  # the plan lives as long as the job: later collections need not visit it
    gc.enable()
    recorders = start.plan.recorders
    added = {each.name: each.value for each in recorders.variables}
    if not recorders.folder:
        return _session(start, signals, {**inherited, **added}, guard).run(start).judgement.exit_code
    from ranklaunch.evidence.folder import kept  # a job on CPUs needs no folder for recorders

    with kept(recorders, start.record) as added:
        return _session(start, signals, {**inherited, **added}, guard).run(start).judgement.exit_code


def _session(start: Start, signals: Signals, inherited: Mapping[str, str], guard: int) -> Session:
    """Return the session. If the system has no descriptor left, write a verdict and raise WaitError."""
    try:
        return Session(signals, inherited, guard)
    except OSError as error:
        failure = refused(error)
        _leave_verdict(start.record, failure, now())
        raise failure from None


def begin(argv: list[str], env: Mapping[str, str], signals: Signals | None = None) -> tuple[Start, Mapping[str, str]]:
    """Return the start that a command line asks for, with an open log folder, and the environment for processes."""
    parser = options.JobParser("run", DESCRIPTION, "ranklaunch run [OPTIONS] [--] PROGRAM [ARGS...]")
    start, inherited = opened(options.read(parser, argv, env), env, _make_plan, signals)
    return replace(start, has_plugins=True, tell=_tell if start.plan.tell else None), inherited


def _make_plan(request: planning.Request) -> Plan:
    """Return the plan. Its warnings include notes about this machine, and about --slots after the program."""
    plan = planning.make_plan(request)
    if plan.ranks_here < 2 and len(plan.job.everyone) == 1:
        if not any(word.partition("=")[0] == SLOTS.option for word in request.program.args):
            return plan
        from ranklaunch.plan.hints import behind  # slow: it imports all adapters

        return replace(plan, warnings=(*plan.warnings, behind.hint(request.program)))
    return replace(plan, warnings=(*plan.warnings, *machine_notes(plan, request.env)))


def _tell(*context: Any) -> Teller:
    from ranklaunch.notify.notifications import Telling  # few jobs notify tools

    return Telling(*context)


def opened(
    command_line: options.CommandLine, env: Mapping[str, str], make_plan: Callable[[planning.Request], Plan], signals: Signals | None = None
) -> tuple[Start, Mapping[str, str]]:
    """Return a start with an open log folder, and the inherited environment."""
    # The account of the process, not that of the environment's HOME or USER: sshd uses the former.
    command_line = replace(command_line, request=replace(command_line.request, account=options.own_account()))
    outer = _outer(env)

    def planned() -> tuple[planning.Request, Plan, Record]:
        request = _with_hosts(command_line.request, signals)
        return request, *_opened(request, outer, make_plan)

    request, plan, record = _recorded(command_line.request, outer, planned)
    # A new plan after a wait is for the same attempt, although the attempt's log folder exists by then.
    same_attempt = replace(request, options={**request.options, ATTEMPT.value: str(plan.job.attempt)})
    start = _start(plan, record, same_attempt, make_plan)
    start = replace(start, decide=_decider(plan), run_id=_run_id(request, plan, record))
    return start, marked(request.env, plan.job.name, plan.job.log_dir, record.folder)


def _start(plan: Plan, record: Record, request: planning.Request, make_plan: Callable[[planning.Request], Plan]) -> Start:
    """Return the start of one round. request: with this round's attempt number."""
    record.event(
        "read", platform=plan.job.platform, method=plan.method, why=plan.why, attempt=plan.job.attempt,
        container_s=None if plan.job.restart else tree.container_s(),
    )  # fmt: skip
    return Start(
        plan,
        record,
        request.files,
        replan=partial(_replan, request, make_plan),
        again=partial(_again, request, make_plan, After(started=now())),
    )


def _replan(request: planning.Request, make_plan: Callable[[planning.Request], Plan], arrived: Arrived) -> Plan:
    """Return a new plan with the facts that have become known since the last one."""
    before = request.arrived
    return make_plan(replace(request, arrived=replace(arrived, named=before.named, restart=before.restart)))


def _again(
    request: planning.Request, make_plan: Callable[[planning.Request], Plan], before: After, again: Again, held: Held | None
) -> Start:
    """Return the start of the next round: a new plan, and a folder below the attempt's folder."""
    from ranklaunch.restarts import cleaning

    restarts = (*before.restarts, again.next.get("restart", {}))
    after = After(restarts, float(again.next.get("pause_s", 0)), held, before.started)
    request = replace(request, arrived=replace(request.arrived, restart=again.round))
    plan = make_plan(request)
    attempt = folders.attempt(plan.job.log_dir, plan.job.attempt)
    record = _record(request, attempt_dir(plan.job), attempt)
    record.open()
    try:
        cleaning.prune(attempt, again.round)
    except OSError:  # files that cannot be removed stay
        pass
    return replace(
        _start(plan, record, request, make_plan),
        again=partial(_again, request, make_plan, after),
        after=after,
    )


def _decider(plan: Plan) -> Callable[[Decide], Decided] | None:
    rounds = plan.rounds
    if not rounds:
        return None

    @functools.cache
    def decider() -> Decider:
        from ranklaunch.restarts.decision import Decider  # most jobs never fail

        return Decider(rounds)

    def decide(asked: Decide) -> Decided:
        return decider()(asked)

    return decide


def _run_id(request: planning.Request, plan: Plan, record: Record) -> str:
    """Return the platform's id of the job, else the id that node 0 makes for all nodes."""
    reader, job = request.reader(), plan.job
    platform_id = reader.get(RUN_ID)
    if platform_id or job.node_index:
        return platform_id
    return run_id(job.log_dir, job.name, "\0".join(job.program.words), record.trouble)


def _with_hosts(request: planning.Request, signals: Signals | None) -> planning.Request:
    if not request.reader().is_set(HOSTS_COMMAND):
        return request
    from ranklaunch.cli import host_command  # most have none

    return host_command.with_hosts(request, signals)


def _opened(request: planning.Request, outer: Outer | None, make_plan: Callable[[planning.Request], Plan]) -> tuple[Plan, Record]:
    """Return the plan and the record in a new folder.

    If several runs count attempts in one folder at the same time, they get different numbers: a run whose folder was made by another in the
    meantime plans again. With a given attempt number the second plan has the same folder, which is then used. If one of several nodes
    cannot write its folder, its record keeps the error, and the muster tells it to the rest.
    """
    last_folder = ""
    while True:
        plan = make_plan(request)
        folder = attempt_dir(plan.job)
        if outer:
            outer.require_other(plan.job.name, plan.job.log_dir)
        record = _record(request, folder)
        try:
            if record.open(new=folder != last_folder):
                return plan, record
        except RanklaunchError as error:
            if not plan.muster or outer:
                raise
            record.failure = error  # sent to the other nodes when they meet
            return plan, record
        last_folder = folder


def _outer(env: Mapping[str, str]) -> Outer | None:
    """Return the outer run if this run was started within one."""
    if MARK not in env:
        return None
    from ranklaunch.supervise import nested

    return nested.outer(env)


def _record(request: planning.Request, folder: str, attempt: str = "") -> Record:
    """Return the record in a folder. attempt: folder of the attempt, if it differs from the folder."""
    reader = request.reader()
    return Record(folder, reader.get(TERMINATION_LOG), platforms.failure_file(reader), attempt)


def _recorded(request: planning.Request, outer: Outer | None, do: Callable[[], T]) -> T:
    """Call `do`, which runs before there is a plan, and write a verdict if it raises an error.

    No verdict is written if the log directory is unknown, cannot be written, or belongs to the outer run.
    """
    started = now()
    try:
        return do()
    except RanklaunchError as error:
        folder = platforms.attempt_dir(request.reader())
        if not outer or folder != outer.attempt:
            _leave_verdict(_record(request, folder), error, started)
        raise


def _leave_verdict(record: Record, error: RanklaunchError, started: str) -> None:
    try:
        judgement = Judgement("failed", error.exit_code, errors.reason(str(error)))
        record.verdict(Verdict(judgement, (), started, now()))
    except (OSError, ValueError):  # the console has the message
        pass


# Notes about this machine


def machine_notes(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Yield notes about defects of this machine that may make ranks fail. env: inherited by processes."""
    yield from _interfaces(plan, env)
    yield from _shared_memory(plan)


def _shared_memory(plan: Plan) -> Iterator[str]:
    """Yield a note on a small /dev/shm beside several ranks, or beside Ray.

    Docker and Kubernetes give 64 MiB to a container that asks for no more.
    """
    of_ray = plan.method == "ray"
    size = disk.size_of(SHARED) if plan.ranks_here > 1 or of_ray else None
    if size is None or size > SMALL_BYTES:
        return
    use = (
        ", which is too small for Ray's object store: it goes to /tmp"
        if of_ray
        else f" for {plan.ranks_here} ranks on this node, and loaders' workers and NCCL share memory there"
    )
    more = "give the container more: docker run --shm-size, in Kubernetes an emptyDir of medium Memory"
    yield f"{SHARED} has {disk.shown(size)}{use}: {more}"


def _interfaces(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a note for each interface variable of a job of several nodes that names no interface of this machine.

    The variables of the first process count.
    """
    process_env = environment(plan.processes[0], env) if len(plan.job.everyone) > 1 and plan.processes else {}
    gloo, nccl = process_env.get(GLOO, ""), process_env.get(NCCL, "") if plan.job.accelerator == "gpu" else ""
    if not gloo and not nccl:
        return
    from ranklaunch.system import interfaces  # few jobs name an interface

    try:
        existing = interfaces.with_address()
    except OSError:
        return
    machine = f"names no interface of this machine ({clipped(', '.join(existing))})"
    if gloo and not all_exist(gloo, existing):
        yield f"{GLOO}={clipped(gloo)} {machine}: Gloo takes whole names, with commas between"
    if nccl and not any_fits(nccl, existing):
        yield f"{NCCL}={clipped(nccl)} {machine}: NCCL takes beginnings of names; = before them means whole names, ^ all but these"


def all_exist(names: str, existing: Sequence[str]) -> bool:
    """Return True if Gloo finds each of these interfaces. A colon begins the alias of an interface."""
    return all(name.partition(":")[0] in existing for name in names.split(",") if name)


def any_fits(names: str, existing: Sequence[str]) -> bool:
    """Return True if NCCL finds an interface: ^ before the list excludes its names, = makes them whole names."""
    excludes = names.startswith("^")
    is_exact = names[excludes:].startswith("=")
    wanted = [name.partition(":")[0] for name in names[excludes + is_exact :].split(",") if name]
    return any(excludes != any(each == name if is_exact else each.startswith(name) for name in wanted) for each in existing)
