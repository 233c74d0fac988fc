"""What two ends of a muster connection understand of each other, and that nobody else can make them understand anything."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranklaunch.muster import wire
from ranklaunch.muster.wire import Codec, WireError, WrongKeyError

KEY = wire.job_key(b"secret", "job")
NONCES = (b"h" * wire.NONCE, b"m" * wire.NONCE)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)
MESSAGES = st.dictionaries(TEXT, JSON, max_size=6)


def pair(key: bytes = KEY, other: bytes = KEY, nonces: tuple[bytes, bytes] = NONCES, **more: Any) -> tuple[Codec, Codec]:
    """The hub's end and the member's."""
    return Codec(key, *nonces, hub=True, **more), Codec(other, *nonces, hub=False)


@settings(max_examples=30)
@given(st.lists(MESSAGES, max_size=6), st.data())
def test_messages_arrive_however_the_bytes_are_cut(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    for sender, receiver in (pair(), pair()[::-1]):
        stream = b"".join(map(sender.frame, messages))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
        pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)])]
        assert [message for piece in pieces for message in receiver.feed(piece)] == messages


@given(st.text(max_size=30))
def test_half_characters_of_broken_names_do_not_stop_a_message(text: str) -> None:
    hub, member = pair()
    assert [list(m) for m in member.feed(hub.frame({"text": text}))] == [["text"]]


def test_words_that_are_no_utf_8_arrive_as_they_are() -> None:
    """Nodes compare their arguments, of which one may be a path in Latin-1."""
    hub, member = pair()
    assert list(member.feed(hub.frame({"text": "caf\udce9 训"}))) == [{"text": "caf\udce9 训"}]


@settings(max_examples=30)
@given(MESSAGES, st.binary(min_size=1, max_size=32))
def test_another_key_is_a_wrong_key(message: dict[str, Any], secret: bytes) -> None:
    hub, member = pair(other=wire.job_key(b"not " + secret, "job"))
    with pytest.raises(WrongKeyError):
        hub.feed(member.frame(message))


def test_jobs_and_secrets_have_keys_of_their_own() -> None:
    keys = {wire.job_key(secret, job) for secret in (b"", b"a", b"b") for job in ("", "a", "b", "caf\udce9")}
    assert len(keys) == 12


def test_frames_that_are_turned_round_are_refused() -> None:
    hub, member = pair()
    with pytest.raises(WrongKeyError):
        hub.feed(hub.frame({"type": "stop"}))
    with pytest.raises(WrongKeyError):
        member.feed(member.frame({"type": "stop"}))


@settings(max_examples=30)
@given(st.lists(MESSAGES, min_size=2, max_size=5), st.data())
def test_frames_that_are_repeated_swapped_or_dropped_are_refused(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    hub, member = pair()
    frames = [member.frame({**message, "n": n}) for n, message in enumerate(messages)]
    order = data.draw(st.lists(st.integers(0, len(frames) - 1), min_size=1, max_size=8))
    right = next((n for n, index in enumerate(order) if n != index), len(order))
    got: list[dict[str, Any]] = []
    if right == len(order):
        for index in order:
            got += hub.feed(frames[index])
    else:
        for index in order[:right]:
            got += hub.feed(frames[index])
        with pytest.raises(WrongKeyError):
            hub.feed(frames[order[right]])
    assert [message["n"] for message in got] == order[:right]


@pytest.mark.parametrize("nonces", [(NONCES[0], b"x" * 16), (b"x" * 16, NONCES[1]), NONCES[::-1]])
def test_frames_of_another_connection_are_refused(nonces: tuple[bytes, bytes]) -> None:
    _, recorded = pair(nonces=nonces)
    hub, _ = pair()
    with pytest.raises(WrongKeyError):
        hub.feed(recorded.frame({"type": "hello"}))


@settings(max_examples=30)
@given(MESSAGES, st.data())
def test_one_changed_bit_is_noticed(message: dict[str, Any], data: st.DataObject) -> None:
    hub, member = pair()
    frame = bytearray(member.frame(message))
    bit = data.draw(st.integers(wire.LENGTH * 8, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WrongKeyError):
        hub.feed(bytes(frame))


def test_nothing_is_parsed_before_its_signature_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, member = pair(other=b"another key")
    frame = member.frame({"type": "hello"})
    monkeypatch.setattr(wire.json, "loads", lambda body: pytest.fail("it was parsed"))
    with pytest.raises(WrongKeyError):
        hub.feed(frame)


@given(st.integers(wire.MOST + 1, 2**32 - 1))
def test_a_length_that_is_too_large_is_refused_by_itself(length: int) -> None:
    hub, _ = pair()
    head = length.to_bytes(4, "big")
    assert hub.feed(head[:3]) == []
    with pytest.raises(WireError, match=str(length)):
        hub.feed(head[3:])


def test_a_side_can_take_less_than_the_most() -> None:
    hub, member = pair(most=20)
    assert hub.feed(member.frame({"a": "b" * 8})) == [{"a": "b" * 8}]
    with pytest.raises(WireError, match="the most is 20"):
        hub.feed(member.frame({"a": "b" * 20}))


@pytest.mark.parametrize("letter", ["x", "é", "\0", '"', "🚀", "\ud800"])
def test_a_message_is_as_large_as_a_frame_or_refused(letter: str) -> None:
    each = len(json.dumps(letter, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2
    hub, member = pair()
    most = (wire.MOST - len('{"a":""}')) // each
    assert len(hub.feed(member.frame({"a": letter * most}))) == 1
    with pytest.raises(WireError, match="the most is"):
        member.frame({"a": letter * (most + 1)})
    assert hub.feed(member.frame({"still": "counting right"})) == [{"still": "counting right"}]


def signed(body: bytes) -> bytes:
    """A frame of any body, by somebody who has the key."""
    member = pair()[1]
    return len(body).to_bytes(4, "big") + member._tag(b"member", 0, body) + body


DEEP = 20_000
BODIES = [
    b"", b"{", b"[]", b"1", b"null", b'"x"', b"{}{}", b"\xff", b"\x00", b'{"a":\xff}', b"[" * DEEP, b'{"a":' * DEEP,
    b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", b"9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:12]))
def test_a_signed_body_that_is_no_object_is_a_wire_error(body: bytes) -> None:
    hub, _ = pair()
    with pytest.raises(WireError, match="not a JSON object"):
        hub.feed(signed(body))


@given(st.binary(max_size=400))
def test_signed_bytes_are_a_message_or_a_wire_error(body: bytes) -> None:
    hub, _ = pair()
    try:
        (message,) = hub.feed(signed(body))
    except WireError:
        return
    assert isinstance(message, dict)


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=100), max_size=10), st.booleans(), st.integers(0, 300))
def test_bytes_raise_nothing_but_wire_errors(pieces: list[bytes], hub: bool, length: int) -> None:
    codec = Codec(KEY, *NONCES, hub=hub)
    try:
        for piece in (length.to_bytes(4, "big"), *pieces):
            assert codec.feed(piece) == []
    except WireError:
        pass


def test_what_waits_for_its_end_is_bounded_and_freed() -> None:
    hub, member = pair()
    frame = member.frame({"a": "x" * (wire.MOST - 100)})
    tracemalloc.start()
    try:
        for _ in range(20):
            for at in range(0, len(frame), 4096):
                hub.feed(frame[at : at + 4096])
                assert len(hub._buffer) <= wire.LENGTH + wire.TAG + wire.MOST
            frame = member.frame({"a": "x" * (wire.MOST - 100)})
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not hub._buffer
    assert now < 3 * wire.MOST
    assert peak < 12 * wire.MOST


def test_bytes_one_by_one_cost_no_more_than_their_number() -> None:
    """Pieces as small as they can be do not make a receiver do the work of the whole each time."""
    hub, member = pair()
    frame = member.frame({"a": "x" * 20_000})
    calls = 0

    def count(frame_: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        got = [message for at in range(len(frame)) for message in hub.feed(frame[at : at + 1])]
    finally:
        sys.setprofile(None)
    assert len(got) == 1
    assert calls < 6 * len(frame) + 1000
