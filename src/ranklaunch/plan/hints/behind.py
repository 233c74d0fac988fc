"""Options of ranklaunch behind the program, and so the program's own: the program may know them, or they stand in the
wrong place."""

from __future__ import annotations

from ranklaunch.env.job import Program
from ranklaunch.plan.hints.unknown import elsewhere
from ranklaunch.plan.planning import every_variable

_TORCHRUNS = ("__nproc_per_node", "__nnodes", "__node_rank")


def names(program: Program) -> tuple[str, ...]:
    """In their order."""
    words = dict.fromkeys(word.partition("=")[0] for word in program.args if word.startswith("--"))
    known = {variable.option for variable in every_variable()} if words else set()
    return tuple(name for name in words if name in known)


def hint(program: Program) -> str:
    """Return what to say of options behind the program that may be meant for ranklaunch, also under torchrun's names; "" for none."""
    own = names(program)
    if own:
        verb = "is an option" if len(own) == 1 else "are options"
        return f"{', '.join(own)} behind {program.path} {verb} of that program: those of ranklaunch stand before it"
    words = (word.partition("=")[0] for word in program.args if program.is_python and not program.module)  # others may be launchers
    other = next((word for word in words if word.replace("-", "_") in _TORCHRUNS), "")
    return f"{other} behind {program.path} is an option of that program: {elsewhere(other)} of ranklaunch stands before it" if other else ""
