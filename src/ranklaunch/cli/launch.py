"""The supervisor's side of run: from the command line to the verdict."""

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
    gc.freeze()  # the plan stays for as long as the job; nothing of it needs to be looked through again
    gc.enable()
    recorders = start.plan.recorders
    added = {each.name: each.value for each in recorders.variables}
    if not recorders.folder:
        return _session(start, signals, {**inherited, **added}, guard).run(start).judgement.exit_code
    from ranklaunch.evidence.folder import kept  # a job of CPUs needs no folder for them

    with kept(recorders, start.record) as added:
        return _session(start, signals, {**inherited, **added}, guard).run(start).judgement.exit_code


def _session(start: Start, signals: Signals, inherited: Mapping[str, str], guard: int) -> Session:
    """Raises WaitError, and leaves a verdict, where no descriptor is left for it."""
    try:
        return Session(signals, inherited, guard)
    except OSError as error:
        failure = refused(error)
        _leave_verdict(start.record, failure, now())
        raise failure from None


def begin(argv: list[str], env: Mapping[str, str], signals: Signals | None = None) -> tuple[Start, Mapping[str, str]]:
    """Return the start by the command line, with an open log folder, and the environment."""
    parser = options.JobParser("run", DESCRIPTION, "ranklaunch run [OPTIONS] [--] PROGRAM [ARGS...]")
    start, inherited = opened(options.read(parser, argv, env), env, _make_plan, signals)
    return replace(start, has_plugins=True, tell=_tell if start.plan.tell else None), inherited


def _make_plan(request: planning.Request) -> Plan:
    """Return the plan, with notes about this machine and about a misplaced number of ranks among its warnings."""
    plan = planning.make_plan(request)
    if plan.ranks_here < 2 and len(plan.job.everyone) == 1:
        if not any(word.partition("=")[0] == SLOTS.option for word in request.program.args):
            return plan
        from ranklaunch.plan.hints import behind  # it knows all adapters

        return replace(plan, warnings=(*plan.warnings, behind.hint(request.program)))
    return replace(plan, warnings=(*plan.warnings, *machine_notes(plan, request.env)))


def _tell(*seen: Any) -> Teller:
    from ranklaunch.notify.notifications import Telling  # few jobs have tools that are told

    return Telling(*seen)


def opened(
    command_line: options.CommandLine, env: Mapping[str, str], make_plan: Callable[[planning.Request], Plan], signals: Signals | None = None
) -> tuple[Start, Mapping[str, str]]:
    """Return a start with an open log folder, and the inherited environment."""
    # Whatever the environment says of another account: sshd goes by the one that the process has.
    command_line = replace(command_line, request=replace(command_line.request, account=options.own_account()))
    outer = _outer(env)

    def planned() -> tuple[planning.Request, Plan, Record]:
        request = _with_hosts(command_line.request, signals)
        return request, *_opened(request, outer, make_plan)

    request, plan, record = _recorded(command_line.request, outer, planned)
    # Planned anew after a wait it is still the same attempt, although the folder of its logs is there by now.
    same = replace(request, options={**request.options, ATTEMPT.value: str(plan.job.attempt)})
    start = _start(plan, record, same, make_plan)
    start = replace(start, decide=_decider(plan), run_id=_run_id(request, plan, record))
    return start, marked(request.env, plan.job.name, plan.job.log_dir, record.folder)


def _start(plan: Plan, record: Record, request: planning.Request, make_plan: Callable[[planning.Request], Plan]) -> Start:
    """request: of this attempt, and this round."""
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
    """Return the plan with facts that have arrived since."""
    kept = request.arrived
    return make_plan(replace(request, arrived=replace(arrived, named=kept.named, restart=kept.restart)))


def _again(
    request: planning.Request, make_plan: Callable[[planning.Request], Plan], before: After, again: Again, held: Held | None
) -> Start:
    """Return the start of the next round: a new plan, and a folder below that of the attempt."""
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
    except OSError:  # what cannot be removed stays
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
    known = reader.get(RUN_ID)
    if known or job.node_index:
        return known
    return run_id(job.log_dir, job.name, "\0".join(job.program.words), record.trouble)


