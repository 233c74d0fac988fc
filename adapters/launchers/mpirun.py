"""mpirun (Open MPI 4 and 5) on node 0, an sshd on every node: Horovod, mpi4py and whatever else MPI starts.

The nodes but 0 have no process of their own beside sshd; they follow node 0 and end as it does.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

from ranklaunch.adapters.launchers.shared import base, contradictions, from_node_0, open_mpi, ssh, user_options
from ranklaunch.adapters.launchers.shared.base import FromNode0, Need
from ranklaunch.adapters.launchers.shared.variables import INTERFACE, of_python, of_ranks, without_slurm_tasks
from ranklaunch.env import parse
from ranklaunch.env.job import Job, make_nodes
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import FEWER_RANKS, WHERE_IT_STANDS, spread
from ranklaunch.files import folder_of, join, which
from ranklaunch.plan.model import File, Plan, Process
from ranklaunch.render.templates import Templates

NAME = "mpirun"

EXTRA = base.further_options(("RANKLAUNCH_EXTRA_MPIRUN_PARAMS",), "further options of mpirun, after ranklaunch's own")
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

# Where sshd's sessions look for programs, on every system: an mpirun of elsewhere tells the others where it is by its full path.
SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
TAGGED = {"4": r"\[[0-9]+,([0-9]+)\]<std(?:out|err|diag)>:", "5": r"\[[0-9]+,([0-9]+)\]<std(?:out|err|diag)>: "}
RIVAL = ("mpiexec.hydra", "MPICH's, and method mpirun needs Open MPI's")


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    job = base.need_hosts(_with_slots(job, reader), reader, NAME)
    base.check_before_much(job, reader)
    many = job.has_peers
    by_ssh = many and ssh.by_ssh(reader)
    reached = ssh.reached(job, reader, templates) if many else {}
    files = [File(base.in_attempt(job, "hostfile"), templates.text("mpirun/hostfile.j2", hosts=_hosts(job, reader)), "0644")]
    ways = {"hostfile": files[0].path, "ssh": "", "port": 0, "shell": ""}
    if by_ssh:
        ways.update(ssh=ssh.client_config(job, reader), port=reader.get(ssh.PORT))
    elif many:
        files.append(ssh.other_shell(job, reader))
        ways.update(shell=files[-1].path)
    waits = ssh.waits(job, reader, for_sshd=by_ssh)
    process, version = _process(job, reader, templates, ways)
    own = base.planned(job, reader, NAME, (), followers=len(job.nodes) - 1, **reached)
    outputs = base.rank_outputs(job, reader, templates, "", TAGGED[version], of_all=True)
    from_node_0.refuse_twice(job, reader, f"method {NAME}")
    if version == "4":
        from_node_0.refuse_addresses(job, reader, f"method {NAME}")
    count = contradictions.Count("-np", job.world_size, contradictions.RANKS)
    contradictions.refuse(reader, EXTRA, reader.get(EXTRA), open_mpi.OPTIONS, NAME, [count])
    from_node_0.refuse_colon(job.program.args, reader, f"method {NAME}", NAME)
    _refuse_template(job, reader, templates, process.argv, count)
    if job.node_index:  # it has read the same settings, so that the nodes can compare them
        return own
    return replace(own, processes=(process,), files=(*files, *own.files), waits=waits if many else (), outputs=outputs, by_address=many)


def _refuse_template(job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...], count: contradictions.Count) -> None:
    """Refuse another number by a template of the user's: mpirun would end with 0, and ranks of other nodes are not seen. Several programs
    divide the ranks among them. A tool may stand before mpirun or behind its options, such as nice -n 5."""
    begin = next((i for i, word in enumerate(argv) if re.search(r"(^|/)(mpirun|mpiexec|orterun|prterun)(\.openmpi)?$", word)), 0)
    own = user_options.before(argv[begin + 1 :], job.program.path)
    numbers = (user_options.AS_WRITTEN.values(own, name) for name in ("-np", "--np"))
    other_counts = count.others(open_mpi.OPTIONS.values(own[:2], "-np")) or count.others(itertools.chain(*numbers))
    if other_counts and ":" not in argv and not reader.get(FEWER_RANKS) and not open_mpi.OPTIONS.values(reader.get(EXTRA), "-np"):
        what = f"{templates.source(argv)} has -np {other_counts[-1]}"
        reader.problem(f"{count.contradiction(what)}; {FEWER_RANKS.name}=true lets it be")


def _with_slots(job: Job, reader: Reader) -> Job:
    """MY_MPI_SLOTS is the platform's documented way to say how many ranks a node has with this method."""
    slots = reader.get(MPI_SLOTS)
    if not slots:
        return job
    per_node = spread(reader, MPI_SLOTS, slots, len(job.nodes))
    counts = [max(1, n) if node.slots else 0 for n, node in zip(per_node, job.nodes)]
    return replace(job, nodes=make_nodes([node.host for node in job.nodes], counts))


