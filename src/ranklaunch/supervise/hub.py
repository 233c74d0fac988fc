"""Node 0's side of the muster: lets all nodes start together, tells all of the first failure, and says what the job died of.

It is a gate and a broadcast: each node sends one message for each thing that happens to it, and gets one for each that concerns all.
Nothing that a connection sends can do more than end this connection, until it has signed with the job's key.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping

from ranklaunch import blame
from ranklaunch.blame import Finish, Judgement, Suspect
from ranklaunch.errors import ConfigError, WaitError
from ranklaunch.muster import wire
from ranklaunch.muster.roll import NAMED, Entry, Roll
from ranklaunch.muster.wire import Codec, Message, WireError, WrongKeyError
from ranklaunch.plan import Muster
from ranklaunch.supervise import lookup
from ranklaunch.supervise.loop import Loop
from ranklaunch.supervise.stream import Stream, keep_alive
from ranklaunch.values import replace
from ranklaunch.verdict import Culprit

GATHERING, RUNNING, ENDING, OVER = "gathering", "running", "ending", "over"

TICK_S = 0.25
QUIET_TICK_S = 5.0  # while the job runs
ASK_S = 5.0
BACKLOG = 4096
ACCEPT = 256  # connections taken in one step: the ranks' output has its turn too
UNKNOWN_S = 10.0  # how long a connection may stay without having signed
UNKNOWN_MOST = 1024  # of such connections beyond one for each node; above it the oldest goes
LEAST_UNKNOWN = 16
UNKNOWN_BYTES = 16 * 1024  # of the first message
SETTLE_S = 5.0  # once the nodes disagree: for the others to come and be compared too
RETURN_S = 1.0  # for a node whose connection broke to come back, before it counts as gone
RESET_S = 2.5
REPORTS_S = 1.5  # beyond the grace: for the nodes to say how they ended
ACK_S = 3.0  # within which a node that is there answers the order to stop
STATUS_S = 30.0
FIRST_STATUS_S = 2.0
REFUSED_SAID = 10  # addresses whose wrong key is told
SPARE_FDS = 256  # descriptors for everything but the connections

Say = Callable[[str], None]


class Peer:
    """One connection. instance: of the node's start that has signed; "" before that."""

    def __init__(self, address: str, since: float) -> None:
        self.address = address
        self.since = since
        self.nonce = os.urandom(wire.NONCE)
        self.greeting = bytearray()
        self.codec: Codec | None = None
        self.stream: Stream
        self.instance = ""


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


