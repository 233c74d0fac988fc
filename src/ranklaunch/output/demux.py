"""Takes the output of a launcher apart into that of its ranks: mpirun puts a tag before each piece that a rank has written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ranklaunch.output.pipe import LONGEST_LINE, TAIL, Output, joined

LONGEST_TAG = 48  # bytes
ERRORS = b"stderr"  # in the tag of a rank's standard error
MOST_LATE_S = 1.0  # how much later than what was written after it a line may come, by another pipe and on a busy machine
SOON_S, MANY = 0.1, 3  # lines that come later than that have been written later, where they are so many
OWN_RULE = b"-" * 74  # what mpirun draws before it says something itself, also right behind a rank's unfinished line; a whole line

_BEGUN = re.compile(rb"\[(?:[0-9]+(?:,(?:[0-9]+(?:\](?:<(?:[a-z]+(?:>:?)?)?)?)?)?)?)?\Z")


class Demux:
    """Splitter of an output by tags, fed like an Output. pattern: of a tag; its group is the rank's key, and a rank's streams
    have different tags. own: takes output of no rank. output: makes a rank's Output from its key, None for a key of no
    rank."""

    def __init__(self, pattern: str, own: Output, output: Callable[[str], Output | None]) -> None:
        self._tag = re.compile(pattern.encode())
        self._own = own
        self._output = output
        self._by_key: dict[bytes, Output] = {}
        self._streams: dict[bytes, Stream] = {}  # by tag
        self._errors: dict[Output, Errors] = {}
        self._at_end: dict[str, bytes] = {}  # by key: tails, once finished
        self._to: Stream | None = None  # None: own
        self._draws = False  # nothing but dashes stands behind its tag yet: they are the rank's
        self._left = b""  # may be the beginning of a tag or a rule
        self._lines: dict[Output, list[tuple[Stream | None, bytes]]] = {}  # that have come and not been given on yet

    @property
    def tail(self) -> bytes:
        return self._own.tail

    def tail_of(self, key: str) -> bytes:
        """Return the tail of a rank's output. Of simultaneous output, standard error comes last: a traceback is a rank's last
        output."""
        output = self._by_key.get(key.encode())
        if not output or key in self._at_end:
            return self._at_end.get(key, b"")
        begun = [stream for stream in self._streams.values() if stream.output is output and stream.begun]
        return self._errors.get(output, Errors()).tail(output, begun)

    def feed(self, data: bytes) -> None:
        data = self._left + data
        whole = _without_begun(data)
        self._left = data[whole:]
        self._take(data[:whole])

    def finish(self) -> None:
        self._take(self._left)
        self._left = b""
        self._at_end = {key.decode(): self.tail_of(key.decode()) for key in self._by_key}
        for stream in self._streams.values():
            if stream.begun:  # with nothing, it would seem to have written now
                stream.output.feed(bytes(stream.begun))
            stream.output.end_line()
        for output in (*self._by_key.values(), self._own):
            output.finish()

    def _take(self, data: bytes) -> None:
        at = 0
        for tag in self._tag.finditer(data):
            if tag.start() > at:
                self._give(data[at : tag.start()])
            self._to = self._streams.get(tag[0]) or self._stream(tag)
            self._draws = True
            at = tag.end()
        self._give(data[at:])
        for output, pieces in self._lines.items():
            before = output.tail
            output.feed(b"".join(piece for _, piece in pieces))
            if output in self._errors:
                self._errors[output].take([(bool(stream and stream.is_error), piece) for stream, piece in pieces], before, output)
        self._lines.clear()

    def _give(self, data: bytes) -> None:
        """A tag holds until the end of the line."""
        at = 0
        while at < len(data) and self._to:
            end = data.find(b"\n", at) + 1 or len(data)
            rule = _rule_before(data, at, end)
            if rule == at and self._draws:
                rule = -1
            self._draws = self._draws and not data[at:end].strip(b"-")
            if rule >= 0:
                end = rule
            if end > at:
                self._lines_of(self._to, data[at:end])
            if rule >= 0 or data[end - 1 : end] == b"\n":
                self._to = None
            at = end
        if at < len(data):
            self._lines_of(None, data[at:])

    def _lines_of(self, stream: Stream | None, piece: bytes) -> None:
        output, lines = (stream.output, stream.lines(piece)) if stream else (self._own, piece)
        if lines:
            self._lines.setdefault(output, []).append((stream, lines))

    def _stream(self, tag: re.Match[bytes]) -> Stream | None:
        """That of a tag which is met for the first time."""
        key = tag[1]
        if key not in self._by_key:
            made = self._output(key.decode())
            if not made:
                return None
            self._by_key[key] = made
        self._streams[tag[0]] = stream = Stream(self._by_key[key], ERRORS in tag[0])
        if stream.is_error:
            self._errors[stream.output] = Errors()
        return stream


class Stream:
    """One stream of a rank. is_error: True for standard error. begun: its unfinished line; another stream's lines must not
    stand inside. begun_at: arrival time of the line's last part."""

    def __init__(self, output: Output, is_error: bool = False) -> None:
        self.output = output
        self.is_error = is_error
        self.begun = bytearray()
        self.begun_at = 0.0

    @property
    def end(self) -> bytes:
        return bytes(self.begun[-TAIL:])

    def lines(self, piece: bytes) -> bytes:
        """Return the output to pass on after a new piece: whole lines, and whole states of a redrawn line."""
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
    """Recent standard error of a rank, and its standard output beside: the order of the two is not known then."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._last = 0.0
        self._later = 0  # lines
        self._before = self._beside = self._errors = b""

    def take(self, pieces: list[tuple[bool, bytes]], before: bytes, output: Output) -> None:
        """pieces: each with whether it is of standard error. before: the tail of all before they came."""
        now = output.written_at or 0.0
        if any(own for own, _ in pieces):
            if self._began is None or now - self._began > MOST_LATE_S:
                self._began, self._before, self._beside, self._errors = now, before, b"", b""
            self._last, self._later = now, 0
        elif self._began is not None and now - self._last > SOON_S:
            self._later += sum(piece.count(b"\n") for _, piece in pieces)
            if self._later >= MANY or now - self._last > MOST_LATE_S:
                self._began = None  # that was written later, for sure
        if self._began is not None:
            self._errors = (self._errors + b"".join(piece for own, piece in pieces if own))[-TAIL:]
            self._beside = (self._beside + b"".join(piece for own, piece in pieces if not own))[-TAIL:]

    def tail(self, output: Output, begun: Sequence[Stream] = ()) -> bytes:
        """begun: the rank's streams whose last line has not ended."""
        beside = b"\n".join(stream.end for stream in begun if not stream.is_error)
        errors = b"\n".join(stream.end for stream in begun if stream.is_error)
        last = max((stream.begun_at for stream in begun if stream.is_error), default=self._last)
        if any(stream.begun_at - last > MOST_LATE_S for stream in begun if not stream.is_error):
            return joined(output.tail, errors, beside)
        if self._began is None:
            return joined(output.tail, beside, errors)
        return joined(self._before + self._beside, beside, self._errors + errors)


def _rule_before(data: bytes, at: int, end: int) -> int:
    """Return the start of mpirun's own rule, at the end of a line, if present; output after the rule has no tag. A longer rule was drawn
    by
    a rank."""
    rule = end - 1 - len(OWN_RULE)
    drawn = rule >= at and end < len(data) and data.startswith(OWN_RULE + b"\n", rule)
    return rule if drawn and not (rule > at and data[rule - 1 : rule] == b"-") else -1


def _without_begun(data: bytes) -> int:
    """How much of it can be looked at: not a tag, nor a rule, whose end has not come yet."""
    begun = _BEGUN.search(data, max(0, len(data) - LONGEST_TAG))
    if begun:
        return begun.start()
    if data.endswith(OWN_RULE + b"\n"):  # whose it is shows in what follows
        return len(data) - len(OWN_RULE) - 1
    dashes = len(data) - len(data.rstrip(b"-"))
    return len(data) - (dashes if dashes <= len(OWN_RULE) else 0)
