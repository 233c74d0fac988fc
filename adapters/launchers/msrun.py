"""Method msrun: one msrun per node (MindSpore >= 2.3.0), as ModelArts starts it with MA_RUN_METHOD=msrun. A node 0 without ranks runs only
MindSpore's scheduler, with the variables that msrun would set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.shared import base, contradictions, user_options
from ranklaunch.adapters.launchers.shared.base import After, Launcher, Need, RanksFirst, Started
from ranklaunch.adapters.launchers.shared.rank_table import entry_of_node, hccl_path
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import HOSTS, MASTER_ADDR, MUSTER, PYTHON, RANK_TABLE_PATHS, SLOTS, WAIT_S, rank_table_file
from ranklaunch.errors import numbered
from ranklaunch.files import folder_of, join
from ranklaunch.plan.model import File, Plan, Process, RankLog, RankOutputs, Wait
from ranklaunch.render.templates import Templates
from ranklaunch.showing import clipped
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Failure

NAME = "msrun"

GROUP_LIST = "0.1"  # version of ModelArts' rank tables, which MindSpore does not read


def _cluster_seconds(value: str) -> int:
    """Parse whole seconds. A negative number means no limit, as for msrun."""
    return -parse.positive(value[1:]) if value.startswith("-") else parse.positive(value)


MASTER_PORT = Variable(
    base.MASTER_PORT.value, (*base.MASTER_PORT.names, "MSRUN_MASTER_PORT"), parse.port, 8118,
    "port of the scheduler on node 0", option=base.MASTER_PORT.option,
)  # fmt: skip
WORKER_NUM = Variable(
    "worker_num", ("MSRUN_WORKER_NUM",), parse.positive, 0, "number of ranks of the whole job", default_text="the sum of all slots",
)  # fmt: skip
SCHEDULER = Variable(
    MASTER_ADDR.value, (*MASTER_ADDR.names, "MSRUN_MASTER_ADDR"), parse.host, "",
    "host name or address of node 0, where the scheduler runs",
    option=MASTER_ADDR.option, default_text=MASTER_ADDR.default_text,
)  # fmt: skip
LOGS = Variable(
    "msrun_log_dir", ("MSRUN_LOG_DIR",), parse.text, "", "folder of msrun's own log files; attempts after the first get a subfolder each",
    default_text="msrun in the attempt's folder",
)  # fmt: skip
CLUSTER_TIME_OUT = Variable(
    "cluster_time_out", ("MSRUN_CLUSTER_TIME_OUT",), _cluster_seconds, 600,
    "seconds that MindSpore waits until all ranks have joined; a negative number: no limit",
)  # fmt: skip
OWN_TABLE = Variable(
    "msrun_rank_table", ("MSRUN_RANK_TABLE_FILE",), parse.text, "", "rank table (version 1.x) that msrun gives to the ranks",
    default_text="with MS_RANKTABLE_ENABLE=true the job's rank table, else none",
)  # fmt: skip
TABLE_WANTED = Variable(
    "ms_ranktable_enable", ("MS_RANKTABLE_ENABLE",), parse.text, "", "true: msrun is given the job's rank table; no other word is",
)  # fmt: skip
EXTRA = base.further_options(
    ("RANKLAUNCH_EXTRA_MSRUN_PARAMS",),
    "further options of msrun; the last of two equal options wins, so they add to or override ranklaunch's",
)

# Programs that msrun starts without `python` before them.
_INTERPRETERS = ("python", "python3", "pytest")

OWN_LOGS = r"(?:worker_)?([0-9]+|scheduler)\.log"

_FAILURE = r"Worker process (?P<pid>[0-9]+) exit with exception\. Error code: (?P<code>-?[0-9]+)\."
FAILING = ("kill all other workers",)  # MindSpore 2.10: after the failure of a rank, before the wait for the scheduler

_LOOPBACK = r"127\..*|::1|localhost"

# User's options with a warning, and their effects.
_EFFECTS = {
    **dict.fromkeys(("--master_addr", "--master_port"), ", which overrides the platform's: set the same value on every node"),
    **dict.fromkeys(("--log_dir", "--worker_log_name"), ": the ranks then have no tags on the console and no logs of their own"),
    "--join": ": unless it is True, msrun does not wait for its ranks, and the job ends at once",
}
OPTIONS = user_options.MSRUN


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    extra = reader.get(EXTRA)
    _lint(job, reader, extra)
    table, files, table_waits = _table(job, reader)
    master = reader.get(SCHEDULER) if reader.is_set(SCHEDULER) else job.own_address or job.master
    log_dir = _log_dir(job, reader)
    ranks = bool(job.node.slots)
    counts = (
        contradictions.Count("--worker_num", job.world_size, contradictions.RANKS),
        contradictions.Count("--local_worker_num", job.node.slots, contradictions.RANKS_HERE),
        contradictions.Count("--node_rank", _with_ranks(job).node_index, contradictions.INDEX),
    )
    contradictions.refuse(reader, EXTRA, extra, OPTIONS, NAME, counts if ranks else ())
    host = reader.address_of(master)
    process = _msrun(job, reader, templates, host, log_dir, table) if ranks else _scheduler(job, reader, templates, host)
    waits = (*table_waits, *base.master_waits(job, reader, master))
    # msrun starts the scheduler on the node that has this address; before 2.5 it does not resolve names
    plan = base.planned(job, reader, NAME, (process,), files=files, waits=waits, by_address=job.has_peers)
    if ranks and _writes_into(log_dir, user_options.before(process.argv, job.program.path)):
        plan = replace(plan, outputs=_outputs(job, reader, templates, log_dir))
    return plan if job.nodes[0].slots else _beside_scheduler(plan, reader)


def _msrun(job: Job, reader: Reader, templates: Templates, host: str, log_dir: str, table: str) -> Process:
    argv = templates.command(
        "msrun/command.j2",
        job=job,
        node_rank=_with_ranks(job).node_index,
        master_addr=base.address(host),
        master_port=reader.get(MASTER_PORT),
        log_dir=log_dir,
        cluster_time_out=reader.get(CLUSTER_TIME_OUT),
        rank_table_file=table,
        extra=reader.get(EXTRA),
        interpreter=_interpreter(job, reader),
    )
    return base.launcher_process(job, reader, NAME, argv, behaviour=NAME)


def _writes_into(log_dir: str, words: Sequence[str]) -> bool:
    """Return True if msrun writes the files of ranks into this folder, under their usual names."""
    is_folder = OPTIONS.writes_to(words, "--log_dir", log_dir)
    return is_folder and "--worker_log_name" not in OPTIONS.options(words)


def report(text: str, pid: int = 0) -> Failure | None:
    """Return the process that failed first, by the error that msrun logs.

    msrun itself always exits with 1. The error has the pid and the exit code, but no rank. Form: MindSpore 2.10.
    """
    match = re.search(_FAILURE, text)
    return base.failed_with(int(match["code"]), pid=int(match["pid"])) if match else None


# A node 0 without ranks


def _with_ranks(job: Job) -> Job:
    """Return the job without a node 0 that has no ranks: msrun does not count such a node."""
    return job if job.nodes[0].slots else replace(job, nodes=job.nodes[1:], node_index=job.node_index - 1)


def _beside_scheduler(plan: Plan, reader: Reader) -> Plan:
    """Return the plan of a job whose node 0 has no ranks.

    Node 0 ends when the muster reports the end of the other nodes; without muster, it ends with its scheduler.
    """
    if not reader.get(MUSTER):
        return plan
    plan = replace(plan, followers=1)
    if plan.job.node.slots:
        return plan
    service = replace(plan.processes[0], behaviour=Scheduler.NAME, may_end=True, outlasts=True)
    return replace(plan, processes=(), services=(service,))


def _scheduler(job: Job, reader: Reader, templates: Templates, host: str) -> Process:
    """Return the program's process as scheduler, which stays in init() until all ranks have left. Variables: source of msrun 2.10."""
    env = {
        "MS_ROLE": "MS_SCHED",
        "MS_SCHED_HOST": host,
        "MS_SCHED_PORT": str(reader.get(MASTER_PORT)),
        "MS_WORKER_NUM": str(job.world_size),
        "MS_TOPO_TIMEOUT": str(reader.get(CLUSTER_TIME_OUT)),
        "RANK_ID": "0",
        "RANK_SIZE": str(job.world_size),
    }
    argv = templates.command("msrun/scheduler.j2", job=job)
    return base.launcher_process(job, reader, "scheduler", argv, env)


