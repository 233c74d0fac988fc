"""Rows of a user's own file (RANKLAUNCH_PLATFORM_FILE), which has the form of platforms.toml."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

from ranklaunch import rows
from ranklaunch.adapters.platforms.shared.base import PLATFORM_FILE, VALUES, Refusal, Row, Shipped, row_of
from ranklaunch.env.reader import Reader
from ranklaunch.errors import ConfigError
from ranklaunch.fields import defaults


@dataclass(frozen=True)
class PlatformFile:
    """Platforms of a user's own file, in the order in which they are tried."""

    platform: tuple[Row, ...]


_MOST_S = 86400
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_NAMES = r"[A-Za-z_][A-Za-z0-9_{}|]*(?: [A-Za-z_][A-Za-z0-9_{}|]*)*"
_CONDITION = rf"!?(?:/.+|{_NAMES} ~ .+|{_NAME}=.*|{_NAME}(?:\|{_NAME})*)"
_LISTS = ("nodes", "node_index", "slots", "job_name", "attempt", "restarts", "ranks", "hosts", "hosts_file", "master", "own")


def read(reader: Reader, taken: Container[str]) -> tuple[Shipped, ...]:
    """Return the rows of the user's file. taken: names of other platforms. Raise ConfigError with the file, the row and the wrong field."""
    path = reader.absolute(reader.get(PLATFORM_FILE))
    try:
        result = tuple(_checked(fields, at) for at, fields in enumerate(rows.read(reader.files, path, "platform"), 1))
        names = [each.name for each in result]
        duplicate = next((name for name in names if names.count(name) > 1 or name in taken), "")
        if duplicate:
            msg = f"{duplicate} is the name of another platform: expected a name of its own for each row"
            raise ValueError(msg)
    except (ValueError, RecursionError) as error:
        msg = f"{reader.described(PLATFORM_FILE)}: {error}"
        raise ConfigError(msg) from None
    return result


def _checked(fields: Any, at: int) -> Shipped:
    if not isinstance(fields, dict) or not fields.get("sign") or not re.fullmatch(r"[a-z][a-z0-9_]{0,60}", str(fields.get("name"))):
        msg = f'row {at}: expected name = "small_letters_and_digits" and sign = ["VARIABLE"]'
        raise ValueError(msg)
    where, refuse = f"row {at} ({fields['name']})", fields.get("refuse", [])
    rows.check({**fields, "refuse": []}, {"name": "", **defaults(Row)}, where)
    if not isinstance(refuse, list) or not all(isinstance(each, dict) and each.get("when") and each.get("text") for each in refuse):
        msg = f'{where}: refuse: expected tables with when = ["CONDITION"] and text = "MESSAGE"'
        raise ValueError(msg)
    for each in refuse:
        rows.check(each, {"when": (), "text": "", **defaults(Refusal)}, f"{where}: refuse")
    result = row_of(Shipped, fields)
    mistake = next(_mistakes(result), "")
    if mistake:
        msg = f"{where}: {mistake}"
        raise ValueError(msg)
    return result


def _mistakes(row: Row) -> Iterator[str]:
    """Yield the mistakes in names of variables, conditions, patterns and numbers."""
    variables = ((field, name) for field in _LISTS for name in getattr(row, field))
    yield from (f"{field}: {name!r}: expected the name of a variable" for field, name in variables if not re.fullmatch(_NAME, name))
    conditions = (f"{each!r}: expected NAME, A|B, NAME=VALUE, NAMES ~ REGEX, /PATH, or ! before one of these" for each in row.conditions
                  if not re.fullmatch(_CONDITION, each, re.DOTALL))  # fmt: skip
    yield from conditions
    yield from _wrong_patterns(row)
    yield from (f"refuse: unless: expected some of {', '.join(VALUES)}" for each in row.refuse if not {*each.unless} <= {*VALUES})
    if not 0 <= row.kills_after_s < _MOST_S:
        yield f"kills_after_s: expected seconds from 0 to {_MOST_S}"
    if row.json_file and not (row.json_file.startswith("/") and row.json_hosts):
        yield "json_file: expected a path from /, and json_hosts beside it"


def _wrong_patterns(row: Row) -> Iterator[str]:
    for pattern in (*row.patterns, *row.node_index_like):
        try:
            groups = re.compile(pattern.partition(" ~ ")[2]).groups
        except re.error as error:
            yield f"{pattern!r}: {error}"
            continue
        if pattern not in row.conditions and (" ~ " not in pattern or not groups):
            yield f"{pattern!r}: expected NAMES ~ REGEX, with the value in parentheses"
