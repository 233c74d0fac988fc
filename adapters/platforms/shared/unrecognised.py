"""Refuse to start one of several nodes whose platform is unknown: each node would train alone, and exit with 0.

Schedulers, operators and launchers use similar names for the number of nodes, the index of this node, the address of the first node
and the list of all nodes. The ending of a variable's name gives its kind (NAMES); the prefix before the ending, such as BT_ or JAX_,
ties an index to its count. RULES are tried in order; the first match refuses the start. DOUBTS are tried after them, and only warn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ranklaunch.adapters.platforms.shared import self_index
from ranklaunch.env.reader import Reader, platform_text
from ranklaunch.env.settings import HOSTS, NODES, OUTER_RUN, PLATFORM, rank_table
from ranklaunch.errors import RanklaunchError
from ranklaunch.showing import clipped, one_line

# Kind of a variable by the ending of its name. WORKERS, TASKS and REPLICAS are no counts: web servers, data loaders and arrays of jobs
# have them. A prefix with LOCAL is about one node. The first lines leave out services and CI systems, which have masters, nodes and hosts
# of their own.
NAMES = r"""(?!AEROSPIKE|ALLOWED|CASSANDRA|CELERY|CI_|CLICKHOUSE|DB_|DJANGO|ELASTIC|ES_|ETCD|KAFKA|LOGSTASH|MARIADB|
        MEMCACHED|MILVUS|MINIO|MONGO|MYSQL|NATS|OPENSEARCH|PG|POSTGRES|RABBITMQ|RANKLAUNCH|REDIS|SCYLLA|SQL|TRUSTED|VALKEY)
    (?P<prefix>(?:(?!LOCAL_)[^_]*_)*?)(?:
    (?P<count>NNODES|NHOSTS|(NUM|TOTAL)_(NODES|HOSTS|MACHINES)|(NODE|HOST|MACHINE)_(NUM|COUNT)|NODES_NUM|
        (GROUP(_WORLD)?|(INITIAL_)?CLUSTER|CROSS)_SIZE)
    |(?P<processes>NPROCS|NUM_(PROCESSES|WORKER)|(WORKER|TRAINERS)_NUM|(WORKER|(COMM_)?WORLD)_SIZE)
    |(?P<here>LOCAL_(WORKER|WORLD_SIZE)|COMM_WORLD_LOCAL_SIZE)
    |(?P<index>((NODE|GROUP|CLUSTER|CROSS|HOST|MACHINE|PROCESS|WORKER|TRAINER|TASK)_)?(RANK|INDEX|IDX|ID))
    |(?P<master>(MASTER|LEADER|COORDINATOR|HEAD|CHIEF|PRIMARY|MAIN(_PROCESS)?|SCHED|RDZV|RENDEZVOUS|PS_ROOT|TRACKER|(NODE|WORKER)_0)
        _((NODE_)?(ADDR|ADDRESS|IP)|HOST|HOSTNAME|ENDPOINT|URI|NODE))
    |(?P<list>((NODE|HOST|CLUSTER|WORKER|TRAINER)_)?(HOSTS|IPS|ADDRS|ADDRESSES|ENDPOINTS|NODES|NODELIST|HOSTLIST)|(NODE|HOST)_LIST)
    |(?P<batch>(PE|OAR|COBALT|LOADL)_(HOST|NODE)_?FILE)
    |(?P<file>(HOST|NODE|MACHINE)_?FILE)
    |(?P<cluster>TF_CONFIG|CLUSTER(_DEF|_SPEC)?))"""
# Counts that only a scheduler or an operator sets: one above 1 is enough to refuse the start.
ENOUGH = (
    "PET_NNODES", "LWS_GROUP_SIZE", "PADDLE_NNODES", "SKYPILOT_NUM_NODES", "DSTACK_NODES_NUM", "AWS_BATCH_JOB_NUM_NODES", "_CONDOR_NPROCS",
    "AZUREML_NODE_COUNT", "LEPTON_JOB_TOTAL_WORKERS", "BEAKER_REPLICA_COUNT", "MF_PARALLEL_NUM_NODES", "COBALT_JOBSIZE",
)  # fmt: skip
ALONE = ("NNODES", "NUM_NODES", "MODAL_CLUSTER_ID")  # without other signs, one of these is only a warning

OF_MPIRUN = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # Open MPI's number of processes, and that of MPICH and Intel MPI
# A launcher's number of processes on this node, with the variable that only this launcher sets.
OF_LAUNCHERS = (("torchrun", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"), ("horovodrun", "HOROVOD_LOCAL_SIZE", "HOROVOD_RANK"))
OF_MPIRUN_HERE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")  # processes on this node
SIGNS = platform_text(
    "several_signs",
    (
        *ENOUGH,
        *ALONE,
        "WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "LOCAL_SIZE",
        "OMPI_MCA_plm_rsh_agent",
        *OF_MPIRUN,
        *(name for _, *names in OF_LAUNCHERS for name in names),
    ),
    "if no platform is recognised: a container that is one of several nodes is refused until the user sets their number; other names count "
    "by their endings",
)
RANK_SIGNS = platform_text(
    "rank_signs",
    ("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK"),
    "if no platform is recognised: set by launchers (ranklaunch too) for each rank of a node; LOCAL_RANK counts if above 0, or beside "
    "LOCAL_WORLD_SIZE or LOCAL_SIZE",
)
VARIABLES = (SIGNS, RANK_SIGNS)

_MPI_AGENT = "/etc/mpi/kubexec.sh"  # of an MPIJob of version 1, which starts workers through the cluster's API instead of ssh
_OF_NODE = "RANKLAUNCH_NODES, RANKLAUNCH_NODE and RANKLAUNCH_MASTER_ADDR"
_REMEDY = f"set {_OF_NODE} in each of them, or RANKLAUNCH_NODES=1 or RANKLAUNCH_PLATFORM=local if it is the only one"


class Sign(NamedTuple):
    """Variable about nodes. number: the value, else the number of hosts in it, -1 without either. hosts: those in it, without loopback."""

    name: str
    text: str
    prefix: str = ""
    number: int = -1
    hosts: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name}={one_line(clipped(self.text))}"


Signs = Mapping[str, Sequence[Sign]]  # by the names of groups in NAMES
Matches = Iterator[Sequence[object]]  # the signs that make a rule hold, for the message


def refuse(reader: Reader) -> None:
    """Refuse the start if this container is one of several nodes; warn if it may be. No check if nodes, hosts or platform are set."""
    if any(map(reader.is_set, (NODES, HOSTS, PLATFORM))):
        return
    if not any(_number(_text(reader, name)) == 1 for name in OF_MPIRUN_HERE):  # 1: mpirun started one ranklaunch on each node, as it should
        refuse_mpirun(reader, OF_MPIRUN)
    refuse_launchers(reader)
    signs = _signs(reader)
    sign, doubt = _first(reader, signs, RULES), _first(reader, signs, DOUBTS)
    if sign and _is_rank(reader):
        reader.warn(f"{sign}: a launcher has started this process as a rank, so it is taken for the only node", in_verdict=True)
    elif sign:
        reader.problem(f"{sign}: this container is one of several nodes, of a kind of job that is not known: {_REMEDY}")
    elif doubt and not _is_rank(reader):
        reader.warn(f"{doubt}: this container may be one of several nodes, and runs alone: {_REMEDY}", in_verdict=True)


def _first(reader: Reader, signs: Signs, rules: Sequence[Callable[[Reader, Signs], Matches]]) -> str:
    return " and ".join(map(str, next((shown for rule in rules for shown in rule(reader, signs)), ())))


# Rules. Each yields, for every match, the variables that show several nodes.


def _enough(reader: Reader, signs: Signs) -> Matches:
    """Match a count that only a scheduler or an operator sets, or the start script that an MPIJob of version 1 mounts."""
    yield from ([count] for count in (Sign(name, _text(reader, name)) for name in ENOUGH) if _number(count.text) > 1)
    if _text(reader, "OMPI_MCA_plm_rsh_agent") == _MPI_AGENT or reader.files.exists(_MPI_AGENT):
        yield [f"{_MPI_AGENT} of an MPIJob of version 1"]


def _more_than_here(reader: Reader, signs: Signs) -> Matches:
    """Match more processes in the job than on this node."""
    return (pair for pair in _pairs(signs, "processes", "here") if pair[1].number > 0)


def _hosts_of_job(reader: Reader, signs: Signs) -> Matches:
    """Match a batch system's machine file, or a description of a cluster as in TF_CONFIG, with several hosts."""
    return ([f"{sign} with {sign.number} hosts"] for sign in (*signs["batch"], *signs["cluster"]) if sign.number > 1)


