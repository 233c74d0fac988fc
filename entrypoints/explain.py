"""ranklaunch explain: what is known of the errors in a log, which may be of any program; starts nothing."""

from __future__ import annotations

import codecs
import errno
import functools
import itertools
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence

from ranklaunch import catalogue, showing
from ranklaunch.catalogue import Finding
from ranklaunch.command import options
from ranklaunch.command.options import Option
from ranklaunch.errors import ConfigError, UsageError, counted, nearest, quoted
from ranklaunch.files import NoFiles
from ranklaunch.read.reader import Reader
from ranklaunch.read.settings import KNOWN_ERRORS
from ranklaunch.system import disk
from ranklaunch.system.disk import DiskFiles
from ranklaunch.values import Value
from ranklaunch.verdict.blame import RETRY

USAGE = "ranklaunch explain [OPTIONS] FILE|- | --find WORDS"
FORMATS = ("text", "json")
OPTIONS = (
    options.of_variable(KNOWN_ERRORS),
    Option("--format", "format", f"{', '.join(FORMATS)} (default: text)", legal=FORMATS),
    Option("--find", "find", "list the known errors with these words in name, family, meaning, remedy or patterns, in place of a log"),
)
SCHEMA = "ranklaunch.explain/1"
MOST_BYTES = 16 * 1024 * 1024  # of the end of the log
MOST_LINES = 500_000  # of these, the last; logs have 30 bytes a line and more
# With patterns of the user's, for any log, and more for each MiB of it, of which those that are shipped take a fifth of a second.
MOST_CPU_S = 2.0
MORE_CPU_S = 2.0
MOST_OF_END = 1024 * 1024  # characters in which an exception is looked for that nothing is known of
MOST_SHOWN = 20  # errors beside the one that explains most
NOTHING_KNOWN = 1
UNKNOWN = "unknown"
_COMPRESSED = {"zcat": b"\x1f\x8b", "zstdcat": b"\x28\xb5\x2f\xfd", "xzcat": b"\xfd7zXZ\0", "bzcat": b"BZh91AY&SY"}
_OURS = re.compile(r"^ranklaunch: (?:last lines of .*(?:\n  .*)*|.*)$", re.MULTILINE)
_LINES = bytes.maketrans(b"\r", b"\n")
KEYS = ("kind", "name", "line", "meaning", "remedy", "retry", "source", "family")


class Looked(Value):
    """skipped: bytes before the text."""

    name: str
    text: str
    skipped: int


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    """0 where something is known, else 1."""
    values, words = options.Parser("explain", __doc__ or "", USAGE, OPTIONS).apart(argv)
    form = values.get("format", "text")
    if form not in FORMATS:
        msg = f"--format {form}: expected {', '.join(FORMATS)}{nearest(form, FORMATS)}"
        raise UsageError(msg)
    if len(words) != ("find" not in values):
        expected = "no file beside --find" if "find" in values else "one file, or - for standard input"
        msg = f"{counted(len(words), 'file')} given: expected {expected}\nusage: {USAGE}"
        raise UsageError(msg)
    own = Reader(env, NoFiles(), values).get(KNOWN_ERRORS)
    errors = _errors(own) if own else ()
    if "find" in values:
        return _list(values["find"], errors or catalogue.shipped())
    looked = _read(words[0])
    of_program = _without_ours(looked.text)
    texts = dict.fromkeys((of_program, looked.text))
    found = next(filter(None, (_findings(text, own, errors) for text in texts)), [])
    sys.stdout.write(_as_json(looked, found) if form == "json" else _as_text(looked, found))
    return 0 if found else NOTHING_KNOWN


def _without_ours(text: str) -> str:
    """A console without what ranklaunch itself says there, of the program's end too; each line keeps its number."""
    return _OURS.sub(lambda found: re.sub(r"[^\r\n]+", "", found[0]), text)


def _errors(folder: str) -> Sequence[catalogue.KnownError]:
    try:
        return catalogue.with_own(DiskFiles(), catalogue.folder_of(folder, disk.working_folder()))
    except ValueError as error:
        msg = f"{KNOWN_ERRORS.both}: {error}"
        raise ConfigError(msg) from None


def _findings(text: str, own: str, errors: Sequence[catalogue.KnownError]) -> list[Finding]:
    """errors: with the user's own, of which a pattern may take for ever."""
    if not errors:
        return catalogue.findings(text)
    from ranklaunch.supervise.watching import limited

    seconds = MOST_CPU_S + MORE_CPU_S * (len(text) >> 20)
    try:
        with limited.cpu(seconds):
            return catalogue.findings(text, errors)
    except limited.TooLongError:
        why = f"its patterns take more than {seconds:g} s of CPU time for this log, so they are left out: one of them tries too many ways"
        sys.stderr.write(f"ranklaunch: {KNOWN_ERRORS.both}: {showing.one_line(own)}: {why}\n")
        return catalogue.findings(text)


def _list(words: str, errors: Sequence[catalogue.KnownError]) -> int:
    """Those that have all of the words, in whatever order."""
    small = words.lower().split()
    found = [error for error in errors if all(word in _searched(error) for word in small)]
    lines = [f"{error.name} ({error.kind}, {error.family}): {error.meaning}\n  What to do: {error.remedy}\n" for error in found]
    sys.stdout.write("".join(lines) or f"{showing.one_line(words)}: no known error has these words\n")
    return 0 if found else NOTHING_KNOWN


