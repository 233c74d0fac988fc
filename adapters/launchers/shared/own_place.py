"""This node's place in the job, for a comparison with a launcher's words."""

from __future__ import annotations

from collections.abc import Mapping

from ranklaunch.adapters.launchers.shared.accelerate import merge, usual
from ranklaunch.adapters.launchers.shared.against import Place
from ranklaunch.files import absolute
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader
from ranklaunch.typed import Optional


def of(job: Job, reader: Reader) -> Place:
    return Place(len(job.nodes), job.node_index, job.master, lambda path: _config(job, reader, path))


def _config(job: Job, reader: Reader, path: str) -> Optional[Mapping[str, object]]:
    """Return the values of a configuration of accelerate's, None if it cannot be read. path: "" for the usual one."""
    path = absolute(path, job.folder or reader.cwd) if path else usual.path(reader)
    try:
        text = reader.files.text(path, merge.MOST_BYTES) if path else ""
        return None if text is None else merge.loads(text, path)
    except (ValueError, RecursionError):
        return None
