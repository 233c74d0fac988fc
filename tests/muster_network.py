"""A job in a time of its own: one hub, its members, what runs on each node, and a network that delays, breaks and repeats.

Connections are as TCP's: what was said on one comes in its order, until it breaks; what was under way then is lost.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from muster_machines import EPOCH, FACTS, Running, Time, as_sent, muster

from ranklaunch.muster import events
from ranklaunch.muster.events import Action, Event
from ranklaunch.muster.hub import RUNNING, Hub
from ranklaunch.muster.member import Member
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Culprit

RESET = OSError(errno.ECONNRESET, "Connection reset by peer")
SILENT = OSError(errno.ETIMEDOUT, "Connection timed out")
LIMITS: dict[str, float] = {"timeout_s": 20.0, "lost_after_s": 4.0, "end_timeout_s": 20.0}
GRACE_S = 2.0
SOON_S = 8.0  # more than it takes to come back, or to be missed
MOST_WORDS = 200  # that a node says
SILENT_S, VERDICT_S, EVIDENCE_S, JOIN_S, BYE_S = 15.0, 3.0, 15.0, 10.0, 2.0  # as in muster/nodes.py


class Link:
    """One connection. open: neither side has ended it, and it has not broken."""

    def __init__(self, net: Net, node: Node, number: int) -> None:
        self.net, self.node, self.number = net, node, number
        self.open = True
        self.spoke = False
        self._last = {"hub": 0.0, "member": 0.0}

    def send(self, to: str, message: dict[str, Any]) -> None:
        copy = as_sent(message)
        if to == "hub" and not self.spoke:
            self.spoke = True
            self._deliver(to, events.First(self.number, "somewhere", copy))
            return
        for _ in range(1 + (self.net.chance.random() < self.net.repeats)):
            self._deliver(to, events.Heard(self.number if to == "hub" else 0, copy))

    def _deliver(self, to: str, event: Event) -> None:
        """In order, each after some time."""
        time = self.net.time
        self._last[to] = max(self._last[to], time.clock + self.net.delay())
        time.after(self._last[to] - time.clock, lambda: self.open and self.net.feed(to, self.node, event))

    def end(self, *, hub: OSError | bool | None = True, member: OSError | bool | None = True, after: float = 0.0) -> None:
        """Broken, for each side with its error; True: that side knows. What was said before arrives where the side closes in order."""
        if not self.open:
            return
        time = self.net.time
        for to, error, event in (("hub", hub, self.number), ("member", member, 0)):
            if not isinstance(error, bool):
                at = max(self._last[to], time.clock) + self.net.delay() + after if error is None else time.clock + self.net.delay() + after
                broken = events.Broken(event, error)
                time.after(at - time.clock, lambda to=to, broken=broken: self.net.feed(to, self.node, broken, self))  # type: ignore[misc]
        if hub is None or member is None:  # closed in order
            last = max(self._last.values()) - time.clock
            time.after(max(0.0, last), self._close)
        else:
            self._close()

    def _close(self) -> None:
        self.open = False


class Node:
    """One start of one node: its member, and what its supervisor does. plan: what its ranks do in each round, as (seconds, exit code); the
    last is that of all rounds from there on. ready_s: what it takes to be ready, in each."""

    def __init__(self, net: Net, index: int, instance: str, ready_s: float, plan: list[tuple[float, int]], stop_s: float) -> None:
        self.net, self.index, self.instance = net, index, instance
        self.plans, self.stop_s, self.ready_s = plan, stop_s, ready_s
        self.round = 0
        self.member = Member(muster(net.count, index, **LIMITS), instance, f"h{index}", attempt=1 + net.chance.randrange(3))
        self.running = Running(self.member, net.time, self._do)
        self.link: Link | None = None
        self.dead = self.cut_off = False
        self.released = False
        self.ended: tuple[str, Any] | None = None  # how, and with what
        self.judgements: list[Judgement] = []
        self.words: list[Any] = []  # that it has heard
        self.words_said: list[Any] = []
        self.ending = self.finished = self.disturbed = self.stopped = False
        self.reset_at = 0.0
        self.running.feed(events.Start())
        self._later(ready_s, self._ready)

    @property
    def plan(self) -> tuple[float, int]:
        return self.plans[min(self.round, len(self.plans) - 1)]

    @property
    def runs(self) -> bool:
        """Whether its ranks do, or may."""
        return self.released and not (self.dead or self.stopped)

    def _later(self, seconds: float, what: Callable[[], object]) -> None:
        """Unless its round is over by then."""
        number = self.round
        self.net.time.after(seconds, lambda: what() if number == self.round else None)

    @property
    def away(self) -> bool:
        return self.dead or self.cut_off

    # What its member wants

    def _do(self, action: Action) -> None:
        time = self.net.time
        if isinstance(action, events.Dial):
            time.after(self.net.delay(), self._arrive)
        elif isinstance(action, events.Send) and self.link and self.link.open:
            self.link.send("hub", action.message)
        elif isinstance(action, events.Close) and self.link:
            self.link.end(hub=None)
        elif isinstance(action, events.Told):
            assert action.node == 0
            self.words.append(action.body)
        elif isinstance(action, events.Released):
            self._later(0, self._on_released)
        elif isinstance(action, events.Stop):
            self._later(0, lambda: self._end("told", action.judgement))
        elif isinstance(action, events.Again):
            time.after(0, lambda: self._on_again(action))
        elif isinstance(action, events.Judged):
            time.after(0, lambda: self._on_judged(action.judgement))
        elif isinstance(action, events.Lost):
            time.after(0, lambda: self._on_lost(action.suspect))
        elif isinstance(action, events.Dismissed):
            time.after(0, self._on_dismissed)

    def _arrive(self) -> None:
        net = self.net
        if self.dead or self.ended:
            return
        if self.cut_off or net.hub_unreachable:
            net.time.after(5.0, lambda: self.feed(events.Unreached("no answer (timed out)", refused=True)))
        elif net.hub_gone:
            self.feed(events.Unreached("no answer (connection refused)", refused=True))
        else:
            self.link = net.connect(self)
            self.feed(events.Reached())
            self.feed(events.Greeted())

    def feed(self, event: Event) -> None:
        if not self.dead:
            self.running.feed(event)

    # What its supervisor does

    def _ready(self) -> None:
        if self.dead or self.ended or self.ending:
            return
        self.feed(events.Ready(FACTS, self.index, f"h{self.index}"))
        self._wait_for_release(self.net.time.clock, self.member.joined)

    def _wait_for_release(self, since: float, joined: bool) -> None:
        """As Nodes.muster does."""
        if self.dead or self.released or self.ending or self.ended:
            return
        now = self.net.time.clock
        if joined != self.member.joined:
            joined, since = self.member.joined, now
        if since + LIMITS["timeout_s"] + (SILENT_S if joined else 0) - now <= 0:
            self._fail(75)
        else:
            self._later(0.5, lambda: self._wait_for_release(since, joined))

    def _on_released(self) -> None:
        if not self.dead and not self.ending:
            assert not self.released
            self.released = True
            self._talk()
            self._later(self.plan[0], self._done if self.plan[1] == 0 else lambda: self._fail(self.plan[1]))

    def _on_again(self, action: events.Again) -> None:
        """As a session does: nothing of the round before is there any more, and the next is prepared."""
        if self.dead or self.ended:
            return
        assert self.stopped
        assert action.round == self.round + 1
        self.net.rounds.setdefault(self.round, set()).add(repr(action.judgement))
        self.round = action.round
        self.released = self.ending = self.finished = self.stopped = False
        self._later(self.ready_s, self._ready)

    def _talk(self) -> None:
        """To node 0, now and then; node 0 to all, and to one."""
        net = self.net
        if self.dead or self.ended or self.finished or not net.talk_s or len(self.words_said) > MOST_WORDS:
            return
        word = [self.instance, len(self.words_said), self.round]
        if not self.cut_off and not self.member.over:
            self.words_said.append(word)
            self.feed(events.Word("talk", word))
        if self is net.node_0 and not (net.hub_gone or net.hub_unreachable):
            to = (net.chance.randrange(net.count),) if net.chance.random() < 0.5 else ()
            word = [list(to), len(net.words_said), self.round]
            net.words_said.append((to, word))
            net.hub_running.feed(events.Word("talk", word, to))
        self._later(net.chance.random() * net.talk_s, self._talk)

    def _done(self) -> None:
        if self.dead or self.ending or self.ended:
            return
        if self.member.over:  # dismissed
            self._finish("alone", 0)
            return
        self.finished = True
        self.feed(events.Done(Finish(self.index, None, EPOCH + self.net.time.clock)))
        self._later(LIMITS["end_timeout_s"], self._leave)

    def _leave(self) -> None:
        if self.dead or self.ending or self.ended:
            return
        if self.index:
            self.feed(events.Leave())
            self._finish("left", 0)
        elif self.net.followers:
            self.net.hub_running.feed(events.EndLate("the program succeeded"))
        else:
            self.net.hub_running.feed(events.Dismiss())
            self._finish("left", 0)

    def fails(self, code: int) -> None:
        """Whatever it is doing."""
        if not self.finished:
            self._fail(code)

    def _fail(self, code: int) -> None:
        if self.dead or self.ending or self.ended:
            return
        self.feed(events.Fail(self._suspect(code)))
        self._end("failed", code)

    def _suspect(self, code: int) -> Suspect:
        culprit = Culprit(self.index, self.index, 100, code, None, False, ("boom",), f"rank {self.index}", f"h{self.index}")
        self.own = Suspect(self.index, EPOCH + self.net.time.clock, "failed", code, "", culprit)
        return self.own

    def _end(self, how: str, what: Any) -> None:
        """Stops what runs, says how it ended, and waits for the judgement."""
        if self.dead or self.ending or self.ended:
            return
        self.ending = True
        evidence_s = 0.0 if how == "stopped" else EVIDENCE_S
        ends = self.net.time.clock + (GRACE_S + VERDICT_S + evidence_s if self.member.joined else JOIN_S)
        self._later(self.stop_s, lambda: self._report(how, what, ends))

    def _report(self, how: str, what: Any, ends: float) -> None:
        if self.dead or self.ended:
            return
        self.stopped = True
        if self.judgements or self.member.over:
            self._finish(how, what)
            return
        finishes = (Finish(self.index, None, EPOCH),) if self.finished else ()
        self.feed(events.Report((self.own,) if how == "failed" else (), finishes))
        self._wait_for_judgement(how, what, ends)

    def _wait_for_judgement(self, how: str, what: Any, ends: float) -> None:
        if self.dead or self.ended:
            return
        if self.judgements or self.member.over or self.net.time.clock >= ends:
            self._finish(how, what)
        else:
            self._later(0.05, lambda: self._wait_for_judgement(how, what, ends))

    def _on_judged(self, judgement: Judgement) -> None:
        self.judgements.append(judgement)
        if self.ending or self.dead or self.ended:
            return
        self.ending = True
        self.net.time.after(0 if judgement.exit_code == 0 else self.stop_s, lambda: self._finish("judged", judgement))

    def _on_lost(self, suspect: Suspect) -> None:
        if not (self.ending or self.dead or self.ended):
            self.ending = True
            self.net.time.after(self.stop_s, lambda: self._finish("lost", suspect))

    def _on_dismissed(self) -> None:
        if self.finished and not self.ending and not self.ended:
            self._finish("dismissed", 0)

    def _finish(self, how: str, what: Any) -> None:
        if self.dead or self.ended:
            return
        self.ended = ("judged", self.judgements[-1]) if self.judgements else (how, what)
        if self.index == 0 and self is self.net.node_0:
            self.net.close_hub(self.net.time.clock + BYE_S)
        elif self.link:
            self.feed(events.Leave())
            self.link.end(hub=None)

    # What happens to it

    def kill(self) -> None:
        """Its ranklaunch, or its container."""
        self.dead = self.disturbed = True
        if self.link:
            self.link.end(hub=None if not self.cut_off else True)
        if self is self.net.node_0:
            self.net.hub_dies(None)

    def cut(self) -> None:
        """Its cable."""
        self.cut_off = self.disturbed = True
        if self is self.net.node_0:
            self.net.hub_dies(SILENT)
        elif self.link:
            self.link.end(hub=SILENT, member=SILENT, after=LIMITS["lost_after_s"])

    def reset(self, late: float) -> None:
        """Its connection; one side hears of it later."""
        self.disturbed = True
        self.reset_at = self.net.time.clock
        if self.link and self is not self.net.node_0:
            self.link.end(hub=RESET, member=RESET, after=late)


class Net:
    """count: of nodes. followers: of the last of them. repeats: how often a message comes twice. slow: seconds that one takes at most.
    restarts: how many rounds may follow the first."""

    def __init__(self, count: int, seed: int, *, followers: int = 0, repeats: float = 0.0, slow: float = 0.1, restarts: int = 0) -> None:
        self.count, self.followers, self.repeats, self.slow, self.restarts = count, followers, repeats, slow, restarts
        self.chance = random.Random(seed)
        self.time = Time()
        self.hub = Hub(muster(count, followers=followers, **LIMITS), GRACE_S, "all succeeded", "this hub", restarts=restarts > 0)
        self.hub_running = Running(self.hub, self.time, self._do)
        self.hub_gone = self.hub_unreachable = False
        self.links: dict[int, Link] = {}
        self.nodes: list[Node] = []
        self.node_0: Node | None = None
        self.together: set[str] | None = None  # instances that were released
        self.rounds: dict[int, set[str]] = {}  # what was judged of each that was followed by another
        self.decisions: list[events.Decide] = []
        self.left_out: list[str] = []
        self.talk_s = 0.0  # seconds at most between two words of a node; 0: nobody talks
        self.words: list[Any] = []  # that node 0 has heard
        self.words_said: list[Any] = []  # by node 0
        self.at_release: list[int] = []  # nodes whose connection breaks just then
        self._count = 0
        self._released = -1  # the last round that was
        self.hub_running.feed(events.Start())

    def delay(self) -> float:
        return self.chance.random() ** 4 * self.slow

    def start(self, index: int, ready_s: float, plan: list[tuple[float, int]], stop_s: float) -> None:
        node = Node(self, index, f"{index}.{len(self.nodes)}", ready_s, plan, stop_s)
        self.nodes.append(node)
        if index == 0:
            assert not self.node_0
            self.node_0 = node

    def connect(self, node: Node) -> Link:
        self._count += 1
        link = self.links[self._count] = Link(self, node, self._count)
        return link

    def feed(self, to: str, node: Node, event: Event, ended: Link | None = None) -> None:
        if to == "member":
            if ended and ended is not node.link:
                return
            node.feed(event)
        elif not (self.hub_gone or self.hub_unreachable):
            if ended:
                self.links.pop(ended.number, None)
            self.hub_running.feed(event)

    def _note_release(self) -> None:
        here = self.hub.here.by_instance
        self.together = {*here}
        assert sorted(node.index for node in here.values()) == list(range(self.count))
        # Nothing of an earlier round lives when one is released, and nobody has another number for it.
        assert [node.instance for node in self.nodes if node.runs] == []
        assert {node.round for node in self.nodes if node.instance in here and not node.dead} <= {self.hub.round}
        self.time.after(SOON_S, partial(self._look_for_left_out, self.hub.round))
        for node in [node for node in self.nodes if node.index in self.at_release]:
            self.time.after(0, lambda node=node: node.reset(0.0))  # type: ignore[misc]

    def _look_for_left_out(self, released: int) -> None:
        """While a round runs, whose connection broke has come back and was released; else it would have been missed."""
        if (self.hub.state, self.hub.round) == (RUNNING, released) and not (self.hub_gone or self.hub_unreachable):
            here = [node for node in self.nodes if node.instance in (self.together or ()) and not (node.away or node.ending or node.ended)]
            self.left_out = [node.instance for node in here if not node.released and node.reset_at < self.time.clock - SOON_S / 2]

    def _do(self, action: Action) -> None:
        if isinstance(action, events.Send):
            if action.message["type"] == "release" and self._released < self.hub.round:
                self._released = self.hub.round
                self._note_release()
            for link in [self.links[number] for number in action.links if number in self.links]:
                link.send("member", action.message)
        elif isinstance(action, events.Close):
            link_ = self.links.pop(action.link, None)
            if link_:
                link_.end(member=None)
        elif isinstance(action, events.Told):
            self.words.append(action.body)
        elif isinstance(action, events.Decide):
            self.decisions.append(action)
            again = action.released and not action.away and action.round < self.restarts
            decided = events.Decided(again, action.judgement, {"pause_s": 0})
            self.time.after(0, lambda: self.hub_running.feed(decided))
        elif isinstance(action, events.LookUp):
            self.time.after(self.delay(), lambda: self.hub_running.feed(events.Resolved(action.node, ("10.0.0.1",), "")))

    def close_hub(self, until: float) -> None:
        """Once everybody has taken what it is owed."""
        if self.hub_gone or self.hub_unreachable:
            return
        if self.hub.settled or self.time.clock >= until:
            self.hub_dies(None)
        else:
            self.time.after(0.05, lambda: self.close_hub(until))

    def hub_dies(self, error: OSError | None) -> None:
        self.hub_gone, self.hub_unreachable = error is None, error is not None
        for link in list(self.links.values()):
            link.end(member=error, after=LIMITS["lost_after_s"] if error else 0.0)
        self.hub_running.feed = lambda event: None  # type: ignore[method-assign]

    def run(self, until: float) -> None:
        while self.time.clock < until and not all(node.dead or node.ended for node in self.nodes):
            self.time.run(0.5)
