"""ranklaunch status: how a running job stands, asked in any of its containers: its nodes, its ranks, and what it waits for."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ranklaunch.command import asking, options
from ranklaunch.command.options import Option
from ranklaunch.errors import UsageError, nearest, numbered
from ranklaunch.typed import Any

USAGE = "ranklaunch status [LOG_DIR] [--format text|json]"
FORMATS = ("text", "json")
OPTIONS = (Option("--format", "format", f"{', '.join(FORMATS)} (default: text)", legal=FORMATS),)
MOST_LINES = 64  # of ranks; more are told in groups that are alike
COLUMNS = ("rank", "node", "pid", "state", "cpu s", "memory", "output", "silent", "step")
AGES = (1, 5, 15, 60, 300, 900, 3600)  # seconds of silence by which groups are told apart


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    given, words = options.Parser("status", __doc__ or "", USAGE, OPTIONS).apart(argv)
    form = given.get("format", "text")
    if form not in FORMATS:
        msg = f"--format {form}: expected {', '.join(FORMATS)}{nearest(form, FORMATS)}"
        raise UsageError(msg)
    answer = asking.ask(one_folder(words, USAGE), env, {"do": "status"})
    text = asking.lines(_text, answer)
    sys.stdout.write(asking.lines(_document, answer) if form == "json" else text)
    return 0


def one_folder(words: Sequence[str], usage: str) -> str:
    if len(words) > 1:
        msg = f"{len(words)} folders: expected at most one\nusage: {usage}"
        raise UsageError(msg)
    return words[0] if words else ""


def _document(answer: Mapping[str, Any]) -> Iterator[str]:
    yield from json.dumps(answer, indent=2, allow_nan=False).split("\n")


def _text(answer: Mapping[str, Any]) -> Iterator[str]:
    nodes, ranks = answer["nodes"], answer["ranks"]
    count = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}, {len(ranks)} ranks known"
    yield f"{answer['job']}, attempt {answer['attempt']}: {answer['method']} on {answer['platform']}, {count}"
    yield from _nodes(nodes)
    yield ""
    yield from _table([COLUMNS, *map(_rank, ranks)]) if len(ranks) <= MOST_LINES else _groups(ranks)


def _nodes(nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Neighbours that stand alike are told once."""
    for (phase, waiting, age), group in itertools.groupby(nodes, key=lambda node: (node["phase"], node["waiting"], _old(node["age_s"]))):
        those = list(group)
        names = numbered((node["node"] for node in those), "node")
        host = f" ({those[0]['host']})" if len(those) == 1 else ""
        yield f"  {names}{host}: {phase}{f', waiting for {waiting}' if waiting else ''}{age}"


def _old(age: float | None) -> str:
    if age is None:
        return ", nothing heard of it"
    return f", {age:.0f} s ago" if age >= 1 else ""


def _rank(rank: Mapping[str, Any]) -> tuple[str, ...]:
    written, silent, step = rank["output_bytes"], rank["last_output_s"], rank.get("step")
    return (
        str(rank["rank"]), str(rank["node"]), str(rank["pid"] or "-"), rank["state"], f"{rank['cpu_s']:.1f}",
        f"{rank['rss_kb'] / 1024:.0f} MB", "-" if written is None else f"{written} B", "-" if silent is None else f"{silent:.0f} s",
        "-" if step is None else str(step),
    )  # fmt: skip


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(text.rjust(width) for text, width in zip(row, widths))


def _groups(ranks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Of very many: how many are alike, and which; the smallest groups first, for they stand out."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for rank in ranks:
        step, silence = rank.get("step"), _silence(rank["last_output_s"], rank["output_bytes"])
        alike.setdefault((rank["state"], silence, "" if step is None else f", step {step}"), []).append(rank["rank"])
    for (state, silence, step), numbers in sorted(alike.items(), key=lambda item: len(item[1])):
        yield f"{numbered(numbers, 'rank')}: {state}, {silence}{step}"


def _silence(seconds: float | None, written: int | None) -> str:
    if seconds is None:
        return "no output yet" if written is not None else "what it writes is not known"
    most = next((age for age in AGES if seconds <= age), None)
    return f"wrote in the last {most} s" if most else f"silent for more than {AGES[-1]} s"
