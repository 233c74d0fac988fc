"""What was said, made fit to be shown: what processes wrote last, and reasons. Secrets are hidden, control characters made harmless.

A rank's log and the stream on the console keep what was written. Only failures need this module, and they get at it by
`ranklaunch.errors.reason` and `ranklaunch.errors.quoted`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ranklaunch import redact, showing
from ranklaunch.redact import HIDDEN
from ranklaunch.secret_patterns import TOKENS

_ESCAPE = "\x1b"
_CONTROL = re.compile(r"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]")  # colours, and what moves a cursor
_STEMS = "secret|pass|pwd|pw|token|key|auth|cred|jwt|pat|ak|sk|密码|口令|密钥|令牌"
_IS = r"\s{0,32}(?::=|[=-]>|=(?!=)|:(?![:=])|：|＝|\.{3,64}\s)\s{0,32}"  # aligned, as in lists of settings: token = x, token ..... x
# What stands before a quote where a text was quoted again, or has bytes: {\\"token\\": \\"x\\"}, b'token'
_QUOTED_AGAIN = re.compile(r"\\{1,16}(?=['\"])|(?<![\w\"-])[bBuU](?=\\{0,16}\")|(?<![\w'-])[bBuU](?=\\{0,16}')")
# "token": "x\"y", where what is quoted has such quotes itself: up to where the value begins. The same with more \ in a text quoted again.
_QUOTED = re.compile(rf"(?<![\w.-])([\w.-]{{1,64}})\\{{0,16}}['\"]?{_IS}(\\{{0,16}})(['\"])")
# --token X, --token=X, '--token', 'X', HF_TOKEN=X, "token": "X", token: str = "X", ["token"] = "X", setdefault("token", "X"): up to where
# the value begins
_NAME = re.compile(
    rf"(?<![\w.-])(?=-p\s|-{{0,2}}[\w.-]{{0,60}}(?i:{_STEMS}))"
    rf"(?:(-{{1,2}}[\w.-]{{1,64}})(?:{_IS}|\s{{1,8}}|['\"], ?(?=['\"]))|([\w.-]{{1,64}})"
    rf"(?::\s?[\w.\[\], |]{{1,64}}\s?=\s?(?=['\"{{\[(])|['\"]?{_IS}|['\"]\]\s?=(?!=)\s?|(['\"],\s?)(?=['\"])))"
)
_PROSE = re.compile(  # the token is X, API key provided: X, of a word that looks like one
    r"(?i)(?<![\w.-])((?:(?:password|passwd|passphrase|secret|token|api[ _-]?key)\s{1,4}(?:is|was)\s{0,4}:?"
    r"|(?:password|passwd|passphrase|api[ _-]?key)(?:\s{1,4}(?:provided|given|used))?:?"
    r"|(?:invalid|bad|wrong|expired|revoked|unknown)\s{1,4}(?:secret|token):?)\s{1,4}['\"]?)"
    r"(?=[^\s'\"]{0,64}\d)(?=[^\s'\"]{0,64}[a-z])[^\s'\",;)}\]]{6,}"
)
# What is said in place of a secret, or of one
_SAID_OF_ONE = "(?:null|nil|none|ok|true|false|yes|no|on|off|enabled|disabled|required|expired|missing|invalid|unset|success)"
_SPACED = re.compile(  # Secret Access Key: X, wandb.login(key="X"), a line of .netrc, and what wandb says of this file
    r"(?i)(\b(?:(?:secret|api|account|private) (?:access )?key|(?:access|auth) (?:key|token))\s{0,8}[:=]\s{0,8}['\"]?"
    r"|\blogin\([^()'\"]{0,100}\bkey\s?=\s?['\"]|\blogin\s{1,4}\S{1,128}\s{1,4}password\s{1,4}"
    r"|\bnetrc file:\s{1,4}(?![~/.]|[a-z]:\\))"
    rf"(?!{_SAID_OF_ONE}(?:[\s,;.)]|$))[^\s'\",;)}}\]]+"
)
_BAR = r"|\u2502\u2503\u2551"  # between cells
_CELLS = re.compile(  # | password | X |, of a word that is more than letters, as a heading is not
    rf"([{_BAR}]\s{{0,64}}[*`]{{0,2}}(-{{0,2}}[A-Za-z][\w.-]{{0,63}})[*`:]{{0,3}}\s{{0,64}}[{_BAR}]{{1,2}}\s{{0,64}})"
    rf"(?=[A-Za-z _-]{{0,64}}[^A-Za-z _{_BAR}-])([^{_BAR}]{{1,400}})(?=[{_BAR}])"
)
_ATTRIBUTES = re.compile(r"(\b(?:key|name)=(['\"])([\w.-]{1,64})\2\s{1,8}value=(['\"]))([^'\"]{1,400})(?=\4)")  # of XML
_PAIR = re.compile(r"(?<![\w.\])])\(['\"]")  # what begins one, and no call
# Elsewhere they are two names.
_CALLS = tuple(f"{name}({quote}" for name in ("setdefault", "putenv", "setenv", "getenv", "environ.get") for quote in "'\"")
_TAG = r"(?:\[[^\]\s]{1,40}\]:?\s)?"  # of a rank
# Whose value is in the next line, or in all that are indented more, as YAML has text of several lines.
_OPEN = re.compile(rf"(?<![\w.-])(?:(-{{1,2}}[\w.-]{{1,64}})['\"]?,?|([\w.-]{{1,64}})['\"]?{_IS}([|>][-+\d]{{0,2}})?)\s{{0,8}}\\?$")
_OPEN_WITHIN = 200  # characters at the end of a line
_ALONE = re.compile(rf"({_TAG}\s*(?:-\s+)?)(\"[^\"]+\"|'[^']+'|[^\s\"',{{}}\[\]]+)(,?\s*)")
_ITEM = re.compile(rf"{_TAG}\s*-\s")
_INDENT = re.compile(rf"{_TAG}\s*")
# A name alone, as pydantic has before what is wrong; name: HF_TOKEN, as Kubernetes has before the value.
_BARE = re.compile(rf"{_TAG}[\s{{-]*(?:['\"]?name['\"]?\s{{0,8}}[:=]\s{{0,8}})?['\"]?([\w.-]{{1,64}})['\"]?,?\s*")
_BESIDE = re.compile(
    rf"(.{{0,400}}\binput_value=|{_TAG}[\s-]{{0,64}}['\"]?value['\"]?\s{{0,8}}[:=]\s{{0,8}})"
    r"(.+?(?=, input_type=)|\"[^\"]+\"|'[^']+'|[^\s'\"].*)"
)
_COLUMNS = re.compile(  # password   X, of a word that looks like one, and no number, version or path
    r"(\s*([A-Za-z][\w.-]{0,63})(?:\t|\s{2})\s{0,200})(?!\d{1,9}[.x:e]\d|[~./]|\d{1,9}[A-Za-z%/]{1,5}\s*$)"
    r"(?=[^\d\s]*\d)(?=[^A-Za-z\s]*[A-Za-z])([^\s()\[\]]{6,})\s*"
)
_VALUE = re.compile(r"(?:-{1,8}(?=\w)|[^\s\"',;)}\]<>-])[^\s\"',;)}\]]{0,400}")
_NO_VALUE = re.compile(r"(?<=\S)=\s{1,32}$")  # TOKEN= --lr 1
# What may stand before a name in a line that says nothing but its value; there, what a value holds cannot be what follows it.
_BEFORE_NAME = re.compile(rf"\s*{_TAG}\s*(?:[-+]{{1,4}}\s)?(?:(?:export|declare -x|ENV)\s{{1,4}})?['\"]?")
_MOST_BEFORE = 80
_ODD = re.compile(r"(?!<[\w.-]{1,64}(?:>|\s))[,;)}\]<>-]\S{0,64}\w")  # and not <TOKEN>, which stands for one
_PASSWORD = re.compile(r"(?i)(?:passw(?:or)?d|passphrase|pwd)$")  # may have blanks
_MORE_THAN_WORDS = re.compile(r"[=:](?:\s|$)|\w[=:]|\s(?:#|--?\w)")
_ONE_WORD = re.compile(r"\S*[^\s\"',;)}\]](?=[\"',;)}\]]*\s*$)")
_NEXT_PAIR = re.compile(r"[,;][A-Za-z_-][\w.-]{0,63}[=:]")
_OF_SERVICES = re.compile(r"\{\s?['\"](?:hf|huggingface|wandb|git\w{1,16}|openai|api|access|auth|refresh)\w{0,16}['\"]\s?:\s?['\"]")
_BRACKETS = ("{", "[", "(")  # of what has members, all of which are hidden
_NUMBERS = re.compile(r"[\[({][\d\s,.-]{0,4096}[\])}]")  # ids of tokens
_REFUSED = re.compile(  # by argparse: argument -t/--token: invalid int value: 'X'
    r"(\bargument (?:-\w[/, ]{1,2})?(--?[A-Za-z][\w-]{0,63})(?:/[^:\s]{1,64})?: invalid [\w.<> ]{0,64}(?:value|choice)?: )"
    r"('[^']{0,400}'|\"[^\"]{0,400}\")"
)
_BEFORE = 40  # characters, where argparse names what it refuses
_SUBSCRIPT = re.compile(r"[A-Za-z_][\w.]{0,63}\[(?:(['\"])[\w.-]{1,64}\1|[A-Za-z_][\w.]{0,63})\]")
_NAMES_CODE = re.compile(  # os.getenv("X"), self.token, "[UNK]"
    r"(?:os\.)?(?:getenv|environ\.get)\((['\"])\w{1,64}\1\)|(?:self|args|cfg|config)(?:\.[A-Za-z_]\w{0,63}){1,4}"
    r"|(['\"]?)[\[<][A-Z]{2,8}[\]>]\2"
)
_MORE = re.compile(r"\s{0,8}(?:or\b|and\b|if\b|[-+*%.\[|])")
_NOTHING_MORE = re.compile(r"\s*(?:$|[,)\]}#;])")  # of an expression: os.environ["X"] or "hunter2" has more
_HARMLESS = re.compile(rf"(?i){_SAID_OF_ONE}|test_\w{{1,64}}|-?\d{{1,2}}|-?\d{{1,3}}\.\d{{1,6}}|\dx\d")
_OF_MODELS = re.compile(r"(?!.*(?:auth|access|api|session|csrf|refresh|secret|user|otp|mfa|login))[a-z]\w{0,32}_token")  # with a count
_COUNT = re.compile(r"\d{1,4}")
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
_CALL = re.compile(r"[\w.]{1,64}\(")  # auth=HTTPBasicAuth("user", "X")
_MOST_QUOTED = 4096  # characters between quotes; where there are more, the rest of the line is hidden
_NO_SECRET = re.compile(  # is behind it; between cells; has been hidden; is code
    rf"(?i:bearer|basic)|[{_BAR}]|EMPTY|<\|.*|[|>][-+\d]{{1,2}}|\*\*\*(?:&.*)?|Optional\[.*|str|int|bool|bytes|float|dict|list|None|True|False"
)
_BEFORE_VALUE = re.compile(  # of YAML; of a header
    rf"(?:(?:{redact.YAML_MARK}\s{{1,4}}){{1,2}}|(?i:bearer|basic|token)(?=\s{{1,4}}(?:\S{{0,64}}\d|\*\*\*))\s{{1,4}})(?=\S)"
)
# Quotes and what ends a value elsewhere, where more of it follows that is no other NAME=value
_REST = re.compile(r"(?:[^\s\"',;)}\]]|['\"](?=\w)|[,;)}\]](?![,;)}\]]{0,8}(?:$|[\s'\"]|(?<=[,;])[A-Za-z_-][\w.-]{0,63}\s?[=:])))*")
_BODY = re.compile(r"[\s>|]*(?:\[[^\]\s]{1,40}\]:?\s)?[A-Za-z0-9+/=]{16,}\s*")
_BODY_IN_LINE = re.compile(r"(PRIVATE KEY-----)[A-Za-z0-9+/=\\ ]{8,}")


def text(given: str, own: bool = False) -> str:
    """Each line of it, by itself. own: ranklaunch's own words, which have the name of what they are about before a colon."""
    return "\n".join(map(showing.printable, lines(given.split("\n"), own)))


