"""Prints steps with a loss, as training programs do. From step 10 on the loss of rank $WHO explodes. After a restart the loss stays small,
and the program ends soon."""

from __future__ import annotations

import os
import time

FIRST = os.environ.get("RANKLAUNCH_RESTART_COUNT", "0") == "0"
EXPLODES = FIRST and os.environ["RANK"] == os.environ["WHO"]
STEP_S = 0.1

for step in range(1, 600 if FIRST else 30):
    print(f"step {step} loss {5730.0 if EXPLODES and step >= 10 else 2.5}", flush=True)
    time.sleep(STEP_S)
