"""Whether the batch sizes of a DeepSpeed configuration fit the ranks of the job."""

from __future__ import annotations

from typing import Any

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan import ds_config
from ranklaunch.plan.model import Plan

PATH = f"{helpers.CWD}/ds.json"


def plan(text: str, *args: str, method: str = "deepspeed", nodes: int = 2, slots: str = "4", **env: str) -> Plan:
    words = args or ("--deepspeed_config", "ds.json")
    return helpers.plan(helpers.local(nodes, slots, **env), *words, files={PATH: text}, method=method)


def problems(text: str, *args: str, **more: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        plan(text, *args, **more)
    return caught.value.problems


def config(train: Any = None, micro: Any = None, steps: Any = None, more: str = "") -> str:
    pairs = {"train_batch_size": train, "train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": steps}
    return "{" + ", ".join([f'"{name}": {value}' for name, value in pairs.items() if value is not None] + ([more] if more else [])) + "}"


AUTO = '"auto"'


@helpers.for_each(
    [
        (config(64, 4, 2),),
        (config(64, 4),),
        (config(64, steps=2),),
        (config(64),),
        (config(micro=3, steps=5),),
        (config(),),
        (config(AUTO, AUTO, AUTO),),
        (config(AUTO, 3, 5),),
        (config(64, AUTO, AUTO),),
        (config(32, 4, 1, '"sequence_parallel_size": 1'),),
        (config(16, 4, 1, '"sequence_parallel_size": 2'),),
        (config(16, 4, 1, '"tensor_parallel": {"autotp_size": 2}'),),
        (config(7, more='"elasticity": {"enabled": true}'),),
        ("[1]",),
        ("no JSON at all",),
        ("",),
    ]
)
def test_what_fits_or_cannot_be_known(text: str) -> None:
    assert not plan(text).warnings


@helpers.for_each(
    [
        (config(32, 4, 2), "train_batch_size 32 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 2 x 8 ranks = 64: "),
        (config(32, 4, 2), ": train_batch_size 64, or train_micro_batch_size_per_gpu 2, or gradient_accumulation_steps 1 would fit"),
        (config(60, 4), "train_batch_size 60 is no multiple of train_micro_batch_size_per_gpu 4 x 8 ranks = 32: "),
        (config(60, 4), ": train_batch_size 32 or 64 would fit"),
        (config(16, 4), "x 8 ranks = 32: train_batch_size 32, or train_micro_batch_size_per_gpu 2 would fit"),
        (config(24, AUTO, 2), "x 8 ranks = 16: train_batch_size 16 or 32, or gradient_accumulation_steps 3 would fit"),
        (config(30), "train_batch_size 30 is no multiple of 8 ranks: train_batch_size 24 or 32 would fit"),
        (config(5, AUTO, AUTO), "train_batch_size 5 is no multiple of 8 ranks: train_batch_size 8 would fit"),
        (config(32, 0), "train_micro_batch_size_per_gpu is 0: expected at least 1"),
        (config(30, 4, 1, '"zero_optimization": {"stage": 3}'), "x 8 ranks = 32: train_batch_size 32 would fit"),
    ]
)  # fmt: skip
def test_what_does_not_fit(text: str, said: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("ds.json: ")
    assert said in problem
    assert problem.endswith("; set RANKLAUNCH_CHECK_BATCH=off if the program changes the numbers by itself")


@pytest.mark.parametrize("args", [("--pipeline-parallel-size=2",), ("--tp", "2"), ("--mp_size", "2")])
def test_a_program_that_may_split_its_model_is_warned(args: tuple[str, ...]) -> None:
    (warning,) = plan(config(32, 4, 2), "--deepspeed_config=ds.json", *args).warnings
    assert "= 64, unless the program splits its model over 2 ranks: train_batch_size 64" in warning
    assert "3 is not" in problems(config(3, 4, 2), "--deepspeed_config=ds.json", *args)[0]


@helpers.for_each([("deepspeed", True), ("torchrun", True), ("spawn", True), ("plain", False)])
def test_of_every_method_that_starts_ranks(method: str, found: bool) -> None:
    """That which starts the program once does not know how many ranks it makes."""
    if found:
        assert "is no multiple of 8 ranks" in problems(config(30), method=method)[0]
    else:
        plan(config(30), method=method)


def test_it_may_be_switched_off_and_autotuning_does() -> None:
    plan(config(30), RANKLAUNCH_CHECK_BATCH="off")
    plan(config(30), nodes=1, slots="8", RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS="--autotuning tune")


def test_by_what_is_left_of_the_job() -> None:
    plan(config(28, 4, 1), slots="7", nodes=1)
    assert "x 4 ranks = 16" in problems(config(28, 4, 1), nodes=1, slots="7", RANKLAUNCH_NUM_GPUS="4")[0]


@helpers.for_each(
    [
        ('{"a": 1, // one\n "b": "not // here", # two\n /* three\n */ "c": [1, 2,],}', {"a": 1, "b": "not // here", "c": [1, 2]}),
        ('{"a": "say \\"//\\", ]"}', {"a": 'say "//", ]'}),
        ("{}", {}),
    ]
)  # fmt: skip
def test_comments_and_last_commas(text: str, found: Any) -> None:
    assert ds_config.loads(text) == found


@pytest.mark.parametrize(
    "text", ['{"a": "' + 'say \\"' * 100_000, '{"a": 1 ' + "/* " * 300_000, "{" + ", " * 400_000], ids=["text", "comment", "commas"]
)
def test_a_file_that_is_half_written(text: str) -> None:
    """It is read to its end once: from each quote anew would take hours."""
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        ds_config.loads(text)


@helpers.for_each(
    [
        (("--deepspeed", "ds.json"), "ds.json"),
        (("--deepspeed=ds.json", "-x"), "ds.json"),
        (("--deepspeed", "--deepspeed_config", "a.json"), "a.json"),
        (("--deepspeed", "b.json", "--deepspeed_config=a.json"), "a.json"),
        (("--deepspeed",), ""),
        (("--deepspeed_config", "--deepspeed"), ""),
    ]
)
def test_which_file_it_is(args: tuple[str, ...], path: str) -> None:
    assert ds_config.path_of(args) == path
