"""Makes the values of ends.json from what the supervisor knows of its processes, once all of them have ended."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ranklaunch import errors
from ranklaunch.ends import records
from ranklaunch.ends.model import (
    BELOW,
    DAEMON,
    MOST_RECORDS,
    Decided,
    JobFacts,
    Launcher,
    MemoryKills,
    NodeEnds,
    NodeFacts,
    Outputs,
    RankEnd,
    RestartSettings,
    Sent,
    Stop,
    Tail,
    with_records,
)
from ranklaunch.env.job import Node
from ranklaunch.output.pipe import TAIL
from ranklaunch.plan.model import PROGRAM, Plan, RankOutputs
from ranklaunch.processes.child import LAUNCHER, UNJUDGED
from ranklaunch.processes.records import Records
from ranklaunch.redact import redact
from ranklaunch.system.signals import code_of, signal_of

if TYPE_CHECKING:
    from ranklaunch.processes.child import Child
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.processes.children import Daemon
    from ranklaunch.supervise.judge import Circumstances, Ending
    from ranklaunch.system.memory import Memory
    from ranklaunch.verdict.model import Failure

RECORDS_S = 1.0  # for reading records; those that are left then are left out

Wall = Callable[[float], float]


def of_node(plan: Plan, ending: Ending, ended: Sequence[Child], circumstances: Circumstances, failing: Collection[int] = ()) -> NodeEnds:
    """Return all ends of this node, with what processes wrote unless the job succeeded. failing: pids of launchers that end their ranks
    after a failure."""
    began = circumstances.wall(0.0)  # asked once, so that all times of a node have one offset
    wall: Wall = lambda at: began + at  # noqa: E731
    with_output = ending.outcome != "succeeded"
    collector = _Collector(plan, circumstances, failing, wall, with_output=with_output)
    stop, memory = circumstances.stop, circumstances.memory
    return NodeEnds(
        job=_job(plan),
        ending=_decided(ending, wall),
        stop=Stop(stop[0], wall(stop[1])) if stop else None,
        memory=memory_kills(memory),
        ends=tuple(collector.ends(ended)),
    )


def of_records(node: NodeEnds, folder: str, wall: Wall) -> NodeEnds:
    """Add what processes of this node wrote down of themselves. folder: where their records are; what cannot be read is left out. wall:
    from the monotonic clock of this host to node 0's."""
    until = time.monotonic() + RECORDS_S
    own = (record for record in Records(folder).new(seconds=RECORDS_S) if record.node == node.job.node_index)
    found: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for record in sorted(own, key=records.order):
        kept = found.setdefault(record.process, [])
        if len(kept) < MOST_RECORDS and time.monotonic() < until:  # hiding secrets takes longer than reading
            kept.append(records.as_mapping(replace(record, at=wall(record.monotonic))))
    return with_records(node, {process: each for process, each in found.items() if each})


def memory_kills(memory: Memory) -> MemoryKills:
    """Return the kernel's count as ends.json has it."""
    return MemoryKills(memory.kills, memory.peak, memory.limit, memory.counted, memory.seen)


