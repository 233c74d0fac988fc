"""Variables of all platforms, and the usual ways to find a node's index, the number of its start, a program and folders."""

from __future__ import annotations

import re

from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable, platform_text
from ranklaunch.env.settings import ATTEMPT, LOG_DIR
from ranklaunch.files import join
from ranklaunch.verdict import folders

USUAL_HOSTFILE = "/job/hostfile"  # where DeepSpeed looks
HOSTFILE = Variable(
    "hostfile", ("RANKLAUNCH_HOSTFILE",), parse.text, "", "file with a line `HOST slots=N` for each node, in node order",
    option="--hostfile", default_text=f"{USUAL_HOSTFILE}, where it exists and nothing else says which nodes there are",
)  # fmt: skip

HOSTS_FROM = Variable(
    "hosts_from", ("RANKLAUNCH_HOSTS_FROM",), parse.text, "",
    "file with the host of a node on each line, in node order, such as a PBS_NODEFILE; one that is there again counts once",
    option="--hosts-from",
)  # fmt: skip
HOSTS_COMMAND = Variable(
    "hosts_command", ("RANKLAUNCH_HOSTS_COMMAND",), parse.text, "",
    "command for a shell that writes the hosts of all nodes, in node order; run and check alone run it, check not from an --env-file",
    option="--hosts-command",
)  # fmt: skip
PLATFORM_FILE = Variable(
    "platform_file", ("RANKLAUNCH_PLATFORM_FILE",), parse.text, "",
    "file with rows for places of your own, as those of platforms.toml, TOML or JSON; they are asked first",
)  # fmt: skip
PER_RANK = Variable(
    "per_rank", ("RANKLAUNCH_PER_RANK",), parse.flag, False,
    "the platform starts a ranklaunch for each rank, which stands before it alone; methods spawn and plain", option="--per-rank",
    is_switch=True,
)  # fmt: skip
NAMING: tuple[Variable[object], ...] = (HOSTS_FROM, HOSTS_COMMAND)
RUN_ID = platform_text(
    "run_id",
    (
        "RANKLAUNCH_RUN_ID",
        "BATCH_JOB_ID",
        "SLURM_JOB_ID",
        "AWS_BATCH_JOB_ID",
        "CLOUD_ML_JOB_ID",
        "AZUREML_RUN_ID",
        "PBS_JOBID",
        "LSB_JOBID",
        "FLUX_JOB_ID",
        "PADDLE_JOB_ID",
    ),
    "id of the job, for its program: the same on all nodes, and in all attempts and restarts",
    default_text="made by node 0, and kept in the log folder for this job name and command",
)
OF_ALL = (*NAMING, PLATFORM_FILE, PER_RANK, RUN_ID)  # platforms


def per_rank(reader: Reader) -> bool:
    """Return True if the user says that the platform has started a ranklaunch for each rank."""
    return reader.given(PER_RANK) and reader.get(PER_RANK)


def index(reader: Reader, nodes: int, variable: Variable[int], what: str = "nodes") -> int:
    """Return the index of this node, as an option or a variable says it."""
    if nodes == 1 and reader.given(variable) and not reader.by_user(variable):
        return of_one_node(reader, variable)
    own = reader.get(variable)
    if nodes > 1 and not reader.given(variable):
        which = f"{variable.both} does not say" if len(variable.names) == 1 else f"none of {', '.join(variable.names)} says"
        reader.problem(f"{nodes} {what}, but {which} which one this is (0 to {nodes - 1})")
    elif own >= nodes:
        reader.problem(f"{reader.told(variable)}: expected 0 to {nodes - 1}, for {nodes} {what}")
    return min(own, nodes - 1)


def of_one_node(reader: Reader, variable: Variable[int]) -> int:
    """Return 0, the index of the only node. Warn if the platform's variable says another one."""
    reader.note(variable, "0", "one node")
    told = reader.candidates(variable)
    if told and re.fullmatch(r"0*[1-9][0-9]{0,8}", told[0].value.strip()):
        reader.warn(f"{told[0].source} is {told[0].value.strip()}, but the job has one node: this one trains by itself")
    return 0


# Whose folders are looked at, beside a node's own: each of a thousand that start at once would read a thousand.
FIRST_NODES = 16


def attempt(reader: Reader, nodes: int = 1, index: int = 0, job: str = "") -> int:
    """Return the number after the attempts whose folders are there: no earlier log is lost, and nodes that share a folder agree.

    job: name of the job's folder in the log folder, where jobs have one each.
    """
    if reader.given(ATTEMPT):
        return reader.get(ATTEMPT)
    logs = folders.job(reader.get(LOG_DIR), job) if job else reader.get(LOG_DIR)
    places = [folders.node(logs, node) for node in {index, *range(min(nodes, FIRST_NODES))}] if nodes > 1 else [logs]
    newest = {place: folders.newest(reader.files.names(place)) for place in places}
    last = max(newest.values())
    begun = last and newest.get(folders.node(logs, index), last) < last and not _ended(reader, newest, last)
    number = last if begun else last + 1
    reader.note(ATTEMPT, str(number), join(logs, folders.ATTEMPTS if nodes == 1 else folders.OF_NODES) if last else "default")
    return number


def _ended(reader: Reader, newest: dict[str, int], last: int) -> bool:
    """Return True if a node has ended this attempt. A node that starts now belongs to the next one then."""
    paths = (folders.attempt(place, last) for place, number in newest.items() if number == last)
    return any(reader.files.exists(join(path, folders.VERDICT)) for path in paths)
