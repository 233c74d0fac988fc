"""Seconds until the program of a cluster runs: Ray and JAX on one and on three hosts, by
ranklaunch, by Ray's own command, and by hand.

"first line s": from the start of the first command to the first line of the program; of several
processes, the last one counts. "connected s": from the same start to the end of ray.init() or of
jax.distributed.initialize().
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks import launchers
from benchmarks.jobs import Failed, Job
from benchmarks.launchers import Ranks
from benchmarks.rows import Row, Sample, Target, in_turn, ratio, value
from testbench.hosts import Hosts, missing

NAME = "cluster"
LIMIT_S = 300.0
CPUS = 2  # of each node
MORE_OF_JAX_S = 0.5  # for the start of ranklaunch, and the start barrier
RAY_PORT, JAX_PORT = 6379, 6666
PROGRAM = str(Path(__file__).resolve().with_name("cluster_program.py"))
FIRST, CONNECTED = "first line s", "connected s"

OURS_RAY, SYMMETRIC, RAY_BY_HAND = "ranklaunch ray", "ray symmetric-run", "ray start by hand"
OURS_JAX, JAX_BY_HAND = "ranklaunch jax", "processes by hand"
Shell = Callable[[Ranks, Hosts], list[str]]


def measure(quick: bool) -> list[Row]:
    runs, sizes = (1, (1,)) if quick else (5, (1, 3))
    ways: dict[str, Mapping[str, Shell]] = {"Ray": RAY, "JAX": JAX}
    rows = []
    for kind, shells in ways.items():
        for nodes in sizes:
            reason = missing() or _absent(kind)
            if reason:
                rows += [Row(case(kind, nodes), way, {}, 0, reason) for way in shells]
                continue
            measured = {way: partial(_start, kind, shell, nodes) for way, shell in shells.items()}
            rows += in_turn(case(kind, nodes), measured, runs)
    return rows


def case(kind: str, nodes: int) -> str:
    return f"{kind} on {nodes} host{'s' if nodes > 1 else ''}"


def _absent(kind: str) -> str:
    import importlib.util

    return "" if importlib.util.find_spec(kind.lower()) else "not installed"


# Ways to start. Each host has its own folder for Ray, because the hosts share a disk.


def ranklaunch_ray(ranks: Ranks, hosts: Hosts) -> list[str]:
    return launchers.ranklaunch("ray", ranks, "--accelerator", "cpu")


def symmetric_run(ranks: Ranks, hosts: Hosts) -> list[str]:
    patience = f"RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT={LIMIT_S:.0f}"  # a busy machine needs more
    cluster = ["--address", f"{hosts[0].address}:{RAY_PORT}", "--min-nodes", str(ranks.nodes)]
    program = [sys.executable, "-u", *ranks.program]
    return ["env", patience, "ray", "symmetric-run", *cluster, *_ray_options(ranks), "--", *program]


def ray_by_hand(ranks: Ranks, hosts: Hosts) -> list[str]:
    """Return the command of a node as in Ray's documentation, with an added wait for all nodes: no command of Ray has one."""
    options = ["--node-ip-address", hosts[ranks.node].address, *_ray_options(ranks)]
    if ranks.node:
        join = ["ray", "start", "--address", f"{hosts[0].address}:{RAY_PORT}", *options, "--block"]
        return ["bash", "-c", f"until {shlex.join(join)}; do sleep 1; done"]
    steps = [["ray", "start", "--head", "--port", str(RAY_PORT), *options]]
    if ranks.nodes > 1:
        steps.append([sys.executable, PROGRAM, "nodes", str(ranks.nodes)])
    steps.append([sys.executable, "-u", *ranks.program])
    return ["bash", "-c", " && ".join(map(shlex.join, steps))]


