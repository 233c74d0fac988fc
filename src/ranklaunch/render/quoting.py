"""Quoting of values for files by their syntax, so that any value keeps its meaning. A value that the syntax cannot express
is refused."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType


class Quoted(str):
    """Text that is quoted for its file."""

    __slots__ = ()


def hostfile(value: object) -> Quoted:
    """Return a word of an MPI or DeepSpeed hostfile: a host, an address or a number. These files have no quoting."""
    return _plain(value, r"[A-Za-z0-9_.:%-]+", "a hostfile")


def sshd(value: object) -> Quoted:
    """Quote one argument for a configuration file of OpenSSH (ssh_config(5), sshd_config(5)). OpenSSH has no escapes within
    quotes, so quotes, line ends and OpenSSH's tokens (%h, ${HOME}) are refused."""
    text = _plain(value, r"[^\"'\\%$\x00-\x1f\x7f]*", "OpenSSH's configuration")
    return Quoted(f'"{text}"') if re.search(r"[\s#=,]", text) or not text else text


def line(value: object) -> Quoted:
    """Return a complete line that another program wrote, such as a public key. Printable ASCII only."""
    return _plain(value, r"[ -~]*", "a line")


def as_json(value: object) -> Quoted:
    """Return any value as JSON."""
    return Quoted(json.dumps(value, ensure_ascii=True))


def pretty(value: object) -> Quoted:
    """Return any value as JSON on several lines."""
    return Quoted(json.dumps(value, ensure_ascii=True, indent=2))


def yaml(value: object) -> Quoted:
    """Return any value as JSON that is also YAML: YAML has no surrogate pairs, so characters beyond 16 bits become \\U escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return Quoted(re.sub(r"[^\x20-\x7e]", lambda match: _escaped(ord(match[0])), text))


def _escaped(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:
        msg = "a lone surrogate (half of a character) cannot be written in YAML"
        raise ValueError(msg)
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def sh(value: object) -> Quoted:
    """Return any value as one word of a shell command."""
    return Quoted(shlex.quote(str(value)))


def code(value: object) -> Quoted:
    """Return a line of a script unchanged."""
    return _plain(value, r"[^\r\n\0]*", "a line of a script")


def _plain(value: object, pattern: str, where: str) -> Quoted:
    text = str(value)
    if not re.fullmatch(pattern, text):
        msg = f"{text[:60]!r} is not allowed in {where}"
        raise ValueError(msg)
    return Quoted(text)


FILTERS: Mapping[str, Callable[[object], Quoted]] = MappingProxyType(
    {"hostfile": hostfile, "sshd": sshd, "line": line, "json": as_json, "pretty": pretty, "yaml": yaml, "sh": sh, "code": code}
)
