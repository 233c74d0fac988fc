"""What shows that a container is one of several although no platform recognises it: else each would train alone, all of them the same.

Of an operator's variables that would do for a job, some are missing: a PyTorchJob with workers alone has no master, one of before
PET_ variables no number of processes, an MPIJob of version 1 starts its workers through the cluster's API. And there are places that no
platform reads yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ranklaunch import ranktable, showing
from ranklaunch.errors import RanklaunchError
from ranklaunch.files import text_of
from ranklaunch.read import parse
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, NODES, OUTER_RUN, PLATFORM, rank_table
from ranklaunch.values import Value


class Place(Value):
    """Where a container is one of several that no platform reads yet. counts: a variable that says of how many, as `how` tells; beside:
    another one that must be set too. own, first: what says which of them this is, and where the first is. starts_ranks: its own
    variables look like those of a launcher's rank."""

    name: str
    counts: str
    own: str
    first: str
    beside: str = ""
    how: str = "number"  # or names
    starts_ranks: bool = False


_AZURE = "one of $AZUREML_CR_NODE_RANK, $NODE_RANK and $OMPI_COMM_WORLD_RANK (with one process per instance)"
PLACES = (
    Place("SkyPilot", "SKYPILOT_NUM_NODES", "$SKYPILOT_NODE_RANK", "the first line of $SKYPILOT_NODE_IPS"),
    Place("SkyPilot", "SKYPILOT_NODE_IPS", "$SKYPILOT_NODE_RANK", "its first line", how="names"),
    Place("dstack", "DSTACK_NODES_NUM", "$DSTACK_NODE_RANK", "$DSTACK_MASTER_NODE_IP"),
    Place("AWS Batch", "AWS_BATCH_JOB_NUM_NODES", "$AWS_BATCH_JOB_NODE_INDEX", "$AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS, on the main "
          "node, which must be node 0, its own address"),
    Place("Azure ML", "AZUREML_NODE_COUNT", _AZURE, "$MASTER_ADDR, else the first of $AZ_BATCH_HOST_LIST", starts_ranks=True),
    Place("Azure ML", "AZ_BATCH_HOST_LIST", _AZURE, "the first of it", how="names", starts_ranks=True),
    Place("Lepton", "LEPTON_JOB_TOTAL_WORKERS", "$LEPTON_JOB_WORKER_INDEX", "$LEPTON_JOB_NAME-0.$LEPTON_SUBDOMAIN"),
    Place("Beaker", "BEAKER_REPLICA_COUNT", "$BEAKER_REPLICA_RANK", "$BEAKER_LEADER_REPLICA_HOSTNAME"),
    Place("a PaddleJob", "PADDLE_NNODES", "the number at the end of the pod's name", "the host of $PADDLE_MASTER"),
    Place("Metaflow", "MF_PARALLEL_NUM_NODES", "$MF_PARALLEL_NODE_INDEX", "$MF_PARALLEL_MAIN_IP"),
    Place("Google Cloud Batch", "BATCH_TASK_COUNT", "$BATCH_TASK_INDEX", "the first line of $BATCH_HOSTS_FILE", "BATCH_HOSTS_FILE"),
    Place("TI-ONE", "NODE_LIST", "$INDEX", "the first of it", "GPU_NUM_PER_NODE", "names"),
    Place("a JAXJob", "NUM_PROCESSES", "$PROCESS_ID", "$COORDINATOR_ADDRESS", "COORDINATOR_ADDRESS"),
    # RunPod's clusters, MosaicML, OCI's jobs, and scripts of users'.
    *(Place("", name, "$NODE_RANK", "$MASTER_ADDR, or another name of the first", "NODE_RANK") for name in (
        "NUM_NODES", "NNODES", "NODE_COUNT", "INITIAL_CLUSTER_SIZE",
    )),
)  # fmt: skip
# Of Determined.
RENDEZVOUS = "/run/determined/info/rendezvous.json"

