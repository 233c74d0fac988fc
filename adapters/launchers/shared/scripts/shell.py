"""Simple commands of a shell script, in order, with parameters replaced by their values if these are known before the run.

    N=2; if test -e x; then exec torchrun --nnodes $N --master_port "$(port)" $(more); fi

has two commands: `test -e x`, and `exec torchrun --nnodes 2 --master_port PIECE UNKNOWN`. Both stand in a condition, so neither is
certain to run. If a condition, loop or function sets a variable, a command with it is yielded once for each value of the variable.

Limits:
- UNKNOWN (any number of words): $(...), backticks, ${NAME%x}, arguments after `shift` or `set -- ARGS`. PIECE (a part of one word): the
  same within quotes, $((...)), and variables of the shell itself ($RANDOM, $?). $(which X) and $(command -v X) are X; $(hostname) is
  HOSTNAME.
- Values set in a subshell also hold after the subshell. Only the last eight values of a variable count.
- A here-document without its last line is read as commands.
- "$*", and an array's name without an index, are all items. The default in ${NAME:-DEFAULT} is split into words, even in quotes.
- Ignored: empty words, brackets more than five deep.
- The text of an `eval` is read, but no `eval` within this text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ranklaunch.adapters.launchers.shared.user_options import HOSTNAME, PIECE, UNKNOWN

_NEXT = "\x1f"  # in a value: separator before the next item of an array, or before the next word of text that a shell splits
_MOST = 1_000_000  # characters of all expanded values together; later values are UNKNOWN
_MOST_DEPTH = 2  # levels of $(...) within $(...)
_MOST_VALUES = 8  # values of a variable that conditions set

_BLOCKS = ("if", "while", "until", "case", "{")
_OPENING = (*_BLOCKS, "for", "select")
_CLOSING = ("fi", "done", "esac", "}")
_BEFORE_COMMANDS = (*_BLOCKS, *_CLOSING, "then", "else", "elif", "do", "!")
_TESTS = ("[", "[[", "test")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_SETS_NAMES = ("read", "mapfile", "readarray", "getopts", "printf", "let", "unset", "for", "select")
_STATUS = re.compile(r"\$\{?(?:\?|PIPESTATUS)")
_CONDITIONS = ("if", "elif", "while", "until", "!")
_SET_BY_SHELL = re.compile(
    r"S?RANDOM|SECONDS|LINENO|PWD|OLDPWD|E?UID|PPID|SHLVL|OSTYPE|HOSTTYPE|MACHTYPE|BASH\w*|PIPESTATUS|FUNCNAME|IFS|OPT\w+|"
    r"REPLY|DIRSTACK|GROUPS|EPOCH\w+|_|[0?$!#-]"
)

# Quotes and brackets also match without their closing character: no text is matched twice, so no script takes long.
_PARENTHESES, _BRACES = r"\([^)]*\)?", r"\{[^}]*\}?"
for _ in range(4):
    _PARENTHESES = rf"""\((?:[^()'"\\]+|\\.|'[^']*'?|"(?:[^"\\]+|\\.)*"?|{_PARENTHESES})*\)?"""
    _BRACES = rf"\{{(?:[^{{}}\\]+|\\.|{_BRACES})*\}}?"
_WITHIN_QUOTES = rf"""(?:[^"\\$`]+|\\.|`[^`]*`?|\$(?:{_PARENTHESES}|{_BRACES})?)*"""
_WORD = rf"""(?:[^\s\\'"$`;&|()<>]+|\\.?|'[^']*'?|"{_WITHIN_QUOTES}"?|`[^`]*`?|\$(?:{_PARENTHESES}|{_BRACES})?)+"""
_ITEMS = rf"(?:(?<=[\s(])\#[^\n]*|\s+|[;&|(<>]|{_WORD})*"
_PATTERN = r"(?:(?:\s|\#[^\n]*\n)*\(?[^()\s#][^()\n]{0,500}\))?"  # pattern of a case
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
_NAMED = re.compile(r"(?:\$\(|`)\s*(?:which|command\s+-v|type\s+-p)\s+([\w./-]+)\s*(?:2>\s*/dev/null\s*)?[)`]", re.ASCII)
_OWN_NAME = re.compile(r"(?:\$\(|`)\s*(?:/bin/|/usr/bin/)?(?:hostname(?:\s+-[fsiIA]+)?|uname\s+-n)\s*(?:\|[^)`]*)?[)`]")
_ARITHMETIC = re.compile(r"\$\(\(.*\)\)", re.DOTALL)
_IN_BRACES = re.compile(r"\{(\w+|[@*])(?:\[[@*]\])?(?:(:?[-=])(.*))?\}", re.DOTALL)


class Command(NamedTuple):
    """Command of a script.

    reached: True outside of conditions, loops and functions. judged: the script reads its exit status: the command is a condition, && or
    || follows, or the next command tests, stores or returns the exit status. piped: the shell takes the exit status of another command of
    the same pipeline. background: & follows the command.
    """

    words: tuple[str, ...]
    reached: bool
    judged: bool = False
    piped: bool = False
    background: bool = False


def commands(text: str, env: Mapping[str, str] | None, args: Sequence[str] | None) -> Iterator[Command]:
    """Yield the commands of a script. env, args: environment and arguments at the start of the script; None if unknown."""
    return _Shell(env, args).commands(text)


def _without_documents(text: str) -> str:
    """Return the text without the lines of here-documents."""
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
    """Shell that expands parameters and runs nothing. In the value of an array, _NEXT stands before each item."""

    def __init__(self, env: Mapping[str, str] | None, args: Sequence[str] | None) -> None:
        every = _NEXT + _NEXT.join(args or ())
        self._args = None if args is None else {"@": every, "*": every, **{str(at): arg for at, arg in enumerate(args, 1)}}
        self._env = env
        self._assigned: dict[str, list[str | None]] = {}  # possible values of each variable, the newest last
        self._rest = _MOST  # characters that may still be expanded
        self._level = 0  # number of open conditions, loops and functions
        self._conditional = False  # the command runs only after a test (&&) or after a failure (||)
        self._in_eval = False
        self._nth = 0  # index of the current value of each variable, counted from the newest
        self._most = 1  # highest number of values of a variable in the command
        self._condition = False  # True between if, while or until and then or do
        self._pipeline: list[Command] = []  # the last pipeline, whose exit status the next command may read
        self._in_pipeline = False
        self._inner: list[str] = []  # texts of $(...) in the current command
        self._depth = 0

    def commands(self, text: str) -> Iterator[Command]:
        words: list[str] = []
        for token in _TOKEN.finditer(_without_documents(text.replace("\\\n", ""))):
            kind = token.lastgroup
            if kind in ("word", "case"):
                word = token[kind]
                if not words:
                    self._level = max(0, self._level + (word in _OPENING) - (word in _CLOSING))
                    self._condition = word in _CONDITIONS or (self._condition and word not in ("then", "do"))
                if words or word not in _BEFORE_COMMANDS:
                    words.append(word)
            elif kind == "operator":
                yield from self._end(words, token["operator"])
                words = []
        yield from self._end(words, "")
        yield from self._flush()

    def _end(self, words: list[str], operator: str) -> Iterator[Command]:
        """Yield the commands of the previous pipeline. Keep this command until the next one shows if the script reads its exit status."""
        if not words:
            return
        if not self._in_pipeline:
            yield from self._flush(judged=_reads_status(words))
        conditional, before = self._conditional, self._pipeline
        self._pipeline, self._inner = [], []
        commands = [*self._run(words, not (self._level or conditional))]
        for text in dict.fromkeys(self._inner):
            commands += self._commands_in(text)
        judged = self._condition or operator in ("&&", "||")
        self._pipeline = before + [
            each._replace(
                judged=each.judged or judged, piped=each.piped or operator == "|", background=each.background or operator == "&"
            )
            for each in commands
        ]  # fmt: skip
        self._in_pipeline = operator == "|"
        self._conditional = operator == "||" or (operator == "&&" and (conditional or words[0] in _TESTS))

    def _flush(self, *, judged: bool = False) -> Iterator[Command]:
        """Yield the commands of the last pipeline. judged: the script reads its exit status."""
        pipeline, self._pipeline = self._pipeline, []
        for command in pipeline:
            yield command._replace(judged=command.judged or judged)

    def _commands_in(self, text: str) -> list[Command]:
        """Return the commands of $(...)."""
        if self._depth >= _MOST_DEPTH:
            return []
        shell = _Shell(self._env, None)
        shell._args, shell._assigned, shell._rest = self._args, {**self._assigned}, self._rest
        shell._level, shell._conditional, shell._depth = self._level, self._conditional, self._depth + 1
        return [*shell.commands(text)]

    def _run(self, sources: list[str], reached: bool) -> Iterator[Command]:
        """Yield a command once for each value of its variables. Apply builtins and assignments to the state, without yielding them."""
        self._nth, self._most = 0, 1
        done: set[tuple[str, ...]] = set()
        command = list(itertools.dropwhile(_ASSIGNMENT.match, sources))
        if not command or command[0] in _DECLARES:
            for source in sources:
                self._assign(source, reached)
            return
        for words in self._variants(command):
            if words[:1] == ["eval"]:
                yield from self._eval(" ".join(words[1:]), reached)
            elif words and not self._apply(words) and tuple(words) not in done:
                done.add(tuple(words))
                yield Command(tuple(words), reached)

    def _apply(self, words: list[str]) -> bool:
        """Apply a builtin that changes variables or arguments. Return False for another command."""
        if words[0] in ("source", "."):
            self._forget()
        elif words[0] in _SETS_NAMES:
            self._assigned.update({each: [UNKNOWN] for each in words[1:] if each.isidentifier()})
        elif words[0] == "shift" or (words[0] == "set" and "--" in words):
            self._args = None
        else:
            return False
        return True

    def _variants(self, sources: list[str]) -> Iterator[list[str]]:
        """Yield the words of a command for each value of its variables, the newest first."""
        nth = 0
        most = 1
        while nth < most:
            self._nth, self._most = nth, 1
            words = self._words(sources)
            most = max(most, self._most)
            self._nth = 0
            yield words
            nth += 1

    def _eval(self, text: str, reached: bool) -> Iterator[Command]:
        text = text.replace(PIECE, UNKNOWN)
        if UNKNOWN in text or self._in_eval:
            self._forget()
        if not self._in_eval:
            self._in_eval = True
            self._level += not reached
            yield from self.commands(text)
            self._level -= not reached
            self._in_eval = False

    def _get(self, name: str) -> str | None:
        """Return the current value of a parameter, None if unset."""
        if name in self._assigned:
            values = self._assigned[name]
            self._most = max(self._most, len(values))
            value: str | None = values[max(0, len(values) - 1 - self._nth)]
        elif name == "HOSTNAME":
            value = HOSTNAME
        elif _SET_BY_SHELL.fullmatch(name):
            value = PIECE
        else:
            known = self._env if name.isidentifier() else self._args
            value = UNKNOWN if known is None else known.get(name)
        self._rest -= len(value or "")
        return value if self._rest > 0 else UNKNOWN

    def _assign(self, word: str, certain: bool) -> None:
        """Assign the value of NAME=VALUE, NAME+=VALUE or NAME=(ITEMS); do nothing for another word. certain: forget earlier values."""
        assignment = _ASSIGNMENT.match(word)
        if not assignment:
            return
        name, more, items, text = assignment.groups()
        if items is None:
            values: list[str | None] = [" ".join(words) for words in self._variants([text])]
        else:
            sources = [token[0] for token in _TOKEN.finditer(items) if token.lastgroup == "word"]
            values = [_NEXT + _NEXT.join(words) for words in self._variants(sources)]
        if more:
            before = self._values(name)
            values = [(before[max(0, len(before) - 1 - i)] or "") + (value or "") for i, value in enumerate(values)]
        values.reverse()  # the newest last
        known = values if certain else [*self._values(name), *values]
        self._assigned[name] = [*dict.fromkeys(known)][-_MOST_VALUES:]

    def _values(self, name: str) -> list[str | None]:
        """Return the possible values of a parameter, the newest last."""
        return self._assigned[name] if name in self._assigned else [self._get(name)]

    def _forget(self) -> None:
        """Mark every variable as unknown until its next assignment."""
        self._env, self._assigned = None, {}

    def _words(self, sources: Iterable[str]) -> list[str]:
        """Return the words after the shell's expansion and splitting, without empty words."""
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
                text += self._of_command(piece["unknown"]) if kind == "unknown" else piece[kind]
        return text.replace(UNKNOWN, PIECE) if quoted else text

    def _of_command(self, source: str) -> str:
        """Return the value of $(...), $((...)), `...` or $'...'; PIECE or UNKNOWN if it is not known before the run."""
        named = _NAMED.fullmatch(source)
        if named:
            return named[1]
        if _OWN_NAME.fullmatch(source):
            return HOSTNAME
        if source.startswith("$'") or _ARITHMETIC.fullmatch(source):
            return PIECE
        self._inner.append(source.removeprefix("$(").removesuffix(")").strip("`"))
        return UNKNOWN

    def _parameter(self, piece: re.Match[str], quoted: bool) -> str:
        parts = _IN_BRACES.fullmatch(piece["braces"] or f"{{{piece['name']}}}")
        if not parts:
            return UNKNOWN
        name, default, other = parts.groups()
        value = self._get(name)
        if default and (value is None or (":" in default and not value.strip(_NEXT))):
            value = self._expand(other).replace(_NEXT, " ").strip()
            if "=" in default:
                self._assigned[name] = [value]
        value = value or ""
        if not quoted and name in self._assigned:
            value = value.replace(PIECE, UNKNOWN)
        return value if quoted else re.sub(r"\s", _NEXT, value)


def _reads_status(words: Sequence[str]) -> bool:
    """Return True for a command that tests, stores or returns the exit status of the pipeline before it."""
    text = " ".join(words)
    return bool(_STATUS.search(text)) and (words[0] in (*_TESTS, "exit", "return", "case") or bool(_ASSIGNMENT.match(words[0])))