def _ray_options(ranks: Ranks) -> list[str]:
    head = ["--include-dashboard", "false", "--disable-usage-stats"] if ranks.node == 0 else []
    folder = ["--temp-dir", str(ranks.folder / "ray")]  # without this option, nodes use the path of node 0
    return ["--num-cpus", str(CPUS), "--num-gpus", "0", *folder, *head]


def ranklaunch_jax(ranks: Ranks, hosts: Hosts) -> list[str]:
    options = ("--accelerator", "cpu", "--master-port", str(JAX_PORT))
    return launchers.ranklaunch("jax", ranks, *options)


def jax_by_hand(ranks: Ranks, hosts: Hosts) -> list[str]:
    variables = {
        "BY_HAND": 1,
        "JAX_COORDINATOR_ADDRESS": f"{hosts[0].address}:{JAX_PORT}",
        "JAX_NUM_PROCESSES": ranks.nodes,
        "JAX_PROCESS_ID": ranks.node,
        "JAX_NUM_CPU_DEVICES": ranks.count,
    }
    words = [f"{name}={text}" for name, text in variables.items()]
    return ["env", *words, sys.executable, "-u", *ranks.program]


RAY: Mapping[str, Shell] = {
    OURS_RAY: ranklaunch_ray,
    SYMMETRIC: symmetric_run,
    RAY_BY_HAND: ray_by_hand,
}
JAX: Mapping[str, Shell] = {OURS_JAX: ranklaunch_jax, JAX_BY_HAND: jax_by_hand}


def _start(kind: str, shell: Shell, nodes: int) -> Sample:
    """Start a job on new hosts, and end it once its program is connected."""
    with tempfile.TemporaryDirectory(prefix="rlb") as name:
        folder = Path(name)  # a short path, because Ray makes sockets in it
        with Hosts(nodes, folder) as hosts, Job(folder) as job:
            began = time.monotonic()
            for node, host in enumerate(hosts):
                of_node = folder / str(node)
                of_node.mkdir()
                ranks = Ranks(CPUS, (PROGRAM, kind.lower(), str(folder)), of_node, nodes, node)
                folders = {"HOME": str(of_node), "RAY_TMPDIR": str(of_node), "RANKLAUNCH_RUN_DIR": name}
                job.start(shell(ranks, hosts), host.popen, **folders)
            processes = nodes if kind == "JAX" else 1
            files = [folder / f"first-{rank}" for rank in range(processes)]
            while not all(file.exists() for file in files):
                if time.monotonic() - began > LIMIT_S:
                    consoles = [folder / f"console-{node}" for node in range(nodes)]
                    tails = [path.read_text(errors="replace")[-300:] for path in consoles]
                    msg = f"no program after {LIMIT_S:g} s: {' | '.join(tails)}"
                    raise Failed(msg)
                time.sleep(0.01)
            times = [[float(word) for word in file.read_text().split()] for file in files]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    if {count for _, _, count in times} != {float(nodes)}:
        msg = f"the program did not have {nodes} nodes: {times}"
        raise Failed(msg)
    return {
        FIRST: max(first for first, _, _ in times) - began,
        CONNECTED: max(connected for _, connected, _ in times) - began,
    }


def targets(rows: list[Row]) -> list[Target]:
    """Return the targets: for Ray, not later than the other ways; for JAX, few seconds more than the bare processes."""
    result = []
    for nodes in sorted({1, 3} & {int(row.case.split()[2]) for row in rows}):
        name = case("Ray", nodes)
        for other in (SYMMETRIC, RAY_BY_HAND):
            times = ratio(rows, name, FIRST, OURS_RAY, other)
            result.append(Target(f"{name}, to the first line: times {other}", times, 1.0))
        name = case("JAX", nodes)
        ours, bare = (value(rows, name, CONNECTED, way) for way in (OURS_JAX, JAX_BY_HAND))
        more = None if ours is None or bare is None else ours - bare
        text = f"{name}, to the end of initialize(): seconds more than by hand"
        result.append(Target(text, more, MORE_OF_JAX_S))
    return result
