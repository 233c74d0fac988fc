"""From the last output of a rank to the entry that explains its end best.

A line belongs to the first entry that matches it. Then causes win over consequences, and anything over an AFTERMATH; of one kind the
entries whose standing is not the usual come last; otherwise the earliest line wins. But an exception that came of a lost peer, which the
program was handling or had just told of, is no cause: it is told behind that loss.

No pattern matches the end of a line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from ranklaunch.catalogue import layouts
from ranklaunch.catalogue.entry import (
    AFTERMATH,
    CAUSE,
    CONSEQUENCE,
    ELSEWHERE,
    FAINT,
    GENERAL,
    REPORT,
    STOPPED,
    UNCAUGHT,
    USUAL,
    VAGUE,
    WAIT,
    WORDS,
    KnownError,
)
from ranklaunch.catalogue.known import shipped
from ranklaunch.catalogue.last_words import at_work_after, cause_of_another, causes_before, last_words, of_exception, wrong_after
from ranklaunch.catalogue.places import Places
from ranklaunch.catalogue.survival import WHOLE_BAR, counted_on, said_more, shows_steps, went_on
from ranklaunch.catalogue.tracebacks import HOOKED, OF_A_PART, OF_A_PROCESS, RAISED_AGAIN, Lines, Traceback, at_fault, tracebacks
from ranklaunch.showing import in_lines
from ranklaunch.typed import NamedTuple

# Families; the second has what a system call says, which a program may try again.
_OF_NETWORKS = ("HCCL", "NCCL", "Gloo", "MPI")
_OF_PEERS = (*_OF_NETWORKS, "PyTorch", "MindSpore", "TensorFlow", "JAX and Ray")
_ERRNO = "System"
_BARE_EXCEPTION = r"(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception)(?:: ?\S|:?$| {2,8}assert )"
_OF_A_SHELL = r"(?:\S{1,80}: )?line \d{1,6}: "
_GOT_OVER = (
    r"(?i)\b(?:retr(?:y|ie)|skip|ignor|fall\w* back|reconnect|recover|resum|restor|continu|rebuil|disabl)"
    r"|\b(?:going on|once more|again|from now on|new one|only)\b"
)
_MISSED_BY_SCRIPT = r"(?!(?:\S{0,80}/)?(?:da)?sh: )(?:\S{1,80}: )?line \d{1,6}: .{1,120}: command not found$"
_CAUGHT = r"(?:[Cc]aught|[Hh]andled|[Rr]ecovered from)\b"  # says a program of an exception before another one ends it
_WARNS = r"\b(?:WARN(?:ING)?|INFO|DEBUG)\b"
LOST_CHILDREN = ("torch-dataloader-worker-died", "python-process-pool-broken")  # whose remedy is to read the lines above
_BY_CPP = "terminate called "  # by no handler of Python's
_LONGEST_TEXT = 65536  # characters, of the end
_MOST_LINES_AT_ALL = 3000
_MOST_BETWEEN = 2  # lines of a program that has told of a lost peer and then fails of that
_MOST_LINES = 400  # that one entry can have: more than real lines fit into what is searched
_MOST_TEXTS = 600  # that entries need and the output may have, of 900: real ones have 200, and hundreds of failures together 400
_LONGEST_LINE = 500  # characters of a finding, for people
# Of two collectives that differ, what stands before and behind their kinds and shapes.
_NUMBERED = re.compile(r"CollectiveFingerPrint\(SequenceNumber=\d{1,12}, (?=OpType)")
_OF_TENSORS = re.compile(r", TensorDtypes=.{1,600}?(?=\), but Rank |\)\.?\s?Collectives differ)")
BEFORE_THAT, AFTER_THAT, LAST_LINE = "; before that", "; after that", "; its last line"  # between the line that was found and another
_MOST_VALUES = 4  # lines below it that say what it is about


class Finding(NamedTuple):
    """number: of the line, from 0, in what was searched. line: as it was written, without colours; the part that matched where the line is
    very long."""

    error: KnownError
    line: str
    number: int = 0


def find(text: str, errors: Sequence[KnownError] = (), by_itself: bool = True, shared: bool = False) -> Finding | None:
    """The entry that explains best why the process with this output ended, if any does. errors: all there are, if not those that are
    shipped. by_itself: whether it was not told to; else words that no entry knows do not count. shared: several ranks write into it."""
    last = in_lines(text[-_LONGEST_TEXT:]).rsplit("\n", _MOST_LINES_AT_ALL)
    found = findings("\n".join(last[-_MOST_LINES_AT_ALL:]), errors, by_itself, shared)
    return found[0] if found else None


def findings(text: str, errors: Sequence[KnownError] = (), by_itself: bool = True, shared: bool = False) -> list[Finding]:
    """All that entries know of the text, the one that explains most first."""
    lines = Lines(text)
    claims = _claims(lines, errors or shipped())
    _judge_exceptions(lines, claims, errors or shipped(), shared)
    _name_exception_of_a_process(lines, claims, errors or shipped())
    later = _drop_what_came_of_a_lost_peer(lines, claims, shared)
    _drop_what_was_caught(lines, claims)
    _drop_waits_that_are_over(lines, claims)
    if not claims:
        _name_bare_exception(lines, claims, errors or shipped())
    if not claims and by_itself:
        claims = last_words(lines, errors or shipped())
    elif by_itself and all(_says_little(error) for error in claims.values()):
        reports = {number for number, error in claims.items() if error.standing == REPORT}
        claims = {**causes_before(lines, errors or shipped(), reports), **claims}
    claims.update(cause_of_another(lines, claims, errors or shipped(), shared) if by_itself else {})
    if not (claims and _is_of_one_of_several(lines, max(claims), shared)):
        if _was_survived(lines, claims):
            claims = last_words(lines, errors or shipped()) if by_itself else {}
        if by_itself:
            _drop_what_work_came_after(lines, claims, errors or shipped())
    numbers = sorted(claims, key=lambda number: (*_rank(claims[number]), number))
    return [Finding(claims[number], _told(lines, number, claims[number], later.get(number)), number) for number in numbers]


def _rank(error: KnownError) -> tuple[bool, ...]:
    little = error.standing == VAGUE and error.survivable  # as a script's command, behind which another has failed
    return error.standing == AFTERMATH, error.standing == FAINT, error.kind != CAUSE, error.standing != USUAL, little


def _says_little(error: KnownError) -> bool:
    """Whether it leaves open what was at fault, so that words which no entry knows may tell."""
    return error.kind == CONSEQUENCE and error.standing in (VAGUE, REPORT, AFTERMATH)


def _claims(lines: Lines, errors: Sequence[KnownError]) -> dict[int, KnownError]:
    """From a line's number to its entry. Users write their own for lines as they see them, with what loggers put in front."""
    own = {*map(id, errors)} - {*map(id, shipped())} if errors is not shipped() else frozenset()
    said, left = lines.said, _MOST_TEXTS
    places = [Places(said)]
    of_own = [*places, Places([written if bare else "" for written, bare in zip(lines.written, said)])] if own else places
    claims: dict[int, KnownError] = {}
    for error in errors:
        of_user = id(error) in own  # whose time is limited otherwise
        if error.standing in GENERAL or (left <= 0 and not of_user):
            continue
        for each in of_own if of_user else places:
            there = [needed for needed in error.needed if each.may_have(needed)]
            left -= 0 if of_user else len(there)
            for number in sorted(each.of(error, there)) if there else ():
                claims.setdefault(number, error)
    return claims


