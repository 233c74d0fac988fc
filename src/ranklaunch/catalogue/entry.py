"""What one entry of the catalogue is, and how it is read from data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

from ranklaunch import showing
from ranklaunch.catalogue.literals import counts_groups, in_scope, needed

KINDS = CAUSE, CONSEQUENCE, STOPPED = "cause", "consequence", "stopped"
# Whether to start the job again as it is: it ends the same way; it may go well; it may on other hosts, without this one. Else nobody knows.
RETRIES = NO, YES, ELSEWHERE = "no", "yes", "elsewhere"
# What an entry's words are worth beside those of others, the most first: a line that says why; one that says little; one that counts only
# where nothing was said after it; what a launcher says of its processes; words that tell of an exception or of last words which no entry
# knows; any exception; any last words, and those that only sound of an error; what a process says on its way out.
STANDINGS = USUAL, VAGUE, WAIT, REPORT, WORDS, UNCAUGHT, LAST, FAINT, AFTERMATH = (
    "", "vague", "wait", "report", "words", "uncaught", "last", "faint", "aftermath",
)  # fmt: skip
OWN_STANDINGS = (USUAL, VAGUE, WAIT, REPORT, WORDS, AFTERMATH)  # for entries of users: of the others the code knows which they are
SAYS_LESS = frozenset((UNCAUGHT, LAST, FAINT))  # than the line that it was found in
GENERAL = frozenset((WORDS, UNCAUGHT, LAST, FAINT))  # not for lines of which an entry of their own tells


class KnownError(NamedTuple):
    """pattern: a regular expression that is searched in one line, without what launchers and loggers put in front of it. needed: texts of
    which each match has one at least.

    kind: CAUSE, or CONSEQUENCE of a failure elsewhere: of another rank, of a peer, of what this process only reports. An error that can
    be both is a CONSEQUENCE, and its meaning says so. STOPPED: neither; somebody told the process to end. retry: one of RETRIES, "" where
    nobody knows. settings: names of values in a plan that the remedy is about. survivable: it counts only where the program did not go on
    after it. device_fault: a device of the host has failed. peers: patterns whose first group has the numbers of the ranks that a message
    waits for; of a cause, of those that failed. source: the page, source file or thread that proves it.
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
_MORE = ("patterns", "needed", "retry", "settings", "standing", "survivable", "peers", "examples")
_SHIPPED = ("device_fault",)  # not for entries of users


def of_family(data: Any, standings: Sequence[str] = OWN_STANDINGS) -> list[KnownError]:
    """The entries of a file: {"family": text, "entry": [{"name": ..., "patterns": [...], ...}]}. standings: those that it may give them.
    Raises ValueError, which says what is wrong and where."""
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
    unknown = sorted(fields.keys() - {*_TEXTS, *_MORE, *(() if standings == OWN_STANDINGS else _SHIPPED)})
    if unknown:
        raise _wrong(place, f"unknown key {unknown[0]!r:.80}")
    name, kind, meaning, remedy, source = (showing.one_line(_text(fields, key, place)) for key in _TEXTS)
    if kind not in KINDS:
        raise _wrong(place, f"kind is {kind!r:.80}: expected one of {', '.join(KINDS)}")
    standing, retry = _one_of(fields, "standing", standings, place), _one_of(fields, "retry", ("", *RETRIES), place)
    patterns = _texts(fields, "patterns", place)
    if len(patterns) > 1 and any(map(counts_groups, patterns)):
        raise _wrong(place, "patterns: a group's number, where there are several: name it, (?P<name>...) and (?P=name)")
    pattern = _compiles("|".join(_compiles(in_scope(each), "patterns", place) for each in patterns), "patterns", place)
    if re.search(pattern, ""):
        raise _wrong(place, "patterns: one matches a line in which nothing stands, and so every line")
    literals = tuple(_texts(fields, "needed", place)) if "needed" in fields else needed(pattern)
    settings = tuple(_texts(fields, "settings", place)) if "settings" in fields else ()
    peers = tuple(_compiles(each, "peers", place) for each in _texts(fields, "peers", place)) if "peers" in fields else ()
    more = (retry, settings, standing, _flag(fields, "survivable", place), _flag(fields, "device_fault", place), peers)
    return KnownError(name, kind, pattern, literals, meaning, remedy, source, family, *more)


def _compiles(pattern: str, key: str, place: str) -> str:
    try:
        with catch_warnings():
            simplefilter("error", FutureWarning)  # of [[a]], which may mean something else to a later Python
            re.compile(pattern)
    except FutureWarning as error:
        raise _wrong(place, f"{key}: {error}: put a backslash before what stands there") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise _wrong(place, f"{key}: {error}") from None
    return pattern


def _one_of(fields: Mapping[str, Any], key: str, legal: Sequence[str], place: str) -> str:
    word = fields.get(key, "")
    if word not in legal:
        raise _wrong(place, f"{key} is {word!r:.80}: expected one of {', '.join(filter(None, legal))}")
    return str(word)


def _text(fields: Mapping[str, Any], key: str, place: str) -> str:
    text = fields.get(key)
    if not isinstance(text, str) or not text.strip():
        raise _wrong(place, f"{key}: expected a text")
    return text


def _flag(fields: Mapping[str, Any], key: str, place: str) -> bool:
    if not isinstance(fields.get(key, False), bool):
        raise _wrong(place, f"{key}: expected true or false")
    return bool(fields.get(key))


def _texts(fields: Mapping[str, Any], key: str, place: str) -> Sequence[str]:
    texts = fields.get(key)
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise _wrong(place, f"{key}: expected a list of texts")
    return texts


def _wrong(place: str, what: str) -> ValueError:
    return ValueError(showing.one_line(f"{place}: {what}"))
