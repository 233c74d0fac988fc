"""The one reader of a rank's steps: each piece of output is read once, whoever asks."""

from __future__ import annotations

import pytest

from ranklaunch.hangs.rank_lines import Heard
from ranklaunch.hangs.sample import Seen
from ranklaunch.hangs.steps import READ, Place, Saves, Steps, step_reader
from ranklaunch.output.pipe import Output

pytestmark = pytest.mark.processes


def make_output(at: float = 5.0) -> Output:
    return Output((), "", lambda *lines: None, lambda: at, lambda text: None)


def test_each_piece_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the hang detector, or by whatever looked before."""
    pieces: list[bytes] = []
    feed = Steps.feed
    monkeypatch.setattr(Steps, "feed", lambda steps, data, now: pieces.append(data) or feed(steps, data, now))
    output, heard = make_output(), Heard(())
    output.feed(b"iter 1: loss 4.5, time 100.00ms\n")
    step_reader(output).look()
    heard.look({0: output}, 6.0)
    output.feed(b"iter 2: loss 4.5, time 200.00ms\n")
    heard.look({0: output}, 7.0)
    step_reader(output).look()
    assert pieces == [b"iter 1: loss 4.5, time 100.00ms\n", b"iter 2: loss 4.5, time 200.00ms\n"]
    last = heard.steps[0].last
    assert last
    assert (last.place, last.at, last.seconds) == (Place(0, 2), 5.0, 0.2)
    assert step_reader(output).steps is heard.steps[0]
    assert heard.add(Seen(0, "S", 0, None, None, full=False, traced=False, started=False)).step == 2


def test_saves_are_read_once_somebody_asks_for_them() -> None:
    output = make_output()
    reader = step_reader(output)
    output.feed(b"saving checkpoint at iteration 10\n")
    reader.look()
    reader.saves = Saves()
    output.feed(b"saving checkpoint at iteration 20\n")
    reader.look()
    output.feed(b"successfully saved checkpoint from iteration 20\n")
    reader.look()
    assert reader.saves.taken() == [(5.0, 5.0)]


LINE = b"step:7 - " + b" - ".join(b"critic/metric_%d/mean:0.5" % number for number in range(200)) + b" - perf/time_per_step:17.5\n"


@pytest.mark.parametrize("before", [b"", b"INFO a line\n", b"x" * 3000 + b"\n", b"x" * 100_000 + b"\n", (b"x" * 79 + b"\n") * 2000])
def test_a_line_longer_than_a_look_is_read_whole(before: bytes) -> None:
    """As verl writes them."""
    assert len(LINE) > READ
    output = make_output()
    output.feed(before + LINE)
    reader = step_reader(output)
    reader.look()
    assert reader.steps.last
    assert (reader.steps.last.place, reader.steps.last.seconds) == (Place(0, 7), 17.5)


@pytest.mark.parametrize("before", [b"", b"line\n" * 20_000])
def test_of_a_flood_the_end_is_read(before: bytes) -> None:
    output = make_output()
    reader = step_reader(output)
    output.feed(b"iteration ")
    reader.look()
    output.feed(before + b"".join(b" iteration %8d/     900 | loss 1.0\n" % step for step in range(1, 801)))
    reader.look()
    assert reader.steps.last
    assert (reader.steps.last.place, reader.steps.count) == (Place(0, 800, 900), 1)


def test_a_line_without_an_end_is_read_as_far_as_a_look_goes() -> None:
    output = make_output()
    reader = step_reader(output)
    for _ in range(3):
        output.feed(b"." * 50_000)
        reader.look()
    output.feed(b"\n iteration        5/     900 | loss 1.0\n")
    reader.look()
    assert reader.steps.last
    assert reader.steps.last.place == Place(0, 5, 900)
