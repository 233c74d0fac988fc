"""Splitter of a launcher's output by rank: mpirun writes a tag before each piece of a rank's output."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ranklaunch.output.pipe import LONGEST_LINE, TAIL, Output, joined

LONGEST_TAG = 48  # bytes
ERRORS = b"stderr"  # in the tag of a rank's standard error
MOST_LATE_S = 1.0  # delay of a line that comes through another pipe, at most, on a busy machine
SOON_S, MANY = 0.1, 3  # at least MANY lines that arrive more than SOON_S later were written later
OWN_RULE = b"-" * 74  # line of dashes before mpirun's own messages, also right behind a rank's incomplete line

_BEGUN = re.compile(rb"\[(?:[0-9]+(?:,(?:[0-9]+(?:\](?:<(?:[a-z]+(?:>:?)?)?)?)?)?)?)?\Z")


class Demux:
    """Splitter of an output by tags, fed like an Output. pattern: of a tag; its group is the rank's key, and the two streams
    of a rank have different tags. own: Output of the launcher itself. output: makes a rank's Output from its key; returns
    None for a key of no rank."""

    def __init__(self, pattern: str, own: Output, output: Callable[[str], Output | None]) -> None:
        self._tag = re.compile(pattern.encode())
        self._own = own
        self._output = output
        self._by_key: dict[bytes, Output] = {}
        self._streams: dict[bytes, Stream] = {}  # by tag
        self._errors: dict[Output, Errors] = {}
        self._final_tails: dict[str, bytes] = {}  # by key: tails after finish()
        self._stream_now: Stream | None = None  # stream of the current line; None: the launcher's own
        self._only_dashes = False  # True while the line behind a tag has nothing but dashes: they are the rank's
        self._undecided = b""  # bytes that may begin a tag or a rule
        self._lines: dict[Output, list[tuple[Stream | None, bytes]]] = {}  # lines that are not fed yet

    @property
    def tail(self) -> bytes:
        return self._own.tail

    def tail_of(self, key: str) -> bytes:
        """Return the tail of a rank's output. Of simultaneous output, standard error comes last, because a traceback is a rank's
        last output."""
        output = self._by_key.get(key.encode())
        if not output or key in self._final_tails:
            return self._final_tails.get(key, b"")
        begun = [stream for stream in self._streams.values() if stream.output is output and stream.begun]
        return self._errors.get(output, Errors()).tail(output, begun)

    def feed(self, data: bytes) -> None:
        data = self._undecided + data
        whole = _without_begun(data)
        self._undecided = data[whole:]
        self._take(data[:whole])

    def finish(self) -> None:
        self._take(self._undecided)
        self._undecided = b""
        self._final_tails = {key.decode(): self.tail_of(key.decode()) for key in self._by_key}
        for stream in self._streams.values():
            if stream.begun:  # an empty feed would set written_at
                stream.output.feed(bytes(stream.begun))
            stream.output.end_line()
        for output in (*self._by_key.values(), self._own):
            output.finish()

    def _take(self, data: bytes) -> None:
        at = 0
        for tag in self._tag.finditer(data):
            if tag.start() > at:
                self._give(data[at : tag.start()])
            self._stream_now = self._streams.get(tag[0]) or self._stream(tag)
            self._only_dashes = True
            at = tag.end()
        self._give(data[at:])
        for output, pieces in self._lines.items():
            before = output.tail
            output.feed(b"".join(piece for _, piece in pieces))
            if output in self._errors:
                self._errors[output].take([(bool(stream and stream.is_error), piece) for stream, piece in pieces], before, output)
        self._lines.clear()

    def _give(self, data: bytes) -> None:
        """Hand bytes without a tag to the current stream. A tag holds until the end of its line."""
        at = 0
        while at < len(data) and self._stream_now:
            end = data.find(b"\n", at) + 1 or len(data)
            rule = _rule_before(data, at, end)
            if rule == at and self._only_dashes:
                rule = -1
            self._only_dashes = self._only_dashes and not data[at:end].strip(b"-")
            if rule >= 0:
                end = rule
            if end > at:
                self._lines_of(self._stream_now, data[at:end])
            if rule >= 0 or data[end - 1 : end] == b"\n":
                self._stream_now = None
            at = end
        if at < len(data):
            self._lines_of(None, data[at:])

    def _lines_of(self, stream: Stream | None, piece: bytes) -> None:
        output, lines = (stream.output, stream.lines(piece)) if stream else (self._own, piece)
        if lines:
            self._lines.setdefault(output, []).append((stream, lines))

    def _stream(self, tag: re.Match[bytes]) -> Stream | None:
        """Make the stream of a new tag; None for a key of no rank."""
        key = tag[1]
        if key not in self._by_key:
            output = self._output(key.decode())
            if not output:
                return None
            self._by_key[key] = output
        self._streams[tag[0]] = stream = Stream(self._by_key[key], ERRORS in tag[0])
        if stream.is_error:
            self._errors[stream.output] = Errors()
        return stream


class Stream:
    """One stream of a rank. is_error: True for standard error. begun: its incomplete line, kept back so that no line of another
    stream comes within it. begun_at: arrival time of the line's last part."""

    def __init__(self, output: Output, is_error: bool = False) -> None:
        self.output = output
        self.is_error = is_error
        self.begun = bytearray()
        self.begun_at = 0.0

    @property
    def end(self) -> bytes:
        return bytes(self.begun[-TAIL:])

    def lines(self, piece: bytes) -> bytes:
        """Return the output to pass on after a new piece: complete lines, and complete states of a redrawn line."""
        whole = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        if not whole and len(self.begun) + len(piece) <= LONGEST_LINE:
            self.begun += piece
            self.begun_at = self.output.clock()
            return b""
        lines = bytes(self.begun) + piece[: whole or len(piece)]
        self.begun = bytearray(piece[whole:] if whole else b"")
        self.begun_at = self.output.clock() if self.begun else 0.0
        return lines


