"""One torchrun per node (torch >= 1.11), as ModelArts starts it with MA_RUN_METHOD=torchrun."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Callable, Collection, Mapping, Sequence

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared import base, contradictions, words
from ranklaunch.adapters.launchers.shared.base import MASTER_PORT as ANY_MASTER_PORT
from ranklaunch.adapters.launchers.shared.base import (
    ROUTE_PLAN,
    attempt_dir,
    failed_with,
    launcher_process,
    limits,
    master_waits,
    script_or_module,
)
from ranklaunch.adapters.launchers.shared.launcher import SETTLE_S, After, Launcher, Need, Signals, Started
from ranklaunch.files import join
from ranklaunch.plan import facts
from ranklaunch.plan.model import Plan, RankLog, RankOutputs
from ranklaunch.read import parse
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import GRACE_S, MASTER_ADDR
from ranklaunch.render.templates import Templates
from ranklaunch.values import replace
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Failure

NAME = "torchrun"
MODULE = "torch.distributed.run"

MASTER_PORT = Variable(
    ANY_MASTER_PORT.value, (*ANY_MASTER_PORT.names, "MA_TORCHRUN_MASTER_PORT"), parse.port, 18888,
    ANY_MASTER_PORT.meaning, option=ANY_MASTER_PORT.option,
)  # fmt: skip
EXTRA: Variable[tuple[str, ...]] = Variable(
    "extra_torchrun_params", ("RANKLAUNCH_EXTRA_TORCHRUN_PARAMS", "MA_EXTRA_TORCHRUN_PARAMS"), parse.words, (),
    "further options of torchrun; the last of two equal options wins, so they add to or override ranklaunch's",
)  # fmt: skip
RANK_AFTER_ACC = Variable(
    "rank_after_acc",
    ("RANK_AFTER_ACC",),
    parse.count,
    0,
    "node rank after route planning",
    "platform",
    per_node=True,
)
MASTER_INDEX = Variable(
    "master_index",
    ("MA_MASTER_INDEX",),
    parse.count,
    0,
    "index of the node that has rank 0 after route planning",
    "platform",
)

SHUTDOWN = Variable(
    "shutdown_timeout", ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT",), parse.count, 0, "seconds that ranks have after a stop before torch kills them",
    default_text="the grace, rounded up, and 5 more, where this torch knows the variable", per_node=True,
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (MASTER_PORT, EXTRA, ROUTE_PLAN, RANK_AFTER_ACC, MASTER_INDEX, SHUTDOWN)

KILLS_AFTER_S = 30  # torch's own, for ranks that it has told to end
HELD_AFTER_S = 28  # then ranklaunch holds it where the grace is longer
_KNOWS_SHUTDOWN = "torch/distributed/launcher/api.py"  # torch 2.13; after a failure of a rank, the variable has no effect there

_FAILURE = re.compile(
    r"^\s*rank\s*: (?P<rank>[0-9]+) \(local_rank: [0-9]+\)\s*^\s*exitcode\s*: (?P<code>-?[0-9]+) \(pid: (?P<pid>[0-9]+)\)", re.MULTILINE
)

# Before each of what it logs, the pid of the torchrun itself; older ones do not write it.
_AGENT = r"(?:\b(?P<agent>\d{1,10}) torch/\S+ )?"
_TOLD = re.compile(
    r"(?:SignalException: Process |\b)(?P<agent>[0-9]{1,10}) (?:got signal: |torch/\S{1,120}\] Received )(?P<signal>[0-9]{1,2})\b"
)
_FIRST_WORD = re.compile(_AGENT + r"failed \(exitcode: (?P<code>-?[0-9]+)\) local_rank: [0-9]+ \(pid: (?P<pid>[0-9]+)\)")

# Torch 1.11 to 2.13, after a failure of a rank by SIGTERM, else by the signal with which it was told to end.
CLOSING = _AGENT + r"Sending process (?P<living>\d+) closing signal SIG"

# The end of the summary after a failure, or of a traceback after a stop. Torch then takes a second or more to unload itself.
ALL_SAID = r"(?ms)Root Cause \(first observed failure\):.*?^=+\r?\n|SignalException: Process \d+ got signal: \d+\r?\n"

OWN_LOGS = r"(?:.*/)?([0-9]+)/(?:stdout|stderr)\.log"  # <run>/attempt_<n>/<local rank>/
_KEPT_LOGS = r"(?:.*/)?attempt_[0-9]+/([0-9]+)/(?:stdout|stderr)\.log"  # the same, wherever it is on the machine

_MEETING = ("--master_addr", "--master_port")
_STATIC = "static"
_VIRTUAL = "--virtual_local_rank"
_SHUTDOWN = "--shutdown_timeout"
_LOCAL_RANK = "--ranklaunch-local-rank=${local_rank}"  # as ranklaunch.programs.place_rank reads it
_COUNTED = ("auto", "cpu", "gpu", "xpu", "npu")
_OUTPUT = ("--log_dir", "--redirects", "--tee", "--logs_specs")
# Of torch 1.11 to 2.13.
_WITH_VALUE = (
    "--nnodes", "--nproc_per_node", "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id", "--rdzv_conf", "--max_restarts", "--monitor_interval",
    "--start_method", "--event_log_handler", "--role", "--log_dir", "--redirects", "--tee", "--local_ranks_filter",
    "--duplicate_stdout_filters", "--duplicate_stderr_filters", "--node_rank", "--master_addr", "--master_port", "--local_addr",
    "--logs_specs", "--numa_binding", "--signals_to_handle", "--shutdown_timeout",
)  # fmt: skip
_SWITCHES = ("--standalone", "--module", "--no_python", "--run_path", "--virtual_local_rank", "--help")
OPTIONS = words.Parser(
    _WITH_VALUE, _SWITCHES, {"-h": "--help", "-m": "--module", "-r": "--redirects", "-t": "--tee"}, hyphens=True
)  # fmt: skip


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    return plan_by(job, reader, templates, "torchrun/command.j2")


def plan_by(job: Job, reader: Reader, templates: Templates, template: str) -> Plan:
    extra = reader.get(EXTRA)
    node_rank, master_index = _route(job, reader)
    job = _placed(job, reader, node_rank, master_index)
    _lint(job, reader, extra)
    contradictions.refuse(reader, EXTRA, extra, _counts(job, node_rank), OPTIONS.spelled)
    contradictions.refuse_program(reader, EXTRA, extra, OPTIONS.following, NAME)
    shown = with_dollars_doubled(job)
    values = {"node_rank": node_rank, "master_addr": job.nodes[master_index].host, "master_port": reader.get(MASTER_PORT), "extra": extra}
    argv = templates.command(template, job=shown, **values)
    told = (*words.long(words.before(argv, shown.program.path)), *extra)
    if job.place and _VIRTUAL in words.options(told, OPTIONS.spelled):
        argv = templates.command(template, job=_numbered(shown), **values)
    argv = script_or_module(job, reader, templates, argv, (NAME,), MODULE)
    outputs = rank_outputs(job, reader, templates, NAME) if knows_its_ranks(job, told) else None
    options = words.options(told, OPTIONS.spelled)
    env = {"TORCHELASTIC_ERROR_FILE": join(attempt_dir(job), "torchrun_error.json")}
    if outputs:
        env.update({"PET_LOG_DIR": outputs.folder, "PET_REDIRECTS": "3"})
    found = Plan(
        job=job,
        method=NAME,
        why="",
        processes=(launcher_process(job, reader, NAME, argv, env, behaviour(options)),),
        limits=limits(reader),
        waits=master_waits(job, reader, job.nodes[master_index].host),
        outputs=outputs,
        kept=None if outputs else kept_outputs(job, told),
    )
    return with_grace(found, reader, options)


def with_dollars_doubled(job: Job) -> Job:
    """torch takes the words that it hands to Python or bash, and those behind any program, for templates, of which it knows local_rank:
    it makes one dollar of two."""
    program = job.program
    args = [word.replace("$", "$$") for word in program.args]
    path = program.path.replace("$", "$$") if program.is_python or program.is_shell else program.path
    return replace(job, program=replace(program, path=path, args=tuple(args)))


def _numbered(job: Job) -> Job:
    """The job whose stand-in (ranklaunch.programs.place_rank) gets a rank's number on its node from torch's macro, for LOCAL_RANK is 0."""
    return replace(job, program=replace(job.program, args=(_LOCAL_RANK, *job.program.args)))


def behaviour(options: Collection[str]) -> str:
    """Return the name of the class for torch's agent with these options, which its templates may have set too."""
    return Restarting.NAME if "--max_restarts" in options else NAME


