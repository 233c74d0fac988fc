"""Configuration files as `accelerate config` writes them: JSON, or of YAML the part that it writes: keys at the top, below them one level
of keys or a list, and scalars, which mean what they mean to PyYAML. What is anything else is refused with its line, not guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ranklaunch.secrets.names import is_secret
from ranklaunch.typed import Any

_KEY = re.compile(r"([A-Za-z_][\w.-]*|'[^']*'|\"[^\"\\]*\")[ ]*:(?:[ ]+(.*))?")
_BOOLEANS = {word: truth for truth, words in ((True, "yes true on"), (False, "no false off")) for word in words.split()}
_CASES = (str.lower, str.title, str.upper)
_NULL = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+][0-9]+)?")
# Numbers in other forms, dates, and what has a meaning of its own in YAML.
_NOT_PLAIN = re.compile(
    r"""[-+]?(?:0[box]?[0-9a-fA-F_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9][0-9_]*(?:\.[0-9_]*(?:[eE][-+][0-9]+)?)?
    |\.[0-9_]+(?:[eE][-+][0-9]+)?|\.(?:inf|nan))
    |[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*|<<|=|[,\[\]{}\#&*!|>'"%@`].*|[-?:](?:\s.*)?|.*:(?:\s.*)?""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def loads(text: str, path: str) -> dict[str, Any]:
    """path: by whose end accelerate knows JSON. Raises ValueError."""
    if path.endswith(".json") or text.lstrip().startswith("{"):
        return _mapping(json.loads(text))
    found: dict[str, Any] = {}
    key, level = "", 0  # of what stands below a key: its indent
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        bare = line.strip(" ")
        if not bare or bare.startswith("#") or (bare == "---" and not found):
            continue
        try:
            key, level = _line(found, key, level, line)
        except ValueError as error:
            own = re.match(r"[ ]*['\"]?([\w.-]+)['\"]?[ ]*:", line)
            secret = next((name for name in (own[1] if own else "", key) if is_secret(name)), "")
            msg = f"line {number}: {f'the value of {secret} is not understood' if secret else error}"
            raise ValueError(msg) from None
    return found


def _mapping(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        msg = "expected keys with values"
        raise ValueError(msg)
    return found


def _line(found: dict[str, Any], key: str, level: int, line: str) -> tuple[str, int]:
    """The key whose value may go on below, "" where it has one, and how far that is indented."""
    bare = line.lstrip(" ")
    indent = len(line) - len(bare)
    item = re.fullmatch(r"-(?:[ ]+(.*))?", bare)
    if not indent and not item:
        name, value = _pair(bare, found)
        found[name] = _scalar(value)
        return ("", 0) if _without_comment(value) else (name, 0)
    if not key or (isinstance(found[key], (dict, list)) and (indent != level or isinstance(found[key], list) != bool(item))):
        msg = f"{bare[:60]!r} is not understood here: expected `key: value`, with one level of keys, or a list, below a key without a value"
        raise ValueError(msg)
    if item:
        found[key] = [*(found[key] or []), _scalar(item[1] or "")]
    else:
        below = found[key] or {}
        name, value = _pair(bare, below)
        found[key] = {**below, name: _scalar(value)}
    return key, indent


def _pair(bare: str, beside: Mapping[str, Any]) -> tuple[str, str]:
    pair = _KEY.fullmatch(bare.rstrip(" "))
    if not pair or pair[1].lower() in (*_BOOLEANS, "null"):
        msg = f"{bare[:60]!r} is not understood: expected `key: value`"
        raise ValueError(msg)
    name = pair[1].strip("'\"")
    if name in beside:
        msg = f"the key {name} is there twice"
        raise ValueError(msg)
    return name, pair[2] or ""


def _without_comment(text: str) -> str:
    comment = re.search(r"(?:^|\s)#", text)
    return (text[: comment.start()].rstrip() if comment else text).strip(" ")


def _scalar(text: str) -> Any:
    quoted = re.fullmatch(r"""('(?:[^']|'')*'|"(?:[^"\\]|\\.)*")[ ]*(?:[ ]#.*)?""", text)
    if quoted:
        return quoted[1][1:-1].replace("''", "'") if quoted[1].startswith("'") else json.loads(quoted[1])
    bare = _without_comment(text)
    if re.fullmatch(r"\[[^\[\]{}'\"]*\]", bare):
        return [_scalar(item.strip(" ")) for item in bare[1:-1].split(",") if item.strip(" ")]
    return {} if bare == "{}" else _plain(bare)


def _plain(bare: str) -> Any:
    if bare in _NULL:
        return None
    if bare.lower() in _BOOLEANS and any(bare == case(bare) for case in _CASES):
        return _BOOLEANS[bare.lower()]
    if _INTEGER.fullmatch(bare):
        return int(bare)
    if _FLOAT.fullmatch(bare):
        return float(bare)
    if _NOT_PLAIN.fullmatch(bare) or "\t" in bare:
        msg = f"the value {bare[:60]!r} is not understood: put it into quotes where it is a text"
        raise ValueError(msg)
    return bare
