"""Node 0's side of the muster: lets all nodes start together, tells all of the first failure, and says what the job died of.

It is a gate and a broadcast: each node sends one message for each thing that happens to it, and gets one for each that concerns all.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Mapping

from ranklaunch.errors import WaitError
from ranklaunch.muster import gone, wire
from ranklaunch.muster.door import Door, Peer
from ranklaunch.muster.gathering import Gathering
from ranklaunch.muster.roll import NAMED, Entry, Roll
from ranklaunch.muster.wire import Message
from ranklaunch.plan.model import Muster
from ranklaunch.system.loop import Loop
from ranklaunch.values import replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect

GATHERING, RUNNING, ENDING, OVER = "gathering", "running", "ending", "over"

TICK_S = 0.25
QUIET_TICK_S = 5.0  # while the job runs
ASK_S = 5.0
REPORTS_S = 1.5  # beyond the grace: for the nodes to say how they ended
ACK_S = 3.0  # within which a node that is there answers the order to stop
STATUS_S = 30.0
FIRST_STATUS_S = 2.0


class Node:
    """One start of one node that has signed. heard: when it last said something; reported: its last word on how it ended."""

    def __init__(self, entry: Entry, peer: Peer, now: float) -> None:
        self.entry = entry
        self.peer: Peer | None = peer
        self.heard = now
        self.gone_at: float | None = None
        self.gone_why: OSError | None = None
        self.stopping = self.reported = self.done = self.told = False
        self.suspects: list[Suspect] = []
        self.finishes: list[Finish] = []
        self.notes: list[str] = []
        self.offers: Mapping[str, str] = {}

    @property
    def index(self) -> int:
        """Its place by its own word, once that is known."""
        return self.entry.node if self.entry.index is None else self.entry.index


class Hub:
    """success: what is said when everything has succeeded."""

    def __init__(self, muster: Muster, key: bytes, loop: Loop, say: Callable[[str], None], grace_s: float, success: str) -> None:
        self.state = GATHERING
        self.judgement: Judgement | None = None
        self._muster = muster
        self._loop = loop
        self._say = say
        self._grace_s = grace_s
        self.success = success
        self._id = os.urandom(8).hex()
        self._roll = Roll(muster.hosts, muster.allowed)
        self._nodes: dict[str, Node] = {}
        self._suspects: list[Suspect] = []  # of nodes that are gone, and what this side has seen itself
        self._silent: set[str] = set()
        self._odd: set[str] = set()
        self._released: Message = {}
        self._ended_at = 0.0
        self._done = self._reported = 0  # nodes
        self._next_status = loop.clock() + FIRST_STATUS_S
        self._next_ask = loop.clock() + FIRST_STATUS_S / 2
        self._door = Door(muster, key, loop, say, self._on_message, self._on_nonsense, self._on_end)
        self._gathering = Gathering(muster, self._roll, self._door, loop)
        self._timer = loop.after(TICK_S, self._tick)

    def adopt(self, sock: socket.socket) -> None:
        """A connection of this very process."""
        self._door.adopt(sock)

    def close(self) -> None:
        self._timer.cancel()
        self._door.close()
        for node in self._nodes.values():
            if node.peer:
                node.peer.stream.close()

    def dismiss(self) -> None:
        """This side leaves before the others; they go on without it."""
        self.state = OVER
        self._broadcast({"type": "dismissed"})

    def end_late(self, finished: str) -> None:
        """Ends a job with followers in which this node has succeeded and others do not end. It cannot leave them alone: followers would
        have nobody to tell them, and a TensorFlow worker may be waiting for this one for ever."""
        if self.state != RUNNING:  # it is ending already
            return
        leading = len(self._roll.hosts) - self._muster.followers
        left = [self._name(node) for node in self._nodes.values() if not node.done and node.entry.node < leading]
        named = ", ".join([*sorted(left)[:NAMED], *([f"{len(left) - NAMED} more"] if len(left) > NAMED else [])])
        text = (
            f"{finished} on {self._roll.name(0)}, but {named} still ran {self._muster.end_timeout_s:g} s later (RANKLAUNCH_END_TIMEOUT_S)"
        )
        self._conclude(Judgement("failed", WaitError.exit_code, text))

    @property
    def offers(self) -> dict[int, Mapping[str, str]]:
        """By node."""
        return {node.index: node.offers for node in self._nodes.values()}

    @property
    def settled(self) -> bool:
        """Whether every node that is there has taken the verdict."""
        return all(node.told or not node.peer for node in self._nodes.values())

    # Connections

    def _on_nonsense(self, peer: Peer, error: Exception) -> None:
        self._door.drop(peer)
        if peer.instance in self._nodes:  # it has signed: a defect, or another version; its connection is worth nothing any more
            if peer.instance not in self._odd:
                self._odd.add(peer.instance)
                self._say(f"muster: {self._name(self._nodes[peer.instance])} sent what is not understood: {error!s:.200}")
            self._on_end(peer, OSError(errno.EPROTO, str(error)))

    def _on_end(self, peer: Peer, error: OSError | None) -> None:
        node = self._nodes.get(peer.instance)
        if not node or node.peer is not peer:
            return
        node.peer = None
        if self.state == OVER or node.reported:
            node.told = True
            return
        node.gone_at, node.gone_why = self._loop.clock(), error
        self._loop.after(gone.time_to_return(error), lambda: self._gone(node))

    def _gone(self, node: Node) -> None:
        """A node whose connection broke and that has not come back."""
        if node.peer or node.gone_at is None or self._nodes.get(node.entry.instance) is not node:
            return
        if self._loop.clock() - node.gone_at < gone.time_to_return(node.gone_why):  # it was back meanwhile, and broke again
            return
        if self.state == OVER or node.done:  # one that has succeeded is not needed any more
            node.gone_at = None
            return
        name = self._name(node)
        self._forget(node)
        if self.state == GATHERING and not node.suspects:
            self._say(f"muster: {name} has gone again; waiting for it to come back")
            return
        if not node.suspects:
            self._suspects.append(self._vanished(node, gone.silence(node.gone_why)))
        self._begin_end()

    def _forget(self, node: Node) -> None:
        self._suspects += node.suspects
        self._reported -= node.reported
        self._roll.remove(node.entry.instance)
        del self._nodes[node.entry.instance]

    def _missed(self, node: Node) -> Suspect:
        return replace(self._vanished(node, silent=True), at=self._loop.wall(self._loop.clock()))

    def _vanished(self, node: Node, silent: bool) -> Suspect:
        """When it was killed is when its connection was closed; when its host went down is after it was last heard of."""
        heard_at, seconds = self._loop.wall(node.heard), self._loop.clock() - node.heard
        at = self._loop.wall(node.gone_at) if node.gone_at is not None and not silent else heard_at
        since = f"; last heard of at {blame.iso(heard_at)}, {seconds:.1f} s before"
        host = node.entry.named or (self._roll.hosts[node.entry.node] if 0 <= node.entry.node < len(self._roll.hosts) else "")
        return gone.suspect(node.index, host, silent, at, since)

    # Messages

    def _on_message(self, peer: Peer, message: Message) -> None:
        kind = message.get("type")
        if not peer.instance:
            if kind == "hello":
                self._on_hello(peer, message)
            else:
                self._door.drop(peer)
            return
        node = self._nodes.get(peer.instance)
        if not node or node.peer is not peer:  # one that was told that there is no place for it
            return
        node.heard = self._loop.clock()
        self._silent.discard(peer.instance)
        handle = {
            "ping": self._on_ping, "busy": self._on_busy, "ready": self._on_ready, "fail": self._on_fail, "stopping": self._on_stopping,
            "done": self._on_done, "report": self._on_report, "bye": self._on_bye,
        }.get(str(kind))  # fmt: skip
        if handle:  # what a later version may add is not for this one
            handle(node, message)

    def _on_hello(self, peer: Peer, message: Message) -> None:
        instance, index = wire.text(message, "instance"), wire.number(message, "node")
        self._door.admit(peer, instance)
        node = self._nodes.get(instance)
        now = self._loop.clock()
        if self.state == RUNNING and not node:
            self._door.turn_away(peer)
            text = f"{self._roll.name(index)} came when the job had already started without it"
            self._tell(Node(Entry(index, instance, "", "", now), peer, now), Judgement("failed", WaitError.exit_code, text))
            return
        if node:  # it comes back
            if node.peer:
                node.peer.stream.close()
            node.peer, node.gone_at, node.heard = peer, None, now
        else:
            entry = Entry(index, instance, wire.text(message, "host"), peer.address, now, doing=wire.text(message, "doing"))
            node = self._nodes[instance] = Node(entry, peer, now)
            self._roll.add(entry)
        self._send(node, {"type": "welcome", "hub": self._id})
        if self.state == RUNNING:
            self._send(node, self._released)
        elif self.state == ENDING:
            self._send(node, self._stop_message())
        elif self.judgement:
            self._tell(node, self.judgement)
        elif self.state == OVER:
            self._send(node, {"type": "dismissed"})

    def _on_ping(self, node: Node, message: Message) -> None:
        self._send(node, {"type": "pong", "sent": float(message["sent"]), "time": time.time()})

    def _on_busy(self, node: Node, message: Message) -> None:
        node.entry.doing = wire.text(message, "doing")[: blame.LINE]

    def _on_ready(self, node: Node, message: Message) -> None:
        if self.state != GATHERING or node.entry.facts is not None:
            return
        facts = {str(name): str(value) for name, value in message["facts"].items()}
        node.entry.index, node.entry.named = wire.number(message, "index"), wire.text(message, "host")[: blame.WORD]
        node.offers = wire.texts(message.get("offers", {}))
        self._gathering.ready(node.entry, facts)
        self._look()

    def _on_fail(self, node: Node, message: Message) -> None:
        node.suspects = [blame.clipped(blame.suspect(message["suspect"]))]
        self._begin_end()

    def _on_stopping(self, node: Node, message: Message) -> None:
        node.stopping = True

    def _on_done(self, node: Node, message: Message) -> None:
        node.finishes = [blame.finish(message["finish"])]
        self._done += not node.done
        node.done = True
        if self.state == RUNNING and self._done == len(self._roll.hosts) - self._muster.followers:
            self._conclude(Judgement("succeeded", 0, self.success))

    def _on_report(self, node: Node, message: Message) -> None:
        node.suspects = [blame.clipped(blame.suspect(each)) for each in message["suspects"]]
        node.finishes = [blame.finish(each) for each in message["finishes"]]
        node.notes = [note[: blame.LINE] for note in message.get("notes", ()) if isinstance(note, str)]
        self._reported += not node.reported
        node.reported = True
        self._begin_end()
        if self._reported >= len(self._nodes):  # else the next tick looks: 4,096 looks at 4,096 nodes take too long
            self._look_at_reports()

    def _on_bye(self, node: Node, message: Message) -> None:
        """It has its verdict, or leaves before the others: with 0, having waited for them long enough."""
        node.told = True
        if self.state == RUNNING:
            self._say(f"muster: {self._name(node)}, whose ranks have succeeded, has waited long enough and leaves")
        if node.peer:
            node.peer.stream.close()
            node.peer = None

    # Decisions

    def _look(self) -> None:
        """Whether the nodes may start."""
        if self.state != GATHERING:
            return
        failure = self._gathering.failure()
        if failure:
            self._conclude(failure)
        elif self._gathering.complete:
            self._release()

    def _release(self) -> None:
        self.state = RUNNING
        self._released = {"type": "release", "text": self._gathering.summary(), "shared": self.offers.get(0, {})}
        self._broadcast(self._released)

    def _begin_end(self) -> None:
        """The first failure: everybody stops, and then says how it ended."""
        if self.state in (ENDING, OVER):
            return
        self.state = ENDING
        self._ended_at = self._loop.clock()
        self._broadcast(self._stop_message())
        self._timer.cancel()
        self._timer = self._loop.after(TICK_S, self._tick)
        self._look_at_reports()

    def _stop_message(self) -> Message:
        """What is known when the order is given; the judgement follows when all have reported."""
        return {"type": "stop", "judgement": blame.as_message(self._judged())}

    def _judged(self) -> Judgement:
        suspects = [*self._suspects, *(each for node in self._nodes.values() for each in node.suspects)]
        finishes = [each for node in self._nodes.values() for each in node.finishes]
        if not suspects:
            return Judgement("failed", WaitError.exit_code, "a node ended without a reason")
        return blame.judge(suspects, finishes, [note for node in self._nodes.values() for note in node.notes])

    def _look_at_reports(self) -> None:
        if self.state != ENDING:
            return
        waited = self._loop.clock() - self._ended_at
        left = [node for node in self._nodes.values() if not node.reported and (node.peer or node.gone_at is not None)]
        answering = [node for node in left if node.stopping or node.gone_at is not None or waited <= ACK_S]
        if not answering or waited > self._grace_s + REPORTS_S:
            # What happened before they were told to stop was not their doing, or it would have been noticed.
            self._suspects += [self._missed(node) for node in left if not node.stopping]
            self._conclude(self._judged())

    def _conclude(self, judgement: Judgement) -> None:
        self.state = OVER
        self.judgement = judgement
        for node in self._nodes.values():
            self._tell(node, judgement)

    # Time

    def _tick(self) -> None:
        self._timer = self._loop.after(TICK_S if self.state in (GATHERING, ENDING) else QUIET_TICK_S, self._tick)
        now = self._loop.clock()
        if self.state == GATHERING:
            self._door.open()
        self._door.drop_late()
        self._look()
        self._look_at_reports()
        if now >= self._next_ask and self.state == GATHERING:
            self._next_ask = now + ASK_S
            self._gathering.ask_why()
        if now >= self._next_status:
            self._next_status = now + STATUS_S
            self._status(now)

    def _status(self, now: float) -> None:
        if self.state == RUNNING:
            self._watch_silence(now)
        if self.state != GATHERING:
            return
        missing = self._gathering.missing
        if missing:
            self._broadcast({"type": "status", "missing": missing[: blame.SAID]})

    def _watch_silence(self, now: float) -> None:
        """The host is there, or the kernel would have said so; the process is stopped, or waits for a file system."""
        for instance, node in self._nodes.items():
            if now - node.heard > max(self._muster.lost_after_s, STATUS_S) and instance not in self._silent and not node.done:
                self._silent.add(instance)
                self._say(f"muster: {self._name(node)} has said nothing for {now - node.heard:.0f} s, but its host answers")

    def _name(self, node: Node) -> str:
        return self._roll.name(node.entry.node)

    # Sending

    def _send(self, node: Node, message: Message) -> None:
        if node.peer:
            node.peer.send(message)

    def _broadcast(self, message: Message) -> None:
        for node in list(self._nodes.values()):
            self._send(node, message)

    def _tell(self, node: Node, judgement: Judgement) -> None:
        self._send(node, {"type": "judgement", "judgement": blame.as_message(judgement)})
