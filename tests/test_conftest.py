"""The rules of conftest.py hold: shown on a small test suite of its own that breaks every one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

pytestmark = pytest.mark.processes

SUITE = """
import os, signal, subprocess
import pytest

def test_good():
    pass

def test_is_interrupted():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

@pytest.mark.processes
@pytest.mark.parametrize("case", range(3))
def test_cases(case):
    pass

@pytest.mark.parametrize("case", range(3))
def test_in_process(case):
    pass

@pytest.mark.one_python
def test_text():
    pass

def test_leaks():
    os.environ["RANKLAUNCH_LEAK"] = "1"

def test_after_the_leak():
    assert "RANKLAUNCH_LEAK" not in os.environ

def test_borrows(monkeypatch):
    monkeypatch.setenv("RANKLAUNCH_LEAK", "1")

def test_popen():
    subprocess.run(["true"])

def test_fork():
    if os.fork() == 0:
        os._exit(0)

def test_system():
    os.system("true")

@pytest.mark.processes
def test_marked():
    subprocess.run(["true"], check=True)

def test_skips():
    pytest.skip("nothing to see")

@pytest.mark.skipif(True, reason="never wanted")
def test_skipped_by_mark():
    pass

@pytest.mark.xfail(strict=True, reason="known")
def test_known():
    raise ValueError
"""
FIRST = {"test_cases[0]", *(f"test_in_process[{case}]" for case in range(3))}
GOOD = {"test_good", "test_is_interrupted", "test_after_the_leak", "test_borrows", "test_marked", *FIRST}
LEFT_OUT = {"test_cases[1]", "test_cases[2]", "test_text"}
SKIPPED = {"test_skips", "test_skipped_by_mark"}
BROKEN = {"test_leaks", "test_popen", "test_fork", "test_system"}


def run_pytest(folder: Path, *options: str, ci: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text((helpers.TESTS / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers\nmarkers =\n    training: x\n    one_python: x\n", encoding="utf-8"
    )
    env = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and together they take three times as long as the suite
    # As a shell starts what runs in its background: without SIGINT.
    command = ["env", "--ignore-signal=INT", sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, str(folder)]
    # A folder of its own: in the one that all share, a pytest that ends also clears away what earlier runs have left, however much.
    command.append(f"--basetemp={folder.with_name(folder.name + '-temporary')}")
    return subprocess.run(
        command, env={**env, "CI": "true"} if ci else env, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        place, _, rest = line.partition(" ")
        if "::" in place and rest:
            found.setdefault(rest.split()[0], set()).add(place.rpartition("::")[2])
    return found


NEEDS_MORE = "import pytest\npytest.importorskip('no_such_module')\n"


def test_rules(tmp_path: Path) -> None:
    """And what another Python shows. Golden files are renewed by a person."""
    (tmp_path / "test_it.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "test_more.py").write_text(NEEDS_MORE, encoding="utf-8")
    done = run_pytest(tmp_path, "--update-golden", "-rs")
    found = outcomes(done)
    assert found["PASSED"] >= GOOD
    assert found["SKIPPED"] == SKIPPED
    assert found["XFAIL"] == {"test_known"}
    assert found.get("FAILED", set()) | found.get("ERROR", set()) == BROKEN
    assert "the test changed os.environ and left it so: RANKLAUNCH_LEAK" in done.stdout
    assert "no_such_module" in done.stdout
    assert "ERROR test_more.py" not in done.stdout
    passed_there = outcomes(run_pytest(tmp_path, "--other-python"))["PASSED"]
    assert found["PASSED"] - passed_there == LEFT_OUT
    assert passed_there >= GOOD


def test_a_skip_is_a_failure_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "test_more.py").write_text(NEEDS_MORE, encoding="utf-8")
    done = run_pytest(tmp_path, "--continue-on-collection-errors", ci=True)
    found = outcomes(done)
    assert found["PASSED"] >= GOOD
    assert "SKIPPED" not in found
    assert found["FAILED"] | found["ERROR"] == BROKEN | SKIPPED
    assert found["XFAIL"] == {"test_known"}
    assert "skipped, which CI takes for a failure: Skipped: nothing to see" in done.stdout
    assert "never wanted" in done.stdout
    assert "ERROR test_more.py" in done.stdout
    assert "no_such_module" in done.stdout


def test_golden_files_are_not_renewed_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_good(): pass\n", encoding="utf-8")
    done = run_pytest(tmp_path, "--update-golden", ci=True)
    assert done.returncode == 4
    assert "--update-golden is refused" in done.stdout + done.stderr


@pytest.mark.parametrize(("target", "marks"), [("test-launchers", "chaos|launchers|guide"), ("test-charts", "charts|specs")])
def test_make_looks_in_all_folders_that_have_such_tests(target: str, marks: str) -> None:
    makefile = (helpers.ROOT / "Makefile").read_text(encoding="utf-8")
    (rule,) = re.findall(rf"^{target}:.*##.*\n(?:.+\n)+", makefile, re.MULTILINE)
    looked_in = [helpers.ROOT / path for path in re.findall(r"\btests/[\w.]+", rule)]
    tests = {path: path.read_text(encoding="utf-8") for path in (helpers.ROOT / "tests").rglob("test_*.py")}
    having = [path for path, text in tests.items() if re.search(rf"mark\.({marks})\b", text)]
    assert having
    assert [path for path in having if not any(path.is_relative_to(each) for each in looked_in)] == []
