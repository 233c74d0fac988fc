"""Slurm's short forms for many nodes: host names as node[001-003,7],gpu-a[1-2]b[3-4], numbers per node as 2(x3),1.

Source: https://slurm.schedmd.com/srun.html (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE), and `scontrol show hostnames` where that page is
silent.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator

from ranklaunch.env import parse

MOST = 65_536  # hosts; Slurm's own limit for one range
_ITEM = r"(?:[^\[\],]|\[[^\[\]]*\])+"
_BRACKETS = r"\[([^\[\]]*)\]"
_RANGE = r"([0-9]{1,18})(?:-([0-9]{1,18}))?"
_REPEATED = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


@functools.lru_cache(maxsize=8)  # the plans of 10,000 nodes parse the same list
def hosts(value: str) -> tuple[str, ...]:
    """Return the host names, in Slurm's order. Raise ValueError for a malformed list, and for more than MOST hosts (none is expanded)."""
    items = re.findall(_ITEM, value.strip())
    try:
        if ",".join(items) != value.strip():
            raise ValueError
        if sum(map(_size, items)) <= MOST:
            return tuple(parse.host(name) for item in items or [""] for name in _names(item))
    except ValueError:
        msg = "expected host names as Slurm writes them, such as node[001-003,7],gpu-a1"
        raise ValueError(msg) from None
    msg = f"expected at most {MOST} hosts"
    raise ValueError(msg)


def _size(item: str) -> int:
    return math.prod(sum(len(numbers) for numbers, _ in _ranges(inside)) for inside in re.findall(_BRACKETS, item))


def _names(item: str) -> Iterator[str]:
    """Yield the names of an item such as rack[0-1]node[0-3].

    The last brackets count fastest, then the first, the second and so on: itertools.product of the brackets as written has another order.
    """
    first, *pairs = re.split(_BRACKETS, item)  # text, content of brackets, text, content of brackets, text ...
    choices = [[f"{number:0{width}}" for numbers, width in _ranges(inside) for number in numbers] for inside in pairs[::2]]
    for numbers in itertools.product(*choices[-2::-1], *choices[-1:]):
        in_order = (*numbers[-2::-1], *numbers[-1:])
        yield first + "".join(itertools.chain(*zip(in_order, pairs[1::2])))


def _ranges(inside: str) -> Iterator[tuple[range, int]]:
    """Yield the numbers of 001-003,7, range by range, with the number of digits of the range's first number."""
    for part in inside.split(","):
        match = re.fullmatch(_RANGE, part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError
        yield range(int(match[1]), int(match[2] or match[1]) + 1), len(match[1])


def counts(value: str) -> tuple[int, ...]:
    """Return the number of each node: (2, 2, 2, 1) for 2(x3),1."""
    pairs = [match.groups() for match in map(_REPEATED.fullmatch, value.strip().split(",")) if match]
    if len(pairs) <= value.count(",") or sum(int(times or 1) for _, times in pairs) > MOST:
        msg = f"expected a number for each node as Slurm writes them, such as 2(x3),1, for at most {MOST} nodes"
        raise ValueError(msg)
    return tuple(itertools.chain.from_iterable((int(number),) * int(times or 1) for number, times in pairs))
