"""saves_on_term.py [--takes S] [--says BYTES] [--writes FILE] [--ignores-usr1]: prints "ready" and sleeps; S seconds after SIGTERM prints
"saved".

Then it exits with 0. Before "saved" it writes FILE, and prints lines of together BYTES.
"""

from __future__ import annotations

import argparse
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--takes", type=float, default=0, metavar="S")
parser.add_argument("--says", type=int, default=0, metavar="BYTES")
parser.add_argument("--writes", metavar="FILE")
parser.add_argument("--ignores-usr1", action="store_true")
options, _ = parser.parse_known_args()

if options.ignores_usr1:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
# Blocked and waited for, not handled: SIGTERM cannot come between the check for it and the sleep.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
if signal.sigtimedwait({signal.SIGTERM}, 600):
    time.sleep(options.takes)
    if options.writes:
        Path(options.writes).write_text("1000")
    for _ in range(options.says // 50):
        print("tells".ljust(49, "."))
    print("saved", flush=True)
