"""Jobs of Kubernetes' engines on several hosts: each host is a pod, with the name and the files that its engine gives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from testbench.hosts import Entered, Hosts
from testbench.jobs.job import RANKLAUNCH
from testbench.jobs.on_hosts import LauncherJob, Node
from testbench.places import CHILDREN

needs_mpi = pytest.mark.skipif(
    not shutil.which("mpirun") or not shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin"),
    reason="needs mpirun of Open MPI, and OpenSSH's server",
)

PYTHON = Path(sys.executable).with_name("python")  # msrun knows it by this name


class Pods(LauncherJob):
    """A job of which each host is a pod: it has a name in the cluster's DNS, and files of its own below a folder."""

    def __init__(self, made: Hosts, folder: Path, names: Sequence[str]) -> None:
        super().__init__(made, folder, "")
        self.hosts, self.names = list(made), list(names)
        self.services: list[Entered] = []
        for host, name in zip(self.hosts, names):
            made.name(None, name, host)
            full = f"{name}.default.svc.cluster.local"
            self.has_file(host.index, "etc/hosts", f"127.0.0.1\tlocalhost\n{host.address}\t{full}\t{name.partition('.')[0]}\n")

    def has_file(self, node: int, path: str, text: str) -> None:
        file = self.folder / f"root{node}" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def launch(self, envs: Sequence[Mapping[str, str]], *words: object) -> None:
        (self.folder / "run").mkdir(exist_ok=True)
        for host, name, env in zip(self.hosts, self.names, envs):
            logs = self.folder / host.name
            logs.mkdir(exist_ok=True)
            given = self._environment(host)
            for of_nobody in ("RANKLAUNCH_HOSTS", "RANKLAUNCH_NODE"):
                del given[of_nobody]
            given.update({"HOSTNAME": name.partition(".")[0], "RANKLAUNCH_RUN_DIR": str(self.folder / "run"), **env})
            options = (
                "--root",
                self.folder / f"root{host.index}",
                "--python",
                Path(sys.executable).with_name("python"),
                "--grace-s",
                self.grace_s,
                "--log-dir",
                logs,
            )
            with open(logs / "out", "wb") as out, open(logs / "err", "wb") as err:
                popen = host.popen(
                    [*RANKLAUNCH, "run", *options, "--", *words],
                    env=given,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
            self.nodes.append(Node(host, popen, logs))

    def places(self) -> list[str]:
        """What all ranks have said, in the order of the ranks."""
        lines = [line for node in self.nodes for line in node.out.splitlines() if "place " in line]
        return sorted(line[line.index("place ") + len("place ") :] for line in lines)

    def serve(self, service: int, node: int, ports: Sequence[int]) -> None:
        """One host is a Service of these ports of another, until the test ends: others reach it at an address that is not its own."""
        argv = (sys.executable, CHILDREN / "forwards.py", self.hosts[node].address, *ports)
        started = self.hosts[service].popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.services.append(started)
        assert started.stdout
        assert started.stdout.readline() == b"ready\n"

    def close(self) -> None:
        for service in self.services:
            with service:
                service.kill()


MakePods = Callable[..., Pods]


@pytest.fixture
def pods(hosts: Callable[..., Hosts], tmp_path: Path) -> Iterator[MakePods]:
    made: list[Pods] = []

    def make(*names: str) -> Pods:
        made.append(Pods(hosts(len(names)), tmp_path, names))
        return made[-1]

    yield make
    for job in made:
        job.close()
