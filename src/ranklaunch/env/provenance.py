"""Where the values of a plan come from: what was offered for each, which of it won, and what that overrode."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from ranklaunch.showing import shown


@dataclass(frozen=True)
class Candidate:
    """A text that was offered for a value: by "option --x", by a variable's name, by a file's path or by "default"."""

    source: str
    value: str

    @property
    def on_command_line(self) -> bool:
        return self.source.startswith("option ")

    @property
    def by_user(self) -> bool:
        """By an option or a variable of ranklaunch's own, rather than the platform's."""
        return self.source.startswith(("option ", "RANKLAUNCH_"))

    @property
    def quoted(self) -> str:
        """For messages, without secrets: "VC_TASK_INDEX='3'"."""
        return f"{self.source}={shown(self.source, self.value)!r}"


@dataclass(frozen=True)
class Reading:
    """How one value was found: the text that won, where it stood, and what it overrode. Secrets are hidden, long texts clipped."""

    name: str
    value: str
    source: str
    overrides: tuple[Candidate, ...] = ()


@functools.lru_cache(maxsize=1024)  # the plans of a job's nodes have most of them in common
def _reading(name: str, value: str, source: str, overrides: tuple[Candidate, ...]) -> Reading:
    return Reading(name, value, source, overrides)


class Ledger:
    """The readings of one plan, in the order in which their names first came up; the last of a name counts."""

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}

    def note(self, name: str, value: str, source: str, overrides: Iterable[Candidate] = ()) -> None:
        """source: a Candidate's, or in words, for what follows from several variables or from none."""
        hidden = tuple(Candidate(each.source, shown(each.source, each.value)) for each in overrides)
        self._readings[name] = _reading(name, shown(source, value), source, hidden)

    def reading(self, name: str) -> Reading | None:
        return self._readings.get(name)

    @property
    def readings(self) -> tuple[Reading, ...]:
        return tuple(self._readings.values())
