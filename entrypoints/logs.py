"""ranklaunch logs: the lines of all ranks of all nodes in the order of time."""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from ranklaunch import spans
from ranklaunch.cli import options
from ranklaunch.cli.options import Option
from ranklaunch.control import client
from ranklaunch.errors import ConfigError, UsageError, WaitError
from ranklaunch.logs import merging, search, shown
from ranklaunch.logs.merging import Node, Piece
from ranklaunch.output import console
from ranklaunch.showing import printable
from ranklaunch.system import disk

USAGE = "ranklaunch logs [LOG_DIR] [--rank R[,R-R]] [--node I] [--attempt K] [--follow] [--grep RE] [--times]"
OPTIONS = (
    Option("--rank", "rank", "of these ranks alone, such as 0,8-15"),
    Option("--node", "node", "of this node alone"),
    Option("--attempt", "attempt", "of this attempt (default: the newest)"),
    Option("--follow", "follow", "go on while the job does, over restarts in place", ""),
    Option("--grep", "grep", "lines alone in which this regular expression is found"),
    Option("--times", "times", "when each line came stands before it, in UTC", ""),
)
FIRST_S = 600.0  # a job that is followed may not have begun
SAY_AGAIN_S = 30.0
LOOK_AGAIN_S = 1.0  # for nodes that come later


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    given, words = options.Parser("logs", __doc__ or "", USAGE, OPTIONS).apart(argv)
    if len(words) > 1:
        msg = f"{len(words)} folders: expected at most one\nusage: {USAGE}"
        raise UsageError(msg)
    top = disk.absolute(words[0] if words else client.own_logs(env))
    out = sys.stdout.buffer
    terminal = sys.stdout.isatty()
    look = shown.Look(_pattern(given), terminal, terminal and console.colourful(env), _clock if "times" in given else None)
    for block in _blocks(_pieces(top, given), look):
        out.write(block)
        if not block:
            out.flush()
    return 0


def _pieces(top: str, given: Mapping[str, str]) -> Iterator[tuple[Piece | None, bool]]:
    """With whether there are several nodes."""
    ranks, node, attempt = _ranks(given), _number(given, "node"), _number(given, "attempt")
    follow = "follow" in given
    wanted = (lambda name: shown.rank_of(name) in ranks) if ranks else (lambda name: True)
    said: set[str] = set()
    say = functools.partial(_say, said=said)
    first = _first(top, attempt, node, follow, say)
    make = merging.maker(wanted, say, len(first))
    nodes: dict[str, Node] = {}
    looked_at = 0.0

    def look() -> list[Node]:
        nonlocal looked_at
        now = time.monotonic()
        again = follow and now - looked_at > LOOK_AGAIN_S
        looked_at = now if again else looked_at
        for folder in search.attempt(top, first[0].attempt, node, say=say) if again else first:
            if folder.path not in nodes:
                nodes[folder.path] = Node(folder, make, follow)
        return list(nodes.values())

    for piece in merging.followed(look) if follow else merging.merged(look()):
        yield piece, len(nodes) > 1


def _blocks(pieces: Iterator[tuple[Piece | None, bool]], look: shown.Look) -> Iterator[bytes]:
    """As they are shown; empty where somebody waits for them."""
    tags: dict[tuple[str, str, bool], bytes] = {}
    for piece, several in pieces:
        if not piece:
            yield b""
            continue
        (at, name, end), each, node, restart, whole = piece
        key = each.path, name, several
        if key not in tags:
            tags[key] = shown.tag(name, node if several else None, restart, look.colours)
        log = each.log(name)
        quick = log.quick(end)
        for lines in (quick,) if quick else log.upto(end):
            yield look.block(lines, tags[key], at)
        last = log.last() if whole else b""
        if last:
            yield look.block(last, tags[key], at)


def _first(top: str, attempt: int | None, node: int | None, follow: bool, say: Callable[[str], object]) -> list[search.Folder]:
    began = said = time.monotonic()
    while True:
        try:
            return search.attempt(top, attempt, node, follow=follow, say=say)
        except ConfigError as error:
            now = time.monotonic()
            if not follow:
                raise
            if now - began > FIRST_S:
                raise WaitError(str(error)) from None
            if now == began or now - said > SAY_AGAIN_S:
                said = now
                _say(f"waiting, at most {FIRST_S:g} s: {error}", set())
            time.sleep(merging.LOOK_S)


def _pattern(given: Mapping[str, str]) -> Callable[[bytes], object] | None:
    if "grep" not in given:
        return None
    try:
        return re.compile(os.fsencode(given["grep"])).search
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"--grep {given['grep']}: no regular expression: {error}"
        raise UsageError(msg) from None


def _ranks(given: Mapping[str, str]) -> spans.Spans | None:
    try:
        return spans.parse(given["rank"]) if "rank" in given else None
    except ValueError as error:
        msg = f"--rank {given['rank']}: {error}"
        raise UsageError(msg) from None


def _number(given: Mapping[str, str], name: str) -> int | None:
    if name in given and not re.fullmatch("[0-9]{1,7}", given[name]):
        msg = f"--{name} {given[name]}: expected a whole number"
        raise UsageError(msg)
    return int(given[name]) if name in given else None


def _clock(at: int) -> str:
    seconds, microseconds = divmod(at, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{microseconds // 1000:03d}Z "


def _say(text: str, said: set[str]) -> None:
    """Once."""
    if text not in said:
        said.add(text)
        sys.stderr.write(f"ranklaunch: {printable(text)}\n")
        sys.stderr.flush()
