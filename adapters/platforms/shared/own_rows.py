"""Rows of a user's own file (RANKLAUNCH_PLATFORM_FILE), which has the form of platforms.toml."""

from __future__ import annotations

import re

from ranklaunch import rows
from ranklaunch.adapters.platforms.shared.base import PLATFORM_FILE
from ranklaunch.adapters.platforms.shared.row import VALUES, Refusal, Row, Shipped, made
from ranklaunch.errors import ConfigError
from ranklaunch.files import absolute
from ranklaunch.read.reader import Reader
from ranklaunch.typed import Any
from ranklaunch.values import Value


class PlatformFile(Value):
    """Places of a user's own, in the order in which they are asked."""

    platform: tuple[Row, ...]


def read(reader: Reader) -> tuple[Shipped, ...]:
    """Return the rows. Raise ConfigError with the file, the row and the field that is wrong."""
    path = absolute(reader.get(PLATFORM_FILE), reader.cwd)
    try:
        return tuple(_checked(fields, at) for at, fields in enumerate(rows.read(reader.files, path, "platform"), 1))
    except (ValueError, RecursionError) as error:
        msg = f"{reader.told(PLATFORM_FILE)}: {error}"
        raise ConfigError(msg) from None


def _checked(fields: Any, at: int) -> Shipped:
    if not isinstance(fields, dict) or not fields.get("sign") or not re.fullmatch(r"[a-z][a-z0-9_]{0,60}", str(fields.get("name"))):
        msg = f'row {at}: expected name = "in_small_letters" and sign = ["VARIABLE"]'
        raise ValueError(msg)
    where = f"row {at} ({fields['name']})"
    rows.check(fields, {"name": "", **Row._defaults}, where)
    for each in fields.get("refuse", ()):
        rows.check({"when": (), **each}, {"when": (), "text": "", **Refusal._defaults}, f"{where}: refuse")
        if not each.get("when") or not each.get("text") or not {*each.get("unless", ())} <= {*VALUES}:
            msg = f'{where}: refuse: expected when = ["CONDITION"], text = "MESSAGE", and unless with some of {", ".join(VALUES)}'
            raise ValueError(msg)
    found = made(Shipped, fields)
    for pattern in (*found.patterns, *found.node_index_like):
        try:
            re.compile(pattern.partition(" ~ ")[2])
        except re.error as error:
            msg = f"{where}: {pattern!r}: {error}"
            raise ValueError(msg) from None
    return found
