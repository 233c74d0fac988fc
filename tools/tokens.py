"""Count the tokens of Python files, without comments, strings and line ends, for each folder or file that is named.

Of the launchers: python tools/tokens.py adapters/launchers src/ranklaunch/supervise/ranks
"""

from __future__ import annotations

import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

LEFT_OUT = {
    tokenize.COMMENT, tokenize.STRING, tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def tokens(source: str) -> int:
    """Return the number of names, numbers and operators in a Python source."""
    return sum(token.type not in LEFT_OUT for token in tokenize.generate_tokens(io.StringIO(source).readline))


def files(place: Path) -> Iterator[Path]:
    yield from sorted(place.rglob("*.py")) if place.is_dir() else (place,)


def main(places: list[str]) -> None:
    whole = 0
    for place in map(Path, places):
        counts = {file: tokens(file.read_text(encoding="utf-8")) for file in files(place)}
        for file, count in counts.items():
            print(f"{count:8} {file}")
        print(f"{sum(counts.values()):8} {place}, all")
        whole += sum(counts.values())
    print(f"{whole:8} all")


if __name__ == "__main__":
    main(sys.argv[1:])
