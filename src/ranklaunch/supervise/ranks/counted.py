"""How many of its ranks a launcher has started, once it has ended with 0: one that was told another number than the plan's does that too.

By the files that it makes for its ranks before it starts them, or by processes where its ranks are, whatever they are called.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence

from ranklaunch.adapters.launchers.shared.launcher import PROOF_BEGUN
from ranklaunch.errors import counted
from ranklaunch.plan.model import Plan, RankOutputs, everything
from ranklaunch.supervise.ranks.child import LAUNCHER, Child, Success
from ranklaunch.system.disk import DiskFiles
from ranklaunch.values import replace

MOST_PROOF = 64  # bytes of the file of Launcher.proof


def success(plan: Plan, ended: Sequence[Child]) -> Success:
    for child in ended:
        if child.launcher.proof and _has_only_begun(child.launcher.proof):
            return Success("", plan.job.node.slots, _killed(child.process.name), 128 + signal.SIGKILL)
    launchers = [child for child in ended if child.role == LAUNCHER]
    launcher = next((child for child in launchers if child.launcher.DEPTH), None)
    planned = plan.job.node.slots
    afar = next((child for child in launchers if child.launcher.CARRIERS and plan.fewer_ranks), None)
    if afar and not launcher:  # whose ranks may be on other nodes
        return _unknown(afar, 0, plan.job.world_size)
    by_files = len(_files(plan.outputs)) if launcher else planned
    seen = max(by_files, launcher.most_ranks, launcher.below.known if launcher.below else 0) if launcher else planned
    if not launcher or seen >= planned:
        return Success(f"{everything(plan)} succeeded")
    name, unknown = launcher.process.name, _unknown(launcher, seen, planned)
    if not seen and not plan.fewer_ranks and _has_lost_its_ranks(launcher, plan.outputs):
        return replace(unknown, fewer=_killed_before(name), code=128 + signal.SIGKILL)
    if not by_files or plan.fewer_ranks:  # it may write elsewhere
        return unknown
    fewer = (
        f"{_seen(seen, planned)}, although {name} ended with 0: an option, a template or a configuration of yours has told it another "
        "number than the plan's; RANKLAUNCH_FEWER_RANKS=true lets such a job succeed"
    )
    return replace(unknown, fewer=fewer)


def _unknown(launcher: Child, seen: int, planned: int) -> Success:
    text = f"{launcher.process.name} succeeded; {_seen(seen, planned)}, and whether the others ran is not known"
    return Success(text, planned - seen)


def _seen(seen: int, planned: int) -> str:
    return f"{seen} of {counted(planned, 'rank')} were seen"


def _has_lost_its_ranks(launcher: Child, outputs: RankOutputs | None) -> bool:
    """Whether one that tells of each rank, and was told where to make their files, has done neither for any."""
    announced, told = launcher.announced, outputs and any(outputs.folder in word for word in launcher.process.argv)
    return bool(announced and told and not (announced.alive or announced.ended))


def _killed_before(name: str) -> str:
    return f"{name} ended with 0 before a rank had started: what it had started to start them was killed, most likely"


def _has_only_begun(proof: str) -> bool:
    return (DiskFiles().text(proof, MOST_PROOF) or "").strip() == PROOF_BEGUN


def _killed(name: str) -> str:
    return f"{name} ended with 0, but what it had started to start the ranks has not ended by itself: it was killed, most likely"


def _files(outputs: RankOutputs | None) -> set[str]:
    """Keys of the ranks that have some."""
    if not outputs or not outputs.folder:
        return set()
    pattern = re.compile(outputs.pattern)
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(outputs.folder) for name in names)
    found = (pattern.fullmatch(path[len(outputs.folder) + 1 :]) for path in paths)
    return {match[match.lastindex or 0] for match in found if match}.intersection(outputs.keys.values())
