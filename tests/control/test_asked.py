"""A running job that is asked, all of its nodes in this process: how it stands, stacks of its ranks, and what cannot be asked."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import companions
import helpers
import pytest
from companions import Asked

from ranklaunch.control import client, server
from ranklaunch.control.all_nodes import ANSWER_S
from ranklaunch.control.desk import Desk
from ranklaunch.control.server import SocketServer
from ranklaunch.control.stacks import Stacked
from ranklaunch.entrypoints import save, stacks, status
from ranklaunch.errors import WaitError
from ranklaunch.evidence.all_nodes import Gathered, OfRank
from ranklaunch.muster import wire
from ranklaunch.muster.nodes import Nodes
from ranklaunch.output.pipe import Output
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.context import Companion
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from testbench.jobs.users import as_user, needs_root, open_to_all

NOBODY = tree.Identity(1 << 22, 0)


class Words:
    """Between nodes of one process, in messages that are no larger than real ones. Who is cut off neither hears nor says anything."""

    def __init__(self) -> None:
        self.cut_off: set[int] = set()
        self._hearers: dict[int, dict[tuple[str, bool], companions.Hearer]] = {}

    def node(self, index: int, plan: Plan, loop: Loop) -> Nodes:
        node = companions.Wired(plan, loop, partial(self._on_sent, index))
        self._hearers[index] = node.hearers
        return node

    def _on_sent(self, index: int, to: str, topic: str, body: object, nodes: Sequence[int]) -> None:
        if to == "node 0":
            self._to_node_0(index, topic, body)
            return
        for node in nodes or sorted(self._hearers):
            self._say(node, topic, 0, body)

    def say(self, to: int, topic: str, body: object) -> None:
        """As node 0, whatever it is."""
        self._hearers[to][topic, False](0, body)

    def _to_node_0(self, index: int, topic: str, body: object) -> None:
        if index not in self.cut_off:
            self._hearers[0][topic, True](index, self._sent(body))

    def _say(self, to: int, topic: str, node: int, body: object) -> None:
        if to not in self.cut_off:
            self._hearers[to][topic, False](node, self._sent(body))

    def _sent(self, body: object) -> Any:
        text = json.dumps(body)
        assert len(text) < wire.MOST
        return json.loads(text)


class Taking(Companion):
    """Companion that takes evidence for a test. asked: gets a line for each request."""

    def __init__(self, asked: list[str], attempt: Attempt) -> None:
        self._asked = asked

    def take(self, why: str, ends: bool) -> None:
        self._asked.append("evidence")


class Node:
    """One of a job, whose ranks are all this process, but for those that are gone. asked: to save, stop or take evidence."""

    def __init__(self, words: Words, folder: Path, index: int, loop: Loop, nodes: int, slots: int, **env: str) -> None:
        self.asked: list[str] = []
        self.gone: set[int] = set()
        self.phase = "running", ""
        plan = helpers.plan(helpers.local(nodes=nodes, slots=str(slots), index=index, **env), method="spawn")
        self._ranks = plan.job.node.ranks
        self.attempt = companions.attempt(plan, folder, loop, nodes=words.node(index, plan, loop), ranks=self._processes)
        self.attempt.companions.add(partial(Taking, self.asked))
        self._output = Output((), "", companions.nobody, lambda: 0.0, companions.nobody)
        self._output.feed(b"x" * 999 + b"\n")
        self.write_for(self._ranks)
        asked = Asked(
            attempt=lambda: self.attempt, phase=lambda: self.phase, of_ranks=self._steps, offer=lambda number: (False, ["rank 0"]),
            stop=lambda: self.asked.append("stop"), end_by=lambda due, ways: self.asked.append(f"end by {due:g} s"),
        )  # fmt: skip
        self.desk = Desk(asked, loop)

    def ask(self, **question: object) -> list[Any]:
        """The answer, once it is there."""
        answers: list[Any] = []
        self.desk._handle(question, answers.append)
        return answers

    def _processes(self) -> Mapping[int, tree.Identity]:
        own = tree.identify(os.getpid())
        return {rank: NOBODY if rank in self.gone else own for rank in self._ranks}

    def write_for(self, ranks: Sequence[int]) -> None:
        """Have these ranks write through this node."""
        self.attempt.logs.by_rank = dict.fromkeys(ranks, self._output)

    def _steps(self) -> Mapping[int, Mapping[str, Any]]:
        return {rank: {"step": 190 if rank in self.gone else 380} for rank in self.attempt.logs.by_rank}


class InMemory:
    """A job. now: by the clock of all its nodes, which only tests move."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.words = Words()
        self.nodes: list[Node] = []
        self._folder = folder
        self._loop = Loop(lambda: self.now)

    def of(self, nodes: int = 1, slots: int = 1, **env: str) -> list[Node]:
        self.nodes = [Node(self.words, self._folder, index, self._loop, nodes, slots, **env) for index in range(nodes)]
        return self.nodes

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._loop.step(0)

    def close(self) -> None:
        for node in self.nodes:
            node.desk.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[InMemory]:
    made = InMemory(tmp_path)
    yield made
    made.close()


