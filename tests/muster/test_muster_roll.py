"""Who is there, who is not, and what they disagree about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ranklaunch.muster.membership import NAMED, Entry, Roll, spans
from ranklaunch.plan.agreement import ALL

SAME = {"method": "torchrun", "torch": "2.6.0"}


def roll_of(count: int, allowed: Collection[str] = ()) -> Roll:
    return Roll([f"worker-{i}" for i in range(count)], allowed)


def entry(node: int, instance: str = "", **more: Any) -> Entry:
    return Entry(node, instance or f"i{node}", f"host-{node}", f"10.0.0.{node}", 0.0, **more)


def come(roll: Roll, *nodes: int) -> list[Entry]:
    entries = [entry(node) for node in nodes]
    for each in entries:
        roll.add(each)
    return entries


def ready(roll: Roll, entries: list[Entry], facts: Mapping[str, str] = SAME) -> None:
    for each in entries:
        roll.ready(each, facts, 1.0)


def said(count: int, facts: Callable[[int], Mapping[str, str]], allowed: Collection[str] = ()) -> list[str]:
    roll = roll_of(count, allowed)
    for node, each in enumerate(come(roll, *range(count))):
        roll.ready(each, facts(node), 1.0)
    assert roll.doubtful is bool(roll.problems())
    return roll.problems()


# Who is missing


def test_all_are_missing_at_first() -> None:
    roll = roll_of(3)
    assert (roll.missing, roll.busy, roll.complete, roll.doubtful, roll.problems()) == ([0, 1, 2], [], False, False, [])
    assert roll.waiting({}) == "3 of 3 nodes: worker-0 (node 0), worker-1 (node 1), worker-2 (node 2)"


def test_what_is_known_of_the_missing_is_said() -> None:
    roll = roll_of(3)
    come(roll, 0)
    why = {1: "its name does not resolve", 2: "nothing heard of 10.0.3.40"}
    expected = "2 of 3 nodes: worker-1 (node 1, its name does not resolve), worker-2 (node 2, nothing heard of 10.0.3.40)"
    assert roll.waiting(why).startswith(expected)


def test_who_is_here_but_busy_is_said() -> None:
    roll = roll_of(2)
    roll.add(entry(1, doing="installing requirements"))
    roll.add(entry(0))
    assert [each.node for each in roll.busy] == [0, 1]
    assert roll.waiting({}) == "2 that are here, but busy: worker-0 (node 0), worker-1 (node 1, installing requirements)"
    ready(roll, [roll.entries["i0"]])
    assert roll.waiting({}) == "1 that is here, but busy: worker-1 (node 1, installing requirements)"
    ready(roll, [roll.entries["i1"]])
    assert roll.waiting({}) == ""
    assert roll.complete


def test_hosts_without_names_are_numbers() -> None:
    assert Roll(["", ""]).waiting({1: "silent"}) == "2 of 2 nodes: node 0, node 1 (silent)"


def test_a_line_names_some_and_counts_the_rest() -> None:
    roll = roll_of(500)
    come(roll, *range(100, 500))
    text = roll.waiting({})
    assert text.startswith("100 of 500 nodes: worker-0 (node 0), ")
    assert f"worker-{NAMED - 1} (node {NAMED - 1}) and {100 - NAMED} more; 400 that are here, but busy: worker-100" in text
    assert text.endswith(f" and {400 - NAMED} more")


# Coming, going, coming again


def test_one_that_goes_is_missing_again() -> None:
    roll = roll_of(2)
    ready(roll, come(roll, 0, 1))
    assert roll.complete
    roll.remove("i1")
    assert (roll.complete, roll.missing) == (False, [1])
    ready(roll, come(roll, 1))
    assert roll.complete


def test_removing_nobody_changes_nothing() -> None:
    roll = roll_of(1)
    ready(roll, come(roll, 0))
    roll.remove("nobody")
    roll.remove("nobody")
    assert roll.complete


def test_two_starts_of_one_node_are_told_apart() -> None:
    roll = roll_of(2)
    ready(roll, come(roll, 0, 1))
    roll.add(Entry(1, "again", "", "10.0.0.9", 1.0))
    assert (roll.doubtful, roll.complete) == (True, False)
    who = "host-1 at 10.0.0.1 and (no name) at 10.0.0.9"
    assert roll.problems() == [f"2 containers say that they are node 1: {who}; each needs an index of its own: --node (RANKLAUNCH_NODE)"]
    roll.remove("i1")
    assert (roll.doubtful, roll.complete) == (False, False)
    ready(roll, [roll.entries["again"]])
    assert roll.complete


def test_one_that_disagreed_and_went_does_not_disagree_any_more() -> None:
    roll = roll_of(3)
    entries = come(roll, 0, 1, 2)
    ready(roll, entries[:1])
    ready(roll, entries[1:2], {**SAME, "torch": "2.5"})
    assert roll.doubtful
    roll.remove("i1")
    assert not roll.doubtful
    ready(roll, entries[2:])
    assert not roll.doubtful


@pytest.mark.parametrize("node", [3, -1, 10**30])
def test_a_node_that_the_job_does_not_have_is_no_substitute(node: int) -> None:
    roll = roll_of(3)
    ready(roll, come(roll, 0, 1, node))
    assert roll.missing == [2]
    assert not roll.complete


def test_the_slots_of_a_node_that_the_job_does_not_have_are_not_named() -> None:
    for node in (-5, -1, 2, 10**30):
        roll = roll_of(2)
        entries = come(roll, 0, node)
        ready(roll, entries[:1], {**SAME, "slots": "8,8"})
        ready(roll, entries[1:], {**SAME, "slots": "4,8"})
        assert roll.problems()
        assert roll.own_slots() == "", node


def test_a_node_that_the_job_does_not_have_can_be_named() -> None:
    roll = roll_of(2)
    come(roll, 7)
    assert roll.name(7) == "node 7"
    assert roll.waiting({}) == ("2 of 2 nodes: worker-0 (node 0), worker-1 (node 1); 1 that is here, but busy: node 7")


def test_the_last_is_named_first() -> None:
    roll = roll_of(3)
    for number, each in enumerate(come(roll, 2, 0, 1)):
        roll.ready(each, SAME, float(number))
    assert [each.node for each in roll.last()] == [1, 0, 2]


def test_a_label_is_what_people_know() -> None:
    roll = roll_of(2)
    (each,) = come(roll, 1)
    assert roll.name(1) == "node 1 (worker-1)"
    each.stated, each.named = 0, "as the rank table has it"
    assert roll.name(1) == "node 0 (as the rank table has it)"


# What they disagree about


def test_one_among_many_is_named_and_the_rest_are_the_others() -> None:
    (problem,) = said(64, lambda node: {**SAME, "torch": "2.5.1" if node == 17 else "2.6.0"})
    assert problem == "torch differs: 2.5.1 on node 17 (worker-17), 2.6.0 on the other 63 nodes"


def test_a_few_are_named_as_spans() -> None:
    (problem,) = said(64, lambda node: {"torch": "2.5.1" if node in (3, 4, 5, 9) else "2.6.0"})
    assert problem == "torch differs: 2.5.1 on nodes 3-5, 9, 2.6.0 on the other 60 nodes"


def test_halves_are_both_named() -> None:
    assert said(4, lambda node: {"torch": str(node // 2)}) == ["torch differs: 0 on nodes 0-1, 1 on nodes 2-3"]
    assert said(40, lambda node: {"torch": str(node // 20)}) == ["torch differs: 0 on nodes 0-19, 1 on nodes 20-39"]


def test_a_fact_that_some_do_not_have_differs() -> None:
    assert said(3, lambda node: SAME if node else {"method": "torchrun"}) == [
        "torch differs: (none) on node 0 (worker-0), 2.6.0 on nodes 1-2"
    ]


def test_several_facts_are_several_problems_in_order() -> None:
    problems = said(2, lambda node: {"b": str(node), "a": str(node), "c": "same"})
    assert [problem.partition(" ")[0] for problem in problems] == ["a", "b"]


def test_many_values_are_cut() -> None:
    (problem,) = said(100, lambda node: {"hosts": f"list {node}"})
    assert problem.startswith("hosts differs: list 0 on node 0 (worker-0), list 1 on node 1 (worker-1), ")
    assert problem.endswith(f" and {100 - NAMED} more")


def test_what_may_differ_is_not_looked_at() -> None:
    facts = lambda node: {"torch": str(node), "program": str(node)}  # noqa: E731
    assert said(2, facts, {"torch", "program"}) == []
    assert said(2, facts, {ALL}) == []
    assert [problem.partition(" ")[0] for problem in said(2, facts, {"torch"})] == ["program"]
    assert len(said(2, facts, {"nonsense"})) == 2


@pytest.mark.parametrize("order", [(1, 0), (1, 2, 0), (2, 1, 0)])
def test_the_order_in_which_nodes_get_ready_hides_nothing(order: tuple[int, ...]) -> None:
    roll = roll_of(len(order))
    entries = come(roll, *range(len(order)))
    for node in order:
        roll.ready(entries[node], {"torch": "2.5" if node == 0 else "2.6"}, 1.0)
    assert roll.problems()
    assert roll.doubtful


def test_a_fact_that_is_called_none_is_a_fact() -> None:
    said(2, lambda node: {"torch": "(none)"} if node else {})


# For all


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "ready", "ready", "remove"]), st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)), max_size=30
)


def walked(steps: list[tuple[str, int, int, int]], seen: Callable[[Roll], None], in_order: bool) -> None:
    roll = roll_of(4)
    for what, node, start, torch in steps:
        instance = f"{node}.{start}"
        each = roll.entries.get(instance)
        if what == "add" and not each:
            roll.add(entry(node, instance))
        elif what == "remove":
            roll.remove(instance)
        elif what == "ready" and each and each.facts is None:
            before = [other for other in roll.entries.values() if other is each or other.facts is not None]
            if in_order and before[0] is each and len(before) > 1:
                continue
            roll.ready(each, {"torch": str(torch)}, 1.0)
        seen(roll)


@settings(max_examples=100)
@given(STEPS)
def test_complete_is_every_node_ready_exactly_once(steps: list[tuple[str, int, int, int]]) -> None:
    def seen(roll: Roll) -> None:
        nodes = sorted(each.node for each in roll.entries.values())
        everyone = nodes == [0, 1, 2, 3] and all(each.facts is not None for each in roll.entries.values())
        assert roll.complete is everyone
        assert (roll.waiting({}) == "") is (not roll.missing and not roll.busy)

    walked(steps, seen, in_order=False)


def doubt(roll: Roll) -> None:
    assert roll.doubtful is bool(roll.problems())


@settings(max_examples=100)
@given(STEPS)
def test_doubtful_is_having_a_problem(steps: list[tuple[str, int, int, int]]) -> None:
    walked(steps, doubt, in_order=True)


@settings(max_examples=100, database=None)
@example([("add", 0, 0, 0), ("add", 1, 0, 0), ("ready", 1, 0, 0), ("ready", 0, 0, 1)])
@given(STEPS)
def test_doubtful_is_having_a_problem_in_any_order(steps: list[tuple[str, int, int, int]]) -> None:
    walked(steps, doubt, in_order=False)


# Many


def operations(work: Callable[[], object]) -> int:
    """Lines of Python that it takes: the same on every machine."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if "roll.py" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def mustered(count: int, order: int = 1, differs: bool = False) -> Roll:
    roll = roll_of(count)
    entries = come(roll, *range(count))
    for each in entries[::order]:
        roll.ready(each, {**SAME, "torch": str(each.node)} if differs else SAME, 1.0)
    return roll


