"""Which exception explains the end of a rank: a row for each rule, and for each thing that a record does not explain."""

from __future__ import annotations

from dataclasses import replace

import helpers
import pytest

from ranklaunch.diagnose import suspects
from ranklaunch.ends.model import (
    Frame,
    JobFacts,
    MemoryKills,
    NodeEnds,
    NodeFacts,
    OtherProcess,
    Process,
    Raised,
    RankEnd,
    Record,
    Sent,
)
from ranklaunch.supervise.judge import Catalogue
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit, Ending, Judgement, KnownError

ENDED = 100.0


def record(at: float, message: str = "loss is nan", where: str = "main") -> Record:
    chain = (Raised("ValueError", message, "", (Frame("/job/train.py", 88, "step"),)),)
    return Record("exception", 0, "here", 4711, 1, at, at, where=where, chain=chain)


def end(code: int | None, *records: Record, signal: int = 0, sent: tuple[Sent, ...] = ()) -> RankEnd:
    status = signal or (code or 0) << 8
    return RankEnd(0, 3, 3, 4711, 1, "rank 3", "rank", None, status, code, signal, ENDED, sent, records=records)


def node(ended: RankEnd, *others: OtherProcess) -> NodeEnds:
    job = JobFacts("job", "", 1, 0, "local", "spawn", "ranks", "cpu", 0, (NodeFacts(0, "here", 4, 0),), ("train.py",))
    other = replace(end(143, signal=15), pid=4710)
    return NodeEnds(job, Ending(Judgement("failed", 1, ""), ENDED), None, MemoryKills(), ends=(ended, other), others=others)


def child(rank: int | None, *records: Record) -> OtherProcess:
    return OtherProcess(4712, 2, rank, records)


def below(pid: int, start: int, at: float) -> Record:
    return replace(record(at, where="process"), top=Process(pid, start))


LAUNCHER = Record("launcher", 0, "here", 4712, 2, 1.0, 1.0)
HEAD = Record("rank", 0, "here", 4712, 2, 1.0, 1.0, top=Process(4711, 1))
# A rank of its own launcher below rank 3, and that launcher.
NESTED_HEAD = Record("rank", 0, "here", 4713, 3, 1.0, 1.0, parent=Process(4712, 2))
NESTED = (child(3, replace(LAUNCHER, top=Process(4711, 1))), OtherProcess(4713, 3, 0, (NESTED_HEAD, record(98.0))))
TOLD = (Sent(15, 98.0),)
FITS = {
    "the main thread, and Python's own code": (end(1, record(40.0)), (), "exception-in-main-thread"),
    "a hook that ends the process with a code of its own": (end(9, record(99.0)), (), "exception-in-main-thread"),
    "a signal from outside while an exit handler hangs": (end(137, record(40.0), signal=9), (), "exception-in-main-thread"),
    "raised in the handler of a signal from outside": (end(1, replace(record(99.0), signal=15)), (), "exception-in-main-thread"),
    "told to end after it had raised": (end(143, record(97.0), signal=15, sent=TOLD), (), "exception-in-main-thread"),
    "another thread, and the rank ends soon": (end(4, record(99.0, where="thread")), (), "exception-in-other-thread"),
    "the program of a shell script": (end(1), (child(3, HEAD, record(98.0)),), "exception-in-program-of-shell"),
    "the Python below a shell": (end(1), (child(3, record(98.0)),), "exception-in-child"),
    "a worker": (end(1), (child(3, record(98.0, where="process")),), "exception-in-child"),
    "a worker that names the top of its rank": (end(1), (child(None, below(4711, 1, 98.0)),), "exception-in-child"),
    "a rank of a launcher that the rank started": (end(1), NESTED, "exception-in-nested-rank"),
}
DOES_NOT = {
    "a rank that ended well": (end(0, record(99.0)), ()),
    "a code of the program's own, an hour after a console showed an exception": (end(3, record(-3500.0)), ()),
    "a thread's exception of an hour ago": (end(1, record(-3500.0, where="thread")), ()),
    "a helper's exception of an hour ago": (end(1), (child(3, record(-3500.0)),)),
    "a crash, with a helper's exception beside it": (end(139, signal=11), (child(3, record(99.0)),)),
    "killed, with a helper's exception beside it": (end(137, signal=9), (child(3, record(99.0)),)),
    "the exception of another rank's child": (end(1), (child(1, record(99.0)),)),
    "the exception of a child below another top": (end(1), (child(3, below(4711, 7, 99.0)),)),
    "the exception of a launcher that the rank started": (end(1), (child(3, LAUNCHER, record(99.0)),)),
    "raised because of a stop": (end(1, record(99.0), sent=TOLD), ()),
    "raised in the handler of a signal, and its launcher ended it": (
        replace(end(None, replace(record(99.0), signal=15)), by_itself=False),
        (),
    ),
    "killed and reaped by its launcher, with a worker that lives on and raises": (end(None), (child(3, record(ENDED + 0.1)),)),
}


