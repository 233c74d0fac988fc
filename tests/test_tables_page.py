"""The page of what `make tables` has run: it has all cases that there are, and keeps what a run in parts has found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import helpers
import pytest
from chaos_cases import CASES, EVENTS, LAUNCHERS, TYPICAL

from testbench import places


@pytest.fixture
def tables() -> ModuleType:
    return places.module("tools/tables.py")


@pytest.mark.one_python
@pytest.mark.processes
def test_the_page_has_the_cases_that_there_are() -> None:
    command = [sys.executable, "tools/tables.py", "--check"]
    done = subprocess.run(command, cwd=helpers.ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.one_python
@pytest.mark.processes
def test_the_page_of_scripts_has_the_rows_that_there_are() -> None:
    command = [sys.executable, "tools/scripts_table.py", "--check"]
    done = subprocess.run(command, cwd=helpers.ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_what_was_found_stays(tables: ModuleType, tmp_path: Path) -> None:
    """In the page, while another part is run: of a test without cases, with them, with runs of one, and of the tables by launcher."""
    names = ("tests/a/test_b.py::test_it_ends", "tests/a/test_b.py::test_it_is[x-y z]", "tests/a/test_b.py::test_it_is[w]")
    names += ("tests/a/test_b.py::test_it_hangs[a b 1]", "tests/a/test_b.py::test_it_hangs[a b 2]")
    names += tuple(f"{tables.CHAOS}[{method}-rank-exits-42]" for method in ("spawn", "mpirun", "msrun"))
    names += tuple(f"{tables.RESTARTS}[{method}-a rank exits]" for method in ("spawn", "msrun"))
    found = [tables.Found(name, table=True) for name in names]
    xml = tmp_path / "results.xml"
    cases = [
        '<testcase time="0.1"/>',
        '<testcase classname="tests.a.test_b" name="test_it_ends"/>',
        '<testcase classname="tests.a.test_b" name="test_it_is[x-y z]"><failure/></testcase>',
        '<testcase classname="tests.a.test_b" name="test_it_is[x-y z]"/>',
        '<testcase classname="tests.a.test_b" name="test_it_is[w]"><skipped/></testcase>',
        '<testcase classname="tests.a.test_b" name="test_it_hangs[a b 2]"/>',
        '<testcase classname="tests.cluster.test_chaos" name="test_chaos[spawn-rank-exits-42]"/>',
        '<testcase classname="tests.cluster.test_chaos" name="test_chaos[mpirun-rank-exits-42]"><error/></testcase>',
        '<testcase classname="tests.launchers.test_restarts" name="test_after_each_failure_all_ranks_start_again[msrun-a rank exits]"/>',
    ]
    xml.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    page = tables.page(found, tables.results(xml))
    assert "| a/test_b.py | it is | x-y z ✗, w ? |" in page
    assert "| a b | ? | ✓ |" in page
    assert all(f"{why}." in page for case in (*CASES, *EVENTS) for why in case.without.values())
    marks = tables.stored(found, page)
    assert {name: marks[name] for name in names} == dict(zip(names, "✓✗??✓✓✗??✓"))
    assert tables.page(found, marks) == page
    other = tables.page([*found, tables.Found("tests/a/test_b.py::test_more", table=True)], marks)
    assert tables.names_only(other) != tables.names_only(page)


def test_typical_failures_are_in_the_table() -> None:
    assert TYPICAL.keys() <= {launcher.method for launcher in LAUNCHERS}
    assert {name for named in TYPICAL.values() for name in named} <= {case.name for case in (*CASES, *EVENTS)}
