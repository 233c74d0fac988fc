"""One attempt with its rounds, from the files of its nodes. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ranklaunch.fields import NOTHING, names
from ranklaunch.report import checked, model, nodes, rounds, verdicts
from ranklaunch.report.model import Culprit, Evidence, Hang, Job, OnNode, Outcome, Round
from ranklaunch.report.nodes import MISSING, UNREAD
from ranklaunch.report.reading import NodeFiles
from ranklaunch.report.rounds import Together

UNREAD_VERDICT = "no reason is known: verdict.json or events.jsonl cannot be read (see the notes)"
MOST_EVIDENCE = 512


@dataclass(frozen=True)
class Gathered:
    """Files of one attempt. by_round: files of each round, by node. together: the rounds by their events. shift: seconds to add to the
    clock of each node."""

    number: int
    by_round: Mapping[int, Mapping[int, NodeFiles]]
    together: tuple[Together, ...]
    shift: Mapping[int, float]

    @property
    def every(self) -> Iterator[tuple[int, NodeFiles]]:
        """Return (node, files) for each node of each round."""
        return ((node, files) for by_node in self.by_round.values() for node, files in by_node.items())


def gathered(number: int, pairs: Sequence[tuple[int, NodeFiles]]) -> Gathered:
    """Group the files of one attempt, and move the times of their events to node 0's clock. pairs: (node, files)."""
    by_round: dict[int, dict[int, NodeFiles]] = {}
    by_node: dict[int, list[NodeFiles]] = {}
    for node, files in pairs:
        by_round.setdefault(_round_of(files), {})[node] = files
        by_node.setdefault(node, []).append(files)
    shift = rounds.shifts(by_node)
    for node, files in pairs:
        files.events.move(shift[node])
    ordered = {restart: dict(sorted(by_round[restart].items())) for restart in sorted(by_round)}
    return Gathered(number, ordered, tuple(rounds.together(restart, each, shift) for restart, each in ordered.items()), shift)


def _round_of(files: NodeFiles) -> int:
    """Return the round of some files. A verdict without events belongs to the last round."""
    if files.restart or files.events.first is not None:
        return files.restart
    return max(_restarts(files.verdict), default=-1) + 1


