"""ranklaunch status: how a running job stands, asked in any of its containers: its nodes, its ranks, and what it waits for."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ranklaunch import errors
from ranklaunch.cli import options
from ranklaunch.control import client
from ranklaunch.errors import counted, numbered

USAGE = "ranklaunch status [LOG_DIR] [--format text|json]"
FORMAT = options.of_formats("text", "json")
OPTIONS = (FORMAT,)
MOST_LINES = 64  # of ranks; more are told in groups that are alike
MOST_LAUNCHERS = 4  # that are named one by one
LAST_S = 1e11  # seconds since 1970 that a calendar has
MOST_MORE = 8  # lines of one kind below the table
COLUMNS = ("rank", "node", "pid", "state", "cpu s", "memory", "output", "silent", "step")
AGES = (1, 5, 15, 60, 300, 900, 3600)  # seconds of silence by which groups are told apart


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    values, folder = options.Parser("status", __doc__ or "", USAGE, OPTIONS).folder(argv)
    form = options.chosen(values, FORMAT)
    answer = client.ask(folder, env, {"do": "status"})
    client.understood(_hide, answer)
    text = client.lines(_text, answer)
    sys.stdout.write(client.lines(_document, answer) if form == "json" else text)
    return 0


def _hide(answer: Mapping[str, Any]) -> None:
    """Hide secrets in what ranks wrote down: the supervisor has no time for that."""
    for rank in answer["ranks"]:
        exception = rank.get("exception")
        if exception:
            exception.update({name: errors.quoted((exception[name],))[0] for name in ("thread", "text")})


def _document(answer: Mapping[str, Any]) -> Iterator[str]:
    yield from json.dumps(answer, indent=2, allow_nan=False).split("\n")


def _text(answer: Mapping[str, Any]) -> Iterator[str]:
    nodes, ranks = answer["nodes"], answer["ranks"]
    count = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}, {len(ranks)} ranks known"
    now = f", at {answer['time'][:19].replace('T', ' ')} UTC" if answer.get("time") else ""
    yield f"{answer['job']}, attempt {answer['attempt']}: {answer['method']} on {answer['platform']}, {count}{now}"
    yield from _nodes(nodes)
    hang = answer.get("hang")
    yield from _hang(hang, answer["time"]) if hang else _limit(answer.get("silence"), ranks)
    yield from _launchers(answer.get("launchers", ()))
    yield ""
    yield from _table([COLUMNS, *map(_rank, ranks)]) if len(ranks) <= MOST_LINES else _groups(ranks)
    yield from _more(ranks)


def _nodes(nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Neighbours that stand alike are told once."""
    for (phase, waiting, age), group in itertools.groupby(nodes, key=lambda node: (node["phase"], node["waiting"], _old(node["age_s"]))):
        those = list(group)
        names = numbered((node["node"] for node in those), "node")
        host = f" ({those[0]['host']})" if len(those) == 1 else ""
        yield f"  {names}{host}: {phase}{f', waiting for {waiting}' if waiting else ''}{age}"


def _limit(silence: Mapping[str, Any] | None, ranks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """How long nothing has moved, or at least nobody has written, and when the hang alarm comes."""
    if not silence:
        return
    limit_s = silence["limit_s"]
    then_s = silence.get("then_s", limit_s)  # an older job has none
    limit = f"hang alarm at {limit_s:g} s ({silence['setting']}){'' if then_s == limit_s else f', after the first step at {then_s:g} s'}"
    wrote = [rank["last_output_s"] for rank in ranks if isinstance(rank["last_output_s"], (int, float))]
    if silence["seconds"]:
        yield f"  silent {silence['seconds']:.0f} s; {limit}"
    else:
        output = f"last output {min(wrote):.0f} s ago" if wrote else "no output yet"
        yield f"  {output}; without a sign of life, {limit}"


def _hang(hang: Mapping[str, Any], now: str) -> Iterator[str]:
    """An alarm that stands, with the silence by now."""
    seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(hang["since"])).total_seconds()
    yield f"  hang alarm, last sign of life {seconds:.0f} s ago: {hang['reason']}"
    yield from (f"    {group}" for group in hang.get("groups", ()))


def _launchers(launchers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the launchers with records of their own; of many, the number and the nodes of each kind."""
    known = list(launchers)
    if known and len(known) <= MOST_LAUNCHERS:
        yield f"  launchers: {', '.join(map(_launcher, known))}"
        return
    alike: dict[tuple[str, str], list[int]] = {}
    for each in known:
        alike.setdefault((each["name"], _end(each)), []).append(each["node"])
    groups = [f"{counted(len(those), 'time')} {name} on {numbered(those, 'node')}{end}" for (name, end), those in alike.items()]
    if groups:
        more = len(groups) - MOST_LAUNCHERS
        yield f"  launchers: {', '.join(groups[:MOST_LAUNCHERS])}{f' and {more} more' if more > 0 else ''}"


def _launcher(launcher: Mapping[str, Any]) -> str:
    return f"{launcher['name']} (pid {launcher['pid']}) on node {launcher['node']}{_end(launcher)}"


def _end(launcher: Mapping[str, Any]) -> str:
    if launcher["ended"] is not None:
        return f", ended with {launcher['ended']}"
    return "" if launcher["alive"] else ", ended"


def _more(ranks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines from records: Pythons of ranks whose process in the table is another one, and exceptions."""
    heads = [rank for rank in ranks if rank.get("head") and rank["head"]["pid"] != rank["pid"]]
    raised = [rank for rank in ranks if rank.get("exception")]
    for shown, of in ((heads, _head), (raised, _raised)):
        if shown:
            yield ""
        yield from map(of, shown[:MOST_MORE])
        if len(shown) > MOST_MORE:
            yield f"and {counted(len(shown) - MOST_MORE, 'rank')} more"


def _head(rank: Mapping[str, Any]) -> str:
    head = rank["head"]
    by = f", started by {head['placed_by']}" if head["placed_by"] else ""
    return f"rank {rank['rank']} runs {head['program']} as process {head['pid']} on node {rank['node']}{by}"


def _raised(rank: Mapping[str, Any]) -> str:
    exception = rank["exception"]
    thread = f" in thread {exception['thread']}" if exception["from"] == "thread" else ""
    return f"rank {rank['rank']} wrote down an exception{thread} at {_clock(exception['at'])} UTC: {exception['text']}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(min(max(at, 0), LAST_S)))


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