def _log_dir(job: Job, reader: Reader) -> str:
    """Return the folder of msrun's log files, a new one for each attempt: msrun empties files with its names."""
    user_folder = reader.get(LOGS)
    if not user_folder:
        return base.in_attempt(job, NAME)
    folder = reader.absolute(user_folder)
    return folders.restart(folder if job.attempt == 1 else folders.attempt(folder, job.attempt), job.restart)


def _outputs(job: Job, reader: Reader, templates: Templates, folder: str) -> RankOutputs:
    """Return msrun's own log files as the outputs of the ranks.

    msrun prints the lines of the files again, without a rank. Files of other nodes may be in the same folder. The scheduler's file belongs
    to node 0, unless the user sets another address for the scheduler.
    """
    ranks = base.rank_outputs(job, reader, templates, folder, OWN_LOGS)
    scheduler = RankLog("scheduler", None, base.in_attempt(job, "scheduler.log"), "[scheduler] ")
    return replace(ranks, logs=(*ranks.logs, scheduler)) if job.node_index == 0 or reader.is_set(SCHEDULER) else ranks


def _interpreter(job: Job, reader: Reader) -> tuple[str, ...]:
    """Return the interpreter's name to put before the program, () if msrun's own `python` is right.

    msrun starts the program with `python` from PATH, unless the first word is python, python3 or pytest.
    """
    if job.program.path in _INTERPRETERS and not job.program.module:
        return ()
    name = job.python.rpartition("/")[2]
    if name not in ("python", "python3"):
        name = _beside(job, reader)
    return (name,) if job.program.module or name != "python" else ()


