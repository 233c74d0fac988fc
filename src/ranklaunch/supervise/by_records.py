"""Suspects by the exceptions that processes recorded: the exception is the reason, and its time is the time of the failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ranklaunch.catalogue.search import LOST_CHILDREN
from ranklaunch.diagnose.raised import UNCAUGHT, Explanation
from ranklaunch.ends.model import RankEnd
from ranklaunch.plan.model import Plan
from ranklaunch.supervise import words
from ranklaunch.supervise.ranks.child import Child
from ranklaunch.values import replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit, Failure, KnownError


def explained(
    found: Sequence[Suspect],
    explanations: Iterable[tuple[RankEnd, Sequence[Explanation]]],
    plan: Plan,
    ended: Sequence[Child],
    culprit: Callable[..., Culprit],
) -> list[Suspect]:
    """Return suspects with the exceptions that explain them, and further suspects: ranks that had raised before they were told to end.

    culprit: makes one, as judge does. An exception that only tells of another failure, as of a command, a worker or a peer, leaves the
    words of the output in place, which may say more.
    """
    result = list(found)
    first = min((each.at for each in found if each.culprit), default=0.0)
    for end, fitting in explanations:
        errors = [(each, _error(each, plan)) for each in fitting]
        explanation, error = next((each for each in errors if blame.tells_why(each[1])), errors[0])
        own = next((each for each in result if _is_of(each, end)), None)
        tells_of_another = error.kind == blame.CONSEQUENCE or error.name in LOST_CHILDREN
        if own and own.culprit and not (tells_of_another and own.culprit.error):
            result[result.index(own)] = _with_exception(own, own.culprit, explanation, error)
        elif not own and explanation.sure and blame.tells_why(error) and explanation.at <= _told_at(end, first):
            child = next((each for each in ended if end.pid in (each.identity.pid, None) or end.parent == each.identity.pid), None)
            if child and end.exit_code != 0:
                failure = Failure(end.rank, UNCAUGHT, 0, end.pid, name=end.name)
                made = culprit(plan, child, failure, tuple(explanation.text.splitlines()[-blame.LINES :]), error, explanation.at)
                result.append(Suspect(made.node, explanation.at, "failed", UNCAUGHT, "", made, because=(explanation.because,)))
    return blame.ordered(result)


def _with_exception(suspect: Suspect, culprit: Culprit, explanation: Explanation, error: KnownError) -> Suspect:
    at = min(suspect.at, explanation.at) if explanation.sure else suspect.at
    made = replace(culprit, error=error, time=blame.iso(at))
    return replace(suspect, at=at, culprit=made, reason="", late=False, because=(explanation.because,))


def _error(explanation: Explanation, plan: Plan) -> KnownError:
    """Return the catalogue's entry for an exception, with the exception as the line."""
    error = words.known(explanation.text.encode(errors="replace"), plan, code=UNCAUGHT)
    if error:
        return replace(error, line=explanation.line)
    return KnownError("python-uncaught-exception", blame.CAUSE, explanation.line, "", "", "")


def _is_of(suspect: Suspect, end: RankEnd) -> bool:
    """True if a suspect is this process; a rank whose process was never seen is known by its number."""
    culprit = suspect.culprit
    if not culprit or culprit.node != end.node:
        return False
    if culprit.pid is not None and end.pid is not None:
        return culprit.pid == end.pid
    return culprit.rank is not None and culprit.rank == end.rank


def _told_at(end: RankEnd, first: float) -> float:
    """Return the time at which somebody told a process to end, in seconds since 1970; the end of the process where nobody did.

    first: when the first failure was seen; a launcher tells its ranks to end after that, and nobody sees when.
    """
    if end.by_itself is False:
        return first
    times = [sent.at for sent in end.sent if sent.at is not None]
    return min(times, default=end.at if end.at is not None else first)
