"""Whether a program went on after what looks like its failure: by the last line that shows it at work, or that it went another way."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from itertools import islice

_MOST_LINES = 40  # that are not empty, of the end
_LONGEST = 600  # characters of a line that are looked at
_MOST_BETWEEN = 400  # lines behind a failure that are looked at
_STEPS = 3  # that one counts there: of a peer that goes on, two may yet come


def went_on(lines: Sequence[str], told: Sequence[str], after: int) -> int:
    """The number of the last line behind this one that shows so, or -1: what was said from there on may yet tell of a failure. told: also
    with what loggers put before a line."""
    filled = list(islice((number for number in range(len(lines) - 1, -1, -1) if lines[number].strip()), _MOST_LINES))
    small = {number: lines[number][:_LONGEST].lower() for number in filled}
    counting = _counting(small, after)
    for number in filled:
        if number > after and (number in counting or _goes_well(small[number], told[number])):
            return number
        if number >= after and number < filled[0] and _pattern(_AGAIN).search(small[number]):
            return number  # with nothing after it, it would not have gone well yet
    return -1


def counted_on(lines: Sequence[str], after: int) -> bool:
    """Whether lines behind this one count on so far that they are not other ranks', which a failure holds up within a step or two."""
    numbers = range(max(0, after - _MOST_LINES), min(len(lines), after + _MOST_BETWEEN))
    small = {number: lines[number][:_LONGEST].lower() for number in numbers if lines[number].strip()}
    metrics = {number for number, line in small.items() if _pattern(METRIC).search(line) and not _pattern(_ILL).search(line)}
    counts: dict[str, set[str]] = {}
    for number in metrics | _counting(small, after):
        if number > after:
            counts.setdefault(_shape(small[number]), set()).update(re.findall(_COUNT, small[number])[:1])
    return any(len(each) >= _STEPS for each in counts.values())


def said_more(lines: Sequence[str], after: int) -> bool:
    """Whether the last line is behind this one, and neither tells of what went wrong nor belongs to a longer message."""
    last = next((number for number in range(len(lines) - 1, after, -1) if lines[number].strip()), -1)
    line = lines[last][:_LONGEST].lower()
    return last > after and bool(_pattern(_PLAIN).match(line)) and not any(_pattern(each).search(line) for each in (_ILL, _HINT))


def _counting(small: dict[int, str], after: int) -> set[int]:
    """The numbers of lines like earlier ones, but with a larger count: of steps, rounds or rows. What begins to count right behind the
    failure is a list that belongs to it."""
    seen: dict[str, int] = {}
    listed = {_shape(small.get(after + 1, ""))} - {_shape(line) for number, line in small.items() if number <= after}
    found = set()
    for number, line in sorted(small.items()):
        count = _pattern(_COUNT).search(line)
        if count and not _pattern(_NO_COUNT).search(line) and not _pattern(_ILL).search(line):
            shape = _shape(line)
            if shape not in listed and int(count[0]) > seen.get(shape, int(count[0])):
                found.add(number)
            seen[shape] = int(count[0])
    return found


def _shape(line: str) -> str:
    return _pattern(_NUMBER).sub("", line)


def _goes_well(line: str, told: str) -> bool:
    if _pattern(_HANDLED).search(line):
        return True
    good = _pattern(_WELL).search(line) or (_pattern(_INFORMS).search(told[:_LONGEST]) and not _pattern(_LAUNCHER).search(told[:_LONGEST]))
    return bool(good) and not _pattern(f"{_ILL}|{PARTING}").search(line)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


# Of lines in small letters. PARTING: what trackers, profilers and `time` say of a process that has ended, and none of its own work.
PARTING = "|".join(
    (
        r"^(?:wandb|comet\w*|mlflow|neptune|swanlab|clearml|scalene|memray)\b|^\[neptune\]",
        r"^[\d.]+user [\d.]+system |^\d+inputs\+\d+outputs |^command (?:exited with|terminated by) |^\t[a-z][a-z ():/]{4,60}: \S",
        r"^\[info\] distributed\(.{0,200}\] event base dispatch success!",  # MindSpore's threads
        r"^generating '[^']*\.qdstrm'|^\[\d/\d\] \[=*\d{1,3}%\]",
    )
)
BAR = r"\d%\|.{0,120}?(?P<at>\d{1,12}/\d{1,12}) \["
# NOTE: where something went wrong, as it is told below an exception.
NOTE = r"^(?:while|when|during|after|before|in|at|for|on) "
METRIC = r"(?:step|epoch|iter|iteration|batch|(?:train|val|eval|avg|mean|test)?_?(?:loss|acc|accuracy)|lr)s?\b['\"]?[ :=\[#/(]{1,4}['\"]?\d"
_COUNT = r"\d{1,15}"
_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_NO_COUNT = r"^\s|0x[0-9a-f]|^#\d|^frame\b|^\[ {0,5}\d{1,9}\.\d|\brank\b|\bwait"
_DONE = r"saved|finished|completed|succeeded|successfully|trained|recovered|restored|resumed?|reconnected|written to"
_THERE = r"up|ready|back|alive|available|reachable|healthy|online"
_WELL = "|".join(
    (
        rf"\b{METRIC}|^\d+ of \d+ |: \d+ of \d+\b|\blevel['\"]?[=:] ?['\"]?info\b",
        rf"\b(?:{_DONE})\b|\b(?:is|are) (?:now )?(?:{_THERE})\b|^(?:all )?(?:done|ok|passed|success)\b|\bexit (?:status|code) 0\b",
        r"\bgo(?:es|ing) on\b|\b(?:is|are) (?:taken|used)$|\bfall(?:s|ing) back\b|\bcontinu(?:es|ing) (?:without|with|on|from)\b",
        r"\bskipp(?:ed|ing)\b|\d/\d{1,9}\b.*\beta\b|\ball \w{1,20} (?:read|written|loaded|sent|received|processed)$",
    )
)
_ILL = "|".join(
    (
        r"fail|error|exception|exit(?! (?:status|code) 0)|abort|kill|terminat|cancel|unable|cannot|could not|signal|crash|refused",
        rf"lost|stop|timed? ?out|\bplease\b|\b(?:not|never|in)(?: \w{{1,12}})? (?:{_DONE}|{_THERE})\b",
        # What a process still says on its way out: summaries of trackers, progress bars that are drawn once more, what is kept of its end.
        r"^(?:wandb|comet\w*|mlflow|neptune|swanlab)\b|\d%\||\d(?:it/s|s/it)\b|emergency|dump|traceback|clean(?:ing|ed)? ?up|destroy|shut",
        rf"clos|releas|tear|report|finali[sz]|\breset\b|{NOTE}",
    )
)
_AGAIN = r"\bwill be (?:retried|restarted)\b|\bretrying\b|\bagain in \d|\bonce more\b|- try \d"
_PLAIN = r"[a-z0-9{(>]|\[(?![\w.-]+:\d)"
_HINT = (
    r"0x[0-9a-f]|\bwait|\bpip\b|notice|upgrad|\b(?:type|consider|check|see|try|usage|help|run|hint|note)\b"
    r"|\byou (?:need|should|may|might|can)\b|:\d+(?: \w+)?$"
)
_INFORMS = r"(?:^|[ \t\[(])INFO\b"
_LAUNCHER = r"elastic|launch|torchrun|ray\b|NCCL|horovod|sending"
_HANDLED = r"^handled\b|\bhandled:"
