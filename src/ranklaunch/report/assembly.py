"""Whole report of a log folder: reads the files, and puts their values together."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ranklaunch.errors import ConfigError, counted
from ranklaunch.evidence import stacks
from ranklaunch.hangs import suspicion
from ranklaunch.hangs.suspicion import Known
from ranklaunch.report import accounting, attempts, checked, exception_records, model, rounds, verdicts
from ranklaunch.report.attempts import Gathered
from ranklaunch.report.model import Attempt, Difference, Evidence, Gap, Hang, Job, Raised, Report, Stacks, Tail
from ranklaunch.report.node_events import MOST_STEPS
from ranklaunch.report.nodes import LEAST_SEEN, MOST_SEEN
from ranklaunch.report.reading import NodeFiles, Place, Reader
from ranklaunch.report.rounds import Place as Reached
from ranklaunch.verdict import folders

MOST_TAILS = 16
MOST_GROUPS = 32
_ABORTED = re.compile(r"rank_([0-9]{1,7})\.aborted\.txt")  # stacks that a rank wrote at SIGABRT


def report(top: str, read_at: float = 0.0) -> Report:
    """Return the report of a log folder with all nodes and attempts in it, complete or not. read_at: the current time, in seconds since
    1970. Raises ConfigError if there is nothing to report."""
    reader = Reader(top)
    places = reader.places()
    jobs = sorted({place.job for place in places}, key=lambda job: reader.age(place for place in places if place.job == job))
    gathered = list(_gathered(reader, [place for place in places if place.job == jobs[-1]]))
    if not any(_has_content(files) for each in gathered for _, files in each.every):
        msg = f"{reader.top}: nothing of the job can be read"
        raise ConfigError((msg, *reader.troubles))
    job, differences = _planned(gathered)
    made = _attempts(reader, gathered, job)
    last = _deciding_attempt(made)
    _note_other_names(reader, gathered)
    gaps = tuple(Gap(one.number, one.ended, two.began) for one, two in zip(made, made[1:]) if two.began > one.ended)
    together = [each for one in gathered for each in one.together]
    return Report(
        reader.top, job, last.outcome, last.exit_code, last.reason, last.culprit, min(each.began for each in made),
        max(each.ended for each in made), tuple(made), gaps,
        accounting.of_all([each.timeline for each in made], together, gaps, sum(_interruptions(each, each is last) for each in made)),
        differences=differences, tails=tuple(_tails(reader, last)), troubles=tuple(reader.troubles),
        other_jobs=tuple(folders.job("", each) for each in jobs[:-1]),
        exceptions=_exceptions(reader, next(each for each in gathered if each.number == last.number)), read_at=read_at,
    )  # fmt: skip


def _note_other_names(reader: Reader, gathered: Sequence[Gathered]) -> None:
    """Note attempts that may belong to another job: only the name in their plans shows that."""
    names = {each.number: name for each in gathered if (name := next((_job_name(files) for _, files in each.every if files.plan), ""))}
    differing = [number for number in names if names[number] != names[max(names)]]
    if differing:
        numbers = f"{', '.join(map(str, differing[:8]))}{' and more' if len(differing) > 8 else ''}"
        have = f"attempt {numbers} has" if len(differing) == 1 else f"attempts {numbers} have"
        why = "all attempts in one log folder count as one job"
        reader.trouble(f"{have} another job name ({names[differing[0]]}), and may belong to another job: {why}")


def _job_name(files: NodeFiles) -> str:
    return verdicts.job([files.plan]).name


def _planned(gathered: Sequence[Gathered]) -> tuple[Job, tuple[Difference, ...]]:
    """Return the job by its plans, and the differences between nodes in the last start that has several plans: plans of different starts
    may differ anyway."""
    by_node = [each for one in gathered for each in one.by_round.values()]
    by_round = [{node: files.plan for node, files in each.items() if files.plan} for each in by_node]
    plans = {node: plan for each in by_round for node, plan in each.items()}
    compared = [each for each in by_round if len(each) > 1][-1:]
    return verdicts.job(plans[node] for node in sorted(plans)), tuple(each for one in compared for each in verdicts.differences(one))


def _exceptions(reader: Reader, last: Gathered) -> tuple[Raised, ...]:
    """Return the recorded exceptions of the last round."""
    by_node = last.by_round[max(last.by_round)]
    return exception_records.of_records((record for files in by_node.values() for record in reader.exceptions(files.subpath)), last.shift)


def _has_content(files: NodeFiles) -> bool:
    """Return False for files that exist but cannot be read. Missing files are content: the report shows that the node left none."""
    return not files.unread or bool(files.plan or files.verdict or files.round) or files.events.first is not None


def _deciding_attempt(made: Sequence[Attempt]) -> Attempt:
    """Return the attempt that decides: the last one, unless it started nothing and began before the end of the attempt before. Such an
    attempt is a node that came while the other nodes were still ending."""
    last = len(made) - 1
    while last and made[last].began < made[last - 1].ended and all(each.launched is None for each in made[last].rounds):
        last -= 1
    return made[last]


def _gathered(reader: Reader, places: Sequence[Place]) -> Iterator[Gathered]:
    by_attempt: dict[int, list[NodeFiles]] = {}
    early: list[NodeFiles] = []
    named = any(place.node is not None for place in places)
    for place in places:
        for files in reader.rounds(place):
            if named and place.node is None and not files.plan:
                early.append(files)
            else:
                by_attempt.setdefault(_attempt_of(files), []).append(files)
            _note_damage(reader, files)
    for number in sorted(by_attempt):
        yield attempts.gathered(number, list(_with_nodes(reader, by_attempt[number])))
    yield from _without_plan(reader, early, [files for each in by_attempt.values() for files in each])


def _without_plan(reader: Reader, early: Sequence[NodeFiles], planned: Sequence[NodeFiles]) -> Iterator[Gathered]:
    """Yield the last attempt if it failed before there was a plan, with the index of its node still unknown. Such a start counts as an
    attempt only if it ended after all other starts; earlier ones are noted as troubles."""
    newest = max((_ended(files) for files in planned), default=0.0)
    for files in early:
        if _ended(files) <= newest:
            reason = checked.text(files.verdict.get("reason", ""))
            reader.trouble(f"{files.subpath}: a start that failed before its plan was made, not counted as an attempt: {reason}")
    last = max(early, key=_ended, default=None)
    if last and _ended(last) > newest:
        yield attempts.gathered(1 + max((_attempt_of(files) for files in planned), default=0), [(0, last)])


def _ended(files: NodeFiles) -> float:
    return checked.time(files.verdict.get("ended")) or files.events.last or 0.0


def _attempt_of(files: NodeFiles) -> int:
    by_events = files.events.one("read").get("attempt")
    return next((number for number in (files.place.attempt, by_events) if number is not None), 1)


def _note_damage(reader: Reader, files: NodeFiles) -> None:
    if files.events.spoilt:
        are = "is no event" if files.events.spoilt == 1 else "are no events"
        reader.trouble(f"{files.subpath or reader.top}: {counted(files.events.spoilt, 'line')} of events.jsonl {are}, and left out")
    if files.events.starts > 1:
        where = files.subpath or reader.top
        reader.trouble(f"{where}: {files.events.starts} starts have written into the same folder: the last one counts")


def _with_nodes(reader: Reader, every: Sequence[NodeFiles]) -> Iterator[tuple[int, NodeFiles]]:
    """Yield (node, files), the node by the name of its folder, else by its plan. A repeated or missing number is replaced by the next free
    number."""
    nodes: dict[str, int] = {}
    for files in every:
        place = files.place
        if place.path not in nodes:
            planned = checked.mapping(files.plan.get("job")).get("node_index")
            node = place.node if place.node is not None else planned
            if not isinstance(node, int) or node in nodes.values():
                node = min({*range(len(nodes) + 1)} - {*nodes.values()})
                if len({each.place.path for each in every}) > 1:
                    reader.trouble(f"{place.subpath}: no usable node number in the folder's name or in plan.json: taken for node {node}")
            nodes[place.path] = node
        yield nodes[place.path], files


def _attempts(reader: Reader, gathered: Sequence[Gathered], job: Job) -> list[Attempt]:
    steps_seen = any(each.first_step is not None for one in gathered for each in one.together)
    by_node = [each for one in gathered for each in one.by_round.values()]
    ranks = max(1, job.world_size, *(sum(len(files.events.steps) for files in each.values()) for each in by_node))
    most = max(LEAST_SEEN, min(MOST_STEPS, MOST_SEEN // ranks // max(1, sum(len(one.together) for one in gathered))))
    made: list[Attempt] = []
    for i, one in enumerate(gathered):
        best = rounds.best_of(each for before in gathered[:i] for each in before.together)
        made.append(_attempt(reader, one, job, best, steps_seen, most, after=made[-1].ended if made else 0.0))
    return made


def _attempt(reader: Reader, one: Gathered, job: Job, best: Reached | None, steps_seen: bool, most: int, after: float) -> Attempt:
    """Return one attempt. after: end of the attempt before, which may have been in the same container."""
    began = max(attempts.begun(one) or 0.0, after if after < attempts.first_sign(one) else 0.0)
    ended = max(began, attempts.ended(one) or began)
    known = tuple(attempts.rounds_of(one, job, most))
    verdict, last = attempts.verdict_of(one), known[-1]
    spans = accounting.timeline(began, ended, one.together, best, steps_seen)
    evidence = attempts.evidence(one)
    ranks = _rank_stacks(reader, evidence)
    return Attempt(
        one.number, attempts.outcome(one), began, ended, last.exit_code, last.reason, last.culprit, last.failures, last.notes,
        verdicts.stop(each.get("stop") for each in attempts.verdicts_of(one)),
        _with_suspects(attempts.hangs(one, last.nodes), ranks), tuple(_stacks(ranks)), evidence, known,
        attempts.missing(one, job), spans,
        accounting.of_attempt(spans, one.together, sum(each.outcome != model.SUCCEEDED for each in known), steps_seen),
        verdicts.suspect_host(verdict.get("suspect_host")), verdicts.because(verdict.get("because")),
    )  # fmt: skip


def _interruptions(attempt: Attempt, is_last: bool) -> int:
    """Return the number of rounds that ended without success. The last round of the job does not count if it may still run."""
    ends = [each.outcome for each in attempt.rounds]
    return sum(end != model.SUCCEEDED for end in ends) - (is_last and ends[-1] == model.UNFINISHED)


def _rank_stacks(reader: Reader, evidence: Iterable[Evidence]) -> list[Known]:
    """Return the state and stack of each rank, by the latest evidence of its node, else by the stack that the rank wrote at SIGABRT."""
    newest: dict[int, Evidence] = {each.node: each for each in evidence}
    known: list[Known] = []
    for node, each in sorted(newest.items()):
        summary = reader.json_of(os.path.join(each.folder, "summary.json")) if "summary.json" in each.files else None
        by_rank = {rank: Known(rank, node, state, stack=stack, call=call) for rank, state, stack, call in verdicts.stacks_of(summary)}
        for name, file in ((name, _ABORTED.fullmatch(name)) for name in each.files):
            rank = int(file[1]) if file else -1
            if file and not (rank in by_rank and by_rank[rank].stack):
                text = "\n".join(reader.tail(os.path.join(each.folder, name)))
                by_rank[rank] = Known(rank, node, stack="\n".join(map(stacks.line, stacks.main(text))))
        known += by_rank.values()
    return known


def _stacks(known: Iterable[Known]) -> Iterator[Stacks]:
    """Yield ranks in groups of equal stacks, the largest group first."""
    groups = sorted(suspicion.alike(known).values(), key=lambda group: (-len(group), group[0].rank))
    for group in groups[:MOST_GROUPS]:
        yield Stacks(tuple(sorted(each.rank for each in group)), tuple(group[0].stack.split("\n")), suspicion.summary(group[0]))


def _with_suspects(hangs: tuple[Hang, ...], known: Sequence[Known]) -> tuple[Hang, ...]:
    """Name the suspects of the last hang by stacks that exist only since its end (from SIGABRT)."""
    if not hangs or hangs[-1].suspects or not hangs[-1].signals or hangs[-1].subject != model.STILL:
        return hangs
    suspects = tuple(model.Suspect(each.rank, each.node, each.why, each.file) for each in suspicion.suspects(known))
    return (*hangs[:-1], replace(hangs[-1], suspects=suspects))


def _tails(reader: Reader, last: Attempt) -> Iterator[Tail]:
    """Yield the last lines of the logs of the culprit and of each suspect."""
    wanted: dict[str, str] = {}
    culprit = last.culprit
    if culprit:
        wanted[culprit.log] = f"{culprit.name or f'rank {culprit.rank}'} on node {culprit.node}"
    for each in last.hangs[-1].suspects if last.hangs else ():
        wanted.setdefault(each.log, f"rank {each.rank} on node {each.node}")
    wanted.pop("", None)
    for log, name in list(wanted.items())[:MOST_TAILS]:
        yield Tail(log, name, reader.tail(log)[-200:])