def with_grace(plan: Plan, reader: Reader, options: Collection[str]) -> Plan:
    """The plan by which ranks have the whole grace, and not what torch leaves them: by torch's own setting where that does it, else
    torch is halted in time."""
    (process,) = plan.processes
    torch = facts.source(_KNOWS_SHUTDOWN, plan.job, reader.files, reader.env, reader.cwd)
    own = _SHUTDOWN in options
    env = _shutdown(plan, reader) if SHUTDOWN.names[0] in torch and not own else {}
    long = plan.limits.grace_s > HELD_AFTER_S
    _warn(plan, reader, older=bool(long and torch and not env and not own), restarts=long and process.behaviour == Restarting.NAME)
    return replace(plan, processes=(replace(process, env={**process.env, **env}),))


def _shutdown(plan: Plan, reader: Reader) -> dict[str, str]:
    """Torch's own setting of the time that ranks have after a stop."""
    name, grace_s = SHUTDOWN.names[0], plan.limits.grace_s
    if not reader.given(SHUTDOWN):
        seconds = str(math.ceil(grace_s) + 5)
        reader.ledger.note(SHUTDOWN.value, seconds, "the grace, rounded up, and 5 more")
        return {name: seconds}
    if reader.get(SHUTDOWN) < grace_s:
        reader.warn(f"{reader.told(SHUTDOWN)}: torch kills ranks so long after a stop, before {reader.told(GRACE_S)} is over")
    return {name: str(reader.get(SHUTDOWN))}


