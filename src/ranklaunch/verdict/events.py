"""The events of a job, as each attempt's events.jsonl has them: their names, and the fields of each with their types.

Those who read the file go by this table, and the documentation shows it. Fields are only ever added.
"""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """may_be_null: of a value that is not there, or that nobody knows."""

    name: str
    type: type
    meaning: str = ""
    may_be_null: bool = False


class Event(NamedTuple):
    name: str
    when: str
    fields: tuple[Field, ...] = ()


# Of each event.
COMMON = (
    Field("event", str, "its name"),
    Field("time", str, "UTC, ISO 8601"),
    Field("monotonic", float, "seconds, for differences"),
)

_NAME = Field("name", str, "such as rank 3")
_RANK = Field("rank", int, "null for what is no rank", may_be_null=True)
_WAIT = (Field("kind", str), Field("what", str))

EVENTS: tuple[Event, ...] = (
    Event(
        "read", "the environment is read and the plan made",
        (
            Field("platform", str), Field("method", str), Field("why", str, "why this method"), Field("attempt", int),
            Field("container_s", float, "since the start of its container; null outside one", may_be_null=True),
        ),
    ),
    Event(
        "settle", "ranks are about to start again in place",
        (Field("removed", int, "files of dead ranks in shared memory that were"), Field("pause_s", float)),
    ),
    Event("settled", "nothing is left of those before them", (Field("seconds", float),)),
    Event("wait", "a wait begins", (*_WAIT, Field("timeout_s", float))),
    Event("waited", "it ended", (*_WAIT, Field("seconds", float))),
    Event("file", "a file of the plan is written", (Field("path", str),)),
    Event(
        "released", "all nodes of the job may start",
        (
            Field("late", str, "who was waited for"),
            Field("clock_s", float, "what is to be added to the times here for node 0's"),
        ),
    ),
    Event("spawn", "a process is started, or a rank of msrun is found", (_NAME, _RANK, Field("pid", int))),
    Event("first output", "it wrote for the first time", (_NAME,)),
    Event(
        "steps", "ranks were seen to go on, by what they write",
        (Field("ranks", list, "of each group of them: first rank, last rank, epoch, step, of how many (0: not said), seconds ago"),),
    ),
    Event(
        "saved", "a rank has saved a checkpoint, by what it writes, and did nothing else meanwhile",
        (Field("seconds", float), Field("ago_s", float, "seconds since its end")),
    ),
    Event(
        "exit", "it ended, or a rank of msrun or DeepSpeed has",
        (
            _NAME, _RANK, Field("pid", int),
            Field("exit_code", int, "128+N after signal N; null where nobody tells", may_be_null=True),
            Field("signal", str, "that killed it, else null", may_be_null=True),
            Field("max_rss_kb", int, "its peak of memory; null for ranks of msrun and DeepSpeed, which the kernel tells their parent alone",
                  may_be_null=True),
        ),
    ),
    Event(
        "save", "the ranks were asked to save",
        (
            Field("signal", str, "by which, or empty"), Field("file", str, "that was touched, or empty"),
            Field("deaf", str, "who catches no such signal, and was not sent it"),
            Field("trouble", str, "why the file could not be touched"),
        ),
    ),
    Event("signal", "a stop request came", (Field("signal", str),)),
    Event("trouble", "a log could not be written", (Field("text", str),)),
    Event(
        "recorders", "some cannot be switched on", (Field("without", str, "variables that ranks do not get"), Field("why", str)),
    ),
    Event(
        "evidence", "evidence was taken here",
        (
            Field("number", int, "how often by then"), Field("why", str), Field("folder", str), Field("bytes", int),
            Field("seconds", float), Field("ranks", int, "that lived"), Field("stacks", int, "ranks whose Python stacks are there"),
        ),
    ),
    Event(
        "hang", "nothing moves: a warning, an alarm, or that it moves again",
        (Field("text", str), Field("since", str, "when the last thing has moved, UTC by node 0's clock, else null", may_be_null=True)),
    ),
    Event(
        "slow", "steps take much longer than before; or (over) as long as before again",
        (
            Field("text", str), Field("over", bool, "the job has recovered"),
            Field("since", str, "when the first slow step began, or the first fast one; UTC by node 0's clock"),
            Field("step_s", float, "of the steps since then"), Field("baseline_s", float, "of the steps before"),
            Field("factor", float, "step_s divided by baseline_s"),
            Field("rank", int, "the slowest, where ranks print their own step times and one stands out; else null", may_be_null=True),
            Field("node", int, "of this rank; else null", may_be_null=True),
        ),
    ),
    Event("notice", "after the first step: what a stop would cost, where no rank catches SIGTERM", (Field("text", str),)),
    Event("failing", "a launcher has begun to end its ranks after a failure of one", (_NAME,)),
    Event("done", "this node's ranks have succeeded; other nodes' have not yet"),
    Event("ending", "what decided", (Field("outcome", str), Field("by", str, "a process's name, or the reason"))),
    Event("end", "everything has ended", (Field("outcome", str), Field("exit_code", int))),
)  # fmt: skip
