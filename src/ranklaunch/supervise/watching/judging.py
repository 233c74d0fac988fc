"""Node 0's part of watching, and every node's where there is no muster: it hears all nodes, says when none moves, asks for evidence, and
names who stands out."""

from __future__ import annotations

from ranklaunch.errors import WaitError, counted
from ranklaunch.supervise.companions import Attended
from ranklaunch.supervise.judge import Ending
from ranklaunch.supervise.watching import uncaught
from ranklaunch.typed import Any, NamedTuple
from ranklaunch.verdict import blame
from ranklaunch.watch import expect, who
from ranklaunch.watch.deaf import NOTICE, Deaf
from ranklaunch.watch.detector import ALARM, WARNING, Change, Detector, Limits
from ranklaunch.watch.frames import Frame, own, ranks_of, unpacked
from ranklaunch.watch.who import Known, Missing, Suspect

SAMPLE, HANG = "sample", "hang"  # words
EVIDENCE_S = 16.0  # for all nodes to have given theirs
MOST_GROUPS = 8  # of stacks, that are said


class _Alarm(NamedTuple):
    """An alarm that stands. what: in words."""

    change: Change
    what: str
    suspects: tuple[Suspect, ...] = ()


class Judging:
    """From the first frames on. began: when the job was launched."""

    def __init__(self, attended: Attended, limits: Limits, began: float) -> None:
        self._of = attended
        plan = attended.plan()
        self._mode = plan.watch.hang
        self._limits = limits
        # Without a muster each node judges by itself, and hears nobody else.
        self._nodes = [node.index for node in plan.job.everyone] if plan.muster else [plan.job.node_index]
        self._rules = expect.parse(plan.watch.expect)
        self._detector = Detector(self._nodes, limits, began, self._rules)
        self._deaf = Deaf(self._nodes)
        self._ever: dict[int, int] = {}  # ranks that were seen, and on which node
        self._standing: dict[int | None, _Alarm] = {}  # alarms by the number of the rule, None: nothing moves
        self._waits = False  # for evidence, with what is asked for
        attended.evidence.append(self._on_evidence)
        attended.nodes.hear(SAMPLE, self._on_sample, at_node_0=True)

    def _on_sample(self, node: int, body: Any) -> None:
        if self._of.ending():
            return
        node = node if self._of.plan().muster else self._nodes[0]
        frame = self._own(node, unpacked(body))
        self._ever.update({seen.rank: node for seen in frame.ranks if seen.rank is not None})
        if self._deaf.feed(node, frame):
            self._of.say(NOTICE)
            self._of.record.event("notice", text=NOTICE)
        for change in self._detector.feed(node, frame, self._of.loop.clock()):
            self._on_change(change)

    def _on_change(self, change: Change) -> None:
        if change.kind == ALARM:
            self._on_alarm(change)
        elif change.kind == WARNING:
            self._say(f"{self._still(change)}; a hang is suspected after {self._limit_s:g} s", change)
        else:
            self._on_over(change)

    def _on_over(self, change: Change) -> None:
        if self._waits and self._is_of_values(change):
            return  # the value that broke the rule fails the job, whatever comes later
        self._standing.pop(change.number, None)
        self._say(change.rule or f"it moves again: {', '.join(change.signals)}")
        latest = self._latest
        self._of.nodes.tell_nodes(HANG, self._said(latest.suspects) if latest else None)

    def _own(self, node: int, frame: Frame) -> Frame:
        """Of a node's own ranks; node 0 may have the output of others'."""
        said = {number: ranks_of(of_node) for number, of_node in {**self._detector.frames, node: frame}.items()}
        may_speak = own({each.index: each.ranks for each in self._of.plan().job.everyone}, said) if node else lambda node, rank: True
        ranks = tuple(seen for seen in frame.ranks if seen.rank is None or may_speak(node, seen.rank))
        return frame._replace(ranks=ranks, raised=tuple(each for each in frame.raised if may_speak(node, each.rank)))

    @property
    def _limit_s(self) -> float:
        return self._limits.hang_s if self._detector.begun else self._limits.first_step_s

    # An alarm

    @property
    def _latest(self) -> _Alarm | None:
        return list(self._standing.values())[-1] if self._standing else None

    @property
    def _alarm(self) -> Change | None:
        return self._latest.change if self._latest else None

    @property
    def _what(self) -> str:
        return self._latest.what if self._latest else ""

    def _is_of_values(self, change: Change) -> bool:
        return change.number is not None and self._rules[change.number].is_of_values

    def _on_alarm(self, change: Change) -> None:
        self._standing[change.number] = _Alarm(change, change.rule or f"the job hangs: {self._still(change)}")
        found = who.suspects(self._known()) if not change.rule else ()
        self._tell(found)
        self._of.alarm(self._said(found))
        self._of.take(self._reason(found), self._mode != "observe")
        if self._mode != "observe":
            self._waits = True
            self._of.loop.after(EVIDENCE_S, lambda: self._give_up(found))

    def _on_evidence(self, gathered: Any) -> None:
        """What all nodes have found, where that says more. gathered: a ranklaunch.evidence.gathered.Gathered."""
        if not self._alarm or self._of.ending():
            return
        if self._is_of_values(self._alarm):  # the ranks go on, so stacks say nothing about the breach
            if self._waits:
                self._fail(())
            return
        known = [self._with_stack(each, gathered.ranks.get(each.rank)) for each in self._known()]
        recorded, behind, mute = (
            [Missing(each.ranks, each.what, each.file) for each in told] for told in (gathered.recorded, gathered.behind, gathered.mute)
        )
        found = who.suspects(known, recorded, behind, mute)
        for text in who.groups(known)[:MOST_GROUPS]:
            self._say(text, self._alarm)
        if found:
            self._tell(found)
        if self._waits:
            self._fail(found)

    def _with_stack(self, known: Known, found: Any) -> Known:
        return known._replace(stack=found.stack, file=found.file) if found else known

    def _tell(self, found: tuple[Suspect, ...]) -> None:
        """People, and all nodes."""
        latest = self._latest
        assert latest
        self._standing[latest.change.number] = latest._replace(suspects=found)
        self._say(self._reason(found), latest.change)
        self._of.nodes.tell_nodes(HANG, self._said(found))

    def _said(self, found: tuple[Suspect, ...]) -> dict[str, Any]:
        assert self._alarm
        return {
            "reason": self._reason(found),
            "since": blame.iso(self._of.nodes.wall(self._alarm.since)),
            "signals": list(self._alarm.signals) or [self._alarm.rule],
            "rule": self._alarm.rule,
            "suspects": [{"rank": each.rank, "node": each.node, "why": each.why, "file": each.file or None} for each in found],
        }

    def _give_up(self, found: tuple[Suspect, ...]) -> None:
        """Evidence that is not there by now."""
        if self._waits:
            self._fail(found)

    def _fail(self, found: tuple[Suspect, ...]) -> None:
        self._waits = False
        if self._alarm and not self._of.ending():
            self._of.fail(
                self._by_exception(found) or Ending("failed", WaitError.exit_code, f"{self._reason(found)} ({self._by_mode})", hung=True)
            )

    @property
    def _by_mode(self) -> str:
        return f"RANKLAUNCH_HANG={self._mode}"

    def _by_exception(self, found: tuple[Suspect, ...]) -> Ending | None:
        """As the job would have ended, had that rank not waited for the others at its exit."""
        first = next((each for each in found if each.raised and each.raised.said), None)
        if not first or not first.raised:
            return None
        at = self._of.nodes.wall(self._of.loop.clock() - first.raised.silent_s)
        culprit = uncaught.culprit(self._of.plan(), first, first.raised, at)
        reason = f"{self._by_mode} has ended rank {first.rank}, which waited at its exit: {self._what}"
        return Ending("failed", culprit.exit_code, reason, culprit=culprit, hung=True)

    # In words

    def _reason(self, found: tuple[Suspect, ...]) -> str:
        """What is wrong, and whom it may be put down to, with their nodes where there are several."""
        if not found and self._alarm and self._alarm.rule:
            return self._what
        nodes = sorted({each.node for each in found})
        several = len(self._nodes) > 1
        place = f" (node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))})" if several and nodes else ""
        return f"{self._what}; {who.sentence(found)}{place}"

    def _still(self, change: Change) -> str:
        """What does not move, since when, and of how many ranks: launchers, which are looked at too, are none."""
        seconds = self._of.loop.clock() - change.since
        ended = sum(not each.state for each in self._known())
        ranks = sum(node.slots for node in self._of.plan().job.nodes if node.index in self._nodes) - ended
        others = f", and {ended} {'has' if ended == 1 else 'have'} ended" if ended else ""
        return f"for {seconds:.0f} s nothing has moved on {counted(ranks, 'rank')}{others} ({', '.join(change.signals)})"

    def _known(self) -> list[Known]:
        """Of each rank, from its node's last frame; of one that is not in it any more, that it is gone."""
        frames = self._detector.frames.items()
        raised = self._detector.raised(self._of.loop.clock())
        found = {
            seen.rank: Known(seen.rank, node, seen.state, seen.cpu, seen.full, seen.step)
            for node, frame in frames for seen in frame.ranks if seen.rank is not None
        }  # fmt: skip
        known = [found.get(rank) or Known(rank, node, "") for rank, node in sorted(self._ever.items())]
        return [each._replace(raised=raised.get(each.rank)) for each in known]

    def _say(self, text: str, change: Change | None = None) -> None:
        """change: by which nothing moves."""
        self._of.say(text)
        since = None if change is None or change.rule else blame.iso(self._of.nodes.wall(change.since))
        self._of.record.event("hang", text=text, since=since)
