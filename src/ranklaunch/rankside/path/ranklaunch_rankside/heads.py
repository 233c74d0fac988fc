"""Rank records and launcher records: variables and command line at exec, and the process that set the variables.

- *Variables*: the names in VARIABLES, from the environment at exec.
- *Top* of a rank: the topmost living process on the parent chain with the same variables (apart from addresses and ports), below the
  ranklaunch that owns the folder of records, and below a launcher.
- *Head* of a rank: the first Python process below a top. The head sets a mark in its environment, by which processes below it, even
  adopted ones, know that they are no heads. Two heads with one top are one rank.
"""

import os

from . import FOLDER, HEAD, LAUNCHERS, PROGRAM, records

VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE",
    "PMIX_RANK", "RANK_ID", "RANK_SIZE", "MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT",
    "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID",
)  # fmt: skip
# Those of VARIABLES that a script may change within a rank.
ADDRESSES = ("MASTER_ADDR", "MASTER_PORT", "MS_SCHED_HOST", "MS_SCHED_PORT", "JAX_COORDINATOR_ADDRESS")
SUPERVISOR = "RANKLAUNCH_OUTER_RUN"  # JSON list; begins with pid and start of the ranklaunch that supervises this node
ELASTIC = "TORCHELASTIC_RUN_ID"  # set for ranks by torch's elastic agent, also if a library of the user runs the agent
# Launchers that are not written in Python: name of the program, and of the launcher.
OTHER_LAUNCHERS = {
    "mpirun": "mpirun", "mpiexec": "mpirun", "mpirun.openmpi": "mpirun", "orterun": "mpirun", "orted": "mpirun", "prterun": "mpirun",
    "prte": "mpirun", "prted": "mpirun", "mpirun.mpich": "mpirun", "mpiexec.hydra": "mpirun", "hydra_pmi_proxy": "mpirun",
    "srun": "srun", "slurmstepd": "srun",
}  # fmt: skip
MOST_LEVELS = 64  # of parents that are checked
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python with a value in the next word
OF_RANKLAUNCH = os.path.join("ranklaunch", "programs") + os.sep  # programs of ranklaunch that run or execute the rank's program


def record_start(argv, index):
    """Write the records of this process. Return the launcher's name, "" for another process. index: True if a variable in INDEXES is
    set."""
    launcher, program = launcher_of(argv), os.environ.get(HEAD) == PROGRAM
    if launcher:
        details = {"name": launcher, **records.command(argv), "parent": _process(os.getppid()), "top": records.top(os.environ[FOLDER])}
        records.start(os.environ[FOLDER], "launcher", details)
        if program:
            os.environ[HEAD] = ""  # helpers of the launcher are no heads
    if (index or (program and not launcher)) and not _is_never_head(argv):
        _record_rank(argv)
    return launcher


def _record_rank(argv):
    variables, rank = _variables(os.environ), _rank(os.environ)
    text = ";".join((os.environ[FOLDER], *("%s=%s" % item for item in rank.items())))
    before = os.environ.get(records.MARK, "")
    if before.partition(";")[2] == text and not _is_launcher(os.getppid()):
        return
    top, parent, elastic = _top(rank)
    within = records.top(os.environ[FOLDER])
    os.environ[records.MARK] = "%d.%d;%s" % (*top, text)
    place = {"top": {"pid": top[0], "start": top[1]}, "within": within, "variables": variables, **records.command(argv)}
    records.start(os.environ[FOLDER], "rank", {**place, "parent": _process(parent), "launcher": _placed_by(parent, elastic)})


def _is_never_head(argv):
    """Return True for helpers of multiprocessing, msrun's scheduler, and programs of ranklaunch that execute the rank's program."""
    kind, name = program(argv)
    if kind == "-c":
        return name.startswith("from multiprocessing.")
    return os.environ.get("MS_ROLE") == "MS_SCHED" or OF_RANKLAUNCH in name


def program(argv):
    """Return the program of a Python command line: ("-m", module), ("-c", code) or ("", script); ("", "") without one."""
    words = iter(argv[1:])
    for word in words:
        if word in WITH_VALUE:
            next(words, "")
        elif not word.startswith("-") or word == "-":
            return "", word
        elif not word.startswith("--"):
            i = next((i for i, letter in enumerate(word) if letter in "mcWX"), 0)  # example: -um torch.distributed.run
            if i and word[i] in "mc":
                return "-" + word[i], word[i + 1 :] or next(words, "")
    return "", ""


def launcher_of(argv):
    """Return the name of the launcher that a Python command line runs, "" for none."""
    kind, path = program(argv)
    name = LAUNCHERS.get(path if kind == "-m" else path.rpartition("/")[2] if not kind else "", "")
    if name == "accelerate" and path.rpartition("/")[2] in ("accelerate", "accelerate.commands.accelerate_cli"):
        return name if "launch" in argv else ""  # other subcommands, such as `accelerate config`, start no ranks
    return name


def _variables(env):
    return {name: env[name] for name in VARIABLES if name in env}


def _rank(env):
    """Return the variables that identify a rank, with the id of torch's elastic agent."""
    rank = {name: value for name, value in _variables(env).items() if name not in ADDRESSES}
    return {**rank, ELASTIC: env[ELASTIC]} if ELASTIC in env else rank


def _top(rank):
    """Return (pid, start) of the top, the pid of its parent, and True if the parent lacks the elastic agent's id."""
    pid, folder, elastic = os.getpid(), os.environ[FOLDER], os.environ.get(ELASTIC)
    parent, start = records.parent_and_start(pid)
    environ = None  # environment of the top's parent
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
    """Return the name of the launcher that started the top, "ranklaunch" for ranklaunch itself, "" if unknown. parent: pid of the top's
    parent. elastic: True if the parent lacks the id of torch's elastic agent, so the parent is the agent."""
    if os.environ.get(SUPERVISOR, "").startswith("[%d, %d," % (parent, records.parent_and_start(parent)[1])):
        return "ranklaunch"
    argv = _argv(parent)
    name = argv[0].rpartition("/")[2] if argv else ""
    if name in OTHER_LAUNCHERS:
        return OTHER_LAUNCHERS[name]
    name_of_launcher = launcher_of(argv) if name.startswith("python") else LAUNCHERS.get(name, "")
    return name_of_launcher or ("torchrun" if elastic else "")
