"""Compaction of texts that differ only in numbers, such as those of a node's ranks, to one text with ranges."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

FEWEST = 3  # texts to compact
_NUMBER = re.compile(r"([0-9]+)")

Block = tuple[str, ...]  # lines


def folded(blocks: Iterable[Block]) -> Iterator[Block]:
    """Merge neighbours that differ only in numbers to one block: "RANK=0..7"."""
    for _, members in itertools.groupby(blocks, key=lambda block: tuple(_NUMBER.sub("0", line) for line in block)):
        group = list(members)
        if len(group) < FEWEST:
            yield from group
        else:
            yield tuple(_merged(lines) for lines in zip(*group))


def _merged(lines: Sequence[str]) -> str:
    if len(set(lines)) == 1:
        return lines[0]
    pieces = zip(*(_NUMBER.split(line) for line in lines))
    return "".join(piece[0] if len(set(piece)) == 1 else _range(piece) for piece in pieces)


def _range(numbers: Sequence[str]) -> str:
    steps = all(int(b) - int(a) == 1 for a, b in zip(numbers, numbers[1:]))
    return f"{numbers[0]}..{numbers[-1]}" if steps else "{" + ",".join(numbers) + "}"
