"""From looks at processes to what is said of a window, and from there to node 0."""

from __future__ import annotations

import json

import pytest

from ranklaunch.hangs.expect import NUMBER, parse
from ranklaunch.hangs.frames import Frame, Rule, packed, unpacked
from ranklaunch.hangs.sample import Device, Look, Place, Seen, Traffic, Window, flows, moving, works
from ranklaunch.hangs.suspicion import Raised

BEGUN = Look("1", "S", output=100, io=1000, cpu_s=5.0, wanted_s=5.0)


def seen(*looks: Look, every: float = 10.0) -> Seen:
    window = Window()
    for number, look in enumerate(looks):
        window.look(number * every, {3: look})
    (found,) = window.close()
    return found


def spun(*cores: float, wanted: float | None = None) -> Seen:
    looks = [BEGUN]
    for core in cores:
        before = looks[-1]
        more = None if wanted is None else (before.wanted_s or 0) + 10 * wanted
        looks.append(before._replace(cpu_s=(before.cpu_s or 0) + 10 * core, wanted_s=more))
    return seen(*looks)


def test_a_window_is_what_lies_between_its_looks() -> None:
    found = seen(BEGUN, BEGUN._replace(state="R", output=150, io=9000, cpu_s=6.0))
    assert found == Seen(3, "R", 50, 8000, 0.1, False, False, False)
    assert moving(found, begun=True) == {"output", "CPU"}
    assert moving(seen(BEGUN, BEGUN), begun=True) == set()


def test_the_next_window_begins_where_the_last_ended() -> None:
    window = Window()
    window.look(0, {0: BEGUN, 1: BEGUN})
    window.look(10, {0: BEGUN._replace(output=120), 1: BEGUN._replace(state="")})
    assert [each.output for each in window.close()] == [20, 0]
    window.look(20, {0: BEGUN._replace(output=125)})
    assert [(each.rank, each.output) for each in window.close()] == [(0, 5)]


def test_who_is_not_there_any_more_is_gone_once() -> None:
    window = Window()
    window.look(0, {0: BEGUN, 1: BEGUN})
    window.look(10, {0: BEGUN})
    assert [(each.rank, each.state) for each in window.close()] == [(0, "S"), (1, "")]
    window.look(20, {0: BEGUN})
    assert [(each.rank, each.state) for each in window.close()] == [(0, "S")]


@pytest.mark.parametrize(
    ("cores", "wanted", "full"),
    [
        ((1.0, 0.99, 1.02), None, True),
        ((2.0, 1.98), None, True),  # with a library's own thread
        ((1.0, 0.3, 1.0), None, False),
        ((1.5, 1.5), None, False),
        ((0.4, 0.3), 1.0, True),  # it would have a full core if others left it one
        ((0.4, 0.3), 0.5, False),
        ((4.0, 4.0), 1.0, False),
    ],
)
def test_a_full_core_is_steady(cores: tuple[float, ...], wanted: float | None, full: bool) -> None:
    assert spun(*cores, wanted=wanted).full is full


def test_what_cannot_be_read_is_left_out() -> None:
    blind = BEGUN._replace(io=None, cpu_s=None)
    assert (seen(blind, blind).io, seen(blind, blind).cpu) == (None, None)
    assert moving(seen(blind, blind), begun=False) == set()


def test_another_process_in_a_ranks_place_is_a_start() -> None:
    assert moving(seen(BEGUN, Look("2", "R", 0, 0, 0.0)), begun=True) == {"a new process"}


def test_signs_of_life_of_libraries_are_no_traffic() -> None:
    place = Place(connections=1, ranks=8)
    asked = Traffic(packets=60 * 8 * 4, bytes=60 * 8 * 4 * 100)
    assert flows(asked, 60, place) is False
    assert flows(asked._replace(bytes=asked.packets * 1400), 60, place) is True
    assert flows(asked._replace(packets=asked.packets * 4, bytes=asked.bytes * 4), 60, place) is True
    assert flows(None, 60, place) is None


def test_devices_at_work() -> None:
    idle, busy = Device(0.0, 500.0), Device(97.0, 500.0, power=0.9, moves=60.0)
    assert [works([one], [two]) for one, two in ((idle, idle), (idle, busy), (idle, idle._replace(memory=900.0)))] == [False, True, True]
    assert works([], []) is None
    assert works([busy], [Device(100.0, 500.0, power=0.29, moves=0.0)]) is False  # as a kernel that waits for another device


def test_a_frame_of_1024_ranks_goes_into_a_message() -> None:
    rank = Seen(1023, "S", 10**12, 10**12, 63.99, True, False, True, 10**9, 3600.5)
    frame = Frame(
        60.0,
        tuple(rank._replace(rank=number) for number in range(1024)),
        True,
        False,
        (Rule(1.5, "nan", 2), Rule(), Rule(5.0, "57.3", 2, 12.5)),
    )
    text = json.dumps(packed(frame))
    assert len(text) < 96 * 1024
    assert unpacked(json.loads(text)) == frame
    raised = Raised(1023, 86400.5, True, "\x00" * 9999, "\x00" * 9999, 1 << 22, True)
    text = json.dumps(packed(frame._replace(raised=(raised,) * 1024)))
    assert len(text) < 128 * 1024
    told = unpacked(json.loads(text)).raised
    assert told[:5] == (raised._replace(traceback="\x00" * 1000, line="\x00" * 200),) * 4 + (raised._replace(traceback="", line=""),)


@pytest.mark.parametrize(
    "body",
    [
        None, [], {}, {"seconds": -1}, {**packed(Frame(1, ())), "ranks": [[1]]}, {**packed(Frame(1, ())), "seconds": "nan"},
        *({**packed(Frame(1, ())), "rules": [row]} for row in (
            [], 7, [1, "x"], [-1, "x", 2], ["x", "x", 2], [1, "x", "y"],
            [1, "x", 2, "y"], [1, "x", 2, "nan"], [1, "x", 2, []], [1, "x", 2, 3, 4],
        )),
    ],
)  # fmt: skip
def test_a_body_that_is_no_frame(body: object) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        unpacked(body)


def test_rules_of_users() -> None:
    by, every, number = parse(r"loaded; done by 2m".replace(";", "\\;") + "; step \\d+ every 1.5h\n loss[: ]+(\\S+) is a number;")
    assert [rule.shown for rule in (by, every)] == ["loaded; done by 120s", r"step \d+ every 5400s"]
    assert number.kind == NUMBER
    assert [number.wrong(line) for line in ("loss: 2.5", "lr 1", "loss: nan,", "loss: -inf", "loss x")] == [None, None, "nan,", "-inf", "x"]


@pytest.mark.parametrize("text", ["loss", "( every 3s", "x every 0s", "x every s", ";".join(["x by 1s"] * 21)])
def test_rules_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no regular expression"):
        parse(text)
