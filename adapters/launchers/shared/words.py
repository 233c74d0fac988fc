"""Which options a user's own words give to a launcher or to the program. Every parser has rules of its own; those that differ are
parameters here: spell turns an option's name, as it was written and without =VALUE, into the one that it is asked for by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ranklaunch.typed import NamedTuple

UNKNOWN = "\0"  # in a word of a script: text that is known only when the script runs


def as_written(name: str) -> str:
    return name


def with_underscores(name: str) -> str:
    """Of torchrun and accelerate: --node-rank is --node_rank, which every version knows, and -r3 is -r."""
    return "--" + name[2:].replace("-", "_") if name.startswith("--") else name[:2]


class Parser(NamedTuple):
    """Options of a launcher that reads them by Python's argparse. with_value: long options that take one value each; switches: that take
    none. short: long names by letters, such as -r. hyphens: --node-rank is --node_rank too. abbreviates: the beginning of a name is the
    name, where no other option begins so."""

    with_value: tuple[str, ...]
    switches: tuple[str, ...]
    short: Mapping[str, str] = {}
    hyphens: bool = False
    abbreviates: bool = True

    def spelled(self, name: str) -> str:
        """Return the whole long name of an option. A name that fits no option, or several, stays: argparse refuses that one."""
        if not name.startswith("--"):
            return self.short.get(name[:2], name)
        name = with_underscores(name) if self.hyphens else name
        if not self.abbreviates or name in self.with_value or name in self.switches:
            return name
        meant = [option for option in (*self.with_value, *self.switches) if option.startswith(name)]
        return meant[0] if len(meant) == 1 else name

    def following(self, name: str) -> int | None:
        """Return how many of the next words are an option's value: 0 or 1, None for an option that the table lacks."""
        whole = self.spelled(name)
        if not name.startswith("--") and len(name) > len("-r") and whole != name:
            return 0  # -r3
        return 1 if whole in self.with_value else 0 if whole in self.switches else None


def options(words: Iterable[str], spell: Callable[[str], str] = as_written) -> set[str]:
    """The names of all of them, whether they have a value or not."""
    return {spell(word.partition("=")[0]) for word in words if word.startswith("-")}


def values(words: Sequence[str], option: str, spell: Callable[[str], str] = as_written) -> list[str]:
    """What an option is given, each time: --option=VALUE or --option VALUE; "" where nothing follows."""
    pairs = ((word.partition("="), "".join(words[i + 1 : i + 2])) for i, word in enumerate(words))
    return [value if equals else following for (name, equals, value), following in pairs if spell(name) == option]


def is_told(told: Sequence[str], option: str, folder: str, spell: Callable[[str], str] = as_written) -> bool:
    """Whether a launcher writes into this folder: by this option, or without it by whatever a template of the user's starts with it."""
    given = values(told, option, spell)
    return given[-1] == folder if given else any(folder in (word, word.partition("=")[2]) for word in told)


def long(words: Iterable[str]) -> list[str]:
    """Without short options: among a launcher's may be those of a tool before or behind it, such as the -t of nsys."""
    return [word for word in words if word.startswith("--") or not word.startswith("-")]


def positional(words: Sequence[str], following: Callable[[str], int | None]) -> str | None:
    """Return the first word that a launcher takes for its program; None if there is none, as far as the words tell.

    following: how many of the next words belong to an option, None if unknown. What follows an unknown option up to the next option is
    let through: it may be the option's value.
    """
    at, known = 0, True
    while at < len(words):
        word = words[at]
        name, equals, _ = word.partition("=")
        at += 1
        if word == "--":
            return words[at] if at < len(words) else None
        takes = following(name) if word[:1] == "-" else None
        if takes is None and not _looks_like_option(word):
            if known:
                return word
            continue
        known = takes is not None or bool(equals)
        at += 0 if equals else takes or 0
    return None


def _looks_like_option(word: str) -> bool:
    """Return True for a word that argparse takes for an option that it does not know."""
    return len(word) > 1 and word[0] == "-" and " " not in word.partition("=")[0] and not _NEGATIVE.fullmatch(word)


_NEGATIVE = re.compile(r"-[0-9]+|-[0-9]*\.[0-9]+")


def before(argv: Sequence[str], program: str) -> Sequence[str]:
    """What a launcher is told itself, by a template too: the words of its command before the program's path."""
    return argv[: argv.index(program)] if program in argv else argv


def whole(name: str, option: str) -> str:
    """argparse takes the beginning of an option's name for the name. One that is too short for that is refused by it."""
    return option if len(name) > len("--n") and option.startswith(name) else name


def first(words: Sequence[str], option: str, spell: Callable[[str], str] = as_written) -> str:
    """The first of its values, "" where the option is not given."""
    return next(iter(values(words, option, spell)), "")


def abbreviated(words: Iterable[str], legal: Sequence[str]) -> tuple[str, ...]:
    """Which of the legal options are given, for a parser that takes the beginning of a name for the name."""
    beginnings = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
    return tuple(option for option in legal if option.startswith(tuple(beginnings)))
