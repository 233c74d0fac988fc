"""What is taken of a node. What needs devices is a fake that speaks the documented protocol: NCCL's RAS (src/ras/client.cc; in text,
which every version has), nvidia-smi and npu-smi as they are called, and the fifos of flight recorders of PyTorch and of torch_npu
(tests/children/recorder.py). None of the real ones was here."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import companions
import helpers
import pytest

from ranklaunch.evidence import collector, flight
from ranklaunch.evidence import dumps as dumps_of_nodes
from ranklaunch.evidence import tools as tools_of_nodes
from ranklaunch.evidence.all_nodes import Gathered, Gathering
from ranklaunch.evidence.collection import TAKEN, Taking, messages
from ranklaunch.evidence.folder import KEPT_LAST, MOST_BYTES, Folder, kept, room_in
from ranklaunch.plan.model import Recorder, Recorders
from ranklaunch.supervise import judge
from ranklaunch.supervise.record import Record
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from testbench.places import child
from testbench.waiting import sleep_until

pytestmark = pytest.mark.processes

REPORT = """Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 12
  Rank 7 has launched up to operation 11 -- GPU 1 managed by process {pid} on node 127.0.0.1
  Rank 8 has launched up to operation 11 -- GPU 1 managed by process {pid} on node 192.0.2.7
  Rank 9 has launched up to operation 11 -- GPU 1 managed by process 1 on node 127.0.0.1

