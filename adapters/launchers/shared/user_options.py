"""Options that a user's own words give to a launcher or to the program. Every parser has rules of its own. spell, a parameter, turns an
option's name, as it was written and without =VALUE, into its whole name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

Spell = Callable[[str], str]
UNKNOWN = "\0"  # among the words of a script: any number of words that are known only when the script runs
PIECE = "\1"  # in a word of a script: text that is known only then, and is no word of its own
HOSTNAME = "$(hostname)"  # in a word of a script: the name of the host that it runs on


def is_unknown(word: str) -> bool:
    """Return True if a part of a script's word is known only when the script runs."""
    return UNKNOWN in word or PIECE in word


def shown(word: str) -> str:
    """Return a script's word for messages."""
    return word.replace(UNKNOWN, "...").replace(PIECE, "...")


def with_underscores(name: str) -> str:
    """Spell as torchrun and accelerate: --node-rank is --node_rank, which every version knows, and -r3 is -r."""
    return "--" + name[2:].replace("-", "_") if name.startswith("--") else name[:2]


class Parser(NamedTuple):
    """Options of a launcher that reads them by Python's argparse.

    with_value: long options that take one value each; switches: options without one. short: long names by letters, such as -r.
    hyphens: --node-rank is --node_rank too.
    """

    with_value: tuple[str, ...]
    switches: tuple[str, ...]
    short: Mapping[str, str] = {}
    hyphens: bool = False

    def spelled(self, name: str) -> str:
        """Return the whole long name of an option, also for its beginning. A name that fits no option, or several, stays as it is:
        argparse refuses that one."""
        if not name.startswith("--"):
            return self.short.get(name[:2], name)
        name = with_underscores(name) if self.hyphens else name
        options = (*self.with_value, *self.switches)
        if name in options:
            return name
        meant = [option for option in options if option.startswith(name)]
        return meant[0] if len(meant) == 1 else name

    def following(self, name: str) -> int | None:
        """Return how many of the next words are an option's value: 0 or 1, None for an option that the table lacks."""
        whole = self.spelled(name)
        if whole in self.switches or (name[:2] in self.short and len(name) > len("-r")):  # -r3
            return 0
        return 1 if whole in self.with_value else None


def options(words: Iterable[str], spell: Spell = str) -> set[str]:
    """Return the names of all options, with a value or without."""
    return {spell(word.partition("=")[0]) for word in words if word.startswith("-")}


def values(words: Sequence[str], option: str, spell: Spell = str) -> list[str]:
    """Return each value of an option, --option=VALUE or --option VALUE; "" where nothing follows."""
    found = []
    for word, following in zip(words, (*words[1:], "")):
        name, equals, value = word.partition("=")
        if spell(name) == option:
            found.append(value if equals else following)
    return found


def is_told(words: Sequence[str], option: str, folder: str, spell: Spell = str) -> bool:
    """Return True if a launcher writes into this folder: by this option, or else by whatever a template of the user's starts with it."""
    given = values(words, option, spell)
    return given[-1] == folder if given else any(folder in (word, word.partition("=")[2]) for word in words)


def long(words: Iterable[str]) -> list[str]:
    """Return the words without short options: among a launcher's may be those of a tool around it, such as the -t of nsys."""
    return [word for word in words if word.startswith("--") or not word.startswith("-")]


def positional(words: Iterable[str], following: Callable[[str], int | None]) -> str | None:
    """Return the first word that a launcher takes for its program; None if there is none, as far as the words tell.

    following: how many of the next words belong to an option, None if unknown. What follows an unknown option up to the next option is
    let through: it may be the option's value. So is a program's name that begins with a dash.
    """
    known = True
    rest = iter(words)
    for word in rest:
        if word == "--":
            return next(rest, None)
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            takes = 0 if equals else following(name)
            known = takes is not None
            for _ in range(takes or 0):
                next(rest, "")
        elif known:
            return word
    return None


def before(argv: Sequence[str], program: str) -> Sequence[str]:
    """Return the words of a launcher's command before the program's path: its own, by a template of the user's too."""
    return argv[: argv.index(program)] if program in argv else argv


def first(words: Sequence[str], option: str, spell: Spell = str) -> str:
    """Return the first of an option's values, "" without the option."""
    return "".join(values(words, option, spell)[:1])
