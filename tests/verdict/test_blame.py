"""Who is to blame, and that what is told of it arrives as it was sent."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import helpers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranklaunch.catalogue import shipped
from ranklaunch.muster import liveness, wire
from ranklaunch.verdict import blame, messages, model
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import LATE, WAITING, Culprit, KnownError, Note

CAUSE = KnownError("x", "cause", "RuntimeError: boom", "a cause", "mend it", "https://example.org")
CONSEQUENCE = replace(CAUSE, kind="consequence", line="peer closed")
STOPPED = replace(CAUSE, kind="stopped", line="KeyboardInterrupt")
BY_MINDSPORE = "[INFO] DISTRIBUTED(12,7f7e5159b6c0,python):2026-11-28-12:54:46.346.392 [mindspore/ccsrc/cluster/rpc/core/tcp_server.cc:314]"
LEFT = "destroy_process_group() was not called before program exit"


def culprit(rank: int | None = 1, node: int = 0, **more: Any) -> Culprit:
    values: dict[str, Any] = {"pid": 7, "exit_code": 3, "signal": None, "out_of_memory": False, "last_lines": ("boom",), "host": "h"}
    return Culprit(node=node, rank=rank, **{**values, **more})


def suspect(at: float, rank: int = 1, error: KnownError | None = None, **more: Any) -> Suspect:
    return Suspect(0, at, "failed", 3, "", culprit(rank, error=error), **more)


# Who it was


def test_the_first_is_to_blame() -> None:
    judgement = blame.judge([suspect(3, 3), suspect(1, 1), suspect(2, 2)])
    assert judgement.culprit == culprit(1)
    assert [other.rank for other in judgement.failures] == [2, 3]
    assert [other.last_lines for other in judgement.failures] == [(), ()]
    assert judgement.reason == "rank 1 on node 0 (h) exited with code 3; its last line: boom"


def test_a_consequence_does_not_win_over_a_cause_however_early_it_is() -> None:
    judgement = blame.judge([suspect(1, 1, CONSEQUENCE), suspect(2, 2, CONSEQUENCE), suspect(9, 9, CAUSE), suspect(10, 10)])
    assert judgement.culprit
    assert judgement.culprit.rank == 9
    assert judgement.reason == "rank 9 on node 0 (h) exited with code 3: RuntimeError: boom"
    assert [other.rank for other in judgement.failures] == [10, 1, 2]


@pytest.mark.parametrize(
    ("signal", "later_s", "rank"),
    [("SIGKILL", 0.03, 2), ("SIGKILL", 1.0, 1), ("SIGSEGV", 0.03, 2), ("SIGSEGV", 0.2, 1), ("SIGABRT", 0.03, 1), (None, 0.03, 1)],
)
def test_a_crash_was_before_what_others_failed_of_while_its_end_was_not_seen_yet(signal: str | None, later_s: float, rank: int) -> None:
    crash = Suspect(0, 10.0 + later_s, "failed", 137, "", culprit(2, signal=signal))
    judgement = blame.judge([suspect(10.0, 1, CAUSE), crash])
    assert judgement.culprit
    assert judgement.culprit.rank == rank


@pytest.mark.parametrize(("later_s", "rank"), [(1.0, 2), (3.0, 1)])
def test_who_has_timed_out_comes_before_those_that_saw_its_connections_end(later_s: float, rank: int) -> None:
    """All had waited for another, and the others noticed it first."""
    judgement = blame.judge([suspect(5, 1, CONSEQUENCE), suspect(5 + later_s, 2, replace(CONSEQUENCE, name="gloo-timeout"))])
    assert judgement.culprit
    assert judgement.culprit.rank == rank


def test_who_was_killed_for_memory_is_no_consequence_whatever_it_had_written() -> None:
    killed = suspect(1, 1, CONSEQUENCE)
    assert killed.culprit
    killed = replace(killed, culprit=replace(killed.culprit, exit_code=137, signal="SIGKILL", out_of_memory=True))
    judgement = blame.judge([killed, suspect(2, 2, CAUSE)])
    assert judgement.culprit
    assert judgement.culprit.rank == 1


@pytest.mark.parametrize(("seen_s", "name", "failures"), [(0.02, "ranklaunch", 0), (0.2, "ranklaunch", 0), (-1.0, "rank 1", 1)])
def test_ranks_that_end_with_a_killed_ranklaunch_are_no_failures_of_their_own(seen_s: float, name: str, failures: int) -> None:
    """A launcher on another node reports them within milliseconds."""
    own = blame.of_ranklaunch(Suspect(2, 10.0, "failed", 137, "killed"), "h2", several=True, killed=True, hung=False)
    rank = Suspect(0, 10.0 + seen_s, "failed", 137, "", culprit(1, 2, pid=None, exit_code=137, signal="SIGKILL"))
    judgement = blame.judge([rank, own])
    assert judgement.culprit
    assert (blame.name(judgement.culprit), len(judgement.failures)) == (name, failures)


@pytest.mark.parametrize("by", ["SIGKILL", None])
def test_what_the_kernel_of_its_own_node_says_of_a_rank_is_of_the_same(by: str | None) -> None:
    """Of a shell, whose program was killed, a launcher on another node sees the exit code."""
    seen, proof = suspect(1, 1, CONSEQUENCE), suspect(2, 2)
    assert seen.culprit
    assert proof.culprit
    seen = replace(seen, culprit=replace(seen.culprit, exit_code=137, signal=by, pid=None))
    told = replace(proof.culprit, rank=None, pid=None, exit_code=137, signal="SIGKILL", out_of_memory=True, node=seen.culprit.node)
    judgement = blame.judge([seen, replace(proof, culprit=told, reason=f"{blame.sentence(told)}, by the kernel's own count")])
    assert judgement.culprit
    assert (judgement.culprit.rank, judgement.culprit.out_of_memory) == (1, True)
    assert judgement.reason.endswith("by the kernel's own count")


def test_where_there_are_consequences_only_the_first_is_told_as_one() -> None:
    judgement = blame.judge([suspect(2, 2, CONSEQUENCE), suspect(1, 1, CONSEQUENCE)])
    expected = (
        "rank 1 on node 0 (h) exited with code 3, which looks like the consequence of another failure that left no trace: peer closed"
    )
    assert judgement.reason == expected


def test_a_suspect_without_a_process_keeps_its_reason() -> None:
    lost = Suspect(4, 1.0, "failed", 75, "node 4 does not answer")
    judgement = blame.judge([suspect(2), lost])
    assert (judgement.reason, judgement.exit_code, judgement.culprit) == ("node 4 does not answer", 75, None)
    assert [other.rank for other in judgement.failures] == [1]


def test_a_stop_request_is_no_failure() -> None:
    judgement = blame.judge([Suspect(0, 1.0, "stopped", 143, "SIGTERM"), suspect(2)])
    assert (judgement.outcome, judgement.exit_code) == ("stopped", 143)


def test_a_rank_that_had_lost_another_before_a_stop_is_noted() -> None:
    """Who stops a job may stop one node before the other; it may have failed by itself, too."""
    lost = suspect(0.4, error=CONSEQUENCE)
    judgement = blame.judge([Suspect(0, 1.0, "stopped", 143, "SIGTERM"), lost, suspect(2.0, 2)])
    assert (judgement.outcome, judgement.exit_code) == ("stopped", 143)
    assert lost.culprit
    assert judgement.notes == (f"0.6 s before the stop, {blame.sentence(lost.culprit)}",)


def test_a_rank_is_not_its_own_companion() -> None:
    """Its launcher has seen it end, and its output says why."""
    judgement = blame.judge([suspect(1, 1), suspect(2, 1), suspect(3, 2)])
    assert [other.rank for other in judgement.failures] == [2]


def test_only_some_others_are_listed() -> None:
    judgement = blame.judge(suspect(n, n) for n in range(100))
    assert [other.rank for other in judgement.failures] == list(range(1, 1 + blame.MOST_FAILURES))


@given(st.lists(st.tuples(st.floats(0, 9), st.booleans()), min_size=1, max_size=9))
def test_no_other_was_both_earlier_and_no_less_a_cause(given_: list[tuple[float, bool]]) -> None:
    suspects = [suspect(at, n, CONSEQUENCE if late else CAUSE) for n, (at, late) in enumerate(given_)]
    found = blame.ordered(suspects)
    assert sorted(s.culprit.rank or 0 for s in found if s.culprit) == list(range(len(suspects)))
    for one, next_ in zip(found, found[1:]):
        assert (one.is_consequence, one.at) <= (next_.is_consequence, next_.at)
    assert blame.judge(suspects).culprit == found[0].culprit
    # What two nodes sort by themselves is sorted the same together: each may send its list cut after its first.
    halves = [blame.ordered(half)[0] for half in (suspects[::2], suspects[1::2]) if half]
    assert blame.ordered(halves)[0] == found[0] or halves[0].at == halves[-1].at


def test_errors_that_are_judged_by_their_names_are_in_the_catalogue() -> None:
    assert {*model.OF_ITS_OWN, *blame.AFTERMATHS, *blame.OF_COLLECTIVES} <= {entry.name for entry in shipped()}


def test_one_that_was_interrupted_is_what_others_noticed() -> None:
    noticed, interrupted = suspect(1.0, 0, CONSEQUENCE), suspect(2.0, 1, STOPPED)
    assert blame.judge([noticed, interrupted]).culprit == interrupted.culprit
    late = replace(suspect(0.0, 2, CAUSE), late=True)  # it may have caught what it tells of
    assert blame.judge([noticed, interrupted, late]).culprit == interrupted.culprit
    assert blame.judge([noticed, late]).culprit == late.culprit


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "rank 1 on node 0 (h) exited with code 3; its last line: boom"),
        ({"last_lines": ()}, "rank 1 on node 0 (h) exited with code 3"),
        (
            {"last_lines": ("no key lr", f"[rank1]:[W1126 21:28:58.293137035 ProcessGroupNCCL.cpp:1575] {LEFT}")},
            "rank 1 on node 0 (h) exited with code 3; its last line: no key lr",
        ),
        (
            {"last_lines": ("config: vocab_size is missing", f"{BY_MINDSPORE} Start] Event base dispatch success!")},
            "rank 1 on node 0 (h) exited with code 3; its last line: config: vocab_size is missing",
        ),
        (
            {"last_lines": (f"/x.py:3: UserWarning: {LEFT}",)},
            f"rank 1 on node 0 (h) exited with code 3; its last line: /x.py:3: UserWarning: {LEFT}",
        ),
        ({"host": ""}, "rank 1 on node 0 exited with code 3; its last line: boom"),
        ({"signal": "SIGSEGV"}, "rank 1 on node 0 (h) was killed by SIGSEGV; its last line: boom"),
        (
            {"signal": "SIGKILL", "out_of_memory": True},
            "rank 1 on node 0 (h) was killed by SIGKILL: out of memory, by the kernel's own count",
        ),
        ({"rank": None, "name": "torchrun"}, "torchrun on node 0 (h) exited with code 3; its last line: boom"),
        ({"error": CAUSE}, "rank 1 on node 0 (h) exited with code 3: RuntimeError: boom"),
    ],
)
def test_sentence(more: dict[str, Any], text: str) -> None:
    assert blame.sentence(replace(culprit(), **more)) == text


@helpers.for_each(
    [
        ({"exit_code": 139}, "memory that is not its own"),
        ({"exit_code": 134, "signal": "SIGABRT"}, "called abort()"),
        ({"exit_code": 135}, "/dev/shm"),
        ({"exit_code": 132}, "processor does not have"),
        ({"exit_code": 137}, "lack of memory"),
        ({"exit_code": 255}, "exit code of ssh"),
        ({"exit_code": 124}, "exit code of `timeout`"),
        ({"exit_code": 127}, "does not find a program"),
        ({"exit_code": 143}, "asked to end"),
        ({"exit_code": 137, "out_of_memory": True}, "remedy: use less memory"),
        ({"exit_code": 1, "out_of_memory": True, "error": CAUSE}, "remedy: use less memory"),
        ({"exit_code": 139, "error": replace(CAUSE, meaning="")}, None),
        ({"exit_code": 3}, None),
        ({"exit_code": 254}, None),
    ]
)
def test_what_an_exit_code_says_where_words_say_nothing(more: dict[str, Any], said: str | None) -> None:
    told = list(blame.advice(replace(culprit(), **more)))
    assert len(told) == (said is not None)
    assert all(said in line for line in told if said)


def test_the_same_error_on_all_ranks_is_the_programs() -> None:
    def of(*lines: str, hosts: int = 2, retry: str = "") -> tuple[str, ...]:
        errors = [replace(CAUSE, line=line, retry=retry) for line in lines]
        culprits = [culprit(n, n % hosts, error=error) for n, error in enumerate(errors)]
        return blame.judge([Suspect(each.node, 1, "failed", 3, "", each) for each in culprits]).notes

    (note,) = of("KeyError: rank 0", "KeyError: rank 1")
    assert note.startswith("2 ranks ended with the same error")
    assert not of("KeyError: rank 0")
    launchers = [Suspect(node, node, "failed", 126, "", culprit(None, node, error=CAUSE)) for node in range(2)]
    assert not blame.judge(launchers).notes
    assert not of("KeyError: rank 0", "ValueError: rank 1")
    assert not blame.judge([suspect(1, 1, CONSEQUENCE), suspect(2, 2, CONSEQUENCE)]).notes
    assert not of("KeyError: rank 0", "KeyError: rank 1", retry="elsewhere")  # whatever is wrong with both hosts
    (note,) = of("KeyError: rank 0", "KeyError: rank 1", hosts=1)
    assert note == "2 ranks of one host ended with the same error: the cause is not one rank, but the program or the host"


def test_the_same_error_of_ranks_that_differ_may_be_one_ranks() -> None:
    """A collective hands it to all of them, whoever it was."""
    error = replace(CAUSE, name="horovod-ranks-differ", line="Mismatched ALLREDUCE tensor shapes")
    culprits = [culprit(n, n, error=error) for n in range(2)]
    (note,) = blame.judge([Suspect(each.node, 1, "failed", 1, "", each) for each in culprits]).notes
    assert note.endswith("about a difference between ranks: the named rank need not be the wrong one")


def test_the_same_error_of_those_that_waited_for_one_that_hangs_is_not_noted() -> None:
    hung = Suspect(1, 0, "failed", 3, "the job hung, by rank 2 on node 1")
    assert not blame.judge([hung, suspect(1, 0, CAUSE), suspect(2, 1, CAUSE)]).notes


def test_what_ranks_had_said_that_were_still_there_counts_where_the_first_had_lost_somebody() -> None:
    """Other nodes note it without knowing what decides."""
    said = Note(
        "rank 3 on node 1 (h1) was still running when it was stopped, but its thread writer had failed: OSError: [Errno 28]", WAITING, 3
    )
    full = Note("node 1 (h1): the file system of /tmp is full")
    for first, notes in ((CONSEQUENCE, (said, full)), (CAUSE, (full,))):
        assert blame.judge([suspect(1, 0, first)], notes=[said, full]).notes == tuple(note.text for note in notes)
    assert said.text in blame.judge([Suspect(0, 1, "stopped", 143, "stopped by SIGTERM")], notes=[said]).notes


def test_a_node_that_is_lost_and_did_not_decide_is_noted() -> None:
    """Its host may have brought about what a rank has failed of."""
    lost = liveness.suspect(0, "h0", True, 5.0)
    judged = blame.judge([suspect(1, 1, CAUSE), lost])
    assert (judged.culprit and judged.culprit.rank, judged.notes) == (1, ("node 0 (h0) does not answer",))
    assert not blame.judge([lost]).notes


def test_the_rank_that_has_not_failed_may_be_the_one_that_others_waited_for() -> None:
    lost = [suspect(1, 0, CONSEQUENCE), suspect(2, 1, CONSEQUENCE)]
    assert list(blame.waited_for(lost, range(3))) == [
        "rank 2 had not failed when the other ranks of its node did: they may have waited for it"
    ]
    assert not list(blame.waited_for(lost, range(4)))
    assert not list(blame.waited_for(lost, range(2)))
    assert not list(blame.waited_for(lost[:1], range(2)))
    assert not list(blame.waited_for([suspect(1, 0, CAUSE), *lost[1:]], range(3)))


# Who had left before


def test_early_zeros_are_noted() -> None:
    finishes = [Finish(2, None, 8.0), Finish(1, 5, 7.5)]
    assert blame.judge([suspect(10)], finishes, [Note("first")]).notes == (
        "first",
        "rank 5 on node 1 had ended with 0, 2.5 s before the failure",
        "node 2 had ended with 0, 2.0 s before the failure",
    )


def test_an_early_zero_is_what_a_consequence_is_of() -> None:
    (note,) = blame.judge([suspect(10, error=CONSEQUENCE)], [Finish(1, 5, 9)]).notes
    assert note == "rank 5 on node 1 had ended with 0, 1.0 s before the failure, which looks like a consequence of that"


def test_who_was_leaving_when_others_lost_it_is_noted() -> None:
    """By Python's own way out, which closes connections first and may take longer than the others' end."""
    (note,) = blame.judge([suspect(10, error=CONSEQUENCE)], [Finish(1, 5, 10.5)]).notes
    assert note == "rank 5 on node 1 ended with 0 by itself, 0.5 s after the failure, and may have caused it"


def test_late_successes_are_noted_of_nodes_alone() -> None:
    assert blame.judge([suspect(10)], [Finish(1, 5, 12.0), Finish(1, None, 12.0)]).notes == (
        "node 1 ended with 0 all the same, 2.0 s after the failure",
    )
    stopped = Suspect(0, 10.0, "stopped", 143, "SIGTERM")
    assert blame.judge([stopped], [Finish(1, 5, 12.0), Finish(1, None, 12.0)]).notes == (
        "node 1 ended with 0 all the same, 2.0 s after the request",
    )


def test_a_success_before_a_stop_request_is_not_after_it() -> None:
    stopped = Suspect(0, 10.0, "stopped", 143, "SIGTERM")
    assert not any("-" in note for note in blame.judge([stopped], [Finish(1, None, 4.0)]).notes)


def test_errors_of_ranks_that_were_being_stopped_come_last_and_are_counted_over_all_nodes() -> None:
    failed = suspect(10, 20)
    named = [Note(f"rank {rank} failed with exit code 1 while it was being stopped", LATE, rank) for rank in range(12)]
    texts = [note.text for note in named]
    disks = [Note(f"a disk of node {node}") for node in range(9)]
    of_nodes = [note for node in range(3) for note in (disks[node], *named[4 * node : 4 * node + 4])]
    more = "8 more ranks failed while they were being stopped"
    assert blame.judge([failed], [], of_nodes).notes == (*(note.text for note in disks[:3]), *texts[:4], more)
    assert [note.text for note in blame.few(named[:6])] == [*texts[:5], "1 more rank failed while it was being stopped"]
    both = blame.few([*blame.few(named[:6]), *blame.few(named[6:])])
    assert [note.text for note in both] == [*texts[:5], "7 more ranks failed while they were being stopped"]
    assert blame.few(named[:5]) == named[:5]
    assert blame.judge([failed], [], [*named, *disks]).notes == tuple(note.text for note in disks[: blame.MOST_NOTES])
    assert blame.judge([suspect(10, 1)], [], named[:3]).notes == (texts[0], texts[2])  # rank 1 is the culprit


def test_notes_are_some() -> None:
    assert len(blame.judge([suspect(1000)], [Finish(n, n, float(n)) for n in range(100)]).notes) == blame.MOST_NOTES


# The wire


def huge(letter: str, error: KnownError | None) -> Culprit:
    big = letter * 100_000
    return culprit(10**9, 10**9, pid=10**9, exit_code=255, signal="SIGRTMIN+15", last_lines=(big,) * 500, name=big, host=big, error=error)


def known(letter: str, length: int = 400) -> KnownError:
    """An entry of the catalogue is no longer than that; the line is the user's."""
    text = "x" * length
    return KnownError(text[:60], "consequence", letter * 100_000, text, text, text)


