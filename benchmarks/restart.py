"""Standstill of a job after a failure: restarted in place by ranklaunch, by torchrun's own --max-restarts, or as a whole.

    python -m benchmarks.restart [--repeats N] [--hosts]

Prints a table: seconds from the failure of one of 8 ranks on this machine to the first step of all ranks afterwards, the median and the
slowest; with --hosts (root) also of 6 ranks on three hosts made of network namespaces. Then prints the parts of this time in ranklaunch,
by its events, and the CPU seconds of node 0 for a round of up to 4,096 nodes. All ways are measured in one run: seconds of other
machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ranklaunch.muster import events
from ranklaunch.muster.events import Decided, First, Heard, Now
from ranklaunch.muster.hub import Hub
from ranklaunch.plan.model import Muster
from ranklaunch.verdict import messages
from ranklaunch.verdict.blame import Suspect
from testbench.hosts import Hosts
from testbench.places import child

STEPS = 8
FAIL = "0:1:4:exit"
MOST_S = 120.0
TOOLS = Path(sys.executable).parent  # launchers of the same installation
Start = Callable[[Sequence[str], Mapping[str, str]], "list[subprocess.Popen[bytes]]"]


def ours(method: str, slots: int, folder: Path, *words: str) -> list[str]:
    options = ("--method", method, "--slots", str(slots), "--python", sys.executable, "--log-dir", str(folder / "logs"))
    return [sys.executable, "-m", "ranklaunch", "run", *options, "--", child("trains.py"), str(folder), str(STEPS), *words]


def torchrun(slots: int, folder: Path, nodes: int) -> list[str]:
    rendezvous = ("--rdzv-backend=c10d", "--rdzv-endpoint=h0:29400") if nodes > 1 else ("--standalone",)
    return [
        str(TOOLS / "torchrun"), *rendezvous, f"--nnodes={nodes}", f"--nproc-per-node={slots}", "--max-restarts=1", child("trains.py"),
        str(folder), str(STEPS), FAIL,
    ]  # fmt: skip


def standstill_s(folder: Path, ranks: int) -> float:
    """Return the seconds from the failure to the first step of the last rank, by files that the ranks have touched."""
    failed = (folder / "failed").stat().st_mtime
    return max((folder / f"went_{rank}").stat().st_mtime for rank in range(ranks)) - failed


def play(folder: Path, ranks: int, start: Start, *jobs: tuple[Sequence[str], Mapping[str, str]]) -> float:
    """Run jobs, each after the end of the one before. Return the seconds of standstill. jobs: (command, environment)."""
    for command, env in jobs:
        started = start(command, env)
        try:
            for process in started:
                process.wait(MOST_S)
        finally:
            for process in started:
                process.kill()
                process.wait()
    if not all((folder / f"final_{rank}").exists() for rank in range(ranks)):
        msg = "the training did not complete"
        raise RuntimeError(msg)
    return standstill_s(folder, ranks)


def here(command: Sequence[str], env: Mapping[str, str]) -> list[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    return [subprocess.Popen(list(command), env={**os.environ, **env}, stdin=quiet, stdout=quiet, stderr=quiet)]


def on(hosts: Hosts) -> Start:
    names = ",".join(host.name for host in hosts)

    def start(command: Sequence[str], env: Mapping[str, str]) -> list[subprocess.Popen[bytes]]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        quiet = subprocess.DEVNULL
        started = []
        for host in hosts:
            variables = {"RANKLAUNCH_HOSTS": names, "RANKLAUNCH_NODE": str(host.index), "OMP_NUM_THREADS": "1", **kept, **env}
            started.append(host.popen(list(command), env=variables, stdin=quiet, stdout=quiet, stderr=quiet))
        return started

    return start


def ways(slots: int, nodes: int, start: Start) -> dict[str, Callable[[Path], float]]:
    ranks = slots * nodes
    again = {"RANKLAUNCH_MAX_RESTARTS": "1"}

    def restarted(method: str) -> Callable[[Path], float]:
        return lambda folder: play(folder, ranks, start, (ours(method, slots, folder, FAIL), again))

    def anew(method: str) -> Callable[[Path], float]:
        return lambda folder: play(folder, ranks, start, (ours(method, slots, folder, FAIL), {}), (ours(method, slots, folder), {}))

    return {
        "in place, spawn": restarted("spawn"),
        "in place, torchrun": restarted("torchrun"),
        "torchrun --max-restarts": lambda folder: play(folder, ranks, start, (torchrun(slots, folder, nodes), {})),
        "everything anew, spawn": anew("spawn"),
        "everything anew, torchrun": anew("torchrun"),
    }


def measure(title: str, measured: Mapping[str, Callable[[Path], float]], repeats: int, ranks: int) -> None:
    print(f"\n| {title} | median s | slowest s |\n| --- | --- | --- |")
    parts: dict[str, dict[str, list[float]]] = {}
    for name, way in measured.items():
        seconds = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    seconds.append(way(Path(folder)))
                except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
                    print(f"| {name} | {error} | |")
                    break
                if name.startswith("in place"):
                    for part, taken in parts_of(Path(folder), ranks).items():
                        parts.setdefault(name, {}).setdefault(part, []).append(taken)
        else:
            print(f"| {name} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |", flush=True)
    for name, of_way in parts.items():
        print(f"\nparts, {name}: " + ", ".join(f"{part} {statistics.median(taken):.3f} s" for part, taken in of_way.items()))


def parts_of(folder: Path, ranks: int) -> dict[str, float]:
    """Return the seconds of each part of the standstill, by the events of node 0. Time of a launcher between ranklaunch and the ranks is in
    "stopped" and, after the launcher's start, in "first step"."""
    attempt = next(iter((folder / "logs").glob("**/attempt_1")))
    first, second = (_events(path / "events.jsonl") for path in (attempt, attempt / "restart_1"))
    offset = time.time() - time.monotonic()
    failed = (folder / "failed").stat().st_mtime - offset
    spawned = [at for name, at in second if name == "spawn"]
    went = max((folder / f"went_{rank}").stat().st_mtime for rank in range(ranks)) - offset
    marks = {
        "seen": min(at for name, at in first if name in ("failing", "ending")),
        "stopped": max(at for name, at in first if name in ("exit", "ending")), "decided": dict(first)["end"],
        "gate": min(spawned), "started": max(spawned), "first step": went,
    }  # fmt: skip
    return {name: at - before for (name, at), before in zip(marks.items(), (failed, *marks.values()))}


