"""Texts to values: what platforms and people really write, and what is refused with a word on what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ranklaunch import settings

LONG_HOST = ".".join(["a" * 60] * 4)

GOOD: list[tuple[Callable[[str], Any], str, Any]] = [
    (settings.text, " as it is ", " as it is "),
    (settings.text, "", ""),
    (settings.text, "Größe\n训练", "Größe\n训练"),
    (settings.count, "0", 0),
    (settings.count, "007", 7),
    (settings.count, " 8\t", 8),
    (settings.count, "1000000", 1_000_000),
    (settings.positive, "1", 1),
    (settings.port, "1", 1),
    (settings.port, "65535", 65535),
    (settings.seconds, "0", 0.0),
    (settings.seconds, "2.5", 2.5),
    (settings.seconds, " 600 ", 600.0),
    (settings.seconds, "1e3", 1000.0),
    (settings.seconds, "10000000", 1e7),
    (settings.flag, "true", True),
    (settings.flag, "TRUE ", True),
    (settings.flag, "1", True),
    (settings.flag, "on", True),
    (settings.flag, "Yes", True),
    (settings.flag, "false", False),
    (settings.flag, "0", False),
    (settings.flag, "off", False),
    (settings.flag, "no", False),
    (settings.words, "", ()),
    (settings.words, "  --a=1   --b 2 ", ("--a=1", "--b", "2")),
    (settings.words, "--a='x y' \"$HOME\" z\\ z", ("--a=x y", "$HOME", "z z")),
    (settings.words, "a#b #c", ("a#b", "#c")),
    (settings.words, "a\nb", ("a", "b")),
    (settings.counts, "8", (8,)),
    (settings.counts, "2,1,3", (2, 1, 3)),
    (settings.counts, "2, 1 ,3", (2, 1, 3)),
    (settings.counts, "0", (0,)),
    (settings.host, "worker-0.job", "worker-0.job"),
    (settings.host, " worker_0 ", "worker_0"),
    (settings.host, "10.0.0.1", "10.0.0.1"),
    (settings.host, "::1", "::1"),
    (settings.host, "2001:db8::1", "2001:db8::1"),
    (settings.host, "fe80::1%eth0", "fe80::1%eth0"),
    (settings.host, LONG_HOST, LONG_HOST),
    (settings.hosts, "a", ("a",)),
    (settings.hosts, "a-0.a,a-1.a", ("a-0.a", "a-1.a")),
    (settings.hosts, " a , b ", ("a", "b")),
    (settings.hosts, "[a,b]", ("a", "b")),
    (settings.hosts, '["a", "b"]', ("a", "b")),
    (settings.hosts, "['a','b']", ("a", "b")),
    (settings.hosts, "2001:db8::1,2001:db8::2", ("2001:db8::1", "2001:db8::2")),
    (settings.one_of("npu", "gpu"), " NPU ", "npu"),
]

BAD: list[tuple[Callable[[str], Any], str, str]] = [
    (settings.text, "a\0b", "without NUL"),
    *((settings.count, text, "whole number from 0 to 1000000") for text in ("-1", "+1", "1.0", "1e3", "1_0", "٣", "x", "1000001", "1\n")),
    *((settings.positive, text, "whole number from 1") for text in ("0", "", "none")),
    *((settings.port, text, "whole number from 1 to 65535") for text in ("0", "65536", "-1", "http", "80a")),
    *((settings.seconds, text, "seconds, a number from 0") for text in ("-1", "nan", "inf", "-inf", "10s", "1e8", "", "0x10", "1,5")),
    *((settings.flag, text, "true or false") for text in ("", "2", "ja", "t", "truee", "none")),
    *((settings.words, text, "shell words") for text in ("'open", '"open', "open\\", "a\0b")),
    *((settings.counts, text, "one for each node, such as 8 or 2,3") for text in ("", ",", "1,", ",1", "1,,2", "2;3", "-1", "a", "1.5")),
    *((settings.host, text, "host name or an IP address") for text in ("", "a b", "a;b", "-a", "a/b", "$(x)", "a\nb", "größe", "a" * 254, "http://a")),
    *((settings.hosts, text, "commas between them") for text in ("", ",", "a,", "a b", "[a,]", "a,,b", "a;b", "[[a],b]]x")),
    (settings.one_of("npu", "gpu"), "gpuu", "expected one of npu, gpu, did you mean 'gpu'?"),
    (settings.one_of("npu", "gpu"), "tpu-v5", "expected one of npu, gpu"),
]  # fmt: skip


@pytest.mark.parametrize(("parse", "text", "value"), GOOD)
def test_good_text(parse: Callable[[str], Any], text: str, value: Any) -> None:
    assert parse(text) == value
    assert type(parse(text)) is type(value)


@pytest.mark.parametrize(("parse", "text", "expected"), BAD)
def test_bad_text(parse: Callable[[str], Any], text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize("text", ["1_0", "٣"])
def test_seconds_are_as_strict_as_whole_numbers(text: str) -> None:
    with pytest.raises(ValueError):
        settings.seconds(text)


@pytest.mark.parametrize("text", ["10.0.0.1:6666", "a:80", ".a", ":::", "1.2.3.4.5:", "..."])
def test_a_host_with_a_port_is_no_host(text: str) -> None:
    with pytest.raises(ValueError):
        settings.host(text)


def test_nothing_far_is_taken_for_a_slip() -> None:
    with pytest.raises(ValueError) as caught:
        settings.one_of("npu", "gpu")("accelerate")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [((), ""), ((2, 1), "2,1"), (True, "true"), (False, "false"), (600.0, "600"), (2.5, "2.5"), (8, "8"), ("text", "text")],
)
def test_values_are_shown_as_they_would_be_written(value: object, expected: str) -> None:
    assert settings.show(value) == expected


def test_long_texts_are_clipped() -> None:
    assert settings.clipped("x" * 120) == "x" * 120
    assert settings.clipped("x" * 121) == "x" * 120 + "... (121 characters)"


def test_a_platforms_names_come_after_the_users() -> None:
    base = settings.Variable("nodes", ("RANKLAUNCH_NODES",), settings.positive, 1, "nodes")
    more = base.also("MA_NUM_HOSTS", agree=True)
    assert more.names == ("RANKLAUNCH_NODES", "MA_NUM_HOSTS")
    assert more.agree
    assert more.setter("RANKLAUNCH_NODES") == "user"
    assert more.setter("MA_NUM_HOSTS") == "platform"
    assert base.names == ("RANKLAUNCH_NODES",)
