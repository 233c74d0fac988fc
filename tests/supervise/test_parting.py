"""Whether the last that a rank wrote are the words of an exception that was ending it."""

from __future__ import annotations

import pytest

from ranklaunch.supervise.output.parting import CERTAIN, LIKELY, ends_by_exception
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit, KnownError

PLAIN = 'Traceback (most recent call last):\n  File "t.py", line 5, in <module>\n    load(17)\nValueError: no image 17\n'
OF_HOOK = "".join(f"[rank3]: {line}\n" for line in PLAIN.splitlines())
CHAINED = f"{PLAIN}\nDuring handling of the above exception, another exception occurred:\n\n{PLAIN.replace('ValueError', 'OSError')}"
WARNED = "[W1124 03:46:29.285552 ProcessGroup.cpp:1] Warning: destroy_process_group() was not called\n"


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (PLAIN, LIKELY),
        (f"step 4\n{PLAIN}", LIKELY),
        (f"2026-11-24 03:46:29,285 INFO trainer: step 4\n{CHAINED}", LIKELY),
        (f"step 4\n{OF_HOOK}{WARNED}", CERTAIN),
        (f"{OF_HOOK}Exception ignored in atexit callback: <function f at 0x7f>\n{PLAIN}", CERTAIN),
        (f"{PLAIN}Error in atexit._run_exitfuncs:\n{PLAIN}", LIKELY),
        (f"{PLAIN}wandb: Run history:\nwandb: loss 0.5\n", LIKELY),
        (f"{OF_HOOK[:-1]}\n[rank3]: in shard 3\n[rank3]: of 8\n", CERTAIN),  # a message of several lines
        (f"{PLAIN}sample 17 left out\n", ""),
        (f"E1124 04:50:00.123456 140 data.py:33] sample 17 is unreadable\n{PLAIN}", ""),
        (f"\x1b[32m2026-11-24\x1b[0m | \x1b[31m\x1b[1mERROR\x1b[0m | sample 17\n{PLAIN}", ""),
        (f"{PLAIN}step 5\nstep 6\n" + "step 7\n" * 12, ""),  # it went on
        (f"  7%|#    | 7/100 [00:01]\r{PLAIN}" + "".join(f"\r {n}%|#    | {n}/100 [00:01<00:09]" for n in (10, 11, 12)), ""),
        (f"  7%|#    | 7/100 [00:01<00:09]{PLAIN}\r  8%|#    | 8/100 [00:01<00:09]\n", LIKELY),
        (f"2026-11-24 03:46:29,285 ERROR loader: cannot load 17, going on\n{PLAIN}", ""),
        (f"WARNING:root:skipped\n{CHAINED}", ""),
        (f"Exception in thread Thread-1:\n{PLAIN}", ""),
        ("Traceback (most recent call last):\n  File", ""),  # not ended
        ("step 5\n", ""),
        ("", ""),
    ],
)
def test_how_it_ends(text: str, how: str) -> None:
    assert ends_by_exception(text)[0] == how


@pytest.mark.parametrize("mark", ["[x] ", "[0] ", "2026-11-25 13:00:00 ", "13:00:0%d.123 ", "r0: ", "n7 %d.5s | "])
@pytest.mark.parametrize(("text", "how"), [(f"step 4\n{PLAIN}", LIKELY), (f"step 4\n{OF_HOOK}{WARNED}", CERTAIN), (f"{PLAIN}step 5\n", "")])
def test_how_it_ends_behind_a_filter(mark: str, text: str, how: str) -> None:
    marked = "".join(f"{mark.replace('%d', str(number))}{line}\n" for number, line in enumerate(text.splitlines()))
    assert ends_by_exception(marked) == ends_by_exception(text)
    assert ends_by_exception(marked)[0] == how


WORKER = f"{PLAIN.replace('no image 17', 'Caught ValueError in DataLoader worker process 0.')}Original {PLAIN}"


@pytest.mark.parametrize(
    ("before", "words"), [(f"{PLAIN}step 4\n", OF_HOOK), ("WARNING:root:skipped\n" + PLAIN, PLAIN), ("step 4\n", CHAINED), ("", WORKER)]
)
def test_the_words_that_ended_it_are_the_last_exceptions(before: str, words: str) -> None:
    assert ends_by_exception(before + words)[1] == "\n".join(line for line in words.splitlines() if line)


def suspect(rank: int, at: float, error: str = "", *, late: bool = False, signal: str | None = None, code: int = 1) -> Suspect:
    known = KnownError(error, "cause", "", "", "", "") if error else None
    return Suspect(0, at, "failed", code, "", Culprit(0, rank, None, code, signal, False, (), error=known), late=late)


@pytest.mark.parametrize(
    ("other", "first"),
    [
        (suspect(0, 2.0), 1),  # nothing is known of why
        (suspect(0, 2.0, "torch-process-group-left"), 1),
        (suspect(0, 2.0, "python-uncaught-exception"), 0),
        (suspect(0, 2.0, signal="SIGABRT"), 1),
        (suspect(0, 2.0, signal="SIGSEGV"), 0),
        (suspect(0, 2.0, signal="SIGTERM"), 0),
        (suspect(0, 2.0, code=3), 0),  # on purpose
        (suspect(0, 0.5), 0),
        (Suspect(0, 2.0, "failed", 75, "waited 600 s for node 1"), None),
    ],
)
def test_one_that_is_late_counts_where_nobody_else_has_a_cause(other: Suspect, first: int | None) -> None:
    found = blame.ordered([suspect(1, 1.0, "python-uncaught-exception", late=True), other])[0].culprit
    assert (found and found.rank) == first


def test_it_crosses_the_muster() -> None:
    late = suspect(1, 1.0, late=True)
    assert blame.suspect(blame.as_message(late)) == late
    old = blame.as_message(late)
    del old["late"]  # of an older node
    assert not blame.suspect(old).late
