"""What is read out of a folder, whole or half lost, and what a person reads first."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import helpers
import pytest
from left_behind import BEGAN, LeftBehind, culprit

from ranklaunch.errors import ConfigError
from ranklaunch.report import assembly, model, verdicts
from ranklaunch.report.formats import html, prom, text, words
from ranklaunch.supervise import record
from ranklaunch.supervise.record import Record
from ranklaunch.tune import results
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Judgement, KnownError, Verdict
from testbench.judges import formats
from testbench.judges.events import misfits

IMPORT = KnownError(
    "python-module-not-found", "cause", "ModuleNotFoundError: No module named 'x'", "It is not installed.", "Install it.", "a page", "no"
)


def succeeded(left: LeftBehind) -> None:
    for number in (0, 1):
        node = left.node(number).starts(float(number), 4.0, 4.5)
        node.tell(6.0, "first output", name=f"rank {2 * number}").steps(10.0, 1).steps(20.0, 11)
        for rank in node.ranks:
            node.tell(21.0, "exit", name=f"rank {rank}", rank=rank, pid=100 + rank, exit_code=0, signal=None, max_rss_kb=2048)
            (node.folder / f"rank_{rank}.log").write_text(f"rank {rank} says\n")
        node.tell(22.0, "done").ends(23.0, 24.0).verdict()


def shown(folder: Path) -> str:
    return text.shown(assembly.report(str(folder)))


def test_of_a_search_its_own_end_is_told(left: LeftBehind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its experiments, and what is run with the best, are jobs of their own below its folder."""
    own = left.node(0).starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 7, "none of 3 configurations worked")
    own.verdict("failed", 7, "none of 3 configurations worked")
    own.folder.rename(left.folder / "attempt_1")
    assert folders.OF_TUNE == (results.EXPERIMENTS, results.RESULTS)
    for below in (f"{folders.TUNE}/{results.EXPERIMENTS}/z1_mbs2/logs", folders.BEST):
        one = LeftBehind(left.folder / below, monkeypatch, nodes=1).node(0).starts(0.0, 1.0, 2.0).tell(3.0, "done").ends(3.0, 4.0)
        one.verdict()
        one.folder.rename(left.folder / below / "attempt_1")
    experiment = left.folder / folders.TUNE / results.EXPERIMENTS / "z1_mbs2"
    shutil.copy(experiment / "logs" / "attempt_1" / "verdict.json", experiment)
    (experiment / folders.COMMAND).touch()
    shutil.copytree(experiment, experiment.with_name("z2_mbs2"))
    report = assembly.report(str(left.folder))
    assert (report.outcome, report.exit_code, report.reason) == ("failed", 7, "none of 3 configurations worked")
    assert any("tune: experiments of a search are left out" in trouble for trouble in report.troubles)
    assert assembly.report(str(left.folder / "run")).exit_code == 0
    with pytest.raises(ConfigError, match=f"experiments of a search, each a job of its own; name one of them, such as {experiment}"):
        assembly.report(str(experiment.parent))


def test_attempts_that_have_another_job_name_are_noted(left: LeftBehind) -> None:
    for attempt in (1, 2):
        node = left.node(0, attempt).starts(10.0 * attempt, 10.0 * attempt + 1, 10.0 * attempt + 2)
        node.ends(10.0 * attempt + 3, 10.0 * attempt + 4, "failed", 1, "rank 0").verdict("failed", 1, "rank 0 exited with code 1")
    assert not any("job name" in trouble for trouble in assembly.report(str(left.folder)).troubles)
    plan = left.folder / "node_0" / "attempt_1" / "plan.json"
    plan.write_text(plan.read_text().replace('"bert"', '"gpt"'))
    troubles = assembly.report(str(left.folder)).troubles
    assert any(trouble.startswith("attempt 1 has another job name (gpt), and may belong to another job") for trouble in troubles)