def _restarts(verdict: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return the verdict's entries of all rounds before the last, by round."""
    every = map(checked.mapping, checked.each_of(verdict.get("restarts")))
    return {number: each for each in every if (number := checked.field("round", each)) is not None}


def verdicts_of(gathered: Gathered) -> list[Mapping[str, Any]]:
    """Return the verdicts of all nodes in node order, at most one for each."""
    local = {node: files.verdict for node, files in gathered.every if files.verdict}
    return [local[node] for node in sorted(local)]


def verdict_of(gathered: Gathered) -> Mapping[str, Any]:
    """Return the verdict of the first node that has one, if possible one without success. All verdicts judge the same job, but a node
    that succeeded early may have ended before another node failed."""
    every = verdicts_of(gathered)
    return next((each for each in every if each.get("outcome") != model.SUCCEEDED), every[0] if every else NOTHING)


def begun(gathered: Gathered) -> float | None:
    known = [each.began for each in gathered.together if each.began is not None]
    return min(known or (at for _, at in _by_verdicts(gathered, "started")), default=None)


def first_sign(gathered: Gathered) -> float:
    """Return the time of the first event of ranklaunch; the container may have started earlier."""
    return min((files.events.first for _, files in gathered.every if files.events.first), default=begun(gathered) or 0.0)


def ended(gathered: Gathered) -> float | None:
    """Return the time of the last sign of any node. For a node without an end event, its verdict counts; for a killed node, the verdicts
    of the remaining nodes."""
    signs = [each.sign for each in gathered.together if each.sign is not None]
    known = {node for node, files in gathered.every if files.events.one("end")}  # their monotonic clock beats the wall clock of a verdict
    later = (at for node, at in _by_verdicts(gathered, "ended") if node not in known)
    return max((*signs, *(at for at in later if not signs or at > max(signs) + 1)), default=None)


def _by_verdicts(gathered: Gathered, name: str) -> Iterator[tuple[int, float]]:
    for node, files in gathered.every:
        at = checked.time(files.verdict.get(name))
        if at is not None:
            yield node, at + gathered.shift[node]


def rounds_of(gathered: Gathered, job: Job, most_steps: int) -> Iterator[Round]:
    last, judged = max(gathered.by_round, default=0), verdict_of(gathered)
    restarts = _restarts(judged)
    together = {each.number: each for each in gathered.together}
    for number in sorted({*together, *restarts}):
        by_node = gathered.by_round.get(number, {})
        verdict = judged if number == last else next((files.round for files in by_node.values() if files.round), NOTHING)
        again = checked.mapping(verdict.get("restart")) or restarts.get(number, NOTHING)
        known = tuple(_on_nodes(gathered, number, job, most_steps)) if by_node else ()
        made = _round(together.get(number, Together(number)), verdict, again, known, followed=number != last)
        is_unread = not (verdict or made.reason or made.outcome == model.SUCCEEDED) and any(files.unread for files in by_node.values())
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
    by_node, hosts = gathered.by_round[number], {node.index: node.host for node in job.nodes}
    unread = {node for node, files in gathered.every if files.unread}  # their restarts cannot be seen either
    for node in sorted({*by_node, *hosts}):
        host = hosts.get(node, "")
        if node not in by_node:
            yield OnNode(node, host, "", UNREAD if node in unread else MISSING)
            continue
        on_node = nodes.on_node(node, host, by_node[node], gathered.shift[node], most_steps)
        sent = verdicts.sent((by_node[node].verdict or by_node[node].round).get("victims"))
        processes = tuple(replace(each, sent=sent.get(each.name, "")) for each in on_node.processes) if sent else on_node.processes
        yield replace(on_node, processes=processes)


def missing(gathered: Gathered, job: Job) -> tuple[int, ...]:
    present = {node for node, _ in gathered.every}
    return tuple(node.index for node in job.nodes if node.index not in present)


def hangs(gathered: Gathered, known: Sequence[OnNode]) -> tuple[Hang, ...]:
    """Return each suspected hang. The last one has the suspects of verdict.json."""
    alarms: list[Hang] = []
    for span in sorted((span for each in gathered.together for span in each.stalls), key=lambda span: span.began):
        if not alarms or span.began > (alarms[-1].ended or span.began):
            alarms.append(Hang(span.began, span.ended))
    texts = {each["at"]: each["text"] for _, files in gathered.every for each in files.events.of("hang") if each["since"] is not None}
    alarms = [replace(hang, text=_text(hang, texts)) for hang in alarms]
    last = verdicts.hang(verdict_of(gathered).get("hang"))
    if last:
        suspects = tuple(replace(each, log=log_of(each.rank, each.node, "", known)) for each in last.suspects)
        text = alarms[-1].text if alarms else ""
        alarms[-1:] = [replace(last, text=text, suspects=suspects)]
    return tuple(alarms)


def _text(hang: Hang, texts: Mapping[float, str]) -> str:
    """Return the last text of the events about a hang, "" for none."""
    since = hang.since or 0.0
    within = [at for at in texts if since <= at <= (hang.ended or at) + 1]
    return texts[max(within)] if within else ""


def evidence(gathered: Gathered) -> tuple[Evidence, ...]:
    every: list[Evidence] = []
    for node, files in gathered.every:
        why = {each["number"]: each["why"] for each in files.events.of("evidence")}
        every += [Evidence(node, folder, contents, why.get(int(os.path.basename(folder)), "")) for folder, contents in files.evidence]
    return tuple(every[:MOST_EVIDENCE])


def outcome(gathered: Gathered) -> Outcome:
    last = gathered.together[-1].outcome if gathered.together else model.UNFINISHED
    return checked.outcome(verdict_of(gathered).get("outcome")) or last