def _counted(reader: Reader, signs: Signs) -> Matches:
    """Match a count, an index up to it with the same prefix, and the address of another host. A list of hosts is a count and an address.

    Without an index, match a count and a master's address of the same prefix, or a count and a batch system's machine file that this node
    cannot read.
    """
    addresses = [sign for kind in ("master", "list", "file") for sign in signs[kind] if sign.hosts]
    yield from (tuple(dict.fromkeys((*place, addresses[0]))) for place in _places(signs) if addresses)
    yield from (pair for pair in _pairs(signs, "count", "master") if pair[0].prefix and pair[1].hosts)
    yield from ((count, file) for count in signs["count"] for file in signs["batch"] if not file.hosts)


def _numbered(reader: Reader, signs: Signs) -> Matches:
    """Match a node index above 0, and the address of another host as the master's."""
    indices = [sign for sign in signs["index"] if sign.name in ("NODE_RANK", "GROUP_RANK") and sign.number > 0]
    return ((index, master) for index in indices for master in signs["master"] if master.hosts)


def _listed(reader: Reader, signs: Signs) -> Matches:
    """Match a list of nodes with this machine in it, or with the host that a master variable of the same prefix names."""
    yield from (pair for pair in _pairs(signs, "list", "master") if pair[0].hosts & pair[1].hosts)
    for nodes in signs["list"]:
        if re.search("NODE|HOST_?LIST", nodes.name) and self_index.find(reader, sorted(nodes.hosts)):
            yield (nodes, "this machine among them")


