"""Detection of slow steps, from the printed steps of one rank. Pure: steps and times go in, changes come out.

An interval is the time between two printed steps; its step time is this time divided by the number of steps. The rules:

1. Warm-up: the first 5 intervals of a counter of steps are not used.
2. Baseline: the median step time of the last 20 to 200 intervals. Below 20 nothing is judged.
3. An interval is slow if its step time is above `factor` times the baseline.
4. The job is slow after 20 slow intervals in a row that take at least 3 s. It is also slow after slow intervals in a row that take 60 s,
   if there are at least 5, more than in any earlier row, and more than chance makes: 40 times the share of slow intervals in the
   baseline. So a single pause, such as an evaluation or a checkpoint, makes no job slow.
5. Slow intervals enter the baseline when a normal interval ends their row. So the baseline follows steps that grow longer little by
   little, and steps of mixed lengths. Intervals of a slow job never enter the baseline.
6. The job has recovered after 5 normal intervals in a row.
7. An interval is not used if an epoch begins in it, if the step goes back, or if another counter comes in between. The second epoch
   begins a new baseline, since steps of the first one may have filled caches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ranklaunch.hangs.steps import Place, Step

WARM_UP = 5  # intervals
LEAST, MOST = 20, 200  # intervals of a baseline
ROW, LEAST_S = 20, 3.0  # slow intervals in a row, and the seconds that they must take
ROW_S, SHORT_ROW = 60.0, 5  # seconds of slow intervals, and the number of intervals that they need
RECOVERY = 5  # normal intervals in a row
SHORTEST_S = 0.1  # a shorter interval is extended to the next printed step
MOST_COUNTERS = 8
STANDS_OUT = 1.5  # times the median of all ranks, for the slowest rank


class Change(NamedTuple):
    """Change: the job has become slow (slow: True), or has recovered (False).

    since: begin of the row of intervals that decides, in the caller's seconds. place: the last step before it. step_s: median step time
    of the row. baseline_s: median of the baseline, which has `intervals` intervals.
    """

    slow: bool
    since: float
    place: Place
    step_s: float
    baseline_s: float
    intervals: int


class _Interval(NamedTuple):
    """Interval between two printed steps. place: the step at its begin. step_s: seconds of one step."""

    began: float
    place: Place
    seconds: float
    step_s: float


class Slow:
    """State of one rank. factor: by how much a step time must be above the baseline."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._counters: dict[tuple[str, int], _Counter] = {}
        self._current: _Counter | None = None  # the counter of the last step
        self._last: Step | None = None

    def feed(self, step: Step) -> Change | None:
        """Take the next printed step. Return a change that follows from it."""
        counter, last = self._counter(step), self._last
        if counter is not self._current or last is None:
            self._current, self._last = counter, step
            return None
        steps = step.place.step - last.place.step
        if step.place.epoch != last.place.epoch or steps < 0:
            counter.begin_epoch()
            self._last = step
            return None
        seconds = step.at - last.at
        if not steps or seconds < SHORTEST_S:
            return None
        self._last = step
        return counter.take(_Interval(last.at, last.place, seconds, seconds / steps))

    def _counter(self, step: Step) -> _Counter:
        """Return the counter of a step. Without an epoch, counters differ by their total: a bar of training, a bar of evaluation."""
        key = (step.shape, 0 if step.place.epoch else step.place.of)
        counter = self._counters.pop(key, None) or _Counter(self._factor)
        self._counters[key] = counter  # the newest stands last
        if len(self._counters) > MOST_COUNTERS:
            del self._counters[next(iter(self._counters))]
        return counter


class _Counter:
    """Baseline and state of one counter of steps."""

    def __init__(self, factor: float) -> None:
        self.slow = False
        self._factor = factor
        self._epochs = 1
        self._warm_up = WARM_UP
        self._baseline: deque[float] = deque(maxlen=MOST)  # step times
        self._row: list[_Interval] = []  # slow intervals in a row; while the job is slow, normal ones in a row
        self._slow_count = 0  # slow intervals from the row that made the job slow until now
        self._longest = 0  # length of the longest row of slow intervals that has ended, at most ROW

    def begin_epoch(self) -> None:
        self._epochs += 1
        if self._epochs == 2 and not (self.slow or self._row):
            self._warm_up = WARM_UP
            self._baseline.clear()

    def take(self, interval: _Interval) -> Change | None:
        if self._warm_up:
            self._warm_up -= 1
            return None
        if len(self._baseline) < LEAST:
            self._baseline.append(interval.step_s)
            return None
        baseline_s = median(self._baseline)
        is_slow = interval.step_s > self._factor * baseline_s
        if self.slow:
            return self._while_slow(interval, baseline_s, is_slow)
        if is_slow:
            return self._extend_row(interval, baseline_s)
        self._end_row(len(self._row))
        self._baseline.extend(each.step_s for each in (*self._row, interval))
        self._row.clear()
        return None

    def _extend_row(self, interval: _Interval, baseline_s: float) -> Change | None:
        self._row.append(interval)
        count, seconds = len(self._row), sum(each.seconds for each in self._row)
        is_long = count >= ROW and seconds >= LEAST_S
        if not is_long and (seconds < ROW_S or count < max(SHORT_ROW, self._longest + 1, self._by_chance(baseline_s))):
            return None
        self.slow, self._slow_count = True, count
        return self._changed(baseline_s)

    def _by_chance(self, baseline_s: float) -> float:
        """Return the length of a row of slow intervals that steps of mixed lengths may make by chance.

        With a tenth of slow intervals in the baseline: 4; with half: 20.
        """
        return 2 * ROW * sum(step_s > self._factor * baseline_s for step_s in self._baseline) / len(self._baseline)

    def _while_slow(self, interval: _Interval, baseline_s: float, is_slow: bool) -> Change | None:
        if is_slow:
            self._slow_count += 1
            self._row.clear()
            return None
        self._row.append(interval)
        if len(self._row) < RECOVERY:
            return None
        self.slow = False
        self._end_row(self._slow_count)
        self._baseline.extend(each.step_s for each in self._row)
        return self._changed(baseline_s)

    def _end_row(self, count: int) -> None:
        self._longest = max(self._longest, min(count, ROW))

    def _changed(self, baseline_s: float) -> Change:
        first, step_s = self._row[0], median(each.step_s for each in self._row)
        self._row.clear()
        return Change(self.slow, first.began, first.place, step_s, baseline_s, len(self._baseline))


def median(values: Iterable[float]) -> float:
    """Return the median. Raises IndexError for no values."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def slowest(step_s: Mapping[int, float]) -> int | None:
    """Return the rank with the longest step time if it stands out, else None. step_s: by rank, as printed by the ranks."""
    if len(step_s) < 2:
        return None
    ordered: Sequence[int] = sorted(step_s, key=step_s.__getitem__)
    middle = step_s[ordered[(len(ordered) - 1) // 2]]
    return ordered[-1] if step_s[ordered[-1]] >= STANDS_OUT * middle > 0 else None
