"""Determined AI: the containers of a task, whose addresses it writes into a file before the task's entry point starts.

Source: https://github.com/determined-ai/determined, harness/determined/_info.py and harness/determined/exec/prep_container.py.
"""

from __future__ import annotations

import json

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.unrecognised import RENDEZVOUS
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT, HOSTS, NODE_INDEX, NODES, SLOTS, make_job, spread
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.typed import Any, NamedTuple

NAME = "determined"

JOB_NAME = ANY_JOB_NAME.also("DET_TASK_ID")
ALLOCATION = Variable(
    "det_allocation", ("DET_ALLOCATION_ID",), parse.text, "", "set in every container of a task: beside the file of its addresses it says "
    "that this is the platform", "platform",
)  # fmt: skip
RUN = Variable("trial_run", ("DET_TRIAL_RUN_ID",), parse.count, 1, "which run of the trial it is, from 1: the attempt", "platform")

VARIABLES: tuple[Variable[object], ...] = (JOB_NAME, ALLOCATION, RUN)

program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_MOST_BYTES = 16 * 1024 * 1024
_EXPECTED = '{"container_addrs": [ADDRESS, ...], "container_rank": N, "container_slot_counts": [N, ...]}'


class Meeting(NamedTuple):
    """What the file tells of the containers."""

    hosts: tuple[str, ...] = ()
    rank: int = 0
    slots: tuple[int, ...] = ()


def detect(reader: Reader) -> bool:
    return bool(reader.env.get(ALLOCATION.names[0], "").strip()) and reader.files.exists(RENDEZVOUS)


def attempt(reader: Reader, nodes: int = 1, index: int = 0) -> int:
    if reader.given(ATTEMPT) or not reader.given(RUN):
        return base.attempt(reader, nodes, index)
    number = max(1, reader.get(RUN))
    reader.ledger.note(ATTEMPT.value, str(number), RUN.names[0])
    return number


def read(reader: Reader, program: Program) -> Job:
    told = _told(reader)
    hosts = reader.get(HOSTS) or told.hosts
    nodes = reader.get(NODES) if reader.given(NODES) else max(1, len(hosts))
    if hosts and len(hosts) != nodes:
        source = reader.source(HOSTS) if reader.given(HOSTS) else RENDEZVOUS
        reader.problem(f"{source} names {len(hosts)} hosts, but {reader.told(NODES)}: expected as many names as nodes")
        hosts = hosts[:1] * nodes
    if told.hosts and not reader.given(HOSTS):
        reader.ledger.note(HOSTS.value, ",".join(hosts), RENDEZVOUS)
    ways = [(f"{RENDEZVOUS}: container_rank={told.rank}", told.rank)] if told.hosts else []
    own = kubernetes.index(reader, NODE_INDEX, nodes, ways)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=hosts or ("localhost", *("",) * (nodes - 1)),
        slots=_slots(reader, nodes, told),
        node_index=own,
        accelerator=("gpu", RENDEZVOUS),
    )


def _slots(reader: Reader, nodes: int, told: Meeting) -> tuple[int, ...]:
    if reader.given(SLOTS) or len(told.slots) != nodes:
        return spread(reader, SLOTS, reader.get(SLOTS), nodes)
    reader.ledger.note(SLOTS.value, ",".join(map(str, told.slots)), RENDEZVOUS)
    return told.slots


def _told(reader: Reader) -> Meeting:
    if not reader.files.exists(RENDEZVOUS) and (reader.given(HOSTS) or reader.given(NODES)):
        return Meeting()
    try:
        text = reader.files.text(RENDEZVOUS, _MOST_BYTES)
        found: Any = json.loads(text or "")
        hosts = tuple(parse.host(str(each)) for each in found["container_addrs"])
        made = Meeting(hosts, parse.count(str(found["container_rank"])), tuple(_count(each) for each in found["container_slot_counts"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        reader.problem(f"{RENDEZVOUS} is not understood: expected {_EXPECTED}; else set RANKLAUNCH_PLATFORM=local and RANKLAUNCH_NODES")
        return Meeting()
    if len(made.slots) != len(made.hosts) or made.rank >= len(made.hosts):
        reader.problem(
            f"{RENDEZVOUS}: container_addrs has {len(made.hosts)} entries, container_slot_counts {len(made.slots)}, and container_rank is "
            f"{made.rank}: expected as many counts as addresses, and a rank below them"
        )
        return Meeting()
    return made


def _count(number: object) -> int:
    return parse.whole(str(number), 0, parse.MOST_SLOTS)
