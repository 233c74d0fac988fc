"""Whom a hang is put down to, and who stands behind a better witness."""

from __future__ import annotations

import pytest

from ranklaunch.hangs.frames import own
from ranklaunch.hangs.suspicion import NOBODY, Known, Missing, Raised, Suspect, groups, inside, outside, sentence, suspects

IN_TORCH = """
    wait (torch/_ops.py:1158)
    all_reduce (/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:{n})
    main (/job/train.py:88)
    <module> (/job/train.py:120)
"""
IN_LOADER = '  File "/job/data.py", line 40 in read\n  File "/job/train.py", line 80 in main\n'
AT_EXIT = '  File "/usr/lib/python3.11/threading.py", line 1590 in _shutdown\n'
IDLE = [Known(rank, rank // 4, "S", 0.0) for rank in range(8)]


def but(rank: int, **what: object) -> list[Known]:
    return [each._replace(**what) if each.rank == rank else each for each in IDLE]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "why", "rule"),
    [
        ({"state": "T"}, "its process is stopped (state T)", "stopped-or-stuck"),
        ({"state": "D"}, "its process is stuck in the kernel (state D)", "stopped-or-stuck"),
        ({"state": ""}, "its process is gone", "gone"),
        ({"cpu": 1.0, "full": True}, "it uses a full core while the others wait", "unlike-in-cpu"),
    ],
)
def test_one_rank_apart(what: dict[str, object], why: str, rule: str) -> None:
    assert suspects(but(5, **what)) == (Suspect(5, 1, why, rule=rule),)


def test_who_runs_on_while_most_have_ended() -> None:
    """As one that hangs while it exits."""
    ended = [each._replace(state="" if each.rank else "S") for each in IDLE]
    assert suspects(ended) == (Suspect(0, 0, "it still runs, while most others have ended", rule="at-exit"),)
    ended = [each._replace(state="" if each.rank < 4 else "S") for each in IDLE]
    assert sentence(suspects(ended)) == "ranks 0-3: its process is gone"
    exits = [each._replace(stack=AT_EXIT) for each in ended]
    why = "it still runs, while others have ended, and it waits in no collective: _shutdown at threading.py:1590"
    assert sentence(suspects(exits)) == f"ranks 4-7: {why}"
    waits = [each._replace(stack=IN_TORCH.format(n=1)) for each in ended]
    assert sentence(suspects(waits)) == "ranks 0-3: its process is gone"


def test_ranks_without_a_stack_have_no_interpreter_left() -> None:
    """They wait in MPI_Finalize for the one whose program goes on."""
    finishing = [each._replace(stack=IN_LOADER if each.rank == 3 else "") for each in IDLE]
    (found,) = suspects(finishing)
    assert (found.rank, found.rule) == (3, "at-exit")
    (stuck,) = suspects([each._replace(state="D") if each.rank == 5 else each for each in finishing])
    assert stuck.rank == 5


def test_lines_of_one_function_are_told_apart() -> None:
    stack = '  File "/job/flat.py", line {} in <module>\n'
    known = [Known(rank, 0, "S", stack=stack.format(6 if rank == 1 else 8)) for rank in range(4)]
    assert [(each.rank, each.rule) for each in suspects(known)] == [(1, "elsewhere")]
    assert groups(known) == ["ranks 0,2-3: <module> at flat.py:8", "rank 1: <module> at flat.py:6"]


def test_a_root_and_its_peers_may_call_from_other_lines() -> None:
    received = frame_of("/job/comm.py", "received", 67)
    known = [Known(rank, 0, "S", stack=received + frame_of("/job/comm.py", "exchange", 50 + 4 * (rank > 0))) for rank in range(6)]
    assert suspects(known) == ()


def test_groups_with_the_same_words_are_one() -> None:
    waits = [
        Known(rank, 0, stack=frame_of(f"{PACKAGES}/torch/distributed/{name}.py", "all_gather") + MAIN) for rank, name in enumerate("ab")
    ]
    assert groups(waits) == ["ranks 0-1: all_gather at train.py:88"]


def test_who_waits_while_all_others_spin() -> None:
    spins = [each._replace(cpu=1.0, full=True) if each.rank != 2 else each for each in IDLE]
    assert suspects(spins) == (Suspect(2, 0, "it waits while the others use a full core each", rule="unlike-in-cpu"),)


def test_who_is_behind() -> None:
    steps = [each._replace(step=7 if each.rank == 3 else 8) for each in IDLE]
    assert suspects(steps) == (Suspect(3, 0, "its last step is 7, that of others 8", rule="behind-in-steps"),)


def test_whose_recorder_is_mute_comes_last() -> None:
    mute = Missing((6,), "its recorder gives no dump")
    assert suspects(IDLE, mute=[mute]) == (Suspect(6, 1, "its recorder gives no dump", rule="recorder-without-answer"),)
    assert [each.rank for each in suspects(but(5, state="T"), mute=[mute])] == [5]


