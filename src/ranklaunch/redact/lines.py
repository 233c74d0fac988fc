"""Lines without the secrets in them, also where one goes on in the next line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ranklaunch.redact import harmless, names
from ranklaunch.redact.line import is_secret, without_secrets
from ranklaunch.redact.names import HIDDEN
from ranklaunch.redact.syntax import CONTROL, IS, QUOTED_AGAIN, TAG

# Whose value is in the next line, or in all that are indented more, as YAML has text of several lines.
_OPEN = re.compile(rf"(?<![\w.-])(?:(-{{1,2}}[\w.-]{{1,64}})['\"]?,?|([\w.-]{{1,64}})['\"]?{IS}([|>][-+\d]{{0,2}})?)\s{{0,8}}\\?$")
_OPEN_WITHIN = 200  # characters at the end of a line
_ALONE = re.compile(rf"({TAG}\s*(?:-\s+)?)(\"[^\"]+\"|'[^']+'|[^\s\"',{{}}\[\]]+)(,?\s*)")
_ITEM = re.compile(rf"{TAG}\s*-\s")
_INDENT = re.compile(rf"{TAG}\s*")
# A name alone, as pydantic has before what is wrong; name: HF_TOKEN, as Kubernetes has before the value.
_BARE = re.compile(rf"{TAG}[\s{{-]*(?:['\"]?name['\"]?\s{{0,8}}[:=]\s{{0,8}})?['\"]?([\w.-]{{1,64}})['\"]?,?\s*")
_BESIDE = re.compile(
    rf"(.{{0,400}}\binput_value=|{TAG}[\s-]{{0,64}}['\"]?value['\"]?\s{{0,8}}[:=]\s{{0,8}})"
    r"(.+?(?=, input_type=)|\"[^\"]+\"|'[^']+'|[^\s'\"].*)"
)
_BODY = re.compile(r"[\s>|]*(?:\[[^\]\s]{1,40}\]:?\s)?[A-Za-z0-9+/=]{16,}\s*")
_BODY_IN_LINE = re.compile(r"(PRIVATE KEY-----)[A-Za-z0-9+/=\\ ]{8,}")


class _Before(NamedTuple):
    """What a line says of the next: of which name it may have the value, how, and how far the line was indented."""

    name: str = ""
    way: str = ""
    indent: int = 0


def shown(given: Iterable[str], own: bool = False) -> tuple[str, ...]:
    """Those without secrets are as they were, control characters and all. own: ranklaunch's own words, which have the name of what they are
    about before a colon."""
    result, before = [], _Before()
    for line in given:
        result.append(without_secrets(_continued(line, before) if before.name else line, own))
        before = _Before() if own else _left_open(line, result[-1], before)
    if any("PRIVATE KEY" in line for line in result):
        result = [HIDDEN if _BODY.fullmatch(line) else _BODY_IN_LINE.sub(rf"\1{HIDDEN}", line) for line in result]
    return tuple(result)


def _left_open(line: str, shown: str, before: _Before) -> _Before:
    """Of a secret that goes on in the next line."""
    end = QUOTED_AGAIN.sub("", CONTROL.sub("", line[-_OPEN_WITHIN:])).rstrip("\r")
    if end.endswith("\\") and shown.endswith(HIDDEN):
        return _Before("secret", "alone")
    if (before.way == "list" and _ITEM.match(line)) or (before.way == "block" and _is_within(line, before)):
        return before
    found = _OPEN.search(end)
    name = (found[1] or found[2]) if found else ""
    if found and names.is_secret(name):
        return _Before(name, "block" if found[3] else "list" if found[2] else "alone", _indent(line))
    bare = _BARE.fullmatch(end) if len(line) <= _OPEN_WITHIN else None
    return _Before(bare[1], "beside") if bare and names.is_secret(bare[1]) else _Before()


def _continued(line: str, before: _Before) -> str:
    """A line with the value in it that belongs to the name in the line before."""
    marked = QUOTED_AGAIN.sub("", CONTROL.sub("", line))
    if before.way in ("alone", "list"):
        return _alone(line, marked, before.name)
    if before.way == "block":
        return f"{line[: _indent(line)]}{HIDDEN}" if line.strip() and _is_within(line, before) else line
    found = _BESIDE.match(marked)
    if not found or not _is_told(before.name, found[2]):
        return line
    return f"{found[1]}{names.hidden_as(found[2])}{marked[found.end() :]}"


def _is_told(name: str, value: str) -> bool:
    bare = value.strip("'\"")
    return is_secret(name, bare) and not harmless.WORDS.fullmatch(bare)


def _indent(line: str) -> int:
    indent = _INDENT.match(line)
    return indent.end() if indent else 0


def _is_within(line: str, before: _Before) -> bool:
    return _indent(line) > before.indent or not line.strip()


def _alone(line: str, marked: str, name: str) -> str:
    """A line that is nothing but the value of this name."""
    found = _ALONE.fullmatch(marked.rstrip("\\ "))
    is_name = found and (found[2].endswith(":") or (name[0] == found[2][0] == "-"))
    if not found or is_name or not _is_told(name, found[2]):
        return line
    return f"{found[1]}{names.hidden_as(found[2])}{found[3]}"
