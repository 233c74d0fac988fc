"""The examples for mpirun do what they say, started by mpirun itself: ranklaunch has no part in it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

LONG_S = 300


def mpirun(ranks: int, example: str, *words: object, cwd: Path) -> list[str]:
    """The lines that the ranks print, in any order."""
    module = "horovod" if example.startswith("hvd") else "mpi4py"
    if not shutil.which("mpirun") or not importlib.util.find_spec(module):
        pytest.skip(f"needs mpirun of Open MPI, and {module}")
    command = ["mpirun", "--oversubscribe", "-np", str(ranks), sys.executable, str(helpers.ROOT / "examples" / example), *map(str, words)]
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_digits_are_learned(tmp_path: Path) -> None:
    """By all ranks, which take the same steps; a second start goes on where the first one ended."""
    words = ("--epochs", 2, "--checkpoint", tmp_path / "digits.npz")
    first = "\n".join(mpirun(2, "mpi_digits.py", *words, cwd=tmp_path))
    assert "2 ranks; ignored arguments: []" in first
    losses = [[float(found) for found in re.findall(rf"epoch {epoch}/2  loss ([0-9.]+)", first)] for epoch in (1, 2)]
    assert [len(found) for found in losses] == [2, 2]
    assert max(losses[1]) < min(losses[0])
    second = "\n".join(mpirun(1, "mpi_digits.py", *words, cwd=tmp_path))
    assert f"resumed from {tmp_path / 'digits.npz'} at epoch 2" in second
    (accuracy,) = re.findall(r"epoch 4/4  test accuracy ([0-9.]+)%", second)
    assert float(accuracy) > 85


@pytest.mark.table  # ranklaunch starts it in test_mpirun.py
def test_horovod_counts_the_images_of_all_ranks(tmp_path: Path) -> None:
    lines = mpirun(2, "hvd_synthetic.py", "--num-iters", 2, "--num-batches", 2, "--checkpoint", "x", cwd=tmp_path)
    text = "\n".join(lines)
    assert "2 ranks, 2 on this node; ignored arguments: ['--checkpoint', 'x']" in text
    each = [float(found) for found in re.findall(r"rank [01]: ([0-9.]+) img/sec", text)]
    (total,) = re.findall(r"total of 2 ranks: ([0-9.]+) img/sec", text)
    assert len(each) == 2
    assert float(total) == pytest.approx(sum(each), abs=0.2)
    assert re.search(r"iteration 2/2  loss [0-9.]+  [0-9.]+ img/sec per process", text)
