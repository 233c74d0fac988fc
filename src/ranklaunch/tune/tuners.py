"""Which candidate is tried next. A choice follows from the seed, and from the results of trials in the order in which these were chosen,
never in that of their ends: so that a search which was cut off chooses the same again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.tune.model import GRID, LATENCY, MODEL, OK, OUT_OF_MEMORY, RANDOM, Candidate, Result, Settings, is_figure
from ranklaunch.tune.surrogate import Surrogate

FIRST = 4  # candidates of a model-based search before there is a model
LOOKED_AT = 600  # candidates that a model is asked of, of more a sample
FAILURES = 3  # trials without any that ends well, after which a program is taken for broken
# How likely a micro-batch fits that is twice as large as one that did; and one where no larger stage or offload held it.
TWICE_FITS, HARDLY_FITS = 0.65, 0.1


@dataclass(frozen=True)
class View:
    """What a choice is made from. told: trials with their results, pending: those that run, both in the order of their choice. left:
    what may be tried, in the order of the grid. space: all candidates, and features: where each of them is, for a model."""

    settings: Settings
    space: tuple[Candidate, ...]
    left: tuple[Candidate, ...]
    told: tuple[tuple[Candidate, Result], ...]
    pending: tuple[Candidate, ...]
    features: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Choice:
    """candidate: None where the search is over, and reason says why."""

    candidate: Candidate | None
    reason: str = ""


def score(result: Result, metric: str) -> float | None:
    """Larger is better; None where there is no figure."""
    value = result.metrics.get(metric) if result.status == OK else None
    if value is None or not is_figure(value):
        return None
    return -value if metric == LATENCY else value


def choose(view: View) -> Choice:
    broken = _is_broken(view)
    if broken:
        return Choice(None, broken)
    if not view.left:
        return Choice(None, "every candidate that may fit has been tried")
    return CHOOSE[view.settings.tuner](view)


def _is_broken(view: View) -> str:
    scores = [score(result, view.settings.metric) for _, result in view.told]
    others = [result for _, result in view.told if result.status != OUT_OF_MEMORY]
    if len(others) >= FAILURES and all(each is None for each in scores):
        return f"of the first {len(others)} trials none ended well: the last: {others[-1].reason or others[-1].status}"
    return ""


def since_best(view: View, stage: int | None = None) -> int:
    """Trials in a row, of one stage or of all, that brought nothing better; 0 as long as none has ended well."""
    best, since = None, 0
    for candidate, result in view.told:
        if stage not in (None, candidate.stage):
            continue
        found = score(result, view.settings.metric)
        if found is not None and (best is None or found > best):
            best, since = found, 0
        elif best is not None:
            since += 1
    return since


def _is_stale(view: View) -> bool:
    return bool(view.settings.early_stop) and since_best(view) >= view.settings.early_stop


def _stale(view: View) -> Choice:
    return Choice(None, f"{view.settings.early_stop} trials in a row were not better")


def by_grid(view: View) -> Choice:
    """One stage after the other, small micro-batches first. A stage that is slower than the one before is the last; early stopping ends
    a stage."""
    best = _by_stage(view)
    for stage in sorted({candidate.stage for candidate in view.left}):
        slower = _slower(best, stage)
        if slower:
            return Choice(None, slower)
        of_stage = [candidate for candidate in view.left if candidate.stage == stage]
        early = view.settings.early_stop
        if early and since_best(view, stage) >= early:
            continue
        return Choice(of_stage[0])
    return _stale(view)


def _by_stage(view: View) -> Mapping[int, float]:
    best: dict[int, float] = {}
    for candidate, result in view.told:
        found = score(result, view.settings.metric)
        if found is not None:
            best[candidate.stage] = max(found, best.get(candidate.stage, found))
    return best


def _slower(best: Mapping[int, float], stage: int) -> str:
    """Whether the stages before this one end a grid search: the last of them was slower than the one before it."""
    before = [each for each in sorted(best) if each < stage]
    if len(before) < 2 or best[before[-1]] >= best[before[-2]]:
        return ""
    return f"stage {before[-1]} was slower than stage {before[-2]}: the stages after it are not tried"


def order(settings: Settings, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Shuffled by the seed, in a way that leaving some out does not change for the others."""
    return sorted(candidates, key=lambda each: hashlib.sha256(f"{settings.seed}:{each.name}".encode()).digest())


def by_chance(view: View) -> Choice:
    return _stale(view) if _is_stale(view) else Choice(order(view.settings, view.left)[0])


def by_model(view: View) -> Choice:
    """The candidate that is expected to improve most on the best; those that run are taken to come out as expected."""
    if _is_stale(view):
        return _stale(view)
    known = view.features
    measured = [(candidate, score(result, view.settings.metric)) for candidate, result in view.told]
    scored = [(candidate, _log(found)) for candidate, found in measured if found is not None]
    asked = order(view.settings, view.left)[:LOOKED_AT]
    if len(scored) < FIRST:
        return Choice(_farthest(view, asked, known))
    points, values = [known[candidate.name] for candidate, _ in scored], [value for _, value in scored]
    model, best = Surrogate(points, values), max(values)
    if view.pending:
        points += [known[candidate.name] for candidate in view.pending]
        values += [model.predicted(known[candidate.name])[0] for candidate in view.pending]
        model = Surrogate(points, values)
    worth = {each.name: model.improvement(known[each.name], best) * _likely_fits(view, each) for each in asked}
    return Choice(max(asked, key=lambda each: worth[each.name]))


def _log(found: float) -> float:
    """Speeds differ by factors."""
    return math.log(found) if found > 0 else -math.log(-found)


def _farthest(view: View, asked: Sequence[Candidate], known: Mapping[str, Sequence[float]]) -> Candidate:
    """From all that were chosen; the first is near the middle. Where fitting is doubtful, distance counts for less."""
    chosen = [known[candidate.name] for candidate in (*(candidate for candidate, _ in view.told), *view.pending)]
    sample = asked[: max(8, len(asked) // 3)]
    if not chosen:
        return min(sample, key=lambda each: sum((coordinate - 0.5) ** 2 for coordinate in known[each.name]))
    return max(sample, key=lambda each: min(math.dist(known[each.name], other) for other in chosen) * _likely_fits(view, each))


def _likely_fits(view: View, candidate: Candidate) -> float:
    """From 0 to 1: between the largest micro-batch that is known to fit and the smallest that did not, by their powers of two."""
    fits, fails = 0, 0
    for other, result in view.told:
        if result.status == OK and _asks_no_more(candidate, other):
            fits = max(fits, other.micro)
        if result.status == OUT_OF_MEMORY and _asks_no_more(other, candidate):
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


def _asks_no_more(one: Candidate, other: Candidate) -> bool:
    """Whether its states need no more memory, whatever their micro-batches are."""
    return one.stage >= other.stage and (one.offload == other.offload or not other.offload)


CHOOSE: dict[str, Callable[[View], Choice]] = {GRID: by_grid, RANDOM: by_chance, MODEL: by_model}
