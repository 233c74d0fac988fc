"""How a job of three nodes ends when something goes wrong on one of them: under torchrun alone, and under ranklaunch with method torchrun.

    sudo python benchmarks/one_job.py [--limit SECONDS] [--only WORDS] [--program sleeps|communicates]

Three hosts on this machine, from network namespaces (tests/cluster_hosts.py), two ranks on each. Prints a table: for each failure and
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from cluster_hosts import Entered, Host, Hosts

NODES = 3
SLOTS = 2
PORT = 29500
START_S = 90.0
WORK_S = 40.0  # after which the ranks have done their work and end with 0
MEMORY = 1 << 30  # of a host that is to run out of it
LOST_AFTER_S = 4

# Tells that it runs, does what a file asks for, and else sleeps or communicates.
PROGRAM = """
import os, sys, time
folder, kind = sys.argv[1], sys.argv[2]
rank = os.environ["RANK"]
if kind == "communicates":
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    ones = torch.ones(1000)
open(os.path.join(folder, "ready-" + rank), "w").close()
held = []
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    if os.path.exists(os.path.join(folder, "exit-" + rank)):
        print("rank", rank, "exits with 42", flush=True)
        os._exit(42)
    if os.path.exists(os.path.join(folder, "eat-" + rank)):
        held.append(bytearray(os.urandom(1 << 20)) * 32)
    elif kind == "communicates":
        dist.all_reduce(ones)
        time.sleep(0.05)
    else:
        time.sleep(0.05)
"""


class Job:
    """One job on its hosts. nodes: what was started on each."""

    def __init__(self, hosts: Hosts, folder: Path, way: str, kind: str) -> None:
        self.hosts = hosts
        self.folder = folder
        self.way = way
        self.kind = kind
        self.nodes: dict[int, Entered] = {}
        (folder / "program.py").write_text(PROGRAM)

    def start(self, *indices: int) -> None:
        for index in indices:
            output = (self.folder / f"console-{index}").open("wb")
            env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
            self.nodes[index] = self.hosts[index].popen(
                self._command(index), env=env, cwd=str(self.folder), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _command(self, index: int) -> Sequence[str]:
        program = (str(self.folder / "program.py"), str(self.folder), self.kind, str(WORK_S))
        if self.way == "torchrun":
            layout = (f"--nnodes={NODES}", f"--nproc_per_node={SLOTS}", f"--node_rank={index}", "--rdzv_backend=static")
            return (sys.executable, "-m", "torch.distributed.run", *layout, "--master_addr=h0", f"--master_port={PORT}", *program)
        shape = ("--hosts", ",".join(f"h{i}" for i in range(NODES)), "--node", str(index), "--slots", str(SLOTS))
        limits = ("--lost-after-s", str(LOST_AFTER_S), "--muster-timeout-s", "20", "--master-port", str(PORT))
        log_dir = str(self.folder / f"logs-{index}")
        words = ("run", "--method", "torchrun", "--python", sys.executable, "--log-dir", log_dir, *shape, *limits)
        return (sys.executable, "-m", "ranklaunch", *words, "--", *program)

    def wait_until_ready(self) -> None:
        wanted = [self.folder / f"ready-{rank}" for rank in range(NODES * SLOTS)]
        deadline = time.monotonic() + START_S
        while not all(path.exists() for path in wanted):
            if time.monotonic() > deadline:
                consoles = "\n".join(path.read_text(errors="replace")[-1000:] for path in self.folder.glob("console-*"))
                msg = f"not ready after {START_S:g} s:\n{consoles}"
                raise TimeoutError(msg)
            time.sleep(0.05)

    def rank(self, host: Host, rank: int) -> int:
        """The pid of a rank, seen from here."""
        for pid in host.pids():
            try:
                env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if f"RANK={rank}".encode() in env and b"program.py" in command:
                return pid
        msg = f"no rank {rank} on {host.name}"
        raise LookupError(msg)

    def ask(self, what: str) -> None:
        (self.folder / what).touch()


class Failure(NamedTuple):
    """act: makes it happen to a job that runs. before: what is done to the hosts first. starts: whether the job gets as far as running;
    gone: nodes that the failure itself ends."""

    name: str
    act: Callable[[Job], None]
    before: Callable[[Hosts], None] = lambda hosts: None
    runs: bool = True
    gone: tuple[int, ...] = ()


def kill(node: int, number: int) -> Callable[[Job], None]:
    return lambda job: job.nodes[node].send_signal(number)


def take_port(hosts: Hosts) -> None:
    """Both ports at which a job would meet: torchrun's, and that of the muster."""
    program = (
        f"import socket, time; s = [socket.create_server(('', p)) for p in ({PORT}, 18889)]; print('taken', flush=True); time.sleep(600)"
    )
    taker = hosts[0].popen((sys.executable, "-c", program), stdout=subprocess.PIPE)
    assert taker.stdout
    assert taker.stdout.readline().strip() == b"taken"


def power_off(job: Job) -> None:
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
    with tempfile.TemporaryDirectory() as name, Hosts(NODES, Path(name)) as hosts:
        failure.before(hosts)
        job = Job(hosts, Path(name), way, kind)
        job.start(*(range(NODES) if "never comes" not in failure.name else (0, 1)))
        if failure.runs:
            job.wait_until_ready()
        began = time.monotonic()
        failure.act(job)
        ends: dict[int, str] = {}
        while len(ends) < len(job.nodes) and time.monotonic() - began < limit_s:
            for index, node in job.nodes.items():
                code = node.poll()
                if index not in ends and code is not None:
                    ends[index] = f"{128 - code if code < 0 else code} after {time.monotonic() - began:.1f} s"
            time.sleep(0.02)
        left = [str(index) for index in job.nodes if index in ends and _left(hosts[index])]
        hosts.close()
    cells = ["-" if index in failure.gone or index not in job.nodes else ends.get(index, "runs") for index in range(NODES)]
    return " | ".join([*cells, f"ranks left on {', '.join(left)}" if left else ""])


def _left(host: Host) -> bool:
    return host.pid != 0 and any(b"program.py" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in host.pids())


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
