"""The ranks that a launcher has started, known by the files that their output goes to.

A launcher may say of a failed rank no more than its pid, or look after its ranks once a second and then blame the first in its list.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Collection

from ranklaunch.plan.model import RankOutputs
from ranklaunch.supervise.output.follow import key_and_round
from ranklaunch.supervise.ranks.watched import Ranks, Watched
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.values import replace
from ranklaunch.verdict.model import Failure

LOOK_AFTER_S = (0.05, 0.3, 1.0, 3.0)  # a new file: whoever writes into it may have to be started first
LOOK_AGAIN_S, LOOK_ON_S = 0.5, 3.0  # where nobody tells of new files; the second once all ranks are known


class Below(Ranks):
    """generations: how many below the launcher its ranks are. on_start: told of each that is found, with its pid and the folder of
    its files. kills: as Launcher.kills_ranks. followed: whether expect() is called for each new file."""

    def __init__(
        self,
        launcher: tree.Identity,
        generations: int,
        outputs: RankOutputs,
        loop: Loop,
        on_start: Callable[[int, int, str], None],
        on_end: Callable[[Watched], None],
        told: Callable[[], bool],
        kills: bool = False,
        followed: bool = True,
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(loop, on_end, told, hear)
        self._launcher = launcher
        self._launcher_kills = kills
        self._generations = generations
        self._folder = os.path.realpath(outputs.folder).rstrip("/")
        self._pattern = re.compile(outputs.pattern)
        self._keys = {log.key: log.rank for log in outputs.logs}
        self._on_start = on_start
        self._found: dict[tree.Identity, int | None] = {}
        self._round = ""  # the folder that they write below
        self._closed = False
        if not followed:
            self.keep_looking()

    def expect(self) -> None:
        """One more rank is about to write."""
        for seconds in LOOK_AFTER_S:
            self._loop.after(seconds, self.find)

    def keep_looking(self) -> None:
        """For ranks that write where nobody follows."""
        self.find()
        if not self._closed:
            self._loop.after(LOOK_ON_S if self.knows_all else LOOK_AGAIN_S, self.keep_looking)

    def close(self) -> None:
        self._closed = True
        super().close()

    def find(self) -> None:
        for process in tree.generation(self._launcher.pid, self._generations):
            if process in self._found:
                continue
            key, place = self._place(process.pid)
            if key in self._keys:
                self._enter(place)
                self._found[process] = rank = self._keys[key]
                if rank is not None:
                    self._on_start(rank, process.pid, f"{self._folder}/{place}/{key}")
                self._watch(rank, process, key if rank is None else "")

    def ranks(self) -> list[tree.Identity] | None:
        """Those that live; None where none was ever found."""
        self.find()
        if not any(rank is not None for rank in self._found.values()):
            return None
        living = tree.generation(self._launcher.pid, self._generations)
        return [process for process in living if self._found.get(process) is not None]

    @property
    def expected(self) -> Collection[int]:
        return {rank for rank in self._keys.values() if rank is not None}

    @property
    def known(self) -> int:
        """In whatever round of their launcher's own, and without what is no rank."""
        return len({rank for rank in self._found.values() if rank is not None})

    @property
    def knows_all(self) -> bool:
        """Whether every rank that is expected has been found."""
        return {*self.expected} <= set(self._found.values())

    def beside(self) -> list[tree.Identity]:
        """Processes that write into files of their own, and are no ranks."""
        return [process for process, rank in self._found.items() if rank is None]

    def complete(self, failure: Failure | None, ends_ranks: bool = False) -> Failure | None:
        """What the launcher says, with what is known here: which rank it was, and whether another had failed before. ends_ranks: it has
        said that it does, and so that one has failed: where it says no more, that is the one whose end nobody knows."""
        failed = [end for end in self.ended if end.code]
        if failure and failure.signal and failure.pid == self._launcher.pid:  # somebody has told it to end, and it has told its ranks
            return next((_told(end, None) for end in self.failed if end.code != failure.exit_code), failure)
        if ends_ranks and failure is None and len(self.unknown) == 1 and not self.failed:
            return replace(_told(self.unknown[0], None), exit_code=1)
        if failure is None or failure.pid in [end.pid for end in failed]:
            return _told(failed[0], failure) if failed else failure
        if not self.may_have_failed(failure.pid):  # one of an earlier round, or of a launcher that a rank has started
            return _told(self.failed[0], None) if self.failed else failure if self.unknown else None
        ranks = [rank for process, rank in self._found.items() if process.pid == failure.pid]
        return replace(failure, rank=ranks[0]) if ranks and failure.rank is None else failure

    def end_of(self, rank: int) -> Failure | None:
        """How a rank ended, as far as that is known; with 0 it is no failure."""
        return next((_told(end, None) for end in self.ended if end.rank == rank and end.code is not None), None)

    def _end(self, rank: Watched) -> None:
        """While its launcher is halted, it is told by nobody."""
        rank.surely = tree.state(self._launcher) == "T"
        super()._end(rank)

    def _is_told(self, rank: Watched) -> bool:
        """Also by a launcher that kills, with SIGKILL, once another rank of it has failed."""
        kills = self._launcher_kills and not rank.surely and self._is_after_another(rank)
        return (kills and rank.signal == signal.SIGKILL) or super()._is_told(rank)

    def _enter(self, place: str) -> None:
        """A launcher that starts its ranks anew has outlived what had become of the earlier ones: the job does not die of that."""
        if self._round not in ("", place):
            self.look()
            self.ended.clear()
            self._all = {pid: rank for pid, rank in self._all.items() if not rank.ended}
        self._round = place

    def _place(self, pid: int) -> tuple[str, str]:
        """The key of the rank whose output a process writes, and the folder of its round; "" where it is none."""
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


def _told(end: Watched, failure: Failure | None) -> Failure:
    told = Failure(end.rank, end.code or 0, end.signal, end.pid, at=end.ended_at, name=end.name)
    return replace(told, victims=failure.victims) if failure and failure.pid == end.pid else told
