"""Begin of the command: beside the package, so that no folder of the user's can take its place.

PYTHONPATH is the program's. Its folders come before Python's own, so a jinja2, a queue.py or a ranklaunch in them would be imported
here. From the first import on they come last; the environment, inherited by ranks, stays unchanged.
"""

from __future__ import annotations

import os
import sys

NEEDS_A_NEWER_ONE = 69  # as where something else is missing or too old


def script() -> None:
    """What `ranklaunch` on the command line calls."""
    if sys.version_info < (3, 9):  # noqa: UP036 - started from a folder that PYTHONPATH names, which pip has not looked at
        this = ".".join(map(str, sys.version_info[:2]))
        sys.stderr.write(f"ranklaunch: it needs Python 3.9 or newer; {sys.executable} is {this}\n")
        os._exit(NEEDS_A_NEWER_ONE)
    own_first()
    _end_by_interrupts()
    from ranklaunch.entrypoints.main import script as start

    start()


def _end_by_interrupts() -> None:
    """Let SIGINT end this process until a handler is set. Python's KeyboardInterrupt would be lost if an import has just
    called back, and the job would go on. Not as PID 1: the kernel would ignore the signal."""
    import signal

    if os.getpid() != 1 and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def own_first() -> None:
    """Move the folders of PYTHONPATH, and the folder with which Python was started, behind the rest. The folder of this very module stays
    in
    its place: the module may have been installed into a folder of PYTHONPATH."""
    if sys.flags.isolated:
        return
    named = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    folders = [*(named.split(os.pathsep) if named else ()), *([] if getattr(sys.flags, "safe_path", False) else sys.path[:1])]
    ours = {os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.__file__)}
    theirs = {os.path.abspath(folder) for folder in folders} - ours
    late = [folder for folder in sys.path if os.path.abspath(folder) in theirs]
    sys.path[:] = [folder for folder in sys.path if folder not in late] + late
