"""ranklaunch status: show a running job, from any of its containers: its nodes, its ranks, and what it waits for."""

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
MOST_LINES = 64  # one for each rank; more ranks are shown in groups
MOST_LAUNCHERS = 4  # shown one by one
LAST_S = 1e11  # seconds since 1970, the latest time that time.gmtime is asked for
MOST_MORE = 8  # lines of one kind below the table
COLUMNS = ("rank", "node", "pid", "state", "cpu s", "memory", "output", "silent", "step")
AGES = (1, 5, 15, 60, 300, 900, 3600)  # seconds of silence that separate groups


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    values, folder = options.Parser("status", __doc__ or "", USAGE, OPTIONS).folder(argv)
    form = options.chosen(values, FORMAT)
    answer = client.ask(folder, env, {"do": "status"})
    client.understood(_hide, answer)
    text = client.lines(_text, answer)
    sys.stdout.write(client.lines(_document, answer) if form == "json" else text)
    return 0


def _hide(answer: Mapping[str, Any]) -> None:
    """Hide secrets in the exceptions that ranks have recorded: the supervisor has no time for that."""
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
    """Yield the state of the nodes, with one line for neighbours in the same state."""
    for (phase, waiting, age), group in itertools.groupby(nodes, key=lambda node: (node["phase"], node["waiting"], _age(node["age_s"]))):
        members = list(group)
        names = numbered((node["node"] for node in members), "node")
        host = f" ({members[0]['host']})" if len(members) == 1 else ""
        yield f"  {names}{host}: {phase}{f', waiting for {waiting}' if waiting else ''}{age}"


def _limit(silence: Mapping[str, Any] | None, ranks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the time without progress, or at least without output, and the limit of the hang alarm."""
    if not silence:
        return
    limit_s = silence["limit_s"]
    then_s = silence.get("then_s", limit_s)  # an older ranklaunch has no then_s
    limit = f"hang alarm at {limit_s:g} s ({silence['setting']}){'' if then_s == limit_s else f', after the first step at {then_s:g} s'}"
    wrote = [rank["last_output_s"] for rank in ranks if isinstance(rank["last_output_s"], (int, float))]
    if silence["seconds"]:
        yield f"  silent {silence['seconds']:.0f} s; {limit}"
    else:
        output = f"last output {min(wrote):.0f} s ago" if wrote else "no output yet"
        yield f"  {output}; without a sign of life, {limit}"


def _hang(hang: Mapping[str, Any], now: str) -> Iterator[str]:
    """Yield a hang alarm, with the seconds of silence until now."""
    seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(hang["since"])).total_seconds()
    yield f"  hang alarm, last sign of life {seconds:.0f} s ago: {hang['reason']}"
    yield from (f"    {group}" for group in hang.get("groups", ()))


def _launchers(launchers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the launchers that have records of their own; if they are many, the number and the nodes of each kind."""
    known = list(launchers)
    if known and len(known) <= MOST_LAUNCHERS:
        yield f"  launchers: {', '.join(map(_launcher, known))}"
        return
    nodes_of: dict[tuple[str, str], list[int]] = {}
    for each in known:
        nodes_of.setdefault((each["name"], _end(each)), []).append(each["node"])
    groups = [f"{counted(len(nodes), 'time')} {name} on {numbered(nodes, 'node')}{end}" for (name, end), nodes in nodes_of.items()]
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
    """Yield lines from records: the Python of a rank if the table shows another process of it, and exceptions."""
    heads = [rank for rank in ranks if rank.get("head") and rank["head"]["pid"] != rank["pid"]]
    raised = [rank for rank in ranks if rank.get("exception")]
    for shown, line_of in ((heads, _head), (raised, _exception)):
        if shown:
            yield ""
        yield from map(line_of, shown[:MOST_MORE])
        if len(shown) > MOST_MORE:
            yield f"and {counted(len(shown) - MOST_MORE, 'rank')} more"


def _head(rank: Mapping[str, Any]) -> str:
    head = rank["head"]
    by = f", started by {head['placed_by']}" if head["placed_by"] else ""
    return f"rank {rank['rank']} runs {head['program']} as process {head['pid']} on node {rank['node']}{by}"


def _exception(rank: Mapping[str, Any]) -> str:
    exception = rank["exception"]
    thread = f" in thread {exception['thread']}" if exception["from"] == "thread" else ""
    return f"rank {rank['rank']} recorded an exception{thread} at {_clock(exception['at'])} UTC: {exception['text']}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(min(max(at, 0), LAST_S)))


def _age(age: float | None) -> str:
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
    """Yield groups of ranks with the same state, silence and step. The smallest groups come first: they are the conspicuous ones."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for rank in ranks:
        step, silence = rank.get("step"), _silence(rank["last_output_s"], rank["output_bytes"])
        groups.setdefault((rank["state"], silence, "" if step is None else f", step {step}"), []).append(rank["rank"])
    for (state, silence, step), numbers in sorted(groups.items(), key=lambda item: len(item[1])):
        yield f"{numbered(numbers, 'rank')}: {state}, {silence}{step}"


def _silence(seconds: float | None, written: int | None) -> str:
    if seconds is None:
        return "no output yet" if written is not None else "output unknown"
    most = next((age for age in AGES if seconds <= age), None)
    return f"wrote in the last {most} s" if most else f"silent for more than {AGES[-1]} s"
