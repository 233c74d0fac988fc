"""data_loader.py [--takes S --rank R] [--fail R]: a rank with a worker process in its group, as a data loader has.

Prints "ready". On SIGTERM it looks whether the worker lives, saves (S seconds on rank R), looks again, ends the worker, says "saved" and
exits with 0. The worker prints "worker ends" when SIGTERM reaches it. On SIGUSR1 rank --fail exits with 42.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--takes", type=float, default=0, metavar="S")
parser.add_argument("--rank", metavar="R")
parser.add_argument("--fail", metavar="R")
options, _ = parser.parse_known_args()
own_rank = os.environ.get("RANK")

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
worker = os.fork()
if worker == 0:
    if signal.sigtimedwait({signal.SIGTERM}, 600):
        print("worker ends", flush=True)
    os._exit(0)


def say(text: str) -> None:
    alive = os.waitpid(worker, os.WNOHANG) == (0, 0)
    print(text if alive else "worker gone", flush=True)


print("ready", flush=True)
received = signal.sigtimedwait({signal.SIGTERM, signal.SIGUSR1}, 600)
while received and received.si_signo == signal.SIGUSR1:
    if own_rank == options.fail:
        os._exit(42)
    received = signal.sigtimedwait({signal.SIGTERM, signal.SIGUSR1}, 600)
say("worker alive")
time.sleep(options.takes if own_rank == options.rank else 0)
say("worker still alive")
os.kill(worker, signal.SIGKILL)
print("saved", flush=True)
os._exit(0)
