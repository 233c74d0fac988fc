"""Processes that meet in a file: PyTorch's own rendezvous by a file system that all nodes share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbench.jobs.job import RANKLAUNCH

pytestmark = [pytest.mark.processes, pytest.mark.launchers]

MEETS = """
import argparse, os
import torch.distributed as dist
parser = argparse.ArgumentParser()
for name, kind in (("init_method", str), ("rank", int), ("world_size", int)):
    parser.add_argument(f"--{name}", type=kind)
dist.init_process_group("gloo", **vars(parser.parse_args()))
dist.barrier()
print("met", dist.get_rank(), "of", dist.get_world_size(), flush=True)
os._exit(0)  # as one that is killed: the file stays
"""


def test_what_an_earlier_run_has_left_is_not_met(tmp_path: Path) -> None:
    """The second run is attempt 1 again, as where the logs were removed; it would wait in the first one's file until its time is over."""
    (tmp_path / "meets.py").write_text(MEETS)
    for run in ("first", "second"):
        logs = tmp_path / run
        command = [*RANKLAUNCH, "simulate", "--nodes", "2", "--slots", "1", "--method", "pytorch", "--python", sys.executable]
        ended = subprocess.run(
            [*command, "--log-dir", str(logs), "--", str(tmp_path / "meets.py")],
            env={"PATH": "/usr/bin:/bin", "RANKLAUNCH_INIT_METHOD": f"file://{tmp_path}/share"},
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        for node in range(2):
            assert f"met {node} of 2" in (logs / f"node_{node}" / "attempt_1" / "pytorch.log").read_text()
        (left,) = (tmp_path / "share").iterdir()
        assert left.name.endswith(".1.rendezvous")
