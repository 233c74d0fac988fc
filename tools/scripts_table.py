"""Write docs/scripts.md, the table of start scripts that `make tables` has run: `tools/scripts_table.py RESULTS.xml` (pytest's --junitxml).

Cells without a result in the file keep their mark.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib import util
from pathlib import Path
from typing import Any

import tables

ROOT = Path(__file__).resolve().parent.parent

PAGE = ROOT / "docs" / "scripts.md"
TESTS = {column: f"tests/launchers/test_start_scripts.py::test_on_{column}" for column in ("one_node", "two_nodes")}
INTRODUCTION = b"""\
# Start scripts

Made by `make tables`: start scripts and commands in the shape of public projects. `ranklaunch run` runs each on one node of two ranks and
on two simulated nodes. Launchers are real. Commands of projects (llamafactory-cli, swift and others) and wrappers (srun, apptainer) are
stand-ins that behave as the project does. Each script trains exactly once with the right ranks, or is refused with exit code 78 and a line
to paste instead; that line is run too. A refusal by words comes before anything starts. The other refusals come when two ranks are seen to
start ranks of their own.

\u2713: as the cell says. \\u2717: not so. ?: not run here yet. The scripts themselves are in tests/start_scripts.py.

""".decode("unicode_escape")


def start_scripts() -> Any:
    """Import the table of tests/."""
    spec = util.spec_from_file_location("start_scripts", ROOT / "tests" / "start_scripts.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page has other rows")
    asked = parser.parse_args()
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    new = page({**stored(old), **(tables.results(asked.results) if asked.results else {})})
    if not asked.check:
        PAGE.write_text(new, encoding="utf-8")
    elif tables.names_only(new) != tables.names_only(old):
        sys.exit(
            "docs/scripts.md has other rows than tests/start_scripts.py: run make tables, or tools/scripts_table.py (new rows: not run)"
        )


def page(marks: tables.Marks) -> str:
    rows = [tables.row(row.shape, *(cell(row, column, marks) for column in TESTS)) for row in start_scripts().ROWS]
    return INTRODUCTION + "\n".join([tables.row("start", "one node", "two nodes"), "| --- | --- | --- |", *rows]) + "\n"


def cell(row: Any, column: str, marks: tables.Marks) -> str:
    text = row.one if column == "one_node" else row.two
    if not text:
        return ""
    shown = text if text == "trains" else f"refused, by its ranks: {text}" if "ranks of their own" in text else f"refused: {text}"
    return f"{marks.get(name(row, column), tables.NOT_RUN)} {shown}"


def name(row: Any, column: str) -> str:
    return f"{TESTS[column]}[{row.shape.replace(' ', '-')}]"


def stored(text: str) -> dict[str, str]:
    """Return the marks of a page, by test."""
    rows = {row.shape.replace("|", "\u00a6"): row for row in start_scripts().ROWS}
    marks = {}
    for shape, *cells in re.findall(r"^\| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE):
        for column, text in zip(TESTS, cells):
            if shape in rows and text[:1] in (tables.PASSED, tables.FAILED):
                marks[name(rows[shape], column)] = text[0]
    return marks


if __name__ == "__main__":
    main()
