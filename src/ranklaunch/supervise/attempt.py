"""One attempt: goes through the phases before the launch, runs the plan's processes, ends them all after the first failure, and
reports.

The first event (a failure, a stop request, an error in ranklaunch, another node's failure, success of the whole job) becomes the
ending; no later event changes the ending. Once all nodes have stopped, node 0 names the cause of the job's end for all nodes.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ranklaunch import errors
from ranklaunch.env.reader import Arrived
from ranklaunch.env.settings import HEAD_IS_PROGRAM, RANK_HEAD, RESTART_COUNT, RUN
from ranklaunch.errors import (
    DEFECT,
    ConfigError,
    MissingProgramError,
    RanklaunchError,
    WaitError,
    refused,
)
from ranklaunch.files import folder_of
from ranklaunch.output.logs import Logs
from ranklaunch.plan.model import PROGRAM, TABLE, File, Plan, Process, Wait, as_json
from ranklaunch.processes.children import (
    DECIDING,
    LAUNCHER,
    RANK,
    SERVICE,
    STEP,
    UNJUDGED,
    Child,
    Children,
    Success,
    lift_limit,
    require_program,
)
from ranklaunch.processes.launchers import Launchers
from ranklaunch.processes.records import Recording
from ranklaunch.supervise.context import Companions, Start
from ranklaunch.supervise.ending import ending_of, failed, first_suspect, is_stop_too, may_be_stopped, stopped_by
from ranklaunch.supervise.record import bequeath, copied, make_private, now, offered, write_file
from ranklaunch.supervise.stop import Stopper
from ranklaunch.system import disk, memory, tree
from ranklaunch.system.loop import Share
from ranklaunch.system.signals import name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Ending, Verdict

if TYPE_CHECKING:
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.restarts.cleaning import Held
    from ranklaunch.supervise.running import Running
    from ranklaunch.supervise.session import Session
    from ranklaunch.supervise.teardown import Teardown
    from ranklaunch.supervise.waits.table_renewal import Renewed
    from ranklaunch.supervise.waits.waiting import Condition
    from ranklaunch.system.bounded import Apart

TWICE = "; a second SIGINT kills everything at once, even while a checkpoint is being saved"
NODE_0_DONE = "node_0_done"  # message of node 0: its program ended with 0
KEPT_S = 2.0  # between two looks for programs that only keep this node for node 0
LATER_S = 0.3  # after the launch: a job that succeeds sooner does not need the module `running`


class Attempt:
    """One attempt on this node. Public attributes are for its parts and for its plugins.

    ending: the deciding end, None until then. finishes: ranks of this node with exit code 0. held: resources that processes of this
    round may leave behind, for the next round. launched_at: monotonic seconds, None before the launch. victims_from: monotonic
    seconds from which ranks are ended because of a failure. success: success of this node's ranks, None until then. notes: notes
    about a success, for the verdict.
    """

    def __init__(self, start: Start, around: Session) -> None:
        self.start = start
        self.around = around
        self.record = start.record
        self.nodes = around.nodes
        self.say = around.terminal.say
        self.began = now()
        self.began_at = time.time()
        self.ending: Ending | None = None
        self._rank: Watched | None = None  # rank of a launcher, if the end of this rank decided
        self.finishes: list[Finish] = []
        self.success: Success | None = None
        self.notes: list[str] = []
        self.held: Held | None = None
        self.launched_at: float | None = None
        self.victims_from = math.inf
        self.disks: Apart | None = None  # a look at the file systems
        self._stop_requests: set[int] = set()
        self.loop = Share(around.loop)
        self.killed = memory.Kills(self.loop)
        self.logs = Logs(self.loop, start.record, around.terminal, start.plan, around.nodes.wall)
        self.children = Children(self, around.env, around.signals)
        self.phases = Phases(self)
        self._recording = Recording(start.record.folder)
        self.stopper = Stopper(self.loop, start.plan.limits.grace_s, self.children, self.nodes, self.say)
        bequeath("grace_s", f"{start.plan.limits.grace_s:g}")
        self.companions = Companions(self)
        self.launchers = Launchers(self)
        self.work = start.work(self) if start.work else None

    @property
    def plan(self) -> Plan:
        """The newest plan."""
        return self.phases.plan

    def run(self) -> Verdict:
        """Run the attempt, and return the verdict after the end of all its processes."""
        try:
            self.nodes.join()  # first, so that the other nodes learn of any end of this node, even by a pending stop request
            launch = self.work.begin if self.work else self._launch
            for phase in (self.record.require, *self.phases.all, launch, self._watch):
                self.around.take_signals()
                if self.ending:
                    break
                phase()
        except RanklaunchError as error:
            self._end(failed(error.exit_code, str(error)))
        except (OSError, MemoryError) as error:  # no process, memory or descriptor left, or a full disk
            failure = refused(error)
            self._end(failed(failure.exit_code, str(failure)))
        except Exception as error:  # a defect in ranklaunch; the ranks must still be stopped in order
            self.say(f"a defect in ranklaunch; please report it with this:\n{traceback.format_exc()}")
            self._end(failed(DEFECT, f"a defect in ranklaunch: {type(error).__name__}: {error}"))
        return self.teardown.end()

    @cached_property
    def teardown(self) -> Teardown:
        """Teardown of this attempt. Its modules are imported right after the launch, or at an earlier end."""
        from ranklaunch.supervise.teardown import Teardown

        return Teardown(self)

    @cached_property
    def running(self) -> Running:
        """Parts for a job that lasts or fails. Their modules are imported here, once: LATER_S after the launch, or at an earlier
        failure."""
        disk.close_all(self.around.spare)
        from ranklaunch.supervise.running import Running

        return Running(self)

    def close(self) -> None:
        """Release timers, descriptors and keys."""
        self.phases.close()
        if self.disks:
            self.disks.close()
        self._recording.close()
        self.companions.close()
        self.loop.close()
        self.record.close()

    # For work in place of the plan's processes

    def start_process(self, process: Process, role: str) -> Child:
        """Start one process, and return the child."""
        before = set(self.children.running)
        self.children.start((process,), role)
        (pid,) = self.children.running.keys() - before
        return self.children.running[pid]

    def succeed(self, text: str) -> None:
        """Report the success of this node, after the end of its processes. The job succeeds once all nodes have."""
        if self.ending is None:
            self._take(Success(text))

    # From the launch on

    def _launch(self) -> None:
        """Start services, wait for the ports of other nodes, then start the ranks or their launcher."""
        self.phases.require()
        self.children.set_variables(self._own_variables())
        self.launched_at = self.loop.clock()
        outputs = self.plan.outputs
        if outputs:
            lift_limit(len(outputs.logs))
        if outputs and outputs.folder:
            self.logs.follow(outputs, self.launchers.expect_ranks)
        self.children.start(self.plan.services, SERVICE, self.plan)
        self._wait_for_ports()
        if not self.ending:
            are_ranks = all(process.rank is not None for process in self.plan.processes)
            self.children.start(self.plan.processes, RANK if are_ranks else LAUNCHER, self.plan)
        if self.plan.muster and self.plan.runs == PROGRAM:
            self.nodes.hear(NODE_0_DONE, self._on_node_0_done)
        for join in self.start.companions:
            self.companions.add(join)
        _ = self.teardown
        self.loop.after(LATER_S, self._prepare_for_failure)

    def _wait_for_ports(self) -> None:
        """Wait for the services of other nodes."""
        for wait in self.plan.waits:
            if wait.kind == "port" and not self.ending:
                from ranklaunch.supervise.waits.ssh_banners import Banners

                self.phases.wait_for(wait, Banners(wait.what.split(","), self.loop))

    def _prepare_for_failure(self) -> None:
        """Import the modules that a failure needs. If the import fails, the job goes on, and a failure tries again."""
        if self.ending is None:
            with contextlib.suppress(OSError, ImportError, MemoryError):
                self.running.prepare()

    def remember_ranks(self) -> None:
        """Freeze the output tails of ranks: later output is a consequence of the stop. Output of launchers still counts."""
        self.children.remember(but={child.identity for child in self.children.of((LAUNCHER,))}.__contains__)
        self.logs.remember()

    def _own_variables(self) -> dict[str, str]:
        """Return ranklaunch's variables for ranks. A launcher with restarts of its own replaces the restart count."""
        count = str(self.plan.job.restart)
        elastic = {"TORCHELASTIC_RESTART_COUNT": count} if self.plan.rounds else {}
        head = {RANK_HEAD: HEAD_IS_PROGRAM} if self.plan.runs == PROGRAM else {}
        return {RUN: self.nodes.run_id, RESTART_COUNT: count, **elastic, **head, **self._recording.variables(self.plan)}

    def phase(self) -> tuple[str, str]:
        """Return the phase of the attempt, and the name of its current wait ("" for none)."""
        if self.ending:
            return "stopping", ""
        if self.success:
            return "done", "the other nodes"
        return ("running", "") if self.launched_at else ("starting", self.phases.waiting)

    def _watch(self) -> None:
        while self.ending is None:
            self.loop.step()

    # Events from the session

    def reap(self) -> None:
        self.children.reap()

    def pass_on(self, number: int) -> tuple[bool, list[str]]:
        """Send a signal to the processes of ranks that catch it; see Launchers.offer."""
        return self.launchers.offer(number)

    def on_stop_request(self, number: int) -> None:
        self.record.hold()  # ranks are signalled before anything is written: the log folder may not answer
        self.record.event("signal", signal=name_of(number))
        self.around.terminal.hurry(self.stopper.grace_s)
        if self.launched_at is not None:
            _ = self.running  # adds the plugins, which handle the stop request
        self.companions.hurry()
        if self.ending is None:
            self._end_by_request(number)
        elif number == signal.SIGINT:
            self._on_interrupt()
        if self.ending and self.loop.clock() - self.ending.at < blame.OF_A_STOP_S:  # the stop request also ended the first rank
            self.logs.unfold(None)
        if self.ending and not self._stop_requests and self._is_stop_too(self.ending, number):
            self.companions.on_stop_request(number)
            if number != signal.SIGINT:
                self._say_stopping(number)
        self._stop_requests.add(number)
        self.record.release()

    def _is_stop_too(self, ending: Ending, number: int) -> bool:
        child = self.children.of_pid(ending.pid)  # a launcher may outlive its failed rank
        return is_stop_too(self.plan, ending, child.end if child else None, number, self.loop.clock())

    def _end_by_request(self, number: int) -> None:
        """End by a stop request: with success if the ranks of this node have succeeded and only other nodes still run."""
        if self.success and self.nodes.may_leave:
            self.nodes.leave()
            text = f"{self.success.text}; {name_of(number)} came while the other nodes were still running"
            self._end(Ending(Judgement("succeeded", 0, text)))
            return
        self.companions.on_stop_request(number)
        self._end(Ending(Judgement("stopped", 128 + number, stopped_by(number))))
        self.stopper.begin(number)
        self._say_stopping(number)

    def _on_interrupt(self) -> None:
        """Kill everything at a second SIGINT. The first SIGINT here may come after a stop by another node."""
        if signal.SIGINT not in self._stop_requests:
            self.say(f"SIGINT: stopping already{TWICE}")
            return
        self.nodes.hurry()
        self.say("SIGINT again: ending everything now")
        self.stopper.kill_all()

    def _say_stopping(self, number: int) -> None:
        self.say(f"{name_of(number)}: stopping, at most {self.stopper.grace_s:g} s{TWICE if number == signal.SIGINT else ''}")
        self.logs.say_last_output()

    def on_guard(self) -> None:
        """Kill everything at once: the outer process was killed, so nobody is left to get an exit code."""
        self.nodes.go()
        self.around.terminal.hurry(self.stopper.grace_s)
        self._end(replace(failed(128 + signal.SIGKILL, "ranklaunch itself was killed, as by SIGKILL"), killed=True))
        self.companions.hurry()
        self.stopper.begin(signal.SIGKILL)
        self.stopper.kill_all()

    def on_stop(self, judgement: Judgement) -> None:
        """Handle a failure of another node. If a rank of this node has failed too, wait for its launcher's report."""
        if self.ending is not None or self.launchers.failing_since:
            return
        self.launchers.look()
        silent_s = self.launchers.silent_s()
        if silent_s:
            self.loop.after(silent_s, self.on_stop, judgement)
        else:
            self.say(f"stopping, at most {self.stopper.grace_s:g} s: {judgement.reason}")
            self._end_by(judgement)

    def on_judged(self, judgement: Judgement) -> None:
        if self.ending is None:
            ranks = self.launchers.living()
            if ranks and judgement.outcome == "failed":
                self.say(f"still working here: {errors.numbered(ranks, 'rank')}")
            self._end_by(judgement)

    def on_lost(self, suspect: Suspect) -> None:
        if self.ending is None:
            self._end_by(blame.judge([suspect]))

    def on_released(self, text: str, waited_s: float) -> None:
        late = f"{text}; this node waited {waited_s:.1f} s"
        self.record.event("released", late=late, clock_s=round(self.nodes.wall(self.loop.clock()) - time.time(), 3))
        if self.plan.job.node_index == 0:  # the other nodes have the same text
            self.say(text)

    # Events of child processes

    def on_child_start(self, child: Child) -> None:
        self.launchers.watch(child)
        self.record.event("spawn", name=child.process.name, rank=child.process.rank, pid=child.identity.pid)

    def on_child_output(self, child: Child) -> None:
        self.launchers.read(child)

    def on_child_end(self, child: Child) -> None:
        self.launchers.leave(child)
        end = child.ended
        self.record.event(
            "exit", name=child.process.name, rank=child.process.rank, pid=child.identity.pid, exit_code=end.code,
            signal=name_of(end.signal) if end.signal else None, max_rss_kb=end.max_rss_kb,
        )  # fmt: skip
        if not (end.code or end.told) and child.process.rank is not None:
            self.finishes.append(Finish(self.plan.job.node_index, child.process.rank, self.nodes.wall(end.at)))
        if not self.ending and child.role not in UNJUDGED:
            self._decide(child)
        elif not self.ending and self.work:
            self.work.on_end(child)

    def _decide(self, child: Child) -> None:
        """Decide by the end of a child: the first failure ends the attempt; success needs the end of every process."""
        ending = ending_of(child)
        if ending and may_be_stopped(child):
            self.loop.after(blame.OF_A_STOP_S, partial(self.fail, ending))
        elif ending:
            self.fail(ending)
        elif child.role == STEP or child.process.may_end:
            return
        elif not any(other.role in DECIDING for other in self.children.running.values()):
            self._complete()

    def _complete(self) -> None:
        """Handle the end of all processes with 0. Ranks started by them may still be at work, and are waited for first."""
        is_rank = self.plan.job.program.is_python and self.plan.runs != PROGRAM
        if is_rank or not (tree.has_children() or self.teardown.has_records()):
            self._succeed()
        else:
            self.running.program_ended(self._succeed)

    def _succeed(self) -> None:
        """Report the success of this node. The job succeeds once all nodes have."""
        self._take(self.launchers.success(self.children.ended))

    def _on_node_0_done(self, node: int, body: object) -> None:
        """Handle the message of node 0 that its program ended with 0."""
        self._end_with_node_0("")

    def _end_with_node_0(self, before: str) -> None:
        """End with node 0 if two looks in a row find only programs that keep this node for node 0.
        before: result of the last look, "" for other programs."""
        if self.ending or self.success:
            return
        text = self.running.keeps_node()
        if text and before:
            self._take(Success(text))
        else:
            self.loop.after(KEPT_S, self._end_with_node_0, text)

    def _take(self, success: Success) -> None:
        self.success = success
        finish = Finish(self.plan.job.node_index, None, self.nodes.wall(self.loop.clock()))
        if success.fewer:
            self.fail(failed(success.code, success.fewer))
        elif self.nodes.done(finish, success.text, success.unseen):
            self.finishes[:] = [finish]
            self.record.event("done")
            if self.plan.job.node_index == 0 and self.plan.runs == PROGRAM:
                self.nodes.tell_nodes(NODE_0_DONE, None)
        else:
            self._end(Ending(Judgement("succeeded", 0, success.text)))

    # The end

    def fail(self, ending: Ending, rank: Watched | None = None) -> None:
        """End all processes of this node by a failure. rank: rank of a launcher, if the end of this rank decided."""
        if self.ending is None:
            self._end(ending, rank)
            self._begin_stop()

    def _end_by(self, judgement: Judgement) -> None:
        """End by the judgement of another node, or by node 0's verdict."""
        self._end(Ending(Judgement(judgement.outcome, judgement.exit_code, judgement.reason), from_elsewhere=True))
        if judgement.outcome != "succeeded":
            self._begin_stop()

    def _begin_stop(self) -> None:
        """Stop all processes as soon as no plugin delays the stop."""
        assert self.ending
        self.held = self.running.held() if self.plan.rounds else None
        self.companions.before_stop(self.ending, self._signal_all)

    def _signal_all(self) -> None:
        self.victims_from = min(self.victims_from, self.loop.clock())
        self.stopper.begin(signal.SIGTERM, self.launchers.failing_since)
        if self.stopper.says_where:  # the stacks in their output are a consequence of the stop
            self.children.remember(but=self.stopper.caught)
            self.logs.remember()

    def _end(self, ending: Ending, rank: Watched | None = None) -> None:
        if self.ending is None:
            self.ending = ending = replace(ending, at=self.loop.clock())
            self._rank = rank
            self.disks = self.running.look_at_disks() if ending.outcome != "succeeded" else None
            if not ending.from_elsewhere and ending.outcome == "failed":
                self.companions.deciding(ending)
            if not ending.from_elsewhere and ending.outcome != "succeeded":
                self.nodes.fail(self.first_suspect)
            child = self.children.of_pid(ending.pid)
            lasting = any(child.process.outlasts for child in self.children.of((SERVICE,)))
            self.nodes.decided(outlasts=not child and lasting)
            self.logs.let_go()
            if not child or rank:  # a child that failed by itself still prints the reason
                self.logs.hush()
            if ending.outcome == "failed":
                self.fold_victims()
            by = child.process.name if child else errors.reason(ending.judgement.reason)
            self.record.event("ending", outcome=ending.outcome, by=by)

    def first_suspect(self) -> Suspect:
        """Return the suspect of the ending, before outputs and records are read."""
        assert self.ending
        return first_suspect(self.plan, self.ending, self.nodes.wall, self.children.of_pid(self.ending.pid), self._rank)

    def fold_victims(self, *, at_once: bool = False) -> None:
        """Keep further lines of running ranks off the console: a failure is known, and these ranks are about to be ended because of it.

        at_once: True if their launcher ends them now.
        """
        self.victims_from = min(self.victims_from, self.loop.clock() if at_once else math.inf)
        is_stop = self._stop_requests or (self.ending and self.ending.outcome != "failed")
        if self.launched_at is not None and not is_stop:
            self.logs.fold(self.launchers.known())


