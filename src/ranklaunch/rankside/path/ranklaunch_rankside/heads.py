"""Rank records and launcher records: variables and command line at exec, and their source process.

*Variables*: the names in VARIABLES, from the environment at exec. *Top*: the topmost living process on the parent chain with equal
variables, addresses and ports aside, below the ranklaunch with the records' folder, and below a launcher. *Head*: the first Python
process below a top; a mark in the head's environment makes all processes below, even adopted ones, no heads. Two heads with one top
are one rank.
"""

import os

from . import FOLDER, HEAD, LAUNCHERS, PROGRAM, records

VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE",
    "PMIX_RANK", "RANK_ID", "RANK_SIZE", "MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT",
    "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID",
)  # fmt: skip
# Of these, what a script may set for the same rank.
ADDRESSES = ("MASTER_ADDR", "MASTER_PORT", "MS_SCHED_HOST", "MS_SCHED_PORT", "JAX_COORDINATOR_ADDRESS")
SUPERVISOR = "RANKLAUNCH_OUTER_RUN"  # begins with [pid, start of the ranklaunch that supervises this node
ELASTIC = "TORCHELASTIC_RUN_ID"  # torch's elastic agent gives it to its ranks, also where a library of the user's runs the agent
# Launchers that are no Python, by the name of their program.
OTHER_LAUNCHERS = {
    "mpirun": "mpirun", "mpiexec": "mpirun", "mpirun.openmpi": "mpirun", "orterun": "mpirun", "orted": "mpirun", "prterun": "mpirun",
    "prte": "mpirun", "prted": "mpirun", "mpirun.mpich": "mpirun", "mpiexec.hydra": "mpirun", "hydra_pmi_proxy": "mpirun",
    "srun": "srun", "slurmstepd": "srun",
}  # fmt: skip
MOST_LEVELS = 64
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python
OF_RANKLAUNCH = os.path.join("ranklaunch", "programs") + os.sep  # programs of ours that run the rank's program, or become it


def record_start(argv, index):
    """Write the records of this process. Return the launcher's name, "" if this is none. index: a rank's number is among the variables."""
    launcher, program = launcher_of(argv), os.environ.get(HEAD) == PROGRAM
    if launcher:
        details = {"name": launcher, **records.command(argv), "parent": _process(os.getppid()), "top": records.top(os.environ[FOLDER])}
        records.start(os.environ[FOLDER], "launcher", details)
        if program:
            os.environ[HEAD] = ""  # its helpers are no heads
    if (index or (program and not launcher)) and not _is_never_head(argv):
        _record_rank(argv)
    return launcher


def _record_rank(argv):
    own, rank = _variables(os.environ), _rank(os.environ)
    text = ";".join((os.environ[FOLDER], *("%s=%s" % item for item in rank.items())))
    before = os.environ.get(records.MARK, "")
    if before.partition(";")[2] == text and not _is_launcher(os.getppid()):
        return
    top, parent, elastic = _top(rank)
    within = records.top(os.environ[FOLDER])
    os.environ[records.MARK] = "%d.%d;%s" % (*top, text)
    place = {"top": {"pid": top[0], "start": top[1]}, "within": within, "variables": own, **records.command(argv)}
    records.start(os.environ[FOLDER], "rank", {**place, "parent": _process(parent), "launcher": _placed_by(parent, elastic)})


def _is_never_head(argv):
    """True for helpers of multiprocessing, msrun's scheduler, and programs of ranklaunch that become the rank's program."""
    kind, what = program(argv)
    if kind == "-c":
        return what.startswith("from multiprocessing.")
    return os.environ.get("MS_ROLE") == "MS_SCHED" or OF_RANKLAUNCH in what


def program(argv):
    """Return the program of a Python command line: ("-m", module), ("-c", code) or ("", script); "" and "" for standard input."""
    words = iter(argv[1:])
    for word in words:
        if word in WITH_VALUE:
            next(words, "")
        elif not word.startswith("-") or word == "-":
            return "", word
        elif not word.startswith("--"):
            i = next((i for i, letter in enumerate(word) if letter in "mcWX"), 0)  # -um torch.distributed.run
            if i and word[i] in "mc":
                return "-" + word[i], word[i + 1 :] or next(words, "")
    return "", ""


def launcher_of(argv):
    """Return the name of the launcher that a Python command line runs, "" for none."""
    kind, what = program(argv)
    name = LAUNCHERS.get(what if kind == "-m" else what.rpartition("/")[2] if not kind else "", "")
    if name == "accelerate" and what.rpartition("/")[2] in ("accelerate", "accelerate.commands.accelerate_cli"):
        return name if "launch" in argv else ""  # `accelerate config` and others start nothing
    return name


def _variables(env):
    return {name: env[name] for name in VARIABLES if name in env}


def _rank(env):
    """Return the variables for a process's rank, and for its launch of torch's elastic agent."""
    rank = {name: value for name, value in _variables(env).items() if name not in ADDRESSES}
    return {**rank, ELASTIC: env[ELASTIC]} if ELASTIC in env else rank


def _top(rank):
    """Return (pid, start) of the top, the pid of its parent, and True if the parent lacks the elastic agent's id."""
    pid, folder, elastic = os.getpid(), os.environ[FOLDER], os.environ.get(ELASTIC)
    parent, start = records.parent_and_start(pid)
    environ = None  # of the top's parent
    for _ in range(MOST_LEVELS):
        environ = _environ(parent)
        if environ is None or environ.get(FOLDER) != folder or _rank(environ) != rank or _is_launcher(parent):
            break
        pid = parent
        parent, start = records.parent_and_start(pid)
    return (pid, start), parent, bool(elastic and (environ is None or environ.get(ELASTIC) != elastic))


def _environ(pid):
    """Return the environment of a process at exec, None if it cannot be read."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            pairs = os.fsdecode(file.read()).split("\0")
    except OSError:
        return None
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def _is_launcher(pid):
    argv = _argv(pid)
    name = argv[0].rpartition("/")[2] if argv else ""
    return name in OTHER_LAUNCHERS or bool(launcher_of(argv) if name.startswith("python") else LAUNCHERS.get(name))


def _argv(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return os.fsdecode(file.read()).split("\0")[:-1]
    except OSError:
        return []


def _process(pid):
    return {"pid": pid, "start": records.parent_and_start(pid)[1], **records.command(_argv(pid))}


def _placed_by(parent, elastic):
    """Return the launcher's name if the top's parent is a launcher, "ranklaunch" if it is ranklaunch, else "". elastic: as in _top."""
    if os.environ.get(SUPERVISOR, "").startswith("[%d, %d," % (parent, records.parent_and_start(parent)[1])):
        return "ranklaunch"
    argv = _argv(parent)
    name = argv[0].rpartition("/")[2] if argv else ""
    if name in OTHER_LAUNCHERS:
        return OTHER_LAUNCHERS[name]
    name_of_launcher = launcher_of(argv) if name.startswith("python") else LAUNCHERS.get(name, "")
    return name_of_launcher or ("torchrun" if elastic else "")
