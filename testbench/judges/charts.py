"""Shared parts of the tests of charts/: two versions of Helm, cases, rendered objects."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbench.places import ROOT, module

CHARTS = ROOT / "charts"
RUN = CHARTS / "ranklaunch"
RUNTIMES = CHARTS / "ranklaunch-runtimes"
HELMS = ("3", "4")
CASES = sorted((RUN / "ci").glob("*-values.yaml"))
RUNTIME_CASES = sorted((RUNTIMES / "ci").glob("*-values.yaml"))
RELEASE = "demo"

Object = dict[str, Any]


def case_id(path: Path) -> str:
    return path.name.replace("-values.yaml", "")


def case(name: str) -> Path:
    return next(path for path in CASES if case_id(path) == name)


every_helm = pytest.mark.parametrize("major", HELMS)
every_case = pytest.mark.parametrize("values", CASES, ids=case_id)


def helm(major: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm without a cluster and without the user's settings."""
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [str(program(major)), *map(str, words)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@functools.cache
def program(major: str) -> Path:
    try:
        path: Path = module("tools/helm.py").helm(major)
    except SystemExit as error:
        pytest.skip(str(error))
    return path


@functools.cache
def rendered(major: str, values: Path, chart: Path = RUN, *more: str) -> str:
    done = helm(major, "template", RELEASE, chart, "--namespace", "team", "--values", values, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered_with(major: str, folder: Path, values: Path, changes: Object, *more: str) -> subprocess.CompletedProcess[str]:
    """Render a case with changed values. The changes go through a file, so that every value keeps its type."""
    changed = folder / "changes.yaml"
    changed.write_text(json.dumps(changes), encoding="utf-8")
    return helm(major, "template", RELEASE, RUN, "--namespace", "team", "--values", values, "--values", changed, *more)


def parse(text: str) -> list[Object]:
    import yaml  # from the extra `charts`; tests without the marker do not need it

    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, Loader=fast) if each]


def load(path: Path) -> Object:
    found: Object = parse(path.read_text(encoding="utf-8"))[0]
    return found


def of_kind(objects: list[Object], kind: str) -> Object:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found
