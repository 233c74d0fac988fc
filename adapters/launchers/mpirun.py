"""mpirun (Open MPI 4 and 5) on node 0, an sshd on every node: Horovod, mpi4py and whatever else MPI starts.

The nodes but 0 have no process of their own beside sshd; they follow node 0 and end as it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared import contradictions, from_node_0, open_mpi, ssh, words
from ranklaunch.adapters.launchers.shared.base import (
    MASTER_PORT,
    attempt_dir,
    check_before_much,
    common_env,
    launcher_process,
    limits,
    meeting_of_ranks,
    need_hosts,
    rank_outputs,
)
from ranklaunch.adapters.launchers.shared.communication import INTERFACE, of_python, of_ranks
from ranklaunch.adapters.launchers.shared.inherited import without_slurm_tasks
from ranklaunch.adapters.launchers.shared.launcher import FromNode0, Need
from ranklaunch.files import folder_of, join, which
from ranklaunch.plan.model import File, Plan, Process, Wait
from ranklaunch.read import parse
from ranklaunch.read.job import Job, make_nodes
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import FEWER_RANKS, WAIT_S, WHERE_IT_STANDS, spread
from ranklaunch.render.templates import Templates
from ranklaunch.values import replace

NAME = "mpirun"

EXTRA: Variable[tuple[str, ...]] = Variable(
    "extra_mpirun_params", ("RANKLAUNCH_EXTRA_MPIRUN_PARAMS",), parse.words, (), "further options of mpirun, after ranklaunch's own",
)  # fmt: skip
INTERFACES: Variable[tuple[str, ...]] = Variable(
    "mpi_interfaces", ("RANKLAUNCH_MPI_INTERFACES", "MY_MPI_BTL_TCP_IF"), parse.names, ("eth0", "bond0"),
    "network interfaces of MPI and NCCL; those that node 0 lacks are left out",
)  # fmt: skip
VERSION = Variable(
    "openmpi", ("RANKLAUNCH_OPENMPI",), parse.OneOf("4", "5"), "4", "main version of Open MPI",
    default_text="5 where prterun is beside mpirun, else 4",
)  # fmt: skip
MPI_SLOTS: Variable[tuple[int, ...]] = Variable(
    "mpi_slots", ("MY_MPI_SLOTS",), parse.counts, (), "processes per node, for this method only", default_text="the slots",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (MASTER_PORT, EXTRA, INTERFACES, VERSION, MPI_SLOTS, *ssh.VARIABLES)

# Where sshd's sessions look for programs, on every system: an mpirun of elsewhere tells the others where it is by its full path.
SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
TAGGED = {"4": r"\[[0-9]+,([0-9]+)\]<std(?:out|err|diag)>:", "5": r"\[[0-9]+,([0-9]+)\]<std(?:out|err|diag)>: "}
RIVAL = ("mpiexec.hydra", "MPICH's, and method mpirun needs Open MPI's")
NAMES = (NAME, "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun", "prterun")  # of Open MPI's launcher
CARRIERS = ("mpirun", "mpirun.openmpi", "orterun", "prterun", "ssh")

MOST_RANKS = 1_000_000


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    job = need_hosts(_with_slots(job, reader), reader, NAME)
    check_before_much(job, reader)
    _refuse_many(job, reader)
    many = len(job.nodes) > 1
    shell = ssh.other_shell(job, reader) if many and not ssh.by_ssh(reader) else None
    server = ssh.server(job, reader, templates) if many and not shell else None
    hostfile = File(join(attempt_dir(job), "hostfile"), templates.text("mpirun/hostfile.j2", hosts=_hosts(job, reader)), "0644")
    hosts = Wait("hosts", ",".join(node.host for node in job.nodes), reader.get(WAIT_S))
    whole = Plan(
        job=job,
        method=NAME,
        why="",
        processes=(_process(job, reader, templates, hostfile.path, server, shell.path if shell else ""),),
        limits=limits(reader),
        files=(hostfile, *((shell,) if shell else ())),
        private=ssh.folder_of_key(shell.path) if shell else "",
        waits=(hosts, ssh.answers(job, reader)) if server else (hosts,) if many else (),
        outputs=rank_outputs(job, reader, templates, "", TAGGED[_version(job, reader)], of_all=True),
        by_address=many,
        followers=len(job.nodes) - 1,
    )
    from_node_0.refuse_twice(job, reader, f"method {NAME}")
    if _version(job, reader) == "4":
        from_node_0.refuse_addresses(job, reader, f"method {NAME}")
    count = contradictions.Count("-np", job.world_size, contradictions.RANKS)
    contradictions.refuse(reader, EXTRA, reader.get(EXTRA), [count], _spelled)
    contradictions.refuse_program(reader, EXTRA, reader.get(EXTRA), open_mpi.following, NAME)
    _refuse_template(job, reader, templates, whole.processes[0], count)
    # Others read the same settings, so that the nodes can compare them.
    own = replace(whole, processes=(), files=(), private="", waits=(), outputs=None, by_address=False) if job.node_index else whole
    return ssh.served(own, server) if server else own


def _refuse_template(job: Job, reader: Reader, templates: Templates, process: Process, count: contradictions.Count) -> None:
    """What it started in place of all ranks would be taken for these: it ends with 0, and ranks of other nodes are not seen. A colon of
    the program's would do so too."""
    behind = _behind(process.argv)
    if {*job.program.args} <= {*behind}:  # and no template hands them on as one word
        from_node_0.refuse_colon(job.program.args, reader, f"method {NAME}", NAME)
    own = () if ":" in behind else words.before(behind, job.program.path)  # several programs divide the ranks among them
    told = contradictions.told(own, count, lambda name: name.replace("--np", "-np")) or contradictions.told(own[:2], count, _spelled)
    if told and not reader.get(FEWER_RANKS) and not contradictions.told(reader.get(EXTRA), count, _spelled):
        what = f"{templates.source(process.argv)} has {count.option} {showing.clipped(told[-1])}"
        reader.problem(f"{contradictions.contradiction(what, count)}; {FEWER_RANKS.names[0]}=true lets it be")


