"""How ranks get on, as events tell it: steps in groups, and saves while which nothing else went on."""

from __future__ import annotations

from ranklaunch.watch.pace import Pace


def line(step: int) -> bytes:
    return f" iteration {step:8d}/     500 | consumed samples: 1 |\n".encode()


def test_neighbours_at_the_same_step_are_told_once() -> None:
    pace = Pace()
    for rank in range(4):
        pace.feed(rank, line(1), 10.0 + rank / 100)
    pace.feed(7, line(1), 10.0)
    assert pace.taken(11.0) == [[0, 3, 0, 1, 500, 0.97], [7, 7, 0, 1, 500, 1.0]]


def test_the_first_step_keeps_its_time_and_of_later_ones_the_last_counts() -> None:
    pace = Pace()
    for step in range(1, 6):
        pace.feed(0, line(step), float(step))
    assert pace.taken(6.0) == [[0, 0, 0, 1, 500, 5.0], [0, 0, 0, 5, 500, 1.0]]
    assert pace.taken(7.0) == []
    pace.feed(0, line(6), 7.5)
    assert pace.taken(8.0) == [[0, 0, 0, 6, 500, 0.5]]


def test_saves_of_frameworks() -> None:
    for begins, ends in (
        ("saving checkpoint at iteration      10 to /ckpt", "  successfully saved checkpoint from iteration      10 to /ckpt"),
        (
            "[titan] - Saving the checkpoint (or staging if async is enabled).",
            "Finished saving the checkpoint (or staging if async)in 3 s.",
        ),
        ("[2026-11-22] [Torch] Saving /ckpt/mp_rank_00_model_states.pt...", "[Torch] Saved /ckpt/mp_rank_00_model_states.pt."),
    ):
        pace = Pace()
        pace.feed(0, line(10), 9.0)
        pace.feed(0, f"{begins}\n".encode(), 10.0)
        pace.feed(0, f"{ends}\n".encode(), 13.5)
        assert pace.saved(14.0) == [(3.5, 0.5)], begins
        assert pace.saved(15.0) == []


def test_a_save_while_training_goes_on_costs_nothing() -> None:
    pace = Pace()
    pace.feed(0, b"saving checkpoint at iteration 10\n", 10.0)
    pace.feed(0, line(11), 11.0)
    pace.feed(0, b"successfully saved checkpoint from iteration 10\n", 13.0)
    assert pace.saved(14.0) == []


def test_one_that_is_over_in_a_moment_is_not_told() -> None:
    pace = Pace()
    pace.feed(0, b"saving checkpoint at iteration 10\nsuccessfully saved checkpoint from iteration 10\n", 10.0)
    pace.feed(0, b"successfully saved checkpoint from iteration 10\n", 19.0)
    assert pace.saved(20.0) == []