def test_a_success(left: LeftBehind) -> None:
    succeeded(left)
    for path in left.folder.rglob("events.jsonl"):
        assert [wrong for line in path.read_text().splitlines() for wrong in misfits(json.loads(line))] == []
    report = assembly.report(str(left.folder))
    assert (report.outcome, report.exit_code, report.reason, report.culprit, report.troubles) == ("succeeded", 0, "all is well", None, ())
    assert (report.job.name, report.job.method, [node.host for node in report.job.nodes]) == ("bert", "spawn", ["h0", "h1"])
    (attempt,) = report.attempts
    one, two = attempt.rounds[0].nodes
    assert [span.kind for span in two.spans] == ["start", "muster", "start", "launch", "steps", "stop"] or two.spans[0].kind == "muster"
    assert [(mark.kind, round(mark.at - BEGAN, 3)) for mark in one.marks] == [
        ("read", 0.0), ("released", 4.0), ("launched", 4.5), ("first output", 6.0), ("first step", 10.0), ("done", 22.0), ("ended", 24.0),
    ]  # fmt: skip
    rank = two.processes[1]
    assert (rank.name, rank.rank, rank.pid, rank.exit_code, rank.max_rss_kb) == ("rank 3", 3, 103, 0, 2048)
    assert (rank.log, rank.step_s, [seen.step for seen in rank.steps]) == ("node_1/attempt_1/rank_3.log", 1.0, [1, 11])
    screen = shown(left.folder)
    assert screen.splitlines()[:2] == ["bert: spawn on local, 2 nodes, 4 ranks", "  python3 -u train.py"]
    assert "SUCCEEDED with exit code 0: all is well" in screen
    assert "where 24.0 s went, 54.2 % of it productive:" in screen


def test_a_failure_says_who_why_and_what_to_do(left: LeftBehind) -> None:
    node = left.node(0).starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 1, "rank 1")
    (node.folder / "rank_1.log").write_text("one\ntwo\nModuleNotFoundError: No module named 'x'\n")
    last = ("Traceback ...", "ModuleNotFoundError: No module named 'x'")
    node.verdict("failed", 1, "rank 1 exited with code 1", culprit=culprit(1, host="h0", last_lines=last, error=IMPORT))
    report = assembly.report(str(left.folder))
    assert report.culprit
    assert (report.culprit.log, report.tails[0].lines[:2]) == ("node_0/attempt_1/rank_1.log", ("one", "two"))
    screen = shown(left.folder)
    for line in (
        "FAILED with exit code 1: rank 1 exited with code 1",
        "  who: rank 1 on node 0 (h0), exit code 1",
        "  why: ModuleNotFoundError: No module named 'x' [python-module-not-found]",
        "  do:  Install it.",
        "    ModuleNotFoundError: No module named 'x'",
        "  no files of node 1 are in this folder: the report comes from the other nodes",
    ):
        assert line in screen.splitlines()


def test_no_memory(left: LeftBehind) -> None:
    error = KnownError("torch-spawn", "cause", "process 1 terminated", "a process failed", "Read the traceback", "https://example.org")
    killed = culprit(3, 1, exit_code=137, signal="SIGKILL", out_of_memory=True, error=error)
    left.node(1).starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 137, "rank 3").verdict("failed", 137, "no memory", culprit=killed)
    screen = shown(left.folder)
    assert "who: rank 3 on node 1, killed by SIGKILL; the kernel killed it for memory" in screen
    assert "do:  use less" in screen
    assert "Read the traceback" not in screen


@pytest.mark.parametrize("set_by", [0.0, 3600.0, -3600.0])
def test_rounds_before_are_told(left: LeftBehind, set_by: float) -> None:
    """set_by: what the wall's clock is set by between two rounds, which makes no time pass."""
    left.node().starts(0.0, 1.0, 2.0).steps(5.0, 3).ends(6.0, 7.0, "failed", 1).round("rank 1 died", "starting all ranks again, restart 1")
    left.fast = set_by
    left.node(restart=1).starts(7.0, 8.0, 9.0).steps(11.0, 4).ends(12.0, 13.0).verdict()
    lines = shown(left.folder).splitlines()
    assert "  attempt 1: failed after 6.0 s at step 3: rank 1 died; starting all ranks again, restart 1" in lines
    assert "  attempt 1, 1 restart in place, from 2026-09-21 14:13:20 UTC, 13.0 s" in lines