def _table(reader: Reader, signs: Signs) -> Matches:
    """Match a rank table of several servers. A table that is wrong, or missing yet, is reported by the method that uses it."""
    path = "" if OUTER_RUN in reader.env else rank_table(reader)
    if not path:
        return
    from ranklaunch import ranktable  # imported here: most jobs have no rank table

    try:
        servers = len(ranktable.load(path, reader.files).servers)
    except (ranktable.NotReadyError, RanklaunchError):
        return
    if servers > 1:
        yield [f"rank table {one_line(path)} has {servers} servers"]


def _place(reader: Reader, signs: Signs) -> Matches:
    """Match a count and an index up to it, without a master's address."""
    return iter(() if signs["master"] else _places(signs))


def _alone(reader: Reader, signs: Signs) -> Matches:
    """Match a number of nodes, or the name of a cluster, without further signs."""
    return ([sign] for sign in (Sign(name, _text(reader, name)) for name in ALONE) if sign.text and _number(sign.text) not in (0, 1))


RULES = (_enough, _more_than_here, _hosts_of_job, _counted, _numbered, _listed, _table)
DOUBTS = (_place, _alone)


def _places(signs: Signs) -> list[tuple[Sign, Sign]]:
    """Return each count or list of hosts with an index. An index equal to the count is included: some platforms count from 1."""
    pairs = (*_pairs(signs, "count", "index"), *_pairs(signs, "list", "index"))
    return [(count, index) for count, index in pairs if 0 <= index.number <= count.number]


def _pairs(signs: Signs, one: str, other: str) -> list[tuple[Sign, Sign]]:
    """Return the pairs of variables of two kinds that have the same prefix."""
    return [(first, second) for first in signs[one] for second in signs[other] if first.prefix == second.prefix]


