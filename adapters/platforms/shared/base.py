"""Base class of platforms, with the rows of platforms.toml and the variables shared by all platforms.

A row names the variables and files in which a platform, a scheduler or a script has the number of nodes, the index of this node, and
more. A platform with rules of its own has a class, which the row names and which derives from Place.

Each value from a row, a pattern, a file or a class is offered to the reader as one more source. So the user's values come first,
contradicting sources are refused, and plans show the source of each value.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ranklaunch.adapters.platforms.shared import kubernetes, self_index
from ranklaunch.adapters.platforms.shared.facts import FIRST, LISTED_SLOTS, Fact, of_hosts
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.env import parse, settings, tasks
from ranklaunch.env.job import Job, Program
from ranklaunch.env.parse import Endpoint
from ranklaunch.env.reader import Reader, Variable, platform_count, platform_text, show
from ranklaunch.env.settings import (
    ATTEMPT,
    GRACE_S,
    HOSTS,
    JOB_NAME,
    LOG_DIR,
    MASTER_ADDR,
    MUSTER_TIMEOUT_S,
    NODE_INDEX,
    NODES,
    SLOTS,
    WAIT_S,
    devices,
    make_job,
    spread,
)  # fmt: skip
from ranklaunch.env.tasks import CONFIG, PS, PS_HOSTS, STAND_IN, TASK, WORKER_HOSTS, Tasks
from ranklaunch.errors import number
from ranklaunch.files import join
from ranklaunch.showing import clipped
from ranklaunch.verdict import folders

USUAL_HOSTFILE = "/job/hostfile"  # DeepSpeed's default
HOSTFILE = Variable(
    "hostfile", ("RANKLAUNCH_HOSTFILE",), parse.text, "", "file with a line `HOST slots=N` for each node, in node order",
    option="--hostfile", default_text=f"{USUAL_HOSTFILE}, if it exists and nothing else names the nodes",
)  # fmt: skip

HOSTS_FROM = Variable(
    "hosts_from", ("RANKLAUNCH_HOSTS_FROM",), parse.text, "",
    "file with the host of a node on each line, in node order, such as a PBS_NODEFILE; a repeated host counts once",
    option="--hosts-from",
)  # fmt: skip
HOSTS_COMMAND = Variable(
    "hosts_command", ("RANKLAUNCH_HOSTS_COMMAND",), parse.text, "",
    "shell command that prints the hosts of all nodes, in node order; only run and check execute it, check not with --env-file",
    option="--hosts-command",
)  # fmt: skip
PLATFORM_FILE = Variable(
    "platform_file", ("RANKLAUNCH_PLATFORM_FILE",), parse.text, "",
    "TOML or JSON file with rows for your own platforms, in the form of platforms.toml; they are tried first",
)  # fmt: skip
PER_RANK = Variable(
    "per_rank", ("RANKLAUNCH_PER_RANK",), parse.flag, False,
    "the platform starts one ranklaunch for each rank, which runs this rank alone; for methods spawn and plain", option="--per-rank",
    is_switch=True,
)  # fmt: skip
NAMING: tuple[Variable[object], ...] = (HOSTS_FROM, HOSTS_COMMAND)
RUN_ID = platform_text(
    "run_id",
    (
        "RANKLAUNCH_RUN_ID",
        "BATCH_JOB_ID",
        "SLURM_JOB_ID",
        "AWS_BATCH_JOB_ID",
        "CLOUD_ML_JOB_ID",
        "AZUREML_RUN_ID",
        "PBS_JOBID",
        "LSB_JOBID",
        "FLUX_JOB_ID",
        "PADDLE_JOB_ID",
    ),
    "id of the job, for the program: the same on all nodes, and in all attempts and restarts",
    default_text="made by node 0, and kept in the log folder for this job name and command",
)
OF_ALL = (*NAMING, PLATFORM_FILE, PER_RANK, RUN_ID)  # variables that every platform reads


def per_rank(reader: Reader) -> bool:
    """Return True if the user says that the platform has started a ranklaunch for each rank."""
    return reader.is_set(PER_RANK) and reader.get(PER_RANK)


def index(reader: Reader, nodes: int, variable: Variable[int], what: str = "nodes") -> int:
    """Return the index of this node from an option or a variable. what: noun for messages, such as nodes or workers."""
    if nodes == 1 and reader.is_set(variable) and not reader.by_user(variable):
        return of_one_node(reader, variable)
    own_index = reader.get(variable)
    if nodes > 1 and not reader.is_set(variable):
        unset = f"{variable.both} does not say" if len(variable.names) == 1 else f"none of {', '.join(variable.names)} says"
        reader.problem(f"{nodes} {what}, but {unset} which one this is (0 to {nodes - 1})")
    elif own_index >= nodes:
        reader.problem(f"{reader.described(variable)}: expected 0 to {nodes - 1}, for {nodes} {what}")
    return min(own_index, nodes - 1)


def of_one_node(reader: Reader, variable: Variable[int]) -> int:
    """Return 0, the index of the only node. Warn if the platform's variable has another index."""
    reader.note(variable, "0", "one node")
    candidates = reader.candidates(variable)
    if candidates and re.fullmatch(r"0*[1-9][0-9]{0,8}", candidates[0].value.strip()):
        described = f"{candidates[0].source} is {candidates[0].value.strip()}, but the job has one node"
        reader.warn(f"{described}: this node trains alone; set {NODES.name} if the job has more")
    return 0


