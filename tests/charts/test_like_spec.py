"""The chart and `ranklaunch spec` make the same objects from the same values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chart_tools import RELEASE, Object, every_case, load, parse, rendered

from ranklaunch.entrypoints.main import COMMANDS

pytestmark = pytest.mark.skipif("spec" not in COMMANDS, reason="ranklaunch has no command spec")


def by_name(objects: list[Object]) -> dict[str, Object]:
    return {f"{each['kind']} {each['metadata']['name']}": each for each in objects}


def of_the_run(objects: list[Object]) -> list[Object]:
    """Without the pod of `helm test`."""
    return [each for each in objects if "helm.sh/hook" not in each["metadata"].get("annotations", {})]


def spec(folder: Path, values: Path) -> list[Object]:
    found = load(values)
    wanted = folder / "values.json"
    wanted.write_text(json.dumps(found), encoding="utf-8")
    command = [sys.executable, "-m", "ranklaunch", "spec", found["engine"], "--name", RELEASE, "--values", str(wanted)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout)


@every_case
def test_chart_and_spec_agree(values: Path, tmp_path: Path) -> None:
    chart = by_name(of_the_run(parse(rendered("4", values))))
    assert chart == by_name(spec(tmp_path, values))
