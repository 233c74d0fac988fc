"""How values, commands and environments are shown: short, and without the secrets in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
SHOWN = 120  # characters of a value that an error or a plan's provenance shows
LOOKED_AT = 20 * SHOWN  # for secrets, of a value of which only the beginning is shown: the hosts of 10,000 nodes are a megabyte

_SECRET_WORDS = {"secret", "password", "passwd", "passphrase", "pwd", "pass", "cred", "credential", "apikey", "auth", "sshpass"}
_SECRET_ENDS = ("password", "passwd", "passphrase", "secret", "apikey")
_SECRET_PAIRS = {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("account", "key"), ("encryption", "key")}
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
}
# A password may hold @ and /, so it goes on to the last @ before the next URL; digits and a slash after a host are a port.
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):(?![0-9]+(?:/|$))((?:(?!://)\S)+)@")


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
    """Text with the password of every URL in it hidden."""
    return _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text) if "://" in text else text


def argv(words: Iterable[str]) -> tuple[str, ...]:
    """A command with the values of secret options hidden, in --name=value, NAME=value and --name value form."""
    result: list[str] = []
    hide_next = False
    for word in words:
        if hide_next and not _looks_like_option(word):
            result.append(HIDDEN)
            hide_next = False
            continue
        name, equals, _ = word.partition("=")
        secret = is_secret(name) and (word.startswith("-") or bool(equals))
        hide_next = secret and not equals
        result.append(f"{name}={HIDDEN}" if secret and equals else _inside(word))
    return tuple(result)


def _looks_like_option(word: str) -> bool:
    return word.startswith("--") or (word.startswith("-") and len(word) == 2)


def text(value: str) -> str:
    """A setting's value with whatever secrets it holds hidden: options of a launcher, URLs."""
    try:
        words = shlex.split(value)
    except ValueError:  # an open quote; whatever it holds
        words = value.split(" ")
    hidden = argv(words)
    return value if hidden == tuple(words) else " ".join(hidden)


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret(name) else _inside(value) for name, value in env.items()}


def _inside(value: str) -> str:
    """A value with what it holds hidden: members of JSON that are called like secrets, passwords of URLs."""
    if value.startswith(("{", "[")):
        import json  # most environments have none

        try:
            found = json.loads(value)
            hidden = _members(found)
        except (ValueError, RecursionError):
            return url(value)
        return url(value) if hidden == found else json.dumps(hidden, separators=(",", ":"))
    return url(value)


def _members(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: HIDDEN if is_secret(name) and isinstance(each, str) else _members(each) for name, each in found.items()}
    if isinstance(found, list):
        texts = all(isinstance(each, str) for each in found)
        return list(argv(found)) if texts else [_members(each) for each in found]
    return url(found) if isinstance(found, str) else found


def show(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def clipped(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


def shown(source: str, value: str) -> str:
    if is_secret(source):
        return HIDDEN
    if len(value) <= LOOKED_AT:
        return clipped(text(value))
    return f"{text(value[:LOOKED_AT])[:SHOWN]}... ({len(value)} characters)"
