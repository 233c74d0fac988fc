"""Prints "ready" and sleeps until a signal ends it. Arguments are ignored: they mark it in a list of processes."""

from __future__ import annotations

import signal
import time

signal.signal(signal.SIGINT, signal.SIG_DFL)  # ended by the signal itself, without Python's traceback
print("ready", flush=True)
time.sleep(600)  # not for ever: a test that goes wrong leaves nothing behind for long
