"""What mpirun's ranks have written together is told apart, wherever it is cut."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranklaunch.adapters.launchers.mpirun import TAGGED
from ranklaunch.output.demux import OWN_RULE, Demux, Errors
from ranklaunch.output.pipe import TAIL, Output

RANKS = 3
TAG = {"4": b"[1,%d]<std%s>:", "5": b"[1,%d]<std%s>: "}
RULE = OWN_RULE


class Told:
    """A Demux and what it has given to whom."""

    def __init__(self, version: str = "4") -> None:
        self.shown: dict[str, list[bytes]] = {key: [] for key in ("own", *map(str, range(RANKS)))}
        self.demux = Demux(TAGGED[version], self._output("own"), lambda key: self._output(key) if key in self.shown else None)

    def _output(self, key: str) -> Output:
        return Output((), "", lambda *lines: self.shown[key].extend(lines), lambda: 0.0, pytest.fail)

    def feed(self, *pieces: bytes) -> dict[str, bytes]:
        for piece in pieces:
            self.demux.feed(piece)
        self.demux.finish()
        return {key: b"".join(lines) for key, lines in self.shown.items() if lines}


def tag(rank: int, version: str = "4", stream: str = "out") -> bytes:
    return TAG[version] % (rank, stream.encode())


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[start:end] for start, end in zip(places, places[1:])]


line = st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b"").replace(b"]<std", b"") + b"\n")
rows = st.lists(st.tuples(st.integers(0, RANKS - 1), st.sampled_from(("out", "err")), line), max_size=12)


@pytest.mark.parametrize("version", ["4", "5"])
@given(rows=rows, at=st.lists(st.integers(0, 2000), max_size=20))
def test_lines_of_ranks_wherever_they_are_cut(version: str, rows: list[tuple[int, str, bytes]], at: list[int]) -> None:
    stream = b"".join(tag(rank, version, name) + text for rank, name, text in rows)
    expected: dict[str, bytes] = {}
    for rank, _, text in rows:
        expected[str(rank)] = expected.get(str(rank), b"") + text
    assert Told(version).feed(*cut(stream, at)) == expected


@pytest.mark.parametrize("version", ["4", "5"])
@given(at=st.lists(st.integers(0, 2000), max_size=20))
def test_own_words_between_pieces_of_lines(version: str, at: list[int]) -> None:
    """A rank's line in two pieces, another rank's between them, and mpirun's own words behind a line that was not finished."""
    pieces = (
        (tag(0, version), b"loss "), (tag(1, version), b"whole\n"), (tag(0, version), b"0.5\n"),
        (b"", b"mpirun says\n"), (tag(2, version), b"killed in the mid"), (b"", RULE + b"\nPrimary job\n" + RULE + b"\n"),
    )  # fmt: skip
    stream = b"".join(part for piece in pieces for part in piece)
    said = b"mpirun says\n" + RULE + b"\nPrimary job\n" + RULE + b"\n"
    assert Told(version).feed(*cut(stream, at)) == {"0": b"loss 0.5\n", "1": b"whole\n", "2": b"killed in the mid\n", "own": said}


@pytest.mark.parametrize("version", ["4", "5"])
@given(rows=rows, at=st.lists(st.integers(0, 2000), max_size=20), torn=st.integers(0, 29))
def test_a_line_of_one_stream_is_not_torn_by_another(version: str, rows: list[tuple[int, str, bytes]], at: list[int], torn: int) -> None:
    """Each line on standard output is in two pieces, with a line of the same rank's standard error between them."""
    stream, expected = b"", {}
    for rank, _, text in rows:
        stream += tag(rank, version) + text[:torn] + tag(rank, version, "err") + b"err\n" + tag(rank, version) + text[torn:]
        expected[str(rank)] = expected.get(str(rank), b"") + (text + b"err\n" if torn >= len(text) else b"err\n" + text)
    assert Told(version).feed(*cut(stream, at)) == expected