"""


# Of PyTorch with NCCL, and of torch_npu with HCCL: where dumps go to, and fifos.
RECORDERS = (
    ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"), ("TORCH_HCCL_DEBUG_INFO_TEMP_FILE", "TORCH_HCCL_DEBUG_INFO_PIPE_FILE"),
)  # fmt: skip


@dataclass
class Ras:
    port: int
    report: str = ""


@pytest.fixture
def ras() -> Iterator[Ras]:
    """A fake RAS: its port, and its report."""
    server = socket.create_server(("127.0.0.1", 0))
    told = Ras(server.getsockname()[1])

    def serve() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rw") as stream:
            for asked, answer in (("CLIENT PROTOCOL ", "SERVER PROTOCOL 2\n"), ("TIMEOUT ", "OK\n"), ("VERBOSE STATUS", told.report)):
                assert stream.readline().startswith(asked)
                stream.write(answer)
                stream.flush()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield told
    server.close()
    thread.join()


def dump(*finished: bool) -> bytes:
    entries = [
        {
            "process_group": ("0", "default_pg"), "collective_seq_id": i, "profiling_name": "nccl:all_reduce", "input_sizes": [[4]],
            "state": "completed" if done else "started", "is_p2p": False, "pg_id": 0,
        }
        for i, done in enumerate(finished, 1)
    ]  # fmt: skip
    return pickle.dumps({"version": "2.10", "entries": entries, "pg_config": {"0": {"ranks": "[0, 1]"}}}, protocol=2)


def take(tmp_path: Path, ranks: dict[int, int], **env: str) -> dict[str, Any]:
    processes = {rank: tree.identify(pid) for rank, pid in ranks.items()}
    order = collector.Order(1, "a test", str(tmp_path / "evidence" / "node_0" / "1"), processes, env, time.time() - 1, MOST_BYTES)
    return json.loads(json.dumps(collector.take(order)))


def test_devices_recorders_and_ras(tmp_path: Path, ras: Ras, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_of_nodes, "TOOL_S", 60.0)  # whatever else this machine does
    monkeypatch.setattr(collector, "TAKE_S", 60.0)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("nvidia-smi", "npu-smi"):
        (tools / name).write_text('#!/bin/sh\necho "asked for $*"\n')
        (tools / name).chmod(0o755)
    ranks: dict[int, subprocess.Popen[str]] = {}
    stem = str(tmp_path / "trace_")
    try:
        for rank, data in enumerate((dump(True, False), dump(True))):
            (tmp_path / f"dump_{rank}").write_bytes(data)
            file, pipe = RECORDERS[rank]
            env = {**os.environ, "RANK": str(rank), "NCCL_RAS_ADDR": f"127.0.0.1:{ras.port}", file: stem, pipe: str(tmp_path / "pipe_")}
            words = [sys.executable, child("recorder.py"), str(tmp_path / "pipe_"), str(tmp_path / f"dump_{rank}"), "--token", "hunter2"]
            ranks[rank] = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
            out = ranks[rank].stdout
            assert out
            assert out.readline() == "ready\n"
        ras.report = REPORT.format(pid=ranks[1].pid)  # of other ranks, other hosts or another job, too
        found = take(tmp_path, {rank: popen.pid for rank, popen in ranks.items()}, PATH=f"{tools}:{os.environ['PATH']}")
    finally:
        for popen in ranks.values():
            popen.kill()
            popen.communicate()
    folder = Path(found["folder"])
    assert [(folder / f"{name}-smi.txt").read_text() for name in ("nvidia", "npu")] == ["asked for -q\n", "asked for info\n"]
    assert (folder / "ras.txt").read_text() == ras.report
    assert {path.name: path.read_bytes() for path in folder.glob("trace_*")} == {"trace_0": dump(True, False), "trace_1": dump(True)}
    assert "hunter2" not in (folder / "processes.json").read_text()
    gathered = _gathered(found)
    assert [(each.ranks, each.what) for each in gathered.recorded] == [
        ((1,), "it has not reached all_reduce number 2 of group default_pg, where others wait")
    ]
    assert [(each.ranks, each.what) for each in gathered.behind] == [
        ((1,), "it has launched 11 AllReduce operations of communicator 0-0, others 12")
    ]
    states = {rank: each.state for rank, each in gathered.ranks.items()}
    assert (sorted(states), set(states.values()) <= {"S", "R"}) == ([0, 1], True), states  # R: on its way to sleep


def test_names_in_dumps_are_told_without_secrets_and_colours() -> None:
    group = ("0", "\x1b[31m\npassword=hunter22secret")
    entry = {"process_group": group, "collective_seq_id": 2, "profiling_name": "a\nb", "state": "started"}
    ranks = {
        rank: {"pid": rank, "state": "S", "stack": [], "recorder": flight.as_json(flight.standings(pickle.dumps({"entries": entries}, 2)))}
        for rank, entries in enumerate([[entry], [{**entry, "collective_seq_id": 1, "state": "completed"}]])
    }
    (named,) = _gathered({"number": 1, "folder": "/f", "bytes": 1, "behind": [], "ranks": ranks}).recorded
    assert "hunter22secret" not in named.what
    assert named.what.isprintable()


def test_a_node_cannot_speak_of_the_ranks_of_another() -> None:
    gathering = Gathering(1, {0: (0, 1), 1: (2, 3)})
    waits = {"0": [6, 7, 7, "nccl:all_reduce", "[[4]]", [0, 1, 2, 3], "default_pg"]}
    late = {"0": [6, 6, 0, "", "", [0, 1, 2, 3], "default_pg"]}

    def of(state: str, recorder: object) -> dict[str, object]:
        return {"pid": 1, "state": state, "stack": [], "recorder": recorder}

    common = {"number": 1, "folder": "/f", "bytes": 1, "more": False}
    gathering.hear(1, {**common, "behind": [["0-0", 0, "AllReduce", 6, 7]], "ranks": {"2": of("S", waits), "0": of("T", late)}})
    assert gathering.hear(0, {**common, "behind": [], "ranks": {"0": of("S", waits), "1": of("S", waits)}})
    gathered = gathering.gathered()
    assert {rank: (each.node, each.state) for rank, each in gathered.ranks.items()} == {0: (0, "S"), 1: (0, "S"), 2: (1, "S")}
    assert (gathered.recorded, gathered.behind) == ((), ())


@pytest.mark.parametrize(("dumped", "mute"), [((0,), (1,)), ((0, 2), (1,)), ((0, 1), (2,)), ((0, 1, 2), None), ((), None)])
def test_whose_recorder_does_not_answer_is_told(dumped: tuple[int, ...], mute: tuple[int, ...] | None) -> None:
    """One in a loop of Python's that never rests has no time for it, as seen with PyTorch 2.11."""
    members = 2 if dumped == (0,) else 3
    waits = {"0": [6, 7, 7, "nccl:all_reduce", "[[4]]", list(range(members)), "default_pg"]}
    ranks = {rank: {"pid": rank, "state": "R", "stack": [], "recorder": waits if rank in dumped else None} for rank in range(members)}
    gathered = _gathered({"number": 1, "folder": "/f", "bytes": 1, "behind": [], "ranks": ranks})
    what = "its flight recorder wrote no dump, while others wait in all_reduce number 7 of group default_pg"
    assert [(each.ranks, each.what) for each in gathered.mute] == ([(mute, what)] if mute else [])
    assert not gathered.recorded


