"""Check of a program that ended with 0, before this counts as the success of its node.

Ranks that the program left at work are waited for, and their exit codes count. A launcher's failure that the shell hid
is the failure of the job. docs/supervision.md has a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ranklaunch import errors
from ranklaunch.adapters.launchers.shared.starters import file_of
from ranklaunch.ends import exceptions
from ranklaunch.ends.model import Record
from ranklaunch.env.features import PROGRAM, WAIT
from ranklaunch.env.job import SHELLS
from ranklaunch.errors import ConfigError, WaitError
from ranklaunch.placement import rules, success
from ranklaunch.placement.model import Head, Key
from ranklaunch.plan.model import PROGRAM as EACH
from ranklaunch.processes.advice import Advice
from ranklaunch.processes.orphans import command_of, groups
from ranklaunch.processes.rank_heads import Placed, job_of
from ranklaunch.supervise.ending import failed
from ranklaunch.system import tree
from ranklaunch.system.signals import code_of
from ranklaunch.verdict import blame, folders
from ranklaunch.verdict.model import Culprit, Ending, Judgement

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt

LOOK_S = 0.2  # between looks at ranks left at work
BEGINS_S = 5.0  # for a Python process to record its start
SHOWN = 8  # processes in a message


class ProgramEnd:
    """Decision about a program that ended with 0."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._plan = attempt.plan
        self._placed = Placed(folders.records(attempt.record.folder, attempt.plan.job.node_index), attempt.plan)
        self._advice = Advice(attempt.plan, attempt.children.env)
        self._at_work: list[Key] = []
        self._alive_at = self._ended_at = 0.0
        self._sign: object = None

    def complete(self, go_on: Callable[[], None]) -> None:
        """Call go_on once the work is done; fail the job if the work is unfinished."""
        if self._attempt.ending:
            return
        ranks = self._working() or self._beginning()
        if not ranks and self._may_begin():
            self._attempt.loop.after(LOOK_S / 4, self.complete, go_on)
            return
        if not ranks:
            self._judge(go_on)
            return
        first = not self._at_work
        self._at_work += [process for process in ranks if process not in self._at_work]
        if self._plan.trust.left_ranks != WAIT:
            self._attempt.notes.append(f"{self._program} left ranks at work, which were ended: {self._shown(ranks)}")
            go_on()
        elif first:
            self._attempt.say(f"{self._program} ended with 0 and left ranks at work: {self._shown(ranks)}; waiting for them to end")
            self._wait(go_on)
        else:
            self._wait(go_on)

    def _wait(self, go_on: Callable[[], None]) -> None:
        now, sign = self._attempt.loop.clock(), self._sign_of_life()
        if sign != self._sign:
            self._sign, self._alive_at = sign, now
        silent_s = self._plan.trust.silent_s
        if now - self._alive_at > silent_s:
            what = self._shown(self._working())
            reason = f"ranks that {self._program} left at work gave no sign of life for {silent_s:g} s (RANKLAUNCH_END_TIMEOUT_S): {what}"
            self._attempt.fail(failed(WaitError.exit_code, reason))
        else:
            self._attempt.loop.after(LOOK_S, self.complete, go_on)

    def _may_begin(self) -> bool:
        """Return True if orphans of the program may be ranks whose Python has not started yet."""
        self._ended_at = self._ended_at or self._attempt.loop.clock()
        soon = self._attempt.loop.clock() - self._ended_at < BEGINS_S
        if not soon or self._at_work or not tree.has_children():
            return False
        return any(map(self._placed.may_be_head, groups(self._attempt.children.running).orphans))

    def _beginning(self) -> list[Key]:
        """Return orphaned shells that have not started a launcher yet, if commands of the program start ranks."""
        started = self._placed.node(self._attempt.children.ended).heads or self._placed.living()
        if started or not self._advice.starts or not tree.has_children():
            return []
        orphans = groups(self._attempt.children.running).orphans
        return [process for process in orphans if (entry := tree.entry(process.pid)) and entry.name in tree.SHELLS]

    def _working(self) -> list[Key]:
        self._placed.look()
        return success.left(self._placed.node(self._attempt.children.ended), self._placed.living())

    def _sign_of_life(self) -> object:
        processes = [process for root, _ in self._at_work for process in (tree.Identity(root, 0), *tree.descendants(root))]
        entries = [tree.entry(process.pid) for process in processes]
        outputs = sum(output.taken for output in self._attempt.logs.by_rank.values())
        return len(entries), sum(entry.ticks for entry in entries if entry), outputs

    # Judging

    def _judge(self, go_on: Callable[[], None]) -> None:
        trusted = self._plan.trust.exit == PROGRAM
        failure = self._failure_at_work() or self._hidden_failure(trusted=trusted) or self._alone()
        if failure and trusted:
            self._attempt.notes.append(f"{failure.judgement.reason} (RANKLAUNCH_EXIT={PROGRAM})")
        if failure and not trusted:
            self._attempt.finishes.clear()  # the exit code 0 of the program
            self._attempt.fail(failure)
        else:
            go_on()

    def _failure_at_work(self) -> Ending | None:
        """Return the first failure of a rank that the program left at work."""
        node = self._placed.node(self._attempt.children.ended)
        for process in self._at_work:
            status = self._attempt.children.adopted.get(process[0])
            code = code_of(status) if status is not None else node.codes.get(process, 0)
            if code:
                head = next((each for each in node.heads if process in (each.process, each.top)), None)
                what = f"rank {head.rank}" if head and head.rank is not None else f"process {process[0]}"
                reason = f"{what}, which {self._program} left at work, failed with exit code {code}"
                return self._ending(code, reason, head)
        return None

    def _hidden_failure(self, *, trusted: bool) -> Ending | None:
        """Return the failure of the last launcher, unless the program handles failures: then add a note. trusted: True if the program's
        exit code decides."""
        node = self._placed.node(self._attempt.children.ended)
        hidden, before = success.hidden(node), success.earlier(node)
        if before:
            self._attempt.notes.append(
                f"an earlier {before.name} of {self._program} failed with exit code {before.code}; a later one succeeded"
            )
        if not hidden:
            return None
        name, code = hidden.launcher.name, hidden.launcher.code or 1
        starts = self._advice.starts
        if not trusted and (not starts or any(start.judged for start in starts)):
            why = "handles failures itself" if starts else "is not a script that could be checked"
            self._attempt.notes.append(f"{name} failed with exit code {code}, and {self._program} ended with 0: it {why}")
            return None
        if any(start.piped for start in starts):
            how = "set -o pipefail at its top passes it on"
        elif any(start.background for start in starts):
            how = "wait with the pid of the command passes it on"
        else:
            how = "set -e at its top passes it on"
        first = min(hidden.ranks, key=self._failed_at, default=None)
        return self._ending(code, f"{name} failed with exit code {code}; {self._program} hid that and ended with 0 ({how})", first)

    def _failed_at(self, head: Head) -> float:
        """Return the time at which a rank recorded its exception or its exit, monotonic seconds."""
        return min((record.monotonic for record in self._placed.ends(head.process)), default=float("inf"))

    def _alone(self) -> Ending | None:
        """Return the failure of a job of several nodes whose ranks on this node worked alone."""
        plan, node = job_of(self._plan), self._placed.node(self._attempt.children.ended)
        lone = rules.alone(node, plan) if self._plan.runs == EACH and not self._plan.trust.each_node_alone else None
        if not lone or rules.is_whole(node, plan):
            return None
        return failed(ConfigError.exit_code, self._advice.alone(lone))

    def _ending(self, code: int, reason: str, head: Head | None) -> Ending:
        record = next((each for each in (self._placed.ends(head.process) if head else ()) if each.chain), None)
        line = exceptions.shown(exceptions.line_of(record.chain)) if record else ""
        job = self._plan.job
        rank = head.rank if head else None
        culprit = Culprit(
            job.node_index, rank, head.process[0] if head else None, code, None, out_of_memory=False, last_lines=(line,) if line else (),
            name=f"rank {rank}" if rank is not None else self._program, host=job.node.host,
            time=blame.iso(self._time_of(record)),
        )  # fmt: skip
        shown = f"{reason}: rank {rank} raised {line}" if line and rank is not None else f"{reason}: {line}" if line else reason
        return Ending(Judgement("failed", code, shown, culprit))

    def _time_of(self, record: Record | None) -> float:
        return record.at if record else self._attempt.nodes.wall(self._attempt.loop.clock())

    # Texts

    @property
    def _program(self) -> str:
        program = self._plan.job.program
        script = file_of(program.args)[:1] if program.name in SHELLS else ()
        return errors.reason("".join(script).rpartition("/")[2] or program.name) or "the program"

    def _shown(self, processes: Sequence[Key]) -> str:
        shown = [f"{pid} ({command_of(pid)})" for pid, _ in processes[:SHOWN]]
        return ", ".join(shown) + (f" and {len(processes) - SHOWN} more" if len(processes) > SHOWN else "")
