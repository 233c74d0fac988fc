"""One line without the secrets in it."""

from __future__ import annotations

import re

from ranklaunch.redact import harmless, members, names, programs, web
from ranklaunch.redact.names import HIDDEN, STEMS
from ranklaunch.redact.patterns import TOKENS
from ranklaunch.redact.syntax import BREAK, CONTROL, IS, QUOTED_AGAIN, TAG, with_breaks, without_breaks

_ESCAPE = "\x1b"
# "token": "x\"y", where what is quoted has such quotes itself: up to where the value begins. The same with more \ in a text quoted again.
_QUOTED = re.compile(rf"(?<![\w.-])([\w.-]{{1,64}})\\{{0,16}}(?:['\"]?{IS}|['\"],\s?)(\\{{0,16}})(['\"])")
# --token X, --token=X, '--token', 'X', HF_TOKEN=X, "token": "X", token: str = "X", ["token"] = "X", setdefault("token", "X"): up to where
# the value begins
_NAME = re.compile(
    rf"(?<![\w.-])(?=-p\s|-{{0,2}}[\w.-]{{0,60}}(?i:{STEMS}))"
    rf"(?:(-{{1,2}}[\w.-]{{1,64}})(?:{IS}|\s{{1,8}}|['\"], ?(?=['\"]))|([\w.-]{{1,64}})"
    rf"(?::\s?[\w.\[\], |]{{1,64}}\s?=\s?(?=['\"{{\[(])|['\"]?{IS}|['\"]\]\s?=(?!=)\s?|(['\"],\s?)(?=['\"])))"
)
_PROSE = re.compile(  # the token is X, API key provided: X, of a word that looks like one
    r"(?i)(?<![\w.-])((?:(?:password|passwd|passphrase|secret|token|api[ _-]?key)\s{1,4}(?:is|was)\s{0,4}:?"
    r"|(?:password|passwd|passphrase|api[ _-]?key)(?:\s{1,4}(?:provided|given|used))?:?"
    r"|(?:invalid|bad|wrong|expired|revoked|unknown)\s{1,4}(?:secret|token):?)\s{1,4}['\"]?)"
    r"(?=[^\s'\"]{0,64}\d)(?=[^\s'\"]{0,64}[a-z])[^\s'\",;)}\]]{6,}"
)
_SPACED = re.compile(  # Secret Access Key: X, wandb.login(key="X"), a line of .netrc, and what wandb says of this file
    r"(?i)(\b(?:(?:secret|api|account|private) (?:access )?key|(?:access|auth) (?:key|token))\s{0,8}[:=]\s{0,8}['\"]?"
    r"|\blogin\([^()'\"]{0,100}\bkey\s?=\s?['\"]|\blogin\s{1,4}\S{1,128}\s{1,4}password\s{1,4}"
    r"|\bnetrc file:\s{1,4}(?![~/.]|[a-z]:\\))"
    rf"(?!{harmless.SAID_OF_ONE}(?:[\s,;.)]|$))[^\s'\",;)}}\]]+"
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
_COLUMNS = re.compile(  # password   X, of a word that looks like one, and no number, version or path
    r"(\s*([A-Za-z][\w.-]{0,63})(?:\t|\s{2})\s{0,200})(?!\d{1,9}[.x:e]\d|[~./]|\d{1,9}[A-Za-z%/]{1,5}\s*$)"
    r"(?=[^\d\s]*\d)(?=[^A-Za-z\s]*[A-Za-z])([^\s()\[\]]{6,})\s*"
)
_VALUE = re.compile(r"(?:-{1,8}(?=\w)|[^\s\"',;)}\]<>-])[^\s\"',;)}\]]{0,400}")
_NO_VALUE = re.compile(r"(?<=\S)=\s{1,32}$")  # TOKEN= --lr 1
# What may stand before a name in a line that says nothing but its value; there, what a value holds cannot be what follows it.
_BEFORE_NAME = re.compile(rf"\s*{TAG}\s*(?:[-+]{{1,4}}\s)?(?:(?:export|declare -x|ENV)\s{{1,4}})?['\"]?")
_MOST_BEFORE = 80
_ODD = re.compile(r"(?!<[\w.-]{1,64}(?:>|\s))[,;)}\]<>-]\S{0,64}\w")  # and not <TOKEN>, which stands for one
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
_NOTHING_MORE = re.compile(r"\s*(?:$|[,)\]}#;])")  # of an expression: os.environ["X"] or "hunter2" has more
_SEVERAL_QUOTES = re.compile(  # of Python; 'X'"'"'Y' and 'X'\''Y' of a shell, the latter without its backslash
    r"'''[^']{1,400}'''|\"\"\"[^\"]{1,400}\"\"\"|'[^']{0,400}'(?:(?:\"'\"|')'[^']{0,400}'){1,16}"
)
_CALL = re.compile(r"[\w.]{1,64}\(")  # auth=HTTPBasicAuth("user", "X")
_NO_SECRET = re.compile(  # is behind it; between cells; has been hidden; is code
    rf"(?i:bearer|basic)|[{_BAR}]|EMPTY|<\|.*|[|>][-+\d]{{1,2}}|\*\*\*(?:&.*)?|Optional\[.*|str|int|bool|bytes|float|dict|list|None|True|False"
)
_BEFORE_VALUE = re.compile(  # of YAML; of a header
    rf"(?:(?:{members.YAML_MARK}\s{{1,4}}){{1,2}}|(?i:bearer|basic|token)(?=\s{{1,4}}(?:\S{{0,64}}\d|\*\*\*))\s{{1,4}})(?=\S)"
)
_BREAK = re.compile(BREAK)
_ANY_NAME = re.compile(r"-{0,2}[\w.-]{1,64}['\"]?\s?[:=]")
# Quotes and what ends a value elsewhere, where more of it follows that is no other NAME=value
_REST = re.compile(
    r"(?:[^\s\"',;)}\]]|['\"](?=\w)|[,;)}\]](?![,;)}\]]{0,8}(?:$|[\s'\"]|(?<=[,;])[A-Za-z_-][\w.-]{0,63}\s?[=:]))"
    rf"|{BREAK}{{2,64}}(?!{BREAK})(?=[^\s\"',;)}}\]])(?!{_ANY_NAME.pattern}))*"
)


def without_secrets(line: str, own: bool) -> str:
    """A secret is found whatever colour it has, and however often it was quoted."""
    marked = CONTROL.sub(_ESCAPE, line) if _ESCAPE in line or "\\" in line else line
    quoted = "'" in line or '"' in line
    bare = QUOTED_AGAIN.sub("", marked) if quoted else marked
    marked = QUOTED_AGAIN.sub("", _with_quotes_inside(marked)) if quoted else marked
    hidden = _named(TOKENS.sub(HIDDEN, with_breaks(marked)).replace(_ESCAPE, ""), own)
    return line if hidden == with_breaks(bare).replace(_ESCAPE, "") else without_breaks(hidden)


def _with_quotes_inside(line: str) -> str:
    """A line with those values hidden that have quotes in them, as can be told while these have their backslashes yet."""
    if "\\'" not in line and '\\"' not in line:
        return line
    shown, begin = [], 0
    for found in _QUOTED.finditer(line):
        if found.start() < begin or not names.is_secret(found[1]):
            continue
        end = _closing(line, found.end(), len(found[2]), found[3])
        if found[3] in line[found.end() : end]:
            shown.append(f"{line[begin : found.end()]}{HIDDEN}")
            begin = end
    return "".join([*shown, line[begin:]])


def _closing(line: str, at: int, backslashes: int, quote: str) -> int:
    """Where a quoted value ends; deeper quotes have more backslashes, and pairs of them are the value's own."""
    for found in re.compile(rf"(\\*){quote}").finditer(line, at, at + harmless.MOST_QUOTED):
        more = len(found[1]) - backslashes
        of_pairs = more > 0 and not backslashes and more % 2 == 0
        if more == 0 or (of_pairs and not line[found.end() : found.end() + 1].isalnum()):
            return found.end() - 1 - backslashes
    return len(line)


def _named(line: str, own: bool) -> str:
    line = _by_form(line)
    columns = _COLUMNS.fullmatch(line)
    if columns and is_secret(columns[2], columns[3]):
        return f"{columns[1]}{HIDDEN}"
    shown, begin, end = [], 0, 0
    while found := _NAME.search(line, end):
        before_value = _BEFORE_VALUE.match(line, found.end())
        at, end = (before_value or found).end(), max(found.end(1), found.end(2))
        secret = names.is_secret(found[1] or found[2]) or (found[2] == "tokens" and bool(_OF_SERVICES.match(line, at)))
        value = _value(line, at, secret) or (_odd(line, found, at) if secret else "")
        its_own = value and _belongs(line, found, at, value) and not _means_else(line, found, at, value, own)
        if its_own and _is_of_secret(found[1] or found[2], value, secret):
            shown.append(f"{line[begin:at]}{names.hidden_as(value)}")
            begin = end = _end(line, found, at, value)
    return "".join([*shown, line[begin:]])


def _by_form(line: str) -> str:
    """A line without the secrets that stand in a form of their own: URLs, headers, commands, prose, cells."""
    line = _PROSE.sub(rf"\1{HIDDEN}", programs.programs(web.url(web.headers(line))))
    line = members.named_values(_SPACED.sub(rf"\1{HIDDEN}", line))
    line = _REFUSED.sub(lambda found: f"{found[1]}{names.hidden_as(found[3])}" if names.is_secret(found[2]) else found[0], line)
    line = _CELLS.sub(_cell, line)
    return _ATTRIBUTES.sub(lambda found: f"{found[1]}{HIDDEN}" if is_secret(found[3], found[5]) else found[0], line)


def _belongs(line: str, found: re.Match[str], at: int, value: str) -> bool:
    """Whether the value is this name's: not the next option, not the next of two names, and not the name in the next line."""
    if value.startswith("-") and (found[0][-1:].isspace() and (found[1] or _NO_VALUE.search(found[0]))):
        return False
    if _BREAK.search(found[0]) and _ANY_NAME.match(line, at):
        return False
    return not found[3] or line.endswith(_CALLS, 0, found.start()) or _is_pair(line, found.start(), at + len(value))


def _means_else(line: str, found: re.Match[str], at: int, value: str, own: bool) -> bool:
    if (own or harmless.is_refused(line, found)) and found[0].endswith(": ") and value[:1] not in ("'", '"'):
        return True  # prose about the name
    if harmless.is_code(found, value) or harmless.is_no_access(line, found, at, value):
        return True
    return harmless.is_harmless(found[1] or found[2], value) and _is_all(line, found, at + len(value))


def _cell(found: re.Match[str]) -> str:
    value = found[3].rstrip()
    return f"{found[1]}{HIDDEN}{found[3][len(value) :]}" if is_secret(found[2], value) else found[0]


def _is_all(line: str, found: re.Match[str], end: int) -> bool:
    """Whether the value ends here; a password in a line of its own may have more words."""
    words = found[0].endswith(": ") and _PASSWORD.search(found[2] or "")
    return bool(_NOTHING_MORE.match(line, end)) if words else _end_of_word(line, end, end + _MOST_BEFORE) == end


def _is_pair(line: str, begin: int, end: int) -> bool:
    """("token", "X"), as of a dict's items; elsewhere they are two names."""
    return begin > 1 and line[end : end + 1] == ")" and bool(_PAIR.search(line, max(0, begin - 3), begin))


def _value(line: str, at: int, is_secret: bool) -> str:
    """What stands there, with the quotes around it, and of a secret with brackets."""
    subscript = harmless.SUBSCRIPT.match(line, at)
    if subscript:
        return subscript[0] if _NOTHING_MORE.match(line, subscript.end()) else line[at:]
    call = _CALL.match(line, at) if is_secret else None
    if call or (is_secret and line.startswith(harmless.BRACKETS, at)):
        end = _end_of_brackets(line, call.end() - 1 if call else at)
        return line[at:] if call and _MORE.match(line, end) else line[at:end]
    if line[at : at + 1] not in ("'", '"'):
        found = _VALUE.match(line, at)
        return found[0] if found else ""
    several = _SEVERAL_QUOTES.match(line, at)
    if several:
        return several[0]
    end = line.find(line[at], at + 1, at + 1 + harmless.MOST_QUOTED)
    return line[at : end + 1] if end > at + 1 else "" if end == at + 1 else line[at:]


def _end_of_brackets(line: str, at: int) -> int:
    """Behind those that close what is opened here; the end of the line where they do not."""
    depth = 0
    for found in re.finditer(r"[{}\[\]()]", line[at : at + harmless.MOST_QUOTED]):
        depth += 1 if found[0] in harmless.BRACKETS else -1
        if depth == 0:
            return at + found.end()
    return len(line)


def is_secret(name: str, value: str) -> bool:
    return not _NO_SECRET.fullmatch(value.rstrip("`")) and names.is_value_secret(name, value)


def _is_of_secret(name: str, value: str, secret: bool) -> bool:
    """secret: as the name says already; what has been hidden is too, as the rest of the word may not be."""
    return (secret and (value == HIDDEN or name == "tokens")) or is_secret(name, value.strip("'\""))


def _odd(line: str, found: re.Match[str], at: int) -> str:
    """A value that begins as none does elsewhere: PASSWORD=)x, --password )x"""
    odd = _ODD.match(line, at) if _is_whole(line, found) or (found[1] and (found[0][-1] == "=" or line[at : at + 1] != ">")) else None
    return odd[0] if odd else ""


def _end(line: str, found: re.Match[str], at: int, value: str) -> int:
    """Where the value ends, of which this is the beginning, and what may be hidden with it."""
    end = at + len(value)
    if value[0] in "'\"":
        return end
    rest = _rest_of_line(_BREAK.split(line[at:], 1)[0], found) if _is_whole(line, found) else 0
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
    """Whether nothing but this name stands before the value, in its line."""
    near = max(0, found.start() - _MOST_BEFORE)
    breaks = [each.end() for each in _BREAK.finditer(line, near, found.start())]
    if not found[2] or (near and not breaks):
        return False
    return bool(_BEFORE_NAME.fullmatch(line, breaks[-1] if breaks else 0, found.start()))
