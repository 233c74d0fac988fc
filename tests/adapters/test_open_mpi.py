"""What is read of the machine for Open MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranklaunch.adapters.launchers.shared import open_mpi
from ranklaunch.system.disk import DiskFiles

STATUS, V2 = "proc/self/status", "sys/fs/cgroup/cpu.max"
QUOTA, PERIOD = (f"sys/fs/cgroup/cpu/cpu.cfs_{name}_us" for name in ("quota", "period"))


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, None),
        ({STATUS: "Name:\tx\nCpus_allowed_list:\t0-3,8\n"}, 5),
        ({STATUS: "Cpus_allowed_list:\t0-7\n", V2: "150000 100000\n"}, 2),
        ({STATUS: "Cpus_allowed_list:\t0-7\n", V2: "max 100000\n"}, 8),
        ({STATUS: "Cpus_allowed_list:\t0-7\n", QUOTA: "300000\n", PERIOD: "100000\n"}, 3),
        ({STATUS: "Cpus_allowed_list:\t0-7\n", QUOTA: "-1\n", PERIOD: "100000\n"}, 8),
        ({V2: "odd"}, None),
    ],
)
def test_processors(tmp_path: Path, files: dict[str, str], cpus: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert open_mpi.cpus(DiskFiles(str(tmp_path))) == cpus


def test_what_an_installation_elsewhere_excludes(tmp_path: Path) -> None:
    folder = tmp_path / "opt/openmpi/etc"
    folder.mkdir(parents=True)
    (folder / open_mpi.CONFIG).write_text("# btl = ^tcp\npml = ^ucx\nbtl = ^uct,openib,ofi\n")
    assert open_mpi.excluded(DiskFiles(str(tmp_path)), "/opt/openmpi/bin/mpirun") == ["ofi", "openib", "uct"]
    assert open_mpi.excluded(DiskFiles(str(tmp_path)), "/usr/bin/mpirun") == []