def _searched(error: catalogue.KnownError) -> str:
    pattern = error.pattern.replace("\\", "")
    return "\n".join((error.name, error.family, error.meaning, error.remedy, pattern, *error.needed)).lower()


def _read(path: str) -> Looked:
    if os.path.isdir(path):
        msg = f"{showing.one_line(path)}: a folder, not a log: ranklaunch report {showing.one_line(path)} tells why the job in it died"
        raise ConfigError(msg)
    try:
        handed = re.fullmatch(r"-|/dev/fd/(\d{1,9})", path)  # the latter by a shell, as for <(kubectl logs POD)
        fd = os.dup(int(handed[1] or 0)) if handed else disk.given(path)
        os.set_blocking(fd, True)
        with open(fd, "rb") as file:
            size = _forward(file.fileno())
            data = b""
            skipped = size
            while piece := file.read(MOST_BYTES):
                cut = max(0, len(data) + len(piece) - MOST_BYTES)
                data, skipped = (data + piece)[cut:], skipped + cut
    except OSError as error:
        msg = f"{showing.one_line(path) or repr(path)}: {error.strerror}"
        raise ConfigError(msg) from None
    tool = next((tool for tool, begin in _COMPRESSED.items() if data.startswith(begin) and not skipped), "")
    if tool:
        msg = f"{showing.one_line(path)}: it is compressed: {tool} FILE | ranklaunch explain -"
        raise ConfigError(msg)
    first, *others = data.translate(_LINES).rsplit(b"\n", MOST_LINES)
    if len(others) == MOST_LINES and first:
        cut = len(first) + 1
        data, skipped = data[cut:], skipped + cut
    name = "standard input" if path == "-" else path
    is_utf_16 = not skipped and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell's > writes
    text = data.decode("utf-16" if is_utf_16 else "utf-8", errors="replace")
    return Looked(name, showing.with_returns_told(text), skipped)


def _forward(fd: int) -> int:
    """To the last bytes of a file; how many are passed over. A pipe has no end to go to."""
    try:
        return os.lseek(fd, max(0, os.fstat(fd).st_size - MOST_BYTES), os.SEEK_SET)
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise
        return 0


def _as_text(looked: Looked, found: Sequence[Finding]) -> str:
    part = f" (of its last {counted(MOST_BYTES, 'byte')}, or {MOST_LINES} lines)" if looked.skipped else ""
    if not found:
        said = catalogue.last_exception(looked.text[-MOST_OF_END:])
        gone_on = f"Its last exception, after which it goes on: {showing.printable(quoted((said,))[0]):.300}\n" if said else ""
        return f"{showing.one_line(looked.name)}: nothing in it is known{part}\n{gone_on}"
    best, *others = found
    lines = [f"{_place(looked, best)}: {_shown(best)}", *_told(best)]
    shown = sorted(others, key=lambda finding: finding.number)[-MOST_SHOWN:]
    if shown:
        lines += ["", f"Also known in it{part}:" if len(shown) == len(others) else f"Also known in it{part}, the last {MOST_SHOWN}:"]
        lines += [f"  {_place(looked, each)}: {each.error.name} ({each.error.kind}): {_shown(each):.100}" for each in shown]
    return "\n".join(lines) + "\n"


def _told(best: Finding) -> list[str]:
    error = best.error
    again = [f"  Again: {RETRY[error.retry]}"] if error.retry else []
    return [f"  {error.name} ({error.kind})", f"  {error.meaning}", f"  What to do: {error.remedy}", *again, f"  See {error.source}"]


def _shown(finding: Finding) -> str:
    """Its line, without secrets and what would steer a terminal."""
    return showing.printable(quoted((finding.line,))[0])


def _place(looked: Looked, finding: Finding) -> str:
    """With the line's number, which is not known where the beginning was passed over."""
    name, number = showing.one_line(looked.name), _number(looked, finding)
    return name if number is None else f"{name}:{number}"


def _number(looked: Looked, finding: Finding) -> int | None:
    return None if looked.skipped else _numbers(looked.text)[finding.number]


@functools.lru_cache(maxsize=1)
def _numbers(text: str) -> Sequence[int]:
    """Of its lines, as editors count: a bar that is drawn anew is in one line all the time."""
    return [*itertools.accumulate((end != "\r" for end in re.findall(r"\r\n|\r|\n", text)), initial=1)]


def _as_json(looked: Looked, found: Sequence[Finding]) -> str:
    best, *others = [_as_dict(looked, finding) for finding in found] or [{**dict.fromkeys(KEYS, ""), "kind": UNKNOWN, "line_number": None}]
    document = {"schema": SCHEMA, **best, "log": looked.name, "skipped_bytes": looked.skipped, "others": others}
    return json.dumps(document, indent=2) + "\n"


def _as_dict(looked: Looked, finding: Finding) -> dict[str, object]:
    error = finding.error
    return {
        **{name: getattr(error, name) for name in KEYS if name != "line"},
        "line": _shown(finding),
        "line_number": _number(looked, finding),
    }