def _gathered(found: dict[str, Any]) -> Gathered:
    gathering = Gathering(1, {0: (0, 1, 2), 1: ()})
    heard = [gathering.hear(0, json.loads(json.dumps(message))) for message in messages(found)]
    assert not any(heard)
    gathered = gathering.gathered()
    assert gathered.silent == (1,)
    return gathered


def test_ranks_come_in_messages_that_hold_them() -> None:
    one = {
        "pid": 1,
        "state": "S",
        "stack": ["x" * 300] * 20,
        "recorder": {"g" * 200: [1, 2, 2, "o" * 200, "s" * 200, list(range(64)), "d"]},
    }
    told = {"number": 1, "folder": "/f", "bytes": 1, "behind": [], "ranks": {str(rank): one for rank in range(17)}}
    sent = [*messages(told)]
    assert [message["more"] for message in sent] == [True, True, False]
    assert {rank for message in sent for rank in message["ranks"]} == set(told["ranks"])  # type: ignore[arg-type, attr-defined]
    assert max(len(json.dumps(message)) for message in sent) < 128 * 1024


@contextmanager
def two_ranks(**env: str) -> Iterator[dict[int, int]]:
    """Their pids; they do nothing."""
    ranks = {rank: subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **env}) for rank in (0, 1)}
    try:
        yield {rank: popen.pid for rank, popen in ranks.items()}
    finally:
        for popen in ranks.values():
            popen.kill()
            popen.wait()


def test_only_fifos_are_written_to_and_only_own_dumps_are_read(tmp_path: Path) -> None:
    (tmp_path / "pipe_0.pipe").write_text("mine")
    for rank in (0, 1):
        (tmp_path / f"dump_{rank}").write_bytes(dump(True))
    os.chown(tmp_path / "dump_1", 12345, 12345)
    env = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "dump_"), "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "pipe_")}
    with two_ranks(**env) as ranks:
        found = take(tmp_path, ranks, PATH="")
    assert (tmp_path / "pipe_0.pipe").read_text() == "mine"
    assert [bool(found["ranks"][str(rank)]["recorder"]) for rank in (0, 1)] == [True, False]


