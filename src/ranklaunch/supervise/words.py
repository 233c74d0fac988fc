"""What the last words of a process say, by the catalogue of known errors, and what the kernel says of memory: only failures need it."""

from __future__ import annotations

import functools
import re
import signal
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from ranklaunch import errors, showing
from ranklaunch.adapters.launchers import started
from ranklaunch.adapters.launchers.shared.launcher import Launcher
from ranklaunch.errors import RanklaunchError
from ranklaunch.plan.model import Plan
from ranklaunch.read.job import Node
from ranklaunch.system.disk import DiskFiles
from ranklaunch.system.signals import TOLD
from ranklaunch.typed import TYPE_CHECKING
from ranklaunch.values import replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import Culprit, Failure, KnownError

if TYPE_CHECKING:
    from ranklaunch.catalogue import Finding
    from ranklaunch.catalogue import KnownError as Entry
    from ranklaunch.supervise.ranks.child import Child
    from ranklaunch.system.memory import Memory
    from ranklaunch.verdict.blame import Suspect

_KILLED = r"signal: Killed|SIGKILL|: +\d+ Killed +|^Killed$"  # of PyTorch, of others, of shells, whose command may have several lines
_LEAST_OF_SIGNALS = 128  # exit codes of a shell
_KILLED_BY_9 = 128 + signal.SIGKILL
_TOLD_TO_END = (signal.SIGTERM, signal.SIGABRT)  # by its launcher; by ranklaunch, for its stacks
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_WRONG_CALLS = ("*** MPI_ERR", "exiting improperly")
# Of torch.distributed.checkpoint, which raises it on all ranks; and as we tell of it.
_OF_CHECKPOINT = re.compile(r"CheckpointException ranks:dict_keys\(\[([0-9]{1,7}(?:, [0-9]{1,7}){0,99999})\]\)")
_NAMES = "CheckpointException of rank"
_OF_NAMED = re.compile(rf"{_NAMES}s? ([0-9]{{1,7}}(?:, [0-9]{{1,7}})*)")
_MOST_NAMED = 8
_OF_ALL = "; among the last lines of all ranks: "
_UNREAD = "it wrote nothing into the output of"
_ENOUGH = 40  # characters by which a line is found
_too_slow: set[str] = set()  # folders of the user's known errors
_TIMED_OUT = re.compile("time-?out|timed-out")
# On each line of a traceback: of PyTorch, of filters that tell ranks apart, and of Python where it is of an exception in a group.
_PREFIX = re.compile(r"^(?:\[(?:rank ?)?[0-9]+\]:? *)?(?:\| *)*")


