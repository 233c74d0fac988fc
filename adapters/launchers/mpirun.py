"""Method mpirun: mpirun (Open MPI 4 and 5) on node 0, and an sshd on every node, for Horovod, mpi4py and other MPI programs.

The other nodes run only sshd; they end with node 0, and with the same exit code.
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
    "network interfaces of MPI and NCCL; interfaces that node 0 does not have are skipped",
)  # fmt: skip
VERSION = Variable(
    "openmpi", ("RANKLAUNCH_OPENMPI",), parse.OneOf("4", "5"), "4", "main version of Open MPI",
    default_text="5 if prterun is beside mpirun, else 4",
)  # fmt: skip
MPI_SLOTS: Variable[tuple[int, ...]] = Variable(
    "mpi_slots", ("MY_MPI_SLOTS",), parse.counts, (), "processes per node, for this method only", default_text="the slots",
)  # fmt: skip

# PATH of sshd's sessions on every system. An mpirun in another folder is started by its full path, which the other nodes then use too.
SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
TAGGED = {"4": r"\[[0-9]+,([0-9]+)\]<std(?:out|err|diag)>:", "5": r"\[[0-9]+,([0-9]+)\]<std(?:out|err|diag)>: "}
RIVAL = ("mpiexec.hydra", "MPICH's, and method mpirun needs Open MPI's")


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    job = base.need_hosts(_with_slots(job, reader), reader, NAME)
    base.check_before_much(job, reader)
    has_peers = job.has_peers
    by_ssh = has_peers and ssh.by_ssh(reader)
    reached = ssh.reached(job, reader, templates) if has_peers else {}
    files = [File(base.in_attempt(job, "hostfile"), templates.text("mpirun/hostfile.j2", hosts=_hosts(job, reader)), "0644")]
    ways = {"hostfile": files[0].path, "ssh": "", "port": 0, "shell": ""}
    if by_ssh:
        ways.update(ssh=ssh.client_config(job, reader), port=reader.get(ssh.PORT))
    elif has_peers:
        files.append(ssh.other_shell(job, reader))
        ways.update(shell=files[-1].path)
    waits = ssh.waits(job, reader, for_sshd=by_ssh)
    process, version = _process(job, reader, templates, ways)
    idle = base.planned(job, reader, NAME, (), followers=len(job.nodes) - 1, **reached)
    outputs = base.rank_outputs(job, reader, templates, "", TAGGED[version], of_all=True)
    from_node_0.refuse_twice(job, reader, f"method {NAME}")
    if version == "4":
        from_node_0.refuse_addresses(job, reader, f"method {NAME}")
    count = contradictions.Count("-np", job.world_size, contradictions.RANKS)
    contradictions.refuse(reader, EXTRA, reader.get(EXTRA), open_mpi.OPTIONS, NAME, [count])
    from_node_0.refuse_colon(job.program.args, reader, f"method {NAME}", NAME)
    _refuse_template(job, reader, templates, process.argv, count)
    if job.node_index:  # only now: every node must read the same settings, so that the muster can compare them
        return idle
    return replace(
        idle, processes=(process,), files=(*files, *idle.files), waits=waits if has_peers else (), outputs=outputs, by_address=has_peers
    )


def _refuse_template(job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...], count: contradictions.Count) -> None:
    """Refuse a user's template with another number of ranks: mpirun would exit with 0, and ranks on other nodes cannot be counted.

    A command with several programs (separated by ":") is allowed, since they divide the ranks. A tool such as `nice -n 5` may stand
    before mpirun or after its options.
    """
    begin = next((i for i, word in enumerate(argv) if re.search(r"(^|/)(mpirun|mpiexec|orterun|prterun)(\.openmpi)?$", word)), 0)
    own_words = user_options.before(argv[begin + 1 :], job.program.path)
    numbers = (user_options.AS_WRITTEN.values(own_words, name) for name in ("-np", "--np"))
    other_counts = count.contradicting(open_mpi.OPTIONS.values(own_words[:2], "-np")) or count.contradicting(itertools.chain(*numbers))
    if other_counts and ":" not in argv and not reader.get(FEWER_RANKS) and not open_mpi.OPTIONS.values(reader.get(EXTRA), "-np"):
        problem = f"{templates.source(argv)} has -np {other_counts[-1]}"
        reader.problem(f"{count.contradiction(problem)}; {FEWER_RANKS.name}=true allows it")


def _with_slots(job: Job, reader: Reader) -> Job:
    """Return the job with the slots of MY_MPI_SLOTS, ModelArts' documented setting for the number of ranks of a node with mpirun."""
    slots = reader.get(MPI_SLOTS)
    if not slots:
        return job
    per_node = spread(reader, MPI_SLOTS, slots, len(job.nodes))
    counts = [max(1, n) if node.slots else 0 for n, node in zip(per_node, job.nodes)]
    return replace(job, nodes=make_nodes([node.host for node in job.nodes], counts))