def _warn(plan: Plan, reader: Reader, *, older: bool, restarts: bool) -> None:
    """Of what ranks do not have all the same. Where no torch is seen, as where another machine plans, nothing is known of it."""
    grace = reader.told(GRACE_S)
    if older and plan.job.node_index == 0:
        reader.warn(
            f"{grace}: this torch kills ranks {KILLS_AFTER_S} s after a stop, so it is halted {HELD_AFTER_S} s after it; a rank that "
            "then needs its store, as for a new group, waits until it is killed"
        )
    if restarts:
        reader.warn(f"{grace}: with --max_restarts, torch kills ranks {KILLS_AFTER_S} s after a failure of another")


def report(text: str, pid: int = 0) -> Failure | None:
    """torchrun always exits with 1; ranks and codes are in the summary that its exception carries, whether the script has @record
    or not: failures first, then the root cause. Read as torch 1.11 to 2.13 print it. Where it was ended before its summary, what it wrote
    when the rank had failed tells no global rank; else, that it was told to end itself, and has told its ranks."""
    last, own = _last_of(text, pid)
    if last and "signal" in last.groupdict():
        return failed_with(-int(last["signal"]), pid=int(last["agent"]))
    others, found, root = own.rpartition("Root Cause (first observed failure):")
    if found:
        return _summary(others, root)
    return failed_with(int(last["code"]), pid=int(last["pid"])) if last else None


def _last_of(tail: str, pid: int) -> tuple[re.Match[str] | None, str]:
    """The last that this torchrun says of a failure, or of its own end, with what stands from there on up to what another one says."""
    said = sorted([*_FIRST_WORD.finditer(tail), *_TOLD.finditer(tail)], key=re.Match.start)
    own = [number for number, each in enumerate(said) if not pid or each["agent"] in (None, str(pid))]
    if not own:
        return None, "" if said else tail  # with its beginning, what says whose a summary is may be missing
    end = said[own[-1] + 1].start() if own[-1] + 1 < len(said) else len(tail)
    return said[own[-1]], tail[said[own[-1]].start() : end]


def _summary(others: str, root: str) -> Failure | None:
    told = [*_FAILURE.finditer(root), *_FAILURE.finditer(others.rpartition("Failures:")[2])]
    # Its clock ticks in seconds, so that the root may be a rank that torchrun itself has just ended with SIGTERM.
    own = [failure for failure in told if int(failure["code"]) != -signal.SIGTERM]
    if not told:
        return None
    first = (own or told)[0]
    ended = tuple((int(failure["rank"]), -int(failure["code"])) for failure in told if failure is not first and int(failure["code"]) < 0)
    return failed_with(int(first["code"]), int(first["rank"]), int(first["pid"]), victims=ended)


