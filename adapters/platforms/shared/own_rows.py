"""Rows of a user's own file (RANKLAUNCH_PLATFORM_FILE), which has the form of platforms.toml."""

from __future__ import annotations

import json
import re
from importlib import import_module

from ranklaunch.adapters.platforms.shared.base import PLATFORM_FILE
from ranklaunch.adapters.platforms.shared.row import VALUES, Refusal, Row, Shipped, made
from ranklaunch.errors import ConfigError, nearest
from ranklaunch.files import absolute
from ranklaunch.read.reader import Reader
from ranklaunch.typed import Any
from ranklaunch.values import Value


class PlatformFile(Value):
    """Places of a user's own, in the order in which they are asked."""

    platform: tuple[Row, ...]


_MOST_BYTES = 1024 * 1024
_PATTERNS = ("sign", "nodes_like", "node_index_like", "slots_like", "job_name_like", "master_like")


def read(reader: Reader) -> tuple[Shipped, ...]:
    """Return the rows. Raise ConfigError with the file, the row and the field that is wrong."""
    path = absolute(reader.get(PLATFORM_FILE), reader.cwd)
    try:
        text = reader.files.text(path, _MOST_BYTES)
        if text is None:
            msg = "no such file, or it may not be read"
            raise ValueError(msg)
        return tuple(_checked(fields, at) for at, fields in enumerate(_loaded(text, path), 1))
    except (ValueError, RecursionError) as error:
        msg = f"{reader.told(PLATFORM_FILE)}: {error}"
        raise ConfigError(msg) from None


def _loaded(text: str, path: str) -> list[Any]:
    if path.endswith(".json"):
        found = json.loads(text)
    else:
        try:
            tomllib: Any = import_module("tomllib")
        except ImportError:
            msg = "this Python reads no TOML, which 3.11 and newer do: expected the same as JSON in a file NAME.json"
            raise ValueError(msg) from None
        found = tomllib.loads(text)
    rows = found.get("platform") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        msg = 'expected rows: [[platform]] in TOML, {"platform": [...]} in JSON'
        raise ValueError(msg)
    return rows


def _checked(fields: Any, at: int) -> Shipped:
    if not isinstance(fields, dict) or not fields.get("sign") or not re.fullmatch(r"[a-z][a-z0-9_]{0,60}", str(fields.get("name"))):
        msg = f'row {at}: expected name = "in_small_letters" and sign = ["VARIABLE"]'
        raise ValueError(msg)
    where = f"row {at} ({fields['name']})"
    _check(fields, {"name": "", **Row._defaults}, where)
    for each in fields.get("refuse", ()):
        if not isinstance(each, dict) or not each.get("when") or not each.get("text"):
            msg = f'{where}: refuse: expected when = ["CONDITION"] and text = "MESSAGE"'
            raise ValueError(msg)
        _check(each, {"when": (), "text": "", **Refusal._defaults}, f"{where}: refuse")
        if not {*each.get("unless", ())} <= {*VALUES}:
            msg = f"{where}: refuse: unless: expected some of {', '.join(VALUES)}"
            raise ValueError(msg)
    for pattern in (each for name in _PATTERNS for each in fields.get(name, ()) if " ~ " in each):
        try:
            re.compile(pattern.partition(" ~ ")[2])
        except re.error as error:
            msg = f"{where}: {pattern!r}: {error}"
            raise ValueError(msg) from None
    return made(Shipped, fields)


def _check(fields: dict[str, Any], usual: dict[str, Any], where: str) -> None:
    """Raise ValueError for a field that is unknown, or of another kind than the usual value."""
    for name, value in fields.items():
        if name not in usual:
            msg = f"{where}: unknown field {name!r}{nearest(name, usual)}; expected {', '.join(usual)}"
            raise ValueError(msg)
        kind = type(usual[name])
        texts = name == "refuse" or (isinstance(value, list) and all(isinstance(each, str) for each in value))
        fits = isinstance(value, list) and texts if kind is tuple else isinstance(value, (int, float) if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            wanted = {tuple: "a list of texts", bool: "true or false", str: "a text", float: "a number"}[kind]
            msg = f"{where}: {name}: expected {wanted}"
            raise ValueError(msg)
