"""Rules over placed heads: ranks that work alone, two of one place, ranks that start ranks, and what a program's 0 is worth."""

from __future__ import annotations

from dataclasses import replace

import helpers

from ranklaunch.placement import rules, success
from ranklaunch.placement.model import OURS, Head, Key, Launcher, placed
from ranklaunch.placement.rules import Job
from ranklaunch.placement.success import Node

SHELL, AGENT = (10, 1), (11, 1)  # the program, and a torchrun that it started


def key(pid: int) -> Key:
    return pid, 1


def torch(
    pid: int, rank: int, world: int, local: int = 2, *, parent: int = 11, master: str = "h0", port: int = 29500, **more: object
) -> Head:
    """A rank of a torchrun. parent: pid of the torchrun. local: ranks of its node."""
    told = (rank, world, rank % local, local, master, port)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    head = placed(key(pid), key(pid), key(parent), "torchrun", dict(zip(names, map(str, told))), at=float(pid))
    return replace(head, **more)


def of(launcher: str, pid: int, **variables: object) -> Head:
    return placed(key(pid), key(pid), AGENT, launcher, {name: str(value) for name, value in variables.items()}, at=float(pid))


def ours(pid: int, rank: int | None = None, world: int = 2, at: float = 0.0) -> Head:
    """A rank, or a program, that ranklaunch started: its Python has the pid, its top is one below."""
    variables = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": str(world)}
    return placed(key(pid), key(pid - 1), (1, 1), OURS, variables, at=at or float(pid))


def program(*heads: Head, launchers: tuple[Launcher, ...] = (), **codes: int) -> Node:
    """A node whose program is the shell 10. codes: exit codes by pid, as p11=1."""
    by_key = {key(int(name[1:])): code for name, code in codes.items()}
    return Node(heads, launchers, by_key, frozenset({SHELL}))


def ranks(*heads: Head) -> Node:
    """A node whose ranks ranklaunch started: the heads 21 and 31."""
    return Node(heads, (), {}, frozenset({key(20), key(30)}), ranks=True)


ALL = [key(pid) for pid in range(100)]
TWO = Job(2, 4, 2)


@helpers.for_each(
    [
        ([torch(20, 0, 4), torch(21, 1, 4)], ""),
        ([torch(20, 0, 2), torch(21, 1, 2)], "its world has 2 of the 4 ranks of the job"),
        ([torch(20, 0, 1, 1)], "its world has 1 of the 4 ranks of the job"),
        ([torch(20, 0, 2, 1)], ""),  # one rank on each of two nodes, on purpose
        ([torch(20, 0, 4, master="127.0.0.1")], "its ranks meet at 127.0.0.1, which is another host on each node"),
        ([torch(20, 0, 2, 1, master="localhost")], "its ranks meet at localhost, which is another host on each node"),
        ([of("mpirun", 20, OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2, OMPI_COMM_WORLD_LOCAL_SIZE=2)], "its world has 2 of the 4"),
        ([of("mpirun", 20, OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=4, OMPI_COMM_WORLD_LOCAL_SIZE=2)], ""),
        ([of("msrun", 20 + i, RANK_ID=i, MS_WORKER_NUM=2, MS_SCHED_HOST="h0") for i in (0, 1)], "its world has 2 of the 4"),
        ([of("msrun", 20, RANK_ID=0, MS_WORKER_NUM=4, MS_SCHED_HOST="h0")], ""),
        ([of("", 20, RANK=0, WORLD_SIZE=2)], ""),  # no launcher: a program that sets the variables itself
        ([replace(ours(11, 0), process=AGENT), torch(20, 0, 2, within=SHELL)], "its world has 2 of the 4"),  # with the platform's RANK
        ([ours(11)], ""),  # a sweep of programs that are one rank each
    ]
)
def test_ranks_that_work_alone(heads: list[Head], why: str) -> None:
    found = rules.alone(program(*heads), TWO)
    assert (found.why if found else "").startswith(why)
    assert bool(found) == bool(why)
    assert rules.alone(program(*heads), Job(1, 2, 2)) is None


def test_a_simulated_job_meets_at_a_loopback_address() -> None:
    assert rules.alone(program(torch(20, 0, 4, master="127.0.0.1")), Job(2, 4, 2, is_local=True)) is None


def test_preparation_by_a_launcher_on_each_node() -> None:
    before, after = torch(20, 0, 2), torch(30, 0, 4, parent=12)
    assert not rules.is_whole(program(before), TWO)
    assert rules.is_whole(program(before, after), TWO)


@helpers.for_each(
    [
        ([torch(20, 0, 2), torch(30, 0, 2, parent=12)], True),
        ([torch(20, 0, 2), torch(30, 0, 2, parent=12, port=29501)], False),
        ([torch(20, 0, 2), torch(30, 1, 2, parent=12)], False),
        ([torch(20, 0, 2), torch(30, 0, 2, top=key(20))], False),  # a shell that starts two programs
        ([torch(20, 0, 2), torch(30, 0, 2, process=key(130))], False),  # it has ended
        ([torch(20, 0, 1, 1), torch(30, 0, 1, 1, parent=12)], False),  # a sweep of one-process jobs
        ([torch(20, 0, 2), torch(30, 0, 2, launcher="", within=key(20))], False),  # an evaluation of a rank
        ([torch(20, 0, 2), torch(30, 0, 2, within=key(20))], False),
        ([of("mpirun", pid, OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2) for pid in (20, 30)], False),  # nobody knows where they meet
    ]
)
def test_two_ranks_of_one_place(heads: list[Head], same: bool) -> None:
    assert bool(rules.place_twice(program(*heads), ALL)) == same