def _placed(job: Job, reader: Reader, node_rank: int, master_index: int) -> Job:
    """The job with this node's planned ranks; those of the other nodes are known to them alone."""
    if node_rank == job.node_index and master_index == 0:
        return job
    reader.ledger.note(MASTER_ADDR.value, job.nodes[master_index].host, MASTER_INDEX.names[0])
    reader.warn("ROUTE_PLAN=true: the first ranks shown of other nodes are those before route planning")
    own = job.node._replace(first_rank=node_rank * job.node.slots)
    return replace(job, nodes=(*job.nodes[: job.node_index], own, *job.nodes[job.node_index + 1 :]))


def knows_its_ranks(job: Job, told: Sequence[str]) -> bool:
    """Return False if the user redirects the ranks' output, or if a rendezvous backend other than static numbers the nodes. told: words of
    torchrun's own, by whatever template."""
    return not words.options(told, OPTIONS.spelled).intersection(_OUTPUT) and _keeps_order(job, told)


def _keeps_order(job: Job, told: Sequence[str]) -> bool:
    """Return True if node I has the ranks that are planned for it: only the static rendezvous takes --node_rank."""
    return len(job.nodes) == 1 or _backend(told) in ("", _STATIC)


def _backend(told: Sequence[str]) -> str:
    return next(reversed(words.values(told, "--rdzv_backend", OPTIONS.spelled)), "")  # the last of equal options wins


def rank_outputs(job: Job, reader: Reader, templates: Templates, folder: str) -> RankOutputs:
    """Each rank into files of its own, so that its lines can be told from the others'; torchrun alone mixes them. They are called by local
    rank, so that nodes whose logs are in one place need a folder each."""
    place = join(attempt_dir(job), folder)
    place = folders.node(place, job.node_index) if len(job.nodes) > 1 else place
    return base.rank_outputs(job, reader, templates, place, OWN_LOGS, by_local_rank=True)


def kept_outputs(job: Job, told: Sequence[str]) -> RankOutputs | None:
    """Files that the user lets ranks write, by --redirects or --tee, wherever they are. Their tags are its own, of what it shows too."""
    role = next(reversed(words.values(told, "--role", OPTIONS.spelled)), "default")
    logs = tuple(RankLog(str(i), rank, "", f"[{role}{i}]:") for i, rank in enumerate(job.node.ranks))
    return RankOutputs("/", _KEPT_LOGS, logs) if _keeps_order(job, told) else None


def _route(job: Job, reader: Reader) -> tuple[int, int]:
    """(node rank, index of the master). Planned ranks count only when this node's and the master's agree: a fallback on one node
    alone would give two nodes the same rank, so a contradiction is refused."""
    if not reader.get(ROUTE_PLAN) or len(job.nodes) == 1:
        return job.node_index, 0
    if not reader.given(RANK_AFTER_ACC):
        reader.warn("ROUTE_PLAN=true, but RANK_AFTER_ACC is not set: the platform's node order is used")
        return job.node_index, 0
    rank, master = reader.get(RANK_AFTER_ACC), reader.get(MASTER_INDEX)
    count = len(job.nodes)
    if rank >= count or master >= count:
        reader.problem(f"RANK_AFTER_ACC={rank}, MA_MASTER_INDEX={master}: expected 0 to {count - 1}, for {count} nodes")
        return job.node_index, 0
    if (rank == 0) != (job.node_index == master):
        reader.problem(
            f"RANK_AFTER_ACC={rank} contradicts MA_MASTER_INDEX={master} on node {job.node_index}: rank 0 is the master's; "
            "set ROUTE_PLAN=false to use the platform's node order on every node"
        )
    if job.slots_differ:
        reader.problem("ROUTE_PLAN=true needs the same number of slots on every node; set ROUTE_PLAN=false")
    return rank, master


def _counts(job: Job, node_rank: int) -> tuple[contradictions.Count, ...]:
    return (
        contradictions.Count("--nnodes", len(job.nodes), contradictions.NODES, as_range=True),
        contradictions.Count("--nproc_per_node", job.node.slots, contradictions.RANKS_HERE),
        contradictions.Count("--node_rank", node_rank, contradictions.INDEX),
    )