def known(tail: bytes, plan: Plan, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
    """What the catalogue says of the last of an output, and which settings of the plan that is about. by_itself: whether the process ended
    so; else what it says on its way out is no last word. shared: several ranks write into it. code: with which it ended."""
    from ranklaunch import catalogue
    from ranklaunch.catalogue import turns

    def ask(text: str) -> Finding | None:
        own = plan.known_errors if text else ""
        return _by_own(text, own, by_itself, shared) if own else catalogue.find(text, (), by_itself, shared)

    text = tail.decode(errors="replace")
    alone = plan.job.world_size == 1
    if shared:
        finding = turns.of_several(text, code if by_itself else None, ask)
    else:
        finding = turns.in_turn(text, code, ask, _is_python(plan), alone) if by_itself else turns.when_told(text, ask)
    if not finding or (code == _KILLED_BY_9 and _is_consequence(finding)):  # which no process does of itself for a lost peer
        return None
    error, line = finding.error, _with_ranks(_PREFIX.sub("", finding.line.strip()), text)
    if error.standing in catalogue.SAYS_LESS:  # than the line
        return KnownError(error.name, error.kind, line, "", "", "")
    remedy = f"{error.remedy}{_present(plan, error.settings)}"
    return KnownError(error.name, error.kind, line, error.meaning, remedy, error.source, error.retry)


def _with_ranks(line: str, text: str) -> str:
    """With the ranks that an exception of torch.distributed.checkpoint names, which all ranks raise: what failed stands below it."""
    named = next(reversed([*_OF_CHECKPOINT.finditer(text)]), None)
    if not named or text.find(line[:_ENOUGH], named.end()) < 0:
        return line
    ranks = named[1].split(", ")
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"{_NAMES}{'s'[: len(ranks) - 1]} {', '.join(ranks[:_MOST_NAMED])}{more}: {line}"


def of_named(failure: Failure, error: KnownError, plan: Plan) -> Failure:
    """Of a rank that only tells of others' failure, that of the first of these."""
    named = _OF_NAMED.match(error.line)
    ranks = [int(rank) for rank in named[1].split(", ")] if named else []
    node = next((node.index for node in plan.job.nodes if ranks and ranks[0] in node.ranks), None)
    if node is None or failure.rank in ranks:
        return failure
    return replace(failure, rank=ranks[0], pid=None, node=node, name=f"rank {ranks[0]}")


def _is_consequence(finding: Finding) -> bool:
    from ranklaunch import catalogue

    error = finding.error
    return error.kind == catalogue.CONSEQUENCE and error.standing != catalogue.REPORT and error.name != blame.KILLED


def _is_python(plan: Plan) -> bool:
    return plan.job.program.is_python or plan.job.program.name.startswith("python")


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
    now = [found[name] for name in settings if name in found and found[name].value]
    told = [f"{each.name} {each.value} ({each.source})" if each.value != each.name else f"{each.name} of {each.source}" for each in now]
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


def of_ranks(tail: bytes, plan: Plan, failure: Failure, pids: Collection[int] = ()) -> bytes:
    """What the rank that failed may have written into its launcher's output, mostly before it tells of that. pids: of all it named."""
    from ranklaunch import catalogue
    from ranklaunch.catalogue import reports

    text = tail.decode(errors="replace")
    called = [name for name, node in _called(plan.job.nodes).items() if node == failure.node]
    host = next((name for name in called if reports.tells_of_host(text, name)), "")
    launcher = _launcher(plan)
    reporter = launcher.reporter if launcher else ""
    before, beside = catalogue.before_report(text, host, failure.rank, reporter, pids), catalogue.beside_report(text, failure.rank)
    unmarked = reports.without_marked_ranks(before) if failure.rank is None else before
    raised = failure.exit_code == 1 or failure.signal in _TOLD_TO_END  # after that, maybe
    if not raised or (_says_why(unmarked.encode(), plan) and not _says_why(before.encode(), plan)):
        before = unmarked
    if plan.kept:
        marks = [log.tag for log in plan.kept.logs if failure.rank not in (None, log.rank) and log.tag and not log.log]
        before = reports.without_teed(reports.without_launchers(before), tuple(marks))
    found = catalogue.find(beside, shared=True) if beside and not catalogue.find(before, shared=True) else None
    return (beside if found and found.error.kind == catalogue.CAUSE else before).encode()


def _launcher(plan: Plan) -> Launcher | None:
    """Return the launcher that starts the ranks of a plan, if one does."""
    found = (started(process, plan) for process in plan.processes if process.behaviour)
    return next((each for each in found if each.starts_ranks), None)


def tells_only_of_end(own: bytes) -> bool:
    """Whether it is pdsh's word of a host that has said nothing itself, as of_ranks gives it: no reason of anything."""
    from ranklaunch.catalogue import reports

    return own.startswith(reports.LOST_HOST)


def of_wrong_call(tail: bytes, plan: Plan) -> KnownError | None:
    """What Open MPI says of a rank that has called it wrongly, or has ended without it, which stands in mpirun's output alone."""
    places = [tail.find(text.encode()) for text in _WRONG_CALLS if text.encode() in tail]
    # Before it may stand what came of it: another rank lost its connection. Two lines of mpirun's are one sentence.
    begins = tail.rfind(b"\n", 0, max(0, tail.rfind(b"\n", 0, min(places)))) + 1 if places else 0
    error = known(tail[begins:], plan) if places else None
    return replace(error, kind=blame.CAUSE) if error and any(text in error.line for text in _WRONG_CALLS) else None


def explained(text: str, plan: Plan, explain: Callable[[str], Failure | None]) -> Failure | None:
    """What a launcher says of the rank that failed. Where it tells of several hosts, as by pdsh, one that tells first may tell what came of
    another's failure: then of one before whose ranks' end a cause stands, and where the first is a crash or a code of its own, one that had
    said its cause before that was told."""
    told, nodes = explain(text), _called(plan.job.nodes)
    if told and told.rank is not None and told.rank >= plan.job.world_size:  # whatever has written that
        told = replace(told, rank=None)
    if told and told.node is None and told.host in nodes:
        told = replace(told, node=nodes[told.host])
    if not told or told.rank is not None or len(plan.job.nodes) == 1:
        return told and _with_one_before(told, text, plan)
    from ranklaunch.catalogue import reports

    of_hosts = {nodes[host]: explain(lines) for host, lines in reports.of_hosts(text, nodes).items()}
    if told.node is not None and not of_hosts.get(told.node):  # of a node whose own lines say nothing: the others came later
        return told
    found = [replace(failure, node=node) for node, failure in of_hosts.items() if failure]
    found.sort(key=lambda each: each.exit_code != told.exit_code if told.node is None else each.node != told.node)
    marked = [_with_marked_rank(each, text, plan, told) for each in found]
    said = {each: known(of_ranks(text.encode(), plan, each), plan, shared=True) for each in marked}
    why = [each for each in marked if (error := said[each]) and error.kind == blame.CAUSE]
    if marked and _is_first(marked[0], said[marked[0]]):
        before, others = reports.before_end(text), {each.node for each in why if each is not marked[0]}
        early = {node for name, node in nodes.items() if node in others and _says_why(reports.of_host(before, name).encode(), plan)}
        why = [each for each in why if each is marked[0] or each.node in early]
    # Not by an exception that only tells of another, and not told to end.
    untold = [each for each in marked if each.signal != signal.SIGTERM]
    itself = (each for each in untold if each.exit_code != 1 or not said[each])
    return (*why, *itself, *untold, *marked, told)[0]


def _with_one_before(told: Failure, text: str, plan: Plan) -> Failure:
    """Where all ranks write into the output of their launcher, one of which PyTorch's marks show that it was ending by an exception before
    that began to tell of another's end, which may have come sooner."""
    from ranklaunch.catalogue import reports, uncaught

    launcher = _launcher(plan)
    begin = re.search(launcher.REPORTS, text) if launcher and launcher.REPORTS else None
    for rank, said in reports.of_marked_ranks(text[: begin.start()]).items() if begin else ():
        if uncaught.ends_by_exception(said, rank)[0] == uncaught.CERTAIN and _says_why(said.encode(), plan):
            return told if rank == told.rank else Failure(rank, 1)
    return told


def _is_first(told: Failure, error: KnownError | None) -> bool:
    """Whether what is told first came of nothing else: a crash, or a code of its own, and by its own words no consequence."""
    return told.exit_code != 1 and told.signal not in _TOLD_TO_END and (not error or error.kind == blame.CAUSE)


def _called(nodes: Sequence[Node]) -> dict[str, int]:
    """A node's index by each name that launchers may give it: pdsh leaves a domain out that all have in common. Some may have no name."""
    short = [(node.host.partition(".")[0], node.index) for node in nodes if not _ADDRESS.fullmatch(node.host)]
    times = Counter(name for name, _ in short)
    found = {**{node.host: node.index for node in nodes}, **{name: index for name, index in short if times[name] == 1}}
    return {name: index for name, index in found.items() if name and times[name] <= 1}


def _with_marked_rank(failure: Failure, text: str, plan: Plan, told: Failure) -> Failure:
    """With the first rank of its node of which PyTorch's marks tell why it has failed. told: what was told first: who was ended after that
    had failed by its exception, and was still on its way out."""
    from ranklaunch.catalogue import reports, uncaught

    ranks = next(node.ranks for node in plan.job.nodes if node.index == failure.node)
    for rank, said in reports.of_marked_ranks(of_ranks(text.encode(), plan, failure).decode()).items():
        if rank in ranks and uncaught.ends_by_exception(said, rank)[0] == uncaught.CERTAIN and _says_why(said.encode(), plan):
            late = failure.signal in _TOLD_TO_END and failure.exit_code != told.exit_code
            return replace(failure, rank=rank, **({"exit_code": 1, "signal": 0} if late else {}))
    return failure


def placed_by(plan: Plan, child: Child, told: Failure | None) -> Failure | None:
    """What a launcher says of a rank without its number, where one that has ended had its pid, or only one can be meant. Where its ranks
    share its output, it was only seen which of them failed first."""
    if not told or told.rank is not None or told.pid == child.identity.pid:  # of itself, in the last
        return told
    if child.announced and child.announced.failed and not plan.outputs:
        first = child.announced.failed[0]
        return replace(told, rank=first.rank, pid=first.pid, exit_code=first.code or 0, signal=first.signal, at=first.ended_at)
    own = [each for each in child.below.ended if each.pid == told.pid] if child.below and not child.announced else []
    meant = own or (child.announced.unknown if child.announced else [])
    if len(meant) == 1:
        return replace(told, rank=meant[0].rank, pid=meant[0].pid)
    return replace(told, rank=plan.job.node.first_rank) if child.launcher.DEPTH == plan.job.node.slots == 1 else told


def _says_why(tail: bytes, plan: Plan) -> bool:
    error = known(tail, plan, shared=True)
    return bool(error and error.kind == blame.CAUSE)


def is_mixed(plan: Plan, child: Child) -> bool:
    """Whether nothing tells the lines of its ranks apart: a launcher's of ranks on several nodes, or one without a file for each."""
    return bool(child.launcher.REPORTS) or (not plan.outputs and plan.job.node.slots > 1)


def is_anothers(culprit: Culprit, *, mixed: bool) -> bool:
    """Of words in an output of several ranks that tell of a lost peer: whether the culprit is that peer, more likely, since its launcher
    names it as the first, and it ended as nobody does for another. Where nothing tells their lines apart (mixed), none that is no cause is
    known to be its own."""
    error = culprit.error
    if mixed and (not error or (culprit.exit_code != 1 and _is_report(error))):  # 1 is torchrun's own, with which a script may end too
        return bool(showing.last_line(culprit.last_lines))
    consequence = error and not (blame.tells_why(error) or _is_report(error))
    how = culprit.signal or culprit.exit_code
    return bool(consequence) and culprit.rank is not None and how not in (*blame.OF_PEERS, TOLD, "SIGTERM")


def without_anothers(culprit: Culprit, child: Child) -> tuple[Culprit, str]:
    """With the reason, which has them as what they are, and does not take the launcher for a rank of it whose number nobody knows."""
    last = showing.printable(showing.last_line(culprit.last_lines)).strip()
    line = culprit.error.line if culprit.error and not _is_report(culprit.error) else last
    of = "a rank of " if culprit.rank is None and culprit.name == child.process.name and not child.ended.signal else ""
    return replace(culprit, error=None), f"{of}{blame.sentence(replace(culprit, error=None, last_lines=()))}{_OF_ALL}{line[: blame.SEEN]}"


def with_reason(culprit: Culprit, plan: Plan, child: Child, own: bytes | None, tail: bytes, *, shared: bool) -> tuple[Culprit, str]:
    """The reason is "" where it is the usual sentence. own: what a rank may have written that its launcher tells of, None where it tells of
    none. tail: its own, or the launcher's. shared: of all ranks."""
    if own == b"" and plan.kept:
        return culprit, _unread(culprit, child)
    if own is not None and shared and is_anothers(culprit, mixed=is_mixed(plan, child)):
        return without_anothers(culprit, child)
    return culprit, reported(culprit, tail)


def _unread(culprit: Culprit, child: Child) -> str:
    """Where what a rank wrote is nowhere, as far as is known: all words are its launcher's."""
    told = blame.sentence(replace(culprit, last_lines=()))
    return f"{told}; {_UNREAD} {child.process.name}, which may keep it in files" if not culprit.error else ""


def reported(culprit: Culprit, tail: bytes) -> str:
    """The reason where the words that decide are those of a launcher that the program has started: what it says of the process that failed
    is the trace of that."""
    error = culprit.error
    if not error or error.kind in (blame.CAUSE, blame.STOPPED):
        return ""
    if blame.TIMEOUT in error.name and not _is_report(error):  # of which nobody died
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
        elif culprit and culprit.node == here and _says_no_more(suspect) and _looks_killed(culprit) and memory.counted and not lately:
            said, then = suspect.reason or blame.sentence(culprit), " then" if memory.kills else ""
            suspect = replace(suspect, reason=f"{said}; the kernel killed nothing here for memory{then}")
        result.append(suspect)
    return result


def _says_no_more(suspect: Suspect) -> bool:  # than how it ended, and what ranks had written
    return not suspect.reason or _OF_ALL in suspect.reason or _UNREAD in suspect.reason


def with_failures(found: list[Suspect], tail_of: Callable[[Culprit], bytes]) -> list[Suspect]:
    """Where nothing is known of how a rank ended that no signal has ended: the reason has its last exception or error too, although the
    rank seems to have gone on after it, as one that saves what it has before it ends; in an output of all ranks only one by which Python
    ends with 1. tail_of: what it wrote last."""
    from ranklaunch.catalogue import turns

    result = []
    for suspect in found:
        culprit = suspect.culprit
        by_exception = culprit and culprit.exit_code == 1 and _OF_ALL in suspect.reason
        untold = culprit and 0 < culprit.exit_code < _LEAST_OF_SIGNALS and not (culprit.error or suspect.reason)
        if culprit and (untold or by_exception):
            which, said = turns.last_failure(tail_of(culprit).decode(errors="replace"), culprit.exit_code)
            shown = showing.printable(errors.quoted((said,))[0])[: blame.SEEN]
            told = suspect.reason or blame.sentence(culprit)
            if said and shown not in told:
                suspect = replace(suspect, reason=f"{told}; {which}, with other lines behind it: {shown}")
        result.append(suspect)
    return result


def written_by(culprit: Culprit, plan: Plan, ended: Sequence[Child], tail_of_rank: Callable[[int | None], bytes]) -> bytes:
    """By a rank of this node, or into the output of its launcher, which may have ranks on others."""
    here = culprit.node == plan.job.node_index
    own = next((child for child in ended if here and child.identity.pid == culprit.pid), None)
    found = own.last_words() if own else tail_of_rank(culprit.rank) if here else b""
    launcher = next((child for child in ended if child.launcher.starts_ranks), None)
    if found or not launcher:
        return found
    return of_ranks(launcher.last_words(), plan, Failure(culprit.rank, culprit.exit_code, node=culprit.node), launcher.pids_of_ranks)


def _looks_killed(culprit: Culprit) -> bool:  # by SIGKILL, it or what it was the shell of, and nothing says why
    return culprit.exit_code == _KILLED_BY_9 and (not culprit.error or culprit.error.name == blame.KILLED)


def _lost_a_worker(culprit: Culprit) -> bool:
    told = any(re.search(_KILLED, line) for line in culprit.last_lines)
    return culprit.signal is None and (told or bool(culprit.error and culprit.error.name == blame.KILLED))
