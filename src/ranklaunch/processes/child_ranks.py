"""Ranks of a launcher, watched until they end.

A launcher may report less about its ranks than the kernel does, and later: torchrun names them by
pid, DeepSpeed prints an exit code without a rank. A pidfd reports the end of any process, also of
another process's child. /proc has the wait status until the parent reaps the process.

| rank | state | end |
| --- | --- | --- |
| lives | `ended` is False | |
| ended, noticed before its launcher reaped it | `status` is its wait status | `by_itself`: True if not signalled |
| ended, reaped by its launcher first | `status` is None | unknown, until the launcher reports it |
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from signal import SIGKILL
from typing import Any

from ranklaunch.output.follow import key_and_round
from ranklaunch.plan.model import RankOutputs
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import TOLD, code_of, signal_of
from ranklaunch.verdict.model import Failure

AT_ONCE_S = 0.05  # two ends noticed this soon after each other may have happened in the other order
LOOK_AFTER_S = (0.05, 0.3, 1.0, 3.0)  # looks after a new file appears: its writer may not have started yet
LOOK_AGAIN_S, LOOK_ON_S = 0.5, 3.0  # between looks if new files are not reported: before and after all ranks are known


class Watched:
    """Watched process below a launcher.

    rank: None for a process beside the ranks, which has a name instead. by_itself: True if the end was not caused by a signal of
    ranklaunch or the launcher. surely: True if the launcher was held at the end, and so cannot have signalled the process.
    """

    def __init__(self, rank: int | None, identity: tree.Identity, name: str = "") -> None:
        self.rank, self.identity, self.name = rank, identity, name
        self.pidfd = -1
        self.status: int | None = None
        self.ended = False
        self.ended_at = 0.0  # monotonic seconds
        self.by_itself = True
        self.surely = False

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def code(self) -> int | None:
        """Exit code as a shell gives it; None while unknown."""
        return None if self.status is None else code_of(self.status)

    @property
    def signal(self) -> int:
        return 0 if self.status is None else signal_of(self.status)

    @property
    def failed(self) -> bool:
        return bool(self.code) and self.by_itself

    def failure(self) -> Failure:
        return Failure(self.rank, self.code or 0, self.signal, self.pid, at=self.ended_at, name=self.name)


def _ignore(*event: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Watcher:
    """Callbacks for events of a launcher's ranks.

    started: start of a rank, with its number, pid and the folder of its files. ended: end of a rank. signalled: returns True once the
    ranks are being ended. hear: reads the launcher's output up to now.
    """

    loop: Loop
    ended: Callable[[Watched], Any]
    signalled: Callable[[], bool] = bool
    started: Callable[[int, int, str], Any] = _ignore
    hear: Callable[[], Any] = _ignore


class Below:
    """Ranks of one launcher. A subclass finds them.

    expected: numbers of all its ranks; empty if they cannot be watched. ended: ended ranks, in the order of their ends. named: pids
    that the launcher names as it ends ranks; the value is True if it names only living ranks.
    """

    def __init__(self, watcher: Watcher, expected: Collection[int]) -> None:
        self.expected = expected
        self.ended: list[Watched] = []
        self.named: dict[int, bool] = {}
        self._watcher = watcher
        self._all: dict[int, Watched] = {}

    # Ranks

    @property
    def known(self) -> int:
        """Number of ranks found."""
        return len(self._all)

    @property
    def pids(self) -> Collection[int]:
        return self._all.keys()

    @property
    def knows_all(self) -> bool:
        return {*self.expected} <= {rank.rank for rank in self._all.values()}

    @property
    def alive(self) -> list[Watched]:
        return [rank for rank in self._all.values() if not rank.ended]

    def living(self) -> dict[int, tree.Identity]:
        """Return the processes of the ranks that live, by rank."""
        return {rank.rank: rank.identity for rank in self.alive if rank.rank is not None}

    def ranks(self) -> list[tree.Identity] | None:
        """Return the living ranks; None if ranks are only recognisable by their depth in the process tree."""
        return None

    def beside(self) -> list[tree.Identity]:
        """Return the processes beside the ranks: processes with output files of their own."""
        return []

    def expect(self) -> None:
        """Look for new ranks: a new output file has appeared."""

    def read(self, output: bytes) -> None:
        """Read starts of ranks from the tail of the launcher's output. Called for each new tail."""

    # Ends

    @property
    def failed(self) -> list[Watched]:
        """Ranks that failed by themselves, in the order of their ends."""
        return [rank for rank in self.ended if rank.failed]

    @property
    def finished(self) -> list[Watched]:
        """Ranks that ended with 0 by themselves.

        After any other end of a rank, the launcher may have signalled the remaining ranks, so later ends do not count.
        """
        signalled = min((rank.ended_at for rank in self.ended if rank.code != 0), default=float("inf")) - AT_ONCE_S
        return [rank for rank in self.ended if rank.code == 0 and rank.by_itself and rank.rank is not None and rank.ended_at < signalled]

    @property
    def unknown(self) -> list[Watched]:
        """Ranks that ended by themselves with an unknown exit status."""
        return [rank for rank in self.ended if rank.status is None and rank.by_itself]

    def may_have_failed(self, pid: int | None) -> bool:
        """Return False if a reported failure cannot be of these ranks: a launcher started by a rank may report its own ranks.

        pid: pid of the reported rank, None if unknown.
        """
        if not self.expected or not self.knows_all:
            return True
        return any(rank.pid == pid if pid else rank.ended and rank.code != 0 for rank in self._all.values())

    def confirmed(self, failure: Failure | None, *, signalled: bool, has_failed: bool) -> Failure | None:
        """Return the launcher's report, corrected by the state of its ranks.

        signalled: True if the launcher was signalled. has_failed: True if the launcher has failed, by its exit code or because it
        ends its ranks.
        """
        raise NotImplementedError

    def look(self) -> None:
        """Note ends that the loop has not reported yet. Ends with the exit code of a stop request count as the last ones."""
        entries = [(rank, tree.entry(rank.pid)) for rank in self.alive]
        dead = [(rank, entry) for rank, entry in entries if not entry or entry.state in "ZX"]
        stopped = [rank for rank, entry in dead if entry and code_of(entry.status) == TOLD]
        for rank in (*(rank for rank, _ in dead if rank not in stopped), *stopped):
            self._end(rank)

    def close(self) -> None:
        """Stop watching."""
        for rank in self.alive:
            self._forget(rank)

    def _watch(self, number: int | None, identity: tree.Identity, name: str = "") -> bool:
        """Watch a process. Return False if this system cannot watch processes."""
        rank = Watched(number, identity, name)
        try:
            rank.pidfd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            self._all[identity.pid] = rank
            self._end(rank)
        except (AttributeError, OSError):  # Python 3.8, a kernel before 5.3, a sandbox without the call, no descriptor left
            return False
        else:
            self._all[identity.pid] = rank
            self._watcher.loop.on_readable(rank.pidfd, self._end, rank)
        return True

    def _end(self, rank: Watched) -> None:
        if rank.ended:
            return
        rank.status = tree.wait_status(rank.identity)
        rank.ended, rank.ended_at = True, self._watcher.loop.clock()
        self._forget(rank)
        self.ended.append(rank)  # first, as _was_signalled() may notice further ends
        rank.by_itself = not self._was_signalled(rank)
        self._watcher.ended(rank)

    def _was_signalled(self, rank: Watched) -> bool:
        """Return True if ranklaunch or the launcher signalled the rank before its end.

        The launcher did if it named the rank, or if it may have noticed the failure of another rank first; then only an end by SIGTERM
        counts.
        """
        signalled, after_another = self._watcher.signalled(), self._is_after_another(rank)
        if rank.code and not signalled:
            self._watcher.hear()
        named = self.named.get(rank.pid)
        return signalled or bool(named) or (rank.code == TOLD and (after_another or named is not None))

    def _is_after_another(self, rank: Watched) -> bool:
        """Return True if another rank ended before, with a failure or an unknown status."""
        return any(each.code != 0 for each in self.ended if each is not rank)

    def _forget(self, rank: Watched) -> None:
        if rank.pidfd >= 0:
            self._watcher.loop.forget(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = -1


class Announced(Below):
    """Ranks that their launcher announces at their start.

    pattern: regular expression of an announcement, with the group pid. numbers: rank numbers, in the order of the announcements.
    """

    def __init__(self, watcher: Watcher, pattern: str, numbers: Sequence[int]) -> None:
        super().__init__(watcher, numbers)
        self._pattern = re.compile(pattern.encode())
        self._numbers = numbers

    def confirmed(self, failure: Failure | None, *, signalled: bool, has_failed: bool) -> Failure | None:
        """Return None if all ranks are watched and none has failed by itself, else the launcher's report."""
        is_possible = self.known < len(self._numbers) or not self.expected or self.failed or self.unknown
        return failure if is_possible else None

    def read(self, output: bytes) -> None:
        for match in self._pattern.finditer(output):
            pid = int(match["pid"])
            is_new = self.known < len(self.expected) and pid not in self._all
            if is_new and not self._watch(self._numbers[self.known], tree.identify(pid)):
                self.expected = ()


class ByFiles(Below):
    """Ranks that are recognised by their output files.

    generations: depth of the ranks below the launcher. kills: as Launcher.kills_ranks. followed: True if expect() is called for
    each new file.
    """

    def __init__(
        self, watcher: Watcher, launcher: tree.Identity, generations: int, outputs: RankOutputs, *, kills: bool = False,
        followed: bool = True,
    ) -> None:  # fmt: skip
        self._keys = {log.key: log.rank for log in outputs.logs}
        super().__init__(watcher, {rank for rank in self._keys.values() if rank is not None})
        self._launcher = launcher
        self._generations = generations
        self._kills = kills
        self._folder = os.path.realpath(outputs.folder).rstrip("/")
        self._pattern = re.compile(outputs.pattern)
        self._ranks_by_process: dict[tree.Identity, int | None] = {}
        self._round = ""  # folder of the files of the current round
        self._closed = False
        if not followed:
            self.keep_looking()

    def expect(self) -> None:
        for seconds in LOOK_AFTER_S:
            self._watcher.loop.after(seconds, self.find)

    def keep_looking(self) -> None:
        """Look for ranks again and again, as new files are not reported."""
        self.find()
        if not self._closed:
            self._watcher.loop.after(LOOK_ON_S if self.knows_all else LOOK_AGAIN_S, self.keep_looking)

    def close(self) -> None:
        self._closed = True
        super().close()

    def find(self) -> None:
        for process in tree.generation(self._launcher.pid, self._generations):
            if process in self._ranks_by_process:
                continue
            key, place = self._place(process.pid)
            if key in self._keys:
                self._enter(place)
                self._ranks_by_process[process] = rank = self._keys[key]
                if rank is not None:
                    self._watcher.started(rank, process.pid, f"{self._folder}/{place}/{key}")
                self._watch(rank, process, key if rank is None else "")

    def ranks(self) -> list[tree.Identity] | None:
        """Return the living ranks; None if none was ever found."""
        self.find()
        if not self.known:
            return None
        living = tree.generation(self._launcher.pid, self._generations)
        return [process for process in living if self._ranks_by_process.get(process) is not None]

    @property
    def known(self) -> int:
        """Number of ranks found, including those of the launcher's earlier rounds."""
        return len({rank for rank in self._ranks_by_process.values() if rank is not None})

    @property
    def knows_all(self) -> bool:
        return {*self.expected} <= set(self._ranks_by_process.values())

    def beside(self) -> list[tree.Identity]:
        return [process for process, rank in self._ranks_by_process.items() if rank is None]

    def confirmed(self, failure: Failure | None, *, signalled: bool, has_failed: bool) -> Failure | None:
        """Return the reported rank, or another rank that had failed before.

        If a failed launcher names no rank, and no rank is known to have failed by itself, return the first rank with an unknown end.
        """
        if signalled:
            return failure
        failed = [end for end in self.ended if end.code]
        if failure and failure.signal and failure.pid == self._launcher.pid:  # the launcher was signalled, and signalled its ranks
            return next((end.failure() for end in self.failed if end.code != failure.exit_code), failure)
        if has_failed and failure is None and self.unknown and not self.failed:
            return replace(self.unknown[0].failure(), exit_code=1)
        if failure is None or failure.pid in [end.pid for end in failed]:
            return _with_victims(failed[0], failure) if failed else failure
        return self._of_rank(failure)

    def _of_rank(self, failure: Failure) -> Failure | None:
        """Return a reported failure with its rank number; the failure of another rank if the reported one cannot have failed."""
        if not self.may_have_failed(failure.pid):  # a rank of an earlier round, or of a launcher started by a rank
            return self.failed[0].failure() if self.failed else failure if self.unknown else None
        ranks = [rank for process, rank in self._ranks_by_process.items() if process.pid == failure.pid]
        return replace(failure, rank=ranks[0]) if ranks and failure.rank is None else failure

    def _end(self, rank: Watched) -> None:
        """Handle the end of a rank. A held launcher cannot have signalled the rank."""
        rank.surely = tree.state(self._launcher) == "T"
        super()._end(rank)

    def _was_signalled(self, rank: Watched) -> bool:
        """Return True also after SIGKILL, if the launcher kills all its ranks once one has failed."""
        kills = self._kills and not rank.surely and self._is_after_another(rank)
        return (kills and rank.signal == SIGKILL) or super()._was_signalled(rank)

    def _enter(self, place: str) -> None:
        """Enter the round with this folder. A launcher that starts its ranks anew has recovered from earlier ends: forget these."""
        if self._round not in ("", place):
            self.look()
            self.ended.clear()
            self._all = {pid: rank for pid, rank in self._all.items() if not rank.ended}
        self._round = place

    def _place(self, pid: int) -> tuple[str, str]:
        """Return the key of the rank whose output a process writes, and the folder of its round; "" and "" for another process."""
        for number in (1, 2):
            try:
                path = os.readlink(f"/proc/{pid}/fd/{number}")
            except OSError:
                continue
            inside = path.startswith(f"{self._folder}/")
            key, place = key_and_round(self._pattern, path[len(self._folder) + 1 :]) if inside else ("", "")
            if key:
                return key, place
        return "", ""


def _with_victims(end: Watched, failure: Failure | None) -> Failure:
    return replace(end.failure(), victims=failure.victims) if failure and failure.pid == end.pid else end.failure()
