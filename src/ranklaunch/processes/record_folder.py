"""Folder for the records of this node's ranks and launchers (ranklaunch.rankside), made before they start."""

from __future__ import annotations

import os

from ranklaunch.env.settings import BELOW, RECORDS_DIR
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.record import write_file
from ranklaunch.system import disk, tree
from ranklaunch.verdict import folders

PRIVATE = 0o700


class Recording:
    """Records folder of one round; with a launcher that starts ranks on all nodes, also the pointer file by which ranks find it."""

    def __init__(self, round_folder: str) -> None:
        self._round_folder = round_folder
        self._pointer = ""

    def variables(self, plan: Plan) -> dict[str, str]:
        """Make the folder, and return the variable that names it; its value is "" (record nothing) if the folder cannot be made."""
        value = next((each.value for each in plan.recorders.variables if each.name == RECORDS_DIR), "")
        if not value:
            return {}
        folder = folders.records(self._round_folder, plan.job.node_index)
        try:
            disk.make_folder(os.path.dirname(folder))
            os.makedirs(folder, PRIVATE, exist_ok=True)
            if value.startswith(BELOW):
                self._point(value[len(BELOW) :], os.path.abspath(folder))
        except (OSError, disk.NotRegularError):
            return {RECORDS_DIR: ""}
        return {RECORDS_DIR: value}

    def _point(self, pointers: str, folder: str) -> None:
        os.makedirs(pointers, PRIVATE, exist_ok=True)
        if os.path.islink(pointers) or os.stat(pointers).st_uid != os.geteuid():
            raise PermissionError(pointers)
        own = tree.identify(os.getpid())
        self._pointer = os.path.join(pointers, f"{os.uname().nodename}-{own.pid}-{own.start}")
        write_file(self._pointer, folder, 0o600)

    def close(self) -> None:
        if self._pointer:
            try:
                os.unlink(self._pointer)
                os.rmdir(os.path.dirname(self._pointer))
            except OSError:  # others use the folder too
                pass
