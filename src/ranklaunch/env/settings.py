"""Variables that users set on every platform, and the Job made of them and of a platform's facts."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

from ranklaunch import showing
from ranklaunch.env import parse
from ranklaunch.env.job import ACCELERATORS, Job, Program, make_nodes
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.tasks import VARIABLES as OF_TASKS
from ranklaunch.env.tasks import Tasks
from ranklaunch.errors import counted
from ranklaunch.files import Files, join, which
from ranklaunch.verdict import folders

METHOD = Variable(
    "method", ("RANKLAUNCH_METHOD", "MA_RUN_METHOD"), parse.text, "", "how the ranks are started", option="--method",
    default_text="plain for a program that is a launcher; else ranktable with a rank table; else tensorflow with ps; else torchrun for "
    "more than one rank; else plain",
)  # fmt: skip
BY_MPI = ("mpirun", "mpi", "horovod")  # all names of one method; the last two are ModelArts' engines
PLATFORM = Variable(
    "platform", ("RANKLAUNCH_PLATFORM",), parse.text, "", "platform whose environment is read", option="--platform",
    default_text="the first platform that recognises the environment",
)  # fmt: skip
PYTHON = Variable(
    "python", ("RANKLAUNCH_PYTHON", "MA_SCRIPT_INTERPRETER"), parse.text, "",
    "interpreter of the user's program", "platform", option="--python", default_text="python, else python3, on PATH",
)  # fmt: skip
LOG_DIR = Variable(
    "log_dir", ("RANKLAUNCH_LOG_DIR", "MA_LOG_DIR"), parse.text, "./ranklaunch-logs",
    "folder of logs, plan, events and verdict", option="--log-dir", set_by="platform",
)  # fmt: skip
TEMPLATES = Variable(
    "templates", ("RANKLAUNCH_TEMPLATES",), parse.text, "", "folders of your own templates, with colons between them",
    option="--templates",
)  # fmt: skip
LOG_TAG = Variable(
    "log_tag", ("RANKLAUNCH_LOG_TAG",), parse.text, "[rank {{ rank }}] ",
    "template of the tag before each console line; knows rank, local_rank, node and host; none for plain",
    option="--log-tag",
)  # fmt: skip
PASS = Variable(
    "pass", ("RANKLAUNCH_PASS",), parse.text, "",
    "template of arguments that are appended to the program's; knows nodes, node_index, slots, first_rank, world_size, master_addr, "
    "master_port and job", option="--pass",
)  # fmt: skip
PRE_START = Variable(
    "pre_start", ("RANKLAUNCH_PRE_START",), parse.flag, True,
    "run ma-pre-start.sh and install pip-requirements.txt found beside the program, once per node, before launch",
    option="--pre-start",
)  # fmt: skip
# Files beside the program. Both spellings of the script are in the platform's documentation.
PRE_START_SCRIPTS = ("ma-pre-start.sh", "ma_pre_start.sh")
REQUIREMENTS = "pip-requirements.txt"
ONCE = Variable(
    "once", ("RANKLAUNCH_ONCE",), parse.text, "",
    "a command that a shell of node 0 runs once per attempt before launch; the other nodes wait for it",
    option="--once",
)  # fmt: skip
SAME: Variable[tuple[str, ...]] = Variable(
    "same", ("RANKLAUNCH_SAME",), parse.paths, (),
    "files and folders, with colons between them, that must have files of the same number, size and names on every node",
    option="--same",
)  # fmt: skip
WAIT_S = Variable(
    "wait_s", ("RANKLAUNCH_WAIT_S",), parse.seconds, 600.0,
    "deadline in seconds of each wait before launch; also of the wait for the other nodes, if RANKLAUNCH_MUSTER_TIMEOUT_S is not set",
    option="--wait-s",
)  # fmt: skip
GRACE_S = Variable(
    "grace_s", ("RANKLAUNCH_GRACE_S",), parse.grace, parse.GRACE_S, "seconds from the first signal to SIGKILL, for all ranks together; "
    "auto: 5 less than the platform gave to earlier attempts", option="--grace-s",
)  # fmt: skip
MUSTER = Variable(
    "muster", ("RANKLAUNCH_MUSTER",), parse.flag, True,
    "the nodes wait for each other before launch (muster), and report the first failure to each other; the same on every node",
    option="--muster",
)  # fmt: skip
# Ports computed from a job's number: PORTS_OF_A_JOB for each of JOBS jobs, from FIRST_PORT to 31999, below Linux' ephemeral ports. Their
# order: rendezvous, muster, sshd.
FIRST_PORT, PORTS_OF_A_JOB, JOBS = 20000, 4, 3000
MUSTER_PORT = Variable(
    "muster_port", ("RANKLAUNCH_MUSTER_PORT",), parse.port, 18889, "port on node 0 at which the nodes meet", option="--muster-port",
)  # fmt: skip
MUSTER_TIMEOUT_S = Variable(
    "muster_timeout_s", ("RANKLAUNCH_MUSTER_TIMEOUT_S",), parse.seconds, 600.0,
    "seconds for which the nodes wait for each other before launch, from the time at which the first is ready", option="--muster-timeout-s",
    default_text="as --wait-s",
)  # fmt: skip
MUSTER_ALLOW: Variable[tuple[str, ...]] = Variable(
    "muster_allow", ("RANKLAUNCH_MUSTER_ALLOW",), parse.names, (),
    "differences between the nodes to allow, by their names in the refusal, with commas between them; all: each that can be allowed",
    option="--muster-allow",
)  # fmt: skip
LOST_AFTER_S = Variable(
    "lost_after_s", ("RANKLAUNCH_LOST_AFTER_S",), parse.seconds_from(1), 20.0,
    "a node counts as lost after this many seconds without an answer from its host; at least 1", option="--lost-after-s",
)  # fmt: skip
END_TIMEOUT_S = Variable(
    "end_timeout_s", ("RANKLAUNCH_END_TIMEOUT_S",), parse.seconds, 600.0,
    "seconds for which a node whose ranks have succeeded waits for the ranks of the other nodes", option="--end-timeout-s",
)  # fmt: skip
SECRET = Variable(
    "secret", ("RANKLAUNCH_SECRET",), parse.text, "", "key of this job's muster, the same on every node",
    default_text="derived from the job's name",
)  # fmt: skip
SECRET_FILE = Variable(
    "secret_file", ("RANKLAUNCH_SECRET_FILE",), parse.text, "", "file with the key of this job's muster, such as a mounted Secret",
)  # fmt: skip
JOB_UID = Variable(
    "job_uid", ("RANKLAUNCH_JOB_UID",), parse.text, "", "the platform's id of this job, hard to guess and the same on every node: "
    "the key of the muster if no other is set", "platform",
)  # fmt: skip
OF_KEY = (*SECRET.names, *JOB_UID.names)  # variables of the muster's key; started programs do not get them
FEWER_RANKS = Variable(
    "fewer_ranks", ("RANKLAUNCH_FEWER_RANKS",), parse.flag, False, "a launcher that started fewer ranks than planned may succeed",
)  # fmt: skip
CHECK_BATCH = Variable(
    "check_batch", ("RANKLAUNCH_CHECK_BATCH",), parse.flag, True,
    "refuse batch sizes in the program's DeepSpeed configuration that do not fit the number of ranks; off: the program adapts them itself",
)  # fmt: skip
KNOWN_ERRORS = Variable(
    "known_errors", ("RANKLAUNCH_KNOWN_ERRORS",), parse.text, "", "folder of your own known errors, JSON or TOML", option="--known-errors",
)  # fmt: skip
STARTERS_FILE = Variable(
    "starters_file", ("RANKLAUNCH_STARTERS_FILE",), parse.text, "",
    "TOML or JSON file with your own rows for commands that start ranks themselves",
)  # fmt: skip
MAX_RESTARTS = Variable(
    "max_restarts", ("RANKLAUNCH_MAX_RESTARTS",), parse.count, 0, "restarts of all ranks in place without progress, after a failure",
)  # fmt: skip
CANN_FOLDERS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann", "/usr/local/Ascend/nnae/latest")
CANN_FOLDER = Variable(
    "cann_folder", ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"), parse.text, "", "folder in which CANN is installed", "image",
    default_text=" or ".join(CANN_FOLDERS),
)  # fmt: skip
ACCELERATOR = Variable(
    "accelerator", ("RANKLAUNCH_ACCELERATOR",), parse.OneOf(*ACCELERATORS), "", "npu, gpu or cpu", option="--accelerator",
    default_text="from the variables and device files of the container",
)  # fmt: skip
MASTER_ADDR = Variable(
    "master_addr", ("RANKLAUNCH_MASTER_ADDR",), parse.host, "", "host name or address of node 0, if the platform gives none",
    option="--master-addr", default_text="the host of node 0",
)  # fmt: skip
NODES = Variable("nodes", ("RANKLAUNCH_NODES",), parse.positive, 1, "number of nodes", option="--nodes")
SLOTS: Variable[tuple[int, ...]] = Variable(
    "slots", ("RANKLAUNCH_SLOTS",), parse.counts, (0,), "processes per node: one number, or one for each node (2,3); 0: one, on the CPU",
    option="--slots",
)  # fmt: skip
HOSTS: Variable[tuple[str, ...]] = Variable(
    "hosts", ("RANKLAUNCH_HOSTS",), parse.hosts, (), "host names or addresses of all nodes, in node order", option="--hosts",
)  # fmt: skip
NODE_INDEX = Variable("node_index", ("RANKLAUNCH_NODE",), parse.count, 0, "index of this node, from 0", option="--node", per_node=True)
ATTEMPT = Variable(
    "attempt", ("RANKLAUNCH_ATTEMPT",), parse.positive, 1, "number of this start of the job on this node, from 1", option="--attempt",
)  # fmt: skip
JOB_NAME = Variable(
    "job_name", ("RANKLAUNCH_JOB_NAME",), parse.text, "", "name of the job, the same on every node", option="--job-name",
)  # fmt: skip
# File names in the folder that RANK_TABLE_FILE names: of ModelArts and CCE, then of MindCluster.
RANK_TABLE_NAMES = ("jobstart_hccl.json", "hccl.json")
RANK_TABLE_FOLDERS = ("/user/config", "/user/serverid/devindex/config")
RANK_TABLE_PATHS = tuple(map(join, RANK_TABLE_FOLDERS, RANK_TABLE_NAMES))
RANK_TABLE = Variable(
    "rank_table", ("RANKLAUNCH_RANK_TABLE", "RANK_TABLE_FILE_V_1_0", "RANK_TABLE_FILE"), parse.text, "",
    "the rank table, or the folder in which the platform puts it", "platform", option="--rank-table",
    default_text=f"{' or '.join(RANK_TABLE_PATHS)}, if it exists",
)  # fmt: skip
TERMINATION_LOG = Variable(
    "termination_log", ("RANKLAUNCH_TERMINATION_LOG",), parse.text, "/dev/termination-log",
    "file whose text Kubernetes shows as the container's termination message; written only if it exists",
)  # fmt: skip
NPU_SIGNS = Variable(
    "npu_signs", ("ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"), parse.text, "",
    "set in containers with Ascend NPUs; their values are not read", "image",
)  # fmt: skip
GPU_SIGNS = Variable(
    "gpu_signs", ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_VERSION", "NCCL_VERSION"), parse.text, "",
    "set in containers with GPUs; their values are not read", "image",
)  # fmt: skip
VISIBLE_NPUS = Variable(
    "visible_npus", ("ASCEND_RT_VISIBLE_DEVICES",), parse.text, "", "NPUs that processes may use, of those in /dev; empty: none", "image",
    default_text="all",
)  # fmt: skip
VISIBLE_GPUS = Variable(
    "visible_gpus", ("CUDA_VISIBLE_DEVICES",), parse.text, "", "GPUs that processes may use, of those in /dev; empty: none", "image",
    default_text="all",
)  # fmt: skip
_DEVICES = {"npu": (r"davinci[0-9]+", VISIBLE_NPUS), "gpu": (r"nvidia[0-9]+", VISIBLE_GPUS)}
_NAMED_DEVICE = re.compile("[0-9]+|(?:GPU|MIG)-.+")
_HIDES_DEVICES = ("-1", "nodevfiles", "none", "void")  # hide all devices on purpose; Slurm sets NoDevFiles
ENV_FILE = Variable(
    "env_file", ("RANKLAUNCH_ENV_FILE",), parse.text, "",
    "file with the environment to read instead of the process's own: KEY=VALUE lines, JSON, or /proc/PID/environ", option="--env-file",
)  # fmt: skip
SPEC = Variable(
    "spec", ("RANKLAUNCH_SPEC",), parse.text, "",
    "plan the job of a JSON body that `spec modelarts` has written; --env-file adds the image's variables",
    option="--spec",
)  # fmt: skip
ROOT = Variable("root", ("RANKLAUNCH_ROOT",), parse.text, "", "folder below which paths are looked up (not run's program)", option="--root")
FORMATS = ("text", "json", "sh", "vscode")
FORMAT = Variable(
    "format", ("RANKLAUNCH_FORMAT",), parse.OneOf(*FORMATS), "text",
    "form of plan's output: text for people, json for tools, sh to paste into a shell, vscode to attach debuggers", option="--format",
)  # fmt: skip
ALL_NODES = Variable(
    "all_nodes", ("RANKLAUNCH_ALL_NODES",), parse.flag, False, "plan every node, in node order", option="--all-nodes", is_switch=True,
)  # fmt: skip
VERBOSE = Variable(
    "verbose", ("RANKLAUNCH_VERBOSE",), parse.flag, False, "plan shows every value and every rank", option="--verbose", is_switch=True,
)  # fmt: skip
SLURM = Variable(
    "slurm", ("RANKLAUNCH_SLURM",), parse.allocation, (0, 0),
    "plan as if in such an allocation of Slurm: nodes=4,gpus=8; hosts and the job's number are made up", option="--slurm",
    default_text="none",
)  # fmt: skip
BIND = Variable(
    "bind", ("RANKLAUNCH_BIND",), parse.OneOf("none", "cores"), "none", "cores: bind each rank to cores of its own", option="--bind",
)  # fmt: skip
BIND_CORES: Variable[tuple[int, ...]] = Variable(
    "bind_cores", ("RANKLAUNCH_BIND_CORES",), parse.cores, (), "cores for the ranks, such as 0-7,16-23; implies --bind cores",
    option="--bind-cores", default_text="one thread of each core that the container may use",
)  # fmt: skip
BIND_MEMORY = Variable(
    "bind_memory", ("RANKLAUNCH_BIND_MEMORY",), parse.flag, False, "also bind a rank's memory to the NUMA node of its cores, by numactl",
)  # fmt: skip
RANK_PREFIX = Variable(
    "rank_prefix", ("RANKLAUNCH_RANK_PREFIX",), parse.text, "", "template of a command before each rank, such as a profiler; knows "
    "rank, local_rank, node and host", option="--rank-prefix", default_text="none",
)  # fmt: skip
DEBUGPY = Variable(
    "debugpy", ("RANKLAUNCH_DEBUGPY",), parse.debug_port, 0, f"on ({parse.DEBUG_PORT}), or the port of a node's first rank for debugpy; "
    "each further rank has the next port", option="--debugpy", default_text="off", is_switch=True, may_take="[PORT]",
)  # fmt: skip
DEBUGPY_HOST = Variable(
    "debugpy_host", ("RANKLAUNCH_DEBUGPY_HOST",), parse.host, "127.0.0.1", "address at which debugpy listens", option="--debugpy-host",
)  # fmt: skip
DEBUGPY_WAIT = Variable(
    "debugpy_wait", ("RANKLAUNCH_DEBUGPY_WAIT",), parse.flag, False, "a rank starts when a debugger has attached to it",
    option="--debugpy-wait", is_switch=True,
)  # fmt: skip
DEBUG = Variable(
    "debug", ("RANKLAUNCH_DEBUG",), parse.flag, False, "make PyTorch log its rendezvous and sockets, for timeouts", option="--debug",
    is_switch=True,
)  # fmt: skip
DEBUG_SWITCHES = {"LOGLEVEL": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
NUMACTL = ("numactl", "it is a package of its own (numactl on Debian and Ubuntu)")
PLACING = (BIND, BIND_CORES, BIND_MEMORY, RANK_PREFIX, DEBUGPY)  # each may put a command before a rank

OUTER_RUN = "RANKLAUNCH_OUTER_RUN"
WHERE_IT_STANDS = RUN, RESTART_COUNT = ("RANKLAUNCH_RUN_ID", "RANKLAUNCH_RESTART_COUNT")  # set for the user's program
BELOW = "below:"  # prefix of a folder with one file for each node, which has the folder for the records of that node's ranks
RECORDS_DIR, RANK_HEAD = "RANKLAUNCH_RECORDS_DIR", "RANKLAUNCH_RANK_HEAD"  # read by ranklaunch.rankside, which repeats the names
HEAD_IS_PROGRAM = "program"  # value of RANK_HEAD for a program that is one rank, also without a rank's variables
SET_FOR_RANKS = (OUTER_RUN, *WHERE_IT_STANDS, RECORDS_DIR, RANK_HEAD)  # a rank may start a ranklaunch, which then inherits them

PLAN_VARIABLES: tuple[Variable[object], ...] = (FORMAT, ALL_NODES, VERBOSE, SPEC, SLURM)  # of the command plan only
VARIABLES: tuple[Variable[object], ...] = (
    ENV_FILE, ROOT,
    METHOD, PLATFORM, PYTHON, LOG_DIR, TEMPLATES, LOG_TAG, PASS, PRE_START, ONCE, SAME, WAIT_S, GRACE_S, ACCELERATOR, NODES, SLOTS,
    HOSTS, NODE_INDEX, MASTER_ADDR, JOB_NAME, ATTEMPT, RANK_TABLE, TERMINATION_LOG,
    MUSTER, MUSTER_PORT, MUSTER_TIMEOUT_S, MUSTER_ALLOW, LOST_AFTER_S, END_TIMEOUT_S, SECRET, SECRET_FILE, JOB_UID, FEWER_RANKS,
    CHECK_BATCH, KNOWN_ERRORS, STARTERS_FILE,
    *PLACING, DEBUGPY_HOST, DEBUGPY_WAIT, DEBUG, NPU_SIGNS, GPU_SIGNS, VISIBLE_NPUS, VISIBLE_GPUS, CANN_FOLDER,
    MAX_RESTARTS, *OF_TASKS,
)  # fmt: skip


def make_job(
    reader: Reader,
    program: Program,
    *,
    platform: str,
    name: str,
    attempt: int,
    hosts: Sequence[str],
    slots: Sequence[int],
    node_index: int,
    tasks: Tasks | None = None,
    accelerator: tuple[str, str] = ("cpu", "default"),
    instance_name: str = "",
    host_ips: tuple[str, ...] = (),
    host_ip: str = "",
    table_in_order: bool = True,
    only_launches: bool = False,
    env: tuple[tuple[str, str], ...] = (),
    folder: str = "",
    own_logs: bool = False,
) -> Job:
    """Return the job from a platform's facts and the user's own variables. Slots 0 (a CPU flavour) mean one process.

    accelerator: kind and source to assume without a sign in the container. tasks: the hosts' tasks, if these differ. only_launches: node 0
    of several starts the ranks of the other nodes and has none. folder: the platform's folder for the program, if any. own_logs: the
    platform's log folder is each node's own; else each of several nodes gets a folder of its own inside.
    """
    rank_table = _rank_table(reader)
    master = reader.get(MASTER_ADDR)
    node_hosts = [master, *hosts[1:]] if master else list(hosts)
    if not master:
        reader.note(MASTER_ADDR, node_hosts[0], "hosts")
    _warn_of_loopback(reader, node_hosts)
    counts = _at_least_one(tuple(slots))
    kind = reader.get(ACCELERATOR) or find_accelerator(reader, slots[node_index], bool(rank_table), accelerator)
    _warn_of_unreadable_lists(reader, kind)
    _warn_of_few_devices(reader, kind, slots[node_index])
    nodes = make_nodes(node_hosts, [0, *counts[1:]] if only_launches and len(counts) > 1 else counts)
    return Job(
        name=name,
        platform=platform,
        attempt=attempt,
        nodes=tasks.placed(nodes) if tasks else nodes,
        node_index=node_index,
        accelerator=kind,
        program=program,
        python=_python(reader, folder),
        log_dir=log_dir(reader, None if own_logs or len(hosts) == 1 else node_index),
        rank_table=rank_table,
        instance_name=instance_name,
        host_ips=host_ips,
        host_ip=host_ip,
        table_in_order=table_in_order,
        env=env,
        folder=folder,
    )


def _warn_of_loopback(reader: Reader, hosts: Sequence[str]) -> None:
    """Warn if the user's host of node 0 is a loopback name, unless all hosts are: one host then plays several nodes."""
    variable: Variable[object] = MASTER_ADDR if reader.is_set(MASTER_ADDR) else HOSTS
    if reader.by_user(variable) and parse.is_loopback(hosts[0]) and not all(map(parse.is_loopback, hosts)):
        reader.warn(
            f"{reader.described(variable)}: each of the {len(hosts)} nodes would look for node 0 on itself: set the host name or address "
            "by which the others reach node 0, unless all nodes run on one host"
        )


