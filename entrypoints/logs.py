"""ranklaunch logs: show the lines of all ranks of all nodes in the order of time."""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ranklaunch import spans
from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.control import client
from ranklaunch.errors import ConfigError, UsageError, WaitError
from ranklaunch.logs import merging, moments, reading, search, shown
from ranklaunch.logs.merging import Job, Piece
from ranklaunch.logs.search import Folder
from ranklaunch.logs.shown import Look
from ranklaunch.logs.view import View
from ranklaunch.output import console
from ranklaunch.showing import printable
from ranklaunch.system import disk

OF_RANKS, OF_TIME = "[--rank R[,R-R]] [--node I] [--attempt K]", "[--since T] [--until T] [--tail N]"
USAGE = f"ranklaunch logs [LOG_DIR] {OF_RANKS} {OF_TIME} [--follow] [--grep RE] [--times]"
OPTIONS = (
    Option("--rank", "rank", "show only these ranks, such as 0,8-15"),
    Option("--node", "node", "show only this node"),
    Option("--attempt", "attempt", "show this attempt (default: the newest)"),
    Option("--since", "since", "show lines from this time on: 14:30, 2026-11-23T14:30 (UTC), or an age such as 10m", "T"),
    Option("--until", "until", "show lines until this time, in the forms of --since", "T"),
    Option("--tail", "tail", "show the last N of these lines; with --follow, then continue", "N"),
    Option("--follow", "follow", "show new lines until the job ends, across restarts in place", ""),
    Option("--grep", "grep", "show only lines that match this regular expression"),
    Option("--times", "times", "show the time of each line before it, in UTC", ""),
)
FIRST_S = 600.0  # wait for a followed job to begin
SAY_AGAIN_S = 30.0
EVER = 1 << 62  # later than any line, in microseconds


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    chosen, folder = options.Parser("logs", __doc__ or "", USAGE, OPTIONS).folder(argv)
    top = disk.absolute(folder or client.own_logs(env))
    terminal = sys.stdout.isatty()
    colours = terminal and console.colourful(env)
    look = Look(_pattern(chosen), terminal, colours, _clock if "times" in chosen else None)
    out = sys.stdout.buffer
    for block in _blocks(top, chosen, look):
        out.write(block)
        if not block:
            out.flush()
    return 0


def _blocks(top: str, options: Mapping[str, str], look: Look) -> Iterator[bytes]:
    """Yield lines as they are shown, and b"" when the lines so far should be flushed because no more are there yet."""
    ranks, node, attempt = _ranks(options), _number(options, "node"), _number(options, "attempt")
    lines, follow, now = _number(options, "tail"), "follow" in options, time.time()
    for name in ("since", "until"):
        _moment(options, name, now, [now])  # refuse wrong times before the wait for a job
    say = functools.partial(_say, shown_before=set())
    first = _first(top, attempt, node, follow, say)
    since, until = _between(options, now, first)
    view = View(look)
    make_round = merging.maker(_is_wanted(ranks), say, len(first))

    def look_again() -> list[Folder]:
        return search.attempt(top, first[0].attempt, node, say=say)

    def make() -> Iterator[Piece | None]:
        view.job = Job(first, look_again, make_round, follow)
        return merging.between(view.job.pieces(), since, until, follow)

    yield from view.all(make()) if lines is None else view.tail(make, lines)


def _first(top: str, attempt: int | None, node: int | None, follow: bool, say: Callable[[str], object]) -> list[search.Folder]:
    began = last_note = time.monotonic()
    while True:
        try:
            return search.attempt(top, attempt, node, follow=follow, say=say)
        except ConfigError as error:
            now = time.monotonic()
            if not follow:
                raise
            if now - began > FIRST_S:
                raise WaitError(str(error)) from None
            if now == began or now - last_note > SAY_AGAIN_S:
                last_note = now
                _say(f"waiting, at most {FIRST_S:g} s: {error}", set())
            time.sleep(merging.LOOK_S)


def _between(options: Mapping[str, str], now: float, folders: Iterable[Folder]) -> tuple[int, int]:
    """Return the first and the last moment to show, in microseconds since 1970. folders: the job's; a time of day is of its days."""
    times = _times(options, folders) or [now]
    since, until = (_moment(options, name, now, times) for name in ("since", "until"))
    if since is not None and until is not None and since > until:
        msg = f"--since {options['since']}: expected a time before --until {options['until']}"
        raise UsageError(msg)
    return since or 0, EVER if until is None else until


def _times(options: Mapping[str, str], folders: Iterable[Folder]) -> list[float]:
    """Return times of the job's lines in seconds since 1970, if an option is a time of day; else []."""
    if not any(moments.is_clock(options.get(name, "")) for name in ("since", "until")):
        return []
    paths = [path for folder in folders for _, path in search.rounds(folder.path)]
    return [at for path in paths for at in reading.edges(path)]


def _moment(options: Mapping[str, str], name: str, now: float, times: Sequence[float]) -> int | None:
    if name not in options:
        return None
    try:
        return int(1e6 * moments.moment(options[name], now, min(times), max(times)))
    except (ValueError, OverflowError) as error:
        msg = f"--{name} {options[name]}: {error}"
        raise UsageError(msg) from None


def _is_wanted(ranks: spans.Spans | None) -> Callable[[str], bool]:
    return (lambda name: shown.rank_of(name) in ranks) if ranks else (lambda name: True)


def _pattern(options: Mapping[str, str]) -> Callable[[bytes], object] | None:
    if "grep" not in options:
        return None
    try:
        return re.compile(os.fsencode(options["grep"])).search
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"--grep {options['grep']}: no regular expression: {error}"
        raise UsageError(msg) from None


def _ranks(options: Mapping[str, str]) -> spans.Spans | None:
    try:
        return spans.parse(options["rank"]) if "rank" in options else None
    except ValueError as error:
        msg = f"--rank {options['rank']}: {error}"
        raise UsageError(msg) from None


def _number(options: Mapping[str, str], name: str) -> int | None:
    if name in options and not re.fullmatch("[0-9]{1,7}", options[name]):
        msg = f"--{name} {options[name]}: expected a whole number"
        raise UsageError(msg)
    return int(options[name]) if name in options else None


def _clock(at: int) -> str:
    seconds, microseconds = divmod(at, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{microseconds // 1000:03d}Z "


def _say(text: str, shown_before: set[str]) -> None:
    """Write a note to stderr, unless it was shown before."""
    if text not in shown_before:
        shown_before.add(text)
        sys.stderr.write(f"ranklaunch: {printable(text)}\n")
        sys.stderr.flush()