def fits(message: dict[str, Any], kind: str) -> int:
    codec = wire.Codec(b"key", b"", b"", hub=True)
    return len(codec.frame({"type": kind, kind: message}))


LETTERS = ["x", "é", "训", "🚀", "\0", '"', "\\", "\udce9", "\u2028"]


@pytest.mark.parametrize("letter", LETTERS)
def test_the_largest_suspect_and_judgement_fit_in_a_frame(letter: str) -> None:
    big = letter * 100_000
    culprit_ = huge(letter, known(letter))
    assert fits(messages.as_message(Suspect(10**9, 4e10, "succeeded", 255, big, culprit_)), "suspect") < wire.MOST
    judgement = Judgement("succeeded", 255, big, culprit_, (culprit_,) * 100, (big,) * 100)
    assert fits(messages.as_message(judgement), "judgement") < wire.MOST


def test_every_text_is_cut() -> None:
    big = "x" * 100_000
    culprit_ = replace(huge("x", KnownError(*[big] * 6)), signal=big, time=big)
    value = messages.as_message(Suspect(0, 1.0, "failed", 1, big, culprit_))
    assert len(json.dumps(value)) < wire.MOST


@pytest.mark.parametrize("letter", LETTERS)
def test_the_largest_report_fits_in_a_frame(letter: str) -> None:
    """As muster/nodes.py makes it: the first with its lines, the others without."""
    one = Suspect(10**9, 4e10, "succeeded", 255, letter * 100_000, huge(letter, known(letter)))
    bare = messages.brief(one)
    codec = wire.Codec(b"key", b"", b"", hub=False)
    told = [messages.as_message(each) for each in [one, *[bare] * blame.MOST_FAILURES]]
    finishes = [messages.as_message(Finish(10**9, 10**9, 4e10))] * blame.MOST_NOTES
    codec.frame({"type": "report", "suspects": told, "finishes": finishes})


