"""Tools that are told of a job: what they hear, when, and that nothing of theirs changes how the job ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import companions
import helpers
import pytest
from companions import Seen

from ranklaunch.adapters.launchers import LAUNCHERS
from ranklaunch.fields import NOTHING
from ranklaunch.notify import metrics, notifications
from ranklaunch.notify.hook import MOST_BYTES, Hook
from ranklaunch.notify.notifications import POST, Telling
from ranklaunch.plan.model import Tell
from ranklaunch.processes.children import Children
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.verdict.model import Judgement, Verdict, as_json
from testbench.jobs.job import Starter
from testbench.judges import formats
from testbench.places import ROOT, child
from testbench.waiting import DEADLINE_S, sleep_until


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_restart_and_the_verdict_are_told(as_process: Starter, tmp_path: Path) -> None:
    """In this order, with files that are whole by then; the command's own failure changes nothing."""
    told = script(tmp_path / "told.sh", f'cp "$3" {tmp_path}/$2.json; echo "$1 $2" >> {tmp_path}/events; echo heard "$2"; exit 3')
    tools = {"RANKLAUNCH_ON_EVENT": f"'{told}' 'a word'", "RANKLAUNCH_METRICS_FILE": f"{tmp_path}/m_{{node}}.prom"}
    job = as_process.spawn(1, child("exits.py"), 5, env={"RANKLAUNCH_MAX_RESTARTS": "1", **tools})
    assert job.end() == job.verdict["exit_code"]
    assert (tmp_path / "events").read_text() == "a word restart\na word verdict\n"
    assert json.loads((tmp_path / "verdict.json").read_text()) == job.verdict
    ended = json.loads((tmp_path / "restart.json").read_text())
    formats.check("round", ended)
    assert ended["restart"]["round"] == 0
    assert f"on verdict: heard verdict\nranklaunch: on verdict: {told} ended with code 3" in job.err.text
    metrics = (tmp_path / "m_0.prom").read_text()
    assert f'ranklaunch_exit_code{{job_name="local",node="0"}} {job.verdict["exit_code"]}\n' in metrics
    assert 'ranklaunch_restarts_total{job_name="local",node="0"} 1\n' in metrics
    assert 'ranklaunch_phase{job_name="local",node="0",phase="ended"} 1\n' in metrics


def test_the_command_outlasts_the_rounds_that_end_meanwhile(as_process: Starter, tmp_path: Path) -> None:
    """With what it has started, even where that has lost its parent."""
    go, done = tmp_path / "go", tmp_path / "done"
    (tmp_path / "below").mkdir()
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    orphan = script(tmp_path / "orphan.sh", f"{wait}; touch {tmp_path}/below/orphan")
    below = script(tmp_path / "below.sh", f"({orphan} &) ; {wait}; touch {tmp_path}/below/child")
    both = f"{below}; while [ ! -e {tmp_path}/below/orphan ]; do sleep 0.05; done; touch {done}"
    told = script(tmp_path / "told.sh", f'[ "$1" = restart ] && [ ! -e {done} ] || exit 0; {both}')
    last = f'[ "$RANKLAUNCH_RESTART_COUNT" = 2 ] && touch {go} && while [ ! -e {done} ]; do sleep 0.05; done'
    program = script(tmp_path / "program.sh", f"{last}; exit 5")
    job = as_process.spawn(1, program, env={"RANKLAUNCH_MAX_RESTARTS": "2", "RANKLAUNCH_ON_EVENT": str(told)})
    assert job.end() == job.verdict["exit_code"]
    assert "SIGTERM" not in job.err.text
    assert {path.name for path in (tmp_path / "below").iterdir()} == {"child", "orphan"}


