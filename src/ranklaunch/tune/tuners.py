"""The three tuners: each chooses the candidate of the next trial. A choice depends on the seed and on
results in the order in which their trials were chosen, not in the order of their ends. So an
interrupted search makes the same choices again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.tune.model import GRID, LATENCY, MODEL, OK, OUT_OF_MEMORY, RANDOM, Candidate, Result, Settings, is_figure
from ranklaunch.tune.surrogate import Surrogate

FIRST = 4  # results before the first model
PREDICTED = 600  # candidates that a model predicts; of more, a sample
FAILURES = 3  # so many trials without a success mean a broken program
# Probability that a micro-batch fits: one twice as large as a micro-batch that fitted, and one as large as a micro-batch that did not.
TWICE_FITS, HARDLY_FITS = 0.65, 0.1


@dataclass(frozen=True)
class View:
    """Facts for a choice. space: all candidates. remaining: candidates that may be tried, in the order of
    the grid. trials: with results, in the order of their choice. pending: trials without a result, in
    the same order. features: coordinates of each candidate by its name."""

    settings: Settings
    space: tuple[Candidate, ...]
    remaining: tuple[Candidate, ...]
    trials: tuple[tuple[Candidate, Result], ...]
    pending: tuple[Candidate, ...]
    features: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Choice:
    """Choice of a tuner. candidate: None to end the search. reason: reason for the end."""

    candidate: Candidate | None
    reason: str = ""


def score(result: Result, metric: str) -> float | None:
    """Return the value of the metric, such that larger is better; None without a value."""
    value = result.metrics.get(metric) if result.status == OK else None
    if value is None or not is_figure(value):
        return None
    return -value if metric == LATENCY else value


def choose(view: View) -> Choice:
    broken = _why_broken(view)
    if broken:
        return Choice(None, broken)
    if not view.remaining:
        return Choice(None, "every candidate that may fit has been tried")
    return CHOOSE[view.settings.tuner](view)


def _why_broken(view: View) -> str:
    """Return the reason to take the program for broken, "" for none. Trials out of memory do not count."""
    scores = [score(result, view.settings.metric) for _, result in view.trials]
    fitting = [result for _, result in view.trials if result.status != OUT_OF_MEMORY]
    if len(fitting) >= FAILURES and all(each is None for each in scores):
        return f"none of the first {len(fitting)} trials succeeded; the last one: {fitting[-1].reason or fitting[-1].status}"
    return ""


def since_best(view: View, stage: int | None = None) -> int:
    """Return the number of trials since the best one, in one stage or in all; 0 before the first success."""
    best, since = None, 0
    for candidate, result in view.trials:
        if stage not in (None, candidate.stage):
            continue
        reached = score(result, view.settings.metric)
        if reached is not None and (best is None or reached > best):
            best, since = reached, 0
        elif best is not None:
            since += 1
    return since


def _is_stale(view: View) -> bool:
    return bool(view.settings.early_stop) and since_best(view) >= view.settings.early_stop


def _stale(view: View) -> Choice:
    return Choice(None, f"{view.settings.early_stop} trials in a row were not better (--early-stop)")


def by_grid(view: View) -> Choice:
    """Choose stage by stage, small micro-batches first. The first stage that is slower than the stage
    before is the last. Early stopping ends a stage."""
    best = _by_stage(view)
    for stage in sorted({candidate.stage for candidate in view.remaining}):
        slower = _slower(best, stage)
        if slower:
            return Choice(None, slower)
        of_stage = [candidate for candidate in view.remaining if candidate.stage == stage]
        early = view.settings.early_stop
        if early and since_best(view, stage) >= early:
            continue
        return Choice(of_stage[0])
    return _stale(view)


def _by_stage(view: View) -> Mapping[int, float]:
    best: dict[int, float] = {}
    for candidate, result in view.trials:
        reached = score(result, view.settings.metric)
        if reached is not None:
            best[candidate.stage] = max(reached, best.get(candidate.stage, reached))
    return best


def _slower(best: Mapping[int, float], stage: int) -> str:
    """Return the reason to end before this stage: the stage before was slower than the stage before that one. "" for no reason."""
    before = [each for each in sorted(best) if each < stage]
    if len(before) < 2 or best[before[-1]] >= best[before[-2]]:
        return ""
    return f"stage {before[-1]} was slower than stage {before[-2]}: the stages after it are not tried"


def order(settings: Settings, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates shuffled by the seed. The order of two candidates does not depend on other candidates."""
    return sorted(candidates, key=lambda each: hashlib.sha256(f"{settings.seed}:{each.name}".encode()).digest())


