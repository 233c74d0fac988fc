"""Phases before the launch: join, check, wait, gather facts, write files, prepare, muster, wait
again.

Each phase may bring facts from which the plan is made anew; the newest plan is launched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ranklaunch.env.reader import Arrived
from ranklaunch.errors import ConfigError, MissingProgramError, WaitError
from ranklaunch.files import folder_of
from ranklaunch.plan.model import TABLE, File, Plan, Process, Wait, as_json
from ranklaunch.processes.children import STEP, require_program
from ranklaunch.supervise.record import bequeath, copied, make_private, offered, write_file
from ranklaunch.system import disk

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt
    from ranklaunch.supervise.waits.table_renewal import Renewed
    from ranklaunch.supervise.waits.waiting import Condition

Replan = Callable[[Arrived], Plan]


class Phases:
    """Phases of one attempt, up to its launch. No phase goes on once the end has begun.

    plan: the newest. shared: contents of shared memory at the launch. waiting: name of the current
    wait, "" for none.
    """

    def __init__(self, attempt: Attempt) -> None:
        start = attempt.start
        self.plan = start.plan
        self.shared: frozenset[tuple[str, int]] = frozenset()
        self.waiting = ""
        self._attempt = attempt
        self._replan = start.replan
        self._files = start.files
        self._record = attempt.record
        self._loop = attempt.loop
        self._say = attempt.say
        self._children = attempt.children
        self._nodes = attempt.nodes
        self._after = start.after
        self._known = Arrived()
        self._private = ""  # the folder of that name that has been made
        self._waited: set[tuple[str, str]] = set()

    def _over(self) -> bool:
        return self._attempt.ending is not None

    @property
    def all(self) -> tuple[Callable[[], None], ...]:
        """Return the phases in their order. Each raises RanklaunchError if it fails."""
        before = (self._settle, self._check, self._wait, self._gather, self._write_files, self._prepare)
        return (*before, self._muster, self._wait)

    def _settle(self) -> None:
        """Wait before a restart in place until nothing of the last round is left, and then for
        the pause that was decided."""
        if not self.plan.job.restart:
            return
        from ranklaunch.restarts import cleaning

        began = self._loop.clock()
        self._nodes.busy("cleaning up")
        self._record.event("settle", removed=len(cleaning.remove(self._after.held or cleaning.Held())), pause_s=self._after.pause_s)
        cleaning.wait(self.plan, self._loop, self._say, self._over, self._ask)
        if self._after.pause_s:
            self._nodes.busy(f"pausing {self._after.pause_s:g} s")
            self._loop.run_until(self._over, began + self._after.pause_s)
        self._record.event("settled", seconds=round(self._loop.clock() - began, 3))
        if self.plan.job.rank_table and not self._over():  # the platform may have made it anew meanwhile
            self.plan = self._anew()

    def _ask(self, argv: tuple[str, ...]) -> str:
        """Return the output of a tool, "" if it does not answer."""
        from ranklaunch.hangs.devices import Tool

        said: list[str] = []
        tool = Tool(argv, self._children.env, self._loop, said.append)
        tool.ask()
        while tool.running and not self._over():
            self._loop.step()
        tool.close()
        return "".join(said)

    def require(self) -> None:
        """Raise MissingProgramError with the names of all programs that the plan starts and this
        node lacks."""
        if self.plan.rounds:
            from ranklaunch.restarts import cleaning

            self.shared = cleaning.there()
        processes = {process.argv[0]: process for process in (*self.plan.services, *self.plan.processes)}
        missing = []
        looks: list[Callable[[], None]] = [partial(require_program, self.plan)]
        for look in looks + [partial(self._children.require, process, self.plan.job) for process in processes.values()]:
            try:
                look()
            except MissingProgramError as error:
                missing.append(str(error))
        if missing:
            raise MissingProgramError("; ".join(missing))

    def wait_for(self, wait: Wait, condition: Condition) -> None:
        from ranklaunch.supervise.waits.waiting import perform

        self._record.event("wait", kind=wait.kind, what=wait.what, timeout_s=wait.timeout_s)
        with self._named(f"{wait.kind} {wait.what}"):
            seconds = perform(wait, condition, self._loop, self._say, self._over)
        self._record.event("waited", kind=wait.kind, what=wait.what, seconds=round(seconds, 3))

    @contextlib.contextmanager
    def _named(self, wait: str) -> Iterator[None]:
        """Name a wait for `ranklaunch status` while it lasts."""
        self.waiting = wait
        try:
            yield
        finally:
            self.waiting = ""

    def close(self) -> None:
        """Remove the private folder."""
        if self._private:
            disk.remove_tree(self._private)

    def _check(self) -> None:
        """Fail before the waits for a program that is missing, unless a preparing step may still
        bring it."""
        if not self.plan.prepare:
            self.require()

    def _wait(self) -> None:
        """Wait for files and hosts. Waits for ports come later, once the services have started."""
        for wait in iter(self._next_wait, None):
            self._waited.add((wait.kind, wait.what))
            self._nodes.busy(f"waiting for {wait.kind} {wait.what}")
            if wait.kind == "hosts":
                self._wait_for_hosts(wait)
            else:
                self._wait_for_file(wait)

    def _next_wait(self) -> Wait | None:
        wait = next((wait for wait in self.plan.waits if (wait.kind, wait.what) not in self._waited), None)
        return wait if wait and wait.kind not in ("muster", "port", "hosts command") and not self._over() else None

    def _wait_for_hosts(self, wait: Wait) -> None:
        from ranklaunch.supervise.waits.waiting import HostsResolve  # sockets and threads, which most starts do not need

        names = HostsResolve(wait.what.split(","), self._loop)
        self.wait_for(wait, names)
        self._known = replace(self._known, addresses={**self._known.addresses, **names.addresses})
        if self.plan.by_address:
            self.plan = self._anew()
            if any(kind == "muster" for kind, _ in self._waited):  # before it nothing has been written yet
                self._write(self.plan.files)

    def _wait_for_file(self, wait: Wait) -> None:
        from ranklaunch.supervise.waits.waiting import Planned

        planned = Planned(wait, self._files, self._loop, self._anew)
        try:
            self.wait_for(wait, planned)
        except WaitError:
            if wait.kind != "topology":
                raise
            self._known = replace(self._known, missed=(*self._known.missed, wait.what))
            self.plan = self._anew()
            return
        self.plan = planned.plan or self.plan

    def _anew(self) -> Plan:
        """Make the plan anew from all facts up to now."""
        return self._replan(self._known) if self._replan else self.plan

    def _gather(self) -> None:
        """Run the steps that bring facts, and make the plan from these."""
        if not self.plan.gather:
            return
        self._write(self.plan.files)
        self._run_steps(self.plan.gather)
        if self._over():
            return
        self.plan = self._anew()
        if self.plan.gather:
            msg = f"{self.plan.gather[0].name} ended without a result: see {self.plan.gather[0].log}"
            raise ConfigError(msg)

    def _write_files(self) -> None:
        self._record.plan(as_json(self.plan))
        for warning in self.plan.warnings:
            self._say(f"warning: {warning}")
        if self.plan.private:
            bequeath("private", self.plan.private)
            make_private(self.plan.private)
            self._private = self.plan.private
        self._write(self.plan.files)

    def _write(self, files: tuple[File, ...]) -> None:
        for file in files:
            if self.plan.private and file.path.startswith(f"{self.plan.private}/"):
                disk.make_folder(folder_of(file.path))
            write_file(file.path, copied(file.source) if file.source else file.text, int(file.mode, 8))
            self._record.event("file", path=file.path)

    def _prepare(self) -> None:
        self._run_steps(self.plan.prepare)

    def _run_steps(self, steps: tuple[Process, ...]) -> None:
        for step in steps:
            self._nodes.busy(step.name)
            self._children.start((step,), STEP)
            with self._named(step.name):
                while not self._over() and self._children.running:
                    self._loop.step()
            if self._over():
                return

    def _watch_table(self, plan: Plan) -> Renewed | None:
        """Return a watch over the rank table for a start that is not the first: the platform may
        replace it, node by node."""
        if not plan.muster or TABLE not in plan.muster.facts or not (plan.job.attempt > 1 or plan.job.restart):
            return None
        from ranklaunch.supervise.waits.table_renewal import Renewed

        return Renewed(plan, self._files, self._loop, self._anew, self._nodes.ready_again)

    def _muster(self) -> None:
        """Wait until all nodes are here, agree on the plan and are released. A preparing step
        may have changed facts that are compared, and written files that nodes offer to each
        other."""
        if not self.plan.muster:
            return
        plan = self._anew() if self.plan.prepare else self.plan
        assert plan.muster
        what = next(wait.what for wait in self.plan.waits if wait.kind == "muster")
        self._record.event("wait", kind="muster", what=what, timeout_s=plan.muster.timeout_s)
        self._waited.add(("muster", what))
        offers = {name: offered(path) for name, path in self.plan.offers.items()}
        renewed = self._watch_table(plan)
        try:
            plan = replace(self.plan, muster=plan.muster)
            with self._named(f"the other nodes of the job, at {what}"):
                seconds = self._nodes.muster(plan, offers, self._over)
        finally:
            if renewed:
                renewed.close()
        if renewed and not self._over():
            self.plan = renewed.plan(self._nodes.table)
            self._write(self.plan.files)
        self._record.event("waited", kind="muster", what=what, seconds=round(seconds, 3))
        if offers and not self._over():
            self._known = replace(self._known, shared=self._nodes.shared, run_id=self._nodes.run_id)
            self.plan = self._anew()
            self._write(self.plan.files)