class _Before(NamedTuple):
    """What a line says of the next: of which name it may have the value, how, and how far the line was indented."""

    name: str = ""
    way: str = ""
    indent: int = 0


def lines(given: Iterable[str], own: bool = False) -> tuple[str, ...]:
    """Those without secrets are as they were, control characters and all."""
    shown, before = [], _Before()
    for line in given:
        shown.append(_line(_continued(line, before) if before.name else line, own))
        before = _Before() if own else _left_open(line, shown[-1], before)
    if any("PRIVATE KEY" in line for line in shown):
        shown = [HIDDEN if _BODY.fullmatch(line) else _BODY_IN_LINE.sub(rf"\1{HIDDEN}", line) for line in shown]
    return tuple(shown)


def _left_open(line: str, shown: str, before: _Before) -> _Before:
    """Of a secret that goes on in the next line."""
    end = _QUOTED_AGAIN.sub("", _CONTROL.sub("", line[-_OPEN_WITHIN:])).rstrip("\r")
    if end.endswith("\\") and shown.endswith(HIDDEN):
        return _Before("secret", "alone")
    if (before.way == "list" and _ITEM.match(line)) or (before.way == "block" and _is_within(line, before)):
        return before
    found = _OPEN.search(end)
    name = (found[1] or found[2]) if found else ""
    if found and redact.is_secret(name):
        return _Before(name, "block" if found[3] else "list" if found[2] else "alone", _indent(line))
    bare = _BARE.fullmatch(end) if len(line) <= _OPEN_WITHIN else None
    return _Before(bare[1], "beside") if bare and redact.is_secret(bare[1]) else _Before()


