"""times_out.py FILE [--rank R] [--says TEXT] [--term R=ignore|raise|SECONDS ...]: prints "ready"; when FILE is there, rank R says TEXT,
as gloo does after a time-out if nothing is said, and exits with 1. The others sleep in waits_for_rank().

At SIGTERM they die, but for those ranks R that save for SECONDS and exit with 0, raise an exception, or ignore it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from types import FrameType

GLOO = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"
)

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("file")
parser.add_argument("--rank", default="1", metavar="R")
parser.add_argument("--says", default=GLOO, metavar="TEXT")
parser.add_argument("--term", action="append", default=[], metavar="R=WHAT")
options, _ = parser.parse_known_args()
at_term = dict(word.split("=") for word in options.term).get(os.environ["RANK"], "")


def save(number: int, frame: FrameType | None) -> None:
    if at_term == "raise":
        msg = "interrupted at step 12"
        raise RuntimeError(msg)
    time.sleep(float(at_term))
    print("saved", flush=True)
    os._exit(0)


def waits_for_rank() -> None:
    while True:
        time.sleep(600)


if at_term == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif at_term:
    signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
if os.environ["RANK"] == options.rank:
    while not os.path.exists(options.file):
        time.sleep(0.02)
    print(options.says, file=sys.stderr, flush=True)
    sys.exit(1)
waits_for_rank()