def told(answer: Mapping[str, Any]) -> list[str]:
    """As ranklaunch status shows it."""
    return list(status._text(answer))


def test_a_thousand_ranks_are_told_in_a_few_lines(job: InMemory) -> None:
    """Their answers come in pages, each as large as a message may be; who stands out comes first."""
    nodes = job.of(2, 512)
    nodes[1].gone = {700}
    (answer,) = nodes[1].ask(do="status")
    assert [rank["rank"] for rank in answer["ranks"]] == [*range(1024)]
    head, *lines = told(answer)
    assert "spawn on local, 2 nodes, 1024 ranks known, at 20" in head
    assert lines == [
        "  nodes 0-1: running", "", "rank 700: gone, wrote in the last 1 s, step 190",
        "ranks 0-699,701-1023: running, wrote in the last 1 s, step 380",
    ]  # fmt: skip


def test_of_a_node_that_does_not_answer_is_told_what_it_said_before(job: InMemory) -> None:
    nodes = job.of(3)
    (before,) = nodes[0].ask(do="status")
    assert [node["age_s"] for node in before["nodes"]] == [0.0, 0.0, 0.0]
    job.words.cut_off = {1}
    job.wait(5)
    nodes[2].phase = "starting", "a port"
    answers = nodes[0].ask(do="status")
    job.wait(ANSWER_S)
    assert [node["age_s"] for node in answers[0]["nodes"]] == [0.0, 5 + ANSWER_S, 0.0]
    lines = told(answers[0])[1:]
    assert lines[:3] == ["  node 0 (n0): running", "  node 1 (n1): running, 6 s ago", "  node 2 (n2): starting, waiting for a port"]
    assert len(lines[5:]) == 3  # a line for each of few ranks
    assert [rank["last_output_s"] for rank in answers[0]["ranks"]] == [5 + ANSWER_S, 5 + ANSWER_S, 5]


def test_of_ranks_that_write_through_another_node_their_own_says_the_rest(job: InMemory) -> None:
    """As under mpirun, whose node 0 has the output of all."""
    nodes = job.of(2)
    nodes[0].write_for([0, 1])
    nodes[1].write_for([])
    nodes[1].attempt.phases.plan = replace(nodes[1].attempt.plan, processes=())
    for (answer,) in (node.ask(do="status") for node in nodes):
        assert [(each["rank"], each["node"], each["state"], each["output_bytes"], each["step"]) for each in answer["ranks"]] == [
            (0, 0, "running", 1000, 380), (1, 1, "running", 1000, 380),
        ]  # fmt: skip
    job.words.cut_off = {0}
    nodes[1].desk._last_answers.clear()
    answers = nodes[1].ask(do="status")
    job.wait(ANSWER_S)
    (alone,) = answers[0]["ranks"]
    assert (alone["rank"], alone["output_bytes"], alone["last_output_s"]) == (1, None, None)
    assert told(answers[0])[-1].split()[-3:] == ["-", "-", "-"]


