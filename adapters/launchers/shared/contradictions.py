"""Options for numbers of the plan. A user's option with another number is refused: a run with fewer ranks than planned, or with each
node training alone, ends with 0, and would count as the job's success."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ranklaunch.adapters.launchers.shared.user_options import Parser
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import RANK_PREFIX, SLOTS
from ranklaunch.showing import clipped

RANKS_HERE = f"the ranks that are planned on this node; remove it, or set {SLOTS.name}"
RANKS = f"the ranks that are planned in all; remove it, or set {SLOTS.name}"
NODES = "the nodes of this job; remove it"
INDEX = "the index of this node; remove it"

NUMBER = re.compile(r"\s*[-+]?[0-9]{1,9}\s*")


class Count(NamedTuple):
    """A number of the plan. option: as launcher and messages call it. of: one of the texts above. as_range: MIN:MAX is a number too."""

    option: str
    expected: int
    of: str
    as_range: bool = False

    def others(self, texts: Iterable[str]) -> list[str]:
        """Return an option's values with numbers other than the plan's.

        A word for "as many as there are" is no number here. Other non-numbers are refused by the launcher itself.
        """
        return [text for text in texts if self._differs(text.split(":") if self.as_range else [text])]

    def _differs(self, numbers: list[str]) -> bool:
        return all(map(NUMBER.fullmatch, numbers)) and any(int(number) != self.expected for number in numbers)

    def contradiction(self, what: str) -> str:
        return f"{what}: expected {self.expected}, {self.of}"


def refuse(
    reader: Reader, variable: Variable[object], words: Sequence[str], parser: Parser, launcher: str, counts: Iterable[Count]
) -> None:
    """Refuse other numbers than the plan's, and a word that the launcher would start in place of the user's program."""
    source = reader.source(variable)
    for count in counts:
        for text in count.others(parser.values(words, count.option)):
            reader.problem(count.contradiction(f"{source} has {count.option} {clipped(text)}"))
    _, program, _ = parser.read(words)
    if program is not None:
        reader.problem(
            f"{source} has the word {clipped(repr(program))}, which is no option: {launcher} would start it in place of the program: "
            f"remove it; {RANK_PREFIX.both} puts a command before each rank"
        )


def warn_of_meeting(reader: Reader, source: str, options: set[str], *names: str) -> None:
    """Warn of a user's own options that say where nodes meet. source: variable that has them."""
    for name in sorted(options.intersection(names)):
        reader.warn(f"{source} has its own {name}, which overrides the platform's: every node must say the same")
