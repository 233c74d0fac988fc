"""Program of a rank in the benchmarks: `rank.py fails|sleeps|writes|works FOLDER [WORD...]`.

A file up-RANK in the folder, with the pid, shows that a rank is up. A file `go` lets all ranks continue.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

CODE = 42


def fails(rank: int, folder: str, failing: str, term: str) -> None:
    """Exit with CODE in rank `failing` after a byte from the pipe `fail`, with the monotonic time in the file `failed`. The other ranks
    work for ever."""
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
    """Write blocks of lines once all ranks are up. Then record the longest write and the CPU time, in seconds, and stay until all ranks
    have written: a launcher may read the rest of an ended rank's pipe before the output of other ranks."""
    from benchmarks import lines

    template = lines.template(rank)
    up(rank, folder)
    wait_for(folder, "go", 0.001)
    longest = 0.0
    for number in range(int(blocks)):
        data = memoryview(lines.block(template, number))
        began = time.monotonic()
        while data:
            data = data[os.write(1, data) :]
        longest = max(longest, time.monotonic() - began)
    say(folder, f"did-{rank}", f"{longest!r} {time.process_time()!r}")
    for each in range(int(ranks)):
        wait_for(folder, f"did-{each}", 0.01)
    os._exit(0)


def works(rank: int, folder: str, kind: str, seconds: str) -> None:
    """Sleep or communicate for some seconds, unless a file requests an exit with an error (exit-RANK) or use of all memory (eat-RANK)."""
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
    """Write a file that is complete as soon as it exists."""
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.rename(file.name, path)


def wait_for(folder: str, name: str, look_again_s: float) -> None:
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(look_again_s)


DOES: dict[str, Callable[..., None]] = {"fails": fails, "sleeps": sleeps, "writes": writes, "works": works}

if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]  # DeepSpeed puts --local_rank before the arguments
    DOES[words[0]](int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"]), *words[1:])
