"""Text without the secrets among what it gives names: members of dictionaries as Python, YAML and Hydra write them, and NAME=value."""

from __future__ import annotations

import re

from ranklaunch.redact.names import HIDDEN, hidden_as, is_value_secret

# {"name": "HF_TOKEN", "value": "x"}, as Kubernetes has variables
_NAMED_VALUE = (
    r"(?i)((?<![\w.-])(?:name|key)['\"]?\s{0,8}[:=]\s{0,8}['\"]?([\w.-]{1,64})['\"]?\s{0,8},\s{0,8}"
    r"(?:['\"]?\w{1,32}['\"]?\s{0,8}[:=]\s{0,8}['\"]?[\w.-]{0,64}['\"]?\s{0,8},\s{0,8}){0,2}"  # members between
    r"['\"]?value['\"]?\s{0,8}[:=]\s{0,8})"
    r"('(?:[^']|'(?=\w))*'|\"(?:[^\"]|\"(?=\w))*\"|[^\s,;{}\[\]'\"]+)"  # a quote before a letter is the value's own
)
# {"value": "x", "name": "HF_TOKEN"}
_VALUE_OF = (
    r"(?i)((?<![\w.-])value['\"]?\s{0,8}[:=]\s{0,8})('(?:[^']|'(?=\w)){0,400}'|\"(?:[^\"]|\"(?=\w)){0,400}\"|[^\s,;{}\[\]'\"]{1,400})"
    r"(\s{0,8},\s{0,8}['\"]?(?:name|key)['\"]?\s{0,8}[:=]\s{0,8}['\"]?([\w.-]{1,64}))"
)
# What YAML has before a value: !!str, !!python/unicode, !vault, &anchor
YAML_MARK = r"(?:!![A-Za-z/_.:]{1,64}|!<tag:[^\s>]{1,64}>|!\w{1,32}|&\w{1,32})"
# {token: x, 'password': 'x'}, which is no JSON
_MEMBER = (
    rf"(?<![\w.-])(['\"]?)([A-Za-z_][\w.-]{{0,63}})(\1\s{{0,8}}:\s{{0,8}}(?:{YAML_MARK}\s{{1,4}}){{0,2}})"
    r"('[^']*'|\"[^\"]*\"|[^\s,;{}\[\]'\"]+)"
)


def loose(value: str) -> str:
    """A value with the secrets hidden among the members of dictionaries in it, as Python, YAML and Hydra write them."""
    return named_values(re.sub(_MEMBER, _member, value)) if "{" in value and ":" in value else value


def _member(found: re.Match[str]) -> str:
    quote, name, between, value = found.groups()
    return f"{quote}{name}{between}{hidden_as(value)}" if is_value_secret(name, value.strip("'\"")) else found[0]


def named_values(text: str) -> str:
    """Text with the values hidden that stand beside the name of a secret: {"name": "HF_TOKEN", "value": "x"}."""
    return re.sub(_VALUE_OF, _value_of, re.sub(_NAMED_VALUE, _named_value, text)) if "value" in text.lower() else text


def _named_value(found: re.Match[str]) -> str:
    before, name, value = found.groups()
    return f"{before}{hidden_as(value)}" if is_value_secret(name, value.strip("'\"")) else found[0]


def _value_of(found: re.Match[str]) -> str:
    before, value, behind, name = found.groups()
    return f"{before}{hidden_as(value)}{behind}" if is_value_secret(name, value.strip("'\"")) else found[0]


def pairs(value: str) -> str:
    """A value with the secrets among its own NAME=value hidden: --env=TOKEN=..., --export=ALL,TOKEN=..., AccountName=...;AccountKey=..."""
    if "=" not in value:
        return value
    parts = re.split(r"([,;\s])(?=[\w.-]{1,64}=)", value)
    return "".join(_assigned_to(*part.partition("=")) for part in parts)


def _assigned_to(name: str, equals: str, value: str) -> str:
    secret = value and re.fullmatch(r"['\"]?[\w.-]{1,64}", name) and is_value_secret(name.lstrip("'\""), value)
    end = name[0] if secret and name[0] in "'\"" and value.endswith(name[0]) else ""
    return f"{name}{equals}{HIDDEN}{end}" if secret else f"{name}{equals}{value}"
