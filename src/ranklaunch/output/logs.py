"""Output of an attempt's processes: into their files, to stdout, and tails for the verdict.

Logs owns all pipes and files that are read. A slow console pauses them, until the job begins to end.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from ranklaunch.errors import counted, numbered
from ranklaunch.output.console import Terminal
from ranklaunch.output.pipe import Output, PipeReader, Sink, Times, hold_up
from ranklaunch.plan.model import PROGRAM, Plan, Process, RankLog, RankOutputs
from ranklaunch.supervise.record import Record
from ranklaunch.system import disk
from ranklaunch.system.loop import Loop

if TYPE_CHECKING:
    from ranklaunch.output.console_filter import Crowd
    from ranklaunch.output.demux import Demux
    from ranklaunch.output.follow import Follower

ALL = "all"  # value of RANKLAUNCH_CONSOLE_VICTIMS
MOST_AGES = 16  # different ages of ranks' last outputs in a message
MOST_KEPT = 16  # files that are searched for steps
LAST_WORDS = 32 * 1024 * 1024  # bytes kept for a slow console at the end of a job, when ranks are no longer paused


class Logs:
    """Files, pipes and console of an attempt.

    Calls in order: sink() and read() for each process, follow() for ranks that write into files, then
    let_go(), finish() and end() at the end of the attempt. by_rank: output of each rank. wall:
    converts seconds of the loop's clock to seconds since 1970.
    """

    def __init__(self, loop: Loop, record: Record, terminal: Terminal, plan: Plan, wall: Callable[[float], float]) -> None:
        self._loop = loop
        self._record = record
        self._terminal = terminal
        self._console = terminal.out
        terminal.out.on_room = self._go_on
        self._readers: list[PipeReader] = []
        self._outputs: RankOutputs | None = None  # of a launcher's ranks
        self._follower: Follower | None = None
        self._demux: Demux | None = None
        self._tails_at_stop: dict[int, bytes] = {}
        self._tails_at_exit: dict[int | None, tuple[str, bytes]] = {}  # by rank: folder of its round, and its tail
        self._launchers: list[tuple[Process, Output]] = []  # launchers whose ranks write into files
        self.by_rank: dict[int, Output] = {}
        # A program that starts its ranks itself has one output for all of them, kept as that of the node's first rank.
        self._first_rank = plan.job.node.first_rank if plan.runs == PROGRAM and plan.job.node.slots else None
        self._programs = [process for process in plan.processes if process.rank is None]
        self._trouble: list[str] = []
        self._letting_go = False
        self._unshown = 0  # lines
        self._is_follower = plan.job.node_index > 0
        self._folds = not (plan.console and plan.console.victims == ALL)
        self._has_folded = False
        self._lost = terminal.out.lost  # in earlier rounds
        self._times = Times(record.folder, plan.job.node_index, loop, wall, self._on_trouble)
        self._crowd: Crowd | None = None
        if plan.console and plan.console.filters:
            from ranklaunch.output.console_filter import Crowd

            self._crowd = Crowd(plan, self._show, loop, terminal.say, terminal.painted)
        for text in record.trouble:
            self._on_trouble(text)

    def say_at_end(self, text: str) -> None:
        """Print a text at the end of the job, behind all lines of ranks."""
        self._trouble.append(text)

    # Reading

    def sink(self, process: Process, outputs: RankOutputs | None, alike: str = "") -> Sink:
        """Return the sink for the output of a process. outputs: of the ranks that the process starts. alike: regular expression for lines
        that the process writes on every node."""
        show = _nowhere if process.quiet else self._show
        hidden = alike if self._is_follower and outputs and outputs.folder else ""  # without a folder, lines of ranks may match too
        own = self._output((process.log, *process.copies), process.tag, process.name, show, process.rank, hidden)
        if self._first_rank is not None and process in self._programs:
            self.by_rank[self._first_rank] = own
        if outputs and outputs.folder and not process.quiet:
            self._launchers.append((process, own))
        if not outputs or outputs.folder:
            return own
        from ranklaunch.output.demux import Demux

        self._outputs = outputs
        self._demux = Demux(outputs.pattern, own, partial(self._output_of_key, {log.key: log for log in outputs.logs}))
        return self._demux

    def read(self, fd: int, sink: Sink, on_data: Callable[[], object]) -> PipeReader:
        """Read the pipe of a process. on_data: called after each block."""
        reader = PipeReader(fd, sink, self._loop, on_data)
        self._readers.append(reader)
        return reader

    def follow(self, outputs: RankOutputs, on_file: Callable[[], None]) -> None:
        """Follow the files of ranks. on_file: called for each new file."""
        own = {log.key: self._output_of(log) for log in outputs.logs}
        from ranklaunch.output.follow import Follower

        self._outputs = outputs
        self._follower = Follower(outputs.folder, outputs.pattern, own, self._loop, self._on_trouble, on_file, self._of_others)

    def _of_others(self, rank: int | None) -> Output:
        """Make the output for ranks of a launcher that a rank started. rank: None if unknown."""
        process = self._launchers[-1][0]
        name, log = ("a rank", "ranks") if rank is None else (f"rank {rank}", f"rank_{rank}")
        tag = process.tag.replace(process.name, f"{process.name} of {name}", 1)
        return self._output((f"{process.log[: -len('.log')]}_of_{log}.log",), tag, f"{process.name} of {name}", self._show, None)

    def follow_kept(self, kept: RankOutputs | None, folder: str) -> None:
        """Follow files of ranks in a folder of the user. They are neither shown nor copied, but read
        for steps and exceptions. folder: of one rank's file."""
        if self._follower or not kept:
            return
        from ranklaunch.output.follow import Follower

        own = {log.key: self._output((), "", f"rank {log.rank}", _nowhere, log.rank) for log in kept.logs}
        self._outputs = kept
        run = os.path.dirname(os.path.dirname(folder))
        self._follower = Follower(run, kept.pattern, own, self._loop, self._on_trouble, kept=True)

    @property
    def kept(self) -> list[str]:
        """Return the paths of some files of ranks in a folder of the user, at most MOST_KEPT."""
        keys = [log.key for log in self._outputs.logs if not log.log] if self._outputs else []
        return [path for key in keys for path in (self._follower.newest(key) if self._follower else ())][:MOST_KEPT]

    def _tells_why(self, rank: int | None) -> bool:
        """Return False if the rank's stderr goes to a file that is not read: an exception would be
        there."""
        log = next((log for log in self._outputs.logs if log.rank == rank), None) if self._outputs and self._follower else None
        return not (log and self._follower) or bool(log.log) or any(path.endswith("/stderr.log") for path in self._follower.newest(log.key))

    def tail_of(self, rank: int | None) -> bytes:
        """Return the tail of a launcher's rank: at the begin of the stop, else at its exit, else now.
        rank: None for a process that is no rank."""
        if rank in self._tails_at_stop:
            return self._tails_at_stop[rank]
        if not self._tells_why(rank):
            return b""
        key = self._outputs.key(rank) if self._outputs else ""
        if self._demux:
            return self._demux.tail_of(key)
        folder, last = self._tails_at_exit.get(rank, ("", b""))
        if not self._follower or (rank in self._tails_at_exit and self._follower.is_newest(key, folder)):
            return last
        return self._follower.tail_of(key)

    def rank_ended(self, rank: int | None) -> None:
        """Keep the tail of a rank at its exit: later output comes from its orphaned workers."""
        if self._follower and self._outputs and rank is not None:
            self._tails_at_exit[rank] = self._follower.end_of(self._outputs.key(rank))

    def hush(self) -> None:
        """Show no further lines of launchers: they are about the end of the job, and the logs have them."""
        for _, output in self._launchers:
            output.hush()

    def fold(self, ranks: Iterable[int]) -> None:
        """Show no further lines of victims: the logs have them. Lines that they wrote before are shown."""
        self._has_folded = True
        outputs = [self.by_rank[rank] for rank in ranks if rank in self.by_rank and self._wants(rank)] if self._folds else []
        if outputs:
            self._read_all(outputs)
        for output in outputs:
            output.fold()

    def unfold(self, ranks: Collection[int] | None) -> None:
        """Show the folded lines of these ranks. ranks: None for all ranks."""
        for rank, output in self.by_rank.items() if self._has_folded else ():
            if ranks is None or rank in ranks:
                unshown = output.unfold()
                if unshown:
                    self.say_at_end(f"{counted(unshown, 'more line')} of rank {rank}: {output.path}")
        if self._crowd and self._has_folded:
            self._crowd.finish()

    def hides(self, rank: int) -> bool:
        """True if the console has not shown all lines of a rank."""
        output = self.by_rank.get(rank)
        return not output or output.unshown > 0 or not self._wants(rank)

    def _wants(self, rank: int) -> bool:
        return not self._crowd or self._crowd.shows(rank)

    def _read_all(self, outputs: Collection[Output]) -> None:
        """Read the present bytes of these outputs in pipes and files. Other ranks' pipes are not read: orphans may write there."""
        for reader in self._readers:
            if reader.output in outputs or reader.output is self._demux:
                reader.drain()
        if self._follower:
            self._follower.read_all()

    def say_last_output(self) -> None:
        """Print the age of each rank's last output on the console."""
        now = self._loop.clock()
        ages = [(rank, _age(self.by_rank[rank].written_at, now)) for rank in sorted(self.by_rank)]
        alike = [(age, [rank for rank, _ in group]) for age, group in itertools.groupby(ages, key=itemgetter(1))]
        more = f" and {len(alike) - MOST_AGES} more" if len(alike) > MOST_AGES else ""
        if ages:
            self._terminal.say(f"last output: {', '.join(f'{_ranks(ranks)} {age}' for age, ranks in alike[:MOST_AGES])}{more}")

    def _output(
        self, paths: tuple[str, ...], tag: str, name: str, show: Callable[..., None], rank: int | None, hidden: str = ""
    ) -> Output:  # fmt: skip
        for path in paths:
            disk.make_folder(os.path.dirname(path))
        first = partial(self._on_first, name)
        loud, aloud = show is not _nowhere, show
        if self._crowd and loud:
            (show, aloud), tag = self._crowd.of(rank, tag), ""
        else:
            tag = self._terminal.painted(tag, rank)
        if hidden:
            from ranklaunch.output.hiding import Without  # not needed on node 0

            show = Without(show, hidden, tag)
        times = self._times if loud else None
        output = Output(paths, tag, show, self._loop.clock, self._on_trouble, first, self._loop.after, times, aloud)
        if rank is not None:
            self.by_rank[rank] = output
        return output

    def _output_of(self, log: RankLog) -> Output:
        name = log.key if log.rank is None else f"rank {log.rank}"
        try:
            return self._output((log.log,), log.tag, name, self._show, log.rank)
        except OSError as error:  # with very many ranks: no free descriptor
            self._on_trouble(f"cannot write {log.log}: {error.strerror}; its lines go to the console only")
            return self._output((), log.tag, name, self._show, log.rank)

    def _output_of_key(self, logs: Mapping[str, RankLog], key: str) -> Output | None:
        """Return the output of the rank with this key in its tag, None for a key of no rank."""
        return self._output_of(logs[key]) if key in logs else None

    def _on_first(self, name: str) -> None:
        self._record.event("first output", name=name)

    def _on_trouble(self, text: str) -> None:
        self.say_at_end(text)
        self._record.event("trouble", text=text)
        self._terminal.say(text)

    # Slow console

    def _show(self, *lines: bytes | memoryview) -> None:
        if self._letting_go and self._console.pending > LAST_WORDS:
            self._unshown += b"".join(lines).count(b"\n")
            return
        self._console.write(*lines)
        if self._console.full and not self._letting_go:
            self._pause(True)

    def _go_on(self) -> None:
        self._pause(False)

    def _pause(self, paused: bool) -> None:
        hold_up(self._readers, paused)
        if self._follower:
            self._follower.pause(paused)

    # The end

    def let_go(self) -> None:
        """Stop waiting for a slow console: ranks that save a checkpoint at the end must not wait for a reader. Their logs have all."""
        self._letting_go = True
        self._pause(False)

    def remember(self) -> None:
        """Keep the tails of ranks at the begin of the stop: later output is about the stop."""
        if self._outputs and not self._tails_at_stop:
            self._tails_at_stop = {rank: self.tail_of(rank) for rank in self._outputs.keys}

    def finish(self) -> None:
        """Read the rest of the pipes and files."""
        for reader in self._readers:
            reader.drain()
            reader.close()
        follower = self._follower
        if follower:
            follower.catch_up()
            while not (follower.idle or self._terminal.late):
                self._loop.step()
            self._unshown += follower.finish()
        self._times.close()
        if self._crowd:
            self._crowd.finish()

    def end(self) -> None:
        """Show the last lines of ranks, then all problems with the logs."""
        self._unshown += self._terminal.flush_out()
        if self._unshown:
            self._terminal.say(f"the console was too slow for the last {self._unshown} lines; the logs have them")
        if self._console.lost > self._lost:
            lost = counted(self._console.lost - self._lost, "line")
            self._terminal.say(f"the disk of the console was full: {lost} not shown")
        self._say_folded()
        self._has_folded = False  # a stop request after the verdict shows no folded lines
        if self._record.is_gone:
            self._trouble.append(f"{self._record.folder}, with the logs, was removed or moved while the job ran")
        for text in self._trouble:
            self._terminal.say(text)

    def _say_folded(self) -> None:
        """Print one line with the numbers of hidden lines of victims and launchers, and their logs."""
        folded = {rank: output for rank, output in self.by_rank.items() if output.unshown} if self._has_folded else {}
        parts = []
        if folded:
            lines, paths = sum(output.unshown for output in folded.values()), [output.path for output in folded.values()]
            log = paths[0] if len(paths) == 1 else os.path.join(os.path.dirname(paths[0]), "rank_*.log")
            parts.append(f"{counted(lines, 'line')} of {numbered(folded, 'rank')} ({log})")
        hushed = [(process, output) for process, output in self._launchers if output.unshown and output not in folded.values()]
        parts += [f"{counted(output.unshown, 'line')} of {process.name} ({process.log})" for process, output in hushed]
        if parts:
            self._terminal.say(f"not shown, after the {'failure' if self._has_folded else 'stop began'}: {', '.join(parts)}")


def _age(at: float | None, now: float) -> str:
    return "none yet" if at is None else f"{now - at:.0f} s ago"


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {ranks[0]} to {ranks[-1]}" if ranks[-1] - ranks[0] == len(ranks) - 1 else f"ranks {', '.join(map(str, ranks))}"


def _nowhere(*lines: bytes | memoryview) -> None:
    """Show nothing: the log has the lines."""
