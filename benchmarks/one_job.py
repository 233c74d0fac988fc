"""End of a job of three nodes after a failure on one node: under torchrun alone, and under ranklaunch with method torchrun.

    sudo python -m benchmarks.one_job [--limit SECONDS] [--only WORDS] [--program sleeps|communicates]

Three hosts on this machine, from network namespaces (testbench/hosts/), two ranks on each. Prints a table: for each failure and
each way, the exit code of each node, and the seconds from the failure to the node's end. "-" is a node that the failure itself ends;
"runs" is a node that still runs at the limit. The work of the ranks takes 40 seconds; a launcher that notices nothing ends with 0 then.
Both ways are measured in one run, on the same machine; seconds of other machines differ.
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
WORK_S = 40.0  # duration of the ranks' work, after which they end with 0
MEMORY = 1 << 30  # bytes of memory of the host that runs out of memory
LIMITS = ("--lost-after-s", "4", "--muster-timeout-s", "20", "--master-port", str(PORT))


class Nodes(Job):
    """Job on several hosts. nodes: the started launcher of each node."""

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
        """Return the pid of a rank, as seen from this process. Raises LookupError."""
        pids = [pid for pid in _with_program(host) if processes.has(pid, "RANK", str(rank))]
        if not pids:
            msg = f"no rank {rank} on {host.name}"
            raise LookupError(msg)
        return pids[0]

    def request(self, name: str) -> None:
        """Write a file by which a rank fails (benchmarks/rank.py)."""
        (self.folder / name).touch()


class Failure(NamedTuple):
    """Failure of a job. act: causes the failure in a running job. before: prepares the hosts. runs: True if all ranks are up before the
    failure. gone: nodes that the failure itself ends."""

    name: str
    act: Callable[[Nodes], None]
    before: Callable[[Hosts], None] = lambda hosts: None
    runs: bool = True
    gone: tuple[int, ...] = ()


def kill(node: int, number: int) -> Callable[[Nodes], None]:
    return lambda job: job.nodes[node].popen.send_signal(number)


def take_port(hosts: Hosts) -> None:
    """Listen at the ports of torchrun's rendezvous and of the muster on node 0, so that the job cannot use them."""
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
    Failure("a rank exits with 42", lambda job: job.request("exit-3")),
    Failure("a rank is killed (SIGKILL)", lambda job: os.kill(job.rank(job.hosts[1], 3), signal.SIGKILL)),
    Failure("a rank is out of memory", lambda job: job.request("eat-3"), before=lambda hosts: hosts[1].limit_memory(MEMORY)),
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
    """Return the end of each node, as cells of a table."""
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
        remaining = [str(index) for index in job.nodes if index in ends and hosts[index].pid and _with_program(hosts[index])]
    cells = ["-" if index in failure.gone or index not in job.nodes else ends.get(index, "runs") for index in range(NODES)]
    return " | ".join([*cells, f"ranks left on {', '.join(remaining)}" if remaining else ""])


def _with_program(host: Host) -> list[int]:
    """Return the pids of ranks and launchers: the program of the ranks is on their command lines."""
    return [pid for pid in host.pids() if str(RANK) in processes.command(pid)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds until a node counts as still running")
    parser.add_argument("--only", default="", help="only failures with these words in their name")
    parser.add_argument("--program", default="sleeps", choices=("sleeps", "communicates"), help="work of the ranks")
    parser.add_argument("--way", default="torchrun,ranklaunch")
    options = parser.parse_args()
    print("| failure | with | node 0 | node 1 | node 2 | |")
    print("| --- | --- | --- | --- | --- | --- |")
    for failure in FAILURES:
        for way in options.way.split(",") if options.only in failure.name else ():
            print(f"| {failure.name} | {way} | {measure(failure, way, options.program, options.limit)} |", flush=True)


if __name__ == "__main__":
    main()
