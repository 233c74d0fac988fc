"""verdict.json, round.json, plan.json and summaries of evidence as values of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ranklaunch.report import checked
from ranklaunch.report.model import Culprit, Difference, Hang, Job, KnownError, Node, Suspect, SuspectHost
from ranklaunch.verdict import endings
from ranklaunch.verdict.model import MOST_RULES
from ranklaunch.verdict.model import Culprit as Judged

MOST_NODES = 65536
MOST_DIFFERENCES = 40


def culprit(value: object) -> Culprit | None:
    found = checked.mapping(value)
    node = checked.index(found.get("node"))
    if node is None:
        return None
    error = _error(found.get("error"))
    if error and found.get("out_of_memory") is True:  # whatever its words are about
        error = replace(error, meaning="", remedy="", retry="")
    return Culprit(
        name=checked.text(found.get("name"), 120), node=node, rank=checked.index(found.get("rank")),
        host=checked.text(found.get("host"), 255),
        pid=checked.whole(found.get("pid")), exit_code=checked.whole(found.get("exit_code")), signal=checked.text(found.get("signal"), 40),
        out_of_memory=found.get("out_of_memory") is True, time=checked.text(found.get("time"), 40),
        last_lines=checked.lines(checked.each_of(found.get("last_lines"))), error=error, meaning=_meaning(found, error),
    )  # fmt: skip


def culprits(value: object) -> tuple[Culprit, ...]:
    return tuple(filter(None, map(culprit, checked.each_of(value)[:64])))


def _meaning(found: Mapping[str, Any], error: KnownError | None) -> str:
    of_memory = found.get("out_of_memory") is True
    code = checked.whole(found.get("exit_code"))
    signal = checked.text(found.get("signal"), 40) or None
    return "" if error and not of_memory else endings.meaning(Judged(0, None, None, code or 0, signal, of_memory, ()))


def _error(value: object) -> KnownError | None:
    found = checked.mapping(value)
    name = checked.text(found.get("name"), 120)
    if not name:
        return None
    line = next(iter(checked.lines([found.get("line")])), "")
    texts = {key: checked.text(found.get(key)) for key in ("meaning", "remedy", "source", "retry")}
    return KnownError(name, checked.text(found.get("kind"), 40), line, **texts)


def because(value: object) -> tuple[str, ...]:
    """Return the rules that decided, each with its words in brackets behind it."""
    found = (checked.mapping(each) for each in checked.each_of(value)[:MOST_RULES])
    rules = ((checked.text(each.get("rule"), 80), checked.text(each.get("says"), 300)) for each in found)
    return tuple(f"{rule} ({says})" if says else rule for rule, says in rules if rule)


def hang(value: object) -> Hang | None:
    """The alarm that stood at the end."""
    found = checked.mapping(value)
    if not found:
        return None
    return Hang(checked.time(found.get("since")), None, "", checked.texts(found.get("signals")), tuple(_suspects(found.get("suspects"))))


def _suspects(value: object) -> Iterator[Suspect]:
    for each in map(checked.mapping, checked.each_of(value)[:64]):
        rank, node = checked.index(each.get("rank")), checked.index(each.get("node"))
        if rank is not None:
            yield Suspect(rank, -1 if node is None else node, checked.text(each.get("why")), checked.text(each.get("file"), 600))


def suspect_host(value: object) -> SuspectHost | None:
    found = checked.mapping(value)
    host, node = checked.text(found.get("host"), 255), checked.index(found.get("node"))
    return SuspectHost(host, node, checked.text(found.get("why"))) if host and node is not None else None


def stop(values: Iterable[object]) -> str:
    """What a stop request did to the ranks. values: what the verdict of each node says of its own."""
    found = [each for each in map(checked.mapping, values) if each]
    if not found:
        return ""
    caught, ended, killed = (
        sum(len(checked.each_of(each.get(key))) for each in found) for key in ("caught_by", "ended_by_themselves", "killed")
    )
    seconds = [number for number in (checked.number(each.get("seconds")) for each in found) if number is not None]
    said = [checked.text(each.get("saved"), 20) or "unknown" for each in found]
    saved = next((word for word in ("no", "unknown") if word in said), said[0])
    took = f" after {max(seconds):.1f} s" if seconds else ""
    how = f"{caught} caught it, {ended} ended by themselves, {killed} {'was' if killed == 1 else 'were'} killed{took}"
    return f"{checked.text(found[0].get('signal'), 40)}: {how}; saved: {saved}"


def job(plans: Iterable[Mapping[str, Any]]) -> Job:
    """By the first of them that says anything."""
    plan = next((plan for plan in plans if checked.mapping(plan.get("job"))), None)
    if plan is None:
        return Job()
    of_job, muster = checked.mapping(plan["job"]), checked.mapping(plan.get("muster"))
    process = next(iter(checked.each_of(plan.get("processes"))), None)
    argv = checked.mapping(process).get("argv")
    return Job(
        name=checked.text(of_job.get("name"), 255), platform=checked.text(plan.get("platform"), 60),
        method=checked.text(plan.get("method"), 60),
        why=checked.text(plan.get("why"), 400), command=checked.texts(argv, 400), world_size=checked.whole(of_job.get("world_size")) or 0,
        accelerator=checked.text(of_job.get("accelerator"), 20), nodes=tuple(_nodes(of_job.get("nodes"))),
        ranklaunch=checked.text(checked.mapping(muster.get("facts")).get("ranklaunch"), 40), **_limits(checked.mapping(plan.get("watch"))),
    )  # fmt: skip


def _limits(watch: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits of the hang alarm, {} where nobody watches or nothing tells."""
    found = {name: checked.number(watch.get(name)) for name in ("hang_s", "first_step_s")} if watch.get("hang") != "off" else {}
    return {name: value for name, value in found.items() if value is not None}


