"""Ranks whose output ends with an exception, and which do not end: at its exit a library may wait for the others, as MPI_Finalize does, and
they wait for the rank.

That nobody caught it, the output shows by what Python itself prints then: a traceback that begins in the program's own module, as it is or
as PyTorch's hook marks each line of it. Who catches an exception in a function and prints it has a traceback that begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ranklaunch import errors, showing
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.output.pipe import TRACEBACK, Output, last_lines
from ranklaunch.system.tree import Identity
from ranklaunch.typed import NamedTuple
from ranklaunch.values import replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import Culprit
from ranklaunch.watch.frames import MOST_OF_TRACEBACK
from ranklaunch.watch.who import Raised, Suspect

CODE = 1  # with which Python ends after it
BEGINS = TRACEBACK.decode()
SETTLED_S = 1.0  # without a word, after which a traceback is no longer being written


class _Ending(NamedTuple):
    sure: bool
    said: str
    line: str
    of_thread: bool = False


class Uncaught:
    """Of all ranks whose output comes to this node. Each end of an output is read once. tail_of: of a launcher's ranks, whose standard
    error may have come before what they had written to the other stream; b"" of others."""

    def __init__(self, tail_of: Callable[[int], bytes]) -> None:
        self._tail_of = tail_of
        self._read: dict[int, tuple[int, _Ending | None]] = {}

    def look(self, outputs: Mapping[int, Output], ranks: Mapping[int, Identity], now: float) -> list[Raised]:
        """The newest first."""
        return sorted(self._all(outputs, ranks, now), key=lambda raised: raised.silent_s)

    def _all(self, outputs: Mapping[int, Output], ranks: Mapping[int, Identity], now: float) -> Iterator[Raised]:
        for rank, output in outputs.items():
            silent_s = 0.0 if output.written_at is None else now - output.written_at
            ending = self._ending(rank, output) if silent_s >= SETTLED_S and TRACEBACK in output.tail else None
            if ending:
                pid = ranks[rank].pid if rank in ranks else None
                yield Raised(rank, silent_s, ending.sure, ending.said, ending.line, pid, ending.of_thread)

    def _ending(self, rank: int, output: Output) -> _Ending | None:
        taken, ending = self._read.get(rank, (-1, None))
        if taken != output.taken:
            ending = _ending((self._tail_of(rank) or output.settled()).decode(errors="replace"), rank)
            self._read[rank] = output.taken, ending
        return ending


def _ending(text: str, rank: int) -> _Ending | None:
    from ranklaunch.catalogue import find, last_exception, uncaught  # only failures need it

    how, said = uncaught.ends_by_exception(text, rank, threads=True)
    longer = "" if how else uncaught.ends_by_exception(text, rank, uncaught.MOST_OF_MESSAGE)[1]  # it may be a message, or what came after
    longer = longer if find(longer) else ""
    of_program = uncaught.begins_as_program((said or longer).split("\n"))
    line = last_exception(said or longer) if how or of_program else ""
    if not line:
        return None
    of_thread, said = how == uncaught.OF_THREAD, said or longer
    sure = how == uncaught.CERTAIN or bool(how and of_program and not of_thread)
    told = "\n".join(errors.quoted(said.split("\n")))  # what nodes tell each other is not encrypted
    return _Ending(sure, _shortened(told), showing.printable(errors.quoted((line,))[0]), of_thread)


def _shortened(said: str) -> str:
    """As much of it as a frame has room for, in whole lines: half a line may be half a secret."""
    if len(said) <= MOST_OF_TRACEBACK:
        return said
    _, _, rest = said[len(BEGINS) - MOST_OF_TRACEBACK :].partition("\n")
    return f"{BEGINS}\n{rest}"


def culprit(plan: Plan, suspect: Suspect, raised: Raised, at: float) -> Culprit:
    """As which a rank ends that has raised it. at: seconds since 1970."""
    from ranklaunch.supervise import words

    told, nodes = raised.said.encode(errors="replace"), plan.job.everyone
    error = words.known(told, plan)
    return Culprit(
        node=suspect.node, rank=suspect.rank, pid=raised.pid, exit_code=CODE, signal=None, out_of_memory=False,
        last_lines=errors.quoted(last_lines(told)), name=f"rank {suspect.rank}",
        host=nodes[suspect.node].host if 0 <= suspect.node < len(nodes) and len(nodes) > 1 else "",
        time=blame.iso(at), error=error and replace(error, line=showing.printable(errors.quoted((error.line,))[0])),
    )  # fmt: skip
