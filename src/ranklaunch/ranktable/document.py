"""JSON of a rank table while it is read: checked columns and texts, and the defects in them."""

from __future__ import annotations

import collections
import itertools
import json
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ranklaunch.errors import ConfigError, reason
from ranklaunch.ranktable.model import RankTable, Server, SuperPod

LOOKED_AT = 1000  # characters of a value, of which 60 are shown
SHOWN = 20  # problems of one kind that are listed one by one

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"


class Kind:
    """Form of a scalar. few: True if a column has few different values, so that only different ones are checked."""

    def __init__(self, pattern: str, expected: str, few: bool = False) -> None:
        self.few = few
        self.match = re.compile(pattern).fullmatch
        self.match_or_none = re.compile(rf"(?:{pattern})?").fullmatch
        self.expected = expected


NUMBER = Kind(r"[0-9]{1,9}", "a whole number")
DEVICE = Kind(r"0|[1-9][0-9]{0,8}", "a device's number", few=True)
LARGE = Kind(r"[0-9]{1,19}", "a whole number")
NAME = Kind(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:-]{0,251}[A-Za-z0-9_])?", "a name or an address")
ADDRESS = Kind(rf"{_OCTET}(?:\.{_OCTET}){{3}}", "an IP address")

Json = dict[str, Any]
T = TypeVar("T")


class Document:
    """One rank table. Collects defects (problem) and warnings."""

    def __init__(self, path: str, version: str, data: Json, text: str) -> None:
        self.path = path
        self.version = version
        self.data = data
        self.text = text
        self.warnings: list[str] = []
        self._problems: list[str] = []
        self._kinds: collections.Counter[str] = collections.Counter()

    def problem(self, where: str, what: str) -> None:
        """Add a defect. Only the first SHOWN of one kind are listed: of defects with the same `what` up to its first value."""
        kind = re.split(r"[0-9'\"\[{]", what)[0]
        self._kinds[kind] += 1
        if self._kinds[kind] <= SHOWN:
            self._problems.append(f"rank table {self.path}: {where}{': ' if where else ''}{what}")

    def finish(self, servers: list[Server], super_pods: Sequence[SuperPod] = ()) -> RankTable:
        """Return the table. Raises ConfigError with all defects."""
        more = sum(max(0, number - SHOWN) for number in self._kinds.values())
        if more:
            self._problems.append(f"rank table {self.path}: {more} more problems of these kinds")
        if self._problems:
            raise ConfigError(self._problems)
        return RankTable(self.version, tuple(servers), tuple(super_pods), self.data, self.text, tuple(self.warnings))

    def objects(self, holder: Json, key: str, where: str) -> list[Json]:
        """Return a list of JSON objects; [] for another value, which is a defect."""
        value = holder.get(key)
        if isinstance(value, list) and set(map(type, value)) <= {dict}:
            return value
        self.problem(where, f"{key} must be a list of objects, found {shown(value)}")
        return []

    def lists(self, holders: Sequence[Json], key: str, where: Callable[[int], str]) -> list[list[Json]]:
        """Return objects() of every holder. All lists are checked in one step, which is faster."""
        result = [holder.get(key) for holder in holders]
        if set(map(type, result)) <= {list} and set(map(type, itertools.chain.from_iterable(result))) <= {dict}:  # type: ignore[arg-type]
            return result  # type: ignore[return-value]
        return [self.objects(holder, key, where(n)) for n, holder in enumerate(holders)]

    def columns(
        self, devices: Sequence[list[Json]], where: Callable[[int], str], key: str, kind: Kind, optional: bool = False
    ) -> list[tuple[str, ...]]:
        """Return the values of one key of every device of every server, as text.

        The whole column is checked in one step. Only if this fails, each value is checked, to name the wrong one. where: place of the
        n-th server's devices, for messages.
        """
        get = operator.methodcaller("get", key, "") if optional else operator.itemgetter(key)
        match = kind.match_or_none if optional else kind.match
        try:
            values = list(map(get, itertools.chain.from_iterable(devices)))
            if all(map(match, set(values) if kind.few else values)):
                return split(values, devices)
        except (KeyError, TypeError):  # a device without the key, or a value that is not text
            pass
        return [
            tuple(self.scalar(item.get(key), f"{where(n)}[{i}].{key}", kind, optional) for i, item in enumerate(of_server))
            for n, of_server in enumerate(devices)
        ]

    def names(self, items: Sequence[Json], key: str, where: Callable[[int], str]) -> list[str]:
        """Return the values of one key of every server or pod, checked as names. where: place of the n-th one, for messages."""
        values = [item.get(key) for item in items]
        try:
            if all(map(NAME.match, values)):  # type: ignore[arg-type]
                return values  # type: ignore[return-value]
        except TypeError:
            pass
        return [self.scalar(value, where(n), NAME) for n, value in enumerate(values)]

    def scalar(self, value: object, where: str, kind: Kind, optional: bool = False) -> str:
        """Return a scalar as text; "" for a wrong value, which is a defect. Platforms write numbers as text, people as numbers."""
        if optional and value in ("", None):
            return ""
        text = str(value) if type(value) in (str, int) else ""
        if kind.match(text) or (kind is ADDRESS and _is_ipv6(text)):
            return text
        self.problem(where, f"must be {kind.expected}, found {shown(value)}")
        return ""

    def count(self, holder: Json, key: str, listed: int, where: str, what: str) -> None:
        """Check a count that the table states, if any, against the number of listed items."""
        stated = holder.get(key)
        if stated is not None and str(stated) != str(listed):
            self.problem(where, f"{key} is {shown(stated)}, but {listed} {what} are listed")


def split(values: Sequence[T], lists: Sequence[Sequence[object]]) -> list[tuple[T, ...]]:
    """Return a flat column in pieces that are as long as the lists."""
    ends = list(itertools.accumulate(map(len, lists)))
    return [tuple(values[start:end]) for start, end in zip([0, *ends], ends)]


def _is_ipv6(text: str) -> bool:
    if ":" not in text:
        return False
    import ipaddress  # few tables need it

    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def shown(value: object) -> str:
    """Return a JSON value for a message: without secrets, at most 60 characters."""
    try:
        text = json.dumps(value, default=str)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    return reason(text) if len(text) <= 60 else f"{reason(text[:LOOKED_AT])[:60]}..."
