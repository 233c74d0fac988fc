"""Each tuner finds the best of programs whose speed is known, and how many experiments it takes."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from tune_landscapes import LANDSCAPES, Landscape, experiments

from ranklaunch.tune.model import GRID, MODEL, OK, RANDOM, TUNERS, Candidate, Result
from ranklaunch.tune.search import Search
from ranklaunch.tune.surrogate import Surrogate

SEEDS = range(20)


def is_at_no_corner(best: Candidate, space: tuple[Candidate, ...]) -> bool:
    return all(
        min(values) < value < max(values)
        for value, values in ((getattr(best, n), [getattr(c, n) for c in space]) for n in ("micro", "stage"))
    )


IN_CI = ("micro-batches", "buckets")  # in a plane and in a space


@pytest.mark.one_python
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in IN_CI else pytest.mark.table) for name in LANDSCAPES])
def test_a_grid_needs_the_most_experiments_and_a_model_the_fewest(name: str) -> None:
    landscape = LANDSCAPES[name]
    best, space = landscape.optimum(), Search(landscape.settings(GRID)).space
    assert len(space) >= 60
    assert is_at_no_corner(best, space)
    counts = {tuner: [landscape.trials_until(best.name, tuner, seed) for seed in SEEDS] for tuner in (RANDOM, MODEL)}
    counts[GRID] = [landscape.trials_until(best.name, GRID, 0)]
    assert all(all(found) for found in counts.values())  # each finds it
    mean = {tuner: statistics.mean(found) for tuner, found in counts.items()}
    told = ", ".join(f"{tuner} {mean[tuner]:.1f} ({min(counts[tuner])} to {max(counts[tuner])})" for tuner in TUNERS)
    print(f"{name}: experiments until the best of {len(space)} candidates, {best.name}, over {len(SEEDS)} seeds: {told}")
    assert mean[GRID] > mean[RANDOM] > mean[MODEL]


@pytest.mark.parametrize("metric", ["throughput", "latency", "flops"])
@pytest.mark.parametrize("tuner", TUNERS)
def test_what_is_found_is_the_best_of_what_fits(tuner: str, metric: str) -> None:
    landscape = replace(LANDSCAPES["micro-batches"], noise=0.0)
    search = Search(replace(landscape.settings(tuner, early=20 if tuner == MODEL else 0), metric=metric, confirm=True))
    kinds = [experiment.kind for experiment in experiments(search, landscape)]
    assert (kinds[0], kinds[-1]) == ("profile", "confirm")
    assert search.best
    assert search.best.name == ("z2_mbs1_gas1" if metric == "latency" else landscape.optimum().name)


@pytest.mark.parametrize("tuner", TUNERS)
def test_nothing_larger_is_tried_after_out_of_memory(tuner: str) -> None:
    for seed in range(3):
        failed: list[Candidate] = []
        landscape = LANDSCAPES["offload"]
        search = Search(landscape.settings(tuner, seed, trials=50))
        for experiment in experiments(search, landscape):
            one = next((each for each in search.space if each.name == experiment.name), None)
            if one:
                worse = [
                    each for each in failed if each.stage == one.stage and one.offload in ("", each.offload) and one.micro >= each.micro
                ]
                assert worse == []
                failed += [one] if landscape.need(one) > landscape.limit else []
        assert failed


def told(landscape: Landscape, search: Search) -> list[str]:
    return [experiment.name for experiment in experiments(search, landscape) if experiment.kind == "trial"]


def test_early_stopping_and_the_most_trials() -> None:
    landscape = LANDSCAPES["micro-batches"]
    for tuner in (RANDOM, MODEL):
        search = Search(landscape.settings(tuner, 1, early=4))
        values = [search_value(search, name) for name in told(landscape, search)]
        best = values.index(max(values))
        assert len(values) - best - 1 == 4
        assert search.reason == "4 trials in a row were not better (--early-stop)"
    search = Search(landscape.settings(MODEL, 1, trials=7))
    assert search.planned == 8
    assert (len(told(landscape, search)), search.reason) == (7, "7 trials are the limit (--max-trials)")


def search_value(search: Search, name: str) -> float:
    return next(row.value or 0.0 for row in search.rows if row.name == name)


def test_a_grid_goes_by_stages_and_ends_with_the_first_that_is_slower() -> None:
    by_stage = [1.0, 1.2, 1.1, 3.0]
    config = {"train_micro_batch_size_per_gpu": [1, 2, 4], "zero_optimization": {"stage": "all"}}
    landscape = Landscape(config, lambda each: by_stage[each.stage] * each.micro, lambda each: each.micro, 3.0)
    search = Search(landscape.settings(GRID))
    expected = [f"z{stage}_mbs{micro}_gas1" for stage in (0, 1, 2) for micro in (1, 2, 4)]
    assert told(landscape, search) == expected
    assert search.reason == "stage 2 was slower than stage 1: the stages after it are not tried"
    assert search.best
    assert search.best.name == "z1_mbs2_gas1"


@pytest.mark.parametrize("tuner", TUNERS)
def test_the_reserve_is_tried_where_nothing_else_fits(tuner: str) -> None:
    config = {"train_micro_batch_size_per_gpu": [1, 2], "zero_optimization": {"stage": "all"}}
    landscape = Landscape(config, lambda each: each.micro, lambda each: 1 if each.offload else 100, 10)
    search = Search(landscape.settings(tuner))
    names = told(landscape, search)
    assert set(names[-2:]) == {"z3_mbs1_gas1_off-cpu", "z3_mbs2_gas1_off-cpu"}
    assert search.best
    assert search.best.name == "z3_mbs2_gas1_off-cpu"
    assert {name[:2] for name in names} == {"z0", "z1", "z2", "z3"}


def test_a_broken_program_is_not_tried_fifty_times() -> None:
    search = Search(LANDSCAPES["micro-batches"].settings(RANDOM))
    tried = 0
    while not search.over:
        for experiment in search.next(1):
            tried += 1
            search.tell(Result(experiment.name, experiment.kind, "failed", reason="rank 0 failed with exit code 1"))
    assert (tried, search.best) == (4, None)
    assert search.reason == "none of the first 3 trials succeeded; the last one: rank 0 failed with exit code 1"


def test_a_stage_that_fails_is_left_and_the_others_go_on() -> None:
    landscape = LANDSCAPES["micro-batches"]
    search, failed = Search(landscape.settings(GRID)), 0
    for experiment in iter(lambda: next(iter(search.next(1)), None), None):
        broken = experiment.name.startswith("z1_")
        failed += broken
        result = landscape.result(search, experiment)
        search.tell(replace(result, status="failed", metrics={}) if broken else result)
    assert failed == 2
    assert {row.reason for row in search.rows if row.stage == 1 and row.status == "pruned"} == {
        "2 trials of stage 1 failed and none succeeded"
    }
    assert search.best
    assert search.best.name.startswith("z2_")


def test_numbers_that_are_none_are_no_results() -> None:
    search = Search(LANDSCAPES["micro-batches"].settings(RANDOM, trials=4))
    values = iter([float("nan"), float("inf"), 5.0, -1.0])
    while not search.over:
        for experiment in search.next(1):
            metrics = {} if experiment.kind == "profile" else {"throughput": next(values)}
            search.tell(Result(experiment.name, experiment.kind, OK, metrics))
    assert search.best
    assert search.best.metrics == {"throughput": 5.0}


def test_the_surrogate_knows_what_it_was_told_and_that_it_knows_little_elsewhere() -> None:
    points = [(0.0, 0.0), (0.5, 0.0), (1.0, 1.0)]
    model = Surrogate(points, [1.0, 3.0, 2.0])
    for point, value in zip(points, (1.0, 3.0, 2.0)):
        assert model.predicted(point)[0] == pytest.approx(value, abs=0.3)
    assert model.predicted((0.0, 1.0))[1] > 2 * model.predicted((0.5, 0.0))[1]
    same = Surrogate([(0.5,)] * 60, [1.0] * 60)  # more than it keeps, and none that differs
    assert same.predicted((0.5,))[0] == pytest.approx(1.0)
