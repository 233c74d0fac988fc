"""Used as sitecustomize.py: sends SIGTERM when a module of ranklaunch is being imported.

STOP_ON_IMPORT: the last part of that module's name. STOP_WHOM: "itself", or "outer" for the parent of the process that imports it.
"""

from __future__ import annotations

import os
import signal
import sys


class Hook:
    """Finds no module: it only sees which is looked for."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith("ranklaunch.") and name.rpartition(".")[2] == os.environ.get("STOP_ON_IMPORT"):
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            os.kill(os.getppid() if os.environ.get("STOP_WHOM") == "outer" else os.getpid(), signal.SIGTERM)


sys.meta_path.insert(0, Hook())  # type: ignore[arg-type]