def growth(work: Callable[[int], object], count: int) -> float:
    """How many times the work grows when there are ten times as many."""
    return operations(lambda: work(10 * count)) / operations(lambda: work(count))


@pytest.mark.one_python
def test_ten_thousand_nodes_cost_ten_times_as_much_as_a_thousand() -> None:
    assert growth(mustered, 1000) < 12


def test_the_order_of_getting_ready_costs_nothing() -> None:
    assert growth(lambda count: mustered(count, -1), 100) < 12


def test_nodes_that_all_go_cost_no_more_each_than_a_few() -> None:
    def leave(count: int) -> None:
        roll = mustered(count)
        for instance in list(roll.entries):
            roll.remove(instance)

    assert growth(leave, 30) < 12


def test_ten_thousand_different_answers_make_short_lines() -> None:
    roll = mustered(10_000, differs=True)
    assert [len(problem) < 500 for problem in roll.problems()] == [True]
    assert len(roll_of(10_000).waiting(dict.fromkeys(range(10000), "its name does not resolve"))) < 1000


# Spans


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([1, 2], "1-2"),
        ([5, 0, 2, 1, 2], "0-2, 5"),
        (range(0, 40, 2), ", ".join(str(n) for n in range(0, 2 * NAMED, 2)) + f" and {20 - NAMED} more"),
        ([*range(0, 2 * NAMED, 2), 100, 101, 102], ", ".join(str(n) for n in range(0, 2 * NAMED, 2)) + " and 3 more"),
    ],
)
def test_spans(numbers: Collection[int], text: str) -> None:
    assert spans(numbers) == text


@given(st.sets(st.integers(0, 60)))
def test_spans_name_each_number_once(numbers: set[int]) -> None:
    text, _, more = spans(numbers).partition(" and ")
    named = [range(int(a), int(b or a) + 1) for a, _, b in (part.partition("-") for part in text.split(", ") if part)]
    found = [number for span in named for number in span]
    assert found == sorted(numbers)[: len(found)]
    assert len(found) + (int(more.partition(" ")[0]) if more else 0) == len(numbers)
