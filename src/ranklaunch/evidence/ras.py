"""Parser of reports of NCCL's RAS service: the ranks that have launched fewer operations than others.

Source of the protocol and of the format: NCCL's src/ras/client.cc and src/ras/client_support.cc (2.24 to 2.28). A client sends
"CLIENT PROTOCOL n", gets "SERVER PROTOCOL n", sends "TIMEOUT s", gets "OK", sends "VERBOSE STATUS", and gets a report up to the end
of the connection. The report is read as text, because all versions have it; JSON (SET FORMAT json) is new in 2.28.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

PORT = 28028
_COMMUNICATOR = re.compile(r"^#([0-9]+-[0-9]+) \([0-9a-f]+\) [A-Z,]+$")
_COUNTS = re.compile(r"^  Communicator ranks have different (?:(\w+) )?operation counts$")
_LAUNCHED = r"(?:launched up to operation (?P<count>[0-9]+)|not launched any operations)"
_MANY = re.compile(rf"^  [0-9]+ ranks have {_LAUNCHED}$")
_RANK = re.compile(rf"^  Rank (?P<rank>[0-9]+) (?:(?P<listed>-- )|has {_LAUNCHED}\b)")
_PROCESS = re.compile(r"managed by process ([0-9]{1,10}) on node (\S{1,100})")


@dataclass(frozen=True)
class Behind:
    """Rank of a communicator that has launched fewer operations than others. rank: its number in the communicator. pid, address: of its
    process, 0 and "" if the report lacks them."""

    communicator: str
    rank: int
    operation: str
    launched: int
    most: int
    pid: int = 0
    address: str = ""


def address(text: str) -> tuple[str, int]:
    """Return host and port of NCCL_RAS_ADDR, such as localhost:28028, with NCCL's defaults."""
    host, _, port = text.rpartition(":")
    return (host.strip("[]") or "localhost", int(port)) if re.fullmatch("[0-9]{1,5}", port) else ("localhost", PORT)


def behind(report: str) -> list[Behind]:
    """Return the listed ranks that have launched fewer operations than the highest count of their communicator."""
    result: list[Behind] = []
    communicator, block = "", _Block("")
    for line in [*report.splitlines(), ""]:
        head, counts = _COMMUNICATOR.match(line), _COUNTS.match(line)
        if head or counts or not line:
            result += block.behind(communicator)
            communicator = head[1] if head else communicator
            block = _Block((counts[1] or "collective") if counts else "")
        elif block.operation:
            block.feed(line)
    return result


@dataclass
class _Block:
    """Lines of a report about one operation of a communicator. listed: operations launched by the ranks in the following lines."""

    operation: str
    listed: int = 0
    most: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    processes: dict[int, tuple[int, str]] = field(default_factory=dict)

    def feed(self, line: str) -> None:
        many, one, process = _MANY.match(line), _RANK.match(line), _PROCESS.search(line)
        if many:
            self.listed = int(many["count"] or 0)
            self.most = max(self.most, self.listed)
        elif one:
            rank = int(one["rank"])
            self.counts[rank] = self.listed if one["listed"] else int(one["count"] or 0)
            self.most = max(self.most, self.counts[rank])
            if process:
                self.processes[rank] = int(process[1]), process[2]

    def behind(self, communicator: str) -> Iterator[Behind]:
        for rank, count in sorted(self.counts.items()):
            if count < self.most:
                yield Behind(communicator, rank, self.operation, count, self.most, *self.processes.get(rank, ()))
