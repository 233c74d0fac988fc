"""Notifications of one node, from the start to the end of its session.

Every node has a metrics file and a metrics port. Node 0 also runs the user's command at events, and posts the status of a TrainJob.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from ranklaunch.control import rank_states
from ranklaunch.env.settings import OF_KEY
from ranklaunch.fields import as_dict
from ranklaunch.files import own_program
from ranklaunch.notify import metrics
from ranklaunch.notify.endpoint import Endpoint
from ranklaunch.notify.hook import Hook
from ranklaunch.redact.redact import argv as without_secrets
from ranklaunch.supervise.context import Seen, Teller
from ranklaunch.supervise.record import now as time_now
from ranklaunch.system import disk, tree
from ranklaunch.system.loop import Loop
from ranklaunch.verdict import blame, folders
from ranklaunch.verdict.model import Judgement, Verdict

EVERY_S = 15.0  # between two writes of the metrics file
POST_S, POST_LIMIT_S = 30.0, 15.0  # between two posts of the TrainJob's status; for one post
LIMIT_S = 30.0  # for one run of the command
LOOK_S = 0.5  # between two looks for a stop request, during the last run
LEAST_S = 0.2  # with less time after a stop request, the command is not started
POST = own_program("post_trainjob_status.py")
HANG, SLOW, RESTART, VERDICT = "hang", "slow", "restart", "verdict"
OF_RANKS = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "RANK_ID",
    "SLURM_PROCID",
)  # not for the command: a process with such a variable counts as a rank
SCHEMA_OF_HANG, SCHEMA_OF_SLOW = "ranklaunch.hang/1", "ranklaunch.slow/1"
WITH_THE_JOB = "was killed at the end of the job"


class Telling(Teller):
    """Notifications of one node. say: prints a console line. env: for the command."""

    def __init__(self, session: Seen, loop: Loop, say: Callable[[str], None], env: Mapping[str, str]) -> None:
        self._session, self._loop, self._say = session, loop, say
        self._env = {name: value for name, value in env.items() if name not in (*OF_RANKS, *OF_KEY)}
        job = session.plan().job
        options = session.plan().tell
        assert options
        self._options = options
        self._began = time.time()
        self._growing, self._round = metrics.Growing(), -1
        self._metrics = metrics.MetricsFile(self._options.metrics_file.replace("{node}", str(job.node_index)), loop, say)
        self._queue: list[tuple[str, str]] = []  # events for the command, each with the path of its JSON file
        self._hook: Hook | None = None
        self._post: Hook | None = None
        self._post_trouble = ""
        self._over = False
        self._exit_code: int | None = None
        self._endpoint = self._opened(options.metrics_port)
        self._write()
        if self._posts:
            self._loop.after(POST_S, self._post_again)

    @property
    def _is_node_0(self) -> bool:
        return self._session.plan().job.node_index == 0

    @property
    def _command(self) -> tuple[str, ...]:
        """Return the command of this node, () for none."""
        return self._options.on_event if self._is_node_0 else ()

    @property
    def _posts(self) -> bool:
        return self._options.trainjob and self._is_node_0

    # The HTTP endpoint

    def _opened(self, port: int) -> Endpoint | None:
        """Return the endpoint; None without a port, or if the port cannot be used. This is reported, and the job continues."""
        try:
            return Endpoint(port, self._loop, self) if port else None
        except OSError as error:
            self._say(f"metrics: port {port}: {os.strerror(error.errno or 0)}; set another RANKLAUNCH_METRICS_PORT")
        return None

    def metrics_text(self, openmetrics: bool) -> str:
        return metrics.shown(self._standing(self._exit_code), openmetrics=openmetrics)

    def phase(self) -> str:
        return self._session.phase()[0] if self._exit_code is None else "ended"

    # Events

    def hang(self, alarm: Mapping[str, Any]) -> None:
        if not self._command:
            return
        job = self._session.attempt().plan.job
        host = blame.host_to_avoid(Judgement("failed", 0, ""), [node.host for node in job.everyone], alarm)
        self._alarm(HANG, SCHEMA_OF_HANG, folders.HANG, {**alarm, "suspect_host": as_dict(host) if host else None})

    def slow(self, event: Mapping[str, Any]) -> None:
        if self._command:
            fields = {key: value for key, value in event.items() if key not in ("text", "over")}
            self._alarm(SLOW, SCHEMA_OF_SLOW, folders.SLOW, {"reason": event["text"], **fields})

    def _alarm(self, event: str, schema: str, name: str, fields: Mapping[str, Any]) -> None:
        """Write a file of this name into the attempt's folder, and run the command."""
        attempt = self._session.attempt()
        job = attempt.plan.job
        document = {"schema": schema, "job": job.name, "attempt": job.attempt, "restart": job.restart, "time": time_now(), **fields}
        path = os.path.join(attempt.record.folder, name)
        try:
            disk.write(path, f"{json.dumps(document, indent=1)}\n".encode(), 0o644)
        except (OSError, disk.NotRegularError) as error:
            self._say(f"{path}: {error}")
        self._run_later(event, path)

    def restarts(self, folder: str) -> None:
        self._run_later(RESTART, os.path.join(folder, folders.ROUND))

    def all_done(self) -> None:
        """Kill the command and the post: otherwise ranklaunch would count them as processes left by the program."""
        self._queue.clear()
        self._end_hooks(WITH_THE_JOB)

    def ended(self, verdict: Verdict, path: str) -> None:
        """Run the command for the verdict, and return when it has ended or its time is over.

        An exception here must not change the result of the job, so it is printed.
        """
        try:
            self._end(verdict, path)
        except Exception as error:  # a defect of this module
            self._say(f"no notification of the end of the job: a defect in ranklaunch: {type(error).__name__}: {error}")
        finally:
            if self._endpoint:
                self._endpoint.close()

    def _end(self, verdict: Verdict, path: str) -> None:
        self._over = True
        self._exit_code = verdict.judgement.exit_code
        self._write(verdict.judgement.exit_code)
        self.all_done()
        self._post_status(done=verdict.judgement.outcome == "succeeded")
        if self._command and self._remaining_s() < LEAST_S:
            self._say(f"no time after the stop request to run {' '.join(without_secrets(self._command))}")
        elif self._command:
            self._run(VERDICT, path)
        while not self._is_done():  # in short turns: a stop request shortens the wait, and does not wake the loop by itself
            self._loop.run_until(self._is_done, self._loop.clock() + min(LOOK_S, max(0.0, self._remaining_s())))
        self._end_hooks("was killed: its time is over")
        for process in tree.descendants(os.getpid()) if self._command else ():  # processes that the command left behind
            tree.send(process, signal.SIGKILL)

    def _is_done(self) -> bool:
        """Return True once the wait for the command and the post is over."""
        return not (self._hook or self._post) or self._session.orphaned() or self._remaining_s() <= 0

    def _end_hooks(self, why: str) -> None:
        if self._hook:
            self._hook.end(why)
        if self._post:
            self._post.end()

    def _remaining_s(self) -> float:
        """Return the remaining seconds for a command after the verdict. A stop request shortens them, also while the command runs."""
        request = self._session.asked()
        if not request:
            return LIMIT_S
        return min(LIMIT_S, request[1] + self._session.attempt().stopper.grace_s - self._loop.clock())

    # The command

    def _run_later(self, event: str, path: str) -> None:
        """Run the command in a later turn of the loop. Runs follow each other."""
        if self._command and not self._over:
            self._queue.append((event, path))
            self._loop.after(0, self._next)

    def _next(self) -> None:
        if self._queue and not self._hook:
            self._run(*self._queue.pop(0))

    def _run(self, event: str, path: str) -> None:
        def say(text: str) -> None:
            self._say(f"on {event}: {text}")

        try:
            self._hook = Hook((*self._command, event, path), self._env, LIMIT_S, self._loop, say, self._on_end)
        except OSError as error:
            say(f"{' '.join(without_secrets(self._command))}: {error.strerror}")

    def _on_end(self) -> None:
        self._hook = None
        self._loop.after(0, self._next)

    # The status of a TrainJob

    def _post_again(self) -> None:
        if not self._over:
            self._post_status()
            self._loop.after(POST_S, self._post_again)

    def _post_status(self, *, done: bool = False) -> None:
        """Post the status in a child process, since the server may be slow. Only the first failure is printed."""
        status = trainjob_status(self._session.of_ranks().values(), time_now(), done=done) if self._posts else None
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
        if not self._post_trouble:
            self._say(f"the TrainJob's status cannot be posted: {text}")
        self._post_trouble = text

    # The metrics

    def _write(self, exit_code: int | None = None) -> None:
        """Write the metrics now and every EVERY_S, until the end."""
        if not self._options.metrics_file or (self._over and exit_code is None):
            return
        try:
            self._metrics.write(metrics.shown(self._standing(exit_code)), last=exit_code is not None)
        except Exception as error:  # an error here must not end the job
            self._metrics.trouble(f"{type(error).__name__}: {error}")
        if exit_code is None:
            self._loop.after(EVERY_S, self._write)

    def _standing(self, exit_code: int | None) -> metrics.Standing:
        plan = self._session.plan()
        job = plan.job
        return metrics.Standing(
            labels={"job_name": job.name, "node": job.node_index},
            info={"host": job.node.host, "platform": job.platform, "method": plan.method},
            phase=self.phase(),
            ranks=self._ranks(),
            nodes=len(job.nodes), world_size=job.world_size, attempt=job.attempt, restarts=job.restart,
            hangs=bool(self._session.hang()), began=self._began, now=time.time(), exit_code=exit_code,
            slow=exit_code is None and self._session.slow(),
        )  # fmt: skip

    def _ranks(self) -> list[metrics.Rank]:
        plan = self._session.plan()
        if plan.job.restart != self._round:  # new processes: counters begin at 0
            self._growing, self._round = metrics.Growing(), plan.job.restart
        if not self._session.begun():
            return []
        attempt = self._session.attempt()
        ranks = rank_states.ranks(plan, attempt.launchers.living(), attempt.logs.by_rank, self._session.of_ranks(), self._loop.clock())
        return self._growing.kept({**rank, "state": rank_states.GONE} if self._over and "state" in rank else rank for rank in ranks)


