"""Meaning of exit codes and signals without a message, and conclusions from the ends of several
ranks. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence

from ranklaunch.verdict.model import ELSEWHERE, WAITING, WHOLE, Culprit, Note, Suspect

_OF_SIGNALS = {
    "SIGSEGV": "it accessed memory that is not its own: a defect in compiled code, or packages that do not fit each other",
    "SIGABRT": "it gave itself up, as C and C++ do at a failed assertion or an exception that nobody catches",
    "SIGBUS": "memory behind a file was not there: mostly /dev/shm is full, else a mapped file became shorter",
    "SIGILL": "a library uses an instruction that this processor does not have",
    "SIGFPE": "compiled code divided by zero",
    "SIGKILL": "nothing in it could react: it was the kernel for want of memory, the platform, or a person",
    "SIGTERM": "somebody told it to end: the platform, a person, or a launcher after a failure elsewhere",
    "SIGINT": "somebody told it to end, as Ctrl-C does",
    "SIGHUP": "the terminal or ssh session that it was started from has gone",
    "SIGXCPU": "its limit on processor time was reached (ulimit -t)",
    "SIGXFSZ": "its limit on the size of files was reached (ulimit -f)",
    "SIGPIPE": "it wrote to a process that has ended",
    "SIGSYS": "a call of the system is forbidden here, as by a container's seccomp profile",
}
_OF_CODES = {
    124: "timeout ends so when the time is over that it gives a command",
    126: "a shell ends so where it may not execute a program: its mode, its format or a folder of that name",
    127: "a shell ends so where it does not find a program, and the loader where it does not find a library",
    255: "ssh ends so where it cannot connect, and a program by exit(-1)",
}
OF_MEMORY = "it needs less (a smaller batch, fewer workers that load data, nothing that grows), or its container a larger limit"
_SHELL = 128  # and the number of the signal that ended what it ran
_FEWEST = 2  # ranks that say something together
# Errors that a collective hands to all its ranks, whichever of them it is that differs.
OF_COLLECTIVES = (
    "horovod-ranks-differ", "nccl-collective-mismatch", "tensorflow-collectives-differ", "torch-collective-sizes-differ",
    "torch-ddp-shapes-differ",
)  # fmt: skip
_DOWN = ": its host or the network to it is down"
# Of a node that is lost, or cut off from all others.
SILENT = re.compile(r"node (?P<node>[0-9]{1,7})(?: \([^)]*\))? (?:does not answer: |hears none of the )")


def meaning(culprit: Culprit) -> str:
    """Return the meaning of an exit code or signal, or the remedy for a process killed for memory;
    "" for none, and if the output names an error."""
    if culprit.out_of_memory:
        return OF_MEMORY
    if culprit.error:
        return ""
    code = culprit.exit_code
    name = culprit.signal or (_name_of(code - _SHELL) if code > _SHELL else "")
    return _OF_SIGNALS.get(name, "") or _OF_CODES.get(code, "")


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def notes_of(suspects: Sequence[Suspect], notes: Iterable[Note]) -> Iterator[Note]:
    """Yield the notes of nodes, then conclusions from all suspects. A rank that failed without
    ending counts only if the first suspect may have lost this rank. suspects: the one to blame
    first."""
    lost, notes = suspects[0].is_consequence or suspects[0].outcome == "stopped", list(notes)
    whole = [note for note in notes if note.kind == WHOLE]
    apart = len(whole) == 1 and len({each.node for each in suspects}) == 1
    yield from (note for note in notes if (lost or note.kind != WAITING) and (apart or note.kind != WHOLE))
    yield from map(Note, () if apart else _together(suspects))
    silent = (each.reason for each in suspects[1:] if not each.culprit and SILENT.match(each.reason))
    yield from (Note(reason.replace(_DOWN, "")) for reason in silent)  # that did not decide: it may be this node's own network


def _together(suspects: Sequence[Suspect]) -> Iterable[str]:
    """Yield a note if all ranks ended with the same error. On several hosts the cause is not one
    host, unless the error is one of hosts, or the job failed of something else, such as a hang."""
    culprits = _distinct_culprits(suspects) if suspects[0].culprit else []
    texts = [_cause_of(culprit) for culprit in culprits]
    if len(texts) < _FEWEST or not texts[0] or len(set(texts)) > 1:
        return
    same = f"{len(texts)} ranks ended with the same error"
    of_one_host = f"{len(texts)} ranks of one host ended with the same error"
    if texts[0].partition(": ")[0] in OF_COLLECTIVES:
        yield f"{same}, which is that they differ: the rank that is named need not be the wrong one"
    elif len({culprit.node for culprit in culprits}) > 1:
        yield f"{same}: it is not one rank's or host's, but the program's or of what they share"
    else:
        yield f"{of_one_host}: it is not one rank's, but the program's or the host's"


def _distinct_culprits(suspects: Sequence[Suspect]) -> list[Culprit]:
    """Return the culprit of each rank once; [] if a launcher is among them: launchers of several
    nodes may share a broken image."""
    by_rank: dict[tuple[int, int | None], Culprit] = {}
    for culprit in (suspect.culprit for suspect in suspects if suspect.culprit):
        by_rank.setdefault((culprit.node, culprit.rank), culprit)
    culprits = [*by_rank.values()]
    return [] if any(culprit.rank is None for culprit in culprits) else culprits


def of_whole_node(suspects: Sequence[Suspect], ranks: Collection[int], place: str) -> Iterable[str]:
    """Yield a text if all ranks of a node failed with an error of their own. ranks: those of the node. place: the node, for people."""
    causes = (each.culprit for each in suspects if each.culprit and each.culprit.error and each.culprit.error.kind == "cause")
    failed = {culprit.rank for culprit in causes}
    if len(ranks) >= _FEWEST and failed.issuperset(ranks):
        yield f"all {len(ranks)} ranks of {place} failed with an error of their own, and no rank of another node did"


def waited_for(suspects: Sequence[Suspect], ranks: Collection[int]) -> Iterable[str]:
    """Yield a note if all ranks of a node but one failed as a consequence: they may have waited for
    that one."""
    culprits = [suspect.culprit for suspect in suspects if suspect.culprit and suspect.is_consequence and suspect.culprit.rank is not None]
    left = sorted(set(ranks) - {culprit.rank for culprit in culprits})
    if len(culprits) == len(suspects) >= _FEWEST and len(left) == 1:
        yield f"rank {left[0]} had not failed when the others of its node did: they may have waited for it"


def _cause_of(culprit: Culprit) -> str:
    """Return the error of a culprit without numbers; "" unless the error is a cause in the program."""
    error = culprit.error
    of_program = error and error.kind in ("cause", "unknown") and error.retry != ELSEWHERE
    return f"{error.name}: {re.sub('[0-9]+', '0', error.line)}" if error and of_program else ""
