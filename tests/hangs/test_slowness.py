"""Slow jobs: what nodes say to node 0, what it makes of that, and one real job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import companions
import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.hangs.pace import Pacing
from ranklaunch.hangs.slow_job import ASK_S, SLOW, Slowness
from ranklaunch.hangs.steps import Place, Step
from ranklaunch.plan.model import as_json
from ranklaunch.supervise.context import Teller
from ranklaunch.system.loop import Loop
from ranklaunch.verdict.model import Ending, Judgement
from testbench.jobs.job import Starter
from testbench.judges import formats
from testbench.judges.events import misfits
from testbench.places import child

pytestmark = pytest.mark.processes

NORMAL, LONG = [1.0] * 40, [6.0] * 25
SINCE = "1970-01-01T00:00:40.000+00:00"
SLOW_TEXT = "the job is slow: a step takes 6.0 s, 1.0 s before (baseline of 34 intervals), since step 40"
OVER_TEXT = "the job is as fast as before: a step takes 1.0 s"
Word = tuple[int, str, Any]


class Hooks(Teller):
    """Tools of a job. events: of slow jobs that they were told of."""

    def __init__(self, events: list[Mapping[str, Any]]) -> None:
        self._events = events

    def slow(self, event: Mapping[str, Any]) -> None:
        self._events.append(event)


class Node:
    """One node of a job of two, with two ranks each. Words are on their way until the job delivers them."""

    def __init__(self, job: Job, index: int, **env: str) -> None:
        plan = helpers.plan(env, nodes="2", hosts="h0,h1", node_index=str(index), method="spawn", slots="2")
        self.hooks: list[Mapping[str, Any]] = []
        self.said: list[str] = []
        nodes = companions.Wired(plan, job.loop, lambda to, topic, body, nodes: job.words.append((index, to, body)))
        self.hears = nodes.hearers
        self._folder = job.folder / f"node_{index}"
        self.attempt = companions.attempt(plan, self._folder, job.loop, self.said.append, nodes=nodes, teller=Hooks(self.hooks))
        self.slowness = Slowness(self.attempt)

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = map(json.loads, (self._folder / "events.jsonl").read_text().splitlines())
        return [{key: line[key] for key in line if key not in ("time", "monotonic")} for line in lines]


class Job:
    """muster: without one each node hears itself alone."""

    def __init__(self, folder: Path, muster: bool = True) -> None:
        self.now = 0.0
        self.folder = folder
        self.words: list[Word] = []
        self.loop = Loop(lambda: self.now)
        env = {} if muster else {"RANKLAUNCH_MUSTER": "off"}
        self.muster = muster
        self.nodes = [Node(self, index, **env) for index in range(2)]

    def steps(self, node: int, times: list[float], first: int = 1, rank: int | None = None, seconds: float | None = None) -> None:
        """Feed a node with the steps of one of its ranks. seconds: the step time in the lines."""
        at = float(first - 1)
        for number, each in enumerate(times, first):
            at += each
            step = Step(Place(0, number), "shape", at, seconds)
            self.nodes[node].slowness.feed(2 * node if rank is None else rank, step)

    def deliver(self, *, silent: tuple[int, ...] = ()) -> None:
        """Deliver all words. silent: nodes that hear nothing."""
        while self.words:
            sender, to, body = self.words.pop(0)
            body = json.loads(json.dumps(body))
            targets = [sender] if not self.muster else [0] if to == "node 0" else [0, 1]
            for index in targets:
                if index not in silent:
                    self.nodes[index].hears[SLOW, to == "node 0"](sender if self.muster else 0, body)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.loop.step(0)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_node_0_says_once_that_the_job_is_slow_and_that_it_has_recovered(job: Job) -> None:
    for node in (1, 0):
        job.steps(node, NORMAL + LONG)
        job.deliver()
    event = {
        "event": "slow", "text": SLOW_TEXT, "over": False, "since": SINCE, "step_s": 6.0, "baseline_s": 1.0, "factor": 6.0, "rank": None,
        "node": None,
    }  # fmt: skip
    assert [node.said for node in job.nodes] == [[SLOW_TEXT], []]
    assert [node.events for node in job.nodes] == [[event], [event]]
    assert list(misfits({"time": SINCE, "monotonic": 1.0, **event})) == []
    assert [[hook["text"] for hook in node.hooks] for node in job.nodes] == [[SLOW_TEXT], []]
    assert all(node.slowness.slow for node in job.nodes)
    job.steps(0, [1.0] * 10, first=191)
    job.deliver()
    assert all(node.slowness.slow for node in job.nodes), "node 1 is slow still"
    job.steps(1, [1.0] * 10, first=191)
    job.deliver()
    assert job.nodes[0].said == [SLOW_TEXT, OVER_TEXT]
    assert [node.events[-1]["over"] for node in job.nodes] == [True, True]
    assert not any(node.slowness.slow for node in job.nodes)
    assert len(job.nodes[0].hooks) == 1


def test_the_rank_whose_own_step_time_stands_out_is_named(job: Job) -> None:
    for rank, seconds in ((1, 1.0), (2, 1.2), (3, 5.94)):
        job.steps(rank // 2, [1.0], rank=rank, seconds=seconds)
    job.steps(0, NORMAL + LONG, rank=1)
    job.deliver()
    assert job.nodes[0].said == [f"{SLOW_TEXT}; rank 3 on node 1 is the slowest with 5.9 s"]
    assert (job.nodes[1].events[0]["rank"], job.nodes[1].events[0]["node"]) == (3, 1)


def test_node_0_may_have_the_output_of_all_ranks(job: Job) -> None:
    """As with mpirun."""
    for rank, seconds in ((0, 1.0), (1, 1.1), (2, 6.0)):
        job.steps(0, [1.0], rank=rank, seconds=seconds)
    job.steps(0, NORMAL + LONG)
    job.deliver()
    assert job.nodes[0].said == [f"{SLOW_TEXT}; rank 2 on node 1 is the slowest with 6.0 s"]


def test_a_node_speaks_of_its_own_ranks_alone(job: Job) -> None:
    for rank, seconds in ((2, 1.0), (3, 1.0), (0, 9.0)):
        job.steps(1, [1.0], rank=rank, seconds=seconds)
    job.steps(0, NORMAL + LONG, rank=1)
    job.deliver()
    assert job.nodes[0].said == [SLOW_TEXT]


def test_a_node_that_does_not_answer_is_not_waited_for_long(job: Job) -> None:
    job.steps(0, NORMAL + LONG)
    job.deliver(silent=(1,))
    job.wait(ASK_S / 2)
    assert job.nodes[0].said == []
    job.wait(ASK_S)
    job.deliver()
    assert job.nodes[0].said == [SLOW_TEXT]


@pytest.mark.parametrize("ends", [False, True])
def test_a_job_that_recovers_or_ends_meanwhile_is_not_said_to_be_slow(job: Job, ends: bool) -> None:
    job.steps(0, NORMAL + LONG)
    job.deliver(silent=(1,))
    if ends:
        job.nodes[0].attempt.fail(Ending(Judgement("failed", 1, "over")))
    else:
        job.steps(0, [1.0] * 10, first=191)
        job.deliver(silent=(1,))
    job.wait(2 * ASK_S)
    job.deliver()
    assert [node.said + node.events for node in job.nodes] == [[], []]  # type: ignore[operator]


def test_without_a_muster_each_node_speaks_for_itself(tmp_path: Path) -> None:
    job = Job(tmp_path, muster=False)
    job.steps(1, NORMAL + LONG)
    job.deliver()
    assert [node.said for node in job.nodes] == [[], [SLOW_TEXT]]
    assert [len(node.events) for node in job.nodes] == [0, 1]


@pytest.mark.parametrize("body", [None, 7, {}, {"slow": True}, {"times": [[1]]}, {"times": [[2, "x"]]}])
def test_what_no_node_says_is_refused(job: Job, body: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        job.nodes[0].hears[SLOW, True](1, body)


@pytest.mark.parametrize(("factor", "watches"), [("0", False), ("1.5", True)])
def test_0_turns_it_off(tmp_path: Path, factor: str, watches: bool) -> None:
    plan = helpers.plan({"RANKLAUNCH_SLOW": factor}, method="spawn")
    assert plan.watch.slow == float(factor)
    assert (Pacing(companions.attempt(plan, tmp_path))._slowness is not None) is watches


@pytest.mark.parametrize(("factor", "said"), [("1.5", 1.5), ("0", 0.0), ("2", None)])
def test_the_plan_has_the_factor_where_it_is_not_as_by_default(factor: str, said: float | None) -> None:
    document = as_json(helpers.plan({}, method="spawn", slow=factor))
    formats.check("plan", document)
    assert document["watch"].get("slow") == said
    assert ("slow", "option --slow") in [(value["name"], value["source"]) for value in document["values"]]


@pytest.mark.parametrize("factor", ["0.5", "-2", "nan", "twice"])
def test_a_factor_that_is_none_is_refused(factor: str) -> None:
    with pytest.raises(ConfigError) as raised:
        helpers.plan({"RANKLAUNCH_SLOW": factor}, method="spawn")
    assert str(raised.value).startswith(
        f"RANKLAUNCH_SLOW={factor!r}: expected a number, at least 1, or 0 for off (a job is reported as slow "
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that ends the program, whatever happens."""
    yield tmp_path
    (tmp_path / "end").touch()


