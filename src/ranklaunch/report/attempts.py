"""From what the nodes of one attempt have left to the attempt, with its rounds. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ranklaunch.fields import NOTHING, names
from ranklaunch.report import checked, model, nodes, rounds, verdicts
from ranklaunch.report.model import Culprit, Evidence, Hang, Job, OnNode, Outcome, Round
from ranklaunch.report.nodes import MISSING, UNREAD
from ranklaunch.report.reading import Left
from ranklaunch.report.rounds import Together

UNREAD_VERDICT = "what says how it ended cannot be read"
MOST_EVIDENCE = 512


@dataclass(frozen=True)
class Gathered:
    """Files of one attempt, by round and node, and the rounds by their events. shift: of clocks, by node."""

    number: int
    lefts: Mapping[int, Mapping[int, Left]]
    together: tuple[Together, ...]
    shift: Mapping[int, float]

    @property
    def every(self) -> Iterator[tuple[int, Left]]:
        """Return all nodes of all rounds, each with its files."""
        return ((node, left) for lefts in self.lefts.values() for node, left in lefts.items())


def gathered(number: int, lefts: Sequence[tuple[int, Left]]) -> Gathered:
    """lefts: with the node of each."""
    by_round: dict[int, dict[int, Left]] = {}
    by_node: dict[int, list[Left]] = {}
    for node, left in lefts:
        by_round.setdefault(_round_of(left), {})[node] = left
        by_node.setdefault(node, []).append(left)
    shift = rounds.shifts(by_node)
    for node, left in lefts:
        left.events.move(shift[node])
    ordered = {restart: dict(sorted(by_round[restart].items())) for restart in sorted(by_round)}
    return Gathered(number, ordered, tuple(rounds.together(restart, each, shift) for restart, each in ordered.items()), shift)


def _round_of(left: Left) -> int:
    """A verdict alone is of the last round."""
    if left.restart or left.events.first is not None:
        return left.restart
    return max(_restarts(left.verdict), default=-1) + 1


def _restarts(verdict: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return the entries of all rounds before the last."""
    every = map(checked.mapping, checked.each_of(verdict.get("restarts")))
    return {number: each for each in every if (number := checked.field("round", each)) is not None}


def verdicts_of(gathered: Gathered) -> list[Mapping[str, Any]]:
    """Return the verdicts of all nodes in node order, at most one for each."""
    local = {node: left.verdict for node, left in gathered.every if left.verdict}
    return [local[node] for node in sorted(local)]


def verdict_of(gathered: Gathered) -> Mapping[str, Any]:
    """Return the verdict of the first node that has one: the job is the same in all of them, unless a node had succeeded and left before
    others ended otherwise."""
    every = verdicts_of(gathered)
    return next((each for each in every if each.get("outcome") != model.SUCCEEDED), every[0] if every else NOTHING)


def begun(gathered: Gathered) -> float | None:
    known = [each.began for each in gathered.together if each.began is not None]
    return min(known or (at for _, at in _by_verdicts(gathered, "started")), default=None)


def first_sign(gathered: Gathered) -> float:
    """Of ranklaunch itself, in its container."""
    return min((left.events.first for _, left in gathered.every if left.events.first), default=begun(gathered) or 0.0)


def ended(gathered: Gathered) -> float | None:
    """Return the time of the last sign by anybody. For a node without an end, verdicts count: for a killed node, those of the remaining
    nodes."""
    signs = [each.sign for each in gathered.together if each.sign is not None]
    known = {node for node, left in gathered.every if left.events.one("end")}  # by a clock that nobody sets
    later = (at for node, at in _by_verdicts(gathered, "ended") if node not in known)
    return max((*signs, *(at for at in later if not signs or at > max(signs) + 1)), default=None)


def _by_verdicts(gathered: Gathered, name: str) -> Iterator[tuple[int, float]]:
    for node, left in gathered.every:
        at = checked.time(left.verdict.get(name))
        if at is not None:
            yield node, at + gathered.shift[node]


def rounds_of(gathered: Gathered, job: Job, most_steps: int) -> Iterator[Round]:
    last, judged = max(gathered.lefts, default=0), verdict_of(gathered)
    restarts = _restarts(judged)
    together = {each.number: each for each in gathered.together}
    for number in sorted({*together, *restarts}):
        lefts = gathered.lefts.get(number, {})
        verdict = judged if number == last else next((left.round for left in lefts.values() if left.round), NOTHING)
        again = checked.mapping(verdict.get("restart")) or restarts.get(number, NOTHING)
        known = tuple(_on_nodes(gathered, number, job, most_steps)) if lefts else ()
        made = _round(together.get(number, Together(number)), verdict, again, known, followed=number != last)
        is_unread = not (verdict or made.reason or made.outcome == model.SUCCEEDED) and any(left.unread for left in lefts.values())
        yield replace(made, reason=UNREAD_VERDICT) if is_unread else made


