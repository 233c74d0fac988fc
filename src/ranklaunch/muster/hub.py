"""Node 0's side of the muster: start all nodes together, report the first failure to all, and name the cause of the job's end.

Each node sends one message for each event of its own, and gets one message for each event of the whole job. The hub is a state machine
without input or output: events go in, actions come out, and TABLE has the method for each event in each state.
"""

from __future__ import annotations

import errno

from ranklaunch.errors import WaitError
from ranklaunch.muster import events, liveness, wire
from ranklaunch.muster.barrier import ASK_S, FIRST_STATUS_S, STATUS_S, Gathering
from ranklaunch.muster.events import NO, REFUSED, TAKEN, Event, First, Heard, Key, Machine, Row
from ranklaunch.muster.membership import Roll
from ranklaunch.muster.reports import Node, Present, Reports, judgement_message
from ranklaunch.muster.wire import Message
from ranklaunch.plan.model import Muster
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Judgement, Suspect

# gathering: before the release. running: after the release. ending: since the first failure. deciding: all nodes have ended, and the
# answer to Decide is awaited. gate: all nodes start again, and the next release is awaited. judged: the judgement is known. dismissed:
# node 0 has left without a judgement.
STATES = GATHERING, RUNNING, ENDING, DECIDING, GATE, JUDGED, DISMISSED = (
    "gathering", "running", "ending", "deciding", "gate", "judged", "dismissed",
)  # fmt: skip

# fmt: off
TABLE: dict[Key, Row] = {
    # message         gathering       running         ending       deciding     gate            judged       dismissed    of another round
    "hello":         ("enrol",        "readmit",      "stop_it",   "stop_it",   "take_back",    "tell_it",   "send_off",  TAKEN),
    "ping":          ("pong",         "pong",         "pong",      "pong",      "pong",         "pong",      "pong",      TAKEN),
    "busy":          ("note",         "note",         "note",      "note",      "note",         "note",      "note",      REFUSED),
    "ready":         ("compare",      NO,             NO,          NO,          "compare",      NO,          NO,          REFUSED),
    "fail":          ("stop_all",     "stop_all",     "suspect",   NO,          "stop_all",     "suspect",   "suspect",   REFUSED),
    "stopping":      ("obeyed",       "obeyed",       "obeyed",    NO,          "obeyed",       "obeyed",    "obeyed",    REFUSED),
    "done":          ("succeed",      "succeed_last", "succeed",   NO,          "succeed",      "succeed",   "succeed",   REFUSED),
    "report":        ("stop_and_ask", "stop_and_ask", "file",      NO,          "stop_and_ask", "file",      "file",      REFUSED),
    "word":          (NO,             "hear_word",    "hear_word", NO,          NO,             NO,          NO,          REFUSED),
    "bye":           ("part",         "part_early",   "part",      "part",      "part",         "part",      "part",      TAKEN),
    # event of this side
    events.Start:    ("begin",        NO,             NO,          NO,          NO,             NO,          NO),
    First:           ("drop",         "drop",         "drop",      "drop",      "drop",         "drop",      "drop"),  # no hello
    events.Broken:   ("miss",         "miss",         "miss",      "miss",      "miss",         "see_off",   "see_off"),
    events.Nonsense: ("drop",         "drop",         "drop",      "drop",      "drop",         "drop",      "drop"),
    events.Overdue:  ("forget",       "lose",         "lose",      NO,          "lose",         NO,          NO),
    events.Tick:     ("gather",       "watch",        "await_all", "tidy",      "gather",       "tidy",      "tidy"),
    events.Resolved: ("learn",        NO,             NO,          NO,          "learn",        NO,          NO),
    events.AtDoor:   ("mind_door",    "mind_door",    "mind_door", "mind_door", "mind_door",    "mind_door", "mind_door"),
    events.Planned:  ("plan",         "plan",         "plan",      "plan",      "plan",         "plan",      "plan"),
    events.Dismiss:  ("dismiss",      "dismiss",      "dismiss",   "dismiss",   "dismiss",      NO,          NO),
    events.EndLate:  (NO,             "end_late",     NO,          NO,          NO,             NO,          NO),
    events.Word:     (NO,             "say_word",     "say_word",  NO,          NO,             NO,          NO),
    events.Hurry:    (NO,             NO,             "judge_now", NO,          NO,             NO,          NO),
    events.Decided:  (NO,             NO,             NO,          "go_by",     NO,             NO,          NO),
}
# fmt: on

TICK_S, QUIET_TICK_S = 0.25, 5.0  # between two ticks; the second while the job runs, and after its end