def test_places_of_two_nodes() -> None:
    one, two = ([torch(20 + i, first + i, 4) for i in (0, 1)] for first in (0, 2))
    here, there = rules.places(program(*one), ALL, TWO), rules.places(program(*two), ALL, TWO)
    assert [(each.first, each.last) for each in (*here, *there)] == [(0, 1), (2, 3)]
    assert rules.common(here, there) is None
    assert rules.common(here, here) == here[0]
    assert rules.places(program(torch(20, 0, 4, master="127.0.0.1")), ALL, TWO) == ()


def inner(pid: int, rank: int, top: int, port: int, local: int = 2, at: float = 40.0) -> Head:
    return torch(pid, rank, local, local, parent=pid - pid % 10 + 5, port=port, master="127.0.0.1", within=key(top), at=at)


OUTER = (ours(21, 0), ours(31, 1))


@helpers.for_each(
    [
        ([inner(41, 0, 20, 1), inner(42, 1, 20, 1), inner(51, 0, 30, 2), inner(52, 1, 30, 2)], "4 slots of the 2 of this node"),
        ([inner(41, 0, 20, 1, 1), inner(51, 0, 30, 1, 1)], "port 1 of 127.0.0.1"),
        ([inner(41, 0, 20, 1, 1), inner(51, 0, 30, 2, 1)], ""),  # a sweep: each rank tries something on its own device
        ([inner(41, 0, 20, 1), inner(42, 1, 20, 1)], ""),  # one rank evaluates
        ([inner(41, 0, 20, 1, at=500.0), inner(51, 0, 30, 1, at=500.0)], ""),  # all ranks evaluate later
        ([torch(41, 0, 2, launcher="", within=key(20)), torch(51, 0, 2, launcher="", within=key(30))], ""),  # vLLM, Ray
        ([inner(141, 0, 20, 1), inner(151, 0, 30, 1)], ""),  # they have ended
    ]
)
def test_ranks_that_start_ranks(heads: list[Head], want: str) -> None:
    found = rules.twice(ranks(*OUTER, *heads), ALL, Job(1, 2, 2))
    assert (found.want if found else "") == want


def test_inner_ranks_on_the_same_devices() -> None:
    heads = [inner(41, 0, 20, 1, 1), inner(51, 0, 30, 2, 1)]
    same, own = {key(41): "0,1", key(51): "0,1"}, {key(41): "0", key(51): "1"}
    found = rules.twice(ranks(*OUTER, *heads), ALL, Job(1, 2, 2), same)
    assert found
    assert found.want == "the same devices"
    assert found.ranks == (0, 1)
    assert rules.twice(ranks(*OUTER, *heads), ALL, Job(1, 2, 2), own) is None


# Success


def launched(pid: int, top: Key | None = None) -> Launcher:
    return Launcher(key(pid), "torchrun", (), top, float(pid))


@helpers.for_each(
    [
        (program(launchers=(launched(11),), p11=1), 11),
        (program(launchers=(launched(11),), p11=0), None),
        (program(launchers=(launched(11),)), None),  # killed, or it runs
        (program(launchers=(launched(11), launched(12)), p11=1, p12=0), None),
        (program(launchers=(launched(11), launched(12)), p11=0, p12=2), 12),
        (program(torch(20, 0, 2), launchers=(launched(11), launched(30, key(20))), p11=0, p30=1), None),  # of a rank
        (program(of("mpirun", 20, OMPI_COMM_WORLD_RANK=0), p20=3), 11),  # in C: its ranks tell
        (program(of("mpirun", 20, OMPI_COMM_WORLD_RANK=0)), None),
        (program(replace(ours(11, 0), process=AGENT), launchers=(launched(11),), p11=1), 11),  # it inherits the platform's RANK
        (Node((ours(21, 0),), (launched(21),), {key(21): 1}, frozenset({key(20)}), ranks=True), None),  # in the script of a rank
    ]
)
def test_a_launcher_whose_failure_is_hidden(node: Node, pid: int | None) -> None:
    found = success.hidden(node)
    assert (found.launcher.process[0] if found else None) == pid


def test_an_earlier_failure() -> None:
    node = program(launchers=(launched(11), launched(12)), p11=1, p12=0)
    earlier = success.earlier(node)
    assert earlier
    assert earlier.process == key(11)


@helpers.for_each(
    [
        (program(torch(20, 0, 2)), [20], [20]),
        (program(torch(20, 0, 2), launchers=(launched(11),)), [11, 20], [11, 20]),
        (program(ours(11)), [11], [11]),
        (program(ours(11)), [], []),
        (program(ours(11), replace(ours(12), top=SHELL)), [11], []),  # 12 may have been the training
        (program(ours(11), replace(ours(12), top=SHELL)), [12], []),
        (program(ours(12), launchers=(launched(11),)), [12], []),  # beside a launcher
        (program(of("", 20, RANK=0)), [20], [20]),  # what started it has ended
        (program(torch(20, 0, 2), of("", 30, RANK=1)), [20, 30], [20, 30]),
        (program(torch(20, 0, 2), replace(of("", 30, RANK=1), within=key(20))), [30], []),  # a rank started it
        (ranks(*OUTER, replace(of("", 40, RANK=1), within=key(20))), [40], []),
        (ranks(*OUTER), [21], [21]),
    ]
)
def test_what_a_program_leaves_at_work(node: Node, living: list[int], left: list[int]) -> None:
    assert sorted(process[0] for process in success.left(node, [key(pid) for pid in living])) == left
