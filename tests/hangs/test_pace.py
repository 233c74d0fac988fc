"""Progress of ranks as events have it: steps in groups, and saves during which nothing else went on."""

from __future__ import annotations

from ranklaunch.hangs.pace import Pace
from ranklaunch.hangs.steps import Saves, Steps


def line(step: int) -> bytes:
    return f" iteration {step:8d}/     500 | consumed samples: 1 |\n".encode()


def test_neighbours_at_the_same_step_are_one_group() -> None:
    ranks = {rank: Steps() for rank in (0, 1, 2, 3, 7)}
    for rank, steps in ranks.items():
        steps.feed(line(1), 10.0 + rank % 7 / 100)
    assert Pace().taken(ranks, 11.0) == [[0, 3, 0, 1, 500, 0.97], [7, 7, 0, 1, 500, 1.0]]


def test_the_first_step_keeps_its_time_and_of_later_ones_the_last_counts() -> None:
    pace, steps = Pace(), Steps()
    for step in range(1, 6):
        steps.feed(line(step), float(step))
    assert pace.taken({0: steps}, 6.0) == [[0, 0, 0, 1, 500, 5.0], [0, 0, 0, 5, 500, 1.0]]
    assert pace.taken({0: steps}, 7.0) == []
    steps.feed(line(6), 7.5)
    assert pace.taken({0: steps}, 8.0) == [[0, 0, 0, 6, 500, 0.5]]


def saves(*pieces: tuple[bytes, float]) -> list[tuple[float, float]]:
    """Read pieces of one rank's output, each with its time."""
    steps, reader = Steps(), Saves()
    for data, at in pieces:
        reader.feed(data, at, steps.feed(data, at))
    found = reader.taken()
    assert reader.taken() == []
    return found


def test_saves_of_frameworks() -> None:
    for begins, ends in (
        ("saving checkpoint at iteration      10 to /ckpt", "  successfully saved checkpoint from iteration      10 to /ckpt"),
        (
            "[titan] - Saving the checkpoint (or staging if async is enabled).",
            "Finished saving the checkpoint (or staging if async)in 3 s.",
        ),
        ("[2026-11-22] [Torch] Saving /ckpt/mp_rank_00_model_states.pt...", "[Torch] Saved /ckpt/mp_rank_00_model_states.pt."),
    ):
        assert saves((line(10), 9.0), (f"{begins}\n".encode(), 10.0), (f"{ends}\n".encode(), 13.5)) == [(10.0, 13.5)], begins


def test_a_save_while_training_goes_on_costs_nothing() -> None:
    begins, ends = b"saving checkpoint at iteration 10\n", b"successfully saved checkpoint from iteration 10\n"
    assert saves((begins, 10.0), (line(11), 11.0), (ends, 13.0)) == []


def test_a_save_that_is_over_in_a_moment_is_not_reported() -> None:
    both = b"saving checkpoint at iteration 10\nsuccessfully saved checkpoint from iteration 10\n"
    assert saves((both, 10.0), (b"successfully saved checkpoint from iteration 10\n", 19.0)) == []
