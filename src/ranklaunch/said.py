"""What was said, made fit to be shown: what processes wrote last, and reasons. Secrets are hidden, control characters made harmless.

A rank's log and the stream on the console keep what was written. Only failures need this module, and they get at it by
`ranklaunch.errors.reason` and `ranklaunch.errors.quoted`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ranklaunch import redact
from ranklaunch.redact import HIDDEN
from ranklaunch.secret_patterns import PATTERNS

# Beyond the rules that are taken from elsewhere: what training jobs have most.
_OWN = (r"hf_[A-Za-z0-9]{20}", r"sk-[\w-]{20}", r"github_pat_\w{20}", r"nvapi-[\w-]{20}", r"AIza[\w-]{35}")
# Only where a word begins, and with the rest of it: however a text is made, this stays linear.
_TOKENS = re.compile(rf"(?<![A-Za-z0-9])(?=[A-Za-z0-9])(?:{'|'.join((*PATTERNS, *_OWN))})[\w.+/=~-]*")
_ESCAPE = "\x1b"
_CONTROL = re.compile(r"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]")  # colours, and what moves a cursor
_STEMS = "secret|pass|pwd|pw|token|key|auth|cred|jwt|pat"
# What stands before a quote where a text was quoted again, or has bytes: {\\"token\\": \\"x\\"}, b'token'
_QUOTED_AGAIN = re.compile(r"(?:\\{1,16}|(?<![\w-])[bBuU])(?=['\"])")
_IS = r"\s{0,32}(?::=|=>|[:=](?!=)|\.{3,64}\s)\s{0,32}"  # aligned, as in lists of settings: token = x, token ..... x
# --token X, --token=X, '--token', 'X', HF_TOKEN=X, "token": "X", token: str = "X", ["token"] = "X", setdefault("token", "X"): up to where
# the value begins
_NAME = re.compile(
    rf"(?<![\w.-])(?=-p\s|-{{0,2}}[\w.-]{{0,60}}(?i:{_STEMS}))"
    rf"(?:(-{{1,2}}[\w.-]{{1,64}})(?:{_IS}|\s{{1,8}}|['\"], ?(?=['\"]))|([\w.-]{{1,64}})"
    rf"(?::\s?[\w.]{{1,32}}\s?=\s?(?=['\"])|['\"]?{_IS}|['\"]\]\s?=(?!=)\s?|(['\"],\s?)(?=['\"])))"
)
_PROSE = re.compile(  # the token is X, API key provided: X, of a word that looks like one
    r"(?i)(?<![\w.-])((?:(?:password|passwd|passphrase|secret|token|api[ _-]?key)\s{1,4}(?:is|was)\s{0,4}:?"
    r"|(?:password|passwd|passphrase|api[ _-]?key)(?:\s{1,4}(?:provided|given|used))?:?)\s{1,4}['\"]?)"
    r"(?=[^\s'\"]{0,64}\d)(?=[^\s'\"]{0,64}[a-z])[^\s'\",;)}\]]{6,}"
)
_PAIR = re.compile(r"(?<![\w.\])])\(['\"]")  # what begins one, and no call
_CALLS = tuple(f"{name}({quote}" for name in ("setdefault", "putenv", "setenv") for quote in "'\"")  # elsewhere they are two names
# Whose value is in the next line.
_OPEN = re.compile(rf"(?<![\w.-])(?:(-{{1,2}}[\w.-]{{1,64}})['\"]?,?|([\w.-]{{1,64}})['\"]?{_IS})\s{{0,8}}\\?$")
_OPEN_WITHIN = 200  # characters at the end of a line
_ALONE = re.compile(r"(\s*)(\"[^\"]+\"|'[^']+'|[^\s\"',{}\[\]]+)(,?\s*)")
_VALUE = re.compile(r"[^\s\"',;)}\]<>-][^\s\"',;)}\]]{0,400}")
_MOST_QUOTED = 4096  # characters between quotes; where there are more, the rest of the line is hidden
_NO_SECRET = re.compile(r"(?i:bearer|basic)|\*\*\*(?:&.*)?")  # is behind it; has been hidden
_REST = re.compile(r"[^\s\"',;)}\]]*")
_BODY = re.compile(r"[\s>|]*(?:\[[^\]\s]{1,40}\]:?\s)?[A-Za-z0-9+/=]{16,}\s*")
_BODY_IN_LINE = re.compile(r"(PRIVATE KEY-----)[A-Za-z0-9+/=\\ ]{8,}")


def text(given: str, own: bool = False) -> str:
    """Each line of it, by itself. own: ranklaunch's own words, which have the name of what they are about before a colon."""
    return "\n".join(map(redact.printable, lines(given.split("\n"), own)))


