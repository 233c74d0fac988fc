"""Measure the pages: words written by hand, the longest sentence, the longest paragraph.

python tools/pages.py            all pages of docs/, the most words first
python tools/pages.py PAGE...    these pages, with every sentence and paragraph that is too long
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 60_000  # of all pages
MOST_SENTENCE, MOST_PARAGRAPH = 45, 120  # words

_MADE = re.compile(r"<!-- (table|results): .*?<!-- end of \1 -->", re.DOTALL)
_CODE = re.compile(r"^(```|~~~|:::).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[((?:[^\][]|\[[^\]]*\])*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[)*_\"']*\s+(?=[A-Z0-9`*\[(])")  # of a sentence
_ITEM = re.compile(r"\s*(?:[-*+]|[0-9]+[.)])\s+")
_NO_TEXT = re.compile(r"\s{4,}\S|\||#|<|\s*$")  # code, a table, a heading, HTML, an empty line
MADE_WHOLE = ("commands.md", "tables.md", "places.md", "spec-values.md")  # written by tools from the first line to the last, or nearly


def pages() -> list[Path]:
    found = [path for path in sorted((ROOT / "docs").glob("**/*.md")) if path.parent.name != "adr"]
    return [path for path in found if path.name not in MADE_WHOLE]


def by_hand(path: Path) -> str:
    """Return the text of a page without what tools write."""
    return _MADE.sub("", path.read_text(encoding="utf-8"))


def words(path: Path) -> int:
    """Count the words of a page, tables and examples included."""
    return len(by_hand(path).split())


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs and items of a page, without links' addresses. Code, tables and headings are left out."""
    lines: list[str] = []
    for line in [*_CODE.sub("", by_hand(path)).split("\n"), ""]:
        is_item = _ITEM.match(line)
        if lines and (is_item or (_NO_TEXT.match(line) and not line.startswith("    ")) or not line.strip()):
            yield _plain(lines)
            lines = []
        if is_item or (line.strip() and (lines or not _NO_TEXT.match(line))):
            lines.append(_ITEM.sub("", line) if is_item else line.strip())


def _plain(lines: Sequence[str]) -> str:
    return _LINK.sub(r"\1", " ".join(lines))


def sentences(paragraph: str) -> list[str]:
    return _END.split(paragraph)


def too_long(path: Path) -> Iterator[str]:
    """Yield a line for each sentence and paragraph above its limit."""
    for paragraph in paragraphs(path):
        length = len(paragraph.split())
        if length > MOST_PARAGRAPH:
            yield f"a paragraph of {length} words: {paragraph[:100]}"
        for sentence in sentences(paragraph):
            length = len(sentence.split())
            if length > MOST_SENTENCE:
                yield f"a sentence of {length} words: {sentence[:100]}"


def main(argv: Sequence[str]) -> int:
    if argv:
        for name in argv:
            path = Path(name)
            print(f"{name}: {words(path)} words by hand")
            print("".join(f"  {line}\n" for line in too_long(path)), end="")
        return 0
    rows = sorted(((words(path), sum(1 for _ in too_long(path)), path) for path in pages()), reverse=True)
    print("words  too long  page")
    for count, bad, path in rows:
        print(f"{count:5}  {bad:8}  {path.relative_to(ROOT)}")
    print(f"{sum(count for count, *_ in rows):5}  {sum(bad for _, bad, _ in rows):8}  all; {MOST_WORDS} at most")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
