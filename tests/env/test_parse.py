"""Texts to values: what platforms and people really write, and what is refused with a word on what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import helpers
import pytest

from ranklaunch.env import parse

LONG_HOST = ".".join(["a" * 60] * 4)

GOOD: list[tuple[Callable[[str], Any], str, Any]] = [
    (parse.text, " as it is ", " as it is "),
    (parse.text, "", ""),
    (parse.text, "Größe\n训练", "Größe\n训练"),
    (parse.count, "0", 0),
    (parse.count, "007", 7),
    (parse.count, " 8\t", 8),
    (parse.count, "1000000", 1_000_000),
    (parse.positive, "1", 1),
    (parse.port, "1", 1),
    (parse.port, "65535", 65535),
    (parse.seconds, "0", 0.0),
    (parse.seconds, "2.5", 2.5),
    (parse.seconds, " 600 ", 600.0),
    (parse.seconds, "1e3", 1000.0),
    (parse.seconds, "10000000", 1e7),
    (parse.flag, "true", True),
    (parse.flag, "TRUE ", True),
    (parse.flag, "1", True),
    (parse.flag, "on", True),
    (parse.flag, "Yes", True),
    (parse.flag, "false", False),
    (parse.flag, "0", False),
    (parse.flag, "off", False),
    (parse.flag, "no", False),
    (parse.words, "", ()),
    (parse.words, "  --a=1   --b 2 ", ("--a=1", "--b", "2")),
    (parse.words, "--a='x y' \"$HOME\" z\\ z", ("--a=x y", "$HOME", "z z")),
    (parse.words, "a#b #c", ("a#b", "#c")),
    (parse.words, "a\nb", ("a", "b")),
    (parse.counts, "8", (8,)),
    (parse.counts, "2,1,3", (2, 1, 3)),
    (parse.counts, "2, 1 ,3", (2, 1, 3)),
    (parse.counts, "0", (0,)),
    (parse.host, "worker-0.job", "worker-0.job"),
    (parse.host, " worker_0 ", "worker_0"),
    (parse.host, "10.0.0.1", "10.0.0.1"),
    (parse.host, "::1", "::1"),
    (parse.host, "2001:db8::1", "2001:db8::1"),
    (parse.host, "fe80::1%eth0", "fe80::1%eth0"),
    (parse.host, " [2001:db8::1] ", "2001:db8::1"),
    (parse.host, LONG_HOST, LONG_HOST),
    (parse.hosts, "a", ("a",)),
    (parse.hosts, "a-0.a,a-1.a", ("a-0.a", "a-1.a")),
    (parse.hosts, " a , b ", ("a", "b")),
    (parse.hosts, "[a,b]", ("a", "b")),
    (parse.hosts, '["a", "b"]', ("a", "b")),
    (parse.hosts, "['a','b']", ("a", "b")),
    (parse.hosts, "2001:db8::1,2001:db8::2", ("2001:db8::1", "2001:db8::2")),
    (parse.hosts, "[2001:db8::1],[2001:db8::2]", ("2001:db8::1", "2001:db8::2")),
    (parse.hosts, "[[2001:db8::1],b]", ("2001:db8::1", "b")),
    (parse.hosts, "[2001:db8::1]", ("2001:db8::1",)),
    (parse.OneOf("npu", "gpu"), " NPU ", "npu"),
]

BAD: list[tuple[Callable[[str], Any], str, str]] = [
    (parse.text, "a\0b", "without NUL"),
    *((parse.count, text, "whole number from 0 to 1000000") for text in ("-1", "+1", "1.0", "1e3", "1_0", "٣", "x", "1000001", "1\n")),
    *((parse.positive, text, "whole number from 1") for text in ("0", "", "none")),
    *((parse.port, text, "whole number from 1 to 65535") for text in ("0", "65536", "-1", "http", "80a")),
    *((parse.seconds, text, "seconds, a number from 0") for text in ("-1", "nan", "inf", "-inf", "10s", "1e8", "", "0x10", "1,5")),
    *((parse.flag, text, "true or false") for text in ("", "2", "ja", "t", "truee", "none")),
    *((parse.words, text, "shell words") for text in ("'open", '"open', "open\\", "a\0b")),
    *((parse.counts, text, "one for each node, such as 8 or 2,3") for text in ("", ",", "1,", ",1", "1,,2", "2;3", "-1", "a", "1.5")),
    *((parse.host, text, "host name or an IP address") for text in ("", "a b", "a;b", "-a", "a/b", "$(x)", "a\nb", "größe", "a" * 254, "http://a")),
    *((parse.hosts, text, "commas between them") for text in ("", ",", "a,", "a b", "[a,]", "a,,b", "a;b", "[[a],b]]x")),
    (parse.OneOf("npu", "gpu"), "gpuu", "expected one of npu, gpu, did you mean 'gpu'?"),
    (parse.OneOf("npu", "gpu"), "tpu-v5", "expected one of npu, gpu"),
]  # fmt: skip


@helpers.for_each(GOOD)
def test_good_text(kind: Callable[[str], Any], text: str, value: Any) -> None:
    assert kind(text) == value
    assert type(kind(text)) is type(value)


@helpers.for_each(BAD)
def test_bad_text(kind: Callable[[str], Any], text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        kind(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize("text", ["1_0", "٣"])
def test_seconds_are_as_strict_as_whole_numbers(text: str) -> None:
    with pytest.raises(ValueError):
        parse.seconds(text)


@pytest.mark.parametrize("text", ["10.0.0.1:6666", "a:80", ".a", ":::", "1.2.3.4.5:", "..."])
def test_a_host_with_a_port_is_no_host(text: str) -> None:
    with pytest.raises(ValueError):
        parse.host(text)


def test_nothing_far_is_taken_for_a_slip() -> None:
    with pytest.raises(ValueError) as caught:
        parse.OneOf("npu", "gpu")("accelerate")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("zone", [";id", "", " ", "$(id)", "eth0/", "eth0%1", "\n", "x" * 65])
def test_a_zone_is_an_interface(zone: str) -> None:
    with pytest.raises(ValueError, match="expected a host name or an IP address"):
        parse.host(f"fe80::1%{zone}x" if zone == "\n" else f"fe80::1%{zone}")