def lines(given: Iterable[str], own: bool = False) -> tuple[str, ...]:
    """Those without secrets are as they were, control characters and all."""
    shown, name = [], ""
    for line in given:
        shown.append(_line(_alone(line, name) if name else line, own))
        name = "" if own else _left_open(line, shown[-1])
    if any("PRIVATE KEY" in line for line in shown):
        shown = [HIDDEN if _BODY.fullmatch(line) else _BODY_IN_LINE.sub(rf"\1{HIDDEN}", line) for line in shown]
    return tuple(shown)


def _left_open(line: str, shown: str) -> str:
    """The name of the secret that goes on in the next line."""
    end = _QUOTED_AGAIN.sub("", _CONTROL.sub("", line[-_OPEN_WITHIN:])).rstrip("\r")
    if end.endswith("\\") and shown.endswith(HIDDEN):
        return "secret"
    found = _OPEN.search(end)
    name = (found[1] or found[2]) if found else ""
    return name if redact.is_secret(name) else ""


def _alone(line: str, name: str) -> str:
    """A line that is nothing but the value of this name."""
    marked = _QUOTED_AGAIN.sub("", _CONTROL.sub("", line))
    found = _ALONE.fullmatch(marked.rstrip("\\ "))
    if not found or found[2].endswith(":") or not _is_secret(name, found[2].strip("'\"")):
        return line
    return f"{found[1]}{_hidden_as(found[2])}{found[3]}"


def _line(line: str, own: bool) -> str:
    """A secret is found whatever colour it has, and however often it was quoted."""
    marked = _CONTROL.sub(_ESCAPE, line) if _ESCAPE in line else line
    marked = _QUOTED_AGAIN.sub("", marked) if "'" in line or '"' in line else marked
    hidden = _named(_TOKENS.sub(HIDDEN, marked).replace(_ESCAPE, ""), own)
    return line if hidden == marked.replace(_ESCAPE, "") else hidden


def _named(line: str, own: bool) -> str:
    line = _PROSE.sub(rf"\1{HIDDEN}", redact.programs(redact.url(redact.headers(line))))
    shown, begin, at = [], 0, 0
    while found := _NAME.search(line, at):
        at = found.end()
        value = _value(line, at)
        if found[3] and not line.endswith(_CALLS, 0, found.start()) and not _is_pair(line, found.start(), at + len(value)):
            continue
        prose = own and found[0].endswith(": ") and value[:1] not in ("'", '"')
        if value and not prose and _is_secret(found[1] or found[2], value.strip("'\"")):
            shown.append(f"{line[begin:at]}{_hidden_as(value)}")
            begin = at = at + len(value) if value[0] in "'\"" else _end_of_word(line, at + len(value))
    return "".join([*shown, line[begin:]])


def _is_pair(line: str, begin: int, end: int) -> bool:
    """("token", "X"), as of a dict's items; elsewhere they are two names."""
    return begin > 1 and line[end : end + 1] == ")" and bool(_PAIR.search(line, max(0, begin - 3), begin))


def _value(line: str, at: int) -> str:
    """What stands there, with the quotes around it."""
    if line[at : at + 1] not in ("'", '"'):
        found = _VALUE.match(line, at)
        return found[0] if found else ""
    end = line.find(line[at], at + 1, at + 1 + _MOST_QUOTED)
    return line[at : end + 1] if end > at + 1 else "" if end == at + 1 else line[at:]


def _is_secret(name: str, value: str) -> bool:
    return not _NO_SECRET.fullmatch(value) and redact.is_value_secret(name, value)


def _hidden_as(value: str) -> str:
    quote = value[0] if value[0] in "'\"" else ""
    return f"{quote}{HIDDEN}{quote}"


def _end_of_word(line: str, at: int) -> int:
    rest = _REST.match(line, at)
    return rest.end() if rest else at
