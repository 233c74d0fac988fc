"""How values, commands and environments are shown: short, and without the secrets in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from ranklaunch.typed import Any

HIDDEN = "***"
SHOWN = 120  # characters of a value that an error or a plan's provenance shows
LOOKED_AT = 20 * SHOWN  # for secrets, of a value of which only the beginning is shown: the hosts of 10,000 nodes are a megabyte

_SECRET_WORDS = {
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "pw",
    "pass",
    "pat",
    "jwt",
    "cred",
    "credential",
    "apikey",
    "auth",
    "sshpass",
}
_SECRET_ENDS = ("password", "passwd", "passphrase", "secret", "apikey")
_SECRET_PAIRS = {
    ("api", "key"),
    ("access", "key"),
    ("secret", "key"),
    ("private", "key"),
    ("account", "key"),
    ("encryption", "key"),
    ("job", "uid"),  # from which the key of the muster may follow
}
# Words of vocabulary, not of access: a tokenizer's settings stay readable.
_PLAIN_TOKENS = {
    "pad",
    "eos",
    "bos",
    "unk",
    "sep",
    "cls",
    "mask",
    "per",
    "image",
    "num",
    "max",
    "min",
    "special",
    "new",
    "vocab",
    "id",
    "drop",
    "dispatcher",
    "mixer",
    "type",
    "level",
    "limit",
    "count",
    "len",
    "length",
    "start",
    "stop",
    "end",
    "mean",
}
# A password may hold @ and /, so it goes on to the last @ before the next URL; digits and a slash after a host are a port.
_URL_PASSWORD = r"(?<=://)([^/\s:@]*):(?![0-9]+(?:/|$))((?:(?!://)\S)+)@"
# Who comes by HTTP with a name alone comes with a token; by ssh, or to a database, it is a user.
_URL_TOKEN = r"(?i)(https?://)[^/\s:@?#]+(?=(?::|:x-oauth-basic)?@)"
_URL_QUERY = r"(?<=[?&])([\w.~-]{1,64})=([^&#\s'\"<>]+)"
_SIGNATURES = ("signature", "sig")
_HEADER = (
    r"(?i)(\b(?:proxy-)?authorization['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:(?:bearer|basic|token|digest)\s{1,4})?)"
    r"[^\s'\",}][^'\",}\r\n]*"
)
_COOKIE = r"(?i)(\b(?:set-)?cookie['\"]?\s{0,4}[:=]\s{0,4}['\"]?)[\w.!#$%&*+^`|~-]{1,64}=[^'\"}\r\n]*"
_BEARER = r"(?i)\b(bearer\s{1,4})(?=[^\s\d]{0,64}\d)[\w.~+/=-]{6,}"
_NO_NAME = r"[\s{}'\"]|://"
_NAMED = r"([A-Za-z][\w-]{0,63}):\s+\S"  # X-Api-Key: ..., a header of another name
_PLAIN = r"(?is)[\d.,:]*|(?:~|\.{0,2})/.*|.*\.(?:pem|key|crt|cer|pub|json|ya?ml|txt)"
_MACHINE_MADE = r"(?=.{0,64}\d)(?=.{0,64}[A-Za-z])[A-Za-z0-9+=]{16,}"
_FILE_OF = ("file", "path", "dir", "folder")
_PLACE = r"(?:~|\.{0,2})/.*"
_COLOUR = r"\x1b\[[0-9;:]{0,40}m"
_PIECE = r"""([ \t\r\n]+)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)|([^ \t\r\n'"\\]+)|(.)"""
_NO_WORDS = frozenset(" \t\r\n'\"\\")  # without any of these, it is one
_COMMAND_FOLLOWS = r"-[a-z]{0,7}c"  # bash -c, sh -ec
_SHELL_VALUE = r"""('[^']*'|"(?:[^"\\]|\\.)*"|(?!-)[^\s'";&|]+)"""
_IN_COMMAND = (
    rf"(?<![\w.-])(-{{0,2}}[A-Za-z_][\w.-]{{0,63}})(=){_SHELL_VALUE}",
    rf"(?<![\w.-])(--?[A-Za-z][\w.-]{{0,63}})(\s{{1,8}}){_SHELL_VALUE}",
)
# Programs that take a secret by an option of one letter, which means something else elsewhere; behind one of these, or joined to it.
_OPTIONS_OF = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"), ("-p", "", "")),
    "sshpass": (r"-p(?![0-9]{1,5}(?![^\s'\"]))", "", ""),  # not the port of the ssh behind it
    "redis-cli": ("-a", "-a", ""),
    "curl": ("-[uUb]", "-[uUb]|--user|--proxy-user|--cookie", ""),
    "wandb": ("", "login", r"[A-Za-z0-9_-]{20,}"),
    **dict.fromkeys((f"{tool} login" for tool in ("docker", "podman", "nerdctl", "buildah", "skopeo", "registry")), ("", "-p", "")),
    "obsutil": ("", "-[ikt]", ""),
}
_BETWEEN = r"['\"]?,?[\s=]\s{0,8}['\"]?"
_PROGRAM = rf"(?<![\w.-])(?:{'|'.join(name.replace(' ', _BETWEEN) for name in _OPTIONS_OF)})(?=[\s'\"])"
_PROGRAM_NAMES = tuple({name.split()[0] for name in _OPTIONS_OF})
_ANY_PROGRAM = "|".join(_PROGRAM_NAMES)
_SETTERS = ("set", "--set", "setenv", "export", "config", "configure")
# aws configure set NAME VALUE; of a word that others use too, the value must look like one
_SET = (
    rf"(?i)((?<![\w.-])(?:(?:aws|conda|git|npm|pip3?|poetry|yarn){_BETWEEN}config(?:ure)?(?:{_BETWEEN}(?:set|--?[a-z-]{{1,32}})){{0,4}}"
    rf"|(set|--set|setenv|export)){_BETWEEN})([A-Za-z][\w.-]{{0,63}})({_BETWEEN})"
)
_SETTER = "(?i)set|export|config"  # few lines have one
_GUESSED = r"(?=.{0,64}\d).{6,}"
_ELEMENT = r"(<((?:[\w.-]{1,64}:)?[\w.-]{1,64})(?:\s[^<>]{0,200})?>)(?:<!\[CDATA\[)?[^<]+(?=</\2)"
_PROPERTY = r"(<name>\s{0,8}([\w.-]{1,128})\s{0,8}</name>\s{0,64}<value>)[^<]+(?=</value>)"  # as Hadoop's settings
_UNIT = "\x1f"  # blank, for what is between words
_THOUGHT_UP = r"(?=.*[A-Z])(?=.*[a-z])(?=.*\d)(?=.*[!@#$%^&*])[^\s/{}]{8,128}"


@functools.lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret. Platforms' own: S3_ACCESS_KEY_ID, MA_*_TOKEN, CRED*, ..."""
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    parts = [word[:-1] if word.endswith("s") and not word.endswith("ss") else word for word in words if word]
    if any(pair in _SECRET_PAIRS for pair in zip(parts, parts[1:])) or any(part.endswith(_SECRET_ENDS) for part in parts):
        return True
    if "token" in words:  # tokens, in the plural, are counted in training
        return not _PLAIN_TOKENS.intersection(words)
    return bool(_SECRET_WORDS.intersection(parts))


def url(text: str) -> str:
    """Text with the password, the token and the signature of every URL in it hidden."""
    if "://" not in text:
        return text
    text = re.sub(_URL_PASSWORD, rf"\1:{HIDDEN}@", re.sub(_URL_TOKEN, rf"\1{HIDDEN}", text) if "@" in text else text)
    return re.sub(_URL_QUERY, _query, text) if "?" in text else text


def _query(found: re.Match[str]) -> str:
    name = found[1]
    secret = is_secret(name) or name.lower() == "key" or name.lower().endswith(_SIGNATURES)
    return f"{name}={HIDDEN}" if secret else found[0]


def headers(text: str) -> str:
    """Text with what stands behind Authorization:, Cookie: and Bearer hidden, and in elements of XML that are called like secrets."""
    if "</" in text:
        for pattern in (_ELEMENT, _PROPERTY):
            text = re.sub(pattern, lambda found: f"{found[1]}{HIDDEN}" if is_secret(found[2]) else found[0], text)
    lower = text.lower()
    if "cookie" in lower:
        text = re.sub(_COOKIE, rf"\1{HIDDEN}", text)
    if "authorization" in lower:
        text = re.sub(_HEADER, rf"\1{HIDDEN}", text)
    return re.sub(_BEARER, rf"\1{HIDDEN}", text) if "bearer" in lower else text


def programs(text: str, ends: str = r"\s'\",;)}\]") -> str:
    """Text with the secrets hidden that programs in it take in ways of theirs: mysql -pX, aws configure set token X. ends: what no value
    holds."""
    if re.search(_SETTER, text):
        text = re.sub(rf"{_SET}((?<=')[^']+|(?<=\")[^\"]+|[^{ends}]+)", _set, text)
    if not re.search(_ANY_PROGRAM, text):
        return text
    starts = [0, *(found.start() for found in re.finditer(_PROGRAM, text))]
    return "".join(_of_program(text[start:end], ends) for start, end in zip(starts, [*starts[1:], len(text)]))


def _of_program(text: str, ends: str) -> str:
    name = re.match(_PROGRAM, text)
    if not name:
        return text
    joined, before, value = _OPTIONS_OF[" ".join(re.findall(r"[\w-]+", name[0]))]
    behind = rf"(?:{before}){_BETWEEN}(?:--?[a-z-]{{1,32}}{_BETWEEN}){{0,4}}"
    option = "|".join([behind] * bool(before) + [joined] * bool(joined))
    return re.sub(rf"(?<=[\s'\"])({option})(?![-\s]){value or f'[^{ends}]+'}", rf"\1{HIDDEN}", text)


def _set(found: re.Match[str]) -> str:
    before, guessed, name, between, value = found.groups()
    secret = is_value_secret(name, value) and (not guessed or re.fullmatch(_GUESSED, value, re.DOTALL))
    return f"{before}{name}{between}{HIDDEN}" if secret else found[0]


def argv(words: Iterable[str]) -> tuple[str, ...]:
    """A command with the values of secret options hidden, in --name=value, NAME=value and --name value form."""
    result: list[str] = []
    option = before = ""  # option: the one whose value may come next
    for word in _of_programs(words):
        if option and not _looks_like_option(word) and is_value_secret(option, word):
            result.append(HIDDEN)
            option = ""
            continue
        if " " in word and re.fullmatch(_COMMAND_FOLLOWS, before):
            result.append(_command(word))
            option, before = "", word
            continue
        name, equals, value = word.partition("=")
        named = (word.startswith("-") or bool(equals)) and not re.search(_NO_NAME, name)
        if named and equals:
            result.append(f"{name}={HIDDEN if is_value_secret(name, value) else _inside(value)}")
        else:
            result.append(_inside(word))
        # sshpass takes the password by -p, which is a port or a path elsewhere.
        option = "" if equals or not named else "password" if word == "-p" and before.endswith("sshpass") else name
        before = word
    return tuple(result)


def _of_programs(words: Iterable[str]) -> list[str]:
    words = list(words)
    if not any(word.endswith(_PROGRAM_NAMES) or word in _SETTERS for word in words):
        return words
    hidden = programs(_UNIT.join(words), _UNIT).split(_UNIT)
    return hidden if len(hidden) == len(words) else words  # one of them has such a character itself


def _command(text: str) -> str:
    """What a shell is given to run, with the values of secret options and variables hidden."""
    for pattern in _IN_COMMAND:
        text = re.sub(pattern, _assigned, text)
    return programs(headers(url(text)))


def _assigned(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    quote = value[0] if value[0] in "'\"" else ""
    return f"{name}{between}{quote}{HIDDEN}{quote}" if is_value_secret(name, value.strip("'\"")) else found[0]


def is_value_secret(name: str, value: str) -> bool:
    """Whether the value of an option or a variable is a secret: by its name or, where that may mean anything, by how it looks too."""
    if is_secret(name):
        return not _is_place(name, value)
    last = re.split(r"[._-]", name.lower())[-1]
    if last == "key" and re.fullmatch(r"-{1,2}(?:[\w-]+\.)*key", name.lower()):
        return not re.fullmatch(_PLAIN, value)
    return last in ("key", "p", "ak", "sk") and _looks_secret(value)  # ak, sk: Huawei Cloud's access key and secret key


def _is_place(name: str, value: str) -> bool:
    """Where a secret is, and not what it is: RANKLAUNCH_SECRET_FILE=/run/key."""
    return name.lower().endswith(_FILE_OF) and bool(re.fullmatch(_PLACE, value, re.DOTALL))


def _looks_secret(value: str) -> bool:
    """A long word of letters and digits, or a password such as people think up; not a name, a number or a path."""
    if "/" in value:
        return False
    return bool(re.fullmatch(_THOUGHT_UP, value)) or any(re.fullmatch(_MACHINE_MADE, part) for part in re.split("[-_.]", value))


def _looks_like_option(word: str) -> bool:
    return word.startswith("--") or (word.startswith("-") and len(word) == 2)


def text(value: str) -> str:
    """A setting's value with whatever secrets it holds hidden: options of a launcher, URLs."""
    value = headers(value)
    words = _words(value) or value.split(" ")  # where a quote is open, whatever it holds
    hidden = argv(words)
    return value if hidden == tuple(words) else " ".join(hidden)


def _words(value: str) -> list[str]:
    """As shlex.split, which takes a time that grows with the square of a word's length; nothing where it raises ValueError."""
    if _NO_WORDS.isdisjoint(value):
        return [value] if value else []
    words: list[str] = []
    word: list[str] | None = None
    for blank, single, double, escaped, plain, odd in re.findall(_PIECE, value, re.DOTALL):
        if odd:
            return []
        if blank:
            words += [] if word is None else ["".join(word)]
            word = None
        else:
            word = [] if word is None else word
            word.append(single or re.sub(r'\\(["\\])', r"\1", double) or escaped or plain)
    return words if word is None else [*words, "".join(word)]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_value_secret(name, value) else _inside(value) for name, value in env.items()}


def _inside(value: str) -> str:
    """A value with what it holds hidden: members of JSON and NAME=value that are called like secrets, what URLs and headers hold."""
    if value.startswith(("{", "[")):
        import json  # most environments have none

        try:
            found = json.loads(value)
            hidden = _members(found)
        except (ValueError, RecursionError):
            return headers(url(_pairs(value)))
        return headers(url(value)) if hidden == found else json.dumps(hidden, separators=(",", ":"))
    named = re.match(_NAMED, value) if ": " in value else None
    return (
        f"{named[1]}: {HIDDEN}"
        if named and is_secret(named[1]) and "authorization" not in named[1].lower()
        else headers(url(_pairs(value)))
    )


def _pairs(value: str) -> str:
    """A value with the secrets among its own NAME=value hidden: --env=TOKEN=..., --export=ALL,TOKEN=..., AccountName=...;AccountKey=..."""
    if "=" not in value:
        return value
    parts = re.split(r"([,;\s])(?=[\w.-]{1,64}=)", value)
    return "".join(_assigned_to(*part.partition("=")) for part in parts)


def _assigned_to(name: str, equals: str, value: str) -> str:
    secret = value and re.fullmatch(r"[\w.-]{1,64}", name) and is_value_secret(name, value)
    return f"{name}{equals}{HIDDEN if secret else value}"


def _members(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: HIDDEN if is_secret(name) and isinstance(each, str) else _members(each) for name, each in found.items()}
    if isinstance(found, list):
        texts = all(isinstance(each, str) for each in found)
        return list(argv(found)) if texts else [_members(each) for each in found]
    return headers(url(found)) if isinstance(found, str) else found


def show(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def begun(text: str) -> str:
    """For messages: how a line begins that is none of an environment, as far as that looks like a variable; the rest may be anything, a
    part of a key too."""
    found = re.match(r"(?:export )?[A-Z_][A-Z0-9_]{0,30}(?![\w.+/-])", text)
    shown, more = (repr(found[0]), len(text) - found.end()) if found else ("", len(text))
    rest = f"{more} character{'' if more == 1 else 's'}{' more' if shown else ''}" if more else ""
    return " and ".join(filter(None, (shown, rest)))


def clipped(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


@functools.lru_cache(maxsize=1024)  # plans of many nodes show the same again and again
def shown(source: str, value: str) -> str:
    if is_secret(source):
        return HIDDEN
    if len(value) <= LOOKED_AT:
        return clipped(text(value))
    return f"{text(value[:LOOKED_AT])[:SHOWN]}... ({len(value)} characters)"


class _Escapes(dict[int, str]):
    """What each character is shown as, from when it was first seen on."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = character.isprintable() or character == "\t" or 0xDC80 <= code <= 0xDCFF
        self[code] = shown = character if kept else ascii(character)[1:-1]
        return shown


_ESCAPES = _Escapes()


def one_line(text: str) -> str:
    """What came from elsewhere, and must not look like more than it is."""
    return printable("; ".join(text.split("\n")))


def printable(line: str) -> str:
    """Control characters as their escapes, but for colours, which are left out: a text must not move the terminal's cursor, nor look
    like another line."""
    return line if line.isprintable() else re.sub(_COLOUR, "", line).translate(_ESCAPES)