def _judge_exceptions(lines: Lines, claims: dict[int, KnownError], errors: Sequence[KnownError], shared: bool) -> None:
    """Drops what the program survived, and adds the exception that ended it where no entry knows better."""
    reports = {number for number, error in claims.items() if error.standing == REPORT}
    for group, own in tracebacks(lines, reports, of_one=not shared):
        last = own[-1]
        for number in group:
            if number < last.endings[0] and number in claims and _is_survivable(claims[number], lines.bare[number]):
                del claims[number]
        for number in last.endings[:-1]:
            if lines.bare[number + 1].startswith(RAISED_AGAIN):  # Caught KeyError in DataLoader worker process 0.
                claims.pop(number, None)
        for error in errors:
            if error.through:
                _name_by_frames(error, last, lines.bare, claims)
        unknown = last.members or (() if _explained(last, claims) else last.endings[-1:])
        for number in unknown:
            any_exception = None if number in claims else of_exception(lines.bare[number], errors)
            if any_exception:
                claims[number] = any_exception


def _drop_what_came_of_a_lost_peer(lines: Lines, claims: dict[int, KnownError], shared: bool) -> dict[int, Finding]:
    """What a program has failed of while it handled the loss of a peer, which would not have been without that: by the number of the line
    that tells of the loss."""
    found: dict[int, Finding] = {}
    lost = {number for number, error in claims.items() if error.kind == CONSEQUENCE and error.family in _OF_PEERS}
    for group, own in tracebacks(lines, (), of_one=not shared) if lost else ():
        first, last = own[-1].endings[0], own[-1].endings[-1]
        error = claims.get(last)
        if not error or error.kind != CAUSE or any(line.startswith(RAISED_AGAIN) for line in lines.bare[first + 1 : first + 2]):
            continue
        logged = () if shared else [number for number in lost.intersection(group) if _is_of_network(claims[number])]
        loss = first if first in lost else _logged_loss(lines, claims, logged, first)
        if loss >= 0:
            found[loss] = Finding(error, _shown(lines, last, _compiled(error)), last)
            del claims[last]
    return found


