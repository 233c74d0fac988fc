"""An actor on each node of a cluster of Ray sums in each step, as a training loop does. At step 3 $WORD is done.

raise        the driver raises ValueError
exit         the driver ends with 42
worker       an actor is killed by SIGKILL, and the driver hears of it
raylet       the raylet of the last node is killed, as found by its pid
gcs          the head's gcs_server is killed
both         the raylet of the last node is killed, and the driver raises ValueError in the same moment
frozen       the raylet of the last node is stopped by SIGSTOP, then the driver raises ValueError
memory       an actor takes memory, 50 MB at a time, until it has 2 GB

The time of the word is written to $AT_FILE. With STEPS=N the job ends after N steps; else it goes on. If $CHECKPOINT is there, the job
begins behind the step in it, and does no word.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

STEPS, WORD = int(os.environ.get("STEPS", "1000000")), os.environ.get("WORD", "")
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "/nonexistent"))
AT_FILE = os.environ.get("AT_FILE", os.devnull)
AT = 3


@ray.remote(num_cpus=1, max_restarts=0)
class Adder:
    def __init__(self, number: int) -> None:
        self.number = number

    def add(self, step: int) -> int:
        return self.number + step

    def host(self) -> str:
        return socket.gethostname()

    def freeze(self) -> None:
        os.kill(os.getppid(), signal.SIGSTOP)

    def kill(self, name: str) -> None:
        """Kill a process of this node's Ray: the one above this worker, or the one of a name; "": this worker."""
        pid = os.getpid()
        if name == "raylet":
            pid = os.getppid()
        elif name:
            found = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and is_of_this_cluster(entry, name)]
            pid = int(found[0])
        stamp()
        os.kill(pid, signal.SIGKILL)

    def take_memory(self) -> int:
        stamp()
        taken = []
        for _ in range(40):
            taken.append(b"x" * (50 << 20))
            time.sleep(0.1)
        return len(taken)


def stamp() -> None:
    Path(AT_FILE).write_text(repr(time.time()))


def is_of_this_cluster(entry: Path, name: str) -> bool:
    """Return True for a process of this program name that has the port of this cluster's head among its arguments."""
    try:
        words = (entry / "cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
    return words[0].endswith(f"/{name}") and any(word.endswith(f"={port}") for word in words)


def main() -> None:
    ray.init()
    nodes = len(ray.nodes())
    group = placement_group([{"CPU": 1}] * nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    adders = [
        Adder.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i)).remote(i)
        for i in range(nodes)
    ]
    begun = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    print("ready", nodes, "nodes,", int(ray.cluster_resources()["CPU"]), "CPUs", flush=True)
    for step in range(begun + 1, STEPS + 1):
        if step == AT and not begun:
            obey(adders)
        print(f"step {step}/{STEPS} sum {sum(ray.get([adder.add.remote(step) for adder in adders]))}", flush=True)
        if str(CHECKPOINT) != "/nonexistent":
            CHECKPOINT.write_text(str(step))
        time.sleep(0.1)


def obey(adders: list[object]) -> None:
    if WORD == "raise":
        stamp()
        msg = "loss is nan"
        raise ValueError(msg)
    if WORD == "exit":
        stamp()
        sys.exit(42)
    last = max(adders, key=lambda adder: ray.get(adder.host.remote()))  # type: ignore[attr-defined]
    if WORD == "worker":
        ray.get(last.kill.remote(""))  # type: ignore[attr-defined]
    elif WORD == "raylet":
        last.kill.remote("raylet")  # type: ignore[attr-defined]
        time.sleep(600)
    elif WORD == "frozen":
        last.freeze.remote()  # type: ignore[attr-defined]
        time.sleep(0.5)
        stamp()
        msg = "loss is nan"
        raise ValueError(msg)
    elif WORD == "both":
        last.kill.remote("raylet")  # type: ignore[attr-defined]
        msg = "loss is nan"
        raise ValueError(msg)
    elif WORD == "memory":
        ray.get(last.take_memory.remote())  # type: ignore[attr-defined]
    elif WORD == "gcs":
        first = min(adders, key=lambda adder: ray.get(adder.host.remote()))  # type: ignore[attr-defined]
        first.kill.remote("gcs_server")  # type: ignore[attr-defined]
        time.sleep(600)


main()
