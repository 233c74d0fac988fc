"""The ranks that a launcher has started, watched until they end.

A launcher may say less of its ranks than the kernel does, and later: torchrun's names them by pid, DeepSpeed's tells the code with which
one ended, and not which. A pidfd tells when a process has ended, also where it is another's child, and /proc has how, for as long as its
parent has not asked for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from signal import SIGABRT

from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import TOLD, code_of, signal_of
from ranklaunch.verdict.model import Failure

AT_ONCE_S = 0.05  # ends that are heard of so soon after each other may have been the other way round


class Watched:
    """rank: None for what its launcher has started beside its ranks, which has a name. status: its wait status, None as long as it lives,
    and where its parent was faster than we. by_itself: nobody had told it to, as far as is known. surely: nor can its launcher have."""

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
        """As a shell gives it."""
        return None if self.status is None else code_of(self.status)

    @property
    def signal(self) -> int:
        return 0 if self.status is None else signal_of(self.status)

    @property
    def failed(self) -> bool:
        return bool(self.code) and self.by_itself

    @property
    def aborted(self) -> bool:
        """Whether we have ended it, so that Python writes its stacks."""
        return self.signal == SIGABRT and not self.by_itself


class Ranks:
    """on_end: told of each rank that has ended. told: whether they have been told to. hear: takes in what their launcher has written by
    now."""

    def __init__(
        self, loop: Loop, on_end: Callable[[Watched], None], told: Callable[[], bool], hear: Callable[[], None] = lambda: None
    ) -> None:
        self.ended: list[Watched] = []  # in that order
        self.named: dict[int, bool] = {}  # pids of those that their launcher says that it ends, and whether it says so of the living alone
        self._hear = hear
        self._loop = loop
        self._on_end = on_end
        self._told = told
        self._all: dict[int, Watched] = {}

    @property
    def failed(self) -> list[Watched]:
        """By themselves, first to last."""
        return [rank for rank in self.ended if rank.failed]

    @property
    def finished(self) -> list[Watched]:
        """Those that ended with 0 by themselves. Once one has ended otherwise, their launcher may have told them."""
        told = min((rank.ended_at for rank in self.ended if rank.code != 0), default=float("inf")) - AT_ONCE_S
        return [rank for rank in self.ended if rank.code == 0 and rank.by_itself and rank.rank is not None and rank.ended_at < told]

    @property
    def unknown(self) -> list[Watched]:
        """Those of which nobody knows how they ended."""
        return [rank for rank in self.ended if rank.status is None and rank.by_itself]

    @property
    def known(self) -> int:
        """How many have been."""
        return len(self._all)

    @property
    def pids(self) -> Collection[int]:
        """Of those."""
        return self._all.keys()

    @property
    def expected(self) -> Collection[int]:
        """The numbers of all ranks that the launcher has; none where they cannot be watched."""
        raise NotImplementedError

    def may_have_failed(self, pid: int | None) -> bool:
        """One of them, this one where a pid is known. Who says so may be a launcher that a rank has started, of ranks of its own."""
        watched = self._all.values()
        if not self.expected or not {*self.expected} <= {rank.rank for rank in watched}:
            return True
        return any(rank.pid == pid if pid else rank.ended and rank.code != 0 for rank in watched)

    @property
    def alive(self) -> list[Watched]:
        return [rank for rank in self._all.values() if not rank.ended]

    def living(self) -> dict[int, tree.Identity]:
        """By rank."""
        return {rank.rank: rank.identity for rank in self.alive if rank.rank is not None}

    def look(self) -> None:
        """At those of which the loop has not heard yet. Of several, whoever ended as one does that is told to ended last."""
        found = [(rank, tree.entry(rank.pid)) for rank in self.alive]
        dead = [(rank, entry) for rank, entry in found if not entry or entry.state in "ZX"]
        for rank, _ in sorted(dead, key=lambda each: bool(each[1] and code_of(each[1].status) == TOLD)):
            self._end(rank)

    def close(self) -> None:
        """No more of them is wanted to be known."""
        for rank in self.alive:
            self._forget(rank)

    def _watch(self, number: int | None, identity: tree.Identity, name: str = "") -> bool:
        """False where this system has no way to."""
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
            self._loop.on_readable(rank.pidfd, lambda: self._end(rank))
        return True

    def _end(self, rank: Watched) -> None:
        if rank.ended:
            return
        rank.status = tree.wait_status(rank.identity)
        rank.ended, rank.ended_at = True, self._loop.clock()
        self._forget(rank)
        self.ended.append(rank)  # before more of them are heard of
        rank.by_itself = not self._is_told(rank)
        self._on_end(rank)

    def _is_told(self, rank: Watched) -> bool:
        """Also whom its launcher had named before, and who ends like that where it has named it by now, or after another has ended, of
        which that may have heard, and told the others, before we did."""
        told, after_another = self._told(), self._is_after_another(rank)
        if rank.code and not told:
            self._hear()
        named = self.named.get(rank.pid)
        return told or bool(named) or (rank.code == TOLD and (after_another or named is not None))

    def _is_after_another(self, rank: Watched) -> bool:
        """Whether one had ended before that has failed, or of which nobody knows how it ended."""
        return any(each.code != 0 for each in self.ended if each is not rank)

    def _forget(self, rank: Watched) -> None:
        if rank.pidfd >= 0:
            self._loop.forget(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = -1


class Announced(Ranks):
    """Known from what their launcher writes as it starts them. pattern: of that, in the order of `numbers`, with the group pid."""

    def __init__(
        self,
        pattern: str,
        numbers: Sequence[int],
        loop: Loop,
        on_end: Callable[[Watched], None],
        told: Callable[[], bool],
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(loop, on_end, told, hear)
        self._pattern = re.compile(pattern.encode())
        self._numbers = numbers

    @property
    def expected(self) -> Collection[int]:
        return self._numbers

    def confirms(self, failure: Failure | None) -> bool:
        """Whether what their launcher says of one may be so: not where all are watched and none has failed by itself."""
        return not failure or not self.expected or len(self._all) < len(self._numbers) or bool(self.failed or self.unknown)

    def read(self, said: bytes) -> None:
        """The last of what the launcher has written, again and again."""
        if len(self._all) >= len(self._numbers):
            return
        for found in self._pattern.finditer(said):
            pid = int(found["pid"])
            if pid in self._all or len(self._all) >= len(self._numbers):
                continue
            if not self._watch(self._numbers[len(self._all)], tree.identify(pid)):
                self._numbers = ()
