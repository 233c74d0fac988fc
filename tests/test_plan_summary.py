"""Golden plans in short: what is told once stands for all that it was made from."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import helpers
from hypothesis import given
from hypothesis import strategies as st
from plan_summary import WIDTH, fold, folded, summary, wrapped

from ranklaunch.plan import model as plans


@helpers.for_each(
    [
        (["a"], ["a"]),
        (["rank 0", "rank 1", "rank 2"], ["rank {0..2}"]),
        (["0 of 8", "8 of 8", "16 of 8"], ["{0..16:8} of 8"]),
        (["n08", "n09", "n10"], ["n{08..10}"]),
        (["n8", "n9", "n10", "other"], ["n{8..10}", "other"]),
        (["0", "1", "3"], ["{0..1}", "3"]),
        (["2", "1"], ["2", "1"]),
        (["alike", "alike"], ["alike", "alike"]),
        (["{0..7}", "{8..15}"], ["{{0..8:8}..{7..15:8}}"]),
        ([], []),
    ]
)
def test_neighbours_that_differ_in_even_steps_are_one(texts: list[str], expected: list[str]) -> None:
    assert folded(texts) == expected


@given(first=st.integers(0, 99), step=st.integers(1, 9), count=st.integers(2, 9), before=st.text("ab-=. ", max_size=5))
def test_a_fold_tells_first_last_and_step(first: int, step: int, count: int, before: str) -> None:
    texts = [f"{before}{first + i * step} of {count}" for i in range(count)]
    told = fold(texts)
    assert told == f"{before}{{{first}..{first + (count - 1) * step}{f':{step}' if step > 1 else ''}}} of {count}"


@given(st.text("ab ", max_size=400))
def test_breaking_lines_loses_nothing(line: str) -> None:
    lines = wrapped(f"  {line}")
    assert " ".join([lines[0], *(each.removeprefix("      ") for each in lines[1:])]) == f"  {line}"
    assert all(len(each) <= WIDTH or " " not in each.strip() for each in lines)


def three_plans(method: str) -> list[Any]:
    return [plans.as_json(helpers.plan(helpers.modelarts(3, 2, i), method=method)) for i in range(3)]


def test_whatever_a_node_does_otherwise_is_told() -> None:
    """A change of one word in the plan of one node changes the text."""
    nodes = three_plans("spawn")
    text = summary(nodes[0], nodes)
    assert "RANK={{0..4:2}..{1..5:2}}" in text
    nodes[2]["processes"][1]["env"]["WORLD_SIZE"] = "7"
    assert "node 2" in summary(nodes[0], nodes)


# Parts of another node's plan that the text has from the own node's, or that whole plans alone show.
NOT_SHOWN = {"schema", "platform", "why", "job.name", "job.nodes.index", "job.nodes.first_rank", "recorders.variables.why"}


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, part in parts:
        yield from paths_in(part, (*path, key))
    if not isinstance(value, (dict, list, tuple)):
        yield path


@helpers.for_each(["torchrun", "mpirun", "spawn"])
def test_each_word_counts_that_is_left_out_as_usual(method: str) -> None:
    """Another log, tag, fact or recorder than usual changes the text, and so does one that is missing."""
    nodes: list[Any] = json.loads(json.dumps(three_plans(method)))
    text = summary(nodes[0], nodes)
    hidden = set()
    for *path, last in paths_in(nodes[1]):
        changed = copy.deepcopy(nodes)
        place = functools.reduce(lambda part, key: part[key], path, changed[1])
        place[last] = f"{place[last]}/changed" if isinstance(place[last], str) else (place[last] or 0) + 1
        if summary(changed[0], changed) == text:
            hidden.add(".".join(key for key in (*path, last) if isinstance(key, str)))
        if path and path[-1] in ("env", "facts"):
            del place[last]
            assert summary(changed[0], changed) != text, f"no {last}"
    assert {name for name in hidden if not name.startswith("values.")} <= NOT_SHOWN


def test_values_are_left_out_that_the_other_case_has() -> None:
    nodes = three_plans("spawn")
    like = three_plans("torchrun")[0]
    text = summary(nodes[0], nodes, like)
    assert "[MA_NUM_HOSTS]" in summary(nodes[0], nodes)
    assert "[MA_NUM_HOSTS]" not in text
    like["values"].append({"name": "another", "value": "1", "source": "ANOTHER", "overrides": []})
    assert "  not read: extra_torchrun_params route_plan another\n" in summary(nodes[0], nodes, like)
