"""killed.py [--signal NAME] [--after S] [--when FILE] [--rank R]: prints "ready", then kills itself; with --rank, only rank R does.

NAME is SIGKILL unless given; the other ranks sleep. With --when, once FILE is there.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import time

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--signal", default="SIGKILL", metavar="NAME", choices=[each.name for each in signal.Signals])
parser.add_argument("--after", type=float, default=0, metavar="S")
parser.add_argument("--when", metavar="FILE")
parser.add_argument("--rank", metavar="R")
options, _ = parser.parse_known_args()
chosen = signal.Signals[options.signal]

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if chosen not in {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(chosen, signal.SIG_DFL)
print("ready", flush=True)
if options.rank not in {None, os.environ.get("RANK", os.environ.get("RANK_ID"))}:
    time.sleep(600)
time.sleep(options.after)
while options.when and not os.path.exists(options.when):
    time.sleep(0.02)
os.kill(os.getpid(), chosen)
time.sleep(600)  # only a signal that does not kill, such as SIGSTOP, comes here
