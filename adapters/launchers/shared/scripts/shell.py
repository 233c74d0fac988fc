"""Simple commands of a shell script, in order, with the values of parameters that are known before the script runs.

    N=2; if test -e x; then exec torchrun --nnodes $N $(more); fi

has two commands: `test -e x`, and `exec torchrun --nnodes 2 UNKNOWN`. Both stand in a condition, so neither is reached for sure.

Limits:
- UNKNOWN: $(...), backticks, ${NAME%x}, arguments after `shift` or `set -- ARGS`, and a variable that is set in a condition, a loop or a
  function. What a subshell sets holds behind it too.
- A here-document without its last line is read as commands.
- "$*" and an array's name alone are all of its items. The default in ${NAME:-DEFAULT} is divided into words, even where it is quoted.
- Not seen: commands within $(...), empty words, brackets more than five deep.
- The text of an `eval` is read, but no `eval` within that text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ranklaunch.adapters.launchers.shared.words import UNKNOWN
from ranklaunch.typed import NamedTuple

_NEXT = "\x1f"  # in a value: begins the next item of an array, or the next word of text that a shell splits
_MOST = 1_000_000  # characters of all values that are put into words; later ones are UNKNOWN

_BLOCKS = ("if", "while", "until", "case", "{")
_OPENING = (*_BLOCKS, "for", "select")
_CLOSING = ("fi", "done", "esac", "}")
_BEFORE_COMMANDS = (*_BLOCKS, *_CLOSING, "then", "else", "elif", "do", "!")
_TESTS = ("[", "[[", "test")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_SETS_NAMES = ("read", "mapfile", "readarray", "getopts", "printf", "let", "unset", "for", "select")
_SET_BY_SHELL = re.compile(
    r"S?RANDOM|SECONDS|LINENO|HOSTNAME|PWD|OLDPWD|E?UID|PPID|SHLVL|OSTYPE|HOSTTYPE|MACHTYPE|BASH\w*|PIPESTATUS|FUNCNAME|IFS|OPT\w+|"
    r"REPLY|DIRSTACK|GROUPS|EPOCH\w+|_|[0?$!#-]"
)

# Quotes and brackets match also where what closes them is missing: nothing is tried twice, so that no text takes long.
_PARENTHESES, _BRACES = r"\([^)]*\)?", r"\{[^}]*\}?"
for _ in range(4):
    _PARENTHESES = rf"""\((?:[^()'"\\]+|\\.|'[^']*'?|"(?:[^"\\]+|\\.)*"?|{_PARENTHESES})*\)?"""
    _BRACES = rf"\{{(?:[^{{}}\\]+|\\.|{_BRACES})*\}}?"
_WITHIN_QUOTES = rf"""(?:[^"\\$`]+|\\.|`[^`]*`?|\$(?:{_PARENTHESES}|{_BRACES})?)*"""
_WORD = rf"""(?:[^\s\\'"$`;&|()<>]+|\\.?|'[^']*'?|"{_WITHIN_QUOTES}"?|`[^`]*`?|\$(?:{_PARENTHESES}|{_BRACES})?)+"""
_ITEMS = rf"(?:(?<=[\s(])\#[^\n]*|\s+|[;&|(<>]|{_WORD})*"
_PATTERN = r"(?:(?:\s|\#[^\n]*\n)*\(?[^()\s#][^()\n]{0,500}\))?"  # of a case
_TOKEN = re.compile(
    rf"""
  (?P<skipped> [^\S\n]+ | (?<![^\s;&|()])\#[^\n]*
    | (?<![^\s;&|()])function[ \t]+[^\s;&|()<>]+ | [\w.:-]+[ \t]*\([ \t]*\)             # names of functions
    | [<>]{_PARENTHESES} | [0-9]*(?:&>>?|<<[<-]?|>[>|&]?|<[>&]?)[ \t]*(?:{_WORD})? )   # redirections
| (?P<case> (?<![^\s;&|()])case)[ \t][^\n]{{1,200}}?[ \t]in(?=\s){_PATTERN}
| (?P<operator> \n | ;[;&]+ | && | \|\| | [;&|()] ) (?:(?<=;[;&]){_PATTERN})?
| (?P<word> [A-Za-z_]\w*\+?=\({_ITEMS}\)? | {_WORD} )
""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_DOCUMENT = re.compile(r"""(?<!<)<<-?[ \t]*['"\\]?([^\s'"\\;&|()<>]+)""")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(?:\((.*?)\)?$|(.*))", re.DOTALL)

_EXPANSION = rf"\$(?P<name>[A-Za-z_]\w*|[0-9@*#?$!-])|\$(?P<braces>{_BRACES})|(?P<unknown>`[^`]*`?|\${_PARENTHESES}|\$'[^']*'?)"
_PIECE = re.compile(
    rf"""{_EXPANSION}|'(?P<single>[^']*)'?|"(?P<double>{_WITHIN_QUOTES})"?|\\(?P<escaped>.?)|(?P<text>[^\\'"$`]+|.)""",
    re.DOTALL,
)
_PIECE_IN_QUOTES = re.compile(rf"""{_EXPANSION}|\\(?P<escaped>[$`"\\])|(?P<text>[^\\$`]+|.)""", re.DOTALL)
_IN_BRACES = re.compile(r"\{(\w+|[@*])(?:\[[@*]\])?(?:(:?[-=])(.*))?\}", re.DOTALL)


class Command(NamedTuple):
    """reached: in no condition, loop or function."""

    words: tuple[str, ...]
    reached: bool


def commands(text: str, env: Mapping[str, str] | None, args: Sequence[str] | None) -> Iterator[Command]:
    """Read a script. env, args: environment and arguments when it starts; None if unknown."""
    return _Shell(env, args).commands(text)


def _without_documents(text: str) -> str:
    """Remove the lines of here-documents."""
    lines = [line.lstrip("\t") for line in text.split("\n")]
    whole_lines = set(lines)
    kept: list[str] = []
    ends: list[str] = []
    for line in lines:
        if ends:
            if line == ends[0]:
                ends.pop(0)
        else:
            kept.append(line)
            ends = [end for end in _DOCUMENT.findall(line) if end in whole_lines]
    return "\n".join(kept)


class _Shell:
    """A shell that knows values of parameters, and runs nothing. In an array, _NEXT stands before each item."""

    def __init__(self, env: Mapping[str, str] | None, args: Sequence[str] | None) -> None:
        every = _NEXT + _NEXT.join(args or ())
        self._args = None if args is None else {"@": every, "*": every, **{str(at): arg for at, arg in enumerate(args, 1)}}
        self._env = env
        self._assigned: dict[str, str] = {}
        self._rest = _MOST
        self._level = 0  # conditions, loops and functions that are open
        self._asked = False  # the command depends on a test or on a failure before && or ||
        self._in_eval = False

    def commands(self, text: str) -> Iterator[Command]:
        words: list[str] = []
        for token in _TOKEN.finditer(_without_documents(text.replace("\\\n", ""))):
            kind = token.lastgroup
            if kind in ("word", "case"):
                word = token[kind]
                if not words:
                    self._level = max(0, self._level + (word in _OPENING) - (word in _CLOSING))
                if words or word not in _BEFORE_COMMANDS:
                    words.append(word)
            elif kind == "operator":
                yield from self._end(words, token["operator"])
                words = []
        yield from self._end(words, "")

    def _end(self, words: list[str], operator: str) -> Iterator[Command]:
        if words:
            asked = self._asked
            yield from self._run(words, not (self._level or asked))
            self._asked = operator == "||" or (operator == "&&" and (asked or words[0] in _TESTS))

    def _run(self, sources: list[str], reached: bool) -> Iterator[Command]:
        """Yield a command, or take in what one of the shell's own changes."""
        command = list(itertools.dropwhile(_ASSIGNMENT.match, sources))
        if not command or command[0] in _DECLARES:
            for source in sources:
                self._assign(source, reached)
            return
        words = self._words(command)
        name = words[0] if words else ""
        if name == "eval":
            yield from self._eval(" ".join(words[1:]), reached)
        elif name in ("source", "."):
            self._forget()
        elif name in _SETS_NAMES:
            self._assigned.update(dict.fromkeys(filter(str.isidentifier, words[1:]), UNKNOWN))
        elif name == "shift" or (name == "set" and "--" in words):
            self._args = None
        elif words:
            yield Command(tuple(words), reached)

    def _eval(self, text: str, reached: bool) -> Iterator[Command]:
        if UNKNOWN in text or self._in_eval:
            self._forget()
        if not self._in_eval:
            self._in_eval = True
            self._level += not reached
            yield from self.commands(text)
            self._level -= not reached
            self._in_eval = False

    def _get(self, name: str) -> str | None:
        """Return a value, None for a parameter that is not set."""
        if name in self._assigned:
            value: str | None = self._assigned[name]
        elif _SET_BY_SHELL.fullmatch(name):
            value = UNKNOWN
        else:
            known = self._env if name.isidentifier() else self._args
            value = UNKNOWN if known is None else known.get(name)
        self._rest -= len(value or "")
        return value if self._rest > 0 else UNKNOWN

    def _assign(self, word: str, certain: bool) -> None:
        """Assign the value of NAME=VALUE, NAME+=VALUE or NAME=(ITEMS); do nothing for another word."""
        assignment = _ASSIGNMENT.match(word)
        if not assignment:
            return
        name, more, items, text = assignment.groups()
        if items is None:
            value = " ".join(self._words([text]))
        else:
            value = _NEXT + _NEXT.join(self._words(token[0] for token in _TOKEN.finditer(items) if token.lastgroup == "word"))
        if more:
            value = (self._get(name) or "") + value
        self._assigned[name] = value if certain else UNKNOWN

    def _forget(self) -> None:
        """Take each variable as unknown until it is assigned again."""
        self._env, self._assigned = None, {}

    def _words(self, sources: Iterable[str]) -> list[str]:
        """Return the words that a shell makes of those in its source, without empty ones."""
        return list(filter(None, _NEXT.join(map(self._expand, sources)).split(_NEXT)))

    def _expand(self, source: str, quoted: bool = False) -> str:
        text = ""
        for piece in (_PIECE_IN_QUOTES if quoted else _PIECE).finditer(source):
            kind = piece.lastgroup or ""
            if kind in ("name", "braces"):
                text += self._parameter(piece, quoted)
            elif kind == "double":
                text += self._expand(piece["double"], True)
            else:
                text += UNKNOWN if kind == "unknown" else piece[kind]
        return text

    def _parameter(self, piece: re.Match[str], quoted: bool) -> str:
        parts = _IN_BRACES.fullmatch(piece["braces"] or f"{{{piece['name']}}}")
        if not parts:
            return UNKNOWN
        name, default, other = parts.groups()
        value = self._get(name)
        if default and (value is None or (":" in default and not value.strip(_NEXT))):
            value = self._expand(other).replace(_NEXT, " ").strip()
            if "=" in default:
                self._assigned[name] = value
        value = value or ""
        return value if quoted else re.sub(r"\s", _NEXT, value)
