"""Slurm on hosts of testbench.hosts: munged and slurmctld on the first, slurmd on each. All files are in one shared folder.

    with Slurm(hosts(2), folder) as slurm:
        slurm.srun("-N2", "--ntasks-per-node=1", "hostname")

Needs Debian's packages slurmctld, slurmd, slurm-client and munge. Their services need not run, and no installed cluster is used: the test
has its own configuration, key and socket.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbench.hosts import Entered, Host, Hosts, kernel, wait_until

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "salloc", "scancel", "scontrol", "sbatch")
SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
SECONDS = 90.0
MUNGE_FILES = {
    "socket": "munge.socket", "key-file": "munge.key", "log-file": "munged.log", "pid-file": "munged.pid", "seed-file": "munge.seed",
}  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/full")  # stand-ins for GPUs: Slurm only needs device files to count

BINDS = "task/affinity\nTaskPluginParam=autobind=cores"
CONFIGURATION = """\
ClusterName=ranklaunch
SlurmctldHost={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin={task}
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
KillWait=30
DefMemPerNode=100
SlurmdParameters=config_overrides
GresTypes=gpu
LaunchParameters=use_interactive_step
InteractiveStepOptions="--interactive --preserve-env $SHELL"
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    lacking = [program for program in PROGRAMS if not shutil.which(program, path=SEARCH)]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


class Slurm:
    """A running Slurm. gpus: number of pretended GPUs of each node. binds: Slurm binds each task to a core by default."""

    def __init__(self, hosts: Hosts, folder: Path, gpus: int = 2, binds: bool = False) -> None:
        self.hosts = hosts
        self.folder = folder
        self._gpus = gpus
        self._task = BINDS if binds else "task/none"
        self._daemons: list[Entered] = []

    def __enter__(self) -> Slurm:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        kept = ("TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        return {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "PATH": SEARCH, "HOME": str(self.folder), "LANG": "C", "OMP_NUM_THREADS": "1", "SLURM_CONF": str(self.folder / "slurm.conf"),
        }  # fmt: skip

    def popen(self, *argv: object, host: Host | None = None, env: Mapping[str, str] | None = None, **how: Any) -> Entered:
        """Start a command on the first host or on `host`, with text pipes for its output."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return (host or self.hosts[0]).popen(argv, env={**self.environment, **(env or {})}, cwd=self.folder, **{**pipes, **how})

    def run(self, *argv: object, host: Host | None = None, **how: Any) -> subprocess.CompletedProcess[str]:
        return (host or self.hosts[0]).run(argv, SECONDS, env=self.environment, cwd=self.folder, **how)

    def state(self, job: object) -> str:
        """Return the state in `scontrol show job`, such as RUNNING, COMPLETED, FAILED or CANCELLED."""
        text = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(word.partition("=")[::2] for word in text.split()).get("JobState", "")

    def hurry(self, job: object) -> None:
        """Let a requeued job begin now; Slurm holds it back for two minutes.

        Waits for old steps: a start that meets steps of the start before fails with exit code 1 and no other message.
        """
        if self.state(job) == "PENDING" and not self._steps():
            self.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # fails if the job has begun meanwhile

    def close(self) -> None:
        """Wait for steps, then end the daemons one by one, munged last: the others need it until their end."""
        with contextlib.suppress(TimeoutError):  # the owner of the hosts reports what is left
            wait_until(lambda: not self._steps(), "steps are left", SECONDS)
        while self._daemons:
            daemon = self._daemons.pop()
            with contextlib.suppress(ProcessLookupError):
                daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(SECONDS)

    def _steps(self) -> list[int]:
        pids = [pid for host in self.hosts for pid in host.pids()]
        return [pid for pid in pids if kernel.read(f"/proc/{pid}/cmdline").startswith("slurmstepd")]

    def _start(self) -> None:
        for name in ("state", *(f"spool-{host.name}" for host in self.hosts)):
            (self.folder / name).mkdir(parents=True)
        self._write_files()
        self._daemon(
            self.hosts[0], "munged", "--foreground", "--force", "--num-threads=2",
            *(f"--{what}={self.folder}/{name}" for what, name in MUNGE_FILES.items()),
        )  # fmt: skip
        wait_until(lambda: (self.folder / "munge.socket").exists(), "munged is not ready", SECONDS)
        self._daemon(self.hosts[0], "slurmctld", "-D", "-i")
        for host in self.hosts:
            self._daemon(host, "slurmd", "-D", "-N", host.name)
        wait_until(self._all_idle, "not every node is idle", SECONDS)

    def _daemon(self, host: Host, *argv: object) -> None:
        self._daemons.append(self.popen(*argv, host=host, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def _write_files(self) -> None:
        self.folder.chmod(0o755)
        lines = "\n".join(
            f"NodeName={h.name} NodeAddr={h.address} CPUs=4 RealMemory=1000 State=UNKNOWN Gres=gpu:{self._gpus}" for h in self.hosts
        )
        controller = f"{self.hosts[0].name}({self.hosts[0].address})"
        text = CONFIGURATION.format(controller=controller, folder=self.folder, nodes=lines, task=self._task)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={device}\n" for device in DEVICES[: self._gpus]))
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)

    def _all_idle(self) -> bool:
        ended = [daemon for daemon in self._daemons if daemon.poll() is not None]
        assert not ended, f"{ended[0].args!r} ended with {ended[0].returncode}; its log is in {self.folder}"
        state = self.run("sinfo", "--noheader", "--format=%T %D").stdout.split()
        return state == ["idle", str(len(self.hosts))]
