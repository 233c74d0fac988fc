"""Reinforcement learning on Ray as verl lays it out, on two hosts: its end, and the verdict when
a rollout is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LauncherJob
from testbench.places import child

pytestmark = pytest.mark.launchers


def started(hosts: Hosts, folder: Path, **env: str) -> LauncherJob:
    job = LauncherJob(hosts, folder, "ray", 3)
    job.grace_s = 2  # Ray takes more, and has nothing to do in it
    job.start(child("rl_post_training.py"), env=env, options=("--accelerator", "cpu"))
    return job


def test_success(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    job = started(hosts(2), tmp_path)
    job.end(0)
    log = job.nodes[0].log("rank_0.log")
    assert "trainers on h0 h1 and rollouts on h0 h1\n" in log
    assert float(log.partition("reward at the end ")[2].split()[0]) > 0.9


def test_a_rollout_is_killed(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """The verdict names the actor that died, and not the TaskRunner that waited for it."""
    verdict = started(hosts(2), tmp_path, KILLED_ROLLOUT="1:3").end(1)
    assert (verdict["culprit"]["node"], verdict["culprit"]["rank"]) == (0, 0)
    assert "ActorDiedError: The actor died unexpectedly" in verdict["reason"]
    assert "(rollout_1, Rollout, pid=" in verdict["reason"]
