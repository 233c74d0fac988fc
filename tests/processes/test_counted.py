"""What is said of a node whose launcher ended with 0: all of its ranks ran, fewer did, or nobody knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import helpers
import pytest

from ranklaunch.adapters.launchers import started
from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.plan.model import Plan
from ranklaunch.processes import rank_count
from ranklaunch.processes.child_ranks import Announced, Watcher
from ranklaunch.processes.children import LAUNCHER, RANK, Child, Success
from ranklaunch.system.loop import Loop
from ranklaunch.system.tree import Identity

FILES = {
    "torchrun": "run/attempt_0/{local}/stdout.log",
    "accelerate": "run/attempt_0/{local}/stderr.log",
    "deepspeed": "20261122_rank{rank}.log",
    "msrun": "worker_{rank}.log",
}


def plan(folder: Path, method: str, nodes: int = 1, node: int = 0, **env: str) -> Plan:
    return helpers.plan({**helpers.local(nodes, "2", node), **env}, method=method, log_dir=str(folder))


def said(found: Plan, files: int, most_ranks: int = 0) -> Success:
    """Of its launcher, which has made so many files, and has been seen to have so many ranks."""
    folder = Path(found.outputs.folder if found.outputs else "/nowhere")
    ranks = [*found.job.node.ranks, 97, 98][:files]
    for local, rank in enumerate(ranks):
        path = folder / FILES[found.method].format(local=local, rank=rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    child = Child(found.processes[0], Identity(1, 1), LAUNCHER, helpers.launcher(found))
    child.most_ranks = most_ranks
    return rank_count.success(found, [child])


@pytest.mark.parametrize("method", FILES)
def test_each_rank_has_a_file(tmp_path: Path, method: str) -> None:
    assert said(plan(tmp_path, method), files=2) == Success("all 2 ranks succeeded")
    assert said(plan(tmp_path, method), files=3) == Success("all 2 ranks succeeded")


@pytest.mark.parametrize("method", FILES)
def test_fewer_ranks_than_planned_are_no_success(tmp_path: Path, method: str) -> None:
    found = said(plan(tmp_path, method, nodes=2, node=1), files=1)
    told = f"1 of 2 ranks were seen, although {method} ended with 0"
    assert found.fewer.startswith(told)
    assert "RANKLAUNCH_FEWER_RANKS=true" in found.fewer


def test_fewer_may_be_meant(tmp_path: Path) -> None:
    found = said(plan(tmp_path, "torchrun", RANKLAUNCH_FEWER_RANKS="true"), files=1)
    assert found == Success("torchrun succeeded; 1 of 2 ranks were seen, and whether the others ran is not known", 1)


@pytest.mark.parametrize("extra", ["", "--tee 3"])
def test_without_files_nothing_is_known(tmp_path: Path, extra: str) -> None:
    """A template of the user's may have its launcher write elsewhere, or on another machine."""
    found = said(plan(tmp_path, "torchrun", RANKLAUNCH_EXTRA_TORCHRUN_PARAMS=extra), files=0)
    assert found == Success("torchrun succeeded; 0 of 2 ranks were seen, and whether the others ran is not known", 2)


def test_processes_count_too(tmp_path: Path) -> None:
    assert said(plan(tmp_path, "torchrun"), files=1, most_ranks=2) == Success("all 2 ranks succeeded")
    assert said(plan(tmp_path, "torchrun"), files=0, most_ranks=1).unseen == 1


@pytest.mark.parametrize(("method", "text"), [("spawn", "all 2 ranks"), ("mpirun", "all 2 ranks"), ("pytorch", "the program")])
def test_what_starts_no_ranks_below_or_exactly_as_many_as_it_is_told(tmp_path: Path, method: str, text: str) -> None:
    found = plan(tmp_path, method)
    children = [Child(process, Identity(1, 1), RANK, started(process, found)) for process in found.processes]
    assert rank_count.success(found, children) == Success(f"{text} succeeded")


def test_whether_mpiruns_ranks_ran_is_not_known_where_it_may_start_fewer(tmp_path: Path) -> None:
    found = plan(tmp_path, "mpirun", RANKLAUNCH_FEWER_RANKS="true")
    assert rank_count.success(found, [Child(found.processes[0], Identity(1, 1), LAUNCHER, helpers.launcher(found))]) == Success(
        "mpirun succeeded; 0 of 2 ranks were seen, and whether the others ran is not known", 2
    )


def unannounced(found: Plan, *argv: str) -> Success:
    """Of DeepSpeed's, which says "process N spawned" of each rank and has said it of none."""
    process = replace(found.processes[0], argv=argv) if argv else found.processes[0]
    child = Child(process, Identity(1, 1), LAUNCHER, started(process, found))
    child.below = Announced(Watcher(Loop(), print), child.launcher.STARTS, [0, 1]) if child.launcher.STARTS else None
    return rank_count.success(found, [child])


def test_a_launcher_that_was_killed_before_it_started_ranks(tmp_path: Path) -> None:
    found = unannounced(plan(tmp_path, "deepspeed"))
    assert (found.code, found.unseen) == (137, 2)
    assert found.fewer.startswith("deepspeed ended with 0 before a rank had started: ")


@pytest.mark.parametrize(("name", "value"), [("RANKLAUNCH_FEWER_RANKS", "true"), ("RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS", "-h")])
def test_no_ranks_may_be_meant(tmp_path: Path, name: str, value: str) -> None:
    found = unannounced(plan(tmp_path, "deepspeed", **{name: value}))
    assert found == Success("deepspeed succeeded; 0 of 2 ranks were seen, and whether the others ran is not known", 2)


def test_a_template_may_have_its_files_elsewhere(tmp_path: Path) -> None:
    """And keep it from saying what it starts."""
    assert not unannounced(plan(tmp_path, "deepspeed"), "deepspeed", "--quiet", "train.py").fewer


class WithProof(Launcher):
    """A launcher that starts no ranks below itself. proof: path of the file that tells of the end of its program."""

    proof = ""


@pytest.mark.parametrize(("written", "code"), [("begun\n", 137), ("0\n", 78), (None, 78)])
def test_what_the_launcher_had_started_tells_that_it_has_ended(tmp_path: Path, written: str | None, code: int) -> None:
    """78: no more than the default of a success, which has no code."""
    proof = tmp_path / "end"
    if written is not None:
        proof.write_text(written)
    found = plan(tmp_path, "spawn")
    launcher = WithProof(found.processes[0])
    launcher.proof = str(proof)
    success = rank_count.success(found, [Child(found.processes[0], Identity(1, 1), LAUNCHER, launcher)])
    assert (success.code, bool(success.fewer)) == (code, code == 137)