# Nodes whose folders are read besides a node's own. With all folders, a thousand nodes that start at once would read a million.
FIRST_NODES = 16


def attempt(reader: Reader, nodes: int = 1, index: int = 0, job: str = "") -> int:
    """Return the number of this attempt, counted from the folders of earlier ones: no earlier log is lost, and nodes that share a folder
    agree.

    An attempt that a peer has begun, and that no node has ended, is this node's too. job: name of the job's folder in the log folder, if
    jobs have one each.
    """
    if reader.is_set(ATTEMPT):
        return reader.get(ATTEMPT)
    logs = folders.job(reader.get(LOG_DIR), job) if job else reader.get(LOG_DIR)
    parents = [folders.node(logs, node) for node in {index, *range(min(nodes, FIRST_NODES))}] if nodes > 1 else [logs]
    newest = {folder: folders.newest(reader.files.names(folder)) for folder in parents}
    last = max(newest.values())
    begun = last and newest.get(folders.node(logs, index), last) < last and not _ended(reader, newest, last)
    number = last if begun else last + 1
    reader.note(ATTEMPT, str(number), join(logs, folders.ATTEMPTS if nodes == 1 else folders.OF_NODES) if last else "default")
    return number


def _ended(reader: Reader, newest: dict[str, int], last: int) -> bool:
    """Return True if a node has ended attempt `last`; a node that starts now then belongs to the next attempt."""
    paths = (folders.attempt(folder, last) for folder, number in newest.items() if number == last)
    return any(reader.files.exists(join(path, folders.VERDICT)) for path in paths)


# Rows

VALUES = ("nodes", "node_index", "hosts", "master_addr", "slots")  # allowed in Refusal.unless
_PLUS = r" \+ ([0-9]+)$"

Texts = tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """Refused start. when: conditions, all of which must hold. text: message; {NAME} in it is a variable's value. unless: values
    (nodes, node_index, hosts, master_addr, slots); the start is allowed if the user sets one of them."""

    when: Texts
    text: str
    unless: Texts = ("nodes", "node_index", "hosts")


@dataclass(frozen=True)
class Row:
    """Platform, as a row of the table or of a user's own file.

    A condition is NAME (set), A|B (one of them set), NAME=VALUE, NAMES ~ REGEX (the values with blanks between match), /PATH (exists), or
    ! and one of these (does not hold). A pattern is NAMES ~ REGEX, with the value as the first group; + N behind it adds N to a number.
    Of several variables or patterns the first one counts, and the others must agree with it.

    name: name of the platform, in small letters. sign: conditions that all hold on this platform. title: the platform's name for people.
    recognised_by: the platform's signs for people, if `sign` does not show them. started_by: starter of ranklaunch on each node. why:
    reason to try this platform before the platforms below. sources: pages about the variables. nodes: variables with the number of nodes.
    node_index: variables with the index of this node, from 0. slots: variables with the ranks of a node, or of each node. gpus: true if
    slots from elsewhere than `slots` count GPUs. npus: true if slots count NPUs, unless the container has a sign of another device.
    job_name: variables with the name of the job. attempt: variables with the number of this start, from 1. restarts: variables with the
    number of restarts, from 0. ranks: variables with the number of all ranks, nodes times slots. hosts: variables with the hosts of all
    nodes, in node order, with blanks, commas or line breaks between. hosts_file: variables with the path of a file with a host first on
    each line. slots_beside: true if `hosts` and the file have the slots of each host too, as HOST:N or HOST slots=N. json_file: path of a
    file with a JSON object. json_hosts: key for the hosts of all nodes, in node order. json_node_index: key for the index of this node;
    without a key the node looks for itself among the hosts. json_slots: key for the ranks of each node. master: variables with the host of
    node 0, HOST or HOST:PORT. own: variables with the host of this node; only node 0's equals the host of node 0. node_index_like: patterns
    for the index. nodes_like: patterns for the number of nodes. slots_like: patterns for the ranks of a node. job_name_like: patterns for
    the name of the job. attempt_like: patterns for the number of this start. master_like: patterns for the host of node 0. hosts_like: text
    for the host of each node, where {i} is the node and {A|B} a variable. hosts_each: text for the name of the variable with each node's
    host, where {i} is the node and {A|B} a variable. refuse: starts to refuse. starts_once: command that starts ranklaunch on each node, if
    the job's script runs on the first node alone. no_count: advice if nothing gives the number of nodes. no_first: advice if nothing gives
    the host of node 0. kills_after_s: seconds from the platform's signal to its SIGKILL. starts_late: true if nodes start minutes apart."""

    name: str
    sign: Texts = ()
    title: str = ""
    recognised_by: str = ""
    started_by: str = "the platform, on every node"
    why: str = ""
    sources: Texts = ()
    nodes: Texts = ()
    node_index: Texts = ()
    slots: Texts = ()
    gpus: bool = False
    npus: bool = False
    job_name: Texts = ()
    attempt: Texts = ()
    restarts: Texts = ()
    hosts: Texts = ()
    hosts_file: Texts = ()
    slots_beside: bool = False
    json_file: str = ""
    json_hosts: str = ""
    json_node_index: str = ""
    json_slots: str = ""
    master: Texts = ()
    own: Texts = ()
    ranks: Texts = ()
    node_index_like: Texts = ()
    nodes_like: Texts = ()
    slots_like: Texts = ()
    job_name_like: Texts = ()
    attempt_like: Texts = ()
    master_like: Texts = ()
    hosts_like: str = ""
    hosts_each: str = ""
    refuse: tuple[Refusal, ...] = ()
    starts_once: str = ""
    no_count: str = ""
    no_first: str = ""
    kills_after_s: float = 0.0
    starts_late: bool = False

    @property
    def conditions(self) -> Texts:
        """Conditions of the sign and of the refusals."""
        return (*self.sign, *(each for refusal in self.refuse for each in refusal.when))

    @property
    def patterns(self) -> Texts:
        """Texts that may have a regular expression, except node_index_like."""
        return (*self.conditions, *self.nodes_like, *self.slots_like, *self.job_name_like, *self.attempt_like, *self.master_like)


