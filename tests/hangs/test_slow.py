"""Slow jobs, by the times of printed steps: which shapes are noticed, and which are the program's own way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from ranklaunch.hangs.steps import Place, Step
from ranklaunch.hangs.straggler import Change, Slow, median, slowest

SEEDS = range(5)
Takes = Callable[[int, random.Random], float]  # the seconds of a step, by its number from 1


class Shape(NamedTuple):
    """steps: of the job. every: steps between two printed ones. epoch: steps of an epoch, 0 for none. look_s: seconds between two looks at
    the output at least. onset: step from which on the job is slow. jitter: standard deviation of a step time, as a part of it."""

    takes: Takes
    steps: int = 1500
    every: int = 1
    epoch: int = 0
    look_s: float = 0.1
    onset: int = 0
    jitter: float = 0.05
    factor: float = 2.0


def printed(shape: Shape, seed: int) -> Iterator[tuple[int, Step]]:
    """Yield (number of the step in the job, the step as it is read)."""
    rng = random.Random(seed)
    at, looked = 100.0, 0.0
    for number in range(1, shape.steps + 1):
        at += shape.takes(number, rng) * max(0.2, rng.gauss(1.0, shape.jitter))
        if number % shape.every or at - looked < shape.look_s:
            continue
        looked = at
        epoch, step = divmod(number - 1, shape.epoch) if shape.epoch else (0, number - 1)
        yield number, Step(Place(epoch + bool(shape.epoch), step + 1, shape.epoch), "shape", at)


def changes(shape: Shape, seed: int) -> Iterator[tuple[int, int, Change]]:
    """Yield (intervals since the onset, number of the step, change)."""
    slow = Slow(shape.factor)
    since_onset = 0
    for number, step in printed(shape, seed):
        since_onset += number >= shape.onset
        change = slow.feed(step)
        if change:
            yield since_onset, number, change


def steady(seconds: float) -> Takes:
    return lambda step, rng: seconds


def slower(onset: int, factor: float, seconds: float = 1.0, before: Takes | None = None) -> Takes:
    return lambda step, rng: (before(step, rng) if before else seconds) * (factor if step >= onset else 1.0)


def pauses(every: int, pause_s: float, seconds: float = 1.0) -> Takes:
    return lambda step, rng: seconds + (pause_s if step % every == 0 else 0.0)


def compiles(step: int, rng: random.Random) -> float:
    return 40.0 if step <= 2 else 1.0


def ramp(last: int, factor: float, seconds: float = 1.0) -> Takes:
    """Grow evenly to `factor` times up to a step."""
    return lambda step, rng: seconds * (1 + (factor - 1) * min(1.0, step / last))


def mixed(*seconds: float) -> Takes:
    return lambda step, rng: rng.choice(seconds)


def by_turns(*seconds: float) -> Takes:
    return lambda step, rng: seconds[step % len(seconds)]


def by_epoch(length: int, *seconds: float) -> Takes:
    """The last one goes on."""
    return lambda step, rng: seconds[min((step - 1) // length, len(seconds) - 1)]


def in_epoch(length: int, takes: Takes) -> Takes:
    return lambda step, rng: takes((step - 1) % length + 1, rng)


SLOW: dict[str, Shape] = {
    "6x from step 25 on": Shape(slower(25, 6), onset=25),
    "6x from step 27 on": Shape(slower(27, 6), onset=27),
    "6x from step 100 on": Shape(slower(100, 6), onset=100),
    "2.5x from step 300 on": Shape(slower(300, 2.5), onset=300),
    "2.5x with jitter of 8 %": Shape(slower(300, 2.5), onset=300, jitter=0.08),
    "100x": Shape(slower(400, 100), onset=400),
    "every 10th step is printed": Shape(slower(1000, 4, 0.2), steps=3000, every=10, onset=1000),
    "every 100th step is printed": Shape(slower(5000, 3, 0.3), steps=12000, every=100, onset=5000),
    "every 100th step of 0.01 s": Shape(slower(8000, 5, 0.01), steps=16000, every=100, onset=8000),
    "steps of 20 s": Shape(slower(60, 3, 20.0), steps=200, onset=60),
    "steps of 90 s": Shape(slower(60, 2.5, 90.0), steps=200, onset=60),
    "steps of 5 ms, many in a look": Shape(slower(2000, 6, 0.005), steps=6000, onset=2000),
    "steps of 0.3 s, looked at each second": Shape(slower(1200, 4, 0.3), steps=2500, look_s=1.0, onset=1200),
    "after a compilation": Shape(slower(200, 4, before=compiles), onset=200),
    "with evaluation each 50 steps": Shape(slower(330, 3, before=pauses(50, 30.0)), onset=330),
    "with a checkpoint each 100 steps": Shape(slower(410, 3, before=pauses(100, 60.0)), onset=410),
    "in the first of long epochs": Shape(slower(300, 4), epoch=500, onset=300),
    "across the begin of an epoch": Shape(slower(295, 4), epoch=100, onset=295),
    "in epochs of 20 steps": Shape(slower(70, 4, 0.5), epoch=20, onset=70),
    "after a slow first epoch": Shape(slower(300, 8, before=by_epoch(100, 3.0, 1.0)), epoch=100, onset=300),
    "after growing sequences": Shape(slower(900, 4, before=ramp(600, 2.0)), onset=900),
    "steps of mixed lengths": Shape(slower(400, 6, before=mixed(0.8, 1.0, 1.2)), onset=400),
    "from hour to hour, at the end": Shape(slower(1400, 5), onset=1400),
    "a lower factor": Shape(slower(300, 1.8), onset=300, factor=1.4),
}
HEALTHY: dict[str, Shape] = {
    "steady": Shape(steady(1.0)),
    "steady, 1 % jitter": Shape(steady(2.0), jitter=0.01),
    "steady, 40 % jitter": Shape(steady(1.0), jitter=0.4),
    "short steps, many in a look": Shape(steady(0.004), steps=20000),
    "every 10th step is printed": Shape(steady(0.2), steps=5000, every=10),
    "every 100th step is printed": Shape(steady(0.3), steps=30000, every=100),
    "looked at each second": Shape(steady(0.35), look_s=1.0),
    "a compilation first": Shape(compiles),
    "evaluation each 5 steps": Shape(pauses(5, 20.0)),
    "evaluation each 100 steps": Shape(pauses(100, 300.0)),
    "evaluation of two hours each 500 steps": Shape(pauses(500, 7200.0)),
    "evaluation between printed steps": Shape(pauses(70, 40.0, 0.5), steps=6000, every=10),
    "evaluation in every printed interval from the middle on": Shape(
        lambda step, rng: 1.0 + (6.0 if step > 700 and step % 10 == 0 else 0), every=10, steps=4000
    ),
    "every 10th step is slow by 10x": Shape(pauses(10, 9.0)),
    "a checkpoint each 200 steps": Shape(pauses(200, 90.0)),
    "a checkpoint, and an evaluation after it": Shape(lambda step, rng: 1.0 + (60.0 if step % 100 in (0, 1, 2) else 0.0)),
    "a checkpoint in the background, 10 steps by 2.5x": Shape(lambda step, rng: 2.5 if step % 150 < 10 else 1.0),
    "long steps, a checkpoint in the background, 4 steps by 3x": Shape(lambda step, rng: 90.0 if step % 60 < 4 else 30.0, steps=400),
    "one pause of an hour": Shape(lambda step, rng: 3600.0 if step == 500 else 1.0),
    "a pause now and then": Shape(lambda step, rng: 30.0 if rng.random() < 0.08 else 1.0),
    "short and long by turns": Shape(by_turns(0.5, 2.5)),
    "two short, one long": Shape(by_turns(0.4, 0.4, 3.0)),
    "mixed lengths": Shape(mixed(0.3, 1.0, 3.0)),
    "mixed lengths, far apart": Shape(mixed(0.2, 5.0)),
    "sequences that grow to 2x": Shape(ramp(800, 2.0)),
    "sequences that grow to 8x": Shape(ramp(1500, 8.0)),
    "sequences that grow fast to 4x, and stay": Shape(ramp(200, 4.0)),
    "sequences that grow in each epoch": Shape(in_epoch(300, ramp(300, 4.0)), epoch=300),
    "sequences that grow with a jitter of 15 %": Shape(ramp(1000, 3.0), jitter=0.15),
    "sequences that grow in stages of 1.5x": Shape(lambda step, rng: 1.5 ** ((step - 1) // 300)),
    "a cache that is filled in the first epoch": Shape(by_epoch(200, 5.0, 1.0), epoch=200),
    "a first epoch that reads from a cache": Shape(by_epoch(200, 1.0, 3.0), epoch=200),
    "a cache in short epochs": Shape(by_epoch(30, 4.0, 1.0), epoch=30),
    "a loader that begins slowly in each epoch": Shape(lambda step, rng: 8.0 if (step - 1) % 100 < 4 else 1.0, epoch=100),
    "epochs of 3 steps, a pause between them": Shape(pauses(3, 25.0), epoch=3),
    "1.7x from the middle on": Shape(slower(700, 1.7)),
    "faster from the middle on": Shape(slower(700, 0.2)),
    "19 slow steps, shorter than a minute": Shape(lambda step, rng: 2.6 if 500 <= step < 519 else 1.0),
    "5x before there is a baseline": Shape(slower(10, 5)),
}


def test_there_are_enough_shapes() -> None:
    assert len(SLOW) >= 20
    assert len(HEALTHY) >= 30


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_job_is_noticed(name: str) -> None:
    shape = SLOW[name]
    for seed in SEEDS:
        ((intervals, _, change),) = changes(shape, seed)
        assert change.slow
        assert intervals <= 30, f"seed {seed}: after {intervals} intervals"
        expected = median(shape.takes(step, random.Random(0)) for step in range(shape.onset, shape.onset + 20))
        assert change.step_s == pytest.approx(expected, rel=0.3)
        assert change.step_s / change.baseline_s > shape.factor


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_is_not_reported(name: str) -> None:
    for seed in SEEDS:
        assert list(changes(HEALTHY[name], seed)) == []


def fed(slow: Slow, times: list[float], first: int = 1, at: float = 0.0, of: int = 0, shape: str = "shape") -> list[Change]:
    """Return the changes after steps that take these times. at: time of the step before the first."""
    found = []
    for number, seconds in enumerate(times, first):
        at += seconds
        change = slow.feed(Step(Place(0, number, of), shape, at))
        found += [change] if change else []
    return found


def test_a_recovery_is_noticed_after_five_normal_intervals() -> None:
    slow = Slow(2.0)
    first, second = fed(slow, [1.0] * 31 + [6.0] * 300 + [1.0, 1.0, 6.0] + [1.5] * 5 + [1.0] * 50)
    assert first == Change(True, since=31.0, place=Place(0, 31), step_s=6.0, baseline_s=1.0, intervals=25)
    assert second == Change(False, since=31 + 1800 + 8.0, place=Place(0, 334), step_s=1.5, baseline_s=1.0, intervals=30)


def test_a_job_may_be_slow_again() -> None:
    found = fed(Slow(2.0), [1.0] * 40 + [6.0] * 40 + [1.0] * 40 + [6.0] * 40)
    assert [change.slow for change in found] == [True, False, True]


def test_a_minute_of_slow_intervals_is_enough() -> None:
    """And needs five of them."""
    assert [change.since for change in fed(Slow(2.0), [1.0] * 31 + [12.0] * 5)] == [31.0]
    assert fed(Slow(2.0), [1.0] * 31 + [600.0] * 4 + [1.0] * 40) == []


def test_a_habit_is_reported_once() -> None:
    """Such as a checkpoint in the background, by which the next steps are slow."""
    found = fed(Slow(2.0), ([1.0] * 40 + [12.0] * 7) * 10)
    assert [change.slow for change in found] == [True, False]


def test_another_counter_has_a_baseline_of_its_own() -> None:
    """As the bar of an evaluation, in which a step takes longer."""
    slow = Slow(2.0)
    found = fed(slow, [1.0] * 60, of=1000)
    found += fed(slow, [5.0] * 60, of=70, at=60.0)
    found += fed(slow, [1.0] * 30, first=61, of=1000, at=360.0)
    assert found == []
    assert [change.baseline_s for change in fed(slow, [7.0] * 30, first=91, of=1000, at=390.0)] == [1.0]


def test_the_slowest_rank_is_named_where_it_stands_out() -> None:
    assert slowest({}) is slowest({0: 6.0}) is None
    assert slowest({0: 1.0, 1: 1.4, 2: 1.0}) is None
    assert slowest({0: 1.0, 1: 1.0, 5: 1.6, 7: 1.1}) == 5
    assert slowest({0: 6.0, 1: 1.0}) == 0
    assert slowest({0: 0.0, 1: 0.0}) is None
