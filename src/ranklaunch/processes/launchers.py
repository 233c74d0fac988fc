"""Launchers of an attempt: their ranks, the ends of the ranks, and launchers that fail, hang or do not end.

docs/launchers.md describes the behaviour of launchers; the class of a launcher has its facts.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ranklaunch.errors import WaitError
from ranklaunch.plan.model import PROGRAM, everything
from ranklaunch.processes.children import DECIDING, LAUNCHER, LEADING, LOOK_FOR_RANKS_S, SERVICE, Child, Lone, Success
from ranklaunch.supervise.ending import decoded, failed, first_suspect, reported_suspect
from ranklaunch.supervise.stop import LEADERS_SHARE
from ranklaunch.system import tree
from ranklaunch.system.signals import name_of
from ranklaunch.system.tree import Hearing
from ranklaunch.verdict.blame import Finish, Suspect
from ranklaunch.verdict.model import Failure

if TYPE_CHECKING:
    from ranklaunch.processes.child_ranks import Below, Watched
    from ranklaunch.processes.orphans import Holders
    from ranklaunch.processes.unnamed import Unnamed
    from ranklaunch.supervise.attempt import Attempt

LISTENS_S = (0.02, 0.1, 0.4, 1.5)  # between looks for a handler in a rank that had none when a signal came
LOOK_AT_LAUNCHER_S = 0.25
REPORT_S = 1.0  # from the end of a rank, for its launcher to report the failure
ANNOUNCE_S = 2.0  # from the failure of a rank, for its launcher to announce the end of the others; a log level may hide that

Ranks = dict[tree.Identity, str]  # each with its name for messages


class Launchers:
    """Launchers of one attempt. failing_since: time at which the first one began to end its ranks after a failure, monotonic seconds."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._children = attempt.children.running
        self._loop = attempt.loop
        self.failing_since: float | None = None
        self._signalled: set[tree.Identity] = set()
        self._holders: list[Holders] = []
        self._unnamed: Unnamed | None = None
        self._lone = Lone(self._loop.clock, attempt.plan.limits.grace_s)

    @property
    def notes(self) -> list[str]:
        """Notes about a success, for the verdict."""
        return [note for holders in self._holders for note in holders.notes]

    def watch(self, child: Child) -> None:
        """Watch a launcher, from its start on."""
        launcher, plan = child.launcher, self._attempt.plan
        files = plan.outputs or plan.kept
        if launcher.STARTS or (launcher.DEPTH and files):
            from ranklaunch.processes.child_ranks import Announced, ByFiles, Watcher

            watcher = Watcher(
                self._loop,
                ended=partial(self._on_end, child),
                signalled=partial(self._are_signalled, child),
                started=partial(self._on_start, child),
                hear=partial(child.hear, self.read),
            )
            if launcher.STARTS:
                child.below = Announced(watcher, launcher.STARTS, plan.job.node.ranks)
            elif files:
                kills, followed = launcher.kills_ranks, bool(plan.outputs)
                child.below = ByFiles(watcher, child.identity, launcher.DEPTH, files, kills=kills, followed=followed)
        if launcher.lonely_s:
            self._loop.after(LOOK_FOR_RANKS_S, self._look_for_ranks, child)
        if launcher.CARRIERS and (child.role == LAUNCHER or not plan.processes):
            from ranklaunch.processes.orphans import Holders

            self._holders.append(Holders(child, self._children, self._loop, plan.limits.grace_s, self._attempt.say))
            self._holders[-1].watch()

    def expect_ranks(self) -> None:
        """Look for new ranks: a new file for the output of a rank has appeared."""
        for below in self._below:
            below.expect()

    def read(self, child: Child) -> None:
        """Read the output of a launcher (starts and ends of ranks, report) or of a service."""
        output = child.reader.output.tail if child.reader else b""
        if child.below:
            child.below.read(output)
        child.look_for_report(output, self._loop.clock())
        if not (self._attempt.ending or child.told or child.ends_ranks) and child.says_failing(output):
            self._on_failing(child)
        self._dismiss(child, output)

    def _on_failing(self, child: Child) -> None:
        self.look()
        child.ends_ranks = True
        if child.role == SERVICE:  # sshd reads the message by then, and exits with 255 for an unexpected end
            self._loop.after(LOOK_AT_LAUNCHER_S, _end_service, child)
        else:
            self._fails(child, f"{child.process.name} reports that one of its ranks has failed")

    def _dismiss(self, child: Child, output: bytes) -> None:
        """Kill a launcher without ranks after its complete report: its own exit may take long, for unloading modules."""
        pattern = child.launcher.HAS_REPORTED if child.told or child.failing else ""
        if not pattern or child.dismissed or not re.search(pattern.encode(), output) or child.left():
            return
        failure = child.reported(decoded(output))
        child.dismissed = bool(failure and child.has_told_all(failure))
        if child.dismissed:
            tree.send(child.identity, signal.SIGKILL)

    def look(self) -> None:
        """Note ends of ranks that the loop has not reported yet: after a signal, an end by itself is no longer recognisable."""
        for below in self._below:
            below.look()

    @property
    def _below(self) -> list[Below]:
        return [child.below for child in self._children.values() if child.below]

    def living(self) -> dict[int, tree.Identity]:
        """Return the processes of living ranks, by rank.

        A program whose ranks cannot be identified counts as the first rank of this node.
        """
        plan, known = self._attempt.plan, self._known()
        if len(known) >= plan.job.node.slots:
            return known
        from ranklaunch.processes.unnamed import Unnamed

        self._unnamed = self._unnamed or Unnamed()
        program = next((child.identity for child in self._children.values() if child.role == LAUNCHER and plan.runs == PROGRAM), None)
        return self._unnamed.find(known, plan.job.node.slots) or ({plan.job.node.first_rank: program} if program else {})

    def _known(self) -> dict[int, tree.Identity]:
        started = {child.process.rank: child.identity for child in self._children.values() if child.process.rank is not None}
        return {**started, **{rank: process for below in self._below for rank, process in below.living().items()}}

    def known(self) -> Collection[int]:
        """Return the numbers of living ranks, without a look at processes.

        A program that starts its ranks itself counts as the first rank of this node.
        """
        plan = self._attempt.plan
        is_program = plan.runs == PROGRAM and any(child.role == LAUNCHER for child in self._children.values())
        return {*self._known(), *([plan.job.node.first_rank] if is_program else [])}

    def silent_s(self) -> float:
        """Return the seconds left for a launcher to report the exit status of a rank that only the launcher knows; 0 for no wait."""
        ended = [rank.ended_at for child in self._children.values() if child.below and not child.announced for rank in child.below.unknown]
        return max(0.0, max(ended) + REPORT_S - self._loop.clock()) if ended else 0.0

    def explained(self, child: Child, tail: str) -> Failure | None:
        """Return the rank that failed first, by the launcher's report and the states of its ranks."""
        if child.role not in DECIDING:
            return None
        killed = child.was_killed and not child.failing
        return child.confirmed(None if killed else child.reported(tail))

    def leave(self, child: Child) -> None:
        if child.below:
            child.below.look()
            if not child.announced:
                child.below.close()

    def success(self, ended: Sequence[Child]) -> Success:
        """Return the success of this node, whose processes have all ended with 0."""
        if not (self._attempt.plan.fewer_ranks or any(each.DEPTH or each.proof for each in (child.launcher for child in ended))):
            return Success(f"{everything(self._attempt.plan)} succeeded")
        from ranklaunch.processes import rank_count

        return rank_count.success(self._attempt.plan, ended)

    # Signals for ranks

    def offer(self, number: int) -> tuple[bool, list[str]]:
        """Send a signal to the processes of ranks with a handler for the signal.

        Return True if a rank was reached, and the names of ranks without a process that catches the signal
        now. A process that sets its handler a little later gets the signal then.
        """
        targets = self._targets(Hearing(number, through_all=True))
        unheard = self._pass_on(number, targets)
        self._offer_again(number, unheard, LISTENS_S)
        by_node_0 = not targets and bool(self.living())
        if by_node_0:
            self._attempt.say(f"{name_of(number)} is left to the launcher on node 0, which passes it to all ranks")
        return by_node_0 or len(unheard) < len(targets), list(dict.fromkeys(unheard.values()))

    def _offer_again(self, number: int, unheard: Ranks, pauses: tuple[float, ...]) -> None:
        if unheard and pauses:
            self._loop.after(pauses[0], self._offer_later, number, unheard, pauses[1:])
        elif unheard:
            names = list(dict.fromkeys(unheard.values()))
            shown = f"{', '.join(names[:8])}{' and others' if len(names) > 8 else ''}"
            self._attempt.say(f"{name_of(number)} is not passed on to {shown}: no process there catches it, so it would end them")

    def _offer_later(self, number: int, unheard: Ranks, pauses: tuple[float, ...]) -> None:
        self._offer_again(number, self._pass_on(number, unheard), pauses)

    def _pass_on(self, number: int, ranks: Ranks) -> Ranks:
        """Send a signal to the processes of ranks that catch the signal. Return the ranks without one."""
        hearing, unheard = Hearing(number, through_all=True), {}
        for rank, name in ranks.items():
            heard = hearing.of(rank)
            for process in heard:
                tree.send(process, number)
            if not heard:
                unheard[rank] = name
        return unheard

    def _targets(self, hearing: Hearing) -> Ranks:
        """Return the ranks to signal.

        Ranks below carriers get a signal from the launcher on node 0, also on other nodes, if they
        catch the signal themselves; else the ranklaunch of each node signals its own ranks.
        """
        targets: Ranks = {}
        leaders = [child for child in self._children.values() if child.role in LEADING]
        for child in leaders:
            ranks = child.ranks() if child.launcher.starts_ranks else [child.identity]
            if child.launcher.CARRIERS:
                ranks = self._not_catching(hearing, [*ranks, *self._attempt.stopper.carried()]) or [child.identity]
            targets.update(dict.fromkeys(ranks, child.process.name))
        return targets if leaders else dict.fromkeys(self._not_catching(hearing, self._attempt.stopper.carried()), "the ranks here")

    def _not_catching(self, hearing: Hearing, ranks: list[tree.Identity]) -> list[tree.Identity]:
        """Return all ranks; none if all catch the signal themselves, and the launcher on node 0 passes it on."""
        passed_on = not any(child.role == SERVICE and child.launcher.DEPTH for child in self._children.values())
        return [] if passed_on and all(hearing.of(rank) == [rank] for rank in ranks) else ranks

    # Events of ranks

    def _are_signalled(self, child: Child) -> bool:
        """Return True if the launcher or ranklaunch has begun to end the ranks."""
        return child.ends_ranks or self._attempt.stopper.begun

    def _on_start(self, child: Child, rank: int, pid: int, folder: str) -> None:
        self._attempt.logs.follow_kept(self._attempt.plan.kept, folder)
        if child.launcher.kills_ranks:
            self._attempt.record.event("spawn", name=f"rank {rank}", rank=rank, pid=pid)

    def _on_end(self, child: Child, rank: Watched) -> None:
        """Handle the end of a rank, mostly before its launcher reports the end."""
        self._attempt.logs.rank_ended(rank.rank)
        if child.announced:
            self._on_end_of_announced(child, rank)
            return
        if rank.code:
            child.launcher.rank_failed(child, self._attempt.stopper.begun)
        if child.launcher.kills_ranks:
            self._on_end_below_killer(child, rank)
        elif rank.code and child.launcher.ENDS_RANKS:
            self._attempt.logs.hush()
            self._attempt.fold_victims(at_once=True)
            self._attempt.companions.died(child, rank)
            self._loop.after(ANNOUNCE_S, self._conclude_failure, child)

    def _on_end_of_announced(self, child: Child, rank: Watched) -> None:
        self._note_end(rank)
        if rank.failed and child.launcher.kills_ranks and not self._attempt.ending:
            self._attempt.fail(failed(rank.code or 0, pid=child.identity.pid), rank)

    def _on_end_below_killer(self, child: Child, rank: Watched) -> None:
        """Handle the end of a process whose launcher kills its ranks after a failure.

        A process without a rank number (rank.rank is None) is needed by the ranks, such as a scheduler. The
        launcher notices its end only after the ranks have ended, or never.
        """
        if rank.rank is None:
            if rank.failed and not child.failing and not self._attempt.ending:
                self._attempt.fail(failed(rank.code or 0, pid=child.identity.pid), rank)
            return
        self._note_end(rank)
        if rank.code and not self._attempt.ending:
            self._fails(child, f"a rank of {child.process.name} has failed")

    def _conclude_failure(self, child: Child) -> None:
        """Conclude that a silent launcher ends its ranks after a failure; its log level may hide the announcement."""
        if child.held:  # evidence of its ranks is being collected
            self._loop.after(LOOK_AT_LAUNCHER_S, self._conclude_failure, child)
        elif self._goes_on(child) and not (child.told or child.ends_ranks):
            child.ends_ranks = True
            self._fails(child, f"a rank of {child.process.name} has failed")

    def _note_end(self, end: Watched) -> None:
        killed = name_of(end.signal) if end.signal else None
        self._attempt.record.event(
            "exit", name=f"rank {end.rank}", rank=end.rank, pid=end.pid, exit_code=end.code, signal=killed, max_rss_kb=None
        )
        if end.code == 0 and end.by_itself:
            self._attempt.finishes.append(Finish(self._attempt.plan.job.node_index, end.rank, self._attempt.nodes.wall(end.ended_at)))

    def _fails(self, child: Child, reason: str) -> None:
        """Begin to end the node: the launcher ends its ranks after a failure. Its own grace may be longer than ranklaunch's."""
        if child.failing or not self._goes_on(child):
            return
        child.failing = True
        self.failing_since = self.failing_since or self._loop.clock()
        self._attempt.logs.hush()
        self._attempt.fold_victims(at_once=True)
        self._attempt.record.event("failing", name=child.process.name)
        plan, ending = self._attempt.plan, replace(failed(1, reason), at=self._loop.clock())
        self._attempt.companions.deciding(replace(ending, pid=child.identity.pid))
        self._attempt.nodes.fail(partial(first_suspect, plan, ending, self._attempt.nodes.wall))
        # The other nodes wait for its report until the grace is over.
        share, at = LEADERS_SHARE if plan.muster else 1, self._loop.clock()
        self._loop.after(plan.limits.grace_s * share, self._kill_ranks, child, at)
        self._loop.after(LOOK_AT_LAUNCHER_S, self._look_at, child)
        child.launcher.failing(self._unless_ending, child, partial(self._signal_ranks, child))

    def _look_at(self, child: Child) -> None:
        """End a launcher that waits although its ranks are gone: torchrun for other nodes (300 s), msrun for its scheduler."""
        if not self._goes_on(child):
            return
        if not child.launcher.CARRIERS and self._lone.look(child):  # with carriers, its ranks may be on other nodes
            child.go_on()
            for target in tree.descendants(child.identity.pid):
                self._lone.tell(target)
            self._lone.end_beside()
        if not self._lone.is_silent(child):
            self._loop.after(LOOK_AT_LAUNCHER_S, self._look_at, child)
        elif self._reported(child, 0.0) or (child.announced and child.announced.failed):
            tree.send(child.identity, signal.SIGKILL)
        else:
            reason = f"{child.process.name} has ended its ranks after the failure of one, but neither reports this failure nor ends"
            self._attempt.fail(failed(1, reason))

    def _goes_on(self, child: Child) -> bool:
        return child.alive and not self._attempt.ending

    def _unless_ending(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` later, unless the job is ending by then."""
        self._loop.after(seconds, self._act_unless_ending, act)

    def _act_unless_ending(self, act: Callable[[], None]) -> None:
        if not self._attempt.ending:
            act()

    def _signal_ranks(self, child: Child) -> None:
        """Send SIGTERM to the ranks that the launcher is slow to signal."""
        if self._goes_on(child):
            carried = child.launcher.CARRIERS
            ranks = self._attempt.stopper.carried() if carried else tree.generation(child.identity.pid, child.launcher.DEPTH)
            self._attempt.stopper.signal_early(rank for rank in ranks if rank not in self._signalled)
            self._signalled.update(ranks)
            if carried:  # a slow node starts its ranks later
                self._loop.after(LOOK_AT_LAUNCHER_S, self._signal_ranks, child)

    def _kill_ranks(self, child: Child, at: float) -> None:
        """Kill the launcher's remaining ranks after the grace, and send the launcher's report to the other nodes."""
        if child.alive:
            self._attempt.nodes.tell_more(partial(self._reported, child, at))
            for target in {*tree.descendants(child.identity.pid)} - {*child.between()}:
                tree.send(target, signal.SIGKILL)

    def _reported(self, child: Child, at: float) -> Suspect | None:
        failure = self.explained(child, decoded(child.reader.output.tail)) if child.reader else None
        return reported_suspect(self._attempt.plan, child, failure, self._attempt.nodes.wall(at)) if failure else None

    # Without a failure

    def _look_for_ranks(self, child: Child, looks: int = 0, alone_since: float | None = None) -> None:
        """Fail the job if a launcher does not end after its ranks.

        looks: number of looks in a row that found ranks; a single one may have found a tool of the launcher. alone_since: time since which
        the launcher has no ranks, None if it has some.
        """
        if child.failing or not self._goes_on(child):
            return
        now = self._loop.clock()
        ranks = len(tree.generation(child.identity.pid, child.launcher.DEPTH))
        child.most_ranks = max(child.most_ranks, ranks)
        if ranks:
            looks, alone_since = looks + 1, None
        elif looks > 1:
            alone_since = alone_since or now
        else:
            looks = 0
        if alone_since and now - alone_since > child.launcher.lonely_s:
            reason = f"{child.process.name} has not ended {now - alone_since:.0f} s after the last of its ranks"
            self._attempt.fail(failed(WaitError.exit_code, reason))
        else:
            self._loop.after(LOOK_FOR_RANKS_S, self._look_for_ranks, child, looks, alone_since)


def _end_service(service: Child) -> None:
    if service.alive:
        tree.send(service.identity, signal.SIGQUIT)