def _behind(argv: tuple[str, ...]) -> tuple[str, ...]:
    """What stands behind Open MPI's launcher, in a command that a tool may begin or end, such as nice -n 5."""
    begin = next((i for i, word in enumerate(argv) if word.rpartition("/")[2] in NAMES), len(argv))
    return argv[begin + 1 :]


def _refuse_many(job: Job, reader: Reader) -> None:
    if job.world_size > MOST_RANKS:
        reader.problem(f"{job.world_size} ranks: method {NAME} takes at most {MOST_RANKS}, each of which has a log on node 0")
        reader.check()


def _with_slots(job: Job, reader: Reader) -> Job:
    """MY_MPI_SLOTS is the platform's documented way to say how many ranks a node has with this method."""
    slots = reader.get(MPI_SLOTS)
    if not slots:
        return job
    told = spread(reader, MPI_SLOTS, slots, len(job.nodes))
    counts = [max(1, n) if node.slots else 0 for n, node in zip(told, job.nodes)]
    return replace(job, nodes=make_nodes([node.host for node in job.nodes], counts))


def _process(job: Job, reader: Reader, templates: Templates, hostfile: str, server: ssh.Server | None, shell: str) -> Process:
    mpirun = _mpirun(job, reader)
    meeting = meeting_of_ranks(job, reader, reader.get(MASTER_PORT))
    process = launcher_process(job, reader, NAME, (mpirun,), {**_settings(job, reader), **meeting}, NAME)
    # Of the other recorders, paths hold on node 0 alone.
    recorders = {each.name: each.value for each in (*of_python(reader), *of_ranks(job, reader, len(job.nodes) > 1))}
    own = {value.partition("=")[0] for value in words.values(reader.get(EXTRA), "-x", lambda name: name.replace("--", "-"))}
    forwarded = sorted({*_forwarded(reader, {**process.env, **recorders}), *meeting} - own.intersection(meeting))
    added = {name: value for name, value in _added(job, reader).items() if name not in reader.env and name not in process.env}
    argv = templates.command(
        "mpirun/command.j2", job=job, mpirun=mpirun, version=_version(job, reader), hostfile=hostfile, ssh=server.config if server else "",
        port=server.port if server else 0, shell=shell, forwarded=[name for name in forwarded if name != "LD_LIBRARY_PATH"], added=added,
        last=[name for name in forwarded if name == "LD_LIBRARY_PATH"], btl=_btl(job, reader), extra=reader.get(EXTRA),
    )  # fmt: skip
    return without_slurm_tasks(replace(process, argv=argv, rival=RIVAL, sessions=ssh.sessions(reader)), reader)


def _spelled(name: str) -> str:
    """All that Open MPI takes for -np."""
    return "-np" if re.fullmatch("--?(np?|c)", name) else name


def _found(job: Job, reader: Reader) -> str | None:
    """Where the process will find it: beside the user's interpreter first."""
    return which(NAME, common_env(job, reader).get("PATH", reader.env.get("PATH", "")), reader.files)


