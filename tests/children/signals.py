"""Prints "ready", then the name of each signal that it gets; exits with 0 on the second SIGTERM."""

from __future__ import annotations

import signal

SHOWN = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGRTMIN}

# Blocked and waited for, not handled: each is printed whole, one after the other.
signal.pthread_sigmask(signal.SIG_BLOCK, SHOWN)
signal.alarm(600)  # not for ever: a test that goes wrong leaves nothing behind for long
print("ready", flush=True)
terminated = 0
while terminated < 2:
    name = signal.Signals(signal.sigwait(SHOWN)).name
    print(name, flush=True)
    terminated += name == "SIGTERM"
