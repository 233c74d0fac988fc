"""Trains nothing, in steps of known length, and writes down when each thing was: argv is a file. The first time it fails after step 6, and
goes on from step 2; in between it saves."""

from __future__ import annotations

import json
import os
import sys
import time

RANK, ROUND = os.environ["RANK"], int(os.environ["RANKLAUNCH_RESTART_COUNT"])
START_S, STEP_S, SAVE_S = 1.5, 0.25, 1.5
when: dict[str, float] = {}


def say(text: str, name: str) -> None:
    print(text, flush=True)
    when[name] = time.time()


def leave() -> None:
    with open(f"{sys.argv[1]}.{ROUND}.{RANK}", "w", encoding="utf-8") as file:
        json.dump(when, file)


time.sleep(START_S)
for step in range(3, 11) if ROUND else range(1, 7):
    time.sleep(STEP_S)
    say(f" iteration {step:8d}/      10 | consumed samples: 1 |", f"step {step}")
    if step == 4 and not ROUND:
        say("saving checkpoint at iteration       4 to /ckpt", "saving")
        time.sleep(SAVE_S)
        say("  successfully saved checkpoint from iteration       4 to /ckpt", "saved")
when["end"] = time.time()
leave()
if not ROUND:
    time.sleep(1 if RANK == "0" else 0)
    sys.exit(1)