def test_of_ranks_that_are_gone_there_is_something_too(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    found = take(tmp_path, {3: gone.pid}, PATH="")
    assert found["ranks"]["3"] == {"pid": gone.pid, "state": "gone", "stack": [], "call": "", "recorder": None}


DIES_OF_IT = "import os, sys; os.mkfifo(sys.argv[1]); print('ready', flush=True); open(sys.argv[1], 'rb').read(1)"


def test_of_a_rank_that_dies_before_it_has_dumped_no_dump_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "TAKE_S", 600.0)
    env = {"PATH": os.environ["PATH"], "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "pipe_")}
    rank = subprocess.Popen([sys.executable, "-c", DIES_OF_IT, str(tmp_path / "pipe_0.pipe")], env=env, stdout=subprocess.PIPE, text=True)
    assert rank.stdout
    assert rank.stdout.readline() == "ready\n"
    sleep_until(lambda: tree.state(tree.identify(rank.pid)) == "S", "it to wait for a reader")
    found = take(tmp_path, {0: rank.pid}, PATH="")
    assert rank.wait() == 0
    rank.stdout.close()
    assert found["ranks"]["0"]["recorder"] is None
    assert found["seconds"] < 300


def test_what_there_is_no_time_to_read_is_kept_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ranks with large recorders: one is read."""
    stem = str(tmp_path / "trace_")
    for rank in (0, 1):
        (tmp_path / f"trace_{rank}").write_bytes(dump(True))
    read = dumps_of_nodes.flight.standings

    def slow(data: bytes, is_late: Callable[[], bool]) -> dict[str, flight.Standing]:
        monkeypatch.setattr(dumps_of_nodes.flight, "standings", lambda data, is_late: read(data, lambda: True))
        return read(data, is_late)

    monkeypatch.setattr(dumps_of_nodes.flight, "standings", slow)
    with two_ranks(TORCH_FR_DUMP_TEMP_FILE=stem) as ranks:
        found = take(tmp_path, ranks, PATH="")
    assert [(bool(each["recorder"]), each.get("unread", False)) for each in found["ranks"].values()] == [(True, False), (False, True)]
    assert sorted(path.name for path in Path(found["folder"]).glob("trace_*")) == ["trace_0", "trace_1"]
    assert found["notes"] == ["no time was left to read the flight recorder's dump of rank 1: see the file"]
    assert not _gathered(found).mute


def test_no_more_is_kept_than_there_may_be(tmp_path: Path) -> None:
    parent = tmp_path / "node_0"
    for number in range(1, 10):
        (parent / str(number)).mkdir(parents=True)
        (parent / str(number) / "x").write_bytes(b"x" * 1000)
    (parent / "\u00b2").mkdir()  # digits to Python, and no number
    left = room_in(str(parent))
    (parent / "\u00b2").rmdir()
    assert sorted(int(path.name) for path in parent.iterdir()) == [1, *range(10 - KEPT_LAST, 10)]
    assert left == MOST_BYTES - 6000
    folder = Folder(str(parent / "10"), left=10)
    folder.make()
    folder.write("a", b"123456")
    folder.write("b", b"123456")
    folder.write("c", b"1")
    assert {path.name: path.read_bytes() for path in (parent / "10").iterdir()} == {"a": b"123456", "b": b"1234"}


@pytest.mark.parametrize("mine", [True, False])
def test_a_mount_without_modes_of_its_own_has_evidence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: bool) -> None:
    """As those of object stores, which cannot be had here. What is another account's is not trusted with it."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + (not mine))
    folder = Folder(str(tmp_path / "evidence" / "node_0" / "1"))
    if mine:
        folder.make()
        folder.write("a", b"1")
        assert (Path(folder.path, "a").read_bytes(), folder.failed) == (b"1", "")
    else:
        with pytest.raises(PermissionError):
            folder.make()


@pytest.mark.parametrize("possible", [True, False])
def test_ranks_get_no_fifo_where_none_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, possible: bool) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not possible:  # as object stores that are mounted do
        monkeypatch.setattr(os, "mkfifo", refuse)
    folder = str(tmp_path / "recorders")
    names = {"FILE": f"{folder}/trace_", "PIPE": f"{folder}/pipe_", "SIZE": "2000"}
    recorders = Recorders(tuple(Recorder(name, value, "") for name, value in names.items()), folder, "PIPE")
    record = Record(str(tmp_path / "attempt_1"))
    assert record.open()
    with kept(recorders, record) as usable:
        assert {*usable} == ({*names} if possible else {"FILE", "SIZE"})
        assert os.listdir(folder) == []
    assert not os.path.exists(folder)
    assert ("Operation not permitted" in (tmp_path / "attempt_1" / "events.jsonl").read_text()) is not possible
    record.close()


def test_a_folder_of_somebody_elses_fails_no_job(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "recorders").symlink_to(tmp_path / "elsewhere")
    record = Record(str(tmp_path / "attempt_1"))
    assert record.open()
    recorders = Recorders((Recorder("FILE", f"{tmp_path}/recorders/trace_", ""), Recorder("SIZE", "2000", "")), f"{tmp_path}/recorders")
    with kept(recorders, record) as usable:
        assert usable == {"SIZE": "2000"}
    assert (tmp_path / "elsewhere").is_dir()
    record.close()


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (b"RuntimeError: [1] Connection closed by peer [10.0.0.1]:4455", "words-of-a-peer"),
        (b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nRoot Cause (first observed failure):\n", ""),
        (b"ValueError: loss is nan", ""),
    ],
    ids=["a peer", "a launcher's report", "its own"],
)
def test_whose_words_say_that_others_may_be_to_blame(tail: bytes, error: str) -> None:
    """For these evidence is taken, and the stop waits for it: a report of a launcher's is worth no second."""
    assert judge.error_of_others(tail, helpers.plan({"PATH": "/usr/bin"}, method="spawn")) == error


def test_of_ranks_that_are_being_ended_none_is_taken(tmp_path: Path) -> None:
    """Another node's request comes when the stop has begun here: whatever takes it would be ended too."""
    told: list[tuple[str, dict[str, Any]]] = []
    plan, loop = helpers.plan({}), Loop()
    nodes = companions.Wired(plan, loop, lambda to, topic, body, nodes: told.append((topic, body)))
    attempt = companions.attempt(plan, tmp_path / "attempt_1", loop, nodes=nodes)
    attempt.stopper.begin(signal.SIGTERM)
    Taking(attempt).on_order(0, {"number": 1, "why": "rank 3 failed", "ends": True})
    ((topic, body),) = told
    assert (topic, body["number"], body["failed"]) == (TAKEN, 1, "its ranks were already being stopped")
    assert not (tmp_path / "attempt_1" / "evidence").exists()
