"""Start of ranks through a stand-in, a program of ranklaunch in place of the user's: so no launcher needs a change. The stand-in gets the
user's arguments; its settings are in variables, which launchers pass on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.env import parse
from ranklaunch.env.job import Job, Node, Program
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import BIND, BIND_CORES, BIND_MEMORY, DEBUGPY, DEBUGPY_HOST, DEBUGPY_WAIT, NUMACTL, RANK_PREFIX
from ranklaunch.files import own_program
from ranklaunch.plan import facts
from ranklaunch.plan.model import Plan, Process
from ranklaunch.rank_wrapper.cores import Divided, divided
from ranklaunch.render.templates import Templates

STAND_IN = own_program("place_rank.py")
VARIABLES = "RANKLAUNCH_PLACE_"
THREADS, AFFINITY = "OMP_NUM_THREADS", "KMP_AFFINITY"
LONGEST = 120_000  # characters of a variable; the limit of Linux is 131,071
_SPECIAL = re.compile(rb"[^A-Za-z0-9_@+=./-]")  # characters that a launcher may change, and separators of entries


def placed(job: Job, reader: Reader, templates: Templates, launcher: type[Launcher], once: bool) -> Job:
    """Return the job with the stand-in as its program, or the unchanged job if no setting needs the stand-in.

    once: True if the method starts the program once on a node.
    """
    bound = reader.get(BIND) == "cores" if reader.is_set(BIND) else reader.is_set(BIND_CORES)
    memory, debugs = reader.peek(BIND_MEMORY), bool(reader.peek(DEBUGPY))
    if memory and not bound:
        reader.problem(f"{reader.described(BIND_MEMORY)}: it needs the cores of each rank: expected {BIND.both} cores too")
    if not (bound or debugs or reader.is_set(RANK_PREFIX)):
        return job
    program = job.program
    if debugs and not program.is_python:
        reader.problem(f"{reader.described(DEBUGPY)}: debugpy is for Python programs, and {program.path} is not one")
    of_all = len(job.nodes) > 1 and launcher.starts_all(reader)
    wrapper = _Wrapper(program, reader, templates, bound, memory, debugs, once, of_all)
    return replace(job, program=Program(STAND_IN, program.args, stands_for=program), place=wrapper.environment)


@dataclass
class _Wrapper:
    """Settings of the stand-in for a job. once: True if the program is started once on a node. of_all: True if node 0 starts the ranks
    of all nodes."""

    program: Program
    reader: Reader
    templates: Templates
    bound: bool
    memory: bool
    debugs: bool
    once: bool
    of_all: bool
    _made: dict[tuple[Node, int], dict[str, str]] = field(default_factory=dict)

    def environment(self, job: Job) -> dict[str, str]:
        """Return the variables for the stand-in. job: the launcher's job, perhaps with other slots than the platform's."""
        key = (job.node, len(job.nodes))
        if key not in self._made:
            self._made[key] = self._variables(job)
        return self._made[key]

    def _variables(self, job: Job) -> dict[str, str]:
        reader, ranks = self.reader, max(1, self._ranks(job))
        cores = divided(reader, ranks) if self.bound else None
        values = {
            "PROGRAM": f"{_kind(self.program)}:{_encoded(self.program.path)}",
            **(_cores(cores, self.memory) if cores else {}),
            **(_debugger(job, reader, ranks, self.once) if self.debugs else {}),
            **(_prefix(job, reader, self.templates, self.of_all) if reader.is_set(RANK_PREFIX) else {}),
        }
        return {**{f"{VARIABLES}{name}": value for name, value in values.items()}, **(_threads(reader, cores) if cores else {})}

    def _ranks(self, job: Job) -> int:
        """Return the number of ranks on this node, or the largest of all nodes if node 0 starts all ranks."""
        if self.once:
            return 1
        return max((node.slots for node in job.nodes), default=1) if self.of_all else job.node.slots


def told(plan: Plan, job: Job) -> Plan:
    """Return the plan with the user's program in its job, for later steps, and with the programs that the stand-in needs.
    job: job without the stand-in."""
    original = replace(plan.job, program=replace(job.program, args=plan.job.program.args), place=None)
    return replace(plan, job=original, processes=tuple(replace(each, needs=(*each.needs, *_needs(each))) for each in plan.processes))


def _needs(process: Process) -> tuple[tuple[str, str], ...]:
    """Return the programs in front of ranks, each with a hint for the message if it is missing. Only names without a path are checked."""
    texts = [process.env.get(f"{VARIABLES}PREFIX", "")]
    numactl = (NUMACTL,) if f"{VARIABLES}MEMORY" in process.env else ()
    first = {entry.partition(",")[0] for text in texts for entry in text.split(":")}
    hint = f"{RANK_PREFIX.both} starts the ranks with it"
    return (*numactl, *((name, hint) for name in sorted(first) if name and "%" not in name))


def _kind(program: Program) -> str:
    return "module" if program.module else "python" if program.is_python else "bash" if program.is_shell else "program"


def _cores(cores: Divided, memory: bool) -> dict[str, str]:
    return {"CORES": ":".join(cores.cores), **({"MEMORY": ":".join(cores.memory)} if memory and any(cores.memory) else {})}


def _threads(reader: Reader, cores: Divided) -> dict[str, str]:
    """Return the variable for a thread on each core of a rank, unless the user has set it."""
    if reader.env.get(AFFINITY):
        reader.problem(
            f"{AFFINITY}={reader.env[AFFINITY]} contradicts {reader.described(BIND)}: both choose the cores of a rank: unset one"
        )
    if reader.env.get(THREADS):
        return {}
    reader.ledger.note(THREADS.lower(), str(cores.each), BIND.value)
    return {THREADS: str(cores.each)}


def _debugger(job: Job, reader: Reader, ranks: int, once: bool) -> dict[str, str]:
    port, host = reader.get(DEBUGPY), _host(job, reader)
    if port + ranks - 1 > 65535:
        reader.problem(f"{reader.described(DEBUGPY)}: {ranks} ranks need {ranks} ports from this one on, and the highest port is 65535")
    _warn_without_debugpy(job, reader)
    reader.ledger.note("debuggers", ",".join(f"{host}:{port + i}" for i in range(ranks)), DEBUGPY.value)
    wait = reader.peek(DEBUGPY_WAIT)
    # Children of a rank load data, so they need no debugger. Children of a program that is started once are the ranks.
    return {"DEBUGPY": f"{host}:{port}", **({"WAIT": "true"} if wait else {}), **({"CHILDREN": "true"} if once else {})}


def _warn_without_debugpy(job: Job, reader: Reader) -> None:
    """Warn if the interpreter's packages are visible here, without debugpy. Each rank looks again on its whole path."""
    place = (job, reader.files, reader.env, reader.cwd)
    if "Python" in facts.of_versions(*place, "") and not facts.source("debugpy/__init__.py", *place):
        reader.warn(f"{reader.described(DEBUGPY)}: debugpy is not among the packages of {job.python}: pip install debugpy there")


