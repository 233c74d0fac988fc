"""Hosts of a job from a file (--hosts-from) or a command's output (--hosts-command). A node without an index looks for itself among
them."""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import batch, self_index
from ranklaunch.adapters.platforms.shared.base import HOSTS_COMMAND, HOSTS_FROM
from ranklaunch.env import parse
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import HOSTS, MASTER_ADDR, NODE_INDEX
from ranklaunch.showing import clipped

NOT_YET = "unnamed-0"  # in place of the first host until the command has run


def offer(reader: Reader) -> None:
    """Offer the hosts, and the index of this node. Refuse a second source of hosts."""
    sources = [variable for variable in (HOSTS, HOSTS_FROM, HOSTS_COMMAND) if reader.is_set(variable)]
    if len(sources) > 1:
        beside = " beside ".join(reader.candidates(variable)[0].quoted for variable in sources)
        reader.problem(f"{beside}: each of them names the nodes of the job; set only one of them")
        return
    source = reader.candidates(sources[0])[0].source
    if sources[0] is HOSTS_COMMAND and reader.arrived.named is None:
        reader.record(HOSTS_COMMAND)
        reader.awaits_hosts = True
        reader.offer(MASTER_ADDR, source, NOT_YET)
        return
    hosts = _of_file(reader) if sources[0] is HOSTS_FROM else _of_command(reader)
    indices = self_index.find(reader, hosts)
    if hosts:
        reader.offer(HOSTS, source, hosts)
    if len(indices) == 1:
        reader.offer(NODE_INDEX, f"{hosts[indices[0]]} is this host", indices[0])


def refuse_another(reader: Reader, host: str) -> None:
    """Refuse the only host if it is not this node: this node is then no part of the job, and would train alone."""
    if not self_index.find(reader, (host,)) and not parse.is_loopback(host):
        this_node = clipped(self_index.describe(reader))
        reader.problem(f"{host}, the only host of {_source(reader)}, is not {this_node}; set {NODE_INDEX.both} to 0 if it is")


def _source(reader: Reader) -> str:
    return next(reader.described(variable) for variable in (HOSTS_FROM, HOSTS_COMMAND) if reader.is_set(variable))


def _of_file(reader: Reader) -> tuple[str, ...]:
    path = reader.absolute(reader.get(HOSTS_FROM))
    hosts = tuple(batch.listed(reader, path))
    if not hosts:
        reason = "expected a host on each line, found none" if reader.files.exists(path) else "no such file"
        reader.problem(f"{reader.described(HOSTS_FROM)}: {reason}")
    return hosts


def _of_command(reader: Reader) -> tuple[str, ...]:
    """Return the hosts in a command's output, with blanks, commas or line breaks between them."""
    reader.record(HOSTS_COMMAND)
    words = (reader.arrived.named or "").replace(",", " ").split()
    hosts = tuple(batch.counted(reader, f"the output of {reader.described(HOSTS_COMMAND)}", words))
    if not words:
        reader.problem(f"{reader.described(HOSTS_COMMAND)}: expected names of hosts in its output, found none")
    return hosts