def test_of_itself_a_node_says_what_is_now(job: InMemory) -> None:
    """As between two rounds, when nobody else hears."""
    (node,) = job.of()
    node.ask(do="status")
    job.wait(60)
    node.phase = "starting", ""
    node.desk._ask = lambda question, told, judge: told({})  # type: ignore[method-assign, misc, assignment]
    (answer,) = node.ask(do="status")
    assert [(each["phase"], each["age_s"]) for each in answer["nodes"]] == [("starting", 0.0)]


def test_a_node_that_nothing_was_heard_of(job: InMemory) -> None:
    nodes = job.of(2)
    job.words.cut_off = {1}
    nodes[0].phase = "starting", "the other nodes of the job"
    answers = nodes[0].ask(do="status")
    job.wait(ANSWER_S)
    assert told(answers[0])[1:3] == [
        "  node 0 (n0): starting, waiting for the other nodes of the job", "  node 1 (n1): unknown, nothing heard of it",
    ]  # fmt: skip


def test_what_a_node_says_that_is_no_answer_is_judged_when_it_comes(job: InMemory) -> None:
    """Not when it is shown, which ends whoever shows it."""
    nodes = job.of(2)
    job.words.cut_off = {1}
    answers = nodes[0].ask(do="status")
    for said in ({}, {"phase": "running"}, {"phase": 5, "waiting": ""}, {"phase": "running", "waiting": None}):
        with pytest.raises(wire.NOT_UNDERSTOOD):
            job.words.say(0, "said", {"number": 1, "node": 1, "said": {"page": 0, "pages": 2, "ranks": [], **said}})
    job.wait(ANSWER_S)
    assert told(answers[0])[1:3] == ["  node 0 (n0): running", "  node 1 (n1): unknown, nothing heard of it"]


def test_an_answer_to_another_question_does_not_say_how_a_node_stands(job: InMemory) -> None:
    nodes = job.of(2)
    assert nodes[0].ask(do="save", deadline_s=60)
    job.words.cut_off = {1}
    answers = nodes[0].ask(do="status")
    job.wait(ANSWER_S)
    assert [node["phase"] for node in answers[0]["nodes"]] == ["running", "unknown"]


def test_ranks_that_could_not_be_asked_to_save_are_asked_again(job: InMemory, tmp_path: Path) -> None:
    """At once: only what has reached them is the same request for a while."""
    path = tmp_path / "made later" / "x"
    nodes = job.of(2, RANKLAUNCH_SAVE_FILE=str(path))
    saved = lambda: [line for answer in nodes[1].ask(do="save") for line in save._text(answer)]  # noqa: E731
    for _ in range(2):
        missing = f"its ranks could not be asked to save: {path}: No such file or directory"
        assert saved() == [f"node 0: {missing}", f"node 1: {missing}"]
    path.parent.mkdir()
    for expected in (f"its ranks were asked to save by touching {path}", "its ranks were asked a moment ago"):
        assert saved() == [f"node 0: {expected}", f"node 1: {expected}"]


OLD = {"node": 1, "signal": "", "file": "/x/y", "deaf": [], "trouble": ""}  # of a node whose ranklaunch does not say "by"
DEAF = {"node": 0, "signal": "SIGUSR1", "file": "", "by": [], "deaf": ["rank 0"], "trouble": ""}
NOT = "its ranks could not be asked to save"
NONE = "no rank is known to have been asked to save"
NOT_ASKED: dict[str, tuple[list[dict[str, object]], list[str], list[str]]] = {
    "a file": ([{**OLD, "trouble": "/x/y: Not a directory"}], [f"node 1: {NOT}: /x/y: Not a directory"], [NONE]),
    "a signal": ([DEAF], [f"node 0: {NOT}: no process of rank 0 catches SIGUSR1, so it would end them"], [NONE]),
    "before there are any": ([{**DEAF, "deaf": []}], [f"node 0: {NOT}: none runs here"], [NONE]),
    "one of two nodes": (
        [{**DEAF, "deaf": []}, OLD], [f"node 0: {NOT}: none runs here", "node 1: its ranks were asked to save by touching /x/y"], []
    ),
    "nobody answers": ([], [], ["no node has answered in time: no rank is known to have been asked to save"]),
    "an answer to no question": ([{"node": 0}], [], [NONE]),
    "a stop alone": ([{"node": 0, "stop_in_s": 5}], ["the job is stopped in 5 s"], []),
}  # fmt: skip