TEXT = st.text(max_size=20)
NUMBER = st.integers(-(10**6), 10**6)
CODE = st.integers(0, 255)
AT = st.floats(0, 4e10)
OUTCOME = st.sampled_from(["succeeded", "failed", "stopped"])
KNOWN = st.builds(KnownError, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT)
CULPRIT = st.builds(
    Culprit, NUMBER, st.none() | NUMBER, st.none() | NUMBER, CODE, st.none() | TEXT, st.booleans(), st.lists(TEXT, max_size=30).map(tuple),
    TEXT, TEXT, TEXT, st.none() | KNOWN,
)  # fmt: skip
SUSPECT = st.builds(Suspect, NUMBER, AT, OUTCOME.filter(lambda outcome: outcome != "succeeded"), CODE, TEXT, st.none() | CULPRIT)
FINISH = st.builds(Finish, NUMBER, st.none() | NUMBER, AT)
JUDGEMENT = st.builds(
    Judgement, OUTCOME, CODE, TEXT, st.none() | CULPRIT, st.lists(CULPRIT, max_size=10).map(tuple), st.lists(TEXT, max_size=10).map(tuple)
)


def sent(value: Any) -> Any:
    return json.loads(json.dumps(messages.as_message(value)))


@settings(max_examples=40)
@given(SUSPECT)
def test_a_suspect_arrives_as_it_was_cut(value: Suspect) -> None:
    assert messages.suspect(sent(value)) == messages.clipped(value) == messages.clipped(messages.clipped(value))


