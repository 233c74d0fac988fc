"""How a job of three nodes ends when something goes wrong on one of them: under torchrun alone, and under ranklaunch with method torchrun.

    sudo python -m benchmarks.one_job [--limit SECONDS] [--only WORDS] [--program sleeps|communicates]

Three hosts on this machine, from network namespaces (testbench/hosts/), two ranks on each. Prints a table: for each failure and
each way, with which code and how many seconds after the failure each node ended. "-" is a node that the failure itself ends, "runs"
one that was still running at the limit. The ranks' work takes 40 seconds; a launcher that notices nothing ends with 0 then. Both ways
in one run, on the same machine; seconds of other machines differ.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import launchers, processes
from benchmarks.jobs import RANK, Job, Started
from benchmarks.launchers import PORT, Ranks
from testbench.hosts import Host, Hosts

NODES = 3
SLOTS = 2
WORK_S = 40.0  # after which the ranks have done their work and end with 0
MEMORY = 1 << 30  # of a host that is to run out of it
LIMITS = ("--lost-after-s", "4", "--muster-timeout-s", "20", "--master-port", str(PORT))


class Nodes(Job):
    """One job on its hosts. nodes: what was started on each."""

    def __init__(self, hosts: Hosts, folder: Path, way: str, kind: str) -> None:
        super().__init__(folder)
        self.hosts = hosts
        self.way = way
        self.kind = kind
        self.nodes: dict[int, Started] = {}

    def start_nodes(self, *indices: int) -> None:
        for index in indices:
            self.nodes[index] = self.start(self._command(index), self.hosts[index].popen)

    def _command(self, index: int) -> list[str]:
        program = (str(RANK), "works", str(self.folder), self.kind, str(WORK_S))
        ranks = Ranks(SLOTS, program, self.folder / f"node-{index}", NODES, index)
        return launchers.torchrun(ranks) if self.way == "torchrun" else launchers.ranklaunch("torchrun", ranks, *LIMITS)

    def rank(self, host: Host, rank: int) -> int:
        """The pid of a rank, seen from here."""
        found = [pid for pid in _with_program(host) if processes.has(pid, "RANK", str(rank))]
        if not found:
            msg = f"no rank {rank} on {host.name}"
            raise LookupError(msg)
        return found[0]

    def ask(self, what: str) -> None:
        (self.folder / what).touch()


class Failure(NamedTuple):
    """act: makes it happen to a job that runs. before: what is done to the hosts first. starts: whether the job gets as far as running;
    gone: nodes that the failure itself ends."""

    name: str
    act: Callable[[Nodes], None]
    before: Callable[[Hosts], None] = lambda hosts: None
    runs: bool = True
    gone: tuple[int, ...] = ()


def kill(node: int, number: int) -> Callable[[Nodes], None]:
    return lambda job: job.nodes[node].popen.send_signal(number)


def take_port(hosts: Hosts) -> None:
    """Both ports at which a job would meet: torchrun's, and that of the muster."""
    program = (
        f"import socket, time; s = [socket.create_server(('', p)) for p in ({PORT}, 18889)]; print('taken', flush=True); time.sleep(600)"
    )
    taker = hosts[0].popen((sys.executable, "-c", program), stdout=subprocess.PIPE)
    assert taker.stdout
    assert taker.stdout.readline().strip() == b"taken"


def power_off(job: Nodes) -> None:
    job.hosts[0].cut()
    job.hosts[0].stop()


FAILURES = (
    Failure("a rank exits with 42", lambda job: job.ask("exit-3")),
    Failure("a rank is killed (SIGKILL)", lambda job: os.kill(job.rank(job.hosts[1], 3), signal.SIGKILL)),
    Failure("a rank is out of memory", lambda job: job.ask("eat-3"), before=lambda hosts: hosts[1].limit_memory(MEMORY)),
    Failure("SIGTERM to one node's launcher", kill(1, signal.SIGTERM)),
    Failure("SIGKILL to one node's launcher", kill(1, signal.SIGKILL), gone=(1,)),
    Failure("one host is cut off", lambda job: job.hosts[1].cut()),
    Failure("one node never comes", lambda job: None, runs=False),
    Failure("the name of node 0 does not resolve on node 1", lambda job: None, before=lambda h: h.unname(h[1], "h0", "h0.job"), runs=False),
    Failure("the port is taken", lambda job: None, before=take_port, runs=False),
    Failure("SIGKILL to node 0's launcher", kill(0, signal.SIGKILL), gone=(0,)),
    Failure("node 0's host is gone", power_off, gone=(0,)),
)


def measure(failure: Failure, way: str, kind: str, limit_s: float) -> str:
    """How each node ended, as cells of a table."""
    with tempfile.TemporaryDirectory() as name, Hosts(NODES, Path(name)) as hosts, Nodes(hosts, Path(name), way, kind) as job:
        failure.before(hosts)
        job.start_nodes(*(range(NODES) if "never comes" not in failure.name else (0, 1)))
        if failure.runs:
            job.wait_until_up(NODES * SLOTS)
        began = time.monotonic()
        failure.act(job)
        ends: dict[int, str] = {}
        while len(ends) < len(job.nodes) and time.monotonic() - began < limit_s:
            for index, node in job.nodes.items():
                if node.wait(0.0):
                    ends[index] = f"{node.code} after {node.ended_at - began:.1f} s"
            time.sleep(0.02)
        left = [str(index) for index in job.nodes if index in ends and hosts[index].pid and _with_program(hosts[index])]
    cells = ["-" if index in failure.gone or index not in job.nodes else ends.get(index, "runs") for index in range(NODES)]
    return " | ".join([*cells, f"ranks left on {', '.join(left)}" if left else ""])


def _with_program(host: Host) -> list[int]:
    """What has the ranks' program on its command line: ranks and launchers."""
    return [pid for pid in host.pids() if str(RANK) in processes.command(pid)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a node counts as running on")
    parser.add_argument("--only", default="", help="failures whose name has this")
    parser.add_argument("--program", default="sleeps", choices=("sleeps", "communicates"), help="what the ranks do meanwhile")
    parser.add_argument("--way", default="torchrun,ranklaunch")
    given = parser.parse_args()
    print("| failure | with | node 0 | node 1 | node 2 | |")
    print("| --- | --- | --- | --- | --- | --- |")
    for failure in FAILURES:
        for way in given.way.split(",") if given.only in failure.name else ():
            print(f"| {failure.name} | {way} | {measure(failure, way, given.program, given.limit)} |", flush=True)


if __name__ == "__main__":
    main()