# Phases before the launch: join, check, wait, gather facts, write files, prepare, muster, wait again.
# A phase may bring facts, and the plan is then made anew; the newest plan is launched.


class Phases:
    """Phases of one attempt, up to its launch. No phase goes on once the attempt has an ending.

    plan: the newest plan. shared: content of shared memory at the launch. waiting: name of the current
    wait, "" for none.
    """

    def __init__(self, attempt: Attempt) -> None:
        start = attempt.start
        self.plan = start.plan
        self.shared: frozenset[tuple[str, int]] = frozenset()
        self.waiting = ""
        self._attempt = attempt
        self._replan = start.replan
        self._files = start.files
        self._record = attempt.record
        self._loop = attempt.loop
        self._say = attempt.say
        self._children = attempt.children
        self._nodes = attempt.nodes
        self._after = start.after
        self._known = Arrived()
        self._private = ""  # path of the private folder, once it has been made
        self._waited: set[tuple[str, str]] = set()

    def _over(self) -> bool:
        return self._attempt.ending is not None

    @property
    def all(self) -> tuple[Callable[[], None], ...]:
        """Phases in their order. Each raises RanklaunchError if it fails."""
        before = (self._settle, self._check, self._wait, self._gather, self._write_files, self._prepare)
        return (*before, self._muster, self._wait)

    def _settle(self) -> None:
        """Before a restart in place, wait until no process of the last round is left, then for the
        pause that node 0 decided."""
        if not self.plan.job.restart:
            return
        from ranklaunch.restarts import cleaning

        began = self._loop.clock()
        self._nodes.busy("cleaning up")
        self._record.event("settle", removed=len(cleaning.remove(self._after.held or cleaning.Held())), pause_s=self._after.pause_s)
        cleaning.wait(self.plan, self._loop, self._say, self._over, self._ask)
        if self._after.pause_s:
            self._nodes.busy(f"pausing {self._after.pause_s:g} s")
            self._loop.run_until(self._over, began + self._after.pause_s)
        self._record.event("settled", seconds=round(self._loop.clock() - began, 3))
        if self.plan.job.rank_table and not self._over():  # the platform may have replaced the table meanwhile
            self.plan = self._anew()

    def _ask(self, argv: tuple[str, ...]) -> str:
        """Return the output of a tool, "" if it does not answer."""
        from ranklaunch.hangs.devices import Tool

        chunks: list[str] = []
        tool = Tool(argv, self._children.env, self._loop, chunks.append)
        tool.ask()
        while tool.running and not self._over():
            self._loop.step()
        tool.close()
        return "".join(chunks)

    def require(self) -> None:
        """Check that this node has all programs of the plan. Raises MissingProgramError with the
        names of all missing ones."""
        if self.plan.rounds:
            from ranklaunch.restarts import cleaning

            self.shared = cleaning.shared_memory_content()
        processes = {process.argv[0]: process for process in (*self.plan.services, *self.plan.processes)}
        missing = []
        looks: list[Callable[[], None]] = [partial(require_program, self.plan)]
        for look in looks + [partial(self._children.require, process, self.plan.job) for process in processes.values()]:
            try:
                look()
            except MissingProgramError as error:
                missing.append(str(error))
        if missing:
            raise MissingProgramError("; ".join(missing))

    def wait_for(self, wait: Wait, condition: Condition) -> None:
        from ranklaunch.supervise.waits.waiting import perform

        self._record.event("wait", kind=wait.kind, what=wait.what, timeout_s=wait.timeout_s)
        with self._named(f"{wait.kind} {wait.what}"):
            seconds = perform(wait, condition, self._loop, self._say, self._over)
        self._record.event("waited", kind=wait.kind, what=wait.what, seconds=round(seconds, 3))

    @contextlib.contextmanager
    def _named(self, wait: str) -> Iterator[None]:
        """Show `ranklaunch status` the name of a wait while it lasts."""
        self.waiting = wait
        try:
            yield
        finally:
            self.waiting = ""

    def close(self) -> None:
        """Remove the private folder."""
        if self._private:
            disk.remove_tree(self._private)

    def _check(self) -> None:
        """Fail for a missing program before the waits, unless a preparing step may still install the
        program."""
        if not self.plan.prepare:
            self.require()

    def _wait(self) -> None:
        """Wait for files and hosts. Waits for ports come later, once the services have started."""
        for wait in iter(self._next_wait, None):
            self._waited.add((wait.kind, wait.what))
            self._nodes.busy(f"waiting for {wait.kind} {wait.what}")
            if wait.kind == "hosts":
                self._wait_for_hosts(wait)
            else:
                self._wait_for_file(wait)

    def _next_wait(self) -> Wait | None:
        wait = next((wait for wait in self.plan.waits if (wait.kind, wait.what) not in self._waited), None)
        return wait if wait and wait.kind not in ("muster", "port", "hosts command") and not self._over() else None

    def _wait_for_hosts(self, wait: Wait) -> None:
        from ranklaunch.supervise.waits.waiting import HostsResolve  # imports sockets and threads, which most starts do not need

        names = HostsResolve(wait.what.split(","), self._loop)
        self.wait_for(wait, names)
        self._known = replace(self._known, addresses={**self._known.addresses, **names.addresses})
        if self.plan.by_address:
            self.plan = self._anew()
            if any(kind == "muster" for kind, _ in self._waited):  # otherwise the files are written later
                self._write(self.plan.files)

    def _wait_for_file(self, wait: Wait) -> None:
        from ranklaunch.supervise.waits.waiting import Planned

        planned = Planned(wait, self._files, self._loop, self._anew)
        try:
            self.wait_for(wait, planned)
        except WaitError:
            if wait.kind != "topology":
                raise
            self._known = replace(self._known, missed=(*self._known.missed, wait.what))
            self.plan = self._anew()
            return
        self.plan = planned.plan or self.plan

    def _anew(self) -> Plan:
        """Return a plan made anew from all facts up to now."""
        return self._replan(self._known) if self._replan else self.plan

    def _gather(self) -> None:
        """Run the steps that bring facts, and make the plan anew from these facts."""
        if not self.plan.gather:
            return
        self._write(self.plan.files)
        self._run_steps(self.plan.gather)
        if self._over():
            return
        self.plan = self._anew()
        if self.plan.gather:
            msg = f"{self.plan.gather[0].name} ended without a result: see {self.plan.gather[0].log}"
            raise ConfigError(msg)

    def _write_files(self) -> None:
        self._record.plan(as_json(self.plan))
        for warning in self.plan.warnings:
            self._say(f"warning: {warning}")
        if self.plan.private:
            bequeath("private", self.plan.private)
            make_private(self.plan.private)
            self._private = self.plan.private
        self._write(self.plan.files)

    def _write(self, files: tuple[File, ...]) -> None:
        for file in files:
            if self.plan.private and file.path.startswith(f"{self.plan.private}/"):
                disk.make_folder(folder_of(file.path))
            write_file(file.path, copied(file.source) if file.source else file.text, int(file.mode, 8))
            self._record.event("file", path=file.path)

    def _prepare(self) -> None:
        self._run_steps(self.plan.prepare)

    def _run_steps(self, steps: tuple[Process, ...]) -> None:
        for step in steps:
            self._nodes.busy(step.name)
            self._children.start((step,), STEP)
            with self._named(step.name):
                while not self._over() and self._children.running:
                    self._loop.step()
            if self._over():
                return

    def _watch_table(self, plan: Plan) -> Renewed | None:
        """Return a watch over the rank table, None for a first start: at a later one, the platform
        may replace the table, at a different time on each node."""
        if not plan.muster or TABLE not in plan.muster.facts or not (plan.job.attempt > 1 or plan.job.restart):
            return None
        from ranklaunch.supervise.waits.table_renewal import Renewed

        return Renewed(plan, self._files, self._loop, self._anew, self._nodes.ready_again)

    def _muster(self) -> None:
        """Wait at the muster (start barrier) until all nodes are here, agree on the plan and are
        released. A preparing step may have changed the compared facts, and written files that nodes
        offer to each other."""
        if not self.plan.muster:
            return
        plan = self._anew() if self.plan.prepare else self.plan
        assert plan.muster
        what = next(wait.what for wait in self.plan.waits if wait.kind == "muster")
        self._record.event("wait", kind="muster", what=what, timeout_s=plan.muster.timeout_s)
        self._waited.add(("muster", what))
        offers = {name: offered(path) for name, path in self.plan.offers.items()}
        renewed = self._watch_table(plan)
        try:
            plan = replace(self.plan, muster=plan.muster)
            with self._named(f"the other nodes of the job, at {what}"):
                seconds = self._nodes.muster(plan, offers, self._over)
        finally:
            if renewed:
                renewed.close()
        if renewed and not self._over():
            self.plan = renewed.plan(self._nodes.table)
            self._write(self.plan.files)
        self._record.event("waited", kind="muster", what=what, seconds=round(seconds, 3))
        if offers and not self._over():
            self._known = replace(self._known, shared=self._nodes.shared, run_id=self._nodes.run_id)
            self.plan = self._anew()
            self._write(self.plan.files)
