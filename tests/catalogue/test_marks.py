"""What a filter of the user's puts before each line, such as `sed "s/^/[$RANK] /"` or ts, changes nothing in what is known of an output."""

from __future__ import annotations

from pathlib import Path

import helpers
import pytest

from ranklaunch.catalogue import find, last_exception
from ranklaunch.catalogue.matcher import read

TEXTS = {path.stem: path.read_text(encoding="utf-8").partition("\n\n")[2] for path in Path(__file__).parent.glob("excerpts/*.txt")}
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


def texts(text: str) -> list[str]:
    return [line.text for line in read(text).lines]


@helpers.for_each(["[x] ", "a b c ", "%d ", "rank0: ", "E0: ", "[x] [rank1]: "])
def test_a_mark_is_seen_where_a_traceback_begins(mark: str) -> None:
    assert texts(marked(f"step 1\n{BARE}", mark)) == texts(f"step 1\n{BARE}")


@helpers.for_each([BARE, marked(BARE, "x" * 81), f"step 1\n{BARE[:60]}"])
def test_what_is_no_mark_stays(text: str) -> None:
    assert texts(text) == text.split("\n")


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
        (marked(BARE.replace(" 'lr'", "\n  no lr"), "[rank1]: "), "KeyError: no lr"),
        (BARE.replace(" 'lr'", " \n"), "KeyError:"),
        ("KeyError: 'lr'\n", ""),
        ("", ""),
    ]
)
def test_the_last_exception_of_the_main_thread(text: str, line: str) -> None:
    assert last_exception(text) == line
