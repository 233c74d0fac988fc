"""The benchmarks of output, of idle launchers and of size, each once with little: that they measure, not what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import cluster, idle, lines, output, scale
from benchmarks.rows import Row, Target
from testbench.hosts import missing

pytestmark = [pytest.mark.processes, pytest.mark.launchers]

FREE = {"wrong lines", "CPU s/min", "wake-ups/s", "CPU s/GB", "CPU s", "of it for this MB", "longest write s"}  # may be 0


def sound(rows: Sequence[Row], targets: Sequence[Target]) -> None:
    assert rows
    assert len({(row.case, row.way) for row in rows}) == len(rows)
    for row in rows:
        assert all(value >= 0 for value in row.values.values()), row
        assert all(value > 0 for unit, value in row.values.items() if unit not in FREE), row
    assert all(target.text for target in targets)


def test_output_is_measured_and_nothing_is_lost() -> None:
    rows = output.measure(quick=True)
    targets = output.targets(rows)
    sound(rows, targets)
    assert all(row.values["wrong lines"] == 0 for row in rows if row.way in ("ranklaunch", "cat"))
    assert [target for target in targets if target.value is None] == []


def test_idle_launchers_are_measured() -> None:
    rows = idle.measure(quick=True)
    sound(rows, idle.targets(rows))
    assert [row.way for row in rows if row.case == idle.CASE] == ["ranklaunch", "torchrun", "deepspeed"]
    assert [row.way for row in rows if row.case == idle.WATCHING] == ["ranklaunch", idle.UNWATCHED]


def test_size_is_measured() -> None:
    assert not missing()
    rows = scale.measure(quick=True)
    sound(rows, scale.targets(rows))
    assert {row.way for row in rows} == {*scale.PLANS, "ranklaunch"}


def test_clusters_are_measured() -> None:
    assert not missing()
    rows = cluster.measure(quick=True)
    targets = cluster.targets(rows)
    sound(rows, targets)
    assert {row.way: row.note for row in rows} == dict.fromkeys([*cluster.RAY, *cluster.JAX], "")
    assert all(target.value for target in targets)


def written(tmp_path: Path, made: bytes) -> int:
    (tmp_path / "console").write_bytes(made)
    return lines.wrong([tmp_path / "console"], ranks=1, blocks=2)


def test_wrong_lines_are_found(tmp_path: Path) -> None:
    first, second = (lines.block(lines.template(0), number) for number in range(2))
    assert written(tmp_path, first + second) == 0
    assert written(tmp_path, (first + second).replace(b"w00", b"[rank 0] w00")) == 0
    assert written(tmp_path, first + second[lines.LINE :]) == 1
    assert written(tmp_path, first + second[:150] + b"torn" + second[150:]) == 1
    assert written(tmp_path, second + first) == lines.BLOCK_LINES
    assert written(tmp_path, first + second + second[: lines.LINE]) == 1
