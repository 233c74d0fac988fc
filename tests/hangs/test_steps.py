"""How far a training is, from what its ranks write."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranklaunch.hangs.steps import LONGEST_FORM, MOST_FORMS, MOST_LINE, Place, Steps


def fed(*lines: str, every: float = 1.0, end: str = "\n") -> Steps:
    """A line a look."""
    steps = Steps()
    for number, line in enumerate(lines):
        steps.feed(f"{line}{end}".encode(), number * every)
    return steps


LINES = {
    "Megatron": (" iteration {n:8d}/     500 | consumed samples:  {m:8d} | elapsed time per iteration (ms): 812.{n} |", Place(0, 7, 500)),
    "DeepSpeed": ("[2026-11-22 08:00:0{n},123] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[0.001]", Place(0, 7)),
    "torchtitan": (
        "[titan] 2026-11-22 08:00:0{n},1 - root - INFO - step:  {n}  loss:  7.{m}  grad_norm:  1.2  memory: 1.1GiB",
        Place(0, 7),
    ),
    "MindFormers": (
        "2026-11-22 - INFO - {{ Epoch:[  1/  2], step:[    {n}/  500], loss: 10.6{m}, per_step_time: 812ms }}",
        Place(1, 7, 500),
    ),
    "MindSpore": ("epoch: 1 step: {n}, loss is 2.{m}", Place(1, 7)),
    "Lightning with rich": ("Epoch 3/9  ━━━━━━━━━━━━━━━━━ {n}/50 0:00:01 • 0:00:01 22.57it/s v_num: 1", Place(3, 7, 50)),
    "Lightning": ("Epoch 3:  20%|##   | {n}/50 [00:0{n}<00:48,  0.83it/s, v_num=1]", Place(3, 7, 50)),
    "tqdm": (" 20%|##   | {n}/50 [00:0{n}<00:48,  1.21s/it]", Place(0, 7, 50)),
    "epoch 0 batch 0 of 0, loss 0": ("epoch 1 batch {n} of 50, loss 0.{m}", Place(0, 7)),
}


@pytest.mark.parametrize("shape", LINES)
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_the_lines_of_each_framework(shape: str, end: str) -> None:
    line, last = LINES[shape]
    steps = fed(*(line.format(n=n, m=(n * 37) % 10) for n in range(1, 8)), every=2.0, end=end)
    assert steps.last
    assert (steps.last.shape, steps.last.place) == (shape, last)
    assert steps.seconds == pytest.approx(2.0)
    assert steps.largest_gap == pytest.approx(2.0)


@pytest.mark.parametrize(
    "line",
    [
        "[WARNING] DISTRIBUTED(116,7f,python) [tcp_comm.cc:485] Connect] Connection {n} source: 10.0.0.1:{m}, destination: 10.0.0.1:8118",
        "[WARNING] DISTRIBUTED(116,7f,python) [cluster_context.cc:267] BuildCluster] Topology build timed out., retry({n}/1200).",
        "peer 10.0.0.1:{m} said hello",
        "waiting for the dataset, {m} s",
        "Attempt {n} of 5",
    ],
)
def test_lines_that_are_about_something_else(line: str) -> None:
    assert fed(*(line.format(n=n, m=49034 + 2 * n) for n in range(1, 8))).last is None


@pytest.mark.parametrize("line", ["10.0.0.1: step {n}, data wait 0.{n} s", "worker-1 [pid 7] {n} error: 0.3", "INFO {n} 0.7"])
def test_lines_of_a_programs_own_form(line: str) -> None:
    steps = fed(*(line.format(n=n) for n in range(1, 8)))
    assert steps.last
    assert steps.last.place == Place(0, 7)


@pytest.mark.parametrize("order", [(1, 1, 1, 2, 2, 2, 3, 3, 3, 4), (1, 2, 1, 3, 2, 4, 3, 4), (1, 1, 2, 1, 2, 3, 2, 4)])
def test_lines_of_several_ranks(order: tuple[int, ...]) -> None:
    """In an output that they share, some a step behind others."""
    steps = fed(*(f"step {n}/40 loss 0.4" for n in order))
    assert steps.last
    assert steps.last.place == Place(0, 4)


@pytest.mark.parametrize("every", [1.0, 1.01, 10.0, 60.0])
@pytest.mark.parametrize(
    "form", ["%Y-%m-%d %H:%M:%S,{ms:03d} - INFO - ", "[%H:%M:%S] ", "%H:%M:%S.{ms:03d} ", "%Y/%m/%d %H:%M ", "%d:%H:%M:%S "]
)
def test_a_clock_counts_no_steps(form: str, every: float) -> None:
    """It grows by the same where steps take as long, up to the turn of a minute."""
    began = datetime(2026, 11, 23, 17, 0, 3)
    times = [began + timedelta(seconds=n * every) for n in range(130)]
    told = [f"{at.strftime(form.format(ms=at.microsecond // 1000))}step {n} loss 0.5" for n, at in enumerate(times)]
    steps = fed(*told)
    assert steps.last
    assert (steps.last.place, steps.count) == (Place(0, 129), 128)
    assert fed(*(f"{each[: each.index('step')]}alive" for each in told)).last is None


def test_thousands_may_have_commas() -> None:
    steps = fed(*(f"step {n:,} loss 0.5" for n in range(990, 1060)))
    assert steps.last
    assert steps.last.place == Place(0, 1059)


def test_the_first_step_may_take_long() -> None:
    """It compiles."""
    steps = Steps()
    for number, at in ((1, 0.0), (2, 900.0), (3, 910.0), (4, 935.0), (5, 945.0)):
        steps.feed(f" iteration {number:8d}/ 500 |\n".encode(), at)
    assert steps.largest_gap == 25.0


def test_epochs_begin_anew() -> None:
    lines = [f"Epoch {epoch}:  20%|# | {n}/3 [00:01<00:02, 1.2it/s]" for epoch in (0, 1) for n in (1, 2, 3)]
    steps = fed(*lines)
    assert steps.last
    assert (steps.count, steps.last.place) == (6, Place(1, 3, 3))


@pytest.mark.parametrize(
    "what", ["Loading checkpoint shards:  20%|# ", "Map (num_proc=8):  20%|# ", "Downloading data:  20%|# ", "Evaluating:  20%|# "]
)
def test_what_prepares_is_no_step(what: str) -> None:
    assert fed(*(f"{what}| {n}/8 [00:0{n}<00:48,  1.21it/s]" for n in range(1, 8))).last is None


def test_what_counts_nothing() -> None:
    assert fed(*(f"request took 0.{n} s, queue 3" for n in (4, 2, 9, 1, 7))).last is None
    assert fed("step 1", "step 2").last is None, "twice may be chance"
    assert fed(*(f"2026-11-22 08:00:{n:02d} alive" for n in (7, 21, 22, 48, 59))).last is None


def test_lines_that_say_more_win() -> None:
    """A bar of the data beside the lines of the steps."""
    pairs = [(f" {n}/50 [00:0{n}<00:48, 1.2s/it]", f" iteration {n:8d}/ 500 |") for n in range(1, 5)]
    assert {steps.last.shape for steps in (fed(*(line for pair in pairs for line in pair[::way])) for way in (1, -1)) if steps.last} == {
        "Megatron"
    }


def test_lines_come_cut_anywhere() -> None:
    text = "".join(f" iteration {n:8d}/ 500 | loss 1.{n}\n" for n in range(1, 6)).encode()
    for size in (1, 3, 7, 40):
        steps = Steps()
        for at in range(0, len(text), size):
            steps.feed(text[at : at + size], float(at))
        assert steps.last
        assert (steps.last.place.step, steps.count) == (5, 5)


def test_memory_is_bounded() -> None:
    steps = Steps()
    steps.feed(b"x" * 10_000_000, 0.0)
    assert len(steps._begun) <= MOST_LINE
    for number in range(500):
        steps.feed(f"{'y' * number} {number}\n".encode(), 1.0)
    steps.feed(b"".join(b"z" * 7000 + b" %d\n" % number for number in range(5)), 2.0)
    assert len(steps._forms) <= MOST_FORMS
    assert max(map(len, steps._forms)) <= LONGEST_FORM


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_output(pieces: list[bytes]) -> None:
    steps = Steps()
    for number, piece in enumerate(pieces):
        steps.feed(piece, float(number))
    assert steps.count >= 0