class Hub(Machine):
    """Node 0's machine.

    success: sentence for the success of the whole job. name: differs between two starts of node 0. run_id: id of the job, for all
    nodes. restarts: another round may follow a failed one; a node that was not in the first round has no part in it.
    """

    def __init__(
        self, muster: Muster, grace_s: float, success: str, name: str, attempt: int = 1, *, restarts: bool = False, run_id: str = ""
    ) -> None:
        super().__init__(GATHERING, attempt)
        self.judgement: Judgement | None = None
        self._muster = muster
        self._hub_name = name
        self._restarts = restarts
        self._grace_s = grace_s
        self._roll = Roll(muster.hosts, muster.allowed)
        self.here = Present(self._roll)
        self._reports = Reports(self.here, muster.hosts, grace_s, muster.lost_after_s)
        self._released: Message = {}  # the message to all at the last release
        self._again: Message = {}  # the message to all at the beginning of this round, if it is not the first
        self._success = success
        self._run_id = run_id
        self._gathering = Gathering(muster, self._roll, later=attempt > 1)
        self._is_released = False  # this round
        self._next_status = self._next_ask = 0.0

    @property
    def settled(self) -> bool:
        """True if every connected node has received the verdict."""
        return all(node.has_verdict or node.link is None for node in self.here.by_instance.values())

    def unheard(self, since: float) -> str:
        """Return the first connected node without the verdict and without a message after `since` (hub's clock); "" for none."""
        silent = [node for node in self.here.by_instance.values() if not node.has_verdict and node.link is not None and node.heard < since]
        return self._name(silent[0]) if silent else ""

    @property
    def others_end(self) -> bool:
        """True if reports of other nodes than node 0 are missing."""
        return self.state in (RUNNING, ENDING) and self._reports.others_unreported

    @property
    def lost(self) -> tuple[Suspect, ...]:
        """Suspects of nodes that are lost or have not reported."""
        return self._reports.lost

    @property
    def owed(self) -> bool:
        """True if the job ended before all nodes had connected: a missing node may still connect, and must get the judgement."""
        early = self.state == JUDGED and not self._released and not self._gathering.is_late(self._now.clock)
        return early and bool(self._roll.missing)

    # Input

    def _take(self, event: Event) -> None:
        if not isinstance(event, (First, Heard)):
            super()._take(event)
            return
        try:
            self._hear(event)
        except wire.NOT_UNDERSTOOD as error:
            super()._take(events.Nonsense(event.link, wire.why(error)))

    def _hear(self, event: First | Heard) -> None:
        kind = event.message.get("type")
        node = self.here.hear(event.link, self._now)
        if isinstance(event, First):
            self.rules[self.state, kind if kind == "hello" else First](self, event)
        elif node and kind != "hello":  # without a node: a start that was turned away
            rule = self.rules.get((self.state, kind or ""))  # unknown types, perhaps of a later version, are ignored
            if rule and (self._is_of_round(node, event.message) or kind in COUNTS_ALWAYS):
                rule(self, node, event.message)

    def _is_of_round(self, node: Node, message: Message) -> bool:
        """Return True for the node's attempt and this round. A node counts its attempts by itself, so they are compared with its hello."""
        return wire.number(message, "attempt") == node.attempt and wire.number(message, "round") == self.round

    # Messages of nodes

    def _pong(self, node: Node, message: Message) -> None:
        """Node 0 answers with its time."""
        node.words.drop(message)
        self._send(node, {"type": "pong", "sent": float(message["sent"]), "time": self._now.wall, "heard": node.words.heard})

    def _note(self, node: Node, message: Message) -> None:
        """Node 0 notes the present work of the node."""
        node.doing = wire.text(message, "doing")[: blame.LINE]

    def _compare(self, node: Node, message: Message) -> None:
        """The node is ready, or ready again with another rank table. Node 0 releases all nodes once
        all are ready and agree. It ends the job once agreement is impossible."""
        number = wire.number({"again": 0, **message}, "again")
        if number <= node.readies:
            return
        node.readies = number
        self._roll.renew(node)
        self._gathering.ready(node, node.prepared(message), self._now.clock)
        self._look()

    def _hear_word(self, node: Node, message: Message) -> None:
        """Node 0 reads the message, unless it is a repetition."""
        self._hear_once(node.index, node.words, message)

    def _suspect(self, node: Node, message: Message) -> None:
        """Node 0 records the reported failure as a possible cause of the end of the job."""
        self._reports.suspect(node, message)

    def _stop_all(self, node: Node, message: Message) -> None:
        """A node reports the first failure. Node 0 orders all nodes to stop and to report how they
        ended."""
        self._suspect(node, message)
        self._begin_end()

    def _obeyed(self, node: Node, message: Message) -> None:
        """Node 0 notes that the node has received the order to stop."""
        node.stopping = True

    def _succeed(self, node: Node, message: Message) -> None:
        """The ranks of the node have succeeded. Node 0 notes this."""
        self._reports.succeed(node, message)

    def _succeed_last(self, node: Node, message: Message) -> None:
        """The ranks of the node have succeeded. With the last node, the job has succeeded."""
        self._succeed(node, message)
        if self._reports.done == len(self._roll.hosts) - self._muster.followers:
            self._conclude(Judgement("succeeded", 0, self._reports.success(self._success)))

    def _file(self, node: Node, message: Message) -> None:
        """Node 0 notes how the node ended. It judges the job when all nodes have reported."""
        self._reports.file(node, message)
        if self._reports.all_filed:  # otherwise at the next tick: a look at all nodes for each of 4,096 reports takes too long
            self._look_at_reports()

    def _stop_and_ask(self, node: Node, message: Message) -> None:
        """The node ended before the order to stop. Node 0 notes its report, and orders all nodes to
        stop."""
        self._reports.file(node, message)
        self._begin_end()

    def _part(self, node: Node, message: Message) -> None:
        """The node has its verdict. Node 0 closes the connection."""
        node.has_verdict = True
        if node.link is not None:
            self._do(events.Close(node.link))
            self.here.disconnect(node.link)

    def _part_early(self, node: Node, message: Message) -> None:
        """The node has waited long enough for the others, and leaves with 0. Node 0 lets it go."""
        if not node.done:
            msg = "bye before a report of its end"
            raise ValueError(msg)
        self._do(events.Say(f"muster: {self._name(node)} leaves: its ranks have succeeded, and it has waited long enough"))
        self._part(node, message)

    # Decisions

    def _look(self) -> None:
        """Release all nodes if they are ready and agree. End the job if they cannot start."""
        failure = self._gathering.failure(self._now.clock)
        if failure:
            self._conclude(failure)
        elif self._gathering.complete:
            self._actions += map(events.Say, self._gathering.warnings())
            self.state, self._is_released = RUNNING, True
            self.here.seat()
            text, shared = self._gathering.summary(self._now.clock), self.here.offers_of_node_0
            optional = {"run": self._run_id, "table": self._gathering.table}
            self._released = {"type": "release", "text": text, "shared": shared, **{key: value for key, value in optional.items() if value}}
            self._broadcast(self._released)

    def _begin_end(self) -> None:
        if self.state not in (GATHERING, RUNNING, GATE):
            return
        self.state = ENDING
        self._reports.begin(self._now)
        self._broadcast(self._stop_message())
        self._do(events.Wake(events.Tick(), TICK_S))
        self._look_at_reports()

    def _stop_message(self) -> Message:
        """Return the order to stop, with the judgement by the reports so far. The final judgement follows when all nodes have reported."""
        return judgement_message("stop", self._reports.judge())

    def _look_at_reports(self) -> None:
        if self.state == ENDING and self._reports.over(self._now):
            away = self._reports.away
            self._reports.give_up(self._now)
            self._judge_or_ask(self._reports.judge(), away)

    def _judge_or_ask(self, judgement: Judgement, away: str) -> None:
        """End the job, or ask the supervisor if another round follows a failure."""
        if not self._restarts or judgement.outcome != "failed":
            self._conclude(judgement)
            return
        self.state = DECIDING
        self._do(events.Decide(judgement, self.round, self._is_released, away, self._reports.states))

    def _go_by(self, event: events.Decided) -> None:
        """Node 0 follows the decision: it ends the job, or starts the next round with all nodes. A
        node whose connection is still lost gets the whole time to return again."""
        if not event.again:
            self._conclude(event.judgement)
            return
        self.state, self._is_released = GATE, False
        self.round += 1
        self._again = {**judgement_message("again", event.judgement), "next": dict(event.next)}
        for node in self.here.by_instance.values():
            node.renew()
            self._roll.renew(node)
            if node.link is None:
                node.gone_at, node.back_by = self._now.clock, self._now.clock + liveness.RESET_S
                self._do(events.Wake(events.Overdue(node.instance), liveness.RESET_S))
        self._gathering = Gathering(self._muster, self._roll, later=True)
        self._reports = Reports(self.here, self._muster.hosts, self._grace_s, self._muster.lost_after_s)
        self._broadcast(self._again)
        self._begin(events.Start())

    def _conclude(self, judgement: Judgement) -> None:
        self.state = JUDGED
        self.judgement = judgement
        self._broadcast(judgement_message("judgement", judgement))

    # Events of node 0's supervisor

    def _begin(self, event: events.Start) -> None:
        """Node 0 starts its timers."""
        self._next_status = self._now.clock + FIRST_STATUS_S
        self._next_ask = self._now.clock + FIRST_STATUS_S / 2
        self._do(events.Wake(events.Tick(), TICK_S))

    def _plan(self, event: events.Planned) -> None:
        """The plan has changed. Node 0 notes its sentence for success."""
        self._success = event.success

    def _mind_door(self, event: events.AtDoor) -> None:
        """Node 0 notes the nodes that cannot join, for the message about missing nodes."""
        self._gathering.at_door(event.trouble, event.refused, self._now.clock + event.patience_s)

    def _learn(self, event: events.Resolved) -> None:
        """Node 0 notes the addresses of a missing node, or the reason why its name has none."""
        self._gathering.resolved(event.node, event.addresses, event.why)

    def _dismiss(self, event: events.Dismiss) -> None:
        """Node 0 leaves, and informs all nodes."""
        self.state = DISMISSED
        self._broadcast({"type": "dismissed"})

    def _end_late(self, event: events.EndLate) -> None:
        """The ranks of node 0 have succeeded, and other nodes run too long. Node 0 ends the job,
        because without node 0 nobody detects failures."""
        unfinished = self.here.unfinished(len(self._roll.hosts) - self._muster.followers)
        late = f"but {unfinished} still ran {self._muster.end_timeout_s:g} s later (RANKLAUNCH_END_TIMEOUT_S)"
        self._conclude(Judgement("failed", WaitError.exit_code, f"{event.finished} on {self._roll.name(0)}, {late}"))

    def _say_word(self, event: events.Word) -> None:
        """Node 0 sends a message to the nodes, and keeps a copy for nodes that connect again."""
        message = self._worded(event)
        self._do(events.Send(message, self.here.keep(message, event.nodes)))

    def _judge_now(self, event: events.Hurry) -> None:
        """Node 0 judges by the received reports, without the missing ones."""
        self._judge_or_ask(self._reports.judge(), "")

    # Time

    def _gather(self, event: events.Tick) -> None:
        """Node 0 checks whether all nodes may start, or cannot start. From time to time it reports
        the missing nodes."""
        self._do(events.Wake(events.Tick(), TICK_S))
        self._do(events.Listen())
        self._do(events.Sweep())
        self._look()
        if self.state not in (GATHERING, GATE):
            return
        if self._now.clock >= self._next_ask:
            self._next_ask = self._now.clock + ASK_S
            self._actions += [events.LookUp(node, host) for node, host in self._gathering.ask_why()]
        missing = self._gathering.missing if self._is_time_for_status() else ""
        if missing:
            self._broadcast({"type": "status", "missing": missing[: blame.SAID]})

    def _watch(self, event: events.Tick) -> None:
        """Node 0 prints the nodes that have become silent."""
        self._tidy(event)
        if self._is_time_for_status():
            for node in self.here.newly_silent(max(self._muster.lost_after_s, STATUS_S), self._now):
                text = (
                    f"has sent nothing for {self._now.clock - node.heard:.0f} s, but its host answers: ranklaunch there is stopped or stuck"
                )
                self._do(events.Say(f"muster: {self._name(node)} {text}"))

    def _await_all(self, event: events.Tick) -> None:
        """Node 0 judges the job when it expects no more reports."""
        self._do(events.Wake(events.Tick(), TICK_S))
        self._do(events.Sweep())
        deaf = self._reports.newly_deaf(self._now)
        if deaf:
            self._do(events.Say(f"muster: {deaf}"))
        self._look_at_reports()

    def _tidy(self, event: events.Tick) -> None:
        """Node 0 closes connections that have not signed in time."""
        self._do(events.Wake(events.Tick(), QUIET_TICK_S))
        self._do(events.Sweep())

    def _is_time_for_status(self) -> bool:
        due = self._now.clock >= self._next_status
        if due:
            self._next_status = self._now.clock + STATUS_S
        return due

    # Connections

    def _drop(self, event: events.Nonsense) -> None:
        """Node 0 closes an invalid connection. If the node had signed, the cause is a defect or
        another version."""
        self._do(events.Close(event.link))
        node = self.here.by_link.get(event.link)
        if not node:
            return
        if self.here.is_odd(node):
            self._do(events.Say(f"muster: {self._name(node)} sent an invalid message: {event.why}"))
        super()._take(events.Broken(event.link, OSError(errno.EPROTO, event.why)))

    def _miss(self, event: events.Broken) -> None:
        """The connection is lost. Node 0 waits a moment for the node to return, unless the node has
        sent its report."""
        node = self.here.disconnect(event.link)
        if node and node.reported:
            node.has_verdict = True
        elif node:
            seconds = liveness.time_to_return(event.error)
            node.gone_at, node.gone_why, node.back_by = self._now.clock, event.error, self._now.clock + seconds
            self._do(events.Wake(events.Overdue(node.instance), seconds))

    def _see_off(self, event: events.Broken) -> None:
        """The connection is lost after the end of the job. Node 0 no longer waits for this node."""
        node = self.here.disconnect(event.link)
        if node:
            node.has_verdict = True

    def _forget(self, event: events.Overdue) -> None:
        """The node did not return in time. Node 0 removes it. The node may start again and connect
        again."""
        node = self.here.overdue(event.instance, self._now)
        if node:
            self._do(events.Say(f"muster: {self._name(node)} is gone; waiting for it to connect again"))
            self._reports.forget(node)
            self.here.remove(node)

    def _lose(self, event: events.Overdue) -> None:
        """The node is lost, or node 0 is cut off from all nodes. Node 0 ends the job. If the case
        is unclear, node 0 looks again later."""
        node = self.here.overdue(event.instance, self._now)
        if node and self._reports.is_unclear(node, self._now):
            self._do(events.Wake(event, liveness.LOOK_S))
        elif node:
            self._reports.lose(node, self._now)
            self.here.remove(node)
            self._begin_end()

    # Nodes that connect

    def _enrol(self, event: First) -> Node:
        """A node connects, or connects again. Node 0 welcomes it."""
        node = self.here.come(event, self._now)
        if node.link is not None:
            self._do(events.Close(node.link))
            self.here.disconnect(node.link)
        self.here.connect(node, event.link, self._now)
        self._do(events.Admit(event.link))
        self._send(node, {"type": "welcome", "hub": self._hub_name})
        if self._again:  # a node that knows this round ignores the message
            self._send(node, self._again)
        return node

    def _readmit(self, event: First) -> None:
        """A known node connects again, and continues. Node 0 refuses an unknown node: the job has
        started without it."""
        if self._is_known(event):
            node = self._enrol(event)
            self._send(node, self._released, *node.words)
        else:
            self._turn_away(event)

    def _take_back(self, event: First) -> None:
        """Like readmit, before the release."""
        if self._is_known(event):
            self._enrol(event)
        else:
            self._turn_away(event)

    def _is_known(self, event: First) -> bool:
        return wire.text(event.message, "instance") in self.here.by_instance

    def _turn_away(self, event: First) -> None:
        text = f"{self._roll.name(wire.number(event.message, 'node'))} came when the job had already started without it"
        is_back = self._reports.has_lost(wire.text(event.message, "instance"))  # too late: the job ends because this node was lost
        judgement = self._reports.judge() if is_back else Judgement("failed", WaitError.exit_code, text)
        self._do(events.TurnAway(event.link))
        self._do(events.Send(self._stamped(judgement_message("judgement", judgement)), (event.link,)))

    def _stop_it(self, event: First) -> None:
        """A node connects. Node 0 orders it to stop."""
        if self._restarts and self._released and not self._is_known(event):
            self._turn_away(event)
            return
        node = self._enrol(event)
        self._send(node, self._stop_message(), *node.words)  # the stop first: in "gathering" a member ignores words

    def _tell_it(self, event: First) -> None:
        """A node connects. Node 0 sends it the judgement."""
        assert self.judgement
        self._send(self._enrol(event), judgement_message("judgement", self.judgement))

    def _send_off(self, event: First) -> None:
        """A node connects late. Node 0 answers that node 0 leaves."""
        self._send(self._enrol(event), {"type": "dismissed"})

    # Sending

    def _name(self, node: Node) -> str:
        return self._roll.name(node.node)

    def _send(self, node: Node, *messages: Message) -> None:
        links = self.here.links_of((node,))
        self._actions += [events.Send(self._stamped(message), links) for message in messages if links]

    def _broadcast(self, message: Message) -> None:
        links = tuple(self.here.by_link)
        if links:
            self._do(events.Send(self._stamped(message), links))


Hub.rules = events.rules(Hub, STATES, TABLE)
COUNTS_ALWAYS = events.taken(TABLE)