def test_the_rounds_that_a_verdict_alone_tells(tmp_path: Path) -> None:
    restarts = [{"round": number, "reason": f"loss {number}", "decision": "again", "lost_s": 5.0} for number in (0, 1)]
    (tmp_path / "verdict.json").write_text(json.dumps({"outcome": "failed", "exit_code": 1, "reason": "it died", "restarts": restarts}))
    report = assembly.report(str(tmp_path / "verdict.json"))
    assert [(each.number, each.outcome, each.reason) for each in report.attempts[0].rounds] == [
        (0, "failed", "loss 0"), (1, "failed", "loss 1"), (2, "failed", "it died"),
    ]  # fmt: skip
    assert "  attempt 1, restart 1: failed: loss 1; again" in text.shown(report)
    assert report.accounting.interruptions == 3
    assert "stopped telling" not in text.shown(report)


def test_a_hang_with_its_suspects_and_stacks(left: LeftBehind) -> None:
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 3)
    node.tell(40.0, "hang", text="the job hangs; rank 1: stopped", since="2026-09-21T14:13:26+00:00")
    node.stacks(rank_0=["all_reduce", "step"], rank_1=["read", "batches"])
    (node.folder / "rank_1.log").write_text("I read\n")
    suspect = {"rank": 1, "node": 0, "why": "its process is stopped (state T)", "file": "rank_1.stacks.txt"}
    hang = {"since": "2026-09-21T14:13:26+00:00", "signals": ["output", "CPU"], "suspects": [suspect]}
    host = {"host": "h0", "node": 0, "why": "rank 1 is stopped"}
    rules = [{"rule": "own-decision", "says": "ranklaunch ended the job: failed", "of": {"node": 0, "rank": None, "file": "", "line": 0}}]
    ended = node.ends(41.0, 42.0, "failed", 75, "the job hangs")
    ended.verdict("failed", 75, "the job hangs", hang=hang, suspect_host=host, because=rules)
    report = assembly.report(str(left.folder))
    (told,) = report.attempts[0].hangs
    assert (told.since, told.signals, told.text) == (BEGAN + 6, ("output", "CPU"), "the job hangs; rank 1: stopped")
    assert [each.ranks for each in report.attempts[0].stacks] == [(0,), (1,)]
    assert [(tail.name, tail.lines) for tail in report.tails] == [("rank 1 on node 0", ("I read",))]
    screen = shown(left.folder)
    assert "  suspect: rank 1 on node 0: its process is stopped (state T)" in screen
    assert "  rank 1: read at train.py:0" in screen
    assert "  why this verdict: own-decision (ranklaunch ended the job: failed)" in screen.splitlines()
    assert "  leave out the next time: h0 (node 0): rank 1 is stopped" in screen.splitlines()


def test_a_node_that_had_succeeded_before_others_were_stopped(left: LeftBehind) -> None:
    """Its verdict is its own; the job's is that of the others."""
    node_0 = left.node(0).starts(0.0, 1.0, 2.0).ends(5.0, 6.0, "succeeded", 0)
    node_0.verdict("succeeded", 0, "all 2 ranks of node 0 succeeded; SIGTERM came while the other nodes were still running")
    left.node(1).starts(0.0, 1.0, 2.0).ends(40.0, 41.0, "stopped", 143).verdict("stopped", 143, "node 1 (h1): stopped by SIGTERM")
    report = assembly.report(str(left.folder))
    assert (report.outcome, report.exit_code, report.reason) == ("stopped", 143, "node 1 (h1): stopped by SIGTERM")


def test_stacks_of_the_stop_name_a_rank_where_none_were_taken_before(left: LeftBehind) -> None:
    """Written by faulthandler as SIGABRT came; whatever stands before them is output of the rank."""
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 3)
    node.stacks(rank_0=[], rank_1=[])
    for rank, function in enumerate(("all_reduce", "read")):
        text = (
            f'step 3\nFatal Python error: Aborted\n\nCurrent thread 0x7f (most recent call first):\n  File "a.py", line 7 in {function}\n'
        )
        (node.folder / "evidence" / "node_0" / "1" / f"rank_{rank}.aborted.txt").write_text(text)
    hang = {"since": "2026-09-21T14:13:26+00:00", "signals": ["output", "CPU"], "suspects": []}
    node.ends(41.0, 42.0, "failed", 75, "the job hangs").verdict("failed", 75, "the job hangs", hang=hang)
    assert "  suspect: rank 1 on node 0: it is elsewhere than the others: read at a.py:7" in shown(left.folder)


