"""Method deepspeed: DeepSpeed's launcher on each node, or on node 0, from where it reaches the other nodes by ssh, MPI or Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ranklaunch.adapters.launchers.shared import base, contradictions, from_node_0, open_mpi, ssh, user_options
from ranklaunch.adapters.launchers.shared import deepspeed_remote as remote
from ranklaunch.adapters.launchers.shared.base import After, FromNode0, Launcher, Need, RanksFirst, Signals, Started
from ranklaunch.adapters.launchers.shared.deepspeed import filters, options
from ranklaunch.adapters.launchers.shared.variables import without_slurm_tasks
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import NUMACTL
from ranklaunch.fields import NOTHING
from ranklaunch.files import join
from ranklaunch.plan import ds_config
from ranklaunch.plan.model import File, Plan, Process
from ranklaunch.render.templates import Templates
from ranklaunch.showing import clipped
from ranklaunch.verdict.model import Failure

NAME = "deepspeed"
MODULE = "deepspeed.launcher.runner"

EXTRA = base.further_options(
    ("RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS",),
    "further options of deepspeed; the last of two equal options wins, so they add to or override ranklaunch's",
)

# Log lines of launch.py, at its levels INFO and ERROR.
FAILING = (r"\[launch\.py:[0-9]+:sigkill_handler\] (?:Killing subprocess (?P<pid>[0-9]+)|\[.* exits with return code = )",)
SPAWNED = r"\bprocess (?P<pid>[0-9]+) spawned with command: "
# The rank is in lines of ranklaunch.programs.end_as_rank only: DeepSpeed's helper for MPICH writes no such line.
_CODE = r"(?m)^(?P<host>\S+: )?.*?(?:\brank (?P<rank>[0-9]+) )?exits with return code = (?P<code>-?[0-9]+)\s*$"

HOSTFILE = "--hostfile"
HELD_AFTER_S = 28  # seconds from SIGTERM until launch.py is stopped (SIGSTOP), if the grace is longer: it kills ranks after 30 s
_RANK_LOGS = "--enable_each_rank_log"
# Options with which the ranks change during the run or for each configuration, or with which there are none.
_WITHOUT_RANKS = {"--autotuning", options.ELASTIC, "--help"}
_BY_LAUNCH_PY = (remote.OWN_NODE, remote.PDSH)
_EFFECTS = {
    **dict.fromkeys(("--launcher", "--force_multi"), "then connects to the nodes itself, with the programs of the image"),
    "--save_pid": "leaves the file /tmp/PID.deepspeed, and refuses to start again with the same pid",
    "--quiet": "logs nothing about its ranks: a failure is then noticed later, and without the rank",
}


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    by, extra_options = reader.get(remote.BY), [*options.PARSER.parsed(reader.get(EXTRA))]
    job = filters.narrowed(job, reader, extra_options, EXTRA.name)
    for path in options.PARSER.values(reader.get(EXTRA), HOSTFILE):
        remedy = "remove it, or set --hostfile (RANKLAUNCH_HOSTFILE), which ranklaunch reads if no platform names the nodes"
        reader.problem(f"{EXTRA.name} has --hostfile {clipped(path)}: DeepSpeed gets the nodes of this job; {remedy}")
    extra = user_options.without(extra_options, (*filters.OPTIONS, HOSTFILE))
    if not job.is_idle:
        return _plan(job, reader, templates, by, extra)
    # An idle node plans as node 0, so that it reports the same problems and settings as the other nodes.
    of_node_0 = _plan(replace(job, node_index=0), reader, templates, by, extra)
    return base.planned(job, reader, NAME, (), followers=of_node_0.followers)


def _plan(job: Job, reader: Reader, templates: Templates, by: str, extra: tuple[str, ...]) -> Plan:
    names = options.PARSER.options(extra)
    tunes = "--autotuning" in names
    _refuse(job, reader, by)
    _lint(job, reader, by, extra)
    index = contradictions.Count("--node_rank", job.node_index, contradictions.INDEX)
    contradictions.refuse(reader, EXTRA, extra, options.PARSER, NAME, [index] if by == remote.OWN_NODE else [])
    if by == remote.OWN_NODE or not job.has_peers:
        return _on_each_node(job, reader, templates, extra)
    job = base.need_hosts(job, reader, f"{NAME} with {reader.described(remote.BY)}")
    hostfile = _hostfile(job, reader, templates)
    argv = _command(job, reader, templates, by, hostfile, extra)
    behaviour = TuningOnNode0 if tunes else ByOpenMpi if by == remote.OPEN_MPI else OnNode0
    process = _process(job, reader, argv, names, behaviour.NAME)
    shows = _results(job, reader) if tunes and not job.node_index else ()
    return remote.plan(job, reader, templates, base.planned(job, reader, NAME, (), shows=shows), process, hostfile, tunes)


def _on_each_node(job: Job, reader: Reader, templates: Templates, extra: tuple[str, ...]) -> Plan:
    names = options.PARSER.options(extra)
    tunes = "--autotuning" in names
    outputs = kept = None
    if not names & _WITHOUT_RANKS:  # a file for each rank: launch.py alone mixes the lines of ranks
        folder = base.in_attempt(job, "deepspeed")
        outputs = base.rank_outputs(job, reader, templates, folder, r"[0-9]+_rank([0-9]+)\.log")
    hostfile = _hostfile(job, reader, templates)
    rank_logs = outputs.folder if outputs and _RANK_LOGS not in names else ""
    argv = _command(job, reader, templates, remote.OWN_NODE, hostfile, extra, rank_logs)
    own_words = user_options.before(argv, job.program.path)
    if outputs and not options.PARSER.writes_to(own_words, _RANK_LOGS, outputs.folder):  # by an option or by the user's template
        outputs, kept = None, outputs if _RANK_LOGS in options.PARSER.options(own_words) else None
    behaviour = Autotuning.NAME if tunes else Elastic.NAME if names & _WITHOUT_RANKS else NAME
    env = options.expanded(options.read_env_files(job, reader), reader.env)
    return base.planned(
        job,
        reader,
        NAME,
        (_process(job, reader, argv, names, behaviour, env),),
        files=(hostfile,) if job.has_peers else (),
        waits=base.master_waits(job, reader),
        outputs=outputs,
        kept=kept,
        shows=_results(job, reader) if tunes else (),
    )


def _command(
    job: Job, reader: Reader, templates: Templates, by: str, hostfile: File, extra: tuple[str, ...], rank_logs: str = ""
) -> tuple[str, ...]:
    shown = remote.with_exit_reports(job) if by == remote.MPICH else job
    devices = ",".join(_chosen(job, reader))
    by_hosts = bool(job.idle) and by == remote.SLURM  # without named nodes, srun takes any of Slurm's nodes
    argv = templates.command(
        "deepspeed/command.j2",
        job=shown,
        launcher=by,
        hostfile=hostfile.path,
        master_port=reader.get(base.MASTER_PORT),
        include=f"{filters.LOCALHOST}:{devices}" if devices else filters.words(job, by_hosts=by_hosts),
        elastic=options.ELASTIC in options.PARSER.options(extra),
        rank_logs=rank_logs,
        dashes=_dashes(shown, by),
        extra=extra,
    )
    return base.script_or_module(job, reader, templates, argv, (NAME,), MODULE)


def _process(job: Job, reader: Reader, argv: tuple[str, ...], names: set[str], behaviour: str, env: Mapping[str, str] = NOTHING) -> Process:
    process = without_slurm_tasks(base.launcher_process(job, reader, NAME, argv, env, behaviour), reader)
    if "--bind_cores_to_rank" in names:  # without numactl, DeepSpeed warns and then fails as it starts the first rank
        process = replace(process, needs=(NUMACTL,))
    if not _chosen(job, reader):
        return process
    # The runner takes the chosen devices from all visible ones, so the variable must not hide any.
    return replace(process, unset=tuple(sorted({*process.unset, _visible(job, reader)[0]})))


def report(text: str, pid: int = 0) -> Failure | None:
    """Return the rank that failed first.

    launch.py prints the exit status of a failed rank without its number: the command on that line is always that of the rank started
    last. With pdsh, each line begins with its host, and another line has the node's index.
    """
    reports, lost = [*re.finditer(_CODE, text)], re.search(remote.BY_PDSH, text)
    # From several hosts or ranks, take the first report. From one launch.py, take the last: earlier ones may be those of a launch.py that
    # a rank has started.
    first = reports[0 if reports[0]["host"] or reports[0]["rank"] else -1] if reports else None
    if lost and (not first or lost.start() < first.start()):
        return remote.failure_of_node(lost, text, _node(text, f"{lost['host'] or lost['signalled']}: "))
    if not first:
        return remote.failure_by_srun(text) or open_mpi.report(text)
    return base.failed_with(int(first["code"]), rank=int(first["rank"]) if first["rank"] else None, node=_node(text, first["host"]))


def _node(tail: str, host: str | None) -> int | None:
    """Return the index of a node from its launch.py's log, None if unknown. host: prefix of each line of the node."""
    match = re.search(rf"^{re.escape(host)}.*\bnum_local_procs=[0-9]+, node_rank=([0-9]+)", tail, re.MULTILINE) if host else None
    return int(match[1]) if match else None


