"""The folder in which recorders keep what they have until it is evidence."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Recorders
from ranklaunch.supervise.record import Record, bequeath, make_private


@contextlib.contextmanager
def kept(recorders: Recorders, record: Record) -> Iterator[Callable[[str], bool]]:
    """Makes the folder, and removes it at the end; which of the variables processes may have. PyTorch ends a rank that cannot make its
    fifo, so that is tried first; no job fails for want of a recorder."""
    values = {each.name: each.value for each in recorders.variables}
    without = {name for name, value in values.items() if value.startswith(f"{recorders.folder}/")}
    made = False
    try:
        make_private(recorders.folder)
        made = True
        bequeath("recorders", recorders.folder)
        without = {recorders.fifo} & without
        _try_fifo(values.get(recorders.fifo, ""))
        without = set()
    except (OSError, ConfigError) as error:
        record.event("recorders", without=", ".join(sorted(without)), why=str(error))
    try:
        yield lambda name: name not in without
    finally:
        if made:
            shutil.rmtree(recorders.folder, ignore_errors=True)


def _try_fifo(stem: str) -> None:
    if stem:
        os.mkfifo(f"{stem}try.pipe", 0o600)
        os.unlink(f"{stem}try.pipe")
