"""Growth with the size of the job: planning, the muster, look-up of names, and waits for SSH servers.

Plans are for one node in the middle of the job, in memory: nothing is read from the disk. The muster has node 0 in one process and
the members of all other nodes in two processes; all use ranklaunch's own code, and share this machine. The name server and the SSH
servers of the benchmark answer 20 ms after each question.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from benchmarks import jobs
from benchmarks.rows import Row, Sample, Target, in_turn, ratio, value
from testbench.hosts import Host, Hosts, missing
from testbench.waiting import free_port

NAME = "scale"
RANKS = (1_000, 10_000, 100_000)
RANKS_QUICK = (64, 1_000)
NODES = (256, 1_024, 4_096)
NODES_QUICK = (32,)
NAMES, NAMES_QUICK = 1_024, 32
SERVERS, SERVERS_QUICK = 256, 16
PARTS = 2  # number of processes for the members
STEPS = Path(__file__).resolve().with_name("scale_steps.py")
PLANS = ("json.loads", "rank table", "VC_WORKER_HOSTS", "host file")


class Place(Protocol):
    """Place in which processes are started: this machine, or a host of the test bench."""

    def popen(self, argv: Sequence[object], **how: Any) -> subprocess.Popen[str]: ...


class Here:
    def popen(self, argv: Sequence[object], **how: Any) -> subprocess.Popen[str]:
        return subprocess.Popen([str(word) for word in argv], **how)


HERE = Here()


def measure(quick: bool) -> list[Row]:
    rows = [each for ranks in (RANKS_QUICK if quick else RANKS) for each in _plans(ranks, 1 if quick else 5)]
    for nodes in NODES_QUICK if quick else NODES:
        rows += in_turn(muster_case(nodes), {"ranklaunch": lambda nodes=nodes: muster(nodes)}, 1 if quick else 3)  # type: ignore[misc]
    if not missing():
        names = NAMES_QUICK if quick else NAMES
        rows += in_turn(names_case(names), {"ranklaunch": lambda: resolve(names)}, 1 if quick else 3)
    servers = SERVERS_QUICK if quick else SERVERS
    return [*rows, *in_turn(f"banners of {servers} SSH servers", {"ranklaunch": lambda: banners(servers)}, 1 if quick else 3)]


def targets(rows: Sequence[Row]) -> list[Target]:
    most, fewer = RANKS[-1], RANKS[-2]
    return [
        Target(
            f"plan from a rank table of {most:,} ranks, times the CPU seconds of json.loads",
            ratio(rows, plan_case(most), "CPU s", "rank table", "json.loads"),
            4.0,
        ),
        *(
            Target(
                f"CPU seconds per rank of a plan ({way}), {most:,} ranks against {fewer:,}",
                _growth(rows, way, fewer, most),
                1.5,
            )
            for way in PLANS[1:]
        ),
        Target(f"seconds of a muster of {NODES[-1]:,} nodes", value(rows, muster_case(NODES[-1]), "s", "ranklaunch"), 5.0),
        Target(f"{NAMES:,} names, times one answer", value(rows, names_case(NAMES), "times one answer", "ranklaunch"), 10.0),
    ]


def _growth(rows: Sequence[Row], way: str, fewer: int, most: int) -> float | None:
    """Return the factor by which the CPU seconds per rank grow, None if unknown."""
    before, after = (value(rows, plan_case(ranks), "CPU s", way) for ranks in (fewer, most))
    return None if before is None or after is None else after / most / (before / fewer)


def plan_case(ranks: int) -> str:
    return f"plan of one node of {ranks:,} ranks"


def muster_case(nodes: int) -> str:
    return f"muster of {nodes:,} nodes"


def names_case(names: int) -> str:
    return f"{names:,} host names, each answered after 20 ms"


def _plans(ranks: int, runs: int) -> list[Row]:
    each: dict[str, Callable[[], Sample]] = {way: lambda way=way: _step(way, ranks) for way in PLANS}  # type: ignore[misc]
    rows = in_turn(plan_case(ranks), each, runs)
    return [row.noted("the same table as text") if row.way == PLANS[0] else row for row in rows]


def muster(nodes: int) -> Sample:
    """Measure from the start of the first member to the release of the last. CPU seconds and memory are of node 0."""
    port = free_port()
    with contextlib.ExitStack() as steps:
        hub = steps.enter_context(Step(HERE, "hub", nodes, port))
        hub.wait_until_ready()
        parts = [steps.enter_context(Step(HERE, "members", nodes, port, part, PARTS)) for part in range(PARTS)]
        for part in parts:
            part.wait_until_ready()
        for part in parts:
            part.go()
        of_members = [part.result() for part in parts]  # the members stay: the end of a node would end the job
        hub.go()
        of_hub = hub.result()
    last = max(of_hub["released"], *(each["released"] for each in of_members))
    seconds = last - min(each["began"] for each in of_members)
    members_cpu_s = sum(each["CPU s"] for each in of_members)
    return {"s": seconds, "CPU s": of_hub["CPU s"], "peak MB": of_hub["peak MB"], "CPU s of members": members_cpu_s}


def resolve(names: int) -> Sample:
    with tempfile.TemporaryDirectory(prefix="ranklaunch-names-") as folder:
        hosts = Hosts(1, Path(folder))
        (hosts[0].folder / "etc" / "nsswitch.conf").write_text("hosts: dns\n")
        (hosts[0].folder / "etc" / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        with hosts:
            return _beside("name server", hosts[0], "resolve", names)


def banners(servers: int) -> Sample:
    return _beside("ssh servers", HERE, "banners", servers, free_port())


def _beside(server: str, place: Place | Host, step: str, *numbers: int) -> Sample:
    with Step(place, server, *numbers) as serving:
        serving.wait_until_ready()
        return _step(step, *numbers, place=place)


def _step(name: str, *numbers: int, place: Place | Host = HERE) -> Sample:
    with Step(place, name, *numbers) as step:
        return step.result()


class Step:
    """Step of scale_steps.py in a process of its own."""

    def __init__(self, place: Place | Host, name: str, *numbers: int) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by end()
        self._process: subprocess.Popen[str] = place.popen(
            [sys.executable, STEPS, name, *map(str, numbers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=jobs.environment(),
        )  # fmt: skip

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait_until_ready(self) -> None:
        if self._output().readline() != "ready\n":
            raise self._failure()

    def go(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> Mapping[str, float]:
        line = self._output().readline()
        if not line:
            raise self._failure()
        return dict(json.loads(line))

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _output(self) -> IO[str]:
        assert self._process.stdout
        return self._process.stdout

    def _failure(self) -> RuntimeError:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        return RuntimeError(f"{self._name} failed: {self._errors.read()[-2000:]}")
