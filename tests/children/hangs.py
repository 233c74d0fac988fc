"""Trains nothing: in each step all ranks send rank 0 what they have, and wait for its answer. At step $AT, what $WHAT says happens to the
ranks in $WHO ("1", "0,2" or "all"), while the others go on to the next exchange. What is no hang takes $LONG seconds."""

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
import traceback
from collections.abc import Callable

RANK = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK_ID") or 0)
SIZE = int(next((os.environ[name] for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MS_WORKER_NUM") if name in os.environ), "1"))
HOST = os.environ.get("STAR") or os.environ.get("MASTER_ADDR", "127.0.0.1")
PORT = int(os.environ.get("STAR_PORT", "7311"))
WHAT, WHO = os.environ["WHAT"], os.environ.get("WHO", "all")
AT, LAST = int(os.environ.get("AT", "8")), 16
LONG = float(os.environ.get("LONG", "10"))
STEP_S = 0.2
PAYLOAD = 64 * 1024
LABEL = "label 1003 out of range"
SPINS = WHAT == "others spin"
PRINTS = WHAT not in ("rank 0 alone prints", "tqdm")
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207


class Star:
    """The connections of rank 0 to all, or of another to it."""

    def __init__(self) -> None:
        if RANK == 0:
            with socket.create_server(("", PORT)) as server:
                self.others = [server.accept()[0] for _ in range(SIZE - 1)]
        else:
            self.others = [connected()]

    def exchange(self) -> None:
        if RANK == 0:
            for other in self.others:
                received(other)
        for other in self.others:
            other.sendall(bytes(PAYLOAD))
        if RANK:
            received(self.others[0])


def connected() -> socket.socket:
    while True:
        try:
            return socket.create_connection((HOST, PORT), timeout=600)
        except OSError:
            time.sleep(0.1)


def received(connection: socket.socket) -> None:
    left = PAYLOAD
    connection.setblocking(not SPINS)
    while left:
        try:
            data = connection.recv(min(left, PAYLOAD))
        except BlockingIOError:
            continue
        if not data:
            sys.exit(f"rank {RANK}: the connection is closed")
        left -= len(data)
    connection.setblocking(True)


def main() -> None:
    if WHAT == "compiles first":
        spin_for(LONG)
    star = Star()
    for step in range(1, LAST):
        star.exchange()
        if step == AT and mine():
            HAPPENS[WHAT](star)
        say(step)
        time.sleep(STEP_S)
    star.exchange()


def mine() -> bool:
    return WHO == "all" or str(RANK) in WHO.split(",")


def say(step: int) -> None:
    if PRINTS or (WHAT == "rank 0 alone prints" and RANK == 0):
        print(f"step: {step} loss: {1 / step:.4f}", flush=True)
    elif WHAT == "tqdm":
        print(f"\r{100 * step // LAST:3d}%|#| {step}/{LAST} [00:{step:02d}<00:10,  0.50s/it]", end="", flush=True)


def spin_for(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


# Hangs


def stops(star: Star) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def loops(star: Star) -> None:
    while True:
        pass


def sleeps(star: Star) -> None:
    time.sleep(1e6)


def locks(star: Star) -> None:
    """Each of two threads has one and wants the other."""
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def take(first: threading.Lock, second: threading.Lock) -> None:
        with first:
            both.wait()
            with second:
                pass

    threads = [threading.Thread(target=take, args=pair) for pair in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def fifo() -> str:
    path = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(path)
    return path


def loader_waits(star: Star) -> None:
    """A process of the rank's own reads what nobody writes."""
    subprocess.run(["cat", fifo()], check=False)


def is_stuck(star: Star) -> None:
    """In state D, as on a dead mount: whoever has begun a vfork waits in the kernel until the child is another program."""
    actions = [(os.POSIX_SPAWN_OPEN, 0, fifo(), os.O_RDONLY, 0)]
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)


def accepts(star: Star) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()


def raises(star: Star) -> None:
    """And waits for the others while it exits, as mpi4py does in MPI_Finalize."""
    atexit.register(time.sleep, 1e6)
    raise ValueError(LABEL)


def catches(star: Star) -> None:
    """And waits all the same."""
    try:
        raise ValueError(LABEL)
    except ValueError:
        traceback.print_exc()
    time.sleep(1e6)


def loses_thread(star: Star) -> None:
    """And waits for what that thread would have brought."""

    def prefetch() -> None:
        raise ValueError(LABEL)

    thread = threading.Thread(target=prefetch)
    thread.start()
    thread.join()
    time.sleep(1e6)


def waits_for_child(star: Star) -> None:
    """Which is stopped."""
    child = subprocess.Popen(["sleep", "1000000"])
    child.send_signal(signal.SIGSTOP)
    child.wait()


def leaves(star: Star) -> None:
    """With 0, and with its connections open elsewhere: the others wait for what it was to send."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(1e6)
    os._exit(0)


# No hangs


def saves(star: Star) -> None:
    end = time.monotonic() + LONG
    with tempfile.TemporaryFile(buffering=0) as file:
        while time.monotonic() < end:
            file.write(bytes(256 * 1024))
            time.sleep(0.2)


def evaluates(star: Star) -> None:
    """Without a word; each rank comes here."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        star.exchange()
        time.sleep(0.05)
    star.exchange()


def loads(star: Star) -> None:
    """A process of the rank's own reads data, and the rank waits for it."""
    code = "import time\nfor _ in range(int({} / 0.2)):\n    open('/dev/zero', 'rb').read(1 << 17); time.sleep(0.2)"
    subprocess.run([sys.executable, "-c", code.format(LONG)], check=True)


def pauses(star: Star) -> None:
    """Stopped for a while, and then not."""
    subprocess.Popen(["sh", "-c", f"kill -STOP {os.getpid()}; sleep {LONG}; kill -CONT {os.getpid()}"])
    time.sleep(0.5)


def waits_a_while(star: Star) -> None:
    time.sleep(LONG)


def computes(star: Star) -> None:
    """Not all the time."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        spin_for(0.1)
        time.sleep(0.15)


def is_debugged(star: Star) -> None:
    """Held by another process for a while, as by a debugger."""
    parent = os.getpid()
    if os.fork() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
            if libc.ptrace(request, parent, 0, 0):
                os.write(2, f"ptrace: {os.strerror(ctypes.get_errno())}\n".encode())
        os.waitpid(parent, 0x40000000)
        time.sleep(LONG)
        os._exit(0)  # lets it go
    time.sleep(0.5)


def goes_on(star: Star) -> None:
    pass


# With PyTorch, in place of the star


def trains() -> None:
    """The same each time, also where the ranks in $WHO are stopped until somebody lets them go on, with $LONG."""
    import hashlib

    import torch
    from torch import distributed

    distributed.init_process_group("gloo", rank=RANK, world_size=SIZE)
    torch.manual_seed(1)
    model, data = torch.nn.Linear(64, 8), torch.Generator().manual_seed(RANK)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(1, LAST):
        model.zero_grad()
        model(torch.randn(32, 64, generator=data)).square().sum().backward()
        for each in model.parameters():
            distributed.all_reduce(each.grad)
        optimizer.step()
        if step == AT and mine() and LONG:
            os.kill(os.getpid(), signal.SIGSTOP)
        say(step)
        time.sleep(STEP_S)
    digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest()
    print(f"parameters {digest}", flush=True)


def gloo() -> None:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo", rank=RANK, world_size=SIZE)
    for step in range(1, LAST):
        wrong = step == AT and mine() and WHAT == "gloo: a wrong size"
        values = torch.ones(1 << (15 if wrong else 16))
        if step == AT and mine() and WHAT == "gloo: one is absent":
            time.sleep(1e6)
        if step == AT and mine() and WHAT == "gloo: another order":
            distributed.broadcast(values, src=RANK)
        if step == AT and mine() and WHAT == "gloo: another group":
            distributed.barrier()
        distributed.all_reduce(values)
        say(step)
        time.sleep(STEP_S)


HAPPENS: dict[str, Callable[[Star], None]] = {
    "SIGSTOP": stops,
    "endless loop": loops,
    "sleeps for ever": sleeps,
    "two locks": locks,
    "loader on an empty fifo": loader_waits,
    "state D": is_stuck,
    "accepts nobody": accepts,
    "raises": raises,
    "catches": catches,
    "loses a thread": loses_thread,
    "its child is stopped": waits_for_child,
    "others spin": sleeps,
    "leaves too soon": leaves,
    "writes a checkpoint": saves,
    "compiles first": goes_on,
    "silent evaluation": evaluates,
    "tqdm": goes_on,
    "rank 0 alone prints": goes_on,
    "loader at work": loads,
    "SIGSTOP for a while": pauses,
    "waits a while": waits_a_while,
    "computes in bursts": computes,
    "debugger": is_debugged,
}

if __name__ == "__main__":
    if os.environ.get("MS_ROLE") == "MS_SCHED":  # msrun runs the program once more for this, and waits for it
        time.sleep(1e6)
    (trains if WHAT == "trains" else gloo if WHAT.startswith("gloo") else main)()
