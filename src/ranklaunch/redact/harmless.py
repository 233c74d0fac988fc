"""What stands behind the name of a secret and is none: code, counts, words that are said of one."""

from __future__ import annotations

import re

BRACKETS = ("{", "[", "(")  # of what has members, all of which are hidden
_NUMBERS = re.compile(r"[\[({][\d\s,.-]{0,4096}[\])}]")  # ids of tokens
SUBSCRIPT = re.compile(r"[A-Za-z_][\w.]{0,63}\[(?:(['\"])[\w.-]{1,64}\1|[A-Za-z_][\w.]{0,63})\]")
_NAMES_CODE = re.compile(  # os.getenv("X"), self.token, "[UNK]"
    r"(?:os\.)?(?:getenv|environ\.get)\((['\"])\w{1,64}\1\)|(?:self|args|cfg|config)(?:\.[A-Za-z_]\w{0,63}){1,4}"
    r"|(['\"]?)[\[<]\|?[A-Za-z][A-Za-z_]{1,20}\|?[\]>]\2|torch\.Size\(\[[\d, ]{0,64}\]\)"
)
# What is said in place of a secret, or of one
SAID_OF_ONE = "(?:null|nil|none|ok|true|false|yes|no|on|off|enabled|disabled|required|expired|missing|invalid|unset|success)"
WORDS = re.compile(rf"(?i){SAID_OF_ONE}|test_\w{{1,64}}|-?\d{{1,2}}|-?\d{{1,3}}\.\d{{1,6}}|\dx\d")
_OF_MODELS = re.compile(r"(?!.*(?:auth|access|api|session|csrf|refresh|secret|user|otp|mfa|login))[a-z]\w{0,32}_token")  # with a count
_COUNT = re.compile(r"-?\d{1,6}")
_FOLDER = re.compile(r"/(?:home|root|workspace|work|tmp|opt|mnt|data|usr|var|app|code|scratch|srv)(?:/[\w.-]{1,64}){0,32}/?")
_OF_PARSERS = re.compile(r"(?i)\b(?:unknown|unexpected|expected) $")
_OF_COMPILERS = re.compile(r"(?i)\b(?:first|second|fast|graph|fusion|optimi[sz]\w{1,6}|compil\w{1,6}|[\w.]{0,16}inductor) $")
_GOES_ON = re.compile(r"(?:must|not|cannot|should|was|is|has|may|needs?|command|timed|unknown|unable|failed|denied) [a-z]")  # as in prose
_LIKE_A_TOKEN = re.compile(r"['\"]?(?:(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z]).{6,}|.{16,})")
_OF_TEXT = re.compile(r"(?i)\b(?:per|predicted|generated|sampled|next|last|first|current|output|input) $")
_LEVEL = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):$")  # by the loggers of Python: WARNING:auth:
_ERROR = re.compile(r"[a-z0-9](?:Error|Exception|Warning)$")
_SOURCE = re.compile(r"\.(?:py|pyx|c|cc|cpp|cxx|cu|h|hpp|cuh|go|rs|java|js|ts|sh|pl|rb|yaml|yml|toml|ini|cfg)$")
_NUMBER_OF_LINE = re.compile(r"\d{1,7}(?::\d{0,7}){0,2}:?")
MOST_QUOTED = 4096  # characters between quotes; where there are more, the rest of the line is hidden
_BEFORE = 40  # characters, where argparse names what it refuses


def is_code(found: re.Match[str], value: str) -> bool:
    """What names no secret itself: a call without any text in it, os.environ["TOKEN"], a list of numbers, and in a program's help what an
    option takes."""
    if value == (found[1] or "").strip("-").replace("-", "_").upper() or _NUMBERS.fullmatch(value) or SUBSCRIPT.fullmatch(value):
        return True
    if (found[2] and value == found[2].rpartition(".")[2]) or _NAMES_CODE.fullmatch(value):
        return True
    call = found[0].endswith(" = ") and len(value) < MOST_QUOTED and value.endswith(")") and not value.startswith(BRACKETS)
    return call and "'" not in value and '"' not in value


def is_no_access(line: str, found: re.Match[str], at: int, value: str) -> bool:
    """Where the word means something else: predicted token: Paris, token: 17, pass: 1/3, WARNING:auth:retrying, auth.py:42, and in the
    name of an exception."""
    if _ERROR.search(found[2] or "") or (_SOURCE.search(found[2] or "") and _NUMBER_OF_LINE.fullmatch(value)):
        return True
    name, before = (found[1] or found[2]).lower(), line[max(0, found.start() - _BEFORE) : found.start()]
    if name == "token" and (_OF_TEXT.search(before) or (_OF_PARSERS.search(before) and not _LIKE_A_TOKEN.fullmatch(value))):
        return True
    if (name == "--pass" and before.endswith("template option ")) or (name == "pass" and _OF_COMPILERS.search(before)):
        return True
    if found[0].endswith(":") and _LEVEL.search(before):
        return True
    return found[0].endswith(": ") and bool(_GOES_ON.match(line, at))


def is_harmless(name: str, value: str) -> bool:
    """A count, a word that is said of secrets, a folder: none that lets anybody in."""
    if WORDS.fullmatch(value) or (name == "pwd" and _FOLDER.fullmatch(value)) or (_COUNT.fullmatch(value) and _OF_MODELS.fullmatch(name)):
        return True
    lower = name.lower()
    return bool((lower == "token" and re.fullmatch(r"\d{1,7}", value)) or (lower == "pass" and re.fullmatch(r"\d{1,4}/\d{1,4}", value)))


def is_refused(line: str, found: re.Match[str]) -> bool:
    """Whether an option is named as one that argparse refuses: error: argument --token: expected one argument."""
    return bool(found[1]) and line.rfind("argument ", max(0, found.start() - _BEFORE), found.start()) >= 0