class Hub:
    """success: what is said when everything has succeeded."""

    def __init__(self, muster: Muster, key: bytes, loop: Loop, say: Say, grace_s: float, success: str) -> None:
        self.state = GATHERING
        self.judgement: Judgement | None = None
        self.trouble = ""  # why nobody can reach this side
        self._muster = muster
        self._key = key
        self._loop = loop
        self._say = say
        self._grace_s = grace_s
        self.success = success
        self._id = os.urandom(8).hex()
        self._roll = Roll(muster.hosts, muster.allowed)
        self._unknown: dict[Peer, None] = {}  # in order of arrival
        self._own: Peer | None = None
        self._nodes: dict[str, Node] = {}
        self._suspects: list[Suspect] = []  # of nodes that are gone, and what this side has seen itself
        self._wrong: dict[str, str] = {}
        self._full = self._resting = False
        self._silent: set[str] = set()
        self._odd: set[str] = set()
        self._why: dict[int, str] = {}
        self._asked: set[int] = set()
        self._deadline: float | None = None
        self._doubted: float | None = None
        self._released: Message = {}
        self._ended_at = 0.0
        self._done = self._reported = 0  # nodes
        self._next_status = loop.clock() + FIRST_STATUS_S
        self._next_ask = loop.clock() + FIRST_STATUS_S / 2
        self._listener: socket.socket | None = None
        self._lift_limit()
        self._listen()
        self._timer = loop.after(TICK_S, self._tick)

    # Connections

    def adopt(self, sock: socket.socket) -> None:
        """A connection of this very process."""
        self._greet(sock, "this container", own=True)

    def close(self) -> None:
        self._timer.cancel()
        if self._listener:
            if not self._resting:
                self._loop.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for peer in [*([self._own] if self._own else []), *self._unknown, *(node.peer for node in self._nodes.values() if node.peer)]:
            peer.stream.close()

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
        return {node.entry.node if node.entry.index is None else node.entry.index: node.offers for node in self._nodes.values()}

    @property
    def settled(self) -> bool:
        """Whether every node that is there has taken the verdict."""
        return all(node.told or not node.peer for node in self._nodes.values())

    def _listen(self) -> None:
        try:
            self._listener = _bound(self._muster.hosts[0], self._muster.port)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = (
                "is in use by another process; RANKLAUNCH_MUSTER_PORT names another, on every node" if taken else f"cannot be used: {error}"
            )
            self.trouble = f"port {self._muster.port} of this node {why}"
            return  # the next tick tries again: an earlier start of this container may be on its way out
        self.trouble = ""
        self._loop.on_readable(self._listener.fileno(), self._accept)

    def _lift_limit(self) -> None:
        """Room for one descriptor per node; ranks get the limit that ranklaunch was given."""
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 2 * len(self._muster.hosts) + UNKNOWN_MOST + SPARE_FDS
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            soft = max(soft, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        # Whoever has not signed may not take what the nodes and this process itself need.
        room = wanted if soft == resource.RLIM_INFINITY else soft
        self._most_unknown = max(LEAST_UNKNOWN, min(UNKNOWN_MOST + len(self._muster.hosts), room - len(self._muster.hosts) - SPARE_FDS))

    def _accept(self) -> None:
        assert self._listener
        for _ in range(ACCEPT):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:  # no descriptor left: those who have said nothing make room
                if not self._drop_oldest():
                    if not self._full:
                        self._full = True
                        self._say(f"muster: cannot take a connection: {error}")
                    self._rest()
                return
            keep_alive(sock, self._muster.lost_after_s)
            self._greet(sock, str(address[0]))

    def _rest(self) -> None:
        """Stops listening for a moment, so that what cannot be helped does not keep the loop busy."""
        listener = self._listener
        assert listener
        self._resting = True
        self._loop.forget(listener.fileno())

        def again() -> None:
            self._resting = False
            if self._listener is listener:
                self._loop.on_readable(listener.fileno(), self._accept)

        self._loop.after(TICK_S, again)

    def _greet(self, sock: socket.socket, address: str, own: bool = False) -> None:
        peer = Peer(address, self._loop.clock())
        peer.stream = Stream(sock, self._loop, lambda data: self._on_data(peer, data), lambda error: self._on_end(peer, error))
        if own:  # nothing but this process itself can keep it from signing
            self._own = peer
        else:
            self._unknown[peer] = None
        peer.stream.send(wire.GREETING + peer.nonce)
        if len(self._unknown) > self._most_unknown:
            self._drop_oldest()

    def _drop_oldest(self) -> bool:
        peer = next(iter(self._unknown), None)
        if peer:
            self._drop(peer)
        return bool(peer)

    def _drop(self, peer: Peer) -> None:
        self._unknown.pop(peer, None)
        peer.stream.close()

    def _on_data(self, peer: Peer, data: bytes) -> None:
        if not peer.codec:
            peer.greeting += data
            if len(peer.greeting) < wire.NONCE:
                return
            nonce, data = bytes(peer.greeting[: wire.NONCE]), bytes(peer.greeting[wire.NONCE :])
            peer.codec = Codec(self._key, peer.nonce, nonce, hub=True, most=UNKNOWN_BYTES)
        try:
            for message in peer.codec.feed(data):
                if peer.stream.closed:  # by what it has said before
                    return
                self._on_message(peer, message)
        except WrongKeyError:
            self._on_wrong_key(peer)
        except (WireError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            self._on_nonsense(peer, error)

    def _on_wrong_key(self, peer: Peer) -> None:
        if peer.instance:
            self._on_nonsense(peer, WireError("a signature is not right"))
            return
        if peer.address not in self._wrong and len(self._wrong) < REFUSED_SAID:
            self._wrong[peer.address] = "another key"
            self._say(f"muster: {peer.address} has another key: RANKLAUNCH_SECRET, or without it the job's name, is not the same there")
        self._drop(peer)

    def _on_nonsense(self, peer: Peer, error: Exception) -> None:
        if peer.instance in self._nodes:  # it has signed: a defect, or another version; its connection is worth nothing any more
            if peer.instance not in self._odd:
                self._odd.add(peer.instance)
                self._say(f"muster: {self._name(self._nodes[peer.instance])} sent what is not understood: {error!s:.200}")
            peer.stream.close()
            self._on_end(peer, OSError(errno.EPROTO, str(error)))
        else:
            self._drop(peer)

    def _on_end(self, peer: Peer, error: OSError | None) -> None:
        self._unknown.pop(peer, None)
        node = self._nodes.get(peer.instance)
        if not node or node.peer is not peer:
            return
        node.peer = None
        if self.state == OVER or node.reported:
            node.told = True
            return
        node.gone_at, node.gone_why = self._loop.clock(), error
        self._loop.after(_time_to_return(error), lambda: self._gone(node))

    def _gone(self, node: Node) -> None:
        """A node whose connection broke and that has not come back."""
        if node.peer or node.gone_at is None or self._nodes.get(node.entry.instance) is not node:
            return
        if self._loop.clock() - node.gone_at < _time_to_return(node.gone_why):  # it was back meanwhile, and broke again
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
            self._suspects.append(self._vanished(node, _silence(node.gone_why)))
        self._begin_end()

    def _forget(self, node: Node) -> None:
        self._suspects += node.suspects
        self._reported -= node.reported
        self._roll.remove(node.entry.instance)
        del self._nodes[node.entry.instance]

    def _missed(self, node: Node) -> Suspect:
        return replace(self._vanished(node, silent=True), at=self._wall(self._loop.clock()))

    def _vanished(self, node: Node, silent: bool) -> Suspect:
        """When it was killed is when its connection was closed; when its host went down is after it was last heard of."""
        heard_at, seconds = self._wall(node.heard), self._loop.clock() - node.heard
        at = self._wall(node.gone_at) if node.gone_at is not None and not silent else heard_at
        since = f"; last heard of at {blame.iso(heard_at)}, {seconds:.1f} s before"
        host = node.entry.named or (self._roll.hosts[node.entry.node] if 0 <= node.entry.node < len(self._roll.hosts) else "")
        return lost(node.entry.node if node.entry.index is None else node.entry.index, host, silent, at, since)

    # Messages

    def _on_message(self, peer: Peer, message: Message) -> None:
        kind = message.get("type")
        if not peer.instance:
            if kind == "hello":
                self._on_hello(peer, message)
            else:
                self._drop(peer)
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
        instance, index = _text(message, "instance"), _number(message, "node")
        peer.instance = instance
        self._unknown.pop(peer, None)
        assert peer.codec
        peer.codec.most = wire.MOST
        node = self._nodes.get(instance)
        now = self._loop.clock()
        if self.state == RUNNING and not node:
            self._unknown[peer] = None  # not one of ours: it may not stay
            text = f"{self._roll.name(index)} came when the job had already started without it"
            self._tell(Node(Entry(index, instance, "", "", now), peer, now), Judgement("failed", WaitError.exit_code, text))
            return
        if node:  # it comes back
            if node.peer:
                node.peer.stream.close()
            node.peer, node.gone_at, node.heard = peer, None, now
        else:
            entry = Entry(index, instance, _text(message, "host"), peer.address, now, doing=_text(message, "doing"))
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
        node.entry.doing = _text(message, "doing")[: blame.LINE]

    def _on_ready(self, node: Node, message: Message) -> None:
        if self.state != GATHERING or node.entry.facts is not None:
            return
        facts = {str(name): str(value) for name, value in message["facts"].items()}
        node.entry.index, node.entry.named = _number(message, "index"), _text(message, "host")[: blame.WORD]
        node.offers = wire.texts(message.get("offers", {}))
        now = self._loop.clock()
        self._roll.ready(node.entry, facts, now)
        self._deadline = self._deadline or now + self._muster.timeout_s
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
        now = self._loop.clock()
        if self._roll.doubtful:
            self._doubted = self._doubted or now
            # A start that was lost with its host is still held to be there until the kernel finds out.
            settle_s = SETTLE_S if self._roll.differ else max(SETTLE_S, self._muster.lost_after_s)
            if now >= self._doubted + settle_s or (self._roll.complete and len(self._roll.entries) == len(self._roll.hosts)):
                self._refuse()
            return
        self._doubted = None
        if self._roll.complete:
            self._release(now)
        elif self._deadline is not None and now >= self._deadline:
            self._give_up()

    def _refuse(self) -> None:
        problems = self._roll.problems()
        if not problems:
            return
        names = ",".join(problem.partition(" differs")[0] for problem in problems if " differs" in problem)
        hint = f"; if that is meant, set RANKLAUNCH_MUSTER_ALLOW={names} on node 0" if names else ""
        left = self._missing()
        also = f"; {left}" if left else ""
        self._conclude(Judgement("failed", ConfigError.exit_code, f"the nodes disagree: {'; '.join(problems)}{also}{hint}"))

    def _give_up(self) -> None:
        text = (
            f"waited {self._muster.timeout_s:g} s in vain for the job's nodes: {self._missing()}; RANKLAUNCH_MUSTER_TIMEOUT_S sets how long"
        )
        self._conclude(Judgement("failed", WaitError.exit_code, text))

    def _missing(self) -> str:
        refused = f"; refused: {', '.join(f'{address} ({why})' for address, why in self._wrong.items())}" if self._wrong else ""
        return f"{f'{self.trouble}; ' if self.trouble else ''}{self._roll.waiting(self._why)}{refused}"

    def _release(self, now: float) -> None:
        self.state = RUNNING
        last = self._roll.last()
        first = last[-1].ready
        late = [f"{self._roll.name(entry.node)} after {entry.ready - first:.1f} s" for entry in last[:3] if entry.ready - first >= 0.1]
        text = f"muster: all {len(last)} nodes are here, {now - first:.1f} s after the first"
        said = f"{text}; last came {', '.join(late)}" if late else text
        self._released = {"type": "release", "text": said, "shared": self.offers.get(0, {})}
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
        if not self._listener and self.state == GATHERING:
            self._listen()
        for peer in [peer for peer in self._unknown if now - peer.since > UNKNOWN_S]:
            self._drop(peer)
        self._look()
        self._look_at_reports()
        if now >= self._next_ask and self.state == GATHERING:
            self._next_ask = now + ASK_S
            self._ask_why()
        if now >= self._next_status:
            self._next_status = now + STATUS_S
            self._status(now)

    def _status(self, now: float) -> None:
        if self.state == RUNNING:
            self._watch_silence(now)
        if self.state != GATHERING:
            return
        missing = self._missing()
        if missing:
            self._broadcast({"type": "status", "missing": missing[: blame.SAID]})

    def _watch_silence(self, now: float) -> None:
        """The host is there, or the kernel would have said so; the process is stopped, or waits for a file system."""
        for instance, node in self._nodes.items():
            if now - node.heard > max(self._muster.lost_after_s, STATUS_S) and instance not in self._silent and not node.done:
                self._silent.add(instance)
                self._say(f"muster: {self._name(node)} has said nothing for {now - node.heard:.0f} s, but its host answers")

    def _ask_why(self) -> None:
        """Whether the names of those who are missing resolve; some at a time."""
        for index in [index for index in self._roll.missing if index not in self._asked][:NAMED]:
            host = self._roll.hosts[index]
            if host:
                self._asked.add(index)
                lookup.look_up(host, self._muster.port, self._loop, lambda found, why, i=index: self._on_looked_up(i, found, why))  # type: ignore[misc]

    def _on_looked_up(self, index: int, found: Iterable[lookup.Address], why: str) -> None:
        self._asked.discard(index)
        addresses = [str(address.sockaddr[0]) for address in found]
        self._why[index] = why or (f"nothing heard of {addresses[0]}" if addresses[0] != self._roll.hosts[index] else "nothing heard of it")

    def _wall(self, clock: float) -> float:
        return time.time() - (self._loop.clock() - clock)

    def _name(self, node: Node) -> str:
        return self._roll.name(node.entry.node)

    # Sending

    def _send(self, node: Node, message: Message) -> None:
        if node.peer and node.peer.codec:
            node.peer.stream.send(node.peer.codec.frame(message))

    def _broadcast(self, message: Message) -> None:
        for node in list(self._nodes.values()):
            self._send(node, message)

    def _tell(self, node: Node, judgement: Judgement) -> None:
        self._send(node, {"type": "judgement", "judgement": blame.as_message(judgement)})


def lost(node: int, host: str, silent: bool, at: float, since: str = "") -> Suspect:
    """A node that is gone without a word. A process that ends says why; one whose host still closes its connections was killed; a
    host that does not answer is down or cut off, and another try may find it back."""
    name = blame.place(node, host)
    if silent:
        reason = f"{name} does not answer: its host or the network to it is down{since}"
        return Suspect(node, at, "failed", WaitError.exit_code, reason)
    reason = f"ranklaunch on {name} ended without a word: it was killed by SIGKILL, or its container was{since}"
    culprit = Culprit(node, None, None, 137, "SIGKILL", False, (), "ranklaunch", host, blame.iso(at))
    return Suspect(node, at, "failed", 137, reason, culprit)


def _time_to_return(error: OSError | None) -> float:
    """A reset may come from something between the two, and be news to the other side with its next word only."""
    if _silence(error):
        return 0.0
    return RESET_S if error is not None and error.errno in (errno.ECONNRESET, errno.EPIPE) else RETURN_S


def _silence(error: OSError | None) -> bool:
    """Whether a connection ended because the other host does not answer, not because something there closed it."""
    return error is not None and error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


def _bound(host: str, port: int) -> socket.socket:
    """Listens at all addresses of this container; at a loopback address where the job knows node 0 by one."""
    families: tuple[tuple[socket.AddressFamily, str], ...] = ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0"))
    if host == "localhost" or host.startswith("127."):
        families = ((socket.AF_INET, "127.0.0.1" if host == "localhost" else host),)
    elif host == "::1":
        families = ((socket.AF_INET6, host),)
    for family, address in families:
        sock = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if address == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address, port))
            sock.listen(BACKLOG)
        except OSError as error:
            if sock:
                sock.close()
            if address != "::" or error.errno == errno.EADDRINUSE:
                raise
        else:
            return sock
    raise OSError(errno.EADDRNOTAVAIL, "no address to listen at")


def _text(message: Message, key: str) -> str:
    value = message.get(key)
    if not isinstance(value, str):
        msg = f"{key} is {value!r:.80}"
        raise ValueError(msg)
    return value


def _number(message: Message, key: str) -> int:
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{key} is {value!r:.80}"
        raise ValueError(msg)
    return value
