"""AWS Batch. The main node, whatever its index on the platform, is node 0 here: the other nodes know only the main node's address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ranklaunch.adapters.platforms.shared import self_index
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import FIRST, Fact
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, platform_count
from ranklaunch.env.settings import HOSTS, MASTER_ADDR, NODE_INDEX

INDEX = platform_count(
    "batch_index",
    ("AWS_BATCH_JOB_NODE_INDEX",),
    "index of this node; here the main node is 0, and the nodes before it have an index one higher",
    per_node=True,
)
MAIN = platform_count("main_index", ("AWS_BATCH_JOB_MAIN_NODE_INDEX",), "index of the main node, which is node 0 here")
_ADDRESS = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"  # on the other nodes alone


class AwsBatch(Place):
    OWN = (INDEX, MAIN)
    INDEX = INDEX

    def facts(self, reader: Reader) -> Iterator[Fact]:
        index, main = reader.get(INDEX), reader.get(MAIN)
        node_index = 0 if index == main else index + 1 if index < main else index
        if reader.is_set(INDEX):
            yield NODE_INDEX, INDEX.name if node_index == index else f"{INDEX.name} from the main node", node_index
        if (not node_index or not reader.is_set(INDEX)) and _ADDRESS not in reader.env and not reader.is_set(HOSTS):
            yield FIRST, "this node's own address", self_index.address(reader) or "localhost"

    def finished(self, reader: Reader, job: Job) -> Job:
        """Return the job with the main node's address, for the main node to hand over: there no variable has the address."""
        is_main = reader.is_set(INDEX) and reader.get(INDEX) == reader.get(MAIN)
        if not job.has_peers or not is_main or reader.is_set(HOSTS) or reader.is_set(MASTER_ADDR):
            return job
        return replace(job, own_address=self_index.address(reader))
