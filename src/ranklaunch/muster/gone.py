"""What the end of a connection says of the node behind it: whether it may come back, and what became of it where it does not."""

from __future__ import annotations

import errno

from ranklaunch.errors import WaitError
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit

RETURN_S = 1.0  # for a node whose connection broke to come back, before it counts as gone
RESET_S = 2.5


def silence(error: OSError | None) -> bool:
    """Whether a connection ended because the other host does not answer, not because something there closed it."""
    return error is not None and error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


def time_to_return(error: OSError | None) -> float:
    """A reset may come from something between the two, and be news to the other side with its next word only."""
    if silence(error):
        return 0.0
    return RESET_S if error is not None and error.errno in (errno.ECONNRESET, errno.EPIPE) else RETURN_S


def suspect(node: int, host: str, silent: bool, at: float, since: str = "") -> Suspect:
    """A node that is gone without a word. A process that ends says why; one whose host still closes its connections was killed; a
    host that does not answer is down or cut off, and another try may find it back."""
    name = blame.place(node, host)
    if silent:
        reason = f"{name} does not answer: its host or the network to it is down{since}"
        return Suspect(node, at, "failed", WaitError.exit_code, reason)
    reason = f"ranklaunch on {name} ended without a word: it was killed by SIGKILL, or its container was{since}"
    culprit = Culprit(node, None, None, 137, "SIGKILL", False, (), "ranklaunch", host, blame.iso(at))
    return Suspect(node, at, "failed", 137, reason, culprit)
