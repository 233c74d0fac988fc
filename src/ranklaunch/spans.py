"""Sets of numbers, written as numbers and spans: 0,3-5 (usually ranks)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ranklaunch.errors import runs

HIGHEST = 9_999_999
MOST = 10_000  # spans in one text
_SPAN = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")


@dataclass(frozen=True)
class Spans:
    """Set of numbers, as its spans: (first, last) of each, so that a large set takes little memory."""

    of: tuple[tuple[int, int], ...]

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(first <= number <= last for first, last in self.of)

    def __str__(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.of)


def parse(text: str) -> Spans:
    """Return the numbers of a text such as 0,8-15. Raise ValueError with the expected form."""
    parts = text.split(",", MOST)
    matches = [_SPAN.fullmatch(part.strip()) for part in parts[:MOST]]
    spans = [(int(each[1]), int(each[2] or each[1])) for each in matches if each]
    if len(spans) < len(parts) or any(first > last for first, last in spans):
        msg = f"expected numbers from 0 to {HIGHEST} and spans of them, such as 0,8-15"
        raise ValueError(msg)
    return Spans(tuple(spans))


def text(numbers: Iterable[int]) -> str:
    return str(Spans(tuple(runs(numbers))))
