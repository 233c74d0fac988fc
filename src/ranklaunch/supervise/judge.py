"""Judgement of a failure on this node: suspects, notes, and the decision without node 0."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranklaunch import catalogue, errors
from ranklaunch.catalogue import Finding
from ranklaunch.catalogue import KnownError as Entry
from ranklaunch.diagnose import suspects as diagnosed
from ranklaunch.errors import RanklaunchError
from ranklaunch.plan.hints import behind
from ranklaunch.plan.model import Plan
from ranklaunch.restarts import decision
from ranklaunch.supervise.ending import Circumstances, placed
from ranklaunch.system import bounded, disk, tree
from ranklaunch.system.bounded import Apart
from ranklaunch.system.disk import DiskFiles
from ranklaunch.verdict import blame, folders
from ranklaunch.verdict.blame import Judgement, Suspect
from ranklaunch.verdict.model import WHOLE, Ending, KnownError, Note

if TYPE_CHECKING:
    from ranklaunch.ends.model import NodeEnds, RankEnd

MOST_EXCEPTIONS = 4  # different exceptions of ranks that succeeded
MOST_ARGUMENTS = 1000  # arguments of the program that are searched for folders


def notes(plan: Plan, ending: Ending, local: Sequence[Suspect] = (), look: Apart | None = None) -> tuple[Note, ...]:
    """Return notes on conditions of this node that may explain a failure.

    local: suspects of this node. look: look at the file systems, begun before.
    """
    if ending.outcome == "succeeded":
        return ()
    hang = [placed(plan, errors.reason(ending.judgement.reason))] if ending.judgement.culprit and ending.hung else []
    return (*map(Note, (*hang, *full_disks(plan, look), *_misplaced_options(plan, local))), *_notes_on_all_ranks(plan, local))


def notes_of_stop(
    plan: Plan, ending: Ending, node: NodeEnds | None, local: Sequence[Suspect], handles: Callable[[tree.Identity], bool]
) -> Sequence[Note]:
    """Return notes about ranks that failed during the stop. handles: returns True for a process that
    had a handler for the signal."""
    if ending.outcome == "succeeded" or not node:
        return ()
    logs = {process.rank: os.path.basename(process.log) for process in plan.processes if process.rank is not None}

    def log_of(rank: int) -> str:
        return logs.get(rank) or os.path.basename(folders.rank_log("", rank))

    def had_handler(end: RankEnd) -> bool:
        return handles(tree.Identity(end.pid or 0, end.start or 0))

    return diagnosed.notes_of_stop(node, local, Catalogue(plan), had_handler, log_of)


def _notes_on_all_ranks(plan: Plan, local: Sequence[Suspect]) -> Iterable[Note]:
    """Yield conclusions from the ends of all ranks of this node."""
    node = plan.job.node
    yield from map(Note, blame.waited_for(local, node.ranks))
    if len(plan.job.nodes) > 1:
        yield from (Note(text, WHOLE) for text in blame.of_whole_node(local, node.ranks, blame.place(node.index, node.host)))


def _misplaced_options(plan: Plan, local: Sequence[Suspect]) -> Iterable[str]:
    """Yield a hint if the program refused an option: the option may have been meant for ranklaunch."""
    culprits = [suspect.culprit for suspect in local if suspect.culprit]
    options = {word.partition("=")[0] for word in plan.job.program.args if word.startswith("--")}
    named = {word for culprit in culprits for line in culprit.last_lines for word in re.findall(r"--[\w-]+", line)}
    if options & named or (options and any(culprit.exit_code == errors.USAGE for culprit in culprits)):
        yield from filter(None, [behind.hint(plan.job.program)])


def suspects(plan: Plan, ending: Ending, node: NodeEnds | None, first: Callable[[], Suspect]) -> list[Suspect]:
    """Return all failures of this node, the one to blame first.

    node: ends of this node; None if they could not be read. first: makes the suspect of the ending,
    the only one without ends.
    """
    if ending.outcome == "succeeded":
        return []
    if node:
        return diagnosed.diagnose(node, Catalogue(plan))
    return [] if ending.from_elsewhere else [first()]


def look_at_disks(plan: Plan) -> Apart | None:
    """Start a look at the job's file systems in a separate process: a mount may not answer. Return None
    if no process is left."""
    try:
        return Apart(lambda: json.dumps(disk.full((*stored_in(plan), *named_by(plan)))).encode())
    except OSError:  # no process or descriptor left
        return None


def full_disks(plan: Plan, look: Apart | None = None) -> Iterable[str]:
    """Yield a text for each full file system. A program often cannot log this cause, because the log is on a full file system too."""
    look = look or look_at_disks(plan)
    if not look:
        return ()
    return are_full(plan, json.loads(look.answer(bounded.LOOK_S) or b"[]"))


def stored_in(plan: Plan) -> tuple[str, ...]:
    """Return the folders in which every job stores files."""
    return plan.job.log_dir, ".", "/tmp", "/dev/shm"


def named_by(plan: Plan) -> tuple[str, ...]:
    """Return the folders of RANKLAUNCH_PROGRESS_FILE and of the program's arguments; the
    checkpoints are mostly in one of them."""
    values = (word.partition("=")[2] or word for word in plan.job.program.args[:MOST_ARGUMENTS])
    return (*(os.path.dirname(path) for path in plan.marks), *(value for value in values if value.startswith("/")))


def are_full(plan: Plan, usages: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Yield a text for each full file system. usages: folder and usage of each, from disk.full."""
    for folder, usage in usages:
        yield f"{placed(plan, '')}the file system of {folder} is full: {usage}"


