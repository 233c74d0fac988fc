"""Options that ranklaunch has too, but which stand behind the program and so are the program's own: it may know them, or they stand in the
wrong place."""

from __future__ import annotations

from ranklaunch.plan.planning import every_variable
from ranklaunch.read.job import Program


def names(program: Program) -> tuple[str, ...]:
    """In their order."""
    found = dict.fromkeys(word.partition("=")[0] for word in program.args if word.startswith("--"))
    known = {variable.option for variable in every_variable()} if found else set()
    return tuple(name for name in found if name in known)


def hint(program: Program) -> str:
    found = names(program)
    verb = "is an option" if len(found) == 1 else "are options"
    return f"{', '.join(found)} behind {program.path} {verb} of that program: those of ranklaunch stand before it" if found else ""