def test_a_rule_that_was_broken_while_everything_moved(left: LeftBehind) -> None:
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 3)
    rule = r"RANKLAUNCH_EXPECT: loss (\S+) < 20: rank 1 on node 0 wrote 57.3"
    hang = {"since": "2026-09-21T14:13:26+00:00", "signals": [rule], "suspects": []}
    node.ends(41.0, 42.0, "failed", 75, rule).verdict("failed", 75, rule, hang=hang)
    assert f"a rule was broken since 2026-09-21 14:13:26 ({rule})" in shown(left.folder).splitlines()


def test_ranks_that_were_ended_for_their_hang_did_not_move_again() -> None:
    """And all started again."""
    ended = model.Round(0, "failed", 0.0, 1.0, 2.0, 3.0, 4.0, failed=20.0, ended=21.0)
    attempt = model.Attempt(1, "succeeded", 0.0, 90.0, rounds=(ended, replace(ended, number=1, failed=None)))
    assert not words.has_moved(attempt, model.Hang(10.0, 20.5))
    assert words.has_moved(attempt, model.Hang(40.0, 50.0))


def test_a_second_cause_is_told_by_its_own_words_apart_from_victims(left: LeftBehind) -> None:
    cause = KnownError("cuda-out-of-memory", "cause", "CUDA out of memory", "", "", "")
    second = KnownError("python-file-not-found", "cause", "FileNotFoundError: /data/x", "", "", "")
    lost = KnownError("gloo-peer-connection-lost", "consequence", "Connection closed by peer", "", "", "")
    failures = (culprit(2, error=second), culprit(3, error=lost), culprit(0, error=cause))
    left.node().starts(0.0, 1.0, 2.0).ends(5.0, 6.0, "failed", 1).verdict("failed", 1, culprit=culprit(1, error=cause), failures=failures)
    report = assembly.report(str(left.folder))
    screen = text.shown(report).splitlines()
    assert "  a second cause: rank 2 on node 0, exit code 1: FileNotFoundError: /data/x" in screen
    assert "  failed too: rank 3 on node 0, rank 0 on node 0" in screen
    page = str(html.shown(report))
    assert "A second cause" in page
    assert "FileNotFoundError: /data/x" in page


def test_killed_in_the_middle(left: LeftBehind) -> None:
    """No verdict, and a line that was never finished."""
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 3).steps(9.0, 7)
    with (node.folder / "events.jsonl").open("a") as file:
        file.write('{"event": "steps", "monot')
    report = assembly.report(str(left.folder))
    assert (report.outcome, report.exit_code, report.accounting.interruptions) == ("unfinished", None, 0)
    assert report.ended == pytest.approx(BEGAN + 9)
    assert report.troubles == ("node_0/attempt_1: 1 line of events.jsonl is no event, and left out",)
    assert "UNFINISHED: there is no verdict; the last sign of the job is from 2026-09-21 14:13:29 UTC" in shown(left.folder)


def test_what_nodes_do_not_have_in_common(left: LeftBehind) -> None:
    succeeded(left)
    path = left.folder / "node_1" / "attempt_1" / "plan.json"
    plan = json.loads(path.read_text())
    plan["muster"]["facts"]["torch"] = "2.8.0"
    path.write_text(json.dumps(plan))
    (found,) = assembly.report(str(left.folder)).differences
    assert (found.name, found.values) == ("torch", (("", (0,)), ("2.8.0", (1,))))
    assert "  torch: (nothing) on node 0; 2.8.0 on node 1" in shown(left.folder).splitlines()


