"""Which plain texts a regular expression needs: to look for them first keeps most patterns from being searched in vain."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

_MOST_OF_A_GROUP = 64  # texts: with more, to look for them takes longer than they spare


@functools.cache
def needed(pattern: str) -> tuple[str, ...]:
    """Return texts, at least one of them in each match: of each alternative the longest plain text, or the texts of its group, or ""."""
    return ("",) if _is_rare(pattern) else _alternatives(iter([*_TOKEN.findall(pattern), ")"]))


def in_scope(pattern: str) -> str:
    """Return the pattern with its leading flags limited to itself, so other patterns may stand beside it."""
    flags = re.match(r"\(\?([a-zA-Z]+)\)", pattern)
    if not flags:
        return pattern
    end = "\n)" if "x" in flags[1] else ")"  # which a comment would swallow
    return f"(?{flags[1]}:{pattern[flags.end() :]}{end}"


def counts_groups(pattern: str) -> bool:
    """Return True if the pattern refers to one of its groups by number."""
    return any(re.fullmatch(r"\\[1-9]", token) for token in _TOKEN.findall(pattern)) or "(?(" in pattern


def _is_rare(pattern: str) -> bool:
    """Return True for what is not parsed here: flags, numbers of characters and of groups, and other extensions."""
    tokens = _TOKEN.findall(pattern)
    extends = any(pair == ("(", "?") for pair in zip(tokens, tokens[1:]))
    return extends or any(re.match(r"\\[0-9xuUN]|\(\?[a-zA-Z]*x", token) for token in tokens)


def _alternatives(tokens: Iterator[str]) -> tuple[str, ...]:
    """Return the needed texts up to the end of the group that was opened last."""
    texts: list[str] = []
    parts: list[tuple[str, ...]] = [("",)]  # of this alternative, the texts of each part
    run = ""
    for token in tokens:
        plain = _plain(token)
        if plain:
            run += plain
            continue
        if token[0] in "?*{" and run:  # what stands before it may be missing, or come once more
            run, parts = run[:-1], [*parts, (run[:-1],)]
            run = ""
            continue
        if token[0] in "?*" or token.startswith(("{0", "{,")):
            parts = parts[:-1] or [("",)]  # a group that may be missing
        parts.append((run,))
        run = ""
        if token.startswith("("):
            inner = _alternatives(tokens)
            parts.append(inner if token in ("(", "(?:") or token.startswith("(?P<") else ("",))
        elif token not in "|)":
            parts.append(("",))  # whatever comes once more or not at all is this
        else:
            best: tuple[str, ...] = max(parts, key=_worth)
            texts += best
            parts = [("",)]
            if token == ")":
                break
    return tuple(dict.fromkeys(texts)) if all(texts) else ("",)


def _worth(texts: tuple[str, ...]) -> tuple[int, int]:
    """Prefer long texts, which are rare, and few of them."""
    return (min(map(len, texts)), -len(texts)) if len(texts) <= _MOST_OF_A_GROUP else (0, 0)


def _plain(token: str) -> str:
    plain = token if len(token) == 1 or (token[0] == "\\" and not token[1].isalnum()) else ""
    return plain[-1:] if token not in _SPECIAL else ""


_TOKEN = re.compile(r"\(\?P<\w+>|\(\?[a-zA-Z]*:|\(\?<?[!=]|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|.", re.DOTALL)
_SPECIAL = frozenset("()^$.?*+|{")
