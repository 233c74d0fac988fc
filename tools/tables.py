"""Write docs/tables.md, the results of `make tables`: `tools/tables.py RESULTS.xml` (pytest's --junitxml).

Cells without a result in the file keep their mark, so a part of the tests can be run alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "tables.md"
CHAOS = "tests/cluster/test_chaos.py::test_chaos"
RESTARTS = "tests/launchers/test_restarts.py::test_after_each_failure_all_ranks_start_again"
PASSED, FAILED, NOT_RUN, NONE = "✓", "✗", "?", ""
MARKED = re.compile(rf"(?:^|, )(?:(.*?) )?([{PASSED}{FAILED}{NOT_RUN}])(?=, |$)")
IN_GROUPS = "tests/rankside/"
ON_A_PAGE_OF_ITS_OWN = "launchers/test_start_scripts.py"  # docs/scripts.md
Marks = Mapping[str, str]  # mark of a case, by pytest's id

INTRODUCTION = """\
# Tables of real runs

Made by `make tables`: jobs of real launchers on hosts that are network namespaces of one machine. CI runs one case of each kind.
`make tables` runs all cases, before a release and after a change of a launcher or the supervisor. ✓: it ended as the row says. ✗: it did
not. ?: not run here yet.

## Failures, by launcher

Three nodes of two ranks. A row has the failure, and the contents of every verdict: the job's exit code, the culprit, and words of the
reason (`node 0: ...` if nodes have different reasons). All nodes end, and no process of the job remains on any node. While the network is
up, all nodes report the same. An empty cell is a case that is impossible or not observable with this launcher (reasons below the table), or
a case about ranklaunch itself, which is not run with launchers that need seconds to start.
"""
EMPTY = """
Impossible or not observable:
"""
IN_PLACE = """
## Restarts in place, by launcher

Three nodes of two ranks (pytorch and tensorflow: of one) that train together. After the failure all ranks start again, and end with the
same parameters as an undisturbed run. No rank runs twice, no process remains on any host, and the history is the same on all nodes. In the
rows with a gate, a node's ranklaunch is killed while the nodes wait for each other: the others then end and start nothing.
"""
OTHERS = """
## Other cases

Each line is a test of `tests/`, with its cases.
"""
REPEATED = """
## {}

Each program several times.
"""
FIRST, FAILS, OTHER = "what goes wrong", "what fails", "where"  # first cells of the tables' heads


@dataclass(frozen=True)
class Found:
    """A case that pytest has collected. name: pytest's id. table: only for `make tables`."""

    name: str
    table: bool

    @property
    def test(self) -> str:
        return self.name.partition("[")[0]

    @property
    def case(self) -> str:
        return self.name.partition("[")[2].removesuffix("]")

    @property
    def where(self) -> str:
        return self.name.partition("::")[0].removeprefix("tests/")

    @property
    def run(self) -> tuple[str, str]:
        """Name and number of the run, of a case that is run several times; else two empty texts."""
        what, _, number = self.case.rpartition(" ")
        return (what, number) if number.isdigit() else ("", "")

    @property
    def group(self) -> Found:
        """The case by which the page shows this one: hundreds of cases in IN_GROUPS are shown by kind of program or launcher."""
        if not self.name.startswith(IN_GROUPS):
            return self
        kind, colon, _ = self.case.partition(": ")
        by_launcher = "by_other_launchers" in self.test or "two_hosts" in self.test
        return Found(f"{self.test}[{kind if colon else self.case.rpartition('-')[2] if by_launcher else 'all'}]", self.table)

    @property
    def words(self) -> str:
        return self.test.rpartition("::test_")[2].replace("_", " ")


class Collector:
    """Plugin of pytest that keeps the collected cases."""

    def __init__(self) -> None:
        self.found: list[Found] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.found = [Found(item.nodeid, item.get_closest_marker("table") is not None) for item in items]


