"""family.py [--stubborn] [--exit CODE]: starts a grandchild that escapes, prints "grandchild PID" and "ready", sleeps.

The grandchild has a session and process group of its own and its parent is gone; with --stubborn it ignores SIGTERM.
With --exit the program exits with CODE at once and leaves the grandchild behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--exit", type=int, metavar="CODE")
    options, _ = parser.parse_known_args()
    print(f"grandchild {start_grandchild(options.stubborn)}", flush=True)
    print("ready", flush=True)
    if options.exit is not None:
        sys.exit(options.exit)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    time.sleep(600)


def start_grandchild(stubborn: bool) -> int:
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        os.setsid()
        if os.fork() == 0:
            be_grandchild(stubborn, writing)
        os._exit(0)
    os.waitpid(between, 0)
    os.close(writing)
    return int(os.read(reading, 20))


def be_grandchild(stubborn: bool, writing: int) -> None:
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(writing, str(os.getpid()).encode())  # last, so that "ready" means that it already ignores what it should
    time.sleep(600)
    os._exit(0)


if __name__ == "__main__":
    main()
