"""What the commands of a script are told, as far as that is known before it runs: words with the values of the environment, of its
arguments and of its own assignments in the place of their names. What depends on a condition, or on what a command writes, is not
guessed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from ranklaunch.adapters.launchers.shared.scripts import commands
from ranklaunch.adapters.launchers.shared.scripts.commands import Piece
from ranklaunch.errors import number
from ranklaunch.typed import NamedTuple

UNKNOWN = "\0"  # in a word, in the place of what is not known
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_READS = ("read", "mapfile", "readarray", "getopts", "printf", "let")  # into names that are among their words
_BY_SHELL = re.compile(
    r"S?RANDOM|SECONDS|LINENO|HOSTNAME|PWD|OLDPWD|E?UID|PPID|SHLVL|OSTYPE|HOSTTYPE|MACHTYPE|BASH\w*|PIPESTATUS|FUNCNAME|IFS|OPT\w+|"
    r"REPLY|DIRSTACK|GROUPS|EPOCH\w+|_|[0?$!#-]"
)
_MOST = 65536  # characters and words of one command
_MOST_IN_ALL = 1_000_000  # of the values that are put into words, after which none is known
_DEEPEST = 3  # of evals


class Line(NamedTuple):
    """A command as it is started. reached: as of a Command."""

    words: tuple[str, ...]
    reached: bool


def lines(text: str, env: Mapping[str, str] | None, args: Sequence[str] = ()) -> Iterator[Line]:
    """env: None where it is not known, as the arguments are not then."""
    yield from _Shell(env, None if env is None else tuple(args)).lines(text)


class _Shell:
    def __init__(self, env: Mapping[str, str] | None, args: tuple[str, ...] | None) -> None:
        self._env, self._args = env, args
        self._values: dict[str, tuple[str, ...]] = {}  # of what is assigned: of an array its items
        self._evals = 0
        self._left = _MOST_IN_ALL

    def lines(self, text: str) -> Iterator[Line]:
        for command in commands.of(text):
            assigned = list(itertools.takewhile(_is_assignment, command.words))
            words = list(command.words[len(assigned) :])
            if not words:
                self._assign(assigned, command.certain)
                continue
            told = self._told(words)
            if told[:1] == ("eval",):
                yield from self._eval(" ".join(told[1:]), command.reached)
            elif not self._does(words, told, command.certain) and told:
                yield Line(told, command.reached)

    def _does(self, words: list[tuple[Piece, ...]], told: tuple[str, ...], certain: bool) -> bool:
        """Whether it is one of the shell's own that change what is known."""
        name = told[0] if told else ""
        if name in ("source", "."):
            self._forget()
        elif name in _DECLARES:
            self._assign([word for word in words[1:] if _ASSIGNMENT.match(_beginning(word))], certain and name != "local")
        elif name in (*_READS, "unset", "for", "select"):
            self._values.update({word: (UNKNOWN,) for word in told[1:] if word.isidentifier()})
        elif name == "shift":
            by = number(told[1]) if len(told) > 1 else 1
            known = certain and self._args is not None and by is not None
            self._args = (self._args or ())[by:] if known else None
        elif name == "set":
            self._args = self._args if all((word[:1] in ("-", "+") and word != "--") or word == "pipefail" for word in told[1:]) else None
        else:
            return False
        return True

    def _eval(self, text: str, reached: bool) -> Iterator[Line]:
        if UNKNOWN in text or self._evals >= _DEEPEST:
            self._forget()
        self._evals += 1
        if self._evals <= _DEEPEST:
            yield from (line._replace(reached=line.reached and reached) for line in self.lines(text.replace(UNKNOWN, "`")))
        self._evals -= 1

    def _forget(self) -> None:
        """All but what is assigned from here on."""
        self._env, self._values = None, {}

    def _assign(self, assignments: list[tuple[Piece, ...]], certain: bool) -> None:
        for word in assignments:
            found = _ASSIGNMENT.match(_beginning(word))
            if not found:
                continue
            name, more = found.groups()
            first = word[0]._replace(text=word[0].text[found.end() :])
            items = word[1].items if len(word) > 1 else None
            value = self._told(items) if items is not None else (self._text((first, *word[1:])),)
            if more:
                before = self._spent(self._value(name))
                value = (*before, *value)[:_MOST] if items is not None else ("".join((*before[:1], *value))[:_MOST],)
            self._values[name] = value if certain or self._value(name) == value else (UNKNOWN,)

    def _value(self, name: str) -> tuple[str, ...]:
        """() where it is known to be not set."""
        if self._left <= 0:
            return (UNKNOWN,)
        if name in ("@", "*"):
            return (UNKNOWN,) if self._args is None else self._args
        place = number(name)
        if place:
            return (UNKNOWN,) if self._args is None else self._args[place - 1 : place]
        if name in self._values:
            return self._values[name]
        if self._env is None or _BY_SHELL.fullmatch(name):
            return (UNKNOWN,)
        return (self._env[name],) if name in self._env else ()

    def _of(self, piece: Piece) -> tuple[str, ...]:
        """Its values: several of an array, or of all arguments."""
        if not piece.known:
            return (UNKNOWN,)
        if not piece.name:
            return (piece.text,)
        name, every, _ = piece.name.partition("[")
        values = self._value(name)
        values = values if every or name in ("@", "*") else values[:1]
        if self._lacks(piece, values):
            values = (self._text(piece.other),)
            if piece.how.endswith("="):
                self._values[name] = values
        return self._spent(values)

    def _spent(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """A script may make much of little: of a value that is put into itself, again and again."""
        self._left -= len(values) + sum(map(len, values))
        return values

    def _lacks(self, piece: Piece, values: tuple[str, ...]) -> bool:
        return bool(piece.how) and not (any(values) or (values and ":" not in piece.how))

    def _text(self, word: Sequence[Piece]) -> str:
        """Of a word that is not split."""
        return "".join(" ".join(self._of(piece)) for piece in word)[:_MOST]

    def _told(self, words: Sequence[tuple[Piece, ...]]) -> tuple[str, ...]:
        return tuple([text for word in words for text in self._split(word)][:_MOST])

    def _split(self, word: tuple[Piece, ...]) -> list[str]:
        """The words that a shell makes of one."""
        made: list[str] = []
        open_ = False  # what comes next is of the last word
        for piece in word:
            if self._lacks(piece, self._value(piece.name.partition("[")[0])) and any(part.quoted for part in piece.other):
                piece = piece._replace(quoted=True)
            values = self._of(piece)
            if piece.quoted and "*" in piece.name:
                values = (" ".join(values),)
            for i, value in enumerate(values):
                parts = [value] if piece.quoted or not piece.name else value.split()
                if not parts:
                    continue
                if open_ and not i and not (piece.name and not piece.quoted and value[:1].isspace()):
                    made[-1] += parts.pop(0)
                made += parts
                open_ = not (piece.name and not piece.quoted and value[-1:].isspace())
        return made


def _is_assignment(word: tuple[Piece, ...]) -> bool:
    return bool(_ASSIGNMENT.match(_beginning(word)))


def _beginning(word: tuple[Piece, ...]) -> str:
    return word[0].text if word and not word[0].quoted else ""
