"""Records as JSON and as lines."""

from __future__ import annotations

import pytest

from ranklaunch.catalogue import answer
from ranklaunch.ends import exceptions
from ranklaunch.ends.model import (
    EXCEPTION,
    EXIT,
    MOST_OTHERS,
    RANK,
    Frame,
    JobFacts,
    MemoryKills,
    NodeEnds,
    Process,
    Raised,
    Record,
    program_of,
    rank_number,
    record_without_secrets,
    with_records,
)
from ranklaunch.verdict.model import Ending, Judgement

FRAMES = (Frame("/w/train.py", 3, "<module>"), Frame("/w/train.py", 88, "step"))
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


def raised(kind: str, message: str, link: str = "", frames: tuple[Frame, ...] = FRAMES, library: Frame | None = None) -> Raised:
    return Raised(kind, message, link, frames, library)


def record(*chain: Raised, kind: str = EXCEPTION, pid: int = 7, **more: object) -> Record:
    return Record(kind, 0, "h", pid, 5, 1.0, 2.0, chain=chain, **more)


@pytest.mark.parametrize(
    ("chain", "line", "cause"),
    [
        ([raised("ValueError", "loss is nan")], "ValueError: loss is nan at train.py:88 in step", ""),
        ([raised("ValueError", "", frames=FRAMES[:1])], "ValueError at train.py:3", ""),
        ([raised("a.Failed", "\n====\n train.py FAILED \n----", frames=())], "a.Failed: train.py FAILED", ""),
        ([raised("E", "x", frames=(), library=Frame("/l/torch/x.py", 5, "run"))], "E: x at x.py:5 in run", ""),
        (
            [raised("E", "x", frames=()), raised("K", "'a'", "context", ()), raised("L", "b", "cause", ())],
            "E: x", "caused by L: b",
        ),
        ([raised("E", "x", frames=()), raised("K", "'a'", "context", ())], "E: x", "while handling K: 'a'"),
        ([raised("E", "a\x1b[2Jb", frames=())], "E: a\\x1b[2Jb", ""),
        ([], "", ""),
    ],
)  # fmt: skip
def test_an_exception_as_a_line(chain: list[Raised], line: str, cause: str) -> None:
    found = record(*chain)
    assert (exceptions.line(found), exceptions.cause(found)) == (line, cause)


