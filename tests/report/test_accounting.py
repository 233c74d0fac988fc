"""Where the time went: buckets that add up to the wall time, whatever was seen or not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from left_behind import BEGAN, LeftBehind

from ranklaunch.report import assembly, model
from ranklaunch.report.accounting import timeline
from ranklaunch.report.formats import html, prom, text
from ranklaunch.report.layers import painted
from ranklaunch.report.model import Report, Seen, Span
from ranklaunch.report.rounds import Together, regained


def seconds(report: Report) -> dict[str, float]:
    """Of each bucket that is not empty."""
    buckets = report.accounting.buckets
    assert sum(getattr(buckets, name) for name in model.BUCKETS) == pytest.approx(report.accounting.wall_s, abs=1e-6)
    found = {name.removesuffix("_s"): getattr(buckets, name) for name in model.BUCKETS}
    return {name: pytest.approx(value, abs=0.002) for name, value in found.items() if value > 0.002}


def test_a_success_by_its_steps_saves_and_stalls(left: LeftBehind) -> None:
    for number in (0, 1):
        node = left.node(number).starts(float(number), 4.0, 4.5)
        node.steps(10.0, 1)
        node.tell(20.0, "saved", seconds=3.0, ago_s=2.0)
        node.steps(30.0, 50)
        if number == 0:
            node.tell(45.0, "hang", text="nothing moves", since="2026-09-21T14:13:55+00:00")  # BEGAN + 35
            node.tell(50.0, "hang", text="it moves again", since=None)
        node.ends(60.0, 62.0).verdict()
    report = assembly.report(str(left.folder))
    assert seconds(report) == {"waiting": 4.0, "startup": 6.0, "productive": 32.0, "saving": 3.0, "stalled": 15.0, "stopping": 2.0}
    told = report.accounting
    assert (told.goodput, told.time_to_first_step_s, told.interruptions) == (pytest.approx(32 / 62), pytest.approx(10.0), 0)


def test_the_time_of_a_slow_job_is_a_part_of_its_steps(left: LeftBehind) -> None:
    """What stalls meanwhile is not slow, and what two nodes tell counts once. slow_s is beside the buckets."""
    for number in (0, 1):
        node = left.node(number).starts(float(number), 4.0, 4.5).steps(10.0, 1).steps(58.0, 50)
        node.tell(25.0, "slow", text="slow", over=False, since="2026-09-21T14:13:40+00:00")  # BEGAN + 20
        if number == 0:
            node.tell(35.0, "hang", text="nothing moves", since="2026-09-21T14:13:48+00:00")
            node.tell(38.0, "hang", text="it moves again", since=None)
        node.tell(47.0, "slow", text="fast", over=True, since="2026-09-21T14:14:05+00:00")
        node.tell(56.0, "slow", text="slow", over=False, since="2026-09-21T14:14:15+00:00")
        node.ends(60.0, 62.0).verdict()
    report = assembly.report(str(left.folder))
    assert seconds(report) == {"waiting": 4.0, "startup": 6.0, "productive": 40.0, "stalled": 10.0, "stopping": 2.0}
    assert report.accounting.slow_s == pytest.approx(25.0 - 10.0 + 5.0, abs=0.002)
    assert report.attempts[0].accounting == replace(report.accounting, gaps_s=0.0)
    assert "\n  of which slow              20.0 s   32.3 %\n" in text.shown(report)
    assert "the job was slow for 20.0 s" in html.shown(report)
    assert 'ranklaunch_report_slow_seconds{job="bert"} 20\n' in prom.shown(report)


def test_steps_that_are_done_again_after_a_restart(left: LeftBehind) -> None:
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 1).steps(14.0, 10)
    node.ends(15.0, 16.0, "failed", 1).round("rank 1 died", "starting all ranks again")
    again = left.node(restart=1).starts(16.0, 18.0, 18.5).steps(20.0, 6).steps(26.0, 12)
    again.ends(30.0, 31.0).verdict()
    report = assembly.report(str(left.folder))
    # Step 10 comes again 4 seconds after step 6: a step takes one.
    assert seconds(report) == {
        "waiting": 1.0, "startup": 6.0, "productive": 16.0, "repeated": 4.0, "stopping": 2.0, "gate": 2.0,
    }  # fmt: skip
    assert report.accounting.time_to_recover_s == (pytest.approx(5.0),)
    assert report.accounting.interruptions == 1
    assert [each.best for each in report.attempts[0].rounds] == [(0, 10), (0, 12)]


def test_one_node_is_released_by_nobody(left: LeftBehind) -> None:
    left.node().tell(0.0, "spawn", name="rank 0", rank=0, pid=1).steps(3.0, 1).ends(4.0, 5.0, "failed", 1).round("it died", "again")
    again = left.node(restart=1).tell(5.0, "read", platform="local", method="spawn", why="", attempt=1, container_s=None)
    again.tell(7.0, "spawn", name="rank 0", rank=0, pid=2).steps(9.0, 2).ends(12.0, 12.0).verdict()
    report = assembly.report(str(left.folder))
    assert seconds(report) == {"startup": 5.0, "productive": 4.0, "stopping": 1.0, "gate": 2.0}


def test_between_attempts_the_time_is_the_platforms(left: LeftBehind) -> None:
    left.node(attempt=1).starts(0.0, 1.0, 1.0).steps(3.0, 1).steps(9.0, 7).ends(10.0, 11.0, "failed", 1).verdict("failed", 1, "it died")
    left.node(attempt=2).starts(111.0, 112.0, 112.0).steps(115.0, 7).steps(118.0, 10).ends(120.0, 121.0).verdict()
    report = assembly.report(str(left.folder))
    told = report.accounting
    assert (told.wall_s, told.gaps_s, report.ended - report.began) == (pytest.approx(21.0), pytest.approx(100.0), pytest.approx(121.0))
    assert seconds(report) == {"waiting": 2.0, "startup": 5.0, "productive": 12.0, "stopping": 2.0}
    assert told.time_to_recover_s == (pytest.approx(105.0),)
    assert [gap.after for gap in report.gaps] == [1]


def test_without_steps_the_outer_buckets_are_left(left: LeftBehind) -> None:
    left.node().starts(0.0, 1.0, 2.0).ends(9.0, 10.0).verdict()
    report = assembly.report(str(left.folder))
    assert seconds(report) == {"waiting": 1.0, "startup": 1.0, "running": 7.0, "stopping": 1.0}
    assert (report.accounting.steps_seen, report.accounting.goodput) == (False, None)


def test_nodes_whose_clocks_differ(left: LeftBehind) -> None:
    left.node(0).starts(0.0, 4.0, 4.5).steps(10.0, 1).ends(60.0, 62.0).verdict()
    left.fast = 100.0
    left.node(1).starts(1.0, 4.0, 4.5).steps(10.0, 1).ends(60.0, 62.0).verdict()
    report = assembly.report(str(left.folder))
    assert (report.began, report.ended) == (pytest.approx(BEGAN), pytest.approx(BEGAN + 62))
    assert seconds(report) == {"waiting": 4.0, "startup": 6.0, "productive": 50.0, "stopping": 2.0}


def test_the_container_began_before_ranklaunch_did(left: LeftBehind) -> None:
    node = left.node()
    node.tell(30.0, "read", platform="local", method="spawn", why="", attempt=1, container_s=30.0)
    node.tell(31.0, "spawn", name="rank 0", rank=0, pid=7).steps(33.0, 1).ends(40.0, 40.0).verdict()
    report = assembly.report(str(left.folder))
    assert seconds(report) == {"startup": 33.0, "productive": 7.0}
    assert report.attempts[0].rounds[0].nodes[0].spans[0] == Span(model.CONTAINER, pytest.approx(BEGAN), pytest.approx(BEGAN + 30))


def test_a_node_that_was_gone(left: LeftBehind) -> None:
    """Until the others say so, nothing goes on."""
    node = left.node(0).starts(0.0, 1.0, 2.0).steps(4.0, 1).steps(100.0, 90)
    node.ends(130.0, 131.0, "failed", 75).verdict("failed", 75, "node 1 is lost")
    left.node(1).starts(0.0, 1.0, 2.0).steps(4.0, 1).steps(100.0, 90)
    report = assembly.report(str(left.folder))
    assert seconds(report) == {"waiting": 1.0, "startup": 3.0, "productive": 106.0, "stalled": 20.0, "stopping": 1.0}


def test_when_training_stands_where_it_had_been() -> None:
    steps = (Seen(10.0, 0, 4), Seen(14.0, 0, 8), Seen(20.0, 1, 2))
    for before, at in (((0, 4), 10.0), ((0, 6), 12.0), ((0, 9), 20.0), ((1, 2), 20.0), ((1, 3), None), (None, 10.0)):
        assert regained(Together(0, first_step=10.0, steps=(steps,)), before) == at, before


times = st.one_of(st.none(), st.floats(0, 100))


@given(st.lists(st.lists(st.tuples(st.floats(-10, 110), times), max_size=4), max_size=5))
def test_what_is_seen_from_above_covers_the_line(layers: list[list[tuple[float, float | None]]]) -> None:
    spans = painted(0.0, 100.0, [[Span(str(level), *each) for each in layer] for level, layer in enumerate(layers)], "ground")
    assert [span.began for span in spans] == [0.0, *(span.ended for span in spans[:-1])]
    assert spans[-1].ended == 100.0


@given(st.lists(st.tuples(st.floats(0, 90), *[times] * 6), max_size=3))
def test_buckets_add_up_whatever_is_known(told: list[tuple[float | None, ...]]) -> None:
    rounds = [
        Together(number, began=began, sign=max(began or 0, sign or 0), released=released, launched=launched, first_step=first,
                 failed=failed, ended=ended, waits=(Span("muster", began or 0, released),), lost_node=bool(number))
        for number, (began, sign, released, launched, first, failed, ended) in enumerate(told)
    ]  # fmt: skip
    for steps_seen in (False, True):
        spans = timeline(0.0, 100.0, rounds, (0, 3), steps_seen)
        assert sum((span.ended or 0) - span.began for span in spans) == pytest.approx(100.0)
        assert {span.kind for span in spans} <= set(model.BUCKETS)
