"""What the console shows of very many ranks. Few say anything of it, so a start imports this where one does."""

from __future__ import annotations

import re

from ranklaunch import spans
from ranklaunch.env import parse
from ranklaunch.env.reader import Variable

ALL, FOLD = "all", "fold"
UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"([0-9]{1,15})[ ]?([KMGT]?)(?:I?B)?")


def ranks(text: str) -> str:
    """As they are: whoever shows lines takes them apart; "" for all. Raises ValueError with what was expected."""
    word = text.strip()
    if word.lower() == ALL:
        return ""
    try:
        return str(spans.parse(word))
    except ValueError as error:
        msg = f"{error}, or {ALL}"
        raise ValueError(msg) from None


def size(text: str) -> int:
    """Bytes; a unit is one of 1024."""
    found = _SIZE.fullmatch(text.strip().upper())
    if not found:
        msg = "expected bytes, such as 100000, 512K, 100M or 1G"
        raise ValueError(msg)
    return int(found[1]) << (10 * UNITS[found[2]])


CONSOLE = Variable(
    "console", ("RANKLAUNCH_CONSOLE",), ranks, "", "whose lines the console shows: all, or ranks such as 0,8-15; logs have those of all",
    option="--console", default_text=ALL,
)  # fmt: skip
CONSOLE_MERGE = Variable(
    "console_merge", ("RANKLAUNCH_CONSOLE_MERGE",), parse.flag, False, "the console shows equal lines of several ranks of a node once, "
    "with their ranks", option="--console-merge",
)  # fmt: skip
CONSOLE_MAX = Variable(
    "console_max", ("RANKLAUNCH_CONSOLE_MAX",), size, 0, "bytes of ranks' lines on a node's console, such as 500M, after which it shows "
    "those of rank 0, warnings and errors alone; 0: no limit", option="--console-max",
)  # fmt: skip
CONSOLE_VICTIMS = Variable(
    "console_victims", ("RANKLAUNCH_CONSOLE_VICTIMS",), parse.OneOf(FOLD, ALL), FOLD, "after a failure, lines of the ranks that are ended "
    "for it: fold (one line names their logs) or all", option="--console-victims",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (CONSOLE, CONSOLE_MERGE, CONSOLE_MAX, CONSOLE_VICTIMS)
