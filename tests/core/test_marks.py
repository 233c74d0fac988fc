"""What a filter of the user's puts before each line, such as `sed "s/^/[$RANK] /"` or ts, changes nothing in what is known of an output."""

from __future__ import annotations

from pathlib import Path

import helpers
import pytest

from ranklaunch.catalogue import find, last_exception
from ranklaunch.catalogue.tracebacks import Lines, without_marks

TEXTS = {path.stem: path.read_text(encoding="utf-8").partition("\n\n")[2] for path in Path(__file__).parent.glob("catalogue/*.txt")}
WITH_TRACEBACK = {name: text for name, text in TEXTS.items() if "\nTraceback (most" in f"\n{text}" and "\r" not in text}
BARE = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    raise KeyError("lr")\nKeyError: \'lr\'\n'


def marked(text: str, mark: str) -> str:
    """mark: %d becomes the number of the line."""
    return "".join(f"{mark.replace('%d', str(number))}{line}\n" for number, line in enumerate(text.splitlines()))


@pytest.mark.parametrize("mark", ["[x] ", "r0: ", "13:00:00.%d ", "n7 %d.5s | ", "(worker) [3] "])
def test_the_same_is_known(mark: str) -> None:
    assert len(WITH_TRACEBACK) > 20
    for name, text in WITH_TRACEBACK.items():
        bare, found = find(text), find(marked(text, mark))
        assert (found and found.error.name) == (bare and bare.error.name), name


@helpers.for_each(["[x] ", "a b c ", "%d ", "rank0: ", "E0: "])
def test_a_mark_is_seen_where_a_traceback_begins(mark: str) -> None:
    assert without_marks(marked(f"step 1\n{BARE}", mark)) == f"step 1\n{BARE}"


@helpers.for_each(["[x] ", "rank1: ", "13:00:%d | "])
def test_a_mark_is_seen_where_a_traceback_begins_within_a_line(mark: str) -> None:
    assert without_marks(marked(f"step 1\nsaving ... {BARE}", mark)) == f"step 1\nsaving ... {BARE}"
    bars = "\rtrain: 0%|  | 0/9 [00:00]\rtrain: 9%|#| 1/9 [00:01]"  # which are no lines to a filter
    assert last_exception(marked(f"step 1\n{bars}".replace("\r", "@") + BARE, mark).replace("@", "\r")) == "KeyError: 'lr'"


def test_a_mark_that_looks_like_a_name_tells_processes_apart() -> None:
    ranks = [marked(BARE.replace("lr", key), f"rank{number}: ").splitlines() for number, key in enumerate(("lr", "wd"))]
    lines = Lines("\n".join(line for both in zip(*ranks) for line in both) + "\nEpoch 3\n")
    assert [[lines.told[number] for number in group] for group in lines.groups()] == [
        BARE.splitlines(), BARE.replace("lr", "wd").splitlines(), ["Epoch 3", ""],
    ]  # fmt: skip


@helpers.for_each(
    [
        BARE,
        f"ERROR in shard 3: {BARE}",  # of this line alone
        marked(BARE, "[rank0]: "),  # which tells processes apart
        marked(BARE, "2026-11-25 13:00:00,123 "),
        f"  + Exception Group {BARE}",
        f"Original {BARE}",
        marked(BARE, "x" * 81),
        f"step 1\n{BARE[:60]}",
    ]
)
def test_what_is_no_mark_stays(text: str) -> None:
    assert without_marks(text) == text


@helpers.for_each(
    [
        (f"{BARE}step 1\n", "KeyError: 'lr'"),
        (marked(f"{BARE}step 1\n", "[x] "), "KeyError: 'lr'"),
        (marked(f"{BARE}step 1\n", "[rank1]: "), "KeyError: 'lr'"),
        (
            f"{BARE}\nDuring handling of the above exception, another exception occurred:\n\n{BARE.replace('Key', 'Type')}step 1\n",
            "TypeError: 'lr'",
        ),
        (f"Exception in thread Thread-1 (f):\n{BARE}step 1\n", ""),
        (f"Exception ignored in: <function f at 0x7f>\n{BARE}step 1\n", ""),
        (BARE.replace(" 'lr'", " \n\n  no lr\n  here"), "KeyError: no lr"),
        (marked(BARE.replace(" 'lr'", " \nno lr"), "[rank1]: "), "KeyError: no lr"),
        (BARE.replace(" 'lr'", " \n"), "KeyError:"),
        ("KeyError: 'lr'\n", ""),
        ("", ""),
    ]
)
def test_the_last_exception_of_the_main_thread(text: str, line: str) -> None:
    assert last_exception(text) == line
