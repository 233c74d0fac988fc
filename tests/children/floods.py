"""floods.py [--rank R --code CODE]: prints "ready" and then lines without end, as fast as they are taken.

With --rank, rank R exits with CODE on SIGUSR1. Others ignore that; SIGTERM ends them.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

LINES = b"".join(b"line %d of a flood\n" % i for i in range(500))

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--rank", metavar="R")
parser.add_argument("--code", type=int, default=42)
options, _ = parser.parse_known_args()
chosen = options.rank is not None and options.rank == os.environ.get("RANK")

signal.signal(signal.SIGUSR1, (lambda number, frame: os._exit(options.code)) if chosen else signal.SIG_IGN)
print("ready", flush=True)
deadline = time.monotonic() + 600
while time.monotonic() < deadline:
    os.write(1, LINES)
