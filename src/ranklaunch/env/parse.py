"""Parsers of the texts of variables and options. Each raises ValueError with the expected form."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from ranklaunch.errors import nearest

MOST_NODES = 1_000_000
MOST_SLOTS = 4096  # processes of one node
MOST_CORES = 65535  # highest number of a core
DEBUG_PORT = 5678  # debugpy's default
_LOOPBACK = re.compile(r"127\.[0-9.]+|localhost|::1|\[::1\]|0\.0\.0\.0|::")


def is_loopback(host: str) -> bool:
    """Return True for a name or address that is each host's own, and for the address of all interfaces."""
    return bool(_LOOPBACK.fullmatch(host))


def text(value: str) -> str:
    if "\0" in value:
        msg = "expected text without NUL"
        raise ValueError(msg)
    return value


def whole(value: str, low: int, high: int) -> int:
    # int() alone takes "1_0", "٣" and " 1 "; platforms never write these, so they are damage.
    if not re.fullmatch(r"[0-9]{1,9}", value.strip(" \t")) or not low <= int(value) <= high:
        msg = f"expected a whole number from {low} to {high}"
        raise ValueError(msg)
    return int(value)


def count(value: str) -> int:
    return whole(value, 0, MOST_NODES)


def positive(value: str) -> int:
    return whole(value, 1, MOST_NODES)


def port(value: str) -> int:
    return whole(value, 1, 65535)


def port_or_0(value: str) -> int:
    """Return a port, or 0 for none."""
    return whole(value, 0, 65535)


_SECONDS = r"(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(?:[eE][+-]?[0-9]{1,2})?"


GRACE_S, AUTO = 25.0, "auto"


def is_auto(text: str) -> bool:
    return text.strip().lower() == AUTO


def grace(text: str) -> float:
    """Return seconds; for auto GRACE_S, until ranklaunch.plan.optional_features finds the value."""
    return GRACE_S if is_auto(text) else seconds(text)


def decimal(value: str) -> float | None:
    """Return a number without a sign, None for other text. float() alone takes nan and 1_0."""
    return float(value) if re.fullmatch(_SECONDS, value.strip(" \t")) else None


def seconds(value: str) -> float:
    number = decimal(value)
    if number is None or not 0 <= number <= 10_000_000:
        msg = "expected seconds, a number from 0 to 10000000"
        raise ValueError(msg)
    return number


def seconds_from(least: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        number = seconds(value)
        if number < least:
            msg = f"expected seconds, at least {least:g}"
            raise ValueError(msg)
        return number

    return parse


def names(value: str) -> tuple[str, ...]:
    """Return the names of a text with commas between them."""
    return tuple(name.strip() for name in text(value).split(",") if name.strip())


def paths(value: str) -> tuple[str, ...]:
    """Return the paths of a text with colons between them, as in PATH."""
    return tuple(path for path in text(value).split(":") if path)


def init_method(value: str) -> str:
    """Return tcp, or file:// with an absolute folder."""
    if value != "tcp" and not re.fullmatch("file:///[^\0]*", value):
        msg = "expected tcp, or file:// and the absolute path of a folder that all nodes share, such as file:///share/rendezvous"
        raise ValueError(msg)
    return value


def cores(value: str) -> tuple[int, ...]:
    """Return the core numbers of a text such as 0-7,16-23, the form of Linux and DeepSpeed. Each number once, in ascending order."""
    result: list[int] = []
    for part in value.strip().split(","):
        first, dash, last = part.partition("-")
        try:
            low, high = whole(first, 0, MOST_CORES), whole(last if dash else first, 0, MOST_CORES)
        except ValueError:
            low, high = 0, -1
        if low > high or (result and low <= result[-1]):
            msg = "expected core numbers in ascending order, such as 0-7,16-23"
            raise ValueError(msg)
        result.extend(range(low, high + 1))
    return tuple(result)


def debug_port(value: str) -> int:
    """Return a port; DEBUG_PORT for on, 0 for off."""
    try:
        return DEBUG_PORT if flag(value) else 0
    except ValueError:
        return port(value)


def flag(value: str) -> bool:
    words = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
    word = value.strip().lower()
    if word not in words:
        msg = "expected true or false"
        raise ValueError(msg)
    return words[word]


def words(value: str) -> tuple[str, ...]:
    """Return shell words. Raise ValueError for a quote that is not closed."""
    try:
        return tuple(shlex.split(text(value)))
    except ValueError as error:
        msg = f"expected shell words ({error})"
        raise ValueError(msg) from None


def counts(value: str) -> tuple[int, ...]:
    """Return one whole number, or several with commas between them: 8 or 2,3."""
    try:
        return tuple(whole(item, 0, MOST_SLOTS) for item in value.split(","))
    except ValueError:
        msg = f"expected a whole number, or one for each node, such as 8 or 2,3, at most {MOST_SLOTS}"
        raise ValueError(msg) from None


def allocation(value: str) -> tuple[int, int]:
    """Return the number of nodes, and of GPUs on each, from nodes=4,gpus=8 or nodes=4."""
    match = re.fullmatch(r"nodes=([0-9]{1,9})(?:,gpus=([0-9]{1,9}))?", value)
    try:
        return whole(match[1] if match else "", 1, MOST_NODES), whole((match and match[2]) or "0", 0, MOST_SLOTS)
    except ValueError:
        wrong = next((part for part in value.split(",") if not re.fullmatch(r"(nodes|gpus)=[0-9]{1,9}", part)), value)
        reason = f"; {wrong[:60]!r} is none of them" if wrong != value else ""
        msg = f"expected nodes=N,gpus=M, such as nodes=4,gpus=8, or nodes=N without GPUs, at most {MOST_NODES} and {MOST_SLOTS}{reason}"
        raise ValueError(msg) from None


_HOST = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?"


_ZONE = r"[A-Za-z0-9_.-]{1,64}"  # of an IPv6 address: an interface's name or number


_LISTED = r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]"  # an array, but not two IPv6 addresses in brackets


