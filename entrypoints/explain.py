"""ranklaunch explain: show what is known of the errors in a log, of any program; starts nothing."""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence

from ranklaunch import catalogue, showing
from ranklaunch.catalogue import Finding, answer
from ranklaunch.catalogue.answer import Log
from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import KNOWN_ERRORS
from ranklaunch.errors import ConfigError, counted, quoted
from ranklaunch.files import NoFiles
from ranklaunch.hangs import cpu_limit
from ranklaunch.system import disk
from ranklaunch.system.disk import DiskFiles
from ranklaunch.verdict.blame import RETRY

USAGE = "ranklaunch explain [OPTIONS] FILE|- | --find WORDS"
FORMAT = options.of_formats("text", "json")
OPTIONS = (
    options.of_variable(KNOWN_ERRORS),
    FORMAT,
    Option("--find", "find", "list the known errors with these words in name, family, meaning, remedy or patterns, in place of a log"),
)
# Limits with patterns of the user: CPU seconds for any log, and for each MiB of it. The shipped patterns take 0.2 s for a MiB.
MOST_CPU_S = 2.0
MORE_CPU_S = 2.0
MOST_OF_END = 1024 * 1024  # characters at the end of a log in which an unknown exception is looked for
MOST_SHOWN = 20  # errors beside the most likely one
NOTHING_KNOWN = 1
_COMPRESSED = {"zcat": b"\x1f\x8b", "zstdcat": b"\x28\xb5\x2f\xfd", "xzcat": b"\xfd7zXZ\0", "bzcat": b"BZh91AY&SY"}


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    """Return 0 if an error in the log is known, else 1."""
    parser = options.Parser("explain", __doc__ or "", USAGE, OPTIONS)
    values, words = parser.apart(argv)
    form = options.chosen(values, FORMAT)
    if len(words) != ("find" not in values):
        expected = "no file beside --find" if "find" in values else "one file, or - for standard input"
        parser.refuse(f"{counted(len(words), 'file')} given: expected {expected}")
    known_errors = Reader(env, NoFiles(), values).get(KNOWN_ERRORS)
    errors = _errors(known_errors) if known_errors else ()
    if "find" in values:
        return _list(values["find"], errors or catalogue.shipped())
    log = _read(words[0])
    name = "standard input" if words[0] == "-" else words[0]
    findings = answer.known_lines(log, functools.partial(_findings, known_errors=known_errors, errors=errors))
    sys.stdout.write(_as_json(name, log, findings) if form == "json" else _as_text(name, log, findings))
    return 0 if findings else NOTHING_KNOWN


def _errors(folder: str) -> Sequence[catalogue.KnownError]:
    try:
        return catalogue.with_own(DiskFiles(), catalogue.folder_of(folder, disk.working_folder()))
    except ValueError as error:
        msg = f"{KNOWN_ERRORS.both}: {error}"
        raise ConfigError(msg) from None


def _findings(text: str, known_errors: str, errors: Sequence[catalogue.KnownError]) -> list[Finding]:
    """Return the findings in a log. errors: all errors with the user's own, whose patterns may take too long; () if there are none."""
    if not errors:
        return catalogue.findings(text)
    seconds = MOST_CPU_S + MORE_CPU_S * (len(text) >> 20)
    try:
        with cpu_limit.cpu(seconds):
            return catalogue.findings(text, errors)
    except cpu_limit.TooLongError:
        why = f"its patterns take more than {seconds:g} s of CPU time for this log, so they are left out: one of them backtracks too much"
        sys.stderr.write(f"ranklaunch: {KNOWN_ERRORS.both}: {showing.one_line(known_errors)}: {why}\n")
        return catalogue.findings(text)


def _list(words: str, errors: Sequence[catalogue.KnownError]) -> int:
    """Print the known errors that have all of the words, in any order. Returns the exit code."""
    small = words.lower().split()
    entries = [error for error in errors if all(word in _searched(error) for word in small)]
    lines = [f"{error.name} ({error.kind}, {error.family}): {error.meaning}\n  What to do: {error.remedy}\n" for error in entries]
    sys.stdout.write("".join(lines) or f"{showing.one_line(words)}: no known error has these words\n")
    return 0 if entries else NOTHING_KNOWN