def _signs(reader: Reader) -> Signs:
    """Return the variables by kind. Kept are lists of several hosts, and counts above 1 and above the number of this node's processes."""
    names = re.compile(NAMES, re.VERBOSE | re.IGNORECASE)
    signs: dict[str, list[Sign]] = {kind: [] for kind in names.groupindex}
    for name, text in reader.env.items():
        match = names.fullmatch(name)
        if match and text.strip():
            signs[match.lastgroup or ""].append(_sign(reader, match, text.strip()))
    here = {sign.prefix: sign.number for sign in signs["here"]}
    signs["processes"] = [sign for sign in signs["processes"] if sign.number > here.get(sign.prefix, 1)]
    signs["count"] = [sign for sign in (*signs["count"], *signs["processes"]) if sign.number > 1]
    signs["list"] = [sign for sign in signs["list"] if sign.number > 1]
    return signs


def _sign(reader: Reader, match: re.Match[str], text: str) -> Sign:
    listed = text
    if match.lastgroup in ("batch", "file"):
        listed = re.sub(r"[ \t].*", "", reader.text(text))  # the first word of each line
    elif match["cluster"]:
        listed = " ".join(re.findall(r'"(?:chief|master|worker)"\s*:\s*\[([^\]]*)', text))  # without ps, which are no nodes here
    number = _number(text)
    hosts = _hosts(listed) if number < 0 else frozenset()
    return Sign(match[0], text, match["prefix"], len(hosts) if hosts and not match["index"] else number, hosts)


def _hosts(text: str) -> frozenset[str]:
    """Return the hosts in a list, without ports, schemes, numbers of processes and loopback names."""
    words = re.split(r"[\s,;\"\[\]{}]+|\w+://", text)
    hosts = (word if word.count(":") > 1 else word.partition(":")[0] for word in words)
    return frozenset(host for host in hosts if host and not re.match(r"\d+$|localhost|127\.|::1$|0\.0\.0\.0", host))


def _number(text: str) -> int:
    """Return a number, the larger one of MIN:MAX, or -1."""
    return max(map(int, text.split(":"))) if re.fullmatch(r"\s*[0-9]{1,9}(:[0-9]{1,9})?\s*", text) else -1


def _text(reader: Reader, name: str) -> str:
    return reader.env.get(name, "").strip()


def _is_rank(reader: Reader) -> bool:
    """Return True if a launcher has started this process as a rank. A LOCAL_RANK of 0 alone, or with a list, is not enough: some platforms
    set such a LOCAL_RANK on each node."""
    local_rank = _number(_text(reader, "LOCAL_RANK"))
    sizes = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE") if local_rank == 0 else ()
    return local_rank > 0 or any(_text(reader, name) for name in (*sizes, OUTER_RUN, "HOROVOD_RANK", *RANK_SIGNS.names[1:]))


# Several processes of ranklaunch on one node


def refuse_mpirun(reader: Reader, names: Iterable[str]) -> None:
    """Refuse a start by an mpirun that started several ranklaunch. names: its variables with the number of processes.

    A rank under ranklaunch is not refused: it may ask for a plan.
    """
    if OUTER_RUN in reader.env or any(map(reader.is_set, (NODES, HOSTS, PLATFORM))):
        return
    count = next((name for name in names if _number(_text(reader, name)) > 1), "")
    if count:
        _refuse_several(reader, "mpirun", count, "mpirun")


def refuse_launchers(reader: Reader) -> None:
    """Refuse a start by a torchrun or horovodrun that started several ranklaunch on this node."""
    if OUTER_RUN in reader.env:
        return
    for launcher, count, sign in OF_LAUNCHERS:
        if _text(reader, sign) and _number(_text(reader, count)) > 1:
            _refuse_several(reader, launcher, count, "torchrun" if launcher == "torchrun" else "mpirun")
            return


def _refuse_several(reader: Reader, launcher: str, count: str, method: str) -> None:
    reader.problem(
        f"{count}={_text(reader, count)}: {launcher} has started several of ranklaunch, and each would start all of the node's ranks: "
        f"start ranklaunch without {launcher} (with --method {method}, ranklaunch starts {method} itself); or one on each node, with "
        f"{_OF_NODE}; or set RANKLAUNCH_PLATFORM=local if each is meant to be the only node"
    )
