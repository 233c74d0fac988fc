"""From what the nodes of one attempt have left to the attempt, with its rounds. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ranklaunch.fields import NOTHING
from ranklaunch.report import checked, model, nodes, rounds, verdicts
from ranklaunch.report.model import Culprit, Evidence, Hang, Job, OnNode, Outcome, Round
from ranklaunch.report.nodes import ENDED, MISSING, UNFINISHED, UNREAD
from ranklaunch.report.reading import Left
from ranklaunch.report.rounds import Together

UNREAD_VERDICT = "what says how it ended cannot be read"
MOST_EVIDENCE = 512
MOST_ROUNDS = 10_000


@dataclass(frozen=True)
class Gathered:
    """Of one attempt: what each node has left, by round and node, and what they tell together, by round. shift: of clocks, by node."""

    number: int
    lefts: Mapping[int, Mapping[int, Left]]
    together: tuple[Together, ...]
    shift: Mapping[int, float]


def gathered(number: int, lefts: Sequence[tuple[int, Left]]) -> Gathered:
    """lefts: with the node of each."""
    by_round: dict[int, dict[int, Left]] = {}
    by_node: dict[int, list[Left]] = {}
    for node, left in lefts:
        by_round.setdefault(_round_of(left), {})[node] = left
        by_node.setdefault(node, []).append(left)
    shift = rounds.shifts(by_node)
    ordered = {restart: dict(sorted(by_round[restart].items())) for restart in sorted(by_round)}
    return Gathered(number, ordered, tuple(rounds.together(restart, each, shift) for restart, each in ordered.items()), shift)


def _round_of(left: Left) -> int:
    """A verdict alone is of the last round."""
    if left.restart or left.told.first is not None:
        return left.restart
    return max(_restarts(left.verdict), default=-1) + 1


def _restarts(verdict: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """What it says of each round before the last."""
    told = (
        (checked.index(each.get("round"), MOST_ROUNDS), each) for each in map(checked.mapping, checked.each_of(verdict.get("restarts")))
    )
    return {number: each for number, each in told if number is not None}


def verdicts_of(found: Gathered) -> Iterator[Mapping[str, Any]]:
    """Of all nodes, of which each has one at most: the attempt's."""
    own = {node: left.verdict for each in found.lefts.values() for node, left in each.items() if left.verdict}
    return (own[node] for node in sorted(own))


def verdict_of(found: Gathered) -> Mapping[str, Any]:
    """Return the verdict of the first node that has one: the job is the same in all of them, unless a node had succeeded and left before
    others ended otherwise."""
    every = list(verdicts_of(found))
    return next((each for each in every if each.get("outcome") != model.SUCCEEDED), every[0] if every else NOTHING)


def begun(found: Gathered) -> float | None:
    known = [each.began for each in found.together if each.began is not None]
    return min(known, default=min(_by_verdicts(found, "started"), default=None))


def first_sign(found: Gathered) -> float:
    """Of ranklaunch itself, in its container."""
    signs = [left.told.first + found.shift[node] for each in found.lefts.values() for node, left in each.items() if left.told.first]
    return min(signs, default=begun(found) or 0.0)


def ended(found: Gathered) -> float | None:
    """The last that anybody tells of it."""
    signs = [each.sign for each in found.together if each.sign is not None]
    told = {node for each in found.lefts.values() for node, left in each.items() if left.told.end}  # by a clock that nobody sets
    later = [at for at in _by_verdicts(found, "ended", told) if not signs or at > max(signs) + 1]  # of one that was killed, by who was left
    return max((*signs, *later), default=None)


def _by_verdicts(found: Gathered, name: str, but: Collection[int] = ()) -> Iterator[float]:
    for each in found.lefts.values():
        for node, left in each.items():
            at = checked.time(left.verdict.get(name))
            if at is not None and node not in but:
                yield at + found.shift[node]


def rounds_of(found: Gathered, job: Job, most_steps: int) -> Iterator[Round]:
    last = max(found.lefts, default=0)
    restarts = _restarts(verdict_of(found))
    together = {each.number: each for each in found.together}
    for number in sorted({*together, *restarts}):
        each, lefts = together.get(number, Together(number)), found.lefts.get(number, {})
        verdict = verdict_of(found) if number == last else next((left.round for left in lefts.values() if left.round), NOTHING)
        again = checked.mapping(verdict.get("restart")) or restarts.get(number, NOTHING)
        known = tuple(_on_nodes(found, number, job, most_steps)) if lefts else ()
        made = _round(each, verdict, again, known, followed=number != last)
        unread = not (verdict or made.reason or made.outcome == model.SUCCEEDED) and any(left.unread for left in lefts.values())
        yield replace(made, reason=UNREAD_VERDICT) if unread else made


