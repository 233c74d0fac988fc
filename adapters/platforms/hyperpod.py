"""The file of HyperPod's training operator with the addresses of a job's pods. A pod finds its own among them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import own_place
from ranklaunch.adapters.platforms.shared.facts import Fact, of_hosts
from ranklaunch.files import text_of
from ranklaunch.read import parse
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader
from ranklaunch.read.settings import NODE_INDEX
from ranklaunch.showing import clipped
from ranklaunch.typed import Any

_FILE = "/opt/ml/input/config/pod_resourceconfig.json"
_MOST_BYTES = 16 * 1024 * 1024


def facts(reader: Reader) -> Iterator[Fact]:
    text = text_of(reader.files, _FILE, _MOST_BYTES)
    if not text:
        return
    try:
        found: Any = json.loads(text)
        hosts = [parse.host(str(each)) for each in found["ips"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        reader.problem(f'{_FILE} is not understood: expected {{"ips": [ADDRESS, ...]}}; else set RANKLAUNCH_HOSTS and RANKLAUNCH_NODE')
        return
    yield from of_hosts(_FILE, hosts)
    own = own_place.find(reader, hosts)
    if len(own) == 1:
        yield NODE_INDEX, Candidate(f"{_FILE} has {hosts[own[0]]}", str(own[0]))
    elif len(hosts) > 1 and not reader.by_user(NODE_INDEX):
        reader.problem(f"{_FILE}: no address is of {clipped(own_place.told(reader))}; RANKLAUNCH_NODE says which it is, from 0")
