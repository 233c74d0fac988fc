"""Each Chinese page of docs/zh has the headings, the examples and the names of the English page with the same file name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import helpers
import pytest

DOCS = helpers.ROOT / "docs"
CHINESE = sorted((DOCS / "zh").glob("*.md"))

FENCE = re.compile(r"^( *)```[^\n]*\n.*?^\1```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^(?: {4}| {7})\S.*\n)+", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
CHINESE_LETTER = re.compile("[\u4e00-\u9fff]")

every_page = pytest.mark.parametrize("page", CHINESE, ids=lambda page: str(page.name))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def english(page: Path) -> str:
    """Return the text of the English page that a Chinese page translates."""
    return read(DOCS / page.name)


def levels(text: str) -> list[int]:
    """Return the level of each heading, in order. Comments in examples are no headings."""
    return [len(marks) for marks in re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE)]


def examples(text: str) -> list[str]:
    """Return the code blocks: those with fences, then those by indentation."""
    fenced = [found[0] for found in FENCE.finditer(text)]
    return fenced + [found[0].rstrip("\n") for found in INDENTED.finditer(FENCE.sub("", text))]


def rows(text: str) -> list[int]:
    """Return the number of rows of each table, in order."""
    return [len(found[0].splitlines()) for found in re.finditer(r"(?:^\|.*\n?)+", FENCE.sub("", text), re.MULTILINE)]


def test_there_are_chinese_pages() -> None:
    assert CHINESE
    assert {page.name for page in CHINESE if not (DOCS / page.name).exists()} == set()
    assert {page.name for page in CHINESE if not CHINESE_LETTER.search(read(page))} == set()


@every_page
@pytest.mark.parametrize("part", [levels, examples, rows], ids=lambda part: part.__name__)
def test_a_chinese_page_has_the_parts_of_the_english_one(page: Path, part: Callable[[str], Sequence[object]]) -> None:
    assert part(read(page)) == part(english(page))


@every_page
def test_a_chinese_page_has_the_names_of_the_english_one(page: Path) -> None:
    """Commands, variables and files in backticks, in any order: a sentence may be built otherwise."""
    names, translated = (sorted({*SPAN.findall(FENCE.sub("", text))}) for text in (english(page), read(page)))
    assert translated == names


@every_page
def test_a_chinese_page_is_in_the_contents(page: Path) -> None:
    assert f"\nzh/{page.stem}\n" in read(DOCS / "index.md")
