"""The memory that each stage needs, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ranklaunch.tune import memory
from ranklaunch.tune.autotuning import settled
from ranklaunch.tune.memory import Need, states
from ranklaunch.tune.model import OK, PROFILE, PRUNED, Result, Settings
from ranklaunch.tune.search import Search
from ranklaunch.tune.table import needs

GIB = 1024**3


def as_the_autotuner_has_it(num_params: int, stage: int, total_gpus: int, mp_size: int, fp16: bool) -> float:
    """get_instantiation_memory_required_per_gpu, word for word."""
    params_mem = num_params * (2 if fp16 else 4)
    gradients_mem = num_params * (2 if fp16 else 4)
    optimizer_mem = num_params * (16 if fp16 else 8)
    if stage >= 1:
        optimizer_mem = optimizer_mem / total_gpus
    if stage >= 2:
        gradients_mem = gradients_mem / total_gpus
    if stage >= 3:
        params_mem = params_mem / total_gpus
    return (params_mem + gradients_mem + optimizer_mem) / mp_size


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_states_are_those_of_the_formula(stage: int, half: bool) -> None:
    for params in (1, 335_144_976, 13_000_000_001):
        for ranks in (1, 3, 8, 64):
            for mp_size in (1, 2, 3):
                expected = as_the_autotuner_has_it(params, stage, ranks, mp_size, half)
                assert states(params, stage, ranks, mp_size, half).states == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("half", "expected"), [(False, [16, 9, 5.5, 2]), (True, [20, 6, 4.25, 2.5])])
def test_bytes_a_parameter_on_eight_ranks(half: bool, expected: list[float]) -> None:
    found = [states(1_000_000, stage, 8, 1, half).states / 1_000_000 for stage in range(4)]
    assert found == [pytest.approx(each) for each in expected]


def profiled(memory_gib: float, info: dict[str, float], config: dict[str, object] | None = None, **more: object) -> Search:
    settings: Settings = settled(config or {"fp16": {"enabled": True}}, (), 2, 4, memory=int(memory_gib * GIB), **more)
    search = Search(settings)
    (experiment,) = search.next(2)
    assert (experiment.name, experiment.config["train_micro_batch_size_per_gpu"], experiment.config["train_batch_size"]) == (PROFILE, 1, 8)
    search.tell(Result(PROFILE, PROFILE, OK, info=info))
    return search


def pruned(search: Search) -> dict[int, set[int]]:
    """Micro-batches that are left, by the stage; without the reserve."""
    left: dict[int, set[int]] = {}
    for row in search.rows:
        if row.status != PRUNED and not row.offload:
            left.setdefault(row.stage, set()).add(row.micro)
    return left


def test_stages_that_cannot_fit_are_pruned_with_the_reason() -> None:
    """2e9 parameters in half precision: 37.3, 11.2, 7.9 and 4.7 GiB on eight ranks."""
    search = profiled(12, {"num_params": 2e9, "activation_mem_per_gpu": 0.5 * GIB})
    left = pruned(search)
    assert (sorted(left), max(left[1]), max(left[2]), max(left[3])) == ([1, 2, 3], 1, 8, 8)
    reasons = {row.reason for row in search.rows if row.stage == 0}
    assert reasons == {"stage 0 needs 37.3 GiB for its states, a device has 12.0 GiB"}


def test_the_overhead_that_the_profile_shows_counts() -> None:
    without = {"num_params": 2e9, "activation_mem_per_gpu": 0.5 * GIB}
    assert 1 not in pruned(profiled(12, {**without, "overhead": 1.0 * GIB}))
    own = states(2e9, 3, 8, 1, half=True).states  # of the profile run, which is at stage 3
    seen = profiled(12, {**without, "peak": own + 1.5 * GIB})
    assert memory.overhead(seen.settings, seen.info) == pytest.approx(1.0 * GIB)
    assert 1 not in pruned(seen)


def test_on_a_cpu_the_process_itself_is_the_overhead() -> None:
    search = profiled(8, {"num_params": 1e9, "begun": 4e9 + 0.5 * GIB}, device="cpu")
    assert memory.overhead(search.settings, search.info) == pytest.approx(0.5 * GIB)
    assert not any(each.reserve for each in search.space)  # the host's memory is the same


def test_what_is_on_the_host_needs_no_device() -> None:
    config = {"zero_optimization": {"stage": [1, 3], "offload_optimizer": "auto", "offload_param": [None, "cpu"]}}
    search = profiled(8, {"num_params": 1e9}, config)
    left = {(row.stage, row.offload) for row in search.rows if row.status != PRUNED}
    assert left == {(1, "cpu"), (3, ""), (3, "cpu"), (3, "none+cpu"), (3, "cpu+cpu")}
    needed = {(each.stage, each.offload): memory.needed(search.settings, search.info, each) for each in search.space}
    assert needed[3, "cpu+cpu"] == Need(gradients=0.5e9)


@pytest.mark.parametrize("info", [{}, {"activation_mem_per_gpu": 9e9}])
def test_without_a_count_of_parameters_nothing_is_pruned_and_it_is_said(info: dict[str, float]) -> None:
    search = profiled(0.001, info)
    assert not any(row.status == PRUNED for row in search.rows)
    assert needs(search) == ["the number of parameters is not known: nothing is pruned by memory"]


def test_the_memory_of_a_process_says_nothing_of_a_sample() -> None:
    assert max(pruned(profiled(12, {"num_params": 2e9, "activation_mem_per_gpu": GIB}, device="cpu"))[3]) == 1024


def test_a_lower_stage_is_too_large_only_where_its_states_outweigh_the_buckets() -> None:
    search = profiled(40, {"num_params": 2e9})
    by_name = {each.name: each for each in search.space}
    failed = by_name["z2_mbs8_gas1"]
    assert memory.needs_no_less(search.settings, search.info, by_name["z0_mbs8_gas1"], failed)
    assert not memory.needs_no_less(search.settings, search.info, by_name["z0_mbs4_gas1"], failed)
    assert not memory.needs_no_less(search.settings, search.info, by_name["z3_mbs16_gas1"], failed)
    small = {**search.info, "num_params": 1e6}
    assert not memory.needs_no_less(search.settings, small, by_name["z0_mbs8_gas1"], failed)
    assert memory.needs_no_less(search.settings, small, by_name["z2_mbs16_gas1"], failed)


def test_a_count_that_the_user_gives_saves_the_profile_run() -> None:
    settings = settled({"autotuning": {"model_info": {"num_params": 2_000_000_000}}}, (), 1, 8, memory=12 * GIB)
    search = Search(settings)
    assert [each.kind for each in search.next(1)] == ["trial"]
    assert {row.stage for row in search.rows if row.status == PRUNED} == {0, 1}
    assert Search(replace(settings, memory=0)).next(1)[0].name == "z0_mbs1_gas1"
