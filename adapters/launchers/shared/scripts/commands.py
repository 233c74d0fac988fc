"""The simple commands of a shell script, in their order, as POSIX shells and bash read them: comments, quotes and here-documents are told
from what runs. What is within $(...) or backticks is not looked at, and counts as unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ranklaunch.typed import Any, NamedTuple

_OPENING = ("if", "while", "until", "for", "case", "select", "{")
_CLOSING = ("fi", "done", "esac", "}")
_BETWEEN = ("then", "else", "elif", "do", "!", "function")  # before a command
_TESTS = ("[", "[[", "test")
_TAKE_WORDS = ("for", "case", "select")  # what follows is no command
_RUN = re.compile(r"[^\s\\'\"$`;&|()<>]+")
_IN_QUOTES = re.compile(r"[^\\\"$`]+")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_BRACES = re.compile(r"([A-Za-z_]\w*|[0-9]+|[@*])(\[[@*]\])?(?:(:?[-=])(.*))?", re.DOTALL)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|[<>][>|&]?")
_CLOSE = {"(": ")", "{": "}"}
_DEEPEST = 8  # of a parameter within another's default


class Piece(NamedTuple):
    """Of a word: text, or a parameter's value, or neither, of what is unknown. how, other: as in ${NAME:-OTHER}. items: of NAME=(ITEMS)."""

    text: str = ""
    name: str = ""
    how: str = ""
    other: tuple[Any, ...] = ()
    quoted: bool = False
    known: bool = True
    items: tuple[tuple[Any, ...], ...] | None = None


class Command(NamedTuple):
    """reached: in no condition, loop or function. certain: nor behind another one's success, in a pipeline or a subshell, so that what it
    assigns holds for those after it."""

    words: tuple[tuple[Piece, ...], ...]
    reached: bool
    certain: bool


def of(text: str) -> Iterator[Command]:
    return _Script(text.replace("\\\n", "")).commands()


