"""Rules for harmless text behind the name of a secret: code, counts, words about a secret."""

from __future__ import annotations

import re

BRACKETS = ("{", "[", "(")  # behind these, all members are hidden
_NUMBERS = re.compile(r"[\[({][\d\s,.-]{0,4096}[\])}]")  # ids of tokens
SUBSCRIPT = re.compile(r"[A-Za-z_][\w.]{0,63}\[(?:(['\"])[\w.-]{1,64}\1|[A-Za-z_][\w.]{0,63})\]")
_NAMES_CODE = re.compile(  # os.getenv("X"), self.token, "[UNK]"
    r"(?:os\.)?(?:getenv|environ\.get)\((['\"])\w{1,64}\1\)|(?:self|args|cfg|config)(?:\.[A-Za-z_]\w{0,63}){1,4}"
    r"|(['\"]?)[\[<]\|?[A-Za-z][A-Za-z_]{1,20}\|?[\]>]\2|torch\.Size\(\[[\d, ]{0,64}\]\)"
)
# Words in place of a secret, or about one
SAID_OF_ONE = "(?:null|nil|none|ok|true|false|yes|no|on|off|enabled|disabled|required|expired|missing|invalid|unset|success)"
WORDS = re.compile(rf"(?i:{SAID_OF_ONE}|test_\w{{1,64}}|-?\d{{1,2}}|-?\d{{1,3}}\.\d{{1,6}}|\dx\d)")
_GOES_ON = re.compile(r"(?:must|not|cannot|should|was|is|has|may|needs?|command|timed|unknown|unable|failed|denied) [a-z]")  # as in prose
_SOURCES = "py|pyx|c|cc|cpp|cxx|cu|h|hpp|cuh|go|rs|java|js|ts|sh|pl|rb|yaml|yml|toml|ini|cfg"
# Other meanings of such a name: patterns of the name, of the text before it, of the text up to the value, and of the value.
_OTHER_MEANINGS = (
    (r"^(?!-).*[a-z0-9](?:Error|Exception|Warning)$", "", "", ""),
    (rf"^(?!-).*\.(?:{_SOURCES})$", "", "", r"^\d{1,7}(?::\d{0,7}){0,2}:?$"),
    (r"(?i)^token$", r"(?i)\b(?:per|predicted|generated|sampled|next|last|first|current|output|input) $", "", ""),
    (r"(?i)^token$", r"(?i)\b(?:unknown|unexpected|expected) $", "", r"^(?!['\"]?(?:(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z]).{6,}|.{16,})$)"),
    (r"(?i)^--pass$", r"template option $", "", ""),
    (r"(?i)^pass$", r"(?i)\b(?:first|second|fast|graph|fusion|optimi[sz]\w{1,6}|compil\w{1,6}|[\w.]{0,16}inductor) $", "", ""),
    ("", r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):$", ":$", ""),  # Python's logging: WARNING:auth:
)
# Counts, words about secrets, folders: patterns of the name and of the value.
_HARMLESS = (
    ("", rf"^{WORDS.pattern}$"),
    (r"^pwd$", r"^/(?:home|root|workspace|work|tmp|opt|mnt|data|usr|var|app|code|scratch|srv)(?:/[\w.-]{1,64}){0,32}/?$"),
    (r"^(?!.*(?:auth|access|api|session|csrf|refresh|secret|user|otp|mfa|login))[a-z]\w{0,32}_token$", r"^-?\d{1,6}$"),  # a count
    (r"(?i)^token$", r"^\d{1,7}$"),
    (r"(?i)^pass$", r"^\d{1,4}/\d{1,4}$"),
)
MOST_QUOTED = 4096  # characters between quotes; if there are more, the rest of the line is hidden
_BEFORE = 40  # characters before a name that are searched


def is_code(match: re.Match[str], value: str) -> bool:
    """Return True for code without a secret: a call without text, os.environ["X"], numbers. Also for the placeholder of an option's value
    in a help text."""
    names = (match[1] or "").strip("-").replace("-", "_").upper(), (match[2] or "").rpartition(".")[2]
    if value in filter(None, names) or any(pattern.fullmatch(value) for pattern in (_NUMBERS, SUBSCRIPT, _NAMES_CODE)):
        return True
    is_call = match[0].endswith(" = ") and len(value) < MOST_QUOTED and value.endswith(")") and not value.startswith(BRACKETS)
    return is_call and "'" not in value and '"' not in value


def is_no_access(line: str, match: re.Match[str], at: int, value: str) -> bool:
    """Return True if the name has another meaning: predicted token: Paris, token: 17, pass: 1/3, WARNING:auth:retrying, auth.py:42. Also
    within the name of an exception."""
    before = line[max(0, match.start() - _BEFORE) : match.start()]
    if _is_one(_OTHER_MEANINGS, match[1] or match[2], before, match[0], value):
        return True
    return match[0].endswith(": ") and bool(_GOES_ON.match(line, at))


def is_harmless(name: str, value: str) -> bool:
    """Return True for a count, a word about secrets, or a folder: none of these gives access."""
    return _is_one(_HARMLESS, name, value)


def _is_one(rows: tuple[tuple[str, ...], ...], *texts: str) -> bool:
    """Return True if all patterns of some row match, each its own text."""
    return any(all(map(re.search, row, texts)) for row in rows)


def is_refused(line: str, match: re.Match[str]) -> bool:
    """Return True for an option that argparse refuses: error: argument --token: expected one argument."""
    return bool(match[1]) and line.rfind("argument ", max(0, match.start() - _BEFORE), match.start()) >= 0