def test_what_steers_ranks_is_not_missed_of_a_node_that_starts_none(left: LeftBehind) -> None:
    """As under mpirun: node 0 starts those of all."""
    succeeded(left)
    for node, facts in enumerate(({"arguments": "train.py --lr 1", "GLOO_SOCKET_IFNAME": "lo"}, {})):
        path = left.folder / f"node_{node}" / "attempt_1" / "plan.json"
        plan = json.loads(path.read_text())
        plan["processes"] = [] if node else plan["processes"]
        plan["muster"]["facts"].pop("arguments")
        plan["muster"]["facts"].update(facts)
        path.write_text(json.dumps(plan))
    assert assembly.report(str(left.folder)).differences == ()


def test_a_node_that_stopped_telling(left: LeftBehind) -> None:
    left.node(0).starts(0.0, 1.0, 2.0).ends(30.0, 31.0, "failed", 75).verdict("failed", 75, "node 1 is lost")
    left.node(1).starts(0.0, 1.0, 2.0)
    assert "the events of node 1 stop before the end: killed, or lost" in shown(left.folder)


def test_what_may_not_be_read_is_told_and_nothing_is_concluded_from_it(left: LeftBehind, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the node tells of the attempt before is not compared with the last one of the others."""
    for number in (0, 1):
        left.node(number).starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 1)
        left.node(number, restart=1).starts(5.0, 6.0, 7.0).ends(8.0, 9.0, "failed", 1).verdict("failed", 1, "it died")
        left.node(number, attempt=2).starts(20.0, 21.0, 22.0).ends(23.0, 24.0).verdict()
    helpers.refuse(monkeypatch, left.folder / "node_1" / "attempt_2")
    report = assembly.report(str(left.folder))
    assert report.troubles == ("node_1/attempt_2: Permission denied",)
    assert [each.state for each in report.attempts[1].rounds[0].nodes] == ["ended", "unread"]
    assert (report.differences, report.attempts[1].missing) == ((), ())
    screen = shown(left.folder)
    assert "note: node_1/attempt_2: Permission denied" in screen
    assert "stopped telling" not in screen
    formats.check("report", helpers.call("report", str(left.folder), "--format", "json").json)


@pytest.mark.parametrize("below", ["node_1", "node_1/attempt_1/restart_1"])
def test_a_folder_that_may_not_be_read(left: LeftBehind, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    for number in (0, 1):
        left.node(number).starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 1)
        left.node(number, restart=1).starts(5.0, 6.0, 7.0).ends(8.0, 9.0, "failed", 1).verdict("failed", 1, "it died")
    helpers.refuse(monkeypatch, left.folder / below)
    report = assembly.report(str(left.folder))
    assert report.troubles == (f"{below}: Permission denied",)
    assert "stopped telling" not in shown(left.folder)


def test_a_log_folder_that_may_not_be_read(left: LeftBehind, monkeypatch: pytest.MonkeyPatch) -> None:
    succeeded(left)
    helpers.refuse(monkeypatch, left.folder)
    with pytest.raises(ConfigError) as refused:
        assembly.report(str(left.folder))
    assert refused.value.problems == (f"{left.folder}: Permission denied",)


def test_an_attempt_of_which_nothing_may_be_read(left: LeftBehind, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left.node().starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 7).verdict("failed", 7, "it died").folder
    for path in (folder / "plan.json", folder / folders.VERDICT, folder / folders.EVENTS):
        path.unlink(missing_ok=True)
        os.mkfifo(path)  # which is not read, as what may not be
    with pytest.raises(ConfigError) as refused:
        assembly.report(str(left.folder))
    assert refused.value.problems[0] == f"{left.folder}: nothing of the job can be read"
    helpers.refuse(monkeypatch, folder)
    with pytest.raises(ConfigError) as refused:
        assembly.report(str(left.folder))
    assert refused.value.problems[1:] == (f"{folder.relative_to(left.folder)}: Permission denied",)


@pytest.mark.parametrize("ended", [True, False])
def test_a_verdict_that_may_not_be_read(left: LeftBehind, ended: bool) -> None:
    node = left.node().starts(0.0, 1.0, 2.0)
    verdict = (node.ends(3.0, 4.0, "failed", 7) if ended else node).folder / folders.VERDICT
    os.mkfifo(verdict)
    said = "FAILED with exit code 7" if ended else "UNFINISHED"
    assert f"{said}: no reason is known: verdict.json or events.jsonl cannot be read (see the notes)" in shown(left.folder).splitlines()


def test_an_empty_attempt_has_no_last_sign(left: LeftBehind) -> None:
    (left.folder / "attempt_1").mkdir(parents=True)
    assert "1970" not in shown(left.folder)
    assert "UNFINISHED: there is no verdict; no file shows when it ran" in shown(left.folder)


def test_events_that_cannot_be_read(left: LeftBehind) -> None:
    left.node(0).starts(0.0, 1.0, 2.0).ends(30.0, 31.0, "failed", 75).verdict("failed", 75, "it died")
    events_file = left.node(1).starts(0.0, 1.0, 2.0).folder / folders.EVENTS
    events_file.unlink()
    os.mkfifo(events_file)
    assert "node_1/attempt_1/events.jsonl: a FIFO is there" in " ".join(shown(left.folder).split())
    assert "stopped telling" not in shown(left.folder)


def test_what_is_left_may_lie_anywhere(left: LeftBehind, tmp_path: Path) -> None:
    """One attempt's folder, verdict.json alone, also by another name, a copy of nodes by other names, one level further up."""
    succeeded(left)
    left.node(0, attempt=2).starts(100.0, 101.0, 102.0).ends(110.0, 111.0, "failed", 1).verdict("failed", 1, "it died")
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(left.folder / "node_1" / "attempt_1" / "verdict.json", alone)
    renamed = tmp_path / "job4711.json"
    shutil.copy(alone / "verdict.json", renamed)
    copied = tmp_path / "copied"
    for number in (0, 1):
        shutil.copytree(left.folder / f"node_{number}", copied / f"pod-{number}")
    for folder, attempts, nodes, outcome in (
        (left.folder, [1, 2], [0, 1], "failed"),
        (left.folder / "node_0" / "attempt_1", [1], [0, 1], "succeeded"),
        (left.folder / "node_0" / "attempt_1" / "verdict.json", [1], [0, 1], "succeeded"),
        (alone, [1], [0], "succeeded"),
        (left.folder / "node_0" / "attempt_1" / "rank_0.log", [1], [0, 1], "succeeded"),
        (alone / "verdict.json", [1], [0], "succeeded"),
        (renamed, [1], [0], "succeeded"),
        (copied, [1, 2], [0, 1], "failed"),
        (tmp_path / "logs", [1, 2], [0, 1], "failed"),
    ):
        report = assembly.report(str(folder))
        found = [node.node for node in report.attempts[0].rounds[0].nodes]
        assert ([each.number for each in report.attempts], found, report.outcome) == (attempts, nodes, outcome), folder


@pytest.mark.parametrize("text", ["", "a text", '{"a": 1}', "[" * 100_000])
def test_a_file_that_is_no_verdict_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(ConfigError, match=r"README\.md: no verdict; expected a log folder of ranklaunch.*; ranklaunch explain "):
        assembly.report(str(tmp_path / "README.md"))


def test_of_several_jobs_the_newest(left: LeftBehind, tmp_path: Path) -> None:
    for name, reason in (("old", "one"), ("new", "two")):
        left.folder = tmp_path / "logs" / f"job_{name}"
        left.node().starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 1).verdict("failed", 1, reason)
    report = assembly.report(str(tmp_path / "logs"))
    assert (report.reason, report.other_jobs) == ("two", ("job_old",))


