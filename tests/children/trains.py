"""trains.py FOLDER STEPS [COUNT:RANK:STEP:HOW ...]: a training in small. Its ranks add what each has to the same parameters in every step,
through files in FOLDER, rank 0 saves these after each step, and all go on from what was saved. Prints "ready" and a line for each step.

In the start of this COUNT, the rank ends before that step as HOW says: exit (7), late (7, after a second), told (7, once there is
FOLDER/go), kill, memory, oom (until it is killed for it), import, usage, full (as a disk), value, zero; hang: it does not end; ignore: it
does not hear SIGTERM from there on; spoil: it ends with 9 at that. Two processes with one rank at once leave FOLDER/twice. At the end
FOLDER/final_R has the parameters; FOLDER/failed and FOLDER/went_R are made at a failure, and at the first step of each start.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path

MOST_S = 120.0
RANKS = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MS_NODE_ID")
SIZES = ("WORLD_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_SIZE", "MS_WORKER_NUM")


def told(names: tuple[str, ...], *options: str) -> str:
    """By what the launcher tells: an option, else a variable."""
    for i, word in enumerate(sys.argv):
        name, found, value = word.partition("=")
        if name in options:
            return value if found else sys.argv[i + 1]
    return next((os.environ[name] for name in names if name in os.environ), "")


def load(path: Path) -> tuple[int, list[int]]:
    if not path.exists():
        return 0, [1, 2, 3]
    saved = json.loads(path.read_text())
    return saved["step"], saved["parameters"]


def write(path: Path, value: object) -> None:
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(value))
    beside.rename(path)


def read(path: Path) -> list[int]:
    began = time.monotonic()
    while not path.exists():
        waited = time.monotonic() - began
        if waited > MOST_S:
            sys.exit(f"waited in vain for {path.name}")
        time.sleep(0.002 if waited < 1 else 0.1)
    return list(json.loads(path.read_text()))


def fail(how: str, folder: Path) -> None:
    if how == "told":
        while not (folder / "go").exists():
            time.sleep(0.02)
        sys.exit(7)
    elif how in ("exit", "late"):
        time.sleep(1.0 if how == "late" else 0.0)
        sys.exit(7)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        bytearray(2 << 30)
    elif how == "oom":
        taken = []
        while True:
            taken.append(bytearray(os.urandom(1) * (16 << 20)))
    elif how == "import":
        __import__("a_module_that_is_not_there")
    elif how == "usage":
        argparse.ArgumentParser().parse_args(["--epohcs", "3"])
    elif how == "full":
        with open("/dev/full", "w", encoding="utf-8") as file:
            file.write("a checkpoint")
    elif how == "value":
        msg = "loss is nan"
        raise ValueError(msg)
    elif how == "zero":
        os._exit(0)
    elif how == "hang":
        time.sleep(MOST_S)
    elif how == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif how == "spoil":
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(9))


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--local")]  # which DeepSpeed puts first
    folder, steps = Path(words[0]), int(words[1])
    rank, workers = int(told(RANKS, "--rank", "--task_index") or 0), told((), "--worker_hosts")
    size = len(workers.split(",")) if workers else int(told(SIZES, "--world_size") or 1)
    if os.environ.get("MS_ROLE") == "MS_SCHED":  # which runs the program too, until all ranks have left
        while not all((folder / f"final_{each}").exists() for each in range(size)):
            time.sleep(0.05)
        return
    count = int(told(("RANKLAUNCH_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT")) or 0)
    asked = [word.split(":") for word in words[2:] if re.fullmatch(r"\d+:\d+:\d+:[a-z]+", word)]
    fails = {(int(c), int(r), int(s)): how for c, r, s, how in asked}
    lock = open(folder / f"rank_{rank}", "w")  # noqa: SIM115 - held until the end
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        (folder / "twice").touch()
    step, parameters = load(folder / "saved")
    print(f"ready {rank} of {size}, count {count}, from step {step}", flush=True)
    began = step
    while step < steps:
        step += 1
        if (count, rank, step) in fails:
            (folder / "failed").touch()
        fail(fails.get((count, rank, step), ""), folder)
        mine = [value * (rank + 1) % 1009 + step for value in parameters]
        write(folder / f"sum_{count}_{step}_{rank}", mine)
        all_of_them = [read(folder / f"sum_{count}_{step}_{other}") for other in range(size)]
        parameters = [(value + sum(column)) % 100003 for value, column in zip(parameters, zip(*all_of_them))]
        if step == began + 1:
            (folder / f"went_{rank}").touch()
        if rank == 0:
            write(folder / "saved", {"step": step, "parameters": parameters})
        print(f"step: {step} loss: {parameters[0]}.0", flush=True)
        time.sleep(0.02)
    write(folder / f"final_{rank}", parameters)


if __name__ == "__main__":
    main()
