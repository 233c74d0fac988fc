"""From files of times and raw logs to whole lines in order, in memory."""

from __future__ import annotations

import random
import re

import helpers
import pytest

from ranklaunch import spans
from ranklaunch.logs import lines, shown
from ranklaunch.logs.lines import Log
from ranklaunch.logs.shown import Look
from ranklaunch.logs.times import LONGEST, Part, Times

TOLD = b"f 0 rank_0.log\nf 7 rank_1.log\n0 10 1000\n7 5 2000\n0 30 2500\n"
PARTS = [Part(1000, "rank_0.log", 10), Part(2000, "rank_1.log", 5), Part(2500, "rank_0.log", 30)]


@helpers.for_each([1, 2, 7, 1000])
def test_times_may_be_cut_anywhere(size: int) -> None:
    times = Times()
    assert [part for at in range(0, len(TOLD), size) for part in times.feed(TOLD[at : at + size])] == PARTS
    assert times.wrong == 0


@helpers.for_each(
    {
        "no log of this number": b"3 10 1000\n",
        "no numbers": b"x y z\n",
        "two words": b"0 10\n",
        "empty": b"\n",
        "a log elsewhere": b"f 5 ../../etc/shadow.log\n",
        "no log": b"f 5 plan.json\n",
        "a part that was told of already": b"0 30 4000\n",
        "backwards": b"0 2 4000\n",
        "a size that no file has": b"0 %d 4000\n" % (1 << 70),
        "a time that will not come": b"0 40 %d\n" % (1 << 60),
        "no time": b"0 40 0\n",
        "very many digits": b"0 %s 4000\n" % (b"9" * 400),
        "a line without end": b"0 " * LONGEST * 3 + b"\n",
    }
)
def test_what_could_not_be_true_is_left_out(line: bytes) -> None:
    times = Times()
    times.feed(TOLD)
    assert times.feed(line) == []
    assert times.wrong == 1
    assert times.feed(b"7 9 5000\n") == [Part(5000, "rank_1.log", 9)]


def test_a_clock_that_is_set_back_changes_no_order() -> None:
    times = Times()
    times.feed(TOLD)
    assert times.feed(b"7 9 100\n") == [Part(2500, "rank_1.log", 9)]


def log_of(data: bytes, ahead: int = 0) -> Log:
    return Log(lambda begin, end: data[begin:end], lambda: ahead)


def taken(log: Log, end: int) -> bytes:
    quick = log.quick(end)
    return quick or b"".join(log.upto(end))


def test_lines_come_whole_however_parts_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """By both ways of reading, and in the order in which they are."""
    monkeypatch.setattr(lines, "CHUNK", 50)
    monkeypatch.setattr(lines, "NEAR", 20)
    chance = random.Random(7)
    data = b"".join(b"x" * chance.choice((0, 1, 5, 90, 300)) + b"\n" for _ in range(300)) + b"no end"
    for ahead in (0, 64, 4096):
        log, at, found = log_of(data, ahead), 0, b""
        while at < len(data):
            at = min(len(data), at + chance.choice((1, 6, 40, 200)))
            block = taken(log, at)
            assert block == b"" or block.endswith(b"\n")
            found += block
        assert found + log.last() == data + b"\n"
        assert log.last() == b""


def test_a_line_that_is_too_long_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 101)
    data = "é".encode() * 500 + b"\nshort\n"
    log = log_of(data)
    found = b"".join(block for end in (*range(0, len(data), 7), len(data)) for block in log.upto(end))
    pieces = found.split(b"\n")
    assert b"".join(pieces[:-2]).decode() == "é" * 500
    assert max(map(len, pieces)) <= 101
    assert pieces[-2:] == [b"short", b""]


def test_a_log_that_is_shorter_than_told_ends_where_it_ends() -> None:
    log = log_of(b"one\ntwo\n")
    assert b"".join(log.upto(4_000_000)) == b"one\ntwo\n"
    assert log.short


# How they are shown


def test_each_line_has_its_tag() -> None:
    assert Look().block(b"one\n", b"[r] ", 0) == b"[r] one\n"
    assert Look().block(b"one\n\ntwo\n", b"[r] ", 0) == b"[r] one\n[r] \n[r] two\n"
    assert Look(clock=lambda at: f"{at} ").block(b"one\ntwo\n", b"[r] ", 5) == b"5 [r] one\n5 [r] two\n"
    assert Look(wanted=re.compile(b"o$").search).block(b"one\ntwo\n", b"[r] ", 0) == b"[r] two\n"
    assert Look(wanted=re.compile(b"x").search).block(b"one\ntwo\n", b"[r] ", 0) == b""


def test_a_line_that_redraws_itself_is_shown_as_it_stood_last() -> None:
    assert Look().block(b"1%\r2%\r100%\nnext\r\n", b"[r] ", 0) == b"[r] 100%\n[r] next\n"


def test_nothing_steers_a_terminal() -> None:
    hostile = b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\x9b\xff\xc2\x9b12h\nplain \xc3\xa9\tx\n"
    found = Look(terminal=True).block(hostile, b"", 0).decode()
    assert all(character.isprintable() or character in "\t\n" for character in found)
    assert "red" in found
    assert "plain é\tx\n" in found
    assert Look().block(hostile, b"", 0) == hostile  # a file has what was written


def test_tags() -> None:
    assert shown.tag("rank_3.log", None, 0, colours=False) == b"[rank 3] "
    assert shown.tag("rank_3.log", 1, 2, colours=False) == b"[node 1] [restart 2] [rank 3] "
    assert shown.tag("torchrun.log", 0, 0, colours=False) == b"[node 0] [torchrun] "
    assert b"\x1b]" not in shown.tag("\x1b]0;x\x07.log", 0, 0, colours=True)


# Ranks


def test_spans() -> None:
    given = spans.parse("0, 8-15,20")
    assert [number for number in range(25) if number in given] == [0, *range(8, 16), 20]
    assert None not in given
    assert str(given) == "0,8-15,20"
    assert spans.text([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


@helpers.for_each(["", ",", "1,", "a", "-1", "3-1", "1-2-3", "99999999", "0x1", "١", "1," * 20_000])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected numbers"):
        spans.parse(text)
