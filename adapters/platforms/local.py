"""No platform: all values come from options and RANKLAUNCH_ variables, or from a hostfile."""

from __future__ import annotations

from collections.abc import Sequence

from ranklaunch.adapters.platforms.shared import base, unrecognised
from ranklaunch.adapters.platforms.shared.base import Place, own_slots
from ranklaunch.env.job import Job, Program
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import (
    HOSTS,
    JOB_NAME,
    MASTER_ADDR,
    NODE_INDEX,
    NODES,
    PLATFORM,
    log_dir,
    make_job,
)


class Local(Place):
    OWN = (base.HOSTFILE, *unrecognised.VARIABLES)

    def detect(self, reader: Reader) -> bool:
        return True

    def read(self, reader: Reader, program: Program) -> Job:
        return self._job_of_tasks(reader, program) or self._job_of_nodes(reader, program)

    def attempt(self, reader: Reader, nodes: int = 0, index: int = 0) -> int:
        return base.attempt(reader, *((nodes, index) if nodes else _nodes_and_index(reader)))

    def log_dir(self, reader: Reader) -> str:
        nodes, index = _nodes_and_index(reader)
        return log_dir(reader, index if nodes > 1 else None)

    def _job_of_nodes(self, reader: Reader, program: Program) -> Job:
        _offer_hostfile(reader)
        unrecognised.refuse(reader)
        hosts = reader.get(HOSTS)
        nodes = reader.get(NODES) if reader.is_set(NODES) else max(1, len(hosts))
        if hosts and len(hosts) != nodes:
            wrong = f"{reader.source(HOSTS)} names {len(hosts)} hosts, but {reader.source(NODES)} is {nodes}"
            reader.problem(f"{wrong}: expected as many names as nodes")
            hosts = hosts[:1] * nodes
        _refuse_another(reader, hosts)
        if nodes > 1 and not hosts and not reader.is_set(MASTER_ADDR):
            reader.problem(f"{nodes} nodes, but neither {HOSTS.both} nor {MASTER_ADDR.both} says where node 0 is")
        index = base.index(reader, nodes, NODE_INDEX)
        slots = own_slots(reader, nodes)
        return make_job(
            reader,
            program,
            platform=self.NAME,
            name=reader.get(JOB_NAME) or self.NAME,
            attempt=self.attempt(reader, nodes, index),
            hosts=hosts or ("localhost",) + ("",) * (nodes - 1),
            slots=slots,
            node_index=index,
        )


def _nodes_and_index(reader: Reader) -> tuple[int, int]:
    """Return the number of nodes and the index of this one; 1 and 0 if unknown."""
    nodes = reader.get(NODES) if reader.is_set(NODES) else len(reader.get(HOSTS))
    return max(1, nodes), min(reader.get(NODE_INDEX), max(0, nodes - 1))


def _refuse_another(reader: Reader, hosts: Sequence[str]) -> None:
    """Refuse the only host of --hosts-from or --hosts-command if it is not this node."""
    if len(hosts) == 1 and any(map(reader.is_set, base.NAMING)) and not reader.is_set(NODE_INDEX):
        from ranklaunch.adapters.platforms.shared import host_command  # imported here: most jobs have neither

        host_command.refuse_another(reader, hosts[0])


def _offer_hostfile(reader: Reader) -> None:
    """Offer the nodes of the hostfile. The default hostfile counts only if the user sets no hosts, nodes, master or platform.

    Raise ConfigError if the file cannot be used: further messages would be about a job of one node, and false.
    """
    usual = reader.files.exists(base.USUAL_HOSTFILE) and not any(map(reader.is_set, (HOSTS, NODES, MASTER_ADDR, PLATFORM)))
    if usual or reader.is_set(base.HOSTFILE):
        from ranklaunch.adapters.platforms.shared import hostfile  # imported here: most jobs have no hostfile

        hostfile.offer(reader)