def _searched(error: catalogue.KnownError) -> str:
    pattern = error.pattern.replace("\\", "")
    return "\n".join((error.name, error.family, error.meaning, error.remedy, pattern, *error.needed)).lower()


def _read(path: str) -> Log:
    if os.path.isdir(path):
        msg = f"{showing.one_line(path)}: a folder, not a log: see `ranklaunch report {showing.one_line(path)}` for why its job failed"
        raise ConfigError(msg)
    try:
        inherited = re.fullmatch(r"-|/dev/fd/(\d{1,9})", path)  # a shell makes /dev/fd/N of <(kubectl logs POD)
        fd = os.dup(int(inherited[1] or 0)) if inherited else disk.readable(path)
        os.set_blocking(fd, True)
        with open(fd, "rb") as file:
            size = _forward(file.fileno())
            data = b""
            skipped = size
            while piece := file.read(answer.MOST_BYTES):
                cut = max(0, len(data) + len(piece) - answer.MOST_BYTES)
                data, skipped = (data + piece)[cut:], skipped + cut
    except OSError as error:
        msg = f"{showing.one_line(path) or repr(path)}: {error.strerror}{_words_hint(path)}"
        raise ConfigError(msg) from None
    tool = next((tool for tool, begin in _COMPRESSED.items() if data.startswith(begin) and not skipped), "")
    if tool:
        msg = f"{showing.one_line(path)}: the file is compressed: {tool} FILE | ranklaunch explain -"
        raise ConfigError(msg)
    return answer.end_of_log(data, skipped)


def _words_hint(path: str) -> str:
    """Return the end of the message about a missing file whose name is a word of a known error."""
    small = path.lower()
    if os.path.exists(path) or not re.fullmatch(r"\w{4,}", small):
        return ""
    is_known = any(small in _searched(error) for error in catalogue.shipped())
    return f"; known errors with this word: ranklaunch explain --find {path}" if is_known else ""


def _forward(fd: int) -> int:
    """Seek to the last MOST_BYTES of a file, and return the number of skipped bytes. A pipe is not seekable: 0."""
    try:
        return os.lseek(fd, max(0, os.fstat(fd).st_size - answer.MOST_BYTES), os.SEEK_SET)
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise
        return 0


def _as_text(name: str, log: Log, findings: Sequence[Finding]) -> str:
    name = showing.one_line(name)
    part = f" (of its last {counted(answer.MOST_BYTES, 'byte')}, or {answer.MOST_LINES} lines)" if log.skipped else ""
    if not findings:
        exception = catalogue.last_exception(log.text[-MOST_OF_END:])
        last = f"The last exception in it: {showing.printable(quoted((exception,))[0]):.300}\n" if exception else ""
        return f"{name}: no known error in it{part}\n{last}"
    best, *rest = findings
    lines = [f"{_place(name, log, best)}: {answer.shown_line(best)}", *_explanation(best)]
    shown = sorted(rest, key=lambda finding: finding.number)[-MOST_SHOWN:]
    if shown:
        title = f"Further known errors in it{part}"
        lines += ["", f"{title}:" if len(shown) == len(rest) else f"{title}, the last {MOST_SHOWN}:"]
        lines += [f"  {_place(name, log, each)}: {each.error.name} ({each.error.kind}): {answer.shown_line(each):.100}" for each in shown]
    return "\n".join(lines) + "\n"


def _explanation(best: Finding) -> list[str]:
    error = best.error
    again = [f"  Again: {RETRY[error.retry]}"] if error.retry else []
    return [f"  {error.name} ({error.kind})", f"  {error.meaning}", f"  What to do: {error.remedy}", *again, f"  See {error.source}"]


def _place(name: str, log: Log, finding: Finding) -> str:
    """Return FILE:NUMBER of a line, or FILE where the number is not known because the log's beginning was skipped."""
    number = answer.line_number(log, finding)
    return name if number is None else f"{name}:{number}"


def _as_json(name: str, log: Log, findings: Sequence[Finding]) -> str:
    return json.dumps(answer.as_json(answer.answer(log, findings), name), indent=2) + "\n"
