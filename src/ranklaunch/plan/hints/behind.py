"""Hints about options of ranklaunch that stand after the program. They go to the program, which may know them, or not."""

from __future__ import annotations

from ranklaunch.env.job import Program
from ranklaunch.plan.hints.unknown import elsewhere
from ranklaunch.plan.planning import every_variable

_TORCHRUNS = ("__nproc_per_node", "__nnodes", "__node_rank")


def names(program: Program) -> tuple[str, ...]:
    """Return the names of ranklaunch's options among the program's arguments, in their order."""
    words = dict.fromkeys(word.partition("=")[0] for word in program.args if word.startswith("--"))
    known = {variable.option for variable in every_variable()} if words else set()
    return tuple(name for name in words if name in known)


def hint(program: Program) -> str:
    """Return the hint about options after the program that may be meant for ranklaunch, also under torchrun's names; "" for none."""
    misplaced = names(program)
    if misplaced:
        verb = "is passed" if len(misplaced) == 1 else "are passed"
        return f"{', '.join(misplaced)} after {program.path} {verb} to that program: put options of ranklaunch before it"
    # A module or another executable may be a launcher, to which torchrun's options belong.
    words = (word.partition("=")[0] for word in program.args if program.is_python and not program.module)
    launcher_option = next((word for word in words if word.replace("-", "_") in _TORCHRUNS), "")
    if not launcher_option:
        return ""
    own_option = elsewhere(launcher_option)
    return f"{launcher_option} after {program.path} is passed to that program: put {own_option}, ranklaunch's option, before it"
