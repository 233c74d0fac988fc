"""ignores_term.py [--code CODE --rank R]: prints "ready" and sleeps, and ignores SIGTERM and SIGINT: only SIGKILL ends it.

With --rank, rank R exits with CODE on SIGUSR1; the others ignore that too.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--code", type=int, default=1)
parser.add_argument("--rank", metavar="R")
options, _ = parser.parse_known_args()

chosen = options.rank is not None and options.rank == os.environ.get("RANK")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, (lambda number, frame: os._exit(options.code)) if chosen else signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
