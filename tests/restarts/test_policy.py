"""What follows a failure: by what is known of it and of those before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import helpers
import pytest

from ranklaunch.errors import WaitError
from ranklaunch.restarts import round_facts
from ranklaunch.restarts.decision import NO_PROGRESS, PAUSES_S, Decision, Past, RoundFacts, Settings, decide
from ranklaunch.verdict.blame import Judgement
from ranklaunch.verdict.model import Culprit, KnownError

THREE = Settings(3)
FULL_DISK = "node 1 (h1): the file system of /ckpt is full: 100 % of 2.0 GiB used"


def culprit(code: int = 7, *lines: str, killed: str | None = None, error: KnownError | None = None) -> Culprit:
    return Culprit(0, 1, 100, code, killed, False, lines or ("it broke",), "rank 1", "", "", error)


def seen(number: int = 0, code: int = 7, by: Culprit | None = None, **more: Any) -> RoundFacts:
    judgement = Judgement("failed", code, "rank 1 failed", by or culprit(code))
    return RoundFacts(**{"number": number, "judgement": judgement, "launched": True, "began": True, "place": (0, 5), **more})


def known(name: str, retry: str = "no") -> Culprit:
    return culprit(1, error=KnownError(name, "cause", "a line", "It is so.", "", "", retry))


def not_written(*notes: str) -> Judgement:
    return Judgement("failed", 1, "rank 1 failed", known("torch-checkpoint-write-failed", ""), notes=notes)


def play(*rounds: RoundFacts, settings: Settings = THREE) -> list[Decision]:
    history: list[Past] = []
    found = []
    for each in rounds:
        found.append(decide(history, each, settings))
        history.append(found[-1].past)
    return found


def test_a_failure_is_followed_by_a_start_of_all() -> None:
    decision = decide([], seen(), THREE)
    assert (decision.again, decision.exit_code, decision.pause_s) == (True, None, 0.0)
    assert decision.sentence == "starting all ranks again, restart 1: after progress (step 5)"


@helpers.for_each(
    [
        ({"launched": False}, "no rank had been started yet"),
        ({"launched": False, "number": 1, "unable": True, "code": 75}, "a round that cannot begin"),
        ({"away": "node 2 (c)"}, "node 2 (c) is gone"),
        ({"finished": True}, "a rank had ended with 0"),
        ({"code": 2}, "exit code 2 "),
        ({"code": 69}, "exit code 69 "),
        ({"code": 78}, "exit code 78 "),
        ({"code": 33}, "RANKLAUNCH_NO_RESTART_CODES"),
        ({"by": known("python-import-error"), "began": False, "place": None}, "python-import-error would occur again"),
        ({"by": known("no-space-left", "")}, "it is so"),
        ({"judgement": not_written(FULL_DISK)}, "not started again: the file system of /ckpt is full: 100 % of 2.0 GiB used"),
        ({"hung": True}, "RANKLAUNCH_HANG=restart lets it start again"),
        ({"judgement": Judgement("stopped", 143, "SIGTERM")}, "a stop was requested"),
    ]
)
def test_what_is_never_started_again(why: dict[str, Any], what: str) -> None:
    decision = decide([], seen(**why), Settings(3, (33,)))
    assert not decision.again
    assert decision.exit_code is None
    assert what in decision.sentence


def test_a_checkpoint_that_was_not_written_where_no_file_system_is_full() -> None:
    assert decide([], seen(judgement=not_written("rank 0 had ended")), THREE).again


@helpers.for_each(
    [
        (True, True, (False, WaitError.exit_code)),
        (True, False, (True, None)),  # of a device, where nobody outside starts the job again
        (False, True, (True, None)),  # another known error with retry = "elsewhere"
    ]
)
def test_a_device_fault_ends_the_job_where_the_platform_starts_it_again(fault: bool, outside: bool, then: tuple[bool, int | None]) -> None:
    decision = decide([], seen(by=known("x", "elsewhere"), device_fault=fault), Settings(3, (), outside))
    assert (decision.again, decision.exit_code) == then


def test_a_hang_that_may_be_restarted_is() -> None:
    hang = Judgement("failed", 75, "no rank has moved for 300 s (RANKLAUNCH_HANG=restart)")
    assert decide([], seen(judgement=hang), THREE).again


def test_a_program_that_names_the_setting_has_not_hung() -> None:
    by_itself = Judgement("failed", 1, "rank 0 exited with code 1: ValueError: RANKLAUNCH_HANG=stop is not for this cluster")
    assert decide([], seen(judgement=by_itself), THREE).again


def test_what_would_come_again_at_the_start_may_be_another_thing_later() -> None:
    assert decide([], seen(by=known("python-import-error")), THREE).again


def test_the_same_failure_at_the_same_place_twice_ends_the_job() -> None:
    nan = [seen(n, 1, culprit(1, f"ValueError: loss is nan after {n} s")) for n in range(3)]
    found = play(*nan)
    assert [decision.again for decision in found[:2]] == [True, False]
    assert found[1].exit_code == NO_PROGRESS
    assert found[1].sentence == "not started again: the same failure came twice at step 5, without progress between them"


def test_the_place_is_where_it_failed_and_not_how_far_the_job_had_come() -> None:
    far, *found = play(seen(0, 137, culprit(137, killed="SIGKILL"), place=(0, 33)), *(seen(n, 1, place=(0, 25)) for n in (1, 2)))
    assert far.again
    assert "the same failure came twice at step 25" in found[1].sentence


def test_what_was_waited_for_in_vain_twice_may_be_there_for_another_job() -> None:
    waited = Judgement("failed", 75, "waited 8 s in vain for rank table /t: no such file")
    found = play(seen(0, 137), *(seen(n, judgement=waited, launched=False, place=None) for n in (1, 2)))
    assert [decision.again for decision in found] == [True, True, False]
    assert found[2].exit_code is None
    assert found[2].sentence.startswith("not started again: the same failure came twice at step 5")


def test_the_same_failure_after_progress_is_no_loop() -> None:
    found = play(*(seen(n, place=(0, 5 * (n + 1))) for n in range(8)))
    assert [(decision.again, decision.pause_s) for decision in found] == [(True, 0.0)] * 8


def test_another_failure_is_not_the_same() -> None:
    found = play(seen(0, 1, culprit(1, "ValueError: a")), seen(1, 1, culprit(1, "KeyError: b")))
    assert all(decision.again for decision in found)


def test_a_kill_without_words_or_place_says_nothing_twice() -> None:
    killed = [seen(n, 137, culprit(137, killed="SIGKILL"), began=False, place=None) for n in range(4)]
    found = play(*killed)
    assert [decision.again for decision in found] == [True, True, True, False]
    assert [decision.pause_s for decision in found[:3]] == list(PAUSES_S[:3])
    assert found[3].exit_code is None
    assert "3 restarts without progress" in found[3].sentence


def test_a_kill_before_any_step_is_not_the_one_before() -> None:
    """Of its round: the step that the round before had come to is not its place."""
    killed = [seen(n, 137, culprit(137, killed="SIGKILL"), began=not n, place=None if n else (0, 8)) for n in range(3)]
    assert [decision.again for decision in play(*killed)] == [True, True, True]
    assert [decision.again for decision in play(killed[0], replace(killed[0], number=1))] == [True, False]


def test_progress_gives_a_restart_back() -> None:
    """One failure after another, each at a place of its own: those that bring nothing use the budget up."""
    rounds = [seen(n, 1, culprit(1, chr(97 + n)), place=(0, place)) for n, place in enumerate((5, 5, 4, 9, 8))]
    assert [decision.again for decision in play(*rounds)] == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("first", "second", "made"),
    [
        ({"marks": True, "mark": 100}, {"marks": True, "mark": 200}, True),
        ({"marks": True, "mark": 100, "place": (0, 5)}, {"marks": True, "mark": None, "place": (0, 90)}, False),  # steps that nothing keeps
        ({"marks": True, "mark": 100}, {"marks": False, "mark": None, "place": (0, 6)}, True),  # unreadable is not none
        ({"place": (0, 90)}, {"place": (1, 2)}, True),
        ({"place": None}, {"place": None, "seconds": 601.0}, True),
        ({"place": None}, {"place": None, "seconds": 599.0}, False),
    ],
)
def test_what_is_progress(first: dict[str, Any], second: dict[str, Any], made: bool) -> None:
    assert play(seen(0, **first), seen(1, **second))[1].past.progress is made


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/ckpt/checkpoint-500", 500), ("/ckpt/global_step1000/", 1000), ("/ckpt/step_12", 12), ("/ckpt/iter_0001000", 1000),
        ("/ckpt/epoch=3-step=77.ckpt", 77), ("/ckpt/latest", None), ("/ckpt/latest_checkpointed_iteration.txt", None), ("/ckpt/7", None),
    ],
)  # fmt: skip
def test_the_number_in_a_name(path: str, number: int | None) -> None:
    assert round_facts.step_in_name(path) == number


@pytest.mark.parametrize(
    ("path", "unfinished"),
    [
        ("/ckpt/checkpoint-8.tmp", True), ("/ckpt/tmp-checkpoint-8", True), ("/ckpt/.tmp_step_8", True), ("/ckpt/step_8.partial/", True),
        ("/ckpt/checkpoint-8_tmp", True), ("/ckpt/checkpoint-8.tmp-1f3a", True), ("/tmp/checkpoint-8", False), ("/ckpt/step_8.pt", False),
        ("/ckpt/temperature-checkpoint-8", False), ("/ckpt/latest", False),
    ],
)  # fmt: skip
def test_what_is_still_written_is_no_checkpoint(path: str, unfinished: bool) -> None:
    assert round_facts.is_unfinished(path) is unfinished


@pytest.mark.parametrize(("text", "number"), [("1000", 1000), ("global_step1000\n", 1000), ("release", None), ("", None)])
def test_the_number_in_a_marker(text: str, number: int | None) -> None:
    assert round_facts.step_in_text(text) == number