def collected() -> list[Found]:
    """Return all cases of the tests that have a case for `make tables` alone."""
    files = [str(path) for path in sorted(TESTS.glob("**/test_*.py")) if "pytest.mark.table" in path.read_text(encoding="utf-8")]
    collector, output = Collector(), io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(["--collect-only", "-q", f"--rootdir={ROOT}", *files], plugins=[collector])
    if code:
        sys.exit(output.getvalue())
    tests = {found.test for found in collector.found if found.table}
    return [found for found in collector.found if found.test in tests]


def results(path: Path) -> dict[str, str]:
    """Return the marks of a file of results, by case. A failed teardown repeats the case; an interrupted case has no classname."""
    marks: dict[str, str] = {}
    for case in ElementTree.parse(path).findall(".//testcase[@classname]"):
        name = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}"
        bad = any(case.find(kind) is not None for kind in ("failure", "error"))
        skipped = case.find("skipped") is not None
        marks[name] = FAILED if bad or marks.get(name) == FAILED else NOT_RUN if skipped else PASSED
    return marks


def of_groups(found: list[Found], marks: Marks) -> dict[str, str]:
    """Return the marks of groups with a mark for every case, and of groups with a failed case."""
    groups: dict[str, list[str]] = {}
    for each in found:
        groups.setdefault(each.group.name, []).append(marks.get(each.name, ""))
    whole = {name: of_group for name, of_group in groups.items() if all(of_group) or FAILED in of_group}
    return {name: next((mark for mark in (FAILED, NOT_RUN) if mark in of_group), PASSED) for name, of_group in whole.items()}


def page(found: list[Found], marks: Marks) -> str:
    chaos = {each.case for each in found if each.test == CHAOS}
    repeated = [each for each in found if all(each.run)]
    again = [each for each in found if each.test == RESTARTS]
    others = [each for each in found if each.test != CHAOS and each not in (*repeated, *again) and each.where != ON_A_PAGE_OF_ITS_OWN]
    of_failures = [*failures(chaos, marks), EMPTY, *empty(), *restarts(again, marks)]
    return "\n".join([INTRODUCTION, *of_failures, *repeated_tables(repeated, marks), OTHERS, *other_table(others, marks)]) + "\n"


def failures(cases: set[str], marks: Marks) -> Iterator[str]:
    chaos = importlib.import_module("chaos_cases")  # of tests/, which pytest has imported
    methods = [launcher.method for launcher in chaos.LAUNCHERS]
    yield row(FIRST, "exit code", "to blame", "reason", *methods)
    yield "|".join(["", " --- ", " ---: ", *[" --- "] * 2, *[" :-: "] * len(methods), ""])
    for case in (*chaos.CASES, *chaos.EVENTS):
        names = [f"{method}-{case.name.replace(' ', '-')}" for method in methods]
        yield row(
            case.name, str(case.code), blamed(case), reasons(case),
            *(marks.get(f"{CHAOS}[{name}]", NOT_RUN) if name in cases else NONE for name in names),
        )  # fmt: skip


def empty() -> Iterator[str]:
    """Yield the reasons for empty cells, a line for each reason and row."""
    chaos = importlib.import_module("chaos_cases")
    for case in (*chaos.CASES, *chaos.EVENTS):
        for reason in dict.fromkeys(case.without.values()):
            yield f"- **{case.name}** ({', '.join(method for method, why in case.without.items() if why == reason)}): {reason}."


def blamed(case: Any) -> str:
    culprit = case.culprit
    if culprit is None:
        return "nobody" if case.code else NONE
    rank = "" if culprit.local is None else f"rank {culprit.local} of "
    more = (culprit.signal, "out of memory" if culprit.out_of_memory else "", "a consequence" if culprit.consequence else "")
    return ", ".join(filter(None, [f"{rank}node {culprit.node}", *more]))