@settings(max_examples=30)
@given(JUDGEMENT)
def test_a_judgement_arrives_as_it_was_cut(value: Judgement) -> None:
    assert messages.judgement(sent(value)) == messages.clipped(value) == messages.clipped(messages.clipped(value))


@given(FINISH)
def test_a_finish_arrives_as_it_was(value: Finish) -> None:
    assert messages.finish(sent(value)) == value


def test_cutting_keeps_the_last_lines_and_the_beginning_of_each() -> None:
    value = messages.clipped(Suspect(0, 1.0, "failed", 1, "", culprit(last_lines=tuple(f"{n} " + "x" * 999 for n in range(50)))))
    assert [line.split()[0] for line in value.culprit.last_lines] == [str(n) for n in range(30, 50)]
    assert {len(line) for line in value.culprit.last_lines} == {blame.LINE}


def test_the_longest_name_of_a_host_arrives_whole() -> None:
    host = "x" * 63 + "." + "y" * 189
    value = messages.clipped(Suspect(0, 1.0, "failed", 1, "", culprit(host=host)))
    assert value.culprit.host == host


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["failed", 0, 10**300, -1, 256]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
READERS = {"suspect": (messages.suspect, SUSPECT), "finish": (messages.finish, FINISH), "judgement": (messages.judgement, JUDGEMENT)}


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=60)
@given(st.data())
def test_damaged_messages_are_value_errors(kind: str, data: st.DataObject) -> None:
    read, strategy = READERS[kind]
    message = sent(data.draw(strategy))
    for _ in range(data.draw(st.integers(1, 3))):
        place = message
        culprit_ = message.get("culprit") if isinstance(message, dict) else None
        if isinstance(culprit_, dict) and culprit_ and data.draw(st.booleans()):
            place = culprit_
        key = data.draw(st.sampled_from(sorted(place)))
        if data.draw(st.booleans()):
            place[key] = data.draw(ANY)
        else:
            del place[key]
        if not place:
            break
    try:
        value = read(message)
    except ValueError:
        return
    assert messages.as_message(value) is not None  # what is taken can be told on
    if isinstance(value, Suspect):
        assert math.isfinite(value.at)
        assert blame.iso(value.at)