class _Script:
    def __init__(self, text: str, deep: int = 0) -> None:
        self._text, self._at, self._deep = text, 0, deep
        self._documents: list[tuple[str, bool]] = []  # ends of here-documents that begin behind this line
        self._level = self._parentheses = 0
        self._in_pattern = False  # of a case
        self._chained = self._asked = False  # &&, || or | stands before; and it depends on what is there

    def commands(self) -> Iterator[Command]:
        words: list[tuple[Piece, ...]] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r":
                self._at += 1
            elif char == "#":
                self._skip_to("\n")
            elif char in "\n;&|()" and not self._text.startswith("&>", self._at):
                yield from self._ended(words, char)
                words = []
            elif char in "<>&":
                self._redirect(words)
            else:
                words.append(self.word())
        yield from self._ended(words, "")

    def _ended(self, words: list[tuple[Piece, ...]], by: str) -> Iterator[Command]:
        twice = by in ("&", "|", ";") and self._text.startswith(by * 2, self._at)
        pattern = self._is_pattern(words, by, twice)
        words = [] if pattern else self._without_keywords(words)
        if words:
            reached = not (self._level or self._asked)
            yield Command(tuple(words), reached, reached and not (self._parentheses or self._chained or by == "|"))
        if words:
            self._chained = by in ("&", "|") and (twice or by == "|")
            self._asked = self._chained and twice and (self._asked or by == "|" or _bare(words[0]) in _TESTS)
        self._parentheses = max(0, self._parentheses + {"(": 1, ")": -1}.get(by, 0))
        self._at += 2 if twice else 1
        if by == "\n":
            self._skip_documents()

    def _is_pattern(self, words: list[tuple[Piece, ...]], by: str, twice: bool) -> bool:
        """Whether words are a case's pattern, which goes on to its bracket; others follow behind ;;."""
        first = _bare(words[0]) if words else ""
        was = self._in_pattern and first != "esac"
        self._in_pattern = (was and by != ")") or (by == ";" and twice) or (first == "case" and by != ")")
        return was or (by == ")" and not self._parentheses and first != "case")

    def _without_keywords(self, words: list[tuple[Piece, ...]]) -> list[tuple[Piece, ...]]:
        first = 0
        while first < len(words):
            word = _bare(words[first])
            if word in _OPENING:
                self._level += 1
            elif word in _CLOSING:
                self._level = max(0, self._level - 1)
            elif word not in _BETWEEN:
                break
            if word in _TAKE_WORDS:
                break
            first += 2 if word == "function" else 1
        return words[first:]

    def word(self, ends: str = " \t\r\n;&|()<>") -> tuple[Piece, ...]:
        """ends: characters that end it, none where it is all of the text."""
        pieces: list[Piece] = []
        while self._at < len(self._text) and self._text[self._at] not in ends:
            char = self._text[self._at]
            if char == "\\":
                pieces.append(Piece(self._text[self._at + 1 : self._at + 2], quoted=True))
                self._at += 2
            elif char == "'":
                start = self._at + 1
                self._at = start
                self._skip_to("'")
                pieces.append(Piece(self._text[start : self._at], quoted=True))
                self._at += 1
            elif char == '"':
                pieces += self._in_quotes()
            elif char in "$`":
                pieces.append(self._parameter(False))
            else:
                pieces.append(self._plain())
        if self._text.startswith("(", self._at) and ends and _ARRAY.fullmatch(_bare(tuple(pieces))):
            pieces.append(Piece(items=self._array()))
        return tuple(pieces)

    def _plain(self) -> Piece:
        run = _RUN.match(self._text, self._at)
        text = run[0] if run else self._text[self._at]  # a separator within a default
        self._at += len(text)
        return Piece(text)

    def _in_quotes(self) -> list[Piece]:
        self._at += 1
        pieces = [Piece(quoted=True)]  # "" is a word too
        while self._at < len(self._text) and self._text[self._at] != '"':
            char = self._text[self._at]
            if char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                pieces.append(Piece(following if following in '$`"\\' else f"\\{following}", quoted=True))
                self._at += 2
            elif char in "$`":
                pieces.append(self._parameter(True))
            else:
                run = _IN_QUOTES.match(self._text, self._at)
                pieces.append(Piece(run[0] if run else "", quoted=True))
                self._at += len(run[0]) if run else 1
        self._at += 1
        return pieces

    def _parameter(self, quoted: bool) -> Piece:
        if self._text[self._at] == "`":
            self._at += 1
            self._skip_to("`")
            self._at += 1
            return Piece(known=False, quoted=quoted)
        self._at += 1
        following = self._text[self._at : self._at + 1]
        if following in ("(", "{"):
            within = self._balanced(following)
            return self._braces(within, quoted) if following == "{" else Piece(known=False, quoted=quoted)
        if following == "'" and not quoted:  # it has escapes of its own
            self._at += 1
            self._skip_to("'")
            self._at += 1
            return Piece(known=False, quoted=True)
        name = _NAME.match(self._text, self._at)
        self._at += len(name[0]) if name else 0
        return Piece(name=name[0], quoted=quoted) if name else Piece("$", quoted=quoted)

    def _braces(self, within: str, quoted: bool) -> Piece:
        found = _BRACES.fullmatch(within)
        if not found or self._deep >= _DEEPEST:
            return Piece(known=False, quoted=quoted)
        name, every, how, other = found.groups()
        words = _Script(other, self._deep + 1).word(ends="") if other else ()
        return Piece(name=f"{name}{every or ''}", how=how or "", other=words, quoted=quoted)

    def _balanced(self, opening: str) -> str:
        """What is between a bracket, at which it is, and the one that closes it, behind which it goes; "" where none does."""
        start, depth = self._at + 1, 0
        while self._at < len(self._text):
            char = self._text[self._at]
            depth += (char == opening) - (char == _CLOSE[opening])
            if not depth:
                break
            if char == "\\":
                self._at += 1
            elif char in "'\"" and opening == "(":
                self._at += 1
                self._skip_to(char)
            self._at += 1
        end, self._at = self._at, self._at + 1
        return self._text[start:end] if end < len(self._text) else ""

    def _array(self) -> tuple[tuple[Piece, ...], ...]:
        self._at += 1
        items: list[tuple[Piece, ...]] = []
        while self._at < len(self._text) and self._text[self._at] != ")":
            char = self._text[self._at]
            if char in " \t\r\n":
                self._at += 1
            elif char == "#":
                self._skip_to("\n")
            elif char in ";&|(<>":  # no array
                self._at += 1
                items.append((Piece(known=False),))
            else:
                items.append(self.word())
        self._at += 1
        return tuple(items)

    def _redirect(self, words: list[tuple[Piece, ...]]) -> None:
        if words and self._text[self._at - 1].isdigit() and _bare(words[-1]).isdigit():  # 2>
            words.pop()
        operator = _REDIRECTION.match(self._text, self._at)
        self._at += len(operator[0]) if operator else 1
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        if self._text.startswith("(", self._at):
            self._balanced("(")
            return
        target = self.word()
        if operator and operator[0] in ("<<", "<<-"):
            self._documents.append(("".join(piece.text for piece in target), operator[0] == "<<-"))

    def _skip_documents(self) -> None:
        for end, stripped in self._documents:
            while self._at < len(self._text):
                line = self._line()
                self._at += len(line) + 1
                if (line.lstrip("\t") if stripped else line) == end:
                    break
        self._documents.clear()

    def _line(self) -> str:
        end = self._text.find("\n", self._at)
        return self._text[self._at : end if end >= 0 else len(self._text)]

    def _skip_to(self, char: str) -> None:
        end = self._text.find(char, self._at)
        self._at = end if end >= 0 else len(self._text)


def _bare(word: tuple[Piece, ...]) -> str:
    """A word's text where nothing of it is quoted or unknown, else ""."""
    return "".join(piece.text for piece in word) if all(piece.text and not piece.quoted for piece in word) else ""
