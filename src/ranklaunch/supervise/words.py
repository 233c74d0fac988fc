"""What the last words of a process say, by the catalogue of known errors, and what the kernel says of memory: only failures need it."""

from __future__ import annotations

import functools
import re
import signal
from collections.abc import Callable, Sequence

from ranklaunch import errors, showing
from ranklaunch.errors import RanklaunchError
from ranklaunch.plan.model import Plan
from ranklaunch.system.disk import DiskFiles
from ranklaunch.typed import TYPE_CHECKING
from ranklaunch.values import replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.endings import last_line
from ranklaunch.verdict.model import Culprit, Failure, KnownError

if TYPE_CHECKING:
    from ranklaunch.catalogue import Finding, Report
    from ranklaunch.catalogue import KnownError as Entry
    from ranklaunch.system.memory import Memory
    from ranklaunch.verdict.blame import Suspect

_KILLED = r"signal: Killed|SIGKILL|: +\d+ Killed +|^Killed$"  # of PyTorch, of others, of shells, whose command may have several lines
_NOT_RUN = (126, 127)  # exit codes of a shell that could not run a command
_MOST_BEHIND = 12  # lines that a script may say after its launcher has failed, and have done no more
_KILLED_BY_9 = 128 + signal.SIGKILL
_OF_SIGNALS = range(129, 129 + 64)  # codes that say of which signal it was
_CALLS_ITSELF_ERROR = r"(?:\S{1,80}: )?(?:ERROR|Error|error|FATAL|CRITICAL)\b[^\n:]{0,20}:"
_BY_EXCEPTION = " exited with code 1"
_ENOUGH = 40  # characters by which a line is found
_SAYS_NOTHING = r"(?:AssertionError|RuntimeError|Exception|SystemError)$"  # as of `assert code == 0`
_BEFORE = "; before that, its launcher had failed: "
_WRONG_CALLS = ("*** MPI_ERR", "exiting improperly")
_too_slow: set[str] = set()  # folders of the user's known errors
_TIMED_OUT = re.compile("time-?out|timed-out")
# On each line of a traceback: of PyTorch, of filters that tell ranks apart, and of Python where it is of an exception in a group.
_PREFIX = re.compile(r"^(?:\[(?:rank ?)?[0-9]+\]:? *)?(?:\| *)*")


