"""Other users: words for a command as another user, and folders open to this user."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and util-linux: mounts, other users")


def as_user(uid: int) -> tuple[str, ...]:
    """Return words before a command. The user may read everything, as the interpreter may be in root's home, and write own files only."""
    capabilities = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search")
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *capabilities)


def as_user_alone(uid: int, gid: int) -> tuple[str, ...]:
    """Return words before a command, like as_user, but with the read permissions of a usual user, as in a container."""
    no_capabilities = ("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")
    return ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *no_capabilities)


def copied_for_all(folder: Path) -> str:
    """Copy ranklaunch into a folder; return an interpreter with which other users can run it, "" for none.

    The repository and the interpreter of these tests may be in folders that other users cannot read.
    """
    import jinja2
    import markupsafe

    import ranklaunch

    for package in (ranklaunch, jinja2, markupsafe):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    words = ("-c", "import jinja2, ranklaunch.entrypoints.main")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
    for interpreter in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [*as_user_alone(1000, 100), interpreter, *words], env=env, cwd="/", capture_output=True, timeout=60, check=False
            )
        except OSError:
            continue
        if done.returncode == 0:
            return interpreter
    return ""


def open_to_all(folder: Path) -> None:
    """Let other users enter and write a folder of pytest, which only its owner may enter by default."""
    folder.chmod(0o777)
    for parent in folder.parents:
        if parent.stat().st_uid == os.getuid() and not stat.S_IMODE(parent.stat().st_mode) & 0o001:
            parent.chmod(0o755)
