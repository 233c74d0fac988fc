"""The other nodes of the job, as the supervisor of one sees them. Without a muster there are none, and everything here does nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ranklaunch.errors import WaitError
from ranklaunch.muster import EVIDENCE_S
from ranklaunch.plan.model import Plan, everything
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Note

if TYPE_CHECKING:
    from ranklaunch.muster.driver import HubDriver, MemberDriver
    from ranklaunch.muster.events import Again, Decide, Decided

JOIN_S = 10.0  # for a node that has failed before it has reached node 0, to tell it
STRANGE_S = 30.0  # beyond the grace, which an earlier start of the job has to end: for what answers to be node 0
SILENT_S = 15.0  # beyond its own deadline, for node 0 to say that nobody waits any more
VERDICT_S = 3.0  # beyond the grace: for the job's verdict to come
BYE_S = 2.0  # for the nodes to take it
HURRIED_S = 1.0  # for either, where whoever stops the job does not want to wait
LATE_S = 5.0  # after an end before all have met: for those to hear of it who come later
DONE_SAID_S = 2.0
OWN_WORDS_S = 2.0  # after a failure elsewhere: for what outlasts the others, and was on its way out by itself
PROGRESS_S = 30.0


@dataclass(frozen=True)
class OfNodes:
    """Who hears of the other nodes: all are released (who was late, and the seconds that this node waited); another has failed; how the
    job ended; node 0 is lost."""

    released: Callable[[str, float], None]
    stop: Callable[[Judgement], None]
    judged: Callable[[Judgement], None]
    lost: Callable[[Suspect], None]


class Ending(Protocol):
    """What this node ended with. at: monotonic seconds."""

    @property
    def outcome(self) -> str: ...
    @property
    def exit_code(self) -> int: ...
    @property
    def at(self) -> float: ...


class Nodes:
    """decide: whether another round follows a failed one, asked on node 0; None: none does. run_id: the job's, where it is known here."""

    def __init__(
        self, plan: Plan, env: Mapping[str, str], loop: Loop, say: Callable[[str], None], hear: OfNodes,
        decide: Callable[[Decide], Decided] | None = None, run_id: str = "",
    ) -> None:  # fmt: skip
        self.again: Again | None = None  # how all start once more, after this round
        self.run_id = run_id
        self._decide = decide
        self._round = 0  # of one node alone
        self._env = env
        self._loop = loop
        self._say = say
        self._hear = hear
        self._hub: HubDriver | None = None
        self._member: MemberDriver | None = None
        self._begin(plan)
        self._hearing: dict[tuple[str, bool], Callable[[int, Any], object]] = {}

    def begin(self, plan: Plan) -> None:
        """Another round, for which all meet again."""
        self._begin(plan)
        self._round += 1
        if self._hub:
            self._hub.plan(f"{everything(plan, of_job=True)} succeeded")

    def _begin(self, plan: Plan) -> None:
        self._plan = plan
        self._failed = self._released = self._hurry = self._outlasts = False
        self._told: tuple[Suspect, ...] = ()
        self._judgement: Judgement | None = None
        self._order: Judgement | None = None
        self._lost: Suspect | None = None
        self._late_s = min(LATE_S, plan.limits.grace_s)
        self._ready_at = 0.0
        self._finished = ""
        self._timer: Timer | None = None
        self.again = None

    def join(self) -> None:
        """Raises ConfigError where the key cannot be read."""
        muster = self._plan.muster
        if not muster or self._member:
            return
        from ranklaunch.muster import secret, wire  # sockets, which one node does not need
        from ranklaunch.muster.driver import Calls, HubDriver, MemberDriver

        key, attempt = wire.job_key(secret.secret(muster, self._env), self._plan.job.name), self._plan.job.attempt
        if muster.node == 0:
            success = f"{everything(self._plan, of_job=True)} succeeded"
            hear = lambda node, topic, body: self._on_word(node, topic, body, at_node_0=True)  # noqa: E731
            self._hub = HubDriver(
                muster, key, self._loop, self._say, self._plan.limits.grace_s, success, attempt, hear, self._decide, self.run_id
            )  # fmt: skip
            if not muster.secret:
                self._say(f"muster: {secret.guessed(handed=bool(self._plan.offers))}")
        word = lambda topic, body: self._on_word(0, topic, body)  # noqa: E731
        calls = Calls(self._on_released, self._on_stop, self._on_judged, self._on_lost, self._on_dismissed, word, self._on_again)
        self._member = MemberDriver(muster, key, self._loop, self._say, calls, attempt, self._hub)
        self._member.start()

    def busy(self, doing: str) -> None:
        if self._member:
            self._member.busy(doing)

    def muster(self, plan: Plan, offers: Mapping[str, str], stopped: Callable[[], bool]) -> float:
        """Runs the loop until all are released or `stopped` is true; seconds waited. Raises WaitError where node 0 cannot be reached, or
        says nothing any more: the deadline of those who have reached it is its own, which is never later than theirs."""
        assert self._member
        assert plan.muster
        self._plan = plan  # a rank table may have changed the places
        if self._hub:
            self._hub.plan(f"{everything(plan, of_job=True)} succeeded")
        began = since = self._ready_at = self._loop.clock()
        joined = False
        self._member.ready(plan.muster.facts, plan.job.node_index, plan.job.node.host, offers)
        while not self._released and not stopped():
            now = self._loop.clock()
            if joined != self._member.joined:
                joined, since = self._member.joined, now
            left = since + plan.muster.timeout_s + (SILENT_S if joined else 0) - now
            if left <= 0:
                seconds, setting = f"{plan.muster.timeout_s:g}", "--muster-timeout-s (RANKLAUNCH_MUSTER_TIMEOUT_S)"
                msg = f"waited {seconds} s in vain for {self._member.missing or 'node 0'}; {setting} sets how long"
                raise WaitError(msg)
            strange_s = self._member.strange_s(now)
            if strange_s >= STRANGE_S + plan.limits.grace_s:
                waited = f"for {strange_s:.0f} s another ranklaunch has answered in place of {self._member.missing}"
                msg = f"{waited}; of two jobs on one node, one needs another port: --muster-port (RANKLAUNCH_MUSTER_PORT), on every node"
                raise WaitError(msg)
            self._loop.step(min(left, 1.0))
        return self._loop.clock() - began

    def ready_again(self, plan: Plan) -> None:
        """With another rank table than it was ready with, as long as not all have been released."""
        assert self._member
        assert plan.muster
        self._plan = plan
        self._member.ready(plan.muster.facts, plan.job.node_index, plan.job.node.host)

    @property
    def table(self) -> str:
        """The digest of the rank table by which all start, "" where there is none."""
        return self._member.table if self._member else ""

    @property
    def shared(self) -> Mapping[int, Mapping[str, str]]:
        """What the nodes have offered, by node: node 0 knows of all, the others of node 0."""
        if self._hub:
            return self._hub.offers
        return {0: self._member.shared} if self._member else {}

    # Words, from the release to the end. Of one node without a muster they come back to itself, so that nobody needs to ask.

    def hear(self, topic: str, hear: Callable[[int, Any], object], *, at_node_0: bool = False) -> None:
        """hear(node, body): of words of a topic, at the time of any turn of the loop. at_node_0: those that nodes say to node 0; else those
        that node 0 says. A body is whatever its node says: one of wire.NOT_UNDERSTOOD of who hears it is told, and no more."""
        self._hearing[topic, at_node_0] = hear

    def tell_node_0(self, topic: str, body: object) -> None:
        """Raises WireError, TypeError or ValueError where no message can hold it."""
        if self._member:
            self._member.say(topic, body)
        elif not self._plan.muster:
            self._loop.after(0, lambda: self._on_word(0, topic, body, at_node_0=True))

    def tell_nodes(self, topic: str, body: object, nodes: Sequence[int] = ()) -> None:
        """As node 0, to these or to all. Raises as tell_node_0."""
        if self._hub:
            self._hub.say(topic, body, nodes)
        elif not self._plan.muster:
            self._loop.after(0, lambda: self._on_word(0, topic, body))

    def succeeds_with(self, text: str) -> None:
        """As node 0: what is said when all have succeeded."""
        if self._hub:
            self._hub.plan(text)

    def _on_word(self, node: int, topic: str, body: object, *, at_node_0: bool = False) -> None:
        """What nobody hears is of a later version."""
        try:
            hear = self._hearing.get((topic, at_node_0))
            if hear:
                hear(node, body)
        except Exception as error:
            from ranklaunch.muster import wire

            if not isinstance(error, wire.NOT_UNDERSTOOD):
                raise
            self._say(f"muster: what node {node} says of {topic} is not understood: {wire.why(error)}")

    def fail(self, suspect: Callable[[], Suspect]) -> None:
        """The first failure here, told at once."""
        if self._member and not self._failed:
            self._failed = True
            self._told = (suspect(),)
            self._member.fail(*self._told)

    def tell_more(self, suspect: Callable[[], Suspect | None]) -> None:
        """Of the failure that was told, before this node's own end, which may come too late for the job's verdict."""
        more = suspect() if self._member and self._failed else None
        if self._member and more:
            self._told = (more,)
            self._member.fail(more)

    def done(self, finish: Finish, text: str, unseen: int = 0) -> bool:
        """This node's ranks have succeeded, those that were seen. False where nobody is to be waited for."""
        if not self._member or self._member.over:
            return False
        assert self._plan.muster
        self._finished = text
        self._member.done(finish, unseen)
        patience = self._plan.muster.end_timeout_s
        ends = self._loop.clock() + patience
        self._timer = self._loop.after(min(DONE_SAID_S, patience), lambda: self._wait_for_others(ends))
        return True

    def decided(self, *, outlasts: bool = False) -> None:
        """How this node ends: its ranks' success waits for nobody's any more, however long what they left takes to end. outlasts: what it
        runs is there for others until these have ended, so node 0, which knows when that is, has its word before."""
        if self._timer:
            self._timer.cancel()
        if outlasts and self._member and not (self._hub or self._member.over):
            self._outlasts = True
            said = self._told[0].outcome if self._told else self._order.outcome if self._order else ""
            self._loop.after(0 if said == "stopped" else OWN_WORDS_S, self._report_early)

    def _report_early(self) -> None:
        """Nothing of its own has failed: this node may only be ended last."""
        if self._outlasts and self._member and not self._member.over:
            self._member.report(self._told, (), ())

    @property
    def may_leave(self) -> bool:
        """Whether the others can go on without this node: followers have nobody but node 0 to tell them when to end."""
        return not (self._hub and self._plan.muster and self._plan.muster.followers)

    @property
    def others_end(self) -> bool:
        """Whether others are still ending. The other nodes know that where node 0 waits for nothing of theirs: until it judges."""
        if self._hub:
            return self._hub.others_end
        ended = self._judgement or self.again
        return bool(self._outlasts and not ended and self._member and not self._member.over)

    @property
    def judged(self) -> bool:
        """True if node 0 has said how the job ended."""
        return bool(self._judgement or self.again)

    @property
    def lost(self) -> Sequence[Suspect]:
        """Suspects of nodes that never reported: on node 0, of all nodes; on the others, of node 0."""
        return self._hub.hub.lost if self._hub else [self._lost] if self._lost else []

    def leave(self) -> None:
        """Before the others."""
        if self._hub:
            self._hub.dismiss()
        elif self._member:
            self._member.leave()

    def hurry(self) -> None:
        """Waits for nobody any more."""
        self._hurry = True

    def go(self) -> None:
        """Waits for nobody who has not come yet."""
        self._late_s = 0.0

    def wall(self, clock: float) -> float:
        """Monotonic seconds of this node as seconds since 1970, by node 0's clock where it is known."""
        return self._member.wall(clock) if self._member else self._loop.wall(clock)

    def agree(
        self, own: Judgement, suspects: Sequence[Suspect], finishes: Sequence[Finish], seen: Sequence[Note], ending: Ending,
        state: Callable[[], Mapping[str, Any]] = dict,
    ) -> Judgement:  # fmt: skip
        """The job's judgement; this node's own where none comes in time. seen: notes of this node alone. state: for whoever decides whether
        another round follows; `again` says whether one does."""
        member = self._member
        if not member:
            return self._agree_alone(own, state())
        if not (self._judgement or self.again) and not member.over:
            self._outlasts = False
            told = blame.ordered(suspects)[: 1 + blame.MOST_FAILURES]
            # The first alone can decide, so the others' last lines are not needed.
            if not (self._hub or member.joined) and self._patience(ending):
                self._say(f"muster: trying {self._patience(ending):g} s more to tell node 0 of it")
            what = [*told[:1], *map(blame.brief, told[1:])], list(finishes)[: blame.MOST_NOTES], seen[: blame.MOST_NOTES]
            member.report(*what, state())
            self._run(lambda: bool(self._judgement or self.again) or member.over or self._hurry, lambda: ending.at + self._patience(ending))
            if self._hurry and not (self._judgement or self.again or member.over):
                member.report(*what, state())  # that somebody has asked for the stop since
                if self._hub:  # the others are to hear it before this node leaves
                    self._hub.hurry()
                soon = self._loop.clock() + (HURRIED_S if self._hub or self._plan.rounds else 0.0)
                self._run(lambda: bool(self._judgement or self.again) or member.over, lambda: soon)
        if self.again:
            return self.again.judgement
        if self._lost and self._order and not (self._judgement or suspects):
            return self._order  # all were stopping by then
        if self._lost and not self._judgement:
            return blame.judge([*suspects, self._lost], finishes, seen)
        return self._judgement or own

    def _agree_alone(self, own: Judgement, state: Mapping[str, Any]) -> Judgement:
        if not self._decide or self._plan.muster or own.outcome != "failed":
            return own
        from ranklaunch.muster.events import Again, Decide

        decided = self._decide(Decide(own, self._round, bool(state.get("launched")), "", (state,)))
        if decided.again:
            self.again = Again(self._round + 1, decided.judgement, decided.next)
        return decided.judgement

    def finish(self) -> None:
        """Until all have written down how the job ended, and no longer than that takes: some platforms kill the others when the first
        leaves."""
        member, hub = self._member, self._hub
        together = bool(member and self._judgement)
        if member and (together or self._hurry):
            member.leave()
        until = self._loop.clock() + (HURRIED_S if self._hurry else BYE_S)
        if hub:
            self._run(lambda: hub.settled, lambda: until)
            hub.stay(until - BYE_S, self._plan.muster.lost_after_s if self._plan.muster and not self._hurry else 0.0, self._run)
            self._tell_late(hub)
            hub.close()
        elif member:
            self._run(lambda: member.flushed and not (together and member.joined), lambda: until)
        if member:
            member.close()

    def _patience(self, ending: Ending) -> float:
        """Seconds after the ending for which the job's verdict is worth waiting for."""
        assert self._member
        if self._member.joined:
            return self._plan.limits.grace_s + VERDICT_S + (EVIDENCE_S if ending.outcome == "failed" else 0.0)
        if ending.exit_code == WaitError.exit_code:  # it has waited enough
            return 0.0
        return JOIN_S if ending.outcome != "stopped" else 0.0 if self._released else self._late_s

    def _tell_late(self, hub: HubDriver) -> None:
        """Those who come when all is over: whoever stops a job that is about to start may reach some nodes before others are there."""
        if hub.owed and self._late_s and not self._hurry:
            self._say(f"muster: listening {self._late_s:g} s more for nodes that have not come yet, which would wait in vain")
            until = self._loop.clock() + self._late_s
            self._run(lambda: self._hurry or (not hub.owed and hub.settled), lambda: until)

    def _run(self, done: Callable[[], bool], deadline: Callable[[], float]) -> None:
        while not done() and (left := deadline() - self._loop.clock()) > 0:
            self._loop.step(min(left, 0.5))

    def _wait_for_others(self, ends: float) -> None:
        assert self._plan.muster
        left = ends - self._loop.clock()
        if left <= 0 and self._hub:  # without node 0 nobody would watch the others
            self._hub.end_late(self._finished)
            return
        if left <= 0:
            self.leave()
            later = f"{self._plan.muster.end_timeout_s:g} s later (RANKLAUNCH_END_TIMEOUT_S)"
            self._hear.judged(Judgement("succeeded", 0, f"{self._finished}; other nodes were still running {later}"))
            return
        self._say(f"{self._finished}; waiting for the other nodes, which are still running ({left:.0f} s left)")
        self._timer = self._loop.after(min(PROGRESS_S, left), lambda: self._wait_for_others(ends))

    def _on_released(self, text: str) -> None:
        self._released = True
        self.run_id = (self._member.run_id if self._member else "") or self.run_id
        self._hear.released(text, self._loop.clock() - self._ready_at)

    def _on_stop(self, judgement: Judgement) -> None:
        self._order = blame.heard(judgement)
        self._hear.stop(self._order)

    def _on_again(self, again: Again) -> None:
        self.again = replace(again, judgement=blame.heard(again.judgement))
        self._hear.judged(self.again.judgement)

    def _on_judged(self, judgement: Judgement) -> None:
        self._judgement = blame.heard(judgement)
        self._hear.judged(self._judgement)

    def _on_lost(self, suspect: Suspect) -> None:
        self._lost = suspect
        self._hear.lost(suspect)

    def _on_dismissed(self) -> None:
        self._say("muster: node 0 has succeeded and leaves; this node goes on without it")
        if self._finished:
            self._hear.judged(Judgement("succeeded", 0, self._finished))
