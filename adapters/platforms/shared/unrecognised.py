"""What shows that a container is one of several although no platform recognises it: else each would train alone, all of them the same.

Of an operator's variables that would do for a job, some are missing: a PyTorchJob with workers alone has no master, one of before
PET_ variables no number of processes, an MPIJob of version 1 starts its workers through the cluster's API.
"""

from __future__ import annotations

import re

from ranklaunch import redact
from ranklaunch.read import parse
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, NODES, PLATFORM

SIGNS = Variable(
    "several_signs", ("PET_NNODES", "WORLD_SIZE", "LWS_GROUP_SIZE", "OMPI_MCA_plm_rsh_agent"), parse.text, "",
    "where no platform is recognised: a container that is one of several is refused until the user says how many there are", "platform",
)  # fmt: skip

RANK_SIGNS = Variable(
    "rank_signs", ("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK"), parse.text, "",
    "where no platform is recognised: set by a launcher, ranklaunch too, for each of a node's ranks, and by no operator", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (SIGNS, RANK_SIGNS)

_ONE = re.compile(r"0*1(?::0*1)?")
_OWN_MACHINE = re.compile(r"localhost|127\..*|::1")
# Through the cluster's API: what an MPIJob of version 1 has in place of ssh.
_MPI_AGENT = "/etc/mpi/kubexec.sh"


def refuse(reader: Reader) -> None:
    """One of several, where the user has not said how many there are, nor that this is the only one."""
    sign = _pet(reader) or _world(reader) or _group(reader) or _mpi(reader)
    if not sign or any(map(reader.given, (NODES, HOSTS, PLATFORM))):
        return
    seems = f"{sign}: this container seems to be one of several, of a kind of job that is not known"
    if reader.candidates(RANK_SIGNS):
        reader.warn(f"{seems}; a launcher has started this process as a rank, so it is taken for the only one")
    else:
        told = "set RANKLAUNCH_NODES, RANKLAUNCH_NODE and RANKLAUNCH_MASTER_ADDR in each of them"
        reader.problem(f"{seems}: {told}, or RANKLAUNCH_PLATFORM=local if it is the only one")


def _text(reader: Reader, name: str) -> str:
    return reader.env.get(name, "").strip()


def _pet(reader: Reader) -> str:
    nodes = _text(reader, "PET_NNODES")
    return f"PET_NNODES={redact.clipped(nodes)}" if nodes and not _ONE.fullmatch(nodes) else ""


def _world(reader: Reader) -> str:
    """Ranks that one machine has for itself have its own address for their master's."""
    size, master = _text(reader, "WORLD_SIZE"), _text(reader, "MASTER_ADDR")
    several = bool(re.fullmatch("[0-9]{1,9}", size)) and int(size) > 1
    away = bool(master) and not _OWN_MACHINE.fullmatch(master)
    return f"WORLD_SIZE={size} with RANK and MASTER_ADDR" if several and away and _text(reader, "RANK") else ""


def _group(reader: Reader) -> str:
    size = _text(reader, "LWS_GROUP_SIZE")
    return f"LWS_GROUP_SIZE={redact.clipped(size)}" if size and size != "1" else ""


def _mpi(reader: Reader) -> str:
    given = _text(reader, "OMPI_MCA_plm_rsh_agent") == _MPI_AGENT or reader.files.exists(_MPI_AGENT)
    return f"{_MPI_AGENT} of an MPIJob of version 1" if given else ""
