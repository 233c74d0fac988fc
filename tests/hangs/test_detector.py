"""When a job is said to hang: by what its nodes say of windows, and by nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranklaunch.hangs.alarms import Judging
from ranklaunch.hangs.detector import ALARM, OVER, WARNING, Change, Detector, Limits
from ranklaunch.hangs.expect import parse
from ranklaunch.hangs.frames import Frame, Rule
from ranklaunch.hangs.sample import Seen
from ranklaunch.hangs.suspicion import Raised

LIMITS = Limits(hang_s=300, first_step_s=1800)
STILL = Seen(0, "S", 0, 0, 0.01, False, False, False, step=7)
SPINS = STILL._replace(cpu=1.0, full=True)
UNSTEADY = STILL._replace(cpu=0.5)
LIFE = {
    "output": STILL._replace(output=1),
    "I/O": STILL._replace(io=65536),
    "a debugger": STILL._replace(traced=True, state="t"),
    "a new process": STILL._replace(started=True),
    "CPU": UNSTEADY,
}


def frame(
    *ranks: Seen, seconds: float = 60, traffic: bool | None = None, devices: bool | None = None, rules: tuple[Rule, ...] = ()
) -> Frame:
    return Frame(seconds, ranks or (STILL,), traffic, devices, rules)


def fed(*frames: Frame, nodes: int = 1, limits: Limits = LIMITS, expected: str = "") -> list[tuple[float, Change]]:
    """A frame of each node each time; what was said, and when."""
    detector = Detector(range(nodes), limits, 0.0, parse(expected))
    said, now = [], 0.0
    for each in frames:
        now += each.seconds
        for node in range(nodes):
            said += [(now, change) for change in detector.feed(node, each, now)]
    return said


def kinds(said: list[tuple[float, Change]]) -> list[tuple[float, str]]:
    return [(at, change.kind) for at, change in said]


def test_suspicion_grows_and_is_taken_back() -> None:
    said = fed(*[frame()] * 6, frame(LIFE["output"]), frame())
    assert kinds(said) == [(180, WARNING), (300, ALARM), (420, OVER)]
    assert said[1][1] == Change(ALARM, 0.0, ("output", "I/O", "CPU"), limit_s=300, setting="RANKLAUNCH_HANG_S")
    assert said[2][1].signals == ("output",)


def test_a_node_of_which_nothing_is_heard_ends_no_alarm() -> None:
    """It is no sign that anything moves again."""
    detector = Detector(range(2), LIMITS, 0.0)
    said = []
    for window in range(1, 16):
        for node in (0,) if 6 < window < 12 else (0, 1):
            said += [(window, change.kind) for change in detector.feed(node, frame(LIFE["I/O"] if window == 15 else STILL), 60.0 * window)]
    assert said == [(3, WARNING), (5, ALARM), (15, OVER)]


def test_one_burst_costs_a_window_and_one_pause_is_none() -> None:
    assert kinds(fed(*[frame()] * 4, frame(LIFE["I/O"]), *[frame()] * 5)) == [(180, WARNING), (300, OVER), (480, WARNING), (600, ALARM)]
    assert kinds(fed(*[frame(LIFE["output"]), frame(), frame()] * 9)) == []


@pytest.mark.parametrize("sign", LIFE)
def test_any_sign_of_life_of_one_rank_is_the_jobs(sign: str) -> None:
    assert fed(*[frame(STILL, LIFE[sign], STILL)] * 50, nodes=2) == []


def test_traffic_and_devices_are_life_and_what_is_not_there_is_left_out() -> None:
    assert fed(*[frame(traffic=True)] * 50) == fed(*[frame(devices=True)] * 50) == []
    (_, _), (_, alarm) = fed(*[frame(STILL._replace(io=None), traffic=False)] * 5)
    assert alarm.signals == ("output", "CPU", "traffic")


def test_a_full_core_is_life_until_the_first_step_alone() -> None:
    compiles = SPINS._replace(step=-1)
    assert kinds(fed(*[frame(SPINS)] * 5)) == [(180, WARNING), (300, ALARM)]
    assert kinds(fed(*[frame(compiles)] * 40)) == [(900, WARNING), (1800, ALARM)]


WAITS = STILL._replace(step=-1)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        pytest.param([frame(WAITS)] * 40, [(900, WARNING), (1800, ALARM)], id="nothing printed: RANKLAUNCH_FIRST_STEP_S"),
        pytest.param([frame(WAITS._replace(printed=True))] * 9, [(180, WARNING), (300, ALARM)], id="one line: RANKLAUNCH_HANG_S"),
        pytest.param([frame(WAITS), frame(WAITS._replace(printed=True))] * 9, [(180, WARNING), (300, ALARM)], id="one rank prints"),
        pytest.param(
            [frame(SPINS._replace(step=-1, printed=True))] * 40,
            [(900, WARNING), (1800, ALARM)],
            id="one line, busy: RANKLAUNCH_FIRST_STEP_S",
        ),
        pytest.param(
            [frame(SPINS._replace(step=-1, printed=True))] * 5 + [frame(WAITS)] * 9,
            [(480, WARNING), (600, ALARM)],
            id="one line, busy for a while: RANKLAUNCH_HANG_S from then on",
        ),
        pytest.param(
            [frame(LIFE["I/O"]._replace(step=-1, printed=True))] * 40 + [frame(SPINS._replace(step=-1))] * 9,
            [(2580, WARNING), (2700, ALARM)],
            id="time for a step has passed: a full core is no sign any more",
        ),
    ],
)  # fmt: skip
def test_the_limit_before_the_first_step(frames: list[Frame], expected: list[tuple[float, str]]) -> None:
    assert kinds(fed(*frames)) == expected


def test_a_node_whose_ranks_have_ended_may_leave() -> None:
    """Its silence ends no suspicion: a rank of another node may hang at its exit."""
    detector = Detector(range(2), LIMITS, 0.0)
    said = []
    for window in range(1, 9):
        frames = {0: frame(), **({1: frame(STILL._replace(rank=1, state=""))} if window < 3 else {})}
        said += [(window, change.kind) for node, each in frames.items() for change in detector.feed(node, each, 60.0 * window)]
    assert said == [(3, WARNING), (5, ALARM)]


def test_silence_names_its_limit() -> None:
    detector = Detector(range(1), LIMITS, 0.0)
    detector.feed(0, frame(WAITS), 60.0)
    assert detector.silence(60.0)[1:] == (0.0, 1800, "RANKLAUNCH_FIRST_STEP_S")
    detector.feed(0, frame(), 120.0)
    assert detector.silence(130.0)[1:] == (0.0, 300, "RANKLAUNCH_HANG_S")
    detector.feed(0, frame(LIFE["output"]), 180.0)
    assert detector.silence(180.0)[0] == 0.0


def test_ranks_that_wrote_steps_and_move_their_cpus_alone_hang() -> None:
    """Five times as long as they ever needed for a step; a device that is busy says nothing either."""
    busy = UNSTEADY._replace(gap=100.0)
    assert kinds(fed(*[frame(busy, devices=True)] * 9)) == [(300, WARNING), (540, ALARM)]
    assert fed(*[frame(busy._replace(io=1 << 20))] * 50) == fed(*[frame(busy, traffic=True)] * 50) == []


RAISED = Raised(1, 60.0, True, "Traceback ...", "ValueError: label 1003")


def raising(at: int, first: Seen = UNSTEADY, **more: object) -> list[Frame]:
    """Nine windows of two ranks, of which the second has raised an exception so many windows before the first."""
    silent = [60.0 * (window + at) for window in range(9)]
    ranks = (first, UNSTEADY._replace(rank=1))
    return [frame(*ranks)._replace(raised=(RAISED._replace(silent_s=each, **more),)) for each in silent]  # type: ignore[arg-type]


def test_what_cpus_do_after_an_exception_that_nobody_caught_is_no_life() -> None:
    """MPI_Finalize asks again and again whether the others have come."""
    assert kinds(fed(*raising(1))) == [(180, WARNING), (300, ALARM)]
    assert fed(*raising(9)) == fed(*raising(1, sure=False)) == []  # the others have gone on since; it may have been caught
    assert fed(*raising(1, first=LIFE["I/O"])) == []
    begins = UNSTEADY._replace(step=-1)
    assert fed(*[each._replace(ranks=(begins, begins)) for each in raising(1)]) == []


def test_exceptions_count_from_the_last_sign_of_life_on() -> None:
    detector = Detector(range(1), LIMITS, 0.0)
    windows = [frame(LIFE["output"])] * 9 + raising(1)
    for number, each in enumerate(windows, 1):
        detector.feed(0, each, 60.0 * number)
    assert detector.raised(60.0 * len(windows) + 5) == {1: RAISED._replace(silent_s=545.0)}
    detector.feed(0, raising(3)[8], 60.0 * len(windows))
    assert detector.raised(60.0 * len(windows)) == {1: RAISED._replace(silent_s=660.0)}
    detector.feed(0, raising(5)[8], 60.0 * len(windows))
    assert detector.raised(60.0 * len(windows)) == {}


def test_a_node_that_says_nothing_is_not_silent() -> None:
    detector = Detector(range(2), LIMITS, 0.0)
    detector.feed(1, frame(), 60)
    assert [detector.feed(0, frame(), 60.0 * at) for at in range(1, 30)] == [[]] * 29
    assert detector.feed(7, frame(), 1800) == []  # nobody's


def test_what_users_expect() -> None:
    never, once = frame(LIFE["output"], rules=(Rule(),)), frame(LIFE["output"], rules=(Rule(30.0),))
    assert kinds(fed(*[never] * 12, expected="loaded by 10m")) == [(600, ALARM)]
    assert fed(once, *[never] * 12, expected="loaded by 10m") == []
    (at, alarm), (later, over) = fed(once, *[never] * 5, once, expected=r"step \d+ every 240s")
    assert (at, alarm.kind, later, over.kind) == (300, ALARM, 420, OVER)
    assert alarm.rule == r"RANKLAUNCH_EXPECT: step \d+ every 240s; the last was 270 s ago"
    wrong = frame(LIFE["output"], rules=(Rule(0.0, "nan", 3),))
    ((at, alarm),) = fed(once, wrong, wrong, expected="loss=(.*) is number")
    assert (at, alarm.rule) == (120, "RANKLAUNCH_EXPECT: loss=(.*) is number, but a line of rank 3 has 'nan'")


def test_a_line_that_comes_as_often_as_it_is_expected_is_life() -> None:
    assert fed(frame(rules=(Rule(0.0),)), *[frame(rules=(Rule(),))] * 50, expected="round every 1h") == []


BROKEN = Rule(5.0, "57.3", 3)


def test_a_limit_alarms_once_and_is_over_once_all_nodes_keep_it() -> None:
    """For as long as a hang would need."""
    broken, kept = frame(LIFE["output"], rules=(BROKEN,)), frame(LIFE["output"], rules=(Rule(),))
    (at, alarm), (later, over), (again, _) = fed(kept, *[broken] * 9, *[kept] * 5, broken, expected=r"loss (\S+) < 20")
    assert (at, later, again) == (120, 900, 960)
    assert alarm == Change(ALARM, 115.0, (), r"RANKLAUNCH_EXPECT: loss (\S+) < 20: rank 3 on node 0 wrote 57.3", 0)
    assert over == Change(OVER, 900, ("output",), r"RANKLAUNCH_EXPECT: loss (\S+) < 20: the limit is kept again", 0)
    assert kinds(fed(broken, *[kept] * 4, broken, expected=r"loss (\S+) < 20")) == [(60, ALARM)]


def test_a_limit_that_one_of_several_nodes_breaks() -> None:
    detector = Detector(range(3), LIMITS, 0.0, parse(r"x every 9h; loss (\S+) < 20"))
    kept = frame(LIFE["output"], rules=(Rule(), Rule()))
    broken = frame(STILL._replace(rank=3), rules=(Rule(), BROKEN))
    said = [
        (window, node, change.rule.partition(": ")[2])
        for window in range(1, 9)
        for node in (0, 1, 2)
        for change in detector.feed(node, broken if node == 1 and window == 2 else kept, 60.0 * window)
    ]
    assert said == [
        (2, 1, r"loss (\S+) < 20: rank 3 on node 1 wrote 57.3"),
        (8, 0, r"loss (\S+) < 20: the limit is kept again"),
    ]  # fmt: skip


def test_a_rank_whose_output_another_node_has_runs_where_it_is_seen() -> None:
    """mpirun has all output on node 0."""
    detector = Detector(range(2), LIMITS, 0.0, parse(r"loss (\S+) < 20"))
    detector.feed(1, frame(STILL._replace(rank=3)), 60)
    (alarm,) = detector.feed(0, frame(STILL, STILL._replace(rank=3), rules=(BROKEN,)), 60)
    assert alarm.rule.endswith("rank 3 on node 1 wrote 57.3")


@pytest.mark.parametrize(
    ("expected", "broken", "words"),
    [
        ("norm (.*) < 50x median", BROKEN._replace(bound=12.5), "rank 3 on node 0 wrote 57.3; the limit is 12.5"),
        ("tflops (.*) > 200 for 10m", BROKEN._replace(age_s=605.0), "rank 3 on node 0 wrote 57.3; no value has kept the limit for 605 s"),
    ],
)
def test_words_of_a_breach(expected: str, broken: Rule, words: str) -> None:
    ((_, alarm),) = fed(frame(LIFE["output"], rules=(broken,)), expected=expected)
    assert alarm.rule == f"RANKLAUNCH_EXPECT: {expected}: {words}"


SOME = st.sampled_from([*LIFE.values()])
ANY = st.sampled_from([STILL, SPINS, *LIFE.values()])


@settings(max_examples=40)
@given(st.lists(st.tuples(SOME, st.lists(ANY, max_size=4)), min_size=1, max_size=30), st.integers(1, 3))
def test_no_alarm_while_any_rank_moves(windows: list[tuple[Seen, list[Seen]]], nodes: int) -> None:
    assert fed(*[frame(*others, life) for life, others in windows], nodes=nodes) == []


@settings(max_examples=40)
@given(st.lists(st.lists(ANY, min_size=1, max_size=4), max_size=12), st.integers(1, 3), st.sampled_from([STILL, SPINS]))
def test_always_an_alarm_where_all_are_still(before: list[list[Seen]], nodes: int, last: Seen) -> None:
    said = fed(*[frame(*ranks) for ranks in before], *[frame(last)] * 5, nodes=nodes)
    assert said[-1][1].kind == ALARM


def test_status_has_the_limit_after_the_first_step() -> None:
    watch = SimpleNamespace(hang="observe", hang_s=900.0, expect="")
    plan = SimpleNamespace(watch=watch, job=SimpleNamespace(node_index=0), muster=None)
    attempt = MagicMock(plan=plan, loop=SimpleNamespace(clock=lambda: 5.0))
    judging = Judging(attempt, Limits(900.0, 1800.0), 0.0)
    expected = {"seconds": 0.0, "limit_s": 1800.0, "setting": "RANKLAUNCH_FIRST_STEP_S", "then_s": 900.0}
    assert judging.silence() == expected