def _is_of_network(error: KnownError) -> bool:
    return error.standing == USUAL and error.family in _OF_NETWORKS


def _logged_loss(lines: Lines, claims: Mapping[int, KnownError], logged: Iterable[int], raised: int) -> int:
    """The last that is told of before an exception, where the program was not at work between, nor tells of anything else that may be why;
    -1 where there is none."""
    begin = lines.begin(raised)
    number = max((number for number in logged if number < begin), default=-1)
    between = lines.said[number + 1 : begin]
    others = any(number < other < begin and claims[other].kind == CAUSE for other in claims)
    over = others or shows_steps("\n".join(between)) or _compiled_text(_GOT_OVER).search("\n".join(lines.told[number:begin]))
    return -1 if number < 0 or over or len([line for line in between if line.strip()]) > _MOST_BETWEEN else number


def _told(lines: Lines, number: int, error: KnownError, later: Finding | None) -> str:
    line = _shown(lines, number, _compiled(error))
    return f"{line}{AFTER_THAT}: {later.line.strip()}" if later else line


def _is_survivable(error: KnownError, line: str) -> bool:
    """Whether a program may go on after it, as a script does after a command that is not there; one that had sh look for it may not."""
    caught = is_of_program(error) and _compiled_text(_CAUGHT).match(line)
    return error.survivable or bool(caught or _compiled_text(_MISSED_BY_SCRIPT).match(line))


def _name_exception_of_a_process(lines: Lines, claims: dict[int, KnownError], errors: Sequence[KnownError]) -> None:
    """Where the last exception only says that another process has failed: that of one which the program had started, right before it."""
    if not claims or not all(_tells_of_a_process(error) for error in claims.values()):
        return
    number = lines.last_of_a_process(min(claims))
    if number >= 0 and not counted_on(lines.said, number, min(claims)):
        found = of_exception(lines.bare[number], errors)
        if found and found.kind == CAUSE and any(error.name in LOST_CHILDREN for error in claims.values()):  # than which it says more
            found = found._replace(standing=USUAL)
        claims.update({number: found} if found else {})


def _tells_of_a_process(error: KnownError) -> bool:
    return (error.standing == WORDS and error.kind != CAUSE) or error.name in LOST_CHILDREN


def _name_bare_exception(lines: Lines, claims: dict[int, KnownError], errors: Sequence[KnownError]) -> None:
    """Where nothing else is known: the last line that an exception begins, although no frames stand above it. Loggers leave them out."""
    for number in range(len(lines.bare) - 1, max(-1, len(lines.bare) - 1 - _MOST_LINES), -1):
        bare = _compiled_text(_BARE_EXCEPTION).match(lines.bare[number]) and not lines.framed(number)  # it survived those that are
        error = of_exception(lines.bare[number], errors) if bare else None
        if error:
            claims[number] = error
            return


def _name_by_frames(error: KnownError, last: Traceback, bare: Sequence[str], claims: dict[int, KnownError]) -> None:
    """The way that the program took says more than the exception: a rank that could not fetch something from a data loading worker of its
    own has lost that, and no peer."""
    assert error.through
    if not all(any(text in bare[number] for number in last.frames) for text in error.through.frames):
        return
    named = any(error.through.unless in bare[number] for number in last.endings)
    for number in last.endings:
        if re.match(error.through.ending, bare[number]):
            claims.pop(number, None)
            if not named:
                claims[number] = error


def _drop_what_was_caught(lines: Lines, claims: dict[int, KnownError]) -> None:
    """Exceptions after which the same process was at work, for long or as far as Python's handler of faults shows, and causes that it has
    only told of where it was at work for long before the next."""
    for group in lines.processes():
        places = [place for place, number in enumerate(group) if number in claims]
        said = [lines.said[number] for number in group] if places else []
        fault = at_fault([lines.bare[number] for number in group]) if places else -1
        by_cpp = max((place for place in range(fault) if said[place].startswith(_BY_CPP)), default=-1)
        own = [place for place in places if claims[group[place]].standing not in (REPORT, AFTERMATH)]  # a launcher's words end no work
        later, deciding = (own or places or [-1])[-1], {*own}
        for place in reversed(places):
            number, is_last = group[place], place == later
            ran_on = place < by_cpp or (not is_last and place < fault)
            of_main = _in_main_thread(lines, number)
            told = not is_last and lines.begin(number) < 0 and is_of_program(claims[number])
            if (of_main and ran_on) or ((of_main or told) and counted_on(said, place, len(said) if is_last else later)):
                del claims[number]
            elif place in deciding:
                later = place


