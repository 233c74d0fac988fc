"""What few plans have. Nothing of it is imported where an environment and a command line say nothing of it."""

from __future__ import annotations

import re
from typing import Any

from ranklaunch.env import parse, settings
from ranklaunch.env.job import Job
from ranklaunch.env.provenance import Candidate
from ranklaunch.env.reader import Reader
from ranklaunch.errors import number
from ranklaunch.files import absolute, join, text_of
from ranklaunch.plan.model import Console, Plan, Rounds, Save, Tell, Trust, Watch
from ranklaunch.verdict import folders

PREFIX = "RANKLAUNCH_"
OF_LAUNCHERS = r"--?max[-_]restarts(?:=(?P<said>.*))?"  # torchrun, accelerate, DeepSpeed
# What platforms say once they have started a job anew, or that they will, and from which number on it means that.
STARTED_ANEW = {
    "MA_PROC_START_CNT": 2, "MA_SCHEDULE_CNT": 2, "AWS_BATCH_JOB_ATTEMPT": 2, "BATCH_TASK_RETRY_ATTEMPT": 1, "JOBSET_RESTART_ATTEMPT": 1,
    "RANKLAUNCH_RESTARTS": 1, "SLURM_RESTART_COUNT": 1, "PET_MAX_RESTARTS": 1,
}  # fmt: skip
SPARE_S = 5.0  # fewer than were seen
MOST_CLOCKS = 5  # attempts, the last, that are looked at
MOST_CLOCK = 64 * 1024  # bytes, one a second


def of(plan: Plan, reader: Reader) -> dict[str, Any]:
    """Fields of a plan."""
    return {
        **({"known_errors": _known_errors(reader)} if reader.given(settings.KNOWN_ERRORS) else {}),
        **({"fewer_ranks": reader.get(settings.FEWER_RANKS)} if reader.given(settings.FEWER_RANKS) else {}),
        **({"rounds": _rounds(plan, reader)} if reader.given(settings.MAX_RESTARTS) else {}),
        **({"marks": _marks(reader)} if _named(reader, "progress_file") else {}),
        **({"save": _save(reader)} if _named(reader, "save_") else {}),
        **({"console": _console(plan, reader)} if _named(reader, "console") else {}),
        **({"tell": _tell(reader)} if _named(reader, "metrics_", "on_event", "trainjob_") else {}),
        **({"trust": _trust(reader)} if _named(reader, "exit", "left_ranks", "alone_s", "each_node", "nested", "end_timeout") else {}),
        **({"watch": _watch(reader)} if _named(reader, "hang", "first_step", "expect", "slow") else {}),
    }


def _known_errors(reader: Reader) -> str:
    """The folder of the user's own; what is wrong with them is a problem before the job needs them."""
    from ranklaunch import catalogue

    folder = reader.get(settings.KNOWN_ERRORS)
    try:
        folder = catalogue.folder_of(folder, reader.cwd)
        catalogue.with_own(reader.files, folder)
    except ValueError as error:
        reader.problem(f"{reader.quoted(settings.KNOWN_ERRORS)}: {error}")
    return folder


def _rounds(plan: Plan, reader: Reader) -> Rounds | None:
    """None where there are to be none."""
    from ranklaunch.env import restart

    most = reader.get(settings.MAX_RESTARTS)
    if not most:
        return None
    _refuse_other_restarts(plan, reader)
    _warn_of_the_platform(reader, most)
    return Rounds(most, reader.get(restart.NO_RESTART_CODES), _is_restarted_outside(reader))


def _marks(reader: Reader) -> tuple[str, ...]:
    from ranklaunch.env import restart

    return tuple(absolute(path, reader.cwd) for path in reader.get(restart.PROGRESS_FILE))


def _refuse_other_restarts(plan: Plan, reader: Reader) -> None:
    """A launcher that starts ranks again by itself does that on one node, and counts for itself: the two would undo each other."""
    own = {plan.job.program.path, *plan.job.program.args}
    for process in plan.processes:
        words = [word for word in process.argv if word not in own]
        for word, following in zip(words, (*words[1:], "")):
            found = re.fullmatch(OF_LAUNCHERS, word)
            if found and (found["said"] if found["said"] is not None else following).strip() != "0":
                told = f"{word} {following}" if found["said"] is None else word
                both = f"{reader.quoted(settings.MAX_RESTARTS)} and {told} of {process.name}"
                reader.problem(f"{both}: each would start the ranks again; leave out one of them")


