"""Prints "ready" and sleeps, and ignores SIGTERM and SIGINT: only SIGKILL ends it."""

from __future__ import annotations

import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
