"""told.py --code CODE --rank R [--others] [--after S]: prints "ready" and sleeps; on SIGUSR1 rank R exits with CODE.

On SIGUSR1 the other ranks do nothing or, with --others, exit with CODE S seconds later.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--code", type=int, default=42)
parser.add_argument("--rank", metavar="R", default="0")
parser.add_argument("--others", action="store_true")
parser.add_argument("--after", type=float, default=0, metavar="S")
options, _ = parser.parse_known_args()
chosen = options.rank == os.environ.get("RANK")

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
while signal.sigtimedwait({signal.SIGUSR1}, 600) and not chosen and not options.others:
    pass
if not chosen:
    time.sleep(options.after)
print(f"rank {os.environ.get('RANK')} exits with {options.code}", flush=True)
os._exit(options.code)
