"""Choice of the method for programs that start ranks themselves: launchers, and scripts with launchers.

Such a program runs once on each node. It is refused if the job would be started more than once, or if the launcher's options contradict
this node's place in the job.
"""

from __future__ import annotations

from collections.abc import Sequence

from ranklaunch.adapters.launchers.shared import place_conflicts, user_options
from ranklaunch.adapters.launchers.shared.place_conflicts import Place
from ranklaunch.adapters.launchers.shared.scripts.rank_scripts import Script
from ranklaunch.adapters.launchers.shared.starters import Found
from ranklaunch.adapters.launchers.shared.user_options import DEVICE_WORDS
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import METHOD, SLOTS, usable_devices
from ranklaunch.errors import number
from ranklaunch.redact import redact
from ranklaunch.showing import clipped

_NEEDS_A_CLUSTER = "which needs one cluster of all nodes"
_ONLY_THE_RUN = "; only the run shows whether they are this node's ranks of the job"


def of_launcher(job: Job, reader: Reader, command: Found, by_user: tuple[str, str] | None, *, starts_once: bool) -> tuple[str, str]:
    """Return the method for a program that is a launcher, and the reason. Refuse if its ranks, or the job, would be started more than once.

    by_user: the requested method and its setting, None without a request. starts_once: the requested method starts the program once on
    each node.
    """
    served = _served_by(job, reader, [command], by_user[0] if by_user else "")
    if served:
        return by_user or (served, f"the program is {command.name}, {_NEEDS_A_CLUSTER}")
    wrong = place_conflicts.reason(command, _place(job, reader), reader.env) if not by_user else ""
    if command.is_run_within(job.program):
        reader.problem(
            f"the program is {command.name}, which would start the same job below this one: write the program itself (the image's "
            "ENTRYPOINT may be a ranklaunch run already); a job of its own needs another --job-name and another --log-dir"
        )
    elif by_user and by_user[0] == command.starter.cluster:
        reader.problem(
            f"the program is {command.name}, which works on its own cluster, and {reader.described(METHOD)} starts one already: write "
            f"{command.instead}, or choose method plain, which starts it once on each node"
        )
    elif by_user and not starts_once:
        reader.problem(
            f"the program is {command.name}, which starts ranks itself, and {reader.described(METHOD)} would start it for each rank: write "
            f"{command.instead}, or choose method plain, which starts it once on each node"
        )
    elif wrong:
        reader.problem(
            f"{len(job.nodes)} nodes, and the program is {command.name}, {wrong}: write {command.instead}, which starts the ranks of all "
            "nodes, or choose method plain, which starts it as it is on each node"
        )
    elif not by_user:
        _warn_of_ranks(job, reader, [command])
    shown = _ONLY_THE_RUN if job.has_peers and not command.starter.nodes else ""
    return by_user or ("plain", f"the program is {command.name}, which starts ranks itself{shown}")


def of_script(job: Job, reader: Reader, script: Script, by_user: tuple[str, str] | None) -> tuple[str, str]:
    """Return the method for a script that starts ranks, and the reason.

    The script runs once on each node with any requested method, except a method that starts the cluster for all commands of the script.
    """
    requested = by_user[0] if by_user else ""
    served = _served_by(job, reader, script.starts, requested)
    if served:
        return by_user or (served, f"{script.path} starts {script.name}, {_NEEDS_A_CLUSTER}")
    why = f"{script.path} starts ranks itself ({script.name})"
    name = "megatron" if requested == "megatron" else "plain"
    place = _place(job, reader)
    wrong = script.wrong(place)
    if wrong:
        reader.problem(
            f"{len(job.nodes)} nodes, and {script.path} starts {script.name}, {wrong}: pass it $NNODES, $NODE_RANK, $NPROC_PER_NODE, "
            f"$MASTER_ADDR and $MASTER_PORT, which ranklaunch sets for the script; or write {script.starts[0].instead}, which starts the "
            "ranks of all nodes; or "
            "choose method plain, which starts the script as it is on each node"
        )
        return name, why
    _warn_of_ranks(job, reader, script.starts, script.path)
    if script.shows_when_it_runs(place):
        why = f"{why}{_ONLY_THE_RUN}"
    if requested not in ("", name):
        reader.warn(f"{why}, so it is started once on each node, by method {name}, and not by {reader.described(METHOD)}")
    return name, why


def _served_by(job: Job, reader: Reader, starts: Sequence[Found], requested: str) -> str:
    """Return the method that starts the cluster for these commands: the requested one, or on several nodes the method of their row.

    "" if there is none, or if the user names an existing cluster.
    """
    methods = {start.starter.served_by for start in starts}
    method = next(iter(methods)) if len(methods) == 1 else ""
    if requested:
        return method if method == requested else ""
    has_cluster = any(reader.env.get(start.starter.own_cluster) for start in starts)
    return method if job.has_peers and job.nodes[0].slots and not (job.among or has_cluster) else ""


def _place(job: Job, reader: Reader) -> Place:
    return Place(len(job.nodes), job.node_index, job.master, reader=reader, folder=job.folder)


def _warn_of_ranks(job: Job, reader: Reader, starts: Sequence[Found], script: str = "") -> None:
    """Warn if every launcher starts more ranks than this node has slots, or has an invalid number of ranks. script: path of the script."""
    wrong = [text for text in (_wrong_ranks(job, reader, start) for start in starts) if text]
    if wrong and len(wrong) == len(starts):
        reader.warn(f"{script}: {wrong[0]}" if script else wrong[0])


def _wrong_ranks(job: Job, reader: Reader, start: Found) -> str:
    option, text = place_conflicts.ranks_here(start, len(job.nodes))
    count = number(text)
    if not text or user_options.is_unknown(text):
        return ""
    line = clipped(" ".join(redact.argv([user_options.shown(word) for word in (start.name, *start.words)])))
    if count is None:
        is_word = option != "--nproc_per_node" or text in DEVICE_WORDS
        return "" if is_word else f"`{line}`: {option} is {clipped(text)!r}: torchrun takes a number, auto, gpu, cpu, npu or xpu"
    room, source = _room(job, reader)
    exceeds = room and count > room
    remedy = f"write {option} {room}, in a script $NPROC_PER_NODE, or set {SLOTS.both}"
    return f"`{line}` starts {count} ranks on this node, which has {room} {source}: {remedy}" if exceeds else ""


def _room(job: Job, reader: Reader) -> tuple[int, str]:
    """Return the number of ranks for which this node has room, 0 if unknown, and the source: the user's slots, else the devices."""
    reading = reader.ledger.reading(SLOTS.value)
    if not reading or reading.source == "default":
        return 0, ""
    slots = f"slots, by {reading.source}"
    if reader.by_user(SLOTS):
        return job.node.slots, slots
    devices = usable_devices(reader, job.accelerator)
    if devices and devices[0] >= job.node.slots:
        return devices[0], f"{job.accelerator.upper()}s, by {devices[1]}"
    return (job.node.slots, slots) if job.accelerator != "cpu" else (0, "")