@pytest.mark.parametrize("read", [reader for reader, _ in READERS.values()])
@given(ANY)
def test_anything_is_a_value_error(read: Any, value: Any) -> None:
    with pytest.raises(ValueError):
        read(value)


@pytest.mark.parametrize("at", [float("nan"), float("inf"), -1.0, 4.1e10, "1", None, True, []])
def test_a_time_that_no_calendar_has_is_refused(at: Any) -> None:
    with pytest.raises(ValueError):
        messages.suspect({**sent(suspect(1.0)), "at": at})


def test_a_time_of_four_hundred_digits_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        messages.suspect({**sent(suspect(1.0)), "at": 10**400})


def test_another_nodes_word_is_shown_short_and_without_secrets() -> None:
    error = replace(CAUSE, line="ValueError: --token=hunter2")
    bad = culprit(last_lines=(*["x" * 999] * 99, "HF_TOKEN=hunter2"), error=error)
    word = Judgement("failed", 3, "login --password=hunter2 failed", bad, (bad,) * 99, ("a note with --token=hunter2",) * 99)
    heard = messages.heard(word)
    assert "hunter2" not in repr(heard)
    assert heard.reason == "login --password=*** failed"
    assert heard.culprit
    assert (len(heard.culprit.last_lines), len(heard.failures), len(heard.notes)) == (20, 8, 8)
    plain = Judgement("failed", 3, "rank 1 on node 0 (h) exited with code 3: boom", culprit(error=CAUSE), (), ("node 1 had ended with 0",))
    assert messages.heard(plain) == plain


