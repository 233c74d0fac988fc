"""Errors before a rank runs, one class per exit code.

The codes are from sysexits.h: they differ from training scripts' codes, and platforms can tell them apart.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence


class RanklaunchError(Exception):
    """Error that the user or the platform can fix. Its text is the whole message; no traceback is shown."""

    exit_code = 70


class UsageError(RanklaunchError):
    """Wrong command line."""

    exit_code = 2


class ConfigError(RanklaunchError):
    """Wrong or contradictory platform environment, rank table or template. problems: all of the plan's. hints: their likely causes."""

    exit_code = 78

    def __init__(self, problems: str | Iterable[str], hints: Iterable[str] = ()) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        self.hints = tuple(hints)
        super().__init__("\n".join((*self.problems, *self.hints)))


class WaitError(RanklaunchError):
    """A rank table, a host name or a port did not appear before the deadline; a retry may help."""

    exit_code = 75


class MissingProgramError(RanklaunchError):
    """Program that the plan needs, and that is missing or too old."""

    exit_code = 69


NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)  # a retry fails as well
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT)


def refused(error: OSError | MemoryError, what: str = "") -> WaitError | ConfigError:
    """Return the error to raise if the system has no process, memory, descriptor or disk left, or denies this user a file.

    what: the refused action with a blank before it, such as " to start a process".
    """
    if isinstance(error, OSError) and error.errno in NOT_ALLOWED and error.filename is not None:
        return ConfigError(f"{error.filename}: {error.strerror}")
    is_fork = isinstance(error, OSError) and error.errno == errno.EAGAIN and error.filename is None
    limit = " (a limit on processes and threads: the container's, or ulimit -u)" if is_fork else ""
    return WaitError(f"the system refuses{what}, trying again may help: {str(error) or 'no memory left'}{limit}")


class Problems:
    """Errors and warnings of one plan, each text once, collected so that a user sees all of them in one go."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._errors: dict[str, bool] = {}

    def add(self, text: str, on_command_line: bool = False) -> None:
        self._errors.setdefault(text, on_command_line)

    @property
    def found(self) -> bool:
        return bool(self._errors)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def check(self) -> None:
        """Raise one error with all problems so far: UsageError if all are about the command line, else ConfigError."""
        if self._errors and all(self._errors.values()):
            raise UsageError("\n".join(self._errors))
        if self._errors:
            raise ConfigError(self._errors)


MOST_DIGITS = 18  # digits of a number in a text
MANY_DIGITS = "a number in it has thousands of digits"
NESTED = "nested too deeply"
SHORT_WORD = 12  # characters; keys and tokens are longer
LONGEST_LINE, KEPT_END = 4096, 1000  # characters of a message's line (a path may have 4096), and of its end where the middle is left out
LEFT_OUT = "(left out: the secrets in it cannot be hidden: {})"

SUCCESS = 0
DEFECT = 70
NO_PROGRESS = 76
USAGE = UsageError.exit_code

# Shown by `ranklaunch --help` and in docs/exit-codes.md; a test compares the two.
EXIT_CODES: dict[int, str] = {
    SUCCESS: "every rank succeeded",
    USAGE: "wrong command line",
    MissingProgramError.exit_code: "a needed program is missing or too old",
    DEFECT: "a defect in ranklaunch itself",
    WaitError.exit_code: (
        "waited in vain (rank table, host name, other nodes), a node is lost, or the system has no process, memory or disk left; "
        "trying again may help"
    ),
    NO_PROGRESS: (
        "restarts in place made no progress: the same failure came again at the same place; trying again does not help; "
        "fix the failure that ranklaunch report names"
    ),
    ConfigError.exit_code: "wrong or contradictory platform environment, rank table or template; a launcher has started too few ranks",
}


def nearest(word: str, legal: Iterable[str]) -> str:
    """Return a hint for a mistyped word, as ", did you mean 'torchrun'?"; "" if no legal word is near."""
    import difflib  # imported here: only a mistyped word needs it

    near = difflib.get_close_matches(word.lower(), list(legal), n=1, cutoff=0.6)
    return f", did you mean '{near[0]}'?" if near else ""


NEAR_BEGINNING = 0.85  # difflib's similarity ratio; 1 for equal words


def begins_like_ours(name: str) -> bool:
    """Return True if the first word of a name is nearly RANKLAUNCH, in any case of letters: RANKLAUCH_HANG, ranklaunch_hang."""
    import difflib

    first = name.upper().partition("_")[0]
    return difflib.SequenceMatcher(None, first, "RANKLAUNCH").ratio() >= NEAR_BEGINNING


def counted(number: int, word: str) -> str:
    """Return a number with its noun: 1 rank, 2 ranks."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def number(text: str) -> int | None:
    """Return the number in a text of at most MOST_DIGITS digits from 0 to 9, else None. str.isdigit alone takes ² for a digit."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def has_many_digits(error: Exception) -> bool:
    """Return True for Python's error about a number of too many digits, whose advice is for programmers."""
    return "set_int_max_str_digits" in str(error)


def unreadable(error: Exception) -> str:
    """Return the reason why a file is not text or not JSON, without Python's advice for programmers."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text: {error.reason} at byte {error.start}"
    if isinstance(error, RecursionError):
        return NESTED
    return MANY_DIGITS if has_many_digits(error) else str(error)


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of consecutive numbers."""
    result: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if result and result[-1][1] == number - 1:
            result[-1] = result[-1][0], number
        else:
            result.append((number, number))
    return result


def numbered(numbers: Iterable[int], word: str) -> str:
    """Return numbers with their noun: rank 3; ranks 0-2,4-63."""
    spans = runs(numbers)
    several = len(spans) > 1 or any(first != last for first, last in spans)
    return f"{word}{'s' if several else ''} {','.join(str(first) if first == last else f'{first}-{last}' for first, last in spans)}"


def reason(text: str) -> str:
    """Return ranklaunch's sentence about a failure, fit to be shown: without secrets, control characters harmless."""
    if text.isascii() and text.replace(" ", "").isalnum() and max(map(len, text.split())) <= SHORT_WORD:
        return text  # fast path: a process that has just got a signal must not wait until the patterns are loaded
    try:
        from ranklaunch import showing  # loads the patterns of secrets: slow, and only failures need them

        return showing.fit_to_show(text, own=True)
    except Exception as error:  # no descriptor or memory left to load the module: a missing text is better than a shown secret
        return LEFT_OUT.format(error)


def shortened(line: str) -> str:
    """Return the beginning and the end of a long message that repeats a user's text. The caller hides secrets first."""
    more = len(line) - LONGEST_LINE
    return f"{line[: LONGEST_LINE - KEPT_END]}... ({more} characters left out) ...{line[-KEPT_END:]}" if more > 0 else line


def quoted(last: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines of a process's output for a verdict: without secrets."""
    if not last:
        return ()
    try:
        from ranklaunch.redact import lines

        return lines.shown(last)
    except Exception as error:
        return (LEFT_OUT.format(error),)