def _process(job: Job, reader: Reader, templates: Templates, ways: Mapping[str, object]) -> tuple[Process, str]:
    """Return the process, and the main version of Open MPI. ways: to the other nodes, as the template calls them."""
    meeting = base.meeting_of_ranks(job, reader, reader.get(base.MASTER_PORT))
    process = base.launcher_process(job, reader, NAME, (), {**_settings(job, reader), **meeting}, NAME)
    # Of the other recorders, paths hold on node 0 alone.
    recorders = {each.name: each.value for each in (*of_python(reader), *of_ranks(job, reader, job.has_peers))}
    own = {value.partition("=")[0] for value in open_mpi.OPTIONS.values(reader.get(EXTRA), "-x")}
    # By name alone: so any value arrives as it is, and none is seen in a list of processes.
    names = from_node_0.forwarded(reader, {**reader.env, **process.env, **recorders, **dict.fromkeys(WHERE_IT_STANDS, "")})
    forwarded = sorted({*names, *meeting} - own.intersection(meeting))
    added = {name: value for name, value in _added(job, reader).items() if name not in reader.env and name not in process.env}
    mpirun, version = _installed(job, reader)
    argv = templates.command(
        "mpirun/command.j2", job=job, mpirun=NAME if folder_of(mpirun) in ("", *SYSTEM_FOLDERS) else mpirun, version=version, **ways,
        added=added, btl=_btl(job, reader, mpirun, version), forwarded=[name for name in forwarded if name != "LD_LIBRARY_PATH"],
        last=[name for name in forwarded if name == "LD_LIBRARY_PATH"], extra=reader.get(EXTRA),
    )  # fmt: skip
    process = replace(process, argv=argv, rival=RIVAL, sessions=ssh.sessions(reader))
    return without_slurm_tasks(process, reader), version


def _installed(job: Job, reader: Reader) -> tuple[str, str]:
    """Return the path of the mpirun that is started, "" if it is not seen, and its main version. One beside the user's interpreter comes
    first. By its full path, Open MPI looks for its daemon there, on every node."""
    path = which(NAME, base.common_env(job, reader).get("PATH", reader.env.get("PATH", "")), reader.files) or ""
    if reader.is_set(VERSION):
        return path, reader.get(VERSION)
    version = "5" if path and reader.files.exists(join(folder_of(path), "prterun")) else "4"
    reader.note(VERSION, version, "files" if path else "default")
    return path, version


def _played(job: Job) -> bool:
    """Return True if one machine plays several nodes."""
    return job.has_peers and all(node.host.startswith("127.") for node in job.nodes)


def _btl(job: Job, reader: Reader, mpirun: str, version: str) -> str:
    """Return the ways between ranks forbidden to Open MPI. Ranks of two nodes with one host name would take each other's
    shared memory for their own, and crash. The installation's exclusions stay: a look for libfabric's devices takes
    seconds."""
    shared_memory = {"4": "vader", "5": "sm"}[version]
    excluded = ("openib", *open_mpi.excluded(reader.files, mpirun), *([shared_memory] if _played(job) else []))
    return "^" + ",".join(dict.fromkeys(excluded))


def _settings(job: Job, reader: Reader) -> dict[str, str]:
    """Return variables for Open MPI, also those by which each rank's output is marked."""
    made = from_node_0.open_mpi_settings(reader, tags=True)
    cpus = open_mpi.cpus(reader.files)
    if cpus and max(node.slots for node in job.nodes) > cpus:
        # By the hostfile it takes every slot for a processor, and waits in busy loops.
        made["OMPI_MCA_mpi_yield_when_idle"] = "1"
    asked = reader.is_set(INTERFACES) or reader.is_set(INTERFACE)
    names = "lo" if _played(job) else ",".join(_interfaces(reader)) if asked else ""
    if names:
        made.update(OMPI_MCA_btl_tcp_if_include=names, OMPI_MCA_oob_tcp_if_include=names)
    return {name: value for name, value in made.items() if name not in reader.env}


def _added(job: Job, reader: Reader) -> dict[str, str]:
    names = _interfaces(reader)
    return {
        "NCCL_DEBUG": "INFO",
        **({"NCCL_SOCKET_IFNAME": ",".join(names)} if names else {}),
        "NCCL_SOCKET_FAMILY": "AF_INET6" if any(":" in reader.address_of(node.host) for node in job.nodes) else "AF_INET",
        "HOROVOD_MPI_THREADS_DISABLE": "1",
    }


def _interfaces(reader: Reader) -> list[str]:
    """Return the wanted interfaces that exist, as far as that can be seen: another name would end every rank."""
    of_all = reader.is_set(INTERFACE) and not reader.is_set(INTERFACES)
    wanted, there = (reader.get(INTERFACE),) if of_all else reader.get(INTERFACES), reader.files.names("/sys/class/net")
    return [name for name in wanted if not there or name in there]


def _hosts(job: Job, reader: Reader) -> list[tuple[str, int]]:
    if not job.has_peers:
        return [("localhost", job.node.slots)]
    by_name = not ssh.by_ssh(reader)  # as the batch system knows them
    return [(node.host if by_name else reader.address_of(node.host), node.slots) for node in job.nodes if node.slots]


class Mpirun(FromNode0):
    """Open MPI's mpirun. Its ranks get one second after a stop request; ranks signalled by ranklaunch have the grace."""

    NAME = NAME
    VARIABLES = (base.MASTER_PORT, EXTRA, INTERFACES, VERSION, MPI_SLOTS, *ssh.VARIABLES)
    CARRIERS = ("mpirun", "mpirun.openmpi", "orterun", "prterun", "ssh")
    REPORTS = open_mpi.REPORTS
    plan = staticmethod(plan)
    report = staticmethod(open_mpi.report)

    @staticmethod
    def starts_all(reader: Reader) -> bool:
        return True

    @staticmethod
    def needs() -> Mapping[str, Need]:
        return {**ssh.NEEDS, NAME: Need("it comes with Open MPI 4 or 5 (openmpi-bin on Debian and Ubuntu)")}
