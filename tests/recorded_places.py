"""Environments of places, recorded in tests/environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent / "environments"


def recorded_cases() -> list[dict[str, Any]]:
    """Return the cases of places.toml: platform, env, files and plan."""
    cases = tomllib.loads((FOLDER / "places.toml").read_text(encoding="utf-8"))["case"]
    return [{"files": {}, **case} for case in cases]
