"""verdict.json, round.json, plan.json and summaries of evidence as values of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ranklaunch.fields import NOTHING
from ranklaunch.report import checked
from ranklaunch.report.checked import each_of, field, filled, mapping
from ranklaunch.report.model import Culprit, Difference, Hang, Job, KnownError, Node, Suspect, SuspectHost
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import MOST_RULES
from ranklaunch.verdict.model import Culprit as Judged

MOST_NODES = 65536
MOST_DIFFERENCES = 40
MOST_CULPRITS = 64
WAITS_FOR_RAY = "/programs/ray_driver.py"


def _each(value: object, most: int) -> Iterator[Mapping[str, Any]]:
    yield from map(mapping, each_of(value)[:most])


def culprit(value: object) -> Culprit | None:
    """Return the culprit of a verdict, None for none. After an out-of-memory kill, the advice is about memory, not about the output."""
    data = mapping(value)
    if field("node", data) is None:
        return None
    error = filled(KnownError, mapping(data.get("error")))
    read = filled(Culprit, data, "meaning", "log", error=error if error.name else None)
    if read.error and read.out_of_memory:
        read = replace(read, error=replace(error, meaning="", remedy="", retry=""))
    return read if read.error and not read.out_of_memory else replace(read, meaning=_meaning(read))


def culprits(value: object) -> Iterator[Culprit]:
    return filter(None, map(culprit, each_of(value)[:MOST_CULPRITS]))


def sent(victims: object) -> dict[str, str]:
    """Return the last signal that the stop sent to each process, by name of the process. victims: from verdict.json."""
    signalled = map(checked.mapping, checked.each_of(victims)[:MOST_NODES])
    return {checked.text(each.get("name"), 120): checked.text(each.get("signal"), 40) for each in signalled}


def _meaning(culprit: Culprit) -> str:
    return blame.meaning(Judged(0, None, None, culprit.exit_code or 0, culprit.signal or None, culprit.out_of_memory, ()))


def because(value: object) -> tuple[str, ...]:
    """Return the rules that decided, each with its finding in brackets."""
    rules = ((field("rule", each), field("says", each)) for each in _each(value, MOST_RULES))
    return tuple(f"{rule} ({says})" if says else rule for rule, says in rules if rule)


def hang(value: object) -> Hang | None:
    """Return the hang alarm that stood at the end, None for none."""
    content = mapping(value)
    return filled(Hang, content, "ended", "text", suspects=tuple(_suspects(content.get("suspects")))) if content else None


def _suspects(value: object) -> Iterator[Suspect]:
    for each in _each(value, MOST_CULPRITS):
        node = field("node", each)
        if field("rank", each) is not None:
            yield filled(Suspect, each, "log", node=-1 if node is None else node)


def suspect_host(value: object) -> SuspectHost | None:
    host = filled(SuspectHost, mapping(value))
    return host if host.host and host.node is not None else None


def stop(values: Iterable[object]) -> str:
    """Return the effects of a stop request on the ranks, in words. values: field `stop` of each node's verdict."""
    stops = [each for each in map(mapping, values) if each]
    if not stops:
        return ""
    caught, ended, killed = (sum(len(each_of(each.get(key))) for each in stops) for key in ("caught_by", "ended_by_themselves", "killed"))
    took = max((seconds for seconds in (checked.number(each.get("seconds")) for each in stops) if seconds is not None), default=None)
    answers = [field("saved", each) or "unknown" for each in stops]
    saved = next((word for word in ("no", "unknown") if word in answers), answers[0])
    effects = f"{caught} caught it, {ended} ended by themselves, {killed} {'was' if killed == 1 else 'were'} killed"
    return f"{field('signal', stops[0])}: {effects}{'' if took is None else f' after {took:.1f} s'}; saved: {saved}"


def job(plans: Iterable[Mapping[str, Any]]) -> Job:
    """Return the job by the first plan that has one."""
    plan = next((plan for plan in plans if mapping(plan.get("job"))), None)
    if plan is None:
        return Job()
    of_job, process, watch = mapping(plan["job"]), next(_each(plan.get("processes"), 1), NOTHING), mapping(plan.get("watch"))
    limits = (checked.number(watch.get(name)) or 0.0 if watch.get("hang") != "off" else 0.0 for name in ("hang_s", "first_step_s"))
    facts = mapping(mapping(plan.get("muster")).get("facts"))
    return Job(
        field("name", of_job), field("platform", plan), field("method", plan), field("why", plan), _command(process),
        field("world_size", of_job) or 0, field("accelerator", of_job), tuple(_nodes(of_job.get("nodes"))), field("ranklaunch", facts),
        *limits,
    )  # fmt: skip


def _command(process: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command of a process, without ranklaunch's wrapper that waits for Ray and then executes the command."""
    words = checked.texts(process.get("argv"), 400)
    waits = len(words) > 1 and words[1].endswith(WAITS_FOR_RAY) and "--" in words
    return words[words.index("--") + 1 :] if waits else words


def _nodes(value: object) -> Iterator[Node]:
    for each in _each(value, MOST_NODES):
        if field("index", each) is not None:
            yield filled(Node, each, slots=field("slots", each) or 0, first_rank=field("first_rank", each) or 0)


def differences(plans: Mapping[int, Mapping[str, Any]]) -> tuple[Difference, ...]:
    """Return the facts of the muster that differ between nodes. plans: by node. A node that starts no ranks (under mpirun, all but node 0)
    has fewer facts; its missing facts are no differences."""
    starts = {node for node, plan in plans.items() if plan.get("processes") != []}
    facts = {node: each for node, plan in plans.items() if (each := mapping(mapping(plan.get("muster")).get("facts")))}
    differing = []
    for name in sorted({name for each in facts.values() for name in each}):
        values = _by_value({node: each.get(name) for node, each in facts.items() if name in each or node in starts})
        if len(values) > 1:
            differing.append(Difference(checked.text(name, 80), values[:16]))
    return tuple(differing[:MOST_DIFFERENCES])


def _by_value(values: Mapping[int, object]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return each value with its nodes; the value of most nodes comes first. values: by node."""
    nodes: dict[str, list[int]] = {}
    for node, value in values.items():
        nodes.setdefault(checked.text(value, 200), []).append(node)
    return tuple((value, tuple(each)) for value, each in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0])))


def stacks_of(summary: object) -> Iterator[tuple[int, str, str, str]]:
    """Yield (rank, state, stack of the main thread, source line of the innermost frame) for each rank in a summary of evidence."""
    ranks = mapping(mapping(summary).get("ranks"))
    for name, each in list(ranks.items())[:MOST_NODES]:
        rank = mapping(each)
        if name.isdecimal() and len(name) < 8:
            frames = (checked.text(frame, 300) for frame in each_of(rank.get("stack"))[:20])
            yield int(name), field("state", rank), "\n".join(frames), field("call", rank)
