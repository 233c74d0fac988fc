"""The companion of an attempt that has evidence taken, on all nodes at once: because a hang is suspected, because somebody asks, or because
the first failure is one that another rank may have caused, before the stop erases what that rank was doing.

Words between nodes: whoever wants it says "evidence" to node 0, with why, and whether the job ends; node 0 gives it a number and says
"evidence" to all; each says "taken" to node 0, a few ranks in each message.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranklaunch.evidence import flight, stacks
from ranklaunch.evidence.all_nodes import GONE, Gathered, Gathering
from ranklaunch.evidence.folder import Folder, room_in
from ranklaunch.hangs import frames, suspicion
from ranklaunch.muster import EVIDENCE_S
from ranklaunch.muster.wire import WireError
from ranklaunch.processes.child import UNJUDGED, Child
from ranklaunch.supervise.judge import Ending
from ranklaunch.supervise.plugins import Attended, Companion
from ranklaunch.verdict import blame, folders

if TYPE_CHECKING:
    from ranklaunch.plan.model import Plan
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.system.loop import Timer
    from ranklaunch.verdict.blame import Suspect

TOPIC, TAKEN = "evidence", "taken"
HEARS_S = 1.0  # for node 0's word, before this node goes ahead alone
READS_S = 0.05  # for the last words of a rank to be read from the file that its launcher keeps for it
RANKS_A_MESSAGE = 8
GATHERS_S = EVIDENCE_S  # for all nodes to have said what they have


class Taking(Companion):
    """take() has it taken. Once all nodes have said what they have, or may be waited for no longer, those of attended.evidence hear of it,
    as a Gathered."""

    def __init__(self, attended: Attended) -> None:
        self._attended = attended
        self._began = time.time() - 60.0  # the attempt's own beginning is not much earlier, and clocks of file systems may differ
        self._number = 0
        self._pipe = -1
        self._told = b""
        self._go_on: Callable[[], None] | None = None
        self._taken: list[str] = []  # folders
        self._at_stop = ""
        self._gathering: dict[int, Gathering] = {}
        self._alone: Timer | None = None
        self._held: list[Child] = []  # launchers
        self._holds_up = ""  # who does, in words

    @property
    def taking(self) -> bool:
        return self._pipe >= 0

    def take(self, why: str, ends: bool) -> None:
        """Any node may ask. A second time waits for the first."""
        body, muster = {"why": why[:500], "ends": ends}, self._attended.plan().muster
        if not muster or muster.node == 0:
            self.on_asked(0, body)  # at once: what follows may be that all are told to stop
        else:
            self._attended.nodes.tell_node_0(TOPIC, body)

    # What is heard

    def on_asked(self, node: int, body: Any) -> None:
        """As node 0."""
        if self._pipe >= 0 or self._gathering:
            return  # this time's is what whoever asks again wants to have
        number, why, ends = self._number + 1, str(body["why"])[:500], bool(body.get("ends"))
        everyone = self._attended.plan().job.everyone
        planned = {node.index: node.ranks for node in everyone}
        self._gathering[number] = Gathering(number, why, len(everyone), lambda said: frames.own(planned, said))
        self._attended.loop.after(GATHERS_S, lambda: self._gather(number))
        self._attended.nodes.tell_nodes(TOPIC, {"number": number, "why": why, "ends": ends})
        self._begin(number, why, ends)

    def on_order(self, node: int, body: Any) -> None:
        number = body["number"]
        if type(number) is int and 0 < number < 1 << 31:
            self._begin(number, str(body["why"]), bool(body.get("ends")))

    def on_taken(self, node: int, body: Any) -> None:
        """As node 0: what a node says of some of its ranks."""
        number = body["number"]
        gathering = self._gathering.get(number)
        if gathering and gathering.hear(node, body):
            self._gather(number)

    # As a companion

    def deciding(self, ending: Ending) -> None:
        self._take_if(self._suspicious(ending))

    def died(self, launcher: Child, rank: Watched) -> None:
        """Stop a launcher by SIGSTOP until the evidence of its other ranks is taken: it would end them within 0.1 s."""
        if self._at_stop or self._attended.ending() or launcher.held:
            return
        launcher.hold()
        self._held.append(launcher)
        self._attended.loop.after(READS_S, lambda: self._judge(launcher, rank))
        self._attended.loop.after(GATHERS_S, self._let_go)

    def hurried(self) -> None:
        self._let_go()

    def _judge(self, launcher: Child, rank: Watched) -> None:
        if not self._take_if(self._words_of(launcher, rank)):
            self._let_go()

    def _take_if(self, why: str) -> bool:
        """Have evidence taken for a reason, unless it was taken before. Return False without a reason."""
        if why and not self._at_stop:
            self._at_stop = why
            self._alone = self._attended.loop.after(HEARS_S, self._go_alone)
            self.take(why, True)
        return bool(why)

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for launcher in held:
            launcher.go_on()

    def before_stop(self, ending: Ending, go_on: Callable[[], None]) -> bool:
        if self._at_stop:
            self._attended.stopper.say_where()  # what is to end anyway says by that where it is
            for output in self._attended.outputs().values():
                output.hide_stacks()
        if self._has_all and not self._alone:
            return False
        self._go_on = go_on
        return True

    def stopped(self) -> None:
        """Add the stacks that ranks wrote at SIGABRT, and what recorders dumped since the evidence was taken."""
        self._read()  # what was held up by the stop is lost
        if not self._taken:
            return
        path = self._taken[-1]
        folder = Folder(path, room_in(os.path.dirname(path)))
        for rank, output in self._attended.outputs().items():
            text = stacks.written_on_abort(output.tail.decode(errors="replace"))
            if text and self._at_stop:
                folder.write(f"rank_{rank}.aborted.txt", text.encode(errors="replace"))

    def notes(self, ending: Ending, found: Sequence[Suspect]) -> tuple[str, ...]:
        """Return a note on who holds the job up, after a timeout. The reason of an alarm has it already. After other
        failures a rank may be outside a collective because it has not noticed the broken connection yet."""
        names = [suspect.culprit.error.name for suspect in found if suspect.culprit and suspect.culprit.error]
        in_vain = any(blame.TIMEOUT in name for name in (self._at_stop, *names))
        return (self._holds_up,) if self._holds_up and in_vain and not ending.hung else ()

    def facts(self) -> Mapping[str, Any]:
        return {"evidence": os.path.join(self._attended.record.folder, folders.EVIDENCE)} if self._taken else {}

    def close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    # Taking

    def _suspicious(self, ending: Ending) -> str:
        """Return why another rank may be to blame, by the words of the rank that failed first; "" if they blame nobody."""
        child = ending.child
        if not child or child.role in UNJUDGED:
            return ""
        below = child.below
        failed = ending.rank or next(iter(below.failed if below else ()), None)
        return self._words_of(child, failed) or ("" if failed else self._words_of_any())

    def _words_of(self, child: Child, failed: Watched | None) -> str:
        rank = failed.rank if failed else child.process.rank
        output = self._attended.outputs().get(rank) if rank is not None else None
        tail = output.tail if output else child.reader.output.tail if child.reader else b""
        tail = tail if failed or child.said is None else child.said
        error = _error_of_others(tail, self._attended.plan())
        return error and f"{'a launcher' if rank is None else f'rank {rank}'} failed of {error}"

    def _words_of_any(self) -> str:
        """Return the first rank whose output blames another rank, with the error, "" for none; for a failure without a known rank."""
        for rank, output in self._attended.outputs().items():
            error = _error_of_others(output.tail, self._attended.plan())
            if error:
                return f"rank {rank} tells of {error}"
        return ""

    def _go_alone(self) -> None:
        """Take evidence of this node alone: node 0 has not answered."""
        self._alone = None
        if self._pipe < 0:
            self._begin(self._number + 1, self._at_stop, True)

    def _begin(self, number: int, why: str, ends: bool) -> None:
        if self._alone:
            self._alone.cancel()
            self._alone = None
        if number <= self._number:
            return
        self._number = number
        if ends and self._attended.stopper.begun:
            self._lack(number, "its ranks were being ended already")
            return
        job = self._attended.plan().job
        parent = folders.evidence(self._attended.record.folder, job.node_index)
        self._at_stop = self._at_stop or (why if ends else "")
        from ranklaunch.evidence import collector  # large; most failures are of a rank's own

        try:
            order = collector.Order(
                number, why, os.path.join(parent, str(number)), self._attended.ranks(), self._given(), self._began, room_in(parent),
                tuple(job.node.ranks), folders.records(self._attended.record.folder, job.node_index),
            )  # fmt: skip
            _, self._pipe = collector.start(order)
        except OSError as error:
            self._fail(number, str(error.strerror))
            self._done()
            return
        self._told = b""
        os.set_blocking(self._pipe, False)
        self._attended.loop.on_readable(self._pipe, self._read)

    def _given(self) -> dict[str, str]:
        """The environment of ranks, also of those that have died, as far as it tells where their dumps are."""
        return {**self._attended.env, **{each.name: each.value for each in self._attended.plan().recorders.variables}}

    def _read(self) -> None:
        while self._pipe >= 0:
            try:
                block = os.read(self._pipe, 1 << 20)
            except BlockingIOError:
                return
            self._told += block
            if not block:
                self._attended.loop.forget(self._pipe)
                os.close(self._pipe)
                self._pipe = -1
                if self._report() and self._at_stop:
                    self._attended.said()
                self._done()

    def _report(self) -> bool:
        """Whether it was taken, which lasts some seconds."""
        try:
            told = json.loads(self._told)
        except ValueError:
            self._fail(self._number, "what takes it was ended before it was done")
            return False
        if "failed" in told:
            self._fail(self._number, told["failed"])
            return False
        self._taken.append(told["folder"])
        with_stacks = sum(bool(each["stack"]) for each in told["ranks"].values())
        self._attended.record.event(
            "evidence", number=told["number"], why=told["why"], folder=told["folder"], bytes=told["bytes"], seconds=told["seconds"],
            ranks=len(told["ranks"]), stacks=with_stacks,
        )  # fmt: skip
        lacking = f", where not all of it could be written: {told['unwritten']}" if told["unwritten"] else ""
        self._attended.say(f"evidence taken in {told['seconds']:g} s, since {told['why']}: {told['folder']}{lacking}")
        self._add_said(told["ranks"])
        for message in _messages(told):
            try:
                self._attended.nodes.tell_node_0(TAKEN, message)
            except (WireError, TypeError, ValueError):  # larger than a message can be: it is in the folder
                self._attended.nodes.tell_node_0(TAKEN, {**message, "ranks": {}})
        return True

    def _add_said(self, ranks: dict[str, Any]) -> None:
        """Add what the output of ranks says: where their groups stand if there is no dump, and ranks that did not answer."""
        plan = self._attended.plan()
        for rank, output in self._attended.outputs().items():
            known = ranks.get(str(rank))
            text = output.tail.decode(errors="replace")
            standing = flight.said(text) if not (known and known["recorder"]) else {}
            names = [each for each in _peers(text, plan) if each != rank]
            if standing or names:
                ranks[str(rank)] = {
                    **(known or {"pid": None, "state": GONE, "stack": [], "recorder": None}),
                    **({"recorder": flight.as_json(standing)} if standing else {}),
                    "names": names,
                }

    def _fail(self, number: int, reason: str) -> None:
        self._attended.say(f"no evidence can be taken: {reason}")
        self._lack(number, reason)

    def _lack(self, number: int, reason: str) -> None:
        self._attended.nodes.tell_node_0(
            TAKEN, {"number": number, "folder": "", "bytes": 0, "behind": [], "ranks": {}, "more": False, "failed": reason}
        )

    @property
    def _has_all(self) -> bool:
        """Return True if evidence is complete: of this node, and on node 0 of all nodes, for the verdict names a rank by it."""
        return self._pipe < 0 and not self._gathering

    def _done(self) -> None:
        self._let_go()
        if self._has_all:
            go_on, self._go_on = self._go_on, None
            if go_on:
                go_on()

    def _gather(self, number: int) -> None:
        gathering = self._gathering.pop(number, None)
        if not gathering:
            return
        gathered = gathering.gathered()
        ranks = [rank for node in self._attended.plan().job.everyone for rank in node.ranks]
        self._holds_up = _holds_up(gathered, ranks) if self._at_stop and not gathered.silent else ""
        for hear in self._attended.evidence:
            hear(gathered)
        if self._pipe < 0:
            self._done()


def _holds_up(gathered: Gathered, ranks: Sequence[int]) -> str:
    """After a time-out: whom the evidence sets apart, of ranks that live; those that have died had waited, but maybe in another operation
    than the others. ranks: of the job. One look at a rank shows whether it is stopped, and not whether it is stuck: it may read a file just
    then."""
    told = gathered.ranks.items()
    living = {
        rank: suspicion.Known(rank, each.node, stack=each.stack, call=each.call)
        for rank, each in told
        if each.state not in (*suspicion.ENDED, GONE)
    }
    known = [suspicion.Known(rank, living[rank].node if rank in living else -1, _if_stopped(gathered, rank)) for rank in ranks]
    recorded, behind = ([suspicion.Missing(each.ranks, each.what) for each in named] for named in (gathered.recorded, gathered.behind))
    found = suspicion.suspects(known, recorded, behind) or suspicion.outside(living.values(), len(ranks) - len(living))
    differing = {rank for named in gathered.recorded if named.differs for rank in named.ranks}
    found = tuple(each for each in found if each.rank in living or each.rank in differing)
    return f"who held the others up, by the evidence: {suspicion.sentence(found)}" if found else ""


def _if_stopped(gathered: Gathered, rank: int) -> str:
    return suspicion.STOPPED if rank in gathered.ranks and gathered.ranks[rank].state == suspicion.STOPPED else "?"


def _messages(told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    ranks = list(told["ranks"].items())
    rest = {"number": told["number"], "folder": told["folder"], "bytes": told["bytes"], "behind": told["behind"]}
    for i in range(0, max(1, len(ranks)), RANKS_A_MESSAGE):
        yield {**rest, "ranks": dict(ranks[i : i + RANKS_A_MESSAGE]), "more": i + RANKS_A_MESSAGE < len(ranks)}


def _peers(text: str, plan: Plan) -> tuple[int, ...]:
    """Return the ranks of the job that did not answer, by the last time-out message in an output."""
    from ranklaunch.catalogue import peers  # large

    ranks = sum(node.slots for node in plan.job.everyone)
    return tuple(rank for rank in peers(text, blame.CONSEQUENCE) if rank < max(ranks, plan.job.world_size))


def _error_of_others(tail: bytes, plan: Plan) -> str:
    """Return the name of the error in an output if another rank may be to blame for it, else ""."""
    from ranklaunch.supervise import diagnosis  # large, and only failures need it

    return diagnosis.of_others(tail, plan)
