"""LeaderWorkerSet: names of the pods, from the leader's address: LEADER.SERVICE, and LEADER-1.SERVICE for worker 1."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import HOSTS, NODE_INDEX, NODES

_ADDRESS = "LWS_LEADER_ADDRESS"
# A leader's name without a number at the end belongs to a group without one, whose workers have other names.
_LEADER = r"(?P<pod>[^.]+-[0-9]{1,7})(?P<rest>\.[^.]+(?:\..+)?)"


class Leaderworkerset(Place):
    OWN = (HOSTNAME,)

    def facts(self, reader: Reader) -> Iterator[Fact]:
        leader = re.fullmatch(_LEADER, reader.env.get(_ADDRESS, "").strip())
        if not leader:
            return
        count = reader.get(NODES.also("LWS_GROUP_SIZE"))
        workers = (f"{leader['pod']}-{number}{leader['rest']}" for number in range(1, count))
        yield HOSTS, _ADDRESS, [leader[0], *workers]
        pod = re.fullmatch(rf"{re.escape(leader['pod'])}(?:-([0-9]{{1,7}}))?", kubernetes.own_name(reader))
        if pod:
            yield NODE_INDEX, "the number in HOSTNAME", pod[1] or "0"