def _events(path: Path) -> list[tuple[str, float]]:
    return [(event["event"], event["monotonic"]) for event in map(json.loads, path.read_text().splitlines())]


def hub_seconds(nodes: int) -> float:
    """Return the CPU seconds of node 0 for one round: all nodes fail, start again and are released."""
    hosts = tuple(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}" for i in range(nodes))
    muster = Muster(node=0, hosts=hosts, port=1, timeout_s=600.0, lost_after_s=20.0, end_timeout_s=600.0)
    hub = Hub(muster, 25.0, "", "hub", restarts=True)
    now = Now(1.0, 1.7e9)
    facts = {"method": "torchrun", "nodes": str(nodes), "torch": "2.6.0"}

    def say(node: int, kind: str, number: int, **more: object) -> None:
        message = {"type": kind, "attempt": 1, "round": number, **more}
        actions = hub.feed(Heard(node, message), now)
        for action in actions:
            if isinstance(action, events.Decide):
                hub.feed(Decided(True, action.judgement, {"pause_s": 0}), now)

    hub.feed(events.Start(), now)
    for node in range(nodes):
        hello = {"type": "hello", "attempt": 1, "round": 0, "node": node, "instance": f"i{node}", "host": hosts[node], "doing": ""}
        hub.feed(First(node, hosts[node], hello), now)
    for node in range(nodes):
        say(node, "ready", 0, facts=facts, index=node, host=hosts[node])
    began = time.process_time()
    suspect = messages.as_message(Suspect(1, 1.7e9, "failed", 3, "a rank failed"))
    say(1, "fail", 0, suspect=suspect)
    for node in range(nodes):
        say(node, "stopping", 0)
        say(node, "report", 0, suspects=[suspect] if node == 1 else [], finishes=[], notes=[], state={"launched": True, "place": [0, 5]})
    assert hub.round == 1
    for node in range(nodes):
        say(node, "ready", 1, facts=facts, index=node, host=hosts[node])
    assert hub.state == "running"
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hosts", action="store_true")
    options = parser.parse_args()
    measure("8 ranks on one node", ways(8, 1, here), options.repeats, 8)
    if options.hosts:
        with tempfile.TemporaryDirectory() as folder, Hosts(3, Path(folder)) as hosts:
            measure("6 ranks on three hosts", ways(2, 3, on(hosts)), options.repeats, 6)
    print("\n| nodes | CPU s of node 0 for a round |\n| --- | --- |")
    for nodes in (512, 1024, 2048, 4096):
        print(f"| {nodes} | {hub_seconds(nodes):.2f} |", flush=True)


if __name__ == "__main__":
    main()
