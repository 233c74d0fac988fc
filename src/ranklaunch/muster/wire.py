"""Format of a muster connection: JSON messages in length-capped frames, each signed with a key of this connection.

    hub      GREETING, 16 random bytes
    member   16 random bytes, then frames
    hub      frames

A frame is the length of its body (4 bytes, big endian), HMAC-SHA256 (32 bytes) and the body: one JSON object. The key of a connection
comes from the job's key and both sides' random bytes, so nothing recorded from another connection is valid in this one. The signature
covers the direction and a count, so frames cannot be turned round, repeated, dropped or swapped. Nothing is parsed before its
signature has been checked, and nothing is encrypted: the key is the only secret, and is never sent.

Every message has a type, the attempt of the sending start, and the round of its subject.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
from typing import Any

from ranklaunch import showing
from ranklaunch.errors import quoted

PROTOCOL = 2
GREETING = b"ranklaunch muster %d\n" % PROTOCOL
NONCE = 16  # bytes
TAG = 32
LENGTH = 4
MOST = 128 * 1024  # bytes of a body
MOST_TEXTS = 16
MOST_TEXT = 4096  # characters
MOST_PAUSE_S = 3600.0  # between two rounds
LARGE = 10**12  # larger than any number in a message; for the size of a message
LOOKED_AT = 1000  # characters of invalid input that are searched for secrets; messages show fewer

Message = dict[str, Any]


class WireError(Exception):
    """The other side does not speak this protocol with this key. The connection must be closed."""


class WrongKeyError(WireError):
    """A frame with a wrong signature: the key of another job, or damage."""


# Exceptions for bytes that are no message, and for a message with invalid content.
NOT_UNDERSTOOD = (WireError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


class Codec:
    """One end of a connection. hub: True for node 0's end. most: bytes of a received body, at most."""

    def __init__(self, key: bytes, hub_nonce: bytes, member_nonce: bytes, *, hub: bool, most: int = MOST) -> None:
        self.most = most
        self._key = hmac.digest(key, b"connection" + hub_nonce + member_nonce, hashlib.sha256)
        self._ours, self._theirs = (b"hub", b"member") if hub else (b"member", b"hub")
        self._sent = self._received = 0
        self._buffer = bytearray()

    def frame(self, message: Message) -> bytes:
        """Return a message as a frame. Raises WireError if the message is too large for a frame."""
        return self.sign(body(message))

    def sign(self, body: bytes) -> bytes:
        """Return the frame of a body. One body may be signed for many connections."""
        tag = self._tag(self._ours, self._sent, body)
        self._sent += 1
        return len(body).to_bytes(LENGTH, "big") + tag + body

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages complete by now. Raises WireError at the first wrong message, without a look into its content."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= LENGTH:
            length = int.from_bytes(self._buffer[:LENGTH], "big")
            if length > self.most:
                msg = f"a frame of {length} bytes: the most is {self.most}"
                raise WireError(msg)
            end = LENGTH + TAG + length
            if len(self._buffer) < end:
                break
            tag, body = bytes(self._buffer[LENGTH : LENGTH + TAG]), bytes(self._buffer[LENGTH + TAG : end])
            del self._buffer[:end]
            messages.append(self._message(tag, body))
        return messages

    def _message(self, tag: bytes, body: bytes) -> Message:
        if not hmac.compare_digest(tag, self._tag(self._theirs, self._received, body)):
            msg = "a signature is wrong"
            raise WrongKeyError(msg)
        self._received += 1
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            msg = "a message is not a JSON object"
            raise WireError(msg)
        return message

    def _tag(self, direction: bytes, number: int, body: bytes) -> bytes:
        return hmac.digest(self._key, direction + number.to_bytes(8, "big") + body, hashlib.sha256)


def body(message: Message) -> bytes:
    """Return a message as JSON. Raises WireError if the message is too large for a frame.

    Text that is not UTF-8, such as a path in Latin-1, arrives unchanged, so nodes can compare it.
    """
    data = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    if len(data) > MOST:
        msg = f"a message of {len(data)} bytes: the most is {MOST}"
        raise WireError(msg)
    return data


def require_room(topic: str, body_: object) -> None:
    """Check that a word fits into a frame. Raises WireError if the word is too large, TypeError or ValueError if JSON cannot hold it."""
    body({"type": "word", "number": LARGE, "topic": topic, "body": body_, "attempt": LARGE, "round": LARGE})


def why(error: Exception) -> str:
    """Return the text of an exception of NOT_UNDERSTOOD for people: one line, without secrets. The text may quote a peer's message."""
    text = f"no {error}" if isinstance(error, KeyError) else str(error)
    return showing.one_line(_harmless(text, 200))


def texts(value: object) -> dict[str, str]:
    """Return a mapping of short texts from a peer's message, each one line. Raises ValueError for anything else."""
    if not isinstance(value, dict) or not all(isinstance(text, str) and text.isprintable() for text in value.values()):
        msg = f"expected lines by name, not {_shown(value)}"
        raise ValueError(msg)
    return {name: text[:MOST_TEXT] for name, text in itertools.islice(value.items(), MOST_TEXTS)}


def text(message: Message, key: str) -> str:
    """Return a peer's text on one line, without characters for moving a cursor. Raises ValueError for anything but text."""
    value = message.get(key)
    if not isinstance(value, str):
        msg = f"{key} is {_shown(value)}"
        raise ValueError(msg)
    return showing.one_line(value)


def number(message: Message, key: str) -> int:
    """Return an integer of a message. Raises ValueError for anything else."""
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{key} is {_shown(value)}"
        raise ValueError(msg)
    return value


def following(message: Message) -> dict[str, Any]:
    """Return node 0's message on the next round: `pause_s`, seconds before the round, and `restart`, verdict.json's entry on
    the last one. Raises ValueError for anything else."""
    content = message.get("next")
    result = content if isinstance(content, dict) else {}
    pause_s, restart = result.get("pause_s", 0), result.get("restart", {})
    is_time = result is content and isinstance(pause_s, (int, float)) and not isinstance(pause_s, bool) and 0 <= pause_s <= MOST_PAUSE_S
    if not is_time or not isinstance(restart, dict):
        msg = f"next is {_shown(content)}"
        raise ValueError(msg)
    return result


def _shown(value: object) -> str:
    return _harmless(repr(value), 80)


def _harmless(text: str, most: int) -> str:
    """Return text without secrets, cut to `most` characters. Secrets are hidden before the cut: half a secret is hard to recognise."""
    return "; ".join(quoted(text[:LOOKED_AT].split("\n")))[:most]


def job_key(secret: bytes, job: str) -> bytes:
    """Return the key of a job. Without a secret, the job's name alone gives the key: this separates jobs, but keeps no attacker out."""
    return hmac.digest(secret or b"no secret", b"job\0" + job.encode(errors="surrogateescape"), hashlib.sha256)
