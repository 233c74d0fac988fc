"""Of one node, for as long as its session: writes the file of metrics, and on node 0 runs the user's command when something happens."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ranklaunch.control import rank_states
from ranklaunch.env.settings import OF_KEY
from ranklaunch.fields import as_dict
from ranklaunch.files import own_program
from ranklaunch.notify import metrics, trainjob
from ranklaunch.notify.hook import Hook
from ranklaunch.notify.metrics_file import MetricsFile
from ranklaunch.redact.redact import argv as without_secrets
from ranklaunch.supervise.context import Seen, Teller
from ranklaunch.supervise.record import now as time_now
from ranklaunch.system import disk, tree
from ranklaunch.system.loop import Loop
from ranklaunch.verdict import avoid, folders
from ranklaunch.verdict.model import Verdict

EVERY_S = 15.0
POST_S, POST_LIMIT_S = 30.0, 15.0
LIMIT_S = 30.0  # of one run of the command
LOOK_S = 0.5
LEAST_S = 0.2  # that are worth to begin with
POST = own_program("post_trainjob_status.py")
HANG, SLOW, RESTART, VERDICT = "hang", "slow", "restart", "verdict"
OF_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK_ID", "SLURM_PROCID")  # who has one is taken for a rank
SCHEMA_OF_HANG, SCHEMA_OF_SLOW = "ranklaunch.hang/1", "ranklaunch.slow/1"


class Telling(Teller):
    """say: a line for people. env: what the command inherits."""

    def __init__(self, seen: Seen, loop: Loop, say: Callable[[str], None], env: Mapping[str, str]) -> None:
        self._seen, self._loop, self._say = seen, loop, say
        self._env = {name: value for name, value in env.items() if name not in (*OF_RANKS, *OF_KEY)}
        self._tell = seen.plan().tell
        self._began = time.time()
        self._growing, self._round = metrics.Growing(), -1
        path = self._tell.metrics_file.replace("{node}", str(seen.plan().job.node_index)) if self._tell else ""
        self._metrics = MetricsFile(path, loop, say)
        self._waiting: list[tuple[str, str]] = []  # events, each with the path of its JSON
        self._hook: Hook | None = None
        self._post: Hook | None = None
        self._posted = ""
        self._over = False
        self._write()
        if self._posts:
            self._loop.after(POST_S, self._post_again)

    # What happens

    def hang(self, said: Mapping[str, Any]) -> None:
        if not self._tells:
            return
        job = self._seen.attended().plan().job
        verdict = Verdict("failed", 0, "", None, (), "", "")
        host = avoid.suspect(verdict, [node.host for node in job.everyone], said)
        self._alarm(HANG, SCHEMA_OF_HANG, folders.HANG, {**said, "suspect_host": as_dict(host) if host else None})

    def slow(self, event: Mapping[str, Any]) -> None:
        if self._tells:
            fields = {key: value for key, value in event.items() if key not in ("text", "over")}
            self._alarm(SLOW, SCHEMA_OF_SLOW, folders.SLOW, {"reason": event["text"], **fields})

    def _alarm(self, event: str, schema: str, name: str, said: Mapping[str, Any]) -> None:
        """Write a file of this name into the attempt's folder, and run the command."""
        seen = self._seen.attended()
        job = seen.plan().job
        document = {"schema": schema, "job": job.name, "attempt": job.attempt, "restart": job.restart, "time": time_now(), **said}
        path = os.path.join(seen.record.folder, name)
        try:
            disk.write(path, f"{json.dumps(document, indent=1)}\n".encode(), 0o644)
        except (OSError, disk.NotRegularError) as error:
            self._say(f"{path}: {error}")
        self._happened(event, path)

    def restarts(self, folder: str) -> None:
        self._happened(RESTART, os.path.join(folder, folders.ROUND))

    def all_done(self) -> None:
        """Nothing of what was started for others is to be taken for the program's."""
        self._waiting.clear()
        if self._hook:
            self._hook.end("is ended with the job")
        if self._post:
            self._post.end()

    def ended(self, verdict: Verdict, path: str) -> None:
        """Lasts as long as the command takes, within its limit. Whatever is wrong with it, the job has ended as it has."""
        try:
            self._end(verdict, path)
        except Exception as error:  # ours
            self._say(f"tools are not told of the end: a defect in ranklaunch: {type(error).__name__}: {error}")

    def _end(self, verdict: Verdict, path: str) -> None:
        self._over = True
        self._write(verdict.exit_code)
        if self._post:
            self._post.end()
        self._post_status(done=verdict.outcome == "succeeded")
        self._waiting.clear()
        if self._hook:
            self._hook.end("is ended with the job")
        if self._tells and self._left_s() < LEAST_S:
            self._say(f"after the stop request no time is left for {self._name}")
        elif self._tells:
            self._run(VERDICT, path)
        self._wait(lambda: not (self._hook or self._post) or self._seen.orphaned() or self._left_s() <= 0)
        if self._hook:
            self._hook.end("is ended: its time is over")
        if self._post:
            self._post.end()
        for process in tree.descendants(os.getpid()) if self._tells else ():  # what it has left
            tree.send(process, signal.SIGKILL)

    def _wait(self, over: Callable[[], bool]) -> None:
        """A stop request that comes meanwhile makes it shorter, and nothing of its own wakes the loop then."""
        while not over():
            self._loop.run_until(over, self._loop.clock() + min(LOOK_S, max(0.0, self._left_s())))

    def _left_s(self) -> float:
        """For a command after the verdict. A stop request may come while it runs."""
        asked = self._seen.asked()
        if not asked:
            return LIMIT_S
        return min(LIMIT_S, asked[1] + self._seen.attended().stopper.grace_s - self._loop.clock())

    # The command

    @property
    def _tells(self) -> bool:
        return bool(self._tell and self._tell.on_event and self._seen.plan().job.node_index == 0)

    @property
    def _name(self) -> str:
        return " ".join(without_secrets(self._tell.on_event)) if self._tell else ""

    def _happened(self, event: str, path: str) -> None:
        """At any turn of the loop; one command at a time."""
        if self._tells and not self._over:
            self._waiting.append((event, path))
            self._loop.after(0, self._next)

    def _next(self) -> None:
        if self._waiting and not self._hook:
            self._run(*self._waiting.pop(0))

    def _run(self, event: str, path: str) -> None:
        assert self._tell

        def say(text: str) -> None:
            self._say(f"on {event}: {text}")

        try:
            self._hook = Hook((*self._tell.on_event, event, path), self._env, LIMIT_S, self._loop, say, self._on_end)
        except OSError as error:
            say(f"{self._name}: {error.strerror}")

    def _on_end(self) -> None:
        self._hook = None
        self._loop.after(0, self._next)

    # The status of a TrainJob

    @property
    def _posts(self) -> bool:
        return bool(self._tell and self._tell.trainjob and self._seen.plan().job.node_index == 0)

    def _post_again(self) -> None:
        if not self._over:
            self._post_status()
            self._loop.after(POST_S, self._post_again)

    def _post_status(self, *, done: bool = False) -> None:
        """By a process of its own: a server may take its time. What is wrong with it is said once."""
        status = trainjob.status(self._seen.of_ranks().values(), time_now(), done=done) if self._posts else None
        if not status or self._post:
            return
        argv = (sys.executable, "-I", POST, json.dumps(status))
        try:
            self._post = Hook(argv, self._env, POST_LIMIT_S, self._loop, self._say_of_post, self._on_posted)
        except OSError as error:
            self._say_of_post(str(error))

    def _on_posted(self) -> None:
        self._post = None

    def _say_of_post(self, text: str) -> None:
        if not self._posted:
            self._say(f"the TrainJob's status cannot be told: {text}")
        self._posted = text

    # The metrics

    def _write(self, exit_code: int | None = None) -> None:
        """Now and again, until the end."""
        if not self._tell or not self._tell.metrics_file:
            return
        try:
            self._metrics.write(metrics.shown(self._standing(exit_code)), last=exit_code is not None)
        except Exception as error:  # whatever is wrong with it, the job goes on
            self._metrics.trouble(f"{type(error).__name__}: {error}")
        if exit_code is None:
            self._loop.after(EVERY_S, self._write_again)

    def _write_again(self) -> None:
        if not self._over:
            self._write()

    def _standing(self, exit_code: int | None) -> metrics.Standing:
        plan = self._seen.plan()
        job = plan.job
        return metrics.Standing(
            labels={"job_name": job.name, "node": job.node_index},
            info={"host": job.node.host, "platform": job.platform, "method": plan.method},
            phase=self._seen.phase()[0] if exit_code is None else "ended",
            ranks=self._ranks(),
            nodes=len(job.nodes), world_size=job.world_size, attempt=job.attempt, restarts=job.restart,
            hangs=bool(self._seen.hang()), began=self._began, now=time.time(), exit_code=exit_code,
            slow=exit_code is None and self._seen.slow(),
        )  # fmt: skip

    def _ranks(self) -> list[metrics.Rank]:
        plan = self._seen.plan()
        if plan.job.restart != self._round:  # other processes, which begin anew
            self._growing, self._round = metrics.Growing(), plan.job.restart
        if not self._seen.begun():
            return []
        attended = self._seen.attended()
        found = rank_states.ranks(plan, attended.ranks(), attended.outputs(), self._seen.of_ranks(), self._loop.clock())
        return self._growing.kept({**rank, "state": rank_states.GONE} if self._over and "state" in rank else rank for rank in found)
