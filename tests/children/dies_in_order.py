"""dies_in_order.py FOLDER --first R [--gap S]: rank R exits with 41; the other exits with 42, S seconds after R is dead.

They meet in FOLDER, so R waits until the other knows it. SIGTERM does not keep the other from its own end.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("folder", type=Path)
parser.add_argument("--first", required=True, metavar="R")
parser.add_argument("--gap", type=float, default=0, metavar="S")
options, _ = parser.parse_known_args()
is_first = os.environ["RANK"] == options.first


def read(path: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().endswith("."):
            return path.read_text()
        time.sleep(0.001)
    msg = f"{path} did not come"
    raise SystemExit(msg)


def is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


if is_first:
    (options.folder / "first").write_text(f"{os.getpid()}.")
    read(options.folder / "second")
    os._exit(41)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
first = int(read(options.folder / "first").rstrip("."))
(options.folder / "second").write_text(".")
while not is_dead(first):
    pass
time.sleep(options.gap)
os._exit(42)
