"""What must hold whatever goes wrong on one of three nodes: all end, in time, with the culprit's exit code and one verdict, and
nothing is left. The table itself is in chaos_cases.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helpers
import pytest
from chaos_cases import CASES, EVENTS, GRACE_S, LAUNCHERS, NODES, SLOTS, SLOWLY_STOPPED_S, STOPPED_S, Case, Culprit, Launcher, typical

from testbench.hosts import Entered, Host, Hosts
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.places import child
from testbench.waiting import sleep_until

COMMON = ("outcome", "exit_code", "reason", "culprit", "failures", "notes")
# Says something else than ranklaunch would to whoever comes.
TAKES_PORT = """
import socket
server = socket.create_server(("", 18889))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\\r\\n")
    connection.close()
"""


class Node:
    """A started ranklaunch."""

    def __init__(self, popen: Entered, host: Host, log_dir: Path, out: Path) -> None:
        self.popen = popen
        self.host = host
        self.out = out
        self.ended_at = 0.0
        self._logs = log_dir

    @property
    def said(self) -> str:
        return self.out.with_suffix(".err").read_text(errors="replace")

    @property
    def printed(self) -> str:
        return self.out.read_text(errors="replace")

    @property
    def ended(self) -> bool:
        if not self.ended_at and self.popen.poll() is not None:
            self.ended_at = time.monotonic()
        return bool(self.ended_at)

    @property
    def code(self) -> int:
        """As a shell gives it."""
        code = self.popen.wait(0)
        return code if code >= 0 else 128 - code

    @property
    def verdict(self) -> dict[str, Any]:
        return checked_verdict(self._verdict)

    @property
    def _verdict(self) -> Path:
        """In the node's own folder, where it came to know which node it is."""
        own = self._logs / f"node_{self.host.index}"
        return (own if own.exists() else self._logs) / "attempt_1" / "verdict.json"

    @property
    def has_verdict(self) -> bool:
        return self._verdict.exists()


