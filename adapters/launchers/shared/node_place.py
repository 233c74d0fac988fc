"""This node's place in the job, for a comparison with a launcher's words, and how many ranks these start here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared import place_conflicts, user_options
from ranklaunch.adapters.launchers.shared.accelerate import default_file, merge
from ranklaunch.adapters.launchers.shared.parsers import DEVICE_WORDS
from ranklaunch.adapters.launchers.shared.place_conflicts import Place
from ranklaunch.adapters.launchers.shared.starters import Found
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import SLOTS, usable_devices
from ranklaunch.errors import number
from ranklaunch.files import absolute
from ranklaunch.redact import redact


def of(job: Job, reader: Reader) -> Place:
    return Place(len(job.nodes), job.node_index, job.master, lambda path: _config(job, reader, path))


def warn_of_ranks(job: Job, reader: Reader, starts: Sequence[Found], script: str = "") -> None:
    """Warn of launchers that all start more ranks than this node has slots, or that are told no number. script: that has the commands."""
    wrong = [text for text in (_wrong_ranks(job, reader, found) for found in starts) if text]
    if wrong and len(wrong) == len(starts):
        reader.warn(f"{script}: {wrong[0]}" if script else wrong[0])


def _wrong_ranks(job: Job, reader: Reader, found: Found) -> str:
    option, text = place_conflicts.ranks_here(found, len(job.nodes))
    count = number(text)
    if not text or user_options.is_unknown(text):
        return ""
    line = showing.clipped(" ".join(redact.argv([user_options.shown(word) for word in (found.name, *found.words)])))
    if count is None:
        is_word = option != "--nproc_per_node" or text in DEVICE_WORDS
        return "" if is_word else f"`{line}`: {option} is {showing.clipped(text)!r}: torchrun takes a number, auto, gpu, cpu, npu or xpu"
    room, source = _room(job, reader)
    few = room and count > room
    remedy = f"write {option} {room}, in a script $NPROC_PER_NODE, or set {SLOTS.both}"
    return f"`{line}` starts {count} ranks on this node, which has {room} {source}: {remedy}" if few else ""


def _room(job: Job, reader: Reader) -> tuple[int, str]:
    """Return how many ranks this node is for, 0 if nobody says so, and the source: the user, else what it has devices for."""
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


def _config(job: Job, reader: Reader, path: str) -> Mapping[str, object] | None:
    """Return the values of a configuration of accelerate's, None if it cannot be read. path: "" for the usual one."""
    path = absolute(path, job.folder or reader.cwd) if path else default_file.path(reader)
    try:
        text = reader.files.text(path, merge.MOST_BYTES) if path else ""
        return None if text is None else merge.loads(text, path)
    except (ValueError, RecursionError):
        return None