def test_what_another_node_says_is_one_line_and_does_nothing() -> None:
    told = {**sent(suspect(1.0)), "reason": "bad\nranklaunch: succeeded\x1b[2J"}
    assert messages.suspect(told).reason == "bad; ranklaunch: succeeded\\x1b[2J"


@pytest.mark.parametrize(("outcome", "code"), [("failed", 1), ("stopped", 143)])
def test_what_a_node_tells_of_a_rank_is_no_end_with_0(outcome: str, code: int) -> None:
    assert messages.suspect({**sent(suspect(1.0)), "outcome": outcome, "exit_code": 0}).exit_code == code


def test_a_success_is_nothing_that_others_have_failed_of() -> None:
    with pytest.raises(ValueError, match="outcome 'succeeded'"):
        messages.suspect({**sent(suspect(1.0)), "outcome": "succeeded", "exit_code": 0})


@pytest.mark.parametrize(("outcome", "code"), [("failed", 1), ("stopped", 143), ("succeeded", 0)])
def test_a_failure_with_exit_code_0_is_none_with_0(outcome: str, code: int) -> None:
    told = {**sent(Judgement("failed", 3, "x")), "outcome": outcome, "exit_code": 0}
    assert messages.judgement(told).exit_code == code


@pytest.mark.parametrize(("said", "code"), [(1, 143), (128, 143), (129, 129), (192, 192), (200, 143), (255, 143)])
def test_what_was_stopped_ends_as_by_a_signal_whatever_another_node_says(said: int, code: int) -> None:
    told = {**sent(suspect(1.0)), "outcome": "stopped", "exit_code": said}
    assert messages.clipped(messages.suspect(told)).exit_code == code


# Last words on the console


@helpers.for_each(
    {
        "some": (("x", "y"), 1, "last lines of rank 1:", ("x", "y")),
        "none": ((), 1, "rank 1 wrote nothing", ()),
        "none of a launcher's": ((), None, "", ()),
    }
)
def test_last_lines_of_the_culprit(lines: tuple[str, ...], rank: int | None, said: str, below: tuple[str, ...]) -> None:
    assert blame.last_words(culprit(rank=rank, last_lines=lines)) == (said, below)