class Steps:
    """A job on three hosts, and what is done to it: each method is a step of a case, with its words as arguments."""

    def __init__(self, case: Case, launcher: Launcher, hosts: Hosts, folder: Path) -> None:
        self.nodes: dict[int, Node] = {}
        self.failed_at = 0.0  # when the test itself did harm
        self._case = case
        self._launcher = launcher
        self._hosts = hosts
        self._folder = folder
        self._disks: dict[int, Path] = {}
        self._listeners: list[Entered] = []

    def perform(self, *steps: str) -> None:
        for step in steps:
            word, *rest = step.split(" ")
            getattr(self, word)(*rest)

    def place(self, place: str) -> str:
        """Where a launcher has fewer processes on a node, the last one acts for those that it has not."""
        node, dot, local = place.partition(".")
        return f"{node}.{min(int(local), self._launcher.ranks - 1)}" if dot else place

    # What is done before anything is started

    def memory(self, index: str) -> None:
        host = self._hosts[int(index)]
        if not host.memory_group:
            pytest.skip("this machine lets us make no memory group")
        host.limit_memory(self._launcher.memory << 20)

    def disk(self, index: str, megabytes: str) -> None:
        self._disks[int(index)] = self._hosts[int(index)].small_disk(int(megabytes))

    def unname(self, index: str, name: str) -> None:
        self._hosts.unname(None if index == "all" else self._hosts[int(index)], name)

    def name(self, index: str, name: str) -> None:
        self._hosts.name(self._hosts[int(index)], name, next(host for host in self._hosts if host.name == name))

    def delay(self, index: str, ms: str) -> None:
        self._hosts[int(index)].delay(float(ms))

    def power(self, index: str) -> None:
        self._hosts[int(index)].start()

    def listen(self, index: str) -> None:
        taken = self._hosts[int(index)].popen([sys.executable, "-c", TAKES_PORT], stdout=subprocess.PIPE, text=True)
        assert taken.stdout
        assert taken.stdout.readline() == "ready\n"
        self._listeners.append(taken)

    # The job

    def start(self, *indices: str) -> None:
        for index in map(int, indices):
            host, out = self._hosts[index], self._folder / f"node{index}.out"
            log_dir = self._disks.get(index, self._folder / f"logs{index}")
            where = ("--method", self._launcher.method, "--slots", SLOTS, "--grace-s", GRACE_S, "--log-dir", log_dir)
            with open(out, "wb") as printed, open(out.with_suffix(".err"), "wb") as said:
                popen = host.popen(
                    [*self._with_clock(index), *RANKLAUNCH, "run", "--python", sys.executable, *where, "--", child("chaos.py")],
                    env=self._environment(index), cwd=self._folder, as_pid_1=self._case.as_pid_1,
                    stdin=subprocess.DEVNULL, stdout=printed, stderr=said,
                )  # fmt: skip
            self.nodes[index] = Node(popen, host, host.seen(log_dir) if index in self._disks else log_dir, out)

    def _with_clock(self, index: int) -> tuple[str, ...]:
        ahead = self._case.clock.get(index)
        return ("unshare", "--time", "--monotonic", str(ahead), "--fork") if ahead else ()

    def _environment(self, index: int) -> dict[str, str]:
        """Small, so that what is on the machine that runs the tests does not decide."""
        kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        hosts = ",".join(host.name for host in self._hosts)
        # Open MPI's own folder, which is called after the host and the process: hosts of other tests have the same names.
        (self._folder / "t").mkdir(exist_ok=True)
        env["OMPI_MCA_orte_tmpdir_base"] = env["OMPI_MCA_btl_vader_backing_directory"] = str(self._folder / "t")
        env.update(LANG="C", OMP_NUM_THREADS="1", RANKLAUNCH_HOSTS=hosts, RANKLAUNCH_NODE=str(index), CHAOS_NODE=str(index))
        if self._launcher.ps:
            env.update(self._tasks(index))
        orders = {self.place(place): steps for place, steps in self._case.orders.items()}
        env.update(CHAOS=json.dumps(orders), CHAOS_FOLDER=str(self._folder))
        if self._launcher.rank_table:
            table = self._folder / "table.json"
            devices = "".join(map(str, range(SLOTS)))
            table.write_text(helpers.group_table([(f"job-worker-{h.index}", h.address, devices) for h in self._hosts]))
            env["RANK_TABLE_FILE"] = str(table)
        return {**env, **self._case.env}

    def _tasks(self, index: int) -> dict[str, str]:
        workers = NODES - self._launcher.ps
        names = [host.name for host in self._hosts]
        return {
            "RANKLAUNCH_WORKER_HOSTS": ",".join(names[:workers]),
            "RANKLAUNCH_PS_HOSTS": ",".join(names[workers:]),
            "RANKLAUNCH_TASK": "worker" if index < workers else "ps",
            "RANKLAUNCH_NODE": str(index if index < workers else index - workers),
        }

    def ready(self) -> None:
        """Every rank is at work."""
        files = [self._folder / f"ready-{node}.{local}" for node in range(NODES) for local in range(self._launcher.ranks)]

        def all_are() -> bool:
            assert not any(node.ended for node in self.nodes.values()), f"ended before all ranks were at work; {self.words()}"
            return all(file.exists() for file in files)

        sleep_until(all_are, lambda: f"ready; {self.words()}")

    def go(self, name: str = "go") -> None:
        self.failed_at = time.monotonic()
        (self._folder / name).touch()

    def said(self, index: str, *words: str) -> None:
        node, text = self.nodes[int(index)], " ".join(words)
        sleep_until(lambda: text in node.said, lambda: f"{text!r} in {self.words()}")

    def event(self, index: str, name: str) -> None:
        events = self._folder / f"logs{index}" / f"node_{index}" / "attempt_1" / "events.jsonl"
        sleep_until(lambda: f'"event": "{name}"' in events.read_text(), lambda: f"event {name}; {self.words()}")

    def end(self, *indices: str) -> None:
        for index in map(int, indices or self.nodes):
            sleep_until(lambda: self.nodes[index].ended, lambda: f"end of node {index}; {self.words()}")  # noqa: B023

    def end_all(self) -> float:
        """Seconds from the failure to the end of the last process of the job."""
        sleep_until(lambda: all([node.ended for node in self.nodes.values()]), lambda: f"end; {self.words()}")  # noqa: C419 - each looks
        for listener in self._listeners:
            listener.kill()
            listener.communicate(timeout=60)
        at = self._folder / "at"
        failed_at = float(at.read_text()) if at.exists() else self.failed_at
        last = max(node.ended_at for node in self.nodes.values())
        for node in self.nodes.values():
            if not node.host.pid:
                continue
            if self._case.lingers and node.host.pids():
                node.host.wait_until_empty()
                last = time.monotonic()
            assert not node.host.pids(), f"left on {node.host}: {self.words()}"
        return last - failed_at

    def words(self) -> str:
        return "\n".join(f"node {index} ({node.popen.poll()}):\n{node.said}" for index, node in self.nodes.items())

    # Harm

    def term(self, index: str) -> None:
        self.failed_at = time.monotonic()
        self.nodes[int(index)].popen.send_signal(signal.SIGTERM)

    def kill(self, index: str) -> None:
        self.failed_at = time.monotonic()
        self.nodes[int(index)].popen.send_signal(signal.SIGKILL)

    def cut(self, index: str) -> None:
        self.failed_at = time.monotonic()
        self._hosts[int(index)].cut()

    def stop(self, index: str) -> None:
        self._hosts[int(index)].stop()


