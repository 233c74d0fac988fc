"""A job of a batch system on hosts of testbench.hosts: a daemon on each host, and stubs of blaunch, pbsdsh and flux on PATH (starters.py).

with Batch(hosts(2), folder) as batch:
    batch.script("pbs", "pbsdsh -- true")
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbench.hosts import Entered, Hosts
from testbench.places import ROOT

PROGRAMS = ("blaunch", "pbsdsh", "pbs_tmrsh", "flux")
STARTERS = Path(__file__).with_name("starters.py")


class Batch:
    """A running job. slots: number of lines for each host in the node file."""

    def __init__(self, hosts: Hosts, folder: Path, slots: int = 1) -> None:
        self.hosts, self.folder = hosts, folder
        folder.mkdir(exist_ok=True)
        self._daemons: list[Entered] = []
        self._names = [host.name for host in hosts]
        self._slots = [name for name in self._names for _ in range(slots)]
        self._bin = folder / "bin"

    def __enter__(self) -> Batch:
        self._bin.mkdir()
        for name in PROGRAMS:
            program = self._bin / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {STARTERS} {name} "$@"\n')
            program.chmod(0o755)
        (self.folder / "nodes").write_text("".join(f"{name}\n" for name in self._slots))
        job = {"hosts": self._names, "slots": self._slots, "environment": self.of("pbs", whole=False)}
        (self.folder / "job.json").write_text(json.dumps(job))
        for host in self.hosts:
            daemon = host.popen([sys.executable, STARTERS, "daemon"], env=self._common, cwd=self.folder, stdout=subprocess.PIPE)
            self._daemons.append(daemon)
            assert daemon.stdout
            daemon.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
            if daemon.stdout:
                daemon.stdout.close()

    @property
    def _common(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("TMPDIR", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
        path = f"{self._bin}:{os.environ['PATH']}"
        return {
            **kept, "PATH": path, "HOME": str(self.folder), "LANG": "C", "OMP_NUM_THREADS": "1",
            "BATCH_STUB": str(self.folder / "job.json"), "PYTHONPATH": str(ROOT / "src"),
        }  # fmt: skip

    def of(self, place: str, *, whole: bool = True) -> dict[str, str]:
        """Return the environment of a job's script. whole: with PBS_NODEFILE, which PBS gives to the script alone."""
        slots = " ".join(f"{name} {self._slots.count(name)}" for name in self._names)
        made = {
            "lsf": {"LSB_JOBID": "71", "LSB_JOBNAME": "llm", "LSB_JOBINDEX": "0", "LSB_MCPU_HOSTS": slots},
            "pbs": {"PBS_JOBID": "71.s", "PBS_JOBNAME": "llm", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODENUM": "0", "PBS_TASKNUM": "1"},
            "flux": {"FLUX_URI": "local:///tmp/stub", "FLUX_ENCLOSING_ID": "\u0192Stub0"},
        }[place]
        return {**self._common, **made, **({"PBS_NODEFILE": str(self.folder / "nodes")} if place == "pbs" and whole else {})}

    def script(self, place: str, text: str, env: Mapping[str, str] | None = None) -> Entered:
        """Start a shell text on the first host, with the environment of a job's script."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        return self.hosts[0].popen(["sh", "-c", text], env={**self.of(place), **(env or {})}, cwd=self.folder, text=True, **pipes)

    def signal(self, number: int) -> None:
        """Send a signal to all tasks, like the daemons of PBS and Flux."""
        request = f"from starters import connected; connected(%r, {{'signal': {int(number)}}}).makefile().readline()"
        for host in self.hosts:
            host.run([sys.executable, "-c", request % host.name], env={"PYTHONPATH": str(STARTERS.parent)}, check=True)
