"""OCI Data Science jobs: the file with rank and address of each node, to which each node is added when it has started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact
from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable, platform_text
from ranklaunch.env.settings import HOSTS, MASTER_ADDR

FILE = platform_text("oci_nodes_file", ("CLUSTER_NODES_METADATA_FILE",), "file with rank and address of each node, as JSON")
COUNT = Variable("oci_nodes", ("INITIAL_CLUSTER_SIZE", "NODE_COUNT"), parse.positive, 1, "number of nodes", "platform")

_EXPECTED = '[{"Rank": 0, "IPAddress": "10.0.0.2"}, ...]'


class Oci(Place):
    OWN = (FILE,)

    def facts(self, reader: Reader) -> Iterator[Fact]:
        if not reader.is_set(FILE) or any(map(reader.is_set, (HOSTS, MASTER_ADDR))):
            return
        path, nodes = reader.get(FILE), reader.get(COUNT)
        text = reader.text(path) or "[]"
        try:
            entries: Any = json.loads(text)
        except (ValueError, RecursionError):  # the file is being written
            entries = []
        try:
            hosts = {parse.count(str(each["Rank"])): parse.host(str(each["IPAddress"])) for each in entries}
        except (ValueError, KeyError, TypeError):
            reader.problem(f"{reader.described(FILE)} is not understood: expected {_EXPECTED}; else set RANKLAUNCH_HOSTS")
            return
        if set(hosts) == set(range(nodes)):
            yield HOSTS, FILE.name, [hosts[rank] for rank in range(nodes)]
        elif nodes > 1:
            reader.problem(
                f"{reader.described(FILE)} has ranks {', '.join(map(str, sorted(hosts))) or 'of no node'} of {nodes} yet: start ranklaunch "
                f'when it has all, such as by until [ "$(grep -o IPAddress {path} | wc -l)" -ge {nodes} ]; do sleep 5; done'
            )
