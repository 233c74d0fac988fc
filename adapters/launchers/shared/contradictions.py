"""Options by which a launcher is told a number that the plan has. A user's own words that tell it another one are refused: what fewer
ranks than planned, or nodes that each train alone, end with is 0, and would be taken for the job's success."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared import user_options
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import RANK_PREFIX, SLOTS

RANKS_HERE = f"the ranks that are planned on this node; remove it, or set {SLOTS.names[0]}"
RANKS = f"the ranks that are planned in all; remove it, or set {SLOTS.names[0]}"
NODES = "the nodes of this job; remove it"
INDEX = "the index of this node; remove it"

NUMBER = re.compile(r"\s*[-+]?[0-9]{1,9}\s*")


@dataclass(frozen=True)
class Count:
    """A number of the plan. option: as launcher and messages call it. of: one of the texts above. as_range: MIN:MAX is a number too."""

    option: str
    expected: int
    of: str
    as_range: bool = False


class Parser(Protocol):
    """How a launcher reads its options: words.Parser, or a module with these functions."""

    def spelled(self, name: str) -> str:
        """Return the whole name of an option."""

    def following(self, name: str) -> int | None:
        """Return how many of the next words are an option's value, None for an unknown one."""


def refuse(
    reader: Reader, variable: Variable[object], extra: Sequence[str], parser: Parser, launcher: str, counts: Iterable[Count]
) -> None:
    """Refuse other numbers than the plan's, and a word that the launcher would start in place of the user's program."""
    source = reader.source(variable)
    for count in counts:
        for text in told(extra, count, parser.spelled):
            reader.problem(contradiction(f"{source} has {count.option} {showing.clipped(text)}", count))
    word = user_options.positional(extra, parser.following)
    if word is not None:
        reader.problem(
            f"{source} has the word {showing.clipped(repr(word))}, which is no option: {launcher} would start it in place of the program: "
            f"remove it; {RANK_PREFIX.both} puts a command before each rank"
        )


def told(argv: Sequence[str], count: Count, spell: user_options.Spell = str) -> list[str]:
    """Return the numbers that a launcher is told in place of the plan's.

    A word for "as many as there are" is none, and what is no number the launcher itself refuses.
    """
    found = []
    for text in user_options.values(argv, count.option, spell):
        numbers = text.split(":") if count.as_range else [text]
        if all(map(NUMBER.fullmatch, numbers)) and any(int(number) != count.expected for number in numbers):
            found.append(text)
    return found


def contradiction(what: str, count: Count) -> str:
    return f"{what}: expected {count.expected}, {count.of}"
