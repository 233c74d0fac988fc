"""Rules that decided which suspect is the culprit, for `because` in verdict.json. Pure.

The order of suspects is that of verdict.blame; here are the names of its rules. EVIDENCE explains the end of the culprit, ORDER puts the
culprit before the other suspects. In both lists the first rule that matches is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Optional

from ranklaunch.verdict.model import Because, Of

if TYPE_CHECKING:
    from ranklaunch.verdict.blame import Suspect

Evidence = Callable[["Suspect"], Optional[str]]
Order = Callable[["Suspect", Sequence["Suspect"]], Optional[str]]


def out_of_memory(suspect: Suspect) -> str | None:
    """The kernel counted a process that it killed for memory at the time when this one was killed."""
    culprit = suspect.culprit
    return "the kernel's count of processes killed for memory" if culprit and culprit.out_of_memory else None


def known_error(suspect: Suspect) -> str | None:
    """An entry of the catalogue of known errors matches the last output, which no record of an exception explains."""
    error = suspect.culprit.error if suspect.culprit else None
    return f"{error.name} ({error.kind}): {error.line}" if error else None


def exit_status(suspect: Suspect) -> str | None:
    """The process ended with a signal or an exit code, and neither a record nor a known error says why."""
    culprit = suspect.culprit
    if not culprit:
        return None
    return f"killed by {culprit.signal}" if culprit.signal else f"exit code {culprit.exit_code}"


def own_decision(suspect: Suspect) -> str | None:
    """ranklaunch itself ended the job: a stop request, a wait or a node that was lost, a hang."""
    return f"ranklaunch ended the job: {suspect.outcome}"


def only_consequences(first: Suspect, others: Sequence[Suspect]) -> str | None:
    """Each failure that was seen looks like the consequence of another one. The earliest is shown."""
    return f"the first of {len(others) + 1}, all consequences" if first.is_consequence else None


def before_consequences(first: Suspect, others: Sequence[Suspect]) -> str | None:
    """A failure that is no consequence comes before those that are, however early they were seen."""
    early = [each for each in others if each.is_consequence and each.at < first.at]
    return f"{len(early)} earlier failures are consequences" if early else None


def first_in_time(first: Suspect, others: Sequence[Suspect]) -> str | None:
    """Of several failures the earliest decides."""
    return f"the earliest of {len(others) + 1} failures" if others else None


def only_failure(first: Suspect, others: Sequence[Suspect]) -> str | None:
    """Nothing else ended by itself."""
    return "no other failure was seen"


EVIDENCE: tuple[Evidence, ...] = (out_of_memory, known_error, exit_status, own_decision)
ORDER: tuple[Order, ...] = (only_consequences, before_consequences, first_in_time, only_failure)


def by(first: Suspect, others: Sequence[Suspect]) -> tuple[Because, ...]:
    """Return the rules that decided: the evidence for the end of the first suspect, then its place before the others."""
    culprit = first.culprit
    of = Of(culprit.node if culprit else first.node, culprit.rank if culprit else None)
    evidence = [(rule, says) for rule in EVIDENCE if (says := rule(first))]
    order = [(rule, says) for rule in ORDER if (says := rule(first, others))]
    own = () if evidence[0][0] is out_of_memory else first.because
    found = own or (_named(*evidence[0], of),)
    return (*found, _named(*order[0], of))


def _named(rule: Evidence | Order, says: str, of: Of) -> Because:
    return Because(rule.__name__.replace("_", "-"), says, of)
