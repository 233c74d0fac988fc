"""Make src/ranklaunch/specs/variables.json: tables by which specifications and charts check variables in `env`.

- `forms`: each variable of ranklaunch, with the pattern of its values and a description in words; {} if any text is legal.
- `removed`: names that ranklaunch removes before ranks start; NAME* is a prefix.
- `elsewhere`: names that other launchers use for a variable of ranklaunch, without the prefix RANKLAUNCH_.
- `secrets`: patterns of names that hold secrets (`names`), of exceptions (`plain`), and of values that are tokens (`tokens`).

tools/chart_values.py runs it. A pattern must be valid in Python and in Go, and match every text that the variable's parser accepts.
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
# By the parser's name. For other parsers a pattern would say little.
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
# Forms of frequent tokens; ranklaunch.redact.patterns has all of them.
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
# Last words of names that hold the place of a secret, not the secret.
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
    """Yield names that a specification may not set: removed by ranklaunch, and not read by it before (as a rank table's variable is)."""
    read = {*known, "RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0"}
    return (name for row in MISLEADING for name in row.split() if name not in read)


def _secret_names() -> str:
    """Return a pattern of names of variables with the secret words of redact/forms.py."""
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