def reasons(case: Any) -> str:
    own = (f"node {index}: {in_short(texts)}" for index, texts in sorted(case.reasons.items()))
    return "<br>".join(filter(None, [in_short(case.reason), *own]))


def in_short(texts: Iterable[str]) -> str:
    return " … ".join(text.strip() for text in texts)


def restarts(found: list[Found], marks: Marks) -> Iterator[str]:
    if not found:
        return
    methods = list(dict.fromkeys(each.case.partition("-")[0] for each in found))
    yield IN_PLACE
    yield row(FAILS, *methods)
    yield "|".join(["", " --- ", *[" :-: "] * len(methods), ""])
    for what in dict.fromkeys(each.case.partition("-")[2] for each in found):
        yield row(what, *(marks.get(f"{RESTARTS}[{method}-{what}]", NOT_RUN) for method in methods))


def repeated_tables(found: list[Found], marks: Marks) -> Iterator[str]:
    for test, cases in by(found, lambda each: each.test):
        runs = list(dict.fromkeys(each.run[1] for each in cases))
        yield REPEATED.format(cases[0].words.capitalize())
        yield row(cases[0].words, *runs)
        yield "|".join(["", " --- ", *[" :-: "] * len(runs), ""])
        for what, _ in by(cases, lambda each: each.run[0]):
            yield row(what, *(marks.get(f"{test}[{what} {run}]", NOT_RUN) for run in runs))


def other_table(found: list[Found], marks: Marks) -> Iterator[str]:
    yield row(OTHER, "test", "cases")
    yield "| --- | --- | --- |"
    for _, cases in by(found, lambda each: each.test):
        yield row(cases[0].where, cases[0].words, ", ".join(f"{shown(each)}{marks.get(each.name, NOT_RUN)}" for each in cases))


def by(found: list[Found], key: Callable[[Found], str]) -> Iterator[tuple[str, list[Found]]]:
    for value in dict.fromkeys(map(key, found)):
        yield value, [each for each in found if key(each) == value]


def shown(found: Found) -> str:
    return f"{found.case} " if found.case else ""


def row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '¦') for cell in cells)} |"


def stored(found: list[Found], text: str) -> dict[str, str]:
    """Return the marks of a page, by case."""
    marks: dict[str, str] = {}
    tests = {(each.where, each.words): each.test for each in found}
    repeated = {each.words: each.test for each in found if all(each.run)}
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        for cells in lines:
            if head[0] == FIRST:
                name = cells[0].replace(" ", "-")
                marks.update({f"{CHAOS}[{method}-{name}]": mark for method, mark in zip(head[4:], cells[4:])})
            elif head[0] == FAILS:
                marks.update({f"{RESTARTS}[{method}-{cells[0]}]": mark for method, mark in zip(head[1:], cells[1:])})
            elif head[0] in repeated:
                marks.update({f"{repeated[head[0]]}[{cells[0]} {run}]": mark for run, mark in zip(head[1:], cells[1:])})
            elif test := tests.get((cells[0], cells[1])):
                marks.update({f"{test}[{case}]" if case else test: mark for case, mark in MARKED.findall(cells[2])})
    return marks


def names_only(text: str) -> str:
    return re.sub(f"[{PASSED}{FAILED}]", NOT_RUN, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page has other cases than tests/")
    parser.add_argument("--cases", action="store_true", help="write nothing; print the cases, for pytest")
    asked = parser.parse_args()
    found = collected()
    if asked.cases:
        print(*(each.name for each in found), sep="\n")
        return
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    groups = list({each.group.name: each.group for each in found}.values())
    marks = {**stored(groups, old), **(of_groups(found, results(asked.results)) if asked.results else {})}
    new = page(groups, marks)
    if not asked.check:
        PAGE.write_text(new, encoding="utf-8")
    elif names_only(new) != names_only(old):
        sys.exit("docs/tables.md has other cases than tests/: run make tables, or tools/tables.py, which marks new cases as not run")


if __name__ == "__main__":
    main()