def _warn_of_the_platform(reader: Reader, most: int) -> None:
    """Where its variables show that it starts the job anew too."""
    for name, first in STARTED_ANEW.items():
        said = reader.env.get(name, "").strip()
        if (number(said) or 0) >= first:
            both = f"{reader.quoted(settings.MAX_RESTARTS)} and {name}={said}"
            reader.warn(f"{both}: the platform starts the job anew too; what stays broken is tried {most + 1} times in each of its starts")
            return


def _is_restarted_outside(reader: Reader) -> bool:
    """Return True if the platform counts its starts of the job, also in the first of them."""
    counts = {name: number(reader.env.get(name, "").strip()) for name in STARTED_ANEW}
    return any(count is not None and (count > 0 or name != "PET_MAX_RESTARTS") for name, count in counts.items())


def _save(reader: Reader) -> Save:
    from ranklaunch.env import save

    return Save(*save.given(reader))


def _console(plan: Plan, reader: Reader) -> Console | None:
    """None where it shows everything."""
    from ranklaunch import spans
    from ranklaunch.env import console

    found = Console(
        reader.get(console.CONSOLE), reader.get(console.CONSOLE_MERGE), reader.get(console.CONSOLE_MAX),
        reader.get(console.CONSOLE_VICTIMS),
    )  # fmt: skip
    if found.ranks and min(first for first, _ in spans.parse(found.ranks).of) >= plan.job.world_size:
        reader.warn(f"{reader.quoted(console.CONSOLE)}: the job has no such rank, only {plan.job.world_size}: the console shows none")
    return found if found != Console() else None


def _trust(reader: Reader) -> Trust:
    from ranklaunch.env import trust

    return Trust(
        reader.get(trust.EXIT), reader.get(trust.LEFT_RANKS), reader.get(settings.END_TIMEOUT_S), reader.get(trust.ALONE_S),
        reader.get(trust.EACH_NODE_ALONE), reader.get(trust.NESTED),
    )  # fmt: skip


def _watch(reader: Reader) -> Watch:
    from ranklaunch.env import hang

    return Watch(
        reader.get(hang.HANG), reader.get(hang.HANG_S), reader.get(hang.FIRST_STEP_S), reader.get(hang.EXPECT), reader.get(hang.SLOW)
    )


def _tell(reader: Reader) -> Tell:
    from ranklaunch.env import notify

    path, trainjob = reader.get(notify.METRICS_FILE), reader.get(notify.TRAINJOB_STATUS)
    if trainjob and notify.SERVER_URL not in reader.env:
        reader.warn(f"{reader.quoted(notify.TRAINJOB_STATUS)}: {notify.SERVER_URL} is not set: no TrainJob's status can be told")
        trainjob = False
    return Tell(absolute(path, reader.cwd) if path else "", reader.get(notify.ON_EVENT), trainjob)


def settle_grace(reader: Reader, job: Job) -> None:
    """By what this platform was seen to give: the clocks of stops that earlier attempts have left, whose container was killed. Where it is
    to be that, it is; a longer one is warned of."""
    seen = [(seconds, number) for number in range(job.attempt)[-MOST_CLOCKS:] if (seconds := _killed_after(reader, job, number))]
    first = reader.candidates(settings.GRACE_S)[:1]
    is_auto = bool(first) and parse.is_auto(first[0].value)
    if not seen and not is_auto:
        return
    told = f"attempt {min(seen)[1]} was killed {min(seen)[0]} s after its stop request" if seen else "nothing seen yet"
    if is_auto:
        grace_s = max(1.0, min(seen)[0] - SPARE_S) if seen else parse.GRACE_S
        reader.settle(settings.GRACE_S.value, Candidate(f"{first[0].source}={parse.AUTO}: {told}", f"{grace_s:g}"))
    elif reader.get(settings.GRACE_S) >= min(seen)[0]:
        reader.warn(f"{told}, before {reader.told(settings.GRACE_S)} was over: {settings.GRACE_S.names[0]}={parse.AUTO} stays below that")


def _killed_after(reader: Reader, job: Job, attempt: int) -> int:
    """Seconds, 0 where it ended by itself, was not stopped, or left no clock."""
    path = join(folders.attempt(job.log_dir, attempt), folders.stop_clock(job.node_index))
    return folders.killed_after(text_of(reader.files, path, MOST_CLOCK))


def _named(reader: Reader, *parts: str) -> bool:
    """Whether a variable of ranklaunch's, or an option, begins so."""
    names = (*reader.options, *(name[len(PREFIX) :].lower() for name in reader.env if name.startswith(PREFIX)))
    return any(name.startswith(parts) for name in names)