def test_a_stop_is_told_of_all_nodes() -> None:
    caught = {"signal": "SIGTERM", "caught_by": [0, 1], "ended_by_themselves": [0, 1], "killed": [], "seconds": 0.5, "saved": "yes"}
    deaf = {**caught, "caught_by": [], "ended_by_themselves": [], "killed": [2], "seconds": 5.25, "saved": "no"}
    said = "SIGTERM: 2 caught it, 2 ended by themselves, 1 was killed after 5.2 s; saved: no"
    assert verdicts.stop([caught, None, deaf]) == said
    assert verdicts.stop([caught]).endswith("; saved: yes")
    assert verdicts.stop([None, {}]) == ""


def refused_before_a_plan(left: LeftBehind, attempt: int, at: float) -> None:
    """When it was not known yet which node it was."""
    left.at = at
    folder = Path(folders.attempt(str(left.folder), attempt))
    Record(str(folder)).verdict(
        Verdict(Judgement("failed", 78, "RANKLAUNCH_GRACE_S='abc': expected seconds"), (), record.now(), record.now())
    )


def test_a_start_that_failed_before_there_was_a_plan_is_no_attempt_of_the_job(left: LeftBehind) -> None:
    for attempt in (1, 2):
        (left.folder / f"attempt_{attempt}").mkdir(parents=True)
        refused_before_a_plan(left, attempt, 0.0)
    left.at = 100.0
    for number in (0, 1):
        left.node(number).starts(100.0, 101.0, 102.0).tell(103.0, "done").ends(104.0, 105.0).verdict()
    report = assembly.report(str(left.folder))
    assert (report.outcome, len(report.attempts)) == ("succeeded", 1)
    assert any("attempt_1: a start that failed before its plan was made, not counted as an attempt" in each for each in report.troubles)
    refused_before_a_plan(left, 2, 200.0)
    report = assembly.report(str(left.folder))
    assert (report.outcome, report.exit_code, len(report.attempts)) == ("failed", 78, 2)