def _continued(line: str, before: _Before) -> str:
    """A line with the value in it that belongs to the name in the line before."""
    marked = _QUOTED_AGAIN.sub("", _CONTROL.sub("", line))
    if before.way in ("alone", "list"):
        return _alone(line, marked, before.name)
    if before.way == "block":
        return f"{line[: _indent(line)]}{HIDDEN}" if line.strip() and _is_within(line, before) else line
    found = _BESIDE.match(marked)
    if not found or not _is_told(before.name, found[2]):
        return line
    return f"{found[1]}{redact.hidden_as(found[2])}{marked[found.end() :]}"


def _is_told(name: str, value: str) -> bool:
    bare = value.strip("'\"")
    return _is_secret(name, bare) and not _HARMLESS.fullmatch(bare)


def _indent(line: str) -> int:
    indent = _INDENT.match(line)
    return indent.end() if indent else 0


def _is_within(line: str, before: _Before) -> bool:
    return _indent(line) > before.indent or not line.strip()


def _alone(line: str, marked: str, name: str) -> str:
    """A line that is nothing but the value of this name."""
    found = _ALONE.fullmatch(marked.rstrip("\\ "))
    is_name = found and (found[2].endswith(":") or (name[0] == found[2][0] == "-"))
    if not found or is_name or not _is_told(name, found[2]):
        return line
    return f"{found[1]}{redact.hidden_as(found[2])}{found[3]}"


