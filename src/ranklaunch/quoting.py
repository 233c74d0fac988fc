"""How a value stands in a file of some syntax, so that it means itself whatever it holds; or a refusal, where the syntax cannot say it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType


class Quoted(str):
    """Text that is right for the file that it goes into."""

    __slots__ = ()


def hostfile(value: object) -> Quoted:
    """A word of an MPI or DeepSpeed hostfile: a host, an address or a number. Neither has a way to quote."""
    return _plain(value, r"[A-Za-z0-9_.:%-]+", "a hostfile")


def sshd(value: object) -> Quoted:
    """One argument in a configuration file of OpenSSH (ssh_config(5), sshd_config(5)): between quotes, in which it knows no escapes,
    so that neither quotes, line ends nor its tokens (%h, ${HOME}) can be said."""
    text = _plain(value, r"[^\"'\\%$\x00-\x1f\x7f]*", "OpenSSH's configuration")
    return Quoted(f'"{text}"') if re.search(r"[\s#=,]", text) or not text else text


def line(value: object) -> Quoted:
    """A whole line that something else has written, such as a public key."""
    return _plain(value, r"[ -~]*", "a line")


def as_json(value: object) -> Quoted:
    """Any value; YAML reads it too."""
    return Quoted(json.dumps(value, ensure_ascii=True))


def _plain(value: object, pattern: str, where: str) -> Quoted:
    text = str(value)
    if not re.fullmatch(pattern, text):
        msg = f"{text[:60]!r} cannot stand in {where}"
        raise ValueError(msg)
    return Quoted(text)


FILTERS: Mapping[str, Callable[[object], Quoted]] = MappingProxyType(
    {"hostfile": hostfile, "sshd": sshd, "line": line, "json": as_json, "yaml": as_json}
)
