"""Number of ranks that a launcher has started, checked once the launcher has ended with 0: a wrong number of ranks also ends with 0.

Ranks are counted by their output files, which exist before their start, or by processes at the depth of ranks.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from ranklaunch.adapters.launchers.shared.base import PROOF_BEGUN
from ranklaunch.errors import counted
from ranklaunch.plan.model import Plan, RankOutputs, everything
from ranklaunch.processes.children import LAUNCHER, Child, Success
from ranklaunch.system.disk import DiskFiles

MOST_PROOF = 64  # bytes that are read of the file Launcher.proof
KILLED = 128 + signal.SIGKILL


def success(plan: Plan, ended: Sequence[Child]) -> Success:
    """Return the result of a node whose launchers and ranks all ended with 0."""
    for child in ended:
        proof = child.launcher.proof
        if proof and (DiskFiles().text(proof, MOST_PROOF) or "").strip() == PROOF_BEGUN:
            why = "but the process that it had started for the ranks did not end by itself: it was killed, most likely"
            return Success("", plan.job.node.slots, f"{child.process.name} ended with 0, {why}", KILLED)
    for child in ended:
        if child.role == LAUNCHER and child.launcher.DEPTH:
            return _of_launcher(plan, child)
        if child.role == LAUNCHER and child.launcher.CARRIERS and plan.fewer_ranks:  # the ranks may be on other nodes
            return _unknown(child, 0, plan.job.world_size)
    return Success(f"{everything(plan)} succeeded")


def _of_launcher(plan: Plan, launcher: Child) -> Success:
    name, planned, announced = launcher.process.name, plan.job.node.slots, launcher.announced
    by_files = len(_files(plan.outputs))
    seen = max(by_files, launcher.most_ranks, launcher.below.known if launcher.below else 0)
    if seen >= planned:
        return Success(f"{everything(plan)} succeeded")
    unknown = _unknown(launcher, seen, planned)
    if plan.fewer_ranks:
        return unknown
    if by_files:
        fewer = (
            f"{_seen(seen, planned)}, although {name} ended with 0: an option, a template or a configuration file sets another "
            "number of ranks than the plan; RANKLAUNCH_FEWER_RANKS=true lets such a job succeed"
        )
        return replace(unknown, fewer=fewer)
    writes_here = plan.outputs and any(plan.outputs.folder in word for word in launcher.process.argv)
    if writes_here and announced and not seen and not (announced.alive or announced.ended):
        fewer = f"{name} ended with 0 before a rank had started: the process that was to start them was killed, most likely"
        return replace(unknown, fewer=fewer, code=KILLED)
    return unknown


def _unknown(launcher: Child, seen: int, planned: int) -> Success:
    text = f"{launcher.process.name} succeeded; {_seen(seen, planned)}, and whether the others ran is not known"
    return Success(text, planned - seen)


def _seen(seen: int, planned: int) -> str:
    return f"{seen} of {counted(planned, 'rank')} were seen"


def _files(outputs: RankOutputs | None) -> set[str]:
    """Return the keys of the ranks that have output files."""
    if not outputs:
        return set()
    pattern = re.compile(outputs.pattern)
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(outputs.folder) for name in names)
    matched = (pattern.fullmatch(path[len(outputs.folder) + 1 :]) for path in paths)
    return {match[1] for match in matched if match}.intersection(outputs.keys.values())