def _line(line: str, own: bool) -> str:
    """A secret is found whatever colour it has, and however often it was quoted."""
    marked = _CONTROL.sub(_ESCAPE, line) if _ESCAPE in line else line
    quoted = "'" in line or '"' in line
    bare = _QUOTED_AGAIN.sub("", marked) if quoted else marked
    marked = _QUOTED_AGAIN.sub("", _with_quotes_inside(marked)) if quoted else marked
    hidden = _named(TOKENS.sub(HIDDEN, marked).replace(_ESCAPE, ""), own)
    return line if hidden == bare.replace(_ESCAPE, "") else hidden


def _with_quotes_inside(line: str) -> str:
    """A line with those values hidden that have quotes in them, as can be told while these have their backslashes yet."""
    if "\\'" not in line and '\\"' not in line:
        return line
    shown, begin = [], 0
    for found in _QUOTED.finditer(line):
        if found.start() < begin or not redact.is_secret(found[1]):
            continue
        end = _closing(line, found.end(), len(found[2]), found[3])
        if found[3] in line[found.end() : end]:
            shown.append(f"{line[begin : found.end()]}{HIDDEN}")
            begin = end
    return "".join([*shown, line[begin:]])


def _closing(line: str, at: int, backslashes: int, quote: str) -> int:
    """Where a quoted value ends; deeper quotes have more backslashes, and pairs of them are the value's own."""
    for found in re.compile(rf"(\\*){quote}").finditer(line, at, at + _MOST_QUOTED):
        more = len(found[1]) - backslashes
        if more == 0 or (more > 0 and not backslashes and more % 2 == 0):
            return found.end() - 1 - backslashes
    return len(line)