@pytest.mark.parametrize(("ended", "others", "rule"), FITS.values(), ids=FITS)
def test_an_exception_explains_an_end(ended: RankEnd, others: tuple[OtherProcess, ...], rule: str) -> None:
    ((_, (explanation, *_)),) = suspects.explanations(node(ended, *others))
    assert explanation.because.rule == rule
    assert explanation.because.says == "ValueError: loss is nan at train.py:88 in step"
    assert (explanation.because.of.rank, explanation.because.of.file, explanation.because.of.line) == (3, "/job/train.py", 88)
    assert explanation.text.endswith('File "/job/train.py", line 88, in step\nValueError: loss is nan\n')


@pytest.mark.parametrize(("ended", "others"), DOES_NOT.values(), ids=DOES_NOT)
def test_an_exception_does_not_explain_an_end(ended: RankEnd, others: tuple[OtherProcess, ...]) -> None:
    assert list(suspects.explanations(node(ended, *others))) == []


def test_every_rule_has_a_row() -> None:
    rules = [f"exception-{rule.__name__.replace('_', '-')}" for rule in suspects.RECORD_RULES]
    helpers.listed_in("FITS", [rule for *_, rule in FITS.values()], rules)


def test_each_rule_says_what_it_is_for() -> None:
    assert all(rule.__doc__ for rule in (*suspects.RECORD_RULES, *blame.EVIDENCE, *blame.ORDER))


# Rules that decided


def suspect(at: float, kind: str = "", *, memory: bool = False) -> Suspect:
    error = KnownError("an-entry", kind, "a line", "", "", "") if kind else None
    return Suspect(0, at, "failed", 1, "", Culprit(0, 3, 1, 1, None, memory, (), error=error))


STOPPED = Suspect(0, 5.0, "stopped", 143, "stopped by SIGTERM")
DECIDED: dict[str, tuple[list[Suspect], list[str]]] = {
    "one rank, out of memory": ([suspect(1.0, memory=True)], ["out-of-memory", "only-failure"]),
    "one rank, a known error": ([suspect(1.0, "cause")], ["known-error", "only-failure"]),
    "one rank that says nothing": ([suspect(1.0)], ["exit-status", "only-failure"]),
    "a stop request": ([STOPPED], ["own-decision", "only-failure"]),
    "the earlier of two": ([suspect(1.0, "cause"), suspect(2.0)], ["known-error", "first-in-time"]),
    "after a consequence": ([suspect(2.0, "cause"), suspect(1.0, "consequence")], ["known-error", "before-consequences"]),
    "nothing but consequences": ([suspect(1.0, "consequence"), suspect(2.0, "consequence")], ["known-error", "only-consequences"]),
}


@pytest.mark.parametrize(("suspects", "rules"), DECIDED.values(), ids=DECIDED)
def test_rules_that_decided_are_named(suspects: list[Suspect], rules: list[str]) -> None:
    first, *others = suspects
    assert [each.rule for each in blame.rules_that_decided(first, others)] == rules


# A rank that others waited for

TIMED_OUT = "EI0002: The wait execution of the Notify register times out. Reason: no Notify record from remote rank [2].\n"


def waits(index: int) -> NodeEnds:
    """Node of a job of 4 x 1 ranks: rank 2 hangs, until ranklaunch ends it."""
    nodes = tuple(NodeFacts(each, f"h{each}", 1, each) for each in range(4))
    facts = JobFacts("job", "", 1, 0, "local", "spawn", "ranks", "npu", index, nodes, ("train.py",))
    hangs = index == 2
    sent = (Sent(6, 11.0),) if hangs else ()
    ended = RankEnd(
        index, index, 0, 100 + index, 1, f"rank {index}", "rank", None, 6 if hangs else 256, 134 if hangs else 1, 6 if hangs else 0,
        12.0 if hangs else 10.0 + index / 10, sent, output="step 7\n" if hangs else TIMED_OUT,
    )  # fmt: skip
    ending = Ending(Judgement("failed", 1, ""), 12.0, None if hangs else 100 + index, from_elsewhere=hangs)
    return NodeEnds(facts, ending, None, MemoryKills(), ends=(ended,))


