"""sigwaits.py: prints "ready", then "woken" at each SIGUSR1, and exits with 0 at SIGTERM. In between it sleeps in sigwait.

--busy: it computes instead, for 60 seconds or until its standard input ends."""

from __future__ import annotations

import signal
import sys
import threading
import time


def compute(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


if "--busy" in sys.argv:
    threading.Thread(target=compute, args=(60,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    sys.exit()
signals = {signal.SIGUSR1, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", flush=True)
while signal.sigwait(signals) != signal.SIGTERM:
    compute(0.004)
    print("woken", flush=True)