def _round(each: Together, verdict: Mapping[str, Any], again: Mapping[str, Any], known: tuple[OnNode, ...], *, followed: bool) -> Round:
    round_ = Round(**{name: getattr(each, name) for name in names(Round)})
    outcome = model.FAILED if followed and each.outcome == model.UNFINISHED else each.outcome
    code, culprit = checked.field("exit_code", verdict), verdicts.culprit(verdict.get("culprit"))
    return replace(
        round_, nodes=known, outcome=checked.outcome(verdict.get("outcome")) or outcome, exit_code=each.exit_code if code is None else code,
        reason=checked.field("reason", verdict) or checked.field("reason", again), culprit=culprit and with_log(culprit, known),
        failures=tuple(with_log(one, known) for one in verdicts.culprits(verdict.get("failures"))), notes=checked.field("notes", verdict),
        decision=checked.field("decision", again), lost_s=checked.field("lost_s", again),
    )  # fmt: skip


def with_log(culprit: Culprit, known: Iterable[OnNode]) -> Culprit:
    return replace(culprit, log=log_of(culprit.rank, culprit.node, culprit.name, known))


def log_of(rank: int | None, node: int, name: str, known: Iterable[OnNode]) -> str:
    processes = (process for each in known if each.node == node or node < 0 for process in each.processes)
    return next((each.log for each in processes if each.log and (each.rank == rank if rank is not None else each.name == name)), "")


def _on_nodes(gathered: Gathered, number: int, job: Job, most_steps: int) -> Iterator[OnNode]:
    lefts, hosts = gathered.lefts[number], {node.index: node.host for node in job.nodes}
    unread = {node for node, left in gathered.every if left.unread}  # restarts of theirs are not seen
    for node in sorted({*lefts, *hosts}):
        host = hosts.get(node, "")
        if node not in lefts:
            yield OnNode(node, host, "", UNREAD if node in unread else MISSING)
            continue
        on_node = nodes.on_node(node, host, lefts[node], gathered.shift[node], most_steps)
        sent = verdicts.sent((lefts[node].verdict or lefts[node].round).get("victims"))
        processes = tuple(replace(each, sent=sent.get(each.name, "")) for each in on_node.processes) if sent else on_node.processes
        yield replace(on_node, processes=processes)


def missing(gathered: Gathered, job: Job) -> tuple[int, ...]:
    there = {node for node, _ in gathered.every}
    return tuple(node.index for node in job.nodes if node.index not in there)


def hangs(gathered: Gathered, known: Sequence[OnNode]) -> tuple[Hang, ...]:
    """Return each suspected hang; the last with the verdict's text about it."""
    alarms: list[Hang] = []
    for span in sorted((span for each in gathered.together for span in each.stalls), key=lambda span: span.began):
        if not alarms or span.began > (alarms[-1].ended or span.began):
            alarms.append(Hang(span.began, span.ended))
    texts = {each["at"]: each["text"] for _, left in gathered.every for each in left.events.of("hang") if each["since"] is not None}
    alarms = [replace(hang, text=_text(hang, texts)) for hang in alarms]
    last = verdicts.hang(verdict_of(gathered).get("hang"))
    if last:
        suspects = tuple(replace(each, log=log_of(each.rank, each.node, "", known)) for each in last.suspects)
        text = alarms[-1].text if alarms else ""
        alarms[-1:] = [replace(last, text=text, suspects=suspects)]
    return tuple(alarms)


def _text(hang: Hang, texts: Mapping[float, str]) -> str:
    """What was said of it last."""
    since = hang.since or 0.0
    within = [at for at in texts if since <= at <= (hang.ended or at) + 1]
    return texts[max(within)] if within else ""


def evidence(gathered: Gathered) -> tuple[Evidence, ...]:
    every: list[Evidence] = []
    for node, left in gathered.every:
        why = {each["number"]: each["why"] for each in left.events.of("evidence")}
        every += [Evidence(node, folder, files, why.get(int(os.path.basename(folder)), "")) for folder, files in left.evidence]
    return tuple(every[:MOST_EVIDENCE])


def outcome(gathered: Gathered) -> Outcome:
    last = gathered.together[-1].outcome if gathered.together else model.UNFINISHED
    return checked.outcome(verdict_of(gathered).get("outcome")) or last
