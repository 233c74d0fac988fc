"""Restarts in place, as they are asked for: what is wrong with that is said before anything starts."""

from __future__ import annotations

import re

from ranklaunch.files import absolute
from ranklaunch.plan.model import Plan, Rounds
from ranklaunch.read import again, settings
from ranklaunch.read.reader import Reader

_OWN = re.compile(r"--?max[-_]restarts(?:=(?P<said>.*))?")  # of torchrun, accelerate, DeepSpeed


def rounds(plan: Plan, reader: Reader) -> Rounds | None:
    """None where there are to be none."""
    most = reader.get(settings.MAX_RESTARTS)
    if not most:
        return None
    _refuse_others(plan, reader)
    marks = tuple(absolute(path, reader.cwd) for path in reader.get(again.PROGRESS_FILE))
    return Rounds(most, reader.get(again.NO_RESTART_CODES), marks)


def _refuse_others(plan: Plan, reader: Reader) -> None:
    """A launcher that starts ranks again by itself does that on one node, and counts for itself: the two would undo each other."""
    program = plan.job.program
    own = {program.path, *program.args}
    for process in plan.processes:
        words = [word for word in process.argv if word not in own]
        for word, following in zip(words, (*words[1:], "")):
            found = _OWN.fullmatch(word)
            if found and (found["said"] if found["said"] is not None else following).strip() != "0":
                told = f"{word} {following}" if found["said"] is None else word
                both = f"{reader.quoted(settings.MAX_RESTARTS)} and {told} of {process.name}"
                reader.problem(f"{both}: each would start the ranks again; leave out one of them")
