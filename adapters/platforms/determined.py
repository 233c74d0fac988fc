"""The rendezvous file of Determined AI: addresses and slots of all containers of a task, and which of them this is."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared.facts import Fact, of_hosts
from ranklaunch.adapters.platforms.shared.unrecognised import RENDEZVOUS
from ranklaunch.files import text_of
from ranklaunch.read import parse
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT, NODE_INDEX
from ranklaunch.typed import Any

RUN = Variable("trial_run", ("DET_TRIAL_RUN_ID",), parse.count, 1, "which run of the trial it is, from 1: the attempt", "platform")
VARIABLES = (RUN,)

_MOST_BYTES = 16 * 1024 * 1024
_EXPECTED = '{"container_addrs": [ADDRESS, ...], "container_rank": N, "container_slot_counts": [N, ...]}, with as many counts as addresses'


def facts(reader: Reader) -> Iterator[Fact]:
    if reader.given(RUN):
        yield ATTEMPT, Candidate(RUN.names[0], str(max(1, reader.get(RUN))))
    text = text_of(reader.files, RENDEZVOUS, _MOST_BYTES)
    if not text:
        return
    try:
        found: Any = json.loads(text)
        hosts = [parse.host(str(each)) for each in found["container_addrs"]]
        slots = [parse.whole(str(each), 0, parse.MOST_SLOTS) for each in found["container_slot_counts"]]
        number = parse.whole(str(found["container_rank"]), 0, len(hosts) - 1)
    except (ValueError, KeyError, TypeError, RecursionError):
        hosts, slots, number = [], [], -1
    if not hosts or len(slots) != len(hosts):
        reader.problem(f"{RENDEZVOUS} is not understood: expected {_EXPECTED}; else set RANKLAUNCH_PLATFORM=local and RANKLAUNCH_NODES")
        return
    yield from of_hosts(RENDEZVOUS, hosts, slots)
    yield NODE_INDEX, Candidate(f"container_rank in {RENDEZVOUS}", str(number))
