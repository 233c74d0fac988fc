"""Parts of an attempt that only a long or a failing job needs. The attempt imports this module
once: 0.3 s after the launch, while ranks load, or at an earlier failure. A failure after that
imports nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranklaunch import catalogue
from ranklaunch.control.stops import Stops
from ranklaunch.diagnose.failures import last_lines
from ranklaunch.evidence.collection import Taking
from ranklaunch.hangs.monitor import Watching
from ranklaunch.hangs.pace import Pacing
from ranklaunch.plan.model import PROGRAM, Plan
from ranklaunch.processes.program_end import ProgramEnd
from ranklaunch.restarts import cleaning, round_facts
from ranklaunch.restarts.cleaning import Held
from ranklaunch.supervise import judge
from ranklaunch.supervise.context import Join
from ranklaunch.supervise.placement_check import Placing
from ranklaunch.system import tree
from ranklaunch.system.bounded import Apart
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import SuspectHost
from ranklaunch.verdict.model import Ending, Note

if TYPE_CHECKING:
    from ranklaunch.ends.model import NodeEnds
    from ranklaunch.supervise.attempt import Attempt
    from ranklaunch.supervise.ending import Circumstances
    from ranklaunch.verdict.blame import Judgement, Suspect

KEEPERS = ("sleep", "sshd", "tail", "tini", "dumb-init")  # names of programs that only keep a container alive
SOON_S = 1.0  # a shorter job needs no step counts


def later(plan: Plan) -> Iterator[tuple[float, Join, str]]:
    """Yield the plugins of a long job: seconds after the launch, the plugin, and its work in words for
    an error message."""
    yield SOON_S, Pacing, "follow the steps of its ranks"
    if plan.job.node.slots > 1 or plan.runs == PROGRAM:
        yield 0.0, Placing, "compare its ranks with the plan"
    if plan.watch.hang != "off":
        yield plan.watch.look_s, Watching, "detect a hang"


class Running:
    """Work of one attempt beyond its start."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        if attempt.launched_at is not None:
            self._join()

    def prepare(self) -> None:
        """Compile the patterns that a failure needs."""
        catalogue.find("RuntimeError: no failure yet\n")

    def _join(self) -> None:
        """Add the plugins, at once or some seconds after the launch, if Start.has_plugins is set."""
        attempt, plan = self._attempt, self._attempt.plan
        if not attempt.start.has_plugins:
            return
        attempt.companions.add(Taking)
        attempt.companions.add(Stops)
        since_launch = attempt.loop.clock() - (attempt.launched_at or 0.0)
        for seconds, join, work in later(plan):
            attempt.loop.after(max(0.0, seconds - since_launch), self._join_later, join, work)

    def _join_later(self, join: Join, work: str) -> None:
        """Add a plugin, unless the end has begun. work: its work in words, for an error message."""
        if self._attempt.ending:
            return
        try:
            self._attempt.companions.add(join)
        except Exception as error:  # for example no descriptor left; the job goes on without the plugin
            self._attempt.say(f"warning: this job runs without a plugin that would {work}: {type(error).__name__}: {error}")

    def program_ended(self, go_on: Callable[[], None]) -> None:
        """Call go_on once the work of a program that ended with 0 is done; fail the job if the work
        is unfinished."""
        ProgramEnd(self._attempt).complete(go_on)

    def keeps_node(self) -> str:
        """Return the reason for which this node has succeeded with node 0, "" for none.

        The reason: only programs run here that keep the container alive, such as sleep, or sshd for the
        ranks of node 0's mpirun.
        """
        names = set(self._names())
        keepers = sorted(names & {*KEEPERS})
        is_kept = keepers and names <= {*tree.SHELLS, *KEEPERS}
        return f"node 0 has ended, and nothing ran here but {' and '.join(keepers)}" if is_kept else ""

    def _names(self) -> Iterator[str]:
        """Yield the names of the processes that run here."""
        for child in self._attempt.children.running.values():
            for process in (child.identity, *tree.descendants(child.identity.pid)):
                entry = tree.entry(process.pid)
                if entry:
                    yield entry.name

    def held(self) -> Held:
        """Return the processes of this round and their files in shared memory: both may outlive the round."""
        held, before = cleaning.held(self._attempt.phases.shared), self._attempt.held
        return held.and_more(before) if before else held

    # After a failure

    def look_at_disks(self) -> Apart | None:
        return judge.look_at_disks(self._attempt.plan)

    def suspects(self, node: NodeEnds | None) -> Sequence[Suspect]:
        return judge.suspects(self._attempt.plan, self._ending, node, self._attempt.first_suspect)

    def notes_of_failure(self, node: NodeEnds | None, suspects: Sequence[Suspect]) -> tuple[Note, ...]:
        attempt, ending = self._attempt, self._ending
        return (
            *judge.notes(attempt.plan, ending, suspects, attempt.disks),
            *map(Note, attempt.companions.notes(ending, suspects)),
            *judge.notes_of_stop(attempt.plan, ending, node, suspects, attempt.stopper.caught),
        )

    def alone(self, own: Judgement, state: Mapping[str, Any], circumstances: Circumstances) -> Judgement:
        return judge.alone(own, state, self._attempt.plan, self._ending, circumstances)

    def round_state(self) -> Mapping[str, Any]:
        """Return the state of this node for the decision about another round."""
        attempt, ending = self._attempt, self._ending
        first = min(ending.at, attempt.launchers.failing_since or ending.at)
        finished = attempt.success is not None or any(finish.at < attempt.nodes.wall(first) for finish in attempt.finishes)
        state = round_facts.state(
            attempt.plan, attempt.logs.kept, attempt.launched_at, attempt.loop.clock(), finished=finished, failure=attempt.record.failure
        )
        return {**state, **round_facts.asked(attempt.plan, ending, attempt.around.asked())}

    def host_to_avoid(self, judgement: Judgement, facts: Mapping[str, Any]) -> SuspectHost | None:
        hosts = [node.host for node in self._attempt.plan.job.everyone]
        return blame.host_to_avoid(judgement, hosts, facts.get("hang"), self._attempt.start.after.restarts)

    def exceptions(self, node: NodeEnds) -> Iterator[str]:
        return judge.exceptions_despite_success(self._attempt.plan, node)

    def excerpt(self, lines: Sequence[str], most: int) -> Sequence[str]:
        return last_lines("\n".join(lines), most)

    @property
    def _ending(self) -> Ending:
        assert self._attempt.ending is not None
        return self._attempt.ending
