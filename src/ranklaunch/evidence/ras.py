"""What NCCL's RAS says of ranks that have fallen behind.

Source of the protocol and of the form: NCCL's src/ras/client.cc and src/ras/client_support.cc (2.24 to 2.28). A client says
"CLIENT PROTOCOL n", is told "SERVER PROTOCOL n", says "TIMEOUT s", is told "OK", says "VERBOSE STATUS", and is sent a report up to the end
of the connection. The report is text: JSON (SET FORMAT json) is new in 2.28, and text is what all of them have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HELLO = "CLIENT PROTOCOL 2\n"
ANSWER = "SERVER PROTOCOL "
STATUS = "VERBOSE STATUS\n"
PORT = 28028
_COMMUNICATOR = re.compile(r"^#([0-9]+-[0-9]+) \([0-9a-f]+\) [A-Z,]+$")
_COUNTS = re.compile(r"^  Communicator ranks have different (?:(\w+) )?operation counts$")
_MANY = re.compile(r"^  [0-9]+ ranks have (?:launched up to operation ([0-9]+)|not launched any operations)$")
_ONE = re.compile(r"^  Rank ([0-9]+) has (?:launched up to operation ([0-9]+)|not launched any operations)\b")
_LISTED = re.compile(r"^  Rank ([0-9]+) -- ")
_PROCESS = re.compile(r"managed by process ([0-9]{1,10}) on node (\S{1,100})")


@dataclass(frozen=True)
class Behind:
    """A rank of a communicator, by its number there, that has launched fewer operations than others. pid, address: of its process, 0 and
    "" where the report does not tell them."""

    communicator: str
    rank: int
    operation: str
    launched: int
    most: int
    pid: int = 0
    address: str = ""


def timeout(seconds: int) -> str:
    return f"TIMEOUT {seconds}\n"


def address(told: str) -> tuple[str, int]:
    """Of NCCL_RAS_ADDR, such as localhost:28028; that of a process which says none."""
    host, _, port = told.rpartition(":")
    return (host.strip("[]") or "localhost", int(port)) if re.fullmatch("[0-9]{1,5}", port) else ("localhost", PORT)


def behind(report: str) -> list[Behind]:
    """Those that have launched fewer operations than the most of their communicator, as far as the report lists them."""
    found: list[Behind] = []
    counts: dict[int, int] = {}
    places: dict[int, tuple[int, str]] = {}
    communicator = operation = ""
    count = most = 0
    for line in [*report.splitlines(), ""]:
        head, kind = _COMMUNICATOR.match(line), _COUNTS.match(line)
        many, one, listed = _MANY.match(line), _ONE.match(line), _LISTED.match(line)
        process = _PROCESS.search(line)
        if process and (one or listed):
            places[int((one or listed)[1])] = int(process[1]), process[2]  # type: ignore[index]
        if one:
            counts[int(one[1])] = int(one[2] or 0)
            most = max(most, int(one[2] or 0))
        elif many:
            count = int(many[1] or 0)
            most = max(most, count)
        elif listed and operation:
            counts[int(listed[1])] = count
        elif head or kind or not line:
            behind = [(rank, number) for rank, number in sorted(counts.items()) if number < most]
            found += [Behind(communicator, rank, operation, number, most, *places.get(rank, ())) for rank, number in behind]
            counts, places, count, most = {}, {}, 0, 0
            communicator = head[1] if head else communicator
            operation = (kind[1] or "collective") if kind else ""
    return found
