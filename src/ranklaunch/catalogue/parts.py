"""What an exception has ended of a program beside the program itself: a thread, a process that it had started, a task of asyncio, or the
initializer of a pool. Python and its library write the exception below a line of their own, and the program goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, GENERAL, REPORT, STOPPED
from ranklaunch.catalogue.search import AFTER_THAT, BEFORE_THAT, LAST_LINE, LOST_CHILDREN, Finding
from ranklaunch.catalogue.survival import is_own
from ranklaunch.catalogue.tracebacks import BEGINS, CHAINED, NAMES, OF_A_PROCESS, OF_A_THREAD
from ranklaunch.catalogue.uncaught import bare_lines, parted, without_mark
from ranklaunch.typed import NamedTuple

_TASK, _INITIALIZER = "task", "initializer"
_HEADINGS = (
    ("thread", OF_A_THREAD, re.compile(rf"{OF_A_THREAD}(?:(?P<name>Thread-[0-9]{{1,9}}(?: \(\S{{1,60}}\))?|\S{{1,80}}):$)?")),
    ("process", OF_A_PROCESS, re.compile(rf"^{OF_A_PROCESS}(?P<name>\S{{1,80}}):$")),
    # asyncio tells of these when they are collected: often as the program ends.
    (_TASK, "exception was never retrieved", re.compile(r"(?:Task|Future) exception was never retrieved$")),
    (_TASK, "unhandled exception during asyncio", re.compile(r"unhandled exception during asyncio\.run\(\) shutdown$")),
    ("callback", " callback ", re.compile(r"(?:Exception in callback |exception calling callback for <)\S")),
    (_INITIALIZER, "Exception in initializer", re.compile(r"Exception in initializer:$")),
)
_NAME_OF_TASK = re.compile(r"<Task \w{1,20} name='(?P<name>[^']{1,80})'")
_OF_SIGNALS, _INTERRUPTED = 128, 130  # codes above that are of a signal
ENOUGH = 40  # characters by which a line is found
_NEAR = 6  # lines, from the heading to the traceback


class _Part(NamedTuple):
    """Where it begins, with its heading, and ends, with the line that names the exception. name: "" where it has none, or another wrote
    into it."""

    begin: int
    end: int
    what: str
    name: str


def with_part(found: Finding | None, text: str, code: int | None, ask: Callable[[str], Finding | None]) -> Finding | None:
    """What was found of an output, with what a part had failed of before. That may be why a program waits in vain, or why a pool is broken,
    but is no more than told where the program says itself what it failed of. code: with which it ended, of SIGINT also where a thread
    has interrupted it. ask: tells what entries know of a text."""
    interrupted = code == _INTERRUPTED and found and found.error.kind == STOPPED
    if not found or found.error.standing == REPORT or ((code or 0) > _OF_SIGNALS and not interrupted):
        return found
    own = re.split(f"{BEFORE_THAT}|{AFTER_THAT}|{LAST_LINE}", found.line.strip())[0][:ENOUGH]
    before = text.rpartition(own)[0]
    who, said = last_part(before)
    if interrupted and not said:
        who, said = "", _caught_just_before(before)
    first = ask(said) if said else None
    if not first or first.error.kind != CAUSE:
        return found
    more = "" if first.line.strip()[:ENOUGH] in found.line else f"{BEFORE_THAT}{who and f', {who} had failed'}: {first.line.strip()}"
    waits = (found.error.kind == CONSEQUENCE and found.error.standing in GENERAL) or found.error.name in LOST_CHILDREN
    return found._replace(error=first.error if waits else found.error, line=f"{found.line}{more}")


def _caught_just_before(text: str) -> str:
    """The exception that a function has printed last, with nothing behind it but the traceback that begins. text: up to the line that names
    that one."""
    before, behind = next(parted(text.rpartition(BEGINS)[0], caught=True), ("", ""))
    return "" if _has_own(behind.split("\n")) else before


def last_part(text: str) -> tuple[str, str]:
    """What an exception has ended last, as in "its thread Thread-1 (read)", and that exception, without what others said while Python wrote
    it; "" where there is none."""
    bare = bare_lines(text) if _may_have_parts(text) else []
    part = next(_parts(bare), None)
    if not part:
        return "", ""
    said = [line for line in bare[part.begin + 1 : part.end] if line[:1].isspace() or line.startswith((BEGINS, *CHAINED))]
    unnamed = "the initializer of its pool" if part.what == _INITIALIZER else f"a {part.what} of it"
    return f"its {part.what} {part.name}" if part.name else unnamed, "\n".join([*said, bare[part.end], ""])


def without_late_parts(text: str) -> str:
    """Without the exceptions of parts that the program's own end has brought about, where they are all that stands behind the exception of
    the program; of tasks, behind whatever it said last. Their lines are then empty."""
    if not _may_have_parts(text):
        return text
    before, behind = next(parted(text), ("", text))
    lines = behind.split("\n")
    for part in _parts(bare_lines(behind)):
        if not before and (part.what != _TASK or _has_own(lines[part.end + 1 :])):
            break
        lines[part.begin : part.end + 1] = [""] * (part.end + 1 - part.begin)
    return text if before and _has_own(lines) else before + "\n".join(lines)


def _may_have_parts(text: str) -> bool:
    return any(needed in text for _, needed, _ in _HEADINGS)


def _has_own(lines: Sequence[str]) -> bool:
    return any(map(is_own, map(without_mark, lines)))


def _parts(bare: Sequence[str]) -> Iterator[_Part]:
    """The last first."""
    for begin in range(len(bare) - 1, -1, -1):
        for what, needed, pattern in _HEADINGS:
            heading = pattern.search(bare[begin]) if needed in bare[begin] else None
            end = _named_from(bare, begin + 1) if heading else 0
            if heading and end:
                named = next(filter(None, map(_NAME_OF_TASK.search, bare[begin + 1 : begin + _NEAR])), None) if what == _TASK else heading
                yield _Part(begin, end, what, (named.groupdict().get("name") if named else "") or "")
                break


def _named_from(bare: Sequence[str], begin: int) -> int:
    """The line that names the exception whose traceback begins near there, or the last that was raised from it; 0 where there is none."""
    found, may_begin, begun = 0, True, False
    for number in range(begin, len(bare)):
        line = bare[number]
        if line.startswith(CHAINED):
            may_begin = True
        elif line == BEGINS:
            if not may_begin:
                return found
            may_begin, begun = False, True
        elif begun and line[:1].strip() and re.match(NAMES, line) and bare[number - 1][:1].isspace():
            found, begun = number, False
        if may_begin and not found and number > begin + _NEAR:
            return 0
    return found
