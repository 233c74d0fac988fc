"""Values as text: JSON, or YAML where PyYAML is installed. Nobody wrote what a parser would drop or multiply without a word."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ranklaunch.errors import MANY_DIGITS, has_many_digits

MOST_LEVELS = 100  # lists and maps within each other
MOST_VALUES = 100_000  # once every alias stands for what it names
# What Helm takes text without quotes for: true, false and null of YAML 1.1, numbers of 1.1 and 1.2 alike; but no dates, no = that is more
# than a text, and no numbers to the base 60, of which 1:30 would be 90.
TAG = "tag:yaml.org,2002:"
KEPT = (f"{TAG}null", f"{TAG}bool", f"{TAG}merge")
PLAIN = (
    (f"{TAG}bool", r"[yn]", "yYnN"),
    (f"{TAG}int", r"[-+]?(0b[01_]+|0x[0-9a-f_]+|0o?[0-7][0-7_]*|0|[1-9][0-9_]*)", "-+0123456789"),
    (f"{TAG}float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]+)?|[-+]?\.inf|\.nan", "-+.0123456789"),
)


class UnfitError(ValueError):
    """It is well formed, but no values of a job."""


def parsed(text: str, yaml: Callable[[], Any] | None) -> Any:
    """yaml: finds PyYAML; None where it must be JSON. An empty document is {}."""
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
    try:
        result = json.loads(text, object_pairs_hook=_map)
        _levels(result)
    except RecursionError:
        _too_deep()
    except ValueError as error:
        _short_numbers(error)
        raise
    return result


def _short_numbers(error: Exception) -> None:
    if has_many_digits(error):
        raise UnfitError(MANY_DIGITS) from None


def _map(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"{twice!r} is given twice in one map"
        raise UnfitError(msg)
    return result


def _levels(value: Any, left: int = MOST_LEVELS) -> None:
    if not left:
        _too_deep()
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _levels(each, left - 1)


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
    # What PyYAML raises where a value does not fit its explicit tag is none of its own errors.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        _short_numbers(error)
        msg = f"not YAML: {_without_excerpt(error)}"
        raise ValueError(msg) from None


def _loader(yaml: Any) -> Any:
    safe = yaml.SafeLoader
    resolvers = {first: [each for each in known if each[0] in KEPT] for first, known in safe.yaml_implicit_resolvers.items()}
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
    """PyYAML shows the line, which may have a secret."""
    places = ((getattr(error, name, None), getattr(error, f"{name}_mark", None)) for name in ("context", "problem"))
    texts = [f"{text}{f' (line {mark.line + 1}, column {mark.column + 1})' if mark else ''}" for text, mark in places if text]
    return ", ".join(texts) or str(error).partition("\n")[0]


def _constructed(loader: Any) -> Any:
    _stop_early(loader)
    root = loader.get_single_node()
    if root is None:
        return {}
    _Counting().count(root, ())
    content = loader.construct_document(root)
    return {} if content is None else content


def _stop_early(loader: Any) -> None:
    """PyYAML is slow: what is too large is not read to its end."""
    compose, numbers = loader.compose_node, itertools.count()

    def counted(parent: Any, index: Any) -> Any:
        if next(numbers) >= MOST_VALUES:
            msg = f"more than {MOST_VALUES} values"
            raise UnfitError(msg)
        return compose(parent, index)

    loader.compose_node = counted


class _Counting:
    """Goes through the nodes of a document before anything is made from them: each once, however many aliases lead to it."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._done: dict[int, int] = {}

    def count(self, node: Any, place: tuple[str, ...]) -> int:
        """Return the number of values inside, with the values behind aliases."""
        if id(node) in self._done:
            return self._done[id(node)]
        if id(node) in self._open:
            msg = f"{'.'.join(place)}: what begins in line {node.start_mark.line + 1} contains itself, by an alias"
            raise UnfitError(msg)
        if len(place) > MOST_LEVELS:
            _too_deep()
        self._open.add(id(node))
        result = 1 + sum(self.count(below, (*place, name)) for name, below in _below(node, place))
        self._open.remove(id(node))
        if result > MOST_VALUES:
            msg = f"{'.'.join(place) or 'values'}: more than {MOST_VALUES} values, once aliases are replaced by what they stand for"
            raise UnfitError(msg)
        self._done[id(node)] = result
        return result


def _below(node: Any, place: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
    if node.id == "mapping":
        _each_once(node, place)
        return ((str(name.value)[:60], each) for name, value in node.value for each in (name, value))
    if node.id == "sequence":
        return ((str(index), each) for index, each in enumerate(node.value))
    return ()


def _each_once(node: Any, place: tuple[str, ...]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for name in (name for name, _ in node.value if name.id == "scalar"):
        line, known = name.start_mark.line + 1, (name.tag, name.value)
        if known in lines:
            msg = f"{'.'.join((*place, name.value))}: given twice, in lines {lines[known]} and {line}"
            raise UnfitError(msg)
        lines[known] = line