def _results(job: Job, reader: Reader) -> tuple[str, ...]:
    """Return the result files of autotuning, in the folder that the program's DeepSpeed configuration names, else in the default one."""
    path = reader.absolute(ds_config.path_of(job.program.args))  # without a configuration: a folder, which reads as empty
    try:
        folder = str(ds_config.loads(reader.text(path))["autotuning"]["results_dir"])
    except (ValueError, LookupError, TypeError):
        folder = "autotuning_results"
    return tuple(reader.absolute(join(folder, name)) for name in ("summary.txt", "ds_config_optimal.json"))


def _hostfile(job: Job, reader: Reader, templates: Templates) -> File:
    """Return the hostfile. With a launcher on each node, each one reads only its own slots, by the index of the node."""
    job = base.with_hosts(job)
    # pairs instead of Node objects: five times faster in a template
    hosts = [(node.host, filters.capacity(node)) for node in job.nodes]
    return File(base.in_attempt(job, "hostfile"), templates.text("deepspeed/hostfile.j2", job=job, hosts=hosts))


def _refuse(job: Job, reader: Reader, by: str) -> None:
    node = next((node for node in job.nodes if node.first_rank % node.slots), None)
    if node and by in _BY_LAUNCH_PY:
        slots = clipped(",".join(str(each.slots) for each in job.nodes))
        reader.problem(
            f"method deepspeed with slots {slots}: DeepSpeed computes LOCAL_RANK as the rank modulo the slots of its node, so rank "
            f"{node.first_rank}, the first of node {node.index} ({node.host}), would have LOCAL_RANK {node.first_rank % node.slots}; "
            "use the same slots on every node, or --method torchrun or spawn"
        )
    from_node_0.refuse_twice(job, reader, "method deepspeed")


