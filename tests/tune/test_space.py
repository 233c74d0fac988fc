"""Candidates: the batch arithmetic, the user's lists, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import helpers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranklaunch.errors import ConfigError
from ranklaunch.tune import words
from ranklaunch.tune.autotuning import KEYS, loads, settled
from ranklaunch.tune.experiments import command
from ranklaunch.tune.model import Candidate
from ranklaunch.tune.search import Search
from ranklaunch.tune.space import candidates

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def space(config: dict[str, Any], ranks: int = 4, program: tuple[str, ...] = (), **options: Any) -> list[Candidate]:
    """Without the reserve."""
    return [each for each in candidates(settled(config, program, 1, ranks, options)) if not each.reserve]


def sizes(config: dict[str, Any], ranks: int = 4, program: tuple[str, ...] = ()) -> list[tuple[int, int]]:
    """(micro, steps) at one stage."""
    return [(each.micro, each.steps) for each in space({**config, "zero_optimization": {"stage": 1}}, ranks, program)]


def section(**keys: Any) -> dict[str, Any]:
    return {"autotuning": keys}


def made(make: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], tuple[str, ...]]:
    """What comes of it, or what is refused."""
    try:
        return make(), ()
    except ConfigError as error:
        return (), error.problems


SIZES = st.one_of(st.just("auto"), st.none(), st.integers(1, 64), st.lists(st.integers(1, 64), min_size=1, max_size=4))


@given(SIZES, SIZES, SIZES, st.integers(1, 9), st.sampled_from([{}, {"max_train_batch_size": 256}, {"min_train_batch_size": 8}]))
def test_the_batch_sizes_of_every_candidate_fit_each_other(train: Any, micro: Any, steps: Any, ranks: int, limits: dict[str, int]) -> None:
    config = {TRAIN: train, MICRO: micro, STEPS: steps, "zero_optimization": {"stage": [0, 2]}, "autotuning": limits}
    found, problems = made(lambda: space(config, ranks))
    assert found or re.search(f"{TRAIN}|no batch sizes fit", "\n".join(problems))
    for each in found:
        own = each.config
        assert own[TRAIN] == own[MICRO] * own[STEPS] * ranks
        assert (own[MICRO], own[STEPS]) == (each.micro, each.steps)
        assert limits.get("min_train_batch_size", 1) <= own[TRAIN] <= limits.get("max_train_batch_size", 1 << 40)
        assert not isinstance(train, int) or own[TRAIN] == train
        assert not isinstance(train, list) or own[TRAIN] in train
        assert not isinstance(micro, list) or own[MICRO] in micro
        assert not isinstance(steps, int) or own[STEPS] == steps
        assert not isinstance(steps, list) or own[STEPS] in steps
    assert len({each.name for each in found}) == len({json.dumps(each.config, sort_keys=True) for each in found}) == len(found)


@helpers.for_each(
    [
        ({MICRO: [2, 8]}, (), [(2, 1), (8, 1)]),
        ({MICRO: 12, **section(max_train_micro_batch_size_per_gpu=16)}, (), [(1, 1), (2, 1), (4, 1), (8, 1), (12, 1), (16, 1)]),
        ({TRAIN: 24}, (), [(1, 6), (2, 3), (3, 2), (6, 1)]),
        ({TRAIN: 24, STEPS: 2}, (), [(3, 2)]),
        (section(max_train_batch_size=16), (), [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]),
        ({**section(min_train_micro_batch_size_per_gpu=3, max_train_micro_batch_size_per_gpu=8)}, (), [(3, 1), (4, 1), (8, 1)]),
        ({**section(max_train_micro_batch_size_per_gpu=64, num_tuning_micro_batch_sizes=3)}, (), [(1, 1), (8, 1), (64, 1)]),
        ({MICRO: [2], STEPS: "auto"}, ("--gradient_accumulation_steps", "4"), [(2, 4)]),
        ({MICRO: [2], STEPS: "auto"}, ("--gradient_accumulation_steps=4",), [(2, 4)]),
        ({TRAIN: 8, **section(mp_size=2)}, (), [(1, 4), (2, 2), (4, 1)]),
        ({TRAIN: 8, "tensor_parallel": {"autotp_size": 4}}, (), [(1, 8), (2, 4), (4, 2), (8, 1)]),
    ]
)
def test_batch_sizes(config: dict[str, Any], program: tuple[str, ...], expected: list[tuple[int, int]]) -> None:
    assert sizes(config, 4, program) == expected


def test_stages_offload_and_lists() -> None:
    zero = {"stage": [3, 1], "offload_optimizer": "auto", "overlap_comm": [True, False]}
    found = space(
        {MICRO: [1], "zero_optimization": zero, "optimizer": {"params": {"betas": [0.9, 0.95]}}, "a": {"b": {"c": [[1, 2], [3]]}}}
    )
    assert [each.name.rpartition("_")[0] for each in found[::4]] == [
        "z1_mbs1_gas1",
        "z1_mbs1_gas1_off-cpu",
        "z3_mbs1_gas1",
        "z3_mbs1_gas1_off-cpu",
    ]
    first = found[0].config
    assert first["optimizer"] == {"params": {"betas": [0.9, 0.95]}}
    assert (first["zero_optimization"], first["a"]) == ({"stage": 1, "overlap_comm": True}, {"b": {"c": [1, 2]}})
    assert found[4].config["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    assert found[0].others == {"zero_optimization.overlap_comm": True, "a.b.c": [1, 2]}


def test_names_stay_and_are_fit_for_folders() -> None:
    config = {MICRO: [4], "zero_optimization": {"stage": 2, "overlap_comm": [True, "../x y"]}}
    names = [each.name for each in space(config)]
    config["zero_optimization"]["overlap_comm"] = ["../x y", True, False]
    config["steps_per_print"] = 7
    assert set(names) < {each.name for each in space(config)}
    assert all(re.fullmatch(r"[a-z0-9_-]+", name) for name in names)
    assert [each.name for each in space({MICRO: [4], "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})] == [
        "z2_mbs4_gas1_off-cpu"
    ]


def test_what_is_slower_for_certain_is_kept_in_reserve() -> None:
    found = candidates(settled({MICRO: [1, 2]}, (), 1, 2))
    assert [(each.stage, each.micro, each.offload) for each in found if each.reserve] == [(3, 1, "cpu"), (3, 2, "cpu")]
    asked = {"zero_optimization": {"offload_optimizer": {"device": "none"}}}
    assert not any(each.reserve for each in candidates(settled({MICRO: [1], **asked}, (), 1, 2)))


def test_beyond_the_fast_mode_deepspeeds_own_lists_are_tried() -> None:
    config = {MICRO: [1], "zero_optimization": {"stage": [0, 1, 2], "overlap_comm": True}, **section(fast=False)}
    assert [sum(each.stage == stage for each in space(config)) for stage in (0, 1, 2)] == [1, 9, 36]


@helpers.for_each(
    [
        ({TRAIN: 30}, 4, f"{TRAIN} 30: expected a multiple of 4"),
        ({TRAIN: 32, MICRO: [3], STEPS: 1}, 4, f"no batch sizes fit: {TRAIN} 32, {MICRO} 3, {STEPS} 1"),
        ({MICRO: 0}, 4, f"{MICRO} 0: expected a whole number from 1 on"),
        ({MICRO: [1, True]}, 4, f"{MICRO} [1, true]: expected"),
        ({MICRO: []}, 4, f"{MICRO} []: expected"),
        ({STEPS: "many"}, 4, f"{STEPS} many: expected"),
        ({"zero_optimization": {"stage": 4}}, 4, "zero_optimization.stage 4: expected 0, 1, 2, 3"),
        ({"zero_optimization": {"stage": [[0, 1], None, "x"]}}, 4, 'zero_optimization.stage [[0, 1], null, "x"]: expected 0, 1, 2, 3'),
        ({"zero_optimization": {"stage": ["auto", True]}}, 4, 'zero_optimization.stage ["auto", true]: expected 0, 1, 2, 3'),
        ({"zero_optimization": [1]}, 4, "zero_optimization [1]: expected an object"),
        ({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}, 4, "no stage of 0 allows this offload"),
        ({"zero_optimization": {"offload_param": "disk"}}, 4, "zero_optimization.offload_param disk: expected an object with a device"),
        ({"zero_optimization": {"offload_param": "nvme"}}, 4, "expected nvme_path"),
        ({"zero_optimization": {"overlap_comm": []}}, 4, "zero_optimization.overlap_comm []: expected at least one value"),
        ({"a": list(range(300)), "b": list(range(300))}, 4, "expected at most 10000"),
        ({MICRO: list(range(1, 3000)), STEPS: list(range(1, 3000))}, 4, "more than 10000 batch sizes"),
        ({"elasticity": {"enabled": True}}, 4, "elasticity.enabled true"),
        (section(mp_size=3), 4, "mp_size 3: expected a divisor of the 4 ranks"),
        (section(fast="yes"), 4, "autotuning.fast yes: expected true or false"),
        (
            section(tuner_type="model-based"),
            4,
            "autotuning.tuner_type model-based: expected gridsearch, random, model_based, did you mean 'model_based'?",
        ),
        (section(metric="speed"), 4, "autotuning.metric speed: expected throughput, latency, flops"),
        (section(tuner_num_trials=0), 4, "autotuning.tuner_num_trials 0: expected a whole number from 1 on"),
        (section(start_profile_step=5, end_profile_step=5), 4, "end_profile_step 5: expected more than start_profile_step 5"),
        (
            section(min_train_batch_size=9, max_train_batch_size=8),
            4,
            "autotuning.min_train_batch_size 9 is more than autotuning.max_train_batch_size 8",
        ),
        (section(arg_mappings={MICRO: "batch"}), 4, f"autotuning.arg_mappings.{MICRO} batch: expected an option"),
        (section(exps_dir=""), 4, "autotuning.exps_dir : expected a path"),
        (section(model_info={"num_params": "7B"}), 4, "autotuning.model_info.num_params 7B: expected"),
        ({"autotuning": [1]}, 4, "autotuning [1]: expected an object"),
    ]
)
def test_refused(config: dict[str, Any], ranks: int, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        space(config, ranks)
    assert told in str(caught.value)


def test_all_mistakes_are_told_at_once_and_options_by_their_names() -> None:
    with pytest.raises(ConfigError) as caught:
        settled(section(fast=1, tuner_type="x"), (), 1, 1, {"--tuner": "grid", "--max-trials": "0"})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["--tuner grid", "--max-trials 0", "autotuning.fast 1"]


def test_a_mistake_is_told_once() -> None:
    with pytest.raises(ConfigError) as caught:
        settled(section(tuner_num_trials=-1, mp_size="x"), (), 1, 1)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["autotuning.tuner_num_trials -1", "autotuning.mp_size x"]


def test_a_key_that_deepspeed_does_not_know_is_warned_of() -> None:
    (warning,) = settled(section(tuner_early_stoping=3), (), 1, 1).warnings
    assert warning.endswith("did you mean 'tuner_early_stopping'?")


def test_options_change_with_the_configuration() -> None:
    program = ("--lr", "1", "--per_device_train_batch_size=2", "--deepspeed", "old.json")
    config = {
        MICRO: [4],
        "zero_optimization": {"stage": 2},
        **section(arg_mappings={"stage": "--zero", "gradient_accumulation_steps ": "--gas"}),
    }
    (experiment,) = Search(
        settled({**config, "autotuning": {**config["autotuning"], "model_info": {"num_params": 1}}}, program, 1, 2)
    ).next(1)
    assert experiment.args == {"--per_device_train_batch_size": "4", "--zero": "2", "--gas": "1"}
    changed = words.changed(program, "new.json", experiment.args)
    assert changed == ("--lr", "1", "--per_device_train_batch_size=4", "--deepspeed", "new.json", "--zero", "2", "--gas", "1")
    assert words.changed(("--deepspeed", "--x"), "new.json", {}) == ("--deepspeed", "--x", "--deepspeed_config", "new.json")


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**30), st.floats(), st.text(max_size=8), st.sampled_from(["auto", "all", "cpu"])
)
KEY = st.sampled_from(
    [TRAIN, MICRO, STEPS, "zero_optimization", "stage", "offload_optimizer", "offload_param", "autotuning", "fp16", "x.y", *KEYS]
)
HOSTILE = st.recursive(LEAVES, lambda below: st.lists(below, max_size=3) | st.dictionaries(KEY, below, max_size=4), max_leaves=12)


@given(st.dictionaries(KEY, HOSTILE, max_size=5), st.integers(1, 8))
def test_nonsense_is_refused_in_words(config: dict[str, Any], ranks: int) -> None:
    found, problems = made(lambda: Search(settled(config, (), 1, ranks)).next(1))
    assert found or (problems and all(problems))


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[1]", "nul", '{"a":' * 2000 + "1" + "}" * 2000])
def test_hostile_files(text: str) -> None:
    with pytest.raises(ConfigError):
        settled(loads(text, "ds.json"), (), 1, 1)


@helpers.for_each(
    [
        ("[" * 100_000, "ds.json: nested too deeply"),
        ("{", "ds.json is no JSON: Expecting property name enclosed in double quotes"),
        ("[1]", "ds.json: expected an object"),
    ]
)
def test_a_configuration_that_is_none_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, "ds.json")
    assert str(caught.value).startswith(told)


@helpers.numbers_have_a_limit
def test_a_number_of_thousands_of_digits() -> None:
    with pytest.raises(ConfigError) as caught:
        loads(f'{{"{TRAIN}": {"9" * 5000}}}', "ds.json")
    assert str(caught.value) == "ds.json: a number in it has thousands of digits"


def test_a_configuration_that_is_no_file_of_text_is_refused(tmp_path: Path) -> None:
    """Whether it is named by tune's own option or by the program's."""
    own = ["--method", "spawn", "--slots", "1", "--log-dir", str(tmp_path / "logs"), "--dry-run"]
    for path, why in helpers.no_texts(tmp_path):
        for named in (["--ds-config", str(path), "--", "t.py"], ["--", "t.py", "--deepspeed_config", str(path)]):
            dry = command.is_dry([*own, *named], {})
            assert dry
            with pytest.raises(ConfigError) as refused:
                command.show(dry)
            assert str(refused.value) == f"the DeepSpeed configuration {path}: {why}"
