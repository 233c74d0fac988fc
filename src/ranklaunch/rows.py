"""Rows of a table in a user's TOML or JSON file, such as a table of platforms or of commands that start ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ranklaunch.errors import nearest
from ranklaunch.files import Files

MOST_BYTES = 1024 * 1024  # of a file
MOST_PARTS = 32  # of a TOML key: tomllib needs gigabytes of memory for a key of thousands of parts
_NESTED = rf"""(?<![\w.'"-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MOST_PARTS}}}"""
_WANTED = {tuple: "a list of texts", bool: "true or false", str: "a text", float: "a number"}


def read(files: Files, path: str, name: str) -> list[Any]:
    """Return the rows of the table with this name. Raise ValueError for a file without them, RecursionError for one nested too deeply."""
    text = files.text(path, MOST_BYTES)
    if text is None:
        msg = "no such file, or no permission to read it"
        raise ValueError(msg)
    content = json.loads(text) if path.endswith(".json") else toml(text)
    rows = content.get(name) if isinstance(content, dict) else content
    if not isinstance(rows, list):
        msg = f'expected a list of rows: [[{name}]] in TOML, {{"{name}": [...]}} in JSON'
        raise ValueError(msg)
    return rows


def toml(text: str) -> Any:
    """Return the content of a TOML document. Raise ValueError on Python before 3.11, and for a key of too many parts."""
    try:
        tomllib: Any = import_module("tomllib")
    except ImportError:
        msg = "this Python does not read TOML, 3.11 and newer do; write the same content as JSON, in a file NAME.json"
        raise ValueError(msg) from None
    nested = re.search(_NESTED, text)
    if nested:
        number = text.count("\n", 0, nested.start()) + 1
        msg = f"line {number}: a key has more than {MOST_PARTS} parts"
        raise ValueError(msg)
    return tomllib.loads(text)


def check(fields: Mapping[str, Any], usual: Mapping[str, Any], where: str) -> None:
    """Raise ValueError for an unknown field, and for a value of another type than the usual one. A list must hold texts."""
    for name, value in fields.items():
        if name not in usual:
            msg = f"{where}: unknown field {name!r}{nearest(name, usual)}; expected {', '.join(usual)}"
            raise ValueError(msg)
        kind = type(usual[name])
        if kind is tuple:
            fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
        else:
            fits = isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool)
        if not fits:
            msg = f"{where}: {name}: expected {_WANTED[kind]}"
            raise ValueError(msg)
