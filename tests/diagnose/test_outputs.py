"""Lines of one rank in an output that several ranks and their launcher write."""

from __future__ import annotations

import pytest

from ranklaunch.diagnose import failures
from ranklaunch.ends.host_lines import names_of
from ranklaunch.ends.model import JobFacts, NodeFacts
from ranklaunch.verdict.model import Failure

LOST = "RuntimeError: Connection closed by peer [10.77.0.11]:1234\n"
ENDS_RANKS = "W1122 08:18:54.1 5314 torch/elastic/multiprocessing/api.py:1010] Sending process 3 closing signal SIGTERM\n"
BY_TORCHRUN = "E1122 08:18:54.2 5314 torch/elastic/multiprocessing/api.py:984] failed (exitcode: %d) local_rank: 1 (pid: 7) of x\n"
BY_DEEPSPEED = "[2026-11-25 23:42:46,282] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 7\n"
BY_SRUN = "srun: error: h1: task 3: Exited with exit code 1\n"
BY_MPIRUN = "mpirun.openmpi noticed that process rank 1 with PID 0 on node h1 exited on signal 9 (Killed).\n"
BY_MSRUN = "[mindspore/parallel/cluster/process_entity/_api.py:365] Worker process 10094 exit with exception. Error code: 1.\n"
LOST_HOST = "pdsh@h0: h1: ssh exited with exit code 255\n"


def job(*hosts: str) -> JobFacts:
    nodes = tuple(NodeFacts(index, host, 2, 2 * index) for index, host in enumerate(hosts))
    return JobFacts("job", "", 1, 0, "local", "torchrun", "ranks", "cpu", 0, nodes, ("train.py",))


OF_RANK = {
    "before the report of torchrun": (f"step 1\n{BY_TORCHRUN % 1}more\n", Failure(1, 1), "step 1\n"),
    "before torchrun ends the other ranks": (f"step 1\n{LOST}{ENDS_RANKS}terminated\n", Failure(1, 1), f"step 1\n{LOST}"),
    "before the report of DeepSpeed": (f"step 1\n{BY_DEEPSPEED}more\n", Failure(1, 1), "step 1\n"),
    "before the report of mpirun": (f"step 1\n{BY_MPIRUN}", Failure(1, 137, 9), "step 1\n"),
    "before the report of msrun": (f"step 1\n{BY_MSRUN}", Failure(1, 1), "step 1\n"),
    "without a report": ("step 1\n", Failure(1, 1), ""),
    "srun may report before the last lines have come": (f"hi\n{BY_SRUN}KeyError: 'loss'\n", Failure(3, 1), "hi\nKeyError: 'loss'\n"),
    "without lines that are marked as another rank's": (
        f"[rank1]: {LOST}[rank3]: KeyError: 'loss'\n{BY_DEEPSPEED}", Failure(3, 1), "[rank3]: KeyError: 'loss'\n",
    ),
    "of no rank, with the marked lines of an exception": (f"[rank1]: {LOST}{BY_DEEPSPEED}", Failure(None, 1), f"[rank1]: {LOST}"),
    "of no rank, which no exception has ended": (f"[rank1]: {LOST}{BY_DEEPSPEED}", Failure(None, 7), ""),
    "of one host alone": (f"h0: a\nh1: b\nh1: {BY_DEEPSPEED}h0: c\n", Failure(None, 1, node=1), "b\n"),
    "of a host that was lost": (f"h0: a\nh1: b\n{LOST_HOST}", Failure(None, 255, node=1), "b\n"),
    "of a host that was lost, and had written nothing": (f"h0: a\n{LOST_HOST}", Failure(None, 255, node=1), ""),
}  # fmt: skip


@pytest.mark.parametrize(("text", "report", "expected"), OF_RANK.values(), ids=OF_RANK)
def test_what_a_rank_wrote_into_its_launchers_output(text: str, report: Failure, expected: str) -> None:
    assert failures.output_of_rank(text, report, job("h0", "h1")) == expected


INNER = {
    BY_TORCHRUN % 3: "its torchrun says that local rank 1 (pid 7) exited with code 3",
    BY_TORCHRUN % -9: "its torchrun says that local rank 1 (pid 7) was killed by signal 9",
    f"{BY_TORCHRUN % 3}step 2\n{BY_TORCHRUN % 4}": "its torchrun says that local rank 1 (pid 7) exited with code 4",
    BY_MPIRUN: "its mpirun says that rank 1 on h1 was killed by signal 9",
    "  Process name: [[9830,1],1]\n  Exit code:    3\n": "its mpirun says that rank 1 exited with code 3",
    "[launch.py:259:sigkill_handler] ['python'] exits with return code = 7\n": "its deepspeed says that a rank exited with code 7",
    LOST: "",
}


@pytest.mark.parametrize(("text", "expected"), INNER.items())
def test_the_report_of_a_launcher_that_a_program_started(text: str, expected: str) -> None:
    assert failures.inner_report(text) == expected


def test_names_of_hosts() -> None:
    """A name that pdsh may give two hosts tells no node; nodes may have no names."""
    assert names_of(job("w1", "w1.job").nodes) == {"w1.job": 1}
    assert names_of(job("w0.job", "w1.job").nodes) == {"w0.job": 0, "w0": 0, "w1.job": 1, "w1": 1}
    assert names_of(job("", "10.0.0.1").nodes) == {"10.0.0.1": 1}
