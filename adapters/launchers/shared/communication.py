"""Settings of communication libraries where the user has made none: the interface of all of them, HCCL's on Ascend, as ModelArts' own
launcher sets them, or better, and what makes them and Python record what they do.

Source: CANN's environment variable reference (HCCL_CONNECT_TIMEOUT, HCCL_WHITELIST_DISABLE, HCCL_SOCKET_IFNAME, HCCL_IF_IP); NCCL's
(NCCL_SOCKET_IFNAME); for gloo and TensorPipe PyTorch's page "Distributed communication package", "Choosing the network interface".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import BELOW, RECORDS_DIR
from ranklaunch.files import join, rankside
from ranklaunch.plan.model import Plan, Recorder, Recorders
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
MINDSPORE_RECOVERY = Variable(
    "mindspore_recovery", ("MS_ENABLE_TFT",), parse.text, "",
    "MindSpore's own recovery of faults, which reaches the ranks as it is; the plan warns of ARF",
)  # fmt: skip
RUN_DIR = Variable(
    "run_dir", ("RANKLAUNCH_RUN_DIR",), parse.text, "/tmp", "folder for private folders, of this run's keys and of what recorders write",
)  # fmt: skip

VARIABLES = (
    INTERFACE, CONNECT_TIMEOUT, WHITELIST_DISABLE, HCCL_INTERFACE, GLOO_INTERFACE, TP_INTERFACE, NCCL_INTERFACE,
    PROCESS_LOG_PATH, RECORDERS, RANKSIDE, STACKS, RUN_DIR, MINDSPORE_RECOVERY,
)  # fmt: skip
FAULTHANDLER = Recorder("PYTHONFAULTHANDLER", "1", "Python writes the stacks of a rank that crashes, or that is ended by SIGABRT")

RANKSIDE_PATH = rankside()
_ARF = r"\bARF\b(?![\"']?\s*:\s*0)"  # in {TTP:1,UCE:1,ARF:1}
_DEFAULT_ROUTE = r"(?m)^(\S+)\s+0{8}\s"


def environment(job: Job, reader: Reader) -> dict[str, str]:
    """Return variables to add for processes, of those that the user has not set; the reason of each is in the plan's values."""
    env: dict[str, str] = {}
    for variable, value, why in _wanted(job, reader):
        if not reader.given(variable):
            env[variable.names[-1]] = value
            reader.note(variable, value, why)
    return env


def _wanted(job: Job, reader: Reader) -> Iterator[tuple[Variable[Any], str, str]]:
    on_ascend = job.accelerator == "npu"
    if on_ascend:
        if reader.given(CONNECT_TIMEOUT) and not 120 <= reader.get(CONNECT_TIMEOUT) <= 7200:
            reader.warn(f"HCCL_CONNECT_TIMEOUT={reader.get(CONNECT_TIMEOUT)}: HCCL takes 120 to 7200 seconds")
        yield CONNECT_TIMEOUT, str(CONNECT_TIMEOUT.default), "default on Ascend: HCCL's own 120 s are short when nodes start apart"
        yield WHITELIST_DISABLE, WHITELIST_DISABLE.default, "default on Ascend: there is no list of addresses in a container"
    name = reader.get(INTERFACE) if on_ascend or reader.given(INTERFACE) else ""
    route = re.search(_DEFAULT_ROUTE, reader.text("/proc/net/route")) if on_ascend and not name and job.has_peers else None
    if route:
        name = route[1]
        reader.note(INTERFACE, name, "default route")
    # Without a name, each library finds its way alone. =NAME is an exact name for HCCL and NCCL, NAME for gloo and TensorPipe.
    if name:
        yield HCCL_INTERFACE if on_ascend else NCCL_INTERFACE, f"={name}", INTERFACE.value
        yield GLOO_INTERFACE, name, INTERFACE.value
        yield TP_INTERFACE, name, INTERFACE.value


def warn_of_recovery(reader: Reader) -> None:
    """Warn of ARF, which needs the other ranks alive (MindSpore's page on high availability)."""
    if reader.given(MINDSPORE_RECOVERY) and re.search(_ARF, reader.get(MINDSPORE_RECOVERY)):
        reader.warn(
            f"{MINDSPORE_RECOVERY.name} has ARF, by which the ranks that live wait until a failed one "
            "is started anew: ranklaunch ends all ranks at the first failure, so ARF does nothing here: "
            "take it out and let all ranks start anew (RANKLAUNCH_MAX_RESTARTS), or let MindCluster's "
            "taskd start the ranks in place of ranklaunch"
        )


def recorded(plan: Plan, reader: Reader) -> Plan:
    """Return the plan with variables that make processes record what they do."""
    job = plan.job
    if job.is_idle:
        return plan
    first = (*of_python(reader), *of_ranks(job, reader, bool(plan.followers)))
    if job.accelerator == "cpu" and not reader.given(RECORDERS):
        return replace(plan, recorders=Recorders(first))
    from ranklaunch.plan import recorders  # a job of CPUs needs none of it

    logs = folders.attempt(job.log_dir, job.attempt)
    return replace(plan, recorders=recorders.of(plan, reader, reader.peek(RECORDERS), _run_dir(reader), logs, first))


def _run_dir(reader: Reader) -> str:
    return reader.absolute(reader.peek(RUN_DIR))


def of_python(reader: Reader) -> tuple[Recorder, ...]:
    """Return Python's own recorder, unless the user has set it."""
    return () if FAULTHANDLER.name in reader.env or reader.peek(RECORDERS) == "off" else (FAULTHANDLER,)


def of_ranks(job: Job, reader: Reader, for_others: bool) -> tuple[Recorder, ...]:
    """Return variables by which every Python below a rank records itself (ranklaunch.rankside), the same on all nodes if for_others.

    for_others: node 0 starts the ranks of all nodes, so that its variables reach theirs. Each node's records belong into its own folder.
    """
    records = reader.peek(RANKSIDE)
    stacks = reader.get(STACKS) if reader.given(STACKS) else records
    if not (records or stacks):
        return ()
    others = [folder for folder in reader.env.get("PYTHONPATH", "").split(":") if folder != RANKSIDE_PATH]
    path = ":".join((RANKSIDE_PATH, *others)) if any(others) else RANKSIDE_PATH
    if not records:
        return (Recorder("PYTHONPATH", path, "RANKLAUNCH_STACKS: every Python writes its stacks when asked"),)
    records_dir = folders.records(folders.restart(folders.attempt(job.log_dir, job.attempt), job.restart), job.node_index)
    if for_others:
        import hashlib  # these methods alone

        mark = hashlib.sha256(f"{job.name}\0{reader.account.name}".encode(errors="surrogateescape")).hexdigest()[:8]
        records_dir = f"{BELOW}{join(_run_dir(reader), f'ranklaunch-records-{mark}')}"
    found = [
        Recorder("PYTHONPATH", path, "RANKLAUNCH_RANKSIDE: every Python records how it starts and how it ends"),
        Recorder(RECORDS_DIR, records_dir, "where these records go"),
    ]
    if not stacks:
        found.append(Recorder(STACKS.name, "off", f"{reader.told(STACKS)}: no handler for stacks"))
    return tuple(found)
