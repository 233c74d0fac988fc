"""What other nodes say of an end, out of their messages: whatever these are made of, a value or ValueError."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ranklaunch import showing
from ranklaunch.fields import names
from ranklaunch.verdict.blame import LINE, MOST_NOTES, Finish, Judgement, Suspect, code_of
from ranklaunch.verdict.model import MOST_RULES, Because, Culprit, KnownError, Note, Of


def suspect(data: Any) -> Suspect:
    """Raises ValueError where the data are not one, as with a success: it would end what others have failed of with 0."""
    return Suspect(
        node=_get(data, "node", int),
        at=_at(data),
        outcome=_outcome(data, "failed", "stopped"),
        exit_code=_code_of_job(data),
        reason=_get(data, "reason", str),
        culprit=_culprit(data.get("culprit")),
        late=data.get("late") is True,
        because=_because(data),
    )


def finish(data: Any) -> Finish:
    """Raises ValueError where the data are not one."""
    return Finish(_get(data, "node", int), _get(data, "rank", (int, type(None))), _at(data))


def notes(data: Any) -> Iterator[Note]:
    """Yield the notes of a message; leave out what is none. Older versions send texts."""
    found = data.get("notes", ())
    for each in found[:MOST_NOTES] if isinstance(found, list) else ():
        if isinstance(each, str):
            yield Note(showing.one_line(each)[:LINE])
            continue
        try:
            text, kind, rank, more = (_get(each, key, of) for key, of in _OF_NOTE.items())
        except ValueError:
            continue
        yield Note(text[:LINE], kind, rank, more)


_OF_NOTE: dict[str, Any] = {"text": str, "kind": str, "rank": (int, type(None)), "more": int}


def judgement(data: Any) -> Judgement:
    """Raises ValueError where the data are not one."""
    return Judgement(
        outcome=_outcome(data),
        exit_code=_code_of_job(data),
        reason=_get(data, "reason", str),
        culprit=_culprit(data.get("culprit")),
        failures=tuple(c for c in map(_culprit, _get(data, "failures", list)) if c),
        notes=tuple(map(showing.one_line, _texts(data, "notes"))),
        because=_because(data),
    )


def _because(data: Any) -> tuple[Because, ...]:
    """Return the rules of a message, () for a message of an older version."""
    found = data.get("because", ())
    if not isinstance(found, (list, tuple)):
        msg = "because: expected a list"
        raise ValueError(msg)
    return tuple(map(_rule, found[:MOST_RULES]))


def _rule(data: Any) -> Because:
    of = _get(data, "of", dict)
    place = _get(of, "node", int), _get(of, "rank", (int, type(None))), _get(of, "file", str), _get(of, "line", int)
    return Because(showing.one_line(_get(data, "rule", str)), showing.one_line(_get(data, "says", str)), Of(*place))


def _culprit(data: Any) -> Culprit | None:
    if data is None:
        return None
    error = data.get("error") if isinstance(data, dict) else None
    return Culprit(
        node=_get(data, "node", int),
        rank=_get(data, "rank", (int, type(None))),
        pid=_get(data, "pid", (int, type(None))),
        exit_code=_code(data),
        signal=_get(data, "signal", (str, type(None))),
        out_of_memory=_get(data, "out_of_memory", bool),
        last_lines=tuple(_texts(data, "last_lines")),
        name=_get(data, "name", str),
        host=_get(data, "host", str),
        time=_get(data, "time", str),
        error=None if error is None else KnownError(*(_get(error, name, str) for name in names(KnownError))),
    )


def _outcome(data: Any, *known: str) -> str:
    outcome: str = _get(data, "outcome", str)
    if outcome not in (known or ("succeeded", "failed", "stopped")):
        msg = f"outcome {outcome!r}"
        raise ValueError(msg)
    return outcome


def _at(data: Any) -> float:
    """A time that a calendar has."""
    at = _get(data, "at", (int, float))
    if not 0 <= at <= 4e10:
        msg = f"at {at!r:.80}"
        raise ValueError(msg)
    return float(at)


def _code(data: Any) -> int:
    code: int = _get(data, "exit_code", int)
    if not 0 <= code <= 255:
        msg = f"exit_code {code}"
        raise ValueError(msg)
    return code


def _code_of_job(data: Any) -> int:
    return code_of(_outcome(data), _code(data))


def _texts(data: Any, key: str) -> Iterable[str]:
    return (text for text in _get(data, key, list) if isinstance(text, str))


def _get(data: Any, key: str, kind: type | tuple[type, ...]) -> Any:
    value = data.get(key) if isinstance(data, dict) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        msg = f"{key} is {value!r:.80}"
        raise ValueError(msg)
    return showing.one_line(value) if isinstance(value, str) else value
