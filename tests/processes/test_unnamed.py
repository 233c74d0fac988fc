"""Ranks that only their environment names, among real processes."""

from __future__ import annotations

import subprocess

from ranklaunch.processes.unnamed import Unnamed
from ranklaunch.system import tree
from testbench.waiting import sleep_until


def test_a_process_becomes_a_rank_when_it_becomes_its_program() -> None:
    """As below mpirun, whose child has mpirun's own environment until then."""
    unnamed = Unnamed()
    with subprocess.Popen(
        ("sh", "-c", "read line; RANK=3 exec sleep 600"), stdin=subprocess.PIPE, env={"PATH": "/usr/bin:/bin"}
    ) as process:
        try:
            assert unnamed.find({}, 4) == {}
            assert process.stdin
            process.stdin.write(b"\n")
            process.stdin.flush()
            found = sleep_until(lambda: unnamed.find({}, 4), "the rank")
            assert found == {3: tree.identify(process.pid)}
        finally:
            process.kill()
    assert unnamed.find({}, 4) == {}
