"""How the same program is started by ranklaunch and by others, on this machine alone, and when its ranks are all up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

START_S = 120.0

Command = Callable[[int, Path, Sequence[str]], list[str]]  # of so many ranks, with its logs below a folder, of a program with its arguments


def ranklaunch(ranks: int, logs: Path, program: Sequence[str]) -> list[str]:
    shape = ("--method", "spawn", "--slots", str(ranks), "--log-dir", str(logs), "--python", sys.executable)
    return [sys.executable, "-m", "ranklaunch", "run", *shape, "--", *program]


def torchrun(ranks: int, logs: Path, program: Sequence[str]) -> list[str]:
    shape = ("--nnodes=1", f"--nproc_per_node={ranks}", "--master_port=0", "--tee", "3", "--log-dir", str(logs))
    return [sys.executable, "-m", "torch.distributed.run", *shape, *program]


def deepspeed(ranks: int, logs: Path, program: Sequence[str]) -> list[str]:
    script = "from deepspeed.launcher.runner import main; main()"
    return [sys.executable, "-c", script, "--num_gpus", str(ranks), "--master_port", "29471", "--no_local_rank", *program]


def mpirun(ranks: int, logs: Path, program: Sequence[str]) -> list[str]:
    """Open MPI 4.1."""
    shape = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks))
    return ["mpirun", *shape, "--tag-output", "--output-filename", str(logs), sys.executable, *program]


class Job:
    """A launcher and its ranks. Each rank says that it is up with a file up-RANK that has its pid, and then waits for a file `go`.
    ranks: their pids."""

    def __init__(self, command: Sequence[str], folder: Path, stdout: int | IO[Any], stdin: int = subprocess.DEVNULL) -> None:
        self.ranks: list[int] = []
        self._folder = folder
        with (folder / "errors").open("wb") as errors:
            self.launcher = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=errors, env=environment(), cwd=folder)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self.launcher.poll() is None:
            self.launcher.terminate()
            self.launcher.wait(START_S)

    def wait_until_up(self, ranks: int) -> None:
        files = [self._folder / f"up-{rank}" for rank in range(ranks)]
        deadline = time.monotonic() + START_S
        while not all(file.exists() for file in files):
            if time.monotonic() > deadline or self.launcher.poll() is not None:
                msg = f"the ranks did not come up; code {self.launcher.poll()}:\n{self.errors}"
                raise RuntimeError(msg)
            time.sleep(0.01)
        self.ranks = [int(file.read_text()) for file in files]

    def go(self) -> None:
        (self._folder / "go").touch()

    @property
    def errors(self) -> str:
        return (self._folder / "errors").read_text(errors="replace")[-2000:]


def environment() -> Mapping[str, str]:
    """Ours, with this very ranklaunch; nothing of a job around us, nor of a launcher's own ideas of how many threads there are."""
    source = Path(__file__).resolve().parent.parent / "src"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RANKLAUNCH_", "OMPI_", "PMIX_", "SLURM_"))}
    return {**kept, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
