"""What `helm test` runs in the cluster, for real: `ranklaunch check` with the arguments and the environment of the chart's pod."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbench.jobs.job import RANKLAUNCH
from testbench.judges.charts import CASES, Object, case, case_id, load, parse, rendered

WITH_RUNTIME = "trainjob-auto-gpu"  # its pod is the runtime's, which the chart does not know
pytestmark = pytest.mark.launchers


def checked(values: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    (pod,) = [each for each in parse(rendered("4", values)) if each["kind"] == "Pod"]
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["ranklaunch"]
    words = [word.replace("$$", "$") for word in container["args"]]
    command = [*RANKLAUNCH, *words]
    return subprocess.run(command, env=environment(container), cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def environment(container: Object) -> dict[str, str]:
    """As kubelet makes it, with the launchers of this machine, but for what it would take from a Secret or the pod."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    told = {each["name"]: each["value"].replace("$$", "$") for each in container["env"] if "value" in each}
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": "/tmp", **kept, **told}


@pytest.mark.parametrize("values", [path for path in CASES if case_id(path) != WITH_RUNTIME], ids=case_id)
def test_nothing_is_wrong_with_the_cases_of_the_chart(values: Path, tmp_path: Path) -> None:
    program = load(values).get("script")
    if program:
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    done = checked(values, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_that_is_not_in_the_image_is_told(tmp_path: Path) -> None:
    done = checked(case("job-plain-cpu"), tmp_path)
    assert done.returncode == 69
    assert "./prepare.sh" in done.stdout