def _beside(job: Job, reader: Reader) -> str:
    """Return the name python or python3 that exists beside an interpreter with another name; that folder comes first on PATH."""
    described = reader.described(PYTHON)
    for name in ("python", "python3"):
        path = join(folder_of(job.python), name)
        if reader.files.exists(reader.absolute(path)):
            reader.warn(f"{described}: msrun starts ranks with python or python3 from PATH, so {path} is what runs")
            return name
    reader.problem(
        f"{described}: msrun starts ranks with python or python3 from PATH: expected an interpreter of one of these names; "
        "--method spawn takes any"
    )
    return "python"


# The rank table


def _table(job: Job, reader: Reader) -> tuple[str, tuple[File, ...], tuple[Wait, ...]]:
    """Return the path of the rank table for msrun ("" for none), the files to write for it, and the waits for it."""
    if not job.node.slots:  # a node without ranks is not in the table; it reads the setting, so that the muster can compare it
        reader.get(OWN_TABLE if reader.is_set(OWN_TABLE) else TABLE_WANTED)
        return "", (), ()
    job = _with_ranks(job)
    path, source = _table_path(job, reader)
    if not path:
        if job.rank_table:
            reader.warn(f"method msrun does not use the rank table {job.rank_table}: MS_RANKTABLE_ENABLE is not true")
        return "", (), ()
    try:
        table, index = entry_of_node(replace(job, rank_table=path), reader)
    except ranktable.NotReadyError as state:
        return path, (), (Wait("rank table", path, reader.get(WAIT_S), seen=str(state)),)
    _check_table(job, reader, table, index, f"{source}: rank table {path}")
    if table.version != GROUP_LIST:
        return path, (), ()
    path = hccl_path(job)
    return path, (File(path, ranktable.for_hccl(table)),), ()


def _table_path(job: Job, reader: Reader) -> tuple[str, str]:
    """Return the path of the rank table, and the setting that requests it; ("", "") without a table."""
    if reader.is_set(OWN_TABLE):
        path = reader.absolute(rank_table_file(reader.get(OWN_TABLE), reader.files))
        return path, reader.described(OWN_TABLE)
    if reader.get(TABLE_WANTED) != "true":
        return "", ""
    if not job.rank_table:
        reader.problem(
            "MS_RANKTABLE_ENABLE=true, but there is no rank table: RANK_TABLE_FILE is not set, and none of "
            f"{', '.join(RANK_TABLE_PATHS)} exists; set RANK_TABLE_FILE, or unset MS_RANKTABLE_ENABLE"
        )
    return job.rank_table, "MS_RANKTABLE_ENABLE=true"