@helpers.for_each(NOT_ASKED)
def test_a_job_that_could_not_be_asked_to_save(nodes: list[dict[str, object]], told: list[str], failure: list[str]) -> None:
    answer = {"nodes": nodes, "silent": []}
    assert (list(save._text(answer)), list(save._failure(answer))) == (told, failure)


@helpers.for_each([(0, "0", "0"), (2, "0.5", "1"), (10, "1", "8"), (60, "28", "58")])
def test_a_deadline_bounds_the_grace_of_all_nodes(deadline: int, stop: str, end: str) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(InMemory(Path(folder))) as job:
        nodes = job.of(2, RANKLAUNCH_GRACE_S="30")
        (answer,) = nodes[1].ask(do="save", deadline_s=deadline)
        assert list(save._text(answer)) == [f"the job is stopped in {stop} s"]
        job.wait(float(stop) + 0.1)
        assert [node.asked for node in nodes] == [[f"end by {end} s", "stop"], [f"end by {end} s"]]


@helpers.for_each([(2, "0.5"), (10, "4"), (30, "14"), (60, "29"), (90, "58")])
def test_ranks_that_were_asked_to_save_have_half_of_the_time_before_the_stop(deadline: int, stop: str) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(InMemory(Path(folder))) as job:
        (node,) = job.of(1, RANKLAUNCH_GRACE_S="30", RANKLAUNCH_SAVE_FILE=f"{folder}/save")
        (answer,) = node.ask(do="save", deadline_s=deadline)
        assert list(save._text(answer))[-1] == f"the job is stopped in {stop} s"


@pytest.mark.parametrize("deadline", ["x", math.inf, math.nan, -1, []])
def test_a_deadline_of_another_node_is_judged_too(deadline: object, job: InMemory) -> None:
    (node,) = job.of()
    with pytest.raises(wire.NOT_UNDERSTOOD):
        job.words.say(0, "do", {"number": 1, "by": 0, "asked": {"do": "save", "deadline_s": deadline}})
    assert node.asked == []


@pytest.mark.parametrize("body", [None, "x", {}, {"number": math.inf, "asked": {"do": "status"}}, {"number": 1, "by": 0, "asked": "x"}])
def test_words_that_make_no_sense_are_told_and_no_more(body: object, tmp_path: Path) -> None:
    plan = helpers.plan({"PATH": ""}, method="spawn")
    said: list[str] = []
    attempt = companions.attempt(plan, tmp_path, say=said.append)
    loop, nodes = attempt.loop, attempt.nodes
    asked = Asked(lambda: attempt, lambda: ("running", ""), dict, lambda number: (False, []), lambda: None, lambda due, ways: None)
    desk = Desk(asked, loop)
    try:
        nodes.tell_node_0("ask", body)
        nodes.tell_nodes("do", body)
        loop.step(0)
    finally:
        desk.close()
    assert said
    assert all(text.startswith("muster: node 0 sent an invalid message (") for text in said)


UNKNOWN = "unknown question: this ranklaunch answers status, save, stacks"
NO_WAY = "no way is known to ask this trainer to save; set RANKLAUNCH_SAVE_SIGNAL or RANKLAUNCH_SAVE_FILE"
REFUSED: list[tuple[dict[str, object], str]] = [
    ({"do": "fly"}, UNKNOWN), ({"do": []}, UNKNOWN), ({}, UNKNOWN), ({"do": "save"}, NO_WAY),
    *(({"do": "save", "deadline_s": wrong}, f"deadline_s {wrong!r}: expected seconds") for wrong in (-1, "1", 1e400, 10**20)),
    ({"do": "stacks"}, "node 0 has no rank that runs: it is starting, waiting for a port"),
]  # fmt: skip


