"""Does what $CHAOS says for its place, which is "NODE.LOCAL_RANK" ("1.0"), else for "*", else sleeps; obeys SIGTERM at once.

$CHAOS is JSON: {place: [steps]}. A step is a word and what belongs to it:

exit CODE    exits
kill         kills itself by SIGKILL
eat          takes memory without an end, and is the one that the kernel likes best to kill for it
write MB     writes so much of it
say TEXT     writes it
wait NAME    until the file NAME is in $CHAOS_FOLDER
sleep S      so many seconds
mark NAME    writes the time (monotonic seconds) into that file
hold         from now on, ignores SIGTERM
slow S       from now on, goes on for so many seconds after SIGTERM, and then exits with 0
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["CHAOS_FOLDER"])
PIECE = 16 << 20


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        be_scheduler()
    place = own_place()
    orders = json.loads(os.environ["CHAOS"])
    print("ready", flush=True)
    mark(f"ready-{place}")
    for step in orders.get(place, orders.get("*", ["sleep 600"])):
        word, _, rest = step.partition(" ")
        STEPS[word](rest)


def be_scheduler() -> None:
    """msrun runs the program once more for this, and waits for it. MindSpore's ends when all ranks have said that they are done."""
    while len(list(FOLDER.glob("left-*"))) < int(os.environ["MS_WORKER_NUM"]):
        time.sleep(0.05)
    sys.exit(0)


def own_place() -> str:
    if "OMPI_COMM_WORLD_RANK" in os.environ:  # nothing of its node's own environment comes through ssh
        size = int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
        return f"{int(os.environ['OMPI_COMM_WORLD_RANK']) // size}.{os.environ['OMPI_COMM_WORLD_LOCAL_RANK']}"
    return f"{os.environ['CHAOS_NODE']}.{os.environ.get('LOCAL_RANK') or os.environ.get('DEVICE_ID') or 0}"


def mark(name: str) -> None:
    new = FOLDER / f".{name}.{os.getpid()}"
    new.write_text(str(time.monotonic()))
    new.rename(FOLDER / name)  # whole or not at all


def wait(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.01)


def kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def eat(_: str) -> None:
    Path("/proc/self/oom_score_adj").write_text("1000")
    eaten = []
    while True:
        eaten.append(b"x" * PIECE)


def write(megabytes: str) -> None:
    line = b"x" * 63 + b"\n"
    for _ in range(int(megabytes) * 16384):
        sys.stdout.buffer.write(line)
    sys.stdout.flush()


def say(text: str) -> None:
    print(text, flush=True)


def slow(seconds: str) -> None:
    def save(number: int, frame: object) -> None:
        time.sleep(float(seconds))
        os._exit(0)

    signal.signal(signal.SIGTERM, save)


def leave(code: str) -> None:
    if int(code) == 0:
        mark(f"left-{own_place()}")
    sys.stdout.flush()
    os._exit(int(code))


STEPS = {
    "exit": leave,
    "kill": kill,
    "eat": eat,
    "write": write,
    "say": say,
    "wait": wait,
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "mark": mark,
    "slow": slow,
    "hold": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
}

if __name__ == "__main__":
    main()
