"""Alarms of a job, on node 0: reads the frames of all nodes, has evidence taken when nothing moves, and names suspects.

Without a muster each node does so for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ranklaunch.errors import WaitError, counted
from ranklaunch.hangs import expect, suspicion, uncaught
from ranklaunch.hangs.detector import ALARM, FIRST_STEP_S, WARNING, Change, Detector, Limits
from ranklaunch.hangs.frames import Frame, own, ranks_of, unpacked
from ranklaunch.hangs.suspicion import Known, Suspect
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import Because, Ending, Judgement, Of

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt

SAMPLE, HANG = "sample", "hang"  # topics of messages between nodes
NOTICE = 'no rank catches SIGTERM: a stop loses the work since the last checkpoint (see "Save at a stop" in docs/status.md)'
EVIDENCE_S = 16.0  # wait for the evidence of all nodes
MOST_GROUPS = 8  # of ranks with equal stacks, on the console
AT_ONCE = ("uncaught-exception", "stopped-or-stuck")  # rules that name suspects before stacks are there
MOST_NAMED = 8  # suspects, in `because` of a verdict


class Deaf:
    """Notice of a job without any rank that catches SIGTERM, on all nodes. Given after the first step: programs set their handlers
    before.

    nodes: all nodes to be heard first.
    """

    def __init__(self, nodes: Iterable[int]) -> None:
        self._unheard = set(nodes)
        self._stepped = self._is_deaf = self._over = False

    def feed(self, node: int, frame: Frame) -> bool:
        """Return True once: at the frame since which no rank of any node is known to catch SIGTERM."""
        self._stepped = self._stepped or any(seen.step >= 0 for seen in frame.ranks)
        if not self._stepped or self._over:
            return False
        self._unheard.discard(node)
        self._is_deaf = self._is_deaf or frame.hears is False
        self._over = bool(frame.hears) or not self._unheard
        return self._over and self._is_deaf and not frame.hears


class _Alarm:
    """Standing alarm. what: the alarm as a sentence. sampled: suspects by the samples. found: suspects by now; shown: first
    suspects on the console, not changed by stacks. groups: ranks with equal stacks, as texts. waits: the evidence of all
    nodes has not come yet."""

    def __init__(self, change: Change, what: str, sampled: tuple[Suspect, ...]) -> None:
        self.change = change
        self.what = what
        self.sampled = sampled
        self.found = self.shown = tuple(each for each in sampled if each.rule in AT_ONCE)
        self.groups: list[str] = []
        self.waits = True


class Judging:
    """Alarms from the first frames on. began: time of the launch, by the loop's clock."""

    def __init__(self, attempt: Attempt, limits: Limits, began: float) -> None:
        self._of = attempt
        plan = attempt.plan
        self._mode = plan.watch.hang
        # Without a muster each node judges by itself, and hears nobody else.
        self._nodes = [node.index for node in plan.job.everyone] if plan.muster else [plan.job.node_index]
        self._rules = expect.parse(plan.watch.expect)
        self._detector = Detector(self._nodes, limits, began, self._rules)
        self._deaf = Deaf(self._nodes)
        self._ever: dict[int, int] = {}  # ranks that were seen, and on which node
        self._standing: dict[int | None, _Alarm] = {}  # by the number of the rule, None: nothing moves; the latest last
        attempt.companions.hear_evidence.append(self._on_evidence)
        attempt.nodes.hear(SAMPLE, self._on_sample, at_node_0=True)

    def _on_sample(self, node: int, body: Any) -> None:
        if self._of.ending:
            return
        node = node if self._of.plan.muster else self._nodes[0]
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
            self._say(f"{self._still(change)}; hang alarm at {change.limit_s:g} s ({change.setting})", change)
        else:
            self._on_over(change)

    def _on_over(self, change: Change) -> None:
        alarm = self._standing.get(change.number)
        if alarm and alarm.waits and self._mode != "observe" and self._is_of_values(change):
            return  # the value that broke the rule fails the job, whatever comes later
        self._standing.pop(change.number, None)
        self._say(change.rule or f"it moves again: {', '.join(change.signals)}")
        latest = self._latest
        self._of.nodes.tell_nodes(HANG, self._said(latest) if latest else None)

    def _own(self, node: int, frame: Frame) -> Frame:
        """Return a frame with the node's own ranks only; node 0 may have the output of other nodes' ranks."""
        by_node = {number: ranks_of(of_node) for number, of_node in {**self._detector.frames, node: frame}.items()}
        if not node:
            return frame
        may_speak = own({each.index: each.ranks for each in self._of.plan.job.everyone}, by_node)
        ranks = tuple(seen for seen in frame.ranks if seen.rank is None or may_speak(node, seen.rank))
        return frame._replace(ranks=ranks, raised=tuple(each for each in frame.raised if may_speak(node, each.rank)))

    def silence(self) -> dict[str, Any]:
        """Return for how long nothing has moved, and the limits now and after the first step, as `status` has them."""
        now = self._of.loop.clock()
        silent = self._detector.silence(now)
        then_s = self._of.plan.watch.hang_s if silent.name == FIRST_STEP_S else silent.limit_s
        seconds = round(now - silent.since, 1) if silent.share else 0.0
        return {"seconds": seconds, "limit_s": silent.limit_s, "setting": silent.name, "then_s": then_s}

    # An alarm

    @property
    def _latest(self) -> _Alarm | None:
        return list(self._standing.values())[-1] if self._standing else None

    def _is_of_values(self, change: Change) -> bool:
        return change.number is not None and self._rules[change.number].is_of_values

    def _on_alarm(self, change: Change) -> None:
        """Say at once what the samples show, and have stacks taken: they decide."""
        sampled = suspicion.suspects(self._known()) if not change.rule else ()
        alarm = _Alarm(change, change.rule or f"the job hangs: {self._still(change)}", sampled)
        self._standing[change.number] = alarm
        self._say(self._reason(alarm), change)
        self._of.nodes.tell_nodes(HANG, self._said(alarm))
        self._of.companions.take(change.rule or "the job hangs", self._mode != "observe")
        self._of.loop.after(EVIDENCE_S, self._conclude, alarm)

    def _on_evidence(self, gathered: Any) -> None:
        """Judge again by what all nodes have found. gathered: a ranklaunch.evidence.all_nodes.Gathered."""
        if self._of.ending:
            return
        known = [_with_stack(each, gathered.ranks.get(each.rank)) for each in self._known()]
        for alarm in [each for each in self._standing.values() if each.waits]:
            if not self._is_of_values(alarm.change):  # of a value that breaks a rule, stacks say nothing: the ranks go on
                alarm.found = suspicion.suspects(known, gathered.recorded, gathered.behind, gathered.mute)
                alarm.groups = suspicion.groups(known, [each.rank for each in alarm.found])[:MOST_GROUPS]
            self._conclude(alarm)

    def _conclude(self, alarm: _Alarm) -> None:
        """Tell people, tools and all nodes who holds the job up, once per alarm, with the evidence or without what has not come in time."""
        if not alarm.waits or alarm not in self._standing.values() or self._of.ending:
            return
        alarm.waits = False
        alarm.found = alarm.found or alarm.sampled
        if alarm.groups:
            self._of.say("; ".join(alarm.groups))
        if self._who(alarm) and (alarm.found != alarm.shown or not alarm.found):
            self._of.say(self._who(alarm))
            self._of.record.event("hang", text=self._reason(alarm), since=self._since(alarm.change))
        self._of.nodes.tell_nodes(HANG, self._said(alarm))
        self._of.around.teller().hang(self._said(alarm))
        if self._mode != "observe":
            self._fail(alarm)

    def _said(self, alarm: _Alarm) -> dict[str, Any]:
        return {
            "reason": self._reason(alarm),
            "since": blame.iso(self._of.nodes.wall(alarm.change.since)),
            "signals": list(alarm.change.signals) or [alarm.change.rule],
            "rule": alarm.change.rule,
            "suspects": [
                {"rank": each.rank, "node": each.node, "why": each.why, "file": each.file or None, "rule": each.rule}
                for each in alarm.found
            ],
            "groups": alarm.groups,
        }

    def _fail(self, alarm: _Alarm) -> None:
        reason = f"{self._reason(alarm)} ({self._by_mode})"
        because = tuple(Because(each.rule, each.why, Of(each.node, each.rank)) for each in alarm.found[:MOST_NAMED])
        judgement = Judgement("failed", WaitError.exit_code, reason, because=because)
        self._of.fail(self._by_exception(alarm) or Ending(judgement, hung=True))

    @property
    def _by_mode(self) -> str:
        return f"RANKLAUNCH_HANG={self._mode}"

    def _by_exception(self, alarm: _Alarm) -> Ending | None:
        """Return the end as the job would have ended, had that rank not waited for the others at its exit."""
        first = next((each for each in alarm.found if each.raised and each.raised.said), None)
        if not first or not first.raised:
            return None
        at = self._of.nodes.wall(self._of.loop.clock() - first.raised.silent_s)
        culprit = uncaught.culprit(self._of.plan, first, first.raised, at)
        reason = f"{self._by_mode} has ended rank {first.rank}, which waited at its exit: {alarm.what}"
        return Ending(Judgement("failed", culprit.exit_code, reason, culprit), hung=True)

    # In words

    def _reason(self, alarm: _Alarm) -> str:
        """Return the alarm as a sentence, with its suspects."""
        suspects = self._who(alarm)
        return f"{alarm.what}; {suspects}" if suspects else alarm.what

    def _who(self, alarm: _Alarm) -> str:
        """Return the suspects, with their nodes if there are several; "" for none while stacks are being taken, and where a rule of the
        user's is broken."""
        if not alarm.found and (alarm.change.rule or alarm.waits):
            return ""
        nodes = sorted({each.node for each in alarm.found})
        several = len(self._nodes) > 1
        place = f" (node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))})" if several and nodes else ""
        return f"{suspicion.sentence(alarm.found)}{place}"

    def _since(self, change: Change) -> str | None:
        return None if change.rule else blame.iso(self._of.nodes.wall(change.since))

    def _still(self, change: Change) -> str:
        """Return what does not move, for how long, and on how many ranks: launchers are watched too, and do not count."""
        seconds = self._of.loop.clock() - change.since
        ended = sum(not each.state for each in self._known())
        ranks = sum(node.slots for node in self._of.plan.job.nodes if node.index in self._nodes) - ended
        others = f", and {ended} {'has' if ended == 1 else 'have'} ended" if ended else ""
        return f"for {seconds:.0f} s nothing has moved on {counted(ranks, 'rank')}{others} ({', '.join(change.signals)})"

    def _known(self) -> list[Known]:
        """Return the state of each rank by its node's last frame; a rank that is no longer in the frame is gone."""
        frames = self._detector.frames.items()
        raised = self._detector.raised(self._of.loop.clock())
        heard = {
            seen.rank: Known(seen.rank, node, seen.state, seen.cpu, seen.full, seen.step)
            for node, frame in frames for seen in frame.ranks if seen.rank is not None
        }  # fmt: skip
        known = [heard.get(rank) or Known(rank, node, "") for rank, node in sorted({**self._never(), **self._ever}.items())]
        return [each._replace(raised=raised.get(each.rank)) for each in known]

    def _never(self) -> dict[int, int]:
        """Return the ranks that ended before the first look, with their nodes: planned ranks of a node seen with other ranks of its own."""
        seen = {node: {rank for rank, of in self._ever.items() if of == node} for node in self._nodes}
        planned = {node.index: {*node.ranks} for node in self._of.plan.job.everyone}
        return {rank: node for node, ranks in seen.items() if ranks and ranks <= planned[node] for rank in planned[node] - ranks}

    def _say(self, text: str, change: Change | None = None) -> None:
        """Print a line and record the event. change: the alarm or warning that the line is about."""
        self._of.say(text)
        self._of.record.event("hang", text=text, since=self._since(change) if change else None)


def _with_stack(known: Known, stack: Any) -> Known:
    return known._replace(stack=stack.stack, file=stack.file, call=stack.call, names=stack.names) if stack else known
