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
# --token X, --token=X, HF_TOKEN=X, "token": "X", token: str = "X", ["token"] = "X", setdefault("token", "X"): up to where the value begins
_NAME = re.compile(
    rf"(?<![\w.-])(?=-p\s|-{{0,2}}[\w.-]{{0,60}}(?i:{_STEMS}))(?:(-{{1,2}}[\w.-]{{1,64}})(?:\s?[:=]\s?|\s)|([\w.-]{{1,64}})"
    r"(?::\s?[\w.]{1,32}\s?=\s?(?=['\"])|['\"]?\s?[:=]\s?|['\"]\]\s?=(?!=)\s?|(['\"],\s?)(?=['\"])))"
)
_CALLS = tuple(f"{name}({quote}" for name in ("setdefault", "putenv", "setenv") for quote in "'\"")  # elsewhere they are two names
_VALUE = re.compile(r"\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|[^\s\"',;)}\]<>-][^\s\"',;)}\]]{0,400}")
_NO_SECRET = re.compile(r"(?i:bearer|basic)|\*\*\*(?:&.*)?")  # is behind it; has been hidden
_REST = re.compile(r"[^\s\"',;)}\]]*")
_BODY = re.compile(r"[\s>|]*[A-Za-z0-9+/=]{16,}\s*")


def text(given: str, own: bool = False) -> str:
    """Each line of it, by itself. own: ranklaunch's own words, which have the name of what they are about before a colon."""
    return "\n".join(map(redact.printable, lines(given.split("\n"), own)))


def lines(given: Iterable[str], own: bool = False) -> tuple[str, ...]:
    """Those without secrets are as they were, control characters and all."""
    shown = [_line(line, own) for line in given]
    if any("PRIVATE KEY" in line for line in shown):
        shown = [HIDDEN if _BODY.fullmatch(line) else line for line in shown]
    return tuple(shown)


def _line(line: str, own: bool) -> str:
    """A secret is found whatever colour it has."""
    marked = _CONTROL.sub(_ESCAPE, line) if _ESCAPE in line else line
    hidden = _named(_TOKENS.sub(HIDDEN, marked).replace(_ESCAPE, ""), own)
    return line if hidden == marked.replace(_ESCAPE, "") else hidden


def _named(line: str, own: bool) -> str:
    line = redact.url(redact.headers(line))
    shown, begin, at = [], 0, 0
    while found := _NAME.search(line, at):
        at = found.end()
        value = _VALUE.match(line, at) if not found[3] or line.endswith(_CALLS, 0, found.start()) else None
        prose = own and found[0].endswith(": ") and value and value[0][0] not in "'\""
        if value and not prose and _is_secret(found[1] or found[2], value[0].strip("'\"")):
            shown.append(f"{line[begin:at]}{_hidden_as(value[0])}")
            begin = at = value.end() if value[0][0] in "'\"" else _end_of_word(line, value.end())
    return "".join([*shown, line[begin:]])


def _is_secret(name: str, value: str) -> bool:
    return not _NO_SECRET.fullmatch(value) and redact.is_value_secret(name, value)


def _hidden_as(value: str) -> str:
    quote = value[0] if value[0] in "'\"" else ""
    return f"{quote}{HIDDEN}{quote}"


def _end_of_word(line: str, at: int) -> int:
    rest = _REST.match(line, at)
    return rest.end() if rest else at