def _process(job: Job, reader: Reader, templates: Templates, ways: Mapping[str, object]) -> tuple[Process, str]:
    """Return the process of mpirun, and the main version of Open MPI. ways: the template's values for the way to the other nodes."""
    meeting = base.meeting_of_ranks(job, reader, reader.get(base.MASTER_PORT))
    process = base.launcher_process(job, reader, NAME, (), {**_settings(job, reader), **meeting}, NAME)
    # Only these recorders: the paths of the others are valid on node 0 only.
    recorders = {each.name: each.value for each in (*of_python(reader), *of_ranks(job, reader, job.has_peers))}
    user_names = {value.partition("=")[0] for value in open_mpi.OPTIONS.values(reader.get(EXTRA), "-x")}
    # Forwarded by name, without the value: each value arrives unchanged, and does not appear in a list of processes.
    names = from_node_0.forwarded(reader, {**reader.env, **process.env, **recorders, **dict.fromkeys(WHERE_IT_STANDS, "")})
    forwarded = sorted({*names, *meeting} - user_names.intersection(meeting))
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
    """Return the path of mpirun, "" if not found, and its main version. An mpirun beside the user's interpreter is preferred.

    Started by its full path, Open MPI looks for its daemon in the same folder on every node.
    """
    path = which(NAME, base.common_env(job, reader).get("PATH", reader.env.get("PATH", "")), reader.files) or ""
    if reader.is_set(VERSION):
        return path, reader.get(VERSION)
    version = "5" if path and reader.files.exists(join(folder_of(path), "prterun")) else "4"
    reader.note(VERSION, version, "files" if path else "default")
    return path, version


def _is_simulated(job: Job) -> bool:
    """Return True if the nodes are loopback addresses of one machine, as in a simulated job."""
    return job.has_peers and all(node.host.startswith("127.") for node in job.nodes)


def _btl(job: Job, reader: Reader, mpirun: str, version: str) -> str:
    """Return the value of btl that excludes transports. Simulated nodes share one host name: ranks of two such nodes would use each other's
    shared memory, and crash. The installation's own exclusions are kept: for example, a search for libfabric's devices takes seconds."""
    shared_memory = {"4": "vader", "5": "sm"}[version]
    excluded = ("openib", *open_mpi.excluded(reader.files, mpirun), *([shared_memory] if _is_simulated(job) else []))
    return "^" + ",".join(dict.fromkeys(excluded))


def _settings(job: Job, reader: Reader) -> dict[str, str]:
    """Return variables for Open MPI, including those that mark each rank's output."""
    settings = from_node_0.open_mpi_settings(reader, tags=True)
    cpus = open_mpi.cpus(reader.files)
    if cpus and max(node.slots for node in job.nodes) > cpus:
        # Open MPI takes every slot of the hostfile for a CPU, and would wait in busy loops.
        settings["OMPI_MCA_mpi_yield_when_idle"] = "1"
    is_set = reader.is_set(INTERFACES) or reader.is_set(INTERFACE)
    names = "lo" if _is_simulated(job) else ",".join(_interfaces(reader)) if is_set else ""
    if names:
        settings.update(OMPI_MCA_btl_tcp_if_include=names, OMPI_MCA_oob_tcp_if_include=names)
    return {name: value for name, value in settings.items() if name not in reader.env}


def _added(job: Job, reader: Reader) -> dict[str, str]:
    names = _interfaces(reader)
    return {
        "NCCL_DEBUG": "INFO",
        **({"NCCL_SOCKET_IFNAME": ",".join(names)} if names else {}),
        "NCCL_SOCKET_FAMILY": "AF_INET6" if any(":" in reader.address_of(node.host) for node in job.nodes) else "AF_INET",
        "HOROVOD_MPI_THREADS_DISABLE": "1",
    }


def _interfaces(reader: Reader) -> list[str]:
    """Return the requested interfaces that exist (all, if /sys/class/net is unreadable): an unknown name would end every rank."""
    of_all = reader.is_set(INTERFACE) and not reader.is_set(INTERFACES)
    wanted, existing = (reader.get(INTERFACE),) if of_all else reader.get(INTERFACES), reader.files.names("/sys/class/net")
    return [name for name in wanted if not existing or name in existing]


def _hosts(job: Job, reader: Reader) -> list[tuple[str, int]]:
    if not job.has_peers:
        return [("localhost", job.node.slots)]
    by_name = not ssh.by_ssh(reader)  # the batch system knows hosts by name
    return [(node.host if by_name else reader.address_of(node.host), node.slots) for node in job.nodes if node.slots]


class Mpirun(FromNode0):
    """Open MPI's mpirun. It kills its ranks one second after a stop request, so ranklaunch signals the ranks itself: they get the grace."""

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
