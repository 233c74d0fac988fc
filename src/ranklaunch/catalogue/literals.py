"""Which plain texts a regular expression needs: to look for them first keeps most patterns from being searched in vain."""

from __future__ import annotations

import functools
import re


@functools.cache
def needed(pattern: str) -> tuple[str, ...]:
    """Texts of which each match has one at least: for each alternative the longest that is plain to see, or the empty one."""
    found, runs, run, depth = [], [""], "", 0
    for token in [*_TOKEN.findall(pattern), "|"]:
        depth += {"(": 1, ")": -1}.get(token, 0)
        plain = token[-1] if len(token) == 1 or (token[0] == "\\" and not token[1].isalnum()) else ""
        if not depth and plain and token not in _SPECIAL:
            run += plain
            continue
        runs.append(run[:-1] if token[0] in "?*+{" else run)
        run = ""
        if token == "|" and not depth:
            found.append(max(runs, key=len))
            runs = [""]
    return tuple(found)


_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|.", re.DOTALL)
_SPECIAL = frozenset("()^$.?*+|")