def test_the_command_has_neither_a_rank_nor_the_key_of_the_muster(as_process: Starter, tmp_path: Path) -> None:
    told = script(tmp_path / "told.sh", f"env > {tmp_path}/env")
    key = {"RANKLAUNCH_SECRET": "hunter2", "RANKLAUNCH_JOB_UID": "6c1f9a8e-0d0b-4f57-9d0e-1f2a3b4c5d6e"}
    job = as_process.spawn(1, child("exits.py"), 0, env={**key, "SLURM_PROCID": "0", "MY_OWN": "1", "RANKLAUNCH_ON_EVENT": str(told)})
    assert job.end() == 0
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert "MY_OWN" in names
    assert names.isdisjoint({*key, "SLURM_PROCID", "RANK"})


def test_after_a_stop_request_the_command_has_what_is_left_of_the_grace(as_process: Starter, tmp_path: Path) -> None:
    """It is ended with all that it has started."""
    told = script(tmp_path / "told.sh", "sleep 600 & echo began; sleep 600")
    job = as_process.spawn(1, child("sleeper.py"), options=("--grace-s", 5, "--on-event", told))
    job.out.wait_for("ready", 1)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert "on verdict: began" in job.err.text
    assert f"on verdict: {told} was killed: its time is over" in job.err.text


def test_a_stop_request_while_the_command_runs_shortens_it(as_process: Starter, tmp_path: Path) -> None:
    """And the job has ended as it has."""
    told = script(tmp_path / "told.sh", "echo began; sleep 600")
    job = as_process.spawn(1, child("exits.py"), 0, options=("--grace-s", 1, "--on-event", told))
    job.err.wait_for("on verdict: began", 1)
    job.send(signal.SIGTERM)
    assert job.end() == job.verdict["exit_code"] == 0
    assert f"on verdict: {told} was killed: its time is over" in job.err.text


# In this process


class World:
    """A session as it is seen, which waits for its nodes."""

    def __init__(self, folder: Path, node: int, tell: Tell, env: Mapping[str, str] = NOTHING, slow: bool = False) -> None:
        self.said: list[str] = []
        self.loop = Loop()
        planned = replace(helpers.plan({}, nodes="2", hosts="h0,h1", node_index=str(node), method="spawn", slots="1"), tell=tell)
        attempt = companions.attempt(planned, folder, self.loop)
        seen = Seen(
            plan=lambda: planned, begun=lambda: False, attempt=lambda: attempt, phase=lambda: ("starting", ""),
            of_ranks=lambda: {0: {"step": 30, "steps": 120, "step_s": 0.5}, 1: {"step": 29, "steps": 120, "step_s": None}},
            hang=lambda: None, asked=lambda: None, orphaned=lambda: False, slow=lambda: slow,
        )  # fmt: skip
        self.telling = Telling(seen, self.loop, self.said.append, {"PATH": "/usr/bin:/bin", "RANK": "3", **env})


SAID = {
    "reason": "nothing moves", "since": "then", "signals": ["CPU"], "groups": [],
    "suspects": [{"rank": 1, "node": 1, "why": "sleeps", "file": None, "rule": "outside-collective"}],
}  # fmt: skip
FAILED = Verdict(Judgement("failed", 75, "it hangs"), (), "", "")


def test_an_alarm_is_told_by_node_0_alone(tmp_path: Path) -> None:
    told = script(tmp_path / "told.sh", f'echo "$1 $2 $RANK" >> {tmp_path}/events')
    events = tmp_path / "events"
    for node in (1, 0):
        world = World(tmp_path, node, Tell(on_event=(str(told),)))
        world.telling.hang(SAID)
        assert (tmp_path / "hang.json").exists() == (node == 0)
        heard = [lambda: True, lambda: events.exists() and events.read_text().endswith("\n")][node == 0]
        world.loop.run_until(heard, world.loop.clock() + DEADLINE_S)
        world.telling.ended(FAILED, "/v.json")
    document = json.loads((tmp_path / "hang.json").read_text())
    formats.check("hang", document)
    assert document["suspect_host"] is None
    assert events.read_text() == f"hang {tmp_path}/hang.json \nverdict /v.json \n"