# Messages as Ray 2.60 writes them, shortened.
OF_RUN = "(pid=30, ip=10.0.0.1, actor_id=27, repr=<t.Runner object at 0x7f>)"
AT_RUN = f"""\x1b[36mray::Runner.run()\x1b[39m {OF_RUN}
  File "t.py", line 9, in run
    step()
"""
AT_STEP = """\x1b[36mray::Rollout.step()\x1b[39m (pid=31, ip=10.0.0.2, actor_id=28)
           ^^^^^^^
  File "t.py", line 5, in step
    raise E
"""
IN_STEP = ", in ray::Rollout.step (pid=31, ip=10.0.0.2)"
CHAINED = "\n\nThe above exception was the direct cause of the following exception:\n\n"
CREATION = "The actor died because of an error raised in its creation task, "
DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: Rollout
\tactor_id: d3
\tpid: 31
\tname: rollout_1
\tnamespace: 81
\tip: 10.0.0.2
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"""
DIED_LINE = f"ray.exceptions.ActorDiedError: {DIED.splitlines()[0]} (rollout_1, Rollout, pid=31, ip=10.0.0.2)"
OF_RAY = {
    "of a task": ("RayTaskError(E)", f"{AT_STEP}E: loss\nis nan", f"E: loss{IN_STEP}"),
    "of a task of a task": (
        "RayTaskError(E)",
        f"{AT_RUN}ray.exceptions.RayTaskError(E): {AT_STEP}E: loss is nan",
        f"E: loss is nan{IN_STEP}",
    ),
    "of a task, with a cause": (
        "RayTaskError(F)",
        f"{AT_STEP}E: x{CHAINED}{AT_RUN}F: no loss",
        "F: no loss, in ray::Runner.run (pid=30, ip=10.0.0.1)",
    ),
    "of the creation of an actor": ("ActorDiedError", f"{CREATION}{AT_STEP}E: x", f"E: x{IN_STEP}"),
    "an actor that died": ("ActorDiedError", DIED, DIED_LINE),
    "an actor that died, in a task": (
        "RayTaskError(ActorDiedError)",
        f"{AT_RUN}ray.exceptions.ActorDiedError: {DIED}",
        DIED_LINE,
    ),
    "cut off": ("RayTaskError(E)", "ray::f() (pid=1, ip=::1)", "ray.exceptions.RayTaskError(E): ray::f() (pid=1, ip=::1)"),
    "without a task": ("GetTimeoutError", "Get timed out", "ray.exceptions.GetTimeoutError: Get timed out"),
}


@pytest.mark.parametrize(("kind", "message", "line"), OF_RAY.values(), ids=OF_RAY)
def test_an_exception_of_ray_is_the_one_of_the_task(kind: str, message: str, line: str) -> None:
    assert exceptions.bare_line_of((raised(f"ray.exceptions.{kind}", message),)) == line


def test_an_actor_whose_creation_failed_has_failed_itself() -> None:
    """Not as the consequence of another failure, for which the death of an actor stands else."""
    message = f"{AT_RUN}ray.exceptions.ActorDiedError: {CREATION}{AT_STEP}KeyError: 'a'"
    direct = f"{CREATION}{AT_STEP}KeyError: 'a'"
    for kind, text in (("RayTaskError(ActorDiedError)", message), ("ActorDiedError", direct)):
        first = answer.findings(exceptions.traceback((raised(f"ray.exceptions.{kind}", text),)))[0]
        assert (first.error.kind, first.line) == ("cause", "KeyError: 'a'")


def test_a_line_is_bounded_and_can_be_written() -> None:
    line = exceptions.line(record(raised("E" * 9000, "\ud800" * 9000, frames=(Frame("f" * 9000, 1, "g" * 9000),))))
    assert len(line) <= exceptions.MOST_LINE
    line.encode()
    assert exceptions.shown(f"E: HF_TOKEN={TOKEN}") == "E: HF_TOKEN=***"


def test_fields_with_their_default_are_left_out_and_secrets_are_hidden() -> None:
    of_rank = record(
        kind=RANK, argv=("python", "train.py", "--token", TOKEN), variables=(("RANK", "1"), ("LOCAL_RANK", "1")),
        top=Process(7, 5), parent=Process(1, 1, ("sh", "-c", f"HF_TOKEN={TOKEN} python train.py")), launcher="ranklaunch",
    )  # fmt: skip
    found = record_without_secrets(of_rank).as_json()
    assert found == {
        "kind": "rank", "node": 0, "host": "h", "pid": 7, "start": 5, "at": 1.0, "monotonic": 2.0,
        "argv": ["python", "train.py", "--token", "***"], "variables": [["RANK", "1"], ["LOCAL_RANK", "1"]], "top": {"pid": 7, "start": 5},
        "parent": {"pid": 1, "start": 1, "argv": found["parent"]["argv"]}, "launcher": "ranklaunch",
    }  # fmt: skip
    assert TOKEN not in repr(found)
    assert record(kind=EXIT, where="main").as_json()["code"] == 0
    shown = record_without_secrets(record(raised("E", f"HF_TOKEN={TOKEN}"), where="main", thread="MainThread", number=1)).as_json()
    assert shown["chain"][0]["message"] == "HF_TOKEN=***"


@pytest.mark.parametrize(
    ("variables", "number"),
    [
        ({"RANK": "3", "OMPI_COMM_WORLD_RANK": "5"}, 3), ({"RANK": "", "PMIX_RANK": "5"}, 5), ({"RANK": "\u0663"}, None),
        ({"RANK": "9" * 40}, None), ({"LOCAL_RANK": "1"}, None), ({}, None),
    ],
)  # fmt: skip
def test_the_number_of_a_rank(variables: dict[str, str], number: int | None) -> None:
    assert rank_number(variables.items()) == number


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python -u train.py --lr 1", "train.py"), ("python -X dev -m pkg.train -v", "pkg.train"), ("python -um pkg", "pkg"),
        ("python -c x", "python"), ("python", "python"), ("", ""),
    ],
)  # fmt: skip
def test_the_program_of_a_command(command: str, program: str) -> None:
    assert program_of(command.split()) == program


def test_processes_that_tell_how_they_ended_come_first_among_the_others() -> None:
    facts = JobFacts("job", "", 1, 0, "local", "spawn", "ranks", "cpu", 0, (), ("train.py",))
    node = NodeEnds(facts, Ending(Judgement("failed", 1, ""), 1.0), None, MemoryKills())
    starts = {(pid, 1): [record(kind="rank", variables=(("RANK", str(pid)),))] for pid in range(MOST_OTHERS + 9)}
    found = with_records(node, {**starts, (9999, 1): [record()], (9998, 1): [record(kind="launcher"), *starts[3, 1]]}).others
    assert (len(found), found[0].pid, found[0].rank, found[1].rank, found[2].rank) == (MOST_OTHERS, 9999, None, 0, 1)
