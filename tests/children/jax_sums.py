"""Sums over all processes of JAX in each step, as a training loop does. $ORDERS is JSON, {process: word}:
at step 3 a process does its word.

raise        raises ValueError
kill         kills itself by SIGKILL
exit         ends with 42

It writes the time of its word into the file $AT_FILE. With STEPS=N it ends after N steps; else it goes on. A process that finds
$CHECKPOINT begins behind the step in it, and obeys no order.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path


class Slow:
    """The last thing that a process does takes a second: modules go in the reverse order of their import."""

    def __del__(self, wait: Callable[[float], None] = time.sleep) -> None:
        wait(1)


sys.modules["slow"] = types.ModuleType("slow")
vars(sys.modules["slow"])["kept"] = Slow()

import jax  # noqa: E402
import numpy as np  # noqa: E402

STEPS = int(os.environ.get("STEPS", "1000000"))
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "/nonexistent"))
AT = 3


def obey(word: str) -> None:
    if word and "AT_FILE" in os.environ:
        Path(os.environ["AT_FILE"]).write_text(str(time.time()))
    if word == "raise":
        msg = "loss is nan"
        raise ValueError(msg)
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "exit":
        sys.exit(42)


def main() -> None:
    jax.distributed.initialize()
    from jax.experimental import multihost_utils

    orders = json.loads(os.environ.get("ORDERS", "{}"))
    begun = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    print("ready", jax.process_index(), "of", jax.process_count(), "devices", jax.local_device_count(), jax.device_count(), flush=True)
    for step in range(begun + 1, STEPS + 1):
        if step == AT and not begun:
            obey(orders.get(str(jax.process_index()), ""))
        total = multihost_utils.process_allgather(np.array([jax.process_index() + 1.0])).sum()
        if jax.process_index() == 0 and str(CHECKPOINT) != "/nonexistent":
            CHECKPOINT.write_text(str(step))
        print(f"step {step}/{STEPS} sum {total:g}", flush=True)
        time.sleep(0.1)


main()
