"""Rank groups as Megatron core makes them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranklaunch.plan import megatron
from ranklaunch.plan.megatron import ORDER, ORDER_DP_LAST, Layout

EXPERTS = ("ep", "expert_tp", "expert_dp")
KINDS = ("tp", "pp", "cp", "dp", *EXPERTS)


def test_sixteen_ranks_on_two_nodes() -> None:
    """The example that explanations of Megatron's groups use."""
    layout = Layout(16, tp=2, pp=4)
    assert layout.dp == 2
    assert layout.groups("tp") == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]
    assert layout.groups("pp") == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert layout.groups("dp") == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]


def test_context_parallelism_is_between_tensor_and_data() -> None:
    """Megatron's own documentation: 8 ranks, tensor 4, context 2."""
    assert Layout(8, tp=4, cp=2).groups("cp") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    layout = Layout(16, tp=2, cp=2, pp=2)
    assert layout.groups("cp") == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert layout.groups("dp") == [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]]


def test_experts_are_spread_over_context_and_data_parallelism() -> None:
    layout = Layout(16, tp=2, cp=2, pp=2, ep=4)
    assert list(layout.problems()) == []
    assert layout.dp == 2
    assert layout.groups("ep") == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    assert layout.groups("expert_dp") == [[rank] for rank in range(16)]


def test_experts_without_tensor_parallelism() -> None:
    layout = Layout(8, tp=2, ep=4, etp=1)
    assert layout.groups("tp") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert layout.groups("ep") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert layout.groups("expert_dp") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert layout.groups("expert_tp") == [[rank] for rank in range(8)]


def test_another_order() -> None:
    layout = Layout(8, tp=2, pp=2, order=ORDER_DP_LAST)
    assert layout.groups("pp") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert layout.groups("dp") == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(1, tp=2), ["1 rank cannot be divided by tp 2 x pp 1 x cp 1 = 2"]),
        (Layout(16, tp=3), ["16 ranks cannot be divided by tp 3 x pp 1 x cp 1 = 3"]),
        (Layout(16, tp=2, pp=4, cp=4), ["16 ranks cannot be divided by tp 2 x pp 4 x cp 4 = 32"]),
        (Layout(16, tp=2, pp=2, ep=3), ["16 ranks cannot be divided by tp 2 x ep 3 x pp 2 = 12", "experts"]),
        (Layout(24, tp=2, pp=2, ep=4, etp=4), ["24 ranks cannot be divided by tp of experts 4 x ep 4 x pp 2 = 32"]),
        (Layout(16, tp=2, pp=2, ep=2, order=ORDER_DP_LAST), [ORDER_DP_LAST, "dp of experts", "2 is not 4"]),
        (Layout(8, tp=2, pp=2, ep=2, cp=2, order="tp-ep-pp-cp-dp"), ["tp-ep-pp-cp-dp", "other pipelines"]),
    ],
)
def test_a_layout_that_megatron_would_refuse(layout: Layout, words: list[str]) -> None:
    (problem,) = layout.problems()
    assert all(word in problem for word in words), problem


@pytest.mark.parametrize("layout", [Layout(16, tp=2, pp=2, ep=2, cp=2, order=ORDER_DP_LAST), Layout(16, tp=2, ep=4, order=ORDER_DP_LAST)])
def test_experts_with_the_data_parallelism_of_the_rest_fit_any_order(layout: Layout) -> None:
    assert list(layout.problems()) == []


SIZES = st.sampled_from([1, 2, 3, 4])
LAYOUTS = st.builds(
    lambda tp, pp, cp, ep, etp, rest, order: Layout(tp * pp * cp * ep * max(1, etp) * rest, tp, pp, cp, ep, etp, order),
    SIZES, SIZES, SIZES, SIZES, st.sampled_from([0, 1, 2]), SIZES, st.permutations(ORDER.split("-")).map("-".join),
).filter(lambda layout: not any(layout.problems()))  # fmt: skip


@given(LAYOUTS, st.sampled_from(KINDS))
def test_each_rank_is_in_one_group_of_each_kind(layout: Layout, kind: str) -> None:
    groups = layout.groups(kind)
    assert sorted(itertools.chain(*groups)) == list(range(layout.world_size))
    assert {len(group) for group in groups} == {getattr(layout, kind)}
    assert groups == sorted(groups)
    assert all(group == sorted(group) for group in groups)


@given(LAYOUTS, st.sampled_from([("tp", "pp", "cp", "dp"), ("expert_tp", "pp", "ep", "expert_dp")]))
def test_two_ranks_share_groups_of_one_kind_at_most(layout: Layout, kinds: tuple[str, ...]) -> None:
    """The kinds are independent of each other: nobody is the tensor and the pipeline neighbour of the same rank."""
    pairs = [pair for kind in kinds for group in layout.groups(kind) for pair in itertools.combinations(group, 2)]
    assert len(pairs) == len(set(pairs))


@given(LAYOUTS, st.sampled_from(KINDS))
def test_groups_are_those_of_the_digits(layout: Layout, kind: str) -> None:
    assert layout.groups(kind) == by_digits(layout, kind.rpartition("_")[2], experts=kind in EXPERTS)


@given(LAYOUTS)
def test_experts_are_in_the_pipelines_of_the_rest(layout: Layout) -> None:
    assert layout.groups("pp") == by_digits(layout, "pp", experts=True)


def by_digits(layout: Layout, digit: str, *, experts: bool) -> megatron.Groups:
    """The same in another way: every rank written with its digits, and put to those whose other digits are equal."""
    tp, cp, ep, dp = (layout.expert_tp, 1, layout.ep, layout.expert_dp) if experts else (layout.tp, layout.cp, 1, layout.dp)
    names = layout.order.split("-")
    sizes = {"tp": tp, "cp": cp, "ep": ep, "dp": dp, "pp": layout.pp}
    found: dict[tuple[int, ...], list[int]] = {}
    slowest_first = itertools.product(*(range(sizes[name]) for name in reversed(names)))
    for rank, digits in enumerate(slowest_first):
        others = tuple(d for name, d in zip(reversed(names), digits) if name != digit)
        found.setdefault(others, []).append(rank)
    return list(found.values())


def test_json_says_no_more_than_there_is() -> None:
    told = megatron.as_json(Layout(16, tp=2, pp=4))
    assert {name: told[name] for name in told if name != "groups"} == {"tp": 2, "pp": 4, "cp": 1, "ep": 1, "dp": 2, "order": ORDER}
    assert list(told["groups"]) == ["tp", "pp", "dp"]
    told = megatron.as_json(Layout(16, tp=2, cp=2, ep=4))
    assert (told["expert_tp"], told["expert_dp"]) == (2, 2)
    assert list(told["groups"]) == ["tp", "pp", "dp", "cp", "ep", "expert_tp", "expert_dp"]
