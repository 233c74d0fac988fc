"""Plugin of an attempt that collects evidence on all nodes at once.

Evidence is collected when a hang is suspected, on request, and at a first failure that may be the fault of another rank: before the
stop destroys the state of that rank.

Messages: any node sends "evidence" to node 0, with the reason, and True for `ends` if the job ends. Node 0 numbers the request and sends
"evidence" to all nodes. Each node sends "taken" to node 0, with a few ranks in each message.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ranklaunch.catalogue import peers
from ranklaunch.evidence import collector, flight, stacks
from ranklaunch.evidence.all_nodes import GONE, Gathered, Gathering
from ranklaunch.evidence.folder import Folder, room_in
from ranklaunch.hangs import suspicion
from ranklaunch.muster import EVIDENCE_S
from ranklaunch.muster.wire import WireError
from ranklaunch.processes.children import SERVICE, UNJUDGED, Child
from ranklaunch.supervise import judge
from ranklaunch.supervise.context import Companion
from ranklaunch.verdict import blame, folders
from ranklaunch.verdict.model import Ending

if TYPE_CHECKING:
    from ranklaunch.plan.model import Plan
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.supervise.attempt import Attempt
    from ranklaunch.system.bounded import Apart
    from ranklaunch.system.loop import Timer
    from ranklaunch.verdict.blame import Suspect

TOPIC, TAKEN = "evidence", "taken"
HEARS_S = 1.0  # wait for node 0's answer, before this node begins alone
READS_S = 0.05  # wait for the last output of a rank, in its launcher's log file
ANSWER_S = 2.0  # most time for reading the collector's answer, once it begins
RANKS_A_MESSAGE = 8
GATHERS_S = EVIDENCE_S  # wait for all nodes


class Taking(Companion):
    """Collection of evidence on all nodes, started by take(). When all nodes have answered, or after GATHERS_S, node 0 hands a
    Gathered to the attempt's plugins with `hear_evidence`."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._began = time.time() - 60.0  # margin: the attempt began a little earlier, and clocks of file systems may differ
        self._number = 0
        self._collector: Apart | None = None
        self._go_on: Callable[[], None] | None = None
        self._folders: list[str] = []
        self._at_stop = ""  # reason for evidence before the stop, "" for none
        self._gathering: Gathering | None = None
        self._alone: Timer | None = None
        self._held: list[Child] = []  # launchers halted by SIGSTOP
        self._holds_up = ""  # note on the ranks that held the others up
        attempt.nodes.hear(TOPIC, self.on_asked, at_node_0=True)
        attempt.nodes.hear(TOPIC, self.on_order)
        attempt.nodes.hear(TAKEN, self.on_taken, at_node_0=True)

    @property
    def taking(self) -> bool:
        return self._collector is not None

    def take(self, why: str, ends: bool) -> None:
        """Request evidence, on any node. A request during a collection starts no second one. ends: True if the job ends."""
        body, muster = {"why": why[:500], "ends": ends}, self._attempt.plan.muster
        if not muster or muster.node == 0:
            self.on_asked(0, body)  # at once, before an order to stop
        else:
            self._attempt.nodes.tell_node_0(TOPIC, body)

    # Messages

    def on_asked(self, node: int, body: Any) -> None:
        """As node 0, number a request and order all nodes to collect evidence."""
        if self.taking or self._gathering:
            return
        number, why, ends = self._number + 1, str(body["why"])[:500], bool(body.get("ends"))
        planned = {each.index: each.ranks for each in self._attempt.plan.job.everyone}
        self._gathering = Gathering(number, planned)
        self._attempt.loop.after(GATHERS_S, partial(self._gather, self._gathering))
        self._attempt.nodes.tell_nodes(TOPIC, {"number": number, "why": why, "ends": ends})
        self._begin(number, why, ends)

    def on_order(self, node: int, body: Any) -> None:
        number = body["number"]
        if type(number) is int and 0 < number < 1 << 31:
            self._begin(number, str(body["why"]), bool(body.get("ends")))

    def on_taken(self, node: int, body: Any) -> None:
        """As node 0, add a node's evidence of some of its ranks."""
        gathering = self._gathering
        if gathering and gathering.number == body["number"] and gathering.hear(node, body):
            self._gather(gathering)

    # Failures and stops

    def deciding(self, ending: Ending) -> None:
        self._take_if(self._suspicious(ending))

    def died(self, launcher: Child, rank: Watched) -> None:
        """Halt a launcher by SIGSTOP until the evidence of its other ranks is collected: it would end them within 0.1 s."""
        if self._at_stop or self._attempt.ending or launcher.held:
            return
        launcher.hold()
        self._held.append(launcher)
        self._attempt.loop.after(READS_S, partial(self._judge, launcher, rank))
        self._attempt.loop.after(GATHERS_S, self._let_go)

    def hurried(self) -> None:
        self._let_go()

    def _judge(self, launcher: Child, rank: Watched) -> None:
        if not self._take_if(self._error_in(launcher, rank)):
            self._let_go()

    def _take_if(self, why: str) -> bool:
        """Request evidence before the stop, once, if there is a reason. Return True if there is one."""
        if why and not self._at_stop:
            self._at_stop = why
            self._alone = self._attempt.loop.after(HEARS_S, self._go_alone)
            self.take(why, True)
        return bool(why)

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for launcher in held:
            launcher.go_on()

    def before_stop(self, ending: Ending, go_on: Callable[[], None]) -> bool:
        if self._at_stop:
            self._attempt.stopper.say_where()  # SIGABRT makes processes write their stacks
            for output in self._attempt.logs.by_rank.values():
                output.hide_stacks()
        if self._has_all and not self._alone:
            return False
        self._go_on = go_on
        return True

    def stopped(self) -> None:
        """Add the stacks that ranks wrote at SIGABRT."""
        if self._collector and select.select([self._collector.readable], [], [], 0)[0]:
            self._hear()
        if not self._folders or not self._at_stop:
            return
        path = self._folders[-1]
        folder = Folder(path, room_in(os.path.dirname(path)))
        for rank, output in self._attempt.logs.by_rank.items():
            text = stacks.written_on_abort(output.tail.decode(errors="replace"))
            folder.write(f"rank_{rank}.aborted.txt", text.encode(errors="replace"))

    def notes(self, ending: Ending, suspects: Sequence[Suspect]) -> tuple[str, ...]:
        """Return a note on the ranks that held the others up, after a time-out only.

        After a hang the reason names these ranks already. After other failures, a rank outside a collective may only have not noticed
        the broken connection yet.
        """
        names = [suspect.culprit.error.name for suspect in suspects if suspect.culprit and suspect.culprit.error]
        timed_out = any(blame.TIMEOUT in name for name in (self._at_stop, *names))
        return (self._holds_up,) if self._holds_up and timed_out and not ending.hung else ()

    def facts(self) -> Mapping[str, Any]:
        return {"evidence": os.path.join(self._attempt.record.folder, folders.EVIDENCE)} if self._folders else {}

    def close(self) -> None:
        if self._collector:
            self._collector.close()
            self._collector = None

    # Errors for which another rank may be to blame

    def _suspicious(self, ending: Ending) -> str:
        """Return the reason why another rank may be to blame, by the output of the first failed rank; "" for none.

        If a service failed, errors of ranks are consequences, and explain nothing.
        """
        child = self._attempt.children.of_pid(ending.pid)
        if not child or child.role in UNJUDGED:
            return ""
        failed = next(iter(child.below.failed if child.below else ()), None)
        return self._error_in(child, failed) or ("" if failed or child.role == SERVICE else self._error_in_any())

    def _error_in(self, child: Child, failed: Watched | None) -> str:
        rank = failed.rank if failed else child.process.rank
        output = self._attempt.logs.by_rank.get(rank) if rank is not None else None
        tail = output.tail if output else child.reader.output.tail if child.reader else b""
        tail = tail if failed or child.said is None else child.said
        error = judge.error_of_others(tail, self._attempt.plan)
        return error and f"{'a launcher' if rank is None else f'rank {rank}'} failed with {error}"

    def _error_in_any(self) -> str:
        """Return the first rank with an output that blames another rank, and its error; "" for none. Used if the failed rank is unknown."""
        for rank, output in self._attempt.logs.by_rank.items():
            error = judge.error_of_others(output.tail, self._attempt.plan)
            if error:
                return f"rank {rank} reports {error}"
        return ""

    # Taking

    def _go_alone(self) -> None:
        """Collect evidence of this node alone: node 0 has not answered."""
        self._alone = None
        if not self.taking:
            self._begin(self._number + 1, self._at_stop, True)

    def _begin(self, number: int, why: str, ends: bool) -> None:
        if self._alone:
            self._alone.cancel()
            self._alone = None
        if number <= self._number:
            return
        self._number = number
        if ends and self._attempt.stopper.begun:
            self._lack("its ranks were already being stopped")
            return
        self._at_stop = self._at_stop or (why if ends else "")
        try:
            self._collector = collector.start(self._order(why))
        except OSError as error:
            self._fail(str(error.strerror))
            self._done()
        else:
            self._attempt.loop.on_readable(self._collector.readable, self._hear)

    def _order(self, why: str) -> collector.Order:
        plan, folder = self._attempt.plan, self._attempt.record.folder
        node = plan.job.node_index
        parent = folders.evidence(folder, node)
        # For ranks that have died: the variables with the places of their dumps.
        env = {**self._attempt.around.env, **{each.name: each.value for each in plan.recorders.variables}}
        return collector.Order(
            self._number, why, os.path.join(parent, str(self._number)), self._attempt.launchers.living(), env, self._began, room_in(parent),
            tuple(plan.job.node.ranks), folders.records(folder, node),
        )  # fmt: skip

    def _hear(self) -> None:
        assert self._collector
        apart, self._collector = self._collector, None
        self._attempt.loop.forget(apart.readable)
        answer = json.loads(apart.answer(ANSWER_S) or "null") or {"failed": "the collector process ended without an answer"}
        if "failed" in answer:
            self._fail(answer["failed"])
        else:
            self._report(answer)
            if self._at_stop:
                self._attempt.remember_ranks()
        self._done()

    def _report(self, taken: Mapping[str, Any]) -> None:
        """Report the evidence of this node: an event, a line for people, and messages to node 0."""
        self._folders.append(taken["folder"])
        with_stacks = sum(bool(each["stack"]) for each in taken["ranks"].values())
        self._attempt.record.event(
            "evidence", number=taken["number"], why=taken["why"], folder=taken["folder"], bytes=taken["bytes"], seconds=taken["seconds"],
            ranks=len(taken["ranks"]), stacks=with_stacks,
        )  # fmt: skip
        lacking = f"; some files could not be written: {taken['unwritten']}" if taken["unwritten"] else ""
        self._attempt.say(f"evidence taken in {taken['seconds']:g} s, because {taken['why']}: {taken['folder']}{lacking}")
        self._add_outputs(taken["ranks"])
        for message in messages(taken):
            try:
                self._attempt.nodes.tell_node_0(TAKEN, message)
            except (WireError, TypeError, ValueError):  # too large for a message: the folder has all of it
                self._attempt.nodes.tell_node_0(TAKEN, {**message, "ranks": {}})

    def _add_outputs(self, ranks: dict[str, Any]) -> None:
        """Add facts from the ranks' outputs: the standings of ranks without a dump, and the ranks that did not answer."""
        plan = self._attempt.plan
        for rank, output in self._attempt.logs.by_rank.items():
            known = ranks.get(str(rank))
            text = output.tail.decode(errors="replace")
            standing = flight.standings_in_output(text) if not (known and known["recorder"]) else {}
            names = [each for each in _peers(text, plan) if each != rank]
            if standing or names:
                recorder = {"recorder": flight.as_json(standing)} if standing else {}
                ranks[str(rank)] = {**(known or {"pid": None, "state": GONE, "stack": [], "recorder": None}), **recorder, "names": names}

    def _fail(self, reason: str) -> None:
        self._attempt.say(f"no evidence can be taken: {reason}")
        self._lack(reason)

    def _lack(self, reason: str) -> None:
        body = {"number": self._number, "folder": "", "behind": [], "ranks": {}, "more": False, "failed": reason}
        self._attempt.nodes.tell_node_0(TAKEN, body)

    @property
    def _has_all(self) -> bool:
        """Return True if the evidence is complete: of this node, and on node 0 of all nodes, because the verdict may name a rank by it."""
        return not self.taking and not self._gathering

    def _done(self) -> None:
        self._let_go()
        if self._has_all:
            go_on, self._go_on = self._go_on, None
            if go_on:
                go_on()

    def _gather(self, gathering: Gathering) -> None:
        if gathering is not self._gathering:
            return
        self._gathering = None
        gathered = gathering.gathered()
        ranks = [rank for node in self._attempt.plan.job.everyone for rank in node.ranks]
        self._holds_up = _holds_up(gathered, ranks) if self._at_stop and not gathered.silent else ""
        for hear in self._attempt.companions.hear_evidence:
            hear(gathered)
        if not self.taking:
            self._done()