def test_a_slow_job_is_told_by_node_0_alone(tmp_path: Path) -> None:
    """With a reason, as all documents have one: hooks show it."""
    told = script(tmp_path / "told.sh", f'echo "$1 $2" >> {tmp_path}/events')
    events = tmp_path / "events"
    event = {"text": "slow", "over": False, "since": "then", "step_s": 6.1, "baseline_s": 1.0, "factor": 6.1, "rank": None, "node": None}
    for node in (1, 0):
        world = World(tmp_path, node, Tell(on_event=(str(told),)))
        world.telling.slow(event)
        assert (tmp_path / "slow.json").exists() == (node == 0)
    world.loop.run_until(lambda: events.exists() and events.read_text().endswith("\n"), world.loop.clock() + DEADLINE_S)
    document = json.loads((tmp_path / "slow.json").read_text())
    formats.check("slow", document)
    assert document["reason"] == "slow"
    assert events.read_text() == f"slow {tmp_path}/slow.json\n"


@pytest.mark.parametrize("slow", [True, False])
def test_metrics_say_whether_the_job_is_slow(tmp_path: Path, slow: bool) -> None:
    world = World(tmp_path, 1, Tell(metrics_file=str(tmp_path / "m.prom")), slow=slow)
    sleep_until(lambda: (tmp_path / "m.prom").exists(), "no metrics")
    assert f'ranklaunch_slow{{job_name="local",node="1"}} {int(slow)}\n' in (tmp_path / "m.prom").read_text()
    world.telling.ended(FAILED, "/v.json")
    assert 'ranklaunch_slow{job_name="local",node="1"} 0\n' in (tmp_path / "m.prom").read_text()


def test_metrics_that_cannot_be_written_are_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    world = World(tmp_path, 1, Tell(metrics_file=str(tmp_path / "file" / "m.prom")))
    world.telling.ended(FAILED, "/v.json")
    assert [text.partition(":")[0] for text in world.said] == ["metrics"]


def test_metrics_on_a_mount_that_does_not_answer_hold_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which cannot be had everywhere: a write that never ends stands for it."""
    monkeypatch.setattr(notifications, "EVERY_S", 0.05)
    monkeypatch.setattr(metrics, "LAST_S", 0.1)
    monkeypatch.setattr(metrics.disk, "write", lambda *_: time.sleep(600))
    world = World(tmp_path, 1, Tell(metrics_file=str(tmp_path / "m.prom")))
    for _ in range(3):
        world.loop.run_until(lambda: bool(world.said), world.loop.clock() + DEADLINE_S)
    world.telling.ended(FAILED, "/v.json")
    assert world.said == [f"metrics: {tmp_path}/m.prom: its file system does not answer"]
    monkeypatch.undo()
    world.telling.ended(FAILED, "/v.json")
    for pid in list(tree.wanted):
        sleep_until(lambda pid=pid: tree.forsake(pid) is not None, "a process that was killed lives")  # type: ignore[misc]
    assert "ranklaunch_exit_code" in (tmp_path / "m.prom").read_text()


def run(argv: tuple[str, ...], limit_s: float = DEADLINE_S) -> list[str]:
    """What is said of one run."""
    loop, said, ended = Loop(), list[str](), list[bool]()
    Hook(argv, {"PATH": "/usr/bin:/bin"}, limit_s, loop, said.append, lambda: ended.append(True))
    loop.run_until(lambda: bool(ended), loop.clock() + DEADLINE_S)
    assert ended == [True]
    return said


class OfReaper:
    """The part of an attempt that the reaper of orphans uses."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.logs = loop, None


def test_the_end_of_a_run_is_told_whoever_has_fetched_it() -> None:
    """The reaper of orphans may be a moment sooner, where another process has ended."""
    loop, said, ended = Loop(), list[str](), list[bool]()
    unused: Any = None
    attempt: Any = OfReaper(loop)
    children = Children(attempt, {}, unused)
    Hook(("sh", "-c", "exit 3"), {"PATH": "/usr/bin:/bin"}, DEADLINE_S, loop, said.append, lambda: ended.append(True))
    (pid,) = tree.wanted
    sleep_until(lambda: tree.wait_status(tree.identify(pid)) is not None, "it has not ended")
    children._reap()
    loop.run_until(lambda: bool(ended), loop.clock() + DEADLINE_S)
    assert said == ["sh ended with code 3"]
    assert not tree.wanted


