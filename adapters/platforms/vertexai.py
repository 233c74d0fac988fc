"""Vertex AI: the worker pools of CLUSTER_SPEC that train, whose replicas are the nodes in this order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact, of_hosts
from ranklaunch.env import parse
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import NODE_INDEX
from ranklaunch.showing import clipped

_CLUSTER, _POOLS = "CLUSTER_SPEC", ("workerpool0", "workerpool1")
_EXPECTED = '{"cluster": {"workerpool0": ["HOST:PORT"], ...}, "task": {"type": "workerpool0", "index": 0}}'


class Vertexai(Place):
    def facts(self, reader: Reader) -> Iterator[Fact]:
        text = reader.env.get(_CLUSTER, "")
        if not text.strip():
            return
        try:
            spec: Any = json.loads(text)
            pools = [[e.host for item in spec["cluster"].get(name, ()) for e in parse.endpoints(item)] for name in _POOLS]
            kind, number = str(spec["task"]["type"]), parse.count(str(spec["task"]["index"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            reader.problem(f"{_CLUSTER}={clipped(text)} is not understood: expected {_EXPECTED}")
            return
        yield from of_hosts(_CLUSTER, [*pools[0], *pools[1]])
        if kind in _POOLS and number < len(pools[_POOLS.index(kind)]):
            yield NODE_INDEX, _CLUSTER, number + (len(pools[0]) if kind == _POOLS[1] else 0)
        elif not reader.by_user(NODE_INDEX):
            reader.problem(
                f"{_CLUSTER}: task {kind} {number} is none of the replicas of {' and '.join(_POOLS)}, which are the nodes: do not start "
                "ranklaunch in other pools"
            )
