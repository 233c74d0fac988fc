"""The whole report: reads what is there, and puts it together."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ranklaunch.errors import ConfigError, counted
from ranklaunch.evidence import stacks
from ranklaunch.hangs import suspicion
from ranklaunch.hangs.suspicion import Known
from ranklaunch.report import accounting, attempts, checked, exception_records, model, rounds, verdicts
from ranklaunch.report.attempts import Gathered
from ranklaunch.report.model import Attempt, Culprit, Evidence, Gap, Hang, Job, Raised, Report, Stacks, Tail
from ranklaunch.report.node_events import MOST_STEPS
from ranklaunch.report.nodes import LEAST_SEEN, MOST_SEEN
from ranklaunch.report.reading import Left, Place, Reader
from ranklaunch.report.rounds import Place as Reached
from ranklaunch.verdict import folders

MOST_TAILS = 16
MOST_GROUPS = 32


def report(top: str, read_at: float = 0.0) -> Report:
    """Return the report of a log folder, with all nodes and attempts in it, or of what is left of one. read_at: the time now, in seconds
    since 1970. Raises ConfigError where there is nothing."""
    reader = Reader(top)
    places = reader.places()
    jobs = sorted({place.job for place in places}, key=lambda job: reader.age(place for place in places if place.job == job))
    mine = [place for place in places if place.job == jobs[-1]]
    found = list(_gathered(reader, mine))
    if not any(_tells(left) for each in found for lefts in each.lefts.values() for left in lefts.values()):
        msg = f"{reader.top}: nothing of the job can be read"
        raise ConfigError((msg, *reader.troubles))
    by_round = [{node: left.plan for node, left in lefts.items() if left.plan} for each in found for lefts in each.lefts.values()]
    plans = {node: plan for each in by_round for node, plan in each.items()}
    compared = next((each for each in reversed(by_round) if len(each) > 1), by_round[-1])  # of one start, as another's may differ
    job = verdicts.job(plans[node] for node in sorted(plans))
    made = _attempts(reader, found, job)
    last = _deciding(made)
    _tell_of_names(reader, found)
    together = [each for one in found for each in one.together]
    gaps = tuple(_gaps(made))
    return Report(
        reader.top, job, last.outcome, last.exit_code, last.reason, last.culprit, min(each.began for each in made),
        max(each.ended for each in made), tuple(made), gaps,
        accounting.of_all([each.timeline for each in made], together, gaps, sum(_interruptions(each, each is last) for each in made)),
        differences=verdicts.differences(compared), tails=tuple(_tails(reader, last)), troubles=tuple(reader.troubles),
        other_jobs=tuple(folders.job("", each) for each in jobs[:-1]),
        exceptions=_exceptions(reader, next(each for each in found if each.number == last.number)), read_at=read_at,
    )  # fmt: skip


def _exceptions(reader: Reader, last: Gathered) -> tuple[Raised, ...]:
    """Of the last round."""
    lefts = last.lefts[max(last.lefts)]
    return exception_records.of_records((record for left in lefts.values() for record in reader.exceptions(left.below)), last.shift)


def _tell_of_names(reader: Reader, found: Sequence[Gathered]) -> None:
    """Of attempts that may be of another job: nothing else shows whether it was one."""
    names = {each.number: name for each in found if (name := _name_of(each))}
    others = [number for number in names if names[number] != names[max(names)]]
    if others:
        are = "attempt {} has" if len(others) == 1 else "attempts {} have"
        shown = f"{are.format(', '.join(map(str, others[:8])))}{' and more' if len(others) > 8 else ''}"
        reader.trouble(
            f"{shown} another job name ({names[others[0]]}), and may be of another job: jobs in one log folder are counted as one"
        )


def _name_of(gathered: Gathered) -> str:
    plans = (left.plan for lefts in gathered.lefts.values() for left in lefts.values())
    return next((checked.text(checked.mapping(plan.get("job")).get("name", ""), 120) for plan in plans if plan), "")


def _tells(left: Left) -> bool:
    """What is there and cannot be read tells nothing; of what was never written, the report does."""
    return not left.unread or bool(left.plan or left.verdict or left.round) or left.told.first is not None


def _deciding(made: Sequence[Attempt]) -> Attempt:
    """The last; but not a node that came while the others of the attempt before were still ending, and had nothing to start."""
    last = len(made) - 1
    while last and made[last].began < made[last - 1].ended and not _has_launched(made[last]):
        last -= 1
    return made[last]


def _has_launched(attempt: Attempt) -> bool:
    return any(each.launched is not None for each in attempt.rounds)


def _gathered(reader: Reader, places: Sequence[Place]) -> Iterator[Gathered]:
    by_attempt: dict[int, list[Left]] = {}
    early: list[Left] = []
    named = any(place.node is not None for place in places)
    for place in places:
        for left in reader.left(place):
            if named and place.node is None and not left.plan:
                early.append(left)
            else:
                by_attempt.setdefault(_attempt_of(left), []).append(left)
            _tell(reader, left)
    for number in sorted(by_attempt):
        yield attempts.gathered(number, list(_with_nodes(reader, by_attempt[number])))
    yield from _of_no_node(reader, early, [left for lefts in by_attempt.values() for left in lefts])


def _of_no_node(reader: Reader, early: Sequence[Left], others: Sequence[Left]) -> Iterator[Gathered]:
    """Starts that failed before there was a plan, when nobody knew yet which node it was. They have numbers of their own: one that came
    after all others is the last attempt; of others no more than that is said."""
    newest = max((_ended(left) for left in others), default=0.0)
    for left in early:
        if _ended(left) <= newest:
            reason = checked.text(left.verdict.get("reason", ""))
            reader.trouble(f"{left.below}: a start that failed before there was a plan is no attempt of this job: {reason}")
    last = max(early, key=_ended, default=None)
    if last and _ended(last) > newest:
        yield attempts.gathered(1 + max((_attempt_of(left) for left in others), default=0), [(0, last)])


def _ended(left: Left) -> float:
    return checked.time(left.verdict.get("ended")) or left.told.last or 0.0


def _attempt_of(left: Left) -> int:
    told = left.told.read.get("attempt")
    return left.place.attempt if left.place.attempt is not None else told if isinstance(told, int) else 1


def _tell(reader: Reader, left: Left) -> None:
    if left.told.spoilt:
        are = "is no event" if left.told.spoilt == 1 else "are no events"
        reader.trouble(f"{left.below or reader.top}: {counted(left.told.spoilt, 'line')} of events.jsonl {are}, and left out")
    if left.told.starts > 1:
        reader.trouble(f"{left.below or reader.top}: {left.told.starts} starts have written into the same folder: the last one counts")


def _with_nodes(reader: Reader, lefts: Sequence[Left]) -> Iterator[tuple[int, Left]]:
    """The node of each, by the name of its folder, else by its plan; of two that say the same, or of one that says nothing, the next number
    that nobody has."""
    nodes: dict[str, int] = {}
    for left in lefts:
        place = left.place
        if place.path not in nodes:
            planned = left.plan.get("job", {}).get("node_index") if isinstance(left.plan.get("job"), dict) else None
            own = place.node if place.node is not None else planned
            if not isinstance(own, int) or own in nodes.values():
                taken = {*nodes.values()}
                own = next(number for number in range(len(taken) + 1) if number not in taken)
                if len({each.place.path for each in lefts}) > 1:
                    reader.trouble(f"{place.below}: which node it is of is not told: taken for node {own}")
            nodes[place.path] = own
        yield nodes[place.path], left


def _attempts(reader: Reader, found: Sequence[Gathered], job: Job) -> list[Attempt]:
    steps_seen = any(each.first_step is not None for one in found for each in one.together)
    seen = (sum(len(left.told.steps) for left in lefts.values()) for one in found for lefts in one.lefts.values())
    ranks = max(1, job.world_size, *seen)
    most = max(LEAST_SEEN, min(MOST_STEPS, MOST_SEEN // ranks // max(1, sum(len(one.together) for one in found))))
    made: list[Attempt] = []
    best: Reached | None = None
    for one in found:
        made.append(_attempt(reader, one, job, best, steps_seen, most, after=made[-1].ended if made else 0.0))
        best = max((each for each in (best, rounds.best_of(one.together)) if each is not None), default=None)
    return made


def _attempt(reader: Reader, one: Gathered, job: Job, best: Reached | None, steps_seen: bool, most: int, after: float) -> Attempt:
    """after: the end of the attempt before, which may have been in the same container."""
    first = attempts.first_sign(one)
    began = max(attempts.begun(one) or 0.0, after if after < first else 0.0)
    ended = max(began, attempts.ended(one) or began)
    known = tuple(attempts.rounds_of(one, job, most))
    on_nodes = [node for each in known[-1:] for node in each.nodes]
    verdict = attempts.verdict_of(one)
    spans = accounting.timeline(began, ended, one.together, best, steps_seen)
    evidence = tuple(attempts.evidence(one))
    ranks = _known(reader, evidence)
    last = known[-1]
    return Attempt(
        one.number, attempts.outcome(one), began, ended, last.exit_code, last.reason, last.culprit, last.failures, last.notes,
        verdicts.stop(each.get("stop") for each in attempts.verdicts_of(one)),
        _with_suspects(attempts.hangs(one, on_nodes), ranks), tuple(_stacks(ranks)), evidence, known,
        attempts.missing(one, job), spans,
        accounting.of_attempt(spans, one.together, sum(each.outcome != model.SUCCEEDED for each in known), steps_seen),
        verdicts.suspect_host(verdict.get("suspect_host")), verdicts.because(verdict.get("because")),
    )  # fmt: skip


def _interruptions(attempt: Attempt, is_last: bool) -> int:
    """Rounds that ended otherwise than well; of one that may still run, nobody knows."""
    ends = [each.outcome for each in attempt.rounds]
    return sum(end != model.SUCCEEDED for end in ends) - (is_last and ends[-1] == model.UNFINISHED)


def _gaps(made: Sequence[Attempt]) -> Iterator[Gap]:
    for one, two in zip(made, made[1:]):
        if two.began > one.ended:
            yield Gap(one.number, one.ended, two.began)


def _known(reader: Reader, evidence: Iterable[Evidence]) -> list[Known]:
    """Return where each rank was, by what was taken last on its node: when it was asked, or else when SIGABRT ended it."""
    newest: dict[int, Evidence] = {each.node: each for each in evidence}
    known: list[Known] = []
    for node, each in sorted(newest.items()):
        summary = reader.json_of(os.path.join(each.folder, "summary.json")) if "summary.json" in each.files else None
        found = {rank: Known(rank, node, state, stack=stack, call=call) for rank, state, stack, call in verdicts.stacks_of(summary)}
        for rank, name in _aborted(each.files):
            if rank not in found or not found[rank].stack:
                text = "\n".join(reader.tail(os.path.join(each.folder, name)))
                found[rank] = Known(rank, node, stack="\n".join(map(stacks.line, stacks.main(text))))
        known += found.values()
    return known


def _aborted(files: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the files with stacks that SIGABRT brought, with their ranks."""
    for name in files:
        rank = name[len("rank_") : -len(".aborted.txt")]
        if name.startswith("rank_") and name.endswith(".aborted.txt") and rank.isdecimal() and len(rank) < 8:
            yield int(rank), name