def test_what_a_job_does_not_do(job: InMemory) -> None:
    (node,) = job.of()
    node.phase = "starting", "a port"
    said = [(answer["error"], node.asked) for question, _ in REFUSED for answer in node.ask(**question)]
    assert said == [(text, []) for _, text in REFUSED]
    assert [answer["passes"] for answer in node.ask(do="stacks")] == [True]


@pytest.mark.one_python
@helpers.for_each(
    [("save", "a", "b"), ("status", "--format", "yaml"), ("status", "a", "b"), ("save", "--deadline", "soon"), ("stacks", "-x")]
)
def test_what_cannot_be_asked(*words: str) -> None:
    found = helpers.call(*words)
    assert (found.code, found.out) == (2, "")
    assert 1 <= len(found.err.splitlines()) <= 2


def test_no_job(tmp_path: Path) -> None:
    found = helpers.call("status", str(tmp_path))
    assert (found.code, len(found.err.splitlines())) == (75, 1)


@contextlib.contextmanager
def closing(path: Path) -> Iterator[None]:
    """A socket whose owner lets nobody in."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        os.chmod(path, 0o777)

        def serve() -> None:
            with contextlib.suppress(OSError):  # shut down
                while True:
                    listener.accept()[0].close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_job_that_has_too_many_guests_is_said_to_be_busy(tmp_path: Path) -> None:
    with closing(tmp_path / "node_0.sock"):
        for command in ("status", "save", "stacks"):
            found = helpers.call(command, str(tmp_path))
            assert (found.code, found.out) == (75, "")
            assert found.err.startswith("ranklaunch: the job that runs here is busy with other clients, or is ending: try again (")


@needs_root
def test_a_job_of_another_user_is_said_to_be_his(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    words = [*as_user(1000), sys.executable, "-m", "ranklaunch", "status", str(tmp_path)]
    theirs = "belongs to user id 0: only that user and root may ask it\n"
    with closing(tmp_path / "node_0.sock"):
        for mode, what in ((0o777, "the job that runs here"), (0o755, "a job here, which may run,")):
            os.chmod(tmp_path / "node_0.sock", mode)
            found = subprocess.run(words, capture_output=True, text=True, check=False)
            assert (found.returncode, found.stdout, found.stderr) == (75, "", f"ranklaunch: {what} {theirs}")


def test_a_folder_that_may_not_be_read_is_not_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", refused)
    found = helpers.call("status", str(tmp_path))
    assert (found.code, found.out) == (75, "")
    assert f"is found on this machine: {tmp_path} may not be read by user id {os.geteuid()}; give the job's" in found.err


RANK = {"rank": 0, "node": 0, "pid": 5, "state": "S", "cpu_s": 1.0, "rss_kb": 1, "output_bytes": 3, "last_output_s": 1.0,
        "stack": "", "file": ""}  # fmt: skip
ANSWER = {"job": "j", "platform": "p", "method": "m", "attempt": 1, "node": 0, "silent": [], "failed": [],
          "nodes": [{"node": 0, "host": "h", "phase": "running", "waiting": "", "age_s": None}], "ranks": [RANK]}  # fmt: skip


def said_by(answer: object, folder: Path, *commands: str) -> Iterator[helpers.Result]:
    """What each of these makes of whatever has the socket of a job."""
    path = folder / "node_0.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):  # shut down
                while True:
                    guest, _ = listener.accept()
                    with guest:
                        guest.recv(65536)
                        guest.sendall(json.dumps(answer).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        for command in commands:
            name, *options = command.split()
            yield helpers.call(name, str(folder), *options)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    path.unlink()


def test_what_answers_may_be_anything(tmp_path: Path) -> None:
    """Another version, or whoever can write in the folder."""
    wrong = (
        {}, {"nodes": 5, "ranks": 5}, {**ANSWER, "nodes": [5], "ranks": [5]},
        {**ANSWER, "nodes": [{"deaf": 1, "signal": 2}], "ranks": [{}]},
        {**ANSWER, "nodes": [[]], "ranks": [{**RANK, "cpu_s": "x", "stack": 5}]},
        {**ANSWER, "nodes": [{}], "ranks": [{**RANK, "rss_kb": 10**400, "rank": []}]},
    )  # fmt: skip
    commands = ("status", "status --format json", "stacks", "save")
    for answer in wrong:
        assert {(found.code, found.err.count("\n")) for found in said_by(answer, tmp_path, *commands)} == {(78, 1)}
    no_number = said_by({**ANSWER, "more": float("nan")}, tmp_path, "status --format json")
    assert [(found.code, found.out) for found in no_number] == [(78, "")]
    for passes, code in ((True, 75), (False, 78), ("?", 78)):
        refused = said_by({"error": "node 0 has no rank", "passes": passes}, tmp_path, "stacks")
        assert [(found.code, found.err) for found in refused] == [(code, "ranklaunch: node 0 has no rank\n")]
    ranks = [{**RANK, "rank": i, "state": "\x1b[2J"} for i in range(70)]
    for few in (ranks[:1], ranks):  # beyond 64 they are told in groups
        for found in said_by({**ANSWER, "ranks": few}, tmp_path, "status", "stacks"):
            assert (found.code, "\x1b" in found.out) == (0, False)


def test_where_there_are_no_stacks_it_is_said_what_they_take() -> None:
    told = list(stacks._text({"ranks": [{**RANK, "rank": rank} for rank in (0, 1)]}))
    assert told[0] == "ranks 0-1 (state S):"
    assert all(word in told[1] for word in ("RANKLAUNCH_STACKS=off", "py-spy on PATH"))
    assert "is stopped, as by SIGSTOP" in [*stacks._text({"ranks": [{**RANK, "state": "T"}]})][1]  # whatever was set


def test_a_plan_may_name_a_socket_that_cannot_be(tmp_path: Path) -> None:
    for name in ("/tmp/\0x", "/tmp/\ud800", "x" * 5000, "..", "/dev/null"):
        (tmp_path / "plan.json").write_text(json.dumps({"socket": name}))
        assert helpers.call("status", str(tmp_path)).code == 75


def test_where_no_socket_can_be_made_it_is_in_a_private_folder(tmp_path: Path) -> None:
    """As on mounts of object stores: here, in /sys, which has none either. plan.json says where it is."""
    asked = SocketServer("/sys", "node_0.sock", Loop(), lambda question, answer: answer({}))
    assert asked.elsewhere
    assert os.stat(os.path.dirname(asked.path)).st_mode & 0o777 == 0o700
    assert os.stat(asked.path).st_mode & 0o777 == 0o600
    (tmp_path / "plan.json").write_text(json.dumps({"socket": asked.path}))
    assert [*client._sockets(str(tmp_path))] == [asked.path]
    asked.close()
    assert not os.path.exists(os.path.dirname(asked.path))


@pytest.mark.parametrize("change", [shutil.rmtree, lambda folder: (folder / "more").touch()], ids=["is cleared", "has more in it"])
def test_a_private_folder_that_others_change(change: Callable[[Path], object]) -> None:
    """As what clears /tmp does: that is no reason to end in another way."""
    asked = SocketServer("/sys", "node_0.sock", Loop(), lambda question, answer: answer({}))
    folder = Path(asked.path).parent
    change(folder)
    asked.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_what_else_is_wrong_with_a_folder_is_not_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(server.tempfile, "mkdtemp", made.append)
    with pytest.raises(FileNotFoundError):
        SocketServer(str(tmp_path / "gone"), "node_0.sock", Loop(), lambda question, answer: answer({}))
    assert made == []


# Stacks


class Evidenced:
    """Attempt that is asked for stacks. evidence: its hearers. asked: a line for each request to
    take evidence."""

    def __init__(self, folder: Path) -> None:
        plan = helpers.plan({}, method="spawn")
        self.asked: list[str] = []
        self.attempt = companions.attempt(plan, folder)
        self.attempt.companions.add(partial(Taking, self.asked))
        self.evidence = self.attempt.companions.hear_evidence
        self.node = Words().node(0, plan, self.attempt.loop)

    def running(self) -> Attempt:
        return self.attempt

    @property
    def taken(self) -> int:
        return len(self.asked)

    def find(self, ranks: int) -> None:
        found = {rank: OfRank(0, "S", "wait (a.py:1)") for rank in range(ranks)}
        for hear in list(self.evidence):
            hear(Gathered(found))


def test_who_asks_twice_waits_for_one_taking_and_many_ranks_come_in_several_messages(tmp_path: Path) -> None:
    attempt, answers = Evidenced(tmp_path), list[Any]()
    stacked = Stacked(attempt.node, 0, attempt.running)
    stacked.ask(answers.append)
    stacked.ask(answers.append)
    assert (attempt.taken, answers) == (1, [])
    attempt.find(ranks=20)
    assert [[rank["rank"] for rank in answer["ranks"]] for answer in answers] == [[*range(20)]] * 2
    assert attempt.evidence == []


def test_an_attempt_that_ends_before_it_answers_is_not_waited_for(tmp_path: Path) -> None:
    attempts, answers = [Evidenced(tmp_path)], list[Any]()
    stacked = Stacked(attempts[0].node, 0, lambda: attempts[-1].running())
    stacked.ask(answers.append)
    attempts.append(Evidenced(tmp_path))
    stacked.ask(answers.append)
    assert [attempt.taken for attempt in attempts] == [1, 1]
    attempts[-1].find(ranks=1)
    assert [len(answer["ranks"]) for answer in answers] == [1, 1]


def test_who_does_not_answer_is_said_to_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket takes questions all the same."""
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    (tmp_path / "attempt_1").mkdir()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "attempt_1" / "node_0.sock"))
        mute.listen()
        with pytest.raises(WaitError, match=r"has not answered for 0\.2 s: its ranklaunch is stopped, or waits for a file system"):
            client.ask(str(tmp_path), {}, {"do": "status"})


