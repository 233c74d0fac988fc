"""The launchers of an interpreter whose scripts are not there, as in an environment that was copied: they are started as its modules."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.places import child
from testbench.waiting import free_port

LONG_S = 240
PACKAGES = {"torchrun": "torch", "accelerate": "accelerate", "deepspeed": "deepspeed"}
MODULES = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch", "deepspeed": "deepspeed.launcher.runner"}

pytestmark = [pytest.mark.processes, pytest.mark.launchers]


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """With the packages of this one, and no scripts."""
    version = f"python3.{sys.version_info.minor}"
    packages = tmp_path / "venv" / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    found = filter(None, map(importlib.util.find_spec, PACKAGES.values()))
    origins = [Path(each.origin).parent for each in found if each.origin]
    for origin in origins:
        (packages / origin.name).symlink_to(origin)
    (packages / "others.pth").write_text("\n".join({str(origin.parent) for origin in origins}))  # what these need
    (tmp_path / "venv" / "bin").mkdir()
    base = Path(sys.base_prefix, "bin")
    (tmp_path / "venv" / "bin" / version).symlink_to(base / version)
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {base}\ninclude-system-site-packages = false\n")
    return tmp_path / "venv" / "bin" / version


@pytest.mark.parametrize("method", ["torchrun", "accelerate", pytest.param("deepspeed", marks=pytest.mark.table)])
def test_the_module_starts_the_ranks_and_its_words_count_as_the_scripts(method: str, interpreter: Path, tmp_path: Path) -> None:
    if not importlib.util.find_spec(PACKAGES[method]):
        pytest.skip(f"{method} is not installed")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    env.update({name: os.environ[name] for name in ("TMPDIR", "PYTHONPATH") if name in os.environ})
    words = ["--method", method, "--slots", "2", "--python", interpreter, "--log-dir", tmp_path / "logs", "--master-port", free_port()]
    words += ["--", child("exits.py"), "42"]

    def call(command: str, *more: str) -> subprocess.CompletedProcess[str]:
        every = [*RANKLAUNCH, command, *more, *map(str, words)]
        return subprocess.run(every, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=LONG_S, check=False)

    plan = json.loads(call("plan", "--format", "json").stdout)
    assert plan["processes"][0]["argv"][:3] == [str(interpreter), "-m", MODULES[method]]
    assert plan["processes"][0]["name"] == method
    assert call("check").returncode == 0

    done = call("run")
    assert done.returncode == 42, done.stdout + done.stderr
    attempt = tmp_path / "logs" / "attempt_1"
    culprit = checked_verdict(attempt / "verdict.json")["culprit"]
    assert (culprit["rank"], culprit["exit_code"]) in ((0, 42), (1, 42))
    assert {"rank_0.log", "rank_1.log", f"{method}.log"} <= {path.name for path in attempt.iterdir()}
    records = [json.loads(path.read_text()) for path in attempt.glob("records*/**/*.json")]
    launchers = {record.get("name") for record in records if "name" in record}
    assert method in launchers, records
