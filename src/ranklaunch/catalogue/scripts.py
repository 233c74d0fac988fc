"""What a program's own launchers report of their ranks: those that a script, or a program, has started itself."""

from __future__ import annotations

import re

from ranklaunch.catalogue.tracebacks import BEGINS
from ranklaunch.typed import NamedTuple

BY_TORCHRUN = r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)"
# Of a box whose beginning is not there, as where a program logs the end of what it has captured.
_ROOT_OF_TORCHRUN = (
    r"Root Cause \(first observed failure\):\n(?:.{1,300}\n){1,3}?\s+rank +: \d+ \(local_rank: (?P<rank>\d+)\)\s*\n"
    r"\s+exitcode +: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)"
)
_BOX_OF_TORCHRUN = re.compile(r"ChildFailedError: ?\n={20,}\n(?:.*\n){1,400}?={20,}(?:\n|$)")
_BY_DEEPSPEED = r"\[launch\.py:\d{1,5}:sigkill_handler\] \[.*\] exits with return code = (?P<code>-?\d+)"
# Of Open MPI 4 and 5.
_BY_MPIRUN = (
    r"Process name: \[[^\]\n]{1,300}\]?,(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"
    r"|noticed that process rank (?P<killed>\d+) with PID \d+ on node (?P<node>\S+) exited on\s+signal (?P<signal>\d+)"
)
_END_OF_BOX = re.compile(r"^-{20,}(?:\n|$)", re.MULTILINE)
# Of MPICH, whose exit code 9 may also be that of ranks which it has killed.
_BY_MPIEXEC = (
    r"=   PID (?P<pid>\d+) RUNNING AT (?P<node>\S+)\n=   EXIT CODE: (?P<code>\d+)\n(?:=.*\n){0,6}"
    r"(?:YOUR APPLICATION TERMINATED WITH THE EXIT STRING: (?P<word>.{1,80}).*\n?(?:This typically .*\n?)?(?:Please see the FAQ .*\n?)?)?"
)
LOGGED_BY_TORCHRUN = r"[EWI][0-9]{4} |\[[0-9]{4}-"
# That something has failed, and not what.
_TELLS_THAT = re.compile(
    r"\b(?:exit|return)(?:ed)?[ _-](?:with )?(?:non-?zero )?(?:exit )?(?:code|status)\b|\bCalledProcessError\b|"
    r"\b(?:failed|failure|aborted|aborting|exiting|exited|giving up)\b\W*(?:with\W+)?(?:(?:exit\W*)?(?:code|status)|rc)?[\W\d]*$",
    re.IGNORECASE,
)


class Report(NamedTuple):
    """said: which rank failed, and how. begin, end: its places in the output. code: with which the launcher ends then, None where it may
    end with another. whole: the launcher has told all of it by then. begun: it has not, and may have started its ranks again."""

    said: str
    begin: int
    end: int
    code: int | None = None
    whole: bool = False
    begun: bool = False


def by_torchrun(text: str) -> list[Report]:
    """Those of torchrun alone, in their order."""
    return [_of_torchrun(match, text) for match in re.finditer(BY_TORCHRUN, text)]


def reported(text: str) -> list[Report]:
    """All in an output, in their order."""
    torchrun = (BY_TORCHRUN, _of_torchrun) if re.search(BY_TORCHRUN, text) else (_ROOT_OF_TORCHRUN, _of_root_cause)
    kinds = (torchrun, (_BY_DEEPSPEED, _of_deepspeed), (_BY_MPIRUN, _of_mpirun), (_BY_MPIEXEC, _of_mpiexec))
    found = [report(match, text) for pattern, report in kinds for match in re.finditer(pattern, text)]
    return sorted(found, key=lambda each: each.begin)


def _of_torchrun(found: re.Match[str], text: str) -> Report:
    """It writes its line before it starts its ranks again, too."""
    box = _BOX_OF_TORCHRUN.search(text, found.end())
    box = box if box and not re.search(BY_TORCHRUN, text[found.end() : box.start()]) else None
    end = box.end() if box else _end_of_line(found, text)
    return Report(_said_by_torchrun(found), found.start(), end, whole=bool(box), begun=not box)


def _of_root_cause(found: re.Match[str], text: str) -> Report:
    return Report(_said_by_torchrun(found), found.start(), _end_of_line(found, text), whole=True)


def _said_by_torchrun(found: re.Match[str]) -> str:
    return f"its torchrun says that local rank {found['rank']} (pid {found['pid']}) {_how(found)}"


def _of_deepspeed(found: re.Match[str], text: str) -> Report:
    """launch.py does not say which rank it was."""
    return Report(f"its deepspeed says that a rank {_how(found)}", found.start(), _end_of_line(found, text))


def _how(found: re.Match[str]) -> str:
    code = int(found["code"])
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"


def _end_of_line(found: re.Match[str], text: str) -> int:
    return text.find("\n", found.end()) + 1 or len(text)


def _of_mpirun(found: re.Match[str], text: str) -> Report:
    box = _END_OF_BOX.search(text, found.end())
    end = box.end() if box else len(text)
    if found["signal"]:
        how = f"rank {found['killed']} on {found['node']} was killed by signal {found['signal']}"
        return Report(f"its mpirun says that {how}", found.start(), end, 128 + int(found["signal"]))
    how = f"rank {found['rank']} exited with code {found['code']}"
    return Report(f"its mpirun says that {how}", found.start(), end, int(found["code"]))


def _of_mpiexec(found: re.Match[str], text: str) -> Report:
    how = found["word"] or f"exit code {found['code']}"
    return Report(f"its mpiexec says of pid {found['pid']} on {found['node']}: {how}", found.start(), found.end())


def since_launcher_went_on(text: str) -> str:
    """What was said since a torchrun had started its ranks again that has said no more of them; the whole text where none has."""
    report = next(reversed(reported(text)), None)
    if not report or not report.begun:
        return text
    behind = text[report.end :]
    line = next((line for line in behind.split("\n") if line.strip() and not re.match(LOGGED_BY_TORCHRUN, line)), "")
    return behind if line and not line.endswith(BEGINS) else text  # of its own


def tells_only_that(line: str) -> bool:
    """Whether a line of a script, or of a program that has started others, says that something has failed, and not what."""
    return bool(_TELLS_THAT.search(line))
