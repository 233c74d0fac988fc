"""Reports of the nodes, and node 0's view of the end of the job: ends that nodes report, and signs of lost nodes.

This module owns the suspects. The hub decides when to judge, and which nodes get the judgement.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ranklaunch import showing
from ranklaunch.errors import WaitError, counted
from ranklaunch.muster import EVIDENCE_S, liveness, wire
from ranklaunch.muster.events import INSIDE, First, Kept, Now
from ranklaunch.muster.membership import NAMED, Entry, Roll
from ranklaunch.muster.wire import Message
from ranklaunch.verdict import blame, messages
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Note

REPORTS_S = 1.5  # added to the grace period, for the nodes' reports
MOST_RANKS = 10_000_000  # that a node may claim
ACK_S = 3.0  # for a node to confirm the order to stop, if its network works
AFTER_S = 2.0  # after the order to stop: a node killed later than this is no cause of earlier failures


def judgement_message(kind: str, judgement: Judgement) -> Message:
    """Return a message with a judgement. If a frame cannot hold it, failures and notes are left out: in JSON a control character takes
    six bytes."""
    message: Message = {"type": kind, "judgement": messages.as_message(judgement)}
    try:
        wire.body(message)
    except wire.WireError:
        message["judgement"] = messages.as_message(replace(judgement, failures=(), notes=()))
    return message


class Node(Entry):
    """One start of one node, after its signature.

    | field | meaning |
    | --- | --- |
    | index | its place: by its hello until the release, then by its rank table |
    | attempt | number of this start, by its own count |
    | inside | True for the node of this process; no other node can claim its place |
    | link | its connection; None while broken |
    | heard | time of its last message |
    | gone_at, back_by | when its connection broke, and its deadline to come back |
    | stopping, reported, done | True after the order to stop, its report, its success |
    | has_verdict | True once the node has received the verdict |
    | readies | number of its last message of readiness |
    """

    def __init__(self, hello: First, now: Now) -> None:
        message = hello.message
        instance, host, doing = (wire.text(message, name) for name in ("instance", "host", "doing"))
        super().__init__(wire.number(message, "node"), instance, host, hello.address, now.clock, doing)
        self.index = self.node
        self.attempt = wire.number(message, "attempt")
        self.inside = hello.link == INSIDE
        self.link: int | None = None
        self.heard = 0.0
        self.gone_at: float | None = None
        self.gone_why: OSError | None = None
        self.back_by = 0.0
        self.stopping = self.reported = self.done = self.has_verdict = False
        self.unseen = 0
        self.suspects: list[Suspect] = []
        self.finishes: list[Finish] = []
        self.notes: list[Note] = []
        self.offers: Mapping[str, str] = {}
        self.state: Mapping[str, object] = {}
        self.readies = -1
        self.words = Kept()

    def renew(self) -> None:
        """Forget the reports of the ended round."""
        self.stopping = self.reported = self.done = self.has_verdict = False
        self.unseen, self.readies = 0, -1
        self.suspects, self.finishes, self.notes, self.offers, self.state = [], [], [], {}, {}
        self.words.clear()

    def prepared(self, message: Message) -> dict[str, str]:
        """Take the place and the offers of a node from its message `ready`. Return the facts by name."""
        facts = {showing.one_line(str(name)): showing.one_line(str(value)) for name, value in message["facts"].items()}
        self.stated, self.named = wire.number(message, "index"), wire.text(message, "host")[: blame.HOST]
        self.offers = wire.texts(message.get("offers", {}))
        self.gives = bool(self.offers)
        return facts


class Present:
    """Present nodes, by instance and by connection."""

    def __init__(self, roll: Roll) -> None:
        self.by_instance: dict[str, Node] = {}
        self.by_link: dict[int, Node] = {}
        self._roll = roll
        self._silent: set[str] = set()
        self._odd: set[str] = set()

    def seat(self) -> None:
        """Set the index of each node to the place in its rank table: at the release all nodes agree on these places."""
        for node in self.by_instance.values():
            node.index = node.place

    @property
    def offers(self) -> dict[int, Mapping[str, str]]:
        """Return, by node, the values that a node gives to the others."""
        return {node.index: node.offers for node in self.by_instance.values()}

    @property
    def offers_of_node_0(self) -> Mapping[str, str]:
        """Offers of the supervisor in this process, if it is node 0. Offers of another node that claims to be node 0 do not count."""
        local = self.by_link.get(INSIDE)
        return local.offers if local and local.index == 0 else {}

    def come(self, event: First, now: Now) -> Node:
        """Return the node that says hello; add a new one."""
        node = self.by_instance.get(wire.text(event.message, "instance"))
        if not node:
            node = Node(event, now)
            self.by_instance[node.instance] = node
            self._roll.add(node)
        return node

    def keep(self, word: Message, nodes: Sequence[int]) -> tuple[int, ...]:
        """Keep a word for the receivers: these nodes, or all for an empty list. Return the connections of connected receivers."""
        receivers = [node for node in self.by_instance.values() if not nodes or node.index in nodes]
        for node in receivers:
            node.words.add(word)
        return self.links_of(receivers)

    def links_of(self, nodes: Iterable[Node]) -> tuple[int, ...]:
        """Return the connections of nodes; a node without one is left out."""
        return tuple([node.link for node in nodes if node.link is not None])

    def is_odd(self, node: Node) -> bool:
        """Return True for the first invalid message of a node: only the first one is reported."""
        is_first = node.instance not in self._odd
        self._odd.add(node.instance)
        return is_first

    def remove(self, node: Node) -> None:
        self._roll.remove(node.instance)
        del self.by_instance[node.instance]

    def connect(self, node: Node, link: int, now: Now) -> None:
        self.by_link[link] = node
        node.link, node.gone_at, node.heard = link, None, now.clock

    def disconnect(self, link: int) -> Node | None:
        """Remove a connection and return its node."""
        node = self.by_link.pop(link, None)
        if node:
            node.link = None
        return node

    def hear(self, link: int, now: Now) -> Node | None:
        """Note that a node has sent a message, and return the node."""
        node = self.by_link.get(link)
        if node:
            node.heard = now.clock
            self._silent.discard(node.instance)
        return node

    def overdue(self, instance: str, now: Now) -> Node | None:
        """Return a node whose connection broke, if it has not come back in time and has not succeeded; else None."""
        node = self.by_instance.get(instance)
        if not node or node.gone_at is None or now.clock < node.back_by:
            return None
        if node.done:
            node.gone_at = None
            return None
        return node

    def unfinished(self, leading: int) -> str:
        """Return the names of the nodes below index `leading` that have not succeeded."""
        names = [self._roll.name(node.node) for node in self.by_instance.values() if not node.done and node.node < leading]
        return ", ".join([*sorted(names)[:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])])

    def newly_silent(self, seconds: float, now: Now) -> list[Node]:
        """Return the nodes without a message for so many seconds, each once.

        Their hosts answer, or the kernel would have ended the connections: the process is stopped, or waits for a file system.
        """
        silent = [node for node in self.by_instance.values() if now.clock - node.heard > seconds and not node.done]
        result = [node for node in silent if node.instance not in self._silent]
        self._silent.update(node.instance for node in result)
        return result


class Reports:
    """Reports of the nodes. present: the present nodes. grace_s: seconds for their end. lost_after_s: silence after which a node counts
    as lost. begun_at: time of the order to stop, by the hub's clock; 0 before. done: number of nodes that have succeeded."""

    def __init__(self, present: Present, hosts: Sequence[str], grace_s: float, lost_after_s: float) -> None:
        self.done = 0
        self.begun_at = 0.0
        self._nodes: Mapping[str, Node] = present.by_instance
        self._hosts = hosts
        self._patience_s = grace_s + REPORTS_S
        self._lost_after_s = lost_after_s
        self._has_reported_silence = False
        self._reported = 0
        self._suspects: list[Suspect] = []  # of nodes that were lost or removed
        self._lost: list[str] = []
        self._notes: list[Note] = []
        self._lost_starts: set[str] = set()
        self._is_cut_off: bool | None = None  # True if node 0 is; decided once, at the first lost node that fell silent

    def begin(self, now: Now) -> None:
        """Note the order to stop. After a failure the nodes collect evidence first, so they get more time."""
        self.begun_at = now.clock
        self._patience_s += EVIDENCE_S if self.judge().outcome == "failed" else 0.0

    # Messages of a node

    def suspect(self, node: Node, message: Message) -> None:
        node.suspects = [self._own(node, message["suspect"])]

    def succeed(self, node: Node, message: Message) -> None:
        unseen = message.get("unseen", 0)  # absent in messages of older versions
        node.unseen = unseen if isinstance(unseen, int) and 0 < unseen < MOST_RANKS else 0
        node.finishes = [self._finish(node, message["finish"])]
        self.done += not node.done
        node.done = True

    def file(self, node: Node, message: Message) -> None:
        node.suspects = [self._own(node, each) for each in message["suspects"]]
        node.finishes = [self._finish(node, each) for each in message["finishes"]]
        node.notes = [*messages.notes(message)]
        state = message.get("state", {})
        node.state = state if isinstance(state, dict) else {}
        self._reported += not node.reported
        node.reported = True

    # A node can accuse only itself, so its index replaces any other in its message. Node 0, in this process, is the exception: a launcher
    # there, such as mpirun or DeepSpeed's runner, has ranks on other nodes.

    def _own(self, node: Node, message: Message) -> Suspect:
        """Return a node's suspect, placed on that node. A rank that its ranks waited for in vain stays on its own node."""
        suspect: Suspect = messages.clipped(messages.suspect(message))
        if node.inside and not node.index:
            return suspect
        index, host, culprit = node.index, self._host(node), suspect.culprit
        if culprit and 0 <= culprit.node < len(self._hosts) and any(each.rule == blame.WAITED_FOR for each in suspect.because):
            index, host = culprit.node, self._hosts[culprit.node]
        return replace(suspect, node=index, culprit=culprit and replace(culprit, node=index, host=host))

    def _finish(self, node: Node, message: Message) -> Finish:
        finish = messages.finish(message)
        return finish if node.inside and not node.index else replace(finish, node=node.index)

    # Lost nodes

    def forget(self, node: Node) -> None:
        """Remove a node that has left; its suspects stay."""
        self._suspects += node.suspects
        self._reported -= node.reported

    def lose(self, node: Node, now: Now) -> None:
        """Remove a lost node; the loss is a failure unless the node had reported one."""
        self.forget(node)
        self._lost.append(blame.place(node.index, self._host(node)))
        self._lost_starts.add(node.instance)
        silent = self._fell_silent(node)
        if node.suspects or (silent and self._is_cut_off):
            return
        if silent and self._decides_own(node, now):
            self._suspects.append(self._cut_off((node, *self._nodes.values()), now))
            return
        vanished, after_s = self._vanished(node, silent, now), (node.gone_at or 0.0) - self.begun_at
        if self.begun_at and after_s > AFTER_S and vanished.culprit:
            self._notes.append(Note(f"{blame.sentence(vanished.culprit)}, {after_s:.1f} s after the end of the job had begun"))
        else:
            self._suspects.append(vanished)

    def is_unclear(self, node: Node, now: Now) -> bool:
        """Return True while either this node or node 0 itself may be cut off."""
        return self._fell_silent(node) and self._is_cut_off is None and self._is_own(node, now) is None

    def _fell_silent(self, node: Node) -> bool:
        """Return True if the network to the node was away. A late reset shows this too, once the node has had time to give node 0
        up: its host answers again, but has forgotten the connection."""
        gave_up = liveness.reset(node.gone_why) and (node.gone_at or 0.0) - node.heard >= self._lost_after_s
        return gave_up or liveness.silence(node.gone_why)

    def _decides_own(self, lost: Node, now: Now) -> bool:
        """Return True if this call decides that node 0 itself is cut off. Only the first call decides: a comparison of each of thousands
        of lost nodes with all others takes too long."""
        if self._is_cut_off is None:
            self._is_cut_off = self._is_own(lost, now) is not False
            return self._is_cut_off
        return False

    def _is_own(self, lost: Node, now: Now) -> bool | None:
        """Return liveness.Silence.is_own for a lost node."""
        peers = [node for node in self._nodes.values() if node is not lost and not node.inside]
        heard = [node.heard for node in peers if node.link is not None or self._fell_silent(node)]
        return liveness.Silence(lost.heard, heard, now.clock, liveness.beat_s(len(self._hosts), self._lost_after_s)).is_own

    def _cut_off(self, nodes: Iterable[Node], now: Now) -> Suspect:
        """Return node 0 as the suspect: if all other nodes are silent, node 0's own network failed. nodes: the joined ones."""
        local = next((node for node in self._nodes.values() if node.inside), None)
        heard = {node.instance: node.heard for node in nodes if node is not local}.values()
        place = (local.index, self._host(local)) if local else (0, self._hosts[0])
        first, last = min(heard), max(heard)
        return liveness.cut_off(*place, len(heard), now.wall_of(first), now.wall_of(last), now.clock - last)

    def has_lost(self, instance: str) -> bool:
        """Return True if this start of a node was counted as lost."""
        return instance in self._lost_starts

    def give_up(self, now: Now) -> None:
        """Make suspects of the nodes that do not answer.

        Their failure came after the order to stop: an earlier one would have been noticed.
        """
        silent = [node for node in self._unreported if not node.stopping]
        last = max((node for node in silent if not node.inside), key=lambda node: node.heard, default=None)
        if last and self._decides_own(last, now):
            self._suspects.append(replace(self._cut_off(self._nodes.values(), now), at=now.wall))
        if self._is_cut_off:
            return
        self._suspects += [replace(self._vanished(node, True, now), at=now.wall) for node in silent]

    def _vanished(self, node: Node, silent: bool, now: Now) -> Suspect:
        """Return the suspect for a lost node. Its time is the end of the connection for a killed process, and the last message of the node
        for a silent host."""
        heard_at, seconds = now.wall_of(node.heard), now.clock - node.heard
        at = now.wall_of(node.gone_at) if node.gone_at is not None and not silent else heard_at
        why = node.gone_why
        if why and why.errno == errno.EPROTO and not silent:  # node 0 closed the connection because of an invalid message
            reason = f"{blame.place(node.index, self._host(node))} sent an invalid message: {liveness.words(why)}"
            return Suspect(node.index, at, "failed", WaitError.exit_code, reason)
        since = f"; last heard of at {blame.iso(heard_at)}, {seconds:.1f} s before"
        return liveness.suspect(node.index, self._host(node), silent, at, since)

    def _host(self, node: Node) -> str:
        return node.named or (self._hosts[node.node] if 0 <= node.node < len(self._hosts) else "")

    # Results

    def success(self, text: str) -> str:
        """Return the sentence for the success of the job. text: the sentence if the ends of all ranks are known."""
        unseen = sum(node.unseen for node in self._nodes.values())
        launchers = f"the launchers of {counted(self.done, 'node')} succeeded"
        were, they = ("was", "it") if unseen == 1 else ("were", "they")
        return f"{launchers}; {counted(unseen, 'rank')} {were} not seen, and whether {they} ran is not known" if unseen else text

    @property
    def lost(self) -> tuple[Suspect, ...]:
        """Suspects of nodes that are lost or have not reported."""
        return (*self._suspects, *(each for node in self._nodes.values() if not node.reported for each in node.suspects))

    @property
    def states(self) -> tuple[Mapping[str, object], ...]:
        """Return the state of each node, for the decision about another round."""
        return tuple([node.state for node in self._nodes.values()])

    @property
    def away(self) -> str:
        """Return the place of the first node that is lost or has not reported its end; "" if every node has reported."""
        if self._is_cut_off:
            return "every other node"
        unreported = (blame.place(node.index, self._host(node)) for node in self._nodes.values() if not node.reported)
        return next(iter(self._lost), "") or next(unreported, "")

    @property
    def all_filed(self) -> bool:
        return self._reported >= len(self._nodes)

    @property
    def others_unreported(self) -> bool:
        """True if a connected node other than node 0 has not reported its end."""
        return any(node.gone_at is None and node.node for node in self._unreported)

    def over(self, now: Now) -> bool:
        """Return True once no more reports are expected.

        A node whose connection is broken is waited for: a short outage of the network may be the cause of the failure.
        """
        waited = now.clock - self.begun_at
        answering = any(node.stopping or node.gone_at is not None or now.clock <= self._answers_by(node) for node in self._unreported)
        return not answering or waited > self._patience_s

    def _answers_by(self, node: Node) -> float:
        """Return the deadline for a node to confirm the order to stop, by the hub's clock."""
        return max(self.begun_at + ACK_S, node.heard + self._lost_after_s)

    def newly_deaf(self, now: Now) -> str:
        """Return a message, once, about the first node that has not confirmed the order to stop within ACK_S; "" for none."""
        deaf = [node for node in self._unreported if not node.stopping and node.gone_at is None and now.clock < self._answers_by(node)]
        waited = now.clock - self.begun_at
        if self._has_reported_silence or not deaf or waited <= ACK_S:
            return ""
        self._has_reported_silence = True
        name = blame.place(deaf[0].index, self._host(deaf[0])) + (f" and {len(deaf) - 1} more" if deaf[1:] else "")
        wait_s = min(self._answers_by(deaf[0]), self.begun_at + self._patience_s) - now.clock
        return f"{name} has not answered the order to stop: its network may be down; waiting {wait_s:.0f} s for an answer"

    def judge(self) -> Judgement:
        """Return the judgement over all suspects and finishes of this moment."""
        suspects = [*self._suspects, *(each for node in self._nodes.values() for each in node.suspects)]
        finishes = [each for node in self._nodes.values() for each in node.finishes]
        if not suspects:
            return Judgement("failed", WaitError.exit_code, "a node ended without a reason")
        return blame.judge(suspects, finishes, [*self._notes, *(note for node in self._nodes.values() for note in node.notes)])

    @property
    def _unreported(self) -> list[Node]:
        """Nodes without a report, connected or with time to connect again."""
        return [node for node in self._nodes.values() if not node.reported and (node.link is not None or node.gone_at is not None)]
