"""Writes src/ranklaunch/specs/variables.json: what specifications and charts know of variables in `env`.

- `forms`: each variable of ranklaunch's, with the pattern of its values and what they are in words; {} where any text may be right.
- `removed`: names, and with * at the end beginnings of names, that ranklaunch removes before ranks start.
- `elsewhere`: what other launchers call a variable of ranklaunch's, without the beginning.
- `secrets`: patterns of names that hold secrets, of those of these that do not, and of values that hold tokens whatever their name is.

tools/chart_values.py runs it. A pattern is right in Python and in Go, and takes at least what the variable's parser takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ranklaunch.adapters.launchers.shared.variables import MISLEADING
from ranklaunch.env import features, parse
from ranklaunch.env.reader import Variable
from ranklaunch.plan.hints.unknown import ELSEWHERE
from ranklaunch.plan.planning import every_variable
from ranklaunch.redact import forms
from testbench import places

PAGE = places.ROOT / "src" / "ranklaunch" / "specs" / "variables.json"
PREFIX = "RANKLAUNCH_"
_SPACE, _WHOLE, _SECONDS = r"\s*", "[0-9]{1,9}", r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?"
# By the parser's name. Other parsers take texts that a pattern says little of.
PATTERNS = {
    "flag": "(?i:true|on|yes|1|false|off|no|0)",
    "count": _WHOLE,
    "positive": _WHOLE,
    "port": "[0-9]{1,5}",
    "port_or_0": "[0-9]{1,5}",
    "counts": f"{_WHOLE}(?:,{_WHOLE})*",
    "seconds": _SECONDS,
    "seconds_from.<locals>.parse": _SECONDS,
    "slow": _SECONDS,
    "signal_name": f"(?i:(?:SIG)?(?:{'|'.join(features.SIGNALS)}))",
    "codes": r"[0-9, \t]*",
    "debug_port": "(?i:true|on|yes|false|off|no)|[0-9]{1,5}",
    "size": r"(?i:[0-9]{1,15}(?:\.[0-9]{1,6})? ?[kmgt]?(?:i?b)?)",
}
# Forms of frequent tokens; redact.patterns has all.
TOKENS = "|".join(
    (
        "hf_[A-Za-z]{30,}",
        "gh[pousr]_[A-Za-z0-9]{30,}",
        "github_pat_[A-Za-z0-9_]{30,}",
        "glpat-[A-Za-z0-9_-]{20}",
        "AKIA[A-Z2-7]{16}",
        "xox[abprs]-[0-9]",
        r"://[^/\s:@]*:[^/\s@]+@",  # the password of an address
    )
)
# Last words of names that say where a secret is.
_PLACES = ("env", "url", "uri", "name", "var", "file", "path", "dir", "folder")


def made() -> str:
    known = {name: variable for variable in every_variable() for name in variable.names if name.startswith(PREFIX)}
    page = {
        "forms": {name: form(known[name]) for name in sorted(known)},
        "removed": sorted(set(_removed(known))),
        "elsewhere": dict(sorted(ELSEWHERE.items())),
        "secrets": {"names": _secret_names(), "plain": _plain_names(), "tokens": TOKENS},
    }
    return json.dumps(page, indent=1) + "\n"


def form(variable: Variable[object]) -> dict[str, str]:
    pattern = pattern_of(variable.parse)
    words = places.module("docs/make_reference.py").type_of(variable)
    return {"pattern": f"^{_SPACE}(?:{pattern}){_SPACE}$", "form": words} if pattern else {}


def pattern_of(parser: Any) -> str:
    if isinstance(parser, parse.OneOf):
        return f"(?i:{'|'.join(map(re.escape, parser.legal))})"
    return PATTERNS.get(getattr(parser, "__qualname__", ""), "")


def _removed(known: Iterable[str]) -> Iterable[str]:
    """Yield what a specification may not have. ranklaunch reads a rank table's variable and its key before it removes them."""
    read = {*known, "RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0"}
    return (name for row in MISLEADING for name in row.split() if name not in read)


def _secret_names() -> str:
    """Return a pattern of the words of forms.py, in names as variables have them."""
    pairs = sorted(f"{word}_?{end}" for word, end in forms._SECRET_PAIRS)
    ends = sorted(word for word in forms._SECRET_ENDS if word.isascii())
    alone, last = f"(?:{'|'.join(sorted(forms._SECRET_WORDS))})s?", f"(?:{'|'.join((*ends, *pairs))})s?"
    return rf"(?i)(?:(?:^|[_.-])(?:{alone}|tokens?)|{last})(?:[_.-]|$)"


def _plain_names() -> str:
    counts = "|".join(sorted({*forms._COUNTS, *forms._PLAIN_BEFORE}))
    behind = "|".join(sorted(forms._PLAIN_BEHIND))
    ours = "|".join(sorted((*forms._PLACES, forms._OURS[0])))
    return (
        rf"(?i)(?:^|[_.-])(?:{'|'.join(_PLACES)})$|(?:^|[_.-])(?:{counts})_(?:\w+_)?tokens?(?:[_.-]|$)"
        rf"|(?:^|[_.-])tokens?_(?:{behind})(?:[_.-]|$)|^(?:{ours})$"
    )
