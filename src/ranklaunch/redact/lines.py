"""Lines of output without their secrets, also if a value is in the line after its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ranklaunch.redact import forms, harmless
from ranklaunch.redact.forms import HIDDEN, STEMS
from ranklaunch.redact.patterns import TOKENS

# Forms of names and values in a line

CONTROL = re.compile(r"(?:\x1b|\\{1,16}(?:x1[bB]|u001[bB]|033|e))\[[0-?]{0,40}[ -/]{0,4}[@-~]")  # sequences for colours and cursor
IS = r"\s{0,32}(?::=|[=-]>|=(?!=)|:(?![:=])|：|＝|\.{3,64}\s)\s{0,32}"  # also in aligned lists of settings: token = x, token ..... x
# Prefix of a quote in a text that was quoted again, or in bytes: {\\"token\\": \\"x\\"}, b'token'
QUOTED_AGAIN = re.compile(r"\\{1,16}(?=['\"])|(?<![\w\"-])[bBuU](?=\\{0,16}\")|(?<![\w'-])[bBuU](?=\\{0,16}')")
# A written line end or tab (\n, \t) becomes white space of the same length, so that its letter does not join the next name.
_WRITTEN = re.compile(r"\\{1,16}[nrt]")
_BLANKS = str.maketrans("\\nrt", "\x1c\x1d\x1e\x1f")
_BACK = {blank: letter for letter, blank in _BLANKS.items()}
BREAK = r"[\x1c-\x1f]"
TAG = r"(?:\[[^\]\s]{1,40}\]:?\s)?"  # a rank's tag


def with_breaks(text: str) -> str:
    """Return a text whose written line ends and tabs are control characters of the same length."""
    return _WRITTEN.sub(_as_blanks, re.sub(BREAK, " ", text))


def _as_blanks(match: re.Match[str]) -> str:
    return match[0].translate(_BLANKS)


def without_breaks(text: str) -> str:
    return text.translate(_BACK)


# One line

_ESCAPE = "\x1b"
# "token": "x\"y", a quoted value with quotes of its own; the pattern ends where the value begins. Text that was quoted again has more \.
_QUOTED = re.compile(rf"(?<![\w.-])([\w.-]{{1,64}})\\{{0,16}}(?:['\"]?{IS}|['\"],\s?)(\\{{0,16}})(['\"])")
# --token X, --token=X, '--token', 'X', HF_TOKEN=X, "token": "X", token: str = "X", ["token"] = "X", setdefault("token", "X"); the pattern
# ends where the value begins
_NAME = re.compile(
    rf"(?<![\w.-])(?=-p\s|-{{0,2}}[\w.-]{{0,60}}(?i:{STEMS}))"
    rf"(?:(-{{1,2}}[\w.-]{{1,64}})(?:{IS}|\s{{1,8}}|['\"], ?(?=['\"]))|([\w.-]{{1,64}})"
    rf"(?::\s?[\w.\[\], |]{{1,64}}\s?=\s?(?=['\"{{\[(])|['\"]?{IS}|['\"]\]\s?=(?!=)\s?|(['\"],\s?)(?=['\"])))"
)
_PROSE = re.compile(  # the token is X, API key provided: X; only if X looks like a secret
    r"(?i)(?<![\w.-])((?:(?:password|passwd|passphrase|secret|token|api[ _-]?key)\s{1,4}(?:is|was)\s{0,4}:?"
    r"|(?:password|passwd|passphrase|api[ _-]?key)(?:\s{1,4}(?:provided|given|used))?:?"
    r"|(?:invalid|bad|wrong|expired|revoked|unknown)\s{1,4}(?:secret|token):?)\s{1,4}['\"]?)"
    r"(?=[^\s'\"]{0,64}\d)(?=[^\s'\"]{0,64}[a-z])[^\s'\",;)}\]]{6,}"
)
_SPACED = re.compile(  # Secret Access Key: X, wandb.login(key="X"), a line of .netrc, and wandb's message about this file
    r"(?i)(\b(?:(?:secret|api|account|private) (?:access )?key|(?:access|auth) (?:key|token))\s{0,8}[:=]\s{0,8}['\"]?"
    r"|\blogin\([^()'\"]{0,100}\bkey\s?=\s?['\"]|\blogin\s{1,4}\S{1,128}\s{1,4}password\s{1,4}"
    r"|\bnetrc file:\s{1,4}(?![~/.]|[a-z]:\\))"
    rf"(?!{harmless.SAID_OF_ONE}(?:[\s,;.)]|$))[^\s'\",;)}}\]]+"
)
_BAR = r"|\u2502\u2503\u2551"  # between cells
_CELLS = re.compile(  # | password | X |, with more than letters in X: a heading has letters only
    rf"([{_BAR}]\s{{0,64}}[*`]{{0,2}}(-{{0,2}}[A-Za-z][\w.-]{{0,63}})[*`:]{{0,3}}\s{{0,64}}[{_BAR}]{{1,2}}\s{{0,64}})"
    rf"(?=[A-Za-z _-]{{0,64}}[^A-Za-z _{_BAR}-])([^{_BAR}]{{1,400}})(?=[{_BAR}])"
)
_ATTRIBUTES = re.compile(r"(\b(?:key|name)=(['\"])([\w.-]{1,64})\2\s{1,8}value=(['\"]))([^'\"]{1,400})(?=\4)")  # of XML
_PAIR = re.compile(r"(?<![\w.\])])\(['\"]")  # the beginning of a pair, not of a call
# Calls with a name and its value. In other calls, two quoted words are two names.
_CALLS = tuple(f"{name}({quote}" for name in ("setdefault", "putenv", "setenv", "getenv", "environ.get") for quote in "'\"")
_COLUMNS = re.compile(  # password   X; only if X looks like a secret, not like a number, version or path
    r"(\s*([A-Za-z][\w.-]{0,63})(?:\t|\s{2})\s{0,200})(?!\d{1,9}[.x:e]\d|[~./]|\d{1,9}[A-Za-z%/]{1,5}\s*$)"
    r"(?=[^\d\s]*\d)(?=[^A-Za-z\s]*[A-Za-z])([^\s()\[\]]{6,})\s*"
)
_VALUE = re.compile(r"(?:-{1,8}(?=\w)|[^\s\"',;)}\]<>-])[^\s\"',;)}\]]{0,400}")
_NO_VALUE = re.compile(r"(?<=\S)=\s{1,32}$")  # TOKEN= --lr 1
# Allowed text before a name in a line with one name and its value alone. In such a line the value goes on to the end.
_BEFORE_NAME = re.compile(rf"\s*{TAG}\s*(?:[-+]{{1,4}}\s)?(?:(?:export|declare -x|ENV)\s{{1,4}})?['\"]?")
_MOST_BEFORE = 80
_ODD = re.compile(r"(?!<[\w.-]{1,64}(?:>|\s))[,;)}\]<>-]\S{0,64}\w")  # not <TOKEN>, which is a placeholder
_PASSWORD = re.compile(r"(?i)(?:passw(?:or)?d|passphrase|pwd)$")  # may have blanks
_MORE_THAN_WORDS = re.compile(r"[=:](?:\s|$)|\w[=:]|\s(?:#|--?\w)")
_ONE_WORD = re.compile(r"\S*[^\s\"',;)}\]](?=[\"',;)}\]]*\s*$)")
_NEXT_PAIR = re.compile(r"[,;][A-Za-z_-][\w.-]{0,63}[=:]")
_OF_SERVICES = re.compile(r"\{\s?['\"](?:hf|huggingface|wandb|git\w{1,16}|openai|api|access|auth|refresh)\w{0,16}['\"]\s?:\s?['\"]")
_REFUSED = re.compile(  # by argparse: argument -t/--token: invalid int value: 'X'
    r"(\bargument (?:-\w[/, ]{1,2})?(--?[A-Za-z][\w-]{0,63})(?:/[^:\s]{1,64})?: invalid [\w.<> ]{0,64}(?:value|choice)?: )"
    r"('[^']{0,400}'|\"[^\"]{0,400}\")"
)
_MORE = re.compile(r"\s{0,8}(?:or\b|and\b|if\b|[-+*%.\[|])")
_NOTHING_MORE = re.compile(r"\s*(?:$|[,)\]}#;])")  # the end of an expression; os.environ["X"] or "hunter2" goes on
_SEVERAL_QUOTES = re.compile(  # Python's triple quotes; a shell's 'X'"'"'Y' and 'X'\''Y', the latter without its backslash
    r"'''[^']{1,400}'''|\"\"\"[^\"]{1,400}\"\"\"|'[^']{0,400}'(?:(?:\"'\"|')'[^']{0,400}'){1,16}"
)
_QUOTED_ONCE = re.compile(  # 'X'; the rest of the line if the quote is not closed
    r"(?s)'(?:[^']{1,4095}'|(?!').*)|\"(?:[^\"]{1,4095}\"|(?!\").*)"
)
_CALL = re.compile(r"[\w.]{1,64}\(")  # auth=HTTPBasicAuth("user", "X")
_NO_SECRET = re.compile(  # a word before the secret; an edge between cells; a hidden secret; code
    rf"(?i:bearer|basic)|[{_BAR}]|EMPTY|<\|.*|[|>][-+\d]{{1,2}}|\*\*\*(?:&.*)?|Optional\[.*|str|int|bool|bytes|float|dict|list|None|True|False"
)
_BEFORE_VALUE = re.compile(  # marks of YAML; the scheme in a header
    rf"(?:(?:{forms.YAML_MARK}\s{{1,4}}){{1,2}}|(?i:bearer|basic|token)(?=\s{{1,4}}(?:\S{{0,64}}\d|\*\*\*))\s{{1,4}})(?=\S)"
)
_BREAK = re.compile(BREAK)
_ANY_NAME = re.compile(r"-{0,2}[\w.-]{1,64}['\"]?\s?[:=]")
# Characters that usually end a value, if more of the value follows and no other NAME=value
_REST = re.compile(
    r"(?:[^\s\"',;)}\]]|['\"](?=\w)|[,;)}\]](?![,;)}\]]{0,8}(?:$|[\s'\"]|(?<=[,;])[A-Za-z_-][\w.-]{0,63}\s?[=:]))"
    rf"|{BREAK}{{2,64}}(?!{BREAK})(?=[^\s\"',;)}}\]])(?!{_ANY_NAME.pattern}))*"
)


def without_secrets(line: str, own: bool) -> str:
    """Return one line without its secrets, also if they are coloured or were quoted several times. own: as in `shown`."""
    marked = CONTROL.sub(_ESCAPE, line) if _ESCAPE in line or "\\" in line else line
    quoted = "'" in line or '"' in line
    bare = QUOTED_AGAIN.sub("", marked) if quoted else marked
    marked = QUOTED_AGAIN.sub("", _with_quotes_inside(marked)) if quoted else marked
    hidden = _named(TOKENS.sub(HIDDEN, with_breaks(marked)).replace(_ESCAPE, ""), own)
    return line if hidden == with_breaks(bare).replace(_ESCAPE, "") else without_breaks(hidden)


def _with_quotes_inside(line: str) -> str:
    """Hide values that contain quotes. The backslashes before these quotes must still be in the line."""
    if "\\'" not in line and '\\"' not in line:
        return line
    shown, begin = [], 0
    for match in _QUOTED.finditer(line):
        if match.start() < begin or not forms.is_secret(match[1]):
            continue
        end = _closing(line, match.end(), len(match[2]), match[3])
        if match[3] in line[match.end() : end]:
            shown.append(f"{line[begin : match.end()]}{HIDDEN}")
            begin = end
    return "".join([*shown, line[begin:]])


def _closing(line: str, at: int, backslashes: int, quote: str) -> int:
    """Return the end of a quoted value. Deeper quotes have more backslashes; pairs of backslashes belong to the value."""
    for match in re.compile(rf"(\\*){quote}").finditer(line, at, at + harmless.MOST_QUOTED):
        more = len(match[1]) - backslashes
        of_pairs = more > 0 and not backslashes and more % 2 == 0
        if more == 0 or (of_pairs and not line[match.end() : match.end() + 1].isalnum()):
            return match.end() - 1 - backslashes
    return len(line)


def _named(line: str, own: bool) -> str:
    line = _by_form(line)
    columns = _COLUMNS.fullmatch(line)
    if columns and is_secret(columns[2], columns[3]):
        return f"{columns[1]}{HIDDEN}"
    shown, begin, end = [], 0, 0
    while match := _NAME.search(line, end):
        before_value = _BEFORE_VALUE.match(line, match.end())
        at, end = (before_value or match).end(), max(match.end(1), match.end(2))
        value = _secret(line, match, at, own)
        if value:
            shown.append(f"{line[begin:at]}{forms.hidden_as(value)}")
            begin = end = _end(line, match, at, value)
    return "".join([*shown, line[begin:]])


def _secret(line: str, match: re.Match[str], at: int, own: bool) -> str:
    """Return the value behind a name if it is a secret, else ""."""
    name = match[1] or match[2]
    is_secret_name = forms.is_secret(name) or (name == "tokens" and bool(_OF_SERVICES.match(line, at)))
    value = _value(line, at, is_secret_name) or (_odd(line, match, at) if is_secret_name else "")
    if not value or not _belongs(line, match, at, value) or _means_else(line, match, at, value, own):
        return ""
    # A value that is hidden already counts as a secret: the rest of its word may not be hidden yet.
    is_known = is_secret_name and (value == HIDDEN or name == "tokens")
    return value if is_known or is_secret(name, value.strip("'\"")) else ""


def _by_form(line: str) -> str:
    """Hide secrets that have a form of their own: URLs, headers, commands, prose, cells."""
    line = _PROSE.sub(rf"\1{HIDDEN}", forms.programs(forms.url(forms.headers(line))))
    line = forms.named_values(_SPACED.sub(rf"\1{HIDDEN}", line))
    line = _REFUSED.sub(_refused, line)
    line = _CELLS.sub(_cell, line)
    return _ATTRIBUTES.sub(_attribute, line)


def _refused(match: re.Match[str]) -> str:
    return f"{match[1]}{forms.hidden_as(match[3])}" if forms.is_secret(match[2]) else match[0]


def _attribute(match: re.Match[str]) -> str:
    return f"{match[1]}{HIDDEN}" if is_secret(match[3], match[5]) else match[0]


def _belongs(line: str, match: re.Match[str], at: int, value: str) -> bool:
    """Return False if the value is no value of this name, but the next option, the second of two names, or a name in the next line."""
    if value.startswith("-") and (match[0][-1:].isspace() and (match[1] or _NO_VALUE.search(match[0]))):
        return False
    if _BREAK.search(match[0]) and _ANY_NAME.match(line, at):
        return False
    return not match[3] or line.endswith(_CALLS, 0, match.start()) or _is_pair(line, match.start(), at + len(value))


def _means_else(line: str, match: re.Match[str], at: int, value: str, own: bool) -> bool:
    """Return True for harmless text behind the name of a secret."""
    if (own or harmless.is_refused(line, match)) and match[0].endswith(": ") and value[:1] not in ("'", '"'):
        return True  # prose about the name
    if harmless.is_code(match, value) or harmless.is_no_access(line, match, at, value):
        return True
    return harmless.is_harmless(match[1] or match[2], value) and _is_all(line, match, at + len(value))


def _cell(match: re.Match[str]) -> str:
    value = match[3].rstrip()
    return f"{match[1]}{HIDDEN}{match[3][len(value) :]}" if is_secret(match[2], value) else match[0]


def _is_all(line: str, match: re.Match[str], end: int) -> bool:
    """Return True if the value ends at `end`. A password in a line of its own may have several words."""
    words = match[0].endswith(": ") and _PASSWORD.search(match[2] or "")
    return bool(_NOTHING_MORE.match(line, end)) if words else _end_of_word(line, end, end + _MOST_BEFORE) == end


def _is_pair(line: str, begin: int, end: int) -> bool:
    """Return True for a pair in a list of items: ("token", "X"). Elsewhere, two quoted words are two names."""
    return begin > 1 and line[end : end + 1] == ")" and bool(_PAIR.search(line, max(0, begin - 3), begin))


def _value(line: str, at: int, is_secret: bool) -> str:
    """Return the value at a position, with its quotes; for a secret, all that is between brackets."""
    subscript = harmless.SUBSCRIPT.match(line, at)
    if subscript:
        return subscript[0] if _NOTHING_MORE.match(line, subscript.end()) else line[at:]
    call = _CALL.match(line, at) if is_secret else None
    if call or (is_secret and line.startswith(harmless.BRACKETS, at)):
        end = _end_of_brackets(line, call.end() - 1 if call else at)
        return line[at:] if call and _MORE.match(line, end) else line[at:end]
    match = _SEVERAL_QUOTES.match(line, at) or _QUOTED_ONCE.match(line, at) or _VALUE.match(line, at)
    return match[0] if match else ""


def _end_of_brackets(line: str, at: int) -> int:
    """Return the end of the closing bracket for the one that opens here, or the end of the line if none closes."""
    depth = 0
    for match in re.finditer(r"[{}\[\]()]", line[at : at + harmless.MOST_QUOTED]):
        depth += 1 if match[0] in harmless.BRACKETS else -1
        if depth == 0:
            return at + match.end()
    return len(line)


def is_secret(name: str, value: str) -> bool:
    return not _NO_SECRET.fullmatch(value.rstrip("`")) and forms.is_value_secret(name, value)


def _odd(line: str, match: re.Match[str], at: int) -> str:
    """Return a value that begins with a character of punctuation: PASSWORD=)x, --password )x"""
    odd = _ODD.match(line, at) if _is_whole(line, match) or (match[1] and (match[0][-1] == "=" or line[at : at + 1] != ">")) else None
    return odd[0] if odd else ""


def _end(line: str, match: re.Match[str], at: int, value: str) -> int:
    """Return the end of a value, including following text that may belong to it. value: its beginning."""
    end = at + len(value)
    if value[0] in "'\"":
        return end
    rest = _rest_of_line(_BREAK.split(line[at:], 1)[0], match) if _is_whole(line, match) else 0
    return max(at + rest, _end_of_word(line, end, len(line)))


def _end_of_word(line: str, at: int, most: int) -> int:
    rest = _REST.match(line, at, most)
    return rest.end() if rest else at


def _rest_of_line(rest: str, match: re.Match[str]) -> int:
    """Return the length of the value in a line that begins with its name: one word, or several for a password."""
    word = _ONE_WORD.match(rest)
    if word and (match[2].isupper() or not _NEXT_PAIR.search(rest)):
        return word.end()
    words = match[0].endswith(": ") and _PASSWORD.search(match[2]) and not _MORE_THAN_WORDS.search(rest)
    return len(rest.rstrip()) if words else 0


def _is_whole(line: str, match: re.Match[str]) -> bool:
    """Return True if the line begins with the name."""
    near = max(0, match.start() - _MOST_BEFORE)
    breaks = [each.end() for each in _BREAK.finditer(line, near, match.start())]
    if not match[2] or (near and not breaks):
        return False
    return bool(_BEFORE_NAME.fullmatch(line, breaks[-1] if breaks else 0, match.start()))


# Values in the line after the name

# Name at the end of a line. Its value is the next line, or all lines with a larger indent (YAML's text of several lines).
_OPEN = re.compile(rf"(?<![\w.-])(?:(-{{1,2}}[\w.-]{{1,64}})['\"]?,?|([\w.-]{{1,64}})['\"]?{IS}([|>][-+\d]{{0,2}})?)\s{{0,8}}\\?$")
_OPEN_WITHIN = 200  # characters at the end of a line
_ALONE = re.compile(rf"({TAG}\s*(?:-\s+)?)(\"[^\"]+\"|'[^']+'|[^\s\"',{{}}\[\]]+)(,?\s*)")
_ITEM = re.compile(rf"{TAG}\s*-\s")
_INDENT = re.compile(rf"{TAG}\s*")
# Name alone in a line, as in pydantic's errors; name: HF_TOKEN in the line before the value, as in Kubernetes.
_BARE = re.compile(rf"{TAG}[\s{{-]*(?:['\"]?name['\"]?\s{{0,8}}[:=]\s{{0,8}})?['\"]?([\w.-]{{1,64}})['\"]?,?\s*")
_BESIDE = re.compile(
    rf"(.{{0,400}}\binput_value=|{TAG}[\s-]{{0,64}}['\"]?value['\"]?\s{{0,8}}[:=]\s{{0,8}})"
    r"(.+?(?=, input_type=)|\"[^\"]+\"|'[^']+'|[^\s'\"].*)"
)
_BODY = re.compile(r"[\s>|]*(?:\[[^\]\s]{1,40}\]:?\s)?[A-Za-z0-9+/=]{16,}\s*")
_BODY_IN_LINE = re.compile(r"(PRIVATE KEY-----)[A-Za-z0-9+/=\\ ]{8,}")


class _Before(NamedTuple):
    """Name with a value that may follow in the next line. way: alone, list, block or beside. indent: columns of the line with the name."""

    name: str = ""
    way: str = ""
    indent: int = 0


def shown(lines: Iterable[str], own: bool = False) -> tuple[str, ...]:
    """Return lines with their secrets hidden; lines without secrets are unchanged. own: True for ranklaunch's own sentences, in which
    a word before a colon is a subject, not the name of a secret."""
    result, before = [], _Before()
    for line in lines:
        result.append(without_secrets(_continued(line, before) if before.name else line, own))
        before = _Before() if own else _left_open(line, result[-1], before)
    if any("PRIVATE KEY" in line for line in result):
        result = [HIDDEN if _BODY.fullmatch(line) else _BODY_IN_LINE.sub(rf"\1{HIDDEN}", line) for line in result]
    return tuple(result)


def _left_open(line: str, shown: str, before: _Before) -> _Before:
    """Return the name of a secret with a value that continues in the next line."""
    end = QUOTED_AGAIN.sub("", CONTROL.sub("", line[-_OPEN_WITHIN:])).rstrip("\r")
    if end.endswith("\\") and shown.endswith(HIDDEN):
        return _Before("secret", "alone")
    if (before.way == "list" and _ITEM.match(line)) or (before.way == "block" and _is_within(line, before)):
        return before
    return _opened(line, end)


def _opened(line: str, end: str) -> _Before:
    """Return the name of a secret at the end of a line, or a name alone in its line."""
    match = _OPEN.search(end)
    if match and forms.is_secret(match[1] or match[2]):
        return _Before(match[1] or match[2], "block" if match[3] else "list" if match[2] else "alone", _indent(line))
    bare = _BARE.fullmatch(end) if len(line) <= _OPEN_WITHIN else None
    return _Before(bare[1], "beside") if bare and forms.is_secret(bare[1]) else _Before()


def _continued(line: str, before: _Before) -> str:
    """Hide the value that belongs to the name in the previous line."""
    marked = QUOTED_AGAIN.sub("", CONTROL.sub("", line))
    if before.way in ("alone", "list"):
        return _alone(line, marked, before.name)
    if before.way == "block":
        return f"{line[: _indent(line)]}{HIDDEN}" if line.strip() and _is_within(line, before) else line
    match = _BESIDE.match(marked)
    if not match or not _is_told(before.name, match[2]):
        return line
    return f"{match[1]}{forms.hidden_as(match[2])}{marked[match.end() :]}"


def _is_told(name: str, value: str) -> bool:
    bare = value.strip("'\"")
    return is_secret(name, bare) and not harmless.WORDS.fullmatch(bare)


def _indent(line: str) -> int:
    indent = _INDENT.match(line)
    return indent.end() if indent else 0


def _is_within(line: str, before: _Before) -> bool:
    return _indent(line) > before.indent or not line.strip()


def _alone(line: str, marked: str, name: str) -> str:
    """Hide a line that consists of nothing but the value of this name."""
    match = _ALONE.fullmatch(marked.rstrip("\\ "))
    is_name = match and (match[2].endswith(":") or (name[0] == match[2][0] == "-"))
    if not match or is_name or not _is_told(name, match[2]):
        return line
    return f"{match[1]}{forms.hidden_as(match[2])}{match[3]}"