def trainjob_status(ranks: Iterable[Mapping[str, Any]], now: str, *, done: bool = False) -> dict[str, Any] | None:
    """Return a TrainJob's status in Kubeflow Trainer's form, by the steps of node 0's ranks; None without any step.

    now: UTC, ISO 8601. done: True if the job has succeeded.
    """
    stepped = [rank for rank in ranks if rank.get("step") is not None]
    if not stepped:
        return {"trainerStatus": {"progressPercentage": 100, "lastUpdatedTime": now}} if done else None
    ahead = max(stepped, key=itemgetter("step"))
    values = [{"name": "step", "value": str(ahead["step"])}]
    if ahead.get("step_s") is not None:
        values.append({"name": "step_seconds", "value": f"{ahead['step_s']:g}"})
    return {"trainerStatus": {**_progress(ahead, done), "metrics": values, "lastUpdatedTime": now}}


def _progress(rank: Mapping[str, Any], done: bool) -> dict[str, int]:
    """Return the progress fields; {} while the total number of steps is unknown."""
    if done:
        return {"progressPercentage": 100, "estimatedRemainingSeconds": 0}
    step, steps, step_s = rank["step"], rank.get("steps"), rank.get("step_s")
    if not steps:
        return {}
    progress = {"progressPercentage": min(100, 100 * step // steps)}
    return progress if step_s is None else {**progress, "estimatedRemainingSeconds": round(max(0, steps - step) * step_s)}
