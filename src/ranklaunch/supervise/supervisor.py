"""The heart: executes a plan in phases on one loop, decides by the first failure, ends everything, and reports.

Phases: join, wait, write files, prepare, muster, launch, watch. Whatever happens first in any of them (a failure, a stop request, an
error of our own, another node's failure, success of the whole job) becomes the ending; nothing that follows changes it. What the job
died of is then said by node 0 for all nodes, once all have stopped.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ranklaunch.errors import DEFECT, ConfigError, RanklaunchError, WaitError
from ranklaunch.files import Files
from ranklaunch.plan.model import File, Plan, Process, Wait, as_json
from ranklaunch.read.reader import Arrived
from ranklaunch.supervise import judge
from ranklaunch.supervise.judge import Ending, Explain, Told
from ranklaunch.supervise.nodes import Nodes
from ranklaunch.supervise.output.logs import Logs
from ranklaunch.supervise.ranks.child import Child, Children, lift_limit, require_program
from ranklaunch.supervise.ranks.launchers import Launchers
from ranklaunch.supervise.record import Record, copied, made_since, make_private, now, offered, write_file
from ranklaunch.supervise.stop import Stopper
from ranklaunch.system import memory, tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import PASSED_ON, STOPPING, Signals, name_of
from ranklaunch.values import replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Failure, Verdict

if TYPE_CHECKING:
    from ranklaunch.supervise.waits.waiting import Condition

OWN_WORDS_S = 2.0  # after the end has begun, for those who were on their way out by themselves to say why
ASKED_S = 0.25  # for a stop request to come, after a rank has died of such a signal


class Supervisor:
    """Runs one plan. replan: makes it anew once a wait has brought facts, from what is known by then. guard: fd
    that becomes readable when the outer process dies, or -1. explain: what a launcher's output says of the rank that failed first."""

    def __init__(
        self,
        plan: Plan,
        *,
        env: Mapping[str, str],
        files: Files,
        signals: Signals,
        record: Record,
        guard: int = -1,
        replan: Callable[[Arrived], Plan] | None = None,
        explain: Explain = lambda process, tail: None,
        told: Told = lambda process: None,
    ) -> None:
        self.plan = plan
        self.ending: Ending | None = None
        self._files = files
        self._signals = signals
        self._record = record
        self._replan = replan
        self._explain = explain
        self._told = told
        self._started = now()
        self._began = time.time()
        self._memory_before = memory.look()
        self._known = Arrived()
        self._private = ""  # the folder of that name that this run has made
        self._waited: set[tuple[str, str]] = set()
        self._finishes: list[Finish] = []
        self._finished = False  # this node's ranks have succeeded
        self._asked: tuple[int, float] | None = None
        self._loop = Loop()
        self._logs = Logs(self._loop, record)
        self._say = self._logs.say
        self._children = Children(self, env, signals, self._loop, self._logs)
        self._stopper = Stopper(self._loop, plan.limits.grace_s, self._leaders, self._say, self._helpers)
        self._nodes = Nodes(plan, env, self._loop, self._say, self)
        self._launchers = Launchers(self, self._children.running, self._loop, record, self._nodes)
        self._loop.on_readable(signals.fd, self._take_signals)
        if guard >= 0:
            self._loop.on_readable(guard, lambda: self._on_guard(guard))

    def run(self) -> Verdict:
        try:
            before = (self._join, self._check, self._wait, self._gather, self._write_files, self._prepare)
            for phase in (*before, self._muster, self._wait, self._launch, self._watch):
                self._take_signals()
                if self.ending:
                    break
                phase()
        except RanklaunchError as error:
            self._end(Ending("failed", error.exit_code, str(error)))
        except OSError as error:  # no process, memory or descriptor left, a full disk
            self._end(Ending("failed", WaitError.exit_code, f"the system refuses, trying again may help: {error}"))
        except Exception as error:  # ours; the ranks must end in good order all the same
            import traceback

            self._say(f"a defect in ranklaunch; please report it with this:\n{traceback.format_exc()}")
            self._end(Ending("failed", DEFECT, f"a defect in ranklaunch: {type(error).__name__}: {error}"))
        self._stop()
        assert self.ending is not None
        self._hear_of_stop()
        evidence = self._evidence()
        verdict = judge.verdict(self.plan, self._agree(evidence), self.ending, self._children.ended, evidence, self._started)
        self._report(verdict)
        self._nodes.finish()
        if self._private:
            import shutil  # large

            shutil.rmtree(self._private, ignore_errors=True)
        return verdict

    # Phases

    def _join(self) -> None:
        """The way to the other nodes is opened first: what goes wrong from here on is told to all of them."""
        self._nodes.join()

    def _check(self) -> None:
        """What would fail after the waits fails before them, unless a preparing step may still bring it."""
        if not self.plan.prepare:
            self._require()

    def _require(self) -> None:
        require_program(self.plan)
        self._children.require((*self.plan.services, *self.plan.processes))

    def _wait(self) -> None:
        """For what must be there before the muster; after it, for the rest but ports, which come once the services have started."""
        for wait in iter(self._next_wait, None):
            self._waited.add((wait.kind, wait.what))
            self._nodes.busy(f"waiting for {wait.kind} {wait.what}")
            if wait.kind == "hosts":
                self._wait_for_hosts(wait)
            else:
                self._wait_for_file(wait)

    def _next_wait(self) -> Wait | None:
        wait = next((wait for wait in self.plan.waits if (wait.kind, wait.what) not in self._waited), None)
        return wait if wait and wait.kind not in ("muster", "port") and not self.ending else None

    def _wait_for_hosts(self, wait: Wait) -> None:
        from ranklaunch.supervise.waits.waiting import HostsResolve  # sockets and threads, which most starts do not need

        names = HostsResolve(wait.what.split(","), self._loop)
        self._wait_for(wait, names)
        self._known = replace(self._known, addresses={**self._known.addresses, **names.addresses})
        if self.plan.by_address:
            self.plan = self._anew()
            if any(kind == "muster" for kind, _ in self._waited):  # before it nothing has been written yet
                self._write(self.plan.files)

    def _wait_for_file(self, wait: Wait) -> None:
        from ranklaunch.supervise.waits.waiting import Planned

        planned = Planned(wait, self._files, self._loop, self._anew)
        self._wait_for(wait, planned)
        self.plan = planned.plan or self.plan

    def _wait_for(self, wait: Wait, condition: Condition) -> None:
        from ranklaunch.supervise.waits.waiting import perform

        self._record.event("wait", kind=wait.kind, what=wait.what, timeout_s=wait.timeout_s)
        seconds = perform(wait, condition, self._loop, self._say, lambda: self.ending is not None)
        self._record.event("waited", kind=wait.kind, what=wait.what, seconds=round(seconds, 3))

    def _anew(self) -> Plan:
        """The plan, by what is known now."""
        return self._replan(self._known) if self._replan else self.plan

    def _gather(self) -> None:
        """Steps that bring facts, and the plan that follows from them."""
        if not self.plan.gather:
            return
        self._write(self.plan.files)
        self._run_steps(self.plan.gather)
        if self.ending:
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
            make_private(self.plan.private)
            self._private = self.plan.private
        self._write(self.plan.files)

    def _write(self, files: tuple[File, ...]) -> None:
        for file in files:
            write_file(file.path, copied(file.source) if file.source else file.text, int(file.mode, 8))
            self._record.event("file", path=file.path)

    def _prepare(self) -> None:
        self._run_steps(self.plan.prepare)

    def _run_steps(self, steps: tuple[Process, ...]) -> None:
        for step in steps:
            self._nodes.busy(step.name)
            self._children.start((step,))
            self._loop.run_until(lambda: self.ending is not None or not self._children.running)
            if self.ending:
                return

    def _muster(self) -> None:
        """Until every node is here, agrees and is released. A preparing step may have changed what is compared, and made what the
        nodes have for each other."""
        if not self.plan.muster:
            return
        plan = self._anew() if self.plan.prepare else self.plan
        assert plan.muster
        what = next(wait.what for wait in self.plan.waits if wait.kind == "muster")
        self._record.event("wait", kind="muster", what=what, timeout_s=plan.muster.timeout_s)
        self._waited.add(("muster", what))
        offers = {name: offered(path) for name, path in self.plan.offers.items()}
        seconds = self._nodes.muster(replace(self.plan, muster=plan.muster), offers, lambda: self.ending is not None)
        self._record.event("waited", kind="muster", what=what, seconds=round(seconds, 3))
        if offers and not self.ending:
            self._known = replace(self._known, shared=self._nodes.shared)
            self.plan = self._anew()
            self._write(self.plan.files)

    def _launch(self) -> None:
        """Services first: what the processes need of them, on this node and the others, is waited for."""
        self._require()
        if self.plan.outputs:
            lift_limit(len(self.plan.outputs.logs))
        if self.plan.outputs and self.plan.outputs.folder:
            self._logs.follow(self.plan.outputs, self._launchers.expect_ranks)
        self._children.start(self.plan.services)
        for wait in self.plan.waits:
            if wait.kind == "port" and not self.ending:
                from ranklaunch.supervise.waits.banners import Banners

                self._wait_for(wait, Banners(wait.what.split(","), self._loop))
        if not self.ending:
            self._children.start(self.plan.processes, self.plan.outputs)

    def _watch(self) -> None:
        self._loop.run_until(lambda: self.ending is not None)

    def _stop(self) -> None:
        """Ends what is left, however it came to the end; then takes what is left in the pipes."""
        self._stopper.begin(signal.SIGTERM)
        self._loop.run_until(self._stopper.done)
        self._stopper.finish()
        for process in self._stopper.stuck:
            text = f"process {process.pid} does not end even by SIGKILL: it is stuck in the kernel (a dead mount, a device?)"
            self._logs.say_at_end(text)
        self._logs.finish()

    def _hear_of_stop(self) -> None:
        """Who signals all processes of a job, as Slurm does, may reach the ranks before it reaches this one."""
        if any(child.signal in STOPPING and child.signal not in child.signalled for child in self._children.ended):
            self._loop.run_until(lambda: self._asked is not None, self._loop.clock() + ASKED_S)

    # What happens

    def _take_signals(self) -> None:
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                self._children.reap()
            elif number in PASSED_ON:
                for target in self._ranks():
                    tree.send(target, number)
            else:
                self._on_stop_request(number)

    def _on_stop_request(self, number: int) -> None:
        name = name_of(number)
        self._record.event("signal", signal=name)
        self._logs.hurry(self.plan.limits.grace_s)
        self._asked = self._asked or (number, self._loop.clock())
        if self.ending is None and self._finished and self._nodes.may_leave:
            self._nodes.leave()
            self._end(
                Ending("succeeded", 0, f"{judge.everything(self.plan)} succeeded; {name} came while the other nodes were still running")
            )
        elif self.ending is None:
            self._say(f"{name}: stopping, at most {self.plan.limits.grace_s:g} s")
            self._end(Ending("stopped", 128 + number, judge.stopped_by(number)))
            self._stopper.begin(number)
        elif number == signal.SIGINT:
            self._nodes.hurry()
            self._say("SIGINT again: ending everything now")
            self._stopper.kill_all()

    def _on_guard(self, guard: int) -> None:
        """The outer process was killed: nobody is left to be told, so everything ends at once."""
        self._loop.forget(guard)
        self._end(Ending("failed", 128 + signal.SIGKILL, "ranklaunch itself was killed by SIGKILL", killed=True))
        self._stopper.begin(signal.SIGKILL)
        self._stopper.kill_all()

    def on_start(self, child: Child) -> None:
        self._launchers.watch(child)
        self._record.event("spawn", name=child.process.name, rank=child.process.rank, pid=child.identity.pid)

    def on_output(self, child: Child) -> None:
        self._launchers.on_output(child)

    def on_exit(self, child: Child) -> None:
        self._launchers.on_exit(child)
        self._record.event(
            "exit", name=child.process.name, rank=child.process.rank, pid=child.identity.pid, exit_code=child.code,
            signal=name_of(child.signal) if child.signal else None, max_rss_kb=child.max_rss_kb,
        )  # fmt: skip
        self._judge(child)

    def _judge(self, child: Child) -> None:
        """The first failure decides; success needs every process."""
        if not child.code and child.process.rank is not None:
            self._finishes.append(Finish(self.plan.job.node_index, child.process.rank, self._nodes.wall(child.ended_at)))
        if self.ending:
            return
        if child.failure_code:
            self.fail(Ending("failed", child.code_of_job, "", child))
        elif child.announced and child.announced.alive:
            numbers = ", ".join(str(rank.rank) for rank in child.announced.alive)
            reason = f"{child.process.name} ended with 0 while rank {numbers} was still running: what held them was killed, most likely"
            self.fail(Ending("failed", 128 + signal.SIGKILL, reason))
        elif child.process.may_end or child.process in (*self.plan.gather, *self.plan.prepare):
            return
        elif child.process in self.plan.services:
            self.fail(Ending("failed", DEFECT, f"{child.process.name} ended while the ranks needed it"))
        elif not any(other.process in self.plan.processes for other in self._children.running.values()):
            self._succeed()

    def _succeed(self) -> None:
        """This node has; the job has when all have."""
        self._finished = True
        at = self._loop.clock()
        own = Finish(self.plan.job.node_index, None, self._nodes.wall(at))
        if self._nodes.done(own, f"{judge.everything(self.plan)} succeeded"):
            self._finishes = [own]
            self._record.event("done")
        else:
            self._end(Ending("succeeded", 0, f"{judge.everything(self.plan)} succeeded"))

    def _ranks(self) -> list[tree.Identity]:
        """The processes that signals for ranks are meant for."""
        found = []
        for child in self._leaders():
            found += child.ranks() if child.process.ranks_below else [child.identity]
        return found

    def _leaders(self) -> list[Child]:
        return [child for child in self._children.running.values() if child.process not in self.plan.services]

    def _helpers(self) -> list[Child]:
        return [child for child in self._children.running.values() if child.process in self.plan.services]

    @property
    def stopping(self) -> bool:
        return self._stopper.begun

    def carried(self) -> list[tree.Identity]:
        return self._stopper.carried()

    def on_finish(self, finish: Finish) -> None:
        self._finishes.append(finish)

    def fail(self, ending: Ending) -> None:
        """The end of all that runs here."""
        self._end(ending)
        self._stopper.begin(signal.SIGTERM)

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending = replace(ending, at=self._loop.clock())
            if not ending.from_elsewhere and ending.outcome != "succeeded":
                self._nodes.fail(lambda: judge.first_word(self.plan, ending, self._nodes.wall))
            self._logs.let_go()
            self._loop.after(OWN_WORDS_S, self._remember)
            self._record.event("ending", outcome=ending.outcome, by=ending.child.process.name if ending.child else ending.reason)

    def _remember(self) -> None:
        """What those who are still there had written by now: what they write later is about being ended."""
        for child in self._children.running.values():
            if child.reader:
                child.said = child.reader.output.tail
        self._logs.remember()

    # What other nodes say

    def on_released(self, text: str) -> None:
        self._record.event("released", late=text)
        self._say(text)

    def on_stop(self, judgement: Judgement) -> None:
        """Another node has failed. Where a rank of this one has too, its launcher is about to say more."""
        if self.ending is not None or self._launchers.failing:
            return
        self._launchers.look()
        silent_s = self._launchers.silent_s()
        if silent_s:
            self._loop.after(silent_s, lambda: self.on_stop(judgement))
        else:
            self._say(f"stopping, at most {self.plan.limits.grace_s:g} s: {judgement.reason}")
            self._end_by(judgement)

    def on_judged(self, judgement: Judgement) -> None:
        if self.ending is None:
            self._end_by(judgement)

    def on_lost(self, suspect: Suspect) -> None:
        if self.ending is None:
            self._end_by(blame.judge([suspect]))

    def _end_by(self, judgement: Judgement) -> None:
        self._end(Ending(judgement.outcome, judgement.exit_code, judgement.reason, from_elsewhere=True))
        if judgement.outcome != "succeeded":
            self._stopper.begin(signal.SIGTERM)

    # The end

    def _agree(self, evidence: judge.Evidence) -> Judgement:
        """What the job died of: by the word of node 0, who has heard all; by what is known here where there is no such word."""
        assert self.ending
        suspects = judge.suspects(self.plan, self.ending, self._children.ended, evidence)
        seen = judge.notes(self.plan, self.ending)
        own = judge.judgement(self.ending, suspects, self._finishes, seen, evidence)
        return self._nodes.agree(own, suspects, self._finishes, seen, self.ending)

    def _evidence(self) -> judge.Evidence:
        return judge.Evidence(
            memory=memory.look().since(self._memory_before),
            explain=self._explained,
            end_of_rank=lambda child, rank: child.below.failure(rank) if child.below else None,
            told=self._told,
            wall=self._nodes.wall,
            last_lines_of_rank=self._logs.last_lines,
            stop=self._asked,
        )

    def _explained(self, process: Process, tail: str) -> Failure | None:
        """Which rank of a launcher failed first: by its own words, and by what was seen of its ranks."""
        if process not in self.plan.processes:
            return None
        failure = self._explain(process, tail)
        child = next(child for child in self._children.ended if child.process is process)
        return child.below.complete(failure) if child.below and not child.signalled else failure

    def _report(self, verdict: Verdict) -> None:
        self._logs.end()
        if verdict.culprit and verdict.culprit.last_lines:
            lines = [line.encode(errors="backslashreplace") for line in verdict.culprit.last_lines]
            self._say(f"last lines of {blame.name(verdict.culprit)}:", lines)
        for path in self.plan.shows if verdict.outcome == "succeeded" else ():
            made = made_since(path, self._began)
            if made is not None:
                self._say(f"{path}:", made)
        self._record.event("end", outcome=verdict.outcome, exit_code=verdict.exit_code)
        path = self._record.verdict(verdict)
        self._say(f"{verdict.outcome} with exit code {verdict.exit_code}: {verdict.reason}")
        for text in (*_advice(verdict), *verdict.notes):
            self._say(text)
        self._say(f"logs {self._record.folder}, verdict {path or '(could not be written)'}")
        self._logs.flush()


def _advice(verdict: Verdict) -> Iterable[str]:
    error = verdict.culprit.error if verdict.culprit else None
    if error and error.meaning:
        yield f"meaning: {error.meaning}"
        yield f"remedy: {error.remedy} ({error.source})"