WATCHED = {**ANSWER, "time": "2026-11-29T19:50:10.000+00:00", "ranks": [{**RANK, "last_output_s": 48.0}]}
LIMIT = {"seconds": 0.0, "limit_s": 300.0, "setting": "RANKLAUNCH_HANG_S", "then_s": 300.0}
OLDER = {name: value for name, value in LIMIT.items() if name != "then_s"}
AT_FIRST = "without a sign of life, hang alarm at 1800 s (RANKLAUNCH_FIRST_STEP_S), after the first step at 900 s"
FIRST_STEP = {**LIMIT, "limit_s": 1800.0, "setting": "RANKLAUNCH_FIRST_STEP_S", "then_s": 900.0}
ALARM = {
    "since": "2026-11-29T19:45:00.000+00:00", "reason": "the job hangs; rank 3: it is elsewhere", "signals": ["CPU"], "suspects": [],
    "groups": ["rank 3: read at data.py:88", "ranks 0-2: all_reduce at train.py:40"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("silence", "hang", "lines"),
    [
        (None, None, []),
        (LIMIT, None, ["  last output 48 s ago; without a sign of life, hang alarm at 300 s (RANKLAUNCH_HANG_S)"]),
        (OLDER, None, ["  last output 48 s ago; without a sign of life, hang alarm at 300 s (RANKLAUNCH_HANG_S)"]),
        (
            FIRST_STEP, None,
            [
                f"  last output 48 s ago; {AT_FIRST}",
            ],
        ),
        ({**LIMIT, "seconds": 130.0}, None, ["  silent 130 s; hang alarm at 300 s (RANKLAUNCH_HANG_S)"]),
        (
            LIMIT, ALARM,
            [
                "  hang alarm, last sign of life 310 s ago: the job hangs; rank 3: it is elsewhere", "    rank 3: read at data.py:88",
                "    ranks 0-2: all_reduce at train.py:40",
            ],
        ),
    ],
)  # fmt: skip
def test_silence_and_its_limit(silence: object, hang: object, lines: list[str]) -> None:
    head, *found = told({**WATCHED, "silence": silence, "hang": hang})
    assert head.endswith(", at 2026-11-29 19:50:10 UTC")
    assert found[1 : found.index("")] == lines
