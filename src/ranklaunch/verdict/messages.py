"""Suspects and judgements as messages between nodes. Pure.

Functions that read a message raise ValueError for invalid data. The other node may run another
version of ranklaunch.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar, cast

from ranklaunch import errors, showing
from ranklaunch.fields import as_dict, from_dict, names
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import MOST_RULES, Culprit, Finish, Judgement, Note, Suspect

# Most characters of fields; all other texts are cut at blame.LINE.
_LENGTHS = {
    "reason": blame.SAID,
    "host": blame.HOST,
    **dict.fromkeys(("name", "time", "signal", "rule"), blame.WORD),
}
_Message = TypeVar("_Message", Suspect, Finish, Judgement, Note)
_LATEST = 4e10  # seconds since 1970: beyond this, datetime has no year


# To other nodes


def as_message(value: Suspect | Finish | Judgement | Note) -> dict[str, Any]:
    return as_dict(_clipped(value))


def clipped(value: _Message) -> _Message:
    """Return a value with all texts cut to their limits, each on one line."""
    return cast("_Message", _clipped(value))


def _clipped(value: Any) -> Any:
    fit = _clip(value, blame.LINE)
    if isinstance(fit, (Suspect, Judgement)):
        fit = replace(fit, exit_code=code_of(fit.outcome, fit.exit_code), because=fit.because[:MOST_RULES])
    if isinstance(fit, Judgement):
        failures = tuple(replace(failure, last_lines=()) for failure in fit.failures[: blame.MOST_FAILURES])
        fit = replace(fit, failures=failures, notes=fit.notes[: blame.MOST_NOTES])
    return fit


def _clip(value: Any, most: int) -> Any:
    """Cut all texts of a value. most: characters of a text."""
    if isinstance(value, str):
        return showing.one_line(value[:most])[:most]
    if isinstance(value, tuple):
        return tuple(_clip(each, most) for each in value)
    if isinstance(value, Culprit):
        lines = tuple(line[: blame.LINE] for line in value.last_lines[-blame.LINES :])
        return replace(_clip_fields(value), last_lines=lines)
    return _clip_fields(value) if is_dataclass(value) else value


def _clip_fields(value: Any) -> Any:
    return replace(value, **{name: _clip(getattr(value, name), _LENGTHS.get(name, blame.LINE)) for name in names(type(value))})


def heard(judgement: Judgement) -> Judgement:
    """Return another node's judgement, cut to this node's limits and with secrets hidden."""
    fit = clipped(judgement)
    return replace(
        fit, reason=errors.reason(fit.reason),
        because=tuple(replace(each, says=errors.reason(each.says)) for each in fit.because),
        culprit=fit.culprit and _without_secrets(fit.culprit),
        failures=tuple(map(_without_secrets, fit.failures)), notes=tuple(map(errors.reason, fit.notes)),
    )  # fmt: skip


def _without_secrets(culprit: Culprit) -> Culprit:
    error = culprit.error and replace(culprit.error, line=showing.printable(errors.quoted((culprit.error.line,))[0]))
    return replace(culprit, last_lines=errors.quoted(culprit.last_lines), error=error)


def brief(suspect: Suspect) -> Suspect:
    """Return a suspect without output lines: the form for all suspects of a node but the first."""
    culprit = suspect.culprit and replace(suspect.culprit, last_lines=())
    return replace(suspect, reason=suspect.reason[: blame.LINE], culprit=culprit)


def code_of(outcome: str, code: int) -> int:
    """Return a valid exit code for an outcome: 128+N for stopped, nonzero for failed."""
    if outcome == "stopped":
        return code if 128 < code <= 192 else 128 + signal.SIGTERM
    return code or int(outcome != "succeeded")


# From other nodes


def suspect(data: Any) -> Suspect:
    """Read a suspect. Raises ValueError, also for a success: its 0 would become the exit code of a
    failed job."""
    value = from_dict(Suspect, data)
    _check_end(value.outcome, value.exit_code, value.culprit, "failed", "stopped")
    return replace(clipped(value), at=_time(value.at))


def finish(data: Any) -> Finish:
    """Read a Finish. Raises ValueError."""
    value = from_dict(Finish, data)
    return replace(value, at=_time(value.at))


def judgement(data: Any) -> Judgement:
    """Read a judgement. Raises ValueError."""
    value = from_dict(Judgement, data)
    for culprit in (value.culprit, *value.failures):
        _check_end(value.outcome, value.exit_code, culprit, "failed", "stopped", "succeeded")
    return clipped(value)


def notes(data: Any) -> Iterator[Note]:
    """Yield the valid notes of a message. Older versions send plain texts."""
    texts = data.get("notes", ())
    for each in texts[: blame.MOST_NOTES] if isinstance(texts, list) else ():
        if isinstance(each, str):
            yield Note(showing.one_line(each)[: blame.LINE])
            continue
        try:
            yield clipped(from_dict(Note, each))
        except ValueError:
            continue


def _check_end(outcome: str, code: int, culprit: Culprit | None, *outcomes: str) -> None:
    if outcome not in outcomes:
        msg = f"invalid outcome {outcome!r}"
        raise ValueError(msg)
    for each in (code, culprit.exit_code if culprit else 0):
        if not 0 <= each <= 255:
            msg = f"invalid exit_code {each}"
            raise ValueError(msg)


def _time(at: float) -> float:
    """Return a valid time, in seconds since 1970. Raises ValueError."""
    if not 0 <= at <= _LATEST:
        msg = f"invalid time {at!r:.80}"
        raise ValueError(msg)
    return float(at)
