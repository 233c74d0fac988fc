"""What a rank of a benchmark does: `rank.py fails|sleeps|writes|works FOLDER [WORD...]`.

A file up-RANK in the folder, with its pid, tells that a rank is up; a file `go` tells all of them to go on.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

CODE = 42


def fails(rank: int, folder: str, failing: str, term: str) -> None:
    """One rank ends when something comes out of the pipe `fail`, and says when that was, by the clock that all processes share. The others
    work without end."""
    if rank == int(failing):
        pipe = os.open(os.path.join(folder, "fail"), os.O_RDONLY)
        up(rank, folder)
        os.read(pipe, 1)
        with open(os.path.join(folder, "failed"), "w") as file:
            file.write(repr(time.monotonic()))
        os._exit(CODE)
    if term == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    up(rank, folder)
    while True:
        time.sleep(600)


def sleeps(rank: int, folder: str) -> None:
    up(rank, folder)
    wait_for(folder, "go", 0.2)


def writes(rank: int, folder: str, blocks: str, ranks: str) -> None:
    """Writes when all others are up. Then says how long one write has taken at most, and what CPU time it has used, and stays until the
    others have written too: what a rank that ends has left in its pipe goes before what the others write."""
    from benchmarks import lines

    mine = lines.template(rank)
    up(rank, folder)
    wait_for(folder, "go", 0.001)
    longest = 0.0
    for number in range(int(blocks)):
        data = memoryview(lines.block(mine, number))
        began = time.monotonic()
        while data:
            data = data[os.write(1, data) :]
        longest = max(longest, time.monotonic() - began)
    say(folder, f"did-{rank}", f"{longest!r} {time.process_time()!r}")
    for each in range(int(ranks)):
        wait_for(folder, f"did-{each}", 0.01)
    os._exit(0)


def works(rank: int, folder: str, kind: str, seconds: str) -> None:
    """Sleeps or communicates for so long, unless a file asks it to end with an error or to take all memory."""
    communicate = joined() if kind == "communicates" else lambda: None
    up(rank, folder)
    held = []
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        if os.path.exists(os.path.join(folder, f"exit-{rank}")):
            print("rank", rank, "exits with", CODE, flush=True)
            os._exit(CODE)
        if os.path.exists(os.path.join(folder, f"eat-{rank}")):
            held.append(bytearray(os.urandom(1 << 20)) * 32)
            continue
        communicate()
        time.sleep(0.05)


def joined() -> Callable[[], None]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    ones = torch.ones(1000)
    return lambda: dist.all_reduce(ones)


def up(rank: int, folder: str) -> None:
    say(folder, f"up-{rank}", str(os.getpid()))


def say(folder: str, name: str, text: str) -> None:
    """In a file that is whole once it is there."""
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.rename(file.name, path)


def wait_for(folder: str, name: str, look_again_s: float) -> None:
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(look_again_s)


DOES: dict[str, Callable[..., None]] = {"fails": fails, "sleeps": sleeps, "writes": writes, "works": works}

if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]  # which DeepSpeed puts before them
    DOES[words[0]](int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"]), *words[1:])