def test_stacks_say_who_is_elsewhere() -> None:
    known = [
        each._replace(stack=IN_LOADER if each.rank == 3 else IN_TORCH.format(n=2500 + each.rank), file=f"{each.rank}.txt") for each in IDLE
    ]
    assert suspects(known) == (Suspect(3, 0, "it is elsewhere than the others: read at data.py:40", "3.txt", rule="outside-collective"),)
    assert groups(known) == ["ranks 0-2,4-7: all_reduce at train.py:88", "rank 3: read at data.py:40"]
    assert groups(known, [3]) == ["rank 3: read at data.py:40", "ranks 0-2,4-7: all_reduce at train.py:88"]


def test_where_the_others_have_timed_out_only_who_is_outside_communication_is_apart() -> None:
    """And not few that still wait as those did."""
    waits, loads = Known(3, 0, stack=IN_TORCH.format(n=1)), Known(4, 0, stack=IN_LOADER)
    assert outside([waits], 7) == ()
    assert [each.rank for each in outside([waits, loads], 6)] == [4]
    assert [each.rank for each in outside([loads], 1)] == [4]
    assert outside([loads], 0) == ()


def frame_of(file: str, function: str, line: int = 7) -> str:
    return f'  File "{file}", line {line} in {function}\n'


PACKAGES = "/opt/lib/python3.11/site-packages"
MAIN = frame_of("/job/train.py", "main", 88) + frame_of("/job/train.py", "<module>", 120)
MPI = MAIN
WAITING = {
    "all_reduce": (frame_of(f"{PACKAGES}/torch/distributed/distributed_c10d.py", "all_reduce") + MAIN, "all_reduce"),
    "a wrapper in between": (
        frame_of(f"{PACKAGES}/torch/distributed/distributed_c10d.py", "barrier")
        + frame_of(f"{PACKAGES}/torch/distributed/c10d_logger.py", "wrapper") + MAIN, "barrier",
    ),
    "DDP in backward": (frame_of(f"{PACKAGES}/torch/autograd/graph.py", "_engine_run_backward") + MAIN, "backward"),
    "rendezvous": (frame_of(f"{PACKAGES}/torch/distributed/rendezvous.py", "_create_c10d_store") + MAIN, "_create_c10d_store"),
    "device": (frame_of(f"{PACKAGES}/torch/cuda/__init__.py", "synchronize") + MAIN, "synchronize"),
    "accelerate": (frame_of(f"{PACKAGES}/accelerate/accelerator.py", "wait_for_everyone") + MAIN, "wait_for_everyone"),
    "horovod": (frame_of(f"{PACKAGES}/horovod/torch/mpi_ops.py", "synchronize") + MAIN, "synchronize"),
}  # fmt: skip
CALLS = {
    "comm.Allreduce(mine, theirs)": "Allreduce", "MPI.COMM_WORLD.Barrier()": "Barrier", "self.comm.bcast(x, root=0)": "bcast",
    "dist.all_reduce(loss)": "all_reduce", "work.wait()": "wait", "total += loss.item()": "item", "hvd.join()": "join",
    "time.sleep(1)": "", "queue.get()": "", "thread.join()": "", "connection.recv(1024)": "", "batch = next(loader)": "",
    "lock.acquire()": "", "items = line.split()": "",
}  # fmt: skip
NOT_WAITING = {
    "data loader": frame_of("/usr/lib/python3.11/threading.py", "wait") + frame_of("/usr/lib/python3.11/queue.py", "get")
    + frame_of(f"{PACKAGES}/torch/utils/data/dataloader.py", "_try_get_data"),
    "workers": frame_of("/usr/lib/python3.11/selectors.py", "select")
    + frame_of("/usr/lib/python3.11/multiprocessing/connection.py", "wait"),
    "join": frame_of("/usr/lib/python3.11/threading.py", "join"),
    "socket": frame_of("/usr/lib/python3.11/socket.py", "readinto") + frame_of("/usr/lib/python3.11/ssl.py", "recv"),
    "folder of that name": frame_of("/home/gloo/mpi_job/data.py", "read"),
}  # fmt: skip


@pytest.mark.parametrize("stack", WAITING.values(), ids=WAITING)
def test_stacks_inside_a_collective(stack: tuple[str, str]) -> None:
    assert inside(stack[0]) == stack[1]


@pytest.mark.parametrize("stack", NOT_WAITING.values(), ids=NOT_WAITING)
def test_stacks_that_wait_for_no_other_rank(stack: str) -> None:
    assert inside(stack + MAIN) == ""


@pytest.mark.parametrize(("call", "name"), CALLS.items(), ids=CALLS)
def test_calls_of_c_are_known_by_their_line(call: str, name: str) -> None:
    assert inside(MPI, call) == name


@pytest.mark.parametrize("place", [*NOT_WAITING])
def test_of_two_ranks_the_one_outside_the_collective(place: str) -> None:
    for waits in (Known(0, 0, stack=WAITING["all_reduce"][0]), Known(0, 0, stack=MPI, call="comm.Allreduce(mine, theirs)")):
        (found,) = suspects([waits, Known(1, 0, stack=NOT_WAITING[place] + MAIN)])
        assert (found.rank, found.rule) == (1, "outside-collective")