def _round(each: Together, verdict: Mapping[str, Any], again: Mapping[str, Any], known: tuple[OnNode, ...], *, followed: bool) -> Round:
    code = checked.whole(verdict.get("exit_code"))
    return Round(
        each.number, checked.outcome(verdict.get("outcome")) or rounds.outcome_of(each, followed), each.began, each.released, each.launched,
        each.first_output, each.first_step, each.failed, each.ended, each.exit_code if code is None else code,
        checked.text(verdict.get("reason")) or checked.text(again.get("reason")), with_log(verdicts.culprit(verdict.get("culprit")), known),
        tuple(filter(None, (with_log(one, known) for one in verdicts.culprits(verdict.get("failures"))))),
        checked.texts(verdict.get("notes")),
        checked.text(again.get("decision")), checked.number(again.get("lost_s")), each.late, each.last, each.best, known, each.output,
    )  # fmt: skip


def with_log(culprit: Culprit | None, known: Iterable[OnNode]) -> Culprit | None:
    if culprit is None:
        return None
    return replace(culprit, log=log_of(culprit.rank, culprit.node, culprit.name, known))


def log_of(rank: int | None, node: int, name: str, known: Iterable[OnNode]) -> str:
    for each in known:
        for process in each.processes if each.node == node or node < 0 else ():
            if process.log and (process.rank == rank if rank is not None else process.name == name):
                return process.log
    return ""


def _on_nodes(found: Gathered, number: int, job: Job, most_steps: int) -> Iterator[OnNode]:
    lefts = found.lefts[number]
    hosts = {node.index: node.host for node in job.nodes}
    unread = {node for each in found.lefts.values() for node, left in each.items() if left.unread}  # restarts of theirs are not seen
    for node in sorted({*lefts, *hosts}):
        left = lefts.get(node)
        if left is None:
            yield OnNode(node, hosts.get(node, ""), "", UNREAD if node in unread else MISSING)
            continue
        logs = {name: os.path.join(left.below, name) for name in left.logs}
        found_node = nodes.on_node(
            node, hosts.get(node, ""), left.below, left.told, left.plan, logs, found.shift[node], left.restart, most_steps
        )
        judged = left.told.first is None and bool(left.verdict)  # its events are lost, not its end
        state = ENDED if judged else UNREAD if left.unread and found_node.state == UNFINISHED else found_node.state
        yield replace(found_node, state=state)


def missing(found: Gathered, job: Job) -> tuple[int, ...]:
    there = {node for each in found.lefts.values() for node in each}
    return tuple(node.index for node in job.nodes if node.index not in there)


def hangs(found: Gathered, known: Sequence[OnNode]) -> tuple[Hang, ...]:
    """Each that was suspected; the last with what the verdict says of it."""
    stalls = [span for each in found.together for span in each.stalls]
    alarms: list[Hang] = []
    for span in sorted(stalls, key=lambda span: span.began):
        if not alarms or span.began > (alarms[-1].ended or span.began):
            alarms.append(Hang(span.began, span.ended))
    texts = {at: text for each in found.lefts.values() for node, left in each.items() for at, text, _ in _said(left, found.shift[node])}
    alarms = [replace(hang, text=_text(hang, texts)) for hang in alarms]
    last = verdicts.hang(verdict_of(found).get("hang"))
    if last:
        suspects = tuple(replace(each, log=log_of(each.rank, each.node, "", known)) for each in last.suspects)
        text = alarms[-1].text if alarms else ""
        alarms[-1:] = [replace(last, text=text, suspects=suspects)]
    return tuple(alarms)


def _said(left: Left, shift: float) -> Iterator[tuple[float, str, float | None]]:
    yield from ((at + shift, text, since) for at, text, since in left.told.hangs if since is not None)


def _text(hang: Hang, texts: Mapping[float, str]) -> str:
    """What was said of it last."""
    since = hang.since or 0.0
    within = [at for at in texts if since <= at <= (hang.ended or at) + 1]
    return texts[max(within)] if within else ""


def evidence(found: Gathered) -> Iterator[Evidence]:
    count = 0
    for each in found.lefts.values():
        for node, left in each.items():
            why = {checked.whole(told.get("number")): checked.text(told.get("why")) for told in left.told.evidence}
            for folder, files in left.evidence:
                number = os.path.basename(folder)
                count += 1
                if count <= MOST_EVIDENCE:
                    yield Evidence(node, folder, files, why.get(int(number), ""))


def outcome(found: Gathered) -> Outcome:
    verdict = checked.outcome(verdict_of(found).get("outcome"))
    last = found.together[-1].outcome if found.together else None
    return verdict or last or model.UNFINISHED
