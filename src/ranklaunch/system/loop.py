"""Event loop: one epoll for readable and writable descriptors, and timers."""

from __future__ import annotations

import heapq
import itertools
import math
import select
import time
from collections.abc import Callable
from functools import partial
from typing import Any

Callback = Callable[[], object]


class Timer:
    """Callback at a point in time, until cancel()."""

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """Event loop. clock: returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._epoll = select.epoll()
        self._waiting: dict[int, tuple[Callback | None, Callback | None]] = {}  # callbacks of each descriptor: when readable, when writable
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def on_readable(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        self._wait_for(fd, partial(callback, *args), None)

    def on_writable(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        self._wait_for(fd, None, partial(callback, *args))

    def change(self, fd: int, on_readable: Callback | None, on_writable: Callback | None) -> None:
        """Replace the callbacks of a registered descriptor. At least one must be set."""
        self._epoll.modify(fd, _events(on_readable, on_writable))
        self._waiting[fd] = (on_readable, on_writable)

    def forget(self, fd: int) -> None:
        """Stop waiting for a descriptor. Raises KeyError if it is not registered."""
        del self._waiting[fd]
        try:
            self._epoll.unregister(fd)
        except OSError:  # closed before; the kernel then removed it
            pass

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call back with these arguments after `seconds`."""
        timer = Timer(partial(callback, *args))
        heapq.heappush(self._timers, (self.clock() + seconds, next(self._order), timer))
        return timer

    def wall(self, clock: float) -> float:
        """Return a time of `clock` as seconds since 1970, by this machine's clock."""
        return time.time() - (self.clock() - clock)

    def step(self, most_s: float = math.inf) -> None:
        """Wait for the next event, and call its callbacks. Descriptors are handled in the order of their readiness: for
        pidfds, the order of the deaths. most_s: longest wait in seconds."""
        ready = self._epoll.poll(self._timeout(most_s), max(1, len(self._waiting)))
        for (fd, events), wanted in [(each, self._waiting.get(each[0])) for each in ready]:
            # A hang-up or an error concerns both callbacks.
            for event, callback in zip((~select.EPOLLOUT, ~select.EPOLLIN), wanted or ()):
                # An earlier callback of this step may have removed the descriptor, or reused its number.
                if callback and events & event and self._waiting.get(fd) is wanted:
                    callback()
        self._call_timers()

    def _call_timers(self) -> None:
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback:
                callback()

    def run_until(self, done: Callable[[], object], deadline: float = math.inf) -> None:
        """Step until `done` returns a true value. deadline: by `clock`."""
        while not done() and self.clock() < deadline:
            self.step(deadline - self.clock())

    def _timeout(self, most_s: float) -> float | None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        seconds = min(most_s, self._timers[0][0] - self.clock()) if self._timers else most_s
        # Rounded up to milliseconds, the unit of epoll, which would otherwise return too early.
        return max(0.0, math.ceil(seconds * 1e3) * 1e-3) if seconds < math.inf else None

    def _wait_for(self, fd: int, on_readable: Callback | None, on_writable: Callback | None) -> None:
        if fd in self._waiting:
            msg = f"descriptor {fd} is registered already"
            raise KeyError(msg)
        self._epoll.register(fd, _events(on_readable, on_writable))
        self._waiting[fd] = (on_readable, on_writable)


def _events(on_readable: Callback | None, on_writable: Callback | None) -> int:
    return (select.EPOLLIN if on_readable else 0) | (select.EPOLLOUT if on_writable else 0)


class Share(Loop):
    """Part of a loop: close() forgets all descriptors and timers that were registered through it."""

    def __init__(self, loop: Loop) -> None:
        self.clock = loop.clock
        self._epoll, self._waiting, self._timers, self._order = loop._epoll, loop._waiting, loop._timers, loop._order
        self._own_fds: set[int] = set()
        self._own_timers: list[Timer] = []
        self._look_at = 64  # number of timers at which past ones are removed from the list

    def _wait_for(self, fd: int, on_readable: Callback | None, on_writable: Callback | None) -> None:
        super()._wait_for(fd, on_readable, on_writable)
        self._own_fds.add(fd)

    def forget(self, fd: int) -> None:
        super().forget(fd)
        self._own_fds.discard(fd)

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = super().after(seconds, callback, *args)
        self._own_timers.append(timer)
        if len(self._own_timers) > self._look_at:
            self._own_timers = [timer for timer in self._own_timers if timer.callback]
            self._look_at = 64 + 2 * len(self._own_timers)
        return timer

    def close(self) -> None:
        for timer in self._own_timers:
            timer.cancel()
        for fd in list(self._own_fds):
            self.forget(fd)
