"""Plugin of an attempt that compares the ranks started by launchers with the plan. Its findings: ranks
that work alone on one of several nodes, two ranks with the same place, ranks that start ranks of their
own. docs/supervision.md has a table.

The check runs until ranks of the plan's world were seen or a step was printed. From then on only
ranks that work alone end the job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranklaunch import errors
from ranklaunch.adapters.launchers.shared import place_conflicts
from ranklaunch.adapters.launchers.shared.place_conflicts import Place as NodePlace
from ranklaunch.adapters.launchers.shared.starters import Starters
from ranklaunch.env.features import ALLOW
from ranklaunch.errors import ConfigError
from ranklaunch.hangs.steps import step_reader
from ranklaunch.placement import rules
from ranklaunch.placement.model import Key, Launcher
from ranklaunch.placement.rules import Alone, Place
from ranklaunch.placement.success import Node
from ranklaunch.plan.model import PROGRAM
from ranklaunch.processes.advice import Advice
from ranklaunch.processes.rank_heads import Placed, job_of, variables_of
from ranklaunch.supervise.context import Companion
from ranklaunch.supervise.ending import failed
from ranklaunch.system import tree
from ranklaunch.verdict import folders

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt

PLACES = "places"  # key of the message to node 0 with the places of a node's ranks
SOON_S, LATER_S, SOON = 1.0, 5.0, 60  # seconds between looks: the first SOON looks, and later ones
NO_RANK_S = 5.0  # for a launcher to start a rank, before its arguments are compared
BEGIN_S = 1.0  # before the first look: a shorter job needs no check
DEVICES = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


class Placing(Companion):
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        plan = attempt.plan
        self._placed = Placed(folders.records(attempt.record.folder, plan.job.node_index), plan)
        self._job = job_of(plan)
        self._advice = Advice(plan, attempt.around.env)
        self._is_program = plan.runs == PROGRAM
        self._looks = 0
        self._is_whole = self._has_stepped = False
        self._alone: Alone | None = None
        self._alone_at = 0.0
        self._counts: dict[int, int] = {}  # number of steps, by rank
        self._reported: Sequence[Place] = ()
        self._places: dict[int, Sequence[Place]] = {}
        if self._is_program and self._job.nodes > 1:
            attempt.nodes.hear(PLACES, self._on_places, at_node_0=True)  # registered at once: other nodes may be faster
        attempt.loop.after(BEGIN_S, self._look)

    # Looks

    def _look(self) -> None:
        if self._attempt.ending or self._is_done:
            return
        self._looks += 1
        self._has_stepped = self._steps_of_ranks() or self._has_stepped
        self._placed.look(0.05)
        node, living = self._placed.node([*self._attempt.children.ended, *self._attempt.children.running.values()]), self._placed.living()
        self._is_whole = self._is_whole or rules.is_whole(node, self._job)
        problem = self._problem(node, living)
        if problem:
            self._attempt.fail(failed(ConfigError.exit_code, problem))
        else:
            self._attempt.loop.after(SOON_S if self._looks < SOON else LATER_S, self._look)

    @property
    def _is_done(self) -> bool:
        """Return True if no problem is possible any more."""
        if self._is_program:
            return self._is_whole or (self._has_stepped and self._job.nodes == 1)
        return self._has_stepped or self._looks > 2 * SOON

    def _problem(self, node: Node, living: Collection[Key]) -> str:
        if not self._is_program:
            return "" if self._has_stepped else self._twice(node, living)
        if not self._has_stepped:
            same = rules.place_twice(node, living)
            if same:
                one, other = same
                return self._same_place(f"processes {one.process[0]} and {other.process[0]}", one.rank, one.world, one.master, one.port)
        if self._job.nodes == 1:
            return ""
        self._report_places(rules.places(node, living, self._job))
        return self._alone_problem(node, living) or self._waits_problem(node, living)

    # Alone

    def _alone_problem(self, node: Node, living: Collection[Key]) -> str:
        """Warn once about ranks that work alone. Return the reason to end the job, "" if it goes on."""
        lone = rules.alone(node, self._job)
        if self._is_whole or not lone or self._attempt.plan.trust.each_node_alone:
            return ""
        now = self._attempt.loop.clock()
        if not self._alone or self._alone.process != lone.process:
            self._alone, self._alone_at, self._has_stepped = lone, now, False
            self._attempt.say(f"warning: {self._advice.alone(lone)}")
            return ""
        lives = any(head in living for head in lone.heads)
        lasts = lives and now - self._alone_at > self._attempt.plan.trust.alone_s
        is_last = len(self._advice.starts) < 2  # with several launchers, the one for the whole job may start later
        return self._advice.alone(lone) if (self._has_stepped or lasts) and is_last else ""

    # Launchers without ranks

    def _waits_problem(self, node: Node, living: Collection[Key]) -> str:
        """Return the conflict in a launcher's arguments because of which its ranks will never start; "" for none."""
        if any(node.is_placed(head) and head.rank is not None for head in node.heads):
            return ""
        for launcher in node.by_program:
            if launcher.process in living and _age(launcher.process) > NO_RANK_S:
                conflict = self._conflict(launcher)
                if conflict:
                    return conflict
        return ""

    def _conflict(self, launcher: Launcher) -> str:
        job = self._attempt.plan.job
        env = variables_of(launcher.process[0])
        starter = Starters().of_words(tree.command(launcher.process[0])[:-1], env)
        place = NodePlace(len(job.nodes), job.node_index, job.master, host=os.uname().nodename)
        why = place_conflicts.waits_for_nobody(starter, place, env) if starter else ""
        if not starter or not why:
            return ""
        problem = f"the {launcher.name} on node {job.node_index} waits in vain for other nodes, {why}"
        return f"{len(job.nodes)} nodes, and {problem}: write {starter.instead}"

    # Two ranks with the same place

    def _same_place(self, who: str, rank: object, world: object, master: str, port: str) -> str:
        where = f"rank {rank} of {world}, at {master}:{port}"
        return f"{who} have the same place, {where}: each node's launcher needs its own --node_rank: {self._advice.instead()}"

    def _report_places(self, places: Sequence[Place]) -> None:
        if places != self._reported:
            self._reported = places
            self._attempt.nodes.tell_node_0(PLACES, [[each.world, each.master, each.port, each.first, each.last] for each in places])

    def _on_places(self, node: int, body: Any) -> None:
        """Handle, on node 0, the places of another node's ranks."""
        self._places[node] = [Place(int(row[0]), str(row[1]), str(row[2]), int(row[3]), int(row[4])) for row in body[: rules.MOST_PLACES]]
        for other, places in self._places.items():
            same = rules.common(places, self._places[node]) if other != node else None
            if same and not self._has_stepped and not self._attempt.ending:
                ranks = errors.numbered(range(same.first, same.last + 1), "rank")
                text = self._same_place(
                    f"{ranks} of nodes {min(other, node)} and {max(other, node)}", same.first, same.world, same.master, same.port
                )
                self._attempt.fail(failed(ConfigError.exit_code, text))
                return

    # Ranks within ranks

    def _twice(self, node: Node, living: Collection[Key]) -> str:
        trust = self._attempt.plan.trust
        visible = {head.process: _devices(head.process) for head in node.heads if head.within and head.process in living}
        on_cpu = self._attempt.plan.job.accelerator == "cpu"
        nested = None if trust.nested == ALLOW else rules.twice(node, living, self._job, {} if on_cpu else visible)
        return self._advice.twice(nested) if nested else ""

    # Output of ranks

    def _steps_of_ranks(self) -> bool:
        """Return True if a rank has printed a step since the last look."""
        before, self._counts = self._counts, {}
        for rank, output in self._attempt.logs.by_rank.items():
            reader = step_reader(output)
            reader.look()
            self._counts[rank] = reader.steps.count
        return any(count > before.get(rank, 0) for rank, count in self._counts.items())


def _age(process: Key) -> float:
    """Return the seconds since a process started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process[1] / os.sysconf("SC_CLK_TCK")


def _devices(process: Key) -> str:
    env: Mapping[str, str] = variables_of(process[0])
    return " ".join(env.get(name, "") for name in DEVICES)