def _lint(job: Job, reader: Reader, by: str, extra: tuple[str, ...]) -> None:
    names, source = options.PARSER.options(extra), reader.source(EXTRA)
    if job.has_peers:
        contradictions.warn_of_meeting(reader, source, names, "--master_addr", "--master_port", "--no_ssh")
    for name in (name for name in _EFFECTS if name in names):
        reader.warn(f"{source} has {name}: DeepSpeed {_EFFECTS[name]}")
    if job.has_peers and "--autotuning" in names and by != remote.PDSH:
        reader.problem(
            f"{source} has --autotuning: one DeepSpeed on each of {len(job.nodes)} nodes would tune for itself; "
            f"set {remote.BY.name}={remote.PDSH}, so that one DeepSpeed reaches all nodes"
        )
    options.judge_elastic(job, reader, extra, source, hands_on=not job.has_peers or by in _BY_LAUNCH_PY)
    if job.rank_table:
        reader.warn(f"method deepspeed does not use the rank table {job.rank_table}")
    name, chosen = _visible(job, reader)
    if chosen and not _chosen(job, reader):
        reader.warn(f"{name}={clipped(chosen)}: DeepSpeed replaces it by {_slots(job)}; choose devices by {filters.INCLUDE.both}")


def _slots(job: Job) -> str:
    """Return this node's slots as DeepSpeed writes them."""
    return ",".join(map(str, range(job.node.slots)))


def _visible(job: Job, reader: Reader) -> tuple[str, str]:
    """Return the name of the variable of visible devices, and its value; "" for the value that launch.py would set (0, 1, ...).

    The value is also "" if the user chooses devices by --include and the like: DeepSpeed then ignores the variable.
    """
    name = "ASCEND_RT_VISIBLE_DEVICES" if job.accelerator == "npu" else "CUDA_VISIBLE_DEVICES"
    visible = reader.env.get(name, "").strip()
    return name, "" if job.accelerator == "cpu" or visible == _slots(job) or any(map(reader.is_set, filters.VARIABLES)) else visible


