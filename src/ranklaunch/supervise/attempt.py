"""One attempt: executes a plan, decides by the first failure, ends everything that it has started, and reports.

Whatever happens first (a failure, a stop request, an error of our own, another node's failure, success of the whole job) becomes the
ending; nothing that follows changes it. What the job died of is then said by node 0 for all nodes, once all have stopped.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ranklaunch import errors
from ranklaunch.env.settings import HEAD_IS_PROGRAM, RANK_HEAD, RESTART_COUNT, RUN
from ranklaunch.errors import DEFECT, RanklaunchError, refused
from ranklaunch.output.logs import Logs
from ranklaunch.plan.model import PROGRAM, Plan, Process
from ranklaunch.processes.child import DECIDING, LAUNCHER, LEADING, RANK, SERVICE, STEP, UNJUDGED, Child, Success
from ranklaunch.processes.children import Children, OfChildren
from ranklaunch.processes.launchers import Launchers
from ranklaunch.processes.record_folder import Recording
from ranklaunch.processes.start import lift_limit
from ranklaunch.supervise import judge, teardown
from ranklaunch.supervise.context import Start, Surroundings
from ranklaunch.supervise.judge import Ending
from ranklaunch.supervise.phases import Phases
from ranklaunch.supervise.plugins import Attended, Companions
from ranklaunch.supervise.record import bequeath, now
from ranklaunch.supervise.stop import Stopper
from ranklaunch.system import memory, tree
from ranklaunch.system.loop import Share
from ranklaunch.system.signals import STOPPING, name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Note, Verdict

if TYPE_CHECKING:
    from ranklaunch.ends.model import NodeEnds
    from ranklaunch.processes.orphans import Leftovers
    from ranklaunch.processes.program_end import Whole
    from ranklaunch.restarts.cleaning import Held
    from ranklaunch.system.bounded import Apart

OWN_WORDS_S = 2.0  # after the end has begun, for those who were on their way out by themselves to say why
TWICE = "; a second SIGINT ends everything at once, whatever is being saved"
PRELOAD_S = 0.3  # from the start of the ranks to the imports for a failure: a job that ends sooner needs none of them
NODE_0_DONE = "node_0_done"  # word: node 0's program ended with 0
KEPT_S = 2.0  # between looks at whether this node is only kept for node 0
ASKED_S = 0.25  # for a stop request to come, after a rank has died of such a signal


class Attempt:
    def __init__(self, start: Start, around: Surroundings) -> None:
        self.ending: Ending | None = None
        self._disks: Apart | None = None  # a look at the file systems
        self._around = around
        self._told = start.told
        self.record = start.record
        self.nodes = around.nodes
        self.say = around.terminal.say
        self._started = start.after.started or now()
        self._began = time.time()
        self.finishes: list[Finish] = []
        self._state_said: Mapping[str, Any] = {}
        self._left: Leftovers | None = None
        self._whole: Whole | None = None
        self._heard: set[int] = set()  # stop requests
        self._suspects: Sequence[Suspect] = ()  # of this node, once all has ended
        self._told_at = math.inf  # when ranks were first told to end for a failure
        self._success: Success | None = None  # of this node's ranks
        self.loop = Share(around.loop)
        self._killed = memory.Kills(self.loop)
        self.logs = Logs(self.loop, start.record, around.terminal, start.plan, around.nodes.wall)
        hear = OfChildren(started=self._on_start, wrote=lambda child: self._launchers.read(child), ended=self._on_end)
        self.children = Children(hear, around.env, around.signals, self.loop, self.logs)
        over = lambda: self.ending is not None  # noqa: E731
        self._phases = Phases(
            start.plan, start.replan, start.files, start.record, self.loop, self.say, self.children, self.nodes, over, start.after
        )  # fmt: skip
        self._after = start.after
        self._recording = Recording(start.record.folder)
        self._launched_at: float | None = None
        self.held: Held | None = None  # by its processes, where others are to follow them
        leaders, services = partial(self.children.of, LEADING), partial(self.children.of, (SERVICE,))
        self.stopper = Stopper(self.loop, start.plan.limits.grace_s, leaders, self.say, services, lambda: self.nodes.others_end)
        bequeath("grace_s", f"{start.plan.limits.grace_s:g}")
        self.companions = Companions(start.companions, self.loop)
        self._launchers = Launchers(self)
        self._work = start.work(self) if start.work else None

    @property
    def plan(self) -> Plan:
        """The newest."""
        return self._phases.plan

    def run(self) -> Verdict:
        """To the end, with nothing left running that it has started."""
        try:
            self.nodes.join()  # before anything can end this node, and be it a stop request that is there already: the others are told
            launch = self._work.begin if self._work else self._launch
            for phase in (self.record.require, *self._phases.all, launch, self._watch):
                self._around.take_signals()
                if self.ending:
                    break
                phase()
        except RanklaunchError as error:
            self._end(Ending("failed", error.exit_code, str(error)))
        except (OSError, MemoryError) as error:  # no process, memory or descriptor left, a full disk
            failure = refused(error)
            self._end(Ending("failed", failure.exit_code, str(failure)))
        except Exception as error:  # ours; the ranks must end in good order all the same
            import traceback

            self.say(f"a defect in ranklaunch; please report it with this:\n{traceback.format_exc()}")
            self._end(Ending("failed", DEFECT, f"a defect in ranklaunch: {type(error).__name__}: {error}"))
        self._stop()
        assert self.ending is not None
        self._hear_of_stop()
        circumstances = self._circumstances()
        needed = self.ending.outcome != "succeeded" or teardown.has_exceptions(self.record, self.plan)
        node = self._node_ends(circumstances) if needed else None
        verdict = judge.verdict(self.plan, self._agree(circumstances, node), self.ending, self.children.ended, circumstances, self._started)
        left = (
            *self._launchers.notes,
            *(self._whole.notes if self._whole else ()),
            *(self._left.notes if self._left else ()),
            *(teardown.of_success(self.plan, node) if node else ()),
        )
        left = left if verdict.outcome == "succeeded" else ()
        unsignalled = tuple(teardown.unsignalled(self.stopper.stuck))
        notes = (*verdict.notes, *left, *self.plan.noted, *unsignalled)
        verdict = replace(verdict, notes=notes, more=teardown.more(self.plan, verdict, self.companions.facts(), self._after.restarts))
        self._report(verdict, unsignalled)
        node = node or self._node_ends(circumstances)
        if node:
            teardown.keep_ends(self.record, self.say, node, self._state_said, self.nodes.lost, self.nodes.run_id)
        return verdict

    def close(self) -> None:
        """Nothing of it is left: no timer, no descriptor, no keys."""
        self._phases.close()
        if self._disks:
            self._disks.close()
        self._recording.close()
        self.companions.close()
        self.loop.close()
        self.record.close()

    # For work in place of the plan's processes

    def start(self, process: Process, role: str) -> Child:
        """Start one process, and return the child."""
        before = set(self.children.running)
        self.children.start((process,), role)
        (pid,) = self.children.running.keys() - before
        return self.children.running[pid]

    def succeed(self, text: str) -> None:
        """Report the success of this node, which has no process left; the job succeeds when all nodes have."""
        if self.ending is None:
            self._take(Success(text))

    # From the launch on

    def _launch(self) -> None:
        """Services first: what the processes need of them, on this node and the others, is waited for."""
        self._phases.require()
        self.children.give(self._own_variables())
        self._launched_at = self.loop.clock()
        outputs = self.plan.outputs
        if outputs:
            lift_limit(len(outputs.logs))
        if outputs and outputs.folder:
            self.logs.follow(outputs, self._launchers.expect_ranks)
        self.children.start(self.plan.services, SERVICE, self.plan)
        for wait in self.plan.waits:
            if wait.kind == "port" and not self.ending:
                from ranklaunch.supervise.waits.ssh_banners import Banners

                self._phases.wait_for(wait, Banners(wait.what.split(","), self.loop))
        if not self.ending:
            are_ranks = all(process.rank is not None for process in self.plan.processes)
            self.children.start(self.plan.processes, RANK if are_ranks else LAUNCHER, self.plan)
        if self.plan.muster and self.plan.runs == PROGRAM:
            self.nodes.hear(NODE_0_DONE, lambda node, body: self._on_node_0_done())
        self.companions.join(self.attended)
        self.loop.after(PRELOAD_S, _preload)

    def _own_variables(self) -> dict[str, str]:
        """What tells a program where it stands. A launcher that counts for itself says so to its ranks in place of the last."""
        count = str(self.plan.job.restart)
        counted = {"TORCHELASTIC_RESTART_COUNT": count} if self.plan.rounds else {}
        head = {RANK_HEAD: HEAD_IS_PROGRAM} if self.plan.runs == PROGRAM else {}
        return {RUN: self.nodes.run_id, RESTART_COUNT: count, **counted, **head, **self._recording.variables(self.plan)}

    def attended(self) -> Attended:
        return Attended(
            plan=lambda: self.plan, ending=lambda: self.ending, running=self.children.running, ranks=self._launchers.living,
            outputs=lambda: self.logs.by_rank, nodes=self.nodes, loop=self.loop, record=self.record,
            say=self.say, fail=self.fail, stopper=self.stopper, ended=self.children.ended, explained=self._launchers.explained,
            take=self.companions.take, env=self._around.env, evidence=self.companions.hear_evidence,
            alarm=self._around.teller().hang, slow=self._around.teller().slow, taking=self.companions.taking,
            said=lambda: teardown.remember_ranks(self.children, self.logs),
        )  # fmt: skip

    def phase(self) -> tuple[str, str]:
        """Return the phase of the attempt, and the thing that it waits for ("" for nothing)."""
        if self.ending:
            return "stopping", ""
        if self._success:
            return "done", "the other nodes"
        return ("running", "") if self._launched_at else ("starting", self._phases.waiting)

    def _watch(self) -> None:
        self.loop.run_until(lambda: self.ending is not None)

    def _stop(self) -> None:
        """Ends what is left, however it came to the end; then takes what is left in the pipes."""
        self.loop.run_until(lambda: not self.companions.hold_the_stop)
        if self.ending and self.ending.outcome == "succeeded":
            self._around.teller().all_done()
            self._left = teardown.leftovers(self.children, self.loop, self.say, self.plan.limits.grace_s)
        self.stopper.begin(signal.SIGTERM)
        self.loop.after(OWN_WORDS_S, self._remember)
        self.loop.run_until(self.stopper.done)
        self.stopper.finish()
        if self.stopper.unread and self.stopper.unread.found:
            self.children.hear_out()
        for text in teardown.stuck(self.stopper.stuck):
            self.logs.say_at_end(text)
        teardown.remove_sessions(self.children)
        self.logs.finish()
        self.companions.stopped()

    def _hear_of_stop(self) -> None:
        """Who signals all processes of a job, as Slurm does, may reach the ranks before it reaches this one."""
        if any(end.signal in STOPPING and end.signal not in end.told for end in (child.ended for child in self.children.ended)):
            self.loop.run_until(lambda: self._around.asked() is not None, self.loop.clock() + ASKED_S)

    # What the session hears

    def reap(self) -> None:
        self.children.reap()

    def pass_on(self, number: int) -> tuple[bool, list[str]]:
        """Send a signal to the processes of ranks that catch it; see Launchers.offer."""
        return self._launchers.offer(number)

    def on_stop_request(self, number: int) -> None:
        name = name_of(number)
        self.record.hold()  # ranks are told before anything is written: the log folder may not answer
        self.record.event("signal", signal=name)
        self._around.terminal.hurry(self.stopper.grace_s)
        self.companions.hurry()
        if self.ending is None and self._success and self.nodes.may_leave:
            self.nodes.leave()
            self._end(Ending("succeeded", 0, f"{self._success.text}; {name} came while the other nodes were still running"))
        elif self.ending is None:
            self.companions.on_stop_request(number)
            self._end(Ending("stopped", 128 + number, judge.stopped_by(number)))
            self.stopper.begin(number)
            self._say_stopping(number)
        elif number == signal.SIGINT and number not in self._heard:  # whoever interrupts all nodes may come after another node's word
            self.say(f"SIGINT: stopping already{TWICE}")
        elif number == signal.SIGINT:
            self.nodes.hurry()
            self.say("SIGINT again: ending everything now")
            self.stopper.kill_all()
        if self.ending and self.loop.clock() - self.ending.at < blame.OF_A_STOP_S:  # whoever stops the job has ended the first rank too
            self.logs.unfold(None)
        if self.ending and not self._heard and teardown.is_stop_too(self.plan, self.ending, number, self.loop.clock()):
            self.companions.on_stop_request(number)
            if number != signal.SIGINT:
                self._say_stopping(number)
        self._heard.add(number)
        self.record.release()

    def _say_stopping(self, number: int) -> None:
        self.say(f"{name_of(number)}: stopping, at most {self.stopper.grace_s:g} s{TWICE if number == signal.SIGINT else ''}")
        self.logs.say_last_output()

    def on_guard(self) -> None:
        """The outer process was killed: nobody is left to be told, so everything ends at once."""
        self.nodes.go()
        self._around.terminal.hurry(self.stopper.grace_s)
        self._end(Ending("failed", 128 + signal.SIGKILL, "ranklaunch itself was killed, as by SIGKILL", killed=True))
        self.companions.hurry()
        self.stopper.begin(signal.SIGKILL)
        self.stopper.kill_all()

    def on_stop(self, judgement: Judgement) -> None:
        """Another node has failed. Where a rank of this one has too, its launcher is about to say more."""
        if self.ending is not None or self._launchers.failing_since:
            return
        self._launchers.look()
        silent_s = self._launchers.silent_s()
        if silent_s:
            self.loop.after(silent_s, lambda: self.on_stop(judgement))
        else:
            self.say(f"stopping, at most {self.stopper.grace_s:g} s: {judgement.reason}")
            self._end_by(judgement)

    def on_judged(self, judgement: Judgement) -> None:
        if self.ending is None:
            ranks = self._launchers.living()
            if ranks and judgement.outcome == "failed":
                self.say(f"still working here: {errors.numbered(ranks, 'rank')}")
            self._end_by(judgement)

    def on_lost(self, suspect: Suspect) -> None:
        if self.ending is None:
            self._end_by(blame.judge([suspect]))

    def on_released(self, text: str, waited_s: float) -> None:
        late = f"{text}; this node waited {waited_s:.1f} s"
        self.record.event("released", late=late, clock_s=round(self.nodes.wall(self.loop.clock()) - time.time(), 3))
        if self.plan.job.node_index == 0:  # the other nodes would say the same
            self.say(text)

    # What becomes of its processes

    def _on_start(self, child: Child) -> None:
        self._launchers.watch(child)
        self.record.event("spawn", name=child.process.name, rank=child.process.rank, pid=child.identity.pid)

    def _on_end(self, child: Child) -> None:
        self._launchers.leave(child)
        end = child.ended
        self.record.event(
            "exit", name=child.process.name, rank=child.process.rank, pid=child.identity.pid, exit_code=end.code,
            signal=name_of(end.signal) if end.signal else None, max_rss_kb=end.max_rss_kb,
        )  # fmt: skip
        if not (end.code or end.told) and child.process.rank is not None:
            self.finishes.append(Finish(self.plan.job.node_index, child.process.rank, self.nodes.wall(end.at)))
        if not self.ending and child.role not in UNJUDGED:
            self._decide(child)
        elif not self.ending and self._work:
            self._work.on_end(child)

    def _decide(self, child: Child) -> None:
        """The first failure decides; success needs every process."""
        failed = teardown.failure(child)
        if failed and teardown.may_be_stopped(child):
            self.loop.after(blame.OF_A_STOP_S, partial(self.fail, failed))
        elif failed:
            self.fail(failed)
        elif child.role == STEP or child.process.may_end:
            return
        elif not any(other.role in DECIDING for other in self.children.running.values()):
            self._complete()

    def _complete(self) -> None:
        """All processes of this node ended with 0, which may be less than the job's success: ranks may be left at work."""
        is_rank = self.plan.job.program.is_python and self.plan.runs != PROGRAM
        if is_rank or not (tree.has_children() or teardown.has_records(self.record, self.plan)):
            self._succeed()
            return
        try:
            from ranklaunch.processes.program_end import Whole

            self._whole = Whole(self)
        except (OSError, ImportError):  # no descriptor left
            self._succeed()
        else:
            self._whole.complete(self._succeed)

    def _succeed(self) -> None:
        """This node has; the job has when all have."""
        self._take(self._launchers.success(self.children.ended))

    def _on_node_0_done(self, before: str = "") -> None:
        """End with node 0 if nothing works here but what keeps this node for it, in two looks. before: what the last look found."""
        if self.ending or self._success:
            return
        text = teardown.keeps_node(self.children.running.values())
        if text and before:
            self._take(Success(text))
        else:
            self.loop.after(KEPT_S, lambda: self._on_node_0_done(text))

    def _take(self, success: Success) -> None:
        self._success = success
        own = Finish(self.plan.job.node_index, None, self.nodes.wall(self.loop.clock()))
        if success.fewer:
            self.fail(Ending("failed", success.code, success.fewer))
        elif self.nodes.done(own, success.text, success.unseen):
            self.finishes[:] = [own]
            self.record.event("done")
            if self.plan.job.node_index == 0 and self.plan.runs == PROGRAM:
                self.nodes.tell_nodes(NODE_0_DONE, None)
        else:
            self._end(Ending("succeeded", 0, success.text))

    # The end

    def fail(self, ending: Ending) -> None:
        """The end of all that runs here."""
        if self.ending is None:
            self._end(ending)
            self._begin_stop()

    def _end_by(self, judgement: Judgement) -> None:
        """Another node's word."""
        self._end(Ending(judgement.outcome, judgement.exit_code, judgement.reason, from_elsewhere=True))
        if judgement.outcome != "succeeded":
            self._begin_stop()

    def _begin_stop(self) -> None:
        """Once nobody needs what runs as it is."""
        assert self.ending
        self.held = teardown.held(self._phases.shared, self.held) if self.plan.rounds else None
        self.companions.before_stop(self.ending, self._tell_all)

    def _tell_all(self) -> None:
        self._told_at = min(self._told_at, self.loop.clock())
        self.stopper.begin(signal.SIGTERM, self._launchers.failing_since)
        if self.stopper.says_where:  # stacks that they are about to write are no words of theirs
            self.children.remember(but=self.stopper.caught)
            self.logs.remember()

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending = replace(ending, at=self.loop.clock())
            self._disks = judge.look_at_disks(self.plan) if ending.outcome != "succeeded" else None
            if not ending.from_elsewhere and ending.outcome == "failed":
                self.companions.deciding(ending)
            if not ending.from_elsewhere and ending.outcome != "succeeded":
                self.nodes.fail(lambda: judge.first_word(self.plan, ending, self.nodes.wall))
            lasting = any(child.process.outlasts for child in self.children.of((SERVICE,)))
            self.nodes.decided(outlasts=not ending.child and lasting)
            self.logs.let_go()
            if not ending.child or ending.rank:  # what failed by itself says why
                self.logs.hush()
            if ending.outcome == "failed":
                self.fold_victims()
            by = ending.child.process.name if ending.child else errors.reason(ending.reason)
            self.record.event("ending", outcome=ending.outcome, by=by)

    def fold_victims(self, *, told: bool = False) -> None:
        """Keep further lines of ranks that still run off the console: a failure is known, and they are about to be ended for it.

        told: their launcher ends them at once.
        """
        self._told_at = min(self._told_at, self.loop.clock() if told else math.inf)
        is_stop = self._heard or (self.ending and self.ending.outcome != "failed")
        if self._launched_at is not None and not is_stop:
            self.logs.fold(self._launchers.known())

    def _shown_of_victims(self, verdict: Verdict, culprit: int | None) -> Collection[int] | None:
        """Return the ranks of this node whose folded lines are shown after all: those that failed before they were told to end. None: all
        ranks, as somebody asked for the stop. culprit: rank whose last lines are shown anyway."""
        if verdict.outcome == "stopped":
            return None
        told_at = self.nodes.wall(self._told_at)
        by_themselves = (each for each in self._suspects if each.at < told_at and not (each.late or each.is_consequence))
        failed = [each.culprit for each in by_themselves if each.culprit]
        own = {each.rank for each in failed if each.node == self.plan.job.node_index and each.rank is not None}
        return own - {culprit}

    def _remember(self) -> None:
        """Keep the output of running ranks up to this moment: later output is about their being ended."""
        self.children.remember()
        self.logs.remember()

    def _node_ends(self, circumstances: judge.Circumstances) -> NodeEnds | None:
        assert self.ending
        failing = [child.identity.pid for child in self.children.ended if child.failing]
        return teardown.node_ends(self.record, self.plan, self.ending, self.children.ended, circumstances, failing)

    def _agree(self, circumstances: judge.Circumstances, node: NodeEnds | None) -> Judgement:
        """What the job died of: by the word of node 0, who has heard all; by what is known here where there is no such word."""
        assert self.ending
        self.finishes += () if self._success else self.children.finished(self.plan.job.node_index, self.nodes.wall)
        suspects = self._suspects = judge.suspects(self.plan, self.ending, node, self.nodes.wall)
        late = judge.notes_of_stop(self.plan, self.ending, node, suspects, self.stopper.caught)
        seen = (
            *judge.notes(self.plan, self.ending, suspects, self._disks),
            *map(Note, self.companions.notes(self.ending, suspects)),
            *late,
        )
        own = judge.judgement(self.ending, suspects, self.finishes, seen, circumstances)
        agreed = self.nodes.agree(own, suspects, self.finishes, seen, self.ending, self._state)
        return teardown.alone(own, self._state(), self.plan, self.ending, circumstances) if agreed is own else agreed

    def _state(self) -> Mapping[str, Any]:
        """For whoever decides whether the ranks start again."""
        if not self.plan.rounds or not self.ending or self.ending.outcome == "succeeded":
            return {}
        from ranklaunch.restarts import round_facts

        first = min(self.ending.at, self._launchers.failing_since or self.ending.at)
        well = self._success is not None or any(finish.at < self.nodes.wall(first) for finish in self.finishes)
        state = round_facts.state(
            self.plan, self.logs.kept, self._launched_at, self.loop.clock(), finished=well, failure=self.record.failure
        )
        self._state_said = {**state, **round_facts.asked(self.plan, self.ending, self._around.asked())}
        return self._state_said

    def _circumstances(self) -> judge.Circumstances:
        assert self.ending
        return judge.Circumstances(
            memory=memory.UNKNOWN if self._work else self._killed.since(self.nodes.wall),
            explain=self._launchers.explained, told=self._told,
            tail_of_rank=self.logs.tail_of, wall=self.nodes.wall, stop=self._around.asked(), daemons=self.children.daemons,
        )  # fmt: skip

    def _report(self, verdict: Verdict, own: Collection[str]) -> None:
        """own: notes about this node alone."""
        if self._work:
            self._work.close()
        culprit = verdict.culprit
        rank = culprit.rank if culprit and culprit.node == self.plan.job.node_index else None
        most = blame.LINES if rank is None or self.logs.hides(rank) else teardown.AGAIN
        if not teardown.shows_all(self.plan, verdict, self.nodes.lost, self.nodes.judged):
            most = 0
        self.logs.unfold(self._shown_of_victims(verdict, rank))
        self.logs.end()
        if self.nodes.again:
            teardown.report_round(verdict, self.nodes.again.next.get("restart", {}), self.record, self.say, most)
            return
        teardown.report(self.plan, verdict, self.record, self.say, self._began, most, own)
        self._around.terminal.flush_own()


def _preload() -> None:
    """Import what a failure needs while the ranks load, so that no import stands between the end of a rank and the verdict. What cannot be
    imported now is tried again when it is needed."""
    try:
        from ranklaunch import catalogue
        from ranklaunch.diagnose import stopped, suspects
        from ranklaunch.ends import collect
        from ranklaunch.evidence import collection
        from ranklaunch.processes import orphans, wrappers
        from ranklaunch.redact import output_text
        from ranklaunch.supervise import diagnosis
        from ranklaunch.system import bounded
        from ranklaunch.verdict import avoid, endings, reasons
    except (OSError, ImportError, MemoryError):
        return
    del avoid, bounded, collect, collection, diagnosis, endings, orphans, output_text, reasons, stopped, suspects, wrappers
    catalogue.find("RuntimeError: no failure yet\n")
