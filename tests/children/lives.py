"""Programs that are healthy, and look for a while as if they hung: what $SHAPE says, for $LONG seconds, on each rank. The ranks of a shape
that exchanges something meet at $STAR."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SHAPE, LONG = os.environ["SHAPE"], float(os.environ["LONG"])
SHORT = 0.7 * float(os.environ["RANKLAUNCH_HANG_S"])  # of a pause that is no hang
FIRST = 0.8 * float(os.environ["RANKLAUNCH_FIRST_STEP_S"])  # of a compiler that prints nothing
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
BLOCK = 256 * 1024


def during(seconds: float, pause: float = 0.2) -> Iterator[int]:
    """Yield a count about every `pause` seconds."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield (count := count + 1)
        time.sleep(pause)


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def step(number: int, stream: object = sys.stdout) -> None:
    print(f"step {number}: loss {1 / number:.4f}", flush=True, file=stream)  # type: ignore[call-overload]


def steps(count: int = 5) -> None:
    for number in range(1, count + 1):
        step(number)
        time.sleep(0.2)


def write_for(seconds: float) -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in during(seconds):
            file.write(bytes(BLOCK))


# Before the first step


def compiles_without_a_word() -> None:
    spin(FIRST)
    steps()


def compiles_after_a_line() -> None:
    print("compiling the model", flush=True)
    spin(FIRST)
    steps()


def a_compiler_of_its_own() -> None:
    print("building extensions", flush=True)
    subprocess.run([sys.executable, "-c", f"import time\nend = time.monotonic() + {FIRST}\nwhile time.monotonic() < end: pass"], check=True)
    steps()


def reads_before_the_first_line() -> None:
    write_for(LONG)
    steps()


def reads_after_a_line() -> None:
    print("loading checkpoint", flush=True)
    write_for(LONG)
    steps()


def waits_for_the_others_data() -> None:
    """Rank 0 prepares the data set, and the others wait for a file."""
    print("waiting for data", flush=True)
    flag = os.path.join(os.environ["RANKLAUNCH_RUN_DIR"], "ready")
    if RANK == 0:
        write_for(LONG)
        open(flag, "w").close()
    while not os.path.exists(flag):
        time.sleep(0.2)
    steps()


def downloads() -> None:
    """By the network, from rank 0 to the others."""
    print("downloading", flush=True)
    if RANK == 0:
        with socket.create_server(("", 7311)) as server:
            peers = [server.accept()[0] for _ in range(SIZE - 1)]
        for _ in during(LONG, 0.05):
            for peer in peers:
                peer.sendall(bytes(BLOCK))
        for peer in peers:
            peer.close()
    else:
        while True:
            try:
                peer = socket.create_connection((os.environ["STAR"], 7311))
                break
            except OSError:
                time.sleep(0.2)
        while peer.recv(BLOCK):
            pass
    steps()


def forks_workers() -> None:
    print("tokenizing", flush=True)
    code = f"import time\nend = time.monotonic() + {LONG}\nwhile time.monotonic() < end:\n    sum(range(300000)); time.sleep(0.05)"
    for worker in [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]:
        worker.wait()
    steps()


def a_word_now_and_then() -> None:
    for count in during(LONG, SHORT):
        print(f"epoch zero, part {'abcdefghij'[count]}", flush=True)


def dots() -> None:
    for _ in during(LONG, SHORT):
        print(".", end="", flush=True)


# Steps


def slow_steps() -> None:
    for number in during(LONG, SHORT):
        step(number)


def steps_that_grow() -> None:
    for number in range(1, 6):
        step(number)
        time.sleep(SHORT * number / 5)


def a_slow_first_step() -> None:
    print("start", flush=True)
    spin(FIRST)
    steps()


def a_bar() -> None:
    for number in during(LONG, 0.5):
        print(f"\r{number:3d}%|#| {number}/100 [00:{number:02d}<00:10,  0.50s/it]", end="", flush=True)


def to_stderr() -> None:
    for number in during(LONG, SHORT):
        step(number, sys.stderr)


def one_rank_speaks() -> None:
    for number in during(LONG, SHORT):
        if RANK == 0:
            step(number)


def ranks_take_turns() -> None:
    for number in during(LONG, SHORT):
        if number % SIZE == RANK:
            step(number)


def to_a_file_of_its_own() -> None:
    steps()
    write_for(LONG)


# Pauses between steps


def saves() -> None:
    steps()
    write_for(LONG)
    steps()


def one_rank_saves() -> None:
    steps()
    flag = os.path.join(os.environ["RANKLAUNCH_RUN_DIR"], "saved")
    if RANK == 0:
        write_for(LONG)
        open(flag, "w").close()
    while not os.path.exists(flag):
        time.sleep(0.2)


def saves_in_the_background() -> None:
    steps()
    thread = threading.Thread(target=write_for, args=(LONG,))
    thread.start()
    thread.join()


def evaluates_in_bursts() -> None:
    """For less than the limit: ranks that printed steps, and move their CPUs alone for longer, are a hang."""
    steps()
    for _ in during(SHORT, 0.15):
        spin(0.1)
    steps()


def one_rank_computes() -> None:
    steps()
    for _ in during(SHORT, 0.15):
        spin(0.1 if RANK == 0 else 0)
    steps()


def a_loader_reads() -> None:
    steps()
    code = f"import time\nfor _ in range(int({LONG} / 0.2)):\n    open('/dev/zero', 'rb').read({BLOCK}); time.sleep(0.2)"
    subprocess.run([sys.executable, "-c", code], check=True)


def waits_for_a_lock() -> None:
    steps()
    time.sleep(SHORT)
    steps()


def is_stopped_for_a_while() -> None:
    steps()
    subprocess.Popen(["sh", "-c", f"kill -STOP {os.getpid()}; sleep {SHORT}; kill -CONT {os.getpid()}"])
    time.sleep(0.5)


def is_debugged() -> None:
    steps()
    parent = os.getpid()
    if os.fork() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
            libc.ptrace(request, parent, 0, 0)
        os.waitpid(parent, 0x40000000)
        time.sleep(LONG)
        os._exit(0)  # lets it go
    time.sleep(0.5)


def knows_better() -> None:
    """With RANKLAUNCH_EXPECT='step every 60s'."""
    steps()
    time.sleep(LONG)


# The end


def one_rank_ends_before() -> None:
    steps()
    if RANK != 0:
        for number in during(LONG, SHORT):
            step(10 + number)


def saves_at_exit() -> None:
    steps()
    atexit.register(write_for, LONG)


def frees_memory_at_exit() -> None:
    steps()
    atexit.register(spin, SHORT)


def hangs_at_exit() -> None:
    """The rank $WHO: it is the one of these that is not healthy."""
    steps()
    if os.environ["WHO"] == str(RANK):
        time.sleep(1e6)


def saves_on_sigterm() -> None:
    """Nobody sends it: only the handler is there."""
    signal.signal(signal.SIGTERM, lambda number, frame: write_for(1))
    steps(10)


if __name__ == "__main__":
    globals()[SHAPE]()
