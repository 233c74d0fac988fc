"""End of an attempt: ends all processes, makes the verdict with the other nodes, and reports on the console and in the record."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ranklaunch import showing
from ranklaunch.ends import collect
from ranklaunch.ends.model import NodeEnds, as_json
from ranklaunch.fields import as_dict
from ranklaunch.plan.model import Plan
from ranklaunch.processes.orphans import Leftovers, remove_sessions
from ranklaunch.supervise.ending import Circumstances, judgement, verdict_of
from ranklaunch.supervise.record import made_since
from ranklaunch.system import disk, memory, tree
from ranklaunch.system.signals import STOPPING
from ranklaunch.verdict import blame, folders
from ranklaunch.verdict.model import Culprit, Ending, Verdict

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt
    from ranklaunch.verdict.blame import Judgement, Suspect

EXCEPTIONS = "exception-"  # prefix of an exception record's name
MOST_NAMES = 4096  # file names read in the folder of records
AGAIN = 12  # last lines of a culprit whose output the console has shown already
OWN_WORDS_S = 2.0  # after the begin of the stop: ranks that were about to exit by themselves may still print the reason
ASKED_S = 0.25  # for a stop request to arrive here, after a rank has died of its signal


class Teardown:
    """End of one attempt, from its ending to its verdict."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._leftovers: Leftovers | None = None
        self._suspects: Sequence[Suspect] = ()  # of this node
        self._state_sent: Mapping[str, Any] = {}

    def end(self) -> Verdict:
        """Stop all processes, then report, record and return the verdict."""
        attempt = self._attempt
        self._stop()
        ending = self._ending
        self._wait_for_stop_request()
        circumstances = self._circumstances()
        needed = ending.outcome != "succeeded" or self._has_exceptions()
        node = self._node_ends(circumstances) if needed else None
        agreed = self._agree(circumstances, node)
        unsignalled = tuple(_unsignalled(attempt.stopper.stuck))
        of_success = self._notes_of_success(node) if agreed.outcome == "succeeded" else ()
        judged = replace(agreed, notes=(*agreed.notes, *of_success, *attempt.plan.noted, *unsignalled))
        bare = verdict_of(attempt.plan, judged, ending, attempt.children.ended, circumstances, attempt.began)
        verdict = replace(bare, more=self._more(agreed))
        self._report(verdict, unsignalled)
        self._keep_ends(node or self._node_ends(circumstances))
        return verdict

    def has_records(self) -> bool:
        """Return True if a process of this node wrote a record of itself."""
        return bool(disk.names(self._records, 1))

    def _has_exceptions(self) -> bool:
        """Return True if a process of this node recorded an exception."""
        return any(name.startswith(EXCEPTIONS) for name in disk.names(self._records, MOST_NAMES))

    @property
    def _records(self) -> str:
        return folders.records(self._attempt.record.folder, self._attempt.plan.job.node_index)

    @property
    def _ending(self) -> Ending:
        assert self._attempt.ending is not None
        return self._attempt.ending

    # Processes

    def _stop(self) -> None:
        """End all processes, after any kind of ending; then read the pipes to their end."""
        attempt = self._attempt
        while attempt.companions.hold_the_stop:
            attempt.loop.step()
        if self._ending.outcome == "succeeded":
            attempt.around.teller().all_done()
            if tree.has_children():
                self._leftovers = Leftovers(attempt.children, attempt.loop, attempt.say, attempt.plan.limits.grace_s)
        attempt.stopper.begin(signal.SIGTERM)
        attempt.loop.after(OWN_WORDS_S, self._remember)
        attempt.loop.run_until(attempt.stopper.done)
        attempt.stopper.finish()
        if attempt.stopper.backlog and attempt.stopper.backlog.found:
            attempt.children.take_filtered_output()
        for process in attempt.stopper.stuck:
            if process not in tree.refused:  # notes of the verdict name the refused ones
                attempt.logs.say_at_end(
                    f"process {process.pid} does not end even after SIGKILL: it is stuck in the kernel (a dead mount, a device)"
                )
        if any(child.process.sessions for child in attempt.children.ended):
            remove_sessions(attempt.children)
        attempt.logs.finish()
        attempt.companions.stopped()

    def _remember(self) -> None:
        """Freeze the output tails of running ranks: later output is a consequence of the stop."""
        self._attempt.children.remember()
        self._attempt.logs.remember()

    def _wait_for_stop_request(self) -> None:
        """Wait for a stop request after a rank died of such a signal: Slurm signals all processes of a job, and the ranks may get
        the signal first."""
        attempt = self._attempt
        if any(end.signal in STOPPING and end.signal not in end.told for end in (child.ended for child in attempt.children.ended)):
            attempt.loop.run_until(attempt.around.asked, attempt.loop.clock() + ASKED_S)

    # Verdict

    def _circumstances(self) -> Circumstances:
        attempt = self._attempt
        return Circumstances(
            memory=memory.UNKNOWN if attempt.work else attempt.killed.since(attempt.nodes.wall),
            explain=attempt.launchers.explained, told=attempt.start.told,
            tail_of_rank=attempt.logs.tail_of, wall=attempt.nodes.wall, stop=attempt.around.asked(), daemons=attempt.children.daemons,
        )  # fmt: skip

    def _node_ends(self, circumstances: Circumstances) -> NodeEnds | None:
        """Return the ends of all processes of this node, with their records; None if these cannot be read."""
        attempt = self._attempt
        failing = [child.identity.pid for child in attempt.children.ended if child.failing]
        try:
            node = collect.of_node(attempt.plan, self._ending, attempt.children.ended, circumstances, failing)
            return collect.of_records(node, self._records, circumstances.wall)
        except (OSError, MemoryError):  # no descriptor or memory left
            return None

    def _agree(self, circumstances: Circumstances, node: NodeEnds | None) -> Judgement:
        """Return the judgement of node 0, or this node's own if there is none."""
        attempt, ending = self._attempt, self._ending
        attempt.finishes += () if attempt.success else attempt.children.finished(attempt.plan.job.node_index, attempt.nodes.wall)
        child = attempt.children.of_pid(ending.pid)
        if ending.outcome == "succeeded":
            own = judgement(ending, (), attempt.finishes, (), circumstances, child)
            return attempt.nodes.agree(own, (), attempt.finishes, (), ending, dict)
        suspects = self._suspects = attempt.running.suspects(node)
        notes = attempt.running.notes_of_failure(node, suspects)
        own = judgement(ending, suspects, attempt.finishes, notes, circumstances, child)
        agreed = attempt.nodes.agree(own, suspects, attempt.finishes, notes, ending, self._state)
        return attempt.running.alone(own, self._state(), circumstances) if agreed is own else agreed

    def _state(self) -> Mapping[str, Any]:
        """Return the state of this node for the decision about another round; {} without rounds."""
        self._state_sent = self._attempt.running.round_state() if self._attempt.plan.rounds else {}
        return self._state_sent

    def _notes_of_success(self, node: NodeEnds | None) -> Iterator[str]:
        yield from self._attempt.launchers.notes
        yield from self._attempt.notes
        yield from self._leftovers.notes if self._leftovers else ()
        yield from self._attempt.running.exceptions(node) if node else ()

    def _more(self, judgement: Judgement) -> dict[str, Any]:
        """Return the keys of verdict.json besides the judgement: facts of companions, ends of earlier rounds, the host to avoid."""
        facts, restarts = self._attempt.companions.facts(), self._attempt.start.after.restarts
        host = self._attempt.running.host_to_avoid(judgement, facts) if judgement.outcome != "succeeded" else None
        return {
            **facts,
            **({"restarts": [dict(restart) for restart in restarts]} if restarts else {}),
            **({"suspect_host": as_dict(host)} if host else {}),
        }

    # Report

    def _report(self, verdict: Verdict, local_notes: Collection[str]) -> None:
        attempt, judgement = self._attempt, verdict.judgement
        culprit = judgement.culprit
        if attempt.work:
            attempt.work.close()
        rank = culprit.rank if culprit and culprit.node == attempt.plan.job.node_index else None
        most = blame.LINES if rank is None or attempt.logs.hides(rank) else AGAIN
        if not shows_all(attempt.plan, culprit, attempt.nodes.lost, attempt.nodes.judged):
            most = 0
        attempt.logs.unfold(self._ranks_to_unfold(judgement, rank))
        attempt.logs.end()
        self._say_last_words(culprit, most)
        if attempt.nodes.again:
            self._report_round(verdict, attempt.nodes.again.next.get("restart", {}))
        else:
            self._report_end(verdict, most, local_notes)
            attempt.around.terminal.flush_own()

    def _ranks_to_unfold(self, judgement: Judgement, culprit: int | None) -> Collection[int] | None:
        """Return the ranks of this node whose folded lines are shown after all: ranks that failed before their signal.

        None stands for all ranks, after a stop request. culprit: rank whose last lines are shown anyway.
        """
        if judgement.outcome == "stopped":
            return None
        signalled_at = self._attempt.nodes.wall(self._attempt.victims_from)
        failed = [each for each in self._suspects if each.at < signalled_at and not (each.late or each.is_consequence)]
        culprits = [each.culprit for each in failed if each.culprit and each.culprit.node == self._attempt.plan.job.node_index]
        return {each.rank for each in culprits if each.rank is not None} - {culprit}

    def _say_last_words(self, culprit: Culprit | None, most: int) -> None:
        """Show the last lines of the culprit. most: lines, 0 for none; a longer traceback keeps its beginning."""
        text, lines = blame.last_words(culprit) if culprit and most else ("", ())
        shown = self._attempt.running.excerpt(lines, most) if len(lines) > most else lines
        if text:
            self._attempt.say(text, [line.encode(errors="backslashreplace") for line in shown])

    def _report_round(self, verdict: Verdict, restart: Mapping[str, Any]) -> None:
        """Report a round before another one. restart: entry of this round in the verdict of the job's end."""
        record, say, judgement = self._attempt.record, self._attempt.say, verdict.judgement
        record.event("end", outcome=judgement.outcome, exit_code=judgement.exit_code)
        if not record.of_round(verdict, restart):
            say(f"{record.folder}/{folders.ROUND} could not be written")
        say(f"{_outcome(judgement)}; {restart.get('decision', 'starting all ranks again')}")

    def _report_end(self, verdict: Verdict, most: int, local_notes: Collection[str]) -> None:
        """Report the end: as a block for a failure whose `most` last lines were shown, else as one line and notes.

        local_notes: notes about this node, for a node that does not show the whole verdict.
        """
        record, say, judgement = self._attempt.record, self._attempt.say, verdict.judgement
        succeeded = judgement.outcome == "succeeded"
        if succeeded:
            self._show_files()
        record.event("end", outcome=judgement.outcome, exit_code=judgement.exit_code)
        path = record.verdict(verdict)
        notes = (*blame.advice(judgement.culprit), *judgement.notes) if most or succeeded else local_notes
        is_block = most > 0 and not succeeded
        where = f", verdict {path or '(could not be written)'}" if is_block or not path else ""
        logs = showing.printable(f"logs {record.folder}{where}")
        report = f"next: ranklaunch report {showing.printable(shlex.quote(self._attempt.plan.job.log_dir))}"
        failed = judgement.outcome == "failed"
        block = (_outcome(judgement), *notes, logs, *((report,) if failed else ()))
        for text in block if is_block else (f"{_outcome(judgement)}; {logs}", *notes):
            say(text)

    def _show_files(self) -> None:
        """Show the result files that the job has made (Plan.shows)."""
        for path in self._attempt.plan.shows:
            made = made_since(path, self._attempt.began_at)
            if made is not None:
                self._attempt.say(f"{path}:", made)

    def _keep_ends(self, node: NodeEnds | None) -> None:
        """Write ends.json. An error here does not change the end of the job."""
        if not node:
            return
        nodes = self._attempt.nodes
        try:
            job = replace(node.job, run=nodes.run_id)
            self._attempt.record.ends(as_json(replace(node, job=job, state=dict(self._state_sent), lost=tuple(nodes.lost))))
        except (OSError, MemoryError):  # no descriptor or memory left
            pass
        except Exception as error:
            self._attempt.say(f"a defect in ranklaunch; please report it: ends.json could not be made: {type(error).__name__}: {error}")


