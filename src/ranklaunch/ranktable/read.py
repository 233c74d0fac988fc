"""Reading of rank tables. One reading finds every defect, each with its place, its value and the expected value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn

from ranklaunch import showing
from ranklaunch.errors import MANY_DIGITS, ConfigError, has_many_digits
from ranklaunch.files import Files
from ranklaunch.ranktable import group_list, rank_list, server_list
from ranklaunch.ranktable.document import Document, Json, shown
from ranklaunch.ranktable.model import VERSIONS, NotReadyError, RankTable

UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks
MOST_BYTES = 256 * 1024 * 1024
_READERS: dict[str, Callable[[Document], RankTable]] = {
    "0.1": group_list.read,
    "1.0": server_list.read,
    "1.2": server_list.read_with_super_pods,
    "2.0": rank_list.read,
}


def load(path: str, files: Files) -> RankTable:
    """Return the rank table in a file. Raises NotReadyError if waiting may help, else ConfigError with all defects."""
    name = showing.one_line(path)
    try:
        text = files.text(path, MOST_BYTES)
    except UnicodeDecodeError as error:
        if error.object.startswith(UTF_16):
            msg = f"rank table {name}: a text in UTF-16, expected UTF-8"
            raise ConfigError(msg) from None
        msg = f"not UTF-8 text (half-written?): {error.reason} at byte {error.start}"
        raise NotReadyError(msg) from None
    except ValueError as error:
        msg = f"rank table {name}: {error}"
        raise ConfigError(msg) from None
    if text is None:
        msg = "no permission to read the file" if files.exists(path) else "no such file"
        raise NotReadyError(msg)
    return parse(text, name)


def parse(text: str, path: str) -> RankTable:
    """Return the rank table in a text. Raises as load. path: for messages."""
    data = _json(text, path)
    status = data.get("status")
    if status is not None and not isinstance(status, str):
        msg = f"rank table {path}: status is {shown(status)}, expected a text"
        raise ConfigError(msg)
    if status != "completed":
        msg = f"status is {shown(status)}, not 'completed'{group_list.progress(data)}"
        raise NotReadyError(msg)
    version = _version(data)
    if version not in _READERS:
        msg = f"rank table {path}: version is {shown(data.get('version'))}, expected one of {', '.join(VERSIONS)}"
        raise ConfigError(msg)
    return _READERS[version](Document(path, version, data, text))


def _json(text: str, path: str) -> Json:
    if not text.strip():
        msg = "the file is empty"
        raise NotReadyError(msg)
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        msg = f"rank table {path}: nested too deeply to be a rank table"
        raise ConfigError(msg) from None
    except ValueError as error:  # a half-written or a damaged file: only waiting until the deadline shows which one
        first = text.lstrip()[0]
        if has_many_digits(error):
            msg = f"rank table {path}: {MANY_DIGITS}"
            raise ConfigError(msg) from None
        if first not in "{\0":  # network file systems show zeros for text that has not arrived yet
            msg = f"rank table {path}: expected a JSON object, found text that begins with {first!a}"
            raise ConfigError(msg) from None
        msg = f"not JSON (half-written?): {error}"
        raise NotReadyError(msg) from None
    if not isinstance(data, dict):
        msg = f"rank table {path}: expected a JSON object, found {type(data).__name__}"
        raise ConfigError(msg)
    return data


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not a value of JSON"
    raise ValueError(msg)


def _version(data: Json) -> str:
    if "version" not in data and "group_list" in data:
        return "0.1"
    version = data.get("version")
    return str(version) if isinstance(version, (str, int, float)) else ""
