"""session.py ... run OPTIONS -- PROGRAM ARGS: as `ranklaunch run` with attempt 1, and then, in the same session, with attempt 2 as SECOND
says: a JSON list of the words behind the options. Prints "descriptors N" before each attempt: how many this process has open. With
COMPANION, seconds, the first attempt has a company that holds the stop up for so long after a failure, and says in verdict.json which
ranks lived then. With DEAF its loop hears nothing from the start of the ranks until one has been dead for half a second; verdict.json
says when that was over.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from ranklaunch.cli.launch import begin
from ranklaunch.supervise import guardian
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.context import Companion, Start
from ranklaunch.supervise.session import Session
from ranklaunch.system import tree
from ranklaunch.system.signals import Signals
from ranklaunch.verdict.model import Ending, Verdict


def main() -> int:
    signals = Signals()
    guard = guardian.divide(signals)
    argv, env = sys.argv[sys.argv.index("run") + 1 :], dict(os.environ)
    options = argv[: argv.index("--") + 1]
    left = [json.loads(env["SECOND"])] if "SECOND" in env else []
    start, inherited = begin(["--attempt=1", *argv], env)

    def following(verdict: Verdict) -> Start | None:
        return begin(["--attempt=2", *options, *left.pop()], env)[0] if left else None

    if "COMPANION" in env:
        start = replace(start, companions=(lambda attempt: Company(attempt, float(env["COMPANION"])),))
    if "DEAF" in env:
        start = replace(start, companions=(Deaf,))
    count_descriptors()
    return Session(signals, inherited, guard).run(start, following).judgement.exit_code


class Company(Companion):
    def __init__(self, attempt: Attempt, seconds: float) -> None:
        self._attempt = attempt
        self._seconds = seconds
        self._living: list[int] = []

    def before_stop(self, ending: Ending, go_on: Callable[[], None]) -> bool:
        self._living = sorted(self._attempt.launchers.living())
        print(f"held by {ending.outcome}", flush=True)
        self._attempt.loop.after(self._seconds, go_on)
        return True

    def facts(self) -> Mapping[str, object]:
        return {"lived": self._living}


class Deaf(Companion):
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._until = 0.0
        attempt.loop.after(0, self._hear_nothing)

    def _hear_nothing(self) -> None:
        ranks = list(self._attempt.children.running.values())
        if not ranks:
            self._attempt.loop.after(0.01, self._hear_nothing)
            return
        while not any(tree.state(rank.identity) == "Z" for rank in ranks):
            time.sleep(0.01)
        time.sleep(0.5)
        self._until = time.time()

    def facts(self) -> Mapping[str, object]:
        return {"deaf_until": self._until}


def count_descriptors() -> None:
    run = Attempt.run

    def counted(attempt: Attempt) -> Verdict:
        kept = [name for name in os.listdir("/proc/self/fd") if not is_sessions(name)]
        print(f"descriptors {len(kept)}", flush=True)
        return run(attempt)

    Attempt.run = counted  # type: ignore[method-assign]


def is_sessions(fd: str) -> bool:
    """Return True for a socket, at which the session may be asked by then, and for a descriptor that the session keeps for imports."""
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
        return path.startswith("socket:") or path == "/"
    except OSError:  # that of the folder, which has been read
        return True


if __name__ == "__main__":
    os._exit(main())
