"""How fast an experiment was, from what programs write: lines as they really are, of the named versions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import helpers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tune_landscapes import LANDSCAPES, experiments

from ranklaunch.tune import metrics, plot, results, table
from ranklaunch.tune.experiments import outcome
from ranklaunch.tune.model import PROFILE, TRIAL, TUNERS, Experiment, Result
from ranklaunch.tune.search import Search


def experiment(start: int = 2, kind: str = TRIAL) -> Experiment:
    config = {"train_batch_size": 16, "autotuning": {"enabled": True, "start_profile_step": start, "end_profile_step": 5}}
    return Experiment("z1_mbs8_gas2", kind, config, 1, 1)


# DeepSpeed 0.19.8 on a CPU: 16 samples a step, start_profile_step 3, end_profile_step 5.
DEEPSPEED_FILE = (
    '{"fwd": 156.87942504882812, "bwd": 832.7960968017578, "step": 1087.9039764404297, "latency": 4155.158996582031, '
    '"FLOPS_per_gpu": 440635846.06655955, "throughput": 3850.6348404865735, "rank": 0}'
)
DEEPSPEED_OUTPUT = """\
[Rank 0] time (ms) | fwd: 31.90 | bwd: 13.91 | bwd_inner: 6.98 | bwd_allreduce: 6.83 | step: 5.17
[Rank 0] time (ms) | fwd: 0.53 | bwd: 2.17 | bwd_inner: 0.85 | bwd_allreduce: 1.23 | step: 2.03
[Rank 0] time (ms) | fwd: 0.32 | bwd: 1.89 | bwd_inner: 0.77 | bwd_allreduce: 1.07 | step: 2.24
[Rank 0] time (ms) | fwd: 0.71 | bwd: 2.15 | bwd_inner: 0.89 | bwd_allreduce: 1.19 | step: 2.53
[Rank 0] time (ms) | fwd: 0.33 | bwd: 2.00 | bwd_inner: 0.80 | bwd_allreduce: 1.15 | step: 2.44
Autotuning: done with running current ds config.
"""


def test_deepspeeds_file_counts_in_microseconds() -> None:
    found = metrics.measured(experiment(), DEEPSPEED_FILE, "")
    assert found.metrics == pytest.approx({"throughput": 3850.63484, "latency": 0.004155159, "flops": 440635846.0666})
    assert found.metrics["throughput"] * found.metrics["latency"] == pytest.approx(16)
    assert (found.source, found.steps) == ("DeepSpeed's metric file", 1)


def test_the_steps_that_deepspeeds_file_leaves_out_count_too() -> None:
    found = metrics.measured(experiment(2), DEEPSPEED_FILE, DEEPSPEED_OUTPUT)
    assert found.steps == 3  # the fourth and the fifth of the output, the sixth of the file
    assert found.metrics["latency"] == pytest.approx(0.00477)
    assert found.metrics["throughput"] == pytest.approx(16 / 0.00477)
    assert metrics.measured(experiment(9), DEEPSPEED_FILE, DEEPSPEED_OUTPUT).steps == 1


def test_what_a_profile_run_says() -> None:
    text = '{"num_params": 19210, "trainable_num_params": 19210, "activation_mem_per_gpu": 1200128, "rank": 0}'
    assert metrics.info(text) == {"num_params": 19210, "trainable_num_params": 19210, "activation_mem_per_gpu": 1200128}
    output = "DeepSpeed Engine: After args sanity test\n[rank 0] MA 0.25 GB         Max_MA 0.3 GB         CA 0.24 GB         Max_CA 0 GB \n"
    assert metrics.info(text, output)["begun"] == 0.25 * 1024**3
    for broken in ("", text[:30], "[]", '{"num_params": "many"}', '{"num_params": -1, "activation_mem_per_gpu": NaN}'):
        assert metrics.info(broken, output) == {}


def test_where_deepspeed_is_to_write() -> None:
    placed = metrics.placed(experiment(), "/exps/a")
    assert placed["autotuning"]["metric_path"] == "/exps/a/metrics.json"
    assert placed["autotuning"]["start_profile_step"] == 2
    assert metrics.placed(experiment(kind=PROFILE), "/exps/a")["autotuning"]["model_info_path"] == "/exps/a/model_info.json"


STAMP = "[2026-11-22 20:00:00,000] [INFO] [timer.py:264:stop] "
MEGATRON = (
    " [2025-08-01 07:19:37] iteration {step:8d}/    5000 | consumed samples:          128 | elapsed time per iteration (ms): {ms} |"
    " learning rate: 6.976744E-08 | global batch size:   128 | lm loss: 1.0E+01 |"
)
RATE = "epoch=0/micro_step={micro}/global_step={step}, RunningAvgSamplesPerSec=9.5, CurrSamplesPerSec={step}.0, MemAllocated=0.1GB"
TRAINER = "{'train_runtime': 0.2564, 'train_samples_per_second': 32.0, 'train_steps_per_second': 11.699, 'epoch': 1.0}"


@helpers.for_each([
        ([STAMP + RATE.format(micro=2 * n, step=n) for n in range(1, 6)], 4, 4, 3),
        ([f"[INFO] [timer.py:157:stop] 0/{n}, SamplesPerSec={n}.0, MemAllocated=0.0GB" for n in range(1, 6)], 4, 4, 3),
        (DEEPSPEED_OUTPUT.splitlines(), 16 / 0.00477, 0.00477, 3),
        (["time (ms) | forward: 1000.00 | backward: 2000.00 | step: 1000.00"] * 3, 4, 4, 1),
        ([MEGATRON.format(step=step, ms=ms) for step, ms in ((1, "19138.8"), (2, "12936.1"), (3, "1000.0"), (4, "4000.0"))], 80, 2.5, 2),
        (["{'loss': 2.1, 'epoch': 0.5}", TRAINER], 32, 0.5, 1),
        (["{'train_runtime': '0.2564', 'train_samples_per_second': '32.0'}"], 32, 0.5, 1),
        (["  train_samples_per_second =       32.0"], 32, 0.5, 1),
        ([f"step {n}: loss 0.1, {n * 8}.0 samples/s" for n in range(1, 6)], 32, 0.5, 3),
        (["speed 32 images/sec"], 32, 0.5, 1),
        (["8-32 samples/s"], 32, 0.5, 1),
        (["run-32 samples/s"], 32, 0.5, 1),
        (["loss 1.750 samples/s: 32"], 32, 0.5, 1),
        (["step 3/6 samples/s = 32.0, lr 0.1"], 32, 0.5, 1),
        (["3,200.0 samples/s"], 3200, 0.005, 1),
        (["12 s, throughput: 3,200 images per second, 8 GB"], 3200, 0.005, 1),
        (["step 7 32 samples/s 8.1 ms/step"], 32, 0.5, 1),
        (["step 7, samples/s 32.0"], 32, 0.5, 1),
        (["Images/sec 3,200.0 | loss 0.1"], 3200, 0.005, 1),
        ([f"\r{n}%|#   | {n}/100 [00:0{n}<03:20, {n}.00s/it, loss=0.1]" for n in range(1, 6)], 4, 4, 3),
        ([f"Loading checkpoint shards: 50%|##  | {n}/8 [00:01<00:01, 9.00it/s]" for n in range(1, 6)]
         + [f"iter {n}: loss 4.5, time {n}000.00ms, mfu 1.23%" for n in range(1, 6)], 4, 4, 3),
        ([f"Train: 0 [  {n}/9 (  4%)]  Loss: 6.9 (6.9)  Time: {n}.0s,  4.00/s  (0.6s,  5.00/s)" for n in range(1, 6)], 4, 4, 3),
        (["Epoch 0:  50%|#####     | 50/100 [00:05<00:05,  2.00it/s, v_num=0]"], 32, 0.5, 1),
    ])  # fmt: skip
def test_lines_of_steps(lines: list[str], throughput: float, latency: float, steps: int) -> None:
    noise = [
        "loading 3/7 shards",
        "time (ms) | fwd_microstep: 0.5",
        "iteration 3 of 9",
        "1234567/s",
        "SamplesPerSec=",
        "throughput: nan samples/s",
    ]
    found = metrics.measured(experiment(), "{broken", "\n".join([*noise, *lines]))
    assert found.metrics == pytest.approx({"throughput": throughput, "latency": latency}, rel=1e-3)
    assert found.steps == steps


@helpers.for_each([
        ([f"step {n}: loss 0.1, {n},000.0 tokens/s" for n in range(1, 6)], 4000, 3),
        (["tok/s 9.3"], 9.3, 1),
        ([f"\x1b[31mstep: {n}  \x1b[32mloss:  7.9  \x1b[34mtps: {n},000  \x1b[39m" for n in range(1, 6)], 4000, 3),
        (["tokens_per_second: 9300 | loss 1"], 9300, 1),
        (["9300.5 tokens per sec"], 9300.5, 1),
        (["Tokens/sec/GPU = 9300"], 9300, 1),
        (["50 tokens/s", "step 1/3 [00:01<00:02, 2.00it/s]"], 50, 1),
    ])  # fmt: skip
def test_lines_of_tokens(lines: list[str], throughput: float, steps: int) -> None:
    """They are the throughput, of which no latency follows, since nothing tells how many tokens a sample has."""
    found = metrics.measured(experiment(), "", "\n".join(lines))
    assert (found.metrics, found.steps) == ({"throughput": throughput, "tokens": throughput}, steps)


def test_a_throughput_of_tokens_is_shown_as_such() -> None:
    found = Result("a", "experiment", "ok", {"throughput": 9.0, "tokens": 9.0})
    assert [table.unit(metric, found) for metric in ("throughput", "latency")] == ["tokens/s", "s/step"]
    assert table.unit("throughput", None) == "samples/s"


def test_without_any_figure_nothing_is_claimed() -> None:
    unclear = (
        "loss 0.3 samples/s 32",
        "loss 0.3 samples/s 32 lr 0.1",
        "loss 0.3 samples/s -32",
        "samples/s 32%",
        "tokens/s 9.3k",
        "3 tokens/s 9",
    )
    below_zero = [f"{before}-1,500.5 samples/s" for before in ("step 3 ", "", "rate:", "rate=", "(", "[", "loss 0.1,", "|", "'")]
    for text in (
        *unclear,
        *below_zero,
        "samples/s: -32",
        "",
        "epoch 1 loss 0.3",
        "0.0 samples/s",
        "time (ms) | fwd: 0.00 | bwd: 0.00 | step: 0.00",
        "9" * 400 + " samples/s",
        *["samples/s: 1e308"] * 2,
        "samples/s: 1e-323",
    ):
        for file in ('{"latency": 0, "throughput": 1e999}', '{"latency": 1e-323, "throughput": 1}'):
            assert metrics.measured(experiment(), file, text) == metrics.Measured()


WORDS = [
    "iteration 1/ 2 |",
    "elapsed time per iteration (ms): 1",
    "SamplesPerSec=1",
    "global_step=1, ",
    "time (ms) | fwd: 1",
    " | bwd: 1 | step: 1",
    "1/2 [00:01<00:02, 1it/s",
    "\r",
    "\n",
    "9" * 50,
    "samples/s",
    "tokens/s ",
    "inf",
    "e999",
]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=12).map("".join), st.text(max_size=20))
def test_any_output_can_be_read(output: str, file: str) -> None:
    found = metrics.measured(experiment(), file, output)
    assert all(0 < value < float("inf") for value in found.metrics.values())


@pytest.mark.parametrize("tuner", TUNERS)
def test_what_is_shown_of_a_search(tuner: str) -> None:
    landscape = LANDSCAPES["micro-batches"]
    search = Search(landscape.settings(tuner, trials=30, confirm=True))
    before = table.described(search)
    assert before[0].startswith("75 candidates, 0 of them pruned; each experiment has 8 ranks on 1 node")
    assert sum(bool(re.match(r" +\d+ z", line)) for line in before) == 60
    for _ in experiments(search, landscape):
        pass
    best = search.best
    assert best
    shown = table.lines(search)
    assert re.match(rf"\*  {best.name} ", shown[1])
    assert shown[-1].startswith(f"best: {best.name} with ")
    optimal: Any = results.optimal(search)
    assert "autotuning" not in optimal
    assert optimal["train_batch_size"] == optimal["train_micro_batch_size_per_gpu"] * optimal["gradient_accumulation_steps"] * 8
    assert json.loads(results.optimal_text(search)) == optimal
    assert results.optimal_words(search, "/r/best one.json") == ("--deepspeed_config", "/r/best one.json")


def test_the_picture_has_a_point_for_each_result() -> None:
    landscape = LANDSCAPES["offload"]
    search = Search(landscape.settings("random", trials=50))
    ET.fromstring(plot.drawn(search))  # of nothing yet
    for _ in experiments(search, landscape):
        pass
    root = ET.fromstring(plot.drawn(search))
    tag = "{http://www.w3.org/2000/svg}"
    statuses = [row.status for row in search.rows]
    assert len(root.findall(f".//{tag}g/{tag}path")) == statuses.count("out of memory") > 0
    assert len(root.findall(f".//{tag}circle")) == statuses.count("ok") + 1  # and the ring of the best
    assert search.best
    assert search.best.name in root.attrib["aria-label"]


@pytest.mark.parametrize("figure", [1e308, 5e-324])
def test_a_figure_that_no_machine_has_is_none(figure: float) -> None:
    """As a folder of an earlier start may have it."""
    landscape = LANDSCAPES["micro-batches"]
    search = Search(landscape.settings("model_based", trials=9))
    while not search.over:
        for found in search.next(1):
            search.tell(Result(found.name, found.kind, "ok", {"throughput": figure}))
    ET.fromstring(plot.drawn(search))
    assert search.best is None


def test_a_second_run_that_is_far_from_the_first_is_said() -> None:
    landscape = LANDSCAPES["micro-batches"]
    search = Search(landscape.settings("random", trials=3, confirm=True))
    for _ in experiments(search, landscape):
        pass
    assert results.confirmed(search) is True
    again = search.confirmation
    assert again
    search.tell(type(again)(again.name, again.kind, "ok", {"throughput": again.metrics["throughput"] * 0.8}))
    assert results.confirmed(search) is False
    assert "more than a tenth apart" in table.lines(search)[-1]


def test_the_output_of_a_rank_may_be_no_text_and_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "MOST_OF_LOG", 20)
    (tmp_path / "rank_0.log").write_bytes(b"x" * 100 + b"\xff 5 samples/s\n")
    assert outcome.end_of(str(tmp_path / "rank_0.log")) == "xxxxxx\ufffd 5 samples/s\n"
    assert [outcome.end_of(str(tmp_path / name)) for name in ("", "none")] == ["", ""]
