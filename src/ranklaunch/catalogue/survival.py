"""Whether a program went on after what looks like its failure: by the last line that shows it at work, or that it went another way."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

_MOST_LINES = 40  # that are not empty, of the end
_LONGEST = 600  # characters of a line that are looked at
_MOST_BETWEEN = 400  # lines behind a failure that are looked at
_MOST_KEPT = 2048  # lines
_STEPS = 3  # that one counts there: of a peer that goes on, two may yet come


def went_on(lines: Sequence[str], told: Sequence[str], after: int, raised: bool = False) -> int:
    """The number of the last line behind this one that shows so, or -1: what was said from there on may yet tell of a failure. told: also
    with what loggers put before a line. raised: with a traceback, after which some programs log a line or two on their way out."""
    filled = list(islice((number for number in range(len(lines) - 1, -1, -1) if lines[number].strip()), _MOST_LINES))
    small = {number: lines[number][:_LONGEST].lower() for number in filled}
    counting = _counting(small, after)
    informs = {number for number in filled if number > after and _informs(told[number])}
    if raised and len(informs) < _STEPS:
        informs = set()
    message = figures_of_message(lines, after, told)
    for number in filled:
        if number > after and number not in message and (number in counting or _goes_well(small[number], number in informs)):
            return number
        if number >= after and number < filled[0] and _pattern(_AGAIN).search(small[number]):
            return number  # with nothing after it, it would not have gone well yet
    return -1


def figures_of_message(lines: Sequence[str], after: int, told: Sequence[str] = ()) -> set[int]:
    """The numbers of lines with the likes of "  lr: 0" or "at epoch 3 step 140" that belong to the message which begins in this line, as it
    seems: they stand behind it, and no such line stands before it; where they are not indented, none is like another, and none begins as
    steps do. told: also with what loggers put before a line, which ends a message."""
    near = range(max(0, after - _MOST_LINES), min(len(lines), after + _MOST_LINES))
    small = {number: lines[number][:_LONGEST].lower() for number in near if number != after}
    shapes = Counter(map(_shape, small.values()))
    before = {_shape(line) for number, line in small.items() if number < after}
    found = set()
    for number, line in small.items():
        if number < after:
            continue
        metric, indented = _is_metric(line), not line.strip() or line[0].isspace()
        step = metric and (shapes[_shape(line)] > 1 or (not _pattern(_FIGURE).match(line) and _pattern(_BEGINS_STEP).match(line)))
        if not indented and (step or (line.strip() and _shape(line) in before) or _is_logged(lines, told, number, after)):
            break
        if metric and _shape(line) not in before:
            found.add(number)
    return found


def _is_logged(lines: Sequence[str], told: Sequence[str], number: int, after: int) -> bool:
    """Whether a line has something of a logger before it, which that with the exception has not."""
    marked = [told[each].strip() != lines[each].strip() for each in (number, after)] if told else []
    return _informs(lines[number]) or marked == [True, False]


def shows_steps(text: str) -> bool:
    """Whether it has lines of a training's steps."""
    return any(_is_metric(line[:_LONGEST].lower()) for line in text.split("\n"))


def stepped(before: str, behind: str) -> bool:
    """Whether lines of steps stand behind an exception that are not of its message. before: up to the line that names it."""
    lines = [*before.rstrip().split("\n"), *behind.split("\n")]
    after = before.rstrip().count("\n")
    steps = {number for number in range(after + 1, len(lines)) if _is_metric(lines[number][:_LONGEST].lower())}
    return bool(steps - figures_of_message(lines, after))


def went_well(text: str) -> bool:
    """Whether a line says that the program has got over something."""
    return any(_goes_well(line[:_LONGEST].lower(), informs=False) for line in text.split("\n"))


def warns(line: str) -> bool:
    """Whether a program says of something that went wrong that it goes on."""
    return bool(_pattern(_GOES_ON).search(line[:_LONGEST]))


def is_own(line: str) -> bool:
    """Whether a program says it, and neither a tracker, shell or launcher of a process that has ended, nor a logger of what goes well. A
    progress bar is none."""
    line = line[:_LONGEST]
    beside = _informs(line) or _pattern(f"{_BEHIND}|{_BY_CUDA}|{_BY_MINDSPORE}").match(line.lower()) or _pattern(WHOLE_BAR).fullmatch(line)
    return bool(line.strip()) and not beside


def may_go_on(lines: Sequence[str], told: Sequence[str], number: int, after: int) -> bool:
    """Whether a line may belong to the message that begins further up, and is no step, warning or launcher's, as these stand behind an
    exception where what the program has printed is written last. told: also with what loggers put before a line."""
    line = lines[number][:_LONGEST]
    small = line.lower()
    if not line.strip() or number in figures_of_message(lines, after, told):
        return True
    counts = _is_metric(small) or bool(_pattern(BAR).search(small)) or _goes_on_counting(lines, small, after)
    return not (counts or _is_logged(lines, told, number, after) or _pattern(_BEHIND).match(small))