def _lint(job: Job, reader: Reader, extra: tuple[str, ...]) -> None:
    options = words.options(extra, OPTIONS.spelled)
    source = reader.source(EXTRA)
    single = len(job.nodes) == 1
    for name in _MEETING:
        if name in options and not (single and name == "--master_port"):
            reader.warn(f"{source} has its own {name}, which overrides the platform's: every node must say the same")
    if single and ("--master_port" in options or reader.given(MASTER_PORT)):
        reader.warn("one node: torchrun --standalone picks a free port itself, the master port given is not used")
    if not _keeps_order(job, extra):
        backend = _backend(extra)
        endpoint = f"{job.master}:{reader.get(MASTER_PORT)}" if backend == "c10d" else "HOST:PORT of its server"
        hint = "" if "--rdzv_endpoint" in options else f", and --rdzv_endpoint={endpoint} is needed"
        told = f"{source} has --rdzv_backend={showing.clipped(backend)}"
        reader.warn(f"{told}: ranks follow torchrun's own order of the hosts, not the node order{hint}")
    if "--standalone" in options and not single:
        reader.problem(f"{source} has --standalone, with which each of the {len(job.nodes)} nodes meets nobody but itself: remove it")
    counted = words.first(extra, "--nproc_per_node", OPTIONS.spelled)
    if counted in _COUNTED:
        reader.warn(f"{source} has --nproc_per_node {counted}: torchrun counts by itself, and {job.node.slots} ranks are planned here")
    if "--max_restarts" in options:
        reader.warn(f"{source} has --max_restarts: torchrun restarts this node's ranks without the other nodes")
    if job.rank_table:
        reader.warn(f"method torchrun does not use the rank table {job.rank_table}")


class Torchrun(Launcher):
    """torch's agent, of torchrun, accelerate and Megatron alike. It waits for the ranks of other nodes, for 300 s once its own have
    succeeded."""

    NAME = NAME
    VARIABLES = VARIABLES
    DEPTH = 1
    ENDS_RANKS: tuple[str, ...] = (CLOSING,)
    HAS_REPORTED = ALL_SAID
    plan = staticmethod(plan)
    report = staticmethod(report)

    @staticmethod
    def needs() -> Mapping[str, Need]:
        hint = "it comes with PyTorch 1.11 or newer: is --python the interpreter that has it?"
        return {"torchrun": Need(hint, ("torch", "1.11"))}

    @property
    def reporter(self) -> str:
        return "torchrun" if self.planned.kept else ""

    @property
    def lonely_s(self) -> float:
        return 330 if len(self.planned.job.nodes) > 1 else 30

    def stop(self, signals: Signals, child: Started, number: int) -> None:
        """Signal the ranks alone. torch passes SIGTERM to the process groups of its ranks, so to workers that these still need: it is held
        while ranks end at once, goes on to serve its store, and is held again before it kills them."""
        child.hold()
        signals.signal_ranks(child, number)
        signals.after(SETTLE_S, child.serve)
        knows_grace = SHUTDOWN.names[0] in self.process.env or _SHUTDOWN in words.options(self._own_words(), OPTIONS.spelled)
        if not knows_grace:
            self._hold_in_time(signals.after, child)

    def alone(self, signals: Signals, child: Started) -> None:
        signals.remind(child)

    def failing(self, after: After, child: Started, signal_ranks: Callable[[], None]) -> None:
        self._hold_in_time(after, child)

    def rank_failed(self, child: Started, stopping: bool) -> None:
        """Hold torch during a stop: it would end the others."""
        if stopping:
            child.hold()

    def _hold_in_time(self, after: After, child: Started) -> None:
        if self.planned.limits.grace_s > HELD_AFTER_S:
            after(HELD_AFTER_S, child.hold_with_ranks)

    def _own_words(self) -> Sequence[str]:
        return words.before(self.process.argv, self.planned.job.program.path)


class Restarting(Torchrun):
    """torch's agent with restarts of its own (--max_restarts): it ends its ranks after a failure, and goes on."""

    NAME = "torchrun.restarting"
    ENDS_RANKS = ()
    HAS_REPORTED = ""
    lonely_s = Launcher.lonely_s
    stop = Launcher.stop
    alone = Launcher.alone
    rank_failed = Launcher.rank_failed


LAUNCHER = Torchrun