def _nodes(value: object) -> Iterator[Node]:
    for each in map(checked.mapping, checked.each_of(value)[:MOST_NODES]):
        index = checked.index(each.get("index"))
        if index is not None:
            slots, first = checked.index(each.get("slots")) or 0, checked.index(each.get("first_rank")) or 0
            yield Node(index, checked.text(each.get("host"), 255), slots, first)


def differences(plans: Mapping[int, Mapping[str, Any]]) -> tuple[Difference, ...]:
    """Of what nodes compare when they meet. plans: by node. One that starts no ranks, as under mpirun all but node 0, says less."""
    starts = {node for node, plan in plans.items() if plan.get("processes") != []}
    facts = {node: checked.mapping(checked.mapping(plan.get("muster")).get("facts")) for node, plan in plans.items()}
    told = {node: found for node, found in facts.items() if found}
    found = []
    for name in sorted({name for each in told.values() for name in each}):
        values: dict[str, list[int]] = {}
        for node, each in told.items():
            if name in each or node in starts:
                values.setdefault(checked.text(each.get(name), 200), []).append(node)
        if len(values) > 1:
            by_size = sorted(values.items(), key=lambda item: (-len(item[1]), item[0]))
            found.append(Difference(checked.text(name, 80), tuple((value, tuple(nodes)) for value, nodes in by_size[:16])))
    return tuple(found[:MOST_DIFFERENCES])


def stacks_of(summary: object) -> Iterator[tuple[int, str, str, str]]:
    """Yield rank, state, stack of its main thread, and source line of its innermost frame, of each rank in a summary of evidence."""
    ranks = checked.mapping(checked.mapping(summary).get("ranks"))
    for name, told in list(ranks.items())[:MOST_NODES]:
        stack = checked.mapping(told).get("stack")
        frames = [checked.text(frame, 300) for frame in checked.each_of(stack)[:20]] if isinstance(stack, list) else []
        if name.isdecimal() and len(name) < 8:
            state, call = (checked.text(checked.mapping(told).get(key), most) for key, most in (("state", 8), ("call", 300)))
            yield int(name), state, "\n".join(frames), call