def _check_table(job: Job, reader: Reader, table: ranktable.RankTable, index: int, described: str) -> None:
    """Refuse a rank table whose ranks differ from msrun's: msrun numbers ranks by node and slot, HCCL takes the numbers of the table."""
    if table.version == "2.0":
        reader.problem(f"{described} has version 2.0: expected one that MindSpore reads, 1.0 or 1.2; --method ranktable takes any")
        return
    if index != job.node_index:
        reader.problem(
            f"{described} has this container as number {index} of its servers, but it is node {job.node_index}: expected the same"
        )
    expected = [tuple(node.ranks) for node in job.nodes]
    listed = [tuple(server.ranks) for server in table.servers]
    if listed != expected:
        reader.problem(
            f"{described} has ranks {_spans(listed)} on its servers, but msrun numbers them {_spans(expected)}, by node and slot: "
            "expected the same; --method ranktable follows the table"
        )


def _spans(servers: list[tuple[int, ...]]) -> str:
    """Return the ranks of each server as text: a range if they are sorted, else the list in the server's order (0-7 and 9,8,10)."""
    return clipped(" and ".join(_span(ranks) for ranks in servers))


def _span(ranks: tuple[int, ...]) -> str:
    return numbered(ranks, "rank").partition(" ")[2] if list(ranks) == sorted(ranks) else ",".join(map(str, ranks))


# Refusals and warnings


def _lint(job: Job, reader: Reader, extra: tuple[str, ...]) -> None:
    program = job.program
    if not program.is_python and program.path not in _INTERPRETERS:
        reader.problem(
            f"program {clipped(program.path)!r}: msrun starts every program with python: expected a .py file or -m MODULE; "
            "--method spawn starts scripts and executables"
        )
    if len({node.slots for node in job.nodes if node.slots}) > 1:
        slots = clipped(",".join(str(node.slots) for node in job.nodes))
        reader.problem(
            f"{reader.source(SLOTS)}: nodes have {slots} slots, but msrun numbers ranks by node rank times slots: "
            "expected the same number on every node; --method spawn takes any"
        )
    if job.has_peers and re.fullmatch(_LOOPBACK, job.master):
        reader.problem(
            f"{reader.described(HOSTS)}: node 0 is {job.master}, a loopback address, so each msrun would start its own scheduler: expected "
            "an address of node 0 only; --method spawn or torchrun runs several nodes on one machine"
        )
    if reader.is_set(WORKER_NUM) and reader.get(WORKER_NUM) != job.world_size:
        reader.problem(
            f"{reader.described(WORKER_NUM)} contradicts the job, which has {job.world_size} ranks on {len(job.nodes)} "
            f"node{'s' if job.has_peers else ''}: unset it"
        )
    options = OPTIONS.options(extra)
    for name in (name for name in _EFFECTS if name in options):
        reader.warn(f"{reader.source(EXTRA)} has its own {name}{_EFFECTS[name]}")


class Msrun(RanksFirst):
    """MindSpore's msrun. On node 0 it starts a scheduler beside its ranks."""

    NAME = NAME
    VARIABLES = (MASTER_PORT, WORKER_NUM, SCHEDULER, LOGS, CLUSTER_TIME_OUT, TABLE_WANTED, OWN_TABLE, EXTRA)
    DEPTH = 1
    ENDS_RANKS = FAILING
    kills_ranks = True
    plan = staticmethod(plan)
    report = staticmethod(report)

    @staticmethod
    def needs() -> Mapping[str, Need]:
        hint = "it comes with MindSpore 2.3.0 or newer: is --python the interpreter that has it?"
        return {NAME: Need(hint, ("mindspore", "2.3.0"))}

    @property
    def repeats(self) -> bool:
        return self.planned.outputs is not None

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        """Do nothing: msrun kills its ranks at once."""


class Scheduler(Launcher):
    """MindSpore's scheduler on a node without ranks. It ignores SIGTERM."""

    NAME = "msrun.scheduler"

    def outlived(self, end_at_once: Callable[[], None]) -> None:
        end_at_once()