def test_what_is_said_of_a_run() -> None:
    assert run(("sh", "-c", "printf 'one\\ntwo'; exit 0")) == ["one", "two"]
    assert run(("sh", "-c", "kill -9 $$")) == ["sh was killed by SIGKILL"]
    assert run(("bash", "-c", "kill -36 $$")) == ["bash was killed by SIGRTMIN+2"]
    assert run(("no-such-program",)) == ["no-such-program: No such file or directory", "no-such-program ended with code 127"]
    assert run(("sh", "-c", "sleep 600 & echo out; wait"), 0.5)[-1:] == ["sh was killed after 0.5 s, the limit of a run"]
    assert run(("sh", "-c", "sleep 600 & echo behind")) == ["behind"]
    much = run(("sh", "-c", f"yes | head -c {2 * MOST_BYTES}"))
    assert much[-1] == "sh writes more than 64 KiB: the rest is not shown"
    assert much[:-1] == ["y"] * (MOST_BYTES // 2)


# The hooks that are in examples/


def heard_by_a_server(serve: Callable[[socket.socket, list[bytes]], None], name: str, tmp_path: Path, **env: str) -> tuple[str, bytes]:
    """What an example's run says, and what a server on loopback has heard. env: {port} stands for its port."""
    verdict = Verdict(Judgement("failed", 75, "node 1 (h1) does not answer:\na host is down"), (), "", "", more={"suspect_host": HOST})
    (tmp_path / "verdict.json").write_text(json.dumps(as_json(verdict)))
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server, heard))
        thread.start()
        given = {key: value.replace("{port}", str(server.getsockname()[1])) for key, value in env.items()}
        command = [sys.executable, str(ROOT / "examples" / "hooks" / name), "verdict", str(tmp_path / "verdict.json")]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        thread.join(DEADLINE_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, b"".join(heard)


HOST = {"host": "h1", "node": 1, "why": "it does not answer"}


def serve_web(server: socket.socket, heard: list[bytes]) -> None:
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as stream:
        head = b"".join(iter(stream.readline, b"\r\n"))
        length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
        heard.append(stream.read(int(length.partition(b":")[2])))
        connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")


def serve_mail(server: socket.socket, heard: list[bytes]) -> None:
    """As much of SMTP as a mail needs."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as stream:
        connection.sendall(b"220 here\r\n")
        for line in stream:
            word = line[:4].upper().strip()
            heard.append(line)
            if word == b"DATA":
                connection.sendall(b"354 go on\r\n")
                heard += iter(stream.readline, b".\r\n")
            connection.sendall(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return


def test_the_webhook_posts_the_verdict(tmp_path: Path) -> None:
    said, heard = heard_by_a_server(serve_web, "webhook.py", tmp_path, WEBHOOK_URL="http://127.0.0.1:{port}/hook")
    body = json.loads(heard)
    assert said == "posted: 204\n"
    assert body["text"].startswith("verdict: failed with exit code 75: node 1 (h1) does not answer")
    assert body["text"].endswith("; leave out h1")
    assert body["document"] == json.loads((tmp_path / "verdict.json").read_text())


def test_the_status_of_a_trainjob(tmp_path: Path) -> None:
    """Of a job that fails, as of one that runs. Over HTTP here: that there is TLS in the cluster changes nothing but the address."""
    (tmp_path / "token").write_text("a token\n")
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve_web, args=(server, heard))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/trainjobs/a"
        env = {"KUBEFLOW_TRAINER_SERVER_URL": url, "KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / "token")}
        World(tmp_path, 1, Tell(trainjob=True), env).telling.ended(FAILED, "")
        world = World(tmp_path, 0, Tell(trainjob=True), env)
        world.telling.ended(FAILED, "")
        thread.join(DEADLINE_S)
    status = json.loads(b"".join(heard))["trainerStatus"]
    assert status.pop("lastUpdatedTime")
    metrics = [{"name": "step", "value": "30"}, {"name": "step_seconds", "value": "0.5"}]
    assert status == {"progressPercentage": 25, "estimatedRemainingSeconds": 45, "metrics": metrics}
    world.telling.ended(FAILED, "")
    assert [text for text in world.said if "cannot be posted" in text and "refused" in text] == world.said


def test_the_token_of_a_trainjob_goes_nowhere_else(tmp_path: Path) -> None:
    """Whatever its server answers: a redirection, or what is no HTTP."""
    (tmp_path / "token").write_text("of-this-job")
    (tmp_path / "two").write_text("of-this-job\nand more")

    def answer(server: socket.socket, said: bytes) -> None:
        try:
            connection, _ = server.accept()
        except OSError:  # shut down: nobody has come
            return
        with connection:
            connection.recv(65536)
            connection.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)
        away = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{other.getsockname()[1]}/\r\n\r\n".encode()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        said = []
        for name, text in (("token", away), ("token", b"\0\x1b[2J\n\n"), ("two", b"")):
            thread = threading.Thread(target=answer, args=(server, text), daemon=True)
            thread.start()
            env = {"KUBEFLOW_TRAINER_SERVER_URL": url, "KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / name)}
            argv = (sys.executable, "-I", POST, "{}")
            said.append(subprocess.run(argv, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False).stderr)
        with pytest.raises(BlockingIOError):
            other.accept()
        server.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE_S)
    assert [text.count("\n") for text in said] == [1, 1, 1]
    assert [text.partition(": ")[0] for text in said] == ["HTTPError", "BadStatusLine", "ValueError"]
    assert "of-this-job" not in "".join(said)


def test_what_a_trainjob_is_told() -> None:
    def told(*ranks: dict[str, Any], done: bool = False) -> dict[str, Any] | None:
        found = notifications.trainjob_status(ranks, "now", done=done)
        return found and {key: value for key, value in found["trainerStatus"].items() if key not in ("metrics", "lastUpdatedTime")}

    step = {"step": 30, "steps": None, "step_s": 0.5}
    assert told() is None
    assert told({"state": "running"}) is None
    assert told(done=True) == {"progressPercentage": 100}
    assert told(step) == {}
    assert told(step, done=True) == {"progressPercentage": 100, "estimatedRemainingSeconds": 0}
    assert told({**step, "steps": 20}) == {"progressPercentage": 100, "estimatedRemainingSeconds": 0}
    assert told({**step, "steps": 40, "step_s": None}) == {"progressPercentage": 75}


def test_the_mail_has_the_reason_and_the_verdict(tmp_path: Path) -> None:
    said, heard = heard_by_a_server(serve_mail, "mail.py", tmp_path, MAIL_TO="ops@example.com", SMTP_SERVER="127.0.0.1:{port}")
    assert said == "mailed to ops@example.com\n"
    assert b"rcpt TO:<ops@example.com>" in heard
    assert b"Subject: verdict: node 1 (h1) does not answer: a host is down" in heard
    assert b'filename="verdict.json"' in heard


def test_the_trace_reaches_the_ranks_of_every_method() -> None:
    """Of those on other nodes by mpirun's own forwarding, of the others by what they inherit."""

    def check(method: str) -> None:
        shape = {"nodes": "1"} if method == "plain" else {"nodes": "2", "hosts": "h0,h1", "node_index": "0"}
        plan = helpers.plan({"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, method=method, slots="1", **shape)
        assert plan.processes
        assert all("TRACEPARENT" not in (*process.unset, *process.env) for process in plan.processes)
        if method == "mpirun":
            argv = plan.processes[0].argv
            assert argv[argv.index("TRACEPARENT") - 1] == "-x"

    of_tables = ("ranktable", "tensorflow")  # without which they plan nothing; their ranks inherit as those of spawn do
    helpers.check_each(check, {name: name for name in LAUNCHERS if name not in of_tables})
