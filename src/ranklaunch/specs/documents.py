"""Parsers of values: JSON, or YAML if PyYAML is installed.

Duplicate keys and aliases that expand to very many values are errors here; a plain parser takes them silently.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ranklaunch.errors import MANY_DIGITS, has_many_digits

MOST_LEVELS = 100  # nested lists and maps
MOST_VALUES = 100_000  # with every alias expanded
# Types of text without quotes, as in Helm: true, false and null of YAML 1.1, and numbers of YAML 1.1 and 1.2. Dates, a lone "=" and numbers
# to the base 60 (1:30 as 90) stay texts.
TAG = "tag:yaml.org,2002:"
KEPT = (f"{TAG}null", f"{TAG}bool", f"{TAG}merge")
PLAIN = (
    (f"{TAG}bool", r"[yn]", "yYnN"),
    (f"{TAG}int", r"[-+]?(0b[01_]+|0x[0-9a-f_]+|0o?[0-7][0-7_]*|0|[1-9][0-9_]*)", "-+0123456789"),
    (f"{TAG}float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]+)?|[-+]?\.inf|\.nan", "-+.0123456789"),
)


class UnfitError(ValueError):
    """Well-formed document that cannot hold the values of a job."""


def parsed(text: str, yaml: Callable[[], Any] | None) -> Any:
    """Return the content of a document; {} if it is empty. Raises ValueError.

    yaml: imports PyYAML; None if the document must be JSON.
    """
    try:
        return of_json(text)
    except UnfitError:
        raise
    except ValueError as error:
        if not yaml:
            msg = f"not JSON: {error}"
            raise ValueError(msg) from None
    return _of_yaml(text, yaml())


def of_json(text: str) -> Any:
    """Return the content of a JSON document. Raises UnfitError, or ValueError for a text that is not JSON."""
    try:
        result = json.loads(text, object_pairs_hook=_map)
        _check_depth(result)
    except RecursionError:
        _too_deep()
    except ValueError as error:
        _refuse_long_numbers(error)
        raise
    return result


def _refuse_long_numbers(error: Exception) -> None:
    """Raise UnfitError if Python has refused a number for its many digits."""
    if has_many_digits(error):
        raise UnfitError(MANY_DIGITS) from None


def _map(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        msg = f"{duplicate!r} is given twice in one map"
        raise UnfitError(msg)
    return result


def _check_depth(value: Any, levels: int = MOST_LEVELS) -> None:
    if not levels:
        _too_deep()
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(each, levels - 1)


def _too_deep() -> NoReturn:
    msg = f"nested too deeply, expected at most {MOST_LEVELS} lists and maps within each other"
    raise UnfitError(msg)


def _of_yaml(text: str, yaml: Any) -> Any:
    try:
        return _constructed(_loader(yaml)(text))
    except UnfitError:
        raise
    except RecursionError:
        _too_deep()
    # For a value that does not fit its explicit tag, PyYAML raises errors of Python instead of its own.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        _refuse_long_numbers(error)
        msg = f"not YAML: {_without_excerpt(error)}"
        raise ValueError(msg) from None


def _loader(yaml: Any) -> Any:
    """Return PyYAML's safe loader with the types of Helm."""
    safe = yaml.SafeLoader
    resolvers = {first: [each for each in pairs if each[0] in KEPT] for first, pairs in safe.yaml_implicit_resolvers.items()}
    bools = {**safe.bool_values, "y": True, "n": False}
    loader: Any = type("Loader", (safe,), {"yaml_implicit_resolvers": resolvers, "bool_values": bools})
    for tag, pattern, first in PLAIN:
        loader.add_implicit_resolver(tag, re.compile(f"(?:{pattern})$", re.IGNORECASE), list(first))
    loader.add_constructor(f"{TAG}int", lambda self, node: _whole(self.construct_scalar(node)))
    return loader


def _whole(text: str) -> int:
    digits = text.replace("_", "")
    return int(digits, 8 if re.match("[-+]?0[0-7]", digits) else 0)


def _without_excerpt(error: Exception) -> str:
    """Return the message of a YAML error without the line's text: it may hold a secret."""
    places = ((getattr(error, name, None), getattr(error, f"{name}_mark", None)) for name in ("context", "problem"))
    texts = [f"{text}{f' (line {mark.line + 1}, column {mark.column + 1})' if mark else ''}" for text, mark in places if text]
    return ", ".join(texts) or str(error).partition("\n")[0]


def _constructed(loader: Any) -> Any:
    _limit_values(loader)
    root = loader.get_single_node()
    if root is None:
        return {}
    _NodeCounter().count(root, ())
    content = loader.construct_document(root)
    return {} if content is None else content


def _limit_values(loader: Any) -> None:
    """Make a loader stop at too many values: PyYAML is too slow to read a huge document to its end."""
    compose, numbers = loader.compose_node, itertools.count()

    def counted(parent: Any, index: Any) -> Any:
        if next(numbers) >= MOST_VALUES:
            msg = f"more than {MOST_VALUES} values"
            raise UnfitError(msg)
        return compose(parent, index)

    loader.compose_node = counted


class _NodeCounter:
    """Counter of a document's nodes, for a check before values are made of them. A node with many aliases is visited once."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._done: dict[int, int] = {}

    def count(self, node: Any, place: tuple[str, ...]) -> int:
        """Return the number of values inside a node, with all aliases expanded. Raises UnfitError."""
        if id(node) in self._done:
            return self._done[id(node)]
        if id(node) in self._open:
            msg = f"{'.'.join(place)}: the value that begins in line {node.start_mark.line + 1} contains itself, by an alias"
            raise UnfitError(msg)
        if len(place) > MOST_LEVELS:
            _too_deep()
        self._open.add(id(node))
        result = 1 + sum(self.count(child, (*place, name)) for name, child in _children(node, place))
        self._open.remove(id(node))
        if result > MOST_VALUES:
            msg = f"{'.'.join(place) or 'values'}: more than {MOST_VALUES} values, with every alias expanded"
            raise UnfitError(msg)
        self._done[id(node)] = result
        return result


def _children(node: Any, place: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
    if node.id == "mapping":
        _refuse_duplicates(node, place)
        return ((str(name.value)[:60], each) for name, value in node.value for each in (name, value))
    if node.id == "sequence":
        return ((str(index), each) for index, each in enumerate(node.value))
    return ()


def _refuse_duplicates(node: Any, place: tuple[str, ...]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for name in (name for name, _ in node.value if name.id == "scalar"):
        line, key = name.start_mark.line + 1, (name.tag, name.value)
        if key in lines:
            msg = f"{'.'.join((*place, name.value))}: given twice, in lines {lines[key]} and {line}"
            raise UnfitError(msg)
        lines[key] = line
