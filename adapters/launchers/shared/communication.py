"""Settings of communication libraries where the user has made none: the interface of all of them, HCCL's on Ascend, as ModelArts' own
launcher sets them, or better, and what makes them and Python record what they do.

Source: CANN's environment variable reference (HCCL_CONNECT_TIMEOUT, HCCL_WHITELIST_DISABLE, HCCL_SOCKET_IFNAME, HCCL_IF_IP); NCCL's
(NCCL_SOCKET_IFNAME); for gloo and TensorPipe PyTorch's page "Distributed communication package", "Choosing the network interface".
"""

from __future__ import annotations

from ranklaunch.files import absolute, join, rankside, text_of
from ranklaunch.plan.model import Plan, Recorder, Recorders
from ranklaunch.read import parse
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import BELOW, RECORDS_DIR
from ranklaunch.values import replace
from ranklaunch.verdict import folders

INTERFACE = Variable(
    "interface", ("RANKLAUNCH_INTERFACE",), parse.text, "", "network interface of all communication between nodes",
    option="--interface", default_text="on Ascend, that of the default route where there are several nodes; else as each library chooses",
)  # fmt: skip
CONNECT_TIMEOUT = Variable("hccl_connect_timeout", ("HCCL_CONNECT_TIMEOUT",), parse.count, 1800, "seconds that HCCL waits for its peers")
WHITELIST_DISABLE = Variable("hccl_whitelist_disable", ("HCCL_WHITELIST_DISABLE",), parse.text, "1", "1: HCCL checks no list of addresses")
HCCL_INTERFACE = Variable(
    "hccl_socket_ifname", ("HCCL_IF_IP", "HCCL_SOCKET_IFNAME"), parse.text, "", "address or interface of HCCL's host network"
)
GLOO_INTERFACE = Variable("gloo_socket_ifname", ("GLOO_SOCKET_IFNAME",), parse.text, "", "interface of gloo: one exact name")
NCCL_INTERFACE = Variable("nccl_socket_ifname", ("NCCL_SOCKET_IFNAME",), parse.text, "", "interfaces of NCCL; =NAME is an exact name")
TP_INTERFACE = Variable("tp_socket_ifname", ("TP_SOCKET_IFNAME",), parse.text, "", "interface of TensorPipe: one exact name")
PROCESS_LOG_PATH = Variable(
    "ascend_process_log_path", ("ASCEND_PROCESS_LOG_PATH",), parse.text, "", "folder of CANN's own logs",
    default_text="below the log directory: one for each rank with method ranktable, else one for all, as a recorder",
)  # fmt: skip
RECORDERS = Variable(
    "recorders", ("RANKLAUNCH_RECORDERS",), parse.OneOf("on", "npu", "off"), "on", "recorders of Python, PyTorch and CANN, where you have "
    "not set them; npu: also those that change how torch_npu supervises itself",
)  # fmt: skip
RANKSIDE = Variable(
    "rankside", ("RANKLAUNCH_RANKSIDE",), parse.flag, True, "every Python below a rank records how it starts and how it ends, by a "
    "sitecustomize of ranklaunch's own",
)  # fmt: skip
STACKS = Variable(
    "stacks", ("RANKLAUNCH_STACKS",), parse.flag, True, "every Python below a rank writes its stacks when asked, by the same sitecustomize",
    default_text="that of RANKLAUNCH_RANKSIDE",
)  # fmt: skip
RUN_DIR = Variable(
    "run_dir", ("RANKLAUNCH_RUN_DIR",), parse.text, "/tmp", "folder for private folders, of this run's keys and of what recorders write",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (
    INTERFACE, CONNECT_TIMEOUT, WHITELIST_DISABLE, HCCL_INTERFACE, GLOO_INTERFACE, TP_INTERFACE, NCCL_INTERFACE,
    PROCESS_LOG_PATH, RECORDERS, RANKSIDE, STACKS, RUN_DIR,
)  # fmt: skip
FAULTHANDLER = Recorder("PYTHONFAULTHANDLER", "1", "Python writes the stacks of a rank that crashes, or that is ended by SIGABRT")

CONNECT_TIMEOUTS = range(120, 7201)
_ROUTES = "/proc/net/route"


def environment(job: Job, reader: Reader) -> dict[str, str]:
    """Variables to add for processes; the reason of each is in the plan's values."""
    return {**(_hccl(reader) if job.accelerator == "npu" else {}), **_interfaces(job, reader)}


def _hccl(reader: Reader) -> dict[str, str]:
    env = {}
    if not reader.given(CONNECT_TIMEOUT):
        env["HCCL_CONNECT_TIMEOUT"] = str(CONNECT_TIMEOUT.default)
        reader.ledger.note(
            CONNECT_TIMEOUT.value, env["HCCL_CONNECT_TIMEOUT"], "default on Ascend: HCCL's own 120 s are short when nodes start apart"
        )
    elif (seconds := reader.get(CONNECT_TIMEOUT)) not in CONNECT_TIMEOUTS:
        reader.warn(f"HCCL_CONNECT_TIMEOUT={seconds}: HCCL takes {CONNECT_TIMEOUTS[0]} to {CONNECT_TIMEOUTS[-1]} seconds")
    if not reader.given(WHITELIST_DISABLE):
        env["HCCL_WHITELIST_DISABLE"] = WHITELIST_DISABLE.default
        reader.ledger.note(WHITELIST_DISABLE.value, "1", "default on Ascend: there is no list of addresses in a container")
    return env


def _interfaces(job: Job, reader: Reader) -> dict[str, str]:
    """The same interface for everything, each in its own syntax: HCCL and NCCL want =name for an exact name, gloo and TensorPipe the bare
    name. Where nobody names one, those other than HCCL find their way better alone."""
    on_ascend = job.accelerator == "npu"
    if not on_ascend and not reader.given(INTERFACE):
        return {}
    name = reader.get(INTERFACE) or (_default_route(reader) if len(job.nodes) > 1 else "")
    if not name:
        return {}
    wanted = ((HCCL_INTERFACE if on_ascend else NCCL_INTERFACE, f"={name}"), (GLOO_INTERFACE, name), (TP_INTERFACE, name))
    env = {}
    for variable, value in wanted:
        if not reader.given(variable):
            env[variable.names[-1]] = value
            reader.ledger.note(variable.value, value, INTERFACE.value)
    return env


def _default_route(reader: Reader) -> str:
    text = text_of(reader.files, _ROUTES, 1 << 20)
    rows = [line.split() for line in text.splitlines()[1:]]
    name = next((row[0] for row in rows if len(row) > 1 and row[1] == "00000000"), "")
    if name:
        reader.ledger.note(INTERFACE.value, name, "default route")
    return name


def recorded(plan: Plan, reader: Reader) -> Plan:
    """The plan with what makes processes record what they do."""
    job = plan.job
    if job.is_idle:
        return plan
    first = (*of_python(reader), *of_ranks(job, reader, bool(plan.followers)))
    if job.accelerator == "cpu" and not reader.given(RECORDERS):
        return replace(plan, recorders=Recorders(first))
    from ranklaunch.plan import recorders  # a job of CPUs needs none of it

    mode = reader.get(RECORDERS) if reader.given(RECORDERS) else RECORDERS.default
    logs = folders.attempt(job.log_dir, job.attempt)
    return replace(plan, recorders=recorders.of(plan, reader, str(mode), _run_dir(reader), logs, first))


def _run_dir(reader: Reader) -> str:
    return absolute(str(reader.get(RUN_DIR) if reader.given(RUN_DIR) else RUN_DIR.default), reader.cwd)


def of_python(reader: Reader) -> tuple[Recorder, ...]:
    """Python's own recorder, unless the user has set it."""
    off = reader.given(RECORDERS) and reader.get(RECORDERS) == "off"
    return () if off or FAULTHANDLER.name in reader.env else (FAULTHANDLER,)


def of_ranks(job: Job, reader: Reader, for_others: bool) -> tuple[Recorder, ...]:
    """Variables by which every Python below a rank records itself (ranklaunch.rankside), the same on all nodes if for_others.

    for_others: node 0 starts the ranks of all nodes, so that its variables reach theirs. Each node's records belong into its own folder.
    """
    records = not reader.given(RANKSIDE) or reader.get(RANKSIDE)
    stacks = reader.get(STACKS) if reader.given(STACKS) else records
    if not (records or stacks):
        return ()
    folder = RANKSIDE_PATH
    others = [each for each in reader.env.get("PYTHONPATH", "").split(":") if each != folder]
    path = ":".join((folder, *others)) if any(others) else folder
    found = [Recorder("PYTHONPATH", path, _WHY_PATH if records else "RANKLAUNCH_STACKS: every Python writes its stacks when asked")]
    if records:
        found.append(Recorder(RECORDS_DIR, _records_dir(job, reader, for_others), _WHY_RECORDS))
    if not stacks:
        found.append(Recorder(STACKS.names[0], "off", f"{reader.told(STACKS)}: no handler for stacks"))
    return tuple(found)


RANKSIDE_PATH = rankside()
_WHY_PATH = "RANKLAUNCH_RANKSIDE: every Python records how it starts and how it ends"
_WHY_RECORDS = "where these records go"


def _records_dir(job: Job, reader: Reader, for_others: bool) -> str:
    if not for_others:
        return folders.records(folders.restart(folders.attempt(job.log_dir, job.attempt), job.restart), job.node_index)
    import hashlib  # these methods alone

    mark = hashlib.sha256("\0".join((job.name, reader.account.name)).encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{BELOW}{join(_run_dir(reader), f'ranklaunch-records-{mark}')}"