def _mpirun(job: Job, reader: Reader) -> str:
    """By its full path where the others would not find it: Open MPI then looks for its daemon there, on every node."""
    found = _found(job, reader)
    return NAME if not found or folder_of(found) in SYSTEM_FOLDERS else found


def _version(job: Job, reader: Reader) -> str:
    if reader.given(VERSION):
        return reader.get(VERSION)
    found = _found(job, reader)
    five = bool(found and reader.files.exists(join(folder_of(found), "prterun")))
    reader.ledger.note(VERSION.value, "5" if five else "4", "files" if found else "default")
    return "5" if five else "4"


def _played(job: Job) -> bool:
    """Whether one machine plays several nodes."""
    return len(job.nodes) > 1 and all(node.host.startswith("127.") for node in job.nodes)


def _btl(job: Job, reader: Reader) -> str:
    """Ways between ranks that Open MPI must not take. Those of two nodes with one host name would take each other's shared memory for
    their own, and crash. What the installation excludes stays out: to look for libfabric's devices takes seconds."""
    shared_memory = {"4": "vader", "5": "sm"}[_version(job, reader)]
    excluded = ("openib", *open_mpi.excluded(reader.files, _found(job, reader) or ""), *([shared_memory] if _played(job) else []))
    return "^" + ",".join(dict.fromkeys(excluded))


def _settings(job: Job, reader: Reader) -> dict[str, str]:
    """What Open MPI reads from the environment, so that each rank's output can be told apart, too."""
    made = {**from_node_0.OPEN_MPI_AS_ROOT, "OMPI_MCA_orte_tag_output": "1", **from_node_0.open_mpi_by_hostfile(reader)}
    cpus = open_mpi.cpus(reader.files)
    if cpus and max(node.slots for node in job.nodes) > cpus:
        # By the hostfile it takes every slot for a processor, and waits in busy loops.
        made["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if reader.given(INTERFACES) or reader.given(INTERFACE) or _played(job):
        names = "lo" if _played(job) else ",".join(_interfaces(reader))
        made.update({"OMPI_MCA_btl_tcp_if_include": names, "OMPI_MCA_oob_tcp_if_include": names} if names else {})
    return {name: value for name, value in made.items() if name not in reader.env}


def _forwarded(reader: Reader, added: Mapping[str, str]) -> list[str]:
    """By name alone: so any value arrives as it is, and none is seen in a list of processes."""
    return from_node_0.forwarded(reader, {**reader.env, **added, **dict.fromkeys(WHERE_IT_STANDS, "")})


def _added(job: Job, reader: Reader) -> dict[str, str]:
    names = ",".join(_interfaces(reader))
    return {
        "NCCL_DEBUG": "INFO",
        **({"NCCL_SOCKET_IFNAME": names} if names else {}),
        "NCCL_SOCKET_FAMILY": "AF_INET6" if any(":" in reader.address_of(node.host) for node in job.nodes) else "AF_INET",
        "HOROVOD_MPI_THREADS_DISABLE": "1",
    }


def _interfaces(reader: Reader) -> list[str]:
    """Those that are there, as far as that can be seen: a name that is not would end every rank."""
    of_all = reader.given(INTERFACE) and not reader.given(INTERFACES)
    wanted, there = (reader.get(INTERFACE),) if of_all else reader.get(INTERFACES), reader.files.names("/sys/class/net")
    return [name for name in wanted if name in there] if there else list(wanted)


def _hosts(job: Job, reader: Reader) -> list[tuple[str, int]]:
    if len(job.nodes) == 1:
        return [("localhost", job.node.slots)]
    by_name = not ssh.by_ssh(reader)  # as the batch system knows them
    return [(node.host if by_name else reader.address_of(node.host), node.slots) for node in job.nodes if node.slots]


class Mpirun(FromNode0):
    """Open MPI's mpirun. It gives its ranks one second after a stop request; those that ranklaunch signals have the grace."""

    NAME = NAME
    VARIABLES = VARIABLES
    CARRIERS = CARRIERS
    REPORTS = open_mpi.REPORTS
    plan = staticmethod(plan)
    report = staticmethod(open_mpi.report)

    @staticmethod
    def starts_all(reader: Reader) -> bool:
        return True

    @staticmethod
    def needs() -> Mapping[str, Need]:
        return {**ssh.NEEDS, NAME: Need("it comes with Open MPI 4 or 5 (openmpi-bin on Debian and Ubuntu)")}


LAUNCHER = Mpirun