def exceptions_despite_success(plan: Plan, node: NodeEnds) -> Iterator[str]:
    """Yield a note for each exception of a program whose rank ended with 0. A common cause: a shell's
    pipeline ends with the code of its last command."""
    program = plan.job.program.stands_for or plan.job.program
    by_line: dict[str, list[int]] = {}
    for rank, line in diagnosed.despite_success(node):
        by_line.setdefault(line, []).append(rank)
    why = "" if program.is_python else " (after `python train.py | tee log`, a script gets the exit code of tee; add `set -o pipefail`)"
    for line, ranks in list(by_line.items())[:MOST_EXCEPTIONS]:
        their = "its program ended" if len(ranks) == 1 else "their programs ended"
        yield f"{errors.numbered(ranks, 'rank')} ended with 0, although {their} by an exception: {line}{why}"


def alone(own: Judgement, state: Mapping[str, Any], plan: Plan, ending: Ending, circumstances: Circumstances) -> Judgement:
    """Return this node's judgement of its end, for use without a judgement of node 0.

    own: judgement by this node's suspects. state: state of this node, as reported to node 0. The judgement of a simulated node
    counts if it names the rank whose failure ended the node. If a rank had failed by then, neither a stop nor a lost node decides.
    """
    judgements = map(circumstances.told, plan.processes) if own.outcome != "succeeded" else ()
    failed = [each for each in judgements if each and each.outcome == "failed"]
    if own.outcome == "stopped":
        return next(iter(failed), own)
    if failed and not _names_rank(own):
        at = blame.iso(circumstances.wall(ending.at))
        return next((each for each in failed if _names_rank(each, before=at)), own)
    return decision.stopped(own, [state]) or own if "stop" in state else own


def _names_rank(judgement: Judgement, before: str = "") -> bool:
    """Return True if a judgement names a rank. before: the rank must have ended before this time, ISO
    8601; "" for any time."""
    culprit = judgement.culprit
    if not culprit or culprit.rank is None:
        return False
    return not before or culprit.time < before


# The catalogue of known errors for a plan: with the user's own entries, and with the present values
# of the settings that a remedy names

_too_slow: set[str] = set()  # folders of the user's known errors
_TIMED_OUT = re.compile("time-?out|timed-out")
# Prefixes of traceback lines: of PyTorch, of filters that number the output by rank, and of Python
# for an exception in a group.
_LINE_PREFIX = re.compile(r"^(?:\[(?:rank ?)?[0-9]+\]:? *)?(?:\| *)*")


class Catalogue:
    """The catalogue of known errors for a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, output: str, *, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
        """Return the known error that explains the end of a process with this last output; None
        without one.

        by_itself: False if the process was signalled: then only entries of the catalogue count, not
        unknown last lines. shared: True if several ranks write into the output. code: exit code of
        the process.
        """
        finding = _search(output, self._plan.known_errors if output else "", by_itself, shared, code)
        if not finding:
            return None
        error, line = finding.error, _LINE_PREFIX.sub("", finding.line.strip())
        if error.standing in catalogue.SAYS_LESS:
            return KnownError(error.name, blame.UNKNOWN, line, "", "", "")
        remedy = f"{error.remedy}{_present(self._plan, error.settings)}"
        return KnownError(error.name, error.kind, line, error.meaning, remedy, error.source, error.retry)

    def peers(self, output: str, kind: str) -> tuple[int, ...]:
        """Return the ranks named by the last message of an entry of this kind."""
        return catalogue.peers(output, kind)


def known_error(tail: bytes, plan: Plan, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
    """Return the known error in an undecoded output."""
    return Catalogue(plan)(tail.decode(errors="replace"), by_itself=by_itself, shared=shared, code=code)


def error_of_others(tail: bytes, plan: Plan) -> str:
    """Return the name of the error in an output if another rank may be to blame for it, else "". A
    launcher's report of its ranks does not count."""
    error = known_error(tail, plan)
    suspected = error and (not blame.tells_why(error) or _TIMED_OUT.search(error.name))
    is_report = error and any(entry.name == error.name and entry.standing == catalogue.REPORT for entry in catalogue.shipped())
    return error.name if error and suspected and not is_report else ""


def _search(text: str, folder: str, by_itself: bool, shared: bool, code: int | None) -> Finding | None:
    """Search with the user's entries in a process with a time limit: their patterns may never
    finish.

    folder: folder of the user's entries, "" for none. Entries over the limit are not tried again;
    only the shipped entries count then.
    """
    entries = _own_entries(folder) if folder else ()

    def call() -> list[object]:
        finding = catalogue.find(text, entries, by_itself, shared, code)
        return [entries.index(finding.error), finding.line, finding.number] if finding else []

    if entries and folder not in _too_slow:
        try:
            answer = bounded.call(call, folder)
            return Finding(entries[answer[0]], *answer[1:]) if answer else None
        except RanklaunchError:
            _too_slow.add(folder)
    return catalogue.find(text, (), by_itself, shared, code)


def _present(plan: Plan, settings: Sequence[str]) -> str:
    """Return a text with the present values of a remedy's settings, as far as the plan has them."""
    readings = {reading.name: reading for reading in plan.values}
    now = [readings[name] for name in settings if name in readings and readings[name].value]
    shown = [f"{each.name} {each.value} ({each.source})" if each.value != each.name else f"{each.name} of {each.source}" for each in now]
    return f" Now: {', '.join(shown)}." if shown else ""


@functools.cache
def _own_entries(folder: str) -> tuple[Entry, ...]:
    """Return the user's entries; () if they have become unreadable since the plan looked at them."""
    try:
        return catalogue.with_own(DiskFiles(), folder)
    except ValueError:
        return ()