@functools.lru_cache(maxsize=4)
def _at_least_one(slots: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([max(1, n) for n in slots])


def log_dir(reader: Reader, node_index: int | None = None, job: str = "") -> str:
    """Return the log folder. In a folder that jobs share: the job's folder inside; in one that nodes share: the node's folder inside."""
    logs = reader.absolute(reader.get(LOG_DIR))
    logs = folders.job(logs, job) if job else logs
    return logs if node_index is None else folders.node(logs, node_index)


def spread(reader: Reader, variable: Variable[tuple[int, ...]], slots: tuple[int, ...], nodes: int) -> tuple[int, ...]:
    """Return the slots of every node from one number, or from one for each node; a list of another length is a problem."""
    if len(slots) == 1:
        return slots * nodes
    if len(slots) != nodes:
        reader.problem(f"{reader.quoted(variable)}: {len(slots)} numbers for {nodes} nodes: expected one number, or one for each node")
        return (max(slots),) * nodes
    return slots


def devices(reader: Reader) -> int:
    """Return the number of accelerators that processes of the container can use, and note it as slots."""
    counts = [count for count in (_devices(reader, kind) for kind in _DEVICES) if count]
    number, source = next((count for count in counts if count[0]), (0, "default"))
    reader.note(SLOTS, str(number), source)
    return number


def _devices(reader: Reader, kind: str) -> tuple[int, str] | None:
    """Return the number of devices of a kind that processes can use, and its source; None if the container has none."""
    present, variable = len(_device_files(reader, kind)), _DEVICES[kind][1]
    if not present:
        return None
    visible = visible_devices(reader, variable)
    return (present, "device files") if visible is None or visible >= present else (visible, variable.names[0])


def _device_files(reader: Reader, kind: str) -> list[str]:
    names = [name for name in reader.files.names("/dev") if re.fullmatch(_DEVICES[kind][0], name)]
    return sorted(names, key=lambda name: (len(name), name))


def _warn_of_unreadable_lists(reader: Reader, kind: str) -> None:
    """Warn of a list of visible devices that CUDA or CANN cannot read: 0-7, all, or a list in quotes. kind: the job's accelerator."""
    for each, (_, variable) in _DEVICES.items():
        files, value = _device_files(reader, each), reader.env.get(variable.names[0], "")
        wrong = next((entry for entry in _entries(value) if not _NAMED_DEVICE.fullmatch(entry)), "")
        if not wrong or wrong.lower() in _HIDES_DEVICES or not (files or each == kind):
            continue
        library, count = {"npu": "CANN", "gpu": "CUDA"}[each], visible_devices(reader, variable) or 0
        present = f"{counted(len(files), 'device file')}{': ' if files else ''}{showing.clipped(', '.join(files))}"
        reader.warn(
            f"{variable.names[0]}={showing.clipped(value)!r}: {showing.clipped(wrong)!r} is no device's number or id, so that {library} "
            f"sees {counted(count, 'device')} (/dev has {present}): write numbers with commas between and no quotes, such as 0,1"
        )


def _warn_of_few_devices(reader: Reader, kind: str, slots: int) -> None:
    """Warn if this node shall have more ranks than devices. No warning without devices in /dev, nor if the platform has warned already."""
    usable = usable_devices(reader, kind)
    if usable and usable[0] < slots and not any(warning.startswith(reader.described(SLOTS)) for warning in reader.warnings):
        count = f"{usable[0]} {kind.upper()}{'' if usable[0] == 1 else 's'}"
        remedy = f"set another number with {SLOTS.both}"
        reader.warn(f"{reader.described(SLOTS)}: {slots} ranks on this node, which has {count} ({usable[1]}); {remedy}")


def usable_devices(reader: Reader, kind: str) -> tuple[int, str] | None:
    """Return the number of devices of a kind that processes can use, MIG devices too, and its source; None without any."""
    result = _devices(reader, kind) if kind in _DEVICES else None
    if result and len(mig_devices(reader)) > result[0]:  # one device file may stand for several MIG devices
        return len(mig_devices(reader)), VISIBLE_GPUS.names[0]
    return result


def visible_devices(reader: Reader, variable: Variable[str]) -> int | None:
    """Return the number of devices that a process sees by this variable; None if it is not set.

    As in CUDA: an empty list hides all devices, and the first entry that is not a device ends the list. CUDA reads the number at the start
    of an entry: 0-7 is device 0.
    """
    value = reader.env.get(variable.names[0])
    if value is None:
        return None
    device = re.compile("[0-9].*|(?:GPU|MIG)-.+") if variable is VISIBLE_GPUS else _NAMED_DEVICE
    return sum(1 for _ in itertools.takewhile(device.fullmatch, _entries(value)))


def _entries(devices: str) -> list[str]:
    return [entry.strip() for entry in devices.split(",")]


def mig_devices(reader: Reader) -> tuple[str, ...]:
    """Return the MIG devices at the beginning of CUDA_VISIBLE_DEVICES. CUDA shows only the first of them to a process.

    Source: NVIDIA's MIG user guide, "CUDA visible devices".
    """
    entries = _entries(reader.env.get(VISIBLE_GPUS.names[0], ""))
    return tuple(itertools.takewhile(lambda entry: entry.startswith("MIG-"), entries))


def rank_table(reader: Reader) -> str:
    """Return the path of the rank table: the user's, else the first existing one of the platforms' paths; "" without one."""
    path = reader.get(RANK_TABLE)
    if path:
        return reader.absolute(rank_table_file(path, reader.files))
    return next(filter(reader.files.exists, RANK_TABLE_PATHS), "")


def rank_table_file(value: str, files: Files) -> str:
    """Return the rank table's path from RANK_TABLE_FILE, which names the file or its folder. The file may appear later."""
    if not files.is_dir(value) and (value.endswith(".json") or files.exists(value)):
        return value
    paths = [join(value, name) for name in RANK_TABLE_NAMES]
    wanted = RANK_TABLE_NAMES[value.rstrip("/") == RANK_TABLE_FOLDERS[1]]
    return next(filter(files.exists, paths), join(value, wanted))


def _rank_table(reader: Reader) -> str:
    path, candidates = rank_table(reader), reader.candidates(RANK_TABLE)
    if path:
        reader.note(RANK_TABLE, path, candidates[0].source if candidates else "platform file", candidates[1:])
    return path


def find_accelerator(reader: Reader, slots: int, table: bool, otherwise: tuple[str, str]) -> str:
    if slots == 0:
        kind, source = "cpu", "no accelerator in this container"
    else:
        kind, source = ("npu", "rank table") if table else next(_accelerator_signs(reader), otherwise)
    reader.note(ACCELERATOR, kind, source)
    return kind


def _accelerator_signs(reader: Reader) -> Iterator[tuple[str, str]]:
    """Yield the kind and the sign of each accelerator of the container."""
    for kind, variable, device in (("npu", NPU_SIGNS, "/dev/davinci_manager"), ("gpu", GPU_SIGNS, "/dev/nvidiactl")):
        if signs := reader.candidates(variable):
            yield kind, signs[0].source
        elif reader.files.exists(device):
            yield kind, device


def _python(reader: Reader, folder: str) -> str:
    python = reader.get(PYTHON)
    if python:
        return reader.absolute(python) if folder and "/" in python else python
    search = reader.env.get("PATH", "")
    name = "python3" if not which("python", search, reader.files) and which("python3", search, reader.files) else "python"
    reader.note(PYTHON, name, "PATH")
    return name
