"""Slurm's ways to write many nodes in few characters: host names as node[001-003,7],gpu-a[1-2]b[3-4], numbers per node as 2(x3),1.

Source: https://slurm.schedmd.com/srun.html (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE); what it leaves open is as
`scontrol show hostnames` does it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from ranklaunch.read import parse

MOST = 65_536  # hosts: as many as Slurm itself expands of one range
_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_REPEATED = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


def hosts(value: str) -> tuple[str, ...]:
    """The names, in Slurm's order. Raises ValueError before more than MOST are made."""
    try:
        checked = tuple(parse.host(name) for name in itertools.islice(_names(value.strip()), MOST + 1))  # long ones are not all made
    except ValueError:
        msg = "expected host names as Slurm writes them, such as node[001-003,7],gpu-a1"
        raise ValueError(msg) from None
    if len(checked) > MOST:
        msg = f"expected at most {MOST} hosts"
        raise ValueError(msg)
    return checked


def _names(value: str) -> Iterator[str]:
    """Checked as a whole first: what stands between the items may be one comma only."""
    items = _ITEM.findall(value)
    if ",".join(items) != value or not items:
        raise ValueError
    return itertools.chain.from_iterable(map(_of_item, items))


def _of_item(item: str) -> Iterator[str]:
    """Of rack[0-1]node[0-3] the last brackets count fastest; of those before, the first: Slurm's order, not that of a product."""
    texts = re.split(r"\[[^\[\]]*\]", item)
    brackets = [_Numbers(inside) for inside in re.findall(r"\[([^\[\]]*)\]", item)]
    if not brackets:
        return iter(texts)
    if any(len(numbers) > MOST for numbers in brackets):
        return itertools.repeat("x", MOST + 1)  # too many, whatever they are called
    *slow, fast = brackets
    return (_joined(texts, (*reversed(outer), last)) for outer in _counted(slow[::-1]) for last in fast)


def _counted(brackets: Sequence[_Numbers]) -> Iterator[tuple[str, ...]]:
    """Every combination, the last counting fastest, without a list of all."""
    running = [iter(numbers) for numbers in brackets]
    current = [next(numbers) for numbers in running]
    while True:
        yield tuple(current)
        for place in reversed(range(len(brackets))):
            following = next(running[place], None)
            if following is not None:
                current[place] = following
                break
            running[place] = iter(brackets[place])
            current[place] = next(running[place])
        else:
            return


def _joined(texts: Sequence[str], numbers: Sequence[str]) -> str:
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(texts, numbers, fillvalue="")))


class _Numbers:
    """What stands between brackets, 001-003,7: not made before it is asked for. A range is as wide as its first number."""

    def __init__(self, inside: str) -> None:
        self._ranges = [self._range(part) for part in inside.split(",")]

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high, _ in self._ranges)

    def __iter__(self) -> Iterator[str]:
        return (f"{number:0{width}}" for low, high, width in self._ranges for number in range(low, high + 1))

    @staticmethod
    def _range(part: str) -> tuple[int, int, int]:
        match = _RANGE.fullmatch(part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError
        return int(match[1]), int(match[2] or match[1]), len(match[1])


def counts(value: str) -> tuple[int, ...]:
    """A number for each node: 2(x3),1 is 2,2,2,1."""
    matches = [_REPEATED.fullmatch(part) for part in value.strip().split(",")]
    pairs = [(int(match[1]), int(match[2] or 1)) for match in matches if match]
    if len(pairs) != len(matches) or any(number > parse.MOST_SLOTS for number, _ in pairs):
        msg = f"expected a number for each node as Slurm writes them, such as 2(x3),1, at most {parse.MOST_SLOTS}"
        raise ValueError(msg)
    if sum(times for _, times in pairs) > MOST:
        msg = f"expected numbers of at most {MOST} nodes"
        raise ValueError(msg)
    return tuple(itertools.chain.from_iterable((number,) * times for number, times in pairs))