def _goes_on_counting(lines: Sequence[str], small: str, after: int) -> bool:
    before = {_shape(line[:_LONGEST].lower()) for line in lines[max(0, after - _MOST_LINES) : after]}
    return _count(small) is not None and _shape(small) in before


def counted_on(lines: Sequence[str], after: int, end: int) -> bool:
    """Whether lines between these two count on so far that they are not other ranks', which a failure holds up within a step or two: steps,
    or what was counted before too, and not the files that a program uploads on its way out."""
    numbers = range(max(0, after - _MOST_LINES), min(end, after + _MOST_BETWEEN))
    small = {number: lines[number][:_LONGEST].lower() for number in numbers if lines[number].strip()}
    before = {_shape(line) for number, line in small.items() if number < after}
    steps = {number for number, line in small.items() if _is_metric(line) or (_shape(line) in before and _is_step(line))}
    counts: dict[tuple[str, int], set[str]] = {}
    counting = {each for each in _counting(small, after) if _shape(small[each]) in before}
    for number in (steps | counting) - figures_of_message(lines, after):
        for place, count in enumerate(_counts(small[number]) if number > after else ()):
            counts.setdefault((_shape(small[number]), place), set()).add(count)
    return any(len(each) >= _STEPS for each in counts.values())


def said_more(lines: Sequence[str], after: int) -> bool:
    """Whether the last line of its own is behind this one, and neither tells of what went wrong nor belongs to a longer message."""
    own = (number for number in range(len(lines) - 1, after, -1) if not _pattern(PARTING).search(lines[number][:_LONGEST].lower()))
    last = next((number for number in own if lines[number].strip()), -1)
    line = lines[last][:_LONGEST].lower()
    return last > after and bool(_pattern(_PLAIN).match(line)) and not any(_pattern(each).search(line) for each in (_ILL, _HINT))


def _counting(small: dict[int, str], after: int) -> set[int]:
    """The numbers of lines like earlier ones, but with a larger count: of steps, rounds or rows. What begins to count right behind the
    failure is a list that belongs to it."""
    seen: dict[str, int] = {}
    listed = {_shape(small.get(after + 1, ""))} - {_shape(line) for number, line in small.items() if number <= after}
    found = set()
    for number, line in sorted(small.items()):
        count = _count(line)
        if count is not None:
            shape = _shape(line)
            if shape not in listed and count > seen.get(shape, count):
                found.add(number)
            seen[shape] = count
    return found


# The same lines are looked at again and again: each stands near many failures, and an output may repeat a few.


@functools.lru_cache(maxsize=_MOST_KEPT)
def _is_metric(line: str) -> bool:
    return bool(_pattern(METRIC).search(line)) and not _pattern(_ILL).search(line)


@functools.lru_cache(maxsize=_MOST_KEPT)
def _is_step(line: str) -> bool:
    """A progress bar, or a line that counts steps in another form than most."""
    return bool(_pattern(BAR).search(line)) or bool(_pattern(_STEP).search(line) and not _pattern(_ILL).search(line))


@functools.lru_cache(maxsize=_MOST_KEPT)
def _count(line: str) -> int | None:
    """What it counts; None where it counts nothing."""
    count = _pattern(_COUNT).search(line)
    counts = count and not _pattern(_NO_COUNT).search(line) and not _pattern(_ILL).search(line)
    return int(count[0]) if count and counts else None


@functools.lru_cache(maxsize=_MOST_KEPT)
def _counts(line: str) -> tuple[str, ...]:
    """What it counts first, and whatever is called a step, an epoch or the like, or is so many of so many: Epoch 3 step 17, [ 17/1000]."""
    bar = _pattern(BAR).search(line)
    if bar:
        return (bar["at"],)
    return (*_pattern(_COUNT).findall(line)[:1], *(found[1] or found[2] for found in _pattern(_STEP).finditer(line)))


@functools.lru_cache(maxsize=_MOST_KEPT)
def _shape(line: str) -> str:
    """What is the same in lines that differ in numbers alone, however these are padded; of a progress bar, what it is of."""
    bar = _pattern(BAR).search(line)
    return " ".join(_pattern(_NUMBER).sub("", line[: bar.start()] if bar else line).split())


def _informs(told: str) -> bool:
    """Whether a logger says that the line is of no failure."""
    told = told[:_LONGEST]
    return bool(_pattern(_INFORMS).search(told)) and not _pattern(_LAUNCHER).search(told)


def _goes_well(line: str, informs: bool) -> bool:
    if _pattern(_HANDLED).search(line):
        return True
    return (informs or bool(_pattern(_WELL).search(line))) and not _pattern(f"{_ILL}|{PARTING}").search(line)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