def test_what_is_begun_counts_as_written() -> None:
    """A rank's last words may lack their end, and it may be long until there is one."""
    told = Told()
    told.demux.feed(tag(0) + b"whole\n" + tag(0) + b"begun" + tag(0, stream="err") + b"other\n" + tag(0, stream="err") + b"10%\r20%")
    assert told.demux.tail_of("0") == b"whole\nbegun\nother\n10%\r20%"
    assert told.feed() == {"0": b"whole\nother\n10%\nbegun\n20%\n"}


@pytest.mark.parametrize("written", [b"batch 17 ... ", b"x" * 60_000])
def test_an_exception_stands_behind_a_line_that_has_only_begun(written: bytes) -> None:
    """Unless that was written clearly later."""
    clock = [5.0]
    outputs = [Output((), "", lambda *lines: None, lambda: clock[0], pytest.fail) for _ in range(2)]
    demux = Demux(TAGGED["4"], outputs[0], lambda key: outputs[1])
    demux.feed(tag(0) + b"step 1\n" + tag(0) + written + tag(0, stream="err") + b"ValueError: loss is nan\n")
    expected = (b"step 1\n" + written + b"\nValueError: loss is nan\n")[-TAIL:]
    assert demux.tail_of("0") == expected
    clock[0] = 7.0
    demux.feed(tag(0) + b"going on ")
    assert demux.tail_of("0").endswith((written + b"going on ")[-TAIL:])
    clock[0] = 7.1
    demux.feed(tag(0, stream="err") + b"KeyError: 3\n")
    for _ in range(2):
        assert demux.tail_of("0").endswith(b"going on \nKeyError: 3\n")
        demux.finish()


def test_the_end_of_mpirun_is_no_time_at_which_a_rank_has_written() -> None:
    clock = [5.0]
    outputs = [Output((), "", lambda *lines: None, lambda: clock[0], pytest.fail) for _ in range(2)]
    demux = Demux(TAGGED["4"], outputs[0], lambda key: outputs[1])
    demux.feed(tag(0) + b"step 1\n")
    clock[0] = 7.0
    demux.finish()
    assert outputs[1].written_at == 5.0


def test_empty_lines_take_no_longer_than_others() -> None:
    began = time.process_time()
    told = Told()
    told.demux.feed(tag(0) + b"\n" * (1 << 20))
    assert told.feed() == {"own": b"\n" * ((1 << 20) - 1), "0": b"\n"}
    assert time.process_time() - began < 1


def test_byte_by_byte() -> None:
    stream = tag(0) + b"[1,2]<st\n" + tag(1) + b"[1,\n" + b"own [1\n"
    assert Told().feed(*(stream[i : i + 1] for i in range(len(stream)))) == {"0": b"[1,2]<st\n", "1": b"[1,\n", "own": b"own [1\n"}


@pytest.mark.parametrize("version", ["4", "5"])
@given(rows=rows, at=st.lists(st.integers(0, 2000), max_size=20))
def test_ended_lines_are_not_kept_until_more_comes(version: str, rows: list[tuple[int, str, bytes]], at: list[int]) -> None:
    """The newline may come in a piece of its own, with a tag: Python writes it so where it does not buffer."""
    stream = b"".join(tag(rank, version, name) + text[:-1] + tag(rank, version, name) + b"\n" for rank, name, text in rows)
    told = Told(version)
    for piece in cut(stream, at):
        told.demux.feed(piece)
    shown = {key: b"".join(lines) for key, lines in told.shown.items() if lines}
    assert shown == told.feed()
    assert b"".join(shown.values()).count(b"\n") == len(rows)