def _named(line: str, own: bool) -> str:
    line = _PROSE.sub(rf"\1{HIDDEN}", redact.programs(redact.url(redact.headers(line))))
    line = redact.named_values(_SPACED.sub(rf"\1{HIDDEN}", line))
    line = _REFUSED.sub(lambda found: f"{found[1]}{redact.hidden_as(found[3])}" if redact.is_secret(found[2]) else found[0], line)
    line = _CELLS.sub(_cell, line)
    line = _ATTRIBUTES.sub(lambda found: f"{found[1]}{HIDDEN}" if _is_secret(found[3], found[5]) else found[0], line)
    columns = _COLUMNS.fullmatch(line)
    if columns and _is_secret(columns[2], columns[3]):
        return f"{columns[1]}{HIDDEN}"
    shown, begin, at = [], 0, 0
    while found := _NAME.search(line, at):
        before_value = _BEFORE_VALUE.match(line, found.end())
        at = before_value.end() if before_value else found.end()
        secret = redact.is_secret(found[1] or found[2]) or (found[2] == "tokens" and bool(_OF_SERVICES.match(line, at)))
        value = _value(line, at, secret) or (_odd(line, found, at) if secret else "")
        if value.startswith("-") and (found[0][-1:].isspace() and (found[1] or _NO_VALUE.search(found[0]))):
            continue
        if found[3] and not line.endswith(_CALLS, 0, found.start()) and not _is_pair(line, found.start(), at + len(value)):
            continue
        prose = (own or _is_refused(line, found)) and found[0].endswith(": ") and value[:1] not in ("'", '"')
        prose = prose or _is_code(found, value) or _is_no_access(line, found, at, value)
        if value and not prose and _is_of_secret(found[1] or found[2], value, secret):
            shown.append(f"{line[begin:at]}{redact.hidden_as(value)}")
            begin = at = _end(line, found, at, value)
    return "".join([*shown, line[begin:]])


def _cell(found: re.Match[str]) -> str:
    value = found[3].rstrip()
    return f"{found[1]}{HIDDEN}{found[3][len(value) :]}" if _is_secret(found[2], value) else found[0]


def _is_refused(line: str, found: re.Match[str]) -> bool:
    """Whether an option is named as one that argparse refuses: error: argument --token: expected one argument."""
    return bool(found[1]) and line.rfind("argument ", max(0, found.start() - _BEFORE), found.start()) >= 0


def _is_code(found: re.Match[str], value: str) -> bool:
    """What names no secret itself: a call without any text in it, os.environ["TOKEN"], a list of numbers, and in a program's help what an
    option takes."""
    if value == (found[1] or "").strip("-").replace("-", "_").upper() or _NUMBERS.fullmatch(value) or _SUBSCRIPT.fullmatch(value):
        return True
    if (found[2] and value == found[2].rpartition(".")[2]) or _NAMES_CODE.fullmatch(value):
        return True
    call = found[0].endswith(" = ") and len(value) < _MOST_QUOTED and value.endswith(")") and not value.startswith(_BRACKETS)
    return call and "'" not in value and '"' not in value


def _is_no_access(line: str, found: re.Match[str], at: int, value: str) -> bool:
    """Where the word means something else: predicted token: Paris, token: 17, pass: 1/3, WARNING:auth:retrying, auth.py:42, and in the
    name of an exception."""
    if _ERROR.search(found[2] or "") or (_SOURCE.search(found[2] or "") and _NUMBER_OF_LINE.fullmatch(value)):
        return True
    name, before = (found[1] or found[2]).lower(), line[max(0, found.start() - _BEFORE) : found.start()]
    if name == "token" and (_OF_TEXT.search(before) or (_OF_PARSERS.search(before) and not _LIKE_A_TOKEN.fullmatch(value))):
        return True
    if (name == "pass" and _OF_COMPILERS.search(before)) or (found[0].endswith(":") and _LEVEL.search(before)):
        return True
    if found[0].endswith(": ") and _GOES_ON.match(line, at):
        return True
    return _is_harmless(found[1] or found[2], value) and _is_all(line, found, at + len(value))