def known(tail: bytes, plan: Plan, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
    """What the catalogue says of the last of an output, and which settings of the plan that is about. by_itself: whether the process ended
    so; else what it says on its way out is no last word. shared: several ranks write into it. code: with which it ended."""
    from ranklaunch import catalogue

    def ask(text: str) -> Finding | None:
        own = plan.known_errors if text else ""
        return _by_own(text, own, by_itself, shared) if own else catalogue.find(text, (), by_itself, shared)

    text = tail.decode(errors="replace")
    alone = plan.job.world_size == 1
    finding = _of_script(text, code, ask, _is_python(plan), alone) if by_itself and not shared else ask(text)
    if not finding or (code == _KILLED_BY_9 and _is_consequence(finding)):  # which no process does of itself for a lost peer
        return None
    error, line = finding.error, _PREFIX.sub("", finding.line.strip())
    if error.standing in catalogue.SAYS_LESS:  # than the line
        return KnownError(error.name, error.kind, line, "", "", "")
    remedy = f"{error.remedy}{_present(plan, error.settings)}"
    return KnownError(error.name, error.kind, line, error.meaning, remedy, error.source, error.retry)


def _is_consequence(finding: Finding) -> bool:
    from ranklaunch import catalogue

    error = finding.error
    return error.kind == catalogue.CONSEQUENCE and error.standing != catalogue.REPORT and error.name != blame.KILLED


def _is_python(plan: Plan) -> bool:
    return plan.job.program.is_python or plan.job.program.name.startswith("python")


def _of_script(text: str, code: int | None, ask: Callable[[str], Finding | None], is_python: bool, alone: bool) -> Finding | None:
    """A script goes on after what it has started: of two failures the last may be what ended it. Where it ended as one does of which a
    command cannot be run, that is the last line; behind what a launcher of its own reports, its own words count. is_python: it is a program
    that mostly tells of its launcher's failure there, in words of its own: both are told then. alone: as in _of_two."""
    from ranklaunch import catalogue

    text = catalogue.since_launcher_went_on(text)
    last = text.rstrip().rpartition("\n")[2]
    missed = ask(last) if code in _NOT_RUN else None
    if missed and missed.error.kind == blame.CAUSE:
        return missed
    reports = catalogue.reported(text)
    if not reports:
        return _of_two(text, code, ask, is_python, alone)
    report, behind = reports[-1], text[reports[-1].end :].strip()
    begin = _begin_of_last(text, reports)
    finding = ask(text[begin : report.end])
    if not finding or finding.error.kind != blame.CAUSE:
        finding = _shortly_before(text[begin : report.begin], report, ask) or finding
    known_why, soon = finding and finding.error.kind == blame.CAUSE, _said(behind) <= _MOST_BEHIND
    if code in _OF_SIGNALS and report.code != code:  # no launcher's failure is why another process was killed
        return ask(f"{behind}\n") if behind else None
    later = ask(f"{behind}\n") if behind else None
    why_later = later if later and later.error.kind == blame.CAUSE and not catalogue.tells_only_that(later.line) else None
    both = known_why and soon and not report.begun
    if why_later and not both:
        return why_later
    if finding and both and is_python and (told := _of_both(finding, why_later, behind)):
        return told
    if finding and both and why_later and not is_python:
        first = code == (report.code or 1) and not catalogue.last_exception(behind)
        return why_later if catalogue.shows_steps(behind) else _in_turn(finding, why_later, first, _BEFORE)
    if not soon:
        return ask(text)
    if catalogue.shows_steps(behind):  # it had got over it
        return later
    another = behind and code and report.code not in (None, code) and code != 1  # with which scripts end after any failure
    return None if another and not known_why else finding


def _shortly_before(text: str, report: Report, ask: Callable[[str], Finding | None]) -> Finding | None:
    """An exception that has ended a program of Python, a few lines before a launcher reports of such an end: where its peers have written
    these, it has not gone on. text: up to the report."""
    from ranklaunch.catalogue import uncaught

    for before, behind in uncaught.parted(text) if report.said.endswith(_BY_EXCEPTION) else ():
        finding = ask(before) if _said(behind) <= _MOST_BEHIND else None
        return finding if finding and finding.error.kind == blame.CAUSE else None
    return None


def _said(text: str) -> int:
    """How many lines, without those that go on from others."""
    return sum(1 for line in text.split("\n") if line[:1].strip())


def _of_two(text: str, code: int | None, ask: Callable[[str], Finding | None], is_python: bool, alone: bool) -> Finding | None:
    """Of a program of Python, or a script that has started one, with an exception, and then another failure, as of what was to tell
    somebody of the first, or of what came after one that was caught: both. alone: there is no other rank."""
    from ranklaunch.catalogue import is_own, last_exception, shows_steps, tells_only_that, uncaught

    found = ask(text)
    if not found or code in _OF_SIGNALS:
        return found
    for before, behind in uncaught.parted(text):
        is_later = found.line.strip()[:_ENOUGH] in behind
        if not is_later and not any(map(is_own, behind.split("\n"))):  # of the last exception, with nothing behind it
            continue
        first = ask(before)
        if not first or first.error.kind != blame.CAUSE or _said(behind) > _MOST_BEHIND or shows_steps(behind) or (is_later and is_python):
            break
        if not is_later:
            return _with_last_words(found, behind, code, ask, is_python)
        if first.line == found.line:
            break
        if found.error.kind != blame.CAUSE:  # what failed first may have been got over, where a peer can have been lost
            return _in_turn(first, found, alone)
        if last_exception(behind) and not tells_only_that(found.line):  # of a program that was started later
            return _in_turn(first, found, of_first=False)
        return _in_turn(first, found, code == 1)
    return found


def _with_last_words(found: Finding, behind: str, code: int | None, ask: Callable[[str], Finding | None], is_python: bool) -> Finding:
    """An exception that was found, with what was said behind it where that tells of a failure, or the exit code is not that with which
    Python ends by an exception. What stands there of code 1 may yet be of its message."""
    from ranklaunch import catalogue

    last = last_line([*filter(catalogue.is_own, behind.split("\n"))])
    if not last or catalogue.tells_only_that(last) or (code == 1 and is_python and not re.match(_CALLS_ITSELF_ERROR, last)):
        return found
    later = ask(f"{behind}\n")
    if later and later.error.kind == blame.CAUSE and not catalogue.tells_only_that(later.line):
        return _in_turn(found, later, code == 1 and not catalogue.went_well(behind))
    shown = errors.quoted((last.strip(),))[0][: blame.SEEN]
    return found if code in (None, 1) else found._replace(line=f"{found.line}; its last line: {shown}")


def _in_turn(first: Finding, later: Finding, of_first: bool, before: str = "; before that: ") -> Finding:
    """Both of two failures. of_first: it is the first that the exit code is of."""
    if of_first:
        return first._replace(line=f"{first.line}; after that: {later.line.strip()}")
    return later._replace(line=f"{later.line.strip()}{before}{first.line}")


def _of_both(before: Finding, later: Finding | None, behind: str) -> Finding | None:
    """What a program says itself, where that is more than that something has failed, with what its launcher failed of before."""
    from ranklaunch import catalogue

    if later:
        return None if re.match(_SAYS_NOTHING, later.line.strip()) else later._replace(line=f"{later.line}{_BEFORE}{before.line}")
    last = "" if catalogue.shows_steps(behind) else last_line([*filter(catalogue.is_own, behind.split("\n"))])
    if not last or catalogue.tells_only_that(last) or re.match(_SAYS_NOTHING, last):
        return None
    return before._replace(line=f"{before.line}; its last line: {errors.quoted((last.strip(),))[0][: blame.SEEN]}")


def _begin_of_last(text: str, reports: Sequence[Report]) -> int:
    """Where that begins which the last report may be of: behind the one before it."""
    pairs = zip(reports[-2::-1], reports[:0:-1])
    return next((before.end for before, after in pairs if _went_on_after(before, text[before.end : after.begin])), 0)


def _went_on_after(report: Report, behind: str) -> bool:
    """Whether another launcher has been started since. behind: what was said up to its report."""
    if not report.whole:
        return behind.count("\n") > 1
    from ranklaunch import catalogue

    return any(line.strip() and not re.match(catalogue.LOGGED_BY_TORCHRUN, line) for line in behind.split("\n"))


def _by_own(text: str, folder: str, by_itself: bool, shared: bool) -> Finding | None:
    """With patterns of the user's, of which one may take for ever: in a process that may not. Where they take too long, they are not tried
    again, and there are those that are shipped."""
    from ranklaunch import catalogue
    from ranklaunch.system import bounded

    entries = _own(folder)

    def told() -> list[object]:
        finding = catalogue.find(text, entries, by_itself, shared)
        return [entries.index(finding.error), finding.line, finding.number] if finding else []

    if entries and folder not in _too_slow:
        try:
            found = bounded.call(told, folder)
            return catalogue.Finding(entries[found[0]], *found[1:]) if found else None
        except RanklaunchError:
            _too_slow.add(folder)
    return catalogue.find(text, (), by_itself, shared)


def _present(plan: Plan, settings: Sequence[str]) -> str:
    """What they are now, as far as the plan has them."""
    found = {reading.name: reading for reading in plan.values}
    told = [f"{name} {found[name].value} ({found[name].source})" for name in settings if name in found and found[name].value]
    return f" Now: {', '.join(told)}." if told else ""


@functools.cache
def _own(folder: str) -> tuple[Entry, ...]:
    """The plan has looked at them; where they have changed since, and for the worse, there are those that are shipped."""
    from ranklaunch import catalogue

    try:
        return catalogue.with_own(DiskFiles(), folder)
    except ValueError:
        return ()


def of_others(tail: bytes, plan: Plan) -> str:
    """The name of the error, where it is one that another rank may be to blame for. What a launcher reports of its ranks is none: why one
    failed stands elsewhere."""
    error = known(tail, plan)
    suspected = error and (not blame.tells_why(error) or _TIMED_OUT.search(error.name))
    return error.name if error and suspected and not _is_report(error) else ""


def of_ranks(tail: bytes, plan: Plan, failure: Failure) -> bytes:
    """What the rank that failed may have written into its launcher's output: mostly before the launcher's words about that."""
    from ranklaunch import catalogue
    from ranklaunch.catalogue import reports

    text, host = tail.decode(errors="replace"), next((node.host for node in plan.job.nodes if node.index == failure.node), "")
    before, beside = catalogue.before_report(text, host, failure.rank), catalogue.beside_report(text, failure.rank)
    unmarked = reports.without_marked_ranks(before) if failure.rank is None else before
    if failure.exit_code != 1 or (_says_why(unmarked.encode(), plan) and not _says_why(before.encode(), plan)):
        before = unmarked
    found = catalogue.find(beside, shared=True) if beside and not catalogue.find(before, shared=True) else None
    return (beside if found and found.error.kind == catalogue.CAUSE else before).encode()


def of_wrong_call(tail: bytes, plan: Plan) -> KnownError | None:
    """What Open MPI says of a rank that has called it wrongly, or has ended without it, which stands in mpirun's output alone."""
    error = known(tail, plan) if any(text.encode() in tail for text in _WRONG_CALLS) else None
    return replace(error, kind=blame.CAUSE) if error and any(text in error.line for text in _WRONG_CALLS) else None


def explained(text: str, plan: Plan, explain: Callable[[str], Failure | None]) -> Failure | None:
    """What a launcher says of the rank that failed. Where it tells of several hosts, as by pdsh, one that tells first may tell what came of
    another's failure: then of one before whose ranks' end a cause stands."""
    told = explain(text)
    if told and told.rank is not None and told.rank >= plan.job.world_size:  # whatever has written that
        told = replace(told, rank=None)
    if not told or told.rank is not None or len(plan.job.nodes) == 1:
        return told
    from ranklaunch.catalogue import reports

    nodes = {node.host: node.index for node in plan.job.nodes}
    of_hosts = {nodes[host]: explain(lines) for host, lines in reports.of_hosts(text, nodes).items()}
    if told.node is not None and not of_hosts.get(told.node):  # of a node whose own lines say nothing: the others came later
        return told
    found = [replace(failure, node=node) for node, failure in of_hosts.items() if failure]
    found.sort(key=lambda each: each.exit_code != told.exit_code if told.node is None else each.node != told.node)
    marked = [_with_marked_rank(each, text, plan) for each in found]
    said = {each: known(of_ranks(text.encode(), plan, each), plan, shared=True) for each in marked}
    why = (each for each in marked if (error := said[each]) and error.kind == blame.CAUSE)
    # Not by an exception that only tells of another, and not told to end.
    untold = [each for each in marked if each.signal != signal.SIGTERM]
    itself = (each for each in untold if each.exit_code != 1 or not said[each])
    return (*why, *itself, *untold, *marked, told)[0]


def _with_marked_rank(failure: Failure, text: str, plan: Plan) -> Failure:
    """With the first rank of its node of which PyTorch's marks tell why it has failed."""
    from ranklaunch.catalogue import reports, uncaught

    ranks = next(node.ranks for node in plan.job.nodes if node.index == failure.node)
    for rank, said in reports.of_marked_ranks(of_ranks(text.encode(), plan, failure).decode()).items():
        if rank in ranks and uncaught.ends_by_exception(said, rank)[0] == uncaught.CERTAIN and _says_why(said.encode(), plan):
            return replace(failure, rank=rank)
    return failure


def _says_why(tail: bytes, plan: Plan) -> bool:
    error = known(tail, plan, shared=True)
    return bool(error and error.kind == blame.CAUSE)


def reported(culprit: Culprit, tail: bytes) -> str:
    """The reason where the words that decide are those of a launcher that the program has started: what it says of the process that failed
    is the trace of that."""
    error = culprit.error
    if (
        not error or error.kind in (blame.CAUSE, blame.STOPPED) or (blame.TIMEOUT in error.name and not _is_report(error))
    ):  # of a time-out nobody died
        return ""
    from ranklaunch import catalogue

    reports = catalogue.reported(catalogue.since_launcher_went_on(tail.decode(errors="replace")))
    said = reports[-1].said if reports else error.line[: blame.SEEN] if _is_report(error) else ""
    return f"{blame.sentence(replace(culprit, error=None, last_lines=()))}: {said}" if said else ""


def _is_report(error: KnownError) -> bool:
    from ranklaunch import catalogue

    return any((entry.name, entry.standing) == (error.name, catalogue.REPORT) for entry in catalogue.shipped())


def with_memory(found: list[Suspect], memory: Memory, here: int) -> list[Suspect]:
    """As many of those killed as the kernel has killed for memory by then, the first first; else the one that lost a process of its own."""
    left = memory.kills
    result = []
    for suspect in found:
        culprit = suspect.culprit
        lately = min(left, memory.lately(suspect.at))
        if culprit and ((lately and culprit.signal == "SIGKILL") or (left and _lost_a_worker(culprit))):
            left -= 1
            culprit = replace(culprit, out_of_memory=True)
            suspect = replace(suspect, culprit=culprit, reason=f"{blame.sentence(culprit)}{memory.described}")
        elif not suspect.reason and culprit and culprit.node == here and _looks_killed(culprit) and memory.counted and not lately:
            then = " then" if memory.kills else ""
            suspect = replace(suspect, reason=f"{blame.sentence(culprit)}; the kernel killed nothing here for memory{then}")
        result.append(suspect)
    return result


def with_exceptions(found: list[Suspect], here: int, tail_of: Callable[[Culprit], bytes]) -> list[Suspect]:
    """Where nothing is known of how a rank ended, and it ended with the code of an uncaught exception: the reason has its last exception
    too, although the rank seems to have gone on after it. tail_of: what it wrote last."""
    result = []
    for suspect in found:
        culprit = suspect.culprit
        if culprit and culprit.node == here and culprit.exit_code == 1 and not (culprit.error or suspect.reason):
            said = _last_exception(tail_of(culprit).decode(errors="replace"))
            shown = showing.printable(errors.quoted((said,))[0])[: blame.SEEN]
            if said:
                gone_on = "its last exception, with other lines behind it"
                suspect = replace(suspect, reason=f"{blame.sentence(culprit)}; {gone_on}: {shown}")
        result.append(suspect)
    return result


def _last_exception(text: str) -> str:
    """The last one that is of no launcher: one behind what such reports, else one before."""
    from ranklaunch import catalogue

    text = catalogue.since_launcher_went_on(text)
    reports = catalogue.reported(text)
    parts = (text[reports[-1].end :], text[: reports[-1].begin]) if reports else (text,)
    return next(filter(None, map(catalogue.last_exception, parts)), "")


def _looks_killed(culprit: Culprit) -> bool:
    """By SIGKILL, it or what it was the shell of, and nothing says why."""
    return culprit.exit_code == 128 + signal.SIGKILL and (not culprit.error or culprit.error.name == blame.KILLED)


def _lost_a_worker(culprit: Culprit) -> bool:
    told = any(re.search(_KILLED, line) for line in culprit.last_lines)
    return culprit.signal is None and (told or bool(culprit.error and culprit.error.name == blame.KILLED))
