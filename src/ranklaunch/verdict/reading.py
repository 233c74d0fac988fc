"""What other nodes say of an end, out of their messages: whatever these are made of, a value or ValueError."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ranklaunch import showing
from ranklaunch.fields import from_dict
from ranklaunch.verdict.blame import LINE, MOST_NOTES, clipped
from ranklaunch.verdict.model import Culprit, Finish, Judgement, Note, Suspect

_LATEST = 4e10  # seconds since 1970: the last year of a calendar


def suspect(data: Any) -> Suspect:
    """Raises ValueError where the data are not one, as with a success: it would end what others have failed of with 0."""
    found = from_dict(Suspect, data)
    _check_end(found.outcome, found.exit_code, found.culprit, "failed", "stopped")
    return replace(clipped(found), at=_time(found.at))


def finish(data: Any) -> Finish:
    """Raises ValueError where the data are not one."""
    found = from_dict(Finish, data)
    return replace(found, at=_time(found.at))


def judgement(data: Any) -> Judgement:
    """Raises ValueError where the data are not one."""
    found = from_dict(Judgement, data)
    for culprit in (found.culprit, *found.failures):
        _check_end(found.outcome, found.exit_code, culprit, "failed", "stopped", "succeeded")
    return clipped(found)


def notes(data: Any) -> Iterator[Note]:
    """Yield the notes of a message; leave out what is none. Older versions send texts."""
    found = data.get("notes", ())
    for each in found[:MOST_NOTES] if isinstance(found, list) else ():
        if isinstance(each, str):
            yield Note(showing.one_line(each)[:LINE])
            continue
        try:
            yield clipped(from_dict(Note, each))
        except ValueError:
            continue


def _check_end(outcome: str, code: int, culprit: Culprit | None, *outcomes: str) -> None:
    if outcome not in outcomes:
        msg = f"outcome {outcome!r}"
        raise ValueError(msg)
    for each in (code, culprit.exit_code if culprit else 0):
        if not 0 <= each <= 255:
            msg = f"exit_code {each}"
            raise ValueError(msg)


def _time(at: float) -> float:
    """Return a time that a calendar has."""
    if not 0 <= at <= _LATEST:
        msg = f"at {at!r:.80}"
        raise ValueError(msg)
    return float(at)