def _is_harmless(name: str, value: str) -> bool:
    """A count, a word that is said of secrets, a folder: none that lets anybody in."""
    if (
        _HARMLESS.fullmatch(value)
        or (name == "pwd" and _FOLDER.fullmatch(value))
        or (_COUNT.fullmatch(value) and _OF_MODELS.fullmatch(name))
    ):
        return True
    lower = name.lower()
    return bool((lower == "token" and re.fullmatch(r"\d{1,7}", value)) or (lower == "pass" and re.fullmatch(r"\d{1,4}/\d{1,4}", value)))


def _is_all(line: str, found: re.Match[str], end: int) -> bool:
    """Whether the value ends here; a password in a line of its own may have more words."""
    words = found[0].endswith(": ") and _PASSWORD.search(found[2] or "")
    return bool(_NOTHING_MORE.match(line, end)) if words else _end_of_word(line, end, end + _MOST_BEFORE) == end


def _is_pair(line: str, begin: int, end: int) -> bool:
    """("token", "X"), as of a dict's items; elsewhere they are two names."""
    return begin > 1 and line[end : end + 1] == ")" and bool(_PAIR.search(line, max(0, begin - 3), begin))


def _value(line: str, at: int, is_secret: bool) -> str:
    """What stands there, with the quotes around it, and of a secret with brackets."""
    subscript = _SUBSCRIPT.match(line, at)
    if subscript:
        return subscript[0] if _NOTHING_MORE.match(line, subscript.end()) else line[at:]
    call = _CALL.match(line, at) if is_secret else None
    if call or (is_secret and line.startswith(_BRACKETS, at)):
        end = _end_of_brackets(line, call.end() - 1 if call else at)
        return line[at:] if call and _MORE.match(line, end) else line[at:end]
    if line[at : at + 1] not in ("'", '"'):
        found = _VALUE.match(line, at)
        return found[0] if found else ""
    end = line.find(line[at], at + 1, at + 1 + _MOST_QUOTED)
    return line[at : end + 1] if end > at + 1 else "" if end == at + 1 else line[at:]


def _end_of_brackets(line: str, at: int) -> int:
    """Behind those that close what is opened here; the end of the line where they do not."""
    depth = 0
    for found in re.finditer(r"[{}\[\]()]", line[at : at + _MOST_QUOTED]):
        depth += 1 if found[0] in _BRACKETS else -1
        if depth == 0:
            return at + found.end()
    return len(line)


def _is_secret(name: str, value: str) -> bool:
    return not _NO_SECRET.fullmatch(value.rstrip("`")) and redact.is_value_secret(name, value)


def _is_of_secret(name: str, value: str, secret: bool) -> bool:
    """secret: as the name says already; what has been hidden is too, as the rest of the word may not be."""
    return (secret and (value == HIDDEN or name == "tokens")) or _is_secret(name, value.strip("'\""))


def _odd(line: str, found: re.Match[str], at: int) -> str:
    """A value that begins as none does elsewhere: PASSWORD=)x, --password )x"""
    odd = _ODD.match(line, at) if _is_whole(line, found) or (found[1] and (found[0][-1] == "=" or line[at : at + 1] != ">")) else None
    return odd[0] if odd else ""


def _end(line: str, found: re.Match[str], at: int, value: str) -> int:
    """Where the value ends, of which this is the beginning, and what may be hidden with it."""
    end = at + len(value)
    if value[0] in "'\"":
        return end
    rest = _rest_of_line(line[at:], found) if _is_whole(line, found) else 0
    return max(at + rest, _end_of_word(line, end, len(line)))


def _end_of_word(line: str, at: int, most: int) -> int:
    rest = _REST.match(line, at, most)
    return rest.end() if rest else at


def _rest_of_line(rest: str, found: re.Match[str]) -> int:
    """How much of it is the value, where nothing stands before the name: one word, and of a password several."""
    word = _ONE_WORD.match(rest)
    if word and (found[2].isupper() or not _NEXT_PAIR.search(rest)):
        return word.end()
    words = found[0].endswith(": ") and _PASSWORD.search(found[2]) and not _MORE_THAN_WORDS.search(rest)
    return len(rest.rstrip()) if words else 0


def _is_whole(line: str, found: re.Match[str]) -> bool:
    """Whether nothing but this name stands before the value."""
    return bool(found[2]) and found.start() <= _MOST_BEFORE and bool(_BEFORE_NAME.fullmatch(line, 0, found.start()))