def by_chance(view: View) -> Choice:
    return _stale(view) if _is_stale(view) else Choice(order(view.settings, view.remaining)[0])


def by_model(view: View) -> Choice:
    """Choose the candidate with the highest expected improvement, weighted by its probability to fit.
    Pending trials count with their predicted results."""
    if _is_stale(view):
        return _stale(view)
    known = view.features
    measured = [(candidate, score(result, view.settings.metric)) for candidate, result in view.trials]
    scored = [(candidate, _log(reached)) for candidate, reached in measured if reached is not None]
    pool = order(view.settings, view.remaining)[:PREDICTED]
    if len(scored) < FIRST:
        return Choice(_farthest(view, pool, known))
    points, values = [known[candidate.name] for candidate, _ in scored], [value for _, value in scored]
    model, best = Surrogate(points, values), max(values)
    if view.pending:
        points += [known[candidate.name] for candidate in view.pending]
        values += [model.predicted(known[candidate.name])[0] for candidate in view.pending]
        model = Surrogate(points, values)
    worth = {each.name: model.improvement(known[each.name], best) * _likely_fits(view, each) for each in pool}
    return Choice(max(pool, key=lambda each: worth[each.name]))


def _log(reached: float) -> float:
    """Return a score on a logarithmic scale: speeds differ by factors. Scores of latencies are negative."""
    return math.log(reached) if reached > 0 else -math.log(-reached)


def _farthest(view: View, pool: Sequence[Candidate], known: Mapping[str, Sequence[float]]) -> Candidate:
    """Return the candidate farthest from all chosen ones, weighted by its probability to fit. The first
    one is near the middle of the space."""
    chosen = [known[candidate.name] for candidate in (*(candidate for candidate, _ in view.trials), *view.pending)]
    sample = pool[: max(8, len(pool) // 3)]
    if not chosen:
        return min(sample, key=lambda each: sum((coordinate - 0.5) ** 2 for coordinate in known[each.name]))
    return max(sample, key=lambda each: min(math.dist(known[each.name], other) for other in chosen) * _likely_fits(view, each))


def _likely_fits(view: View, candidate: Candidate) -> float:
    """Return the probability that a candidate fits, interpolated over powers of two between the largest micro-batch that fitted and the
    smallest that did not."""
    fits, fails = 0, 0
    for other, result in view.trials:
        if result.status == OK and _needs_no_more(candidate, other):
            fits = max(fits, other.micro)
        if result.status == OUT_OF_MEMORY and _needs_no_more(other, candidate):
            fails = min(fails or other.micro, other.micro)
    if candidate.micro <= fits:
        return 1.0
    if fails and candidate.micro >= fails:
        return HARDLY_FITS
    least = fits or min(each.micro for each in view.space)
    likely = float(TWICE_FITS ** math.log2(max(1.0, candidate.micro / least)))
    if fails > least:
        likely = max(likely, 1 - math.log2(candidate.micro / least) / math.log2(fails / least))
    return max(HARDLY_FITS, likely)


def _needs_no_more(one: Candidate, other: Candidate) -> bool:
    """Return True if the states of `one` need no more memory than the states of `other`."""
    return one.stage >= other.stage and (one.offload == other.offload or not other.offload)


CHOOSE: dict[str, Callable[[View], Choice]] = {GRID: by_grid, RANDOM: by_chance, MODEL: by_model}
