"""Real programs on three hosts: a hang is seen and whoever stands out is named, and what only looks like one is let alone. The table itself
is in hang_cases.py."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hang_cases import CASES, HANG_S, NODES, TIMES, Case

from ranklaunch.evidence.folder import MOST_BYTES
from testbench.hosts import Host, Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.places import child
from testbench.waiting import sleep_until

ALARM = "the job hangs"
ALARM_S = 90.0  # of waiting for it on a busy machine
SAID = Path(os.environ.get("RANKLAUNCH_HANG_TABLE", os.devnull))  # a line of JSON for each run, of which the table is made


def marked(case: Case, time: int) -> Any:
    marks = [
        *([] if case.typical and time == 1 else [pytest.mark.table]),
        *([pytest.mark.training] if case.training else []),
        *([pytest.mark.launchers] if case.launchers else []),
    ]
    return pytest.param(case, id=f"{case.name} {time}", marks=marks)


def all_times(hangs: bool) -> list[Any]:
    return [marked(case, time) for time in range(1, TIMES + 1) for case in CASES if case.hangs is hangs]


class HangJob(LauncherJob):
    def __init__(self, hosts: Hosts, folder: Path, case: Case) -> None:
        super().__init__(hosts, folder, case.method, case.slots)
        self._case = case

    def run(self, **more: str) -> None:
        case = self._case
        (self.folder / "run").mkdir()
        star = self._hosts[0].address
        given = {"WHAT": case.what, "WHO": case.who, "LONG": str(case.long), "STAR": star, "RANKLAUNCH_RUN_DIR": str(self.folder / "run")}
        self.start(child("hangs.py"), env={**given, "RANKLAUNCH_HANG_S": str(HANG_S), **case.env, **more})

    @property
    def hung(self) -> bool:
        return ALARM in self.nodes[0].err

    def evidence_s(self) -> float:
        """Since the alarm, until all nodes have theirs, for nobody but this account and no more than there may be."""
        sleep_until(lambda: self.over or all(self.events(i, "evidence") for i in range(NODES)), self.words, LONG_S)
        taken = [self.events(i, "evidence")[0] for i in range(NODES)]
        for each in taken:
            _check_private(Path(each["folder"]))
        alarm = next(each for each in self.events(0, "hang") if ALARM in each["text"])
        return float(round(max(each["monotonic"] for each in taken) - alarm["monotonic"], 1))

    def events(self, node: int, name: str) -> list[dict[str, Any]]:
        *lines, _ = self.nodes[node].log("events.jsonl").split("\n")
        return [event for event in map(json.loads, lines) if event["event"] == name]

    @property
    def over(self) -> bool:
        return all(node.popen.poll() is not None for node in self.nodes)


def _check_private(folder: Path) -> None:
    found = [folder, *folder.parents[:2], *folder.iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}
    assert sum(path.stat().st_size for path in found if path.is_file()) <= MOST_BYTES


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path) -> Callable[[Case], HangJob]:
    return lambda case: HangJob(hosts(NODES), tmp_path, case)


@pytest.mark.parametrize("case", all_times(hangs=True))
def test_a_hang_is_seen_and_named(case: Case, job: Callable[[Case], HangJob]) -> None:
    started = job(case)
    started.run()
    sleep_until(lambda: started.hung or started.over, started.words, ALARM_S)
    seen = started.hung
    evidence_s = started.evidence_s() if seen else None
    for node in started.nodes:
        if node.popen.poll() is None:
            node.popen.send_signal(signal.SIGTERM)
    verdict = started.end(143)
    hang = verdict.get("hang")
    note(case, seen, hang, evidence_s)
    assert seen, started.words()
    assert hang, verdict
    if case.names is not None:
        assert tuple(each["rank"] for each in hang["suspects"]) == case.names, hang
        assert all(each["node"] == each["rank"] // case.slots for each in hang["suspects"])
    assert all(node.verdict["hang"] == hang for node in started.nodes)
    alarms = [[each["since"] for each in started.events(i, "hang") if ALARM in each["text"]] for i in range(NODES)]
    assert all(hang["since"] in each for each in alarms), alarms  # a report may have one node's folder alone
    assert verdict["culprit"] is None


@pytest.mark.parametrize("case", all_times(hangs=False))
def test_what_is_no_hang_is_let_alone(case: Case, job: Callable[[Case], HangJob]) -> None:
    started = job(case)
    started.run()
    verdict = started.end(case.code)
    note(case, started.hung, verdict.get("hang"))
    assert not started.hung, started.words()
    assert "hang" not in verdict


def test_a_hang_ends_the_job_where_that_is_asked_for(job: Callable[[Case], HangJob]) -> None:
    started = job(CASES[0])
    started.run(RANKLAUNCH_HANG="stop")
    verdict = started.end(75)
    assert verdict["reason"].startswith("node 0 (h0): the job hangs: for "), verdict
    assert "rank 3: its process is stopped (state T) (node 1)" in verdict["reason"]
    assert verdict["culprit"] is None


def test_an_exception_that_another_node_has_seen_is_the_reason_on_all(job: Callable[[Case], HangJob]) -> None:
    """Its rank waits at its exit."""
    started = job(Case("raises", "raises", who="3"))
    started.run(RANKLAUNCH_HANG="stop")
    verdict = started.end(1)
    assert verdict["reason"] == "rank 3 on node 1 (h1) exited with code 1: ValueError: label 1003 out of range"
    assert verdict["notes"][0].startswith("node 0 (h0): RANKLAUNCH_HANG=stop has ended rank 3, which waited at its exit: ")
    # Where it lost rank 0 before it was told to end, it has failed of that.
    ended = [each["rank"] for name in ("victims", "failures") for each in started.nodes[1].verdict[name] if each["rank"] // 2 == 1]
    assert ended == [2], started.words()


@pytest.mark.training
def test_stacks_name_a_rank_that_does_not_come(job: Callable[[Case], HangJob]) -> None:
    """All wait, and nothing else sets it apart."""
    started = job(next(case for case in CASES if case.name == "gloo: a rank is absent"))
    started.run(RANKLAUNCH_HANG="stop", RANKLAUNCH_STACKS="on")
    verdict = started.end(75)
    assert "rank 1: it is elsewhere than the others: gloo at hangs.py:" in verdict["reason"]
    assert [suspect["rank"] for suspect in verdict["hang"]["suspects"]] == [1]


CUT_OFF = Case("a host cut off", "waits a while", who="3", long=3600.0, names=(2, 3))


@pytest.mark.table
@pytest.mark.parametrize("case", [pytest.param(CUT_OFF, id=f"{CUT_OFF.name} {time}") for time in range(1, TIMES + 1)])
def test_of_a_host_that_is_cut_off_the_muster_says_so(job: Callable[[Case], HangJob], case: Case) -> None:
    """The others wait for ever for what its ranks were to send. Nothing is heard of it, so it is not silent: it is lost."""
    started = job(case)
    started.run(RANKLAUNCH_LOST_AFTER_S="5")
    sleep_until(lambda: "step: 3 " in started.nodes[2].out or started.over, started.words, LONG_S)
    started.nodes[1].host.cut()
    for node in started.nodes:
        node.popen.wait(LONG_S)
    lost = [node.verdict["reason"].partition(" (")[0] for node in started.nodes]
    note(case, "node 1" in lost, {"suspects": [{"rank": 2}, {"rank": 3}]} if lost[0] == "node 1" else None)
    assert lost == ["node 1", "node 0", "node 1"], started.words()
    assert [node.popen.returncode for node in started.nodes] == [75] * NODES
    assert not any("the job hangs" in node.err for node in started.nodes)


@pytest.mark.table
@pytest.mark.training
def test_a_job_that_goes_on_has_learnt_the_same(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """As one that nobody has held up, although its ranks were asked for stacks meanwhile."""
    cluster, found = hosts(NODES), []
    for name, long in (("as it is", 0.0), ("held up", 1.0)):
        (tmp_path / name).mkdir()
        started = HangJob(cluster, tmp_path / name, Case(name, "trains", who="1", slots=1, long=long, hangs=False))
        started.run(RANKLAUNCH_STACKS="on")
        if long:
            sleep_until(lambda: started.hung or started.over, started.words, LONG_S)  # noqa: B023
            started.evidence_s()
            rank = next(event["pid"] for event in started.events(1, "spawn"))
            cluster[1].run(["kill", "-CONT", rank])
        started.end(0)
        found += [line.partition("parameters ")[2] for node in started.nodes for line in node.out.splitlines() if "parameters" in line]
    assert len(found) == 2 * NODES
    assert len({*found}) == 1


class TensorFlowJob(LauncherJob):
    """Two workers, and a ps on the last host."""

    def _environment(self, host: Host) -> dict[str, str]:
        is_ps = host.index == NODES - 1
        lists = {"RANKLAUNCH_WORKER_HOSTS": "h0:6234,h1:6234", "RANKLAUNCH_PS_HOSTS": "h2:6234"}
        own = {"RANKLAUNCH_TASK": "ps" if is_ps else "worker", "RANKLAUNCH_NODE": "0" if is_ps else str(host.index)}
        return {**super()._environment(host), **lists, **own, "RANKLAUNCH_HANG_S": "15"}


@pytest.mark.table
@pytest.mark.launchers
def test_a_worker_of_tensorflow_that_waits_for_ever(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """For one that has left, which it says every ten seconds."""
    job = TensorFlowJob(hosts(NODES), tmp_path, "tensorflow", 1)
    job.start(child("tf_chief_leaves.py"), env={"GONE": str(tmp_path / "gone"), "RANKLAUNCH_FIRST_STEP_S": "15"})
    sleep_until(lambda: "waiting for the other nodes" in job.nodes[0].err, job.words, LONG_S)
    (tmp_path / "gone").touch()
    sleep_until(lambda: any(ALARM in node.err for node in job.nodes), job.words, LONG_S)
    for node in job.nodes:
        node.popen.send_signal(signal.SIGTERM)
    job.end(143)


def note(case: Case, seen: bool, hang: dict[str, Any] | None, evidence_s: float | None = None) -> None:
    """For the table."""
    named = [each["rank"] for each in hang["suspects"]] if hang else None
    line = {"name": case.name, "hangs": case.hangs, "seen": seen, "named": named, "names": case.names, "evidence_s": evidence_s}
    with SAID.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