class Errors:
    """Recent standard error of a rank, and the standard output of the same time: the order of the two is unknown."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._last = 0.0
        self._later = 0  # lines of standard output since the last standard error
        self._before = self._beside = self._errors = b""

    def take(self, pieces: list[tuple[bool, bytes]], before: bytes, output: Output) -> None:
        """Add new pieces of a rank. pieces: each with True for standard error. before: the tail without these pieces."""
        now = output.written_at or 0.0
        if any(is_error for is_error, _ in pieces):
            if self._began is None or now - self._began > MOST_LATE_S:
                self._began, self._before, self._beside, self._errors = now, before, b"", b""
            self._last, self._later = now, 0
        elif self._began is not None and now - self._last > SOON_S:
            self._later += sum(piece.count(b"\n") for _, piece in pieces)
            if self._later >= MANY or now - self._last > MOST_LATE_S:
                self._began = None  # the standard output was certainly written later
        if self._began is not None:
            self._errors = (self._errors + b"".join(piece for is_error, piece in pieces if is_error))[-TAIL:]
            self._beside = (self._beside + b"".join(piece for is_error, piece in pieces if not is_error))[-TAIL:]

    def tail(self, output: Output, begun: Sequence[Stream] = ()) -> bytes:
        """Return the tail of a rank, with standard error last if the order is unknown. begun: the rank's streams with an incomplete
        line."""
        beside = b"\n".join(stream.end for stream in begun if not stream.is_error)
        errors = b"\n".join(stream.end for stream in begun if stream.is_error)
        last = max((stream.begun_at for stream in begun if stream.is_error), default=self._last)
        if any(stream.begun_at - last > MOST_LATE_S for stream in begun if not stream.is_error):
            return joined(output.tail, errors, beside)
        if self._began is None:
            return joined(output.tail, beside, errors)
        return joined(self._before + self._beside, beside, self._errors + errors)


def _rule_before(data: bytes, at: int, end: int) -> int:
    """Return the start of mpirun's own rule at the end of a line, -1 for none. Output behind the rule has no tag. A longer rule was
    written by a rank."""
    rule = end - 1 - len(OWN_RULE)
    drawn = rule >= at and end < len(data) and data.startswith(OWN_RULE + b"\n", rule)
    return rule if drawn and not (rule > at and data[rule - 1 : rule] == b"-") else -1


def _without_begun(data: bytes) -> int:
    """Return the number of bytes before an incomplete tag or rule at the end."""
    begun = _BEGUN.search(data, max(0, len(data) - LONGEST_TAG))
    if begun:
        return begun.start()
    if data.endswith(OWN_RULE + b"\n"):  # the next bytes show if the rule is mpirun's
        return len(data) - len(OWN_RULE) - 1
    dashes = len(data) - len(data.rstrip(b"-"))
    return len(data) - (dashes if dashes <= len(OWN_RULE) else 0)
