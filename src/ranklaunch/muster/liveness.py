"""State of a silent node: the meaning of its connection's end, its chances to come back, its loss, and the loss of node 0 itself, once
no words reach node 0 any more. Pure."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from ranklaunch.errors import WaitError
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit

RETURN_S = 1.0  # for a node whose connection broke to come back, before it counts as gone
RESET_S = 2.5
PINGS_PER_S = 200  # that all nodes together send to node 0 at most
TOGETHER = 2.0  # beats by which the last words of nodes that are cut off at one moment lie apart at most
SPOKEN = 3.25  # beats after the last word of all, within which one that is there has spoken again
LOOK_S = 0.25  # until it is looked again, where that is not known yet


def silence(error: OSError | None) -> bool:
    """Whether a connection ended because the other host does not answer, not because something there closed it."""
    return error is not None and error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


def reset(error: OSError | None) -> bool:
    """Whether it was a reset, by the other side or by something between the two."""
    return error is not None and error.errno in (errno.ECONNRESET, errno.EPIPE)


def time_to_return(error: OSError | None) -> float:
    """A reset may come from something between the two, and be news to the other side with its next word only."""
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
    """How often a node says something: often, so that a broken connection is noticed soon; seldom enough for node 0 to answer thousands."""
    return min(max(1.0, nodes / PINGS_PER_S), max(1.0, lost_after_s / 4))


@dataclass(frozen=True)
class Silence:
    """Silence of a lost node. lost: time of its last message; others: of each other node's, if its connection stands or has
    fallen silent too; now: by the same clock."""

    lost: float
    others: Sequence[float]
    now: float
    beat_s: float

    @property
    def is_own(self) -> bool | None:
        """True if the silence is node 0's: no other node has spoken since, and at least one fell silent together with the lost
        one. None if a present node may not have had to speak yet. An older silence proves nothing."""
        window, last = TOGETHER * self.beat_s, max(self.others, default=float("-inf"))
        if abs(last - self.lost) > window:
            return False
        return True if self.now > max(last, self.lost) + SPOKEN * self.beat_s else None


def cut_off(node: int, host: str, others: int, at: float, last: float, seconds: float) -> Suspect:
    """node, host: node 0's own. at, last: seconds since 1970 of the first and the last of the others' last words; seconds: since then."""
    silent = f"{blame.place(node, host)} hears none of the {others} other nodes any more: they fell silent together"
    likely = "so its own host or the network to it is the likely cause"
    reason = f"{silent}, {likely}; last heard of them at {blame.iso(last)}, {seconds:.1f} s before"
    return Suspect(node, at, "failed", WaitError.exit_code, reason)
