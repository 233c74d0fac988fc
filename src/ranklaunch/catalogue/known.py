"""Sources of the entries: the shipped catalogue, and users' own folders.

The shipped entries are written in catalogue/*.toml. tools/known_errors.py makes known.json of them, which every Python loads within a
few milliseconds. Files in a user's folder have the same form, as JSON, or as TOML for Python 3.11 and newer.
"""

from __future__ import annotations

import collections
import functools
import json
from collections.abc import Iterable
from pkgutil import get_data
from typing import Any

from ranklaunch import rows
from ranklaunch.catalogue.entry import SAYS_LESS, STANDINGS, KnownError, of_family
from ranklaunch.errors import unreadable
from ranklaunch.files import Files, absolute, join

_SHIPPED = "known.json"
MOST_BYTES = 4 * 1024 * 1024  # of a user's file
MOST_FILES = 256


@functools.cache
def shipped() -> tuple[KnownError, ...]:
    """Return the known errors in the order in which they are tried on a line: the first match wins."""
    text = get_data("ranklaunch.catalogue", _SHIPPED)
    assert text
    return tuple(_row(fields) for fields in json.loads(text))


def _row(fields: dict[str, Any]) -> KnownError:
    lists = {name: tuple(fields.get(name, ())) for name in ("needed", "settings", "peers")}
    return KnownError(**{**fields, **lists})


def ordered(entries: Iterable[KnownError]) -> tuple[KnownError, ...]:
    """Sort entries by standing, as in STANDINGS. Entries of equal standing keep their order."""
    return tuple(sorted(entries, key=lambda entry: STANDINGS.index(entry.standing)))


def folder_of(folder: str, working_folder: str) -> str:
    """Return the absolute path of the user's own entries. Raises ValueError for a URL, which may have a password."""
    if "://" in folder:
        msg = "expected a folder, not a URL"
        raise ValueError(msg)
    return absolute(folder, working_folder)


def with_own(files: Files, folder: str) -> tuple[KnownError, ...]:
    """Return the entries of a user's folder, then the shipped ones. A user's entry replaces the shipped one of its name, except for general
    entries (SAYS_LESS), which are always needed. Raises ValueError."""
    names = [name for name in files.names(folder) if name.endswith((".json", ".toml")) and not name.startswith(".")]
    if not names or len(names) > MOST_FILES:
        msg = f"{folder}: {f'more than {MOST_FILES} files' if names else _without_any(files, folder)}"
        raise ValueError(msg)
    own = _by_name(files, [join(folder, name) for name in names])
    others = [entry for entry in shipped() if entry.name not in own or entry.standing in SAYS_LESS]
    return ordered([*own.values(), *others])


def _by_name(files: Files, paths: Iterable[str]) -> dict[str, KnownError]:
    own: dict[str, KnownError] = {}
    for path in paths:
        for entry in _read(files, path):
            if entry.name in own:
                msg = f"{path}: a second entry {entry.name}: each name must be unique"
                raise ValueError(msg)
            own[entry.name] = entry
    return own


def _without_any(files: Files, folder: str) -> str:
    if not files.is_dir(folder):
        return "expected a folder" if files.exists(folder) else "no such folder, or no permission to read it"
    return "no file in it ends with .json or .toml" if files.names(folder) else "it is empty, or there is no permission to read it"


def _read(files: Files, path: str) -> list[KnownError]:
    try:
        text = files.text(path, MOST_BYTES)
        if text is None:
            msg = "it cannot be read"
            raise ValueError(msg)
        return of_family(json.loads(text, object_pairs_hook=_each_once) if path.endswith(".json") else rows.toml(text))
    except (ValueError, RecursionError) as error:
        msg = f"{path}: {unreadable(error):.300}"
        raise ValueError(msg) from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises ValueError for a repeated key, like TOML; Python's json would keep the last value."""
    counted = collections.Counter(name for name, _ in pairs)
    if len(counted) < len(pairs):
        msg = f"{counted.most_common(1)[0][0]!r:.80} is given twice in one map"
        raise ValueError(msg)
    return dict(pairs)
