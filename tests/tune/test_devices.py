"""How much memory a device has: as its tool says, or the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranklaunch.env import tuning
from ranklaunch.system import memory

NPU = "\tNPU ID                         : 0\n\tHBM Capacity(MB)               : 65536\n\tHBM Usage Rate(%)              : 3\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kind", "tool", "answer", "expected"),
    [
        ("gpu", "nvidia-smi", "81559\n40960\n", (40960 << 20, "nvidia-smi")),
        ("gpu", "nvidia-smi", "[N/A]\n", (0, "")),
        ("npu", "npu-smi", NPU, (65536 << 20, "npu-smi")),
        ("npu", "another", "", (0, "")),
    ],
)
def test_tools_are_asked(kind: str, tool: str, answer: str, expected: tuple[int, str], tmp_path: Path) -> None:
    script = tmp_path / tool
    script.write_text(f"#!/bin/sh\nprintf '%s' '{answer}'\n")
    script.chmod(0o755)
    assert memory.of_devices(kind, {"PATH": str(tmp_path)}, 2) == expected


def test_ranks_on_cpus_share_the_memory() -> None:
    assert memory.of_devices("cpu", {}, 4)[0] * 4 <= memory.of_devices("cpu", {}, 1)[0]


@pytest.mark.parametrize(
    ("text", "expected"), [("1024", 1024), ("32g", 32 << 30), ("32GiB", 32 << 30), ("1.5 T", 3 << 39), ("512mb", 512 << 20)]
)
def test_a_size_is_read_as_people_write_it(text: str, expected: int) -> None:
    assert tuning.size(text) == expected


@pytest.mark.parametrize("text", ["", "0", "g", "-1", "32x", "1e9", "9" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected bytes"):
        tuning.size(text)