OF_MPIRUN = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # Open MPI's number of processes, and that of MPICH and Intel MPI
# A launcher's number of processes on this node, with the variable that only this launcher sets.
OF_OTHERS = (("torchrun", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"), ("horovodrun", "HOROVOD_LOCAL_SIZE", "HOROVOD_RANK"))
OF_MPIRUN_HERE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")  # of those on this node
SIGNS = Variable(
    "several_signs",
    tuple(dict.fromkeys((
        "PET_NNODES", "WORLD_SIZE", "LWS_GROUP_SIZE", "OMPI_MCA_plm_rsh_agent", *OF_MPIRUN,
        *(name for _, *names in OF_OTHERS for name in names),
        *(name for place in PLACES for name in (place.counts, place.beside) if name),
    ))),
    parse.text, "",
    "where no platform is recognised: a container that is one of several is refused until the user says how many there are", "platform",
)  # fmt: skip

RANK_SIGNS = Variable(
    "rank_signs", ("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK"), parse.text, "",
    "where no platform is recognised: set by a launcher, ranklaunch too, for each of a node's ranks, and by no operator", "platform",
)  # fmt: skip

TORCHRUN_SIGN = RANK_SIGNS.names[1]

VARIABLES: tuple[Variable[object], ...] = (SIGNS, RANK_SIGNS)

_ONE = r"0*1(?::0*1)?"
_OWN_MACHINE = r"localhost|127\..*|::1"
_OLD_MASTER = r".+-master-0(?:\..*)?"
# Through the cluster's API: what an MPIJob of version 1 has in place of ssh.
_MPI_AGENT = "/etc/mpi/kubexec.sh"
_MOST_BYTES = 16 * 1024 * 1024


def refuse(reader: Reader) -> None:
    """One of several, where the user has not said how many there are, nor that this is the only one."""
    if any(map(reader.given, (NODES, HOSTS, PLATFORM))):
        return
    refuse_mpirun(reader, OF_MPIRUN)
    refuse_others(reader)
    sign = _pet(reader) or _world(reader) or _group(reader) or _mpi(reader)
    if sign:
        _say(reader, f"{sign}: this container seems to be one of several, of a kind of job that is not known", rank=_is_rank(reader))
        return
    for place, found, nodes in _placed(reader):
        where = f"of a job on {place.name}" if place.name else "of a kind of job that is not known"
        text = f"{found}: this container is one of several {where}, and would train alone"
        remedy = f"RANKLAUNCH_NODES={nodes}, RANKLAUNCH_NODE={place.own}, and RANKLAUNCH_MASTER_ADDR={place.first}"
        _say(reader, text, remedy, rank=TORCHRUN_SIGN in reader.env if place.starts_ranks else _is_rank(reader))
        return
    table, servers = _table(reader)
    if servers > 1 and OUTER_RUN not in reader.env:
        text = f"rank table {showing.one_line(table)} has {servers} servers: this container is one of several, and would train alone"
        _say(reader, text, rank=_is_rank(reader))


_TOLD = "RANKLAUNCH_NODES, RANKLAUNCH_NODE and RANKLAUNCH_MASTER_ADDR"


def _say(reader: Reader, seems: str, told: str = _TOLD, *, rank: bool) -> None:
    if rank:
        reader.warn(f"{seems}; a launcher has started this process as a rank, so it is taken for the only one")
    else:
        reader.problem(f"{seems}: set {told} in each of them, or RANKLAUNCH_PLATFORM=local if it is the only one")


def _is_rank(reader: Reader) -> bool:
    return bool(reader.candidates(RANK_SIGNS))


# Of places with variables of their own


def _placed(reader: Reader) -> Iterator[tuple[Place, str, str]]:
    """Where this is, what shows it, and what says how many they are."""
    for place in PLACES:
        text = _text(reader, place.counts)
        if text and (not place.beside or _text(reader, place.beside)) and (count := _counted(reader, place.how, text)) > 1:
            by_number = place.how == "number"
            shown = f"{place.counts}={showing.clipped(text)}" if by_number else f"{place.counts} with {count} hosts"
            yield place, shown, f"${place.counts}" if by_number else str(count)
    yield from _by_file(reader)


def _by_file(reader: Reader) -> Iterator[tuple[Place, str, str]]:
    """Of Determined, which says nothing of it in the environment."""
    text = text_of(reader.files, RENDEZVOUS, _MOST_BYTES)
    addresses = re.search(r'"container_addrs"\s*:\s*\[([^\]]*)\]', text) if text else None
    count = len(_names(addresses[1])) if addresses else 0
    if count > 1:
        yield Place("Determined", "", "its container_rank", "the first of its container_addrs"), RENDEZVOUS, str(count)


def _counted(reader: Reader, how: str, text: str) -> int:
    if how == "number":
        return max((int(number) for number in text.split(":") if re.fullmatch("[0-9]{1,9}", number)), default=0)
    return len(_names(text))


def _names(text: str) -> set[str]:
    return {name for name in re.split(r"[\s,\"]+", text) if name}


def _table(reader: Reader) -> tuple[str, int]:
    """The rank table, and of how many servers it tells. What is wrong with it, or not there yet, is told where it is used."""
    path = rank_table(reader)
    try:
        return path, len(ranktable.load(path, reader.files).servers) if path else 0
    except (ranktable.NotReadyError, RanklaunchError):
        return path, 0


# Of operators


def _text(reader: Reader, name: str) -> str:
    return reader.env.get(name, "").strip()


def _pet(reader: Reader) -> str:
    nodes = _text(reader, "PET_NNODES")
    return f"PET_NNODES={showing.clipped(nodes)}" if nodes and not re.fullmatch(_ONE, nodes) else ""


def _world(reader: Reader) -> str:
    """Ranks that one machine has for itself have its own address for their master's; so has the master of an old PyTorchJob, which is
    called so."""
    size, master = _text(reader, "WORLD_SIZE"), _text(reader, "MASTER_ADDR")
    several = bool(re.fullmatch("[0-9]{1,9}", size)) and int(size) > 1
    away = bool(master) and not re.fullmatch(_OWN_MACHINE, master)
    old = _text(reader, "RANK") == "0" and bool(master) and bool(re.fullmatch(_OLD_MASTER, _text(reader, "HOSTNAME")))
    return f"WORLD_SIZE={size} with RANK and MASTER_ADDR" if several and (away or old) and _text(reader, "RANK") else ""


def _group(reader: Reader) -> str:
    size = _text(reader, "LWS_GROUP_SIZE")
    return f"LWS_GROUP_SIZE={showing.clipped(size)}" if size and size != "1" else ""


def _mpi(reader: Reader) -> str:
    given = _text(reader, "OMPI_MCA_plm_rsh_agent") == _MPI_AGENT or reader.files.exists(_MPI_AGENT)
    return f"{_MPI_AGENT} of an MPIJob of version 1" if given else ""


def refuse_mpirun(reader: Reader, names: Iterable[str]) -> None:
    """Where an mpirun has started several of this process, as these variables of its say. Ranks of ranklaunch's own may ask it for a
    plan."""
    if OUTER_RUN in reader.env or any(map(reader.given, (NODES, HOSTS, PLATFORM))):
        return
    sizes = ((name, _text(reader, name)) for name in names)
    several = next((f"{name}={size}" for name, size in sizes if re.fullmatch("[0-9]{1,9}", size) and int(size) > 1), "")
    if several:
        _refuse_several(reader, "mpirun", several, "mpirun")


def refuse_others(reader: Reader) -> None:
    """Refuse a start by torchrun or horovodrun, which started several of this process on this node."""
    if OUTER_RUN in reader.env:
        return
    for launcher, count, beside in OF_OTHERS:
        size = _text(reader, count)
        if _text(reader, beside) and re.fullmatch("[0-9]{1,9}", size) and int(size) > 1:
            _refuse_several(reader, launcher, f"{count}={size}", "torchrun" if launcher == "torchrun" else "mpirun")
            return


def _refuse_several(reader: Reader, launcher: str, sign: str, method: str) -> None:
    reader.problem(
        f"{sign}: {launcher} has started several of ranklaunch, and each would start all of the node's ranks: start ranklaunch without "
        f"{launcher}, which --method {method} has it start itself; or one on each node, with {_TOLD}; or set RANKLAUNCH_PLATFORM=local "
        "where each is meant to be the only one"
    )
