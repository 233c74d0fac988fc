"""Checks that hold for every end of a job: exit code, verdict, events."""

from __future__ import annotations

import datetime
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbench.judges import formats
from testbench.waiting import DEADLINE_S

if TYPE_CHECKING:
    from testbench.jobs.job import Job


def checked_verdict(path: Path) -> dict[str, Any]:
    """Return the verdict in a file, after the checks that hold for every verdict."""
    verdict: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    formats.check("verdict", verdict)
    formats.check_attempt(path.parent)
    assert verdict["reason"].strip()
    assert 0 <= verdict["exit_code"] <= 255
    assert (verdict["exit_code"] == 0) == (verdict["outcome"] == "succeeded")
    started, ended = (datetime.datetime.fromisoformat(verdict[key]) for key in ("started", "ended"))
    assert started.utcoffset() == datetime.timedelta(0)
    assert started < ended
    if verdict["culprit"] is not None:
        _check_culprit(verdict["culprit"])
        own = 75 if verdict["culprit"]["name"] == "sshd" else verdict["culprit"]["exit_code"]  # sshd's exit code has no meaning
        assert verdict["exit_code"] in (own, 76)  # 76: restarts in place without progress
        assert verdict["outcome"] == "failed"
    for victim in verdict["victims"]:
        assert victim["signal"].startswith("SIG")
    return verdict


def _check_culprit(culprit: dict[str, Any]) -> None:
    if culprit["signal"]:
        assert culprit["exit_code"] == 128 + signal.Signals[culprit["signal"]]


def check_events(events: list[dict[str, Any]], verdict: dict[str, Any]) -> None:
    """Check the events of an attempt: in order of time, from "read" to "end", with one exit for each spawn."""
    assert all(event["event"] and event["time"] for event in events)
    times = [event["monotonic"] for event in events]
    assert times == sorted(times)
    names = [event["event"] for event in events]
    assert names[0] == "read"
    assert names[-1] == "end"
    assert names.count("ending") == names.count("end") == 1
    assert (events[-1]["outcome"], events[-1]["exit_code"]) == (verdict["outcome"], verdict["exit_code"])
    spawned = [event["pid"] for event in events if event["event"] == "spawn"]
    exited = [event["pid"] for event in events if event["event"] == "exit"]
    assert sorted(spawned) == sorted(exited)
    assert len(set(spawned)) == len(spawned)


def check_end(
    job: Job,
    outcome: str,
    exit_code: int,
    *,
    culprit: Mapping[str, Any] | None = None,
    victims: Mapping[int, str] | None = None,
    timeout: float = DEADLINE_S,
) -> dict[str, Any]:
    """Wait for the job to end, check exit code, verdict and events, and return the verdict.

    culprit: expected fields of the culprit; None: no culprit expected. victims: expected signal of each victim, by rank; None: not checked.
    """
    code = job.end(timeout)
    stderr = job.err.text if job._err else ""
    assert code == exit_code, stderr
    verdict = job.verdict
    assert (verdict["outcome"], verdict["exit_code"]) == (outcome, exit_code), verdict
    if culprit is None:
        assert verdict["culprit"] is None
    else:
        assert verdict["culprit"] is not None
        assert {name: verdict["culprit"][name] for name in culprit} == culprit
    if victims is not None:
        assert {victim["rank"]: victim["signal"] for victim in verdict["victims"]} == victims
    check_events(job.events, verdict)
    if job._err:
        assert "Traceback" not in stderr
        assert f"{outcome} with exit code {exit_code}" in stderr
        assert verdict["reason"] in stderr
    return verdict
