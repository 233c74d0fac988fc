"""Whether a program went on after what looks like its failure: by the last line that shows it at work, or that it went another way."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

_LONGEST = 600  # characters of a line that are looked at


def went_on(lines: Sequence[str]) -> int:
    """The number of the last of these lines that shows so, or -1: what was said from there on may yet tell of a failure."""
    small = [line[:_LONGEST].lower() for line in lines]
    last = len(small) - 1
    while last >= 0 and not small[last].strip():
        last -= 1
    return next((number for number in range(last, -1, -1) if _shows(small[number], number == last)), -1)


def _shows(line: str, is_last: bool) -> bool:
    """What is tried again, with nothing after it, has not gone well yet."""
    if _pattern(_HANDLED).search(line) or (_pattern(_AGAIN).search(line) and not is_last):
        return True
    return bool(_pattern(_WELL).search(line)) and not _pattern(_ILL).search(line)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


# Of lines in small letters.
METRIC = r"(?:step|epoch|iter|iteration|batch|(?:train|val|eval|avg|mean|test)?_?(?:loss|acc|accuracy)|lr)s?\b['\"]?[ :=\[#/(]{1,4}['\"]?\d"
_DONE = r"saved|finished|completed|succeeded|successfully|trained|recovered|restored|resumed|reconnected"
_THERE = r"up|ready|back|alive|available|reachable|healthy|online"
_WELL = "|".join(
    (
        rf"\b{METRIC}",
        rf"\b(?:{_DONE})\b|\b(?:is|are) (?:now )?(?:{_THERE})\b|^(?:all )?(?:done|ok|passed|success)\b|\bexit (?:status|code) 0\b",
        r"\bgo(?:es|ing) on\b|\b(?:is|are) (?:taken|used)$|\bfall(?:s|ing) back\b|\bcontinu(?:es|ing) (?:without|with|on|from)\b",
        r"\bskipp(?:ed|ing)\b",
    )
)
_ILL = "|".join(
    (
        r"fail|error|exception|exit(?! (?:status|code) 0)|abort|kill|terminat|cancel|unable|cannot|could not|signal|crash|refused",
        rf"lost|stop|timed? ?out|\bplease\b|\b(?:not|never|in)(?: \w{{1,12}})? (?:{_DONE}|{_THERE})\b",
        # What a process still says on its way out: summaries of trackers, progress bars that are drawn once more, what is kept of its end.
        r"^(?:wandb|comet\w*|mlflow|neptune|swanlab)\b|\d%\||\d(?:it/s|s/it)\b|emergency|dump|traceback|clean|destroy|shut|clos|releas|tear|report",
    )
)
_AGAIN = r"\bwill be (?:retried|restarted)\b|\bretrying\b|\btr(?:y|ies|ying) again in \d"
_HANDLED = r"^handled\b|\bhandled:"
