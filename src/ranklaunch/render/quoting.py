"""Quoting of values for a file of some syntax, so any value keeps its meaning; or a refusal, if the syntax cannot express
the value."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType


class Quoted(str):
    """Text in the right form for its target file."""

    __slots__ = ()


def hostfile(value: object) -> Quoted:
    """A word of an MPI or DeepSpeed hostfile: a host, an address or a number. Neither has a way to quote."""
    return _plain(value, r"[A-Za-z0-9_.:%-]+", "a hostfile")


def sshd(value: object) -> Quoted:
    """Quote one argument for a configuration file of OpenSSH (ssh_config(5), sshd_config(5)). Its quotes know no escapes, so
    quotes, line ends and its tokens (%h, ${HOME}) cannot be expressed."""
    text = _plain(value, r"[^\"'\\%$\x00-\x1f\x7f]*", "OpenSSH's configuration")
    return Quoted(f'"{text}"') if re.search(r"[\s#=,]", text) or not text else text


def line(value: object) -> Quoted:
    """A whole line that something else has written, such as a public key."""
    return _plain(value, r"[ -~]*", "a line")


def as_json(value: object) -> Quoted:
    """Any value."""
    return Quoted(json.dumps(value, ensure_ascii=True))


def pretty(value: object) -> Quoted:
    """Any value, on several lines of JSON."""
    return Quoted(json.dumps(value, ensure_ascii=True, indent=2))


def yaml(value: object) -> Quoted:
    """Any value, as JSON but for the characters beyond 16 bits, which YAML does not know as pairs of escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return Quoted(re.sub(r"[^\x20-\x7e]", lambda match: _escaped(ord(match[0])), text))


def _escaped(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:
        msg = "half a character cannot stand in YAML"
        raise ValueError(msg)
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def sh(value: object) -> Quoted:
    """One word of a shell."""
    return Quoted(shlex.quote(str(value)))


def code(value: object) -> Quoted:
    """A line of a script, as somebody has written it."""
    return _plain(value, r"[^\r\n\0]*", "a line of a script")


def _plain(value: object, pattern: str, where: str) -> Quoted:
    text = str(value)
    if not re.fullmatch(pattern, text):
        msg = f"{text[:60]!r} cannot stand in {where}"
        raise ValueError(msg)
    return Quoted(text)


FILTERS: Mapping[str, Callable[[object], Quoted]] = MappingProxyType(
    {"hostfile": hostfile, "sshd": sshd, "line": line, "json": as_json, "pretty": pretty, "yaml": yaml, "sh": sh, "code": code}
)
