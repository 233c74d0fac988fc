"""Alarms of a job, on node 0: reads the frames of all nodes, has evidence collected when nothing moves, and names suspects.

Without a muster each node does this for itself.
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
AT_ONCE = ("uncaught-exception", "stopped-or-stuck")  # rules that name suspects before stacks have come
MOST_NAMED = 8  # suspects, in `because` of a verdict


class Deaf:
    """Notice about a job of which no rank on any node catches SIGTERM. Due after the first step: programs set their handlers before.

    nodes: nodes that must have sent a frame first.
    """

    def __init__(self, nodes: Iterable[int]) -> None:
        self._unheard = set(nodes)
        self._stepped = self._is_deaf = self._is_decided = False

    def feed(self, node: int, frame: Frame) -> bool:
        """Take a frame. Return True once: when all nodes have sent a frame, and no rank catches SIGTERM."""
        self._stepped = self._stepped or any(sample.step >= 0 for sample in frame.ranks)
        if not self._stepped or self._is_decided:
            return False
        self._unheard.discard(node)
        self._is_deaf = self._is_deaf or frame.hears is False
        self._is_decided = bool(frame.hears) or not self._unheard
        return self._is_decided and self._is_deaf and not frame.hears


class _Alarm:
    """Alarm that is not over.

    | field | meaning |
    | --- | --- |
    | what | the alarm as a sentence |
    | sampled | suspects by the samples |
    | suspects | suspects by now |
    | shown | suspects on the console at the begin of the alarm |
    | groups | ranks with equal stacks, as texts |
    | waits | True until the evidence of all nodes has come |
    """

    def __init__(self, change: Change, what: str, sampled: tuple[Suspect, ...]) -> None:
        self.change = change
        self.what = what
        self.sampled = sampled
        self.suspects = self.shown = tuple(each for each in sampled if each.rule in AT_ONCE)
        self.groups: list[str] = []
        self.waits = True


class Judging:
    """Alarms from the first frames on. began: time of the launch, by the loop's clock."""

    def __init__(self, attempt: Attempt, limits: Limits, began: float) -> None:
        self._attempt = attempt
        plan = attempt.plan
        self._mode = plan.watch.hang
        # Without a muster each node judges by itself, and gets no frames of other nodes.
        self._nodes = [node.index for node in plan.job.everyone] if plan.muster else [plan.job.node_index]
        self._rules = expect.parse(plan.watch.expect)
        self._detector = Detector(self._nodes, limits, began, self._rules)
        self._deaf = Deaf(self._nodes)
        self._node_of: dict[int, int] = {}  # by rank in any frame so far: its node
        self._standing: dict[int | None, _Alarm] = {}  # by number of the user's rule, None for a standstill; the latest last
        attempt.companions.hear_evidence.append(self._on_evidence)
        attempt.nodes.hear(SAMPLE, self._on_sample, at_node_0=True)

    def _on_sample(self, node: int, body: Any) -> None:
        if self._attempt.ending:
            return
        node = node if self._attempt.plan.muster else self._nodes[0]
        frame = self._without_foreign_ranks(node, unpacked(body))
        self._node_of.update({sample.rank: node for sample in frame.ranks if sample.rank is not None})
        if self._deaf.feed(node, frame):
            self._attempt.say(NOTICE)
            self._attempt.record.event("notice", text=NOTICE)
        for change in self._detector.feed(node, frame, self._attempt.loop.clock()):
            self._on_change(change)

    def _on_change(self, change: Change) -> None:
        if change.kind == ALARM:
            self._on_alarm(change)
        elif change.kind == WARNING:
            self._say(f"{self._standstill(change)}; hang alarm at {change.limit_s:g} s ({change.setting})", change)
        else:
            self._on_over(change)

    def _on_over(self, change: Change) -> None:
        alarm = self._standing.get(change.number)
        if alarm and alarm.waits and self._mode != "observe" and self._is_of_values(change):
            return  # this alarm ends the job anyway, once the evidence has come
        self._standing.pop(change.number, None)
        self._say(change.rule or f"it moves again: {', '.join(change.signals)}")
        latest = self._latest
        self._attempt.nodes.tell_nodes(HANG, self._announcement(latest) if latest else None)

    def _without_foreign_ranks(self, node: int, frame: Frame) -> Frame:
        """Return a frame without ranks that other nodes report themselves: node 0 may have the output of other nodes' ranks."""
        by_node = {number: ranks_of(of_node) for number, of_node in {**self._detector.frames, node: frame}.items()}
        if not node:
            return frame
        may_speak = own({each.index: each.ranks for each in self._attempt.plan.job.everyone}, by_node)
        ranks = tuple(sample for sample in frame.ranks if sample.rank is None or may_speak(node, sample.rank))
        return frame._replace(ranks=ranks, raised=tuple(each for each in frame.raised if may_speak(node, each.rank)))

    def silence(self) -> dict[str, Any]:
        """Return the fields of `ranklaunch status`: seconds without a sign of life, the limit now, its setting, and the limit after the
        first step."""
        now = self._attempt.loop.clock()
        silent = self._detector.silence(now)
        then_s = self._attempt.plan.watch.hang_s if silent.name == FIRST_STEP_S else silent.limit_s
        seconds = round(now - silent.since, 1) if silent.share else 0.0
        return {"seconds": seconds, "limit_s": silent.limit_s, "setting": silent.name, "then_s": then_s}

    # An alarm

    @property
    def _latest(self) -> _Alarm | None:
        return list(self._standing.values())[-1] if self._standing else None

    def _is_of_values(self, change: Change) -> bool:
        return change.number is not None and self._rules[change.number].is_of_values

    def _on_alarm(self, change: Change) -> None:
        """Announce the alarm with the suspects by the samples, and have stacks collected: these decide on the suspects."""
        sampled = suspicion.suspects(self._known()) if not change.rule else ()
        alarm = _Alarm(change, change.rule or f"the job hangs: {self._standstill(change)}", sampled)
        self._standing[change.number] = alarm
        self._say(self._reason(alarm), change)
        self._attempt.nodes.tell_nodes(HANG, self._announcement(alarm))
        self._attempt.companions.take(change.rule or "the job hangs", self._mode != "observe")
        self._attempt.loop.after(EVIDENCE_S, self._conclude, alarm)

    def _on_evidence(self, gathered: Any) -> None:
        """Name the suspects by the evidence of all nodes. gathered: a ranklaunch.evidence.all_nodes.Gathered."""
        if self._attempt.ending:
            return
        known = [_with_stack(each, gathered.ranks.get(each.rank)) for each in self._known()]
        for alarm in [each for each in self._standing.values() if each.waits]:
            if not self._is_of_values(alarm.change):  # stacks do not explain a value that breaks a rule: the ranks run on
                alarm.suspects = suspicion.suspects(known, gathered.recorded, gathered.behind, gathered.mute)
                alarm.groups = suspicion.groups(known, [each.rank for each in alarm.suspects])[:MOST_GROUPS]
            self._conclude(alarm)

    def _conclude(self, alarm: _Alarm) -> None:
        """Announce the suspects to the console, to all nodes and to tools; once for each alarm, when evidence has come or is late. Then end
        the job, if so configured."""
        if not alarm.waits or alarm not in self._standing.values() or self._attempt.ending:
            return
        alarm.waits = False
        alarm.suspects = alarm.suspects or alarm.sampled
        if alarm.groups:
            self._attempt.say("; ".join(alarm.groups))
        if self._accusation(alarm) and (alarm.suspects != alarm.shown or not alarm.suspects):
            self._attempt.say(self._accusation(alarm))
            self._attempt.record.event("hang", text=self._reason(alarm), since=self._since(alarm.change))
        self._attempt.nodes.tell_nodes(HANG, self._announcement(alarm))
        self._attempt.around.teller().hang(self._announcement(alarm))
        if self._mode != "observe":
            self._fail(alarm)

    def _announcement(self, alarm: _Alarm) -> dict[str, Any]:
        """Return an alarm as JSON, for nodes and tools."""
        return {
            "reason": self._reason(alarm),
            "since": blame.iso(self._attempt.nodes.wall(alarm.change.since)),
            "signals": list(alarm.change.signals) or [alarm.change.rule],
            "rule": alarm.change.rule,
            "suspects": [
                {"rank": each.rank, "node": each.node, "why": each.why, "file": each.file or None, "rule": each.rule}
                for each in alarm.suspects
            ],
            "groups": alarm.groups,
        }

    def _fail(self, alarm: _Alarm) -> None:
        reason = f"{self._reason(alarm)} ({self._by_mode})"
        because = tuple(Because(each.rule, each.why, Of(each.node, each.rank)) for each in alarm.suspects[:MOST_NAMED])
        judgement = Judgement("failed", WaitError.exit_code, reason, because=because)
        self._attempt.fail(self._by_exception(alarm) or Ending(judgement, hung=True))

    @property
    def _by_mode(self) -> str:
        return f"RANKLAUNCH_HANG={self._mode}"

    def _by_exception(self, alarm: _Alarm) -> Ending | None:
        """Return the end by an uncaught exception, as if the rank had exited instead of waiting for the others; None without one."""
        first = next((each for each in alarm.suspects if each.raised and each.raised.traceback), None)
        if not first or not first.raised:
            return None
        at = self._attempt.nodes.wall(self._attempt.loop.clock() - first.raised.silent_s)
        culprit = uncaught.culprit(self._attempt.plan, first, first.raised, at)
        reason = f"{self._by_mode} has ended rank {first.rank}, which waited at its exit: {alarm.what}"
        return Ending(Judgement("failed", culprit.exit_code, reason, culprit), hung=True)

    # Texts

    def _reason(self, alarm: _Alarm) -> str:
        """Return the alarm as a sentence, with its suspects."""
        suspects = self._accusation(alarm)
        return f"{alarm.what}; {suspects}" if suspects else alarm.what

    def _accusation(self, alarm: _Alarm) -> str:
        """Return the suspects as a sentence, with their nodes if the job has several. Without suspects: "" while evidence is awaited, and
        for a broken rule of the user."""
        if not alarm.suspects and (alarm.change.rule or alarm.waits):
            return ""
        nodes = sorted({each.node for each in alarm.suspects})
        several = len(self._nodes) > 1
        place = f" (node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))})" if several and nodes else ""
        return f"{suspicion.sentence(alarm.suspects)}{place}"

    def _since(self, change: Change) -> str | None:
        return None if change.rule else blame.iso(self._attempt.nodes.wall(change.since))

    def _standstill(self, change: Change) -> str:
        """Return a sentence with the seconds without a sign of life, the ranks and the signals. Launchers are not counted as ranks."""
        seconds = self._attempt.loop.clock() - change.since
        ended = sum(not each.state for each in self._known())
        ranks = sum(node.slots for node in self._attempt.plan.job.nodes if node.index in self._nodes) - ended
        and_ended = f", and {ended} {'has' if ended == 1 else 'have'} ended" if ended else ""
        return f"for {seconds:.0f} s nothing has moved on {counted(ranks, 'rank')}{and_ended} ({', '.join(change.signals)})"

    def _known(self) -> list[Known]:
        """Return the state of each rank by its node's last frame; a rank that is no longer in the frame is gone."""
        frames = self._detector.frames.items()
        raised = self._detector.raised(self._attempt.loop.clock())
        in_frames = {
            sample.rank: Known(sample.rank, node, sample.state, sample.cpu, sample.full, sample.step)
            for node, frame in frames for sample in frame.ranks if sample.rank is not None
        }  # fmt: skip
        known = [in_frames.get(rank) or Known(rank, node, "") for rank, node in sorted({**self._ended_early(), **self._node_of}.items())]
        return [each._replace(raised=raised.get(each.rank)) for each in known]

    def _ended_early(self) -> dict[int, int]:
        """Return the ranks that ended before the first look, with their nodes: planned ranks that are in no frame of their node, although
        this node has reported others of its planned ranks."""
        reported = {node: {rank for rank, of in self._node_of.items() if of == node} for node in self._nodes}
        planned = {node.index: {*node.ranks} for node in self._attempt.plan.job.everyone}
        return {rank: node for node, ranks in reported.items() if ranks and ranks <= planned[node] for rank in planned[node] - ranks}

    def _say(self, text: str, change: Change | None = None) -> None:
        """Print a line and record the event. change: the alarm or warning that the line is about."""
        self._attempt.say(text)
        self._attempt.record.event("hang", text=text, since=self._since(change) if change else None)


def _with_stack(known: Known, stack: Any) -> Known:
    return known._replace(stack=stack.stack, file=stack.file, call=stack.call, names=stack.names) if stack else known
