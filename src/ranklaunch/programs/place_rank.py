"""Wrapper that every launcher starts instead of a rank's program. It binds the rank to its cores and then executes the program, on
request under a debugger or behind a prefix command of the user.

The user's interpreter runs this file. So it imports nothing of ranklaunch and works with Python 3.7.

Arguments: those of the program. Settings: variables with the prefix RANKLAUNCH_PLACE_, removed before the program starts; in their values,
%XX is a byte. A list has one entry for all ranks, or one for each rank of the node (with BY=rank: of the job).
"""

import os
import sys
from typing import Dict, List, NoReturn  # noqa: UP035 - Python 3.7

PREFIX = "RANKLAUNCH_PLACE_"
# Variables of launchers with the rank; the first one that is set counts.
LOCAL_RANK = (
    "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "DEVICE_ID",
)  # fmt: skip
RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "RANK_ID")
NUMBER = "--ranklaunch-local-rank="  # first argument of torchrun's ranks with --virtual-local-rank, where every LOCAL_RANK is 0
WRONG, MISSING = 78, 69  # exit codes, as ranklaunch has them


def main(args: List[str]) -> NoReturn:  # noqa: UP006 - Python 3.7
    names = [name for name in os.environ if name.startswith(PREFIX)]
    settings = {name[len(PREFIX) :]: os.environ.pop(name) for name in names}
    kind, _, path = settings.get("PROGRAM", "").partition(":")
    path = plain(path)
    if not path:
        end(WRONG, "the launcher did not pass on " + PREFIX + "PROGRAM, which names the program: forward all variables " + PREFIX + "*")
    if os.environ.get("MS_ROLE") == "MS_SCHED":  # msrun starts its scheduler with the same command
        become(program(kind, path, args))
    local_rank = number(LOCAL_RANK)
    if args and args[0].startswith(NUMBER):
        local_rank = int(args.pop(0)[len(NUMBER) :])
    before = []
    if "CORES" in settings:
        bind(chosen(settings["CORES"], ":", local_rank))
    if "MEMORY" in settings and chosen(settings["MEMORY"], ":", local_rank):
        before += ["numactl", "-m", chosen(settings["MEMORY"], ":", local_rank)]
    if "PREFIX" in settings:
        entry = chosen(settings["PREFIX"], ":", number(RANK) if settings.get("BY") == "rank" else local_rank)
        before += [plain(word) for word in entry.split(",") if entry]
    become(before + (debugged(settings, kind, path, args, local_rank) if "DEBUGPY" in settings else program(kind, path, args)))


def plain(text: str) -> str:
    """Return the text with each %XX replaced by its byte."""
    first, *parts = text.split("%")
    return os.fsdecode(os.fsencode(first) + b"".join(bytes([int(part[:2], 16)]) + os.fsencode(part[2:]) for part in parts))


def number(names: tuple) -> int:  # type: ignore[type-arg]
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), 0)


def chosen(text: str, separator: str, index: int) -> str:
    entries = text.split(separator)
    if len(entries) > 1 and index >= len(entries):
        end(WRONG, f"the list has entries for {len(entries)} ranks, but none for rank index {index}: {text}")
    return entries[index] if len(entries) > 1 else entries[0]


def bind(cores: str) -> None:
    numbers = set()
    for part in cores.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    try:
        os.sched_setaffinity(0, numbers)
        bound = os.sched_getaffinity(0)
    except OSError as error:
        end(WRONG, f"cannot bind to cores {cores}: {error.strerror}; set RANKLAUNCH_BIND=none to bind no cores")
    if bound != numbers:  # the kernel silently drops cores that the container does not have
        has = f"of these the container has only {sorted(bound)}"
        end(WRONG, f"cannot bind to cores {cores}: {has}; set RANKLAUNCH_BIND=none to bind no cores")


def program(kind: str, path: str, args: List[str]) -> List[str]:  # noqa: UP006 - Python 3.7
    if kind in ("python", "module"):
        return [sys.executable, "-u"] + (["-m"] if kind == "module" else []) + [path] + args
    # DeepSpeed takes this wrapper for a Python program and adds the option.
    if args and args[0] == "--local_rank=" + os.environ.get("LOCAL_RANK", "-"):
        args = args[1:]
    return (["bash"] if kind == "bash" else []) + [path] + args


def debugged(settings: Dict[str, str], kind: str, path: str, args: List[str], local_rank: int) -> List[str]:  # noqa: UP006 - Python 3.7
    import importlib.util

    if not importlib.util.find_spec("debugpy"):
        remedy = "pip install debugpy, or remove --debugpy (RANKLAUNCH_DEBUGPY)"
        end(MISSING, f"{sys.executable} has no package debugpy: {remedy}")
    host, _, port = settings["DEBUGPY"].rpartition(":")
    listen = ["--listen", f"{host}:{int(port) + local_rank}", "--configure-subProcess", settings.get("CHILDREN", "false")]
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # without it, debugpy warns at each start of modules frozen into Python
    wait = ["--wait-for-client"] if "WAIT" in settings else []
    return [sys.executable, "-u", "-m", "debugpy"] + listen + wait + (["-m"] if kind == "module" else []) + [path] + args


def become(words: List[str]) -> NoReturn:  # noqa: UP006 - Python 3.7
    try:
        os.execvp(words[0], words)
    except OSError as error:
        end(MISSING, f"cannot start {words[0]!r}: {error.strerror}")


def end(code: int, text: str) -> NoReturn:
    sys.stderr.write("ranklaunch: " + text + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