def _stacks(known: Iterable[Known]) -> Iterator[Stacks]:
    """Yield ranks in groups of equal stacks, the largest group first."""
    groups = sorted(suspicion.alike(known).values(), key=lambda group: (-len(group), group[0].rank))
    for group in groups[:MOST_GROUPS]:
        yield Stacks(tuple(sorted(each.rank for each in group)), tuple(group[0].stack.split("\n")), suspicion.summary(group[0]))


def _with_suspects(hangs: tuple[Hang, ...], known: Sequence[Known]) -> tuple[Hang, ...]:
    """Name suspects of the last hang by stacks that only its end has brought."""
    if not hangs or hangs[-1].suspects or not hangs[-1].signals or hangs[-1].what != model.STILL:
        return hangs
    found = tuple(model.Suspect(each.rank, each.node, each.why, each.file) for each in suspicion.suspects(known))
    return (*hangs[:-1], replace(hangs[-1], suspects=found))


def _tails(reader: Reader, last: Attempt) -> Iterator[Tail]:
    """Of the culprit and of each suspect."""
    wanted: dict[str, str] = {}
    if last.culprit and last.culprit.log:
        wanted[last.culprit.log] = _name(last.culprit)
    for hang in last.hangs[-1:]:
        wanted.update({each.log: f"rank {each.rank} on node {each.node}" for each in hang.suspects if each.log not in ("", *wanted)})
    for log, name in list(wanted.items())[:MOST_TAILS]:
        yield Tail(log, name, reader.tail(log)[-200:])


def _name(culprit: Culprit) -> str:
    return f"{culprit.name or f'rank {culprit.rank}'} on node {culprit.node}"
