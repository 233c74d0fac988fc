"""What is read of stacks and of RAS, in the words of those that write them."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import tempfile
import textwrap

import pytest

from ranklaunch.evidence import ras, stacks
from ranklaunch.evidence.ras import Behind

PY_SPY = """
Process 41: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 0x7F11 (idle): "Thread-1 (_read)"
    wait (threading.py:320)
Thread 41 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2810)
    train (train.py:88)
    <module> (train.py:102)
Thread 77 (active): "pt_data_pin"
    poll (connection.py:3)
"""


def places(text: str) -> list[str]:
    return [stacks.place(frame) for frame in stacks.main(text)]


def test_a_dump_of_py_spy() -> None:
    assert places(PY_SPY) == ["all_reduce at distributed_c10d.py:2810", "train at train.py:88", "<module> at train.py:102"]
    assert [thread.name for thread in stacks.threads(PY_SPY)] == ["Thread-1 (_read)", "MainThread", "pt_data_pin"]


def test_this_pythons_own_dump() -> None:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        assert places(file.read())[0].startswith("test_this_pythons_own_dump at test_stacks.py:")


@pytest.mark.processes
def test_what_is_written_on_abort_is_told_from_what_was_before() -> None:
    program = """
        import os, signal
        print("a line")
        def waits():
            os.kill(os.getpid(), signal.SIGABRT)
        waits()
    """
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    written = stacks.written_on_abort(done.stdout)
    assert written.startswith("Fatal Python error: Aborted\n")
    assert places(written) == ["waits at <string>:5", "<module> at <string>:6"]


@pytest.mark.parametrize("text", ["", 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n', "Thread 1\n"])
def test_what_is_no_dump(text: str) -> None:
    assert stacks.threads(text) == []
    assert stacks.main(text) == ()


RAS = """NCCL version 2.28.9 compiled with CUDA 12.9
Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  26 ranks have launched up to operation 6650
  4 ranks have launched up to operation 6649
  Rank 3 -- GPU 3 managed by process 483072 on node 10.0.0.7
  Rank 9 -- GPU 1 managed by process 483080 on node 10.0.0.8
  Rank 0 has launched up to operation 6641 -- GPU 0 managed by process 483069 on node 10.0.0.7
  Rank 1 has not launched any operations -- GPU 1 managed by process 483070 on node 10.0.0.7

#1-0 (17a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  7 ranks have status RUNNING
  Rank 5 has status FINALIZE -- GPU 5 managed by process 483074 on node 10.0.0.7
"""


def test_who_is_behind_by_ras() -> None:
    """A report made by hand after NCCL's source."""
    numbers = {0: (6641, 483069, 7), 1: (0, 483070, 7), 3: (6649, 483072, 7), 9: (6649, 483080, 8)}
    expected = [Behind("0-0", rank, "AllReduce", done, 6650, pid, f"10.0.0.{host}") for rank, (done, pid, host) in numbers.items()]
    assert ras.behind(RAS) == expected


# Of NCCL 2.28.9 on an H200: one rank is in a broadcast, the other in an all_reduce.
OF_TWO = """\
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         2         2         2   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (69439fbc67d00961) MISMATCH
  Communicator ranks have different Broadcast operation counts
  Rank 0 has launched up to operation 1 -- GPU 0 managed by process 1310 on node 127.0.0.1
  Rank 1 has not launched any operations -- GPU 0 managed by process 1313 on node 127.0.0.1

  Communicator ranks have different AllReduce operation counts
  Rank 1 has launched up to operation 7 -- GPU 0 managed by process 1313 on node 127.0.0.1
  Rank 0 has launched up to operation 6 -- GPU 0 managed by process 1310 on node 127.0.0.1

"""


def test_who_is_behind_by_a_report_of_two_operations() -> None:
    found = [(each.rank, each.operation, each.launched, each.most, each.pid) for each in ras.behind(OF_TWO)]
    assert found == [(1, "Broadcast", 0, 1, 1313), (0, "AllReduce", 6, 7, 1310)]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("", ("localhost", 28028)),
        ("localhost:3", ("localhost", 3)),
        ("[::1]:4", ("::1", 4)),
        (":5", ("localhost", 5)),
        ("x", ("localhost", 28028)),
    ],
)
def test_where_ras_listens(told: str, expected: tuple[str, int]) -> None:
    assert ras.address(told) == expected
