"""A job with one ranklaunch on each of several hosts, for tests of launchers: start it, wait for output, check its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbench.hosts import Entered, Host, Hosts
from testbench.jobs.ends import checked_verdict
from testbench.waiting import sleep_until

LONG_S = 240.0  # limit of every wait: several imports of PyTorch on two busy cores
COMMON = ("outcome", "exit_code", "reason", "culprit")


class Node:
    """A ranklaunch that was started on a host."""

    def __init__(self, host: Host, popen: Entered, folder: Path) -> None:
        self.host, self.popen, self._folder = host, popen, folder

    @property
    def out(self) -> str:
        return (self._folder / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self._folder / "err").read_text(errors="replace")

    @property
    def verdict(self) -> dict[str, Any]:
        return checked_verdict(self._attempt / "verdict.json")

    def log(self, name: str) -> str:
        return (self._attempt / name).read_text(errors="replace")

    @property
    def _attempt(self) -> Path:
        """Folder of the attempt: in the log folder, or in the node's folder below it on platforms with shared volumes."""
        return next(iter(self._folder.glob("node_*")), self._folder) / "attempt_1"


class LauncherJob:
    def __init__(self, hosts: Hosts, folder: Path, method: str, slots: object = 2) -> None:
        self.nodes: list[Node] = []
        self.folder = folder
        self.interpreter = sys.executable
        self.grace_s = 5
        self._hosts, self._method, self._slots = hosts, method, slots

    def start(
        self,
        *words: object,
        options: tuple[object, ...] = (),
        env: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        only: Sequence[int] | None = None,
    ) -> None:
        """Start a program and its arguments on every host. prefix: words before ranklaunch's. only: indexes of hosts, None for all."""
        for host in self._hosts if only is None else [self._hosts[i] for i in only]:
            logs = self.folder / host.name
            logs.mkdir(exist_ok=True)
            where = ("--method", self._method, "--slots", self._slots, "--python", self.interpreter)
            own = ("--grace-s", self.grace_s, "--log-dir", logs)
            with open(logs / "out", "wb") as out, open(logs / "err", "wb") as err:
                popen = host.popen(
                    [*prefix, self.interpreter, "-m", "ranklaunch", "run", *where, *own, *options, "--", *words],
                    env={**self._environment(host), **(env or {})},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
            self.nodes.append(Node(host, popen, logs))

    def _environment(self, host: Host) -> dict[str, str]:
        """Return a small environment: variables of the machine that runs the tests must not decide."""
        kept = ("PATH", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "RANKLAUNCH_RANKSIDE")
        hosts = ",".join(each.name for each in self._hosts)
        home = {"HOME": str(self.folder), "LANG": "C", "OMP_NUM_THREADS": "1"}
        # Open MPI names its folder by host and process, and hosts of other tests have the same names: this test gets its own place.
        (self.folder / "t").mkdir(exist_ok=True)
        (self.folder / "t").chmod(0o1777)
        home["OMPI_MCA_orte_tmpdir_base"] = home["OMPI_MCA_btl_vader_backing_directory"] = str(self.folder / "t")
        return {
            **{name: os.environ[name] for name in kept if name in os.environ}, **home,
            "RANKLAUNCH_HOSTS": hosts, "RANKLAUNCH_NODE": str(host.index),
        }  # fmt: skip

    def said(self, node: int, text: str, times: int = 1) -> None:
        """Wait until the ranks of a node have written a text so many times."""

        def is_there() -> bool:
            assert self.nodes[node].popen.poll() is None or self.nodes[node].out.count(text) >= times, f"ended before; {self.words()}"
            return self.nodes[node].out.count(text) >= times

        sleep_until(is_there, lambda: f"{text!r} of node {node}; {self.words()}", LONG_S)

    def culprit_of_mpirun(self, node: int, rank: int) -> tuple[int, int | None]:
        """Return node and rank that a verdict can name for a failed rank: (0, None) if mpirun did not print which rank failed."""
        return (node, rank) if "Process name" in self.nodes[0].log("mpirun.log") else (0, None)

    def end(self, code: int) -> dict[str, Any]:
        """Wait for all nodes; check that they agree on code and verdict and that no process is left. Return node 0's verdict."""
        deadline = time.monotonic() + LONG_S
        for node in self.nodes:
            try:
                node.popen.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"still running after {LONG_S:g} s; {self.words()}") from None  # noqa: EM102
        assert [node.popen.returncode for node in self.nodes] == [code] * len(self.nodes), self.words()
        verdicts = [node.verdict for node in self.nodes]
        common = [{name: verdict[name] for name in COMMON} for verdict in verdicts]
        assert all(each == common[0] for each in common), common
        for node in self.nodes:
            assert not node.host.pids(), f"left on {node.host.name}; {self.words()}"
        return verdicts[0]

    def words(self) -> str:
        return "\n".join(f"{node.host.name} ({node.popen.poll()}):\n{node.err}\n{node.out[-3000:]}" for node in self.nodes)
