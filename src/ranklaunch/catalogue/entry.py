"""Entry of the catalogue, and its reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

from ranklaunch import showing
from ranklaunch.catalogue.literals import counts_groups, in_scope, needed

KINDS = CAUSE, CONSEQUENCE, STOPPED = "cause", "consequence", "stopped"
# Result of a new start of the same job: the same end; possible success; possible success on other hosts. "" stands for unknown.
RETRIES = NO, YES, ELSEWHERE = "no", "yes", "elsewhere"
# Worth of an entry's line beside lines of other entries, the best first:
#   ""         a line that gives the reason
#   vague      a line that says little
#   wait       a line that counts only if no other output followed
#   report     a launcher's report about its processes
#   words      words in an exception or last line without an entry of its own
#   uncaught   any uncaught exception
#   last       any last line
#   faint      a last line that only sounds like an error
#   aftermath  a line that a process writes at its exit
STANDINGS = USUAL, VAGUE, WAIT, REPORT, WORDS, UNCAUGHT, LAST, FAINT, AFTERMATH = (
    "", "vague", "wait", "report", "words", "uncaught", "last", "faint", "aftermath",
)  # fmt: skip
OWN_STANDINGS = (USUAL, VAGUE, WAIT, REPORT, WORDS, AFTERMATH)  # allowed for users' entries; the matcher needs the others itself
SAYS_LESS = frozenset((UNCAUGHT, LAST, FAINT))  # the entry's meaning says less than the matched line
GENERAL = frozenset((WORDS, UNCAUGHT, LAST, FAINT))  # only for lines without an entry of their own


class KnownError(NamedTuple):
    """Entry of the catalogue. pattern: regular expression for one line without the prefixes of launchers and loggers. needed: texts; each
    match contains at least one of them.

    kind: CAUSE; CONSEQUENCE of a failure of another rank, a peer or a child process; or STOPPED, if the process was signalled. An error of
    both kinds is a CONSEQUENCE, and its meaning says so. retry: one of RETRIES, "" if unknown. settings: names of plan
    values for the remedy. survivable: True if the entry counts only when the program did not go on. device_fault: True if a device of the
    host failed. peers: patterns with numbers of ranks in the first group: the failed ranks for a cause, else the ranks that did not answer.
    source: page, source file or thread with the proof.
    """

    name: str
    kind: str
    pattern: str
    needed: tuple[str, ...]
    meaning: str
    remedy: str
    source: str
    family: str
    retry: str = ""
    settings: tuple[str, ...] = ()
    standing: str = USUAL
    survivable: bool = False
    device_fault: bool = False
    peers: tuple[str, ...] = ()


_TEXTS = ("name", "kind", "meaning", "remedy", "source")
_LISTS = ("patterns", "needed", "settings", "peers")
_FLAGS = ("survivable", "device_fault")
_WORDS = ("retry", "standing")
_SHIPPED = ("device_fault",)  # not for entries of users
# Keys of an entry, and the names of their types in messages.
_EXPECTED = {**dict.fromkeys(_TEXTS, "a text"), **dict.fromkeys(_LISTS, "a list of texts"), **dict.fromkeys(_FLAGS, "true or false")}


def of_family(data: Any, standings: Sequence[str] = OWN_STANDINGS) -> list[KnownError]:
    """Return the entries of a file: {"family": text, "entry": [{"name": ..., "patterns": [...], ...}]}. standings: allowed in the file.
    Raises ValueError with the problem and its place."""
    if not isinstance(data, dict) or not isinstance(data.get("family"), str) or not isinstance(data.get("entry"), list):
        msg = 'expected "family", a text, and "entry", a list'
        raise ValueError(msg)
    family = showing.one_line(data["family"])
    return [_entry(fields, number, family, standings) for number, fields in enumerate(data["entry"], 1)]


def _entry(fields: Any, number: int, family: str, standings: Sequence[str]) -> KnownError:
    place = f"entry {number}"
    if not isinstance(fields, dict):
        raise _wrong(place, "expected a table")
    place = f"entry {number} ({fields.get('name', 'without a name')!s:.80})"
    _check_keys(fields, place, _SHIPPED if standings == OWN_STANDINGS else ())
    texts = {key: showing.one_line(fields[key]) for key in _TEXTS}
    words = {"kind": texts["kind"], **{key: fields.get(key, "") for key in _WORDS}}
    for key, legal in (("kind", KINDS), ("standing", standings), ("retry", ("", *RETRIES))):
        if words[key] not in legal:
            raise _wrong(place, f"{key} is {words[key]!r:.80}: expected one of {', '.join(filter(None, legal))}")
    pattern = _pattern(fields["patterns"], place)
    lists = {"needed": needed(pattern), **{key: tuple(fields.get(key, ())) for key in _LISTS[1:] if key in fields or key != "needed"}}
    for each in lists["peers"]:
        _compiles(each, "peers", place)
    flags = {key: fields.get(key, False) for key in _FLAGS}
    return KnownError(**{**texts, **words, **lists, **flags}, pattern=pattern, family=family)


def _check_keys(fields: Mapping[str, Any], place: str, refused: Sequence[str]) -> None:
    """Raise ValueError for an unknown key, a missing one, or a value of another type."""
    unknown = sorted(fields.keys() - ({*_EXPECTED, *_WORDS, "examples"} - {*refused}))
    if unknown:
        raise _wrong(place, f"unknown key {unknown[0]!r:.80}")
    for key, expected in _EXPECTED.items():
        if (key in fields or key in (*_TEXTS, "patterns")) and not _fits(fields.get(key), expected):
            raise _wrong(place, f"{key}: expected {expected}")


def _fits(value: object, expected: str) -> bool:
    if expected == "a text":
        return isinstance(value, str) and bool(value.strip())
    if expected == "true or false":
        return isinstance(value, bool)
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _pattern(patterns: Sequence[str], place: str) -> str:
    if len(patterns) > 1 and any(map(counts_groups, patterns)):
        raise _wrong(place, "patterns: several patterns, and one refers to a group by number: name the group, (?P<name>...) and (?P=name)")
    pattern = _compiles("|".join(_compiles(in_scope(each), "patterns", place) for each in patterns), "patterns", place)
    if re.search(pattern, ""):
        raise _wrong(place, "patterns: one of them matches the empty line, and so every line")
    return pattern


def _compiles(pattern: str, key: str, place: str) -> str:
    try:
        with catch_warnings():
            simplefilter("error", FutureWarning)  # for [[a]], which may have another meaning in a later Python
            re.compile(pattern)
    except FutureWarning as error:
        raise _wrong(place, f"{key}: {error}: put a backslash before the character at this position") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise _wrong(place, f"{key}: {error}") from None
    return pattern


def _wrong(place: str, problem: str) -> ValueError:
    return ValueError(showing.one_line(f"{place}: {problem}"))
