"""Collector of the values of ends.json from the supervisor's processes, after their ends."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from ranklaunch import errors
from ranklaunch.ends import host_lines
from ranklaunch.ends.model import (
    BELOW,
    DAEMON,
    MOST_RECORDS,
    JobFacts,
    Launcher,
    MemoryKills,
    NodeEnds,
    NodeFacts,
    Outputs,
    RankEnd,
    Record,
    RestartSettings,
    Sent,
    Stop,
    Tail,
    record_order,
    record_without_secrets,
    with_records,
)
from ranklaunch.env.job import Node
from ranklaunch.output.pipe import TAIL
from ranklaunch.plan.model import Plan, RankOutputs
from ranklaunch.processes.children import UNJUDGED
from ranklaunch.processes.records import Records
from ranklaunch.redact import redact
from ranklaunch.system.signals import code_of, signal_of

if TYPE_CHECKING:
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.processes.children import Child, Daemon
    from ranklaunch.supervise.ending import Circumstances
    from ranklaunch.system.memory import Memory
    from ranklaunch.verdict.model import Ending, Failure

RECORDS_S = 1.0  # most time for reading records; the remaining records are left out

Wall = Callable[[float], float]


def of_node(plan: Plan, ending: Ending, ended: Sequence[Child], circumstances: Circumstances, failing: Collection[int] = ()) -> NodeEnds:
    """Return all ends of this node, with the output of processes unless the job succeeded. failing:
    pids of launchers that are ending their ranks after a failure."""
    offset = circumstances.wall(0.0)  # computed once: all times of a node have the same offset

    def wall(at: float) -> float:
        return offset + at

    with_output = ending.outcome != "succeeded"
    collector = _Collector(plan, circumstances, failing, wall, with_output=with_output)
    stop, memory = circumstances.stop, circumstances.memory
    return NodeEnds(
        job=_job(plan),
        ending=_by_wall(ending, wall),
        stop=Stop(stop[0], wall(stop[1])) if stop else None,
        memory=memory_kills(memory),
        ends=tuple(collector.ends(ended)),
    )


def of_records(node: NodeEnds, folder: str, wall: Wall) -> NodeEnds:
    """Add the records of this node's processes. folder: of the records; unreadable records are left
    out. wall: converts times of this host's monotonic clock to seconds since 1970 by node 0's."""
    until = time.monotonic() + RECORDS_S
    local = (record for record in Records(folder).new(seconds=RECORDS_S) if record.node == node.job.node_index)
    by_process: dict[tuple[int, int], list[Record]] = {}
    for record in sorted(local, key=record_order):
        kept = by_process.setdefault(record.process, [])
        if len(kept) < MOST_RECORDS and time.monotonic() < until:  # hiding secrets takes longer than reading
            kept.append(record_without_secrets(replace(record, at=wall(record.monotonic))))
    return with_records(node, {process: each for process, each in by_process.items() if each})


def memory_kills(memory: Memory) -> MemoryKills:
    """Return the kernel's count of kills for memory, as in ends.json."""
    return MemoryKills(memory.kills, memory.peak, memory.limit, memory.counted, memory.seen)


def _by_wall(ending: Ending, wall: Wall) -> Ending:
    """Return the ending of a node as in ends.json: the time by node 0's clock, the reason without
    secrets."""
    judgement = replace(ending.judgement, reason=errors.reason(ending.judgement.reason))
    return replace(ending, judgement=judgement, at=wall(ending.at))


def _job(plan: Plan) -> JobFacts:
    job = plan.job
    return JobFacts(
        name=job.name,
        run="",
        attempt=job.attempt,
        restart=job.restart,
        platform=job.platform,
        method=plan.method,
        runs=plan.runs,
        accelerator=job.accelerator,
        node_index=job.node_index,
        nodes=tuple(map(_node, job.nodes)),
        program=redact.argv((job.program.path, *job.program.args)),
        module=job.program.module,
        idle=tuple(map(_node, job.idle)),
        outputs=_outputs(plan.outputs),
        kept=_outputs(plan.kept),
        restarts=RestartSettings(plan.rounds.most, plan.rounds.never, plan.rounds.restarted_outside) if plan.rounds else None,
        hang=plan.watch.hang,
    )


def _node(node: Node) -> NodeFacts:
    return NodeFacts(node.index, node.host, node.slots, node.first_rank)


def _outputs(ranks: RankOutputs | None) -> Outputs | None:
    if not ranks:
        return None
    marks = tuple(log.tag for log in ranks.logs) if not any(log.log for log in ranks.logs) else ()
    return Outputs(tuple(log.rank for log in ranks.logs), marks)