def _host(job: Job, reader: Reader) -> str:
    """Return the address on which debuggers listen: the user's, else a loopback one. Simulated nodes have a loopback address each."""
    if not reader.is_set(DEBUGPY_HOST):
        return job.node.host if job.node.host.startswith("127.") else "127.0.0.1"
    host = reader.get(DEBUGPY_HOST)
    if not host.startswith("127."):
        reader.warn(f"{reader.described(DEBUGPY_HOST)}: anyone who can connect to these ports can run code in the ranks without a password")
    return host


def _prefix(job: Job, reader: Reader, templates: Templates, of_job: bool) -> dict[str, str]:
    values = [_known(node, i, rank) for node in (job.nodes if of_job else (job.node,)) for i, rank in enumerate(node.ranks)]
    entries = [_entry(reader, templates, values, each) for each in values]
    text = entries[0] if len({*entries}) == 1 else ":".join(entries)
    if len(text) > LONGEST:
        reader.problem(f"{RANK_PREFIX.both}: for {len(entries)} ranks it has {len(text)} characters, and a variable may have {LONGEST}")
        return {}
    return {} if not text else {"PREFIX": text, **({"BY": "rank"} if of_job else {})}


def _entry(reader: Reader, templates: Templates, others: Sequence[Mapping[str, object]], known: Mapping[str, object]) -> str:
    text = templates.inline(reader.get(RANK_PREFIX), RANK_PREFIX.names[0], others, **known)
    try:
        return ",".join(map(_encoded, parse.words(text)))
    except ValueError as error:
        reader.problem(f"{reader.quoted(RANK_PREFIX)}: {error}")
        return ""


def _known(node: Node, local_rank: int, rank: int) -> dict[str, object]:
    return {"rank": rank, "local_rank": local_rank, "node": node.index, "host": node.host}


def _encoded(text: str) -> str:
    return _SPECIAL.sub(lambda match: b"%%%02X" % match[0][0], text.encode(errors="surrogateescape")).decode()
