"""Values, commands and environments without their secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ranklaunch.redact.forms import HIDDEN, headers, hidden_value, in_words, is_secret, is_value_secret, loose, pairs, programs, url

# Beginnings of tokens with a known form: a quick check, because few commands contain a token.
_MAY_BE_TOKEN = (
    r"(?<![A-Za-z0-9])(?:(?:hf_|sk-|[rs]k_live_|gh[opsur]_|github_pat_|gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-|GR1348941|npm_|r8_|gsk_"
    r"|nvapi-|AIza|wandb_v1_|dckr_pat_|ya29\.|dop_v1_|shpat_|pypi-Ag|SG\.|A3T|ABIA|ACCA|AKIA|ASIA)[\w-]{16}|AccountKey=|sq0csp-"
    r"|(?:AC|SK)[a-z0-9]{32}|[0-9a-z]{32}-us\d|\d{8,10}:[\w-]{35}|eyJ[\w=-]{1,256}\.|[MNO][\w-]{23,25}\.[\w-]{6}\."
    r"|(?i:xox[abopsr]-\d|https://hooks\.slack\.com/services/T))"
)
# Word too short for any token but a JWT (eyJ...) and Slack's (xox...), and without a character that may separate a name and its value.
HARMLESS = re.compile(r"(?!.*(?:eyJ|(?i:xox)))[\w./,-]{0,16}", re.ASCII)
_NO_NAME = r"[\s{}'\"]|://"
_BEFORE_VALUE = r"(?m)(?<![\w.-])-{0,2}([\w.-]{2,128})(?=['\"\]\\]{0,16}\s{0,8}[:=：＝]|['\"]?\s|\s{0,8}$)"
_LINE_END = r"\\[nrt]"  # as in repr(); its letter does not belong to the next name
_OF_VALUES = r"(?i)(?:^|[._-])(?:key|ak|sk)$"
_NAMED = r"([A-Za-z][\w-]{0,63}):\s+(?![|>])\S"  # X-Api-Key: ..., a header other than Authorization
_PIECE = r"""([ \t\r\n]+)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)|([^ \t\r\n'"\\]+)|(.)"""
_NO_WORDS = frozenset(" \t\r\n'\"\\")  # a value without any of these is one word
_SHELL_VALUE = r"""(?P<value>'[^']*'(?:(?:\\'|"'")'[^']*')*|"(?:[^"\\]|\\.)*"|(?!-)[^\s'";&|]+)"""
_IN_COMMAND = (
    rf"(?<![\w.-])(?P<name>-{{0,2}}[A-Za-z_][\w.-]{{0,63}})={_SHELL_VALUE}",
    rf"(?<![\w.-])(?P<name>--?[A-Za-z][\w.-]{{0,63}})\s{{1,8}}{_SHELL_VALUE}",
)


def argv(words: Iterable[str]) -> tuple[str, ...]:
    """Return a command without tokens and secrets (--name=value, NAME=value, --name value)."""
    result: list[str] = []
    option = before = ""  # option: its value may be the next word
    for word in in_words(words):
        if option and not _looks_like_option(word) and is_value_secret(option, word):
            result.append(HIDDEN)
            option = option if re.search(r"[^s]s$", option) else ""  # --api-keys takes several values
            continue
        is_command = " " in word and re.fullmatch(r"-[a-z]{0,7}c", before)  # bash -c, sh -ec
        result.append(_command(word) if is_command else _word(word))
        option = "" if is_command else _option(word, before)
        before = word
    return tuple(map(tokens, result))


def _has_name(word: str) -> bool:
    """Return True for --name, --name=value and NAME=value."""
    return (word.startswith("-") or "=" in word) and not re.search(_NO_NAME, word.partition("=")[0])


def _word(word: str) -> str:
    name, equals, value = word.partition("=")
    if not equals or not _has_name(word):
        return _inside(word)
    return f"{name}={HIDDEN if is_value_secret(name, value) else _inside(value)}"


def _option(word: str, before: str) -> str:
    """Return a word as an option if its value may be the next word, else "". After sshpass, -p is the option of the password."""
    if "=" in word or not _has_name(word):
        return ""
    return "password" if word == "-p" and before.endswith("sshpass") else word


def text(value: str) -> str:
    """Hide the secrets in the value of a setting: options of a launcher, URLs."""
    if HARMLESS.fullmatch(value):
        return value
    value = headers(value)
    words = _words(value) or value.split(" ")  # an unclosed quote: split at blanks
    hidden = argv(words)
    return value if hidden == tuple(words) else " ".join(hidden)


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_value_secret(name, value) else tokens(_inside(value)) for name, value in env.items()}


def tokens(text: str) -> str:
    """Hide tokens with a known form."""
    if not re.search(_MAY_BE_TOKEN, text):
        return text
    from ranklaunch.redact.patterns import TOKENS  # few plans need them

    return TOKENS.sub(HIDDEN, text)


def _command(text: str) -> str:
    """Hide secret options and variables in a command for a shell."""
    for pattern in _IN_COMMAND:
        text = re.sub(pattern, hidden_value, text)
    return _as_lines(programs(headers(url(text))))


def _looks_like_option(word: str) -> bool:
    return word.startswith("--") or (word.startswith("-") and len(word) == 2)


def _words(value: str) -> list[str]:
    """Split a value into words like shlex.split, in linear time. Return no words if shlex would raise ValueError."""
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


def _inside(value: str) -> str:
    """Hide secrets inside a value: members of JSON, NAME=value, URLs and headers."""
    if HARMLESS.fullmatch(value):
        return value
    members = _json(value)
    if members is not None:
        return members
    return "\n".join(map(_of_line, _as_lines(value).split("\n")))


def _json(value: str) -> str | None:
    if not value.startswith(("{", "[")):
        return None
    import json  # few environments have JSON

    try:
        content = json.loads(value)
        hidden = _members(content)
    except (ValueError, RecursionError):
        return None
    return headers(url(value)) if hidden == content else json.dumps(hidden, separators=(",", ":"))


def _of_line(value: str) -> str:
    named = re.match(_NAMED, value) if ": " in value else None
    if named and is_secret(named[1]) and "authorization" not in named[1].lower():
        return f"{named[1]}: {HIDDEN}"
    return headers(url(loose(pairs(programs(value)))))


def _as_lines(value: str) -> str:
    """Hide secrets in a command, TOML or YAML, by the rules for lines of output."""
    if not any(map(_may_be_secret, re.findall(_BEFORE_VALUE, re.sub(_LINE_END, " ", value)))):
        return value
    from ranklaunch.redact import lines  # few plans need it

    return "\n".join(lines.shown(value.split("\n")))


def _may_be_secret(name: str) -> bool:
    """Return True if the value of this name may be a secret. A quick check, because few are."""
    return bool(re.search(_OF_VALUES, name)) or is_secret(name)


def _members(content: Any) -> Any:
    if isinstance(content, dict):
        beside = next((content[name] for name in ("name", "key") if isinstance(content.get(name), str)), "")
        return {name: _of_member(beside if name == "value" and beside else name, each) for name, each in content.items()}
    if isinstance(content, list):
        texts = all(isinstance(each, str) for each in content)
        return list(argv(content)) if texts else [_members(each) for each in content]
    return _inside(content) if isinstance(content, str) else content


def _of_member(name: str, value: Any) -> Any:
    """Return a member without secrets. All text below the name of a secret is hidden: {"token": {"value": "x"}}."""
    return _texts_hidden(value) if is_secret(name) else _members(value)


def _texts_hidden(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _texts_hidden(each) for name, each in content.items()}
    if isinstance(content, list):
        return [_texts_hidden(each) for each in content]
    return HIDDEN if isinstance(content, str) else content
