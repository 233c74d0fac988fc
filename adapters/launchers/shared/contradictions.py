"""Check of a user's launcher options against the numbers of the plan.

An option with another number is refused: a run with fewer ranks than planned, or with each node training alone, would exit with 0 and
count as a success of the job.
"""

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
    """Number of the plan. option: name of the launcher's option. meaning: one of the texts above. as_range: MIN:MAX is allowed too."""

    option: str
    expected: int
    meaning: str
    as_range: bool = False

    def contradicting(self, texts: Iterable[str]) -> list[str]:
        """Return those values of an option whose number differs from the plan's.

        Values that are no numbers are skipped: words such as "auto" are valid, and the launcher itself refuses the rest.
        """
        return [text for text in texts if self._differs(text.split(":") if self.as_range else [text])]

    def _differs(self, numbers: list[str]) -> bool:
        return all(map(NUMBER.fullmatch, numbers)) and any(int(number) != self.expected for number in numbers)

    def contradiction(self, problem: str) -> str:
        return f"{problem}: expected {self.expected}, {self.meaning}"


def refuse(
    reader: Reader, variable: Variable[object], words: Sequence[str], parser: Parser, launcher: str, counts: Iterable[Count]
) -> None:
    """Refuse numbers other than the plan's, and a word that the launcher would start instead of the user's program."""
    source = reader.source(variable)
    for count in counts:
        for text in count.contradicting(parser.values(words, count.option)):
            reader.problem(count.contradiction(f"{source} has {count.option} {clipped(text)}"))
    _, program, _ = parser.read(words)
    if program is not None:
        reader.problem(
            f"{source} has the word {clipped(repr(program))}, which is no option: {launcher} would start it instead of the program: "
            f"remove it; {RANK_PREFIX.both} puts a command before each rank"
        )


def warn_of_meeting(reader: Reader, source: str, options: set[str], *names: str) -> None:
    """Warn of each option in `names` (for the rendezvous) that the user has set. source: setting that has the options."""
    for name in sorted(options.intersection(names)):
        reader.warn(f"{source} has its own {name}, which overrides the platform's: set the same value on every node")