MakeJob = Callable[[Case, Launcher], Steps]
Rows = list[dict[str, Any]]


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path) -> MakeJob:
    return lambda case, launcher: Steps(case, launcher, hosts(NODES, late=case.late), tmp_path)


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[Rows]:
    """The seconds of each cell, printed at the end, and written as JSON where CHAOS_TABLE names a file. Not by one of several
    workers: their seconds are those of a machine that does other things too."""
    found: Rows = []
    yield found
    if found and not hasattr(request.config, "workerinput"):
        reporter = request.config.pluginmanager.getplugin("terminalreporter")
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            for line in ("", *as_table(found)) if reporter else ():
                reporter.write_line(line)
        if os.environ.get("CHAOS_TABLE"):
            Path(os.environ["CHAOS_TABLE"]).write_text(json.dumps(found, indent=1) + "\n")


def as_table(rows: Rows) -> Iterator[str]:
    """A star: before launch, from the start."""
    methods = [launcher.method for launcher in LAUNCHERS]
    yield f"{'seconds from the failure to the last end':76}" + "".join(f"{method:>12}" for method in methods)
    for name in dict.fromkeys(row["case"] for row in rows):
        cells = {row["method"]: f"{row['seconds']:.2f}{' ' if row['launched'] else '*'}" for row in rows if row["case"] == name}
        yield f"{name:76}" + "".join(f"{cells.get(method, '-'):>12}" for method in methods)


def cells() -> Iterator[Any]:
    for launcher in LAUNCHERS:
        for case in (*CASES, *EVENTS):
            marks = [pytest.mark.training] if launcher.training else [pytest.mark.launchers] if launcher.launchers else []
            if launcher.slow and (not case.launched or case in EVENTS):
                continue
            if not typical(case, launcher):
                marks.append(pytest.mark.table)
            if launcher.method not in case.without:
                yield pytest.param(case, launcher, id=f"{launcher.method}-{case.name.replace(' ', '-')}", marks=marks)


@pytest.mark.parametrize(("case", "launcher"), list(cells()))
def test_chaos(case: Case, launcher: Launcher, job: MakeJob, rows: Rows, record_property: Callable[[str, object], None]) -> None:
    steps = job(case, launcher)
    began = time.monotonic()
    steps.perform(*case.steps)
    seconds = steps.end_all()
    if not case.launched:
        seconds = time.monotonic() - began
    record_property("seconds", round(seconds, 3))
    rows.append({"case": case.name, "method": launcher.method, "seconds": round(seconds, 3), "launched": case.launched})
    check_codes(case, steps)
    check_verdicts(case, launcher, steps)
    if case.network and case.launched:
        assert seconds < (SLOWLY_STOPPED_S if launcher.slow or launcher.training else STOPPED_S) + GRACE_S


def check_codes(case: Case, steps: Steps) -> None:
    codes = {index: node.code for index, node in steps.nodes.items()}
    killed = {int(step.split()[1]): 137 for step in case.steps if step.startswith("kill ")}
    assert codes == {**dict.fromkeys(codes, case.code), **killed, **case.codes}, steps.words()


def check_verdicts(case: Case, launcher: Launcher, steps: Steps) -> None:
    verdicts = {index: node.verdict for index, node in steps.nodes.items() if index not in case.no_verdict or node.has_verdict}
    assert verdicts.keys() >= steps.nodes.keys() - set(case.no_verdict), steps.words()
    for index, verdict in verdicts.items():
        assert (verdict["outcome"], verdict["exit_code"]) == (case.outcome, case.code), verdict
        for text in (*case.reason, *case.reasons.get(index, ())):
            assert text in verdict["reason"], (index, verdict)
        check_culprit(case.culprit, launcher, verdict)
        if case.failures is not None:
            assert tuple(sorted(failure["node"] for failure in verdict["failures"])) == case.failures, verdict
        for text in case.notes:
            assert any(text in note for note in verdict["notes"]), verdict
    common = [{name: verdicts[index][name] for name in COMMON} for index in case.together]
    assert all(each == common[0] for each in common), common
    for index, node in steps.nodes.items():
        assert "a defect in ranklaunch" not in node.said
        for text in case.said.get(index, ()):
            assert text in node.said
        if node.code == case.code and not node.popen.returncode < 0:
            assert f"{case.outcome} with exit code {case.code}: " in node.said


def check_culprit(expected: Culprit | None, launcher: Launcher, verdict: dict[str, Any]) -> None:
    found = verdict["culprit"]
    if expected is None:
        assert found is None, verdict
        return
    rank = None
    if launcher.names_ranks and expected.local is not None and expected.node < NODES - launcher.ps:
        rank = expected.node * launcher.ranks + min(expected.local, launcher.ranks - 1)
    told = (found["node"], found["rank"], found["signal"], found["out_of_memory"])
    assert told == (expected.node, rank, expected.signal, expected.out_of_memory), verdict
    assert ("consequence" in verdict["reason"]) == expected.consequence, verdict