R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Shipped(Row):
    """Row of platforms.toml. kind: class with rules of its own, in the module of the platform's name; "" for none. begins: for a platform
    that this class recognises, beginnings of its variables' names, or paths of folders. ps: true if the job may have ps and workers, by
    lists of their hosts or by TF_CONFIG."""

    begins: Texts = ()
    kind: str = ""
    ps: bool = False


def row_of(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Return a row from the fields of its table."""
    refuse = tuple(Refusal(**_tuples(each)) for each in fields.get("refuse", ()))
    return kind(**{**_tuples(fields), "refuse": refuse})


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def holds(condition: str, env: Mapping[str, str], path_exists: Callable[[str], bool]) -> bool:
    """Return True if a condition holds. path_exists: returns True for a path that exists."""
    if condition.startswith("!"):
        return not holds(condition[1:], env, path_exists)
    if condition.startswith("/"):
        return path_exists(condition)
    if " ~ " in condition:
        return match(condition, env) is not None
    name, equals, value = condition.partition("=")
    if equals:
        return env.get(name, "").strip().lower() == value.lower()
    return any(env.get(each, "").strip() for each in condition.split("|"))


def match(pattern: str, env: Mapping[str, str]) -> re.Match[str] | None:
    """Return the match of NAMES ~ REGEX with the values of these variables, with blanks between them."""
    names, _, regex = pattern.partition(" ~ ")
    text = " ".join(env.get(filled(name, env), "").strip() for name in names.split())
    return re.fullmatch(re.sub(_PLUS, "", regex), text, re.DOTALL)


def value_like(pattern: str, env: Mapping[str, str]) -> str:
    """Return the first group that is not empty, plus the number behind the pattern, if any; "" without a match."""
    matched, plus = match(pattern, env), re.search(_PLUS, pattern)
    text = next(filter(None, matched.groups()), "") if matched else ""
    return str(int(text) + int(plus[1])) if plus and number(text) is not None else text


def names_in(pattern: str) -> list[str]:
    """Return the variables of a condition or a pattern."""
    names = re.split(" ~ |=", pattern.lstrip("!"))[0]
    return [name for name in re.split("[ |]", names) if "{" not in name and not name.startswith("/")]


def filled(text: str, env: Mapping[str, str], index: int = 0) -> str:
    """Return a text with {i} and {A|B} filled in; "" if all variables of one {A|B} are unset."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        text = str(index) if match[1] == "i" else next((env[name].strip() for name in match[1].split("|") if env.get(name, "").strip()), "")
        missing = missing or not text
        return text

    result = re.sub(r"\{([A-Za-z0-9_|]+)\}", value, text)
    return "" if missing else result


# Platforms

# Common names, which launchers set as well: no sign of a platform, so ranks keep them.
_COMMON_NAMES = re.compile(r"(?:(?:PET_)?NODE_|POD_|GROUP_|PMIX?_|OMPI_COMM_WORLD_)?(?:RANK|INDEX)|JOB_COMPLETION_INDEX|PROCESS_ID")
_LINE = r"([^\s:]+)(?:\s*:\s*|\s+slots\s*=\s*|\s+)?([0-9]{1,9})?(?:\s.*)?"
_NO_HOST = "there is no such file, or no host in it"
_SETTINGS = {variable.value: variable for variable in (NODES, NODE_INDEX, HOSTS, MASTER_ADDR, SLOTS)}


def host(value: str) -> str:
    """Return the host of HOST or HOST:PORT."""
    try:
        (endpoint,) = parse.endpoints(value)
    except ValueError:
        msg = "expected one host, HOST or HOST:PORT"
        raise ValueError(msg) from None
    return endpoint.host


def listed(value: str) -> tuple[parse.Endpoint, ...]:
    """Return the hosts of a list, each with the number behind its colon. An empty line is a node of unknown host."""
    lines = value.strip("\n").split("\n") if value.strip() else []
    words = [word for line in lines for word in line.replace(",", " ").split() or [""]]
    try:
        return tuple(parse.endpoints(word)[0] if word else parse.Endpoint("") for word in words)
    except (ValueError, IndexError):
        msg = "expected host names or IP addresses with line breaks, spaces or commas between them"
        raise ValueError(msg) from None


def own_slots(reader: Reader, nodes: int) -> tuple[int, ...]:
    """Return the slots of each node: the user's value, else the devices here."""
    return spread(reader, SLOTS, reader.get(SLOTS) if reader.is_set(SLOTS) else (devices(reader),), nodes)


class Place:
    """Platform, read by its row.

    Methods without an underscore are the interface; a class with rules of its own overrides some of them. OWN: variables that the class
    reads besides its row's. INDEX: variable from which a fact gets the index, for messages.
    """

    OWN: tuple[Variable[Any], ...] = ()
    INDEX: Variable[int] | None = None

    def __init__(self, row: Shipped) -> None:
        self.NAME = row.name
        self.row = row
        self.nodes = NODES.also(*row.nodes, agree=True)
        self.node_index = replace(
            NODE_INDEX.also(*row.node_index, agree=True), per_node=not any(map(_COMMON_NAMES.fullmatch, row.node_index))
        )
        self.slots = SLOTS.also(*row.slots, agree=True)
        self.job_name = JOB_NAME.also(*row.job_name, agree=bool(row.job_name_like))
        self.started = ATTEMPT.also(*row.attempt)
        self.restarts = platform_count("restarts", row.restarts, "restarts, from 0; the attempt is one more")
        self.first = replace(FIRST, names=row.master, parse=host, agree=True)
        self.hosts: Variable[tuple[parse.Endpoint, ...]] = Variable(
            "node_hosts", row.hosts, listed, (), "hosts of all nodes, in node order", "platform"
        )
        self.file = platform_text("node_file", row.hosts_file, "file with a node's host first on each line")
        self.own = Variable("own_host", row.own, host, "", "host of this node", "platform", per_node=True)
        self.ranks = platform_count("ranks", row.ranks, "ranks of all nodes")

    @functools.cached_property
    def VARIABLES(self) -> tuple[Variable[Any], ...]:
        """Variables that the platform reads besides those of ranklaunch.env.settings."""
        row, shared = self.row, (self.nodes, self.node_index, self.slots, self.job_name, self.started)
        of_row = (self.restarts, self.first, self.hosts, self.file, self.own, self.ranks)
        result = [*(each for each in shared if each.names[1:]), *(each for each in of_row if each.names), *self.OWN]
        result += [HOSTNAME] if any("HOSTNAME" in names_in(pattern) for pattern in (*row.sign, *row.node_index_like)) else []
        for value, patterns, meaning, of_node in (
            ("index_of_node", row.node_index_like, "contains the index of this node", True),
            ("signs", row.patterns, "shows that this is the platform, or contains one of its values", False),
        ):
            known = {*RUN_ID.names[:1], *(name for variable in result for name in variable.names)}
            names = tuple(dict.fromkeys(name for pattern in patterns for name in names_in(pattern) if name not in known))
            result += [platform_text(f"{row.name}_{value}", names, meaning, per_node=of_node)] if names else []
        return tuple(result)

    def detect(self, reader: Reader) -> bool:
        """Return True if the environment is this platform's. Never raises."""
        return bool(self.row.sign) and all(holds(each, reader.env, reader.files.exists) for each in self.row.sign)

    def program(self, reader: Reader, words: Sequence[str]) -> Program | None:
        """Return the program that the platform names, None if the command line names one."""
        return None

    def failure_file(self, reader: Reader) -> str:
        """Return the path at which the platform reads the reason of a failure, "" without one."""
        return ""

    def log_dir(self, reader: Reader) -> str:
        """Return the log folder for a job that cannot be read."""
        return settings.log_dir(reader)

    def attempt(self, reader: Reader, nodes: int = 1, index: int = 0) -> int:
        """Return the number of this start of the job on this node, from 1."""
        if reader.is_set(self.started):
            return reader.get(self.started)
        counted = reader.is_set(self.restarts)
        if not counted and not self.row.restarts:
            return attempt(reader, nodes, index)
        number = reader.get(self.restarts) + 1 if counted else 1
        reader.note(ATTEMPT, str(number), f"{reader.source(self.restarts)} + 1" if counted else "default")
        return number

    def facts(self, reader: Reader) -> Iterator[Fact]:
        """Yield further sources of values."""
        return iter(())

    def job_facts(self, reader: Reader) -> dict[str, Any]:
        """Return further arguments of make_job."""
        return {}

    def finished(self, reader: Reader, job: Job) -> Job:
        """Return the job with changes."""
        return job

    # Reading a job

    def read(self, reader: Reader, program: Program) -> Job:
        """Return the job. Problems go to the reader, whose check() raises them together afterwards."""
        row, pod = self.row, kubernetes.own_name(reader) if HOSTNAME in self.VARIABLES else ""
        if row.kills_after_s:
            reader.offer(GRACE_S, f"{row.name}, which kills after {row.kills_after_s:g} s", row.kills_after_s * 0.8)
        if row.starts_late and not reader.is_set(WAIT_S):
            reader.offer(MUSTER_TIMEOUT_S, f"{row.name}, whose nodes start minutes apart", 1800)
        self._refuse(reader)
        self._offer(reader, self._facts(reader))
        job = (self._job_of_tasks(reader, program, pod) if row.ps else None) or self._job(reader, program, pod)
        return job if job.among else self.finished(reader, job)

    def _job(self, reader: Reader, program: Program, pod: str) -> Job:
        row, sure = self.row, not reader.has_problems  # with a problem, a value may be missing because of it
        nodes = self._count(reader, sure)
        hosts = self._hosts(reader, nodes, sure)
        of_ranks = self._job_of_ranks(reader, program, hosts)
        if of_ranks:
            return of_ranks
        node_index = self._index(reader, nodes, sure)
        slots = self._slots(reader, nodes)
        self._refuse_other_ranks(reader, slots)
        self._refuse_other_first(reader, hosts, node_index)
        return make_job(
            reader,
            program,
            platform=row.name,
            name=reader.get(self.job_name) or row.name,
            attempt=self.attempt(reader, nodes, node_index),
            hosts=hosts,
            slots=slots,
            node_index=node_index,
            accelerator=self._accelerator(reader),
            instance_name=pod,
            **self.job_facts(reader),
        )

    def _job_of_tasks(self, reader: Reader, program: Program, pod: str = "") -> Job | None:
        """Return the job of workers and ps, None without ps. node_index counts within a task."""
        workers_and_ps = _workers_and_ps(reader)
        if not workers_and_ps:
            return None
        slots = own_slots(reader, len(workers_and_ps.workers))
        return make_job(
            reader,
            program,
            platform=self.NAME,
            name=reader.get(JOB_NAME) or self.NAME,
            attempt=self.attempt(reader, workers_and_ps.size, workers_and_ps.node_index),
            hosts=workers_and_ps.hosts,
            slots=workers_and_ps.slots(slots),
            node_index=workers_and_ps.node_index,
            tasks=workers_and_ps,
            instance_name=pod,
        )

    def _job_of_ranks(self, reader: Reader, program: Program, hosts: Sequence[str]) -> Job | None:
        """Return the job whose nodes are its ranks, if the platform has started a ranklaunch for each; else None."""
        return None

    def _accelerator(self, reader: Reader) -> tuple[str, str]:
        """Return the kind of accelerator that slots count, and its source, for a container without a sign of one."""
        row = self.row
        kind = "npu" if row.npus else "gpu" if row.slots or row.slots_like or row.gpus else "cpu"
        return kind, "default" if kind == "cpu" else reader.source(SLOTS)

    def _refuse(self, reader: Reader) -> None:
        for each in self.row.refuse:
            allowed = any(reader.by_user(_SETTINGS[value]) for value in each.unless)
            if not allowed and all(holds(condition, reader.env, reader.files.exists) for condition in each.when):
                reader.problem(re.sub(r"\{(\w+)\}", lambda name: clipped(reader.env.get(name[1], "")), each.text))

    def _offer(self, reader: Reader, facts: Iterable[Fact]) -> None:
        for variable, source, value in reversed([*facts]):  # the last offer counts, so the first fact comes last
            if show(value):
                reader.offer(variable, source, value)

    def _facts(self, reader: Reader) -> Iterator[Fact]:
        row = self.row
        endpoints = reader.peek(self.hosts)
        slots = [each.port for each in endpoints] if row.slots_beside else ()
        yield from of_hosts(reader.source(self.hosts), [each.host for each in endpoints], slots)
        if reader.is_set(self.file):
            yield from self._of_file(reader)
        if row.json_file and reader.files.exists(row.json_file) and not reader.by_user(HOSTS):
            yield from self._of_json(reader, reader.text(row.json_file))
        for variable, patterns in (
            (NODES, row.nodes_like), (NODE_INDEX, row.node_index_like), (SLOTS, row.slots_like),
            (JOB_NAME, row.job_name_like), (ATTEMPT, row.attempt_like), (FIRST, row.master_like),
        ):  # fmt: skip
            yield from _by_patterns(variable, patterns, reader.env)
        yield from self.facts(reader)

    def _of_file(self, reader: Reader) -> Iterator[Fact]:
        path = reader.absolute(reader.get(self.file))
        slots: dict[str, int] = {}
        for line_number, line in enumerate(reader.text(path).splitlines(), 1):
            match = re.fullmatch(_LINE, line.partition("#")[0].strip())
            if not match:
                continue
            if not parse.is_host(match[1]) or int(match[2] or 0) > parse.MOST_SLOTS:
                reader.problem(f"{path}, line {line_number}: expected a host first, and at most {parse.MOST_SLOTS} slots")
                return
            slots.setdefault(match[1], int(match[2] or 0))
        if slots:
            yield from of_hosts(path, [*slots], [*slots.values()] if self.row.slots_beside else ())
            yield from self._own_index(reader, path, [*slots])
        elif not any(map(reader.is_set, (self.nodes, HOSTS))):
            reader.problem(f"{reader.described(self.file)}: {_NO_HOST}")

    def _of_json(self, reader: Reader, text: str) -> Iterator[Fact]:
        path, content = self.row.json_file, _parsed(self.row, text)
        if not content:
            keys = " and ".join(filter(None, (self.row.json_hosts, self.row.json_node_index, self.row.json_slots)))
            reader.problem(f"{path} is not understood: expected {keys} of all nodes; else set {HOSTS.name} and {NODE_INDEX.name}")
            return
        hosts, slots, index = content
        yield from of_hosts(path, hosts, slots)
        if index:
            yield NODE_INDEX, f"{self.row.json_node_index} in {path}", index
        else:
            yield from self._own_index(reader, path, hosts)

    def _own_index(self, reader: Reader, path: str, hosts: Sequence[str]) -> Iterator[Fact]:
        """Yield the index of this node among the hosts of a file, if no variable gives the index."""
        indices = self_index.find(reader, hosts)
        if len(indices) == 1 and not reader.is_set(self.node_index):
            yield NODE_INDEX, f"{path} has {hosts[indices[0]]}", indices[0]

    def _count(self, reader: Reader, sure: bool) -> int:
        if reader.is_set(self.nodes):
            return reader.get(self.nodes)
        hosts = reader.get(HOSTS)
        if hosts:
            number, source = len(hosts), reader.source(HOSTS)
        elif reader.is_set(self.ranks) and self._has_slots(reader):
            number, source = self._by_ranks(reader), reader.source(self.ranks)
        else:
            number, source = 1, "default"
            if sure:
                self._refuse_uncounted(reader)
        reader.note(NODES, str(number), source)
        return number

    def _refuse_uncounted(self, reader: Reader) -> None:
        """Refuse a job of unknown size, if the platform numbers its nodes or usually counts them."""
        numbered = reader.is_set(self.node_index) and not reader.by_user(self.node_index)
        if self.row.no_count or numbered:
            names = ", ".join((*self.nodes.names, *HOSTS.names))
            remedy = self.row.no_count or f"{reader.candidates(self.node_index)[0].source} numbers nodes; set {NODES.name}"
            reader.problem(f"none of {names} says how many nodes the job has: {remedy}")

    def _has_slots(self, reader: Reader) -> bool:
        """Return False if the number of ranks of a node is unknown, and the row's no_count forbids to assume one."""
        return not self.row.no_count or reader.get(self.ranks) == 1 or reader.is_set(self.slots) or devices(reader) > 0

    def _by_ranks(self, reader: Reader) -> int:
        """Return the number of nodes from the number of all ranks; each node has as many ranks."""
        ranks, slots = reader.get(self.ranks), max(1, *self._slots(reader, 1), 1)
        if ranks % slots:
            described = f"{reader.described(self.ranks)}, and {slots} slots on this node"
            reader.problem(f"{described}: expected a multiple of the slots; set {NODES.name} or {SLOTS.name}")
        return max(1, ranks // slots)

    def _hosts(self, reader: Reader, nodes: int, sure: bool) -> tuple[str, ...]:
        """Return the hosts of all nodes: the user's, else the platform's list, else node 0's host and empty ones."""
        if nodes > 1 and not reader.is_set(HOSTS):
            self._offer(reader, _hosts_by_index(self.row, reader.env, nodes))
        hosts, first = reader.get(HOSTS), reader.peek(self.first)
        alone = nodes == 1 and reader.by_user(self.nodes) and not reader.by_user(HOSTS)
        if alone or not hosts:
            if sure and nodes > 1:
                self._refuse_no_first(reader, nodes)
            return (first or "localhost", *("",) * (nodes - 1))
        by_user = reader.by_user(HOSTS) or reader.is_set(MASTER_ADDR)
        if len(hosts) != nodes:
            self._refuse_other_number(reader, len(hosts), by_user)
            return hosts[:1] * nodes
        return hosts if by_user or not first else self._with_first(reader, hosts, first)

    def _refuse_other_number(self, reader: Reader, number: int, by_user: bool) -> None:
        more = f": {self.row.no_count}" if self.row.no_count and not by_user else ""
        wrong = f"{reader.source(HOSTS)} names {number} hosts, but {reader.described(NODES)}"
        reader.problem(f"{wrong}: expected as many names as nodes{more}")

    def _with_first(self, reader: Reader, hosts: tuple[str, ...], first: str) -> tuple[str, ...]:
        """Return the hosts with the platform's host of node 0 first. Refuse a list that begins with another host."""
        if _differ(hosts[0], first):
            begins = f"{reader.source(HOSTS)} begins with {hosts[0]}, but {reader.described(self.first)}"
            reader.problem(f"{begins}: expected the same host; or set {HOSTS.name}")
        return (first, *hosts[1:])

    def _refuse_no_first(self, reader: Reader, nodes: int) -> None:
        """Refuse several nodes without a host of node 0; name all variables and files that could give the host."""
        if any(map(reader.is_set, (self.first, HOSTS, MASTER_ADDR))):
            return
        row = self.row
        missing = (name for name in (filled(row.hosts_each, reader.env, i) for i in range(nodes)) if not reader.env.get(name, "").strip())
        like = [*missing][:1] if row.hosts_each else re.findall(r"[A-Z_]{2,}", row.hosts_like)
        files = [f"{reader.described(self.file)} ({_NO_HOST})"] if reader.is_set(self.file) else row.hosts_file
        names = ", ".join((*HOSTS.names, *row.hosts, *files, *like, *row.master, *MASTER_ADDR.names))
        reader.problem(f"{nodes} nodes, but none of {names} says where node 0 is{f': {row.no_first}' if row.no_first else ''}")

    def _index(self, reader: Reader, nodes: int, sure: bool) -> int:
        variable = self.node_index
        if nodes == 1 and not reader.by_user(variable):
            return of_one_node(reader, variable)
        self._refuse_first_alone(reader, nodes)
        if sure and not reader.is_set(variable):
            files = (*self.row.hosts_file, *filter(None, [self.row.json_file]))
            of_class = self.INDEX.names if self.INDEX else ()
            of_parts = [name for each in self.row.node_index_like for name in names_in(each)]
            names, hosts = (*variable.names, *of_class, *files, *of_parts), clipped(", ".join(reader.get(HOSTS)))
            here = f": {clipped(self_index.describe(reader))}, of {hosts}" if hosts else ""
            reader.problem(f"{nodes} nodes, but none of {', '.join(names)} says which one this is (0 to {nodes - 1}){here}")
        number = reader.get(variable)
        if number >= nodes:
            reader.problem(f"{reader.described(variable)}: expected 0 to {nodes - 1}, for {nodes} nodes")
        return min(number, nodes - 1)

    def _refuse_first_alone(self, reader: Reader, nodes: int) -> None:
        """Refuse a job's script that runs on the first node alone, if ranklaunch was not started on each node by `starts_once`."""
        started = any(map(reader.by_user, (self.node_index, HOSTS))) or any(map(reader.env.get, self.row.node_index))
        if self.row.starts_once and not started:
            alone = f"{nodes} nodes, and the job's script runs on the first of them alone"
            reader.problem(f"{alone}; start ranklaunch on each: {self.row.starts_once}")

    def _slots(self, reader: Reader, nodes: int) -> tuple[int, ...]:
        """Return the slots of each node: the user's, else a list of all nodes' slots, else this node's slots, else the devices here."""
        slots, by_user = reader.get(self.slots) if reader.is_set(self.slots) else (), reader.by_user(self.slots)
        each = () if by_user else reader.peek(LISTED_SLOTS)
        if len(each) == nodes > 0:
            if any(number not in each for number in slots):
                described = (
                    f"{reader.described(self.slots)}, but {reader.source(LISTED_SLOTS)} has {','.join(map(str, each))} for the nodes"
                )
                reader.problem(f"{described}: unset the wrong one or set {SLOTS.name}")
            reader.note(SLOTS, ",".join(map(str, each)), reader.source(LISTED_SLOTS))
            return each
        return spread(reader, self.slots, slots if any(slots) or by_user else (devices(reader),), nodes)

    def _refuse_other_ranks(self, reader: Reader, slots: Sequence[int]) -> None:
        """Refuse a number of ranks that is not nodes times slots. A node without devices has one rank."""
        both_set = reader.is_set(self.ranks) and reader.is_set(self.slots) and not any(map(reader.by_user, (self.nodes, self.slots)))
        if both_set and reader.get(self.ranks) not in (sum(slots), sum(max(1, each) for each in slots)):
            described = f"{reader.described(self.nodes)} with {reader.described(self.slots)}"
            reader.problem(f"{reader.described(self.ranks)}, but {described}: expected their product; or set {NODES.name} and {SLOTS.name}")

    def _refuse_other_first(self, reader: Reader, hosts: Sequence[str], node_index: int) -> None:
        """Refuse a node that has node 0's host without being node 0, and a node 0 that has another host."""
        by_user = any(map(reader.by_user, (self.node_index, HOSTS, MASTER_ADDR)))
        if len(hosts) == 1 or by_user or not (reader.is_set(self.own) and reader.is_set(self.node_index)):
            return
        own_host, first = reader.get(self.own), hosts[0]
        if own_host == first if node_index else _differ(own_host, first):
            where = f"{reader.described(self.own)} and node 0 is {first}"
            wanted = f"expected the same host on node 0 alone; unset the wrong one or set {NODE_INDEX.name}"
            reader.problem(f"{reader.described(self.node_index)}, but {where}: {wanted}")


def _by_patterns(variable: Variable[Any], patterns: Sequence[str], env: Mapping[str, str]) -> Iterator[Fact]:
    """Yield values from patterns, matched in values of further variables."""
    for pattern in patterns:
        text = value_like(pattern, env)
        names = (filled(name, env) for name in pattern.partition(" ~ ")[0].split())
        if text:
            yield variable, f"{variable.value.replace('_', ' ')} in {', '.join(names)}", text


def _hosts_by_index(row: Row, env: Mapping[str, str], nodes: int) -> Iterator[Fact]:
    """Yield the hosts of all nodes from hosts_like (a text with each node's index) or hosts_each (a variable for each node)."""
    names = [filled(row.hosts_like or row.hosts_each, env, i) for i in range(nodes)]
    hosts = names if row.hosts_like else [env.get(name, "").strip() for name in names]
    if all(hosts):
        by = f"names made of {', '.join(re.findall('[A-Z_]{2,}', row.hosts_like))}" if row.hosts_like else f"{names[0]} and the next ones"
        yield HOSTS, by, hosts


def _parsed(row: Row, text: str) -> tuple[list[str], list[int], str] | None:
    """Return the hosts, the slots and the index (as text) of a JSON file's text; None if one that the row names is missing or malformed."""
    try:
        content: Any = json.loads(text)
        hosts = [parse.host(str(each)) for each in content[row.json_hosts]]
        slots = [parse.whole(str(each), 0, parse.MOST_SLOTS) for each in content[row.json_slots]] if row.json_slots else []
        index = str(parse.whole(str(content[row.json_node_index]), 0, len(hosts) - 1)) if row.json_node_index else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (hosts, slots, index) if len(slots) in (0, len(hosts)) and (slots or not row.json_slots) else None


def _differ(one: str, other: str) -> bool:
    """Return True if the texts cannot be the same host. A name may have a domain or none; a name and an address may be one host."""
    are_addresses = [bool(re.fullmatch(r"[0-9.]+|.*:.*", each)) for each in (one, other)]
    if are_addresses[0] != are_addresses[1]:
        return False
    return one != other and (are_addresses[0] or not (f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")))


# Jobs of parameter servers (ps) and workers: from lists of both, else from a TF_CONFIG with ps


def _workers_and_ps(reader: Reader) -> Tasks | None:
    """Return the workers and ps of a job, None without ps. The platform has offered its values; node_index counts within a task."""
    if not (reader.is_set(PS_HOSTS) or reader.is_set(CONFIG)):
        return None
    workers_and_ps = _tasks(reader)
    if workers_and_ps:
        tasks.refuse_duplicates(reader, workers_and_ps)
        if reader.is_set(NODES) and reader.get(NODES) != len(workers_and_ps.workers):
            reader.problem(
                f"{len(workers_and_ps.workers)} workers are named, but {reader.described(NODES)}: expected the number of workers"
            )
    return workers_and_ps


def _tasks(reader: Reader) -> Tasks | None:
    if not tasks.has_hosts(reader, PS_HOSTS):
        return tasks.by_config(reader, TASK, NODE_INDEX)
    workers = reader.get(WORKER_HOSTS) or tuple(map(Endpoint, reader.get(HOSTS)))
    if not workers:
        reader.problem(f"{reader.source(PS_HOSTS)} names ps, but neither {WORKER_HOSTS.both} nor {HOSTS.both} names workers")
    workers_and_ps = Tasks(workers or (STAND_IN,), reader.get(PS_HOSTS) or (STAND_IN,), tasks.own_task(reader, TASK))
    return replace(workers_and_ps, index=index(reader, workers_and_ps.size, NODE_INDEX, PS if workers_and_ps.task == PS else "workers"))