# Of lines in small letters. PARTING: what trackers, profilers, `time`, shells and scripts say of a process that has ended, and none of its
# own work. CODE: with which it has, as scripts tell.
CODE = r"\b(?:rc|(?:exit|return)[ _-]?(?:code|status|value))\b[ :=]{1,3}-?[1-9]\d{0,2}"
PARTING = "|".join(
    (
        r"^(?:wandb|comet\w*|mlflow|neptune|swanlab|clearml|scalene|memray)\b|^\[neptune\]|^set the environment variable hydra_full_error",
        r"^[\d.]+user [\d.]+system |^\d+inputs\+\d+outputs |^command (?:exited with|terminated by) |^\t[a-z][a-z ():/]{4,60}: [\"\d]",
        r"^(?:[\d/]{10} [\d:]{8} info )?(?:connection|server|handleinform\w+|processoutgoing\w+): (?:.+ id=\d+\(|is shut|all c|listener c)",
        r"^\[info\] distributed\(.{0,200}\] event base dispatch success!",  # MindSpore's threads
        r"^warning: all log messages before absl::initializelog\(\)",  # TensorFlow, before its first line of absl's
        r"^generating '[^']*\.qdstrm'|^\[\d/\d\] \[=*\d{1,3}%\]",
        r"^={9} (?:target application|error summary)\b",  # compute-sanitizer
        rf"{CODE}\b",
        r"^extension modules: |^ {1,12}\d{1,10} done {2,40}\| ",  # Python's handler of faults; bash, of the rest of a pipe
    )
)
# Above a traceback: of one that was caught.
LOGGED = r"^[EWIF][0-9]{4,8} |(?i:\b(?:error|warn(?:ing)?|critical|exception|caught|retr(?:y|ies|ying)|skip\w*|fail\w*)\b)"
BAR = r"\d%\|.{0,120}?(?P<at>\d{1,12}/\d{1,12}) \["
WHOLE_BAR = rf"^.{{0,80}}?{BAR}[^\]\n]{{0,120}}\][ \t]?"
# NOTE: where something went wrong, as it is told below an exception.
NOTE = r"^(?:while|when|during|after|before|in|at|for|on) "
METRIC = r"(?:step|epoch|iter|iteration|batch|(?:train|val|eval|avg|mean|test)?_?(?:loss|acc|accuracy)|lr)s?\b['\"]?[ :=\[#/(]{1,4}['\"]?\d"
_COUNT = r"\d{1,15}"
_STEP = (
    r"\b(?:step|epoch|iter|iteration|batch)s?\b['\"]?[ :=\[#/(]{1,16}['\"]?(\d{1,15}(?:\.\d{1,15})?)|\b(\d{1,12}) {0,8}/ {0,8}\d{1,12}\b"
)
_FIGURE = r"[a-z][\w.\[\]-]{0,39} ?[:=] ?[-+]?\d[\d.e+-]{0,30}\W{0,4}$"
_BEGINS_STEP = rf"[\[{{('\"]{{0,3}}(?:{METRIC})"
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
# Of lines in small letters: what stands behind an exception and is none of its message.
_BEHIND = "|".join(
    (
        r"(?:\S.{0,200}:\d{1,6}: )?\w{0,60}warning\b|warn\b",
        r"(?:srun|slurmstepd|ranklaunch|torchrun|horovodrun|orted|prted?|pdsh@\S{1,80})\b.{0,80}?: |(?:mpi(?:run|exec)|(?:prte|orte)run)\b",
        PARTING,
    )
)
# What stands below each of PyTorch's CUDA errors, whatever it is.
_BY_CUDA = r"search for `cuda\w+'|cuda kernel errors might be async|for debugging consider passing cuda_|compile with `torch_use_cuda_dsa"
# The parts of an exception of MindSpore's datasets, and what they say for its own developers, or of any error in the user's code.
_BY_MINDSPORE = (
    r"-{40,}$|- (?:c\+\+ call stack|python call stack|dataset pipeline error message): ?|mindspore/\S{1,200}\.(?:cc|h)\b"
    r"|\[error\] execute user python code failed, check"
)
_GOES_ON = "|".join(
    (
        r"\bWARN(?:ING)?\b|\w{1,40}Warning: |\[warn(?:ing)? *\]|\blevel\W{1,4}warn(?:ing)?\b",
        r"(?i:(?<!after )\bretrying\b|\b(?:skipp|ignor|continu)ing\b|\bfalling back\b|\b(?:skipped|ignored)\b)",
    )
)
_INFORMS = r"(?:^|[ \t\[(])INFO\b"
_LAUNCHER = r"elastic|launch|torchrun|ray\b|NCCL|horovod|sending"
_HANDLED = r"^handled\b|\bhandled:"