def _chosen(job: Job, reader: Reader) -> tuple[str, ...]:
    """Return the devices of a one-node job that the variable chooses, () if they are not all numbers: DeepSpeed takes only numbers."""
    _, visible = _visible(job, reader)
    devices = tuple(word.strip() for word in visible.split(","))[: job.node.slots]
    numbered = all(re.fullmatch("[0-9]+", device) for device in devices)
    return devices if not job.has_peers and numbered and len(set(devices)) == job.node.slots else ()


def _dashes(job: Job, by: str) -> tuple[str, ...]:
    """Return the `--` to add if the program's first argument is `--`: runner.py removes one, and so does launch.py or its replacement."""
    if job.program.args[:1] != ("--",) or job.program.is_shell:
        return ()
    return ("--", "--") if by in (*_BY_LAUNCH_PY, remote.MPICH) else ("--",)


class Deepspeed(RanksFirst):
    """DeepSpeed on one node. Its processes are a runner, launch.py, and the ranks.

    SIGTERM kills the runner and leaves the rest. launch.py signals its ranks one by one, and within a second signals each again:
    launch.py is stopped (SIGSTOP) if its ranks have output files.
    """

    NAME = NAME
    VARIABLES = (base.MASTER_PORT, EXTRA, remote.BY, *filters.VARIABLES, options.ENV_FILE, *ssh.VARIABLES)
    DEPTH = 2
    STARTS = SPAWNED
    ENDS_RANKS = FAILING
    reporter = "launch.py"
    plan = staticmethod(plan)
    report = staticmethod(report)

    @staticmethod
    def needs() -> Mapping[str, Need]:
        return {**ssh.NEEDS, NAME: Need("it comes with DeepSpeed: is --python the interpreter that has it?")}

    @staticmethod
    def starts_all(reader: Reader) -> bool:
        return reader.get(remote.BY) != remote.OWN_NODE

    @property
    def kills_ranks(self) -> bool:
        return self.planned.outputs is not None

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        super().stop(signals, child, number)
        self._hold_in_time(signals.after, child)

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        self._hold_in_time(after, child)
        super().failing(after, child, signal_ranks)

    def _hold_in_time(self, after: After, child: Started) -> None:
        if self.planned.limits.grace_s > HELD_AFTER_S:
            after(HELD_AFTER_S, child.hold_with_ranks)


class Elastic(Deepspeed):
    """launch.py whose ranks change during the run (--elastic_training): the order of their starts does not give their numbers."""

    NAME = "deepspeed.elastic"
    STARTS = ""
    reporter = ""


class Autotuning(Launcher):
    """Runner for --autotuning: it starts a further runner for each configuration. These ranks have nothing to save."""

    NAME = "deepspeed.autotuning"
    DEPTH = 3
    ENDS_RANKS = FAILING
    report = staticmethod(report)


class OnNode0(FromNode0):
    """Runner on node 0 that reaches the other nodes by pdsh, MPI or Slurm."""

    NAME = "deepspeed.node_0"
    CARRIERS = (*remote.CARRIERS, *ssh.CARRIERS)
    ENDS_RANKS: tuple[str, ...] = (*FAILING, *remote.FAILING)
    report = staticmethod(report)

    @property
    def proof(self) -> str:
        """Path of the file that the wrapper script of pdsh, mpirun or srun writes; "" if the folder of the script is not first on PATH."""
        folder = join(self.planned.private, remote.RUNNER)
        return join(folder, remote.END) if self.process.env.get("PATH", "").startswith(f"{folder}:") else ""


class TuningOnNode0(OnNode0):
    """Autotuning over several nodes. After each experiment it calls pkill on every node; pdsh reports pkill's exit code 1 where
    nothing is left to kill."""

    NAME = "deepspeed.node_0_autotuning"
    ENDS_RANKS = FAILING


class ByOpenMpi(OnNode0):
    """Runner on node 0 that starts Open MPI's mpirun."""

    NAME = "deepspeed.openmpi"
    REPORTS = open_mpi.REPORTS
