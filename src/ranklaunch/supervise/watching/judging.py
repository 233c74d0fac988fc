"""Node 0's part of watching, and every node's where there is no muster: it hears all nodes, says when none moves, asks for evidence, and
names who stands out."""

from __future__ import annotations

from ranklaunch.errors import WaitError, counted
from ranklaunch.supervise.companions import Attended
from ranklaunch.supervise.judge import Ending
from ranklaunch.supervise.watching import uncaught
from ranklaunch.typed import Any
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import Because, Of
from ranklaunch.watch import expect, who
from ranklaunch.watch.deaf import NOTICE, Deaf
from ranklaunch.watch.detector import ALARM, WARNING, Change, Detector, Limits
from ranklaunch.watch.frames import Frame, own, ranks_of, unpacked
from ranklaunch.watch.who import Known, Missing, Suspect

SAMPLE, HANG = "sample", "hang"  # words
EVIDENCE_S = 16.0  # for all nodes to have given theirs
MOST_GROUPS = 8  # of ranks with equal stacks, on the console
SILENT = 0.5  # share of the limit, from which on a rule of the user's may be broken because somebody holds the job up
MOST_NAMED = 8  # suspects, in `because` of a verdict


class Judging:
    """From the first frames on. began: when the job was launched."""

    def __init__(self, attended: Attended, limits: Limits, began: float) -> None:
        self._of = attended
        plan = attended.plan()
        self._mode = plan.watch.hang
        self._limits = limits
        # Without a muster each node judges by itself, and hears nobody else.
        self._nodes = [node.index for node in plan.job.everyone] if plan.muster else [plan.job.node_index]
        self._detector = Detector(self._nodes, limits, began, expect.parse(plan.watch.expect))
        self._deaf = Deaf(self._nodes)
        self._ever: dict[int, int] = {}  # ranks that were seen, and on which node
        self._alarm: Change | None = None  # that stands
        self._what = ""
        self._found: tuple[Suspect, ...] = ()
        self._shown: tuple[Suspect, ...] = ()  # on the console, by the samples alone
        self._groups: list[str] = []  # of ranks with equal stacks
        self._waits = False  # for evidence, before more is said and done
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
            self._say(f"{self._still(change)}; hang alarm at {change.limit_s:g} s", change)
        else:
            self._alarm = None
            self._say(change.rule or f"it moves again: {', '.join(change.signals)}")
            self._of.nodes.tell_nodes(HANG, None)

    def _own(self, node: int, frame: Frame) -> Frame:
        """Of a node's own ranks; node 0 may have the output of others'."""
        said = {number: ranks_of(of_node) for number, of_node in {**self._detector.frames, node: frame}.items()}
        may_speak = own({each.index: each.ranks for each in self._of.plan().job.everyone}, said) if node else lambda node, rank: True
        ranks = tuple(seen for seen in frame.ranks if seen.rank is None or may_speak(node, seen.rank))
        return frame._replace(ranks=ranks, raised=tuple(each for each in frame.raised if may_speak(node, each.rank)))

    # An alarm

    def _on_alarm(self, change: Change) -> None:
        """Say at once what the samples show, and have stacks taken: they decide."""
        self._alarm = change
        self._what = change.rule or f"the job hangs: {self._still(change)}"
        self._groups = []
        self._found = who.suspects(self._known()) if not change.rule else ()
        self._shown = self._found
        self._say(self._reason() if self._found else self._what, change)
        self._of.nodes.tell_nodes(HANG, self._said())
        self._of.take(change.rule or "the job hangs", self._mode != "observe")
        self._waits = True
        self._of.loop.after(EVIDENCE_S, lambda: self._conclude(change))

    def _on_evidence(self, gathered: Any) -> None:
        """Judge again by what all nodes have found. gathered: a ranklaunch.evidence.gathered.Gathered."""
        if not self._alarm or self._of.ending():
            return
        known = [self._with_stack(each, gathered.ranks.get(each.rank)) for each in self._known()]
        recorded, behind, mute = (
            [Missing(each.ranks, each.what, each.file) for each in told] for told in (gathered.recorded, gathered.behind, gathered.mute)
        )
        if not self._alarm.rule or self._detector.silence(self._of.loop.clock()).share >= SILENT:
            self._found = who.suspects(known, recorded, behind, mute) or self._found
        self._groups = who.groups(known, [each.rank for each in self._found])[:MOST_GROUPS]
        self._conclude(self._alarm)

    def _with_stack(self, known: Known, found: Any) -> Known:
        return known._replace(stack=found.stack, file=found.file, call=found.call, names=found.names) if found else known

    def _conclude(self, alarm: Change) -> None:
        """Tell people, tools and all nodes who holds the job up, once per alarm, with the evidence or without what has not come in time."""
        if not self._waits or self._alarm != alarm or self._of.ending():
            return
        self._waits = False
        if self._groups:
            self._of.say("; ".join(self._groups))
        if self._who and (self._found != self._shown or not self._found):
            self._of.say(self._who)
        since = None if alarm.rule else blame.iso(self._of.nodes.wall(alarm.since))
        self._of.record.event("hang", text=self._reason(), since=since)
        self._of.nodes.tell_nodes(HANG, self._said())
        self._of.alarm(self._said())
        if self._mode != "observe":
            self._fail()

    def _said(self) -> dict[str, Any]:
        assert self._alarm
        return {
            "reason": self._reason(),
            "since": blame.iso(self._of.nodes.wall(self._alarm.since)),
            "signals": list(self._alarm.signals) or [self._alarm.rule],
            "rule": self._alarm.rule,
            "suspects": [
                {"rank": each.rank, "node": each.node, "why": each.why, "file": each.file or None, "rule": each.rule}
                for each in self._found
            ],
            "groups": self._groups,
        }

    def _fail(self) -> None:
        reason = f"{self._reason()} ({self._by_mode})"
        because = tuple(Because(each.rule, each.why, Of(each.node, each.rank)) for each in self._found[:MOST_NAMED])
        self._of.fail(self._by_exception() or Ending("failed", WaitError.exit_code, reason, hung=True, because=because))

    @property
    def _by_mode(self) -> str:
        return f"RANKLAUNCH_HANG={self._mode}"

    def _by_exception(self) -> Ending | None:
        """Return the end as the job would have ended, had that rank not waited for the others at its exit."""
        first = next((each for each in self._found if each.raised and each.raised.said), None)
        if not first or not first.raised:
            return None
        at = self._of.nodes.wall(self._of.loop.clock() - first.raised.silent_s)
        culprit = uncaught.culprit(self._of.plan(), first, first.raised, at)
        reason = f"{self._by_mode} has ended rank {first.rank}, which waited at its exit: {self._what}"
        return Ending("failed", culprit.exit_code, reason, culprit=culprit, hung=True)

    # In words

    def _reason(self) -> str:
        """Return what is wrong, and whom it may be put down to."""
        return f"{self._what}; {self._who}" if self._who else self._what

    @property
    def _who(self) -> str:
        """The suspects, with their nodes if there are several; "" without suspects where a rule of the user's is broken."""
        if not self._found and self._alarm and self._alarm.rule:
            return ""
        nodes = sorted({each.node for each in self._found})
        several = len(self._nodes) > 1
        place = f" (node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))})" if several and nodes else ""
        return f"{who.sentence(self._found)}{place}"

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