def _with_hosts(request: planning.Request, signals: Signals | None) -> planning.Request:
    if not request.reader().is_set(HOSTS_COMMAND):
        return request
    from ranklaunch.cli import host_command  # most have none

    return host_command.with_hosts(request, signals)


def _opened(request: planning.Request, outer: Outer | None, make_plan: Callable[[planning.Request], Plan]) -> tuple[Plan, Record]:
    """Return the plan and its folder, a new one.

    Runs that count attempts in one folder at the same time get different numbers. A run with a
    number given may find the folder there. One node among several may be unable to write its
    folder.
    """
    before = ""
    while True:
        plan = make_plan(request)
        folder = attempt_dir(plan.job)
        if outer:
            outer.require_other(plan.job.name, plan.job.log_dir)
        record = _record(request, folder)
        try:
            if record.open(new=folder != before):
                return plan, record
        except RanklaunchError as error:
            if not plan.muster or outer:
                raise
            record.failure = error  # the other nodes are told, when this one meets them
            return plan, record
        before = folder


def _outer(env: Mapping[str, str]) -> Outer | None:
    """Return the run that this one is below, if any."""
    if MARK not in env:
        return None
    from ranklaunch.supervise import nested

    return nested.outer(env)


def _record(request: planning.Request, folder: str, attempt: str = "") -> Record:
    """Return the record in a folder. attempt: folder of the attempt, if it is another."""
    reader = request.reader()
    return Record(folder, reader.get(TERMINATION_LOG), platforms.failure_file(reader), attempt)


def _recorded(request: planning.Request, outer: Outer | None, do: Callable[[], T]) -> T:
    """Do something before there is a plan, and leave a verdict for an error.

    No verdict is left if the log directory is unknown, cannot be written, or belongs to the run
    that this one is below.
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
    except (OSError, ValueError):  # the message has been said
        pass


# Notes about this machine


def machine_notes(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Yield notes about defects of this machine that may make ranks fail.

    env: inherited by processes.
    """
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
        ", and the object store of Ray, which does not fit there, goes to /tmp"
        if of_ray
        else f" for {plan.ranks_here} ranks on this node, and loaders' workers and NCCL share memory there"
    )
    more = "give the container more by docker's --shm-size, in Kubernetes by an emptyDir of medium Memory"
    yield f"{SHARED} has {disk.shown(size)}{use}: {more}"


def _interfaces(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Yield variables of several nodes by which a library finds no interface. Of each variable the first process counts."""
    own = environment(plan.processes[0], env) if len(plan.job.everyone) > 1 and plan.processes else {}
    gloo, nccl = own.get(GLOO, ""), own.get(NCCL, "") if plan.job.accelerator == "gpu" else ""
    if not gloo and not nccl:
        return
    from ranklaunch.system import interfaces  # few jobs name one

    try:
        there = interfaces.with_address()
    except OSError:
        return
    machine = f"names no interface of this machine ({clipped(', '.join(there))})"
    if gloo and not are_there(gloo, there):
        yield f"{GLOO}={clipped(gloo)} {machine}: Gloo takes whole names, with commas between"
    if nccl and not any_fits(nccl, there):
        yield f"{NCCL}={clipped(nccl)} {machine}: NCCL takes beginnings of names; = before them means whole names, ^ all but these"


def are_there(names: str, there: Sequence[str]) -> bool:
    """Return True if Gloo finds each of these interfaces. A colon and what follows is an alias of one."""
    return all(name.partition(":")[0] in there for name in names.split(",") if name)


def any_fits(names: str, there: Sequence[str]) -> bool:
    """Return True if NCCL finds an interface: ^ before the list excludes its names, = makes them whole names."""
    excludes = names.startswith("^")
    is_exact = names[excludes:].startswith("=")
    wanted = [name.partition(":")[0] for name in names[excludes + is_exact :].split(",") if name]
    return any(excludes != any(each == name if is_exact else each.startswith(name) for name in wanted) for each in there)