def host(value: str) -> str:
    """Return a host name or an IP address, an IPv6 address without its brackets."""
    name = value.strip()
    if name.startswith("[") and name.endswith("]") and _is_ipv6(name[1:-1]):
        return name[1:-1]
    if not re.fullmatch(_HOST, name) and not _is_ipv6(name):
        msg = "expected a host name or an IP address"
        raise ValueError(msg)
    return name


def is_host(text: str) -> bool:
    try:
        return bool(host(text))
    except ValueError:
        return False


def _is_ipv6(text: str) -> bool:
    if ":" not in text:
        return False
    import ipaddress

    address, percent, zone = text.partition("%")
    if percent and not re.fullmatch(_ZONE, zone):
        return False
    try:
        return ipaddress.ip_address(address).version == 6
    except ValueError:
        return False


@functools.lru_cache(maxsize=8)  # the plans of 10,000 nodes parse the same list
def hosts(value: str) -> tuple[str, ...]:
    """Return the hosts of a text with commas between them, without the quotes and outer brackets of platforms that write arrays."""
    bare = value.replace('"', "").replace("'", "").strip()
    array = re.fullmatch(_LISTED, bare)
    try:
        return tuple(host(item) for item in (array[1] if array else bare).split(","))
    except ValueError:
        msg = "expected host names or IP addresses with commas between them"
        raise ValueError(msg) from None


@dataclass(frozen=True)
class Endpoint:
    """Host and port of a process. port: 0 if unknown."""

    host: str
    port: int = 0


_WITH_PORT = r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::([0-9]{1,9}))?"


def endpoints(value: str) -> tuple[Endpoint, ...]:
    """Return the endpoints of a text of HOST or HOST:PORT with commas between them, () for an empty array [].

    Quotes and outer brackets, of platforms that write arrays, are dropped. An IPv6 address with a port has brackets of its own.
    """
    bare = value.replace('"', "").replace("'", "").strip()
    array = re.fullmatch(_LISTED, bare)
    items = (array[1] if array else bare).split(",")
    try:
        return tuple(_endpoint(item.strip()) for item in items) if not array or array[1].strip() else ()
    except ValueError:
        msg = "expected HOST:PORT with commas between them"
        raise ValueError(msg) from None


def _endpoint(item: str) -> Endpoint:
    match = re.fullmatch(_WITH_PORT, item)
    if not match:
        return Endpoint(host(item))  # an IPv6 address without a port; host() refuses all else
    return Endpoint(host(match[1] or match[2]), port(match[3]) if match[3] else 0)


class OneOf:
    """Parser of one of a few words, in small or capital letters."""

    def __init__(self, *legal: str) -> None:
        self.legal = legal

    def __call__(self, value: str) -> str:
        word = value.strip().lower()
        if word not in self.legal:
            msg = f"expected one of {', '.join(self.legal)}{nearest(word, self.legal)}"
            raise ValueError(msg)
        return word