@pytest.mark.parametrize(("later", "in_order"), [(2, False), (3, True)])
def test_lines_that_come_well_behind_an_exception_were_written_later(later: int, in_order: bool) -> None:
    """A line or two may only have taken longer to come."""
    now = 1.0
    output = Output((), "", lambda *lines: None, lambda: now, pytest.fail)
    output.feed(b"step 0\n")
    errors = Errors()
    for number in range(-1, later):
        is_error, line = number < 0, b"step %d\n" % number if number >= 0 else b"ValueError: x\n"
        before = output.tail
        output.feed(line)
        errors.take([(is_error, line)], before, output)
        now += 0.15
    assert (errors.tail(output) == output.tail) == in_order
    assert errors.tail(output).endswith(b"ValueError: x\n") != in_order


def test_what_only_begins_like_a_tag_is_not_kept() -> None:
    assert Told().feed(tag(0) + b"array [1,") == {"0": b"array [1,\n"}


def test_a_rank_that_the_job_has_not() -> None:
    assert Told().feed(tag(7) + b"who?\n" + tag(0) + b"me\n") == {"own": b"who?\n", "0": b"me\n"}


@given(at=st.lists(st.integers(0, 300), max_size=8))
def test_a_rule_within_a_line_or_of_another_length_is_a_ranks_own(at: list[int]) -> None:
    drawn = (
        b"WARNING " + RULE + b"\n",
        b"+" + RULE + b"+\n",
        b"layer " + RULE + b" loss is nan\n",
        b"a " + RULE + b"-\n",
        b"b " + RULE[1:] + b"\n",
        RULE[1:] + b"\n",
        b"INFO " + RULE + b"\n",
    )
    assert Told().feed(*cut(b"".join(tag(0) + line for line in drawn), at)) == {"0": b"".join(drawn)}


@pytest.mark.parametrize("version", ["4", "5"])
@given(at=st.lists(st.integers(0, 400), max_size=8))
def test_a_rule_that_begins_a_line_of_a_rank_is_its_own(version: str, at: list[int]) -> None:
    """A table's, for instance: mpirun draws its own without a tag."""
    table = RULE + b"\n", b"| epoch |\n", RULE + b"-" * 60 + b"\n"
    stream = b"".join(tag(1, version) + line for line in table) + RULE + b"\nPrimary job\n"
    assert Told(version).feed(*cut(stream, at)) == {"1": b"".join(table), "own": RULE + b"\nPrimary job\n"}


def test_what_is_kept_is_that_of_the_rank_that_is_asked_for() -> None:
    told = Told()
    told.feed(tag(0) + b"one\n" + tag(1) + b"two\n" + b"mpirun's\n")
    assert [told.demux.tail_of(key) for key in "012"] == [b"one\n", b"two\n", b""]
    assert told.demux.tail == b"mpirun's\n"


def test_a_traceback_is_the_last_of_what_came_together() -> None:
    """mpirun reads a rank's two pipes one after the other, so a step that the rank wrote first may come behind its traceback."""
    clock = [0.0]
    output = Output((), "", lambda *lines: None, lambda: clock[0], pytest.fail)
    demux = Demux(TAGGED["4"], Output((), "", lambda *lines: None, lambda: clock[0], pytest.fail), lambda key: output)
    demux.feed(tag(0) + b"step 1\n")
    clock[0] = 5.0
    demux.feed(tag(0, stream="err") + b"Traceback (most recent call last):\n")
    clock[0] = 5.1
    demux.feed(tag(0) + b"step 2\n" + tag(0, stream="err") + b"ValueError: loss is nan\n")
    demux.feed(tag(0) + b"step 3\n")
    assert demux.tail_of("0") == b"step 1\nstep 2\nstep 3\nTraceback (most recent call last):\nValueError: loss is nan\n"
    assert output.tail.endswith(b"ValueError: loss is nan\nstep 3\n")  # as it came

    clock[0] = 7.0
    demux.feed(tag(0) + b"step 4\n")
    assert demux.tail_of("0") == output.tail  # the rank went on after it
    clock[0] = 9.0
    demux.feed(tag(0, stream="err") + b"KeyError: 3\n" + tag(0) + b"step 5\n")
    assert demux.tail_of("0").endswith(b"step 4\nstep 5\nKeyError: 3\n")
