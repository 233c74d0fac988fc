"""family.py [--stubborn] [--subreaper] [--hops] [--exit CODE]: a grandchild escapes; prints "grandchild PID" and "ready", sleeps.

The grandchild has a session and process group of its own and its parent is gone; with --stubborn it ignores SIGTERM.
With --subreaper the program adopts it; with --hops it starts a copy of itself and ends, a hundred times a second.
With --exit the program exits with CODE at once and leaves the grandchild behind.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--subreaper", action="store_true")
    parser.add_argument("--hops", action="store_true")
    parser.add_argument("--exit", type=int, metavar="CODE")
    options, _ = parser.parse_known_args()
    if options.subreaper:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    print(f"grandchild {start_grandchild(options.stubborn, options.hops)}", flush=True)
    print("ready", flush=True)
    if options.exit is not None:
        sys.exit(options.exit)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    time.sleep(600)


def start_grandchild(stubborn: bool, hops: bool) -> int:
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        os.setsid()
        if os.fork() == 0:
            be_grandchild(stubborn, hops, writing)
        os._exit(0)
    os.waitpid(between, 0)
    os.close(writing)
    return int(os.read(reading, 20))


def be_grandchild(stubborn: bool, hops: bool, writing: int) -> None:
    if stubborn or hops:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(writing, str(os.getpid()).encode())  # last, so that "ready" means that it already ignores what it should
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        time.sleep(0.01 if hops else 600)
        if hops and os.fork():
            os._exit(0)
    os._exit(0)


if __name__ == "__main__":
    main()
