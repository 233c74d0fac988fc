"""A search that is cut off at any point and goes on with what is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tune_landscapes import LANDSCAPES, normal

from ranklaunch.system.disk import DiskFiles
from ranklaunch.tune import results
from ranklaunch.tune.model import STOPPED, TUNERS, Experiment, Result, Settings
from ranklaunch.tune.search import Search

LANDSCAPE = LANDSCAPES["micro-batches"]


def settings(tuner: str, width: int) -> Settings:
    return LANDSCAPE.settings(tuner, 3, trials=14, early=6, width=width, confirm=True)


def run(search: Search, ends: int | None = None, salt: str = "") -> tuple[list[str], list[Result]]:
    """With as many side by side as there may be, whose ends come in an order of chance: (names asked for, results until so many)."""
    asked: list[str] = []
    running: list[Experiment] = []
    told: list[Result] = []
    while not search.over and len(told) != ends:
        running += search.next(search.settings.width - len(running))
        asked += [each.name for each in running if each.name not in asked]
        assert running, "nothing runs, and the search is not over"
        ended = running.pop(int(abs(normal(f"{salt}{len(told)}")) * 10) % len(running))
        told.append(LANDSCAPE.result(search, ended))
        search.tell(told[-1])
    return asked, told


@pytest.mark.one_python
@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.table), 3])
@pytest.mark.parametrize("tuner", TUNERS)
def test_a_search_that_is_cut_anywhere_ends_the_same_and_asks_nothing_twice(tuner: str, width: int) -> None:
    whole = Search(settings(tuner, width))
    asked, every = run(whole)
    assert whole.best
    assert whole.confirmation
    assert len(asked) == len(set(asked))
    for cut in range(len(every) + 1):
        first = Search(settings(tuner, width))
        _, before = run(first, cut, salt="other")
        second = Search(settings(tuner, width), before)
        again, after = run(second, salt="third")
        assert not {each.name for each in before} & set(again)
        assert {each.name for each in (*before, *after)} == set(asked)
        assert second.best == whole.best
        assert results.document(second)["candidates"] == results.document(whole)["candidates"]


def test_no_more_is_asked_for_than_nodes_are_free() -> None:
    search = Search(replace(settings("random", 3), nodes=2))
    assert search.next(1) == ()
    (profile,) = search.next(8)
    search.tell(LANDSCAPE.result(search, profile))
    assert [len(search.next(free)) for free in (1, 3, 8, 8)] == [0, 1, 2, 0]


def test_what_was_stopped_is_asked_for_again() -> None:
    search = Search(settings("random", 1))
    (first,) = search.next(1)
    assert search.next(1) == ()
    search.tell(Result(first.name, first.kind, STOPPED))
    assert search.next(1) == (first,)
    assert Search(settings("random", 1), [Result(first.name, first.kind, STOPPED)]).next(1) == (first,)


def store(folder: Path, search: Search, told: list[Result]) -> None:
    for result in told:
        place = folder / "exps" / result.name
        place.mkdir(parents=True)
        (place / "result.json").write_text(results.result_text(result, search.settings))


def test_results_are_read_back_and_half_written_ones_are_not(tmp_path: Path) -> None:
    search = Search(settings("random", 1))
    _, told = run(search, 8)
    store(tmp_path, search, told)
    (tmp_path / "results.json").write_text(results.document_text(search))
    read = lambda: {each.name: each for each in results.known(DiskFiles(), str(tmp_path), search.settings)}  # noqa: E731
    assert read() == {each.name: each for each in told}
    half = tmp_path / "exps" / told[3].name / "result.json"
    half.write_text(half.read_text()[:40])  # written by something that does not rename
    (tmp_path / "exps" / told[4].name / "result.json").unlink()
    (tmp_path / "exps" / "z9_other").mkdir()
    assert set(read()) == {each.name for each in told} - {told[3].name, told[4].name}
    other = replace(search.settings, config={**search.settings.config, "steps_per_print": 1})
    assert results.known(DiskFiles(), str(tmp_path), other) == ()
    tuner = replace(search.settings, tuner="gridsearch", metric="latency", seed=9, max_trials=3)
    assert len(results.known(DiskFiles(), str(tmp_path), tuner)) == 6
    assert results.known(DiskFiles(), str(tmp_path / "none"), search.settings) == ()


def test_results_without_folders_are_enough(tmp_path: Path) -> None:
    search = Search(settings("random", 1))
    _, told = run(search, 5)
    (tmp_path / "results.json").write_text(results.document_text(search))
    assert list(results.known(DiskFiles(), str(tmp_path), search.settings)) == told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"experiments": 3}',
        '{"experiments": [3, {"name": 3}]}',
        "[" * 9999,
        '{"schema": 1, "of": "OF", "experiments": [{"name": "x", "kind": "trial", "status": "fine"}]}',
    ],
)
def test_hostile_results(tmp_path: Path, text: str) -> None:
    own = settings("random", 1)
    (tmp_path / "results.json").write_text(text.replace("OF", results.identity(own)))
    (tmp_path / "exps" / "z1").mkdir(parents=True)
    (tmp_path / "exps" / "z1" / "result.json").write_text(text)
    assert results.known(DiskFiles(), str(tmp_path), own) == ()


def test_results_that_are_no_text_or_no_file(tmp_path: Path) -> None:
    own = settings("random", 1)
    (tmp_path / "exps" / "z1" / "result.json").mkdir(parents=True)
    (tmp_path / "results.json").write_bytes(b"\xff")
    assert results.known(DiskFiles(), str(tmp_path), own) == ()


def test_the_document_has_every_candidate_and_is_json_for_all(tmp_path: Path) -> None:
    search = Search(settings("random", 1))
    run(search)
    best = search.best
    assert best
    search.tell(Result(best.name, "trial", "ok", {"throughput": 1e9, "latency": float("inf")}))
    found = json.loads(results.document_text(search, 3.25), parse_constant=lambda word: pytest.fail(word))
    assert (found["schema"], found["seconds"], found["over"], len(found["candidates"])) == (1, 3.25, True, len(search.space))
    assert set(found) == {
        "schema", "of", "tuner", "metric", "seed", "nodes", "slots", "memory_bytes", "seconds", "over", "reason", "model", "best",
        "candidates", "experiments",
    }  # fmt: skip