def shows_all(plan: Plan, culprit: Culprit | None, lost: Iterable[Suspect], agreed: bool) -> bool:
    """Return True if the console of this node shows the whole verdict. Other nodes show one line.

    The whole verdict is shown on the culprit's node, or on node 0 if there is no culprit or its node is lost. lost: nodes without
    a report. agreed: True if node 0 judged; else each node shows its own judgement.
    """
    job = plan.job
    if any(process.node is not None for process in plan.processes):  # a simulated node has shown the verdict already
        return False
    where = culprit.node if culprit else 0
    where = 0 if where in {suspect.node for suspect in lost} else where
    return len(job.everyone) == 1 or where == job.node_index or not agreed


def _unsignalled(stuck: Iterable[tree.Identity]) -> Iterator[str]:
    """Yield a note for each process that could not be signalled, because it now belongs to another user."""
    for process in stuck:
        if process in tree.refused:
            yield f"{tree.refused[process]} could not be signalled: it may be left running"


def _outcome(judgement: Judgement) -> str:
    """Return an end as one line, with the line of the user's code in which the culprit raised its exception."""
    raised = next((each.of for each in judgement.because if each.of.file), None)
    place = f" ({showing.printable(os.path.basename(raised.file))}:{raised.line})" if raised else ""
    return f"{judgement.outcome} with exit code {judgement.exit_code}: {judgement.reason}{place}"
