"""Advice about launchers in a program: names the mistake, and the line to write instead."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

from ranklaunch import errors
from ranklaunch.adapters.launchers.shared.scripts import rank_scripts as scripts
from ranklaunch.adapters.launchers.shared.starters import Start, Starters
from ranklaunch.env.features import ALLOW
from ranklaunch.placement.rules import Alone, Twice
from ranklaunch.plan.model import Plan
from ranklaunch.processes.children import environment
from ranklaunch.system import tree
from ranklaunch.system.disk import DiskFiles, working_folder


class Advice:
    """Texts of advice for a plan. inherited: environment that processes of the plan inherit."""

    def __init__(self, plan: Plan, inherited: Mapping[str, str]) -> None:
        self._plan = plan
        self._inherited = inherited

    @functools.cached_property
    def starts(self) -> Sequence[Start]:
        """Commands that start ranks, if the program is a shell script."""
        process = next(iter(self._plan.processes), None)
        env = environment(process, self._inherited) if process else self._inherited
        cwd = os.path.join(working_folder(), process.cwd or "") if process else working_folder()
        return scripts.starts(self._plan.job.program, env, cwd, DiskFiles())

    def alone(self, lone: Alone) -> str:
        """Return a text about a launcher whose ranks work alone on this node."""
        job = self._plan.job
        text = f"{len(job.nodes)} nodes, and {lone.launcher} on node {job.node_index} works alone: {lone.why}"
        argv = lone.argv or tree.command(lone.process[0])[:-1]
        return f"{text}: {self.instead(argv)} (RANKLAUNCH_EACH_NODE_ALONE=1 lets each node work alone)"

    def twice(self, nested: Twice) -> str:
        """Return a text about ranks that start ranks of their own."""
        line = f"ranklaunch run --method plain -- {' '.join(errors.quoted(self._plan.job.program.words))}"
        ranks = errors.numbered(nested.ranks, "rank")
        text = f"{ranks} each start ranks of their own ({nested.launcher}), which want {nested.want}: this program starts its own ranks"
        if len(self._plan.job.nodes) > 1 and (known := Starters().of_words(nested.argv, {})):
            return f"{text}: write {known.instead}, which starts the ranks of all nodes (RANKLAUNCH_NESTED={ALLOW} lets it go on)"
        return f"{text}: run it once per node: {line} (RANKLAUNCH_NESTED={ALLOW} lets it go on)"

    def instead(self, argv: Sequence[str] = ()) -> str:
        """Return the advice for a launcher's command line. argv: its present command line, () if unknown."""
        starter = Starters().of_words(argv, {}) or next((start.found for start in self.starts), None)
        has_variables = any("NNODES" in process.env for process in self._plan.processes)
        ways = ["pass NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT of the environment to it"] if has_variables or not starter else []
        ways += [f"write {starter.instead}, which starts the ranks of all nodes"] if starter else []
        return ", or ".join(ways)
