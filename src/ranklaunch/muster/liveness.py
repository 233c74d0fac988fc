"""Liveness of silent nodes: the meaning of a connection's end, the time to come back, and the suspect for a lost node.

If all other nodes fall silent together, node 0 itself is cut off. Pure.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from ranklaunch.errors import WaitError
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit

RETURN_S = 1.0  # for a node to connect again after a broken connection, before it counts as lost
RESET_S = 2.5  # the same after a reset
PINGS_PER_S = 200  # of all nodes together, at most
TOGETHER = 2.0  # beats (see beat_s) between the last messages of nodes cut off at one moment, at most
SPOKEN = 3.25  # beats after the last message of all nodes, within which a present node has sent another one
LOOK_S = 0.25  # until the next look, while Silence.is_own is None


def silence(error: OSError | None) -> bool:
    """Return True if a connection ended because the other host does not answer. False if something there closed it."""
    return error is not None and error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


def reset(error: OSError | None) -> bool:
    """Return True if a connection was reset, by the other host or by a device between the two hosts."""
    return error is not None and error.errno in (errno.ECONNRESET, errno.EPIPE)


def time_to_return(error: OSError | None) -> float:
    """Return the seconds for a node to connect again.

    A device between the hosts may have caused a reset. The other host then notices the reset only with its next message, so a reset
    gets more time.
    """
    if silence(error):
        return 0.0
    return RESET_S if reset(error) else RETURN_S


def words(error: OSError) -> str:
    """Return the error's own text, also for an error without the system's text."""
    return error.strerror or str(error) or type(error).__name__


def suspect(node: int, host: str, silent: bool, at: float, since: str = "") -> Suspect:
    """Return the suspect for a node lost without a word. A process that ends gives its reason. If the host still closes connections, the
    process was killed; a silent host is down or cut off, and another try may reach the host."""
    name = blame.place(node, host)
    if silent:
        reason = f"{name} does not answer: its host or the network to it is down{since}"
        return Suspect(node, at, "failed", WaitError.exit_code, reason)
    reason = f"ranklaunch on {name} ended without a word: it was killed by SIGKILL, or its container was{since}"
    culprit = Culprit(node, None, None, 137, "SIGKILL", False, (), "ranklaunch", host, blame.iso(at))
    return Suspect(node, at, "failed", 137, reason, culprit)


def beat_s(nodes: int, lost_after_s: float) -> float:
    """Return the seconds between two pings of a node.

    Short, so that a broken connection is noticed soon. Longer for thousands of nodes, so that node 0 can answer all of them.
    """
    return min(max(1.0, nodes / PINGS_PER_S), max(1.0, lost_after_s / 4))


@dataclass(frozen=True)
class Silence:
    """Silence of a lost node. lost: time of its last message. peers: times of the last messages of the other nodes whose connections
    stand or have fallen silent too. now: by the same clock."""

    lost: float
    peers: Sequence[float]
    now: float
    beat_s: float

    @property
    def is_own(self) -> bool | None:
        """True if the silence is node 0's: no other node has spoken since, and at least one fell silent together with the lost
        one. None if a present node may not have had to speak yet. An older silence proves nothing."""
        window, last = TOGETHER * self.beat_s, max(self.peers, default=float("-inf"))
        if abs(last - self.lost) > window:
            return False
        return True if self.now > max(last, self.lost) + SPOKEN * self.beat_s else None


def cut_off(node: int, host: str, peers: int, at: float, last: float, seconds: float) -> Suspect:
    """Return node 0 as the suspect, with its index and host. peers: number of the other nodes. at, last: seconds since 1970 of the
    earliest and of the latest of their last messages. seconds: time since the latest."""
    silent = f"{blame.place(node, host)} hears none of the {peers} other nodes any more: they fell silent together"
    likely = "so its own host or the network to it is the likely cause"
    reason = f"{silent}, {likely}; last heard of them at {blame.iso(last)}, {seconds:.1f} s before"
    return Suspect(node, at, "failed", WaitError.exit_code, reason)
