"""Which names carry secrets, and how commands and environments are shown without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"

_SECRET_WORDS = {
    "secret",
    "secrets",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "credential",
    "credentials",
    "apikey",
    "token",
    "auth",
}
_SECRET_PAIRS = {
    ("api", "key"),
    ("access", "key"),
    ("secret", "key"),
    ("private", "key"),
    ("account", "key"),
    ("encryption", "key"),
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
}
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")


def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret. Platforms' own: S3_ACCESS_KEY_ID, MA_*_TOKEN, CRED*, ..."""
    parts = [part for part in re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()) if part]
    if any(pair in _SECRET_PAIRS for pair in zip(parts, parts[1:])):
        return True
    if "token" in parts and _PLAIN_TOKENS.intersection(parts):
        return False
    return bool(_SECRET_WORDS.intersection(parts))


def url(text: str) -> str:
    """Text with the password of every URL in it hidden."""
    return _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text) if "://" in text else text


def argv(words: Iterable[str]) -> tuple[str, ...]:
    """A command with the values of secret options hidden, in --name=value, NAME=value and --name value form."""
    result: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            result.append(HIDDEN)
            hide_next = False
            continue
        secret = is_secret(name) and (word.startswith("-") or bool(equals))
        hide_next = secret and not equals
        result.append(f"{name}={HIDDEN}" if secret and equals else url(word))
    return tuple(result)


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret(name) else url(value) for name, value in env.items()}