def _decided(ending: Ending, wall: Wall) -> Decided:
    child = ending.child
    return Decided(
        ending.outcome, ending.exit_code, errors.reason(ending.reason), wall(ending.at), child.identity.pid if child else None,
        ending.culprit, ending.killed, ending.hung, ending.from_elsewhere, ending.because,
    )  # fmt: skip


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
    """with_output: False after a success, whose outputs explain nothing."""

    def __init__(self, plan: Plan, circumstances: Circumstances, failing: Collection[int], wall: Wall, *, with_output: bool) -> None:
        self._plan = plan
        self._circumstances = circumstances
        self._failing = failing
        self._wall = wall
        self._with_output = with_output
        self._shown = functools.cache(shown)  # most outputs are the same at their end and at the stop

    def ends(self, ended: Sequence[Child]) -> Iterator[RankEnd]:
        """Children in the order of their ends, the ranks below them, ranks of which only the output is known, and daemons."""
        found = [*map(self._of_child, ended)]
        for child in ended:
            if child.below:
                found += [self._of_watched(child, rank) for rank in (*child.below.ended, *getattr(child.below, "alive", ()))]
        known = {end.rank for end in found if end.role == BELOW}
        launcher = next((child for child in ended if child.launcher.starts_ranks), None)
        if launcher:
            found += [end for rank in self._numbers(found) - known if (end := self._unseen(launcher, rank))]
        yield from found
        yield from map(self._of_daemon, self._circumstances.daemons)

    def _numbers(self, found: Sequence[RankEnd]) -> set[int]:
        """Ranks that may have an output, whether their processes were seen or not."""
        reported = [end.launcher.reported for end in found if end.launcher and end.launcher.reported]
        named = {failure.rank for failure in reported if failure.rank is not None}
        keys = [each.keys for each in (self._plan.outputs, self._plan.kept) if each]
        own = {end.rank for end in found if end.role != BELOW}
        return {*named, *self._plan.job.node.ranks, *(rank for each in keys for rank in each)} - own

    def _of_child(self, child: Child) -> RankEnd:
        process, end = child.process, child.ended
        node = self._plan.job.node_index if process.node is None else process.node
        output = child.last_words() if self._with_output else None
        said = child.said if self._with_output else None
        reported = output if said is None or child.had_begun_to_tell or not (end.told or child.had_said_all) else said
        rank = process.rank
        if rank is None and child.role == LAUNCHER and self._plan.runs == PROGRAM:
            rank = self._plan.job.node.first_rank  # the output of such a program is that of its first rank
        return RankEnd(
            node, process.rank, process.local_rank, *child.identity, process.name, child.role,
            status=end.status, exit_code=end.code, signal=end.signal, at=self._wall(end.at),
            sent=tuple(Sent(number, None if at is None else self._wall(at)) for number, at in zip_longest(end.told, _sent_at(child))),
            launcher=self._launcher(child, reported) if child.launcher.starts_ranks else None,
            output=None if output is None else self._shown(output),
            at_stop=None if said is None else Tail(None if said == output else self._shown(said)),
        )  # fmt: skip

    def _launcher(self, child: Child, output: bytes | None) -> Launcher:
        launcher, failed = child.launcher, child.failure_code and child.role not in UNJUDGED and output is not None
        reported = self._reported(child, output) if failed and output is not None else None
        return Launcher(
            says_failing=bool(launcher.ENDS_RANKS),
            own_pid=child.own_pid,
            fails_as=child.process.fails_as,
            watched="announced" if child.announced else "files" if child.below else "",
            expected=tuple(sorted(child.below.expected)) if child.below else (),
            reported=reported,
            reported_at=None if child.reported_at is None else self._wall(child.reported_at),
            ends_ranks=child.ends_ranks,
            failing=child.identity.pid in self._failing,
            dismissed=child.dismissed,
            by_host=tuple(self._by_host(child, output)) if output is not None and reported and reported.rank is None else (),
        )

    def _by_host(self, child: Child, output: bytes) -> Iterator[Failure]:
        """Yield what the lines of each host report, where the launcher puts the host's name before them."""
        from ranklaunch.diagnose import outputs  # only failures of launchers need it

        names = outputs.names_of([*map(_node, self._plan.job.nodes)]) if len(self._plan.job.nodes) > 1 else {}
        for name, lines in outputs.of_hosts(output.decode(errors="replace"), names).items():
            reported = self._reported(child, lines.encode())
            if reported:
                yield replace(reported, node=names[name])

    def _reported(self, child: Child, output: bytes) -> Failure | None:
        failure = self._circumstances.explain(child, output.decode(errors="replace"))
        return failure and (failure if failure.at is None else replace(failure, at=self._wall(failure.at)))

    def _of_watched(self, child: Child, rank: Watched) -> RankEnd:
        output = self._circumstances.tail_of_rank(rank.rank) if self._with_output else None
        return RankEnd(
            self._node_of(rank.rank), rank.rank, self._local(rank.rank), *rank.identity, rank.name or f"rank {rank.rank}", BELOW,
            parent=child.identity.pid, status=rank.status, exit_code=None if rank.status is None else code_of(rank.status),
            signal=0 if rank.status is None else signal_of(rank.status), at=self._wall(rank.ended_at) if rank.ended else None,
            by_itself=rank.by_itself, surely=rank.surely,
            output=None if output is None else self._shown(output),
        )  # fmt: skip

    def _unseen(self, launcher: Child, rank: int) -> RankEnd | None:
        """A rank of which only the output is known, None if there is none."""
        output = self._circumstances.tail_of_rank(rank) if self._with_output else b""
        if not output:
            return None
        return RankEnd(
            self._node_of(rank), rank, self._local(rank), None, None, f"rank {rank}", BELOW, parent=launcher.identity.pid,
            output=self._shown(output),
        )  # fmt: skip

    def _of_daemon(self, daemon: Daemon) -> RankEnd:
        return RankEnd(
            self._plan.job.node_index, None, None, daemon.pid, None, daemon.name, DAEMON,
            status=daemon.signal, exit_code=128 + daemon.signal, signal=daemon.signal, at=self._wall(daemon.at),
        )  # fmt: skip

    def _node_of(self, rank: int | None) -> int:
        """The node of a rank, which may be another one with mpirun."""
        nodes = self._plan.job.nodes
        own = self._plan.job.node_index
        return own if rank is None else next((node.index for node in nodes if rank in node.ranks), own)

    def _local(self, rank: int | None) -> int | None:
        node = next((node for node in self._plan.job.nodes if rank is not None and rank in node.ranks), None)
        return None if node is None or rank is None else rank - node.first_rank


def _sent_at(child: Child) -> Sequence[float]:
    """When its signals were sent; for those before it ended."""
    return child.sent_at[: len(child.ended.told)]


def shown(tail: bytes) -> str:
    """An output without secrets. A line whose beginning is missing may be the end of a secret, and is left out."""
    begun, _, rest = tail.partition(b"\n") if len(tail) >= TAIL else (b"", b"", tail)
    text = (rest if rest.strip() else begun).decode(errors="replace")
    return "\n".join(errors.quoted(text.split("\n")))
