"""The benchmarks: what is made of numbers, and that each section measures what it says. How fast anything is, is not tested."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import bench, launchers, tables
from benchmarks.rows import Row, Target, in_turn, ratio, value
from benchmarks.tables import Section
from testbench.hosts import missing

ROOT = Path(__file__).resolve().parents[1]
ROWS = [Row("8 ranks", "ours", {"wall s": 0.5, "cpu s": 0.25}, 3), Row("8 ranks", "theirs", {"wall s": 2.0}, 3, "two\nlines | a bar")]


# Rows


def test_ways_are_measured_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []
    numbers = iter(range(6))

    def way(name: str) -> dict[str, float]:
        order.append(name)
        return {"s": float(next(numbers) ** 2)}

    found = in_turn("case", {"a": lambda: way("a"), "b": lambda: way("b")}, 3)
    assert order == ["a", "b"] * 3
    # a: 0, 4, 16; b: 1, 9, 25
    assert found == [Row("case", "a", {"s": 4.0}, 3), Row("case", "b", {"s": 9.0}, 3)]
    assert capsys.readouterr().err == "case: 3 x a, b\n"


def test_a_difference_is_taken_run_by_run() -> None:
    """The machine was slow in the second run: the medians alone would tell 2."""
    base, more = iter([1.0, 9.0, 3.0]), iter([1.5, 9.5, 5.0])
    alone, added = in_turn("case", {"alone": lambda: {"s": next(base)}, "added": lambda: {"s": next(more)}}, 3, against="alone")
    assert alone.values == {"s": 3.0}
    assert added.values == {"s": 5.0, "more s": 0.5}


def test_a_way_that_fails_is_a_row_that_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []

    def fails() -> dict[str, float]:
        calls.append("")
        msg = "exit code 7"
        raise RuntimeError(msg)

    bad, good = in_turn("case", {"bad": fails, "good": lambda: {"s": 1.0}}, 2, against="bad")
    assert bad == Row("case", "bad", {}, 0, "failed: exit code 7")
    assert bad.failed
    assert bad.noted("over 60 s") == bad
    assert good.noted("over 60 s").note == "over 60 s"
    assert good == Row("case", "good", {"s": 1.0}, 2)
    assert not good.failed
    assert len(calls) == 1
    assert "case: bad failed: exit code 7" in capsys.readouterr().err


def test_ratio() -> None:
    assert ratio(ROWS, "8 ranks", "wall s", "ours", "theirs") == 0.25
    assert ratio(ROWS, "8 ranks", "cpu s", "ours", "theirs") is None
    assert ratio(ROWS, "8 ranks", "cpu s", "theirs", "ours") is None
    assert ratio(ROWS, "9 ranks", "wall s", "ours", "theirs") is None
    assert value(ROWS, "8 ranks", "cpu s", "ours") == 0.25


@pytest.mark.parametrize(
    ("measured", "at_least", "met"), [(1.0, False, True), (1.1, False, False), (1.0, True, True), (0.9, True, False), (None, False, False)]
)
def test_targets(measured: float | None, at_least: bool, met: bool) -> None:
    assert Target("x", measured, 1.0, at_least).met is met


# Tables


def test_table_of_rows() -> None:
    assert tables.rows_table(ROWS) == (
        "| case | way | wall s | cpu s | runs | note |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| 8 ranks | ours | 0.5 | 0.25 | 3 |  |\n"
        "| 8 ranks | theirs | 2 |  | 3 | two lines \\| a bar |"
    )


def test_table_of_targets() -> None:
    found = [Target("a", 0.5, 1.0), Target("b", 0.5, 1.0, at_least=True), Target("c", None, 0.15)]
    assert tables.targets_table(found).splitlines()[2:] == [
        "| a | 0.5 | at most 1 | met |",
        "| b | 0.5 | at least 1 | **missed** |",
        "| c |  | at most 0.15 | not measured |",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, ""), (0.0, "0"), (42.0, "42"), (0.12345, "0.123"), (1234.5, "1,234"), (8e9, "8,000,000,000"), (-0.05, "-0.05")],
)
def test_numbers(number: float | None, text: str) -> None:
    assert tables.number(number) == text


def test_json_and_back() -> None:
    sections = [
        Section("start", ROWS, [Target("t", 0.5, 1.0)]),
        Section("idle", left_out="it is not there yet"),
        Section("scale", error="OSError: x"),
    ]
    data = json.loads(json.dumps(tables.as_json({"cores": 2}, True, sections)))
    assert tables.as_json(data["machine"], data["quick"], tables.from_json(data)) == data
    assert tables.from_json(data)[0] == sections[0]
    assert data["sections"][0]["targets"][0]["met"] is True
    assert [section.measured for section in sections] == [True, True, False]
    text = tables.report(data["machine"], data["quick"], sections)
    assert "cores: 2" in text
    assert "A quick run" in text
    assert "### idle\n\nLeft out: it is not there yet." in text
    assert "### scale\n\nNot measured: OSError: x." in text
    assert text.endswith("| t | 0.5 | at most 1 | met |\n")


def test_a_section_of_failed_rows_was_not_measured() -> None:
    assert not Section("start", [Row("case", "way", {}, 0, "failed: x")]).measured


def test_results_go_between_the_marks() -> None:
    page = f"# Page\n\n{tables.BEGIN}\nold\n\n{tables.END}\n\nafter\n"
    once = tables.filled(page, "new\n")
    assert once == f"# Page\n\n{tables.BEGIN}\nnew\n\n{tables.END}\n\nafter\n"
    assert tables.filled(once, "new\n") == once
    with pytest.raises(ValueError, match="results"):
        tables.filled("# Page\n", "new\n")


def test_the_page_has_a_place_for_results() -> None:
    assert "| new |" in tables.filled((ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), "| new |")


# Launchers


def test_ways_of_launchers_that_are_not_chosen_or_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "_chosen", {"torchrun", "mpirun"})
    monkeypatch.setattr(launchers, "path", lambda name: "" if name == "mpirun" else f"/bin/{name}")
    ways = ("torchrun --tee 3", "mpirun --tag-output", "deepspeed")
    assert launchers.here(*ways) == ["torchrun --tee 3"]
    assert launchers.absent("case", *ways) == [Row("case", "mpirun --tag-output", {}, 0, "not installed")]


# The command


def test_a_section_that_is_not_there_is_left_out() -> None:
    found = bench.section("no_such_section", quick=True)
    assert found == Section("no_such_section", left_out="it is not there yet")


def test_a_section_that_breaks_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    broken = ModuleType("broken")
    broken.measure = lambda quick: 1 / 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.broken", broken)
    assert bench.section("broken", quick=True).error == "ZeroDivisionError: division by zero"
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("note", "left_out"), [("not installed", True), ("failed: exit code 1", False)])
def test_a_section_without_launchers_is_left_out(monkeypatch: pytest.MonkeyPatch, note: str, left_out: bool) -> None:
    """One whose launchers fail is not."""
    alone = ModuleType("alone")
    alone.measure = lambda quick: [Row("case", "way", {}, 0, note)]  # type: ignore[attr-defined]
    alone.targets = lambda rows: []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.alone", alone)
    found = bench.section("alone", quick=True)
    assert bool(found.left_out) is left_out
    assert found.measured is left_out


def test_unknown_sections_and_peers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--only", "start,strat"])
    assert "strat: expected some of start,front," in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench.main(["--peers", "ssh"])


@pytest.mark.processes
@pytest.mark.launchers
@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed")
def test_quick_run(tmp_path: Path) -> None:
    names = ["start", "front", "failure", "features"]
    # The others take 5 seconds or more for each start.
    words = ["--quick", "--only", ",".join(names), "--peers", "mpirun", "--out", str(tmp_path)]
    done = _bench(*words, timeout=600)
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "bench.json").read_text())
    assert data["schema"] == "ranklaunch.bench/1"
    assert data["quick"] is True
    assert data["machine"]["cores"] >= 1
    rows = {section["name"]: section["rows"] for section in data["sections"]}
    assert list(rows) == names
    for row in [row for found in rows.values() for row in found]:
        _check(row)
    assert {row["way"] for row in rows["start"]} == {"bare loop", "ranklaunch spawn", "ranklaunch ranktable", "mpirun"}
    assert [row["way"] for row in rows["front"]] == ["alone", "with ranklaunch"]
    assert [row["values"].get("exit code") for row in rows["failure"]] == [42] * 4 + [42 if not missing() else None]
    assert {"more wall s", "more cpu s"} <= rows["features"][1]["values"].keys()
    assert {target["met"] for section in data["sections"] for target in section["targets"]} <= {True, False}
    assert "| 1 of 8 ranks fails | mpirun |" in done.stdout
    assert (tmp_path / "bench.svg").exists() != ("no bench.svg: " in done.stderr)


def _check(row: dict[str, Any]) -> None:
    """Measured and positive, or absent for a reason that is about the machine."""
    if row["way"] == "ranklaunch spawn" and not row["values"]:
        assert row["note"] == missing()
        return
    assert row["runs"] == 1, row
    measured = {unit: number for unit, number in row["values"].items() if unit in ("wall s", "cpu s", "s")}
    assert measured, row
    assert all(number > 0 and math.isfinite(number) for number in measured.values()), row


@pytest.mark.processes
def test_docs_are_not_written_without_results(tmp_path: Path) -> None:
    done = _bench("--write-docs", "--out", str(tmp_path), timeout=60)
    assert done.returncode == 1
    assert "run the benchmarks first" in done.stderr


def _bench(*words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "bench.py"), *words]
    return subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=timeout, check=False)
