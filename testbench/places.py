"""Paths in this repository."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
CHILDREN = ROOT / "tests" / "children"
EXAMPLES = ROOT / "examples"


def child(name: str) -> str:
    """Return the path of a small program that tests start."""
    path = CHILDREN / name
    assert path.is_file(), path
    return str(path)


@functools.cache
def module(place: str) -> ModuleType:
    """Import a Python file of the repository that is in no package."""
    spec = importlib.util.spec_from_file_location(Path(place).stem, ROOT / place)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # dataclasses look up their module there
    spec.loader.exec_module(made)
    return made
