"""Write src/ranklaunch/redact/patterns.py: patterns of tokens and keys, from the rules of detect-secrets (pinned in pyproject.toml).

The rules find secrets; here they must hide them, in bounded time. So each repetition gets a bound, and a pattern begins only where a word
begins and hides the rest of that word. ranklaunch.redact.redact knows how each token begins, and imports the patterns only if a text
contains such a beginning.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

PATH = Path(__file__).resolve().parent.parent / "src" / "ranklaunch" / "redact" / "patterns.py"
VERSION = version("detect-secrets")
MOST = 256  # bound for repetitions of a rule that have none
# Rules not needed: ranklaunch.redact.lines finds the secret by the name before it or in a URL, a wider rule finds it, or it is no secret.
LEFT_OUT = {
    "Artifactory Credentials", "Basic Auth Credentials", "Cloudant Credentials", "IBM COS HMAC Credentials", "IBM Cloud IAM Key",
    "NPM tokens", "OpenAI Token", "Private Key", "Public IP (ipv4)", "SoftLayer Credentials",
}  # fmt: skip
HEAD = '''"""Patterns of tokens and keys. Written by tools/secret_patterns.py (make generate) from the rules of detect-secrets VERSION.

Copyright Yelp Inc., Apache License 2.0 (LICENSES/detect-secrets.txt). Changed: each repeats a bounded number of times.
Imported only for failures, and for plans with a text that may be a token.
"""

from __future__ import annotations

import re

PATTERNS = (
'''
END = """# Patterns of our own: tokens that are frequent in training jobs.
OWN = (
    r"hf_[A-Za-z0-9]{20}", r"sk-[\\w-]{20}", r"github_pat_\\w{20}", r"nvapi-[\\w-]{20}", r"AIza[\\w-]{35}", r"wandb_v1_[\\w-]{20}",
    r"(?:gsk|r8|npm)_[A-Za-z0-9]{20}", r"dckr_pat_[\\w-]{20}", r"ya29\\.[\\w-]{20}", r"(?:dop_v1|shpat)_[0-9a-f]{20}",
)  # fmt: skip
# From the beginning of a word to its end: the search stays linear for every text.
TOKENS = re.compile(rf"(?<![A-Za-z0-9])(?=[A-Za-z0-9])(?:{'|'.join((*PATTERNS, *OWN))})[\\w.+/=~-]*")
"""


def main() -> int:
    PATH.write_text(module(), encoding="utf-8")
    return 0


def module() -> str:
    rows = "".join(f'    r"{pattern}",\n' for pattern in rules())
    return HEAD.replace("VERSION", VERSION) + rows + ")\n" + END


def rules() -> Iterator[str]:
    for kind, plugin in sorted(get_mapping_from_secret_type_to_class().items()):
        denylist = getattr(plugin, "denylist", ())
        for rule in () if kind in LEFT_OUT or isinstance(denylist, property) else denylist:
            if '"' not in rule.pattern:  # a rule with a quoted value behind a name: the name is enough
                yield _hiding(rule)


def _hiding(rule: re.Pattern[str]) -> str:
    """Return the pattern of a rule with bounded repetitions and without groups."""
    pattern = re.sub(r"([\])])\+", rf"\1{{1,{MOST}}}", re.sub(r"([\])])\*", rf"\1{{0,{MOST}}}", rule.pattern)).replace(r"\d+", r"\d{1,20}")
    pattern = re.sub(r"\{(\d+),\d*\}$", r"{\1}", pattern.removesuffix(r"(?!\w)"))  # the rest of the word follows anyway
    pattern = re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern)
    return f"(?i:{pattern})" if rule.flags & re.IGNORECASE else pattern


if __name__ == "__main__":
    sys.exit(main())