def test_a_node_that_comes_anew_while_the_others_end_does_not_decide(left: LeftBehind) -> None:
    killed = culprit(3, 1, exit_code=137, signal="SIGKILL", host="h1")
    left.node(1).starts(0.0, 1.0, 2.0)
    left.node(0).starts(0.0, 1.0, 2.0).ends(30.0, 40.0, "failed", 137, "node 1").verdict("failed", 137, "rank 3 was killed", culprit=killed)
    again = left.node(1, attempt=2)
    again.tell(35.0, "read", platform="local", method="spawn", why="", attempt=2, container_s=None)
    again.ends(36.0, 37.0, "failed", 75).verdict("failed", 75, "node 1 came when the job had already started without it")
    report = assembly.report(str(left.folder))
    assert (report.exit_code, report.reason) == (137, "rank 3 was killed")


def test_nothing_there(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        result = helpers.call("report", str(folder))
        assert (result.code, result.out) == (78, "")
        assert str(folder) in result.err


def test_formats(left: LeftBehind, tmp_path: Path) -> None:
    succeeded(left)
    found = helpers.call("report", str(left.folder), "--format", "json").json
    formats.check("report", found)
    assert (found["schema"], found["outcome"], found["attempts"][0]["rounds"][0]["nodes"][1]["host"]) == (model.SCHEMA, "succeeded", "h1")
    assert helpers.call("report", str(left.folder), "--output", str(tmp_path / "out.txt")).out == ""
    assert (tmp_path / "out.txt").read_text() == shown(left.folder)
    wrong = helpers.call("report", str(left.folder), "--format", "jsn")
    assert (wrong.code, "did you mean 'json'?" in wrong.err) == (2, True)
    lines = prom.shown(assembly.report(str(left.folder))).splitlines()
    assert lines[-1] == "# EOF"
    assert 'ranklaunch_report_bucket_seconds{job="bert",bucket="productive"} 13' in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(families) == len(set(families))
    assert all(any(line.startswith(name) for name in families) for line in lines if line[0] != "#")


def test_the_newest_log_folder_is_that_of_the_environment(left: LeftBehind) -> None:
    succeeded(left)
    env = {"PATH": "/usr/bin", "RANKLAUNCH_LOG_DIR": str(left.folder / "node_1")}
    assert helpers.call("report", env=env).out.startswith("bert: spawn on local")


def test_the_command_of_a_job_of_ray_is_the_user_s() -> None:
    """Not the program that waits for Ray and becomes it."""
    found = helpers.plan({**helpers.local(2, "2"), "RANKLAUNCH_METHOD": "ray"}, "--lr", "1", program="train.py")
    plan = {"job": {"name": "x"}, "processes": [{"argv": list(found.processes[0].argv)}]}
    assert verdicts.job([plan]).command == ("python", "-u", "train.py", "--lr", "1")