def test_the_rank_that_all_others_waited_for_is_named() -> None:
    known = Catalogue(helpers.plan(helpers.local()))
    found = [suspect for index in range(4) for suspect in suspects.diagnose(waits(index), known)]
    judged = blame.judge(found)
    assert judged.culprit
    assert (judged.culprit.rank, judged.culprit.node, judged.exit_code) == (2, 2, 1)
    assert judged.reason == f"rank 2 on node 2 (h2) did not answer: {TIMED_OUT.strip()}"
    assert [each.rule for each in judged.because] == ["waited-for", "first-in-time"]
    assert {each.rank for each in judged.failures} == {0, 1, 3}


UNHEALTHY = "absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):"
ENDS_ITSELF = "F1130 client.h:80] Terminating process because the JAX distributed service detected fatal errors."
NO_LEADER = "absl::Status: UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was preempted/died/restarted"
LEADER = (
    "unexpectedly or this task is experiencing network issues. Check earlier logs from 1) this task, 2) the leader (usually slice 0 task 0)"
)
BARRIER = "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: step_1::0."
# As JAX 0.10.2 wrote on CPUs, but for the names of tasks of an older one.
OF_JAX = {
    "heart beats": (f"{ENDS_ITSELF} {UNHEALTHY}\n2\nThe tasks have crashed.\n", 2),
    "heart beats of two": (f"{ENDS_ITSELF} {UNHEALTHY}\n2\n3\nThe tasks have crashed.\n", 2),
    "heart beats, by name": (f"{ENDS_ITSELF} {UNHEALTHY}\n/job:jax_worker/replica:0/task:2\nThe tasks have crashed.\n", 2),
    "a barrier": (f"{BARRIER}\nThe first task at the barrier: 0. Some timed out task names:\n2\n\n\nRPC: /xla/Barrier\n", 2),
    "a barrier, by name": (f"{BARRIER} Timed out task names:\n/job:jax_worker/replica:0/task:2\n/job:jax_worker/replica:0/task:3\n", 2),
    "the coordinator": (f"{ENDS_ITSELF} {NO_LEADER} {LEADER}, and 3) cluster scheduler to debug further.\n", 0),
}


@pytest.mark.parametrize(("text", "rank"), OF_JAX.values(), ids=OF_JAX)
def test_a_process_of_jax_that_others_name(text: str, rank: int) -> None:
    known = Catalogue(helpers.plan(helpers.local()))
    alone = waits(1)
    alone = replace(alone, ends=(replace(alone.ends[0], output=text),))
    judged = blame.judge(list(suspects.diagnose(alone, known)))
    assert judged.culprit
    assert judged.culprit.rank == rank
    assert judged.reason.startswith(f"rank {rank} on node {rank} (h{rank}) did not answer: ")


def test_a_cause_goes_before_the_rank_that_others_waited_for() -> None:
    known = Catalogue(helpers.plan(helpers.local()))
    cause = replace(suspect(11.0, "cause"), node=3)
    judged = blame.judge([*suspects.diagnose(waits(0), known), cause])
    assert judged.because[0].rule == "known-error"
    assert [each.rank for each in judged.failures] == [0]


@pytest.mark.parametrize(("later_s", "names"), [(-1.0, ["orted", "ranklaunch"]), (0.05, ["ranklaunch"])])
def test_a_daemon_fails_only_before_ranklaunch_ends_the_node(later_s: float, names: list[str]) -> None:
    """ranklaunch kills the daemons that carried another node's ranks here when it has been killed itself."""
    daemon = RankEnd(0, None, None, 9, None, "orted", "daemon", None, 9, 137, 9, ENDED + later_s)
    alone = replace(node(daemon), ending=Ending(Judgement("failed", 137, ""), ENDED, killed=True), ends=(daemon,))
    known = Catalogue(helpers.plan(helpers.local()))
    assert [each.culprit and each.culprit.name for each in suspects.diagnose(alone, known)] == names
