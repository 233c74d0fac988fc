"""Writes src/ranklaunch/redact/patterns.py: what tokens and keys look like, by the rules of detect-secrets (pinned in pyproject.toml).

A rule finds a secret; here it must hide one, in bounded time: it repeats a bounded number of times, begins only where a word does, and
hides the rest of the word with it. What a plan shows is first looked at by ranklaunch.redact.redact, which knows how each of them begins.
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
MOST = 256  # characters of what a rule repeats without a bound
# Found by the name before it or by being in a URL, which ranklaunch.redact.lines does for all names, or by a wider rule; or no secret.
LEFT_OUT = {
    "Artifactory Credentials", "Basic Auth Credentials", "Cloudant Credentials", "IBM COS HMAC Credentials", "IBM Cloud IAM Key",
    "NPM tokens", "OpenAI Token", "Private Key", "Public IP (ipv4)", "SoftLayer Credentials",
}  # fmt: skip
HEAD = '''"""What tokens and keys look like. Written by tools/secret_patterns.py (make generate) from the rules of detect-secrets VERSION.

Copyright Yelp Inc., Apache License 2.0 (LICENSES/detect-secrets.txt). Changed: each repeats a bounded number of times.
Only failures need this module, and plans that have something like a token in them.
"""

from __future__ import annotations

import re

PATTERNS = (
'''
END = """# Beyond the rules that are taken from elsewhere: what training jobs have most.
OWN = (
    r"hf_[A-Za-z0-9]{20}", r"sk-[\\w-]{20}", r"github_pat_\\w{20}", r"nvapi-[\\w-]{20}", r"AIza[\\w-]{35}", r"wandb_v1_[\\w-]{20}",
    r"(?:gsk|r8|npm)_[A-Za-z0-9]{20}", r"dckr_pat_[\\w-]{20}", r"ya29\\.[\\w-]{20}", r"(?:dop_v1|shpat)_[0-9a-f]{20}",
)  # fmt: skip
# Only where a word begins, and with the rest of it: however a text is made, this stays linear.
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
            if '"' not in rule.pattern:  # the value in quotes behind a name: found by the name
                yield _hiding(rule)


def _hiding(rule: re.Pattern[str]) -> str:
    pattern = re.sub(r"([\])])\+", rf"\1{{1,{MOST}}}", re.sub(r"([\])])\*", rf"\1{{0,{MOST}}}", rule.pattern)).replace(r"\d+", r"\d{1,20}")
    pattern = re.sub(r"\{(\d+),\d*\}$", r"{\1}", pattern.removesuffix(r"(?!\w)"))  # the rest of the word follows anyway
    pattern = re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern)
    return f"(?i:{pattern})" if rule.flags & re.IGNORECASE else pattern


if __name__ == "__main__":
    sys.exit(main())