@pytest.mark.processes
def test_a_real_job_that_becomes_slow_and_recovers(as_process: Starter, folder: Path) -> None:
    hook = f"sh -c 'cp \"$2\" {folder}/$1.json' sh"
    job = as_process.spawn(2, child("slows.py"), folder, env={"RANKLAUNCH_ON_EVENT": hook, "RANKLAUNCH_HANG": "off"})
    job.err.wait_for("ranklaunch: the job is slow: a step takes 0.2", 1)
    job.wait_for_event("slow")
    (folder / "go").touch()
    job.err.wait_for("ranklaunch: the job is as fast as before: a step takes 0.0", 1)
    (folder / "end").touch()
    assert job.end() == 0
    slow, over = (line for line in job.events if line["event"] == "slow")
    assert [text for line in (slow, over) for text in misfits(line)] == []
    assert (slow["over"], over["over"]) == (False, True)
    assert slow["factor"] > 2
    alarm = json.loads((folder / "slow.json").read_text())
    formats.check("slow", alarm)
    assert (alarm["reason"], alarm["since"]) == (slow["text"], slow["since"])
    report = helpers.call("report", str(job.log_dir), "--format", "json", env={}).json
    slow_s, buckets = report["accounting"]["slow_s"], report["accounting"]["buckets"]
    assert 20 * 0.2 < slow_s <= buckets["productive_s"]
