"""Which plain texts a regular expression needs: to look for them first keeps most patterns from being searched in vain."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

_MOST_OF_A_GROUP = 64  # texts: with more, to look for them takes longer than they spare


@functools.cache
def needed(pattern: str) -> tuple[str, ...]:
    """Texts of which each match has one at least: for each alternative the longest that is plain to see, or those of a group in it, or the
    empty one."""
    return ("",) if _is_rare(pattern) else _alternatives(iter([*_TOKEN.findall(pattern), ")"]))


@functools.cache
def alternatives(pattern: str) -> tuple[str, ...]:
    """The patterns that stand beside each other in it, separated by |."""
    if _is_rare(pattern):
        return (pattern,)
    found, depth = [""], 0
    for token in _TOKEN.findall(pattern):
        depth += 1 if token[0] == "(" else -1 if token == ")" else 0
        found = [*found, ""] if token == "|" and not depth else [*found[:-1], found[-1] + token]
    return tuple(found)


def in_scope(pattern: str) -> str:
    """The same, with flags that it begins with for itself alone, so that it may stand beside others."""
    flags = re.match(r"\(\?([a-zA-Z]+)\)", pattern)
    if not flags:
        return pattern
    end = "\n)" if "x" in flags[1] else ")"  # which a comment would swallow
    return f"(?{flags[1]}:{pattern[flags.end() :]}{end}"


def counts_groups(pattern: str) -> bool:
    """Whether it refers to a group of its own by number."""
    return any(re.fullmatch(r"\\[1-9]", token) for token in _TOKEN.findall(pattern)) or "(?(" in pattern


def _is_rare(pattern: str) -> bool:
    """Whether there is something in it that is not looked into here: flags, numbers of characters and of groups, and other extensions."""
    tokens = _TOKEN.findall(pattern)
    extends = any(pair == ("(", "?") for pair in zip(tokens, tokens[1:]))
    return extends or any(re.match(r"\\[0-9xuUN]|\(\?[a-zA-Z]*x", token) for token in tokens)


def _alternatives(tokens: Iterator[str]) -> tuple[str, ...]:
    """Up to the end of the group that was opened last."""
    found: list[str] = []
    seen: list[tuple[str, ...]] = [("",)]  # what this alternative needs: the texts of each part of it
    run = ""
    for token in tokens:
        plain = _plain(token)
        if plain:
            run += plain
            continue
        if token[0] in "?*{" and run:  # what stands before it may be missing, or come once more
            run, seen = run[:-1], [*seen, (run[:-1],)]
            run = ""
            continue
        if token[0] in "?*" or token.startswith(("{0", "{,")):
            seen = seen[:-1] or [("",)]  # a group that may be missing
        seen.append((run,))
        run = ""
        if token.startswith("("):
            inner = _alternatives(tokens)
            seen.append(inner if token in ("(", "(?:") or token.startswith("(?P<") else ("",))
        elif token not in "|)":
            seen.append(("",))  # whatever comes once more or not at all is this
        else:
            best: tuple[str, ...] = max(seen, key=_worth)
            found += best
            seen = [("",)]
            if token == ")":
                break
    return tuple(dict.fromkeys(found)) if all(found) else ("",)


def _worth(texts: tuple[str, ...]) -> tuple[int, int]:
    """A long text is seldom there, and one is sooner looked for than many."""
    return (min(map(len, texts)), -len(texts)) if len(texts) <= _MOST_OF_A_GROUP else (0, 0)


def _plain(token: str) -> str:
    plain = token if len(token) == 1 or (token[0] == "\\" and not token[1].isalnum()) else ""
    return plain[-1:] if token not in _SPECIAL else ""


_TOKEN = re.compile(r"\(\?P<\w+>|\(\?[a-zA-Z]*:|\(\?<?[!=]|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|.", re.DOTALL)
_SPECIAL = frozenset("()^$.?*+|{")
