"""Node 0's side of connections: who comes and is let in, whose connection breaks, and how each is spoken to."""

from __future__ import annotations

import errno

from ranklaunch.errors import WaitError
from ranklaunch.muster import events, liveness, wire
from ranklaunch.muster.events import First
from ranklaunch.muster.membership import Roll
from ranklaunch.muster.reports import Node, Present, Reports, told
from ranklaunch.muster.topics import Speaker
from ranklaunch.muster.wire import Message
from ranklaunch.plan.model import Muster
from ranklaunch.verdict.blame import Judgement


class Reception(Speaker):
    """name: tells two starts of node 0 apart. restarts: whether the job may go on with another round, of which nobody is a part who has not
    been there in the first."""

    def __init__(self, state: str, muster: Muster, grace_s: float, name: str, attempt: int, *, restarts: bool) -> None:
        super().__init__(state, attempt)
        self.judgement: Judgement | None = None
        self._muster = muster
        self._hub_name = name
        self._restarts = restarts
        self._grace_s = grace_s
        self._roll = Roll(muster.hosts, muster.allowed)
        self.here = Present(self._roll)
        self._reports = Reports(self.here, muster.hosts, self._grace_s, muster.lost_after_s)
        self._released: Message = {}  # what was said to all then, the last time
        self._again: Message = {}  # what was said to all when this round began, where it is not the first

    def _begin_end(self) -> None:
        raise NotImplementedError

    def _stop_message(self) -> Message:
        raise NotImplementedError

    # Connections

    def _drop(self, event: events.Nonsense) -> None:
        """A connection is worth nothing any more. Of a node that has signed: a defect, or another version."""
        self._do(events.Close(event.link))
        node = self.here.by_link.get(event.link)
        if not node:
            return
        if self.here.is_odd(node):
            self._do(events.Say(f"muster: {self._name(node)} sent what is not understood: {event.why}"))
        super()._take(events.Broken(event.link, OSError(errno.EPROTO, event.why)))

    def _miss(self, event: events.Broken) -> None:
        """Its connection broke: it has a moment to come back, unless it has said all that it had to say."""
        node = self.here.disconnect(event.link)
        if node and node.reported:
            node.told = True
        elif node:
            seconds = liveness.time_to_return(event.error)
            node.gone_at, node.gone_why, node.back_by = self._now.clock, event.error, self._now.clock + seconds
            self._do(events.Wake(events.Overdue(node.entry.instance), seconds))

    def _see_off(self, event: events.Broken) -> None:
        """Its connection is over, and so is the job."""
        node = self.here.disconnect(event.link)
        if node:
            node.told = True

    def _forget(self, event: events.Overdue) -> None:
        """It may be started again, and come again."""
        node = self.here.overdue(event.instance, self._now)
        if node:
            self._do(events.Say(f"muster: {self._name(node)} has gone again; waiting for it to come back"))
            self._reports.forget(node)
            self.here.remove(node)

    def _lose(self, event: events.Overdue) -> None:
        """It is gone, or node 0 is cut off from all, and the job ends with it: looks again where that is not known yet."""
        node = self.here.overdue(event.instance, self._now)
        if node and self._reports.is_unclear(node, self._now):
            self._do(events.Wake(event, liveness.LOOK_S))
        elif node:
            self._reports.lose(node, self._now)
            self.here.remove(node)
            self._begin_end()

    # Who comes

    def _enrol(self, event: First) -> Node:
        """A node comes, or comes back, and is welcome."""
        node = self.here.come(event, self._now)
        if node.link is not None:
            self._do(events.Close(node.link))
            self.here.disconnect(node.link)
        self.here.connect(node, event.link, self._now)
        self._do(events.Admit(event.link))
        self._send(node, {"type": "welcome", "hub": self._hub_name})
        if self._again:  # it may not have heard of it; else this is nothing new to it
            self._send(node, self._again)
        return node

    def _readmit(self, event: First) -> None:
        """One that comes back goes on; for another one the job has started without it."""
        if self._is_known(event):
            node = self._enrol(event)
            self._send(node, self._released, *node.words)
        else:
            self._turn_away(event)

    def _take_back(self, event: First) -> None:
        """As readmit, before the release."""
        if self._is_known(event):
            self._enrol(event)
        else:
            self._turn_away(event)

    def _is_known(self, event: First) -> bool:
        return wire.text(event.message, "instance") in self.here.by_instance

    def _turn_away(self, event: First) -> None:
        text = f"{self._roll.name(wire.number(event.message, 'node'))} came when the job had already started without it"
        is_back = self._reports.has_lost(wire.text(event.message, "instance"))  # too late: the job ends because it was gone
        judgement = self._reports.judge() if is_back else Judgement("failed", WaitError.exit_code, text)
        self._do(events.TurnAway(event.link))
        self._do(events.Send(self._stamped(told("judgement", judgement)), (event.link,)))

    def _stop_it(self, event: First) -> None:
        """It comes, and is told to stop."""
        if self._restarts and self._released and not self._is_known(event):
            self._turn_away(event)
            return
        node = self._enrol(event)
        self._send(node, self._stop_message(), *node.words)  # before that one that was never released hears none

    def _tell_it(self, event: First) -> None:
        """It comes, and is told the judgement."""
        assert self.judgement
        self._send(self._enrol(event), told("judgement", self.judgement))

    def _send_off(self, event: First) -> None:
        """It comes, and is told that node 0 leaves."""
        self._send(self._enrol(event), {"type": "dismissed"})

    # Sending

    def _name(self, node: Node) -> str:
        return self._roll.name(node.entry.node)

    def _send(self, node: Node, *messages: Message) -> None:
        links = self.here.links_of((node,))
        self._actions += [events.Send(self._stamped(message), links) for message in messages if links]

    def _broadcast(self, message: Message) -> None:
        links = tuple(self.here.by_link)
        if links:
            self._do(events.Send(self._stamped(message), links))
