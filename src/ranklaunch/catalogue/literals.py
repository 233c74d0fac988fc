"""Plain texts in regular expressions. A search for these texts first makes most searches for the expression unnecessary."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

_MOST_OF_A_GROUP = 64  # texts of a group: a search for more of them takes longer than it saves


@functools.cache
def needed(pattern: str) -> tuple[str, ...]:
    """Return texts such that each match contains at least one of them. Each alternative gives its longest plain text, the texts of a group,
    or ""."""
    return ("",) if _is_rare(pattern) else _alternatives(iter([*_TOKEN.findall(pattern), ")"]))


def in_scope(pattern: str) -> str:
    """Return a pattern with its leading flags in a group of its own, for joining with other patterns."""
    flags = re.match(r"\(\?([a-zA-Z]+)\)", pattern)
    if not flags:
        return pattern
    end = "\n)" if "x" in flags[1] else ")"  # a comment at the end would hide the bracket
    return f"(?{flags[1]}:{pattern[flags.end() :]}{end}"


def counts_groups(pattern: str) -> bool:
    """Return True if a pattern refers to one of its groups by number."""
    return any(re.fullmatch(r"\\[1-9]", token) for token in _TOKEN.findall(pattern)) or "(?(" in pattern


def _is_rare(pattern: str) -> bool:
    """Return True for syntax that is not parsed here: flags, numbers of characters and of groups, and other extensions."""
    tokens = _TOKEN.findall(pattern)
    extends = any(pair == ("(", "?") for pair in zip(tokens, tokens[1:]))
    return extends or any(re.match(r"\\[0-9xuUN]|\(\?[a-zA-Z]*x", token) for token in tokens)


def _alternatives(tokens: Iterator[str]) -> tuple[str, ...]:
    """Return the needed texts up to the end of the innermost open group."""
    texts: list[str] = []
    parts: list[tuple[str, ...]] = [("",)]  # texts of each part of the present alternative
    run = ""
    for token in tokens:
        plain = _plain(token)
        if plain:
            run += plain
            continue
        if token[0] in "?*{" and run:  # the character before may be missing or repeated
            run, parts = run[:-1], [*parts, (run[:-1],)]
            run = ""
            continue
        if token[0] in "?*" or token.startswith(("{0", "{,")):
            parts = parts[:-1] or [("",)]  # the group before may be missing
        parts.append((run,))
        run = ""
        if token.startswith("("):
            inner = _alternatives(tokens)
            parts.append(inner if token in ("(", "(?:") or token.startswith("(?P<") else ("",))
        elif token not in "|)":
            parts.append(("",))  # a following quantifier applies to this part
        else:
            best: tuple[str, ...] = max(parts, key=_worth)
            texts += best
            parts = [("",)]
            if token == ")":
                break
    return tuple(dict.fromkeys(texts)) if all(texts) else ("",)


def _worth(texts: tuple[str, ...]) -> tuple[int, int]:
    """Return the worth of texts for a search: long texts are rare, and few texts are quick."""
    return (min(map(len, texts)), -len(texts)) if len(texts) <= _MOST_OF_A_GROUP else (0, 0)


def _plain(token: str) -> str:
    plain = token if len(token) == 1 or (token[0] == "\\" and not token[1].isalnum()) else ""
    return plain[-1:] if token not in _SPECIAL else ""


_TOKEN = re.compile(r"\(\?P<\w+>|\(\?[a-zA-Z]*:|\(\?<?[!=]|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|.", re.DOTALL)
_SPECIAL = frozenset("()^$.?*+|{")