def _holds_up(gathered: Gathered, ranks: Sequence[int]) -> str:
    """Return a note on the ranks that held the others up, by the evidence after a time-out; "" for none. ranks: of the job.

    Only living ranks count: a dead rank may have waited too, in another operation. A single sample can prove that a rank is
    stopped (state T), but not that it is stuck: the rank may be reading a file at this moment.
    """
    living = {
        rank: suspicion.Known(rank, each.node, suspicion.STOPPED if each.state == suspicion.STOPPED else "?")
        for rank, each in gathered.ranks.items()
        if each.state not in (*suspicion.ENDED, GONE)
    }
    known = [living.get(rank) or suspicion.Known(rank, -1) for rank in ranks]
    suspects = suspicion.suspects(known, gathered.recorded, gathered.behind)
    if not suspects:
        with_stacks = [each._replace(stack=gathered.ranks[rank].stack, call=gathered.ranks[rank].call) for rank, each in living.items()]
        suspects = suspicion.outside(with_stacks, len(ranks) - len(living))
    differing = {rank for named in gathered.recorded if named.differs for rank in named.ranks}
    suspects = tuple(each for each in suspects if each.rank in living or each.rank in differing)
    return f"who held the others up, by the evidence: {suspicion.sentence(suspects)}" if suspects else ""


def messages(taken: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the evidence of a node as messages, RANKS_A_MESSAGE ranks in each."""
    ranks = list(taken["ranks"].items())
    rest = {key: taken[key] for key in ("number", "folder", "behind")}
    for i in range(0, max(1, len(ranks)), RANKS_A_MESSAGE):
        yield {**rest, "ranks": dict(ranks[i : i + RANKS_A_MESSAGE]), "more": i + RANKS_A_MESSAGE < len(ranks)}


def _peers(text: str, plan: Plan) -> tuple[int, ...]:
    """Return the ranks of the job that did not answer, by the last time-out message in an output."""
    ranks = max(plan.job.world_size, sum(node.slots for node in plan.job.everyone))
    return tuple(rank for rank in peers(text, blame.CONSEQUENCE) if rank < ranks)
