"""Stand-ins for launchers that need seconds to start or cannot be installed: small programs of the same name."""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping
from pathlib import Path

LAUNCHER = Path(__file__).parent / "launcher.py"


def put(folder: Path, *names: str) -> Path:
    """Make a folder with the stand-in launcher under these names, for PATH; return it."""
    text = LAUNCHER.read_text(encoding="utf-8")
    return write(folder, dict.fromkeys(names, text))


def write(folder: Path, programs: Mapping[str, str]) -> Path:
    """Make a folder with Python programs, by name; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder
