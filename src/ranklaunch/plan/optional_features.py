"""Fields of a plan that few jobs need. A start imports this module only if a variable or an option asks for one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ranklaunch import catalogue, spans
from ranklaunch.adapters.launchers.shared import base
from ranklaunch.env import features, settings
from ranklaunch.env.reader import Reader
from ranklaunch.errors import number
from ranklaunch.plan.model import Console, Plan, Rounds, Save, Tell, Trust, Watch

OF_LAUNCHERS = r"--?max[-_]restarts(?:=(?P<value>.*))?"  # torchrun, accelerate, DeepSpeed
# Variables of platforms that count starts or restarts, each with the smallest value that means a restart by the platform.
STARTED_ANEW = {
    "MA_PROC_START_CNT": 2, "MA_SCHEDULE_CNT": 2, "AWS_BATCH_JOB_ATTEMPT": 2, "BATCH_TASK_RETRY_ATTEMPT": 1, "JOBSET_RESTART_ATTEMPT": 1,
    "RANKLAUNCH_RESTARTS": 1, "SLURM_RESTART_COUNT": 1, "PET_MAX_RESTARTS": 1,
}  # fmt: skip


def of(fields: Iterable[str], plan: Plan, reader: Reader) -> dict[str, Any]:
    """Return the values of these fields of a plan."""
    return {field: MAKERS[field](plan, reader) for field in fields}


def _known_errors(plan: Plan, reader: Reader) -> str:
    """Return the folder of the user's known errors. They are read here, so that a mistake is reported before the job starts."""
    if not reader.is_set(settings.KNOWN_ERRORS):
        return ""
    folder = reader.get(settings.KNOWN_ERRORS)
    try:
        folder = catalogue.folder_of(folder, reader.cwd)
        catalogue.with_own(reader.files, folder)
    except ValueError as error:
        reader.problem(f"{reader.quoted(settings.KNOWN_ERRORS)}: {error}")
    return folder


def _fewer_ranks(plan: Plan, reader: Reader) -> bool:
    return reader.peek(settings.FEWER_RANKS)


def _rounds(plan: Plan, reader: Reader) -> Rounds | None:
    """Return the settings of restarts in place, None if they are off."""
    most = reader.peek(settings.MAX_RESTARTS)
    if not most:
        return None
    _refuse_other_restarts(plan, reader)
    _warn_of_the_platform(reader, most)
    return Rounds(most, reader.get(features.NO_RESTART_CODES), _is_restarted_outside(reader))


def _refuse_other_restarts(plan: Plan, reader: Reader) -> None:
    """Refuse a launcher's own restarts: they concern one node and have a counter of their own, so both kinds would disturb each other."""
    of_program = {plan.job.program.path, *plan.job.program.args}
    for process in plan.processes:
        words = [word for word in process.argv if word not in of_program]
        for word, following in zip(words, (*words[1:], "")):
            match = re.fullmatch(OF_LAUNCHERS, word)
            if match and (match["value"] if match["value"] is not None else following).strip() != "0":
                option = f"{word} {following}" if match["value"] is None else word
                both = f"{reader.quoted(settings.MAX_RESTARTS)} and {option} of {process.name}"
                reader.problem(f"{both}: each would start the ranks again; leave out one of them")


def _warn_of_the_platform(reader: Reader, most: int) -> None:
    """Warn if the platform's variables show that it restarts the job too."""
    for name, first in STARTED_ANEW.items():
        value = reader.env.get(name, "").strip()
        if (number(value) or 0) >= first:
            both = f"{reader.quoted(settings.MAX_RESTARTS)} and {name}={value}"
            reader.warn(f"{both}: the platform restarts the job too; a permanent failure is tried {most + 1} times in each of its starts")
            return


def _is_restarted_outside(reader: Reader) -> bool:
    """Return True if the platform counts its starts of the job, even in the first start."""
    counts = {name: number(reader.env.get(name, "").strip()) for name in STARTED_ANEW}
    return any(count is not None and (count > 0 or name != "PET_MAX_RESTARTS") for name, count in counts.items())


def _marks(plan: Plan, reader: Reader) -> tuple[str, ...]:
    return tuple(reader.absolute(path) for path in reader.get(features.PROGRESS_FILE))


def _save(plan: Plan, reader: Reader) -> Save:
    name, path = reader.get(features.SAVE_SIGNAL), reader.get(features.SAVE_FILE)
    return Save("" if name == features.NONE else name, reader.absolute(path) if path else "")


def _console(plan: Plan, reader: Reader) -> Console | None:
    """Return the choice of lines for the console, None if all are shown."""
    ranks = reader.get(features.CONSOLE)
    console = Console(
        ranks, reader.get(features.CONSOLE_MERGE), reader.get(features.CONSOLE_MAX), reader.get(features.CONSOLE_VICTIMS)
    )  # fmt: skip
    size = plan.job.world_size
    if ranks and min(first for first, _ in spans.parse(ranks).of) >= size:
        reader.warn(f"{reader.quoted(features.CONSOLE)}: the job has no such rank, only {size}: the console shows none")
    return console if console != Console() else None


def _tell(plan: Plan, reader: Reader) -> Tell:
    path, trainjob = reader.get(features.METRICS_FILE), reader.get(features.TRAINJOB_STATUS)
    if trainjob and features.SERVER_URL not in reader.env:
        why = f"{features.SERVER_URL} is not set, so no status of a TrainJob can be sent"
        reader.warn(f"{reader.quoted(features.TRAINJOB_STATUS)}: {why}")
        trainjob = False
    file = reader.absolute(path) if path else ""
    return Tell(file, reader.get(features.ON_EVENT), trainjob, _metrics_port(plan, reader))


def _metrics_port(plan: Plan, reader: Reader) -> int:
    """Return the port of metrics, 0 for none. Reports a problem for a port that the job itself needs."""
    port = reader.get(features.METRICS_PORT)
    rendezvous = reader.ledger.reading(base.MASTER_PORT.value)
    if port and rendezvous and rendezvous.value == str(port):
        reader.problem(f"{reader.quoted(features.METRICS_PORT)} is the port of the rendezvous too: give one of them another port")
    elif port and len(plan.job.everyone) > 1 and port == reader.get(settings.MUSTER_PORT):
        reader.problem(f"{reader.quoted(features.METRICS_PORT)} is the port of the muster too: give one of them another port")
    return port


def _trust(plan: Plan, reader: Reader) -> Trust:
    return Trust(
        exit=reader.get(features.EXIT),
        left_ranks=reader.get(features.LEFT_RANKS),
        silent_s=reader.get(settings.END_TIMEOUT_S),
        alone_s=reader.get(features.ALONE_S),
        each_node_alone=reader.get(features.EACH_NODE_ALONE),
        nested=reader.get(features.NESTED),
    )


def _watch(plan: Plan, reader: Reader) -> Watch:
    if reader.get(features.HANG) == features.RESTART and not reader.peek(settings.MAX_RESTARTS):
        none = f"{settings.MAX_RESTARTS.name} is 0, so a hang ends the job with 75, as with {features.STOP}"
        reader.warn(f"{reader.quoted(features.HANG)}: {none}")
    return Watch(
        hang=reader.get(features.HANG),
        hang_s=reader.get(features.HANG_S),
        first_step_s=reader.get(features.FIRST_STEP_S),
        expect=reader.get(features.EXPECT),
        slow=reader.get(features.SLOW),
    )


MAKERS: Mapping[str, Callable[[Plan, Reader], object]] = {
    "known_errors": _known_errors,
    "fewer_ranks": _fewer_ranks,
    "rounds": _rounds,
    "marks": _marks,
    "save": _save,
    "console": _console,
    "tell": _tell,
    "trust": _trust,
    "watch": _watch,
}
