"""Stand-in for a rank's program, started by every launcher in the program's place. The stand-in binds the rank to its cores, then
becomes the program, below a debugger or a command of the user if asked for. A program, not a module: the user's interpreter runs the
file, so the file imports nothing of ranklaunch and stays with Python 3.7.

Its arguments are the program's. Its settings stand in RANKLAUNCH_PLACE_ variables, hidden from the program; in their values, %XX is a
byte. A list has an entry for each rank of the node, or of the job if BY says so, or one for all.
"""

import os
import sys
from typing import Dict, List, NoReturn  # noqa: UP035 - Python 3.7

BEGINNING = "RANKLAUNCH_PLACE_"
# The first that is set says it; launchers set those of their own for each rank.
LOCAL_RANK = (
    "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "DEVICE_ID",
)  # fmt: skip
RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "RANK_ID")
NUMBER = "--ranklaunch-local-rank="  # first argument of torchrun's ranks with --virtual-local-rank, where LOCAL_RANK is 0 for all
WRONG, MISSING = 78, 69  # exit codes, as ranklaunch has them


def main(args: List[str]) -> NoReturn:  # noqa: UP006 - Python 3.7
    names = [name for name in os.environ if name.startswith(BEGINNING)]
    settings = {name[len(BEGINNING) :]: os.environ.pop(name) for name in names}
    kind, _, path = settings.get("PROGRAM", "").partition(":")
    path = plain(path)
    if not path:
        end(WRONG, "the launcher has not handed on " + BEGINNING + "PROGRAM, which says what to start")
    if os.environ.get("MS_ROLE") == "MS_SCHED":  # msrun starts its scheduler by the same command
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
    first, *others = text.split("%")
    return os.fsdecode(os.fsencode(first) + b"".join(bytes([int(other[:2], 16)]) + os.fsencode(other[2:]) for other in others))


def number(names: tuple) -> int:  # type: ignore[type-arg]
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), 0)


def chosen(text: str, between: str, index: int) -> str:
    entries = text.split(between)
    if len(entries) > 1 and index >= len(entries):
        end(WRONG, f"there are entries for {len(entries)} ranks and none for index {index}: {text}")
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
        end(WRONG, f"cannot bind to cores {cores}: {error.strerror}; RANKLAUNCH_BIND=none binds none")
    if bound != numbers:  # the kernel leaves out those that the container has not
        end(WRONG, f"cannot bind to cores {cores}: of these there are {sorted(bound)}; RANKLAUNCH_BIND=none binds none")


def program(kind: str, path: str, args: List[str]) -> List[str]:  # noqa: UP006 - Python 3.7
    if kind in ("python", "module"):
        return [sys.executable, "-u"] + (["-m"] if kind == "module" else []) + [path] + args
    if args and args[0] == "--local_rank=" + os.environ.get("LOCAL_RANK", "-"):  # of DeepSpeed, which takes this for the program
        args = args[1:]
    return (["bash"] if kind == "bash" else []) + [path] + args


def debugged(settings: Dict[str, str], kind: str, path: str, args: List[str], local_rank: int) -> List[str]:  # noqa: UP006 - Python 3.7
    import importlib.util

    if not importlib.util.find_spec("debugpy"):
        remedy = "pip install debugpy, or leave --debugpy (RANKLAUNCH_DEBUGPY) out"
        end(MISSING, f"{sys.executable} has no package debugpy: {remedy}")
    host, _, port = settings["DEBUGPY"].rpartition(":")
    listen = ["--listen", f"{host}:{int(port) + local_rank}", "--configure-subProcess", settings.get("CHILDREN", "false")]
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # or each start warns of modules that are frozen into Python
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