def test_a_rank_that_timeouts_name() -> None:
    (found,) = suspects([each._replace(names=(2,) if each.rank != 2 else ()) for each in IDLE])
    assert (found.rank, found.rule) == (2, "named-by-timeouts")


def test_the_better_witness_is_heard() -> None:
    known = but(5, state="T", cpu=1.0, full=True)
    recorded, lagging = Missing((2,), "has not come to all_reduce 17 of group 0", "fr.json"), Missing((3,), "is 2 behind")
    assert suspects(known, [recorded], [lagging]) == (
        Suspect(2, 0, "has not come to all_reduce 17 of group 0", "fr.json", rule="missing-in-collective"),
    )
    assert [each.rank for each in suspects(known, [], [lagging])] == [3]


RAISED = Raised(5, 9.0, True, "Traceback ...", "ValueError: label 1003")
WHY = "it raised an exception that nobody caught: ValueError: label 1003"


def test_an_exception_at_the_end_of_an_output_is_the_best_witness() -> None:
    """Of several, one that nobody caught, and then the first."""
    missing = Missing((2,), "has not come to all_reduce 17 of group 0", "fr.json")
    assert suspects(but(5, raised=RAISED), [missing]) == (Suspect(5, 1, WHY, raised=RAISED, rule="uncaught-exception"),)
    caught, later = RAISED._replace(rank=1, silent_s=99.0, sure=False), RAISED._replace(rank=2, silent_s=2.0)
    raised = {each.rank: each for each in (caught, later, RAISED)}
    found = suspects([each._replace(raised=raised.get(each.rank)) for each in IDLE])
    assert [(each.rank, each.raised) for each in found] == [(5, RAISED), (2, later), (1, None)]
    assert found[2].why == "it raised an exception: ValueError: label 1003"


def test_who_is_still_in_its_program_has_caught_its_exception() -> None:
    exits = "    shutdown (/job/train.py:12)\n"
    assert [each.rank for each in suspects(but(5, raised=RAISED, stack=exits))] == [5]
    assert suspects(but(5, raised=RAISED, stack=IN_TORCH.format(n=1))) == ()


def test_an_exception_that_has_ended_a_thread_is_told_while_the_program_goes_on() -> None:
    of_thread = RAISED._replace(sure=False, of_thread=True)
    (found,) = suspects(but(5, raised=of_thread, stack=IN_TORCH.format(n=1)))
    why = "an exception has ended a thread of it: ValueError: label 1003"
    assert found == Suspect(5, 1, why, rule="caught-exception")
    ended, runs = Known(0, 0, state=""), Known(1, 0, state="S", raised=of_thread._replace(rank=1), stack=IN_LOADER)
    assert [(each.rank, each.why) for each in suspects([ended, runs])] == [(1, why)]
    waits = runs._replace(stack=IN_TORCH.format(n=1))
    assert [(each.rank, each.why) for each in suspects([ended, waits])] == [(1, why), (0, "its process is gone")]


def test_where_all_have_an_exception_it_sets_nobody_apart() -> None:
    assert suspects([each._replace(raised=RAISED) for each in IDLE]) == ()


def test_all_alike() -> None:
    assert suspects(IDLE) == suspects([each._replace(state="T") for each in IDLE]) == ()
    halves = [each._replace(cpu=1.0 if each.rank % 2 else 0.0) for each in IDLE]
    assert suspects(halves) == ()
    assert sentence(()) == NOBODY


def test_words() -> None:
    assert sentence([Suspect(1, 0, "stopped"), Suspect(2, 0, "stopped"), Suspect(4, 1, "stuck")]) == "ranks 1-2: stopped; rank 4: stuck"


def test_what_a_rank_may_have_caught_says_less_than_what_is_known_of_others() -> None:
    caught = RAISED._replace(sure=False)
    idle = but(5, raised=caught)
    stopped = [each._replace(state="T") if each.rank == 2 else each for each in idle]
    assert [each.rank for each in suspects(stopped)] == [2]
    assert [each.rank for each in suspects(idle, [Missing((3,), "not in a collective")])] == [3]
    assert [each.rank for each in suspects(idle)] == [5]


PLANNED = {0: (0, 1), 1: (2, 3), 2: (4, 5)}


@pytest.mark.parametrize(
    ("said", "node", "rank", "may"),
    [
        ({0: (0, 1), 2: (4, 0)}, 2, 0, False),
        ({0: (0, 1), 2: (4, 0)}, 2, 4, True),
        ({0: (1,), 2: (4, 0)}, 2, 0, False),  # node 0 has nothing to say of it any more
        ({0: (), 2: (4, 0)}, 2, 0, False),
        ({0: (2, 3), 1: (0, 1)}, 1, 0, True),  # numbered in another way
        ({1: (2, 0)}, 1, 0, True),  # node 0 has not been heard
        ({1: (2, 9)}, 1, 9, True),  # nobody's
    ],
)
def test_a_node_speaks_of_its_own_ranks(said: dict[int, tuple[int, ...]], node: int, rank: int, may: bool) -> None:
    assert own(PLANNED, said)(node, rank) == may
