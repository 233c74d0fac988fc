"""The supervisor's side of the muster: the other nodes of the job. Without a muster every method does nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ranklaunch.errors import WaitError
from ranklaunch.muster import EVIDENCE_S
from ranklaunch.plan.model import Plan, everything
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.verdict import blame, messages
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Note

if TYPE_CHECKING:
    from ranklaunch.muster.driver import HubDriver, MemberDriver
    from ranklaunch.muster.events import Action, Again, Decide, Decided, Dismissed, Judged, Lost, Released, Stop, Told
    from ranklaunch.muster.hub import Hub

JOIN_S = 10.0  # for a node that failed before it reached node 0 to report the failure
STRANGE_S = 30.0  # of another ranklaunch at node 0's port; the grace period of an earlier start of the job is added
SILENT_S = 15.0  # added to node 0's deadline, for its message that the wait is over
VERDICT_S = 3.0  # added to the grace period, for the job's verdict
BYE_S = 2.0  # for the nodes to receive the verdict
BACK_S = 2.0  # for a node that has connected again to receive the verdict
HURRIED_S = 1.0  # in place of both after a second SIGINT
LATE_S = 5.0  # after an end before all nodes have connected: for late nodes to get the judgement
MOST_UNHEARD = 256  # words that are kept until their topic has a listener
DONE_SAID_S = 2.0  # from the success of this node to the first console line about the wait
OWN_WORDS_S = 2.0  # for a node that ends last to find a failure of its own, before it reports that it has none
PROGRESS_S = 30.0  # between two console lines about the wait


class Listener(Protocol):
    """Attempt, as this module calls it on messages of node 0."""

    def on_released(self, text: str, waited_s: float) -> None:
        """Start the ranks: all nodes are ready. text: for the console, with the nodes that came late. waited_s: of this node."""

    def on_stop(self, judgement: Judgement) -> None:
        """Stop: another node has failed."""

    def on_judged(self, judgement: Judgement) -> None:
        """Take the judgement of the whole job."""

    def on_lost(self, suspect: Suspect) -> None:
        """Go on without node 0, which is lost."""


class Ending(Protocol):
    """End of this node. at: monotonic seconds."""

    @property
    def outcome(self) -> str: ...
    @property
    def exit_code(self) -> int: ...
    @property
    def at(self) -> float: ...


class Nodes:
    """The other nodes. listener: returns the attempt that runs. decide: on node 0, decides if another round follows a failed one; None:
    never. run_id: id of the job, "" if this node does not know it."""

    def __init__(
        self, plan: Plan, env: Mapping[str, str], loop: Loop, say: Callable[[str], None], listener: Callable[[], Listener],
        decide: Callable[[Decide], Decided] | None = None, run_id: str = "",
    ) -> None:  # fmt: skip
        self.again: Again | None = None  # set if all nodes start again after this round
        self.run_id = run_id
        self._decide = decide
        self._round = 0  # of a job with one node: with a muster the hub counts rounds
        self._env = env
        self._loop = loop
        self._say = say
        self._listener = listener
        self._hub: HubDriver | None = None
        self._member: MemberDriver | None = None
        self._begin(plan)
        self._hearing: dict[tuple[str, bool], Callable[[int, Any], object]] = {}
        self._unheard: deque[tuple[int, str, object, bool]] = deque(maxlen=MOST_UNHEARD)

    def begin(self, plan: Plan) -> None:
        """Begin another round, for which all nodes meet again."""
        self._begin(plan)
        self._round += 1
        self.succeeds_with(self._success)

    def _begin(self, plan: Plan) -> None:
        self._plan = plan
        self._failed = self._released = self._hurry = self._outlasts = False
        self._sent_failure: tuple[Suspect, ...] = ()
        self._judgement: Judgement | None = None
        self._order: Judgement | None = None
        self._lost: Suspect | None = None
        self._late_s = min(LATE_S, plan.limits.grace_s)
        self._ready_at = 0.0
        self._finished = ""
        self._timer: Timer | None = None
        self.again = None

    def join(self) -> None:
        """Start to meet the other nodes. Raises ConfigError if the key cannot be read."""
        muster = self._plan.muster
        if not muster or self._member:
            return
        from ranklaunch.muster import secret, wire  # here, since a job with one node needs no sockets
        from ranklaunch.muster.driver import HubDriver, MemberDriver

        key, attempt = wire.job_key(secret.secret(muster, self._env), self._plan.job.name), self._plan.job.attempt
        if muster.node == 0:
            self._hub = HubDriver(
                muster, key, self._loop, self._say, self, self._plan.limits.grace_s, self._success, attempt,
                restarts=bool(self._decide), run_id=self.run_id,
            )  # fmt: skip
            if not muster.secret:
                self._say(f"muster: {secret.guessed(handed=bool(self._plan.offers))}")
        self._member = MemberDriver(muster, key, self._loop, self._say, self, attempt, self._hub)
        self._member.start()

    @property
    def _success(self) -> str:
        """Sentence for the success of the whole job."""
        return f"{everything(self._plan, of_job=True)} succeeded"

    def busy(self, doing: str) -> None:
        if self._member:
            self._member.busy(doing)

    def muster(self, plan: Plan, offers: Mapping[str, str], stopped: Callable[[], bool]) -> float:
        """Run the loop until all nodes are released or `stopped` is true. Return the seconds waited.

        Raises WaitError if node 0 cannot be reached, or is silent. Nodes that have reached node 0 wait for its deadline.
        """
        assert self._member
        assert plan.muster
        self._plan = plan  # a rank table may have changed the places
        self.succeeds_with(self._success)
        began = since = self._ready_at = self._loop.clock()
        joined, member = False, self._member.member
        self._member.ready(plan.muster.facts, plan.job.node_index, plan.job.node.host, offers)
        while not self._released and not stopped():
            now = self._loop.clock()
            if joined != member.joined:
                joined, since = member.joined, now
            remaining_s = since + plan.muster.timeout_s + (SILENT_S if joined else 0) - now
            if remaining_s <= 0:
                seconds, setting = f"{plan.muster.timeout_s:g}", "--muster-timeout-s (RANKLAUNCH_MUSTER_TIMEOUT_S)"
                msg = f"waited {seconds} s in vain for {member.missing or 'node 0'}; {setting} sets how long"
                raise WaitError(msg)
            strange_s = self._member.strange_s(now)
            if strange_s >= STRANGE_S + plan.limits.grace_s:
                waited = f"for {strange_s:.0f} s another ranklaunch has answered in place of {member.missing}"
                msg = f"{waited}; if two jobs share a host, set another --muster-port (RANKLAUNCH_MUSTER_PORT) for one, on every node"
                raise WaitError(msg)
            self._loop.step(min(remaining_s, 1.0))
        return self._loop.clock() - began

    def ready_again(self, plan: Plan) -> None:
        """Report that this node is ready with another rank table. Only before the release."""
        assert self._member
        assert plan.muster
        self._plan = plan
        self._member.ready(plan.muster.facts, plan.job.node_index, plan.job.node.host)

    @property
    def table(self) -> str:
        """Digest of the rank table by which all nodes start; "" without one."""
        return self._member.member.table if self._member else ""

    @property
    def shared(self) -> Mapping[int, Mapping[str, str]]:
        """Offers by node: of all nodes on node 0, else of node 0."""
        if self._hub:
            return self._hub.hub.here.offers
        return {0: self._member.member.shared} if self._member else {}

    # Words, from the release to the end. In a job with one node, the node receives its own words.

    def hear(self, topic: str, hear: Callable[[int, Any], object], *, at_node_0: bool = False) -> None:
        """Call hear(node, body) for each word of a topic. at_node_0: words to node 0; else words from node 0.

        The body is not checked. If `hear` raises an exception of wire.NOT_UNDERSTOOD, the console shows it. Words that came before this
        call are passed on now, because other nodes may be faster.
        """
        self._hearing[topic, at_node_0] = hear
        early = [word for word in self._unheard if (word[1], word[3]) == (topic, at_node_0)]
        for word in early:
            self._unheard.remove(word)
            self._hear(word[0], topic, word[2], at_node_0=at_node_0)

    def tell_node_0(self, topic: str, body: object) -> None:
        """Send a word to node 0. Raises WireError, TypeError or ValueError if no message can hold the body."""
        if self._member:
            self._member.say(topic, body)
        elif not self._plan.muster:
            self._loop.after(0, partial(self._hear, 0, topic, body, at_node_0=True))

    def tell_nodes(self, topic: str, body: object, nodes: Sequence[int] = ()) -> None:
        """As node 0, send a word to these nodes, or to all for an empty list. Raises as tell_node_0."""
        if self._hub:
            self._hub.say(topic, body, nodes)
        elif not self._plan.muster:
            self._loop.after(0, partial(self._hear, 0, topic, body))

    def succeeds_with(self, text: str) -> None:
        """As node 0, set the sentence for the success of all nodes."""
        if self._hub:
            self._hub.plan(text)

    def on_word(self, word: Told, *, at_node_0: bool = False) -> None:
        self._hear(word.node, word.topic, word.body, at_node_0=at_node_0)

    def _hear(self, node: int, topic: str, body: object, *, at_node_0: bool = False) -> None:
        """Pass a word to its listener. Without a listener the word is kept: the listener may be added later."""
        hear = self._hearing.get((topic, at_node_0))
        if not hear:
            self._unheard.append((node, topic, body, at_node_0))
            return
        try:
            hear(node, body)
        except Exception as error:
            from ranklaunch.muster import wire

            if not isinstance(error, wire.NOT_UNDERSTOOD):
                raise
            self._say(f"muster: node {node} sent an invalid message ({topic}): {wire.why(error)}")

    def fail(self, suspect: Callable[[], Suspect]) -> None:
        """Send the first failure of this node at once."""
        if self._member and not self._failed:
            self._failed = True
            self._sent_failure = (suspect(),)
            self._member.fail(*self._sent_failure)

    def tell_more(self, suspect: Callable[[], Suspect | None]) -> None:
        """Send more about that failure now: the report at the end of this node may come too late for the job's verdict."""
        fuller = suspect() if self._member and self._failed else None
        if self._member and fuller:
            self._sent_failure = (fuller,)
            self._member.fail(fuller)

    def done(self, finish: Finish, text: str, unseen: int = 0) -> bool:
        """Report that the ranks of this node have succeeded. Return False if there is no other node to wait for. text: the success as a
        sentence. unseen: number of ranks without a known end."""
        if not self._member or self._member.over:
            return False
        assert self._plan.muster
        self._finished = text
        self._member.done(finish, unseen)
        timeout_s = self._plan.muster.end_timeout_s
        deadline = self._loop.clock() + timeout_s
        self._timer = self._loop.after(min(DONE_SAID_S, timeout_s), partial(self._wait_for_others, deadline))
        return True

    def decided(self, *, outlasts: bool = False) -> None:
        """Stop waiting for the success of other nodes: this node ends.

        outlasts: True if other nodes need processes of this node until they have ended. The node then reports to node 0 before its end.
        """
        if self._timer:
            self._timer.cancel()
        if outlasts and self._member and not (self._hub or self._member.over):
            self._outlasts = True
            first = self._sent_failure[0] if self._sent_failure else self._order
            is_stopped = bool(first and first.outcome == "stopped")
            self._loop.after(0 if is_stopped else OWN_WORDS_S, self._report_early)

    def _report_early(self) -> None:
        """Report before the end of this node: node 0 must not wait for a node that ends last."""
        if self._outlasts and self._member and not self._member.over:
            self._member.report(self._sent_failure, (), ())

    @property
    def may_leave(self) -> bool:
        """True if the other nodes can continue without this node. Followers need node 0, which ends them."""
        return not (self._hub and self._plan.muster and self._plan.muster.followers)

    @property
    def others_end(self) -> bool:
        """True if other nodes are still ending, as far as this node knows."""
        if self._hub:
            return self._hub.hub.others_end
        return bool(self._outlasts and self._member and not self._is_over(self._member))

    @property
    def judged(self) -> bool:
        """True if node 0 has judged the job, or the round before another one."""
        return bool(self._judgement or self.again)

    @property
    def lost(self) -> Sequence[Suspect]:
        """Suspects of nodes that never reported: on node 0, of all nodes; on the others, of node 0."""
        return self._hub.hub.lost if self._hub else [self._lost] if self._lost else []

    def leave(self) -> None:
        """Leave before the other nodes."""
        if self._hub:
            self._hub.dismiss()
        elif self._member:
            self._member.leave()

    def hurry(self) -> None:
        """End all waits for other nodes soon, after a second SIGINT."""
        self._hurry = True

    def go(self) -> None:
        """Do not wait for nodes that have not connected yet."""
        self._late_s = 0.0

    def wall(self, clock: float) -> float:
        """Return monotonic seconds of this node as seconds since 1970, by node 0's clock once the difference is measured."""
        return self._member.wall(clock) if self._member else self._loop.wall(clock)

    def agree(
        self, local: Judgement, suspects: Sequence[Suspect], finishes: Sequence[Finish], notes: Sequence[Note], ending: Ending,
        state: Callable[[], Mapping[str, Any]] = dict,
    ) -> Judgement:  # fmt: skip
        """Report the end of this node, and return the job's judgement; the local one if none comes in time.

        notes: of this node. state: for the decision about another round; `again` is set if a round follows.
        """
        if not self._member:
            return self._agree_alone(local, state())
        if not self._is_over(self._member):
            self._outlasts = False
            failures = blame.ordered(suspects)[: 1 + blame.MOST_FAILURES]
            # Only the first failure can decide the verdict, so the last lines of the other ones are left out.
            brief = [*failures[:1], *map(messages.brief, failures[1:])]
            report = partial(self._member.report, brief, finishes[: blame.MOST_NOTES], notes[: blame.MOST_NOTES])
            self._await_judgement(self._member, ending, report, state)
        if self.again:
            return self.again.judgement
        if self._judgement or not self._lost:
            return self._judgement or local
        if self._order and not suspects:
            return self._order  # all were stopping when node 0 was lost
        return blame.judge([*suspects, self._lost], finishes, notes)

    def _await_judgement(
        self, member: MemberDriver, ending: Ending, report: Callable[[Mapping[str, Any]], None], state: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Report this node's end, and run the loop until node 0 has judged the job."""
        patience_s = self._patience(ending)
        if not (self._hub or member.member.joined) and patience_s:
            self._say(f"muster: node 0 is not reached yet; trying {patience_s:g} s more to report the end of this node")
        report(state())
        self._run(lambda: self._is_over(member) or self._hurry, lambda: ending.at + self._patience(ending))
        if self._hurry and not self._is_over(member):
            report(state())  # again: a stop request has come since the first report
            if self._hub:  # the judgement must reach the other nodes before this node leaves
                self._hub.hurry()
            soon = self._loop.clock() + (HURRIED_S if self._hub or self._plan.rounds else 0.0)
            self._run(lambda: self._is_over(member), lambda: soon)

    def _is_over(self, member: MemberDriver) -> bool:
        """Return True once node 0 has judged this round, or will send nothing more."""
        return self.judged or member.over

    def _agree_alone(self, local: Judgement, state: Mapping[str, Any]) -> Judgement:
        """Return the judgement of a job with one node, which may decide on another round."""
        if not self._decide or self._plan.muster or local.outcome != "failed":
            return local
        from ranklaunch.muster.events import Again, Decide

        decided = self._decide(Decide(local, self._round, bool(state.get("launched")), "", (state,)))
        if decided.again:
            self.again = Again(self._round + 1, decided.judgement, decided.next)
        return decided.judgement

    def decide(self, question: Decide) -> Decided:
        """Decide on node 0 if another round follows."""
        assert self._decide
        return self._decide(question)

    def finish(self) -> None:
        """Wait until all nodes have written their verdicts. Some platforms kill the other containers when the first one exits."""
        if not self._member:
            return
        together = bool(self._judgement)
        if together or self._hurry:
            self._member.leave()
        until = self._loop.clock() + (HURRIED_S if self._hurry else BYE_S)
        if self._hub:
            self._see_off(self._hub, until)
            self._hub.close()
        else:
            member = self._member
            self._run(lambda: member.flushed and not (together and member.member.joined), lambda: until)
        self._member.close()

    def _see_off(self, node_0: HubDriver, until: float) -> None:
        """As node 0, wait for the nodes that have not received the verdict."""
        hub = node_0.hub
        self._run(lambda: hub.settled, lambda: until)
        if self._plan.muster and not self._hurry:
            self._wait_for_silent_nodes(hub, until - BYE_S, self._plan.muster.lost_after_s)
        if hub.owed and self._late_s and not self._hurry:
            self._say(f"muster: waiting {self._late_s:g} s more for nodes that have not connected yet, to send them the verdict")
            late = self._loop.clock() + self._late_s
            self._run(lambda: self._hurry or (not hub.owed and hub.settled), lambda: late)

    def _wait_for_silent_nodes(self, hub: Hub, since: float, most_s: float) -> None:
        """Wait for a node without the verdict and without a message after `since`: its network may be down for a moment.

        Without the verdict, that node would report node 0 as killed.
        """
        until = since + most_s
        name = hub.unheard(since) if hub.judgement and hub.judgement.outcome != "stopped" else ""
        remaining_s = until - self._loop.clock()
        if name and remaining_s > 0:
            self._say(f"muster: {name} has not received the verdict: its network may be down; waiting {remaining_s:.0f} s for it")
            self._run(lambda: hub.settled or not hub.unheard(since), lambda: until)
            soon = self._loop.clock() + BACK_S
            self._run(lambda: hub.settled, lambda: soon)

    def _patience(self, ending: Ending) -> float:
        """Seconds after the ending for which the job's verdict is worth waiting for."""
        assert self._member
        if self._member.member.joined:
            return self._plan.limits.grace_s + VERDICT_S + (EVIDENCE_S if ending.outcome == "failed" else 0.0)
        if ending.exit_code == WaitError.exit_code:  # the node has waited long enough
            return 0.0
        return JOIN_S if ending.outcome != "stopped" else 0.0 if self._released else self._late_s

    def _run(self, done: Callable[[], bool], deadline: Callable[[], float]) -> None:
        while not done() and (remaining_s := deadline() - self._loop.clock()) > 0:
            self._loop.step(min(remaining_s, 0.5))

    def _wait_for_others(self, deadline: float) -> None:
        """Print a line about the wait for other nodes, or end the wait at the deadline."""
        assert self._plan.muster
        remaining_s = deadline - self._loop.clock()
        if remaining_s <= 0 and self._hub:  # without node 0, nothing would detect failures of the other nodes
            self._hub.end_late(self._finished)
            return
        if remaining_s <= 0:
            self.leave()
            later = f"{self._plan.muster.end_timeout_s:g} s later (RANKLAUNCH_END_TIMEOUT_S)"
            text = f"{self._finished}; other nodes were still running {later}"
            self._listener().on_judged(Judgement("succeeded", 0, text))
            return
        self._say(f"{self._finished}; waiting for the other nodes, which are still running ({remaining_s:.0f} s left)")
        self._timer = self._loop.after(min(PROGRESS_S, remaining_s), partial(self._wait_for_others, deadline))

    def on_news(self, action: Action) -> None:
        """Call the method of the action: _on_released for Released."""
        getattr(self, f"_on_{type(action).__name__.lower()}")(action)

    def _on_released(self, action: Released) -> None:
        self._released = True
        self.run_id = (self._member.member.run_id if self._member else "") or self.run_id
        self._listener().on_released(action.text, self._loop.clock() - self._ready_at)

    def _on_stop(self, action: Stop) -> None:
        self._order = messages.heard(action.judgement)
        self._listener().on_stop(self._order)

    def _on_again(self, action: Again) -> None:
        self.again = replace(action, judgement=messages.heard(action.judgement))
        self._listener().on_judged(self.again.judgement)

    def _on_judged(self, action: Judged) -> None:
        self._judgement = messages.heard(action.judgement)
        self._listener().on_judged(self._judgement)

    def _on_lost(self, action: Lost) -> None:
        self._lost = action.suspect
        self._listener().on_lost(self._lost)

    def _on_dismissed(self, action: Dismissed) -> None:
        self._say("muster: node 0 has succeeded and leaves; this node continues without node 0")
        if self._finished:
            self._listener().on_judged(Judgement("succeeded", 0, self._finished))