class _Collector:
    """Maker of RankEnds. with_output: False after a success, which needs no explanation."""

    def __init__(self, plan: Plan, circumstances: Circumstances, failing: Collection[int], wall: Wall, *, with_output: bool) -> None:
        self._plan = plan
        self._circumstances = circumstances
        self._failing = failing
        self._wall = wall
        self._with_output = with_output
        self._shown = functools.cache(shown)  # the outputs at the end and at the stop are mostly equal

    def ends(self, ended: Sequence[Child]) -> Iterator[RankEnd]:
        """Yield children in the order of their ends, the ranks below them, ranks with nothing but
        an output, and daemons."""
        ends = [*map(self._of_child, ended)]
        for child in ended:
            if child.below:
                ends += [self._of_watched(child, rank) for rank in (*child.below.ended, *getattr(child.below, "alive", ()))]
        known = {end.rank for end in ends if end.role == BELOW}
        launcher = next((child for child in ended if child.launcher.starts_ranks), None)
        if launcher:
            ends += [end for rank in self._numbers(ends) - known if (end := self._unseen(launcher, rank))]
        yield from ends
        yield from map(self._of_daemon, self._circumstances.daemons)

    def _numbers(self, ends: Sequence[RankEnd]) -> set[int]:
        """Return the ranks that may have an output, also without a process that ranklaunch saw."""
        reported = [end.launcher.reported for end in ends if end.launcher and end.launcher.reported]
        named = {failure.rank for failure in reported if failure.rank is not None}
        keys = [each.keys for each in (self._plan.outputs, self._plan.kept) if each]
        children = {end.rank for end in ends if end.role != BELOW}
        return {*named, *self._plan.job.node.ranks, *(rank for each in keys for rank in each)} - children

    def _of_child(self, child: Child) -> RankEnd:
        process, end = child.process, child.ended
        output, at_stop = (child.last_words(), child.said) if self._with_output else (None, None)
        is_late = at_stop is None or child.had_begun_to_tell or not (end.told or child.had_said_all)
        return RankEnd(
            self._plan.job.node_index if process.node is None else process.node, process.rank, process.local_rank, *child.identity,
            process.name, child.role, status=end.status, exit_code=end.code, signal=end.signal, at=self._wall(end.at),
            sent=tuple(Sent(number, self._time(at)) for number, at in zip_longest(end.told, child.sent_at[: len(end.told)])),
            launcher=self._launcher(child, output if is_late else at_stop) if child.launcher.starts_ranks else None,
            output=self._shown(output),
            at_stop=None if at_stop is None else Tail(None if at_stop == output else self._shown(at_stop)),
        )  # fmt: skip

    def _time(self, at: float | None) -> float | None:
        return None if at is None else self._wall(at)

    def _launcher(self, child: Child, output: bytes | None) -> Launcher:
        failed = child.failure_code and child.role not in UNJUDGED and output is not None
        reported = self._reported(child, output or b"") if failed else None
        return Launcher(
            says_failing=bool(child.launcher.ENDS_RANKS),
            own_pid=child.own_pid,
            fails_as=child.process.fails_as,
            watched="announced" if child.announced else "files" if child.below else "",
            expected=tuple(sorted(child.below.expected)) if child.below else (),
            reported=reported,
            reported_at=self._time(child.reported_at),
            ends_ranks=child.ends_ranks,
            failing=child.identity.pid in self._failing,
            dismissed=child.dismissed,
            by_host=tuple(self._by_host(child, output or b"")) if reported and reported.rank is None else (),
        )

    def _by_host(self, child: Child, output: bytes) -> Iterator[Failure]:
        """Yield the report in the lines of each host, if the launcher prefixes lines with the host's
        name."""
        names = host_lines.names_of([*map(_node, self._plan.job.nodes)]) if len(self._plan.job.nodes) > 1 else {}
        for name, lines in host_lines.of_hosts(output.decode(errors="replace"), names).items():
            reported = self._reported(child, lines.encode())
            if reported:
                yield replace(reported, node=names[name])

    def _reported(self, child: Child, output: bytes) -> Failure | None:
        failure = self._circumstances.explain(child, output.decode(errors="replace"))
        return failure and (failure if failure.at is None else replace(failure, at=self._wall(failure.at)))

    def _of_watched(self, child: Child, rank: Watched) -> RankEnd:
        code, number = (None, 0) if rank.status is None else (code_of(rank.status), signal_of(rank.status))
        return RankEnd(
            *self._place(rank.rank), *rank.identity, rank.name or f"rank {rank.rank}", BELOW, parent=child.identity.pid,
            status=rank.status, exit_code=code, signal=number, at=self._wall(rank.ended_at) if rank.ended else None,
            by_itself=rank.by_itself, surely=rank.surely,
            output=self._shown(self._circumstances.tail_of_rank(rank.rank)) if self._with_output else None,
        )  # fmt: skip

    def _unseen(self, launcher: Child, rank: int) -> RankEnd | None:
        """Return the end of a rank with nothing but an output; None without output."""
        output = self._circumstances.tail_of_rank(rank) if self._with_output else b""
        if not output:
            return None
        return RankEnd(
            *self._place(rank), None, None, f"rank {rank}", BELOW, parent=launcher.identity.pid, output=self._shown(output)
        )  # fmt: skip

    def _of_daemon(self, daemon: Daemon) -> RankEnd:
        number = daemon.signal
        return RankEnd(
            self._plan.job.node_index, None, None, daemon.pid, None, daemon.name, DAEMON,
            status=number, exit_code=128 + number, signal=number, at=self._wall(daemon.at),
        )  # fmt: skip

    def _place(self, rank: int | None) -> tuple[int, int | None, int | None]:
        """Return the node of a rank, the rank, and its local rank. With mpirun, the rank may be on
        another node."""
        job = self._plan.job
        node = next((node for node in job.nodes if rank is not None and rank in node.ranks), None)
        return (job.node_index, rank, None) if node is None or rank is None else (node.index, rank, rank - node.first_rank)


def shown(tail: bytes | None) -> str | None:
    """Return an output without secrets. A first line that is cut at its beginning may be the end of
    a secret, so it is left out."""
    if tail is None:
        return None
    begun, _, rest = tail.partition(b"\n") if len(tail) >= TAIL else (b"", b"", tail)
    text = (rest if rest.strip() else begun).decode(errors="replace")
    return "\n".join(errors.quoted(text.split("\n")))