def _in_main_thread(lines: Lines, number: int) -> bool:
    """Whether a line names an exception below its traceback, and not one that only a thread or a process beside has ended by: the others
    go on then, whether or not they can do without it."""
    begin = lines.begin(number)
    return begin >= 0 and not (begin and lines.bare[begin - 1].startswith(OF_A_PART))


def _is_of_one_of_several(lines: Lines, number: int, shared: bool) -> bool:
    """Whether work that is told behind an exception may be that of other processes, which it has yet to hold up: where several write, and
    behind that of a process that is told to have ended by it."""
    begin = lines.begin(number)
    if begin < 0:
        return False
    ended = _compiled_text(HOOKED).match(lines.told[begin]) or lines.bare[max(0, begin - 1)].startswith(OF_A_PROCESS)
    return bool(shared or ended) and not counted_on(lines.said, number, len(lines.said))


def is_of_program(error: KnownError) -> bool:
    """Whether what went on had got over it: a fault of a machine, or of a network, may show long before anybody fails of it."""
    of_machine = error.retry == ELSEWHERE and error.family != _ERRNO
    return error.kind == CAUSE and error.standing == USUAL and not of_machine and error.family not in _OF_NETWORKS


def _drop_waits_that_are_over(lines: Lines, claims: dict[int, KnownError]) -> None:
    waits = {number for number, error in claims.items() if error.standing == WAIT or _tries_again().search(lines.told[number])}
    over = next((number for number in range(len(lines.bare) - 1, -1, -1) if lines.bare[number].strip() and number not in waits), -1)
    for number in waits:
        if number < over:
            del claims[number]


def _was_survived(lines: Lines, claims: Mapping[int, KnownError]) -> bool:
    """Whether all that is known says little, or is no more than an exception, and the process was at work after it."""
    little = [number for number, error in claims.items() if error.standing in (VAGUE, WORDS, UNCAUGHT) and error.kind != STOPPED]
    return bool(little) and len(little) == len(claims) and at_work_after(lines, max(little))


def _drop_what_work_came_after(lines: Lines, claims: dict[int, KnownError], errors: Sequence[KnownError]) -> None:
    """Where the last that is told is of work, and of nothing that went wrong."""
    ills = [number for number, error in claims.items() if error.kind != STOPPED]
    work = went_on(lines.said, lines.told, max(ills), _ended_it(lines, max(ills))) if ills else -1
    over = work >= 0 and not wrong_after(lines, work, errors)
    light = ills and all(_counts_for_little(claims[number], lines.bare[number]) for number in ills) and not any(map(lines.framed, ills))
    if over or (light and said_more(lines.said, max(ills))):
        for number in ills:
            del claims[number]


def _ended_it(lines: Lines, number: int) -> bool:
    """Whether an exception may have ended the program, with whatever little was said behind it: no logger calls it a warning."""
    return lines.framed(number) and not _compiled_text(_WARNS).search(lines.above(number))


def _counts_for_little(error: KnownError, line: str) -> bool:
    """Whether anything at all that was said after it shows that it was survived: so it is with a script's commands."""
    return error.survivable or error.standing in (*GENERAL, VAGUE) or bool(_compiled_text(_OF_A_SHELL).match(line))


def is_of(error: KnownError, line: str) -> bool:
    """Whether an entry that is shipped knows the line too; those of users are not asked here, where their time is not limited."""
    return error in shipped() and _compiled(error).search(line) is not None


def _explained(last: Traceback, claims: Mapping[int, KnownError]) -> bool:
    """Whether an entry knows one of its exceptions, or something that the message of one says."""
    named = any(number in claims for number in last.endings)
    return named or any(number in claims and claims[number].standing == USUAL for number in last.message)


@functools.cache
def _compiled(error: KnownError) -> re.Pattern[str]:
    return re.compile(error.pattern, re.MULTILINE)


@functools.cache
def _compiled_text(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


@functools.cache
def _tries_again() -> re.Pattern[str]:
    """PyTorch's warnings of a name or port, which it then tries anew: they count only at the very end, as WAITS do."""
    return re.compile(r"\[W[^\]]{0,80}\bsocket\.cpp:\d+\]")


def _shown(lines: Lines, number: int, pattern: re.Pattern[str]) -> str:
    below = lines.told[number + 1 : number + 1 + _MOST_VALUES]
    line = _compiled_text(WHOLE_BAR).sub("", lines.with_message(number, lines.told[number].strip()), 1) or lines.told[number].strip()
    line = _OF_TENSORS.sub("", _NUMBERED.sub("(", layouts.with_values(line, below)))
    if len(line) <= _LONGEST_LINE:
        return line
    match = pattern.search(line)
    start = max(0, match.start() - 80) if match else 0
    return line[start : start + _LONGEST_LINE]
